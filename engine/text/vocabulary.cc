// SPDX-License-Identifier: LGPL-2.1-or-later
#include "text/vocabulary.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <unordered_set>
#include <utility>

#include "qtts/utf8.h"
#include "text/byte_alphabet.h"

namespace qtts {
namespace {

constexpr int32_t kMaxPieces = 1 << 22;  // ranks are exact as float scores
constexpr int32_t kMaxAddedId = 1 << 24;
constexpr size_t kMaxAddedTokens = 4096;
constexpr size_t kMaxQuotedToken = 60;  // maximum bytes of untrusted text in a message

std::string Quote(std::string_view text) {
  if (text.size() <= kMaxQuotedToken) return "\"" + RepairUtf8(text) + "\"";
  return "\"" + RepairUtf8(text.substr(0, kMaxQuotedToken)) + "…\"";
}

// Reads vocab.json: one flat object, piece -> id.
class VocabReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  struct Entry {
    std::string piece;
    int64_t id;
  };

  std::vector<Entry> entries;
  std::string error;  // cause of a failed parse

  bool key(string_t& value) override {
    key_ = std::move(value);
    return true;
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (!open_) return Fail("holds a number");
    if (value >= static_cast<number_unsigned_t>(kMaxPieces)) {
      return FailKey("has id " + std::to_string(value) + ", beyond the limit of " + std::to_string(kMaxPieces));
    }
    entries.push_back({std::move(key_), static_cast<int64_t>(value)});
    return true;
  }
  bool start_object(std::size_t /*elements*/) override {
    if (open_) return NotAnId("an object");
    open_ = true;
    return true;
  }
  bool end_object() override { return true; }
  bool null() override { return NotAnId("null"); }
  bool boolean(bool /*value*/) override { return NotAnId("a boolean"); }
  bool number_integer(number_integer_t value) override { return NotAnId(std::to_string(value)); }
  bool number_float(number_float_t /*value*/, const string_t& text) override { return NotAnId(text); }
  bool string(string_t& /*value*/) override { return NotAnId("a string"); }
  bool binary(binary_t& /*value*/) override { return NotAnId("binary data"); }
  bool start_array(std::size_t /*elements*/) override { return NotAnId("an array"); }
  bool end_array() override { return true; }
  bool parse_error(std::size_t position, const std::string& /*last_token*/,
                   const nlohmann::detail::exception& /*exception*/) override {
    return Fail("is not valid JSON: error at byte " + std::to_string(position));
  }

 private:
  bool Fail(std::string message) {
    error = std::move(message);
    return false;
  }
  bool FailKey(const std::string& message) { return Fail("key " + Quote(key_) + " " + message); }
  bool NotAnId(const std::string& found) {
    if (!open_) return Fail("holds " + found + ", expected an object of pieces and ids");
    return FailKey("holds " + found + ", expected an id, 0 or more");
  }

  bool open_ = false;
  std::string key_;
};

// Two hash tables with open addressing. A load looks up each piece of each merge and each level of each piece. With
// chained nodes these lookups alone took longer than the rest of the load.

// Returns a power of two, at least twice `count`.
size_t TableSize(size_t entries) {
  size_t size = 16;
  while (size < 2 * entries) size *= 2;
  return size;
}

// Piece -> id.
class PieceTable {
 public:
  static constexpr int32_t kNone = -1;

  // `pieces` must outlive the table and stay unchanged. `count`: maximum number of insertions.
  PieceTable(const std::vector<std::string>& pieces, size_t count) : pieces_(pieces), slots_(TableSize(count)) {}

  // Returns false if the piece is in the table already.
  bool Insert(int32_t id) {
    const std::string& piece = pieces_[static_cast<size_t>(id)];
    const size_t hash = std::hash<std::string_view>()(piece);
    Slot& slot = slots_[Locate(piece, hash)];
    if (slot.id != kNone) return false;
    slot = {static_cast<uint32_t>(hash), id};
    return true;
  }
  // Returns the id, or kNone.
  int32_t Find(std::string_view piece) const { return slots_[Locate(piece, std::hash<std::string_view>()(piece))].id; }

