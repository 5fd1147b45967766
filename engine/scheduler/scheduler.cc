// SPDX-License-Identifier: LGPL-2.1-or-later
#include "scheduler/scheduler.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/log.h"
#include "qtts/polling.h"
#include "qtts/resources.h"

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
    case EndReason::kBusy:
      return "without a slot";
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
  std::optional<Prompt> prompt;  // from when it is ready until a slot is free
  std::optional<Clock::time_point> slot_deadline;
  bool waits_for_slot = false;  // no slot was free
  SlotId slot = 0;
  bool open = false;
  bool begun = false;      // a piece of the prompt was run
  bool prefilled = false;  // the whole prompt was run
  LogClock::time_point opened;
  int64_t submitted = 0;  // frames submitted to the backend
  int64_t delivered = 0;
  bool end_logged = false;

  void LogEnd(EndReason reason, int64_t frames) {
    if (std::exchange(end_logged, true) || !LogEnabled(LogLevel::kDebug)) return;
    Log(LogLevel::kDebug,
        "slot " + std::to_string(slot) + ": " + EndText(reason) + " after " + std::to_string(frames) + " frames");
  }
  // Ends the stream after `frames` frames. Logs first, so that the log has the end before anybody is notified.
  void End(EndReason reason, Status status, int64_t frames) {
    LogEnd(reason, frames);
    stream->End(reason, std::move(status));
  }
};

struct Scheduler::Submission {
  std::vector<std::shared_ptr<Running>> streams;  // streams in the order of the steps
  LogClock::time_point start = LogClock::now();
};

Scheduler::Scheduler(std::unique_ptr<Backend> backend)
    : backend_(std::move(backend)),
      beside_host_(backend_->beside_host()),
      slots_(backend_->max_slots()),
      free_slots_(slots_) {}

Result<std::unique_ptr<Scheduler>> Scheduler::Create(std::unique_ptr<Backend> backend) {
  std::unique_ptr<Scheduler> scheduler(new Scheduler(std::move(backend)));
  QTTS_ASSIGN_OR_RETURN(scheduler->thread_, StartThread("speak", [self = scheduler.get()] { self->Run(); }));
  return scheduler;
}

Scheduler::~Scheduler() {
  if (!thread_.joinable()) return;
  {
    const MutexLock lock(mutex_);
    stopping_ = called_ = true;
  }
  changed_.NotifyAll();
  thread_.join();
}

void Scheduler::Expect() {
  if (!beside_host_) return;
  {
    const MutexLock lock(mutex_);
    expected_ = true;
  }
  changed_.NotifyAll();
}

void Scheduler::Add(std::shared_ptr<StreamState> stream) {
  {
    const MutexLock lock(mutex_);
    added_.push_back(std::move(stream));
    called_ = true;
  }
  changed_.NotifyAll();
}

void Scheduler::Wake() {
  {
    const MutexLock lock(mutex_);
    called_ = true;
  }
  changed_.NotifyAll();
}

// When memory runs out in the backend, it ends the affected utterances. An exception that reaches this function has
// left the scheduler's state inconsistent, so all streams fail.
void Scheduler::Run() {
  while (true) {
    const Status status = CatchExhaustion("speak", [this] {
      RunUntilStopped();
      return Status::Ok();
    });
    if (status.ok()) return;
    FailAll(status);
    FailAdded(status);
  }
}

// Fails added streams that have not been moved to running_, for which there may be no memory.
void Scheduler::FailAdded(const Status& status) {
  for (;;) {
    std::shared_ptr<StreamState> stream;
    {
      const MutexLock lock(mutex_);
      if (added_.empty()) return;
      stream = std::move(added_.front());
      added_.pop_front();
    }
    stream->End(EndReason::kError, status);
  }
}

void Scheduler::RunUntilStopped() {
  bool progress = true;  // the last call may have been handled in part
  for (;;) {
    {
      const MutexLock lock(mutex_);
      if (!progress) WaitForChange();
      called_ = expected_ = false;
      if (stopping_) break;
      AdoptAdded();
    }
    DropEnded();
    const bool opened = OpenSlots();
    const bool ran = RunPrompts();
    progress = opened || ran;
    if (stopping_) continue;
    const bool submitted = SubmitStep();
    // Run ahead of the device up to max_outstanding(). Then, or if there is nothing to submit, wait for the device.
    const bool full = !device_lost_ && outstanding_.size() >= static_cast<size_t>(backend_->max_outstanding());
    if (!outstanding_.empty() && (full || !submitted)) {
      CollectStep();
      progress = true;
    }
    progress = progress || submitted;
  }
  while (!outstanding_.empty()) CollectStep();
  const MutexLock lock(mutex_);
  AdoptAdded();
  for (auto& running : running_) {
    running->stream->End(EndReason::kCancelled, Status::Ok());
    CloseSlot(running.get());
  }
}

