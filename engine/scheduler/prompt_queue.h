// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_SCHEDULER_PROMPT_QUEUE_H_
#define QTTS_SCHEDULER_PROMPT_QUEUE_H_

#include <cstddef>
#include <deque>
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
  explicit PromptQueue(Backend* backend) : backend_(backend), shared_(backend->shared_prompts()) {}

  // What a call of Run() has come to.
  struct Progress {
    bool any = false;                                   // a piece ran
    double work = 0;                                    // in frames' work
    std::vector<RunningPtr> done;                       // their whole prompts were run
    std::vector<std::pair<RunningPtr, Status>> failed;  // they are to end
    Status lost;                                        // not ok if the device is lost
  };

  void Add(const RunningPtr& stream) { prompts_.push_back(stream); }
  void Clear() { prompts_.clear(); }
  // Runs pieces of prompts, about one frame's work in total. `ready`: the streams that could take part in a step.
  Progress Run(std::span<const RunningPtr> ready);

 private:
  bool AnyRunsShort(std::span<const RunningPtr> ready) const;
  std::vector<RunningPtr> NextPass(bool hold, size_t* left);
  std::vector<Result<PrefillProgress>> Prefill(const std::vector<RunningPtr>& pass);
  void Take(const RunningPtr& stream, const Result<PrefillProgress>& result, Progress* progress);

  Backend* const backend_;
  SharedPrompts* const shared_;  // null: a pass has one prompt
  PromptOrder order_;
  std::deque<RunningPtr> prompts_;  // the first one gets the next piece
  int held_ = 0;                    // consecutive calls for which prompts were held back
};

}  // namespace qtts

#endif  // QTTS_SCHEDULER_PROMPT_QUEUE_H_
