// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gstqttsloudness.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>

namespace gstqtts {
namespace {

constexpr double kReleaseSeconds = 0.05;
constexpr float kInaudible = 1e-6F;  // reduction at which the release is over

// Returns the preset voice that speaks.
std::string SpeakerOf(const Settings& settings, const qtts::ModelInfo& model) {
  if (!settings.speaker.empty()) return qtts::LowerCaseName(settings.speaker);
  return DefaultSpeaker(model);
}

std::string NoEffect(const std::string& why, const std::string& remedy) {
  return "\"target-loudness\" has no effect: " + why + ". " + remedy;
}

std::string WarningFor(const Settings& settings, const qtts::ModelInfo& model, const std::string& speaker,
                       bool cloned) {
  if (cloned) {
    if (settings.voice_file.empty()) {
      return NoEffect("a timbre cloned from a recording has no measured loudness",
                      "Set reference-text, too, or make a voice file: qtts-tool voice make measures it.");
    }
    return NoEffect("the loudness of the voice " + settings.voice_file + " is unknown",
                    "Make the file again: qtts-tool voice make and voice design measure it.");
  }
  if (!speaker.empty()) {
    return NoEffect("the loudness of the speaker \"" + speaker + "\" is unknown",
                    "Measure it: qtts-tool loudness " + model.path + " --write.");
  }
  return NoEffect("a described voice has no measured loudness",
                  "Leave it at 0, or use a voice file or a model with speakers.");
}

}  // namespace

VoiceLevel LevelOf(const Settings& settings, const qtts::ModelInfo& model, const qtts::ClonedVoice* voice) {
  VoiceLevel level;
  if (settings.target_loudness == Settings::kAnyLoudness) return level;
  const std::string speaker = voice == nullptr ? SpeakerOf(settings, model) : std::string();
  std::optional<double> loudness;
  if (voice != nullptr) {
    loudness = voice->loudness;
  } else if (const auto found = model.description.loudness.find(speaker); found != model.description.loudness.end()) {
    loudness = found->second;
  }
  if (!loudness) {
    level.warning = WarningFor(settings, model, speaker, voice != nullptr);
    return level;
  }
  level.on = true;
  level.gain = std::pow(10.0, (settings.target_loudness - *loudness) / 20);
  return level;
}

Limiter::Limiter(int sample_rate) : keeps_(static_cast<float>(std::exp(-1 / (kReleaseSeconds * sample_rate)))) {}

void Limiter::Apply(double gain, std::vector<float>* pcm) {
  const auto factor = static_cast<float>(gain);
  for (float& sample : *pcm) {
    const float amplified = sample * factor;
    const float peak = std::fabs(amplified);
    reduction_ *= keeps_;
    if (reduction_ < kInaudible) reduction_ = 0;
    if (peak * (1 - reduction_) > kCeiling) reduction_ = 1 - kCeiling / peak;
    sample = std::clamp(amplified * (1 - reduction_), -kCeiling, kCeiling);
  }
}

}  // namespace gstqtts
