// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_SCHEDULER_SCHEDULER_H_
#define QTTS_SCHEDULER_SCHEDULER_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "backend/backend.h"
#include "qtts/engine_options.h"
#include "qtts/mutex.h"
#include "scheduler/length_estimate.h"
#include "scheduler/page_forecast.h"
#include "scheduler/period_watch.h"
#include "scheduler/step_model.h"
#include "scheduler/stream_state.h"

namespace qtts {

// Advances all streams of one engine. One thread asks the backend, frame by frame, for the next frame of every stream
// that has text and whose reader keeps up. A stream that stalls or is full is left out of the step and delays no other;
// it is checked again when something of it has changed. Prompts are run in turn, in pieces of about a frame's work
// between two steps. A long prompt thus delays no step, cancellation, shutdown or short prompt. Streams wait for a free
// slot of the backend first come, first served.
//
// With up to kDefaultVoices slots, and on the CPU, all streams that can go on make up the next step at once. A device
// with more slots gains by larger steps, and a step of all streams would make newcomers wait:
// - A stream with unread frames has time until its reader has played them. Streams are gathered until there are enough
//   for one of up to eight steps a frame's time, or one of them is due, or an idle device has waited for such a part of
//   a frame's time.
// - The first two frames of an utterance have steps of their own, which come before others and take along streams whose
//   readers cannot wait. The second does not wait for the first. Where a step of all streams takes most of a frame's
//   time, they join it, and the reader gets them together.
// - While the device is busy for half of the time, and has pages for all contexts, streams are only a few frames ahead
//   of their readers.
// - A real-time utterance (Request::real_time) begins only if all real-time ones would keep up, by a model of a step's
//   time that is fitted as it runs.
//
// Utterances that are not real-time give way on every device: they take part in a step as far as its time lets the
// readers of real-time streams keep sound in hand, in turn.
//
// With pages for contexts (Backend::paged()) an utterance begins only if they are expected to hold all contexts until
// their streams end: by the length of their texts, by how long others have spoken, and by max_new_tokens. If a stream
// needs a page and none is free, the stream that is furthest ahead of its reader is parked: its pages move to the
// host's memory. It returns when pages are free, or when it is about to run dry and another stream is further ahead:
// copies for such exchanges may take about half of the time. If no stream can be parked, the one that needs a page
// waits. One fails only if no stream with pages can go on.
//
// All these choices affect the time of frames only, never their content.
//
// An utterance of several parts (Request::parts) gives its slot back after each and is the first to get one for the
// next. Its reader has the frames that were made ahead meanwhile.
//
// Owned by the engine. Expect() and Add() may be called from any thread.
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
  // True if the backend failed as a whole, or memory ran out outside of it. Every stream ends with that error, now and
  // later.
  bool device_lost() const { return device_lost_; }
  Occupancy occupancy() const;

 private:
  struct Running;     // a stream and its slot
  struct Submission;  // the streams of a submitted step
  using RunningPtr = std::shared_ptr<Running>;
  // A frame of a submitted step. Frames of an earlier part than the stream speaks by now are dropped.
  struct Submitted {
    RunningPtr running;
    int part = 0;
  };

  using Clock = std::chrono::steady_clock;

  explicit Scheduler(std::unique_ptr<Backend> backend);
  void Run();
  void RunUntilStopped();
  void WaitForChange() QTTS_REQUIRES(mutex_);
  void ListChanged(RunningPtr running);
  RunningPtr TakeChanged();
  void UpdateStream(const RunningPtr& running);
  void Remove(const RunningPtr& running);
  void CloseSlot(Running* running);
  int64_t PositionsOf(int64_t rows) const;
  bool CanGoOn(const Running& running) const;
  bool CanGoOnWithPages(const Running& running) const;
  void ListIfReady(const RunningPtr& running);
  bool IsStepDue();
  Clock::duration TimeAhead(Clock::duration reserve);
  Clock::time_point NeedsFrame(const Running& running, Clock::time_point now) const;
  // How many of an utterance's first frames its reader gets at once. One: they may be steps of newcomers alone.
  size_t FirstFramesTogether();
  // Number of slots that have deadlines: the real-time ones; all while there is none.
  int SlotsInTime() const { return real_time_slots_ > 0 ? real_time_slots_ : slots_ - free_slots_; }
  // True if the stream's reader has taken its frames much faster than they are played.
  bool IsReadAhead(const Running& running, Clock::time_point now) const;
  bool SubmitStep();
  void CollectStep();
  void PublishPages();
  void CountStep(const Submission& submission);
  void DeliverResult(const Submitted& submitted, FrameResult result);
  void EndPart(const RunningPtr& running, EndReason reason, Status status);
  void TakeNews(const RunningPtr& running);
  // Functions for utterances that are not real-time, in scheduler_real_time.cc.
  void YieldToRealTime();
  size_t CandidatesWithinTime(size_t real_time, Clock::time_point now);
  Clock::duration TimeForOthers(Clock::time_point now) const;
  // Functions for utterances that have not spoken yet, in scheduler_opening.cc.
  bool OpenSlots();
  bool Open(const RunningPtr& running);
  bool AdmitsOneMore();
  bool HasTimeForOneMore();
  std::string DescribeShortage();
  void RefuseExpired(Clock::time_point now);
  std::vector<RunningPtr> NextPrompts(bool hold, size_t* left);
  bool TakeProgress(const RunningPtr& running, const Result<PrefillProgress>& progress);
  std::vector<Result<PrefillProgress>> Prefill(std::span<const SlotId> slots);
  bool RunPrompts();
  bool AnyReaderRunsShort() const;
  // Functions for pages, in scheduler_pages.cc.
  int64_t PagesOf(int64_t positions) const;
  PageForecast::Context ForecastOf(const Running& running) const;
  bool HasPagesFor(const Running& waiting);
  int Unparked() const { return slots_ - free_slots_ - static_cast<int>(parked_.size()); }
  bool IsShortOfPages() const;
  Clock::duration SoundAhead(const Running& running, Clock::time_point now) const;
  RunningPtr FurthestAhead(Clock::time_point now) const;
  bool TakePages(const RunningPtr& running);
  bool Park(const RunningPtr& running);
  bool Unpark(const RunningPtr& running);
  void RemoveFromParked(const RunningPtr& running);
  bool ExchangePages(int64_t pages, Clock::duration ahead);
  bool UnparkStreams();
  bool FailIfAllStarve();
  void EndForWantOfPages(RunningPtr running);
  void FailAll(const Status& status);
  void FailAdded(const Status& status);

