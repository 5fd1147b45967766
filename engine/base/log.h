// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_BASE_LOG_H_
#define QTTS_BASE_LOG_H_

#include <chrono>
#include <string>

#include "qtts/log.h"

namespace qtts {

using LogClock = std::chrono::steady_clock;

// Returns true if lines of this level are logged. Callers check it before they format a line.
bool LogEnabled(LogLevel level);
void Log(LogLevel level, const std::string& line);
// Returns the time since `start`, as in "12.3 ms".
std::string ElapsedText(LogClock::time_point start);

}  // namespace qtts

#endif  // QTTS_BASE_LOG_H_
