// SPDX-License-Identifier: LGPL-2.1-or-later
#include "scheduler/yield_policy.h"

#include <algorithm>

namespace qtts {

StreamClock::duration YieldPolicy::TimeForOthers(std::span<const StreamView> real_time,
                                                 StreamClock::time_point now) const {
  StreamClock::duration time = kFrameTime;
  for (const StreamView& stream : real_time) {
    if (!stream.plays) return StreamClock::duration::zero();  // its first frame is awaited
    if (stream.at_limit || !stream.has_text) continue;
    // Half of what a stream may have in store, where that is little.
    const StreamClock::duration kept = std::min<StreamClock::duration>(in_hand, stream.lead * kFrameTime / 2);
    time = std::min<StreamClock::duration>(time, stream.SoundAhead(now) - kept);
  }
  return time;
}

size_t YieldPolicy::Rows(const StepCost& cost, std::span<const int64_t> positions, size_t real_time, double prompts,
                         StreamClock::duration time, StreamClock::duration yielded) const {
  // One of the others at least if the device would be idle without, or if none took part for long.
  size_t rows = real_time;
  if (real_time == 0 || yielded > longest_yield) ++rows;
  if (!cost.known) return rows;
  const double seconds = std::chrono::duration<double>(time).count();
  int64_t sum = 0;
  for (size_t i = 0; i < positions.size(); ++i) {
    sum += positions[i];
    if (i < rows) continue;
    if (cost.Seconds(static_cast<int64_t>(i + 1), sum, prompts) > seconds) break;
    ++rows;
  }
  return rows;
}

}  // namespace qtts
