// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gstqttsgapless.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <initializer_list>
#include <limits>
#include <string_view>
#include <tuple>
#include <utility>

namespace gstqtts {
namespace {

// Maximum size of the `moov` box. One hour of sound has 1 MiB.
constexpr uint64_t kMostIndex = uint64_t{16} << 20;
// Maximum number of tags or boxes skipped before it, so that a file of nothing else does not take minutes.
constexpr int kMostSkipped = 1000;
// No count in a file is larger; sums and products of a few stay below 2^63.
constexpr uint64_t kMostTicks = uint64_t{1} << 40;

// `size` big-endian bytes at `offset`; 0 where there are none.
uint64_t Number(std::string_view bytes, size_t offset, size_t size) {
  if (offset > bytes.size() || size > bytes.size() - offset) return 0;
  uint64_t value = 0;
  for (const char byte : bytes.substr(offset, size)) value = value << 8U | static_cast<uint8_t>(byte);
  return value;
}

std::string BigEndian(uint64_t value, size_t size) {
  std::string bytes(size, '\0');
  for (size_t i = size; i-- > 0; value >>= 8U) bytes[i] = static_cast<char>(value & 0xFFU);
  return bytes;
}

// Up to `size` bytes of the file.
std::string Read(std::ifstream* file, uint64_t offset, size_t size) {
  std::string bytes(size, '\0');
  file->clear();
  file->seekg(static_cast<std::streamoff>(offset));
  file->read(bytes.data(), static_cast<std::streamsize>(size));
  bytes.resize(static_cast<size_t>(std::max<std::streamsize>(file->gcount(), 0)));
  return bytes;
}

// --- MP3

// Delay of all MPEG audio decoders, in samples.
constexpr uint64_t kDecoderDelay = 529;
constexpr uint64_t kFrameFlag = 1;
constexpr uint64_t kBytesFlag = 2;
constexpr uint64_t kIndexFlag = 4;
constexpr uint64_t kQualityFlag = 8;

// Where the first frame begins: behind tags and the zeros that some writers leave behind them.
uint64_t FirstFrame(std::ifstream* file) {
  uint64_t offset = 0;
  for (int skipped = 0; skipped < kMostSkipped; ++skipped) {
    const std::string head = Read(file, offset, 10);
    if (head.size() < 10 || head.substr(0, 3) != "ID3") break;
    uint64_t size = 0;
    for (size_t i = 6; i < 10; ++i) size = size << 7U | (static_cast<uint8_t>(head[i]) & 0x7FU);
    const bool footer = (static_cast<uint8_t>(head[5]) & 0x10U) != 0;
    offset += 10 + size + (footer ? 10 : 0);
  }
  const std::string bytes = Read(file, offset, 4096);
  const size_t zeros = bytes.find_first_not_of('\0');
  return zeros == std::string::npos ? offset : offset + zeros;
}

// The rules are those of mpg123, by which libsndfile and so the official package read MP3.
std::optional<Gapless> ReadMp3(std::ifstream* file) {
  const uint64_t offset = FirstFrame(file);
  const std::string frame = Read(file, offset, 256);
  const uint64_t header = Number(frame, 0, 4);
  const uint64_t version = header >> 19U & 3U;  // 3: MPEG-1, 2: MPEG-2, 0: MPEG-2.5
  const bool layer3 = (header >> 17U & 3U) == 1;
  const bool valid = (header >> 12U & 15U) != 15 && (header >> 10U & 3U) != 3;
  if (header >> 21U != 0x7FFU || version == 1 || !layer3 || !valid) return std::nullopt;
  const bool mpeg1 = version == 3;
  const bool mono = (header >> 6U & 3U) == 3;
  const size_t side_info = mpeg1 ? (mono ? 17 : 32) : (mono ? 9 : 17);

  size_t at = 4 + side_info;
  const std::string_view all = frame;
  if (at + 8 > all.size() || (all.substr(at, 4) != "Xing" && all.substr(at, 4) != "Info")) return std::nullopt;
  const uint64_t flags = Number(frame, at + 4, 4);
  const uint64_t frames = Number(frame, at + 8, 4);
  if ((flags & kFrameFlag) == 0 || frames == 0) return std::nullopt;
  at += 12;
  if ((flags & kBytesFlag) != 0) at += 4;
  if ((flags & kIndexFlag) != 0) at += 100;
  if ((flags & kQualityFlag) != 0) at += 4;

  // For an unnamed encoder, only the decoders' delay is known.
  Gapless gapless;
  uint64_t delay = 0;
  uint64_t padding = 0;
  constexpr size_t kNameSize = 9;
  constexpr size_t kDelayAt = 21;
  if (Number(frame, at, 1) != 0 && at + kDelayAt + 3 <= frame.size()) {
    delay = Number(frame, at + kDelayAt, 3) >> 12U;
    padding = Number(frame, at + kDelayAt, 3) & 0xFFFU;
    gapless.hidden.push_back({offset + at, std::string(kNameSize, '\0')});
    gapless.hidden.push_back({offset + at + kDelayAt, std::string(3, '\0')});
  }
  const uint64_t total = frames * (mpeg1 ? 1152 : 576) + kDecoderDelay;
  gapless.begin = delay + kDecoderDelay;
  gapless.end = total - std::min(total, padding);
  return gapless;
}

// --- MP4

// A part of the file, and where it is.
struct Part {
  std::string_view bytes;
  uint64_t offset = 0;

