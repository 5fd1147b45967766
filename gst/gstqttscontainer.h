// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef GST_QTTS_CONTAINER_H_
#define GST_QTTS_CONTAINER_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "gstqttsrecordingfile.h"

namespace gstqtts {

// Kinds of files that are read as recordings; no others are. kFlac, kMp3 and kAdts are bare streams of frames.
enum class Container { kWav, kFlac, kMp3, kAdts, kOgg, kMp4, kMatroska };

struct IdentifiedContainer {
  Container container;
  uint64_t begin;  // of its bytes, behind ID3v2 tags
};

// Identifies a file by its first bytes, whatever its name is. Untrusted input. MP3 and ADTS begin with three frames in
// a row; up to 4 KiB may precede these, since such files may be cut out of a stream. None for all other content.
std::optional<IdentifiedContainer> IdentifyContainer(const RecordingFile& file);

// Hides all metadata of a FLAC file that decoding does not need: comments, pictures, cue sheets.
std::vector<HiddenBytes> HideFlacMetadata(const RecordingFile& file, uint64_t begin);

// Returns the name for messages, such as "MP4".
const char* ContainerName(Container container);

}  // namespace gstqtts

#endif  // GST_QTTS_CONTAINER_H_
