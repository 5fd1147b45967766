// SPDX-License-Identifier: LGPL-2.1-or-later
#include "qtts/segmenter.h"

#include <unicode/ubrk.h>
#include <unicode/uchar.h>
#include <unicode/utext.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "qtts/utf8.h"
#include "text/abbreviations.h"

namespace qtts {
namespace {

// Of the model's languages the one that marks ordinals by a full stop.
constexpr std::string_view kGerman = "de";

struct CloseBreaks {
  void operator()(UBreakIterator* breaks) const { ubrk_close(breaks); }
};
struct CloseText {
  void operator()(UText* text) const { utext_close(text); }
};

// The boundaries of one kind in a text. Without memory it finds none.
class Boundaries {
 public:
  // `language`: a BCP-47 tag of a language alone, which is an ICU locale too; empty: the root locale.
  Boundaries(UBreakIteratorType type, const std::string& language) {
    UErrorCode error = U_ZERO_ERROR;
    breaks_.reset(ubrk_open(type, language.c_str(), nullptr, 0, &error));
  }
  // `text` has to stay until the next call.
  void SetText(std::string_view text) {
    UErrorCode error = U_ZERO_ERROR;
    // An old UText is used again.
    UText* opened = utext_openUTF8(text_.get(), text.data(), static_cast<int64_t>(text.size()), &error);
    if (text_ == nullptr) text_.reset(opened);
    if (breaks_ != nullptr) ubrk_setUText(breaks_.get(), text_.get(), &error);
    ok_ = breaks_ != nullptr && U_SUCCESS(error);
  }
  // The first boundary after `position`, if any.
  std::optional<size_t> After(size_t position) const {
    if (!ok_) return std::nullopt;
    const int32_t found = ubrk_following(breaks_.get(), static_cast<int32_t>(position));
    return found == UBRK_DONE ? std::nullopt : std::optional<size_t>(found);
  }
  // The last one before `position`, but none at 0.
  std::optional<size_t> Before(size_t position) const {
    if (!ok_) return std::nullopt;
    const int32_t found = ubrk_preceding(breaks_.get(), static_cast<int32_t>(position));
    return found == UBRK_DONE || found == 0 ? std::nullopt : std::optional<size_t>(found);
  }

 private:
  std::unique_ptr<UBreakIterator, CloseBreaks> breaks_;
  std::unique_ptr<UText, CloseText> text_;
  bool ok_ = false;
};

UChar32 CharacterAt(std::string_view text, size_t position, size_t* next) {
  const Utf8Char c = DecodeUtf8(text.substr(position));
  *next = position + c.size;
  return static_cast<UChar32>(c.code);
}

UChar32 CharacterBefore(std::string_view text, size_t position, size_t* start) {
  const Utf8Char c = DecodeLastUtf8(text.substr(0, position));
  *start = position - c.size;
  return static_cast<UChar32>(c.code);
}

// The Sentence_Break property.
int SentenceProperty(UChar32 c) { return u_getIntPropertyValue(c, UCHAR_SENTENCE_BREAK); }

bool IsLetter(int property) { return property == U_SB_OLETTER || property == U_SB_UPPER || property == U_SB_LOWER; }

// What stands before a boundary.
struct Ending {
  std::optional<size_t> full_stop;  // or its like; of another end of sentence, none
  bool closed = false;              // a quote or parenthesis closes after it
};

Ending EndingBefore(std::string_view text, size_t boundary) {
  Ending ending;
  for (size_t i = boundary; i > 0;) {
    const int property = SentenceProperty(CharacterBefore(text, i, &i));
    if (property == U_SB_ATERM) ending.full_stop = i;
    if (property == U_SB_CLOSE) ending.closed = true;
    if (property != U_SB_SP && property != U_SB_CLOSE && property != U_SB_EXTEND && property != U_SB_FORMAT) break;
  }
  return ending;
}

// What follows a boundary, as far as a decision about it may depend on it.
struct Follower {
  bool known = false;   // a letter or digit follows
  bool letter = false;  // a letter, perhaps after digits: a full stop depends on its case
  bool digit = false;   // a digit comes first
  bool lower = false;   // a small letter comes first
};

Follower FollowerOf(std::string_view text, size_t boundary) {
  Follower follower;
  for (size_t i = boundary; i < text.size();) {
    const int property = SentenceProperty(CharacterAt(text, i, &i));
    if (IsLetter(property)) {
      follower.letter = true;
      follower.lower = property == U_SB_LOWER && !follower.known;
      break;
    }
    if (property == U_SB_NUMERIC && !follower.known) follower.digit = true;
    if (property == U_SB_NUMERIC) follower.known = true;
  }
  follower.known = follower.known || follower.letter;
  return follower;
}

// Whether the full stop at `stop` belongs to an abbreviation or a number rather than to a sentence.
bool IsPartOfWord(std::string_view text, size_t stop, bool digit_follows, bool has_ordinals) {
  size_t start = stop;
  bool digits = true;
  while (start > 0) {
    size_t before = 0;
    const UChar32 c = CharacterBefore(text, start, &before);
    if (!u_isalnum(c) && c != '.' && c != '-' && c != 0xB0) break;  // a degree sign stands for "º" too
    digits = digits && u_isdigit(c);
    start = before;
  }
  if (start == stop) return false;
  if (digits) {
    constexpr size_t kLongestOrdinal = 2;
    return IsBlank(text.substr(0, start)) || (has_ordinals && stop - start <= kLongestOrdinal);
  }
  return IsAbbreviation(text.substr(start, stop - start), digit_follows);
}

// A line end at `position`: its size, or 0.
size_t NewlineAt(std::string_view text, size_t position) {
  const std::string_view rest = text.substr(position);
  if (rest.starts_with("\r\n")) return 2;
  if (rest.starts_with('\n') || rest.starts_with('\r')) return 1;
  if (rest.starts_with("\xC2\x85")) return 2;                                          // next line
  if (rest.starts_with("\xE2\x80\xA8") || rest.starts_with("\xE2\x80\xA9")) return 3;  // line, paragraph separator
  return 0;
}

// The end of the first paragraph, which closes all sentences in it.
std::optional<size_t> ParagraphEnd(std::string_view text, bool newline_ends) {
  bool line_is_blank = false;  // of the line after the first
  for (size_t i = 0; i < text.size();) {
    if (const size_t size = NewlineAt(text, i); size > 0) {
      i += size;
      if (newline_ends || line_is_blank || size == 3) return i;
      line_is_blank = true;
      continue;
    }
    if (text[i] != ' ' && text[i] != '\t') line_is_blank = false;
    ++i;
  }
  return std::nullopt;
}

// With spaces in the place of line ends: one each, or, to keep all positions, one for each byte.
std::string JoinLines(std::string_view text, bool keep_positions) {
  std::string joined;
  joined.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    if (const size_t size = NewlineAt(text, i); size > 0) {
      joined.append(keep_positions ? size : 1, ' ');
      i += size;
    } else {
      joined += text[i++];
    }
  }
  return joined;
}

}  // namespace