  Part From(size_t begin) const { return begin > bytes.size() ? Part{} : Part{bytes.substr(begin), offset + begin}; }
};

struct Box {
  std::string_view type;
  Part content;
  uint64_t type_offset;
};

// The boxes in `parent`, up to the first that makes no sense.
std::vector<Box> BoxesOf(Part parent) {
  std::vector<Box> boxes;
  while (parent.bytes.size() >= 8) {
    uint64_t size = Number(parent.bytes, 0, 4);
    size_t head = 8;
    if (size == 1) {
      size = Number(parent.bytes, 8, 8);
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

// What the first box at the end of `path` holds; nothing if there is none.
Part Find(Part parent, std::initializer_list<std::string_view> path) {
  for (const std::string_view type : path) {
    const std::vector<Box> boxes = BoxesOf(parent);
    const auto box = std::find_if(boxes.begin(), boxes.end(), [&](const Box& other) { return other.type == type; });
    if (box == boxes.end()) return {};
    parent = box->content;
  }
  return parent;
}

// Times of 32 or, in version 1, of 64 bits.
bool IsWide(Part box) { return Number(box.bytes, 0, 1) == 1; }

struct Header {
  uint64_t rate;
  uint64_t duration;
};

// mvhd and mdhd begin alike.
Header ReadHeader(Part box) {
  if (IsWide(box)) return {Number(box.bytes, 20, 4), Number(box.bytes, 24, 8)};
  return {Number(box.bytes, 12, 4), Number(box.bytes, 16, 4)};
}

struct Packets {
  uint64_t count = 0;
  uint64_t first = 0;  // how long the first one is
  uint64_t total = 0;
};

std::optional<Packets> ReadPackets(Part stts) {
  Packets packets;
  const uint64_t entries = std::min<uint64_t>(Number(stts.bytes, 4, 4), stts.bytes.size() / 8);
  for (uint64_t i = 0; i < entries; ++i) {
    const uint64_t count = Number(stts.bytes, static_cast<size_t>(8 + 8 * i), 4);
    const uint64_t length = Number(stts.bytes, static_cast<size_t>(12 + 8 * i), 4);
    if (i == 0) packets.first = length;
    packets.count += count;
    if (count * length > kMostTicks) return std::nullopt;
    packets.total += count * length;
    if (packets.total > kMostTicks) return std::nullopt;
  }
  return packets;
}

struct Edit {
  uint64_t duration = 0;  // in ticks of the movie
  uint64_t begin = 0;     // in ticks of the track
};

// The edit list's only part; nothing if there are several, or if it is played at another speed.
std::optional<Edit> ReadEdit(Part elst) {
  std::optional<Edit> edit;
  const bool wide = IsWide(elst);
  const size_t half = wide ? 8 : 4;
  const size_t size = 2 * half + 4;
  const uint64_t none = wide ? ~uint64_t{0} : 0xFFFFFFFFU;
  const uint64_t entries = std::min<uint64_t>(Number(elst.bytes, 4, 4), elst.bytes.size() / size);
  for (uint64_t i = 0; i < entries; ++i) {
    const auto at = static_cast<size_t>(8 + size * i);
    const Edit here{Number(elst.bytes, at, half), Number(elst.bytes, at + half, half)};
    if (here.begin == none) continue;  // a wait before the sound
    if (edit || Number(elst.bytes, at + 2 * half, 4) != 0x10000) return std::nullopt;
    if (here.begin > kMostTicks || here.duration > kMostTicks) return std::nullopt;
    edit = here;
  }
  return edit;
}

struct Valid {
  uint64_t begin;
  uint64_t length;
};

// iTunSMPB: numbers in hexadecimal, of which the second is the priming, the fourth the length of the sound.
std::optional<Valid> ReadItunesTag(Part moov) {
  const Part meta = Find(moov, {"udta", "meta"});
  // QuickTime's has no version and flags before its boxes.
  const bool plain = meta.bytes.size() >= 8 && meta.bytes.substr(4, 4) == "hdlr";
  for (const Box& item : BoxesOf(Find(plain ? meta : meta.From(4), {"ilst"}))) {
    if (item.type != "----") continue;
    if (Find(item.content, {"name"}).From(4).bytes != "iTunSMPB") continue;
    const std::string text(Find(item.content, {"data"}).From(8).bytes);
    uint64_t numbers[4] = {};
    const char* next = text.c_str();
    for (uint64_t& number : numbers) {
      char* end = nullptr;
      number = std::strtoull(next, &end, 16);
      if (end == next || number > kMostTicks) return std::nullopt;
      next = end;
    }
    if (numbers[3] > 0) return Valid{numbers[1], numbers[3]};
  }
  return std::nullopt;
}

// The file's index; empty if it is no MP4.
std::pair<std::string, uint64_t> ReadIndex(std::ifstream* file) {
  uint64_t offset = 0;
  if (Read(file, 4, 4) != "ftyp") return {};
  for (int i = 0; i < kMostSkipped; ++i) {
    const std::string head = Read(file, offset, 16);
    uint64_t size = Number(head, 0, 4);
    if (size == 1) size = Number(head, 8, 8);
    if (head.size() < 8 || size < 8 || size > std::numeric_limits<uint64_t>::max() / 4) return {};
    if (head.substr(4, 4) == "moov") {
      if (size > kMostIndex) return {};
      return {Read(file, offset, static_cast<size_t>(size)), offset};
    }
    offset += size;
  }
  return {};
}

void HideBox(Part box, uint64_t type_offset, Gapless* gapless) {
  if (!box.bytes.empty()) gapless->hidden.push_back({type_offset, "free"});
}

std::optional<Gapless> ReadMp4(std::ifstream* file) {
  const auto [index, offset] = ReadIndex(file);
  const Part moov = Find({index, offset}, {"moov"});
  const std::vector<Box> boxes = BoxesOf(moov);
  const auto track = std::find_if(boxes.begin(), boxes.end(), [](const Box& box) {
    return box.type == "trak" && Number(Find(box.content, {"mdia", "hdlr"}).bytes, 8, 4) == Number("soun", 0, 4);
  });
  if (track == boxes.end()) return std::nullopt;
  const Part trak = track->content;
  const Part mvhd = Find(moov, {"mvhd"});
  const Header movie = ReadHeader(mvhd);
  const Header media = ReadHeader(Find(trak, {"mdia", "mdhd"}));
  const std::optional<Packets> packets = ReadPackets(Find(trak, {"mdia", "minf", "stbl", "stts"}));
  if (movie.rate == 0 || media.rate == 0 || !packets) return std::nullopt;

  Gapless gapless;
  gapless.rate = media.rate;
  gapless.packets = packets->count;
  gapless.packet = packets->first;
  const Part elst = Find(trak, {"edts", "elst"});
  const std::optional<Edit> edit = ReadEdit(elst);
  if (!elst.bytes.empty() && !edit) return std::nullopt;
  if (const auto valid = ReadItunesTag(moov)) {
    gapless.begin = valid->begin;
    gapless.end = valid->begin + valid->length;
  } else if (edit) {
    // Rounded up: the movie's ticks are often milliseconds. The track ends where its packets do.
    const auto ticks = std::ceil(static_cast<double>(edit->duration) * static_cast<double>(media.rate) /
                                 static_cast<double>(movie.rate));
    gapless.begin = edit->begin;
    gapless.end = edit->duration == 0 ? kMostTicks : edit->begin + static_cast<uint64_t>(ticks);
    if (packets->total > 0) gapless.end = std::min(gapless.end, packets->total);
  }
  if (gapless.end <= gapless.begin || (gapless.begin == 0 && gapless.end == packets->total)) return std::nullopt;

  // The encoder's name goes, too: the demuxer cuts what it knows of some encoders.
  for (const Box& box : boxes) {
    if (box.type == "udta" || box.type == "meta") HideBox(box.content, box.type_offset, &gapless);
  }
  for (const Box& box : BoxesOf(trak)) {
    if (box.type == "edts" || box.type == "udta" || box.type == "meta") HideBox(box.content, box.type_offset, &gapless);
  }
  // The durations are those of the edited track; the demuxer would stop there.
  if (packets->total > 0) {
    const double seconds = static_cast<double>(packets->total) / static_cast<double>(media.rate) + 1;
    const auto duration = static_cast<uint64_t>(seconds * static_cast<double>(movie.rate));
    const Part tkhd = Find(trak, {"tkhd"});
    for (const auto& [box, narrow, wide] : {std::tuple(mvhd, 16, 24), std::tuple(tkhd, 20, 28)}) {
      const size_t size = IsWide(box) ? 8 : 4;
      const auto at = static_cast<size_t>(IsWide(box) ? wide : narrow);
      if (at + size > box.bytes.size() || (size == 4 && duration > 0xFFFFFFFEU)) return std::nullopt;
      gapless.hidden.push_back({box.offset + at, BigEndian(duration, size)});
    }
  }
  return gapless;
}

}  // namespace

std::optional<Gapless> ReadGapless(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  if (auto gapless = ReadMp4(&file)) return gapless;
  return ReadMp3(&file);
}

bool HasHiddenBytes(const Gapless& gapless, uint64_t offset, size_t size) {
  return std::any_of(gapless.hidden.begin(), gapless.hidden.end(), [&](const Gapless::Overwrite& part) {
    return part.offset < offset + size && offset < part.offset + part.bytes.size();
  });
}

void HideMetadata(const Gapless& gapless, uint64_t offset, uint8_t* data, size_t size) {
  for (const Gapless::Overwrite& part : gapless.hidden) {
    for (size_t i = 0; i < part.bytes.size(); ++i) {
      const uint64_t at = part.offset + i;
      if (at >= offset && at - offset < size) data[at - offset] = static_cast<uint8_t>(part.bytes[i]);
    }
  }
}

void TrimGapless(const Gapless& gapless, qtts::Recording* recording) {
  const auto channels = static_cast<size_t>(recording->channels);
  const uint64_t decoded = recording->samples.size() / channels;
  const auto samples = [&](uint64_t ticks) {
    if (gapless.rate == 0) return ticks;
    return static_cast<uint64_t>(
        std::llround(static_cast<double>(ticks) * recording->sample_rate / static_cast<double>(gapless.rate)));
  };
  uint64_t begin = samples(gapless.begin);
  uint64_t end = samples(gapless.end);
  // faad swallows the first packet, and gives all of the last.
  if (gapless.packets > 1 && decoded == samples((gapless.packets - 1) * gapless.packet)) {
    const uint64_t swallowed = samples(gapless.packet);
    begin -= std::min(begin, swallowed);
    end -= std::min(end, swallowed);
  }
  end = std::min(end, decoded);
  if (begin >= end) return;
  auto& pcm = recording->samples;
  pcm.resize(static_cast<size_t>(end) * channels);
  pcm.erase(pcm.begin(), pcm.begin() + static_cast<std::ptrdiff_t>(begin * channels));
}

}  // namespace gstqtts
