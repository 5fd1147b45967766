// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TOOLS_CHECK_H_
#define QTTS_TOOLS_CHECK_H_

#include "options.h"
#include "qtts/status.h"

namespace qtts {

// Runs the command `check`: prints a report of a model folder that others can compare: the model, token ids, the
// prompt, greedy codes and samples of a fixed request, times, memory and versions. With --against it compares the
// report with another one, of the tool or of tests/golden/official-check.py. Returns the exit status: 1 if they differ.
Result<int> Check(const ToolOptions& options);

}  // namespace qtts

#endif  // QTTS_TOOLS_CHECK_H_