// A stream is in exactly one of added_ and running_.
void Scheduler::AdoptAdded() {
  for (; !added_.empty(); added_.pop_front()) running_.push_back(std::make_shared<Running>(added_.front()));
}

void Scheduler::WaitForChange() {
  constexpr std::chrono::milliseconds kPatience{1};
  for (;;) {
    while (!called_ && !expected_) {
      if (!next_deadline_) {
        changed_.Wait(mutex_);
      } else if (!changed_.WaitUntil(mutex_, *next_deadline_) && !called_ && !expected_) {
        return;
      }
    }
    if (called_) return;
    expected_ = false;
    const PollPermit permit;
    if (!permit.granted()) continue;
    mutex_.unlock();
    const auto start = std::chrono::steady_clock::now();
    while (!called_ && std::chrono::steady_clock::now() - start < kPatience) std::this_thread::yield();
    mutex_.lock();
  }
}

// Removes streams whose utterance has ended, by the model, an error or Cancel().
void Scheduler::DropEnded() {
  std::erase_if(running_, [this](const std::shared_ptr<Running>& running) {
    if (!running->stream->ended()) return false;
    CloseSlot(running.get());
    running->LogEnd(running->stream->end_reason(), running->delivered);
    return true;
  });
}

void Scheduler::CloseSlot(Running* running) {
  if (!std::exchange(running->open, false)) return;
  backend_->Close(running->slot);
  ++free_slots_;
}

// Opens slots for streams whose prompt is ready, in order, while there are free ones. Returns true if anything changed.
bool Scheduler::OpenSlots() {
  bool changed = false;
  int waiting = 0;
  next_deadline_.reset();
  for (auto& running : running_) {
    if (running->open || running->stream->ended()) continue;
    if (!device_status_.ok()) {
      running->stream->End(EndReason::kError, device_status_);
      changed = true;
      continue;
    }
    if (!running->prompt) running->prompt = running->stream->TakePrompt();
    if (!running->prompt) continue;
    if (free_slots_ == 0) {
      WaitForSlot(running.get());
      if (running->stream->ended()) {
        changed = true;
      } else {
        ++waiting;
      }
      continue;
    }
    changed = true;
    if (!Open(running)) break;
  }
  waiting_ = device_lost_ ? 0 : waiting;
  return changed;
}

// Returns false if the device was lost and all streams have ended.
bool Scheduler::Open(const std::shared_ptr<Running>& running) {
  const Request& request = running->stream->request();
  const size_t rows = running->prompt->rows.size();
  const size_t constant_rows = running->prompt->constant_rows;
  running->opened = LogClock::now();
  Result<SlotId> slot = backend_->Open(*std::exchange(running->prompt, std::nullopt), request.settings, request.seed);
  if (!slot.ok() && slot.status().code() == StatusCode::kDeviceUnavailable) {
    FailAll(slot.status());
    return false;
  }
  if (!slot.ok()) {
    Log(LogLevel::kWarning, "an utterance could not begin: " + slot.status().message());
    running->stream->End(EndReason::kError, slot.status());
    return true;
  }
  running->slot = *slot;
  running->open = true;
  --free_slots_;
  prompts_.push_back(running);
  if (LogEnabled(LogLevel::kDebug)) {
    Log(LogLevel::kDebug, "slot " + std::to_string(running->slot) + ": prompt of " + std::to_string(rows) + " rows, " +
                              std::to_string(constant_rows) + " of them the voice's, seed " +
                              std::to_string(request.seed));
  }
  return true;
}

// Lets a stream wait for a slot, or ends it with kBusy if it has waited for max_wait.
void Scheduler::WaitForSlot(Running* running) {
  constexpr std::chrono::nanoseconds kForever = std::chrono::hours(24 * 365);
  const std::chrono::nanoseconds patience = running->stream->request().max_wait;
  const auto now = Clock::now();
  if (!std::exchange(running->waits_for_slot, true) && patience < kForever) running->slot_deadline = now + patience;
  if (!running->slot_deadline) return;
  if (now >= *running->slot_deadline) {
    std::string message = "all " + std::to_string(slots_) + " slots of the engine are taken";
    if (patience.count() > 0) {
      message += ", and none was freed within the " +
                 std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(patience).count()) +
                 " ms of max-wait";
    }
    running->End(EndReason::kBusy, Status::Busy(message + ": speak fewer at once, or raise max-wait"), 0);
  } else if (!next_deadline_ || *running->slot_deadline < *next_deadline_) {
    next_deadline_ = running->slot_deadline;
  }
}

