// SPDX-License-Identifier: LGPL-2.1-or-later
#include "text/tokenizer.h"

#include <sentencepiece_processor.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <memory>
#include <new>
#include <span>
#include <utility>

#include "base/ensure_memory.h"
#include "base/mapped_file.h"
#include "qtts/utf8.h"
#include "text/byte_alphabet.h"
#include "text/normalizer.h"
#include "text/pre_tokenizer.h"
#include "text/sentencepiece_model.h"
#include "text/vocabulary.h"
#include "text/word_cache.h"

namespace qtts {
namespace {

Status CheckLength(std::string_view text) {
  if (text.size() <= Tokenizer::kMaxTextBytes) return Status::Ok();
  return Status::ResourceExhausted("text of " + std::to_string(text.size()) + " bytes is longer than the " +
                                   std::to_string(Tokenizer::kMaxTextBytes) + " that fit into one piece: split it");
}

}  // namespace

struct Tokenizer::Impl {
  Impl(Vocabulary v, PreTokenizer p) : vocabulary(std::move(v)), pre_tokenizer(std::move(p)) {}

  // Appends the ids of `normalized`: valid UTF-8 in NFC, without added tokens.
  Status EncodeSegment(std::string_view normalized, std::vector<int32_t>* ids) const;

  // Returns the longest added token at the start of `text`, or null.
  const AddedTokenEntry* TokenAt(std::string_view text) const;

  // Sets `ends` to the ends of the tokens `ids` of `text`, in bytes of `text`; `normalized` is its NFC.
  void FindEnds(std::string_view text, std::string_view normalized, std::span<const int32_t> ids,
                std::vector<size_t>* ends) const;

  Vocabulary vocabulary;
  std::vector<uint16_t> piece_bytes;  // by id
  PreTokenizer pre_tokenizer;
  sentencepiece::SentencePieceProcessor bpe;
  mutable WordCache words;
  int32_t size = 0;
};

Status Tokenizer::Impl::EncodeSegment(std::string_view normalized, std::vector<int32_t>* ids) const {
  QTTS_ASSIGN_OR_RETURN(const std::vector<size_t> ends, pre_tokenizer.Split(normalized, /*open_end=*/false));
  const auto unknown = static_cast<int>(vocabulary.pieces.size());
  std::vector<int> piece_ids;
  size_t begin = 0;
  for (const size_t end : ends) {
    const std::string_view word = normalized.substr(begin, end - begin);
    begin = end;
    if (words.Append(word, ids)) continue;
    const auto status = bpe.Encode(SpellBytes(word), &piece_ids);
    if (!status.ok()) return Status::Internal(std::string("SentencePiece: ") + status.ToString());
    if (piece_ids.empty() || std::find(piece_ids.begin(), piece_ids.end(), unknown) != piece_ids.end()) {
      return Status::Internal("SentencePiece does not know a part of the text");
    }
    ids->insert(ids->end(), piece_ids.begin(), piece_ids.end());
    words.Keep(word, piece_ids);
  }
  return Status::Ok();
}

// Returns the beginnings of the normalization clusters of `text`, and its end. Normalization changes neither their
// number nor their order.
std::vector<size_t> ClustersOf(std::string_view text) {
  std::vector<size_t> clusters;
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = DecodeUtf8(text.substr(at));
    if (at == 0 || StartsCluster(c.code)) clusters.push_back(at);
    at += c.size;
  }
  clusters.push_back(text.size());
  return clusters;
}

