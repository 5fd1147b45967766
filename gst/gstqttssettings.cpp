// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gstqttssettings.h"

#include <algorithm>
#include <cfloat>
#include <chrono>
#include <utility>

#include "gstqttstimeline.h"
#include "qtts/language.h"

namespace gstqtts {
namespace {

// Positive numbers must not round to 0, which the engine would refuse.
float ToFloat(double number) {
  const auto rounded = static_cast<float>(number);
  return number > 0 ? std::max(rounded, FLT_MIN) : rounded;
}

void Apply(double temperature, int top_k, double top_p, qtts::TokenSampling* sampling) {
  if (temperature == 0.0) {
    sampling->do_sample = false;
  } else if (temperature != Settings::kModel) {
    sampling->do_sample = true;
    sampling->temperature = ToFloat(temperature);
  }
  if (top_k != Settings::kModel) sampling->top_k = top_k;
  if (top_p != Settings::kModel) sampling->top_p = ToFloat(top_p);
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
  return qtts::Status::Ok();
}

qtts::Status CheckSettings(const Settings& settings, const qtts::ModelInfo& model) {
  QTTS_RETURN_IF_ERROR(CheckSettings(settings));
  QTTS_RETURN_IF_ERROR(qtts::CheckLanguage(model.languages, settings.language));
  return qtts::CheckVoiceChoice(model.type, model.speakers, settings.speaker, settings.names_voice());
}

qtts::Request MakeRequest(const Settings& settings, const qtts::ModelInfo& model, std::string text,
                          uint64_t random_seed) {
  qtts::Request request;
  request.text = std::move(text);
  request.speaker = settings.speaker;
  request.language = settings.language;
  request.instruct = settings.instruct;
  request.layout = settings.layout;
  request.runaway_guard = settings.runaway_guard;
  // What an application sets may be longer than a signed number of nanoseconds can be, which is 292 years.
  if (std::in_range<std::chrono::nanoseconds::rep>(settings.max_wait)) {
    request.max_wait = std::chrono::nanoseconds(settings.max_wait);
  }
  request.seed = settings.seed >= 0 ? static_cast<uint64_t>(settings.seed) : random_seed;
  request.settings = model.defaults;
  Apply(settings.temperature, settings.top_k, settings.top_p, &request.settings.talker);
  Apply(settings.subtalker_temperature, settings.subtalker_top_k, settings.subtalker_top_p,
        &request.settings.predictor);
  if (settings.repetition_penalty != Settings::kModel) {
    request.settings.repetition_penalty = static_cast<float>(settings.repetition_penalty);
  }
  if (settings.max_duration != 0) {
    // An utterance has one frame less than new tokens, and the model makes at least one frame.
    const uint64_t frames =
        SamplesWithin(settings.max_duration, model.sample_rate) / static_cast<uint64_t>(model.samples_per_frame);
    request.settings.max_new_tokens = static_cast<int64_t>(std::max<uint64_t>(frames, 1)) + 1;
  }
  return request;
}

}  // namespace gstqtts
