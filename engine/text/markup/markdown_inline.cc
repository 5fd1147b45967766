// SPDX-License-Identifier: LGPL-2.1-or-later
#include "text/markup/markdown_inline.h"

#include <unicode/uchar.h>

#include <algorithm>
#include <utility>

#include "qtts/utf8.h"
#include "text/markup/reference.h"
#include "text/prepare/reader.h"

namespace qtts {
namespace {

constexpr size_t kLongestRun = 64;        // of one mark
constexpr size_t kLongestLinkText = 300;  // characters
constexpr size_t kLongestTarget = 1500;
constexpr size_t kMaxHtmlTag = 1000;
constexpr size_t kMaxLinkLabel = 100;

bool IsAsciiPunctuation(char32_t c) {
  return c < 0x80 && std::u32string_view(U"!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~").find(c) != std::u32string_view::npos;
}

bool IsPunctuation(char32_t c) {
  if (c > UCHAR_MAX_VALUE) return false;
  return IsAsciiPunctuation(c) || u_ispunct(static_cast<UChar32>(c)) != 0;
}

// Returns true for a link's target with an optional title: "url", "<url>", "url 'title'".
bool IsTarget(std::u32string_view target) {
  while (!target.empty() && IsWhiteSpace(target.front())) target.remove_prefix(1);
  while (!target.empty() && IsWhiteSpace(target.back())) target.remove_suffix(1);
  if (target.starts_with('<')) {
    const size_t end = target.find(U'>');
    if (end == std::u32string_view::npos) return false;
    target.remove_prefix(end + 1);
  } else {
    size_t end = 0;
    while (end < target.size() && !IsWhiteSpace(target[end])) ++end;
    target.remove_prefix(end);
  }
  while (!target.empty() && IsWhiteSpace(target.front())) target.remove_prefix(1);
  if (target.empty()) return true;
  const char32_t quote = target.front() == '(' ? U')' : target.front();
  return target.size() > 1 && (quote == '"' || quote == '\'' || quote == ')') && target.back() == quote;
}

// Returns true for "https://example.com" or "max@example.com" between angle brackets.
bool IsAutolink(std::u32string_view inside) {
  if (inside.empty() || std::ranges::any_of(inside, [](char32_t c) { return IsWhiteSpace(c) || c == '<'; }))
    return false;
  const size_t colon = inside.find(U':');
  if (colon != std::u32string_view::npos && colon >= 2 && colon <= 32) {
    const auto fits = [](char32_t c) {
      return c < 0x80 && (IsLetter(c) || IsDigit(c) || c == '+' || c == '.' || c == '-');
    };
    return IsLetter(inside[0]) && std::ranges::all_of(inside.substr(0, colon), fits);
  }
  const size_t at = inside.find(U'@');
  return at != std::u32string_view::npos && at > 0 && at + 1 < inside.size() &&
         inside.find(U'/') == std::u32string_view::npos;
}

}  // namespace

void MarkdownInline::Push(const DocumentChar& character) {
  text_.push_back(character);
  Run();
}

void MarkdownInline::Finish() {
  ended_ = true;
  Run();
  ended_ = heading_ = false;
  text_.clear();
  at_ = 0;
  before_ = kEnd;
  code_ = stars_ = underscores_ = 0;
}

void MarkdownInline::Run() {
  while (at_ < text_.size()) {
    const size_t taken = Next();
    if (taken == 0) break;
    before_ = text_[at_ + taken - 1].code;
    at_ += taken;
  }
  // Decided characters are erased once they are most of the text, so that erasing takes linear time in all.
  if (at_ > kLongestRun && at_ > text_.size() / 2) {
    text_.erase(text_.begin(), text_.begin() + static_cast<ptrdiff_t>(at_));
    at_ = 0;
  }
}

char32_t MarkdownInline::At(size_t offset) const {
  if (offset >= kAhead) return kEnd;
  if (at_ + offset < text_.size()) return text_[at_ + offset].code;
  return ended_ ? kEnd : kMore;
}

size_t MarkdownInline::RunLength(char32_t c) const {
  size_t length = 1;
  while (length < kLongestRun && At(length) == c) ++length;
  return length;
}

std::u32string MarkdownInline::Between(size_t begin, size_t end) const {
  std::u32string text;
  for (size_t i = begin; i < end; ++i) text += At(i);
  return text;
}

// Returns the bracket that closes the one at `open`.
MarkdownInline::Brackets MarkdownInline::FindClose(size_t open, char32_t opening, char32_t closing,
                                                   size_t longest) const {
  size_t depth = 0;
  for (size_t i = open; i < open + longest; ++i) {
    const char32_t c = At(i);
    if (c == kMore) return {.needs_more = true};
    if (c == kEnd) return {};
    if (c == '\\') {
      ++i;
    } else if (c == opening) {
      ++depth;
    } else if (c == closing && --depth == 0) {
      return {.close = i};
    }
  }
  return {};
}

size_t MarkdownInline::Copy(size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const DocumentChar& character = text_[at_ + i];
    if (IsWhiteSpace(character.code) || character.code == 0) {
      items_->Space(character.position, character.code == '\n' ? U'\n' : U' ');
    } else {
      items_->Copy(character);
    }
  }
  return count;
}

