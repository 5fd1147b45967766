// SPDX-License-Identifier: LGPL-2.1-or-later
#include "voice/voice_file.h"

#include <bit>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "checkpoint/safetensors.h"
#include "qtts/resources.h"
#include "qtts/utf8.h"
#include "voice/loudness.h"

namespace qtts {
namespace {

static_assert(std::endian::native == std::endian::little, "voice files hold little-endian numbers");

constexpr const char* kFormat = "qttssrc-voice-1";
constexpr const char* kVector = "x_vector";
constexpr const char* kCodes = "reference_codes";
constexpr const char* kLoudness = "loudness";  // metadata; files of earlier versions have none

// Maximum number of codes. A voice has a few thousand.
constexpr int64_t kMostElements = int64_t{1} << 22;

Status NoVoice(const std::string& path, const std::string& why) {
  return Status::CorruptModel(path + ": " + why + "; give a file that 'qtts-tool voice make' wrote");
}

// Parses an array of that element type.
template <typename T>
Result<std::vector<T>> Values(const SafetensorsHeader& header, std::span<const std::byte> file, const std::string& path,
                              const std::string& name, std::string_view dtype) {
  const auto found = header.entries.find(name);
  if (found == header.entries.end()) return NoVoice(path, "has no tensor \"" + name + "\"");
  const TensorEntry& entry = found->second;
  const uint64_t bytes = entry.end - entry.begin;
  if (entry.dtype != dtype || entry.shape.size() != 1 || bytes > kMostElements * sizeof(T)) {
    return NoVoice(path, "its tensor \"" + name + "\" is not a list of at most " + std::to_string(kMostElements) +
                             " values of type " + std::string(dtype));
  }
  std::vector<T> values(bytes / sizeof(T));
  if (bytes > 0) std::memcpy(values.data(), file.data() + header.data_offset + entry.begin, bytes);
  return values;
}

}  // namespace

std::string WriteVoice(const ClonedVoice& voice) {
  const size_t vector_bytes = voice.x_vector.size() * sizeof(float);
  const size_t code_bytes = voice.reference_codes.size() * sizeof(int32_t);
  nlohmann::ordered_json header;
  header["__metadata__"] = {
      {"format", kFormat}, {"model", RepairUtf8(voice.model)}, {"reference_text", RepairUtf8(voice.reference_text)}};
  if (voice.loudness) header["__metadata__"][kLoudness] = LoudnessText(*voice.loudness);
  header[kVector] = {{"dtype", "F32"}, {"shape", {voice.x_vector.size()}}, {"data_offsets", {0, vector_bytes}}};
  header[kCodes] = {{"dtype", "I32"},
                    {"shape", {voice.reference_codes.size()}},
                    {"data_offsets", {vector_bytes, vector_bytes + code_bytes}}};
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const auto length = static_cast<uint64_t>(text.size());
  std::string file(reinterpret_cast<const char*>(&length), sizeof length);
  file += text;
  file.append(reinterpret_cast<const char*>(voice.x_vector.data()), vector_bytes);
  file.append(reinterpret_cast<const char*>(voice.reference_codes.data()), code_bytes);
  return file;
}

Result<ClonedVoice> ParseVoice(std::span<const std::byte> file, const std::string& path) {
  QTTS_ASSIGN_OR_RETURN(const SafetensorsHeader header, SafetensorsHeader::Parse(file, file.size(), path));
  const auto metadata = [&](const char* key) -> std::string {
    const auto found = header.metadata.find(key);
    return found == header.metadata.end() ? std::string() : found->second;
  };
  if (metadata("format") != kFormat) return NoVoice(path, "is not a voice file");
  ClonedVoice voice;
  voice.model = metadata("model");
  voice.reference_text = metadata("reference_text");
  if (const std::string text = metadata(kLoudness); !text.empty()) {
    voice.loudness = ParseLoudness(text);
    if (!voice.loudness) return NoVoice(path, "its loudness is no number of LUFS");
  }
  QTTS_ASSIGN_OR_RETURN(voice.x_vector, Values<float>(header, file, path, kVector, "F32"));
  QTTS_ASSIGN_OR_RETURN(voice.reference_codes, Values<int32_t>(header, file, path, kCodes, "I32"));
  return voice;
}

Status SaveVoice(const ClonedVoice& voice, const std::string& path) {
  const std::string bytes = WriteVoice(voice);
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (!file) return Status::Unreadable(path + ": cannot be written: " + std::strerror(errno));
  return Status::Ok();
}

Result<ClonedVoice> LoadVoice(const std::string& path) {
  QTTS_ASSIGN_OR_RETURN(const std::string file, ReadSmallFile(path));
  return CatchExhaustion("load a voice", [&] { return ParseVoice(std::as_bytes(std::span(file)), path); });
}

}  // namespace qtts
