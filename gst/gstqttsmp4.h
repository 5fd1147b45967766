// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef GST_QTTS_MP4_H_
#define GST_QTTS_MP4_H_

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "gstqttsrecordingfile.h"
#include "qtts/status.h"

// Boxes of MP4 and QuickTime files, which are untrusted input.
namespace gstqtts {

// A part of the file, and its offset there.
struct Mp4Part {
  std::string_view bytes;
  uint64_t offset = 0;

  // Returns the rest from `begin` on; empty if there is none.
  Mp4Part From(size_t begin) const {
    return begin > bytes.size() ? Mp4Part{} : Mp4Part{bytes.substr(begin), offset + begin};
  }
};

struct Mp4Box {
  std::string_view type;
  Mp4Part content;
  uint64_t type_offset;
};

// The file's index, box `moov`. All parts and boxes are views of `bytes`.
struct Mp4Index {
  std::string bytes;
  uint64_t offset = 0;

  // Returns the content of `moov`.
  Mp4Part moov() const;
};

// Returns the index of a file that begins with `ftyp`; empty if there is none, or if it is larger than 16 MiB.
Mp4Index ReadMp4Index(const RecordingFile& file);

// Returns the boxes in `parent`, up to the first that makes no sense, 10,000 at most.
std::vector<Mp4Box> ListMp4Boxes(Mp4Part parent);

// Returns the content of the first box at the end of `path`; empty if there is none.
Mp4Part FindMp4Box(Mp4Part parent, std::initializer_list<std::string_view> path);

// Returns the content of all tracks with sound, in their order.
std::vector<Mp4Part> ListMp4SoundTracks(const Mp4Index& index);

// Checks all of the index that a demuxer is given. The demuxer of GStreamer 1.22 ends the process for some indexes: one
// of raw samples without channels makes it divide by 0.
//
// Errors: kUnsupported without an index or a track with sound; for sound that is kept in another file or at an address
// (data reference, redirect); for a sample description that is not one of AAC, MP3, Opus or FLAC, or makes no sense.
qtts::Status CheckMp4(const Mp4Index& index);

// Hides all of the index that decoding the first track with sound does not need: other tracks, tags, attachments.
std::vector<HiddenBytes> HideMp4Rest(const Mp4Index& index);

}  // namespace gstqtts

#endif  // GST_QTTS_MP4_H_
