// SPDX-License-Identifier: LGPL-2.1-or-later
#include "text.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "print_json.h"
#include "qtts/bundled_voice.h"
#include "qtts/language.h"
#include "qtts/markup.h"
#include "qtts/segmenter.h"
#include "qtts/utf8.h"

namespace qtts {
namespace {

Status NotAllowedText(const char* option, const std::string& value, const char* allowed) {
  return Status::InvalidArgument("--" + std::string(option) + " \"" + value + "\": must be " + allowed);
}

Segmenter::Options SentenceOptions(const std::string& language) {
  Segmenter::Options options;
  options.language = ResolveLanguage(language).tag;
  return options;
}

// An utterance, or what stands between two.
struct Step {
  MarkupPart part;
  TextMap map;  // from its text to the document

  // Returns the characters of the whole text that those of the utterance's text stand for.
  std::pair<size_t, size_t> PlaceOf(size_t begin, size_t end) const {
    const auto [first, last] = map.SourceOf(begin, end);
    return {part.begin + first, part.begin + last};
  }
};

std::vector<Step> PlainSteps(const std::string& text, const std::string& language) {
  Segmenter segmenter;
  segmenter.SetOptions(SentenceOptions(language));
  segmenter.Append(text);
  std::vector<Step> steps;
  while (auto sentence = segmenter.NextAtEnd()) {
    Step step;
    step.part.begin = sentence->offset;
    const size_t length = CountUtf8(sentence->text);
    size_t end = 0;  // of the source so far
    for (size_t i = 0; i < length; ++i) {
      const size_t source = sentence->SourcePosition(i);
      if (source > end) step.map.Append({{i, i, end, source, false}});
      step.map.Append({{i, i + 1, source, source + 1, true}});
      end = source + 1;
    }
    step.part.text = std::move(sentence->text);
    step.part.source = std::move(sentence->source);
    steps.push_back(std::move(step));
  }
  return steps;
}

std::vector<Step> MarkupSteps(const std::string& text, const MarkupOptions& options) {
  MarkupSplitter splitter(options, MarkupUnits::kSentences, SentenceOptions(options.language));
  splitter.ReadWhole(text);
  for (const std::string& warning : splitter.TakeWarnings()) std::cerr << "qtts-tool: warning: " << warning << '\n';
  std::vector<Step> steps;
  while (auto part = splitter.Next()) {
    Step step;
    step.map.Append(part->map);
    step.part = *std::move(part);
    steps.push_back(std::move(step));
  }
  return steps;
}

std::string Part(std::string_view text, size_t begin, size_t end) {
  const std::string_view head = Utf8Head(text, end);
  return std::string(head.substr(Utf8Head(text, begin).size()));
}

// Returns the preparer's options for an utterance.
TextPreparerOptions OptionsOf(const MarkupPart& part, TextPreparerOptions options) {
  if (!part.settings.language.empty()) options.language = part.settings.language;
  return options;
}

// Adds a piece of the preparation's map, with the source in the whole text: several where the document has tags within
// it.
void AddPieces(const Step& step, const TextMapPiece& piece, Json* map) {
  const auto add = [map](size_t spoken, size_t spoken_end, size_t source, size_t source_end, bool copied) {
    map->push_back({{"spoken", {spoken, spoken_end}}, {"source", {source, source_end}}, {"copied", copied}});
  };
  if (!piece.copied) {
    const auto [begin, end] = step.PlaceOf(piece.source_begin, piece.source_end);
    return add(piece.spoken_begin, piece.spoken_end, begin, end, false);
  }
  for (const TextMapPiece& part : step.map.pieces()) {
    const size_t begin = std::max(part.spoken_begin, piece.source_begin);
    const size_t end = std::min(part.spoken_end, piece.source_end);
    if (begin >= end) continue;
    const size_t spoken = piece.spoken_begin + (begin - piece.source_begin);
    const auto [source, source_end] = step.PlaceOf(begin, end);
    add(spoken, spoken + (end - begin), source, source_end, part.copied);
  }
}

double Milliseconds(std::chrono::nanoseconds duration) {
  return std::chrono::duration<double, std::milli>(duration).count();
}

Json ToJson(const Step& step, const TextPreparerOptions& all) {
  const MarkupPart& part = step.part;
  if (part.kind == MarkupPart::Kind::kBreak) return {{"break_ms", Milliseconds(part.duration)}, {"begin", part.begin}};
  if (part.kind == MarkupPart::Kind::kMark) return {{"mark", part.name}, {"begin", part.begin}};
  const TextPreparerOptions options = OptionsOf(part, all);
  const PreparedText prepared = PrepareText(part.text, options);
  Json steps = Json::object();
  for (const auto& [name, text] : ExplainPreparation(part.text, options)) steps[name] = text;
  Json map = Json::array();
  for (const TextMapPiece& piece : prepared.map) AddPieces(step, piece, &map);
  Json json = {
      {"written", part.text}, {"begin", part.begin}, {"steps", steps}, {"spoken", prepared.spoken}, {"map", map}};
  if (part.source != part.text) json["source"] = part.source;
  if (!part.settings.language.empty()) json["language"] = part.settings.language;
  if (!part.settings.voices.empty()) json["voices"] = part.settings.voices;
  if (part.settings.gain != 1) json["gain"] = part.settings.gain;
  for (const MarkupMark& mark : part.marks) json["marks"].push_back({{"name", mark.name}, {"at", mark.text}});
  return json;
}

void PrintSettings(const MarkupPart& part) {
  if (!part.settings.language.empty()) std::printf("  %-11s %s\n", "language", part.settings.language.c_str());
  std::string voices;
  for (const std::string& voice : part.settings.voices) voices += (voices.empty() ? "" : ", ") + voice;
  if (!voices.empty()) std::printf("  %-11s %s\n", "voice", voices.c_str());
  if (part.settings.gain != 1) std::printf("  %-11s %.3g\n", "gain", part.settings.gain);
  for (const MarkupMark& mark : part.marks) {
    std::printf("  %-11s %s, before character %zu\n", "mark", mark.name.c_str(), mark.text);
  }
}

void Print(const Step& step, const TextPreparerOptions& all, size_t* number) {
  const MarkupPart& part = step.part;
  if (part.kind == MarkupPart::Kind::kBreak) {
    std::printf("break of %g ms, at character %zu\n", Milliseconds(part.duration), part.begin);
    return;
  }
  if (part.kind == MarkupPart::Kind::kMark) {
    std::printf("mark %s, at character %zu\n", part.name.c_str(), part.begin);
    return;
  }
  const TextPreparerOptions options = OptionsOf(part, all);
  std::printf("utterance %zu, from character %zu\n", ++*number, part.begin);
  PrintSettings(part);
  if (part.source != part.text) std::printf("  %-11s %s\n", "document", part.source.c_str());
  std::printf("  %-11s %s\n", "written", part.text.c_str());
  std::string before = part.text;
  for (const auto& [name, text] : ExplainPreparation(part.text, options)) {
    std::printf("  %-11s %s\n", name.c_str(), text == before ? "as before" : text.c_str());
    before = text;
  }
  const PreparedText prepared = PrepareText(part.text, options);
  std::printf("  %-11s %s\n", "spoken", prepared.spoken.c_str());
  for (const TextMapPiece& piece : prepared.map) {
    if (piece.copied) continue;
    const auto [begin, end] = step.PlaceOf(piece.source_begin, piece.source_end);
    std::printf("  %-11s %zu-%zu \"%s\" as \"%s\"\n", "map", begin, end,
                Part(part.text, piece.source_begin, piece.source_end).c_str(),
                Part(prepared.spoken, piece.spoken_begin, piece.spoken_end).c_str());
  }
}

}  // namespace

Result<TextPreparerOptions> MakePreparerOptions(const ToolOptions& options, const ModelInfo& model) {
  TextPreparerOptions preparer;
  constexpr Normalize kAll[] = {Normalize::kModel, Normalize::kNone, Normalize::kSpoken};
  Normalize normalize = Normalize::kModel;
  if (!options.normalize.empty()) {
    const auto* const found = std::ranges::find(kAll, options.normalize, NormalizeName);
    if (found == std::end(kAll)) return NotAllowedText("normalize", options.normalize, "model, none or spoken");
    normalize = *found;
  }
  if (options.emoji == "names") {
    preparer.emoji = Emoji::kNames;
  } else if (!options.emoji.empty() && options.emoji != "silent") {
    return NotAllowedText("emoji", options.emoji, "silent or names");
  }
  QTTS_ASSIGN_OR_RETURN(preparer.lexicon, Lexicon::Load(options.lexicon));
  preparer.steps = ChooseSteps(model.description.text, normalize);
  preparer.language = PreparationLanguage(options.language, model.languages);
  return preparer;
}

Result<MarkupOptions> MakeMarkupOptions(const ToolOptions& options, const ModelInfo& model) {
  constexpr Markup kAll[] = {Markup::kAuto, Markup::kNone, Markup::kSsml, Markup::kMarkdown, Markup::kSubtitle};
  MarkupOptions markup;
  if (!options.markup.empty()) {
    const auto* const found = std::ranges::find(kAll, options.markup, MarkupName);
    if (found == std::end(kAll)) {
      return NotAllowedText("markup", options.markup, "auto, none, ssml, markdown or subtitle");
    }
    markup.markup = *found;
  }
  QTTS_ASSIGN_OR_RETURN(markup.rules, ParseMarkdownRules(options.markup_rules));
  markup.language = PreparationLanguage(options.language, model.languages);
  return markup;
}

Status PrintText(const ToolOptions& options) {
  std::string text = options.arguments.back();
  if (text == "-") text = {std::istreambuf_iterator<char>(std::cin), {}};
  text = RepairUtf8(text);
  const std::string folder = options.arguments.size() > 1 ? options.arguments[0] : BundledVoicePath();
  const auto opened = Checkpoint::Open(folder);
  if (!opened.ok()) return ExplainMissingVoice(opened.status(), folder);
  const auto& checkpoint = *opened;
  QTTS_ASSIGN_OR_RETURN(const TextPreparerOptions preparer, MakePreparerOptions(options, checkpoint->Info()));
  QTTS_ASSIGN_OR_RETURN(MarkupOptions markup, MakeMarkupOptions(options, checkpoint->Info()));
  markup.markup = ResolveMarkup(markup.markup, text, true).value_or(Markup::kNone);
  const std::vector<Step> steps =
      markup.markup == Markup::kNone ? PlainSteps(text, preparer.language) : MarkupSteps(text, markup);
  if (options.json) {
    Json all = Json::array();
    for (const Step& step : steps) all.push_back(ToJson(step, preparer));
    PrintJson({{"utterances", all}});
    return Status::Ok();
  }
  size_t number = 0;
  for (const Step& step : steps) Print(step, preparer, &number);
  return Status::Ok();
}

}  // namespace qtts
