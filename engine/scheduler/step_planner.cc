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
  if (lists_->ready.empty()) return false;
  if (lists_->device.many) NoteLow();
  if (!TakeFromReady()) return false;
  if (ahead != nullptr) LimitPartsAhead(*ahead, prompts);
  if (lists_->device.real_time > 0) YieldToRealTime(prompts);
  return true;
}

// Notes in the device's view whether others run low. All streams are looked at, so not for each of newcomers' steps.
void StepPlanner::NoteLow() {
  constexpr std::chrono::milliseconds kLookAgain{10};
  DeviceView& device = lists_->device;
  const StepPolicy& step = lists_->step;
  if (!step.IsCrowded(device)) {
    device.low = false;
    low_until_ = StreamClock::time_point();
    return;
  }
  const auto now = StreamClock::now();
  if (now < low_until_) return;
  low_until_ = now + kLookAgain;
  size_t settled = 0, low = 0;
  for (const RunningPtr& running : lists_->running) {
    if (!running->open || running->is_ahead() || (device.real_time > 0 && !running->real_time())) continue;
    const StreamView stream = running->View();
    if (!step.IsSettled(stream)) continue;
    ++settled;
    if (step.RunsLow(device, stream, now)) ++low;
  }
  device.low = step.AreLow(low, settled);
}

// Returns false if they wait for others.
bool StepPlanner::TakeFromReady() {
  std::vector<RunningPtr>& ready = lists_->ready;
  const DeviceView& device = lists_->device;
  const StepPolicy& step = lists_->step;
  auto end = ready.end();
  step_of_all_ = true;
  if (device.many) {
    const auto now = StreamClock::now();
    const auto others = std::partition(ready.begin(), ready.end(),
                                       [&](const RunningPtr& r) { return step.HasOwnStep(device, r->View()); });
    step_of_all_ = others == ready.begin();
    if (step_of_all_) {
      if (!IsStepDue()) return false;
      gathering_since_.reset();
    }
    const size_t way_rows = step.MakesWay(device) ? step.WayRows(device) : 0;
    const bool full =
        way_rows > 0 &&
        ready.size() >= std::min(way_rows, std::max(step.way_rows, static_cast<size_t>(device.in_time())));
    if (!step_of_all_ || full) {
      // Those whose readers can't wait for another step take part, however many there are.
      end = std::partition(others, ready.end(),
                           [&](const RunningPtr& r) { return step.ComesAlong(device, r->View(), ready.size(), now); });
      const auto is_low = [&](const RunningPtr& r) { return step.IsLow(device, r->View(), now); };
      if (full && (step_of_all_ || std::count_if(end, ready.end(), is_low) >= step.way_low)) {
        end = FillStep(end, way_rows);
      }
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
  const StepPolicy& step = lists_->step;
  const DeviceView& device = lists_->device;
  const std::vector<RunningPtr>& ready = lists_->ready;
  const auto now = StreamClock::now();
  if (step.MakesWay(device) && step.SubmitFrom(device) > now &&
      std::none_of(ready.begin(), ready.end(),
                   [&](const RunningPtr& r) { return step.ComesAlong(device, r->View(), ready.size(), now); })) {
    gather_until_ = step.SubmitFrom(device);
    return false;
  }
  if (step.IsEnough(device, ready.size())) return true;
  if (!gathering_since_) gathering_since_ = now;
  views_.clear();
  for (const RunningPtr& running : ready) views_.push_back(running->View());
  const auto until = step.GatherUntil(device, views_, *gathering_since_, now);
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

// Orders the ready streams after `from` by the time at which they need their frames. Returns the end of the first ones,
// with which those before `from` are a step of `way_rows` rows: a whole one of streams that make way.
std::vector<RunningPtr>::iterator StepPlanner::FillStep(std::vector<RunningPtr>::iterator from, size_t way_rows) {
  const auto now = StreamClock::now();
  const auto taken = static_cast<size_t>(from - lists_->ready.begin());
  if (taken >= way_rows) return from;
  by_need_.clear();
  for (auto next = from; next != lists_->ready.end(); ++next) {
    const StreamView view = (*next)->View();
    by_need_.emplace_back(
        view.plays ? lists_->step.NeedsFrame(lists_->device, view, now) : StreamClock::time_point::min(),
        std::move(*next));
  }
  std::stable_sort(by_need_.begin(), by_need_.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  auto place = from;
  for (auto& [needed, running] : by_need_) *place++ = std::move(running);
  by_need_.clear();
  const size_t rows = std::min(way_rows, lists_->ready.size());
  return lists_->ready.begin() + static_cast<std::ptrdiff_t>(rows);
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
