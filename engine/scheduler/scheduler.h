// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_SCHEDULER_SCHEDULER_H_
#define QTTS_SCHEDULER_SCHEDULER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "backend/backend.h"
#include "qtts/engine_options.h"
#include "scheduler/admission.h"
#include "scheduler/announcer.h"
#include "scheduler/inbox.h"
#include "scheduler/look_ahead.h"
#include "scheduler/parking.h"
#include "scheduler/prompt_queue.h"
#include "scheduler/running.h"
#include "scheduler/step_meter.h"
#include "scheduler/step_planner.h"
#include "scheduler/stream_lists.h"
#include "scheduler/stream_state.h"
#include "scheduler/waiting_room.h"

namespace qtts {

// Advances all streams of one engine. One thread asks the backend, frame by frame, for the next frame of every stream
// that has text and whose reader keeps up. A stream that stalls or is full is left out of the step and delays no other;
// it is checked again when something of it has changed. Prompts are run in turn, in pieces of about a frame's work
// between two steps. A long prompt thus delays no step, cancellation, shutdown or short prompt. Streams wait for a free
// slot of the backend first come, first served.
//
// Policies decide, on plain values: StepPolicy which streams make up a step and when it runs, YieldPolicy how many that
// are not real-time take part, Admission and PagePolicy which utterance begins, PagePolicy which stream is parked when
// pages are short, PromptOrder which prompts run. doc/engine.md lists their rules. They affect the time of frames only,
// never their content.
//
// An utterance of several parts (Request::parts) gives its slot back after each and is the first to get one for the
// next. Its reader has the frames that were made ahead meanwhile. With Request::parallel_parts, the parts behind have
// slots of their own while nobody waits for these, as LookAhead decides; see PartAhead.
//
// Owned by the engine. Expect(), Add() and occupancy() may be called from any thread.
class Scheduler {
 public:
  // Starts the thread. Errors: kResourceExhausted.
  static Result<std::unique_ptr<Scheduler>> Create(std::unique_ptr<Backend> backend);
  // Stops the thread. Running streams end with kCancelled.
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // Announces a stream: see Inbox.
  void Expect() { inbox_.Expect(); }
  void Add(std::shared_ptr<StreamState> stream);
  // Returns true if the backend failed as a whole, or memory ran out outside of it. Every stream ends with that error,
  // now and later.
  bool device_lost() const { return device_lost_; }
  Occupancy occupancy() const;

 private:
  // A frame of a submitted step. Frames of an earlier part than the stream speaks by now are dropped.
  struct Submitted {
    RunningPtr running;
    int part = 0;
  };
  struct Submission {
    std::vector<Submitted> streams;  // in the order of the steps
    StepMeter::Step step;
  };

  explicit Scheduler(std::unique_ptr<Backend> backend);
  void Run();
  void RunUntilStopped();
  std::optional<StreamClock::time_point> WakeTime() const;
  // Functions for streams that come and go:
  void UpdateStream(const RunningPtr& running);
  void TakeNews(const RunningPtr& running);
  void EndPart(const RunningPtr& running, EndReason reason, Status status);
  void Remove(const RunningPtr& running);
  void CloseSlot(Running* running);
  void PublishSlots() {
    free_slots_ = lists_.device.free_slots + lists_.device.ahead;
    ahead_slots_ = lists_.device.ahead;
  }
  void FailAll(const Status& status);
  void FailAdded(const Status& status);
  // Functions for utterances that have not spoken yet:
  Verdict JudgeFirst();
  bool OpenSlots();
  bool Open(const RunningPtr& running);
  void FailToBegin(const RunningPtr& running, const Status& status);
  void RefuseExpired(StreamClock::time_point now);
  bool RunPrompts();
  // Functions for parked streams and those without pages:
  bool ReturnStreams();
  bool EndOneIfAllStarve();
  void EndForWantOfPages(const RunningPtr& running);
  // Functions for steps:
  bool SubmitStep();
  void TakePages();
  Submission MakeSubmission();
  void CollectStep();
  void DeliverResult(const Submitted& submitted, FrameResult result);
  bool DeliverFrame(const RunningPtr& running, FrameResult result);
  // Functions for parts that are made ahead of their turn:
  bool BeginPartsAhead();
  bool BeginPartAhead(const RunningPtr& owner);
  bool GiveWay();
  void DropPartsAhead(const RunningPtr& owner);
  void DropPartAhead(const RunningPtr& owner, const RunningPtr& part);
  void FailPartAhead(const RunningPtr& part, const Status& status);
  void ClosePartAhead(const RunningPtr& part);
  void KeepResult(const RunningPtr& part, FrameResult result);
  void EndPartAhead(const RunningPtr& part, EndReason reason, Status status);
  void TakeTurn(const RunningPtr& owner);
  void TakeResults(const RunningPtr& owner);
  std::vector<LongTextView> ViewLongTexts() const;

  std::unique_ptr<Backend> backend_;  // null once the device is lost
  std::atomic<bool> device_lost_ = false;
  Status device_status_;  // not ok once the device is lost
  std::unique_ptr<Announcer> announcer_;
  Inbox inbox_;

  // For occupancy(), on any thread.
  std::atomic<int> free_slots_;  // those that anybody may have
  std::atomic<int> ahead_slots_ = 0;
  std::atomic<uint64_t> ahead_parts_ = 0;
  std::atomic<uint64_t> preempted_parts_ = 0;

  // Used by the scheduler thread only, but for numbers of occupancy().
  StreamLists lists_;
  Admission admission_;
  StepPlanner planner_;
  WaitingRoom waiting_;
  PromptQueue prompts_;
  LookAhead look_ahead_;
  std::vector<RunningPtr> long_texts_;  // the streams with Request::parallel_parts
  std::unique_ptr<Parking> parking_;    // null: the backend has no pages
  StepMeter meter_;
  double prompts_run_ = 0;  // since the last step was submitted, in frames' work
  std::vector<FrameStep> steps_to_submit_;
  std::deque<Submission> outstanding_;
  std::vector<std::vector<Submitted>> spare_lists_;  // memory of past submissions
  std::thread thread_;
};

}  // namespace qtts

#endif  // QTTS_SCHEDULER_SCHEDULER_H_
