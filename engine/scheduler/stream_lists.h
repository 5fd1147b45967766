// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_SCHEDULER_STREAM_LISTS_H_
#define QTTS_SCHEDULER_STREAM_LISTS_H_

#include <vector>

#include "scheduler/running.h"
#include "scheduler/step_policy.h"
#include "scheduler/views.h"

namespace qtts {

// The streams of a scheduler, and the device they share. Used by the scheduler's thread alone.
struct StreamLists {
  DeviceView device;
  StepPolicy step;
  std::vector<RunningPtr> running;  // all
  std::vector<RunningPtr> ready;    // can take part in a step; may hold streams that have ended

  // Adds a stream without allocating memory: MakeRoom() was called since the last one.
  void Add(const RunningPtr& stream);
  void MakeRoom();
  // Takes a stream out of `running`.
  void Remove(const RunningPtr& stream);

  // Returns true if the stream's next frame can be made now. Otherwise something else lists the stream again: its text,
  // a read, or the delivery of a frame in flight.
  bool CanGoOn(const Running& stream) const;
  // Does the same for a stream that has its pages.
  bool CanGoOnWithPages(const Running& stream) const;
  void ListIfReady(const RunningPtr& stream);
  // Returns true if a first frame is in the making: its prompt is run, or it can be part of a step, or is in one.
  bool AwaitsFirstFrame() const;
};

}  // namespace qtts

#endif  // QTTS_SCHEDULER_STREAM_LISTS_H_
