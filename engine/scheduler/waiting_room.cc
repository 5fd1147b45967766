// SPDX-License-Identifier: LGPL-2.1-or-later
#include "scheduler/waiting_room.h"

#include <utility>

namespace qtts {

void WaitingRoom::Add(const RunningPtr& stream, std::optional<StreamClock::time_point> deadline) {
  Return(stream);
  stream->slot_deadline = deadline;
  if (deadline && (!next_deadline_ || *deadline < *next_deadline_)) next_deadline_ = deadline;
}

RunningPtr WaitingRoom::TakeFirst() {
  RunningPtr stream = std::move(streams_.begin()->second);
  streams_.erase(streams_.begin());
  return stream;
}

void WaitingRoom::Clear() {
  streams_.clear();
  next_deadline_.reset();
  Publish();
}

bool WaitingRoom::HasExpired(StreamClock::time_point now) {
  if (streams_.empty()) next_deadline_.reset();
  return next_deadline_ && now >= *next_deadline_;
}

std::vector<RunningPtr> WaitingRoom::Expired(StreamClock::time_point now) {
  next_deadline_.reset();
  std::vector<RunningPtr> expired;
  for (const auto& [arrival, stream] : streams_) {
    if (!stream->slot_deadline) continue;
    if (now >= *stream->slot_deadline) {
      expired.push_back(stream);
    } else if (!next_deadline_ || *stream->slot_deadline < *next_deadline_) {
      next_deadline_ = stream->slot_deadline;
    }
  }
  return expired;
}

}  // namespace qtts
