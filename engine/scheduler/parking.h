// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_SCHEDULER_PARKING_H_
#define QTTS_SCHEDULER_PARKING_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/backend.h"
#include "qtts/engine_options.h"
#include "scheduler/length_estimate.h"
#include "scheduler/page_forecast.h"
#include "scheduler/page_policy.h"
#include "scheduler/stream_lists.h"

namespace qtts {

// Gives pages to streams, parks streams when pages are short and brings them back, as PagePolicy decides. Used by the
// scheduler's thread alone, except Tell().
class Parking {
 public:
  // Both must outlive it, apart from Clear().
  Parking(PagedContexts* contexts, StreamLists* lists);

  // Returns a status that is not ok once a call below found that the device is lost.
  const Status& lost() const { return lost_; }
  // Returns true if streams are parked or wait for a page.
  bool streams_wait() const { return !parked_.empty() || !starved_.empty(); }
  StreamClock::time_point LookAgain(StreamClock::time_point now) const { return now + policy_.look_again; }

  // Returns true if the pages are expected to hold the context of a stream that waits, beside all others.
  bool HoldsOneMore(const Running& waiting);
  // Updates the forecast: a slot was opened, or closed; a step of `frames` frames is over.
  void AddOpened(const Running& stream) { forecast_.Add(ForecastOf(stream)); }
  void AddClosed(const Running& stream);
  void AddFrames(size_t frames);

  // Takes pages for the next frame of a stream. If none is free, parks the stream that is furthest ahead, perhaps this
  // one. Returns false if the stream can't go on now.
  bool TakePages(const RunningPtr& stream);
  // Lets streams without a page try again. Returns their number.
  size_t RetryStarved();
  // Brings parked streams back while there are pages, beside those of `starved` streams. Returns one that must end
  // since no other has pages and they don't suffice for it; then the call is to be repeated. Null: all others wait or
  // are back. `returned`: set if one came back.
  RunningPtr ReturnStreams(size_t starved, bool* returned);
  // Returns, if all streams with pages need more, the one that came last, which must end so that others go on.
  RunningPtr LastIfAllStarve() const;
  // Returns the error of a stream that ends for want of pages.
  Status Shortage() const;
  // Takes a stream that has ended, or the part that it spoke, out of the lists.
  void Forget(const RunningPtr& stream);
  // Forgets all streams and the device, which is gone.
  void Clear();

  ContextPages pages() const { return contexts_->pages(); }
  // Publishes the device's numbers for Tell() and the policies.
  void Publish();
  void Tell(Occupancy* occupancy) const;

 private:
  int64_t PagesOf(const Running& stream) const;
  PageForecast::Context ForecastOf(const Running& stream) const;
  int Unparked() const { return lists_->device.speaking() - static_cast<int>(parked_.size()); }
  RunningPtr FurthestAhead(StreamClock::time_point now);
  RunningPtr NextToReturn(StreamClock::time_point now);
  bool Park(const RunningPtr& stream);
  bool Unpark(const RunningPtr& stream);
  void RemoveFromParked(const RunningPtr& stream);
  bool ExchangePages(int64_t pages, StreamClock::duration ahead);
  bool Succeeded(const Status& status);

  PagedContexts* const contexts_;
  StreamLists* const lists_;
  PagePolicy policy_;
  Status lost_;
  LengthEstimate lengths_;
  PageForecast forecast_;  // of the open streams, unless it is outdated
  bool forecast_outdated_ = true;
  std::vector<RunningPtr> parked_;
  std::vector<RunningPtr> starved_;         // need a page, and no stream can be parked
  StreamClock::time_point reserve_again_;   // earliest time of the next PagedContexts::Reserve() after a failure
  StreamClock::time_point exchange_again_;  // earliest time to park a stream in exchange for a parked one
  StreamClock::time_point log_again_;
  bool parking_logged_ = false;
  uint64_t parkings_logged_ = 0;  // of parkings_, when the log last told of them
  // For Tell().
  std::atomic<int64_t> pages_ = 0;
  std::atomic<int64_t> free_pages_ = 0;
  std::atomic<int> parked_count_ = 0;
  std::atomic<uint64_t> parkings_ = 0;
  std::atomic<uint64_t> device_bytes_ = 0;
};

}  // namespace qtts

#endif  // QTTS_SCHEDULER_PARKING_H_
