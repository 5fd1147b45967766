// SPDX-License-Identifier: LGPL-2.1-or-later
#include "voice/reference.h"

#include <soxr.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>

namespace qtts {
namespace {

constexpr int kMinRecordedRate = 4000;
constexpr int kMaxRecordedRate = 384000;
constexpr int kMaxChannels = 64;
constexpr double kMinSeconds = 1;
// Attention grows with the square of the length, and a longer recording does not improve the voice.
constexpr double kMaxSeconds = 60;
// -60 dB of full scale.
constexpr float kSilence = 1e-3F;

std::string Seconds(double seconds) {
  char text[64];
  std::snprintf(text, sizeof text, "%.3g s", seconds);
  return text;
}

Status CheckRecording(const Recording& recording) {
  if (recording.sample_rate < kMinRecordedRate || recording.sample_rate > kMaxRecordedRate) {
    return Status::InvalidArgument("the reference recording has " + std::to_string(recording.sample_rate) +
                                   " samples a second, expected " + std::to_string(kMinRecordedRate) + " to " +
                                   std::to_string(kMaxRecordedRate));
  }
  if (recording.channels < 1 || recording.channels > kMaxChannels) {
    return Status::InvalidArgument("the reference recording has " + std::to_string(recording.channels) +
                                   " channels, expected 1 to " + std::to_string(kMaxChannels));
  }
  const size_t frames = recording.samples.size() / static_cast<size_t>(recording.channels);
  const double seconds = static_cast<double>(frames) / recording.sample_rate;
  if (seconds < kMinSeconds) {
    return Status::InvalidArgument("the reference recording is " + Seconds(seconds) + " long, expected " +
                                   Seconds(kMinSeconds) + " at least; 3 to 15 s of clear speech make the best voice");
  }
  if (seconds > kMaxSeconds) {
    return Status::InvalidArgument("the reference recording is " + Seconds(seconds) + " long, expected " +
                                   Seconds(kMaxSeconds) +
                                   " at most; cut out 3 to 15 s of clear speech, and the reference text with it");
  }
  float loudest = 0;
  for (const float sample : recording.samples) {
    if (!std::isfinite(sample)) {
      return Status::InvalidArgument("the reference recording has samples that are no finite numbers");
    }
    loudest = std::max(loudest, std::fabs(sample));
  }
  if (loudest < kSilence) {
    return Status::InvalidArgument("the reference recording is silent: nothing in it is louder than -60 dB");
  }
  return Status::Ok();
}

std::vector<float> MixDown(const Recording& recording) {
  if (recording.channels == 1) return recording.samples;
  const auto channels = static_cast<size_t>(recording.channels);
  std::vector<float> mono(recording.samples.size() / channels);
  for (size_t t = 0; t < mono.size(); ++t) {
    float sum = 0;
    for (size_t c = 0; c < channels; ++c) sum += recording.samples[t * channels + c];
    mono[t] = sum / static_cast<float>(channels);
  }
  return mono;
}

Result<std::vector<float>> Resample(const std::vector<float>& in, int from, int to) {
  // The length to which the official package cuts or pads.
  const double ratio = static_cast<double>(to) / static_cast<double>(from);
  std::vector<float> out(static_cast<size_t>(std::ceil(static_cast<double>(in.size()) * ratio)));
  const soxr_io_spec_t format = soxr_io_spec(SOXR_FLOAT32_I, SOXR_FLOAT32_I);
  const soxr_quality_spec_t quality = soxr_quality_spec(SOXR_HQ, 0);
  size_t done = 0;
  const soxr_error_t error = soxr_oneshot(from, to, 1, in.data(), in.size(), nullptr, out.data(), out.size(), &done,
                                          &format, &quality, nullptr);
  if (error != nullptr) return Status::Internal(std::string("the reference recording cannot be resampled: ") + error);
  return out;
}

}  // namespace

Result<std::vector<float>> PrepareReference(const Recording& recording) {
  QTTS_RETURN_IF_ERROR(CheckRecording(recording));
  std::vector<float> mono = MixDown(recording);
  if (recording.sample_rate == kReferenceRate) return mono;
  return Resample(mono, recording.sample_rate, kReferenceRate);
}

}  // namespace qtts
