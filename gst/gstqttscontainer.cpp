// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gstqttscontainer.h"

#include <array>
#include <string>
#include <string_view>

namespace gstqtts {
namespace {

// MP3 and ADTS have no signature but 11 or 12 bits: so many frames must follow each other.
constexpr int kFramesInRow = 3;
// Blocks of metadata of a FLAC file; a file has ten or so.
constexpr int kMaxFlacBlocks = 1000;
// Bytes before the first frame. The longest MP3 frame has 1441 bytes.
constexpr size_t kMaxLead = 4096;

// Returns the size of the MP3 frame that begins so, 0 if none does. Frames of free bit rate have no known size.
size_t Mp3FrameSize(std::string_view head) {
  static constexpr std::array<uint64_t, 15> kMpeg1 = {0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320};
  static constexpr std::array<uint64_t, 15> kMpeg2 = {0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160};
  static constexpr std::array<uint64_t, 3> kRates = {44100, 48000, 32000};
  const uint64_t header = BigEndianNumber(head, 0, 4);
  const uint64_t version = header >> 19U & 3U;  // 3: MPEG-1, 2: MPEG-2, 0: MPEG-2.5
  const uint64_t bitrate = header >> 12U & 15U;
  const uint64_t rate = header >> 10U & 3U;
  constexpr uint64_t kLayer3 = 1;
  if (header >> 21U != 0x7FFU || version == 1 || (header >> 17U & 3U) != kLayer3) return 0;
  if (bitrate == 0 || bitrate == 15 || rate == 3) return 0;
  const bool mpeg1 = version == 3;
  const uint64_t kilobits = mpeg1 ? kMpeg1[bitrate] : kMpeg2[bitrate];
  const uint64_t hertz = kRates[rate] / (mpeg1 ? 1 : version == 2 ? 2 : 4);
  const uint64_t padding = header >> 9U & 1U;
  return static_cast<size_t>((mpeg1 ? 144 : 72) * kilobits * 1000 / hertz + padding);
}

// Returns the same for a frame of AAC.
size_t AdtsFrameSize(std::string_view head) {
  const uint64_t header = BigEndianNumber(head, 0, 7);
  const uint64_t rate = header >> 34U & 15U;
  if (header >> 44U != 0xFFFU || (header >> 41U & 3U) != 0 || rate > 12) return 0;
  const uint64_t size = header >> 13U & 0x1FFFU;
  return size >= 7 ? static_cast<size_t>(size) : 0;
}

bool FramesFollow(const RecordingFile& file, uint64_t offset, size_t (*frame_size)(std::string_view)) {
  for (int i = 0; i < kFramesInRow; ++i) {
    const size_t size = frame_size(file.Read(offset, 7));
    if (size == 0 || offset + size > file.size()) return false;
    offset += size;
  }
  return true;
}

std::optional<Container> IdentifyFrames(const RecordingFile& file, uint64_t begin) {
  const std::string lead = file.Read(begin, kMaxLead);
  for (size_t at = lead.find('\xFF'); at != std::string::npos; at = lead.find('\xFF', at + 1)) {
    if (FramesFollow(file, begin + at, Mp3FrameSize)) return Container::kMp3;
    if (FramesFollow(file, begin + at, AdtsFrameSize)) return Container::kAdts;
  }
  return std::nullopt;
}

std::optional<Container> IdentifyBytes(std::string_view head) {
  const std::string_view four = head.substr(0, 4);
  if ((four == "RIFF" || four == "RF64") && head.size() >= 12 && head.substr(8) == "WAVE") return Container::kWav;
  if (four == "fLaC") return Container::kFlac;
  if (four == "OggS") return Container::kOgg;
  if (head.size() >= 8 && head.substr(4, 4) == "ftyp") return Container::kMp4;
  if (four == "\x1A\x45\xDF\xA3") return Container::kMatroska;
  return std::nullopt;
}

}  // namespace

std::optional<IdentifiedContainer> IdentifyContainer(const RecordingFile& file) {
  const uint64_t begin = SkipId3Tags(file);
  auto container = IdentifyBytes(file.Read(begin, 12));
  if (!container) container = IdentifyFrames(file, begin);
  if (!container) return std::nullopt;
  return IdentifiedContainer{*container, begin};
}

std::vector<HiddenBytes> HideFlacMetadata(const RecordingFile& file, uint64_t begin) {
  constexpr uint8_t kLast = 0x80;
  constexpr uint8_t kStreamInfo = 0;
  constexpr uint8_t kPadding = 1;
  std::vector<HiddenBytes> hidden;
  uint64_t offset = begin + 4;
  for (int i = 0; i < kMaxFlacBlocks; ++i) {
    const std::string head = file.Read(offset, 4);
    if (head.size() < 4) break;
    const auto first = static_cast<uint8_t>(head[0]);
    const auto type = static_cast<uint8_t>(first & ~kLast);
    const auto last = static_cast<uint8_t>(first & kLast);
    if (type != kStreamInfo) hidden.push_back({offset, std::string(1, static_cast<char>(last | kPadding))});
    if (last != 0) break;
    offset += 4 + BigEndianNumber(head, 1, 3);
  }
  return hidden;
}

const char* ContainerName(Container container) {
  switch (container) {
    case Container::kWav:
      return "WAV";
    case Container::kFlac:
      return "FLAC";
    case Container::kMp3:
      return "MP3";
    case Container::kAdts:
      return "AAC";
    case Container::kOgg:
      return "Ogg";
    case Container::kMp4:
      return "MP4";
    case Container::kMatroska:
      return "WebM";
  }
  return "";
}

}  // namespace gstqtts
