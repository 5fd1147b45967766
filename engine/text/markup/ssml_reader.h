// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TEXT_MARKUP_SSML_READER_H_
#define QTTS_TEXT_MARKUP_SSML_READER_H_

#include <glib.h>

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/markup/item_builder.h"
#include "text/markup/ssml_scanner.h"

namespace qtts {

// SSML. GLib's parser checks each tag, its attributes and how tags nest, as soon as the tag is complete; text does not
// wait for the next tag. The document may be a part of one, or several.
class SsmlReader : public DocumentReader, private SsmlScanner::Handler {
 public:
  static constexpr size_t kDeepest = 64;
  // Longest content of say-as and sub, in characters.
  static constexpr size_t kLongestContent = 2000;
  static constexpr size_t kLongestName = 256;  // of a mark

  SsmlReader(std::string language, ItemBuilder* items);
  ~SsmlReader() override;

  void Push(const DocumentChar& character) override;
  void Finish(size_t length) override;

 private:
  // An element that is open.
  struct Element {
    std::string name;
    MarkupSettings settings;  // around it
    bool silent = false;      // around it
  };
  using Attributes = std::vector<std::pair<std::string, std::string>>;
  // The element whose content is collected, if any.
  enum class Collect { kNone, kSub, kSayAs };

  void OnText(char32_t code, size_t begin, size_t end) override;
  void OnTag(const std::u32string& tag, size_t begin, size_t end) override;
  void OnMistake(const std::string& problem) override;

  void SkipTag(std::u32string_view tag);
  void Open(const std::string& name, const Attributes& attributes);
  void Close(const std::string& name);
  void OpenVoice(const Attributes& attributes);
  void OpenProsody(const Attributes& attributes);
  void OpenSayAs(const Attributes& attributes);
  void ReadBreak(const Attributes& attributes);
  void ReadMark(const Attributes& attributes);
  void SwitchLanguage(const std::string& tag);
  void Say(char32_t code, size_t begin, size_t end);
  void EndCollection(bool as_text);
  void Warn(const std::string& warning) { items_->Warn("SSML: " + warning); }

  const std::string language_;  // around the document
  ItemBuilder* items_;
  SsmlScanner scanner_;
  std::unique_ptr<GMarkupParseContext, decltype(&g_markup_parse_context_free)> parser_;
  bool in_root_ = false;  // of the parser
  bool broken_ = false;
  std::vector<Element> elements_;
  bool silent_ = false;   // within an element whose content is no text
  size_t tag_begin_ = 0;  // of the tag that is read
  size_t tag_end_ = 0;
  Collect collect_ = Collect::kNone;
  size_t collect_depth_ = 0;  // number of elements within the collecting one
  size_t collect_begin_ = 0;
  std::string alias_;
  std::string kind_;
  std::string format_;
  // Characters and their ends in the document; a reference has several.
  std::vector<std::pair<DocumentChar, size_t>> collected_;
};

}  // namespace qtts

#endif  // QTTS_TEXT_MARKUP_SSML_READER_H_
