// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TOOLS_SPEAK_H_
#define QTTS_TOOLS_SPEAK_H_

#include "options.h"
#include "qtts/status.h"

namespace qtts {

// Runs `qtts-tool speak`. Returns the exit status: 0, or 128 + the number of the signal that ended the speech early. In
// that case the file holds the sound made so far.
Result<int> Speak(const ToolOptions& options);

}  // namespace qtts

#endif  // QTTS_TOOLS_SPEAK_H_
