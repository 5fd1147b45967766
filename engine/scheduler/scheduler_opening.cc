// SPDX-License-Identifier: LGPL-2.1-or-later
// The scheduler's part for utterances that have not spoken yet: which one begins when, its slot, and its prompt.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "sampling/philox.h"
#include "scheduler/running.h"
#include "scheduler/scheduler.h"

namespace qtts {

// Opens slots for streams whose prompt is ready, in order, while there are free ones. Returns true if anything changed.
bool Scheduler::OpenSlots() {
  bool changed = false;
  while (!waiting_.empty() && free_slots_ > 0 && AdmitsOneMore()) {
    const RunningPtr running = waiting_.begin()->second;
    waiting_.erase(waiting_.begin());
    changed = true;
    if (running->stream->ended()) {
      Remove(running);
    } else if (!Open(running)) {
      break;
    }
  }
  if (next_refusal_) {
    const auto now = Clock::now();
    if (waiting_.empty()) next_refusal_.reset();
    if (next_refusal_ && now >= *next_refusal_) {
      RefuseExpired(now);
      changed = true;
    }
  }
  waiting_count_ = static_cast<int>(waiting_.size());
  return changed;
}

// True if the first waiting stream may begin. A stream that goes on with another part has spoken until now, so there is
// time for it.
bool Scheduler::AdmitsOneMore() {
  const Running& first = *waiting_.begin()->second;
  return HasPagesFor(first) && (first.part > 0 || HasTimeForOneMore());
}

// True if all real-time streams would keep up with their readers beside the first waiting one, and beside as many
// prompts as of late. Always true for one that is not real-time: it gives way to them.
bool Scheduler::HasTimeForOneMore() {
  if (!many_ || real_time_slots_ == 0 || !step_model_.fitted()) return true;
  if (!waiting_.begin()->second->real_time()) return true;
  const int64_t rows = real_time_slots_ + 1;
  const double prompts = prompts_a_second_ * std::chrono::duration<double>(kFrameTime).count();
  return step_model_.Predict(rows, PositionsOf(rows), prompts) * period_watch_.slowness(Clock::now()) <=
         kMostBusySeconds;
}

// Returns false if none can be opened now: the device was lost and all streams have ended, or there were fewer pages
// than it seemed, and the stream waits again.
bool Scheduler::Open(const RunningPtr& running) {
  const Request& request = running->stream->request();
  const size_t rows = running->prompt->rows.size();
  const size_t constant_rows = running->prompt->constant_rows;
  running->own_rows = static_cast<int64_t>(rows - constant_rows);
  running->opened = LogClock::now();
  GenerationSettings settings = request.settings;
  settings.max_new_tokens = running->max_new_tokens;
  const uint64_t seed = SeedOfPart(request.seed, running->part);
  Result<SlotId> slot = backend_->Open(*running->prompt, settings, seed);
  if (!slot.ok() && slot.status().code() == StatusCode::kDeviceUnavailable) {
    FailAll(slot.status());
    return false;
  }
  if (slot.status().code() == StatusCode::kResourceExhausted && !HasPagesFor(*running)) {
    waiting_.emplace(running->arrival, running);
    return false;
  }
  running->prompt.reset();
  if (!slot.ok()) {
    Log(LogLevel::kWarning, "an utterance could not begin: " + slot.status().message());
    running->stream->End(EndReason::kError, slot.status());
    Remove(running);
    return true;
  }
  running->slot = *slot;
  running->open = true;
  --free_slots_;
  if (paged_ != nullptr) forecast_.Add(ForecastOf(*running));
  if (request.real_time) ++real_time_slots_;
  PublishPages();
  prompts_.push_back(running);
  if (LogEnabled(LogLevel::kDebug)) {
    Log(LogLevel::kDebug, "slot " + std::to_string(running->slot) + ": prompt of " + std::to_string(rows) + " rows, " +
                              std::to_string(constant_rows) + " of them the voice's, seed " + std::to_string(seed));
  }
  return true;
}

// The reason why the first waiting stream can't begin, for its error.
std::string Scheduler::DescribeShortage() {
  const std::string speaking = std::to_string(slots_ - free_slots_);
  if (free_slots_ == 0) return "all " + std::to_string(slots_) + " slots of the engine are taken";
  if (!HasPagesFor(*waiting_.begin()->second)) {
    const ContextPages pages = paged_->pages();
    return "the " + speaking + " utterances that speak need the device's memory, or are expected to (" +
           std::to_string(pages.free) + " of " + std::to_string(pages.total) + " pages are free)";
  }
  return "with the " + speaking + " utterances that speak the device has no time for another";
}

// Ends the streams that have waited for a slot for max_wait with kBusy.
void Scheduler::RefuseExpired(Clock::time_point now) {
  next_refusal_.reset();
  std::vector<RunningPtr> late;
  for (const auto& [arrival, running] : waiting_) {
    if (!running->slot_deadline) continue;
    if (now >= *running->slot_deadline) {
      late.push_back(running);
    } else if (!next_refusal_ || *running->slot_deadline < *next_refusal_) {
      next_refusal_ = running->slot_deadline;
    }
  }
  const std::string taken = DescribeShortage();
  for (const RunningPtr& running : late) {
    std::string message = taken;
    if (const std::chrono::nanoseconds patience = running->stream->request().max_wait; patience.count() > 0) {
      message += ", and none ended within the " +
                 std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(patience).count()) +
                 " ms of max-wait";
    }
    running->End(EndReason::kBusy, Status::Busy(message + ": speak fewer at once, or raise max-wait"), 0);
    Remove(running);
  }
}

