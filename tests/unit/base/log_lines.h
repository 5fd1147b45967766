// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TESTS_UNIT_BASE_LOG_LINES_H_
#define QTTS_TESTS_UNIT_BASE_LOG_LINES_H_

#include <atomic>
#include <string>

#include "qtts/log.h"
#include "qtts/mutex.h"

namespace qtts {

// Keeps the log's lines of one level while it lives. Engines log on threads of their own, also when it has gone, so the
// lines are the process's: there is one LogLines at a time.
class LogLines {
 public:
  explicit LogLines(LogLevel level) {
    Clear();
    level_ = level;
    SetLogSink(&kSink);
  }
  ~LogLines() { SetLogSink(nullptr); }
  LogLines(const LogLines&) = delete;
  LogLines& operator=(const LogLines&) = delete;

  // Returns the lines since Clear(), each with its end.
  static std::string text() {
    const MutexLock lock(mutex_);
    return text_;
  }
  static void Clear() {
    const MutexLock lock(mutex_);
    text_.clear();
  }

 private:
  static bool Enabled(LogLevel level) { return level == level_; }
  static void Write(LogLevel /*level*/, const char* line) {
    const MutexLock lock(mutex_);
    text_ += std::string(line) + "\n";
  }

  static constexpr LogSink kSink = {Enabled, Write};
  static inline std::atomic<LogLevel> level_ = LogLevel::kInfo;
  static inline Mutex mutex_;
  static inline std::string text_ QTTS_GUARDED_BY(mutex_);
};

}  // namespace qtts

#endif  // QTTS_TESTS_UNIT_BASE_LOG_LINES_H_
