// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gstqttscounts.h"

#include <algorithm>

namespace gstqtts {

void RunCounts::AddFirstFrame(std::chrono::nanoseconds latency) {
  ++first_frames;
  first_frame_latency_last = latency;
  first_frame_latency_sum += latency;
  first_frame_latency_max = std::max(first_frame_latency_max, latency);
}

void RunCounts::AddEnd(qtts::EndReason reason) {
  ++(reason == qtts::EndReason::kCancelled ? interrupted : utterances);
  if (reason == qtts::EndReason::kNothingToSay) ++unsayable;
  if (reason == qtts::EndReason::kRunaway) ++runaways;
}

void RunCounts::AddCoverage(const Report& finished) {
  retries += static_cast<uint64_t>(finished.retries);
  const ReportedCoverage& coverage = finished.coverage;
  if (!coverage.measured) return;
  ++measured;
  coverage_sum += coverage.coverage;
  words_skipped += coverage.skipped.size();
  words_repeated += coverage.repeated.size();
  if (!coverage.skipped.empty() || !coverage.repeated.empty() || coverage.end_missed || coverage.stopped_early) {
    ++incomplete;
  }
}

}  // namespace gstqtts
