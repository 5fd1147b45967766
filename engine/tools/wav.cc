// SPDX-License-Identifier: LGPL-2.1-or-later
#include "wav.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <optional>
#include <system_error>

namespace qtts {
namespace {

void PutInt(std::string& out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out.push_back(static_cast<char>(value >> (8 * i)));
}

int SampleSize(WavFormat format) { return format == WavFormat::kS16 ? 2 : 4; }

constexpr uint64_t kHeaderBehindSize = 36;
constexpr uint64_t kMaxDataBytes = std::numeric_limits<uint32_t>::max() - kHeaderBehindSize;

}  // namespace

std::string WavHeader(uint64_t data_bytes, int sample_rate, WavFormat format) {
  const bool known = data_bytes <= kMaxDataBytes;
  const auto sample_bytes = static_cast<uint64_t>(SampleSize(format));
  std::string out = "RIFF";
  PutInt(out, known ? kHeaderBehindSize + data_bytes : kUnknownLength, 4);
  out += "WAVEfmt ";
  PutInt(out, 16, 4);
  PutInt(out, format == WavFormat::kS16 ? 1 : 3, 2);  // WAVE_FORMAT_PCM, WAVE_FORMAT_IEEE_FLOAT
  PutInt(out, 1, 2);
  PutInt(out, static_cast<uint64_t>(sample_rate), 4);
  PutInt(out, static_cast<uint64_t>(sample_rate) * sample_bytes, 4);
  PutInt(out, sample_bytes, 2);
  PutInt(out, sample_bytes * 8, 2);
  out += "data";
  PutInt(out, known ? data_bytes : kUnknownLength, 4);
  return out;
}

std::string SampleBytes(std::span<const float> samples, WavFormat format) {
  std::string out;
  out.reserve(samples.size() * static_cast<size_t>(SampleSize(format)));
  for (const float sample : samples) {
    if (format == WavFormat::kS16) {
      PutInt(out, static_cast<uint16_t>(std::lrintf(std::clamp(sample * 32768.0F, -32768.0F, 32767.0F))), 2);
    } else {
      PutInt(out, std::bit_cast<uint32_t>(sample), 4);
    }
  }
  return out;
}

Status WriteWav(const std::string& path, std::span<const float> samples, int sample_rate, WavFormat format) {
  const uint64_t data_bytes = samples.size() * static_cast<uint64_t>(SampleSize(format));
  if (data_bytes > kMaxDataBytes) {
    return Status::ResourceExhausted(path + ": too long for a WAV file (4 GiB); write it in parts");
  }
  const std::string out = WavHeader(data_bytes, sample_rate, format) + SampleBytes(samples, format);
  std::ofstream file(path, std::ios::binary);
  file.write(out.data(), static_cast<std::streamsize>(out.size()));
  file.close();
  if (!file) return Status::Unreadable(path + ": cannot be written: " + std::strerror(errno));
  return Status::Ok();
}

namespace {

uint64_t GetInt(std::string_view bytes, size_t at, size_t count) {
  uint64_t value = 0;
  for (size_t i = 0; i < count; ++i) value |= uint64_t{static_cast<unsigned char>(bytes[at + i])} << (8 * i);
  return value;
}

constexpr uint64_t kPcm = 1;
constexpr uint64_t kFloat = 3;
constexpr uint64_t kExtensible = 0xFFFE;

// The "fmt " chunk.
struct WavLayout {
  uint64_t format = 0;
  uint64_t channels = 0;
  uint64_t rate = 0;
  uint64_t bits = 0;
};

std::optional<WavLayout> ParseLayout(std::string_view chunk) {
  if (chunk.size() < 16) return std::nullopt;
  WavLayout layout{GetInt(chunk, 0, 2), GetInt(chunk, 2, 2), GetInt(chunk, 4, 4), GetInt(chunk, 14, 2)};
  // The actual format is the first part of the sub-format GUID.
  if (layout.format == kExtensible && chunk.size() >= 26) layout.format = GetInt(chunk, 24, 2);
  const bool integers =
      layout.format == kPcm && (layout.bits == 8 || layout.bits == 16 || layout.bits == 24 || layout.bits == 32);
  const bool floats = layout.format == kFloat && (layout.bits == 32 || layout.bits == 64);
  if (!(integers || floats) || layout.channels == 0 || layout.channels > 64 || layout.rate == 0 ||
      layout.rate > uint64_t{std::numeric_limits<int>::max()}) {
    return std::nullopt;
  }
  return layout;
}

float SampleOf(std::string_view data, size_t at, const WavLayout& layout) {
  if (layout.format == kFloat && layout.bits == 32) {
    return std::bit_cast<float>(static_cast<uint32_t>(GetInt(data, at, 4)));
  }
  if (layout.format == kFloat) return static_cast<float>(std::bit_cast<double>(GetInt(data, at, 8)));
  if (layout.bits == 8) return (static_cast<float>(GetInt(data, at, 1)) - 128.0F) / 128.0F;  // the only unsigned format
  // Shifted to the top of 32 bits, which keeps the sign.
  const size_t bytes = layout.bits / 8;
  const auto top = static_cast<uint32_t>(GetInt(data, at, bytes) << (32 - layout.bits));
  return static_cast<float>(static_cast<double>(std::bit_cast<int32_t>(top)) / 2147483648.0);
}

}  // namespace

Result<Recording> ReadWav(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return Status::NotFound(path + ": no such file");
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  if (!file || bytes.empty()) return Status::Unreadable(path + ": cannot be read");
  const Status unsupported = Status::Unsupported(
      path +
      ": is not a WAV file with samples of 8 to 32 bits or floats; convert it, for example with 'gst-launch-1.0 " +
      "filesrc location=FILE ! decodebin ! audioconvert ! wavenc ! filesink location=OUT.wav'");
  const std::string_view all = bytes;
  if (all.size() < 12 || all.substr(0, 4) != "RIFF" || all.substr(8, 4) != "WAVE") return unsupported;
  std::optional<WavLayout> layout;
  for (size_t at = 12; at + 8 <= all.size();) {
    const std::string_view name = all.substr(at, 4);
    // The length field of a file written to a pipe is meaningless, so clamp it to the file.
    const size_t size = std::min<size_t>(GetInt(all, at + 4, 4), all.size() - at - 8);
    const std::string_view chunk = all.substr(at + 8, size);
    if (name == "fmt ") {
      layout = ParseLayout(chunk);
      if (!layout.has_value()) return unsupported;
    } else if (name == "data" && layout.has_value()) {
      Recording recording;
      recording.channels = static_cast<int>(layout->channels);
      recording.sample_rate = static_cast<int>(layout->rate);
      const size_t sample_bytes = layout->bits / 8;
      const size_t count = chunk.size() / (sample_bytes * layout->channels) * layout->channels;
      recording.samples.reserve(count);
      for (size_t i = 0; i < count; ++i) recording.samples.push_back(SampleOf(chunk, i * sample_bytes, *layout));
      return recording;
    }
    at += 8 + size + size % 2;
  }
  return unsupported;
}

}  // namespace qtts
