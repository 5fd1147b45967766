// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef GST_QTTS_LIMITS_H_
#define GST_QTTS_LIMITS_H_

#include "qtts/status.h"

namespace gstqtts {

// GLib and GStreamer do not fail cleanly if descriptors or threads run out inside them: polls report errors forever,
// and a pad whose task has no thread blocks the state change that stops it. The resources that an element needs are
// therefore tested in advance.

// Checks that the process can open the files of an element: the weights, which stay open, and, for a reference
// recording, a pipeline with a bus, the recording and the decoders' files.
qtts::Status CheckDescriptors();

// Checks that an element's threads can be started: the loader's, the streaming thread, and GLib's thread that starts
// it. Takes about 0.1 ms.
qtts::Status CheckThreads();

}  // namespace gstqtts

#endif  // GST_QTTS_LIMITS_H_
