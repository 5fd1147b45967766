// SPDX-License-Identifier: LGPL-2.1-or-later
#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "qtts/markup.h"
#include "qtts/utf8.h"
#include "text/markup/item_builder.h"
#include "text/markup/markdown_document.h"
#include "text/markup/markdown_stream.h"
#include "text/markup/ssml_reader.h"
#include "text/markup/subtitle_reader.h"

namespace qtts {
namespace {

constexpr char32_t kByteOrderMark = 0xFEFF;
constexpr size_t kLongestProlog = 4096;  // bytes before <speak>

std::unique_ptr<DocumentReader> NewReader(Markup markup, const MarkupOptions& options, ItemBuilder* items) {
  switch (markup) {
    case Markup::kSsml:
      return std::make_unique<SsmlReader>(options.language, items);
    case Markup::kMarkdown:
      return std::make_unique<MarkdownStream>(options, items);
    case Markup::kSubtitle:
      return std::make_unique<SubtitleReader>(items);
    case Markup::kAuto:
    case Markup::kNone:
      break;
  }
  return std::make_unique<PlainReader>(items);
}

MarkupRule* FindRule(std::string_view name, MarkdownRules* rules) {
  const std::pair<std::string_view, MarkupRule*> all[] = {{"code", &rules->code},
                                                          {"table", &rules->table},
                                                          {"image", &rules->image},
                                                          {"link", &rules->link},
                                                          {"html", &rules->html}};
  for (const auto& [known, rule] : all) {
    if (known == name) return rule;
  }
  return nullptr;
}

}  // namespace

std::string_view MarkupName(Markup markup) {
  constexpr std::string_view kNames[] = {"auto", "none", "ssml", "markdown", "subtitle"};
  return kNames[static_cast<size_t>(markup)];
}

Result<MarkdownRules> ParseMarkdownRules(std::string_view rules) {
  constexpr std::string_view kValues[] = {"skip", "name", "read"};
  MarkdownRules parsed;
  while (!rules.empty()) {
    const std::string_view part = rules.substr(0, rules.find(','));
    rules.remove_prefix(std::min(part.size() + 1, rules.size()));
    if (Trim(part).empty()) continue;
    const size_t equals = std::min(part.find('='), part.size());
    const std::string_view value = Trim(part.substr(std::min(equals + 1, part.size())));
    MarkupRule* const rule = FindRule(Trim(part.substr(0, equals)), &parsed);
    const auto* const found = std::ranges::find(kValues, value);
    if (rule == nullptr || found == std::end(kValues) || (rule == &parsed.html && value == "name")) {
      return Status::InvalidArgument("the rule \"" + std::string(Utf8Head(part, 40)) +
                                     "\" is unknown; a rule is code, table, image, link or html, then = and skip, name "
                                     "or read (html: skip or read), as in \"code=name,table=read\"");
    }
    *rule = static_cast<MarkupRule>(found - std::begin(kValues));
  }
  return parsed;
}

std::optional<Markup> ResolveMarkup(Markup asked, std::string_view text, bool ended) {
  constexpr std::string_view kMark = "\xEF\xBB\xBF";
  constexpr std::string_view kSpeak = "<speak";
  if (asked != Markup::kAuto) return asked;
  if (text.starts_with(kMark)) text.remove_prefix(kMark.size());
  // Behind the XML declaration and comments.
  std::string_view rest = text;
  for (;;) {
    rest = TrimLeft(rest);
    const bool instruction = rest.starts_with("<?");
    if (!instruction && !rest.starts_with("<!--")) break;
    const std::string_view end = instruction ? "?>" : "-->";
    const size_t found = rest.find(end);
    if (found == std::string_view::npos) {
      return ended || text.size() > kLongestProlog ? std::optional(Markup::kNone) : std::nullopt;
    }
    rest.remove_prefix(found + end.size());
  }
  if (rest.size() <= kSpeak.size()) {
    const bool may_come = kSpeak.starts_with(rest) || std::string_view("<!--").starts_with(rest) || rest == "<?";
    return ended || !may_come || text.size() > kLongestProlog ? std::optional(Markup::kNone) : std::nullopt;
  }
  const bool ssml = rest.starts_with(kSpeak) && (IsWhiteSpace(static_cast<unsigned char>(rest[kSpeak.size()])) ||
                                                 rest[kSpeak.size()] == '>' || rest[kSpeak.size()] == '/');
  return ssml ? Markup::kSsml : Markup::kNone;
}

struct MarkupReader::Impl {
  explicit Impl(const MarkupOptions& given) : options(given) {
    if (options.markup != Markup::kAuto) reader = NewReader(options.markup, options, &items);
  }

  void Decode(bool ended) {
    std::string_view rest = pending;
    while (!rest.empty()) {
      const Utf8Char c = DecodeUtf8(rest);
      if (c.incomplete && !ended) break;
      const bool byte_order_mark = length == 0 && c.code == kByteOrderMark;
      if (!byte_order_mark) reader->Push({c.code, length});
      ++length;
      rest.remove_prefix(c.size);
    }
    pending.erase(0, pending.size() - rest.size());
  }

  MarkupOptions options;
  ItemBuilder items;
  std::unique_ptr<DocumentReader> reader;  // null: its kind is not known yet
  std::string pending;                     // bytes that were not read
  size_t length = 0;                       // characters
  bool finished = false;
};

MarkupReader::MarkupReader(const MarkupOptions& options) : impl_(std::make_unique<Impl>(options)) {}
MarkupReader::~MarkupReader() = default;
MarkupReader::MarkupReader(MarkupReader&&) noexcept = default;
MarkupReader& MarkupReader::operator=(MarkupReader&&) noexcept = default;

Status MarkupReader::Append(std::string_view text) {
  if (impl_->finished) return Status::InvalidArgument("text was appended after the end of the document");
  impl_->pending.append(text);
  if (impl_->reader == nullptr) {
    const std::optional<Markup> markup = ResolveMarkup(Markup::kAuto, impl_->pending, false);
    if (!markup) return Status::Ok();
    impl_->reader = NewReader(*markup, impl_->options, &impl_->items);
  }
  impl_->Decode(false);
  return Status::Ok();
}

void MarkupReader::Finish() {
  if (std::exchange(impl_->finished, true)) return;
  if (impl_->reader == nullptr) {
    const Markup markup = ResolveMarkup(Markup::kAuto, impl_->pending, true).value_or(Markup::kNone);
    impl_->reader = NewReader(markup, impl_->options, &impl_->items);
  }
  impl_->Decode(true);
  impl_->reader->Finish(impl_->length);
}

std::vector<MarkupItem> MarkupReader::Take() { return impl_->items.Take(); }
std::vector<std::string> MarkupReader::TakeWarnings() { return impl_->items.TakeWarnings(); }

std::vector<MarkupItem> ReadMarkup(std::string_view document, const MarkupOptions& options,
                                   std::vector<std::string>* warnings) {
  if (options.markup == Markup::kMarkdown) {
    ItemBuilder items;
    if (ReadMarkdown(RepairUtf8(document), options, &items)) return items.Take();
    // Too long for the parser of whole documents.
  }
  MarkupReader reader(options);
  (void)reader.Append(document);
  reader.Finish();
  *warnings = reader.TakeWarnings();
  return reader.Take();
}

}  // namespace qtts