 private:
  struct Slot {
    uint32_t hash = 0;
    int32_t id = kNone;
  };
  size_t Locate(std::string_view piece, size_t hash) const {
    const size_t mask = slots_.size() - 1;
    size_t at = hash & mask;
    while (slots_[at].id != kNone &&
           (slots_[at].hash != static_cast<uint32_t>(hash) || pieces_[static_cast<size_t>(slots_[at].id)] != piece)) {
      at = (at + 1) & mask;
    }
    return at;
  }
  const std::vector<std::string>& pieces_;
  std::vector<Slot> slots_;
};

// (left id, right id) -> rank.
class PairTable {
 public:
  static constexpr int32_t kNone = -1;

  explicit PairTable(size_t count) : slots_(TableSize(count)) {}

  void Insert(int32_t left, int32_t right, int32_t rank) {
    slots_[Locate(Key(left, right))] = {Key(left, right), rank};
  }
  // Returns the rank, or kNone.
  int32_t Find(int32_t left, int32_t right) const { return slots_[Locate(Key(left, right))].rank; }

 private:
  struct Slot {
    uint64_t key = 0;
    int32_t rank = kNone;
  };
  static uint64_t Key(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32U | static_cast<uint32_t>(right);
  }
  size_t Locate(uint64_t key) const {
    constexpr uint64_t kMixer = 0x9E3779B97F4A7C15;  // golden ratio: spreads close keys
    const size_t mask = slots_.size() - 1;
    size_t at = static_cast<size_t>((key * kMixer) >> 32U) & mask;
    while (slots_[at].rank != kNone && slots_[at].key != key) at = (at + 1) & mask;
    return at;
  }
  std::vector<Slot> slots_;
};

// Builds a Vocabulary from its files, step by step.
class Parser {
 public:
  explicit Parser(const VocabularyFiles& files) : files_(files) {}

  Result<Vocabulary> Parse() {
    QTTS_RETURN_IF_ERROR(ReadPieces());
    QTTS_RETURN_IF_ERROR(ReadMerges());
    QTTS_RETURN_IF_ERROR(CheckMergesExact());
    QTTS_RETURN_IF_ERROR(ReadAddedTokens());
    ids_.reset();
    return std::move(vocabulary_);
  }

 private:
  struct Merge {
    int32_t left;
    int32_t right;
    int32_t product;
    size_t line;  // from 1
  };

  Status ReadPieces() {
    const std::string& name = files_.vocab_name;
    VocabReader reader;
    if (!nlohmann::json::sax_parse(files_.vocab, &reader)) return Status::CorruptModel(name + " " + reader.error);
    const size_t count = reader.entries.size();
    vocabulary_.pieces.resize(count);
    vocabulary_.ranks.assign(count, Vocabulary::kUnreachable);
    std::vector<bool> taken(count);
    for (VocabReader::Entry& entry : reader.entries) {
      const auto id = static_cast<size_t>(entry.id);
      if (id >= count) {
        return Status::CorruptModel(name + ": key " + Quote(entry.piece) + " has id " + std::to_string(id) + ", but " +
                                    std::to_string(count) + " pieces must have the ids 0 to " +
                                    std::to_string(count - 1));
      }
      if (taken[id]) {
        return Status::CorruptModel(name + ": keys " + Quote(vocabulary_.pieces[id]) + " and " + Quote(entry.piece) +
                                    " have the same id " + std::to_string(id));
      }
      taken[id] = true;
      vocabulary_.pieces[id] = std::move(entry.piece);
    }
    ids_.emplace(vocabulary_.pieces, count);
    std::string bytes;
    for (size_t id = 0; id < count; ++id) {
      const std::string& piece = vocabulary_.pieces[id];
      bytes.clear();
      if (piece.empty() || !UnspellBytes(piece, &bytes)) {
        return Status::CorruptModel(name + ": key " + Quote(piece) + " (id " + std::to_string(id) +
                                    ") is not spelled in the byte alphabet of byte-level BPE");
      }
      if (!ids_->Insert(static_cast<int32_t>(id))) {
        return Status::CorruptModel(name + ": key " + Quote(piece) + " occurs twice");
      }
      if (bytes.size() == 1) vocabulary_.ranks[id] = Vocabulary::kByte;
    }
    for (int byte = 0; byte < 256; ++byte) {
      const std::string_view letter = ByteLetter(static_cast<uint8_t>(byte));
      if (ids_->Find(letter) == PieceTable::kNone) {
        return Status::CorruptModel(name + ": no piece " + Quote(letter) + " for byte " + std::to_string(byte) +
                                    ": a byte-level vocabulary has one for each of the 256 bytes");
      }
    }
    return Status::Ok();
  }

