// SPDX-License-Identifier: LGPL-2.1-or-later
#include "scheduler/scheduler.h"

#include <algorithm>
#include <string>
#include <utility>

#include "log/log.h"

namespace qtts {
namespace {

const char* EndText(EndReason reason) {
  switch (reason) {
    case EndReason::kNone:
      break;
    case EndReason::kComplete:
      return "complete";
    case EndReason::kMaxDuration:
      return "at the longest duration";
    case EndReason::kRunaway:
      return "run away";
    case EndReason::kCancelled:
      return "cancelled";
    case EndReason::kError:
      return "failed";
  }
  return "not ended";
}

}  // namespace

struct Scheduler::Running {
  explicit Running(std::shared_ptr<StreamState> s) : stream(std::move(s)) {}

  std::shared_ptr<StreamState> stream;
  SlotId slot = 0;
  bool open = false;
  int64_t submitted = 0;  // frames asked of the backend
  int64_t delivered = 0;
  bool end_logged = false;

  void LogEnd(EndReason reason, int64_t frames) {
    if (std::exchange(end_logged, true) || !LogEnabled(LogLevel::kDebug)) return;
    Log(LogLevel::kDebug,
        "slot " + std::to_string(slot) + ": " + EndText(reason) + " after " + std::to_string(frames) + " frames");
  }
  // After so many frames. Logged first, so that whoever hears of the end finds it in the log.
  void End(EndReason reason, Status status, int64_t frames) {
    LogEnd(reason, frames);
    stream->End(reason, std::move(status));
  }
};

struct Scheduler::Submission {
  std::vector<std::shared_ptr<Running>> takers;  // in the order of the steps
  LogClock::time_point start = LogClock::now();
};

Scheduler::Scheduler(std::unique_ptr<Backend> backend)
    : backend_(std::move(backend)), beside_host_(backend_->beside_host()), thread_([this] { Run(); }) {}

Scheduler::~Scheduler() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = called_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Scheduler::Expect() {
  if (!beside_host_) return;
  {
    std::lock_guard lock(mutex_);
    expected_ = true;
  }
  changed_.notify_all();
}

void Scheduler::Add(std::shared_ptr<StreamState> stream) {
  {
    std::lock_guard lock(mutex_);
    added_.push_back(std::move(stream));
    called_ = true;
  }
  changed_.notify_all();
}

void Scheduler::Wake() {
  {
    std::lock_guard lock(mutex_);
    called_ = true;
  }
  changed_.notify_all();
}

void Scheduler::Run() {
  bool progress = false;
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      if (!progress) AwaitCall(&lock);
      called_ = expected_ = false;
      if (stopping_) break;
      for (auto& stream : added_) running_.push_back(std::make_shared<Running>(std::move(stream)));
      added_.clear();
    }
    DropEnded();
    progress = OpenSlots();
    const bool submitted = SubmitStep();
    // Run ahead of the device as far as it pays; then, or with nothing left to ask for, wait for it.
    const bool full = !device_lost_ && outstanding_.size() >= static_cast<size_t>(backend_->max_outstanding());
    if (!outstanding_.empty() && (full || !submitted)) {
      CollectStep();
      progress = true;
    }
    progress = progress || submitted;
  }
  while (!outstanding_.empty()) CollectStep();
  std::lock_guard lock(mutex_);
  for (auto& stream : added_) running_.push_back(std::make_shared<Running>(std::move(stream)));
  for (auto& running : running_) {
    running->stream->End(EndReason::kCancelled, Status::Ok());
    if (running->open) backend_->Close(running->slot);
  }
}

void Scheduler::AwaitCall(std::unique_lock<std::mutex>* lock) {
  constexpr std::chrono::milliseconds kPatience{1};
  for (;;) {
    changed_.wait(*lock, [this] { return called_ || expected_; });
    if (called_) return;
    expected_ = false;
    lock->unlock();
    const auto start = std::chrono::steady_clock::now();
    while (!called_ && std::chrono::steady_clock::now() - start < kPatience) std::this_thread::yield();
    lock->lock();
  }
}

// Forgets streams whose utterance is over, by the model, by an error or by Cancel().
void Scheduler::DropEnded() {
  std::erase_if(running_, [this](const std::shared_ptr<Running>& running) {
    if (!running->stream->ended()) return false;
    if (running->open) backend_->Close(running->slot);
    running->open = false;
    running->LogEnd(running->stream->end_reason(), running->delivered);
    return true;
  });
}

