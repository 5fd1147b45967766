// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TOOLS_USAGE_H_
#define QTTS_TOOLS_USAGE_H_

#include "options.h"
#include "qtts/status.h"

namespace qtts {

// Returns the first error of a parsed command line that shows before a model, a voice or a device is opened: an option
// that the command needs, options that contradict each other, and values that an option does not have.
Status CheckUsage(const ToolOptions& options);

}  // namespace qtts

#endif  // QTTS_TOOLS_USAGE_H_
