// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TOOLS_ALIGN_H_
#define QTTS_TOOLS_ALIGN_H_

#include "options.h"
#include "qtts/status.h"

namespace qtts {

// Runs the command `align`. Without --codes it finds a checkpoint's alignment head and its offset. With --codes it
// prints the times of the words of an utterance that was spoken before.
Status Align(const ToolOptions& options);

}  // namespace qtts

#endif  // QTTS_TOOLS_ALIGN_H_
