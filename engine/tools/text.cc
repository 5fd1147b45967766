// SPDX-License-Identifier: LGPL-2.1-or-later
#include "text.h"

#include <algorithm>
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
#include "qtts/segmenter.h"
#include "qtts/utf8.h"

namespace qtts {
namespace {

Status NotAllowedText(const char* option, const std::string& value, const char* allowed) {
  return Status::InvalidArgument("--" + std::string(option) + " \"" + value + "\": must be " + allowed);
}

std::vector<Sentence> SentencesOf(const std::string& text, const std::string& language) {
  Segmenter segmenter;
  Segmenter::Options options;
  options.language = ResolveLanguage(language).tag;
  segmenter.SetOptions(options);
  segmenter.Append(text);
  std::vector<Sentence> sentences;
  while (auto sentence = segmenter.NextAtEnd()) sentences.push_back(*std::move(sentence));
  return sentences;
}

// Where a character of the sentence stands in the whole text.
size_t PlaceOf(const Sentence& sentence, size_t position) {
  return sentence.offset + sentence.SourcePosition(position);
}

std::string Part(std::string_view text, size_t begin, size_t end) {
  const std::string_view head = Utf8Head(text, end);
  return std::string(head.substr(Utf8Head(text, begin).size()));
}

Json ToJson(const Sentence& utterance, const TextPreparerOptions& options) {
  const PreparedText prepared = PrepareText(utterance.text, options);
  Json steps = Json::object();
  for (const auto& [name, text] : ExplainPreparation(utterance.text, options)) steps[name] = text;
  Json map = Json::array();
  for (const TextMapPiece& piece : prepared.map) {
    map.push_back({{"spoken", {piece.spoken_begin, piece.spoken_end}},
                   {"source", {PlaceOf(utterance, piece.source_begin), PlaceOf(utterance, piece.source_end)}},
                   {"copied", piece.copied}});
  }
  return {{"written", utterance.text},
          {"begin", utterance.offset},
          {"steps", steps},
          {"spoken", prepared.spoken},
          {"map", map}};
}

void Print(size_t number, const Sentence& utterance, const TextPreparerOptions& options) {
  std::printf("utterance %zu, from character %zu\n", number, utterance.offset);
  std::printf("  %-11s %s\n", "written", utterance.text.c_str());
  std::string before = utterance.text;
  for (const auto& [name, text] : ExplainPreparation(utterance.text, options)) {
    std::printf("  %-11s %s\n", name.c_str(), text == before ? "as before" : text.c_str());
    before = text;
  }
  const PreparedText prepared = PrepareText(utterance.text, options);
  std::printf("  %-11s %s\n", "spoken", prepared.spoken.c_str());
  for (const TextMapPiece& piece : prepared.map) {
    if (piece.copied) continue;
    std::printf("  %-11s %zu-%zu \"%s\" as \"%s\"\n", "map", PlaceOf(utterance, piece.source_begin),
                PlaceOf(utterance, piece.source_end),
                Part(utterance.text, piece.source_begin, piece.source_end).c_str(),
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

Status PrintText(const ToolOptions& options) {
  if (options.arguments.empty()) {
    return Status::InvalidArgument("text: name a text, as in 'text [DIR] \"It is $5.\"'; the text - is standard input");
  }
  std::string text = options.arguments.back();
  if (text == "-") text = {std::istreambuf_iterator<char>(std::cin), {}};
  text = RepairUtf8(text);
  QTTS_ASSIGN_OR_RETURN(const auto checkpoint,
                        Checkpoint::Open(options.arguments.size() > 1 ? options.arguments[0] : BundledVoicePath()));
  QTTS_ASSIGN_OR_RETURN(const TextPreparerOptions preparer, MakePreparerOptions(options, checkpoint->Info()));
  const std::vector<Sentence> utterances = SentencesOf(text, preparer.language);
  if (options.json) {
    Json all = Json::array();
    for (const Sentence& utterance : utterances) all.push_back(ToJson(utterance, preparer));
    PrintJson({{"utterances", all}});
    return Status::Ok();
  }
  for (size_t i = 0; i < utterances.size(); ++i) Print(i + 1, utterances[i], preparer);
  return Status::Ok();
}

}  // namespace qtts