  std::string Line(size_t line) const { return files_.merges_name + ":" + std::to_string(line) + ": "; }

  Status ReadMerges() {
    merges_.reserve(vocabulary_.pieces.size());
    std::string_view rest = files_.merges;
    for (size_t line = 1; !rest.empty(); ++line) {
      const size_t end = std::min(rest.find('\n'), rest.size());
      const std::string_view text = rest.substr(0, end);
      rest.remove_prefix(std::min(end + 1, rest.size()));
      if (line == 1 && text.starts_with("#version:")) continue;
      QTTS_RETURN_IF_ERROR(ReadMerge(text, line));
    }
    return Status::Ok();
  }

  Status ReadMerge(std::string_view text, size_t line) {
    constexpr std::string_view kBlanks = " \t\r\v\f";
    std::vector<std::string_view>& words = words_;
    words.clear();
    for (size_t at = text.find_first_not_of(kBlanks); at != std::string_view::npos;) {
      const size_t end = std::min(text.find_first_of(kBlanks, at), text.size());
      words.push_back(text.substr(at, end - at));
      at = text.find_first_not_of(kBlanks, end);
    }
    if (words.empty()) return Status::Ok();
    if (words.size() != 2) {
      return Status::CorruptModel(Line(line) + "expected two pieces, found " + std::to_string(words.size()) + " in " +
                                  Quote(text));
    }
    Merge merge{0, 0, 0, line};
    QTTS_ASSIGN_OR_RETURN(merge.left, Part(words[0], line));
    QTTS_ASSIGN_OR_RETURN(merge.right, Part(words[1], line));
    joined_.assign(words[0]);
    joined_ += words[1];
    merge.product = ids_->Find(joined_);
    if (merge.product == PieceTable::kNone) {
      return Status::CorruptModel(Line(line) + "makes " + Quote(joined_) + ", which is not a piece of " +
                                  files_.vocab_name);
    }
    int32_t& rank = vocabulary_.ranks[static_cast<size_t>(merge.product)];
    if (rank != Vocabulary::kUnreachable) {
      return Status::Unsupported(Line(line) + "makes " + Quote(joined_) + " a second time, after line " +
                                 std::to_string(merges_[static_cast<size_t>(rank)].line) +
                                 "; only vocabularies with one merge for each piece are supported");
    }
    rank = static_cast<int32_t>(merges_.size());
    merges_.push_back(merge);
    return Status::Ok();
  }

  // Returns the id of one side of a merge. It must exist when the merge is applied.
  Result<int32_t> Part(std::string_view piece, size_t line) const {
    const int32_t id = ids_->Find(piece);
    if (id == PieceTable::kNone) {
      return Status::CorruptModel(Line(line) + "joins " + Quote(piece) + ", which is not a piece of " +
                                  files_.vocab_name);
    }
    if (vocabulary_.ranks[static_cast<size_t>(id)] == Vocabulary::kUnreachable) {
      return Status::Unsupported(Line(line) + "joins " + Quote(piece) +
                                 ", which no earlier line makes; only merges in the order of training are supported");
    }
    return id;
  }

  // Checks that BPE, applied to the bytes of a merge's product with only the earlier merges, ends with exactly the
  // merge's two sides. If this holds for all merges, two neighbours that spell the product are always those two sides,
  // so pieces and ranks say as much as the list of pairs.
  Status CheckMergesExact() const {
    PairTable pairs(merges_.size());
    for (size_t rank = 0; rank < merges_.size(); ++rank) {
      pairs.Insert(merges_[rank].left, merges_[rank].right, static_cast<int32_t>(rank));
    }
    for (size_t rank = 0; rank < merges_.size(); ++rank) {
      // Each side alone is known to be built by its own merges. The only risk is a merge across the border between them
      // before both are complete. The loop walks back in time over the pieces on both sides of the border; a piece
      // exists until its parent's rank.
      int32_t left = merges_[rank].left;
      int32_t right = merges_[rank].right;
      auto left_until = static_cast<int32_t>(rank);
      auto right_until = static_cast<int32_t>(rank);
      while (true) {
        const int32_t left_rank = vocabulary_.ranks[static_cast<size_t>(left)];
        const int32_t right_rank = vocabulary_.ranks[static_cast<size_t>(right)];
        if (left_rank < 0 && right_rank < 0) break;
        // With equal ranks the right one was made later: BPE goes from left to right.
        if (left_rank > right_rank) {
          left_until = left_rank;
          left = merges_[static_cast<size_t>(left_rank)].right;
        } else {
          right_until = right_rank;
          right = merges_[static_cast<size_t>(right_rank)].left;
        }
        const int32_t across = pairs.Find(left, right);
        // At equal ranks the leftmost pair goes first.
        if (across != PairTable::kNone && across < left_until && across <= right_until) {
          return Status::Unsupported(Line(merges_[rank].line) + "can never be applied, since line " +
                                     std::to_string(merges_[static_cast<size_t>(across)].line) +
                                     " comes first; only merges that come from training are supported");
        }
      }
    }
    return Status::Ok();
  }

