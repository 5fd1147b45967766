// SPDX-License-Identifier: LGPL-2.1-or-later
#include "text/line_joiner.h"

#include <unicode/uchar.h>
#include <unicode/uscript.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "qtts/utf8.h"

namespace qtts {
namespace {

using Kind = LineJoiner::Step::Kind;

constexpr char32_t kHiddenHyphen = 0xAD;
constexpr size_t kLongestWordHead = 8;  // letters of a line's first word that decide about a hyphen
constexpr size_t kLongestRoman = 8;
constexpr size_t kLongestNumber = 3;

UChar32 Code(char32_t c) { return static_cast<UChar32>(c); }

bool EndsLine(char32_t c) { return (c >= '\n' && c <= '\r') || c == 0x85 || c == 0x2028 || c == 0x2029; }
// Returns true for form feed and the separators of lines and paragraphs.
bool EndsParagraph(char32_t c) { return c == '\f' || c == 0x2028 || c == 0x2029; }

bool IsDividingHyphen(char32_t c) { return c == '-' || c == 0x2010 || c == kHiddenHyphen; }
bool IsLetterOrMark(char32_t c) { return u_isalpha(Code(c)) != 0 || (U_GET_GC_MASK(Code(c)) & U_GC_M_MASK) != 0; }

// Returns true for Chinese and Japanese, which separate no words by spaces.
bool IsIdeographic(char32_t c) {
  UErrorCode error = U_ZERO_ERROR;
  const UScriptCode script = uscript_getScript(Code(c), &error);
  if (script == USCRIPT_HAN || script == USCRIPT_HIRAGANA || script == USCRIPT_KATAKANA) return true;
  return (c >= 0x3001 && c <= 0x301F) || (c >= 0xFF01 && c <= 0xFF5E);  // their punctuation
}

bool IsEndOfClause(char32_t c) {
  const int type = u_getIntPropertyValue(Code(c), UCHAR_SENTENCE_BREAK);
  return type == U_SB_ATERM || type == U_SB_STERM || c == ':' || c == 0xFF1A || c == 0x2026;
}

bool IsBullet(char32_t c) {
  return std::u32string_view(U"•‣◦·∙●○▪▫■□▶►➤✓✔✗✘").find(c) != std::u32string_view::npos ||
         (c >= 0x2460 && c <= 0x2473);  // ① to ⑳
}
bool IsDashBullet(char32_t c) { return c == '-' || c == '*' || c == '+' || c == 0x2013 || c == 0x2014; }

// Returns true for first parts of compounds that keep their hyphen at a line end.
bool KeepsHyphen(const std::u32string& word) {
  static const auto* words = new std::unordered_set<std::u32string>{
      U"self",   U"well",   U"ex",     U"half",  U"all",   U"mid",   U"high",    U"low",    U"long",   U"short",
      U"old",    U"new",    U"one",    U"two",   U"three", U"four",  U"five",    U"six",    U"seven",  U"eight",
      U"nine",   U"twenty", U"thirty", U"forty", U"fifty", U"sixty", U"seventy", U"eighty", U"ninety", U"first",
      U"second", U"third",  U"full",   U"free",  U"hard",  U"e",     U"x",       U"t"};
  std::u32string lower;
  for (const char32_t c : word) lower += static_cast<char32_t>(u_tolower(Code(c)));
  return words->contains(lower);
}

// Returns true for words before which a hyphen stands for the end of a compound: "Vor- und Nachteile".
bool IsConjunction(const std::u32string& word) {
  static const auto* words = new std::unordered_set<std::u32string>{
      U"und", U"oder", U"bzw", U"sowie", U"and", U"or", U"to", U"et", U"ou", U"y", U"o", U"e", U"и", U"или"};
  return words->contains(word);
}

int RomanValue(std::u32string_view digits) {
  static constexpr std::pair<char32_t, int> kValues[] = {{'i', 1}, {'v', 5}, {'x', 10}, {'l', 50}};
  int sum = 0;
  int before = 0;
  for (const char32_t c : digits) {
    const auto* const found = std::find_if(std::begin(kValues), std::end(kValues),
                                           [c](const auto& value) { return value.first == (c | 0x20U); });
    if (found == std::end(kValues)) return 0;
    sum += found->second - (before < found->second ? 2 * before : 0);
    before = found->second;
  }
  return sum;
}

}  // namespace

void LineJoiner::Clear() {
  LineJoiner cleared;
  cleared.SetOptions(lines_end_, ordinals_);
  *this = std::move(cleared);
}

void LineJoiner::Push(char32_t c, size_t begin, size_t end, std::deque<Step>* steps) {
  const bool after_return = std::exchange(after_return_, c == '\r');
  if (c == '\n' && after_return) return;
  const Step step = {Kind::kCharacter, c, begin, end};
  if (EndsLine(c)) {
    EndLine(c, steps);
  } else if (!at_line_start_) {
    PushInLine(step, steps);
  } else if (!head_.empty() || !IsWhiteSpace(c)) {
    head_.push_back(step);
    BeginLine(false, steps);
  }
}

void LineJoiner::Finish(std::deque<Step>* steps) {
  if (!head_.empty()) BeginLine(true, steps);
  ReleaseHyphen(steps);
  spaces_.clear();
}

void LineJoiner::EndLine(char32_t c, std::deque<Step>* steps) {
  if (!head_.empty()) BeginLine(true, steps);
  spaces_.clear();
  at_line_start_ = true;
  ++newlines_;
  const bool paragraph = newlines_ > 1 || EndsParagraph(c);
  if (paragraph || lines_end_) ReleaseHyphen(steps);
  if (paragraph && !paragraph_ended_) {
    paragraph_ended_ = true;
    last_item_ = Item();
    steps->push_back({.kind = Kind::kParagraph, .lines = std::exchange(lines_, 0)});
  } else if (lines_end_ && newlines_ == 1) {
    steps->push_back({.kind = Kind::kLineEnd});
  }
}

// Decides how the line that begins with `head_` goes on from the one before. `final`: the line ends behind it.
void LineJoiner::BeginLine(bool final, std::deque<Step>* steps) {
  Item item = FindItem(final);
  if (!final && (item.undecided || HyphenIsUndecided())) return;
  item.is_item = item.is_item && (paragraph_ended_ || lines_end_ || MayBegin(item));
  if (item.is_item) {
    ReleaseHyphen(steps);
    steps->push_back({.kind = Kind::kItem, .label = item.ordered ? item.label : 0});
    last_item_ = item;
  } else if (!paragraph_ended_ && !lines_end_) {
    Join(steps);
  }
  at_line_start_ = false;
  paragraph_ended_ = false;
  newlines_ = 0;
  ++lines_;
  for (const Step& step : std::exchange(head_, {})) PushInLine(step, steps);
}

void LineJoiner::PushInLine(const Step& step, std::deque<Step>* steps) {
  if (IsWhiteSpace(step.c)) {
    // The first space ends a word, which may decide about a sentence.
    if (hyphen_ || after_space_) {
      spaces_.push_back(step);
    } else {
      Emit(step, steps);
    }
    return;
  }
  ReleaseHyphen(steps);
  for (const Step& space : std::exchange(spaces_, {})) Emit(space, steps);
  if (IsDividingHyphen(step.c) && !word_.empty()) {
    hyphen_ = true;
    held_hyphen_ = step;
  } else {
    Emit(step, steps);
  }
}

void LineJoiner::Emit(const Step& step, std::deque<Step>* steps) {
  steps->push_back(step);
  if (IsLetterOrMark(step.c)) {
    if (word_.size() < kLongestWordHead) word_ += step.c;  // longer ones are looked up nowhere
  } else {
    word_.clear();
  }
  after_space_ = IsWhiteSpace(step.c);
  if (after_space_) return;
  const bool closes = u_getIntPropertyValue(Code(step.c), UCHAR_SENTENCE_BREAK) == U_SB_CLOSE;
  ends_clause_ = IsEndOfClause(step.c) || (closes && ends_clause_);
  last_ = step.c;
  last_end_ = step.end;
}

void LineJoiner::ReleaseHyphen(std::deque<Step>* steps) {
  if (std::exchange(hyphen_, false)) Emit(held_hyphen_, steps);
}

// Returns whether more of the line's first word is needed to decide about a hyphen at the end of the one before.
bool LineJoiner::HyphenIsUndecided() const {
  return hyphen_ && held_hyphen_.c != kHiddenHyphen && head_.size() < kLongestWordHead &&
         IsLetterOrMark(head_.back().c);
}

// Joins the line to the one before.
void LineJoiner::Join(std::deque<Step>* steps) {
  const char32_t first = head_.front().c;
  if (!hyphen_) {
    if (after_space_ || (IsIdeographic(last_) && IsIdeographic(first))) return;
    Emit({Kind::kCharacter, ' ', last_end_, head_.front().begin}, steps);
    return;
  }
  if (held_hyphen_.c == kHiddenHyphen && IsLetterOrMark(first)) {
    hyphen_ = false;
    return;
  }
  std::u32string next;
  for (const Step& step : head_) {
    if (!IsLetterOrMark(step.c)) break;
    next += step.c;
  }
  const bool small = !next.empty() && u_isULowercase(Code(next[0])) != 0;
  const auto is_upper = [](char32_t c) { return u_isUUppercase(Code(c)) != 0; };
  const bool capitals = next.size() > 2 && word_.size() > 2 && std::all_of(next.begin(), next.end(), is_upper) &&
                        std::all_of(word_.begin(), word_.end(), is_upper);
  if (u_isalnum(Code(first)) == 0 || (small && IsConjunction(next))) {
    ReleaseHyphen(steps);
    Emit({Kind::kCharacter, ' ', last_end_, head_.front().begin}, steps);
  } else if ((small && !KeepsHyphen(word_)) || capitals) {
    hyphen_ = false;  // "psycho-", "logical"
  } else {
    ReleaseHyphen(steps);  // "Jean-", "Paul"
  }
}

LineJoiner::Item LineJoiner::FindItem(bool final) const {
  const Item bullet = FindBullet(final);
  return bullet.is_item || bullet.undecided ? bullet : FindNumber(final);
}

LineJoiner::Item LineJoiner::FindBullet(bool final) const {
  const char32_t first = head_.front().c;
  Item item;
  item.form = first;
  if (IsBullet(first)) {
    item.is_item = true;
  } else if (IsDashBullet(first)) {
    if (head_.size() == 1) {
      item.undecided = !final;
    } else {
      // A dash may begin a speech without a space.
      item.is_item = IsWhiteSpace(head_[1].c) || (first >= 0x80 && u_isalpha(Code(head_[1].c)) != 0);
    }
  }
  return item;
}

// Finds "1." "12)" "(3)" "a." "(b)" "iv." "1、" before white space.
LineJoiner::Item LineJoiner::FindNumber(bool final) const {
  Item undecided;
  undecided.undecided = !final;
  size_t i = 0;
  const bool opened = head_[0].c == '(' || head_[0].c == 0xFF08;
  if (opened) ++i;
  std::u32string digits;
  while (i < head_.size() && u_isalnum(Code(head_[i].c)) != 0 && digits.size() <= kLongestRoman) digits += head_[i++].c;
  if (i == head_.size()) return digits.size() <= kLongestRoman ? undecided : Item();
  Item item;
  item.ordered = true;
  const auto is_digit = [](char32_t c) { return c >= '0' && c <= '9'; };
  const bool same_case = std::all_of(digits.begin(), digits.end(), [](char32_t c) { return c >= 'a' && c <= 'z'; }) ||
                         std::all_of(digits.begin(), digits.end(), [](char32_t c) { return c >= 'A' && c <= 'Z'; });
  if (digits.empty()) return Item();
  if (std::all_of(digits.begin(), digits.end(), is_digit)) {
    if (digits.size() > kLongestNumber) return Item();
    for (const char32_t c : digits) item.number = item.number * 10 + static_cast<int>(c - '0');
  } else if (same_case) {
    item.roman = digits.size() <= kLongestRoman ? RomanValue(digits) : 0;
    if (digits.size() == 1) item.letter = static_cast<int>((digits[0] | 0x20U) - 'a') + 1;
    if (item.roman == 0 && item.letter == 0) return Item();
  } else {
    return Item();
  }
  const char32_t form = head_[i].c;
  const bool wide = form == 0x3001 || form == 0xFF0E || form == 0xFF09;
  if (form != ')' && !wide && (opened || form != '.')) return Item();
  if (opened && form != ')' && form != 0xFF09) return Item();
  item.form = opened ? '(' : form;
  item.label = i + 1;
  if (i + 1 == head_.size()) return wide ? (item.is_item = true, item) : undecided;
  item.is_item = wide || IsWhiteSpace(head_[i + 1].c);
  return item;
}

// Returns whether an item of this kind may begin within a paragraph: as the first or the next one of its kind, or
// behind a colon. Otherwise it is a word of a sentence that happens to begin a line.
bool LineJoiner::MayBegin(const Item& item) const {
  if (Continues(item) || last_ == ':' || last_ == 0xFF1A) return true;
  if (!item.ordered) return ends_clause_ || IsBullet(item.form) || item.form == '-' || item.form == '*';
  if (item.number == 1) return ends_clause_ || !ordinals_ || item.form != '.';
  return ends_clause_ && (item.letter == 1 || item.roman == 1);
}

bool LineJoiner::Continues(const Item& item) const {
  if (!last_item_.is_item || last_item_.form != item.form || last_item_.ordered != item.ordered) return false;
  if (!item.ordered) return true;
  return (item.number > 0 && item.number == last_item_.number + 1) ||
         (item.letter > 0 && item.letter == last_item_.letter + 1) ||
         (item.roman > 0 && item.roman == last_item_.roman + 1);
}

}  // namespace qtts
