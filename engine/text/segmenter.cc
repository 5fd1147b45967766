// SPDX-License-Identifier: LGPL-2.1-or-later
#include "qtts/segmenter.h"

#include <unicode/ubrk.h>
#include <unicode/uchar.h>
#include <unicode/utext.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <utility>

#include "qtts/utf8.h"
#include "text/abbreviations.h"
#include "text/icu_handles.h"
#include "text/line_joiner.h"
#include "text/sentence_scanner.h"

namespace qtts {
namespace {

// The one of the models' languages that marks ordinals by a full stop.
constexpr std::string_view kOrdinalLanguage = "de";
constexpr size_t kLongestHeading = 80;       // characters
constexpr size_t kLongestFootnoteMark = 24;  // characters within [ ]

// Possible line breaks in a language.
class LineBreaks {
 public:
  explicit LineBreaks(const std::string& language) {
    UErrorCode error = U_ZERO_ERROR;
    breaks_.reset(ubrk_open(UBRK_LINE, language.c_str(), nullptr, 0, &error));
  }
  // Returns the last one within `text`, in bytes; its end if there is none, or no memory.
  size_t FindLast(std::string_view text) {
    UErrorCode error = U_ZERO_ERROR;
    // An old UText is used again.
    UText* opened = utext_openUTF8(text_.get(), text.data(), static_cast<int64_t>(text.size()), &error);
    if (text_ == nullptr) text_.reset(opened);
    if (breaks_ == nullptr) return text.size();
    ubrk_setUText(breaks_.get(), text_.get(), &error);
    if (U_FAILURE(error)) return text.size();
    const int32_t found = ubrk_preceding(breaks_.get(), static_cast<int32_t>(text.size()));
    return found == UBRK_DONE || found == 0 ? text.size() : static_cast<size_t>(found);
  }

 private:
  std::unique_ptr<UBreakIterator, CloseBreaks> breaks_;
  std::unique_ptr<UText, CloseText> text_;
};

std::string EncodeUtf8(std::u32string_view text) {
  std::string encoded;
  for (const char32_t c : text) AppendUtf8(c, &encoded);
  return encoded;
}

// Returns the length of the white space at the beginning.
size_t CountLeadingSpaces(std::u32string_view text) {
  const auto* const found = std::find_if_not(text.begin(), text.end(), IsWhiteSpace);
  return static_cast<size_t>(found - text.begin());
}

bool IsAlphanumeric(char32_t c) { return u_isalnum(static_cast<UChar32>(c)) != 0; }
bool IsRaisedNumber(char32_t c) {
  return c == 0xB2 || c == 0xB3 || c == 0xB9 || c == 0x2070 || (c >= 0x2074 && c <= 0x2079);
}

// Returns the length of the footnote mark at `position`, which follows a character that is no white space; 0 if there
// is none.
size_t FootnoteMarkAt(std::u32string_view text, size_t position) {
  const std::u32string_view rest = text.substr(position);
  if (IsRaisedNumber(rest[0])) {
    // Behind a letter it may be a power, "m²".
    if (IsAlphanumeric(text[position - 1]) || IsRaisedNumber(text[position - 1])) return 0;
    return static_cast<size_t>(std::find_if_not(rest.begin(), rest.end(), IsRaisedNumber) - rest.begin());
  }
  if (rest[0] != '[') return 0;
  const size_t end = rest.substr(0, kLongestFootnoteMark + 2).find(U']');
  if (end == std::u32string_view::npos || end < 2) return 0;
  const std::u32string_view inside = rest.substr(1, end - 1);
  const auto fits = [](char32_t c) { return IsAlphanumeric(c) || c == ' ' || c == ',' || c == '-' || c == 0x2013; };
  if (!IsAlphanumeric(inside[0]) || !std::all_of(inside.begin(), inside.end(), fits)) return 0;
  // Not the index of "a[1]b" or "a[1](x)".
  const bool ends = end + 1 == rest.size() || !(IsAlphanumeric(rest[end + 1]) || rest[end + 1] == '(');
  return ends ? end + 1 : 0;
}

// Returns true for a short line that ends in a letter, a number or a bracket.
bool LooksLikeHeading(std::u32string_view line) {
  if (line.size() > kLongestHeading) return false;
  return IsAlphanumeric(line.back()) || u_charType(static_cast<UChar32>(line.back())) == U_END_PUNCTUATION;
}

}  // namespace

size_t Sentence::SourcePosition(size_t position) const {
  const auto after = std::upper_bound(joins.begin(), joins.end(), position,
                                      [](size_t value, const Join& join) { return value < join.text; });
  if (after == joins.begin()) return position;
  const Join& join = *std::prev(after);
  return join.source + (position - join.text);
}

// Text goes through `joiner` into `scanner`, character by character, until that finds an end.
struct Segmenter::Impl {
  // Place of a character of the scanner in the appended text, in bytes of all of it.
  struct Place {
    size_t begin = 0;
    size_t end = 0;
  };

