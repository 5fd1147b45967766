// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TOOLS_OPTIONS_H_
#define QTTS_TOOLS_OPTIONS_H_

#include <string>
#include <vector>

#include "qtts/model_info.h"
#include "qtts/request.h"
#include "qtts/status.h"

namespace qtts {

// The command line of qtts-tool, parsed. Strings that were not given are empty, numbers negative.
struct ToolOptions {
  std::string command;
  std::vector<std::string> arguments;  // what follows the command, options removed
  bool json = false;
  std::string pattern;
  std::string text;
  std::string speaker;
  std::string language;
  std::string instruct;
  std::string layout;
  bool greedy = false;
  int64_t seed = 0;
  double temperature = -1;
  int top_k = -1;
  double top_p = -1;
  double repetition_penalty = -1;
  int64_t max_frames = -1;
  int threads = 0;
  std::string voice;
  std::string audio;
  std::string reference_text;
  bool pad_reference = false;
  std::string output;
  std::string format;
};

// Parses argv; `help` receives the manual. A wrong option is kInvalidArgument.
Result<ToolOptions> ParseOptions(int argc, char** argv, std::string* help);

// The utterance the options describe, with `defaults` where they say nothing.
Result<Request> MakeRequest(const ToolOptions& options, const GenerationSettings& defaults);

}  // namespace qtts

#endif  // QTTS_TOOLS_OPTIONS_H_
