// SPDX-License-Identifier: LGPL-2.1-or-later
#include "scheduler/scheduler.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>

#include "base/log.h"
#include "qtts/resources.h"
#include "sampling/philox.h"

namespace qtts {

Scheduler::Scheduler(std::unique_ptr<Backend> backend)
    : backend_(std::move(backend)),
      inbox_(backend_->beside_host()),
      free_slots_(backend_->max_slots()),
      planner_(&lists_),
      prompts_(backend_.get()) {
  DeviceView& device = lists_.device;
  device.slots = device.free_slots = backend_->max_slots();
  device.many = backend_->beside_host() && device.slots > kDefaultVoices;
  if (PagedContexts* const paged = backend_->paged()) parking_ = std::make_unique<Parking>(paged, &lists_);
}

Result<std::unique_ptr<Scheduler>> Scheduler::Create(std::unique_ptr<Backend> backend) {
  std::unique_ptr<Scheduler> scheduler(new Scheduler(std::move(backend)));
  QTTS_ASSIGN_OR_RETURN(scheduler->announcer_, Announcer::Create());
  QTTS_ASSIGN_OR_RETURN(scheduler->thread_, StartThread("speak", [self = scheduler.get()] { self->Run(); }));
  return scheduler;
}

Scheduler::~Scheduler() {
  if (!thread_.joinable()) return;
  inbox_.Stop();
  thread_.join();
}

void Scheduler::Add(std::shared_ptr<StreamState> stream) {
  stream->SetAnnouncer(announcer_.get());
  inbox_.Add(std::make_shared<Running>(std::move(stream)));
}

Occupancy Scheduler::occupancy() const {
  Occupancy occupancy;
  occupancy.slots = lists_.device.slots;
  occupancy.free_slots = free_slots_;
  occupancy.waiting = waiting_.count();
  occupancy.ahead_slots = ahead_slots_;
  occupancy.preempted_parts = preempted_parts_;  // read first: each of them has been counted as begun
  occupancy.ahead_parts = ahead_parts_;
  meter_.Tell(&occupancy);
  if (parking_) parking_->Tell(&occupancy);
  return occupancy;
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

void Scheduler::RunUntilStopped() {
  bool progress = true;  // the last call may have been handled in part
  for (;;) {
    inbox_.Await(!progress, progress ? std::nullopt : WakeTime());
    if (inbox_.stopping()) break;
    for (;;) {
      // Memory comes first: a stream that is taken out must get into the lists whatever happens.
      lists_.MakeRoom();
      const RunningPtr running = inbox_.Take();
      if (running == nullptr) break;
      UpdateStream(running);
    }
    const bool returned = ReturnStreams();
    const bool opened = OpenSlots();
    const bool began = BeginPartsAhead();
    const bool ran = RunPrompts();
    progress = returned || opened || began || ran;
    if (inbox_.stopping()) continue;
    const bool submitted = SubmitStep();
    // Run ahead of the device up to max_outstanding(). Then, or if there is nothing to submit, wait for the device.
    const bool full = !device_lost_ && outstanding_.size() >= static_cast<size_t>(backend_->max_outstanding());
    const auto& gather_until = planner_.gather_until();
    const bool awaits_others = !submitted && gather_until && *gather_until < lists_.device.done_at;
    if (!outstanding_.empty() && (full || (!submitted && !awaits_others))) {
      CollectStep();
      progress = true;
    }
    progress = progress || submitted || EndOneIfAllStarve();
  }
  while (!outstanding_.empty()) CollectStep();
  while (const RunningPtr running = inbox_.Take()) running->stream->End(EndReason::kCancelled, Status::Ok());
  for (const RunningPtr& running : lists_.running) {
    running->stream->End(EndReason::kCancelled, Status::Ok());
    CloseSlot(running.get());
  }
}

// Returns the time at which something is to be looked at even if no stream changes.
std::optional<StreamClock::time_point> Scheduler::WakeTime() const {
  std::optional<StreamClock::time_point> until = waiting_.next_deadline();
  const auto consider = [&until](StreamClock::time_point time) { until = until ? std::min(*until, time) : time; };
  if (const auto& gather_until = planner_.gather_until()) consider(*gather_until);
  const auto now = StreamClock::now();
  if (!waiting_.empty() && meter_.slow_until() > now) consider(meter_.slow_until());
  if (parking_ && parking_->streams_wait()) consider(parking_->LookAgain(now));
  return until;
}

// Finds out what has changed of a stream.
void Scheduler::UpdateStream(const RunningPtr& running) {
  if (running->removed) return;
  if (!running->known) {
    lists_.Add(running);
    if (running->looks_ahead()) long_texts_.push_back(running);
  }
  if (!device_status_.ok()) running->stream->End(EndReason::kError, device_status_);
  if (running->stream->ended()) return Remove(running);
  TakeNews(running);
  if (running->part_in_turn) return TakeResults(running);
  lists_.ListIfReady(running);
}

void Scheduler::TakeNews(const RunningPtr& running) {
  TextPart::News news = running->stream->TakeNews();
  running->no_part_behind = false;
  running->AddText(news);
  if (!news.prompt) return;
  running->SetPrompt(*std::move(news.prompt));
  if (running->part_in_turn) return running->prompt.reset();  // it has a slot
  waiting_.Add(running,
               admission_.Deadline(running->stream->request().max_wait, running->part > 0, StreamClock::now()));
}

// Removes a stream that has ended, by the model, an error or Cancel(). Lists of streams that can go on may still have
// it.
void Scheduler::Remove(const RunningPtr& running) {
  if (running->looks_ahead()) {
    DropPartsAhead(running);
    std::erase(long_texts_, running);
  }
  CloseSlot(running.get());
  running->LogEnd(running->stream->end_reason(), running->all_delivered());
  waiting_.Remove(*running);
  if (parking_) parking_->Forget(running);
  lists_.Remove(running);
}

void Scheduler::CloseSlot(Running* running) {
  if (!std::exchange(running->open, false)) return;
  backend_->Close(running->slot);
  ++lists_.device.free_slots;
  if (running->real_time()) --lists_.device.real_time;
  if (running->is_ahead()) --lists_.device.ahead;
  PublishSlots();
  if (!parking_) return;
  parking_->AddClosed(*running);
  parking_->Publish();
}

// Returns what becomes of the stream that waits first.
Verdict Scheduler::JudgeFirst() {
  const Running& first = *waiting_.first();
  const bool has_pages = !parking_ || lists_.device.free_slots == 0 || parking_->HoldsOneMore(first);
  return admission_.Decide(lists_.device, {first.real_time(), first.part > 0, has_pages},
                           meter_.slowness(StreamClock::now()));
}

// Opens slots for streams whose prompt is ready, in order, while there are free ones. Returns true if anything changed.
bool Scheduler::OpenSlots() {
  bool changed = false;
  while (!waiting_.empty()) {
    if (const Verdict verdict = JudgeFirst(); verdict != Verdict::kBegin) {
      if (verdict == Verdict::kNoTime || !GiveWay()) break;
      changed = true;
      continue;
    }
    const RunningPtr running = waiting_.TakeFirst();
    changed = true;
    if (running->stream->ended()) {
      Remove(running);
    } else if (!Open(running)) {
      break;
    }
  }
  if (const auto now = StreamClock::now(); waiting_.HasExpired(now)) {
    RefuseExpired(now);
    changed = true;
  }
  waiting_.Publish();
  return changed;
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
  if (slot.status().code() == StatusCode::kResourceExhausted && parking_ && !parking_->HoldsOneMore(*running)) {
    if (!running->ahead) waiting_.Return(running);
    return false;
  }
  running->prompt.reset();
  if (!slot.ok()) {
    FailToBegin(running, slot.status());
    return true;
  }
  running->slot = *slot;
  running->open = true;
  --lists_.device.free_slots;
  if (request.real_time) ++lists_.device.real_time;
  if (running->is_ahead()) ++lists_.device.ahead;
  PublishSlots();
  if (parking_) {
    parking_->AddOpened(*running);
    parking_->Publish();
  }
  prompts_.Add(running);
  if (LogEnabled(LogLevel::kDebug)) {
    Log(LogLevel::kDebug, "slot " + std::to_string(running->slot) + ": prompt of " + std::to_string(rows) + " rows, " +
                              std::to_string(constant_rows) + " of them the voice's, seed " + std::to_string(seed));
  }
  return true;
}

// Ends a stream that could not begin.
void Scheduler::FailToBegin(const RunningPtr& running, const Status& status) {
  if (running->ahead) return FailPartAhead(running, status);
  Log(LogLevel::kWarning, "an utterance could not begin: " + status.message());
  running->stream->End(EndReason::kError, status);
  Remove(running);
}

// Ends the streams that have waited for a slot for max_wait with kBusy.
void Scheduler::RefuseExpired(StreamClock::time_point now) {
  const std::vector<RunningPtr> late = waiting_.Expired(now);
  const std::string reason =
      Admission::Reason(JudgeFirst(), lists_.device, parking_ ? parking_->pages() : ContextPages());
  for (const RunningPtr& running : late) {
    std::string message = reason;
    if (const std::chrono::nanoseconds patience = running->stream->request().max_wait; patience.count() > 0) {
      message += ", and none ended within the " +
                 std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(patience).count()) +
                 " ms of max-wait";
    }
    running->End(EndReason::kBusy, Status::Busy(message + ": speak fewer at once, or raise max-wait"), 0);
    Remove(running);
  }
}

// Runs pieces of prompts, about one frame's work in total. Returns true if any ran.
bool Scheduler::RunPrompts() {
  bool any = false;
  double work = 0;
  prompts_.BeginTurn(lists_.ready, lists_.device.ahead > 0 && lists_.AwaitsFirstFrame());
  while (const std::optional<PromptQueue::Pass> pass = prompts_.RunPass()) {
    any = true;
    for (const auto& [running, status] : pass->failed) FailToBegin(running, status);
    for (const RunningPtr& running : pass->done) lists_.ListIfReady(running);
    if (!pass->lost.ok()) {
      FailAll(pass->lost);
      return any;
    }
    work += pass->work;
  }
  prompts_run_ += work;
  return any;
}

// Lets streams without a page try again, and brings parked streams back. Returns true if any came back or ended.
bool Scheduler::ReturnStreams() {
  if (!parking_ || !parking_->streams_wait()) return false;
  const size_t starved = parking_->RetryStarved();
  bool returned = false;
  while (const RunningPtr hopeless = parking_->ReturnStreams(starved, &returned)) {
    EndForWantOfPages(hopeless);
    returned = true;
  }
  if (!parking_->lost().ok()) FailAll(parking_->lost());
  return returned;
}

bool Scheduler::EndOneIfAllStarve() {
  if (!parking_ || !outstanding_.empty()) return false;
  const RunningPtr last = parking_->LastIfAllStarve();
  if (last != nullptr) EndForWantOfPages(last);
  return last != nullptr;
}

void Scheduler::EndForWantOfPages(const RunningPtr& running) {
  if (running->ahead) return FailPartAhead(running, parking_->Shortage());
  running->End(EndReason::kError, parking_->Shortage(), running->all_delivered());
  Remove(running);
}

bool Scheduler::SubmitStep() {
  if (!planner_.Choose(prompts_run_, lists_.device.ahead > 0 ? &look_ahead_ : nullptr)) return false;
  if (parking_) TakePages();
  Submission submission = MakeSubmission();
  if (steps_to_submit_.empty() || device_lost_) {
    submission.streams.clear();
    spare_lists_.push_back(std::move(submission.streams));
    return false;
  }
  submission.step.prompts = std::exchange(prompts_run_, 0);
  planner_.NoteReadAhead(steps_to_submit_.size());
  meter_.Submit(&submission.step, &lists_.device);
  if (Status status = backend_->Submit(steps_to_submit_); !status.ok()) {
    FailAll(status);
    return false;
  }
  for (const Submitted& submitted : submission.streams) lists_.ListIfReady(submitted.running);
  outstanding_.push_back(std::move(submission));
  return true;
}

// Takes pages for all candidates before the step is made, since a stream may be parked for one that comes later.
void Scheduler::TakePages() {
  for (const RunningPtr& running : planner_.candidates()) {
    if (lists_.CanGoOn(*running) && !parking_->TakePages(running) && !parking_->lost().ok()) {
      return FailAll(parking_->lost());
    }
  }
}

// Makes the candidates that can go on the next step, and its steps_to_submit_.
Scheduler::Submission Scheduler::MakeSubmission() {
  steps_to_submit_.clear();
  Submission submission;
  if (!spare_lists_.empty()) {
    submission.streams = std::move(spare_lists_.back());
    spare_lists_.pop_back();
  }
  const auto now = StreamClock::now();
  submission.step.start = now;
  for (RunningPtr& running : planner_.candidates()) {
    FrameStep step{running->slot, kNoText, {}};
    if (!lists_.CanGoOn(*running) || !running->NextText(&step.text_id)) continue;
    planner_.Count(*running, now);
    step.window = running->NextWindow();
    submission.step.positions += running->positions();
    ++running->submitted;
    steps_to_submit_.push_back(step);
    const int part = running->part;
    submission.streams.push_back({std::move(running), part});
  }
  planner_.candidates().clear();
  submission.step.rows = static_cast<int64_t>(steps_to_submit_.size());
  return submission;
}

void Scheduler::CollectStep() {
  Submission submission = std::move(outstanding_.front());
  outstanding_.pop_front();
  Result<std::vector<FrameResult>> results = backend_->Collect();
  if (!results.ok()) {
    FailAll(results.status());
    return;
  }
  if (LogEnabled(LogLevel::kTrace)) {
    Log(LogLevel::kTrace, "a frame of " + std::to_string(submission.streams.size()) + " streams, " +
                              ElapsedText(submission.step.start) + " after it was asked for");
  }
  meter_.Add(submission.step, StreamClock::now(), lists_.step, &lists_.device);
  if (parking_) {
    parking_->AddFrames(submission.streams.size());
    parking_->Publish();
  }
  announcer_->BeginStep(submission.streams.size());
  for (size_t i = 0; i < submission.streams.size(); ++i) {
    DeliverResult(submission.streams[i], std::move((*results)[i]));
  }
  submission.streams.clear();
  spare_lists_.push_back(std::move(submission.streams));
}

void Scheduler::DeliverResult(const Submitted& submitted, FrameResult result) {
  const RunningPtr& running = submitted.running;
  if (running->removed || running->part != submitted.part) return;
  if (running->ahead) return KeepResult(running, std::move(result));
  if (result.end != EndReason::kNone) return EndPart(running, result.end, std::move(result.status));
  if (DeliverFrame(running, std::move(result))) return EndPart(running, EndReason::kRunaway, Status::Ok());
  if (running->stream->ended()) return Remove(running);
  lists_.ListIfReady(running);
}

// Delivers the next frame of a stream, or holds it until those that its reader gets together are made. Returns true if
// the model has missed the end of the part.
bool Scheduler::DeliverFrame(const RunningPtr& running, FrameResult result) {
  const int64_t index = running->all_delivered();
  ++running->delivered;
  Frame frame{index, std::move(result.codes), std::move(result.pcm), {}};
  const bool runaway = running->Align(result.text_scores, &frame);
  const bool next_follows = running->in_flight() > 0 || lists_.CanGoOn(*running);
  const size_t held = running->held_frames.size();
  const bool none_given = index == static_cast<int64_t>(held);
  const auto together = static_cast<size_t>(lists_.step.FirstFramesTogether(lists_.device));
  if (none_given && held + 1 < std::min(together, running->stream->lead_frames()) && next_follows) {
    running->held_frames.push_back(std::move(frame));
    return false;
  }
  return running->Deliver(std::move(frame)) || runaway;
}

// Ends a part of an utterance, which the model has ended, or whose end it has missed. Begins the next one, or ends the
// utterance.
void Scheduler::EndPart(const RunningPtr& running, EndReason reason, Status status) {
  running->ReleaseHeldFrames();
  if (running->aligner) {
    if (!running->text_complete) TakeNews(running);
    running->aligner->FinishPart();
  }
  const bool failed = reason == EndReason::kError || running->ReachedMaxFrames();
  if (failed || !running->stream->BeginNextPart(reason)) {
    running->End(reason, std::move(status), running->all_delivered());
    return Remove(running);
  }
  Log(LogLevel::kDebug, "slot " + std::to_string(running->slot) + ": part " + std::to_string(running->part) +
                            " ended (" + EndReasonName(reason) + ") after " + std::to_string(running->delivered) +
                            " frames");
  if (running->part_in_turn) {
    DropPartAhead(running, running->part_in_turn);
  } else {
    CloseSlot(running.get());
    if (parking_) parking_->Forget(running);
  }
  running->BeginNextPart();
  if (running->stream->ended()) return Remove(running);
  if (running->looks_ahead()) TakeTurn(running);
  TakeNews(running);
  if (running->part_in_turn) TakeResults(running);
}

// Fails every stream, now and later: the device is lost, or memory has run out. A new engine is needed. Needs no
// memory; if the log's sink needs some and there is none, the line is lost.
void Scheduler::FailAll(const Status& status) {
  std::ignore = CatchExhaustion("log", [&] {
    Log(LogLevel::kWarning, status.message());
    return Status::Ok();
  });
  device_status_ = status;
  device_lost_ = true;
  outstanding_.clear();
  prompts_.Clear();
  lists_.ready.clear();
  waiting_.Clear();
  if (parking_) parking_->Clear();
  // Frees the backend before the streams are notified, since their users may then load a new engine. Its slots go with
  // it: closing one may need memory.
  backend_.reset();
  lists_.device.free_slots = lists_.device.slots;
  lists_.device.real_time = lists_.device.ahead = 0;
  PublishSlots();
  for (const RunningPtr& running : long_texts_) {
    running->parts_ahead.clear();
    running->part_in_turn.reset();
  }
  long_texts_.clear();
  for (const RunningPtr& running : lists_.running) {
    running->open = running->parked = running->starved = false;
    running->removed = true;
    running->stream->End(EndReason::kError, status);
  }
  lists_.running.clear();
}

// Fails added streams that have not been moved to the lists, for which there may be no memory.
void Scheduler::FailAdded(const Status& status) {
  while (const RunningPtr running = inbox_.Take()) running->stream->End(EndReason::kError, status);
}

}  // namespace qtts