  std::optional<Sentence> NextSentence(bool at_end);
  void Clear();
  bool ReadCharacter();
  void Process(const LineJoiner::Step& step);
  void EndBlock();
  std::optional<size_t> FindEnd();
  size_t Cut();
  std::optional<Sentence> Take(size_t count);
  Sentence MakeSentence(size_t begin, size_t end);
  std::string_view Appended(size_t begin, size_t end) const {
    return std::string_view(appended).substr(begin - dropped, end - begin);
  }
  bool HoldsNothing() const { return scanner.text().empty() && steps.empty() && !joiner.holds_text(); }

  Options options;
  std::optional<Abbreviations> abbreviations{std::in_place, ""};
  std::optional<LineBreaks> line_breaks;  // made when it is needed
  LineJoiner joiner;
  SentenceScanner scanner{&*abbreviations};
  std::deque<LineJoiner::Step> steps;  // of the joiner, not processed
  std::deque<Place> places;            // of the scanner's characters
  size_t last_spaces = 0;              // white space at their end

  std::string appended;  // from `dropped` on
  size_t dropped = 0;    // bytes
  size_t read = 0;       // bytes, as all of the following, of the whole text
  size_t counted = 0;    // up to here, `characters` characters
  size_t characters = 0;

  std::optional<LineJoiner::Step> block_end;  // the sentences before it are not all returned
  SentenceGap gap = SentenceGap::kSentence;   // before the next sentence
  size_t sentences = 0;                       // of this paragraph
  bool heading = false;                       // the last one may be one
};

Segmenter::Segmenter() : impl_(std::make_unique<Impl>()) {}
Segmenter::~Segmenter() = default;
Segmenter::Segmenter(Segmenter&&) noexcept = default;
Segmenter& Segmenter::operator=(Segmenter&&) noexcept = default;

void Segmenter::SetOptions(const Options& options) {
  if (options.language != impl_->options.language) {
    impl_->line_breaks.reset();
    impl_->abbreviations.emplace(options.language);
    impl_->scanner.SetAbbreviations(&*impl_->abbreviations);
  }
  impl_->options = options;
  impl_->joiner.SetOptions(options.newline_ends, options.language == kOrdinalLanguage);
}

void Segmenter::Append(std::string_view text) { impl_->appended.append(text); }

void Segmenter::Clear() { impl_->Clear(); }

void Segmenter::Impl::Clear() {
  joiner.Clear();
  scanner.Clear();
  steps.clear();
  places.clear();
  appended.clear();
  last_spaces = dropped = read = counted = characters = sentences = 0;
  block_end.reset();
  gap = SentenceGap::kSentence;
  heading = false;
}

size_t Segmenter::position() const { return impl_->counted; }

bool Segmenter::empty() const {
  return impl_->HoldsNothing() && impl_->read == impl_->dropped + impl_->appended.size();
}

std::optional<Sentence> Segmenter::Next() { return impl_->NextSentence(false); }
std::optional<Sentence> Segmenter::NextAtEnd() { return impl_->NextSentence(true); }

std::optional<Sentence> Segmenter::Impl::NextSentence(bool at_end) {
  for (;;) {
    if (const auto end = FindEnd()) {
      if (auto sentence = Take(*end)) return sentence;
    } else if (block_end) {
      EndBlock();
    } else if (!steps.empty()) {
      const LineJoiner::Step step = steps.front();
      steps.pop_front();
      Process(step);
    } else if (!ReadCharacter()) {
      if (!at_end || HoldsNothing()) return std::nullopt;
      joiner.Finish(&steps);
      steps.push_back({.kind = LineJoiner::Step::Kind::kLineEnd});
    }
  }
}

// Returns the end of the next sentence, if it is decided.
std::optional<size_t> Segmenter::Impl::FindEnd() {
  const size_t size = scanner.text().size() - last_spaces;
  if (scanner.end() && *scanner.end() <= options.max_chars) return scanner.end();
  if (size > options.max_chars) return Cut();
  if (!block_end || size == 0) return std::nullopt;
  scanner.Finish();
  return scanner.end().value_or(size);
}

// Returns the place to end a sentence that is too long.
size_t Segmenter::Impl::Cut() {
  const auto possible = scanner.possible_end();
  if (possible && *possible <= options.max_chars) return *possible;
  const std::string head = EncodeUtf8(std::u32string_view(scanner.text()).substr(0, options.max_chars));
  if (!line_breaks) line_breaks.emplace(options.language);
  return CountUtf8(std::string_view(head).substr(0, line_breaks->FindLast(head)));
}

bool Segmenter::Impl::ReadCharacter() {
  const Utf8Char c = DecodeUtf8(std::string_view(appended).substr(read - dropped));
  if (c.size == 0) return false;
  joiner.Push(c.code, read, read + c.size, &steps);
  read += c.size;
  return true;
}

void Segmenter::Impl::Process(const LineJoiner::Step& step) {
  if (step.kind != LineJoiner::Step::Kind::kCharacter) {
    block_end = step;
    return;
  }
  if (scanner.text().empty() && IsWhiteSpace(step.c)) return;
  last_spaces = IsWhiteSpace(step.c) ? last_spaces + 1 : 0;
  places.push_back({step.begin, step.end});
  scanner.Push(step.c);
}

// Ends a line, item or paragraph, all of whose sentences have been returned.
void Segmenter::Impl::EndBlock() {
  const LineJoiner::Step step = *std::exchange(block_end, std::nullopt);
  if (step.kind == LineJoiner::Step::Kind::kItem) scanner.SetLabel(step.label);
  if (step.kind != LineJoiner::Step::Kind::kParagraph || sentences == 0) return;
  const bool is_heading = step.lines == 1 && sentences == 1 && heading;
  gap = is_heading ? SentenceGap::kHeading : std::max(gap, SentenceGap::kParagraph);
  sentences = 0;
}

// Removes the first `count` characters of the scanner; the sentence that they are, if they are not blank.
std::optional<Sentence> Segmenter::Impl::Take(size_t count) {
  const std::u32string_view text = scanner.text();
  size_t end = count;
  while (end > 0 && IsWhiteSpace(text[end - 1])) --end;
  const size_t spaces = CountLeadingSpaces(text.substr(0, end));
  std::optional<Sentence> sentence;
  if (spaces < end) sentence = MakeSentence(spaces, end);
  const size_t removed = count + CountLeadingSpaces(text.substr(count));
  places.erase(places.begin(), places.begin() + static_cast<std::ptrdiff_t>(removed));
  scanner.Drop(removed);
  last_spaces = std::min(last_spaces, scanner.text().size());
  if (!sentence || IsBlank(sentence->text)) return std::nullopt;
  sentence->before = std::exchange(gap, SentenceGap::kSentence);
  ++sentences;
  return sentence;
}

Sentence Segmenter::Impl::MakeSentence(size_t begin, size_t end) {
  const std::u32string_view text = std::u32string_view(scanner.text()).substr(0, end);
  heading = LooksLikeHeading(text.substr(begin));
  const size_t first = places[begin].begin;
  const size_t last = places[end - 1].end;
  characters += CountUtf8(Appended(counted, first));
  Sentence sentence;
  sentence.source = Appended(first, last);
  sentence.offset = characters;
  size_t expected = 0;  // position in `source`, if nothing was joined
  size_t source = 0;    // position of the character
  size_t place = first;
  size_t position = 0;  // in `text` of the sentence
  for (size_t i = begin; i < end; ++i) {
    const size_t mark =
        options.skip_footnote_marks && i > begin && !IsWhiteSpace(text[i - 1]) ? FootnoteMarkAt(text, i) : 0;
    if (mark > 0) {
      i += mark - 1;
      continue;
    }
    source += CountUtf8(Appended(place, places[i].begin));
    place = places[i].begin;
    if (source != expected) sentence.joins.push_back({position, source});
    expected = source + 1;
    ++position;
    AppendUtf8(text[i], &sentence.text);
  }
  const size_t length = CountUtf8(sentence.source);
  if (length != expected) sentence.joins.push_back({position, length});
  characters += length;
  counted = last;
  // The text that was returned is dropped once it is half of all, so that each byte is moved about once.
  if (counted - dropped > appended.size() / 2) {
    appended.erase(0, counted - dropped);
    dropped = counted;
  }
  return sentence;
}

size_t CutPosition(std::string_view text, size_t max_chars, const std::string& language) {
  const std::string_view head = Utf8Head(text, max_chars);
  if (head.size() == text.size()) return text.size();
  const Abbreviations abbreviations(language);
  SentenceScanner scanner(&abbreviations);
  size_t begin = 0;  // of the sentence in `scanner`, in characters
  for (size_t i = 0; i < head.size();) {
    const Utf8Char c = DecodeUtf8(head.substr(i));
    i += c.size;
    scanner.Push(c.code);
    if (c.code == '\n') {  // a line end is a good place, too
      begin += scanner.text().size();
      scanner.Clear();
    }
    while (const auto end = scanner.end()) {
      begin += *end;
      scanner.Drop(*end);
    }
  }
  const size_t cut = begin + scanner.possible_end().value_or(0);
  if (cut == 0) return LineBreaks(language).FindLast(head);
  // With the white space behind it.
  std::string_view rest = head.substr(Utf8Head(head, cut).size());
  while (!rest.empty() && IsWhiteSpace(DecodeUtf8(rest).code)) rest.remove_prefix(DecodeUtf8(rest).size);
  return head.size() - rest.size();
}

}  // namespace qtts
