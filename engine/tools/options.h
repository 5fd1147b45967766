// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TOOLS_OPTIONS_H_
#define QTTS_TOOLS_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "qtts/engine_options.h"
#include "qtts/model_info.h"
#include "qtts/request.h"
#include "qtts/status.h"
#include "qtts/tokenizer_pattern.h"
#include "wav.h"

namespace qtts {

// The command line of qtts-tool, parsed. Strings that were not given are empty.
//
// Arguments are bytes, whatever the locale says. Those that are text are UTF-8; as everywhere in the engine, bytes that
// are not become U+FFFD.
struct ToolOptions {
  std::string command;                 // as in the manual, "voice make" for example
  std::vector<std::string> arguments;  // what follows the command, options removed
  std::vector<std::string> warnings;   // for the user
  bool help = false;
  bool version = false;
  bool json = false;
  std::string pattern;
  std::string text;
  std::string speaker;
  std::string language;
  std::string instruct;
  std::string layout;
  std::string device;
  std::string precision;
  bool greedy = false;
  std::optional<int64_t> seed;
  std::optional<double> temperature;
  std::optional<int64_t> top_k;
  std::optional<double> top_p;
  std::optional<double> repetition_penalty;
  std::optional<int64_t> max_frames;
  std::optional<int64_t> threads;
  std::string voice;
  std::string audio;
  std::string reference_text;
  bool pad_reference = false;
  std::string output;
  std::string format;
  bool raw = false;
};

// Parses argv. kInvalidArgument for an unknown command, an option that the command does not take, a value that is no
// number where one belongs, and arguments too many. After --help nothing else can be wrong but the command, after
// --version nothing.
Result<ToolOptions> ParseOptions(int argc, char** argv);

// The manual of a command; the whole manual for an empty one.
std::string Manual(const std::string& command);

// These read the named values. kInvalidArgument for a value that an option does not have.
Result<TokenizerPattern> PatternOf(const ToolOptions& options);
Result<WavFormat> SampleFormatOf(const ToolOptions& options);
// The engine that the options describe, for the model folder `path`.
Result<EngineOptions> MakeEngineOptions(const ToolOptions& options, const std::string& path);
// The utterance that the options describe, with `defaults` where they say nothing.
Result<Request> MakeRequest(const ToolOptions& options, const GenerationSettings& defaults);

}  // namespace qtts

#endif  // QTTS_TOOLS_OPTIONS_H_
