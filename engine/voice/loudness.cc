// SPDX-License-Identifier: LGPL-2.1-or-later
#include "voice/loudness.h"

#include <ebur128.h>

#include <array>
#include <charconv>
#include <cmath>
#include <memory>
#include <new>
#include <system_error>

namespace qtts {
namespace {

constexpr double kMaxLoudness = 10;  // above full-scale noise

// Returns false for an infinite number and NaN, too.
bool IsPlausible(double loudness) { return loudness >= kMinMeasuredLoudness && loudness <= kMaxLoudness; }

struct EndMeter {
  void operator()(ebur128_state* meter) const { ebur128_destroy(&meter); }
};

}  // namespace

std::optional<double> MeasureLoudness(std::span<const float> samples, int sample_rate) {
  const std::unique_ptr<ebur128_state, EndMeter> meter(
      ebur128_init(1, static_cast<unsigned long>(sample_rate), EBUR128_MODE_I));
  if (meter == nullptr) throw std::bad_alloc();
  // A single channel is measured as it is, not as the same sound in two channels.
  ebur128_set_channel(meter.get(), 0, EBUR128_LEFT);
  if (ebur128_add_frames_float(meter.get(), samples.data(), samples.size()) != EBUR128_SUCCESS) throw std::bad_alloc();
  double loudness = 0;
  if (ebur128_loudness_global(meter.get(), &loudness) != EBUR128_SUCCESS || !IsPlausible(loudness)) {
    return std::nullopt;
  }
  return std::round(loudness * 100) / 100;
}

std::string LoudnessText(double loudness) {
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), loudness, std::chars_format::fixed, 2).ptr;
  return {text.data(), end};
}

std::optional<double> ParseLoudness(std::string_view text) {
  double loudness = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), loudness);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  if (!IsPlausible(loudness)) return std::nullopt;
  return loudness;
}

}  // namespace qtts