  Status ReadAddedTokens() {
    const std::string& name = files_.config_name;
    const nlohmann::json config = nlohmann::json::parse(files_.config, nullptr, /*allow_exceptions=*/false);
    if (!config.is_object()) return Status::CorruptModel(name + " is not a JSON object");
    const auto prefix = config.find("add_prefix_space");
    if (prefix != config.end() && prefix->is_boolean() && prefix->get<bool>()) {
      return Status::Unsupported(name + ": add_prefix_space is true; only false is supported");
    }
    const auto decoder = config.find("added_tokens_decoder");
    if (decoder == config.end()) return Status::CorruptModel(name + ": no key \"added_tokens_decoder\"");
    if (!decoder->is_object()) return Status::CorruptModel(name + ": \"added_tokens_decoder\" is not an object");
    if (decoder->size() > kMaxAddedTokens) {
      return Status::Unsupported(name + ": \"added_tokens_decoder\" has " + std::to_string(decoder->size()) +
                                 " entries, more than " + std::to_string(kMaxAddedTokens));
    }
    std::unordered_set<std::string> contents;
    for (const auto& [key, token] : decoder->items()) {
      QTTS_ASSIGN_OR_RETURN(AddedTokenEntry added, ReadAddedToken(key, token));
      if (!contents.insert(added.content).second) {
        return Status::CorruptModel(name + ": added_tokens_decoder has " + Quote(added.content) + " twice");
      }
      vocabulary_.added.push_back(std::move(added));
    }
    std::sort(vocabulary_.added.begin(), vocabulary_.added.end(),
              [](const AddedTokenEntry& a, const AddedTokenEntry& b) { return a.id < b.id; });
    return Status::Ok();
  }

  Result<AddedTokenEntry> ReadAddedToken(const std::string& key, const nlohmann::json& token) const {
    const std::string where = files_.config_name + ": added_tokens_decoder " + Quote(key) + ": ";
    AddedTokenEntry added;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), added.id);
    const bool canonical = error == std::errc() && std::to_string(added.id) == key;
    if (!canonical || added.id < 0 || added.id > kMaxAddedId) {
      return Status::CorruptModel(where + "the key is not an id from 0 to " + std::to_string(kMaxAddedId));
    }
    if (!token.is_object()) return Status::CorruptModel(where + "expected an object");
    const auto content = token.find("content");
    if (content == token.end() || !content->is_string() || content->get_ref<const std::string&>().empty()) {
      return Status::CorruptModel(where + "\"content\" is not a non-empty string");
    }
    added.content = content->get<std::string>();
    for (const char* flag : {"lstrip", "rstrip", "single_word"}) {
      const auto value = token.find(flag);
      if (value != token.end() && !value->is_boolean()) {
        return Status::CorruptModel(where + "\"" + flag + "\" is not a boolean");
      }
      if (value != token.end() && value->get<bool>()) {
        return Status::Unsupported(where + "\"" + flag + "\" is true; only false is supported");
      }
    }
    const auto id = static_cast<size_t>(added.id);
    if (id < vocabulary_.pieces.size() && vocabulary_.pieces[id] != added.content) {
      return Status::CorruptModel(where + Quote(added.content) + " has the id of the piece " +
                                  Quote(vocabulary_.pieces[id]) + " of " + files_.vocab_name);
    }
    return added;
  }

  const VocabularyFiles& files_;
  Vocabulary vocabulary_;
  std::optional<PieceTable> ids_;        // set after the pieces are read
  std::vector<Merge> merges_;            // by rank
  std::vector<std::string_view> words_;  // of the current line
  std::string joined_;                   // of the current line
};

}  // namespace

Result<Vocabulary> ParseVocabulary(const VocabularyFiles& files) { return Parser(files).Parse(); }

}  // namespace qtts