// Decides the character at `at_`, and perhaps more: how many; 0 if more text is needed.
size_t MarkdownInline::Next() {
  const char32_t c = At(0);
  if (c == '`') return ReadBackquotes();
  return code_ > 0 ? Copy() : NextOf(c);
}

size_t MarkdownInline::NextOf(char32_t c) {
  switch (c) {
    case '\\':
      return ReadEscape();
    case '*':
    case '_':
    case '~':
      return ReadEmphasis(c);
    case '[':
      return ReadLink(0);
    case '!':
      if (At(1) == kMore) return 0;
      return At(1) == '[' ? ReadLink(1) : Copy();
    case '<':
      return ReadAngle();
    case '&':
      return ReadReference();
    case '#':
      return heading_ ? ReadClosingHashes() : Copy();
    default:
      return Copy();
  }
}

size_t MarkdownInline::ReadEscape() {
  const char32_t next = At(1);
  if (next == kMore) return 0;
  if (next == '\n') return 1;  // the line end follows
  if (next == kEnd || !IsAsciiPunctuation(next)) return Copy();
  items_->Copy(text_[at_ + 1]);
  return 2;
}

size_t MarkdownInline::ReadBackquotes() {
  const size_t length = RunLength('`');
  if (At(length) == kMore) return 0;
  if (code_ == 0) {
    code_ = length;
  } else if (code_ == length) {
    code_ = 0;
  } else {
    return Copy(length);
  }
  return length;
}

// Reads emphasis by CommonMark's rules of what may open and close. A mark that may open is taken to do so: what could
// close it may come late. Between digits a star is one that multiplies.
size_t MarkdownInline::ReadEmphasis(char32_t c) {
  const size_t length = RunLength(c);
  const char32_t next = At(length);
  if (next == kMore) return 0;
  const auto blank = [](char32_t other) { return other == kEnd || IsWhiteSpace(other); };
  const bool left = !blank(next) && (!IsPunctuation(next) || blank(before_) || IsPunctuation(before_));
  const bool right = !blank(before_) && (!IsPunctuation(before_) || blank(next) || IsPunctuation(next));
  if (c == '~') return length == 2 && (left || right) ? length : Copy(length);
  const bool word = c == '_';
  const bool opens = left && (!word || !right || IsPunctuation(before_));
  const bool closes = right && (!word || !left || IsPunctuation(next));
  size_t& open = word ? underscores_ : stars_;
  if (closes && open > 0) {
    open -= std::min(open, length);
    return length;
  }
  if (!opens || (left && right && IsDigit(before_) && IsDigit(next))) return Copy(length);
  open += length;
  return length;
}