void Tokenizer::Impl::FindEnds(std::string_view text, std::string_view normalized, std::span<const int32_t> ids,
                               std::vector<size_t>* ends) const {
  ends->clear();
  ends->reserve(ids.size());
  size_t end = 0;
  for (const int32_t id : ids) ends->push_back(end += piece_bytes[static_cast<size_t>(id)]);
  if (text == normalized) return;
  const std::vector<size_t> from = ClustersOf(normalized);
  const std::vector<size_t> to = ClustersOf(text);
  if (from.size() != to.size()) {  // not expected; tokens then have the ends of the normalized text
    for (size_t& e : *ends) e = std::min(e, text.size());
    return;
  }
  size_t cluster = 0;
  for (size_t& e : *ends) {
    while (cluster + 1 < from.size() && from[cluster + 1] <= e) ++cluster;
    e = cluster + 1 < to.size() ? std::min(to[cluster] + (e - from[cluster]), to[cluster + 1]) : text.size();
  }
}

const AddedTokenEntry* Tokenizer::Impl::TokenAt(std::string_view text) const {
  const AddedTokenEntry* longest = nullptr;
  for (const AddedTokenEntry& token : vocabulary.added) {
    if (text.starts_with(token.content) && (longest == nullptr || token.content.size() > longest->content.size())) {
      longest = &token;
    }
  }
  return longest;
}

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::~Tokenizer() = default;

Result<std::shared_ptr<const Tokenizer>> Tokenizer::Load(const std::string& folder, TokenizerPattern pattern) {
  VocabularyFiles files;
  for (std::string* name : {&files.vocab_name, &files.merges_name, &files.config_name}) *name = folder + "/" + *name;
  QTTS_ASSIGN_OR_RETURN(files.vocab, ReadSmallFile(files.vocab_name));
  QTTS_ASSIGN_OR_RETURN(files.merges, ReadSmallFile(files.merges_name));
  QTTS_ASSIGN_OR_RETURN(files.config, ReadSmallFile(files.config_name));
  return Create(files, pattern);
}

Result<std::shared_ptr<const Tokenizer>> Tokenizer::Create(const VocabularyFiles& files, TokenizerPattern pattern) {
  QTTS_ASSIGN_OR_RETURN(Vocabulary vocabulary, ParseVocabulary(files));
  QTTS_ASSIGN_OR_RETURN(PreTokenizer pre_tokenizer, PreTokenizer::Create(pattern));
  auto impl = std::make_unique<Impl>(std::move(vocabulary), std::move(pre_tokenizer));
  const std::string model = SerializeSentencePieceModel(impl->vocabulary);
  constexpr size_t kParsedTimes = 20;  // about 15 times were measured
  EnsureMemory(model.size() * kParsedTimes);
  try {
    const auto status = impl->bpe.LoadFromSerializedProto(model);
    if (!status.ok()) return Status::Internal(std::string("SentencePiece: ") + status.ToString());
  } catch (const std::bad_alloc&) {
    throw;  // not an error of the files
  } catch (const std::exception& e) {
    return Status::Internal(std::string("SentencePiece: ") + e.what());
  }
  for (const std::string& piece : impl->vocabulary.pieces) {
    std::string bytes;
    UnspellBytes(piece, &bytes);
    impl->piece_bytes.push_back(static_cast<uint16_t>(std::min<size_t>(bytes.size(), UINT16_MAX)));
  }
  impl->size = static_cast<int32_t>(impl->vocabulary.pieces.size());
  if (!impl->vocabulary.added.empty()) impl->size = std::max(impl->size, impl->vocabulary.added.back().id + 1);
  return std::shared_ptr<const Tokenizer>(new Tokenizer(std::move(impl)));
}

Result<std::vector<int32_t>> Tokenizer::Encode(std::string_view text) const {
  QTTS_RETURN_IF_ERROR(CheckLength(text));
  const std::string repaired = RepairUtf8(text);
  const std::string_view all(repaired);
  std::vector<int32_t> ids;
  size_t begin = 0;  // start of the text after the last added token
  for (size_t at = 0; at < all.size();) {
    const AddedTokenEntry* token = impl_->TokenAt(all.substr(at));
    if (token == nullptr) {
      at += DecodeUtf8(all.substr(at)).size;
      continue;
    }
    QTTS_RETURN_IF_ERROR(impl_->EncodeSegment(ToNfc(all.substr(begin, at - begin)), &ids));
    ids.push_back(token->id);
    at += token->content.size();
    begin = at;
  }
  QTTS_RETURN_IF_ERROR(impl_->EncodeSegment(ToNfc(all.substr(begin)), &ids));
  return ids;
}