// Gives every stream whose prompt is ready a slot. Whether anything changed.
bool Scheduler::OpenSlots() {
  bool changed = false;
  for (auto& running : running_) {
    if (running->open) continue;
    if (!device_status_.ok()) {
      running->stream->End(EndReason::kError, device_status_);
      changed = true;
      continue;
    }
    const std::optional<Prompt> prompt = running->stream->TakePrompt();
    if (!prompt) continue;
    changed = true;
    const Request& request = running->stream->request();
    const auto start = LogClock::now();
    Result<SlotId> slot = backend_->Open(*prompt, request.settings, request.seed);
    if (!slot.ok() && slot.status().code() == StatusCode::kDeviceUnavailable) {
      FailAll(slot.status());
      break;
    }
    if (!slot.ok()) {
      Log(LogLevel::kWarning, "an utterance could not begin: " + slot.status().message());
      running->stream->End(EndReason::kError, slot.status());
      continue;
    }
    running->slot = *slot;
    running->open = true;
    if (LogEnabled(LogLevel::kDebug)) {
      Log(LogLevel::kDebug, "slot " + std::to_string(running->slot) + ": prompt of " +
                                std::to_string(prompt->rows.size()) + " rows, " +
                                std::to_string(prompt->constant_rows) + " of them the voice's, taken in " +
                                ElapsedText(start) + ", seed " + std::to_string(request.seed));
    }
  }
  return changed;
}

bool Scheduler::SubmitStep() {
  std::vector<FrameStep> steps;
  Submission submission;
  for (auto& running : running_) {
    if (!running->open || running->stream->ended()) continue;
    // Running ahead pays while there is sound to be heard. Before that, the second frame would only take the device
    // from what is left of the first.
    if (running->submitted > 0 && running->delivered == 0) continue;
    FrameStep step{running->slot, kNoText};
    const auto in_flight = static_cast<size_t>(running->submitted - running->delivered);
    if (!running->stream->NextStep(running->submitted, in_flight, &step.text_id)) continue;
    ++running->submitted;
    steps.push_back(step);
    submission.takers.push_back(running);
  }
  if (steps.empty()) return false;
  if (Status status = backend_->Submit(steps); !status.ok()) {
    FailAll(status);
    return false;
  }
  outstanding_.push_back(std::move(submission));
  return true;
}

void Scheduler::CollectStep() {
  const Submission submission = std::move(outstanding_.front());
  outstanding_.pop_front();
  Result<std::vector<FrameResult>> results = backend_->Collect();
  if (!results.ok()) {
    FailAll(results.status());
    return;
  }
  if (LogEnabled(LogLevel::kTrace)) {
    Log(LogLevel::kTrace, "a frame of " + std::to_string(submission.takers.size()) + " streams, " +
                              ElapsedText(submission.start) + " after it was asked for");
  }
  for (size_t i = 0; i < submission.takers.size(); ++i) Take(*submission.takers[i], std::move((*results)[i]));
}

void Scheduler::Take(Running& running, FrameResult result) {
  const int64_t index = running.delivered++;
  switch (result.end) {
    case FrameEnd::kNone:
      running.stream->Deliver({index, std::move(result.codes), std::move(result.pcm)});
      break;
    case FrameEnd::kEndOfSpeech:
      running.End(EndReason::kComplete, Status::Ok(), index);
      break;
    case FrameEnd::kMaxTokens:
      running.End(EndReason::kMaxDuration, Status::Ok(), index);
      break;
    case FrameEnd::kError:
      running.End(EndReason::kError, std::move(result.status), index);
      break;
  }
}

// The device is lost: every stream fails, now and later. A new engine is needed.
void Scheduler::FailAll(const Status& status) {
  Log(LogLevel::kWarning, "the device is lost: " + status.message());
  device_status_ = status;
  device_lost_ = true;
  outstanding_.clear();
  for (auto& running : running_) {
    if (running->open) backend_->Close(running->slot);
    running->open = false;
  }
  // Before anybody hears of it and asks for a new one.
  backend_.reset();
  for (auto& running : running_) running->stream->End(EndReason::kError, status);
}

}  // namespace qtts
