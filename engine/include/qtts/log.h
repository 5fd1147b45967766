// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_LOG_H_
#define QTTS_LOG_H_

namespace qtts {

enum class LogLevel {
  kWarning,  // something failed; whoever it concerns is told by a Status too
  kInfo,     // models loaded and let go
  kDebug,    // voices and utterances
  kTrace,    // steps of the model
};

// Takes what the engine logs. No line holds text that was given to be spoken. Both are called on any thread.
struct LogSink {
  // Whether lines of this level are wanted; others are not even made.
  bool (*enabled)(LogLevel level);
  void (*write)(LogLevel level, const char* line);
};

// Sets the sink of the whole process, which must stay; null, as in the beginning: none. Thread-safe.
void SetLogSink(const LogSink* sink);

}  // namespace qtts

#endif  // QTTS_LOG_H_
