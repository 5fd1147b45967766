// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_SCHEDULER_STEP_PLANNER_H_
#define QTTS_SCHEDULER_STEP_PLANNER_H_

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "scheduler/look_ahead.h"
#include "scheduler/stream_lists.h"
#include "scheduler/yield_policy.h"

namespace qtts {

// Chooses the streams of the next step among the ready ones, as StepPolicy and YieldPolicy decide. Used by the
// scheduler's thread alone.
class StepPlanner {
 public:
  // `lists` must outlive it.
  explicit StepPlanner(StreamLists* lists) : lists_(lists) {}

  // Moves the streams of the next step out of the ready ones. Returns false if there are none, or they wait for others
  // until gather_until(). `prompts`: work on prompts since the last step, in frames' work. `ahead`: not null if parts
  // are made ahead of their turn.
  bool Choose(double prompts, const LookAhead* ahead = nullptr);
  std::vector<RunningPtr>& candidates() { return candidates_; }
  // Returns the latest time at which Choose() is to be called again.
  const std::optional<StreamClock::time_point>& gather_until() const { return gather_until_; }

  // Counts a stream of the step, before its frame is submitted.
  void Count(const Running& stream, StreamClock::time_point now);
  // Notes in the device's view whether the streams of a step of `rows` rows were read ahead, newcomers' own steps
  // aside.
  void NoteReadAhead(size_t rows);

 private:
  void NoteLow();
  bool TakeFromReady();
  bool IsStepDue();
  std::vector<RunningPtr>::iterator FillStep(std::vector<RunningPtr>::iterator from, size_t way_rows);
  void YieldToRealTime(double prompts);
  void LimitPartsAhead(const LookAhead& ahead, double prompts);
  void ListAgain(std::ptrdiff_t rows);

  StreamLists* const lists_;
  YieldPolicy yield_;
  std::vector<RunningPtr> candidates_;
  std::optional<StreamClock::time_point> gather_until_;
  std::optional<StreamClock::time_point> gathering_since_;  // time at which the first stream was gathered
  StreamClock::time_point others_taken_;                    // time of the last step of streams that are not real-time
  StreamClock::time_point low_until_;                       // DeviceView::low is not looked at again before
  bool step_of_all_ = true;                                 // the step is no newcomers' own
  size_t read_ahead_ = 0;                                   // streams of the step whose readers are fast
  std::vector<std::pair<StreamClock::time_point, RunningPtr>> by_need_;  // memory for FillStep()
  std::vector<StreamView> views_;                                        // memory for the policies
};

}  // namespace qtts

#endif  // QTTS_SCHEDULER_STEP_PLANNER_H_