// Reads a link, or an image if the bracket is at 1; a footnote mark.
size_t MarkdownInline::ReadLink(size_t open) {
  const bool image = open == 1;
  const Brackets text = FindClose(open, '[', ']', kLongestLinkText);
  if (text.needs_more) return 0;
  if (text.close == 0) return Copy();
  const char32_t next = At(text.close + 1);
  if (!image && At(1) == '^' && text.close > 2) return text.close + 1;
  if (next == kMore) return 0;
  const bool inline_target = next == '(';
  if (!inline_target && next != '[') return Copy();
  const Brackets target = inline_target ? FindClose(text.close + 1, '(', ')', kLongestTarget)
                                        : FindClose(text.close + 1, '[', ']', kMaxLinkLabel);
  if (target.needs_more) return 0;
  if (target.close == 0) return Copy();
  const std::u32string inside = Between(text.close + 2, target.close);
  // "[1][2]" are notes.
  if (inline_target ? !IsTarget(inside) : std::ranges::none_of(inside, IsLetter)) return Copy();
  return SayLink(image, open, text.close, target.close);
}

size_t MarkdownInline::SayLink(bool image, size_t open, size_t close, size_t end) {
  const size_t begin = text_[at_].position;
  if (image && options_.rules.image == MarkupRule::kSkip) return end + 1;
  if (image && options_.rules.image == MarkupRule::kName)
    items_->Replace(std::string(words_.image) + " ", begin, begin);
  MarkdownInline inside(options_, items_);
  inside.ended_ = true;
  inside.text_.assign(text_.begin() + static_cast<ptrdiff_t>(at_ + open + 1),
                      text_.begin() + static_cast<ptrdiff_t>(at_ + close));
  inside.before_ = before_;
  inside.Run();
  const MarkupRule rule = options_.rules.link;
  if (image || rule == MarkupRule::kSkip || At(close + 1) != '(' || items_->last() == ItemBuilder::kNone)
    return end + 1;
  const size_t at = text_[at_ + close].position;
  std::u32string target = Between(close + 2, end);
  target = target.substr(0, target.find_first_of(U" \t\n"));
  if (target.starts_with('<')) target = target.substr(1, target.find(U'>') - 1);
  const std::string said = rule == MarkupRule::kName ? std::string(words_.link) : ToUtf8(target);
  if (said.empty()) return end + 1;
  items_->Pause(at, at);
  items_->Replace(said, at, text_[at_ + end].position);
  return end + 1;
}

// Reads raw HTML, or an address in angle brackets.
size_t MarkdownInline::ReadAngle() {
  const char32_t next = At(1);
  if (next == kMore) return 0;
  const bool comment = next == '!';
  if (!IsLetter(next) && next != '/' && next != '?' && !comment) return Copy();
  for (size_t i = 2; i < kMaxHtmlTag; ++i) {
    const char32_t c = At(i);
    if (c == kMore) return 0;
    if (c == kEnd || (c == '<' && !comment)) break;
    if (c != '>') continue;
    const std::u32string inside = Between(1, i);
    if (inside.starts_with(U"!--") && !(inside.size() > 4 && inside.ends_with(U"--"))) continue;
    if (IsAutolink(inside)) {
      for (size_t k = 1; k < i; ++k) items_->Copy(text_[at_ + k]);
    } else if (inside == U"br" || inside == U"br/" || inside == U"br /") {
      items_->Space(text_[at_].position);
    }
    return i + 1;
  }
  return Copy();
}

size_t MarkdownInline::ReadReference() {
  size_t end = 1;
  for (; end <= kLongestReference + 1; ++end) {
    const char32_t c = At(end);
    if (c == kMore) return 0;
    if (c == ';') break;
    if (c == kEnd || !(IsDigit(c) || c == '#' || (c < 0x80 && IsLetter(c)))) return Copy();
  }
  const std::optional<char32_t> code = DecodeReference(Between(1, end));
  if (!code || At(end) != ';') return Copy();
  std::string character;
  AppendUtf8(*code, &character);
  items_->Replace(character, text_[at_].position, text_[at_ + end].position + 1);
  return end + 1;
}

// Reads the end of "# Title #".
size_t MarkdownInline::ReadClosingHashes() {
  size_t end = RunLength('#');
  while (end < kLongestRun && (At(end) == ' ' || At(end) == '\t')) ++end;
  if (At(end) == kMore) return 0;
  const bool closes = At(end) == kEnd && (before_ == kEnd || IsWhiteSpace(before_));
  return closes ? end : Copy();
}

}  // namespace qtts
