// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TOOLS_WAV_H_
#define QTTS_TOOLS_WAV_H_

#include <span>
#include <string>

#include "qtts/status.h"
#include "qtts/voice.h"

namespace qtts {

enum class WavFormat { kS16, kF32 };

// Writes mono `samples` as a WAV file. S16 rounds to nearest and saturates at full scale.
Status WriteWav(const std::string& path, std::span<const float> samples, int sample_rate, WavFormat format);

// Reads a WAV file: integers of 8, 16, 24 or 32 bits, or floats of 32 or 64; any rate, any channels.
// kNotFound, kUnreadable; kUnsupported for what is no such file.
Result<Recording> ReadWav(const std::string& path);

}  // namespace qtts

#endif  // QTTS_TOOLS_WAV_H_
