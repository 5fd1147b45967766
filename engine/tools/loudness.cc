// SPDX-License-Identifier: LGPL-2.1-or-later
#include "loudness.h"

#include <cstdint>
#include <cstdio>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "description_file.h"
#include "print_json.h"
#include "qtts/engine.h"
#include "qtts/model_info.h"
#include "voice/loudness.h"

namespace qtts {
namespace {

// The spoken sample: a statement, a question, a number and an exclamation, 15 to 20 s in all. A single sentence of the
// same voice is up to 1 LU off.
constexpr const char* kSample[] = {
    "The old lighthouse keeper walked slowly down to the beach, because a strange boat had arrived during the night.",
    "Could you please remember to bring warm clothes and some water when we visit the mountains tomorrow?",
    "There are seventeen stations between here and the coast, and the train stops at every one of them.",
    "That is wonderful news, and I can hardly wait to tell everyone in town about it!"};
constexpr int64_t kSentenceFrames = 125;  // of a sentence: 10 s

// Returns the loudness of the sample, spoken with the voice of `request`. None if it is silent.
Result<std::optional<double>> MeasureSpeech(Engine* engine, Request request) {
  request.max_frames = kSentenceFrames;
  request.runaway_guard = true;
  std::vector<float> sound;
  for (const char* const sentence : kSample) {
    request.text = sentence;
    QTTS_ASSIGN_OR_RETURN(const auto stream, engine->Start(request));
    Frame frame;
    while (stream->Read(&frame) == ReadState::kFrame) sound.insert(sound.end(), frame.pcm.begin(), frame.pcm.end());
    QTTS_RETURN_IF_ERROR(stream->status());
    ++request.seed;
  }
  return MeasureLoudness(sound, engine->info().sample_rate);
}

}  // namespace

Result<std::optional<double>> LoudnessOfVoice(ToolOptions options, const std::string& folder,
                                              std::shared_ptr<const ClonedVoice> voice) {
  options.style.clear();  // it names the take that is made, not one to speak with
  QTTS_ASSIGN_OR_RETURN(const EngineOptions engine_options, MakeEngineOptions(options, folder));
  QTTS_ASSIGN_OR_RETURN(const auto engine, Engine::Load(engine_options));
  QTTS_ASSIGN_OR_RETURN(Request request, MakeRequest(options, engine->info().defaults));
  request.voice = std::move(voice);
  return MeasureSpeech(engine.get(), std::move(request));
}

Status Loudness(const ToolOptions& options) {
  const std::string& folder = options.arguments[0];
  QTTS_ASSIGN_OR_RETURN(const EngineOptions engine_options, MakeEngineOptions(options, folder));
  QTTS_ASSIGN_OR_RETURN(const auto engine, Engine::Load(engine_options));
  const std::vector<std::string>& speakers = engine->info().speakers;
  if (speakers.empty()) {
    return Status::Unsupported("loudness: this model has no preset speakers; 'qtts-tool voice make' measures a voice");
  }
  QTTS_ASSIGN_OR_RETURN(Request request, MakeRequest(options, engine->info().defaults));
  Json measured = Json::object();
  for (const std::string& speaker : speakers) {
    request.speaker = speaker;
    QTTS_ASSIGN_OR_RETURN(const std::optional<double> loudness, MeasureSpeech(engine.get(), request));
    if (!loudness) {
      std::cerr << "qtts-tool: warning: loudness: " << speaker << " was silent; another --seed may do better\n";
      continue;
    }
    measured[speaker] = *loudness;
    if (!options.json) std::printf("%-20s %6.2f LUFS\n", speaker.c_str(), *loudness);
  }
  if (options.json) PrintJson({{"loudness", measured}});
  return options.write ? WriteDescription(folder, "loudness", measured) : Status::Ok();
}

}  // namespace qtts
