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

// Advances all streams of one engine: one thread that asks the backend, frame by frame, for the next
// frame of every stream that has text to go on and a reader that keeps up. A stream that stalls or is
// full is left out of the step and holds up no other. Prompts are run piece by piece, by about a frame's work between
// two steps and in turn: neither a step, nor a cancelled stream, nor the end of the scheduler, nor a short prompt waits
// for a long one. Streams that find no slot of the backend wait for one, first come, first served.
//
// Owned by the engine. Expect(), Add() and Wake() may be called from any thread.
class Scheduler {
 public:
  // Starts the thread. Errors: kResourceExhausted.
  static Result<std::unique_ptr<Scheduler>> Create(std::unique_ptr<Backend> backend);
  // Stops the thread; streams still running end with kCancelled.
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // A stream is about to be added. Where the device computes beside the host, an idle scheduler then waits for it
  // awake, for a millisecond at most: waking up takes as long as making tokens of a text.
  void Expect();
  void Add(std::shared_ptr<StreamState> stream);
  // Something changed that may let a stream go on.
  void Wake();
  // Whether the backend failed as a whole, or memory ran out outside of it: every stream ends with that error, now and
  // later.
  bool device_lost() const { return device_lost_; }
  Occupancy occupancy() const { return {slots_, free_slots_, waiting_}; }

 private:
  struct Running;     // a stream and its slot
  struct Submission;  // who takes part in a submitted step

  using Clock = std::chrono::steady_clock;

  explicit Scheduler(std::unique_ptr<Backend> backend);
  void Run();
  void RunUntilStopped();
  void AwaitCall() QTTS_REQUIRES(mutex_);
  bool OpenSlots();
  bool Open(const std::shared_ptr<Running>& running);
  void AwaitSlot(Running* running);
  void CloseSlot(Running* running);
  bool RunPrompts();
  bool SomebodyRunsShort() const;
  bool SubmitStep();
  void CollectStep();
  void Take(Running& running, FrameResult result);
  void TakeAdded() QTTS_REQUIRES(mutex_);
  void DropEnded();
  void FailAll(const Status& status);
  void FailAdded(const Status& status);

  std::unique_ptr<Backend> backend_;  // none once the device is lost
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
  std::atomic<bool> called_ = false;    // something changed; read by AwaitCall() while it polls
  std::atomic<bool> stopping_ = false;  // read between a piece of a prompt and a step

  // The scheduler thread's own.
  std::vector<std::shared_ptr<Running>> running_;     // in the order in which they came
  std::deque<std::shared_ptr<Running>> prompts_;      // whose prompts are being run; the next piece is the first one's
  int held_ = 0;                                      // steps in a row for which long prompts were held up
  std::optional<Clock::time_point> end_of_patience_;  // the first of those of the streams that wait for a slot
  std::deque<Submission> outstanding_;
  Status device_status_;  // not ok once the device is lost
  std::thread thread_;
};

}  // namespace qtts

#endif  // QTTS_SCHEDULER_SCHEDULER_H_
