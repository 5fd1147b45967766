// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gstqttsgapless.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string_view>
#include <tuple>
#include <utility>

#include "gstqttsmp4.h"

namespace gstqtts {
namespace {

// No count in a file is larger; sums and products of a few stay below 2^63.
constexpr uint64_t kMaxTicks = uint64_t{1} << 40;

std::string BigEndian(uint64_t value, size_t size) {
  std::string bytes(size, '\0');
  for (size_t i = size; i-- > 0; value >>= 8U) bytes[i] = static_cast<char>(value & 0xFFU);
  return bytes;
}

// --- MP3

// Delay of all MPEG audio decoders, in samples.
constexpr uint64_t kDecoderDelay = 529;
constexpr uint64_t kFrameFlag = 1;
constexpr uint64_t kBytesFlag = 2;
constexpr uint64_t kIndexFlag = 4;
constexpr uint64_t kQualityFlag = 8;

// Returns the position at which the first frame begins: behind tags and the zeros that some writers leave behind them.
uint64_t FirstFrame(const RecordingFile& file) {
  const uint64_t offset = SkipId3Tags(file);
  const std::string bytes = file.Read(offset, 4096);
  const size_t zeros = bytes.find_first_not_of('\0');
  return zeros == std::string::npos ? offset : offset + zeros;
}

// Reads the gaps of an MP3 file. The rules are those of mpg123, by which libsndfile and so the official package read
// MP3.
std::optional<Gapless> ReadMp3(const RecordingFile& file) {
  const uint64_t offset = FirstFrame(file);
  const std::string frame = file.Read(offset, 256);
  const uint64_t header = BigEndianNumber(frame, 0, 4);
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
  const uint64_t flags = BigEndianNumber(frame, at + 4, 4);
  const uint64_t frames = BigEndianNumber(frame, at + 8, 4);
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
  if (BigEndianNumber(frame, at, 1) != 0 && at + kDelayAt + 3 <= frame.size()) {
    delay = BigEndianNumber(frame, at + kDelayAt, 3) >> 12U;
    padding = BigEndianNumber(frame, at + kDelayAt, 3) & 0xFFFU;
    gapless.hidden.push_back({offset + at, std::string(kNameSize, '\0')});
    gapless.hidden.push_back({offset + at + kDelayAt, std::string(3, '\0')});
  }
  const uint64_t total = frames * (mpeg1 ? 1152 : 576) + kDecoderDelay;
  gapless.begin = delay + kDecoderDelay;
  gapless.end = total - std::min(total, padding);
  return gapless;
}

// --- MP4

// Returns true if times have 64 bits, as in version 1, and not 32.
bool IsWide(Mp4Part box) { return BigEndianNumber(box.bytes, 0, 1) == 1; }

struct Header {
  uint64_t rate;
  uint64_t duration;
};

// Reads a header: mvhd and mdhd begin alike.
Header ReadHeader(Mp4Part box) {
  if (IsWide(box)) return {BigEndianNumber(box.bytes, 20, 4), BigEndianNumber(box.bytes, 24, 8)};
  return {BigEndianNumber(box.bytes, 12, 4), BigEndianNumber(box.bytes, 16, 4)};
}

struct Packets {
  uint64_t count = 0;
  uint64_t first = 0;  // how long the first one is
  uint64_t total = 0;
};

std::optional<Packets> ReadPackets(Mp4Part stts) {
  Packets packets;
  const uint64_t entries = std::min<uint64_t>(BigEndianNumber(stts.bytes, 4, 4), stts.bytes.size() / 8);
  for (uint64_t i = 0; i < entries; ++i) {
    const uint64_t count = BigEndianNumber(stts.bytes, static_cast<size_t>(8 + 8 * i), 4);
    const uint64_t length = BigEndianNumber(stts.bytes, static_cast<size_t>(12 + 8 * i), 4);
    if (i == 0) packets.first = length;
    packets.count += count;
    if (count * length > kMaxTicks) return std::nullopt;
    packets.total += count * length;
    if (packets.total > kMaxTicks) return std::nullopt;
  }
  return packets;
}

struct Edit {
  uint64_t duration = 0;  // in ticks of the movie
  uint64_t begin = 0;     // in ticks of the track
};

// Returns the edit list's only part; nothing if there are several, or if it is played at another speed.
std::optional<Edit> ReadEdit(Mp4Part elst) {
  std::optional<Edit> edit;
  const bool wide = IsWide(elst);
  const size_t half = wide ? 8 : 4;
  const size_t size = 2 * half + 4;
  const uint64_t none = wide ? ~uint64_t{0} : 0xFFFFFFFFU;
  const uint64_t entries = std::min<uint64_t>(BigEndianNumber(elst.bytes, 4, 4), elst.bytes.size() / size);
  for (uint64_t i = 0; i < entries; ++i) {
    const auto at = static_cast<size_t>(8 + size * i);
    const Edit here{BigEndianNumber(elst.bytes, at, half), BigEndianNumber(elst.bytes, at + half, half)};
    if (here.begin == none) continue;  // a wait before the sound
    if (edit || BigEndianNumber(elst.bytes, at + 2 * half, 4) != 0x10000) return std::nullopt;
    if (here.begin > kMaxTicks || here.duration > kMaxTicks) return std::nullopt;
    edit = here;
  }
  return edit;
}

struct Valid {
  uint64_t begin;
  uint64_t length;
};

// Reads iTunSMPB: numbers in hexadecimal, of which the second is the priming, the fourth the length of the sound.
std::optional<Valid> ReadItunesTag(Mp4Part moov) {
  const Mp4Part meta = FindMp4Box(moov, {"udta", "meta"});
  // QuickTime's has no version and flags before its boxes.
  const bool plain = meta.bytes.size() >= 8 && meta.bytes.substr(4, 4) == "hdlr";
  for (const Mp4Box& item : ListMp4Boxes(FindMp4Box(plain ? meta : meta.From(4), {"ilst"}))) {
    if (item.type != "----") continue;
    if (FindMp4Box(item.content, {"name"}).From(4).bytes != "iTunSMPB") continue;
    const std::string text(FindMp4Box(item.content, {"data"}).From(8).bytes);
    uint64_t numbers[4] = {};
    const char* next = text.c_str();
    for (uint64_t& number : numbers) {
      char* end = nullptr;
      number = std::strtoull(next, &end, 16);
      if (end == next || number > kMaxTicks) return std::nullopt;
      next = end;
    }
    if (numbers[3] > 0) return Valid{numbers[1], numbers[3]};
  }
  return std::nullopt;
}

void HideBox(Mp4Part box, uint64_t type_offset, Gapless* gapless) {
  if (!box.bytes.empty()) gapless->hidden.push_back({type_offset, "free"});
}

std::optional<Gapless> ReadMp4(const RecordingFile& file) {
  const Mp4Index index = ReadMp4Index(file);
  const std::vector<Mp4Part> tracks = ListMp4SoundTracks(index);
  if (tracks.empty()) return std::nullopt;
  const Mp4Part moov = index.moov();
  const Mp4Part trak = tracks.front();
  const Mp4Part mvhd = FindMp4Box(moov, {"mvhd"});
  const Header movie = ReadHeader(mvhd);
  const Header media = ReadHeader(FindMp4Box(trak, {"mdia", "mdhd"}));
  const std::optional<Packets> packets = ReadPackets(FindMp4Box(trak, {"mdia", "minf", "stbl", "stts"}));
  if (movie.rate == 0 || media.rate == 0 || !packets) return std::nullopt;

  Gapless gapless;
  gapless.rate = media.rate;
  gapless.packets = packets->count;
  gapless.packet = packets->first;
  const Mp4Part elst = FindMp4Box(trak, {"edts", "elst"});
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
    gapless.end = edit->duration == 0 ? kMaxTicks : edit->begin + static_cast<uint64_t>(ticks);
    if (packets->total > 0) gapless.end = std::min(gapless.end, packets->total);
  }
  if (gapless.end <= gapless.begin || (gapless.begin == 0 && gapless.end == packets->total)) return std::nullopt;

  // The encoder's name goes, too: the demuxer cuts what it knows of some encoders.
  for (const Mp4Box& box : ListMp4Boxes(moov)) {
    if (box.type == "udta" || box.type == "meta") HideBox(box.content, box.type_offset, &gapless);
  }
  for (const Mp4Box& box : ListMp4Boxes(trak)) {
    if (box.type == "edts" || box.type == "udta" || box.type == "meta") HideBox(box.content, box.type_offset, &gapless);
  }
  // The durations are those of the edited track; the demuxer would stop there.
  if (packets->total > 0) {
    const double seconds = static_cast<double>(packets->total) / static_cast<double>(media.rate) + 1;
    const auto duration = static_cast<uint64_t>(seconds * static_cast<double>(movie.rate));
    const Mp4Part tkhd = FindMp4Box(trak, {"tkhd"});
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

std::optional<Gapless> ReadGapless(const RecordingFile& file) {
  if (auto gapless = ReadMp4(file)) return gapless;
  return ReadMp3(file);
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
