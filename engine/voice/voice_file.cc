// SPDX-License-Identifier: LGPL-2.1-or-later
#include "voice/voice_file.h"

#include <bit>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/mapped_file.h"
#include "checkpoint/safetensors.h"
#include "qtts/model_info.h"
#include "qtts/resources.h"
#include "qtts/utf8.h"
#include "voice/loudness.h"
#include "voice/takes.h"

namespace qtts {
namespace {

static_assert(std::endian::native == std::endian::little, "voice files hold little-endian numbers");

constexpr const char* kFormat = "qttssrc-voice-1";
constexpr const char* kVector = "x_vector";
constexpr const char* kCodes = "reference_codes";
// Metadata.
constexpr const char* kText = "reference_text";
constexpr const char* kInstruct = "instruct";
constexpr const char* kStyle = "style";
constexpr const char* kTakes = "takes";
constexpr const char* kLoudness = "loudness";  // files of earlier versions have none

// Maximum number of codes. A voice has a few thousand.
constexpr int64_t kMaxElements = int64_t{1} << 22;
constexpr size_t kMaxStyleBytes = 64;

Status NoVoice(const std::string& path, const std::string& why) {
  return Status::CorruptModel(path + ": " + why + "; give a file that 'qtts-tool voice make' wrote");
}

// Returns the name of a tensor, or key of the metadata, of a take. The first one's are those of a voice file with one
// take.
std::string KeyOf(const char* name, size_t take) {
  return take == 0 ? std::string(name) : std::string(name) + "." + std::to_string(take);
}

// Parses an array of that element type.
template <typename T>
Result<std::vector<T>> Values(const SafetensorsHeader& header, std::span<const std::byte> file, const std::string& path,
                              const std::string& name, std::string_view dtype) {
  const auto found = header.entries.find(name);
  if (found == header.entries.end()) return NoVoice(path, "has no tensor \"" + name + "\"");
  const TensorEntry& entry = found->second;
  const uint64_t bytes = entry.end - entry.begin;
  if (entry.dtype != dtype || entry.shape.size() != 1 || bytes > kMaxElements * sizeof(T)) {
    return NoVoice(path, "its tensor \"" + name + "\" is not a list of at most " + std::to_string(kMaxElements) +
                             " values of type " + std::string(dtype));
  }
  std::vector<T> values(bytes / sizeof(T));
  if (bytes > 0) std::memcpy(values.data(), file.data() + header.data_offset + entry.begin, bytes);
  return values;
}

}  // namespace

std::string WriteTakes(std::span<const ClonedVoice> takes) {
  nlohmann::ordered_json metadata;
  nlohmann::ordered_json tensors;
  metadata["format"] = kFormat;
  if (takes.size() > 1) metadata[kTakes] = std::to_string(takes.size());
  std::string data;
  const auto add_tensor = [&](const std::string& name, const char* dtype, const auto& values) {
    const size_t begin = data.size();
    const size_t bytes = values.size() * sizeof values[0];
    data.append(reinterpret_cast<const char*>(values.data()), bytes);
    tensors[name] = {{"dtype", dtype}, {"shape", {values.size()}}, {"data_offsets", {begin, begin + bytes}}};
  };
  for (size_t take = 0; take < takes.size(); ++take) {
    const ClonedVoice& voice = takes[take];
    if (take == 0) metadata["model"] = RepairUtf8(voice.model);
    metadata[KeyOf(kText, take)] = RepairUtf8(voice.reference_text);
    if (!voice.instruct.empty()) metadata[KeyOf(kInstruct, take)] = RepairUtf8(voice.instruct);
    if (!voice.style.empty()) metadata[KeyOf(kStyle, take)] = RepairUtf8(voice.style);
    if (voice.loudness) metadata[KeyOf(kLoudness, take)] = LoudnessText(*voice.loudness);
    add_tensor(KeyOf(kVector, take), "F32", voice.x_vector);
    add_tensor(KeyOf(kCodes, take), "I32", voice.reference_codes);
  }
  nlohmann::ordered_json header = {{"__metadata__", std::move(metadata)}};
  header.update(tensors);
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const auto length = static_cast<uint64_t>(text.size());
  std::string file(reinterpret_cast<const char*>(&length), sizeof length);
  return file + text + data;
}

Result<std::vector<ClonedVoice>> ParseTakes(std::span<const std::byte> file, const std::string& path) {
  QTTS_ASSIGN_OR_RETURN(const SafetensorsHeader header, SafetensorsHeader::Parse(file, file.size(), path));
  const auto metadata = [&](const std::string& key) -> std::string {
    const auto found = header.metadata.find(key);
    return found == header.metadata.end() ? std::string() : found->second;
  };
  if (metadata("format") != kFormat) return NoVoice(path, "is not a voice file");
  size_t count = 1;
  if (const std::string text = metadata(kTakes); !text.empty()) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
    if (error != std::errc() || end != text.data() + text.size() || count < 1 || count > kMaxTakes) {
      return NoVoice(path, "its number of takes is not 1 to " + std::to_string(kMaxTakes));
    }
  }
  std::vector<ClonedVoice> takes(count);
  for (size_t take = 0; take < count; ++take) {
    ClonedVoice& voice = takes[take];
    voice.model = metadata("model");
    voice.reference_text = metadata(KeyOf(kText, take));
    voice.instruct = metadata(KeyOf(kInstruct, take));
    voice.style = LowerCaseName(metadata(KeyOf(kStyle, take)));
    if (voice.style.size() > kMaxStyleBytes) return NoVoice(path, "a style of it is too long");
    if (const std::string text = metadata(KeyOf(kLoudness, take)); !text.empty()) {
      voice.loudness = ParseLoudness(text);
      if (!voice.loudness) return NoVoice(path, "its loudness is no number of LUFS");
    }
    QTTS_ASSIGN_OR_RETURN(voice.x_vector, Values<float>(header, file, path, KeyOf(kVector, take), "F32"));
    QTTS_ASSIGN_OR_RETURN(voice.reference_codes, Values<int32_t>(header, file, path, KeyOf(kCodes, take), "I32"));
  }
  return takes;
}

Status SaveVoice(const ClonedVoice& voice, const std::string& path) { return SaveTakes({&voice, 1}, path); }

Status SaveTakes(std::span<const ClonedVoice> takes, const std::string& path) {
  QTTS_RETURN_IF_ERROR(CheckTakes(takes));
  const std::string bytes = WriteTakes(takes);
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (!file) return Status::Unreadable(path + ": cannot be written: " + std::strerror(errno));
  return Status::Ok();
}

Result<std::vector<ClonedVoice>> LoadTakes(const std::string& path) {
  QTTS_ASSIGN_OR_RETURN(const std::string file, ReadSmallFile(path));
  return CatchExhaustion("load a voice", [&] { return ParseTakes(std::as_bytes(std::span(file)), path); });
}

Result<ClonedVoice> LoadVoice(const std::string& path, const std::string& style, const std::string& instruct) {
  QTTS_ASSIGN_OR_RETURN(std::vector<ClonedVoice> takes, LoadTakes(path));
  return ChooseTake(std::move(takes), style, instruct, path);
}

}  // namespace qtts