  std::unique_ptr<Backend> backend_;     // null once the device is lost
  PagedContexts* const paged_;           // of backend_; null: it has no pages
  SharedPrompts* const shared_prompts_;  // of backend_; null: prompts share nothing
  const bool beside_host_;
  const int slots_;
  const bool many_;  // see above
  std::atomic<bool> device_lost_ = false;
  std::atomic<int> free_slots_;
  std::atomic<int> waiting_count_ = 0;  // streams with a prompt and without a slot
  // For occupancy(). Written by the scheduler thread.
  std::atomic<int64_t> pages_ = 0;
  std::atomic<int64_t> free_pages_ = 0;
  std::atomic<int> parked_count_ = 0;
  std::atomic<uint64_t> parkings_ = 0;
  std::atomic<uint64_t> device_bytes_ = 0;
  std::atomic<uint64_t> steps_ = 0;
  std::atomic<uint64_t> step_frames_ = 0;
  std::atomic<int64_t> step_nanoseconds_ = 0;

  Mutex mutex_;
  Condition changed_;
  RunningPtr changed_list_ QTTS_GUARDED_BY(mutex_);  // changed streams, linked, the last first
  uint64_t arrivals_ QTTS_GUARDED_BY(mutex_) = 0;
  bool expected_ QTTS_GUARDED_BY(mutex_) = false;
  // Written with `mutex_` held. Atomic: they are also read without it.
  std::atomic<bool> called_ = false;    // something changed; WaitForChange() polls it
  std::atomic<bool> stopping_ = false;  // checked between a piece of a prompt and a step

  // Used by the scheduler thread only.
  std::vector<RunningPtr> running_;
  std::map<uint64_t, RunningPtr> waiting_;  // for a slot, by arrival
  std::deque<RunningPtr> prompts_;          // streams with a prompt in progress; the first one gets the next piece
  std::vector<RunningPtr> ready_;           // streams that can take part in a step
  int held_ = 0;                            // consecutive steps for which long prompts were held back
  std::optional<Clock::time_point> next_refusal_;     // earliest deadline of the streams that wait for a slot
  std::optional<Clock::time_point> gather_until_;     // latest time to submit the streams gathered so far
  std::optional<Clock::time_point> gathering_since_;  // time at which the first of them was gathered
  std::vector<RunningPtr> candidates_;                // of the next step
  std::vector<FrameStep> steps_to_submit_;
  std::deque<Submission> outstanding_;
  std::vector<std::vector<Submitted>> spare_lists_;  // memory of past submissions
  Status device_status_;                             // not ok once the device is lost

  // State for a device with pages.
  LengthEstimate lengths_;
  PageForecast forecast_;  // of the open streams, unless it is outdated
  bool forecast_outdated_ = true;
  std::vector<RunningPtr> parked_;
  std::vector<RunningPtr> starved_;   // need a page, and no stream can be parked
  Clock::time_point reserve_again_;   // earliest time of the next Backend::Reserve() after a failure
  Clock::time_point exchange_again_;  // earliest time to park a stream in exchange for a parked one
  Clock::time_point log_again_;
  bool parking_logged_ = false;
  uint64_t parkings_logged_ = 0;  // of parkings_, when the log last told of them

  // State for real-time streams beside others.
  StepModel step_model_;
  int real_time_slots_ = 0;         // open slots of utterances with Request::real_time
  Clock::time_point others_taken_;  // time of the last step of streams that are not real-time
  double mean_positions_ = 0;       // of the streams of the last step

  // State for a device with many slots.
  PeriodWatch period_watch_;
  double prompts_a_second_ = 0;  // in frames' work, of about the last second
  bool busy_ = false;            // at least half of the time
  double prompts_run_ = 0;       // since the last step was submitted, in frames' work
  bool read_ahead_ = false;      // IsReadAhead() of many streams of the last step, newcomers' own steps aside
  Clock::time_point collected_;
  std::thread thread_;
};

}  // namespace qtts

#endif  // QTTS_SCHEDULER_SCHEDULER_H_
