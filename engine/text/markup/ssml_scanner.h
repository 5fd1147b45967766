// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TEXT_MARKUP_SSML_SCANNER_H_
#define QTTS_TEXT_MARKUP_SSML_SCANNER_H_

#include <cstddef>
#include <string>
#include <vector>

#include "text/markup/item_builder.h"

namespace qtts {

// Splits a growing XML document into tags and text, and decodes its references. Comments and processing instructions
// are silent. A tag is given out when it is complete, text character by character.
//
// From the first mistake on the scanner is lenient: what looks like a tag still is one, and all else is text.
class SsmlScanner {
 public:
  // Longest tag in characters.
  static constexpr size_t kLongestTag = 8192;

  class Handler {
   public:
    virtual ~Handler() = default;
    // Handles `code`, which stands for the characters [begin, end) of the document.
    virtual void OnText(char32_t code, size_t begin, size_t end) = 0;
    // Handles a start tag, end tag or empty-element tag with its brackets.
    virtual void OnTag(const std::u32string& tag, size_t begin, size_t end) = 0;
    // Handles the first mistake.
    virtual void OnMistake(const std::string& problem) = 0;
  };

  explicit SsmlScanner(Handler* handler) : handler_(handler) {}

  void Push(const DocumentChar& character);
  void Finish();
  // Tells that the handler has found a mistake: the rest is read leniently.
  void BeLenient() { lenient_ = true; }

  size_t line() const { return line_; }
  size_t column() const { return column_; }

 private:
  enum class State {
    kText,
    kReference,
    kOpen,  // behind "<", as long as several things are possible
    kTag,
    kComment,
    kInstruction,
    kDeclaration,
    kData,  // CDATA
  };

  void Scan(const DocumentChar& character);
  void ScanReference(const DocumentChar& character);
  void ScanOpen(const DocumentChar& character);
  void ScanTag(const DocumentChar& character);
  void ScanSilent(char32_t c);
  void ScanData(const DocumentChar& character);
  void Mistake(const std::string& problem);
  void ReleaseAsText();
  void ReleaseOpenTag();

  Handler* handler_;
  State state_ = State::kText;
  bool lenient_ = false;
  std::vector<DocumentChar> token_;  // not decided
  char32_t quote_ = 0;               // of an attribute's value, while it is open
  size_t matched_ = 0;               // characters of the end of a comment, instruction or CDATA section
  size_t depth_ = 0;                 // brackets within a declaration
  size_t line_ = 1;
  size_t column_ = 0;
};

}  // namespace qtts

#endif  // QTTS_TEXT_MARKUP_SSML_SCANNER_H_
