// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_SCHEDULER_SCHEDULER_H_
#define QTTS_SCHEDULER_SCHEDULER_H_

#include <atomic>
#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "backend/backend.h"
#include "qtts/engine_options.h"
#include "qtts/mutex.h"
#include "scheduler/stream_state.h"

namespace qtts {

// Advances all streams of one engine. One thread asks the backend, frame by frame, for the next frame of every stream
// that has text and whose reader keeps up. A stream that stalls or is full is left out of the step and delays no other.
// Prompts are run in turn, in pieces of about a frame's work between two steps. So a long prompt delays no step,
// cancellation, shutdown or short prompt. Streams wait for a free slot of the backend first come, first served.
//
// Owned by the engine. Expect(), Add() and Wake() may be called from any thread.
class Scheduler {
 public:
  // Starts the thread. Errors: kResourceExhausted.
  static Result<std::unique_ptr<Scheduler>> Create(std::unique_ptr<Backend> backend);
  // Stops the thread. Running streams end with kCancelled.
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // Announces a stream. If the device computes beside the host, an idle scheduler then polls for it for up to 1 ms,
  // since waking a thread takes as long as tokenizing a text.
  void Expect();
  void Add(std::shared_ptr<StreamState> stream);
  // Wakes the thread after a change that may let a stream continue.
  void Wake();
  // True if the backend failed as a whole, or memory ran out outside of it. Every stream ends with that error, now and
  // later.
  bool device_lost() const { return device_lost_; }
  Occupancy occupancy() const { return {slots_, free_slots_, waiting_}; }

 private:
  struct Running;     // a stream and its slot
  struct Submission;  // the streams of a submitted step

  using Clock = std::chrono::steady_clock;

  explicit Scheduler(std::unique_ptr<Backend> backend);
  void Run();
  void RunUntilStopped();
  void WaitForChange() QTTS_REQUIRES(mutex_);
  bool OpenSlots();
  bool Open(const std::shared_ptr<Running>& running);
  void WaitForSlot(Running* running);
  void CloseSlot(Running* running);
  bool RunPrompts();
  bool AnyReaderRunsShort() const;
  bool SubmitStep();
  void CollectStep();
  void DeliverResult(Running& running, FrameResult result);
  void AdoptAdded() QTTS_REQUIRES(mutex_);
  void DropEnded();
  void FailAll(const Status& status);
  void FailAdded(const Status& status);

  std::unique_ptr<Backend> backend_;  // null once the device is lost
  const bool beside_host_;
  const int slots_;
  std::atomic<bool> device_lost_ = false;
  std::atomic<int> free_slots_;
  std::atomic<int> waiting_ = 0;  // streams with a prompt and without a slot

  Mutex mutex_;
  Condition changed_;
  std::deque<std::shared_ptr<StreamState>> added_ QTTS_GUARDED_BY(mutex_);
  bool expected_ QTTS_GUARDED_BY(mutex_) = false;
  // Written with `mutex_` held. Atomic: they are also read without it.
  std::atomic<bool> called_ = false;    // something changed; WaitForChange() polls it
  std::atomic<bool> stopping_ = false;  // checked between a piece of a prompt and a step

  // Used by the scheduler thread only.
  std::vector<std::shared_ptr<Running>> running_;  // in order of arrival
  std::deque<std::shared_ptr<Running>>
      prompts_;   // streams with a prompt in progress; the first one gets the next piece
  int held_ = 0;  // consecutive steps for which long prompts were held back
  std::optional<Clock::time_point> next_deadline_;  // earliest deadline of the streams that wait for a slot
  std::deque<Submission> outstanding_;
  Status device_status_;  // not ok once the device is lost
  std::thread thread_;
};

}  // namespace qtts

#endif  // QTTS_SCHEDULER_SCHEDULER_H_