struct Segmenter::Breaks {
  explicit Breaks(const std::string& language) : sentences(UBRK_SENTENCE, language), lines(UBRK_LINE, language) {}
  Boundaries sentences;
  Boundaries lines;
};

Segmenter::Segmenter() = default;
Segmenter::~Segmenter() = default;
Segmenter::Segmenter(Segmenter&&) noexcept = default;
Segmenter& Segmenter::operator=(Segmenter&&) noexcept = default;

void Segmenter::SetOptions(const Options& options) {
  if (options.language != options_.language) breaks_.reset();
  options_ = options;
}

void Segmenter::Append(std::string_view text) {
  if (start_ > text_.size() / 2) {
    text_.erase(0, start_);
    erased_ += start_;
    start_ = 0;
  }
  text_.append(text);
}

void Segmenter::Clear() {
  text_.clear();
  start_ = erased_ = 0;
}

std::optional<std::string> Segmenter::Next() { return NextSentence(false); }
std::optional<std::string> Segmenter::NextAtEnd() { return NextSentence(true); }

std::optional<std::string> Segmenter::NextSentence(bool at_end) {
  for (;;) {
    // White space before a sentence is no part of the text that is looked at, however it was cut.
    size_t next = 0;
    while (!empty() && u_isUWhiteSpace(CharacterAt(text_, start_, &next))) start_ = next;
    if (empty()) break;
    const std::string_view rest = std::string_view(text_).substr(start_);
    // Only this much is looked at, so that it makes no difference how much more is there.
    const std::string_view head = Utf8Head(rest, options_.max_chars);
    const bool cut = head.size() < rest.size();
    const auto paragraph = ParagraphEnd(head, options_.newline_ends);
    const std::string_view lines = head.substr(0, paragraph.value_or(head.size()));
    const size_t end = FindEnd(JoinLines(lines, true), cut && !paragraph, paragraph || (at_end && !cut));
    if (end == 0) break;
    std::string sentence(Trim(JoinLines(lines.substr(0, end), false)));
    start_ += end;
    if (!IsBlank(sentence)) return sentence;
  }
  return std::nullopt;
}

// End of the first sentence of `view`; 0 if not known yet. `cut`: the sentence must end within `view`. `at_end`: there
// is no more text.
size_t Segmenter::FindEnd(std::string_view view, bool cut, bool at_end) {
  if (breaks_ == nullptr) breaks_ = std::make_unique<Breaks>(options_.language);
  breaks_->sentences.SetText(view);
  size_t last = 0;
  for (auto boundary = breaks_->sentences.After(0); boundary && *boundary < view.size();
       boundary = breaks_->sentences.After(*boundary)) {
    const Follower follower = FollowerOf(view, *boundary);
    const Ending ending = EndingBefore(view, *boundary);
    if (ending.full_stop && IsPartOfWord(view, *ending.full_stop, follower.digit, options_.language == kGerman))
      continue;
    if (ending.closed && follower.lower) continue;  // "Really?" she asked.
    if (at_end || (last == 0 && (ending.full_stop ? follower.letter : follower.known))) return *boundary;
    if (!cut) return 0;  // nor is any later one before this one is decided
    last = *boundary;
  }
  if (at_end) return view.size();
  if (!cut) return 0;
  if (last > 0) return last;
  breaks_->lines.SetText(view);
  return breaks_->lines.Before(view.size()).value_or(view.size());
}

size_t CutPosition(std::string_view text, size_t max_chars, const std::string& language) {
  const std::string_view head = Utf8Head(text, max_chars);
  if (head.size() == text.size()) return text.size();
  Boundaries boundaries(UBRK_SENTENCE, language);
  boundaries.SetText(head);
  if (const auto sentence = boundaries.Before(head.size())) return *sentence;
  boundaries = Boundaries(UBRK_LINE, language);
  boundaries.SetText(head);
  return boundaries.Before(head.size()).value_or(head.size());
}

}  // namespace qtts
