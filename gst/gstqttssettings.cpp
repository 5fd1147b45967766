// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gstqttssettings.h"

#include <algorithm>
#include <chrono>
#include <string_view>
#include <utility>

#include "gstqttstimeline.h"
#include "qtts/language.h"
#include "qtts/voice.h"

namespace gstqtts {
namespace {

// Returns the index in kSamplingNumbers.
constexpr size_t IndexOfSampling(std::string_view name) {
  size_t index = 0;
  while (name != qtts::kSamplingNumbers[index].name) ++index;
  return index;
}

}  // namespace

std::string LanguageTag(const Settings& settings) { return std::string(qtts::ResolveLanguage(settings.language).tag); }

qtts::Status CheckSettings(const Settings& settings) {
  if (!settings.voice_file.empty() && !(settings.reference_audio.empty() && settings.reference_text.empty())) {
    return qtts::Status::InvalidArgument(
        "Both voice-file and a reference are set. A voice file holds its own reference: unset one of them.");
  }
  if (settings.reference_audio.empty() && !settings.reference_text.empty()) {
    return qtts::Status::InvalidArgument(
        "reference-text is set without reference-audio, the recording that says it. Set both or none.");
  }
  if (settings.voice_file.empty() && !settings.style.empty()) {
    return qtts::Status::InvalidArgument(
        "style is set without voice-file, among whose takes it chooses. Set both or none.");
  }
  QTTS_RETURN_IF_ERROR(qtts::ParseMarkdownRules(settings.markup_rules).status());
  return qtts::Status::Ok();
}

qtts::Status CheckSettings(const Settings& settings, const qtts::ModelInfo& model) {
  QTTS_RETURN_IF_ERROR(CheckSettings(settings));
  QTTS_RETURN_IF_ERROR(qtts::CheckLanguage(model.languages, settings.language));
  qtts::VoiceKind voice = qtts::VoiceKind::kNone;
  if (!settings.voice_file.empty()) voice = qtts::VoiceKind::kFile;
  if (!settings.reference_audio.empty()) voice = qtts::VoiceKind::kCloned;
  return qtts::CheckVoiceChoice(model.type, model.speakers, settings.speaker, voice);
}

std::string DefaultSpeaker(const qtts::ModelInfo& model) {
  if (!model.description.default_speaker.empty()) return model.description.default_speaker;
  return model.speakers.empty() ? std::string() : model.speakers.front();
}

qtts::Request MakeRequest(const Settings& settings, const qtts::ModelInfo& model, std::string text,
                          uint64_t random_seed) {
  qtts::Request request;
  request.text = std::move(text);
  request.speaker = settings.speaker;
  request.language = settings.language;
  request.instruct = settings.instruct;
  request.layout = settings.layout;
  request.parts = qtts::PartBounds::Of(
      settings.part_length == Settings::kModel ? model.part_characters : static_cast<size_t>(settings.part_length));
  request.runaway_guard = settings.runaway_guard;
  request.runaway_frames_per_token = settings.runaway_frames;
  // An application may set more than a signed number of nanoseconds can hold, which is 292 years.
  if (std::in_range<std::chrono::nanoseconds::rep>(settings.max_wait)) {
    request.max_wait = std::chrono::nanoseconds(settings.max_wait);
  }
  request.real_time = settings.real_time;
  request.parallel_parts = settings.parallel_parts;
  request.seed = settings.seed >= 0 ? static_cast<uint64_t>(settings.seed) : random_seed;
  request.settings = model.defaults;
  for (size_t i = 0; i < qtts::kSamplingNumberCount; ++i) {
    if (settings.sampling[i] != Settings::kModel) {
      qtts::kSamplingNumbers[i].SetFromUser(settings.sampling[i], &request.settings);
    }
  }
  if (settings.max_duration != 0) {
    // An utterance has one frame less than new tokens, and the model makes at least one frame.
    const uint64_t frames =
        SamplesWithin(settings.max_duration, model.sample_rate) / static_cast<uint64_t>(model.samples_per_frame);
    request.max_frames = static_cast<int64_t>(std::max<uint64_t>(frames, 1));
    request.settings.max_new_tokens = request.max_frames + 1;
  }
  return request;
}

void AdaptToVoice(const Settings& settings, qtts::Request* request) {
  if (request->voice == nullptr) return;
  if (request->voice->designed()) {
    constexpr size_t kTemperature = IndexOfSampling("subtalker-temperature");
    if (settings.sampling[kTemperature] == Settings::kModel) {
      request->settings.predictor.temperature = qtts::kDesignedPredictorTemperature;
    }
  } else if (settings.style.empty() && !request->voice->style.empty()) {
    request->instruct.clear();
  }
}

}  // namespace gstqtts
