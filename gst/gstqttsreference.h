// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef GST_QTTS_REFERENCE_H_
#define GST_QTTS_REFERENCE_H_

#include <functional>
#include <string>

#include "qtts/status.h"
#include "qtts/voice.h"

namespace gstqtts {

// Decodes a local file in any format that installed GStreamer plugins can decode. Keeps its rate and channels, and
// removes encoder delay and padding (gstqttsgapless.h). `location`: a path or a file:// URI. Runs its own pipeline and
// waits for it. `cancelled` is polled and ends the call early with kCancelled.
//
// Errors: kNotFound, kUnreadable; kUnsupported for a file without sound or without a decoder;
// kInvalidArgument for one that is far longer than a reference may be.
qtts::Result<qtts::Recording> ReadReference(const std::string& location, const std::function<bool()>& cancelled);

}  // namespace gstqtts

#endif  // GST_QTTS_REFERENCE_H_
