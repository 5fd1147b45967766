// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gstqttsmarkup.h"

#include <memory>
#include <optional>
#include <utility>

#include "gstqttsdocument.h"

namespace gstqtts {

qtts::MarkupOptions MarkupOptionsOf(const Settings& settings, qtts::Markup markup) {
  qtts::MarkupOptions options;
  options.markup = markup;
  options.language = settings.language;
  // An utterance with wrong rules is refused with all its settings.
  const auto rules = qtts::ParseMarkdownRules(settings.markup_rules);
  if (rules.ok()) options.rules = *rules;
  return options;
}

Utterance MakeUtterance(qtts::MarkupPart part, const Settings& settings) {
  Utterance utterance;
  utterance.settings = settings;
  utterance.text_offset = part.begin;
  switch (part.kind) {
    case qtts::MarkupPart::Kind::kText:
      break;
    case qtts::MarkupPart::Kind::kBreak:
      utterance.silence = static_cast<uint64_t>(part.duration.count());
      return utterance;
    case qtts::MarkupPart::Kind::kMark:
      utterance.mark = std::move(part.name);
      return utterance;
  }
  utterance.text = std::move(part.text);
  utterance.more_text = !part.ends;
  utterance.before = part.before;
  utterance.after_break = part.after_break;
  utterance.written = std::move(part.source);
  utterance.source_map = std::move(part.map);
  utterance.marks = std::move(part.marks);
  utterance.markup = std::move(part.settings);
  return utterance;
}

std::vector<Utterance> ReadDocument(Utterance text, std::vector<std::string>* warnings) {
  const auto markup = qtts::ResolveMarkup(text.settings.markup, text.text, true).value_or(qtts::Markup::kNone);
  if (markup == qtts::Markup::kNone) return {std::move(text)};
  qtts::Segmenter::Options sentences;
  sentences.language = LanguageTag(text.settings);
  qtts::MarkupSplitter splitter(MarkupOptionsOf(text.settings, markup), qtts::MarkupUnits::kBlocks, sentences);
  splitter.ReadWhole(text.text);
  for (std::string& warning : splitter.TakeWarnings()) warnings->push_back(std::move(warning));
  std::vector<Utterance> parts;
  bool speaks = false;
  while (auto part = splitter.Next()) {
    parts.push_back(MakeUtterance(*std::move(part), text.settings));
    speaks = speaks || !parts.back().text.empty();
  }
  if (!speaks) {  // a blank utterance ends it for the reason nothing-to-say
    Utterance nothing = MakeUtterance({}, text.settings);
    nothing.text = std::string(1, ' ');
    nothing.settings.speak_anything = false;
    parts.push_back(std::move(nothing));
  }
  const auto document = std::make_shared<Document>(text.text, parts.size());
  for (Utterance& part : parts) part.document = document;
  return parts;
}

void ApplyMarkup(const qtts::ModelInfo& model, Utterance* utterance, std::vector<std::string>* warnings) {
  const qtts::MarkupSettings& markup = utterance->markup;
  Settings& settings = utterance->settings;
  if (!markup.language.empty()) {
    const qtts::Status status = qtts::CheckLanguage(model.languages, markup.language);
    if (status.ok()) {
      settings.language = markup.language;
    } else {
      warnings->push_back("The document asks for the language \"" + markup.language +
                          "\", which the model does not have; its text is spoken in the language before.");
    }
  }
  if (markup.voices.empty()) return;
  for (const std::string& voice : markup.voices) {
    Settings other = settings;
    other.speaker = voice;
    if (!CheckSettings(other, model).ok()) continue;
    settings.speaker = voice;
    return;
  }
  warnings->push_back("The document asks for the voice \"" + markup.voices[0] +
                      "\", which is none of \"speakers\"; its text is spoken with the voice before.");
}

}  // namespace gstqtts
