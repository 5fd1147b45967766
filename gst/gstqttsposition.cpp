// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gstqttsposition.h"

#include <unicode/ubrk.h>
#include <unicode/uchar.h>
#include <unicode/uscript.h>
#include <unicode/utext.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>

#include "qtts/utf8.h"

namespace gstqtts {
namespace {

// Usual durations, of unhurried reading: 14 letters a second, and so on.
constexpr float kLetter = 0.07F;
constexpr float kKana = 0.13F;        // a mora
constexpr float kHangul = 0.2F;       // a syllable
constexpr float kIdeograph = 0.22F;   // a syllable, in Japanese often two
constexpr float kDigit = 0.25F;       // read as a word
constexpr float kSentenceEnd = 0.4F;  // the pause after it
constexpr float kPause = 0.2F;

constexpr double kMaxPace = 3.0;  // slower or faster than this is no pace but a mistake

float UsualDuration(UChar32 c) {
  if (u_isdigit(c)) return kDigit;
  if (u_isalpha(c)) {
    UErrorCode error = U_ZERO_ERROR;
    switch (uscript_getScript(c, &error)) {
      case USCRIPT_HAN:
        return kIdeograph;
      case USCRIPT_HANGUL:
        return kHangul;
      case USCRIPT_HIRAGANA:
      case USCRIPT_KATAKANA:
        return kKana;
      default:
        return kLetter;
    }
  }
  if (u_hasBinaryProperty(c, UCHAR_S_TERM)) return kSentenceEnd;
  if (u_hasBinaryProperty(c, UCHAR_TERMINAL_PUNCTUATION)) return kPause;
  return 0;
}

struct CloseLetterBreaks {
  void operator()(UBreakIterator* breaks) const { ubrk_close(breaks); }
};
struct CloseSpokenText {
  void operator()(UText* text) const { utext_close(text); }
};

}  // namespace

void TextPosition::Append(std::string_view spoken, const std::vector<qtts::TextMapPiece>& map) {
  text_.append(spoken);
  map_.Append(map);
  std::string_view text = spoken;
  while (!text.empty()) {
    const qtts::Utf8Char c = qtts::DecodeUtf8(text);
    text.remove_prefix(c.size);
    durations_.push_back(UsualDuration(static_cast<UChar32>(c.code)));
    usual_seconds_ += static_cast<double>(durations_.back());
  }
}

std::vector<TextPosition::Word> TextPosition::Advance(double seconds) {
  while (spoken_ < durations_.size() && spoken_seconds_ * pace_ + late_ < seconds) {
    spoken_seconds_ += static_cast<double>(durations_[spoken_++]);
  }
  FindWords();
  std::vector<Word> begun;
  for (; words_begun_ < words_.size() && words_[words_begun_].offset < spoken_; ++words_begun_) {
    const Word& word = words_[words_begun_];
    const auto [begin, end] = map_.SourceOf(word.offset, word.offset + word.length);
    // Several words may be spoken for a written one, such as a number.
    if (begin < written_ || begin == end) continue;
    begun.push_back({begin, end - begin});
    written_ = end;
  }
  return begun;
}

void TextPosition::Anchor(size_t written, double seconds) {
  const size_t spoken = std::min(map_.SpokenOf(written), durations_.size());
  while (spoken_ < spoken) spoken_seconds_ += static_cast<double>(durations_[spoken_++]);
  while (spoken_ > spoken) spoken_seconds_ -= static_cast<double>(durations_[--spoken_]);
  late_ = seconds - spoken_seconds_ * pace_;
  FindWords();
  while (words_begun_ < words_.size() && words_[words_begun_].offset < spoken_) ++words_begun_;
  written_ = std::max(written_, written);
}

void TextPosition::SetLength(double seconds) {
  if (usual_seconds_ > 0) pace_ = std::clamp(seconds / usual_seconds_, 1 / kMaxPace, kMaxPace);
}

// Returns the duration of the spoken characters [begin, end).
double TextPosition::SecondsBetween(size_t begin, size_t end) const {
  const auto at = [this](size_t i) { return durations_.begin() + static_cast<std::ptrdiff_t>(i); };
  return pace_ * static_cast<double>(std::accumulate(at(begin), at(std::max(begin, end)), 0.0F));
}

double TextPosition::SecondsOf(const Word& word) const {
  return SecondsBetween(std::min(map_.SpokenOf(word.offset), durations_.size()),
                        std::min(map_.SpokenOf(word.offset + word.length), durations_.size()));
}

double TextPosition::StartOf(const Word& word) const {
  return SecondsBetween(0, std::min(map_.SpokenOf(word.offset), durations_.size()));
}

std::vector<TextPosition::Word> TextPosition::Words() {
  FindWords();
  std::vector<Word> words;
  size_t written = 0;
  for (const Word& word : words_) {
    const auto [begin, end] = map_.SourceOf(word.offset, word.offset + word.length);
    if (begin < written || begin == end) continue;
    words.push_back({begin, end - begin});
    written = end;
  }
  return words;
}

TextPosition::Run TextPosition::Written(const qtts::TextRange& spoken) {
  const size_t first = CharactersUpTo(spoken.begin);
  const size_t last = CharactersUpTo(spoken.end);
  const auto [begin, end] = map_.SourceOf(first, last);
  FindWords();
  const auto next = std::lower_bound(words_.begin(), words_.end(), last,
                                     [](const Word& word, size_t position) { return word.offset < position; });
  return {begin, end, next != words_.end() && next->offset < map_.SpokenOf(end)};
}

// Returns the number of characters in the first `byte` bytes of the spoken text. Positions mostly come in order.
size_t TextPosition::CharactersUpTo(size_t byte) {
  byte = std::min(byte, text_.size());
  if (byte < counted_bytes_) counted_bytes_ = counted_characters_ = 0;
  counted_characters_ += qtts::CountUtf8(std::string_view(text_).substr(counted_bytes_, byte - counted_bytes_));
  counted_bytes_ = byte;
  return counted_characters_;
}

// Finds the words by UAX #29, with ICU's dictionaries for scripts without spaces. Words that were told stay as they are
// when the text has grown; the last of the others may have become longer.
void TextPosition::FindWords() {
  if (words_size_ == durations_.size()) return;
  words_size_ = durations_.size();
  UErrorCode error = U_ZERO_ERROR;
  const std::unique_ptr<UText, CloseSpokenText> text(
      utext_openUTF8(nullptr, text_.data(), static_cast<int64_t>(text_.size()), &error));
  const std::unique_ptr<UBreakIterator, CloseLetterBreaks> breaks(
      ubrk_open(UBRK_WORD, language_.c_str(), nullptr, 0, &error));
  if (U_FAILURE(error)) return;  // out of memory: no words, only characters
  ubrk_setUText(breaks.get(), text.get(), &error);
  if (U_FAILURE(error)) return;
  words_.resize(words_begun_);
  const size_t told = words_.empty() ? 0 : words_.back().offset + words_.back().length;
  size_t characters = 0;
  int32_t start = ubrk_first(breaks.get());
  for (int32_t end = ubrk_next(breaks.get()); end != UBRK_DONE; end = ubrk_next(breaks.get())) {
    const size_t length =
        qtts::CountUtf8(std::string_view(text_).substr(static_cast<size_t>(start), static_cast<size_t>(end - start)));
    if (ubrk_getRuleStatus(breaks.get()) >= UBRK_WORD_NONE_LIMIT && characters >= told) {
      words_.push_back({characters, length});
    }
    characters += length;
    start = end;
  }
}

void Pace::Learn(double usual_seconds, double seconds) {
  constexpr double kShortestText = 1.0;  // seconds; shorter ones are mostly silence
  constexpr double kLastWeight = 0.5;
  if (usual_seconds < kShortestText || seconds < kShortestText) return;
  value_ += kLastWeight * (std::clamp(seconds / usual_seconds, 1 / kMaxPace, kMaxPace) - value_);
}

}  // namespace gstqtts
