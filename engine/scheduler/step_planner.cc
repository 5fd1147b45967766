// SPDX-License-Identifier: LGPL-2.1-or-later
#include "scheduler/step_planner.h"

#include <algorithm>
#include <cstdint>
#include <iterator>

namespace qtts {

bool StepPlanner::Choose(double prompts, const LookAhead* ahead) {
  gather_until_.reset();
  read_ahead_ = 0;
  std::erase_if(lists_->ready, [](const RunningPtr& running) { return running->removed; });
  if (lists_->ready.empty() || !TakeFromReady()) return false;
  if (ahead != nullptr) LimitPartsAhead(*ahead, prompts);
  if (lists_->device.real_time > 0) YieldToRealTime(prompts);
  return true;
}

// Returns false if they wait for others.
bool StepPlanner::TakeFromReady() {
  std::vector<RunningPtr>& ready = lists_->ready;
  const DeviceView& device = lists_->device;
  auto end = ready.end();
  step_of_all_ = true;
  if (device.many) {
    end = std::partition(ready.begin(), ready.end(),
                         [&](const RunningPtr& r) { return lists_->step.HasOwnStep(device, r->View()); });
    step_of_all_ = end == ready.begin();
    if (!step_of_all_) {
      // Those whose readers can't wait for another step come along, however many newcomers there are.
      end = std::partition(end, ready.end(), [&, now = StreamClock::now()](const RunningPtr& r) {
        return lists_->step.ComesAlong(device, r->View(), ready.size(), now);
      });
    } else {
      if (!IsStepDue()) return false;
      gathering_since_.reset();
      end = ready.end();
    }
  }
  candidates_.assign(std::move_iterator(ready.begin()), std::move_iterator(end));
  ready.erase(ready.begin(), end);
  for (const RunningPtr& running : candidates_) running->ready = false;
  return true;
}

// Returns true if the ready streams should be a step now, rather than wait for others until gather_until_, which is
// set.
bool StepPlanner::IsStepDue() {
  if (lists_->step.IsEnough(lists_->device, lists_->ready.size())) return true;
  const auto now = StreamClock::now();
  if (!gathering_since_) gathering_since_ = now;
  views_.clear();
  for (const RunningPtr& running : lists_->ready) views_.push_back(running->View());
  const auto until = lists_->step.GatherUntil(lists_->device, views_, *gathering_since_, now);
  if (until > now) gather_until_ = until;
  return until <= now;
}

// Leaves parts that are made ahead out of the next step where others would wait for them.
void StepPlanner::LimitPartsAhead(const LookAhead& ahead, double prompts) {
  const auto parts = std::stable_partition(candidates_.begin(), candidates_.end(),
                                           [](const RunningPtr& running) { return !running->is_ahead(); });
  if (parts == candidates_.end()) return;
  const std::ptrdiff_t others = parts - candidates_.begin();
  if (lists_->AwaitsFirstFrame()) return ListAgain(others);
  std::vector<int64_t> positions;
  for (const RunningPtr& running : candidates_) positions.push_back(running->positions());
  const bool beside = std::any_of(lists_->running.begin(), lists_->running.end(), [](const RunningPtr& running) {
    return running->open && !running->ahead && !running->looks_ahead();
  });
  ListAgain(static_cast<std::ptrdiff_t>(
      ahead.Rows(lists_->device.cost, positions, static_cast<size_t>(others), beside, prompts)));
}

// Leaves the candidates behind the first `rows` out of the next step. They are listed ahead of all others.
void StepPlanner::ListAgain(std::ptrdiff_t rows) {
  const auto left = candidates_.begin() + rows;
  for (auto running = left; running != candidates_.end(); ++running) (*running)->ready = true;
  lists_->ready.insert(lists_->ready.begin(), std::make_move_iterator(left),
                       std::make_move_iterator(candidates_.end()));
  candidates_.erase(left, candidates_.end());
}

// Leaves streams that are not real-time out of the next step where it would take too long with them. They stay listed,
// ahead of those that took part, so that each has its turn.
void StepPlanner::YieldToRealTime(double prompts) {
  // A step must not be left without streams for the sake of one that can't go on.
  std::erase_if(candidates_, [this](const RunningPtr& running) { return !lists_->CanGoOn(*running); });
  const auto others = std::stable_partition(candidates_.begin(), candidates_.end(),
                                            [](const RunningPtr& running) { return running->real_time(); });
  if (others == candidates_.end()) return;
  const auto now = StreamClock::now();
  views_.clear();
  for (const RunningPtr& r : lists_->running) {
    if (r->real_time() && r->open && !r->parked && !r->starved && (!r->plays() || !r->stream->ended())) {
      views_.push_back(r->View());
    }
  }
  std::vector<int64_t> positions;
  for (const RunningPtr& running : candidates_) positions.push_back(running->positions());
  const auto rows = static_cast<std::ptrdiff_t>(yield_.Rows(lists_->device.cost, positions,
                                                            static_cast<size_t>(others - candidates_.begin()), prompts,
                                                            yield_.TimeForOthers(views_, now), now - others_taken_));
  const auto left = candidates_.begin() + rows;
  if (left != others) others_taken_ = now;
  ListAgain(rows);
}

void StepPlanner::Count(const Running& stream, StreamClock::time_point now) {
  const DeviceView& device = lists_->device;
  const bool in_time = stream.real_time() || device.real_time == 0;
  if (device.many && in_time && lists_->step.IsReadAhead(stream.View(), now)) ++read_ahead_;
}

void StepPlanner::NoteReadAhead(size_t rows) {
  if (step_of_all_) lists_->device.read_ahead = lists_->step.AreReadAhead(read_ahead_, rows);
}

}  // namespace qtts
