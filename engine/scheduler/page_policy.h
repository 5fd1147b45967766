// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_SCHEDULER_PAGE_POLICY_H_
#define QTTS_SCHEDULER_PAGE_POLICY_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "backend/backend.h"
#include "scheduler/page_forecast.h"
#include "scheduler/views.h"

namespace qtts {

// The context of a part of an utterance, in positions.
struct ContextView {
  int64_t prompt = 0;
  int64_t submitted = 0;       // of frames
  int64_t expected = 0;        // of frames, when the part ends (LengthEstimate)
  int64_t max_new_tokens = 0;  // of frames, at most

  int64_t now() const { return prompt + submitted; }
};

// A stream that could be parked, or is.
struct ParkView {
  StreamView stream;
  bool can_go_on = true;  // its next frame can be made, apart from pages
};

// Decides which utterance has pages to begin, which stream is parked when pages are short, and which one returns.
struct PagePolicy {
  // One in so many pages is a margin for errors of the forecast. As many stay free when a parked stream returns whose
  // reader still has sound.
  int64_t spare_share = 20;
  // A parked stream returns, if need be in exchange for another, when its reader has no more sound than this.
  StreamClock::duration soon = 4 * kFrameTime;
  // The other stream must have so much more. With less, the same pages would move back and forth.
  StreamClock::duration margin = 3 * kFrameTime;
  // Exchanges delay all streams by copies. The next one may come only this time later for each page that is moved: a
  // page of 14 MB takes 270 us over PCIe 5.
  std::chrono::microseconds exchange_time{300};
  // Time after which the device is asked again for a page that it did not have.
  std::chrono::milliseconds reserve_again{20};
  // Streams that wait for pages are looked at so often, if nothing else happens.
  std::chrono::milliseconds look_again{20};

  static int64_t PagesOf(int64_t positions, int64_t page) { return (positions + page - 1) / page; }
  // Returns a part's context now and at its expected end. One that outlives the estimate is expected to last a page
  // more.
  PageForecast::Context Forecast(const ContextView& context, int64_t page) const;

  // Returns whether there are pages for a prompt and its first frames, beside `owed` pages of parked streams; none if
  // HoldsToTheEnd() decides. True for a prompt that needs more than all pages: the backend refuses it with an error.
  std::optional<bool> HoldsPrompt(const ContextPages& pages, int64_t prompt, int64_t owed) const;
  // Returns true if `max_pages`, the most that all contexts take until their streams end, leave the margin.
  bool HoldsToTheEnd(const ContextPages& pages, int64_t max_pages) const {
    return max_pages <= pages.total - pages.total / spare_share;
  }

  // Returns which of the streams whose reader has a first frame is parked: the one with the most sound in hand.
  std::optional<size_t> FurthestAhead(std::span<const StreamView> streams, StreamClock::time_point now) const;
  // Returns which parked stream returns first: of those that can go on the one with the least sound in hand.
  std::optional<size_t> NextToReturn(std::span<const ParkView> parked, StreamClock::time_point now) const;
  // Returns true if the reader of a parked stream is about to run dry, or is faster than the sound is played.
  bool ReturnsSoon(const StreamView& parked, StreamClock::time_point now) const {
    return parked.SoundAhead(now) < soon || parked.ahead() == 0;
  }
  // Returns the pages that must be free for a parked stream with `own` pages to return, beside `starved` streams that
  // need one each.
  int64_t PagesToReturn(const ContextPages& pages, int64_t own, int64_t starved, bool returns_soon) const;
  // Returns true if `other` may be parked in exchange for a stream with `ahead` of sound.
  bool MayExchange(const ParkView& other, StreamClock::duration ahead, StreamClock::time_point now) const {
    return !other.can_go_on || other.stream.SoundAhead(now) >= ahead + margin;
  }
  // Returns the earliest time of the next exchange after one for which `pages` pages were parked. As many come back.
  StreamClock::time_point NextExchange(int64_t pages, StreamClock::time_point now) const {
    return now + 2 * pages * exchange_time;
  }
};

}  // namespace qtts

#endif  // QTTS_SCHEDULER_PAGE_POLICY_H_
