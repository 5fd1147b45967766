// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef GST_QTTS_REPORT_H_
#define GST_QTTS_REPORT_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "qtts/end_reason.h"

namespace gstqtts {

// A run of an utterance's text as it was written.
struct ReportedText {
  size_t offset = 0;
  size_t length = 0;
  std::string text;
};

// The engine's findings about the speech of a whole utterance, in the positions of its text.
struct ReportedCoverage {
  bool measured = false;  // if not, nothing else is known
  double coverage = 1.0;  // share of the text that was spoken
  std::vector<ReportedText> skipped;
  std::vector<ReportedText> repeated;
  bool end_missed = false;
  bool stopped_early = false;
};

// A report about an utterance. Each accepted utterance gets exactly one kFinished; before it, if any of its sound left
// the element, one kStarted and one kProgress per word. Text positions are in characters (Unicode code points).
struct Report {
  enum class Kind { kStarted, kProgress, kMark, kFinished };

  Kind kind = Kind::kStarted;
  uint64_t id = 0;
  uint64_t running_time = 0;  // nanoseconds; of the frame, word or mark. Unused in kFinished

  // kStarted: with its first frame.
  std::string text;        // as far as it is known
  size_t text_offset = 0;  // characters of its document before `text`
  uint64_t seed = 0;
  std::chrono::nanoseconds first_frame_latency{0};

  // kProgress: the word that begins.
  size_t offset = 0;
  size_t length = 0;
  uint64_t duration = 0;  // nanoseconds
  bool estimated = true;  // also of kFinished: its `spoken_chars`

  // kMark: of a document.
  std::string name;
  size_t position = 0;  // in the document

  // kFinished.
  qtts::EndReason reason = qtts::EndReason::kComplete;
  uint64_t frames = 0;  // frames that left the element
  uint64_t samples = 0;
  uint64_t heard = 0;            // nanoseconds of speech that left the element
  std::optional<uint64_t> slot;  // nanoseconds of its cue, if that has a beginning and an end
  uint64_t lateness = 0;         // nanoseconds by which it began after its cue
  size_t text_chars = 0;
  size_t spoken_chars = 0;
  ReportedCoverage coverage;
  int retries = 0;  // how often it was made again
};

}  // namespace gstqtts

#endif  // GST_QTTS_REPORT_H_
