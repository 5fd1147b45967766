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

void PromptQueue::BeginTurn(std::span<const RunningPtr> ready, bool awaited) {
  hold_ahead_ = awaited || std::any_of(prompts_.begin(), prompts_.end(), [](const RunningPtr& stream) {
                  return stream->open && !stream->is_ahead() && !stream->stream->ended();
                });
  hold_ = !prompts_.empty() && order_.Holds(held_) && AnyRunsShort(ready);
  held_ = hold_ ? held_ + 1 : 0;
  left_ = prompts_.size();
  work_ = 0;
}

std::optional<PromptQueue::Pass> PromptQueue::RunPass() {
  if (!order_.HasTime(work_)) return std::nullopt;
  const std::vector<RunningPtr> streams = NextPass();
  if (streams.empty()) return std::nullopt;
  const auto start = LogClock::now();
  const std::vector<Result<PrefillProgress>> results = Prefill(streams);
  if (LogEnabled(LogLevel::kTrace)) {
    Log(LogLevel::kTrace, "pieces of " + std::to_string(streams.size()) + " prompts, the first of slot " +
                              std::to_string(streams.front()->slot) + ": " + ElapsedText(start));
  }
  Pass pass;
  for (size_t i = 0; i < streams.size() && pass.lost.ok(); ++i) Take(streams[i], results[i], &pass);
  work_ += pass.work;
  return pass;
}

// Takes the first of the next `left_` prompts and those that fit into the same pass, for a piece each.
std::vector<RunningPtr> PromptQueue::NextPass() {
  std::vector<RunningPtr> taken;
  PassView pass{.max_rows = max_rows_, .hold = hold_, .hold_ahead = hold_ahead_};
  for (; left_ > 0; --left_) {
    const Running& next = *prompts_.front();
    const PromptView view{next.own_rows, next.begun, !next.open || next.stream->ended(), next.is_ahead()};
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
  results.reserve(pass.size());
  for (const RunningPtr& stream : pass) results.push_back(backend_->Prefill(stream->slot));
  return results;
}

// Takes the result of a piece of a stream's prompt.
void PromptQueue::Take(const RunningPtr& stream, const Result<PrefillProgress>& result, Pass* pass) {
  if (!result.ok()) {
    if (result.status().code() == StatusCode::kDeviceUnavailable) {
      pass->lost = result.status();
    } else {
      pass->failed.emplace_back(stream, result.status());
    }
    return;
  }
  pass->work += result->work;
  stream->prefilled = result->done;
  if (!result->done) {
    prompts_.push_back(stream);
    return;
  }
  pass->done.push_back(stream);
  if (LogEnabled(LogLevel::kDebug)) {
    Log(LogLevel::kDebug, "slot " + std::to_string(stream->slot) + ": prompt taken in " + ElapsedText(stream->opened));
  }
}

}  // namespace qtts
