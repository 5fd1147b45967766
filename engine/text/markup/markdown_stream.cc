// SPDX-License-Identifier: LGPL-2.1-or-later
#include "text/markup/markdown_stream.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "qtts/utf8.h"
#include "text/prepare/reader.h"

namespace qtts {
namespace {

constexpr size_t kCodeIndent = 4;
constexpr size_t kMaxHashes = 6;
constexpr size_t kShortestFence = 3;
constexpr size_t kMaxItemDigits = 9;        // of an item's number
constexpr size_t kMaxReferenceLabel = 200;  // of a definition
constexpr size_t kLongestHtmlName = 12;

bool IsBlankChar(char32_t c) { return c == ' ' || c == '\t'; }

// Returns true for elements of HTML that begin a block.
bool IsBlockElement(std::u32string_view name) {
  static constexpr std::u32string_view kNames[] = {
      U"address",    U"article", U"aside",   U"base",   U"blockquote", U"body", U"caption", U"center", U"col",
      U"colgroup",   U"dd",      U"details", U"dialog", U"dir",        U"div",  U"dl",      U"dt",     U"fieldset",
      U"figcaption", U"figure",  U"footer",  U"form",   U"frame",      U"h1",   U"h2",      U"h3",     U"h4",
      U"h5",         U"h6",      U"head",    U"header", U"hr",         U"html", U"iframe",  U"legend", U"li",
      U"link",       U"main",    U"menu",    U"nav",    U"noframes",   U"ol",   U"option",  U"p",      U"param",
      U"section",    U"source",  U"summary", U"table",  U"tbody",      U"td",   U"tfoot",   U"th",     U"thead",
      U"title",      U"tr",      U"track",   U"ul"};
  return std::ranges::find(kNames, name) != std::end(kNames);
}

// Returns the end of elements whose content may have blank lines; empty for others.
std::u32string_view MarkerOf(std::u32string_view name) {
  if (name == U"script") return U"</script>";
  if (name == U"pre") return U"</pre>";
  if (name == U"style") return U"</style>";
  if (name == U"textarea") return U"</textarea>";
  return U"";
}

}  // namespace

MarkdownStream::MarkdownStream(const MarkupOptions& options, ItemBuilder* items)
    : options_(options), words_(MarkdownWordsOf(options.language)), items_(items), inline_(options_, items) {}

char32_t MarkdownStream::At(size_t index) const {
  if (index < line_.size()) return line_[index].code;
  return complete_ ? kEnd : kMore;
}

// Returns true if all of the line from `begin` on, as far as it is there, is made of these.
bool MarkdownStream::RestIs(size_t begin, std::u32string_view allowed) const {
  for (size_t i = begin; i < line_.size(); ++i) {
    if (allowed.find(line_[i].code) == std::u32string_view::npos) return false;
  }
  return true;
}

// --- characters and lines

void MarkdownStream::Push(const DocumentChar& character) {
  position_ = character.position + 1;
  const char32_t c = character.code;
  if (c == '\r') return;
  if (c == '\n') return EndLine(character.position);
  switch (mode_) {
    case Mode::kStart:
      line_.push_back(character);
      Decide();
      break;
    case Mode::kText:
      inline_.Push(character);
      break;
    case Mode::kCode:
      SayCode(character);
      break;
    case Mode::kSilent:
      break;
    case Mode::kMarked:
      PushMarked(c);
      break;
  }
}

void MarkdownStream::EndLine(size_t position) {
  if (mode_ == Mode::kStart) {
    complete_ = true;
    Decide();
    complete_ = false;
  }
  item_line_ = false;
  if (mode_ == Mode::kMarked) return PushMarked('\n');
  line_.clear();
  if (mode_ == Mode::kCode) items_->EndBlock(SentenceGap::kSentence, position);
  if (mode_ == Mode::kText) {
    line_end_ = {'\n', position};
    if (heading_) EndText(SentenceGap::kHeading);
  }
  mode_ = Mode::kStart;
}

void MarkdownStream::Finish(size_t length) {
  if (mode_ == Mode::kStart && !line_.empty()) {
    complete_ = true;
    Decide();
  }
  position_ = length;
  EndText(heading_ ? SentenceGap::kHeading : SentenceGap::kParagraph);
  items_->EndBlock(SentenceGap::kParagraph, length);
}

void MarkdownStream::PushMarked(char32_t c) {
  tail_ += c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c;
  if (tail_.size() > kLongestHtmlName) tail_.erase(0, 1);
  if (!tail_.ends_with(marker_)) return;
  tail_.clear();
  mode_ = Mode::kSilent;
}

// Drops the line, which is not spoken.
void MarkdownStream::DropLine() {
  line_.clear();
  mode_ = Mode::kSilent;
}

// --- blocks

void MarkdownStream::EndText(SentenceGap gap) {
  if (!std::exchange(text_, false)) return;
  inline_.Finish();
  heading_ = false;
  items_->EndBlock(gap, position_);
}

void MarkdownStream::EndTable() {
  if (std::exchange(table_, false)) items_->EndBlock(SentenceGap::kParagraph, position_);
}

void MarkdownStream::BlankLine() {
  EndText(list_ ? SentenceGap::kSentence : SentenceGap::kParagraph);
  EndTable();
  html_ = false;
  DropLine();
}

void MarkdownStream::SayBlock(MarkupRule rule, std::string_view name) {
  EndText(SentenceGap::kParagraph);
  items_->EndBlock(SentenceGap::kParagraph, position_);
  if (rule != MarkupRule::kName) return;
  items_->Replace(name, position_, position_);
  items_->EndBlock(SentenceGap::kParagraph, position_);
}

void MarkdownStream::SayCode(const DocumentChar& character) {
  if (options_.rules.code != MarkupRule::kRead) return;
  if (IsWhiteSpace(character.code)) {
    items_->Space(character.position);
  } else {
    items_->Copy(character);
  }
}

void MarkdownStream::CodeLine() {
  for (const DocumentChar& character : std::exchange(line_, {})) SayCode(character);
  mode_ = Mode::kCode;
}

// Begins the rest of the line as text of a paragraph, that goes on or begins.
void MarkdownStream::BeginText(size_t begin, bool heading) {
  EndTable();
  indented_code_ = false;
  if (text_) {
    inline_.Push(line_end_);
  } else {
    const size_t indent = begin;
    if (list_ && indent < 2 && !item_line_) {
      list_ = false;
      items_->EndBlock(SentenceGap::kParagraph, position_);
    }
    inline_.Begin(heading);
    heading_ = heading;
    text_ = true;
  }
  mode_ = Mode::kText;
  const std::vector<DocumentChar> line = std::exchange(line_, {});
  for (size_t i = begin; i < line.size(); ++i) inline_.Push(line[i]);
}

// Begins an item, whose text, that may be a block of another kind, is the line from `text` on.
void MarkdownStream::BeginItem(size_t text) {
  EndTable();
  EndText(SentenceGap::kSentence);
  items_->EndBlock(SentenceGap::kSentence, position_);
  list_ = item_line_ = true;
  indented_code_ = false;
  line_.erase(line_.begin(), line_.begin() + static_cast<ptrdiff_t>(text));
  if (line_.empty() && !complete_) return;
  Decide();
}

// Reads a row of a table: a sentence, with a pause between its cells.
void MarkdownStream::ReadRow(size_t begin) {
  if (!std::exchange(table_, true)) SayBlock(options_.rules.table, words_.table);
  EndText(SentenceGap::kParagraph);
  const bool rule = IsTableRule(begin);
  const std::vector<DocumentChar> line = std::exchange(line_, {});
  mode_ = Mode::kSilent;
  if (rule || options_.rules.table != MarkupRule::kRead) return;
  inline_.Begin(false);
  for (size_t i = begin; i < line.size(); ++i) {
    if (line[i].code == '\\' && i + 1 < line.size()) {
      inline_.Push(line[i++]);
      inline_.Push(line[i]);
    } else if (line[i].code != '|') {
      inline_.Push(line[i]);
    } else {
      inline_.Finish();
      const bool more = std::any_of(line.begin() + static_cast<ptrdiff_t>(i) + 1, line.end(),
                                    [](const DocumentChar& c) { return c.code != '|' && !IsWhiteSpace(c.code); });
      if (more) items_->Pause(line[i].position, line[i].position + 1);
    }
  }
  inline_.Finish();
  items_->EndBlock(SentenceGap::kSentence, position_);
}

// --- kinds of lines

// Decides the kind of the line as far as it is known; leaves it alone while more is needed.
void MarkdownStream::Decide() {
  size_t begin = 0;
  bool quoted = false;
  for (;; ++begin) {
    if (At(begin) == '>' && fence_ == 0 && !html_) {
      quoted = true;
    } else if (!IsBlankChar(At(begin))) {
      break;
    }
  }
  if (At(begin) == kMore) {
    if (line_.size() >= kLongestLine) line_.clear();  // white space alone
    return;
  }
  if (fence_ != 0) {
    if (!DecideFence(begin)) return;
    return CodeLine();
  }
  if (At(begin) == kEnd) return BlankLine();
  if (html_) return DropLine();
  const bool code = begin >= kCodeIndent && !quoted && !text_ && !list_;
  if (code) {
    if (!std::exchange(indented_code_, true)) SayBlock(options_.rules.code, words_.code);
    return CodeLine();
  }
  DecideBlock(begin);
}

// Returns true, within a block of code, if the line is code. False if it closes the block, or more is needed.
bool MarkdownStream::DecideFence(size_t begin) {
  size_t end = begin;
  while (At(end) == fence_) ++end;
  if (end - begin < fence_length_) return At(end) != kMore || line_.size() >= kLongestLine;
  if (!RestIs(end, U" \t")) return true;
  if (WaitsForLine()) return false;
  fence_ = 0;
  items_->EndBlock(SentenceGap::kParagraph, position_);
  DropLine();
  return false;
}

void MarkdownStream::DecideBlock(size_t begin) {
  const char32_t c = At(begin);
  switch (c) {
    case '#':
      return DecideHeading(begin);
    case '`':
    case '~':
      return DecideFenceBegin(begin);
    case '-':
    case '*':
    case '+':
    case '_':
    case '=':
    case ':':
      return DecideRuleOrItem(begin);
    case '|':
      if (WaitsForLine()) return;
      return complete_ ? ReadRow(begin) : BeginText(begin);
    case '<':
      return DecideAngle(begin);
    case '[':
      return DecideDefinition(begin);
    default:
      break;
  }
  if (IsDigit(c)) return DecideNumber(begin);
  if (table_ && WaitsForLine()) return;  // a row may have no "|" at its beginning
  return table_ && RowGoesOn(begin) ? ReadRow(begin) : BeginText(begin);
}

void MarkdownStream::DecideHeading(size_t begin) {
  size_t end = begin;
  while (At(end) == '#') ++end;
  if (At(end) == kMore && end - begin <= kMaxHashes) return;
  if (end - begin > kMaxHashes || !(IsBlankChar(At(end)) || At(end) == kEnd)) return BeginText(begin);
  EndText(SentenceGap::kParagraph);
  while (IsBlankChar(At(end))) ++end;
  BeginText(end, true);
}

void MarkdownStream::DecideFenceBegin(size_t begin) {
  const char32_t c = At(begin);
  size_t end = begin;
  while (At(end) == c) ++end;
  if (At(end) == kMore && line_.size() < kLongestLine) return;
  if (end - begin < kShortestFence) return BeginText(begin);
  bool info = true;  // the rest of the line names a language
  for (size_t i = end; i < line_.size(); ++i) info = info && (c == '~' || line_[i].code != '`');
  if (!info) return BeginText(begin);
  if (WaitsForLine()) return;
  if (!complete_) return BeginText(begin);
  fence_ = c;
  fence_length_ = end - begin;
  EndTable();
  SayBlock(options_.rules.code, words_.code);
  DropLine();
}

// Returns true for "---", "* * *": three or more of one mark, and white space.
bool MarkdownStream::IsRule(size_t begin) const {
  const char32_t c = At(begin);
  if (c != '-' && c != '*' && c != '_') return false;
  const std::u32string allowed = {c, U' ', U'\t'};
  const auto count = std::count_if(line_.begin() + static_cast<ptrdiff_t>(begin), line_.end(),
                                   [c](const DocumentChar& other) { return other.code == c; });
  return count >= 3 && RestIs(begin, allowed);
}

// Returns true for "--- | :---:".
bool MarkdownStream::IsTableRule(size_t begin) const {
  const auto has = [&](char32_t c) {
    return std::any_of(line_.begin() + static_cast<ptrdiff_t>(begin), line_.end(),
                       [c](const DocumentChar& other) { return other.code == c; });
  };
  return RestIs(begin, U"-:| \t") && has('-') && has('|');
}

void MarkdownStream::DecideRuleOrItem(size_t begin) {
  const char32_t c = At(begin);
  const std::u32string mark = {c, U' ', U'\t'};
  const bool may_be_rule = c != '+' && c != ':' && RestIs(begin, mark);
  const bool may_be_table = text_ && (c == '-' || c == ':') && RestIs(begin, U"-:| \t");
  if ((may_be_rule || may_be_table) && WaitsForLine()) return;
  if (complete_ && text_ && (c == '-' || c == '=') && RestIs(begin, {&mark[0], 1})) {
    EndText(SentenceGap::kHeading);  // the line under a heading
    return DropLine();
  }
  if (complete_ && IsRule(begin)) {
    EndText(SentenceGap::kParagraph);
    EndTable();
    items_->EndBlock(SentenceGap::kParagraph, position_);
    return DropLine();
  }
  if (complete_ && may_be_table && IsTableRule(begin)) {
    EndText(SentenceGap::kSentence);
    table_ = true;
    return DropLine();
  }
  const bool item = c == '-' || c == '*' || c == '+';
  const char32_t next = At(begin + 1);
  if (!item) return BeginText(begin);
  if (next == kMore) return;
  if (!IsBlankChar(next) && next != kEnd) return BeginText(begin);
  size_t text = begin + 1;
  while (IsBlankChar(At(text))) ++text;
  // "[x] " of a task.
  if (At(text) == '[') {
    for (size_t i = text; i < text + 4; ++i) {
      if (At(i) == kMore) return;
    }
    const char32_t done = At(text + 1);
    if ((done == ' ' || done == 'x' || done == 'X') && At(text + 2) == ']' && IsBlankChar(At(text + 3))) text += 4;
  }
  if (At(text) == kMore && line_.size() < kLongestLine) return;
  BeginItem(std::min(text, line_.size()));
}

// Decides "1. ", which is spoken with its item.
void MarkdownStream::DecideNumber(size_t begin) {
  size_t end = begin;
  while (IsDigit(At(end)) && end - begin <= kMaxItemDigits) ++end;
  if (At(end) == kMore) return;
  const bool first = end - begin == 1 && At(begin) == '1';
  const bool mark = At(end) == '.' || At(end) == ')';
  if (mark && At(end + 1) == kMore) return;
  const bool item = mark && end - begin <= kMaxItemDigits && IsBlankChar(At(end + 1)) && (!text_ || list_ || first);
  if (!item) {
    if (table_ && WaitsForLine()) return;
    return table_ && RowGoesOn(begin) ? ReadRow(begin) : BeginText(begin);
  }
  size_t text = end + 1;
  while (IsBlankChar(At(text))) ++text;
  if (At(text) == kMore && line_.size() < kLongestLine) return;
  EndTable();
  EndText(SentenceGap::kSentence);
  items_->EndBlock(SentenceGap::kSentence, position_);
  for (size_t i = begin; i < end; ++i) items_->Copy(line_[i]);
  items_->Copy('.', line_[end].position);
  items_->Space(line_[end].position + 1);
  list_ = item_line_ = true;
  indented_code_ = false;
  BeginText(std::min(text, line_.size()));
}

// Decides between a block of raw HTML and text that begins with a tag.
void MarkdownStream::DecideAngle(size_t begin) {
  if (options_.rules.html == MarkupRule::kRead) return BeginText(begin);
  const size_t slash = At(begin + 1) == '/' ? 1 : 0;
  const char32_t next = At(begin + 1 + slash);
  if (next == kMore) return;
  if (next == '!' && (At(begin + 2) == kMore || (At(begin + 2) == '-' && At(begin + 3) == kMore))) return;
  const bool comment = next == '!' && At(begin + 2) == '-' && At(begin + 3) == '-';
  std::u32string name;
  size_t end = begin + 1 + slash;
  while (end < line_.size() && name.size() < kLongestHtmlName && (IsLetter(At(end)) || IsDigit(At(end)))) {
    name += ToLower(At(end++));
  }
  if (At(end) == kMore && name.size() < kLongestHtmlName && next != '!' && next != '?') return;
  const bool named = IsBlankChar(At(end)) || At(end) == '>' || At(end) == '/' || At(end) == kEnd;
  std::u32string_view marker;
  if (comment) marker = U"-->";
  if (next == '?' && slash == 0) marker = U"?>";
  if (next == '!' && !comment) marker = U">";
  if (named && slash == 0 && !MarkerOf(name).empty()) marker = MarkerOf(name);
  if (marker.empty() && !(named && IsBlockElement(name))) return BeginText(begin);
  EndTable();
  SayBlock(options_.rules.html, "");
  if (marker.empty()) {
    html_ = true;
    return DropLine();
  }
  marker_ = marker;
  tail_.clear();
  mode_ = Mode::kMarked;
  const std::vector<DocumentChar> line = std::exchange(line_, {});
  for (size_t i = begin + 1; i < line.size() && mode_ == Mode::kMarked; ++i) PushMarked(line[i].code);
}

// Decides: "[label]: target" defines a link; "[^1]: text" is a note.
void MarkdownStream::DecideDefinition(size_t begin) {
  if (text_) return BeginText(begin);
  size_t end = begin + 1;
  while (end < line_.size() && end - begin < kMaxReferenceLabel && At(end) != ']') ++end;
  if (At(end) == kMore) return;
  if (At(end) == ']' && At(end + 1) == kMore) return;
  if (At(end) != ']' || At(end + 1) != ':' || end == begin + 1) return BeginText(begin);
  if (At(begin + 1) == '^') {
    size_t text = end + 2;
    while (IsBlankChar(At(text))) ++text;
    if (At(text) == kMore && line_.size() < kLongestLine) return;
    return BeginText(std::min(text, line_.size()));
  }
  if (WaitsForLine()) return;
  // A target, and perhaps a title in quotes.
  size_t target = end + 2;
  while (IsBlankChar(At(target))) ++target;
  size_t behind = target;
  while (behind < line_.size() && !IsBlankChar(At(behind))) ++behind;
  while (IsBlankChar(At(behind))) ++behind;
  const char32_t title = At(behind);
  if (behind == target || !(title == kEnd || title == '"' || title == '\'' || title == '(')) return BeginText(begin);
  DropLine();
}

// Returns true if the row is one of the table, which goes on with every line that has a "|".
bool MarkdownStream::RowGoesOn(size_t begin) const {
  return complete_ && std::any_of(line_.begin() + static_cast<ptrdiff_t>(begin), line_.end(),
                                  [](const DocumentChar& character) { return character.code == '|'; });
}

}  // namespace qtts
