// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef GST_QTTS_REFERENCE_H_
#define GST_QTTS_REFERENCE_H_

#include <functional>
#include <string>

#include "qtts/status.h"
#include "qtts/voice.h"

namespace gstqtts {

// Decodes the sound of a local file, of any kind that installed GStreamer plugins can decode, with its
// own rate and channels, and without what encoders put around it (gstqttsgapless.h). `location` is a path or a file://
// URI. Runs a pipeline of its own and waits for it; `cancelled` is polled and ends that early with kCancelled.
//
// Errors: kNotFound, kUnreadable; kUnsupported for a file without sound or without a decoder;
// kInvalidArgument for one that is far longer than a reference may be.
qtts::Result<qtts::Recording> ReadReference(const std::string& location, const std::function<bool()>& cancelled);

}  // namespace gstqtts

#endif  // GST_QTTS_REFERENCE_H_
