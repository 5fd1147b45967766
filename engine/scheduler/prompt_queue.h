// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_SCHEDULER_PROMPT_QUEUE_H_
#define QTTS_SCHEDULER_PROMPT_QUEUE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "scheduler/prompt_order.h"
#include "scheduler/running.h"

namespace qtts {

// The prompts in progress, run in the turns that PromptOrder decides. Used by the scheduler's thread alone.
class PromptQueue {
 public:
  // The backend must outlive it, apart from Clear().
  explicit PromptQueue(Backend* backend)
      : backend_(backend),
        shared_(backend->shared_prompts()),
        max_rows_(shared_ != nullptr ? shared_->prompt_rows_together() : 0) {}

  // The results of a pass.
  struct Pass {
    double work = 0;                                    // in frames' work
    std::vector<RunningPtr> done;                       // their whole prompts were run
    std::vector<std::pair<RunningPtr, Status>> failed;  // they are to end
    Status lost;                                        // not ok if the device is lost
  };

  void Add(const RunningPtr& stream) { prompts_.push_back(stream); }
  void Clear() { prompts_.clear(); }
  // Begins the pieces that are run between two steps, about one frame's work in total. `ready`: the streams that could
  // take part in a step. `awaited`: a first frame is in the making, for which parts that are made ahead are held back.
  void BeginTurn(std::span<const RunningPtr> ready, bool awaited);
  // Runs the next pass of the turn; none: its time is over, or no prompt may run.
  std::optional<Pass> RunPass();

 private:
  bool AnyRunsShort(std::span<const RunningPtr> ready) const;
  std::vector<RunningPtr> NextPass();
  std::vector<Result<PrefillProgress>> Prefill(const std::vector<RunningPtr>& pass);
  void Take(const RunningPtr& stream, const Result<PrefillProgress>& result, Pass* pass);

  Backend* const backend_;
  SharedPrompts* const shared_;  // null: a pass has one prompt
  const int64_t max_rows_;       // PassView::max_rows
  PromptOrder order_;
  std::deque<RunningPtr> prompts_;  // the first one gets the next piece
  int held_ = 0;                    // consecutive turns for which prompts were held back
  // This turn:
  bool hold_ = false;
  bool hold_ahead_ = false;
  size_t left_ = 0;  // prompts that have not been looked at
  double work_ = 0;  // in frames' work
};

}  // namespace qtts

#endif  // QTTS_SCHEDULER_PROMPT_QUEUE_H_
