// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_VOICE_LOUDNESS_H_
#define QTTS_VOICE_LOUDNESS_H_

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace qtts {

// Gate in LUFS, below which a sound has no loudness, and the block of its measurement in seconds.
inline constexpr double kMinMeasuredLoudness = -70;
inline constexpr double kLoudnessBlock = 0.4;

// Returns the integrated loudness of mono samples in LUFS (ITU-R BS.1770-4, gated). None if nothing is above the gate,
// the sound is shorter than one block, or it is louder than 10 LUFS, which no sound within full scale is.
std::optional<double> MeasureLoudness(std::span<const float> samples, int sample_rate);

// Returns the text of a loudness in a voice file: two decimals, independent of the locale.
std::string LoudnessText(double loudness);

// Parses such a text; untrusted input. None unless it is a number from -70 to 10.
std::optional<double> ParseLoudness(std::string_view text);

}  // namespace qtts

#endif  // QTTS_VOICE_LOUDNESS_H_
