// SPDX-License-Identifier: LGPL-2.1-or-later
#include "usage.h"

#include <charconv>
#include <cstdint>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "qtts/tempo.h"
#include "text.h"
#include "words.h"

namespace qtts {
namespace {

constexpr int64_t kMaxTakes = 64;  // of a designed voice

Status Wrong(const ToolOptions& options, const std::string& problem) {
  return Status::InvalidArgument(options.command + ": " + problem);
}

// Returns the shortest text that is read as this number.
std::string NumberText(double number) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, number).ptr};
}

Status CheckSpeak(const ToolOptions& options) {
  const std::vector<std::string>& words = options.arguments;
  if (options.output.empty()) {
    return Wrong(options, "name the file to write with --output: .wav, .raw, or - for standard output");
  }
  if (options.json && options.output == "-") {
    return Wrong(options, "--json and --output - both write to standard output; leave one out");
  }
  if (!options.text.empty() && words.size() > 1) {
    return Wrong(options, "\"" + words[1] + "\" and --text are two texts; leave one out");
  }
  std::error_code error;
  const bool has_text = words.size() > 1 || (words.size() == 1 && !std::filesystem::is_directory(words[0], error));
  if (options.text.empty() && !has_text) {
    return Wrong(options,
                 "name what to speak, as in 'speak [DIR] \"Hello.\" --output out.wav'; the text - is standard input");
  }
  const double rate = options.rate.value_or(1);
  if (rate < Tempo::kMinRate || rate > Tempo::kMaxRate) {
    return NotAllowed("rate", NumberText(rate), NumberText(Tempo::kMinRate) + " to " + NumberText(Tempo::kMaxRate));
  }
  return options.words.empty() ? Status::Ok() : CheckWordsFile(options.words);
}

Status CheckAlign(const ToolOptions& options) {
  if (!options.codes.empty() && options.text.empty()) {
    return Wrong(options, "--codes needs the utterance's text: name it with --text");
  }
  if (options.codes.empty() && !options.words.empty()) {
    return Wrong(options, "--words needs an utterance: name its --text and its --codes");
  }
  if (!options.codes.empty() && options.write) {
    return Wrong(options, "--write finds the model's head, which --codes does not; leave one out");
  }
  return options.words.empty() ? Status::Ok() : CheckWordsFile(options.words);
}

Status CheckInspect(const ToolOptions& options) {
  QTTS_ASSIGN_OR_RETURN(const EngineOptions engine, MakeEngineOptions(options, options.arguments[0]));
  if (IsGpu(engine.device)) return Status::Ok();
  if (!options.device.empty()) {
    return Status::InvalidArgument("inspect --device \"" + options.device + "\": must be a GPU, such as cuda");
  }
  if (!options.precision.empty() || options.voices) {
    return Wrong(options, "--precision and --voices are about --device cuda");
  }
  return Status::Ok();
}

// Checks a command that writes a voice.
Status CheckVoiceOutput(const ToolOptions& options) {
  if (options.command == "voice make" && options.audio.empty())
    return Wrong(options, "name the recording with --audio");
  if (options.command == "voice mix") {
    return options.output.empty() ? Wrong(options, "name the file to write with --output") : Status::Ok();
  }
  if (options.output.empty() && options.add_to.empty()) {
    return Wrong(options,
                 "name the file to write with --output, or a voice file that gets one more take with --add-to");
  }
  if (!options.add_to.empty() && options.style.empty()) {
    return Wrong(options, "--add-to needs --style, the manner of the take, such as calm");
  }
  const int64_t takes = options.takes.value_or(1);
  if (takes < 1 || takes > kMaxTakes) {
    return NotAllowed("takes", std::to_string(takes), "1 to " + std::to_string(kMaxTakes));
  }
  if (takes > 1 && !options.add_to.empty()) {
    return Wrong(options, "--add-to adds one take; choose among several with --output first");
  }
  return Status::Ok();
}

Status CheckCommand(const ToolOptions& options) {
  const std::string& command = options.command;
  if (command == "speak") return CheckSpeak(options);
  if (command == "align") return CheckAlign(options);
  if (command == "inspect") return CheckInspect(options);
  if (command.starts_with("voice ") && command != "voice show") return CheckVoiceOutput(options);
  if (command == "decode" && options.output.empty()) return Wrong(options, "name the WAV file to write with --output");
  if ((command == "prompt" || command == "codes") && options.text.empty()) {
    return Wrong(options, "name what to speak with --text");
  }
  return Status::Ok();
}

// Checks values by what is made of them. Options that were not given have a value that is allowed.
Status CheckValues(ToolOptions options) {
  // Files are read later, and with the voice the style that it has.
  if (!options.voice.empty() || options.command.starts_with("voice ")) options.style.clear();
  options.voice.clear();
  options.lexicon.clear();
  QTTS_RETURN_IF_ERROR(PatternOf(options).status());
  QTTS_RETURN_IF_ERROR(SampleFormatOf(options).status());
  QTTS_RETURN_IF_ERROR(MakeEngineOptions(options, "").status());
  QTTS_RETURN_IF_ERROR(MakeRequest(options, {}).status());
  QTTS_RETURN_IF_ERROR(MakePreparerOptions(options, {}).status());
  return MakeMarkupOptions(options, {}).status();
}

}  // namespace

Status CheckUsage(const ToolOptions& options) {
  QTTS_RETURN_IF_ERROR(CheckCommand(options));
  return CheckValues(options);
}

}  // namespace qtts
