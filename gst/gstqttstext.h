// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef GST_QTTS_TEXT_H_
#define GST_QTTS_TEXT_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gstqttssettings.h"
#include "qtts/markup.h"
#include "qtts/segmenter.h"
#include "qtts/text_preparer.h"
#include "qtts/utf8.h"

namespace gstqtts {

class Document;

// Makes whole UTF-8 text of chunks that may be cut anywhere, even within a character: the bytes of an unfinished
// character wait for the next chunk. Each ill-formed sequence (maximal subpart, as the Unicode standard recommends)
// becomes one U+FFFD. NULs and a byte-order mark at the very start are dropped.
//
// Not thread-safe.
class Utf8Joiner {
 public:
  // Returns the text completed by this chunk. `repaired`, if given, receives the number of replaced sequences.
  std::string Push(std::string_view chunk, int* repaired = nullptr);

  // Returns true if the text so far ends inside a character.
  bool in_mid_character() const { return !pending_.empty(); }

 private:
  std::string pending_;  // the first bytes of a character, at most three
  bool at_start_ = true;
};

// Returns `text` as a Utf8Joiner makes it, with U+FFFD for a character that the end cuts.
std::string RepairUtf8(std::string_view text);

// Counts the Unicode code points in well-formed UTF-8.
inline size_t CountCharacters(std::string_view text) { return qtts::CountUtf8(text); }

// Returns the characters [begin, end) of well-formed UTF-8.
inline std::string_view CharacterRange(std::string_view text, size_t begin, size_t end) {
  const std::string_view rest = text.substr(qtts::Utf8Head(text, begin).size());
  return qtts::Utf8Head(rest, end - begin);
}

using qtts::IsBlank;
using qtts::Trim;
using qtts::TrimLeft;

// The time at which a text is to be heard, in running time (nanoseconds).
struct Cue {
  std::optional<uint64_t> start;
  std::optional<uint64_t> end;
  double share = 1;  // of the time left until the end, for fitted speech; the rest is for the texts that follow
};

// An accepted text, with its settings at that time.
struct Utterance {
  std::string text;
  Settings settings;
  bool streamed = false;   // laid out for text that comes in pieces, unless the settings name a layout
  bool more_text = false;  // more text may follow
  uint64_t id = 0;         // given by Speech
  uint64_t stream = 0;     // number of the text of the sink pad that it is a part of; 0: it is a text of its own
  Cue cue = {};
  qtts::SentenceGap before = qtts::SentenceGap::kSentence;  // the end before it
  std::shared_ptr<void> event = {};                         // with no text: what goes on downstream in its turn
  std::vector<std::shared_ptr<void>> metas = {};            // of its text, for its next frame; see gstqttsmetas.h
  // The sentence of which `text` has the lines joined; null: `text` is what was written, or has a `source_map`.
  std::shared_ptr<const qtts::Sentence> sentence = {};

  // Fields of a part of a document with markup.
  std::optional<uint64_t> silence = {};             // with no text: a break, in nanoseconds
  std::optional<std::string> mark = {};             // with no text: the name of a mark
  uint64_t mark_id = 0;                             // the utterance before that mark
  std::string written = {};                         // in the document, for `text`; empty: the same
  size_t text_offset = 0;                           // characters of the document before it
  std::vector<qtts::TextMapPiece> source_map = {};  // from `text` to `written`
  std::vector<qtts::MarkupMark> marks = {};         // within `text`
  qtts::MarkupSettings markup = {};                 // settings that the document switches
  bool after_break = false;                         // no gap before it
  std::shared_ptr<Document> document = {};          // whole document, if reports tell of it as one

  // Returns the text as it was written, whose positions are reported.
  const std::string& source() const {
    if (!written.empty()) return written;
    return sentence != nullptr ? sentence->source : text;
  }
};

// A queue of utterances, first in, first out, bounded in number and characters.
class TextQueue {
 public:
  static constexpr size_t kMaxUtterances = 64;
  static constexpr size_t kDefaultMaxCharacters = size_t{64} * 1024;

  void SetMaxCharacters(size_t characters) { max_characters_ = characters; }
  // Sets the maximum number of utterances, at least kMaxUtterances.
  void SetMaxUtterances(size_t utterances) { max_utterances_ = std::max(utterances, kMaxUtterances); }
  // Returns true if `text` may be pushed. An empty queue accepts a text of any length.
  bool HasRoom(std::string_view text) const;
  void Push(Utterance utterance);
  // Returns the newest one with this id; null if it is not here. Its text grows by Grow() alone.
  Utterance* Find(uint64_t id);
  // Returns the oldest one with a larger id; null if there is none.
  const Utterance* FindAfter(uint64_t id) const;
  void Grow(Utterance* utterance, std::string_view text);
  // Appends more of a document.
  void Grow(Utterance* utterance, Utterance more_of_it);
  // Returns the oldest. The queue must not be empty.
  const Utterance& front() const { return utterances_.front(); }
  // Takes the oldest. The queue must not be empty.
  Utterance Pop();
  bool empty() const { return utterances_.empty(); }
  size_t size() const { return utterances_.size(); }
  size_t characters() const { return characters_; }

 private:
  std::deque<Utterance> utterances_;
  size_t characters_ = 0;
  size_t max_characters_ = kDefaultMaxCharacters;
  size_t max_utterances_ = kMaxUtterances;
};

}  // namespace gstqtts

#endif  // GST_QTTS_TEXT_H_
