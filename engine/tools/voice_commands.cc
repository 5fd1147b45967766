// SPDX-License-Identifier: LGPL-2.1-or-later
#include "voice_commands.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "print_json.h"
#include "qtts/engine.h"
#include "qtts/silence_limiter.h"
#include "qtts/text_check.h"
#include "qtts/voice.h"
#include "voice/loudness.h"
#include "voice/reference_check.h"
#include "wav.h"

namespace qtts {
namespace {

// About six seconds: long enough to show a voice, short enough for the prompt of every utterance.
constexpr const char* kDesignText =
    "The morning was quiet and bright. We walked along the river, talked about old friends, and forgot the time.";
// Frames of silence that a take keeps at its end, 240 ms.
constexpr size_t kQuietFrames = 3;

void WarnUser(const std::string& warning) { std::cerr << "qtts-tool: warning: " << warning << '\n'; }

// An utterance of a designed voice.
struct DesignTake {
  ClonedVoice voice;
  std::vector<float> pcm;
};

// Cuts frames of silence at the end, which the voice would copy.
void CutQuietEnd(size_t groups, size_t samples_per_frame, DesignTake* take) {
  const auto last = std::find_if(take->pcm.rbegin(), take->pcm.rend(),
                                 [](float sample) { return std::fabs(sample) >= kSilencePeak; });
  const auto sounding = static_cast<size_t>(take->pcm.rend() - last);
  const size_t frames = take->pcm.size() / samples_per_frame;
  const size_t kept = std::min(frames, (sounding + samples_per_frame - 1) / samples_per_frame + kQuietFrames);
  take->pcm.resize(kept * samples_per_frame);
  take->voice.reference_codes.resize(kept * groups);
}

Result<DesignTake> SpeakTake(Engine* engine, const Request& request) {
  QTTS_ASSIGN_OR_RETURN(const auto stream, engine->Start(request));
  for (const std::string& warning : stream->warnings()) WarnUser(warning);
  DesignTake take;
  Frame frame;
  while (stream->Read(&frame) == ReadState::kFrame) {
    take.voice.reference_codes.insert(take.voice.reference_codes.end(), frame.codes.begin(), frame.codes.end());
    take.pcm.insert(take.pcm.end(), frame.pcm.begin(), frame.pcm.end());
  }
  QTTS_RETURN_IF_ERROR(stream->status());
  const std::string which = "voice design: the take with seed " + std::to_string(request.seed);
  if (stream->end_reason() != EndReason::kComplete) {
    return Status::InvalidArgument(which + " did not come to its end: give another --seed, a shorter --text, or more " +
                                   "--max-frames");
  }
  const ModelInfo& info = engine->info();
  CutQuietEnd(static_cast<size_t>(info.code_groups), static_cast<size_t>(info.samples_per_frame), &take);
  take.voice.reference_text = request.text;
  take.voice.instruct = request.instruct;
  take.voice.model = info.fingerprint;
  take.voice.loudness = MeasureLoudness(take.pcm, info.sample_rate);
  const Recording recording{take.pcm, 1, info.sample_rate};
  CloneOptions check;
  check.reference_text = request.text;
  for (const ReferenceFinding& finding : CheckReference(recording, take.pcm, check)) {
    WarnUser(which + " may make a bad voice: " + finding.problem + "; another --seed may do better");
  }
  return take;
}

// Returns "calm.voice" for one take; "calm.2.voice" for the second of several.
std::string PathOfTake(const std::string& path, int64_t take, int64_t takes) {
  if (takes == 1) return path;
  std::filesystem::path numbered(path);
  const std::string extension = numbered.extension();
  numbered.replace_extension("." + std::to_string(take) + extension);
  return numbered;
}

Result<Request> DesignRequest(const ToolOptions& options, const ModelInfo& info) {
  if (info.type != ModelType::kVoiceDesign) {
    return Status::InvalidArgument(
        "voice design: " + NeedsCheckpoint("a designed voice", ModelType::kVoiceDesign, info.type) +
        "; 'voice make' clones a voice from a recording");
  }
  QTTS_ASSIGN_OR_RETURN(Request request, MakeRequest(options, info.defaults));
  request.instruct = options.arguments[1];
  if (request.text.empty()) request.text = kDesignText;
  if (!IsSayable(request.text)) {
    return Status::InvalidArgument(
        "voice design: --text has no letter, number or currency sign, so there is nothing to "
        "say");
  }
  // Ends the utterance if the model misses the end of the text.
  request.runaway_guard = true;
  return request;
}

// Parses a path and its weight: "a.voice:0.7". Without a weight, or if what follows the last colon is no number, 1.
std::pair<std::string, double> ParseShare(const std::string& share) {
  const size_t colon = share.rfind(':');
  double weight = 1;
  if (colon != std::string::npos) {
    const char* const end = share.data() + share.size();
    const auto [read, error] = std::from_chars(share.data() + colon + 1, end, weight);
    if (error == std::errc() && read == end) return {share.substr(0, colon), weight};
  }
  return {share, 1};
}

Json TakeJson(const ClonedVoice& voice) {
  return {{"mode", voice.designed()                ? "designed"
                   : voice.reference_codes.empty() ? "x-vector"
                                                   : "icl"},
          {"x_vector", voice.x_vector.size()},
          {"reference_codes", voice.reference_codes.size()},
          {"reference_text", voice.reference_text},
          {"instruct", voice.instruct},
          {"style", voice.style},
          {"model", voice.model},
          {"loudness", voice.loudness ? Json(*voice.loudness) : Json()}};
}

void PrintTake(const ClonedVoice& voice) {
  const bool icl = !voice.reference_codes.empty();
  if (!voice.style.empty()) std::printf("style       %s\n", voice.style.c_str());
  std::printf("mode        %s\n", voice.designed() ? "designed: pinned by an utterance"
                                  : icl            ? "in-context: timbre and manner"
                                                   : "x-vector: timbre only");
  if (voice.designed()) std::printf("description %s\n", voice.instruct.empty() ? "none" : voice.instruct.c_str());
  std::printf("x-vector    %zu values\n", voice.x_vector.size());
  std::printf("codes       %zu\n", voice.reference_codes.size());
  std::printf("text        %s\n", icl ? voice.reference_text.c_str() : "none");
  std::printf("model       %s\n", voice.model.c_str());
  std::printf("loudness    %s\n", voice.loudness ? (LoudnessText(*voice.loudness) + " LUFS").c_str() : "not measured");
}

}  // namespace

Status PrintVoiceFile(const std::string& path, bool as_json) {
  QTTS_ASSIGN_OR_RETURN(const std::vector<ClonedVoice> takes, LoadTakes(path));
  if (as_json) {
    Json description = {{"file", path}};
    description.update(TakeJson(takes[0]));
    if (takes.size() > 1) {
      for (const ClonedVoice& take : takes) description["takes"].push_back(TakeJson(take));
    }
    PrintJson(description);
    return Status::Ok();
  }
  std::printf("voice       %s\n", path.c_str());
  for (const ClonedVoice& take : takes) PrintTake(take);
  return Status::Ok();
}

Result<std::string> KeepVoice(ClonedVoice voice, const ToolOptions& options) {
  voice.style = LowerCaseName(options.style);
  std::vector<ClonedVoice> takes;
  if (!options.add_to.empty()) {
    QTTS_ASSIGN_OR_RETURN(takes, LoadTakes(options.add_to));
    if (takes.size() == 1 && takes[0].style.empty()) {
      return Status::InvalidArgument(options.add_to + ": its take has no style; make it again with --style");
    }
  }
  takes.push_back(std::move(voice));
  const std::string path = options.output.empty() ? options.add_to : options.output;
  const std::string temporary = path + ".new";
  QTTS_RETURN_IF_ERROR(SaveTakes(takes, temporary));
  std::error_code error;
  std::filesystem::rename(temporary, path, error);
  if (!error) return path;
  std::error_code ignored;
  std::filesystem::remove(temporary, ignored);
  return Status::Unreadable(path + ": cannot be written: " + error.message());
}

Status DesignVoice(const ToolOptions& options) {
  const int64_t takes = options.takes.value_or(1);
  QTTS_ASSIGN_OR_RETURN(const EngineOptions engine_options, MakeEngineOptions(options, options.arguments[0]));
  // Its type is known without its weights.
  QTTS_ASSIGN_OR_RETURN(const ModelInfo info, Engine::Inspect(engine_options));
  QTTS_ASSIGN_OR_RETURN(Request request, DesignRequest(options, info));
  QTTS_ASSIGN_OR_RETURN(const auto engine, Engine::Load(engine_options));
  if (!engine->passed_over().empty()) WarnUser(engine->passed_over());
  for (int64_t take = 1; take <= takes; ++take, ++request.seed) {
    QTTS_ASSIGN_OR_RETURN(DesignTake made, SpeakTake(engine.get(), request));
    if (!options.wav.empty()) {
      QTTS_RETURN_IF_ERROR(WriteWav(PathOfTake(options.wav, take, takes), made.pcm, info.sample_rate, WavFormat::kS16));
    }
    ToolOptions kept = options;
    kept.output = options.output.empty() ? "" : PathOfTake(options.output, take, takes);
    QTTS_ASSIGN_OR_RETURN(const std::string path, KeepVoice(std::move(made.voice), kept));
    QTTS_RETURN_IF_ERROR(PrintVoiceFile(path, options.json));
  }
  return Status::Ok();
}

Status MixVoiceFiles(const ToolOptions& options) {
  std::vector<VoiceShare> shares;
  for (const std::string& argument : options.arguments) {
    const auto [path, weight] = ParseShare(argument);
    QTTS_ASSIGN_OR_RETURN(std::vector<ClonedVoice> takes, LoadTakes(path));
    if (takes.size() > 1) {
      return Status::InvalidArgument("voice mix: " + path + " has several takes; mix voices of one take");
    }
    if (!takes[0].x_vector.empty() && !takes[0].reference_codes.empty()) {
      WarnUser("voice mix: " + path + " gives its timbre only: the manner in its codes cannot be mixed");
    }
    shares.push_back({std::move(takes[0]), weight});
  }
  Result<ClonedVoice> mix = MixVoices(shares);
  if (!mix.ok()) return {mix.status().code(), "voice mix: " + mix.status().message()};
  QTTS_ASSIGN_OR_RETURN(const std::string path, KeepVoice(*std::move(mix), options));
  return PrintVoiceFile(path, options.json);
}

}  // namespace qtts
