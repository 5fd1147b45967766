// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TOOLS_SPEAK_H_
#define QTTS_TOOLS_SPEAK_H_

#include "options.h"
#include "qtts/status.h"

namespace qtts {

// `qtts-tool speak`. The exit status: 0, or 128 and the number of the signal that ended the speech early; the file then
// holds what was made before.
Result<int> Speak(const ToolOptions& options);

}  // namespace qtts

#endif  // QTTS_TOOLS_SPEAK_H_
