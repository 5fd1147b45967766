// SPDX-License-Identifier: LGPL-2.1-or-later
#include "text/markup/ssml_reader.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include "base/ensure_memory.h"
#include "qtts/utf8.h"
#include "text/markup/say_as.h"
#include "text/markup/ssml_values.h"
#include "text/prepare/mapped_text.h"

namespace qtts {
namespace {

// Encloses all of the document for GLib's parser, so that it may be a part of one.
constexpr std::string_view kRoot = "<document>";
constexpr size_t kLongestTold = 40;  // characters of a value in a message

std::string InQuotes(std::string_view value) {
  return "\"" + std::string(Utf8Head(value, kLongestTold)) + (CountUtf8(value) > kLongestTold ? "…" : "") + "\"";
}

const std::string* Find(const std::vector<std::pair<std::string, std::string>>& attributes, std::string_view name) {
  const auto found = std::ranges::find(attributes, name, &std::pair<std::string, std::string>::first);
  return found != attributes.end() ? &found->second : nullptr;
}

// Returns true for a tag such as "de" or "en-GB", of a sane length.
bool IsLanguageTag(std::string_view tag) {
  constexpr size_t kLongest = 35;
  return !tag.empty() && tag.size() <= kLongest &&
         std::ranges::all_of(tag, [](char c) { return g_ascii_isalnum(c) != 0 || c == '-'; });
}

// Returns a message of GLib without the place, which is not that of the document.
std::string MessageOf(const GError& error) {
  std::string message = error.message;
  const size_t colon = message.find(": ");
  if (message.starts_with("Error on line") && colon != std::string::npos) message.erase(0, colon + 2);
  return RepairUtf8(message);
}

SentenceGap GapOf(std::string_view name) {
  return name == "s" || name == "sentence" ? SentenceGap::kSentence : SentenceGap::kParagraph;
}

bool EndsBlock(std::string_view name) {
  return name == "p" || name == "s" || name == "speak" || name == "paragraph" || name == "sentence";
}

bool IsSilent(std::string_view name) { return name == "metadata" || name == "desc"; }

bool IsKnown(std::string_view name) {
  static constexpr std::string_view kNames[] = {"speak", "p",       "s",        "break",     "sub",     "lang",
                                                "voice", "mark",    "say-as",   "prosody",   "desc",    "emphasis",
                                                "meta",  "lexicon", "metadata", "paragraph", "sentence"};
  return std::ranges::find(kNames, name) != std::end(kNames);
}

}  // namespace

SsmlReader::SsmlReader(std::string language, ItemBuilder* items)
    : language_(std::move(language)), items_(items), scanner_(this), parser_(nullptr, g_markup_parse_context_free) {
  static constexpr GMarkupParser kParser = {
      .start_element =
          [](GMarkupParseContext* /*context*/, const gchar* element, const gchar** names, const gchar** values,
             gpointer data, GError** error) {
            auto* const reader = static_cast<SsmlReader*>(data);
            if (!std::exchange(reader->in_root_, true)) return;
            if (reader->elements_.size() >= kDeepest) {
              g_set_error(error, G_MARKUP_ERROR, G_MARKUP_ERROR_INVALID_CONTENT,
                          "elements are nested deeper than %" G_GSIZE_FORMAT, kDeepest);
              return;
            }
            Attributes attributes;
            for (; *names != nullptr; ++names, ++values) attributes.emplace_back(*names, *values);
            reader->Open(element, attributes);
          },
      .end_element = [](GMarkupParseContext* /*context*/, const gchar* element, gpointer data,
                        GError** /*error*/) { static_cast<SsmlReader*>(data)->Close(element); },
      .text = nullptr,
      .passthrough = nullptr,
      .error = nullptr,
  };
  EnsureMemory(kSmallCallBytes);
  parser_.reset(g_markup_parse_context_new(&kParser, static_cast<GMarkupParseFlags>(0), this, nullptr));
  g_markup_parse_context_parse(parser_.get(), kRoot.data(), static_cast<gssize>(kRoot.size()), nullptr);
}

SsmlReader::~SsmlReader() = default;

void SsmlReader::Push(const DocumentChar& character) { scanner_.Push(character); }

void SsmlReader::Finish(size_t length) {
  scanner_.Finish();
  tag_begin_ = tag_end_ = length;
  if (!broken_ && !elements_.empty()) OnMistake("the document ends within <" + elements_.back().name + ">");
  EndCollection(true);
  items_->EndBlock(SentenceGap::kParagraph, length);
}

void SsmlReader::OnMistake(const std::string& problem) {
  if (std::exchange(broken_, true)) return;
  scanner_.BeLenient();
  items_->Warn("SSML, line " + std::to_string(scanner_.line()) + ", character " + std::to_string(scanner_.column()) +
               ": " + problem + ". From there on tags are left out and all text is spoken.");
  EndCollection(true);
  silent_ = false;
}

void SsmlReader::OnTag(const std::u32string& tag, size_t begin, size_t end) {
  tag_begin_ = begin;
  tag_end_ = end;
  if (broken_) return SkipTag(tag);
  const std::string written = ToUtf8(tag);
  GError* error = nullptr;
  EnsureMemory(written.size() + kSmallCallBytes);
  const bool parsed =
      g_markup_parse_context_parse(parser_.get(), written.data(), static_cast<gssize>(written.size()), &error) != FALSE;
  if (parsed) return;
  const std::string problem = MessageOf(*error);
  g_clear_error(&error);
  OnMistake(problem);
}

// Ends a block at a tag of a broken document, so that words on both sides of the block stay apart.
void SsmlReader::SkipTag(std::u32string_view tag) {
  tag.remove_prefix(tag.starts_with(U"</") ? 2 : 1);
  const std::string name = ToUtf8(tag.substr(0, tag.find_first_of(U" \t\r\n/>")));
  if (EndsBlock(name) || name == "break") items_->EndBlock(SentenceGap::kSentence, tag_begin_);
}

// --- text

void SsmlReader::OnText(char32_t code, size_t begin, size_t end) {
  if (silent_) return;
  if (collect_ == Collect::kNone) return Say(code, begin, end);
  if (collected_.size() < kLongestContent) {
    collected_.emplace_back(DocumentChar{code, begin}, end);
    return;
  }
  Warn("the content of sub or say-as has more than " + std::to_string(kLongestContent) +
       " characters and is spoken as it is");
  EndCollection(true);
  Say(code, begin, end);
}

// Says a character. White space has no meaning beyond one space.
void SsmlReader::Say(char32_t code, size_t begin, size_t end) {
  if (code == kReplacementCharacter || IsWhiteSpace(code)) return items_->Space(begin);
  if (end == begin + 1) return items_->Copy(code, begin);
  std::string character;
  AppendUtf8(code, &character);
  items_->Replace(character, begin, end);
}

void SsmlReader::EndCollection(bool as_text) {
  const Collect collect = std::exchange(collect_, Collect::kNone);
  const auto content = std::exchange(collected_, {});
  if (collect == Collect::kNone) return;
  if (as_text) {
    for (const auto& [character, end] : content) Say(character.code, character.position, end);
  } else if (collect == Collect::kSub) {
    items_->Replace(alias_, collect_begin_, tag_begin_);
  } else {
    std::vector<DocumentChar> characters;
    characters.reserve(content.size());
    for (const auto& [character, end] : content) characters.push_back(character);
    const std::string& language = items_->settings().language.empty() ? language_ : items_->settings().language;
    SpeakAs({kind_, format_, language}, characters, items_);
  }
}

// --- elements

void SsmlReader::Open(const std::string& name, const Attributes& attributes) {
  elements_.push_back({name, items_->settings(), silent_});
  if (collect_ != Collect::kNone) ++collect_depth_;
  if (silent_) return;
  if (EndsBlock(name)) {
    items_->EndBlock(GapOf(name), tag_begin_);
  } else if (name == "break") {
    ReadBreak(attributes);
  } else if (name == "mark") {
    ReadMark(attributes);
  } else if (name == "voice") {
    OpenVoice(attributes);
  } else if (name == "prosody") {
    OpenProsody(attributes);
  } else if (name == "emphasis") {
    Warn("<emphasis> has no effect, its content is spoken");
  } else if (name == "sub" || name == "say-as") {
    OpenSayAs(attributes);
  } else if (name == "lexicon") {
    Warn("<lexicon> is not read; set the property \"lexicon\" or --lexicon");
  } else if (IsSilent(name)) {
    silent_ = true;
  } else if (!IsKnown(name)) {
    Warn("<" + std::string(Utf8Head(name, kLongestTold)) + "> is not supported, its content is spoken");
  }
  if (const std::string* const tag = Find(attributes, "xml:lang")) SwitchLanguage(*tag);
}

void SsmlReader::Close(const std::string& name) {
  if (elements_.empty()) return;
  const Element element = std::move(elements_.back());
  elements_.pop_back();
  if (collect_ != Collect::kNone) {
    if (collect_depth_ > 0) {
      --collect_depth_;
    } else {
      EndCollection(false);
    }
  }
  silent_ = element.silent;
  items_->SetSettings(element.settings);
  if (silent_) return;
  if (EndsBlock(name)) items_->EndBlock(GapOf(name), tag_end_);
}

void SsmlReader::SwitchLanguage(const std::string& tag) {
  if (!IsLanguageTag(tag)) return Warn("xml:lang " + InQuotes(tag) + " is no tag such as \"en\" or \"de-AT\"");
  MarkupSettings settings = items_->settings();
  settings.language = tag;
  items_->SetSettings(settings);
}

void SsmlReader::OpenVoice(const Attributes& attributes) {
  MarkupSettings settings = items_->settings();
  const std::string* const names = Find(attributes, "name");
  if (names != nullptr) {
    settings.voices.clear();
    for (std::string_view rest = Trim(*names); !rest.empty(); rest = TrimLeft(rest)) {
      const std::string_view name = rest.substr(0, rest.find_first_of(" \t\r\n"));
      settings.voices.emplace_back(name);
      rest.remove_prefix(name.size());
    }
  }
  for (const auto& [name, value] : attributes) {
    if (name != "name" && name != "xml:lang")
      Warn("voice " + InQuotes(name) + " is not supported; a voice has a \"name\"");
  }
  items_->SetSettings(settings);
}

void SsmlReader::OpenProsody(const Attributes& attributes) {
  MarkupSettings settings = items_->settings();
  for (const auto& [name, value] : attributes) {
    if (name == "volume") {
      if (const std::optional<double> gain = ParseVolume(value, settings.gain)) {
        settings.gain = *gain;
      } else {
        Warn("prosody volume " + InQuotes(value) + " is ignored; write \"soft\", \"+6dB\" or \"50\"");
      }
    } else if (name == "rate") {
      if (const std::optional<double> rate = ParseRate(value, settings.rate)) {
        settings.rate = *rate;
      } else {
        Warn("prosody rate " + InQuotes(value) + " is ignored; write \"slow\", \"80%\" or \"1.2\"");
      }
    } else if (name != "xml:lang") {
      Warn("prosody " + InQuotes(name) + " is not supported, the speech keeps its own");
    }
  }
  items_->SetSettings(settings);
}

void SsmlReader::OpenSayAs(const Attributes& attributes) {
  if (collect_ != Collect::kNone) return;  // the outer one decides
  const bool sub = elements_.back().name == "sub";
  const std::string* const alias = Find(attributes, sub ? "alias" : "interpret-as");
  if (alias == nullptr) {
    return Warn(sub ? "<sub> without \"alias\": its content is spoken"
                    : "<say-as> without \"interpret-as\" has no effect");
  }
  if (sub && CountUtf8(*alias) > kLongestContent) {
    return Warn("the alias of <sub> has more than " + std::to_string(kLongestContent) +
                " characters: its content is spoken");
  }
  if (!sub && !KnowsSayAs(*alias)) {
    return Warn("say-as " + InQuotes(*alias) + " is not supported, its content is spoken as it is");
  }
  const std::string* const format = Find(attributes, "format");
  collect_ = sub ? Collect::kSub : Collect::kSayAs;
  collect_depth_ = 0;
  collect_begin_ = tag_end_;
  alias_ = sub ? *alias : "";
  kind_ = sub ? "" : *alias;
  format_ = format != nullptr ? *format : "";
}

void SsmlReader::ReadBreak(const Attributes& attributes) {
  const std::string* const time = Find(attributes, "time");
  const std::string* const strength = Find(attributes, "strength");
  std::optional<std::chrono::nanoseconds> pause = ParseBreakStrength("medium");
  if (time != nullptr) {
    pause = ParseBreakTime(*time);
    if (!pause) return Warn("break time " + InQuotes(*time) + " is ignored; write \"500ms\" or \"1.5s\"");
  } else if (strength != nullptr) {
    pause = ParseBreakStrength(*strength);
    if (!pause)
      return Warn("break strength " + InQuotes(*strength) + " is ignored; write \"weak\", \"medium\" or \"strong\"");
  }
  if (*pause > kLongestBreak) {
    Warn("a break lasts 10 minutes at most");
    pause = kLongestBreak;
  }
  if (collect_ == Collect::kNone && pause->count() > 0) items_->Break(*pause, tag_begin_);
}

void SsmlReader::ReadMark(const Attributes& attributes) {
  const std::string* const name = Find(attributes, "name");
  if (name == nullptr || CountUtf8(*name) > kLongestName) {
    return Warn("<mark> needs a \"name\" of at most " + std::to_string(kLongestName) + " characters");
  }
  items_->Mark(*name, tag_begin_);
}

}  // namespace qtts