// True if a speaking stream has few unread frames and could take part in a step.
bool Scheduler::AnyReaderRunsShort() const {
  constexpr size_t kFew = 3;
  return std::any_of(running_.begin(), running_.end(), [](const std::shared_ptr<Running>& running) {
    int32_t text_id = 0;
    const auto in_flight = static_cast<size_t>(running->submitted - running->delivered);
    return running->open && running->delivered > 0 && !running->stream->ended() && running->stream->unread() < kFew &&
           running->stream->NextStep(running->submitted, in_flight, &text_id);
  });
}

// Runs pieces of prompts, about one frame's work in total. Returns true if any ran.
bool Scheduler::RunPrompts() {
  // Prompts that need more than one piece are held back for up to kMostHeld steps while a speaking stream runs short.
  constexpr int kMostHeld = 3;
  const bool hold = !prompts_.empty() && held_ < kMostHeld && AnyReaderRunsShort();
  held_ = hold ? held_ + 1 : 0;
  bool ran = false;
  double work = 0;
  for (size_t left = prompts_.size(); left > 0 && work < 1; --left) {
    const std::shared_ptr<Running> running = std::move(prompts_.front());
    prompts_.pop_front();
    if (!running->open || running->stream->ended()) continue;
    if (hold && running->begun) {
      prompts_.push_back(running);
      continue;
    }
    ran = running->begun = true;
    const auto start = LogClock::now();
    const Result<PrefillProgress> progress = backend_->Prefill(running->slot);
    if (!progress.ok() && progress.status().code() == StatusCode::kDeviceUnavailable) {
      FailAll(progress.status());
      break;
    }
    if (!progress.ok()) {
      Log(LogLevel::kWarning, "an utterance could not begin: " + progress.status().message());
      running->stream->End(EndReason::kError, progress.status());
      continue;
    }
    if (LogEnabled(LogLevel::kTrace)) {
      Log(LogLevel::kTrace, "slot " + std::to_string(running->slot) + ": a piece of its prompt, " + ElapsedText(start));
    }
    work += progress->work;
    running->prefilled = progress->done;
    if (!progress->done) {
      prompts_.push_back(running);
    } else if (LogEnabled(LogLevel::kDebug)) {
      Log(LogLevel::kDebug,
          "slot " + std::to_string(running->slot) + ": prompt taken in " + ElapsedText(running->opened));
    }
  }
  return ran;
}

bool Scheduler::SubmitStep() {
  std::vector<FrameStep> steps;
  Submission submission;
  for (auto& running : running_) {
    if (!running->prefilled || !running->open || running->stream->ended()) continue;
    // Running ahead pays only while there is sound to play. Before that, a second frame would compete with the first
    // for the device.
    if (running->submitted > 0 && running->delivered == 0) continue;
    FrameStep step{running->slot, kNoText};
    const auto in_flight = static_cast<size_t>(running->submitted - running->delivered);
    if (!running->stream->NextStep(running->submitted, in_flight, &step.text_id)) continue;
    ++running->submitted;
    steps.push_back(step);
    submission.streams.push_back(running);
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
    Log(LogLevel::kTrace, "a frame of " + std::to_string(submission.streams.size()) + " streams, " +
                              ElapsedText(submission.start) + " after it was asked for");
  }
  for (size_t i = 0; i < submission.streams.size(); ++i)
    DeliverResult(*submission.streams[i], std::move((*results)[i]));
}

void Scheduler::DeliverResult(Running& running, FrameResult result) {
  const int64_t index = running.delivered++;
  if (result.end == EndReason::kNone) {
    running.stream->Deliver({index, std::move(result.codes), std::move(result.pcm)});
  } else {
    running.End(result.end, std::move(result.status), index);
  }
}

// The device is lost: every stream fails, now and later. A new engine is needed. Allocates nothing.
void Scheduler::FailAll(const Status& status) {
  Log(LogLevel::kWarning, status.message());
  device_status_ = status;
  device_lost_ = true;
  outstanding_.clear();
  prompts_.clear();
  for (auto& running : running_) CloseSlot(running.get());
  // Frees the backend before the streams are notified, since their users may then load a new engine.
  backend_.reset();
  for (auto& running : running_) running->stream->End(EndReason::kError, status);
}

}  // namespace qtts
