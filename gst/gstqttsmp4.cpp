// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gstqttsmp4.h"

#include <algorithm>
#include <iterator>
#include <limits>

#include "gstqttscodecs.h"

namespace gstqtts {
namespace {

// Maximum size of the `moov` box. One hour of sound has 1 MiB.
constexpr uint64_t kMaxIndexBytes = uint64_t{16} << 20;
// Maximum number of boxes skipped before it, so that a file of nothing else does not take minutes.
constexpr int kMaxBoxesBeforeIndex = 1000;
// Maximum number of boxes in one: 16 MiB of empty ones would take 100 MiB to list.
constexpr size_t kMaxBoxes = 10000;

// Returns true if an entry of a data reference names another file. Writers that keep the samples in the file itself set
// the flag, or leave the place empty.
bool IsExternal(const Mp4Box& reference) {
  constexpr uint64_t kSelfContained = 1;
  if ((BigEndianNumber(reference.content.bytes, 0, 4) & kSelfContained) != 0) return false;
  return reference.content.From(4).bytes.find_first_not_of('\0') != std::string_view::npos;
}

// Checks an entry of the sample description of a track with sound (AudioSampleEntry, QuickTime's sound description).
qtts::Status CheckDescription(const Mp4Box& description) {
  static constexpr std::string_view kAllowed[] = {"mp4a", ".mp3", "Opus", "fLaC"};
  if (std::find(std::begin(kAllowed), std::end(kAllowed), description.type) == std::end(kAllowed)) {
    std::string name(description.type);
    std::replace_if(
        name.begin(), name.end(), [](char c) { return c <= ' ' || c > '~'; }, '?');
    return NoRecordingError("its sound is coded as " + name + " in MP4, which is not read");
  }
  const std::string_view bytes = description.content.bytes;
  const uint64_t version = BigEndianNumber(bytes, 8, 2);
  const uint64_t channels = BigEndianNumber(bytes, 16, 2);
  if (version > 1 || channels == 0 || channels > 64) {
    return NoRecordingError("describes sound of version " + std::to_string(version) + " with " +
                            std::to_string(channels) + " channels, which is not read");
  }
  return qtts::Status::Ok();
}

}  // namespace

Mp4Part Mp4Index::moov() const { return FindMp4Box({bytes, offset}, {"moov"}); }

Mp4Index ReadMp4Index(const RecordingFile& file) {
  uint64_t offset = 0;
  if (file.Read(4, 4) != "ftyp") return {};
  for (int i = 0; i < kMaxBoxesBeforeIndex; ++i) {
    const std::string head = file.Read(offset, 16);
    uint64_t size = BigEndianNumber(head, 0, 4);
    if (size == 1) size = BigEndianNumber(head, 8, 8);
    if (head.size() < 8 || size < 8 || size > std::numeric_limits<uint64_t>::max() / 4) return {};
    if (head.substr(4, 4) == "moov") {
      if (size > kMaxIndexBytes) return {};
      return {file.Read(offset, static_cast<size_t>(size)), offset};
    }
    offset += size;
  }
  return {};
}

std::vector<Mp4Box> ListMp4Boxes(Mp4Part parent) {
  std::vector<Mp4Box> boxes;
  while (parent.bytes.size() >= 8 && boxes.size() < kMaxBoxes) {
    uint64_t size = BigEndianNumber(parent.bytes, 0, 4);
    size_t head = 8;
    if (size == 1) {
      size = BigEndianNumber(parent.bytes, 8, 8);
      head = 16;
    } else if (size == 0) {
      size = parent.bytes.size();
    }
    if (size < head || size > parent.bytes.size()) break;
    const auto length = static_cast<size_t>(size);
    boxes.push_back({parent.bytes.substr(4, 4),
                     {parent.bytes.substr(head, length - head), parent.offset + head},
                     parent.offset + 4});
    parent = parent.From(length);
  }
  return boxes;
}

Mp4Part FindMp4Box(Mp4Part parent, std::initializer_list<std::string_view> path) {
  for (const std::string_view type : path) {
    const std::vector<Mp4Box> boxes = ListMp4Boxes(parent);
    const auto box = std::find_if(boxes.begin(), boxes.end(), [&](const Mp4Box& other) { return other.type == type; });
    if (box == boxes.end()) return {};
    parent = box->content;
  }
  return parent;
}

std::vector<Mp4Part> ListMp4SoundTracks(const Mp4Index& index) {
  std::vector<Mp4Part> tracks;
  for (const Mp4Box& box : ListMp4Boxes(index.moov())) {
    if (box.type != "trak") continue;
    const Mp4Part handler = FindMp4Box(box.content, {"mdia", "hdlr"});
    if (handler.From(8).bytes.substr(0, 4) == "soun") tracks.push_back(box.content);
  }
  return tracks;
}

qtts::Status CheckMp4(const Mp4Index& index) {
  const Mp4Part moov = index.moov();
  if (moov.bytes.empty()) return NoRecordingError("has no MP4 index, or one of more than 16 MiB");
  const std::vector<Mp4Part> tracks = ListMp4SoundTracks(index);
  if (tracks.empty()) {
    return FindMp4Box(moov, {"rmra"}).bytes.empty() ? NoRecordingError("holds no sound") : ExternalSoundError();
  }
  const Mp4Part information = FindMp4Box(tracks.front(), {"mdia", "minf"});
  const std::vector<Mp4Box> references = ListMp4Boxes(FindMp4Box(information, {"dinf", "dref"}).From(8));
  if (std::any_of(references.begin(), references.end(), IsExternal)) return ExternalSoundError();
  const std::vector<Mp4Box> descriptions = ListMp4Boxes(FindMp4Box(information, {"stbl", "stsd"}).From(8));
  if (descriptions.empty()) return NoRecordingError("describes no sound");
  for (const Mp4Box& description : descriptions) QTTS_RETURN_IF_ERROR(CheckDescription(description));
  return qtts::Status::Ok();
}

std::vector<HiddenBytes> HideMp4Rest(const Mp4Index& index) {
  std::vector<HiddenBytes> hidden;
  const std::vector<Mp4Part> tracks = ListMp4SoundTracks(index);
  if (tracks.empty()) return hidden;
  const auto keep = [&](Mp4Part parent, std::initializer_list<std::string_view> types) {
    for (const Mp4Box& box : ListMp4Boxes(parent)) {
      const bool other_track = box.type == "trak" && box.content.offset != tracks.front().offset;
      const bool kept = std::find(types.begin(), types.end(), box.type) != types.end();
      if (other_track || !kept) hidden.push_back({box.type_offset, "free"});
    }
  };
  keep(index.moov(), {"mvhd", "trak", "mvex"});
  keep(tracks.front(), {"tkhd", "edts", "mdia"});
  return hidden;
}

}  // namespace gstqtts
