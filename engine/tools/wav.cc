// SPDX-License-Identifier: LGPL-2.1-or-later
#include "wav.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <limits>

namespace qtts {
namespace {

void PutInt(std::string& out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out.push_back(static_cast<char>(value >> (8 * i)));
}

}  // namespace

Status WriteWav(const std::string& path, std::span<const float> samples, int sample_rate, WavFormat format) {
  const int sample_bytes = format == WavFormat::kS16 ? 2 : 4;
  const uint64_t data_bytes = samples.size() * static_cast<uint64_t>(sample_bytes);
  if (data_bytes > std::numeric_limits<uint32_t>::max() - 36) {
    return Status::ResourceExhausted(path + ": too long for a WAV file (4 GiB); write it in parts");
  }
  std::string out = "RIFF";
  PutInt(out, 36 + data_bytes, 4);
  out += "WAVEfmt ";
  PutInt(out, 16, 4);
  PutInt(out, format == WavFormat::kS16 ? 1 : 3, 2);  // WAVE_FORMAT_PCM, WAVE_FORMAT_IEEE_FLOAT
  PutInt(out, 1, 2);
  PutInt(out, static_cast<uint64_t>(sample_rate), 4);
  PutInt(out, static_cast<uint64_t>(sample_rate) * static_cast<uint64_t>(sample_bytes), 4);
  PutInt(out, static_cast<uint64_t>(sample_bytes), 2);
  PutInt(out, static_cast<uint64_t>(sample_bytes) * 8, 2);
  out += "data";
  PutInt(out, data_bytes, 4);
  for (const float sample : samples) {
    if (format == WavFormat::kS16) {
      PutInt(out, static_cast<uint16_t>(std::lrintf(std::clamp(sample * 32768.0F, -32768.0F, 32767.0F))), 2);
    } else {
      PutInt(out, std::bit_cast<uint32_t>(sample), 4);
    }
  }
  std::ofstream file(path, std::ios::binary);
  file.write(out.data(), static_cast<std::streamsize>(out.size()));
  file.close();
  if (!file) return Status::Unreadable(path + ": cannot be written: " + std::strerror(errno));
  return Status::Ok();
}

}  // namespace qtts
