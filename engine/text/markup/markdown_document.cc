// SPDX-License-Identifier: LGPL-2.1-or-later
#include "text/markup/markdown_document.h"

#include <md4c.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "qtts/utf8.h"
#include "text/markup/markdown_words.h"
#include "text/markup/reference.h"
#include "text/prepare/reader.h"

namespace qtts {
namespace {

constexpr unsigned kFlags = MD_FLAG_TABLES | MD_FLAG_STRIKETHROUGH | MD_FLAG_TASKLISTS;

// Builds items from md4c's callbacks.
class Renderer {
 public:
  Renderer(std::string_view document, const MarkupOptions& options, ItemBuilder* items)
      : document_(document), rules_(options.rules), words_(MarkdownWordsOf(options.language)), items_(items) {}

  bool Run();

 private:
  struct List {
    bool ordered = false;
    unsigned next = 0;  // number of the next item
  };

  void EnterBlock(MD_BLOCKTYPE type, void* detail);
  void LeaveBlock(MD_BLOCKTYPE type);
  void EnterSpan(MD_SPANTYPE type, void* detail);
  void LeaveSpan(MD_SPANTYPE type);
  void Text(MD_TEXTTYPE type, const char* text, size_t size);
  void Advance(const char* text, size_t size);
  void Say(std::string_view text);
  void SayBlock(MarkupRule rule, std::string_view name);
  void LeaveSilent() { silent_ -= silent_ > 0 ? 1 : 0; }
  void SayHtml(std::string_view text);
  void SayReference(std::string_view text);

