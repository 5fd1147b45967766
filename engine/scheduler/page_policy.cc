// SPDX-License-Identifier: LGPL-2.1-or-later
#include "scheduler/page_policy.h"

#include <algorithm>

namespace qtts {

PageForecast::Context PagePolicy::Forecast(const ContextView& context, int64_t page) const {
  const int64_t end = std::max(context.prompt + context.expected, context.now() + page);
  const int64_t last = std::min(end, context.prompt + context.max_new_tokens);
  return {context.now() + PagedContexts::kPositionsAhead, last + PagedContexts::kPositionsAhead};
}

std::optional<bool> PagePolicy::HoldsPrompt(const ContextPages& pages, int64_t prompt, int64_t owed) const {
  const int64_t needed = PagesOf(prompt + PagedContexts::kPositionsAhead, pages.positions);
  if (needed > pages.total) return true;
  if (needed + owed > pages.free) return false;
  return std::nullopt;
}

std::optional<size_t> PagePolicy::FurthestAhead(std::span<const StreamView> streams,
                                                StreamClock::time_point now) const {
  std::optional<size_t> furthest;
  StreamClock::duration longest{0};
  for (size_t i = 0; i < streams.size(); ++i) {
    const StreamClock::duration ahead = streams[i].SoundAhead(now);
    if (furthest && ahead <= longest) continue;
    furthest = i;
    longest = ahead;
  }
  return furthest;
}

std::optional<size_t> PagePolicy::NextToReturn(std::span<const ParkView> parked, StreamClock::time_point now) const {
  std::optional<size_t> next;
  StreamClock::duration shortest{0};
  for (size_t i = 0; i < parked.size(); ++i) {
    if (!parked[i].can_go_on) continue;
    const StreamClock::duration ahead = parked[i].stream.SoundAhead(now);
    if (next && ahead >= shortest) continue;
    next = i;
    shortest = ahead;
  }
  return next;
}

int64_t PagePolicy::PagesToReturn(const ContextPages& pages, int64_t own, int64_t starved, bool returns_soon) const {
  const int64_t spare = returns_soon ? 0 : std::max<int64_t>(1, pages.total / spare_share);
  return own + 1 + starved + spare;
}

}  // namespace qtts
