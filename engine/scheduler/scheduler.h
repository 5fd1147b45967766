// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_SCHEDULER_SCHEDULER_H_
#define QTTS_SCHEDULER_SCHEDULER_H_

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "backend/backend.h"
#include "scheduler/stream_state.h"

namespace qtts {

// Advances all streams of one engine: one thread that asks the backend, frame by frame, for the next
// frame of every stream that has text to go on and a reader that keeps up. A stream that stalls or is
// full is left out of the step and holds up no other.
//
// Owned by the engine. Expect(), Add() and Wake() may be called from any thread.
class Scheduler {
 public:
  explicit Scheduler(std::unique_ptr<Backend> backend);
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
  // Whether the backend failed as a whole: every stream ends with that error, now and later.
  bool device_lost() const { return device_lost_; }

 private:
  struct Running;     // a stream and its slot
  struct Submission;  // who takes part in a submitted step

  void Run();
  void AwaitCall(std::unique_lock<std::mutex>* lock);
  bool OpenSlots();
  bool SubmitStep();
  void CollectStep();
  void Take(Running& running, FrameResult result);
  void DropEnded();
  void FailAll(const Status& status);

  std::unique_ptr<Backend> backend_;  // none once the device is lost
  const bool beside_host_;
  std::atomic<bool> device_lost_ = false;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::shared_ptr<StreamState>> added_;
  std::atomic<bool> called_ = false;  // something changed; read without the lock by who waits awake
  bool expected_ = false;
  bool stopping_ = false;

  // The scheduler thread's own.
  std::vector<std::shared_ptr<Running>> running_;
  std::deque<Submission> outstanding_;
  Status device_status_;  // not ok once the device is lost
  std::thread thread_;
};

}  // namespace qtts

#endif  // QTTS_SCHEDULER_SCHEDULER_H_
