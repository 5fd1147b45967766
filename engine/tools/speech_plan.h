// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TOOLS_SPEECH_PLAN_H_
#define QTTS_TOOLS_SPEECH_PLAN_H_

#include <chrono>
#include <string>
#include <vector>

#include "options.h"
#include "qtts/markup.h"
#include "qtts/model_info.h"
#include "qtts/request.h"
#include "qtts/status.h"

namespace qtts {

// An utterance of a text, a break or a mark.
struct SpeechStep {
  MarkupPart::Kind kind = MarkupPart::Kind::kText;
  Request request;                      // of an utterance
  double gain = 1;                      // of its samples
  double rate = 1;                      // of its speech
  std::chrono::nanoseconds silence{0};  // a break, or the pause before an utterance
  std::vector<MarkupMark> marks;        // the mark, or those of an utterance: MarkupMark::text is of request.text
};

// Returns the steps that speak `text`: one utterance, or the steps of a document by --markup. `request`: the settings
// of all. Warnings are added to `warnings`. kInvalidArgument if nothing is spoken.
Result<std::vector<SpeechStep>> PlanSpeech(const std::string& text, const Request& request, const ToolOptions& options,
                                           const ModelInfo& model, std::vector<std::string>* warnings);

}  // namespace qtts

#endif  // QTTS_TOOLS_SPEECH_PLAN_H_
