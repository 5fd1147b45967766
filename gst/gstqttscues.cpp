// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gstqttscues.h"

#include <unicode/uchar.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "qtts/utf8.h"

namespace gstqtts {
namespace {

constexpr int kLineColumns = 42;
constexpr uint64_t kLongPause = 1'500'000'000;
// A text that is shown for less is seen by nobody, and some muxers refuse one of no duration.
constexpr uint64_t kShortest = 1'000'000;

bool IsSpace(char32_t c) { return qtts::IsWhiteSpace(c); }
bool IsWordCharacter(char32_t c) { return u_isalnum(static_cast<UChar32>(c)) != 0; }

bool Opens(char32_t c) {
  const int8_t type = u_charType(static_cast<UChar32>(c));
  return type == U_START_PUNCTUATION || type == U_INITIAL_PUNCTUATION;
}

bool IsWide(char32_t c) {
  const int width = u_getIntPropertyValue(static_cast<UChar32>(c), UCHAR_EAST_ASIAN_WIDTH);
  return width == U_EA_WIDE || width == U_EA_FULLWIDTH;
}

int Columns(std::u32string_view text) {
  int columns = 0;
  for (const char32_t c : text) {
    if (u_getCombiningClass(static_cast<UChar32>(c)) == 0) columns += IsWide(c) ? 2 : 1;
  }
  return columns;
}

// Returns the best place to end the first line: both lines fit if that can be, and are of about the same length, rather
// behind a mark. 0 if there is none.
size_t LineEnd(std::u32string_view text) {
  constexpr int kBehindMark = 12;  // columns by which the lines may differ more
  const int all = Columns(text);
  size_t best = 0;
  int best_cost = INT_MAX;
  int columns = 0;
  for (size_t i = 1; i < text.size(); ++i) {
    columns += Columns(text.substr(i - 1, 1));
    const bool closes = !IsWordCharacter(text[i]) && !Opens(text[i]);
    if (text[i] != ' ' && (!IsWide(text[i - 1]) || !IsWide(text[i]) || closes)) continue;
    const int second = all - columns - (text[i] == ' ' ? 1 : 0);
    int cost = std::abs(columns - second);
    if (u_hasBinaryProperty(static_cast<UChar32>(text[i - 1]), UCHAR_TERMINAL_PUNCTUATION)) cost -= kBehindMark;
    if (columns > kLineColumns || second > kLineColumns) cost += 1000;
    if (cost < best_cost) {
      best = i;
      best_cost = cost;
    }
  }
  return best;
}

bool FitsTwoLines(std::u32string_view text) {
  if (Columns(text) <= kLineColumns) return true;
  const size_t end = LineEnd(text);
  return end > 0 && Columns(text.substr(0, end)) <= kLineColumns && Columns(text.substr(end)) <= kLineColumns + 1;
}

std::string Utf8(std::u32string_view text) {
  std::string utf8;
  for (const char32_t c : text) qtts::AppendUtf8(c, &utf8);
  return utf8;
}

// Returns the text in two lines if it is too long for one.
std::string InLines(std::u32string text) {
  if (Columns(text) > kLineColumns) {
    const size_t end = LineEnd(text);
    if (end > 0 && text[end] == ' ') {
      text[end] = '\n';
    } else if (end > 0) {
      text.insert(end, 1, '\n');
    }
  }
  return Utf8(text);
}

}  // namespace

std::vector<TimedText> CueMaker::Add(const Told& told) {
  std::vector<TimedText> ready;
  if (told.id != id_) {
    ready = End();
    id_ = told.id;
    characters_.clear();
    bytes_ = shown_ = 0;
    segmenter_.Clear();
    sentence_ends_.clear();
  }
  if (told.text.size() > bytes_) Append(told.text.substr(bytes_));
  for (const ToldWord& word : told.words) AddWord(word, &ready);
  if (told.over) Finish(&ready);
  return ready;
}

std::vector<TimedText> CueMaker::End() {
  std::vector<TimedText> ready;
  Finish(&ready);
  return ready;
}

void CueMaker::Append(const std::string& text) {
  bytes_ += text.size();
  for (std::string_view rest = text; !rest.empty();) {
    const qtts::Utf8Char character = qtts::DecodeUtf8(rest);
    rest.remove_prefix(character.size);
    characters_.push_back(character.code);
  }
  if (granularity_ == Granularity::kWord) return;
  segmenter_.Append(text);
  while (const auto sentence = segmenter_.Next()) {
    sentence_ends_.push_back(sentence->offset + qtts::CountUtf8(sentence->source));
  }
}

// Returns a word with the marks that touch it: those before it, but not those of the word before, and those behind it
// up to one that opens the next word.
CueMaker::Run CueMaker::WithPunctuation(const ToldWord& word) const {
  Run run = {std::min(word.begin, characters_.size()), std::min(word.end, characters_.size()), word.time,
             word.time + word.duration};
  const auto is_mark = [&](size_t i) { return !IsSpace(characters_[i]) && !IsWordCharacter(characters_[i]); };
  while (run.begin > shown_ && is_mark(run.begin - 1)) --run.begin;
  while (run.end < characters_.size() && is_mark(run.end) && !Opens(characters_[run.end])) ++run.end;
  return run;
}

void CueMaker::AddWord(const ToldWord& word, std::vector<TimedText>* ready) {
  Run run = WithPunctuation(word);
  if (run.end <= shown_) return;
  run.begin = std::max(run.begin, shown_);
  if (begun_) {
    const bool cut = granularity_ == Granularity::kCue &&
                     (run.time > begun_->stop + kLongPause || !FitsTwoLines(Text(begun_->begin, run.end)));
    if (cut || EndsSentence(begun_->end, run.begin)) Finish(ready);
  }
  if (begun_) {
    begun_->end = run.end;
    begun_->stop = std::max(begun_->stop, run.stop);
  } else {
    begun_ = run;
  }
  shown_ = run.end;
  const bool long_clause =
      granularity_ == Granularity::kCue && EndsClause(run.end) && Columns(Text(begun_->begin, run.end)) > kLineColumns;
  if (granularity_ == Granularity::kWord || long_clause || EndsSentence(word.end, run.end)) Finish(ready);
}

// Returns true if a sentence ends in [from, to]. The marks at its end may be shown already.
bool CueMaker::EndsSentence(size_t from, size_t to) const {
  const auto end = std::lower_bound(sentence_ends_.begin(), sentence_ends_.end(), from);
  return end != sentence_ends_.end() && *end <= to;
}

bool CueMaker::EndsClause(size_t end) const {
  return end > 0 && u_hasBinaryProperty(static_cast<UChar32>(characters_[end - 1]), UCHAR_TERMINAL_PUNCTUATION);
}

void CueMaker::Finish(std::vector<TimedText>* ready) {
  if (!begun_) return;
  const Run run = *std::exchange(begun_, std::nullopt);
  std::u32string text = Text(run.begin, run.end);
  if (text.empty()) return;
  ready->push_back({granularity_ == Granularity::kCue ? InLines(std::move(text)) : Utf8(text), run.time,
                    std::max(run.stop - run.time, kShortest)});
}

// Returns the characters [begin, end) with single spaces and none at the ends.
std::u32string CueMaker::Text(size_t begin, size_t end) const {
  std::u32string text;
  for (size_t i = begin; i < end; ++i) {
    if (!IsSpace(characters_[i])) {
      text.push_back(characters_[i]);
    } else if (!text.empty() && text.back() != ' ') {
      text.push_back(' ');
    }
  }
  while (!text.empty() && text.back() == ' ') text.pop_back();
  return text;
}

}  // namespace gstqtts
