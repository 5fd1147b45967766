// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gstqttssettings.h"

#include <glib.h>

#include <algorithm>
#include <utility>

#include "gstqttstimeline.h"

namespace gstqtts {
namespace {

void Apply(double temperature, int top_k, double top_p, qtts::TokenSampling* sampling) {
  if (temperature == 0.0) {
    sampling->do_sample = false;
  } else if (temperature != Settings::kModel) {
    sampling->do_sample = true;
    sampling->temperature = static_cast<float>(temperature);
  }
  if (top_k != Settings::kModel) sampling->top_k = top_k;
  if (top_p != Settings::kModel) sampling->top_p = static_cast<float>(top_p);
}

}  // namespace

qtts::Request MakeRequest(const Settings& settings, const qtts::ModelInfo& model, std::string text,
                          uint64_t random_seed) {
  qtts::Request request;
  request.text = std::move(text);
  request.speaker = settings.speaker;
  request.language = settings.language;
  request.instruct = settings.instruct;
  request.layout = settings.layout;
  request.runaway_guard = settings.runaway_guard;
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

std::string LanguageCode(std::string_view language) {
  // spec 3.2: what the released checkpoints speak.
  static constexpr std::pair<std::string_view, const char*> kCodes[] = {
      {"chinese", "zh"}, {"english", "en"},  {"german", "de"}, {"italian", "it"}, {"portuguese", "pt"},
      {"spanish", "es"}, {"japanese", "ja"}, {"korean", "ko"}, {"french", "fr"},  {"russian", "ru"},
  };
  for (const auto& [name, code] : kCodes) {
    if (g_ascii_strncasecmp(language.data(), name.data(), name.size()) == 0 && language.size() == name.size())
      return code;
  }
  return {};
}

}  // namespace gstqtts
