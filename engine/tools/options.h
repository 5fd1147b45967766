// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TOOLS_OPTIONS_H_
#define QTTS_TOOLS_OPTIONS_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "qtts/engine_options.h"
#include "qtts/model_info.h"
#include "qtts/request.h"
#include "qtts/sampling_numbers.h"
#include "qtts/status.h"
#include "qtts/tokenizer_pattern.h"
#include "wav.h"

namespace qtts {

// The parsed command line of qtts-tool. Strings of options that were not given are empty.
//
// Arguments are bytes, in every locale. Text arguments are UTF-8; as everywhere in the engine, invalid bytes become
// U+FFFD.
struct ToolOptions {
  std::string command;                 // as in the manual, for example "voice make"
  std::vector<std::string> arguments;  // operands of the command
  std::vector<std::string> warnings;   // for the user
  bool help = false;
  bool version = false;
  bool json = false;
  std::string pattern;
  std::string text;
  std::string speaker;
  std::string language;
  std::string instruct;
  std::string normalize;
  std::string lexicon;
  std::string emoji;
  std::string markup;
  std::string markup_rules;
  std::string layout;
  std::string device;
  std::string precision;
  std::string codec_precision;
  bool greedy = false;
  std::optional<int64_t> seed;
  std::array<std::optional<double>, kSamplingNumberCount> sampling;  // by index in kSamplingNumbers
  std::optional<int64_t> max_frames;
  std::optional<int64_t> part_length;
  std::optional<double> rate;
  std::optional<int64_t> threads;
  std::optional<int64_t> voices;
  std::string voice;
  std::string audio;
  std::string reference_text;
  bool pad_reference = false;
  bool prepare = false;
  std::string style;
  std::string add_to;
  std::string wav;
  std::optional<int64_t> takes;
  std::string against;
  std::string words;
  std::string codes;
  bool write = false;
  std::string output;
  std::string format;
  bool raw = false;
};

// Parses argv. kInvalidArgument for an unknown command, an option that the command does not take, an invalid number, or
// too many or too few operands. With --help only the command is checked, with --version nothing.
Result<ToolOptions> ParseOptions(int argc, char** argv);

// Returns the manual of a command; all commands if it is empty.
std::string Manual(const std::string& command);

// Returns the error for a value of --`option` that is not `allowed`, such as "1 or more".
Status NotAllowed(const char* option, const std::string& value, std::string_view allowed);

// Converts the named option. kInvalidArgument for an unknown value.
Result<TokenizerPattern> PatternOf(const ToolOptions& options);
Result<WavFormat> SampleFormatOf(const ToolOptions& options);
// Returns the engine options for the model folder `path`.
Result<EngineOptions> MakeEngineOptions(const ToolOptions& options, const std::string& path);
// Returns the request described by the options, with `defaults` for options not given.
Result<Request> MakeRequest(const ToolOptions& options, const GenerationSettings& defaults);

}  // namespace qtts

#endif  // QTTS_TOOLS_OPTIONS_H_
