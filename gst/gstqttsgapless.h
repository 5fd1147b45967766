// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef GST_QTTS_GAPLESS_H_
#define GST_QTTS_GAPLESS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gstqttsrecordingfile.h"
#include "qtts/voice.h"

namespace gstqtts {

// Position of the sound in a decoder's output. Encoders add some milliseconds before it (delay, priming) and after it
// (padding), and store the amounts in the file: MP3 in the tag of its first frame (Xing or Info, with LAME's
// extension), MP4 in an edit list or in iTunes' tag iTunSMPB.
//
// GStreamer's versions treat these differently: not at all, correctly, or with one sample too much at the beginning and
// the last packet missing. The metadata is therefore hidden from GStreamer (`hidden`), which then decodes everything,
// and the sound is cut out here. Ogg and FLAC are not affected: GStreamer cuts Vorbis and Opus as exactly as
// libsndfile.
struct Gapless {
  uint64_t begin = 0;  // of the sound, counted from the first sample that is decoded
  uint64_t end = 0;
  uint64_t rate = 0;     // of these counts, a second; 0: as the decoder's samples
  uint64_t packets = 0;  // of an MP4 track, and how long each is but the last; 0: not known
  uint64_t packet = 0;
  std::vector<HiddenBytes> hidden;
};

// Reads the metadata of the file, which is untrusted input. None if there is no metadata, if it is inconsistent, or if
// it is left to GStreamer, such as an edit list of several parts.
std::optional<Gapless> ReadGapless(const RecordingFile& file);

// Cuts a recording that was decoded with hidden metadata to its sound.
void TrimGapless(const Gapless& gapless, qtts::Recording* recording);

}  // namespace gstqtts

#endif  // GST_QTTS_GAPLESS_H_