// True if a real-time stream that speaks has few unread frames and could take part in a step.
bool Scheduler::AnyReaderRunsShort() const {
  constexpr size_t kFew = 3;
  return std::any_of(ready_.begin(), ready_.end(), [](const RunningPtr& running) {
    return running->real_time() && running->open && running->all_delivered() > 0 && !running->stream->ended() &&
           running->stream->unread() < kFew;
  });
}

// Runs a piece of each slot's prompt, in one pass if the backend can.
std::vector<Result<PrefillProgress>> Scheduler::Prefill(std::span<const SlotId> slots) {
  if (shared_prompts_ != nullptr) return shared_prompts_->PrefillTogether(slots);
  std::vector<Result<PrefillProgress>> results;
  for (const SlotId slot : slots) results.push_back(backend_->Prefill(slot));
  return results;
}

// Runs pieces of prompts, about one frame's work in total. Returns true if any ran.
bool Scheduler::RunPrompts() {
  // Prompts that need more than one piece are held back for up to kMostHeld steps while a speaking stream runs short.
  constexpr int kMostHeld = 3;
  const bool hold = !prompts_.empty() && held_ < kMostHeld && AnyReaderRunsShort();
  held_ = hold ? held_ + 1 : 0;
  bool ran = false;
  double work = 0;
  for (size_t left = prompts_.size(); left > 0 && work < 1;) {
    const std::vector<RunningPtr> together = NextPrompts(hold, &left);
    if (together.empty()) break;
    ran = true;
    const auto start = LogClock::now();
    std::vector<SlotId> ids;
    ids.reserve(together.size());
    for (const RunningPtr& running : together) ids.push_back(running->slot);
    const std::vector<Result<PrefillProgress>> results = Prefill(ids);
    if (LogEnabled(LogLevel::kTrace)) {
      Log(LogLevel::kTrace, "pieces of " + std::to_string(ids.size()) + " prompts, the first of slot " +
                                std::to_string(ids.front()) + ": " + ElapsedText(start));
    }
    for (size_t i = 0; i < together.size(); ++i) {
      if (!TakeProgress(together[i], results[i])) return ran;
      if (results[i].ok()) work += results[i]->work;
    }
  }
  prompts_run_ += work;
  return ran;
}

// Takes the first of the next `left` waiting prompts and those that fit into the same pass, for a piece each.
std::vector<Scheduler::RunningPtr> Scheduler::NextPrompts(bool hold, size_t* left) {
  std::vector<RunningPtr> together;
  const int64_t rows_together = shared_prompts_ != nullptr ? shared_prompts_->prompt_rows_together() : 0;
  int64_t rows = 0;
  for (; *left > 0; --*left) {
    if (!together.empty() && rows + prompts_.front()->own_rows > rows_together) break;
    RunningPtr running = std::move(prompts_.front());
    prompts_.pop_front();
    if (!running->open || running->stream->ended()) continue;
    if (hold && running->begun) {
      prompts_.push_back(std::move(running));
      continue;
    }
    running->begun = true;
    rows += running->own_rows;
    together.push_back(std::move(running));
  }
  return together;
}

// Takes the result of a piece of a stream's prompt. False if the device is lost, and with it all streams.
bool Scheduler::TakeProgress(const RunningPtr& running, const Result<PrefillProgress>& progress) {
  if (!progress.ok() && progress.status().code() == StatusCode::kDeviceUnavailable) {
    FailAll(progress.status());
    return false;
  }
  if (!progress.ok()) {
    Log(LogLevel::kWarning, "an utterance could not begin: " + progress.status().message());
    running->stream->End(EndReason::kError, progress.status());
    Remove(running);
    return true;
  }
  running->prefilled = progress->done;
  if (!progress->done) {
    prompts_.push_back(running);
    return true;
  }
  ListIfReady(running);
  if (LogEnabled(LogLevel::kDebug)) {
    Log(LogLevel::kDebug,
        "slot " + std::to_string(running->slot) + ": prompt taken in " + ElapsedText(running->opened));
  }
  return true;
}

}  // namespace qtts
