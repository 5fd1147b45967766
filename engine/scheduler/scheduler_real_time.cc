// SPDX-License-Identifier: LGPL-2.1-or-later
// The Scheduler's part for utterances that are not real-time (Request::real_time), such as speech for files: they give
// way to those that are.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iterator>

#include "scheduler/running.h"
#include "scheduler/scheduler.h"

namespace qtts {
namespace {

// Sound that readers of real-time streams still have in hand after a step in which others took part.
constexpr std::chrono::milliseconds kInHand{160};
// Longest time for which no stream that is not real-time takes part in a step.
constexpr std::chrono::milliseconds kLongestYield{250};

}  // namespace

// Leaves streams that are not real-time out of the next step where it would take too long with them. They stay listed,
// ahead of those that took part, so that each has its turn.
void Scheduler::YieldToRealTime() {
  // A step must not be left without streams for the sake of one that can't go on.
  std::erase_if(candidates_, [this](const RunningPtr& running) { return !CanGoOn(*running); });
  const auto others = std::stable_partition(candidates_.begin(), candidates_.end(),
                                            [](const RunningPtr& running) { return running->real_time(); });
  if (others == candidates_.end()) return;
  const auto now = Clock::now();
  const auto real_time = static_cast<size_t>(others - candidates_.begin());
  const auto left = candidates_.begin() + static_cast<std::ptrdiff_t>(CandidatesWithinTime(real_time, now));
  if (left != others) others_taken_ = now;
  for (auto running = left; running != candidates_.end(); ++running) (*running)->ready = true;
  ready_.insert(ready_.begin(), std::make_move_iterator(left), std::make_move_iterator(candidates_.end()));
  candidates_.erase(left, candidates_.end());
}

// Returns how many of the candidates a step has time for, of which the first `real_time` are real-time and all take
// part. At least one of the others does if the device would be idle without, or if none took part for long.
size_t Scheduler::CandidatesWithinTime(size_t real_time, Clock::time_point now) {
  size_t count = real_time;
  if (real_time == 0 || now - others_taken_ > kLongestYield) ++count;
  if (!step_model_.fitted()) return count;
  const double seconds = std::chrono::duration<double>(TimeForOthers(now)).count();
  int64_t positions = 0;
  for (size_t i = 0; i < candidates_.size(); ++i) {
    positions += candidates_[i]->positions();
    if (i < count) continue;
    if (step_model_.Predict(static_cast<int64_t>(i + 1), positions, prompts_run_) > seconds) break;
    ++count;
  }
  return count;
}

// How long a step may take for the sake of real-time streams. At most a frame's time, since a first frame, or one whose
// text was late, may be wanted while it runs.
Scheduler::Clock::duration Scheduler::TimeForOthers(Clock::time_point now) const {
  Clock::duration time = kFrameTime;
  for (const RunningPtr& running : running_) {
    if (!running->real_time() || !running->open || running->parked || running->starved) continue;
    if (!running->plays()) return Clock::duration::zero();  // its first frame is awaited
    int32_t text_id = 0;
    const bool ends = running->submitted >= running->max_new_tokens;
    if (ends || running->stream->ended() || !running->NextText(&text_id)) continue;
    // Half of what a stream may have in store, where that is little.
    const auto lead = static_cast<int64_t>(running->stream->lead_frames()) * kFrameTime;
    time = std::min<Clock::duration>(time, SoundAhead(*running, now) - std::min<Clock::duration>(kInHand, lead / 2));
  }
  return time;
}

}  // namespace qtts