  const std::string_view document_;
  const MarkdownRules& rules_;
  const MarkdownWords& words_;
  ItemBuilder* items_;
  size_t at_ = 0;        // bytes of the document that have been counted
  size_t position_ = 0;  // characters up to there
  size_t silent_ = 0;    // blocks and spans that are open and not spoken
  size_t images_ = 0;    // images that are open
  std::vector<List> lists_;
  std::vector<std::string> targets_;  // of the links that are open
  bool cell_ = false;                 // a cell of this row was spoken
  bool in_tag_ = false;               // of raw HTML that is read
};

// Counts characters up to `text` if that is in the document.
void Renderer::Advance(const char* text, size_t size) {
  const std::less<> before;
  const char* const begin = document_.data();
  if (before(text, begin + at_) || before(begin + document_.size(), text + size)) return;
  const size_t to = static_cast<size_t>(text - begin);
  position_ += CountUtf8(document_.substr(at_, to - at_));
  at_ = to;
}

void Renderer::Say(std::string_view text) {
  const bool inside = !std::less<>()(text.data(), document_.data()) &&
                      !std::less<>()(document_.data() + document_.size(), text.data() + text.size());
  for (Utf8Char c = DecodeUtf8(text); c.size > 0; c = DecodeUtf8(text)) {
    text.remove_prefix(c.size);
    const char32_t space = c.code == '\n' ? U'\n' : U' ';
    if (!inside) {  // white space of md4c's own
      items_->Gap(position_, space);
    } else if (IsWhiteSpace(c.code)) {
      items_->Space(position_, space);
    } else {
      items_->Copy(c.code, position_);
    }
    if (!inside) continue;
    ++position_;
    at_ += c.size;
  }
}

void Renderer::SayReference(std::string_view text) {
  const std::u32string name = ToUtf32(text.substr(1, text.size() - 2));
  const std::optional<char32_t> code = DecodeReference(name);
  if (!code) return Say(text);
  std::string character;
  AppendUtf8(*code, &character);
  items_->Replace(character, position_, position_ + CountUtf8(text));
}

// Says text between tags.
void Renderer::SayHtml(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    if (!in_tag_ && text[i] != '<') {
      const size_t end = std::min(text.find('<', i), text.size());
      Say(text.substr(i, end - i));
      i = end;
      continue;
    }
    in_tag_ = true;
    const size_t end = text.find('>', i);
    const size_t next = end == std::string_view::npos ? text.size() : end + 1;
    in_tag_ = end == std::string_view::npos;
    Advance(text.data() + next, 0);
    i = next;
  }
}

void Renderer::SayBlock(MarkupRule rule, std::string_view name) {
  items_->EndBlock(SentenceGap::kParagraph, position_);
  if (rule == MarkupRule::kName) {
    items_->Replace(name, position_, position_);
    items_->EndBlock(SentenceGap::kParagraph, position_);
  }
  if (rule != MarkupRule::kRead) ++silent_;
}

void Renderer::EnterBlock(MD_BLOCKTYPE type, void* detail) {
  if (silent_ > 0 && (type == MD_BLOCK_CODE || type == MD_BLOCK_HTML || type == MD_BLOCK_TABLE)) {
    ++silent_;
    return;
  }
  switch (type) {
    case MD_BLOCK_UL:
      lists_.push_back({});
      break;
    case MD_BLOCK_OL:
      lists_.push_back({true, static_cast<MD_BLOCK_OL_DETAIL*>(detail)->start});
      break;
    case MD_BLOCK_LI:
      items_->EndBlock(SentenceGap::kSentence, position_);
      if (!lists_.empty() && lists_.back().ordered) {
        items_->Replace(std::to_string(lists_.back().next++) + ". ", position_, position_);
      }
      break;
    case MD_BLOCK_CODE:
      SayBlock(rules_.code, words_.code);
      break;
    case MD_BLOCK_TABLE:
      SayBlock(rules_.table, words_.table);
      break;
    case MD_BLOCK_HTML:
      in_tag_ = false;
      SayBlock(rules_.html, "");
      break;
    case MD_BLOCK_TR:
      cell_ = false;
      break;
    case MD_BLOCK_TH:
    case MD_BLOCK_TD:
      if (silent_ == 0 && cell_) items_->Pause(position_, position_);
      cell_ = true;
      break;
    default:
      break;
  }
}

void Renderer::LeaveBlock(MD_BLOCKTYPE type) {
  switch (type) {
    case MD_BLOCK_UL:
    case MD_BLOCK_OL:
      if (!lists_.empty()) lists_.pop_back();
      items_->EndBlock(lists_.empty() ? SentenceGap::kParagraph : SentenceGap::kSentence, position_);
      break;
    case MD_BLOCK_LI:
    case MD_BLOCK_TR:
      items_->EndBlock(SentenceGap::kSentence, position_);
      break;
    case MD_BLOCK_P:
      items_->EndBlock(lists_.empty() ? SentenceGap::kParagraph : SentenceGap::kSentence, position_);
      break;
    case MD_BLOCK_QUOTE:
    case MD_BLOCK_HR:
    case MD_BLOCK_DOC:
      items_->EndBlock(SentenceGap::kParagraph, position_);
      break;
    case MD_BLOCK_H:
      items_->EndBlock(SentenceGap::kHeading, position_);
      break;
    case MD_BLOCK_CODE:
    case MD_BLOCK_HTML:
    case MD_BLOCK_TABLE:
      LeaveSilent();
      items_->EndBlock(SentenceGap::kParagraph, position_);
      break;
    default:
      break;
  }
}

void Renderer::EnterSpan(MD_SPANTYPE type, void* detail) {
  if (type == MD_SPAN_A) {
    const MD_ATTRIBUTE& target = static_cast<MD_SPAN_A_DETAIL*>(detail)->href;
    targets_.emplace_back(target.text != nullptr ? std::string(target.text, target.size) : "");
  } else if (type == MD_SPAN_IMG) {
    if (images_++ > 0) return;
    if (rules_.image == MarkupRule::kName && silent_ == 0)
      items_->Replace(std::string(words_.image) + " ", position_, position_);
    if (rules_.image == MarkupRule::kSkip) ++silent_;
  }
}

void Renderer::LeaveSpan(MD_SPANTYPE type) {
  if (type == MD_SPAN_A && !targets_.empty()) {
    const std::string target = RepairUtf8(targets_.back());
    targets_.pop_back();
    if (silent_ > 0 || rules_.link == MarkupRule::kSkip || items_->last() == ItemBuilder::kNone) return;
    const std::string_view said = rules_.link == MarkupRule::kName ? words_.link : std::string_view(target);
    if (said.empty()) return;
    items_->Pause(position_, position_);
    items_->Replace(said, position_, position_);
  } else if (type == MD_SPAN_IMG && images_ > 0 && --images_ == 0 && rules_.image == MarkupRule::kSkip) {
    LeaveSilent();
  }
}

void Renderer::Text(MD_TEXTTYPE type, const char* text, size_t size) {
  Advance(text, size);
  if (silent_ > 0) return;
  switch (type) {
    case MD_TEXT_BR:
    case MD_TEXT_SOFTBR:
      items_->Space(position_, U'\n');
      break;
    case MD_TEXT_ENTITY:
      SayReference({text, size});
      break;
    case MD_TEXT_HTML:
      // A tag within a sentence is a text of its own.
      if (std::string_view(text, size).starts_with("<br")) items_->Gap(position_);
      if (rules_.html == MarkupRule::kRead) SayHtml({text, size});
      break;
    case MD_TEXT_NULLCHAR:
      items_->Space(position_);
      break;
    default:
      Say({text, size});
      break;
  }
}

bool Renderer::Run() {
  MD_PARSER parser = {};
  parser.flags = kFlags;
  parser.enter_block = [](MD_BLOCKTYPE type, void* detail, void* data) {
    static_cast<Renderer*>(data)->EnterBlock(type, detail);
    return 0;
  };
  parser.leave_block = [](MD_BLOCKTYPE type, void* /*detail*/, void* data) {
    static_cast<Renderer*>(data)->LeaveBlock(type);
    return 0;
  };
  parser.enter_span = [](MD_SPANTYPE type, void* detail, void* data) {
    static_cast<Renderer*>(data)->EnterSpan(type, detail);
    return 0;
  };
  parser.leave_span = [](MD_SPANTYPE type, void* /*detail*/, void* data) {
    static_cast<Renderer*>(data)->LeaveSpan(type);
    return 0;
  };
  parser.text = [](MD_TEXTTYPE type, const MD_CHAR* text, MD_SIZE size, void* data) {
    static_cast<Renderer*>(data)->Text(type, text, size);
    return 0;
  };
  return md_parse(document_.data(), static_cast<MD_SIZE>(document_.size()), &parser, this) == 0;
}

}  // namespace

bool ReadMarkdown(std::string_view document, const MarkupOptions& options, ItemBuilder* items) {
  if (document.size() > kLongestMarkdown) return false;
  return Renderer(document, options, items).Run();
}

}  // namespace qtts
