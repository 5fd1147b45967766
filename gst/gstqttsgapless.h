// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef GST_QTTS_GAPLESS_H_
#define GST_QTTS_GAPLESS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "qtts/voice.h"

namespace gstqtts {

// Where the sound lies in what a decoder makes of a file. Encoders put some milliseconds before it (delay, priming)
// and behind it (padding), and note in the file how much: MP3 in the tag of its first frame (Xing or Info, with
// LAME's extension), MP4 in an edit list or in iTunes' tag iTunSMPB.
//
// GStreamer's versions differ in what they do about it: nothing, all, or a sample too much at the beginning and the
// last packet too little. So the notes are hidden from GStreamer (`hidden`), which then decodes everything, and the
// sound is cut out here, once. Ogg and FLAC are not concerned: GStreamer cuts Vorbis and Opus as exactly as
// libsndfile does.
struct Gapless {
  // Bytes of the file that GStreamer sees instead of its own.
  struct Overwrite {
    uint64_t offset;
    std::string bytes;
  };

  uint64_t begin = 0;  // of the sound, counted from the first sample that is decoded
  uint64_t end = 0;
  uint64_t rate = 0;     // of these counts, a second; 0: as the decoder's samples
  uint64_t packets = 0;  // of an MP4 track, and how long each is but the last; 0: not known
  uint64_t packet = 0;
  std::vector<Overwrite> hidden;
};

// What the file at `path` notes. Untrusted input. Nothing if there is no note, if it makes no sense, or if it is one
// that is left to GStreamer, such as an edit list of several parts.
std::optional<Gapless> ReadGapless(const std::string& path);

// Whether anything is hidden in the `size` bytes of the file from `offset` on.
bool HoldsNotes(const Gapless& gapless, uint64_t offset, size_t size);
// Hides it in `data`, which is these bytes.
void HideNotes(const Gapless& gapless, uint64_t offset, uint8_t* data, size_t size);

// Leaves the sound alone of a recording that was decoded with the notes hidden.
void TrimGapless(const Gapless& gapless, qtts::Recording* recording);

}  // namespace gstqtts

#endif  // GST_QTTS_GAPLESS_H_
