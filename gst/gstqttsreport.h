// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef GST_QTTS_REPORT_H_
#define GST_QTTS_REPORT_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include "qtts/end_reason.h"

namespace gstqtts {

// A report about an utterance. Each accepted utterance gets exactly one kFinished; before it, if any of its sound left
// the element, one kStarted and one kProgress per word. Text positions are in characters (Unicode code points).
struct Report {
  enum class Kind { kStarted, kProgress, kMark, kFinished };

  Kind kind = Kind::kStarted;
  uint64_t id = 0;
  uint64_t running_time = 0;  // nanoseconds; of the frame that this is about. Not of a kFinished

  // kStarted: with its first frame.
  std::string text;        // as far as it is known
  size_t text_offset = 0;  // characters of its document before `text`
  uint64_t seed = 0;
  std::chrono::nanoseconds first_frame_latency{0};

  // kProgress: the word that begins, estimated.
  size_t offset = 0;
  size_t length = 0;

  // kMark: of a document.
  std::string name;
  size_t position = 0;  // in the document

  // kFinished.
  qtts::EndReason reason = qtts::EndReason::kComplete;
  uint64_t frames = 0;  // that left the element
  uint64_t samples = 0;
  size_t text_chars = 0;
  size_t spoken_chars = 0;  // estimated unless the reason is kComplete
};

}  // namespace gstqtts

#endif  // GST_QTTS_REPORT_H_
