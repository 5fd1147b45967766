// SPDX-License-Identifier: LGPL-2.1-or-later
#include "scheduler/prompt_queue.h"

#include <algorithm>
#include <string>

#include "base/log.h"

namespace qtts {

bool PromptQueue::AnyRunsShort(std::span<const RunningPtr> ready) const {
  return std::any_of(ready.begin(), ready.end(), [this](const RunningPtr& stream) {
    return stream->open && !stream->stream->ended() && order_.RunsShort(stream->View());
  });
}

PromptQueue::Progress PromptQueue::Run(std::span<const RunningPtr> ready) {
  const bool hold = !prompts_.empty() && order_.Holds(held_) && AnyRunsShort(ready);
  held_ = hold ? held_ + 1 : 0;
  Progress progress;
  for (size_t left = prompts_.size(); left > 0 && order_.HasTime(progress.work);) {
    const std::vector<RunningPtr> pass = NextPass(hold, &left);
    if (pass.empty()) break;
    progress.any = true;
    const auto start = LogClock::now();
    const std::vector<Result<PrefillProgress>> results = Prefill(pass);
    if (LogEnabled(LogLevel::kTrace)) {
      Log(LogLevel::kTrace, "pieces of " + std::to_string(pass.size()) + " prompts, the first of slot " +
                                std::to_string(pass.front()->slot) + ": " + ElapsedText(start));
    }
    for (size_t i = 0; i < pass.size() && progress.lost.ok(); ++i) Take(pass[i], results[i], &progress);
    if (!progress.lost.ok()) break;
  }
  return progress;
}

// Takes the first of the next `left` prompts and those that fit into the same pass, for a piece each.
std::vector<RunningPtr> PromptQueue::NextPass(bool hold, size_t* left) {
  std::vector<RunningPtr> taken;
  PassView pass{.max_rows = shared_ != nullptr ? shared_->prompt_rows_together() : 0, .hold = hold};
  for (; *left > 0; --*left) {
    const Running& next = *prompts_.front();
    const PromptView view{next.own_rows, next.begun, !next.open || next.stream->ended()};
    const PromptOrder::Choice choice = order_.Choose(view, pass);
    if (choice == PromptOrder::Choice::kFull) break;
    RunningPtr stream = std::move(prompts_.front());
    prompts_.pop_front();
    if (choice == PromptOrder::Choice::kLater) {
      prompts_.push_back(std::move(stream));
    } else if (choice == PromptOrder::Choice::kTake) {
      stream->begun = true;
      ++pass.prompts;
      pass.rows += stream->own_rows;
      taken.push_back(std::move(stream));
    }
  }
  return taken;
}

std::vector<Result<PrefillProgress>> PromptQueue::Prefill(const std::vector<RunningPtr>& pass) {
  if (shared_ != nullptr) {
    std::vector<SlotId> slots;
    slots.reserve(pass.size());
    for (const RunningPtr& stream : pass) slots.push_back(stream->slot);
    return shared_->PrefillTogether(slots);
  }
  std::vector<Result<PrefillProgress>> results;
  for (const RunningPtr& stream : pass) results.push_back(backend_->Prefill(stream->slot));
  return results;
}

// Takes the result of a piece of a stream's prompt.
void PromptQueue::Take(const RunningPtr& stream, const Result<PrefillProgress>& result, Progress* progress) {
  if (!result.ok()) {
    if (result.status().code() == StatusCode::kDeviceUnavailable) {
      progress->lost = result.status();
    } else {
      progress->failed.emplace_back(stream, result.status());
    }
    return;
  }
  progress->work += result->work;
  stream->prefilled = result->done;
  if (!result->done) {
    prompts_.push_back(stream);
    return;
  }
  progress->done.push_back(stream);
  if (LogEnabled(LogLevel::kDebug)) {
    Log(LogLevel::kDebug, "slot " + std::to_string(stream->slot) + ": prompt taken in " + ElapsedText(stream->opened));
  }
}

}  // namespace qtts
