// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TOOLS_WAV_H_
#define QTTS_TOOLS_WAV_H_

#include <cstdint>
#include <limits>
#include <span>
#include <string>

#include "qtts/status.h"
#include "qtts/voice.h"

namespace qtts {

enum class WavFormat { kS16, kF32 };

// The 44-byte header of a mono WAV file with `data_bytes` of samples. With kUnknownLength, or if the length does not
// fit the header, it says that the samples extend to the end of the file, as is usual for pipes.
inline constexpr uint64_t kUnknownLength = std::numeric_limits<uint64_t>::max();
std::string WavHeader(uint64_t data_bytes, int sample_rate, WavFormat format);

// Converts `samples` to their bytes in a WAV file: little-endian. S16 rounds to nearest and saturates at full scale.
std::string SampleBytes(std::span<const float> samples, WavFormat format);

// Writes mono `samples` as a WAV file.
Status WriteWav(const std::string& path, std::span<const float> samples, int sample_rate, WavFormat format);

// Reads a WAV file with integers of 8, 16, 24 or 32 bits or floats of 32 or 64 bits, any rate and number of channels.
// kNotFound, kUnreadable; kUnsupported for other files.
Result<Recording> ReadWav(const std::string& path);

}  // namespace qtts

#endif  // QTTS_TOOLS_WAV_H_
