// SPDX-License-Identifier: LGPL-2.1-or-later
#include "speech_plan.h"

#include <algorithm>
#include <utility>

#include "qtts/language.h"
#include "qtts/text_check.h"
#include "qtts/text_preparer.h"
#include "text.h"

namespace qtts {
namespace {

using std::chrono::milliseconds;

// Returns the element's defaults.
milliseconds PauseAfter(SentenceGap gap) {
  switch (gap) {
    case SentenceGap::kSentence:
      break;
    case SentenceGap::kParagraph:
      return milliseconds(300);
    case SentenceGap::kHeading:
      return milliseconds(500);
  }
  return milliseconds(0);
}

// Switches the voice and language of a request to what the document asks for, as far as the model has it.
void Switch(const MarkupSettings& to, const ModelInfo& model, Request* request, std::vector<std::string>* warnings) {
  const auto warn = [&](const std::string& warning) {
    if (std::ranges::find(*warnings, warning) == warnings->end()) warnings->push_back(warning);
  };
  if (!to.language.empty()) {
    if (CheckLanguage(model.languages, to.language).ok()) {
      request->language = to.language;
    } else {
      warn("the model does not have the language \"" + to.language + "\"; its text is spoken in the language before");
    }
  }
  if (to.voices.empty()) return;
  const VoiceKind kind = VoiceKindOf(request->voice.get());
  const auto voice = std::ranges::find_if(to.voices, [&](const std::string& name) {
    return CheckVoiceChoice(model.type, model.speakers, name, kind).ok();
  });
  if (voice != to.voices.end()) {
    request->speaker = *voice;
  } else {
    warn("the model does not have the voice \"" + to.voices[0] + "\"; its text is spoken with the voice before");
  }
}

SpeechStep MakeStep(MarkupPart part, const Request& request, TextPreparerOptions preparer, const ModelInfo& model,
                    std::vector<std::string>* warnings) {
  SpeechStep step;
  step.kind = part.kind;
  step.silence = part.duration;
  if (part.kind == MarkupPart::Kind::kMark) step.marks = {{0, part.begin, std::move(part.name)}};
  if (part.kind != MarkupPart::Kind::kText) return step;
  step.request = request;
  step.gain = part.settings.gain;
  step.rate = part.settings.rate;
  if (!part.after_break) step.silence = PauseAfter(part.before);
  Switch(part.settings, model, &step.request, warnings);
  if (!part.settings.language.empty()) preparer.language = part.settings.language;
  PreparedText prepared = PrepareText(part.text, preparer);
  TextMap map;
  map.Append(prepared.map);
  step.request.text = std::move(prepared.spoken);
  for (MarkupMark& mark : part.marks) {
    mark.text = map.SpokenOf(mark.text);
    step.marks.push_back(std::move(mark));
  }
  return step;
}

}  // namespace

Result<std::vector<SpeechStep>> PlanSpeech(const std::string& text, const Request& request, const ToolOptions& options,
                                           const ModelInfo& model, std::vector<std::string>* warnings) {
  QTTS_ASSIGN_OR_RETURN(const TextPreparerOptions preparer, MakePreparerOptions(options, model));
  QTTS_ASSIGN_OR_RETURN(MarkupOptions markup, MakeMarkupOptions(options, model));
  markup.markup = ResolveMarkup(markup.markup, text, true).value_or(Markup::kNone);
  std::vector<MarkupPart> parts;
  if (markup.markup == Markup::kNone) {
    MarkupPart whole;
    whole.text = text;
    parts.push_back(std::move(whole));
  } else {
    Segmenter::Options sentences;
    sentences.language = ResolveLanguage(markup.language).tag;
    MarkupSplitter splitter(markup, MarkupUnits::kBlocks, sentences);
    splitter.ReadWhole(text);
    *warnings = splitter.TakeWarnings();
    while (auto part = splitter.Next()) parts.push_back(*std::move(part));
  }
  std::vector<SpeechStep> steps;
  bool speaks = false;
  for (MarkupPart& part : parts) {
    SpeechStep step = MakeStep(std::move(part), request, preparer, model, warnings);
    const bool utterance = step.kind == MarkupPart::Kind::kText;
    if (utterance && !IsSayable(step.request.text)) continue;
    if (steps.empty() && utterance) step.silence = {};
    speaks = speaks || utterance;
    steps.push_back(std::move(step));
  }
  if (speaks) return steps;
  return Status::InvalidArgument("speak: nothing of the text is spoken once it is prepared for this model; " +
                                 std::string("see 'qtts-tool text', or use --normalize none"));
}

}  // namespace qtts
