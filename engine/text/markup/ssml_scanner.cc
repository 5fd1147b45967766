// SPDX-License-Identifier: LGPL-2.1-or-later
#include "text/markup/ssml_scanner.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "qtts/utf8.h"
#include "text/markup/reference.h"
#include "text/prepare/reader.h"

namespace qtts {
namespace {

constexpr std::u32string_view kComment = U"<!--";
constexpr std::u32string_view kData = U"<![CDATA[";
constexpr size_t kEndLength = 3;  // of "-->" and "]]>"

std::u32string CodesOfToken(const std::vector<DocumentChar>& token) {
  std::u32string text;
  for (const DocumentChar& character : token) text += character.code;
  return text;
}

bool IsNameStart(char32_t c) { return IsLetter(c) || c == '_' || c == ':'; }
bool IsNameCharacter(char32_t c) { return IsNameStart(c) || IsDigit(c) || c == '-' || c == '.'; }

// Returns the length of a tag that the document does not complete: its name and all that look like attributes.
size_t OpenTagLength(std::u32string_view tag) {
  const auto at = [&](size_t i) { return i < tag.size() ? tag[i] : U'\0'; };
  const auto skip_spaces = [&](size_t i) {
    while (i < tag.size() && IsWhiteSpace(tag[i])) ++i;
    return i;
  };
  size_t end = at(1) == '/' ? 2 : 1;
  while (IsNameCharacter(at(end))) ++end;
  for (;;) {
    size_t i = skip_spaces(end);
    while (IsNameCharacter(at(i))) ++i;
    const bool last = i == tag.size();  // the document ends within a name
    i = skip_spaces(i);
    if (at(i) != '=') return last || (i == tag.size() && i > end && at(end) != '\n') ? tag.size() : end;
    i = skip_spaces(i + 1);
    const char32_t quote = at(i);
    if (quote != '"' && quote != '\'') {
      while (i < tag.size() && !IsWhiteSpace(tag[i])) ++i;
      end = i;
      continue;
    }
    const size_t close = tag.find(quote, i + 1);
    if (close != std::u32string_view::npos) {
      end = close + 1;
      continue;
    }
    // An open quote: its value is one word.
    while (i < tag.size() && !IsWhiteSpace(tag[i])) ++i;
    return i;
  }
}

}  // namespace

void SsmlScanner::Mistake(const std::string& problem) {
  if (std::exchange(lenient_, true)) return;
  handler_->OnMistake(problem);
}

void SsmlScanner::Push(const DocumentChar& character) {
  if (character.code == '\n') {
    ++line_;
    column_ = 0;
  } else {
    ++column_;
  }
  Scan(character);
}

void SsmlScanner::Scan(const DocumentChar& character) {
  switch (state_) {
    case State::kText:
      if (character.code == '<' || character.code == '&') {
        token_ = {character};
        state_ = character.code == '<' ? State::kOpen : State::kReference;
      } else {
        handler_->OnText(character.code, character.position, character.position + 1);
      }
      break;
    case State::kReference:
      ScanReference(character);
      break;
    case State::kOpen:
      ScanOpen(character);
      break;
    case State::kTag:
      ScanTag(character);
      break;
    case State::kComment:
    case State::kInstruction:
    case State::kDeclaration:
      ScanSilent(character.code);
      break;
    case State::kData:
      ScanData(character);
      break;
  }
}

// Hands on the held characters, which are text after all.
void SsmlScanner::ReleaseAsText() {
  state_ = State::kText;
  for (const DocumentChar& held : std::exchange(token_, {})) {
    handler_->OnText(held.code, held.position, held.position + 1);
  }
}

void SsmlScanner::ScanReference(const DocumentChar& character) {
  const std::u32string name = CodesOfToken(token_).substr(1);
  if (character.code == ';') {
    if (const std::optional<char32_t> code = DecodeReference(name)) {
      state_ = State::kText;
      const size_t begin = std::exchange(token_, {})[0].position;
      handler_->OnText(*code, begin, character.position + 1);
      return;
    }
  } else if (MayBeReference(name + character.code)) {
    token_.push_back(character);
    return;
  }
  Mistake(name.empty() ? "\"&\" stands for itself only as \"&amp;\""
                       : "\"&" + ToUtf8(name) + "\" is no character; \"&\" itself is \"&amp;\"");
  ReleaseAsText();
  Scan(character);
}

void SsmlScanner::ScanOpen(const DocumentChar& character) {
  const char32_t c = character.code;
  const std::u32string begun = CodesOfToken(token_) + c;
  if (begun.size() == 2 && !IsNameStart(c) && c != '/' && c != '!' && c != '?') {
    Mistake("\"<\" stands for itself only as \"&lt;\"");
    ReleaseAsText();
    Scan(character);
    return;
  }
  matched_ = depth_ = 0;
  quote_ = 0;
  if (begun == kComment || begun == kData || c == '?') {
    state_ = begun == kComment ? State::kComment : begun == kData ? State::kData : State::kInstruction;
    token_.clear();
  } else if (begun[1] != '!') {
    token_.push_back(character);
    state_ = State::kTag;
  } else if (kComment.starts_with(begun) || kData.starts_with(begun)) {
    token_.push_back(character);
  } else {
    Mistake("a document type declaration or the like is not allowed");
    token_.clear();
    state_ = State::kDeclaration;
    ScanSilent(c);
  }
}

void SsmlScanner::ScanTag(const DocumentChar& character) {
  const char32_t c = character.code;
  token_.push_back(character);
  if (quote_ != 0 && !lenient_) {
    if (c == quote_) quote_ = 0;
  } else if ((c == '"' || c == '\'') && !lenient_) {  // where one is missing, quotes say nothing
    quote_ = c;
  } else if (c == '<') {
    Mistake("a tag begins within a tag; \"<\" itself is \"&lt;\"");
    token_.pop_back();
    ReleaseOpenTag();
    Scan(character);
    return;
  } else if (c == '>') {
    state_ = State::kText;
    const std::vector<DocumentChar> tag = std::exchange(token_, {});
    handler_->OnTag(CodesOfToken(tag), tag[0].position, character.position + 1);
    return;
  }
  if (token_.size() < kLongestTag) return;
  Mistake("a tag has more than " + std::to_string(kLongestTag) + " characters");
  ReleaseOpenTag();
}

// Releases a tag that does not end, or not in time: all but what looks like a tag is text.
void SsmlScanner::ReleaseOpenTag() {
  state_ = State::kText;
  const std::vector<DocumentChar> held = std::exchange(token_, {});
  const std::u32string tag = CodesOfToken(held);
  // A quote that is not closed hides the end of the tag.
  const size_t end = tag.find(U'>');
  const size_t length = end != std::u32string::npos ? end + 1 : OpenTagLength(tag);
  for (size_t i = std::max<size_t>(length, 1); i < held.size(); ++i) Scan(held[i]);
}

void SsmlScanner::ScanSilent(char32_t c) {
  if (state_ == State::kComment) {
    if (c == '-') {
      matched_ = std::min(matched_ + 1, kEndLength - 1);
    } else if (c == '>' && matched_ == kEndLength - 1) {
      state_ = State::kText;
    } else {
      matched_ = 0;
    }
  } else if (state_ == State::kInstruction) {
    if (c == '>' && matched_ == 1) state_ = State::kText;
    matched_ = c == '?' ? 1 : 0;
  } else if (c == '[') {
    ++depth_;
  } else if (c == ']') {
    depth_ -= depth_ > 0 ? 1 : 0;
  } else if (c == '>' && depth_ == 0) {
    state_ = State::kText;
  }
}

void SsmlScanner::ScanData(const DocumentChar& character) {
  const char32_t c = character.code;
  if (c == '>' && matched_ == kEndLength - 1) {
    token_.clear();
    state_ = State::kText;
    return;
  }
  if (c == ']' && matched_ == kEndLength - 1) {  // the first of three is text
    const DocumentChar first = token_.front();
    token_.erase(token_.begin());
    handler_->OnText(first.code, first.position, first.position + 1);
    token_.push_back(character);
    return;
  }
  if (c == ']') {
    ++matched_;
    token_.push_back(character);
    return;
  }
  for (const DocumentChar& held : std::exchange(token_, {})) {
    handler_->OnText(held.code, held.position, held.position + 1);
  }
  matched_ = 0;
  handler_->OnText(c, character.position, character.position + 1);
}

void SsmlScanner::Finish() {
  switch (state_) {
    case State::kText:
      return;
    case State::kReference:
      Mistake("the document ends within \"" + ToUtf8(CodesOfToken(token_)) + "\"; \"&\" itself is \"&amp;\"");
      ReleaseAsText();
      return;
    case State::kOpen:
      Mistake("the document ends with \"<\"; as a character it is \"&lt;\"");
      token_.clear();
      state_ = State::kText;
      return;
    case State::kTag:
      Mistake("the document ends within a tag");
      ReleaseOpenTag();
      Finish();
      return;
    case State::kData:
      Mistake("the document ends within a CDATA section");
      ReleaseAsText();
      return;
    case State::kComment:
    case State::kInstruction:
    case State::kDeclaration:
      Mistake("the document ends within a comment or the like");
      state_ = State::kText;
      return;
  }
}

}  // namespace qtts
