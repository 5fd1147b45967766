// SPDX-License-Identifier: LGPL-2.1-or-later
#include "base/log.h"

#include <array>
#include <atomic>
#include <cstdio>

namespace qtts {
namespace {

std::atomic<const LogSink*> sink = nullptr;

}  // namespace

void SetLogSink(const LogSink* new_sink) { sink = new_sink; }

bool LogEnabled(LogLevel level) {
  const LogSink* current = sink;
  return current != nullptr && current->enabled(level);
}

void Log(LogLevel level, const std::string& line) {
  const LogSink* current = sink;
  if (current != nullptr && current->enabled(level)) current->write(level, line.c_str());
}

std::string ElapsedText(LogClock::time_point start) {
  std::array<char, 32> text{};
  const std::chrono::duration<double, std::milli> elapsed = LogClock::now() - start;
  std::snprintf(text.data(), text.size(), "%.1f ms", elapsed.count());
  return text.data();
}

}  // namespace qtts
