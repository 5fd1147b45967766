// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_LOG_H_
#define QTTS_LOG_H_

namespace qtts {

enum class LogLevel {
  kWarning,  // something failed; a Status reports it too
  kInfo,     // models loaded and released
  kDebug,    // voices and utterances
  kTrace,    // steps of the scheduler and the model
};

// Receives the engine's log lines. No line contains text to be spoken. Both functions are called on any thread.
struct LogSink {
  // True if lines of this level are wanted. Other lines are not formatted.
  bool (*enabled)(LogLevel level);
  void (*write)(LogLevel level, const char* line);
};

// Sets the log sink of the process. It must stay valid. Null, the default: no log. Thread-safe.
void SetLogSink(const LogSink* sink);

}  // namespace qtts

#endif  // QTTS_LOG_H_
