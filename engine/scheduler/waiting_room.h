// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_SCHEDULER_WAITING_ROOM_H_
#define QTTS_SCHEDULER_WAITING_ROOM_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "scheduler/running.h"
#include "scheduler/views.h"

namespace qtts {

// Streams with a prompt that wait for a slot, by arrival. Used by the scheduler's thread alone, except count().
class WaitingRoom {
 public:
  bool empty() const { return streams_.empty(); }
  const RunningPtr& first() const { return streams_.begin()->second; }
  // Adds a stream. `deadline`: time at which it is refused; none: it waits on.
  void Add(const RunningPtr& stream, std::optional<StreamClock::time_point> deadline);
  // Adds a stream again that was taken out.
  void Return(const RunningPtr& stream) { streams_.emplace(stream->arrival, stream); }
  RunningPtr TakeFirst();
  void Remove(const Running& stream) { streams_.erase(stream.arrival); }
  void Clear();

  // Returns the earliest time at which a stream is to be refused.
  const std::optional<StreamClock::time_point>& next_deadline() const { return next_deadline_; }
  // Returns true if one is to be refused now.
  bool HasExpired(StreamClock::time_point now);
  // Returns the streams that are to be refused. They stay until Remove().
  std::vector<RunningPtr> Expired(StreamClock::time_point now);

  // Returns the number of streams at the last Publish().
  int count() const { return count_; }
  void Publish() { count_ = static_cast<int>(streams_.size()); }

 private:
  std::map<uint64_t, RunningPtr> streams_;
  std::optional<StreamClock::time_point> next_deadline_;
  std::atomic<int> count_ = 0;
};

}  // namespace qtts

#endif  // QTTS_SCHEDULER_WAITING_ROOM_H_