Result<std::vector<int32_t>> Tokenizer::EncodePlain(std::string_view text) const {
  std::vector<int32_t> ids;
  QTTS_RETURN_IF_ERROR(CheckLength(text));
  QTTS_RETURN_IF_ERROR(impl_->EncodeSegment(ToNfc(RepairUtf8(text)), &ids));
  return ids;
}

Result<std::vector<int32_t>> Tokenizer::EncodePlain(std::string_view text, std::vector<size_t>* ends) const {
  std::vector<int32_t> ids;
  QTTS_RETURN_IF_ERROR(CheckLength(text));
  const std::string normalized = ToNfc(RepairUtf8(text));
  QTTS_RETURN_IF_ERROR(impl_->EncodeSegment(normalized, &ids));
  impl_->FindEnds(text, normalized, ids, ends);
  return ids;
}

size_t Tokenizer::StablePrefix(std::string_view text) const {
  text = text.substr(0, kMaxTextBytes);
  std::string repaired;
  // Starts of the normalization clusters. Normalization changes bytes, but neither the number nor the order of the
  // clusters.
  std::vector<size_t> clusters;
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = DecodeUtf8(text.substr(at));
    if (c.incomplete) break;
    if (at == 0 || StartsCluster(c.code)) clusters.push_back(at);
    AppendUtf8(c.code, &repaired);
    at += c.size;
  }
  const std::string normalized = ToNfc(repaired);
  const Result<std::vector<size_t>> ends = impl_->pre_tokenizer.Split(normalized, /*open_end=*/true);
  if (!ends.ok()) return 0;
  // `stable` is the last position at which both a pre-token and a cluster begin. The last cluster is excluded, since
  // following marks could change it. The prefix must not end with two pre-tokens of white space either: at the end of a
  // text they would be one.
  const std::string_view rest(normalized);
  size_t stable = 0;
  size_t cluster = 0;        // the first cluster that begins at or after `at`
  bool blank = true;         // the pre-token before `at` is white space
  bool after_blank = false;  // the pre-token before that one ends in white space
  bool space = false;        // the character before `at` is white space
  auto end = ends->begin();
  for (size_t at = 0; at < rest.size() && end != ends->end();) {
    const Utf8Char c = DecodeUtf8(rest.substr(at));
    const bool starts = at == 0 || StartsCluster(c.code);
    if (*end == at) {
      if (starts && cluster < clusters.size() && !(blank && after_blank)) stable = clusters[cluster];
      ++end;
      blank = true;
      after_blank = space;
    }
    if (starts) ++cluster;
    space = IsWhiteSpace(c.code);
    blank = blank && space;
    at += c.size;
  }
  return stable;
}

std::string Tokenizer::Decode(int32_t id) const {
  std::string out;
  const Vocabulary& vocabulary = impl_->vocabulary;
  const auto added = std::lower_bound(vocabulary.added.begin(), vocabulary.added.end(), id,
                                      [](const AddedTokenEntry& token, int32_t value) { return token.id < value; });
  if (added != vocabulary.added.end() && added->id == id) {
    out = added->content;
  } else if (id >= 0 && static_cast<size_t>(id) < vocabulary.pieces.size()) {
    UnspellBytes(vocabulary.pieces[static_cast<size_t>(id)], &out);
  }
  return out;
}

int32_t Tokenizer::AddedToken(std::string_view content) const {
  const auto& added = impl_->vocabulary.added;
  const auto found = std::find_if(added.begin(), added.end(),
                                  [content](const AddedTokenEntry& token) { return token.content == content; });
  return found == added.end() ? -1 : found->id;
}

int32_t Tokenizer::vocab_size() const { return impl_->size; }

}  // namespace qtts
