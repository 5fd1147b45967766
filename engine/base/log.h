// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_BASE_LOG_H_
#define QTTS_BASE_LOG_H_

#include <chrono>
#include <string>

#include "qtts/log.h"

namespace qtts {

using LogClock = std::chrono::steady_clock;

// Check this before formatting a line.
bool LogEnabled(LogLevel level);
void Log(LogLevel level, const std::string& line);
// Time since `start`, as in "12.3 ms".
std::string ElapsedText(LogClock::time_point start);

}  // namespace qtts

#endif  // QTTS_BASE_LOG_H_
