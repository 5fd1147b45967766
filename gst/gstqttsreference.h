// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef GST_QTTS_REFERENCE_H_
#define GST_QTTS_REFERENCE_H_

#include <functional>
#include <string>

#include "qtts/status.h"
#include "qtts/voice.h"

namespace gstqtts {

// Decodes a local file: WAV, FLAC, MP3, AAC in ADTS, Ogg, MP4 or M4A, WebM or Matroska with sound in one of the codecs
// of gstqttscodecs.h. The file is untrusted input: its content decides, not its name; no element of the pipeline opens
// another file or an address, and content that refers to others is an error that does not depend on them.
//
// Keeps rate and channels, and removes encoder delay and padding (gstqttsgapless.h). `location`: a path or a file://
// URI. Runs its own pipeline and waits for it. `cancelled` is polled and ends the call early with kCancelled.
//
// Errors: kNotFound, kUnreadable; kUnsupported for other content, for a damaged file, and without a decoder;
// kInvalidArgument for a recording longer than 120 s or with more than 2^25 samples.
qtts::Result<qtts::Recording> ReadReference(const std::string& location, const std::function<bool()>& cancelled);

}  // namespace gstqtts

#endif  // GST_QTTS_REFERENCE_H_
