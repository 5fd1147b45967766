// SPDX-License-Identifier: LGPL-2.1-or-later
#include "scheduler/scheduler.h"

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>

#include "base/log.h"
#include "qtts/polling.h"
#include "qtts/resources.h"
#include "scheduler/running.h"

namespace qtts {
namespace {

constexpr double kBusySeconds = 0.040;
// Steps in a frame's time, at most.
constexpr int kMostGroups = 8;
// Streams that wait for pages are looked at so often, if nothing else happens.
constexpr std::chrono::milliseconds kPageCheckInterval{20};
// Frames that streams of a busy device are ahead of their readers.
constexpr size_t kBusyLead = 4;
// Frames of an utterance that come before those of others.
constexpr int64_t kNewcomerFrames = 2;
// Newcomers' first frames are steps of their own while a step of all streams takes no more than kNewcomersSeconds.
// Beyond, these steps would take the time that the others' next frames need. Where readers take all that the device
// makes, this begins at kShortSeconds: more than a kReadAheadShare of the streams are read by kReadAhead faster than
// they are played. An application's queues take a second in advance. A newcomer's next frame then comes a step of all
// streams later. Its reader therefore gets the first frame with the second, and beyond kNewcomersSeconds with the
// third: a step that takes a little longer than predicted takes longer than a frame is played.
constexpr double kNewcomersSeconds = 0.060;
constexpr double kShortSeconds = 0.020;
constexpr std::chrono::milliseconds kReadAhead{1500};
constexpr double kReadAheadShare = 0.25;
// A frame is due so long before its reader needs it. Prompts may come before its step, and on a busy device a step that
// takes longer than predicted is followed by others.
constexpr std::chrono::milliseconds kReserve{10};
constexpr std::chrono::milliseconds kBusyReserve{50};

}  // namespace

struct Scheduler::Submission {
  std::vector<Submitted> streams;  // in the order of the steps
  int64_t positions = 0;           // positions that the streams attend to
  double prompts = 0;              // run since the step before, in frames' work
  LogClock::time_point start = LogClock::now();
};

Scheduler::Scheduler(std::unique_ptr<Backend> backend)
    : backend_(std::move(backend)),
      paged_(backend_->paged()),
      shared_prompts_(backend_->shared_prompts()),
      beside_host_(backend_->beside_host()),
      slots_(backend_->max_slots()),
      many_(beside_host_ && slots_ > kDefaultVoices),
      free_slots_(slots_),
      forecast_(paged_ != nullptr ? paged_->pages().positions : 1) {
  PublishPages();
}

Occupancy Scheduler::occupancy() const {
  return {slots_,       free_slots_,       waiting_count_, pages_,    free_pages_,  steps_,
          step_frames_, step_nanoseconds_, parked_count_,  parkings_, device_bytes_};
}

// PagedContexts::pages() may be asked on the scheduler thread alone; occupancy() by anybody.
void Scheduler::PublishPages() {
  if (paged_ == nullptr) return;
  const ContextPages pages = paged_->pages();
  pages_ = pages.total;
  free_pages_ = pages.free;
  parked_count_ = static_cast<int>(parked_.size());
  device_bytes_ = paged_->device_bytes();
}

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
  auto running = std::make_shared<Running>(std::move(stream));
  {
    const MutexLock lock(mutex_);
    running->arrival = ++arrivals_;
  }
  running->stream->SetWake([this, weak = std::weak_ptr<Running>(running)] {
    if (RunningPtr changed = weak.lock()) ListChanged(std::move(changed));
  });
  ListChanged(std::move(running));
}

// Lists a stream that may be able to go on, or has ended, and wakes the thread. Allocates nothing.
void Scheduler::ListChanged(RunningPtr running) {
  {
    const MutexLock lock(mutex_);
    if (running->changed) return;  // the thread was woken before
    running->changed = true;
    running->next_changed = std::move(changed_list_);
    changed_list_ = std::move(running);
    called_ = true;
  }
  changed_.NotifyAll();
}

// Takes a stream off the list; null if it is empty.
Scheduler::RunningPtr Scheduler::TakeChanged() {
  const MutexLock lock(mutex_);
  RunningPtr running = std::move(changed_list_);
  if (running == nullptr) return nullptr;
  changed_list_ = std::move(running->next_changed);
  running->changed = false;
  return running;
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
  while (const RunningPtr running = TakeChanged()) running->stream->End(EndReason::kError, status);
}

void Scheduler::RunUntilStopped() {
  bool progress = true;  // the last call may have been handled in part
  for (;;) {
    {
      const MutexLock lock(mutex_);
      if (!progress) WaitForChange();
      called_ = expected_ = false;
    }
    if (stopping_) break;
    for (;;) {
      // Memory comes first: a stream that is taken off the list must get into running_ whatever happens.
      if (running_.size() == running_.capacity()) running_.reserve(2 * running_.size() + 16);
      const RunningPtr running = TakeChanged();
      if (running == nullptr) break;
      UpdateStream(running);
    }
    const bool returned = UnparkStreams();
    const bool opened = OpenSlots();
    const bool ran = RunPrompts();
    progress = returned || opened || ran;
    if (stopping_) continue;
    const bool submitted = SubmitStep();
    // Run ahead of the device up to max_outstanding(). Then, or if there is nothing to submit, wait for the device.
    const bool full = !device_lost_ && outstanding_.size() >= static_cast<size_t>(backend_->max_outstanding());
    if (!outstanding_.empty() && (full || !submitted)) {
      CollectStep();
      progress = true;
    }
    progress = progress || submitted || FailIfAllStarve();
  }
  while (!outstanding_.empty()) CollectStep();
  while (const RunningPtr running = TakeChanged()) running->stream->End(EndReason::kCancelled, Status::Ok());
  for (const RunningPtr& running : running_) {
    running->stream->End(EndReason::kCancelled, Status::Ok());
    CloseSlot(running.get());
  }
}

void Scheduler::WaitForChange() {
  constexpr std::chrono::milliseconds kPatience{1};
  std::optional<Clock::time_point> until = next_refusal_;
  if (gather_until_ && (!until || *gather_until_ < *until)) until = gather_until_;
  if (const auto slow_until = period_watch_.until(); !waiting_.empty() && slow_until > Clock::now()) {
    if (!until || slow_until < *until) until = slow_until;
  }
  if (!parked_.empty() || !starved_.empty()) {
    const auto look = Clock::now() + kPageCheckInterval;
    if (!until || look < *until) until = look;
  }
  for (;;) {
    while (!called_ && !expected_) {
      if (!until) {
        changed_.Wait(mutex_);
      } else if (!changed_.WaitUntil(mutex_, *until) && !called_ && !expected_) {
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

// Finds out what has changed of a stream.
void Scheduler::UpdateStream(const RunningPtr& running) {
  if (running->removed) return;
  if (!running->known) {
    running->place = running_.size();
    running_.push_back(running);
    running->known = true;
  }
  if (!device_status_.ok()) running->stream->End(EndReason::kError, device_status_);
  if (running->stream->ended()) return Remove(running);
  TakeNews(running);
  ListIfReady(running);
}

void Scheduler::TakeNews(const RunningPtr& running) {
  constexpr std::chrono::nanoseconds kForever = std::chrono::hours(24 * 365);
  TextPart::News news = running->stream->TakeNews();
  running->text.insert(running->text.end(), news.text.begin(), news.text.end());
  running->text_complete = news.text_complete;
  running->pad_text_id = news.pad_text_id;
  running->text_tokens = news.text_tokens;
  if (running->aligner) {
    if (news.prompt) {
      running->aligner->SetPrompt(static_cast<int64_t>(news.prompt->rows.size()), news.prompt->text_begin);
    }
    running->aligner->AddText(news.token_ends, news.words);
    if (news.text_complete) running->aligner->FinishText();
  }
  if (news.prompt) {
    running->prompt = std::move(news.prompt);
    running->prompt_rows = static_cast<int64_t>(running->prompt->rows.size());
    running->max_new_tokens = running->MaxNewTokens();
    waiting_.emplace(running->arrival, running);
    const std::chrono::nanoseconds patience = running->stream->request().max_wait;
    if (patience < kForever && running->part == 0) {
      running->slot_deadline = Clock::now() + patience;
      if (!next_refusal_ || *running->slot_deadline < *next_refusal_) next_refusal_ = running->slot_deadline;
    }
  }
}

// Removes a stream that has ended, by the model, an error or Cancel(). Lists of streams that can go on may still have
// it.
void Scheduler::Remove(const RunningPtr& running) {
  CloseSlot(running.get());
  running->LogEnd(running->stream->end_reason(), running->all_delivered());
  waiting_.erase(running->arrival);
  if (running->parked) RemoveFromParked(running);
  if (running->starved) std::erase(starved_, running);
  running->removed = true;
  const size_t place = running->place;  // `running` may be the entry of running_
  running_.back()->place = place;
  std::swap(running_[place], running_.back());
  running_.pop_back();
}

void Scheduler::CloseSlot(Running* running) {
  if (!std::exchange(running->open, false)) return;
  backend_->Close(running->slot);
  ++free_slots_;
  lengths_.AddEnd(running->text_tokens);
  forecast_outdated_ = true;
  if (running->real_time()) --real_time_slots_;
  PublishPages();
}

int64_t Scheduler::PositionsOf(int64_t rows) const {
  return static_cast<int64_t>(mean_positions_ * static_cast<double>(rows));
}

// True if the stream's next frame can be made now. Otherwise something else lists the stream again: its text, a read,
// or the delivery of a frame in flight.
bool Scheduler::CanGoOn(const Running& running) const {
  return !running.parked && !running.starved && CanGoOnWithPages(running);
}

// The same for a stream that has its pages.
bool Scheduler::CanGoOnWithPages(const Running& running) const {
  if (!running.prefilled || !running.open || running.stream->ended()) return false;
  // The step of the last token ends the utterance, so the result of a further one would be discarded.
  if (running.submitted >= running.max_new_tokens) return false;
  // Running ahead pays only while there is sound to play. Before that, a second frame would compete with the first
  // for the device. Among many it would come after a large step instead, and the first frame is often silent.
  if (running.all_submitted() > 0 && running.all_delivered() == 0 && !(many_ && running.submitted < kNewcomerFrames)) {
    return false;
  }
  int32_t text_id = 0;
  if (!running.NextText(&text_id)) return false;
  size_t lead = running.stream->lead_frames();
  if (busy_ && !IsShortOfPages()) lead = std::min(lead, kBusyLead);
  if (running.in_flight() > 0) return running.stream->unread() + running.in_flight() < lead;
  return running.stream->HasRoom(lead);
}

void Scheduler::ListIfReady(const RunningPtr& running) {
  if (running->ready || !CanGoOn(*running)) return;
  ready_.push_back(running);
  running->ready = true;
}

// True if the ready streams should be a step now, rather than wait for others until gather_until_, which is set.
bool Scheduler::IsStepDue() {
  const int speaking = slots_ - free_slots_;
  if (!step_model_.fitted()) return true;
  int groups = kMostGroups;
  const auto rows_of = [&] { return (speaking + groups - 1) / groups; };
  while (groups > 1 && groups * step_model_.Predict(rows_of(), PositionsOf(rows_of())) > kMostBusySeconds) --groups;
  if (ready_.size() >= static_cast<size_t>(rows_of())) return true;
  const auto now = Clock::now();
  if (!gathering_since_) gathering_since_ = now;
  const auto ahead = TimeAhead(busy_ ? kBusyReserve : kReserve);
  auto until = now + kFrameTime;
  // A device that has time makes frames in store.
  if (!busy_) until = *gathering_since_ + kFrameTime / groups;
  for (const RunningPtr& running : ready_) {
    // A newcomer for whose own step there is no time. Its reader waits for nothing yet.
    if (!running->plays()) {
      until = std::min<Clock::time_point>(until, *gathering_since_ + kFrameTime);
      continue;
    }
    until = std::min<Clock::time_point>(until, NeedsFrame(*running, now) - ahead);
  }
  if (until <= now) return true;
  gather_until_ = until;
  return false;
}

// How long before a frame is needed the step of all ready streams has to begin, for the frame to be there `reserve`
// before.
Scheduler::Clock::duration Scheduler::TimeAhead(Clock::duration reserve) {
  const auto rows = static_cast<int64_t>(ready_.size());
  const std::chrono::duration<double> step(step_model_.Predict(rows, PositionsOf(rows)));
  return reserve + std::chrono::duration_cast<Clock::duration>(step);
}

// When the reader of a stream that has spoken needs its next frame: at `now` if it waits, or takes frames faster than
// they are played.
Scheduler::Clock::time_point Scheduler::NeedsFrame(const Running& running, Clock::time_point now) const {
  const size_t unread = running.stream->unread();
  if (unread == 0) return now;
  const auto played = now + (static_cast<int64_t>(unread + running.in_flight()) - 1) * kFrameTime;
  return std::max<Clock::time_point>(played, running.first_sound + running.all_submitted() * kFrameTime);
}

size_t Scheduler::FirstFramesTogether() {
  if (!many_ || !step_model_.fitted()) return 1;
  const double seconds = step_model_.Predict(SlotsInTime(), PositionsOf(SlotsInTime()));
  if (seconds > kNewcomersSeconds) return 3;
  return seconds > kShortSeconds && read_ahead_ ? 2 : 1;
}

bool Scheduler::IsReadAhead(const Running& running, Clock::time_point now) const {
  const auto taken = running.all_delivered() - static_cast<int64_t>(running.stream->unread());
  return taken > 0 && taken * kFrameTime > now - running.first_sound + kReadAhead;
}

bool Scheduler::SubmitStep() {
  gather_until_.reset();
  std::erase_if(ready_, [](const RunningPtr& running) { return running->removed; });
  if (ready_.empty()) return false;
  auto end = ready_.end();
  bool shared = true;
  if (many_) {
    // A stream whose first frame was delivered alone needs its second one now, even if the rule has changed since.
    const bool join = FirstFramesTogether() > 1;
    end = std::partition(ready_.begin(), ready_.end(), [this, join](const RunningPtr& r) {
      return r->all_submitted() < kNewcomerFrames && (!join || r->plays()) && (r->real_time() || real_time_slots_ == 0);
    });
    if (end == ready_.begin()) {
      if (!IsStepDue()) return false;
      gathering_since_.reset();
      end = ready_.end();
    } else {
      // Those whose readers cannot wait for another step come along, however many newcomers there are.
      end = std::partition(end, ready_.end(),
                           [this, now = Clock::now(), ahead = TimeAhead(kReserve)](const RunningPtr& r) {
                             return r->plays() && NeedsFrame(*r, now) - ahead <= now;
                           });
      shared = false;
    }
  }
  candidates_.assign(std::move_iterator(ready_.begin()), std::move_iterator(end));
  ready_.erase(ready_.begin(), end);
  for (const RunningPtr& running : candidates_) running->ready = false;
  if (real_time_slots_ > 0) YieldToRealTime();
  if (paged_ != nullptr) {
    // All of them before the step is made, since a stream may be parked for one that comes later.
    for (const RunningPtr& running : candidates_) {
      if (CanGoOn(*running) && !TakePages(running) && device_lost_) break;
    }
  }
  steps_to_submit_.clear();
  Submission submission;
  if (!spare_lists_.empty()) {
    submission.streams = std::move(spare_lists_.back());
    spare_lists_.pop_back();
  }
  const auto now = Clock::now();
  size_t read_ahead = 0;
  for (RunningPtr& running : candidates_) {
    FrameStep step{running->slot, kNoText, {}};
    if (!CanGoOn(*running) || !running->NextText(&step.text_id)) continue;
    if (many_ && (running->real_time() || real_time_slots_ == 0) && IsReadAhead(*running, now)) ++read_ahead;
    step.window = running->NextWindow();
    submission.positions += running->positions();
    ++running->submitted;
    steps_to_submit_.push_back(step);
    const int part = running->part;
    submission.streams.push_back({std::move(running), part});
  }
  candidates_.clear();
  if (steps_to_submit_.empty() || device_lost_) {
    submission.streams.clear();
    spare_lists_.push_back(std::move(submission.streams));
    return false;
  }
  submission.prompts = std::exchange(prompts_run_, 0);
  if (shared) {
    read_ahead_ = static_cast<double>(read_ahead) > kReadAheadShare * static_cast<double>(steps_to_submit_.size());
  }
  if (Status status = backend_->Submit(steps_to_submit_); !status.ok()) {
    FailAll(status);
    return false;
  }
  for (const Submitted& submitted : submission.streams) ListIfReady(submitted.running);
  outstanding_.push_back(std::move(submission));
  return true;
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
                              ElapsedText(submission.start) + " after it was asked for");
  }
  CountStep(submission);
  PublishPages();
  for (size_t i = 0; i < submission.streams.size(); ++i) {
    DeliverResult(submission.streams[i], std::move((*results)[i]));
  }
  submission.streams.clear();
  spare_lists_.push_back(std::move(submission.streams));
}

// A step's time begins when the device was done with the one before.
void Scheduler::CountStep(const Submission& submission) {
  const auto now = LogClock::now();
  const std::chrono::nanoseconds took = now - std::max(submission.start, collected_);
  const std::chrono::duration<double> passed = now - std::exchange(collected_, now);
  ++steps_;
  step_frames_ += submission.streams.size();
  lengths_.AddFrames(static_cast<int64_t>(submission.streams.size()));
  forecast_outdated_ = true;
  step_nanoseconds_ += took.count();
  constexpr double kMeanSeconds = 1;
  prompts_a_second_ += std::min(1.0, passed.count() / kMeanSeconds) *
                       (submission.prompts / std::max(passed.count(), 1e-3) - prompts_a_second_);
  const double seconds = std::chrono::duration<double>(took).count();
  const auto rows = static_cast<int64_t>(submission.streams.size());
  mean_positions_ = static_cast<double>(submission.positions) / static_cast<double>(rows);
  const int in_time = SlotsInTime();
  if (many_ && step_model_.fitted() && real_time_slots_ > 0) {
    const double all = step_model_.Predict(in_time, PositionsOf(in_time));
    const double predicted = step_model_.Predict(rows, submission.positions, submission.prompts);
    if (period_watch_.Add(now, seconds, predicted, all)) {
      Log(LogLevel::kDebug,
          "the device is slower than before, and " + std::to_string(in_time) + " utterances speak: for " +
              std::to_string(PeriodWatch::kWhile.count()) + " s others begin as if steps took " +
              std::to_string(static_cast<int>(period_watch_.slowness(now) * 100 - 100)) + " % longer");
    }
  }
  step_model_.Add(rows, submission.positions, submission.prompts, seconds);
  if (many_) busy_ = step_model_.fitted() && step_model_.Predict(in_time, PositionsOf(in_time)) > kBusySeconds;
}

void Scheduler::DeliverResult(const Submitted& submitted, FrameResult result) {
  const RunningPtr& running = submitted.running;
  if (running->removed || running->part != submitted.part) return;
  const int64_t index = running->earlier_frames + running->delivered;
  if (result.end != EndReason::kNone) return EndPart(running, result.end, std::move(result.status));
  ++running->delivered;
  Frame frame{index, std::move(result.codes), std::move(result.pcm), {}};
  const bool runaway = running->Align(result.text_scores, &frame);
  const bool next_follows = running->in_flight() > 0 || CanGoOn(*running);
  const size_t held = running->held_frames.size();
  const bool none_given = index == static_cast<int64_t>(held);
  if (none_given && held + 1 < std::min(FirstFramesTogether(), running->stream->lead_frames()) && next_follows) {
    running->held_frames.push_back(std::move(frame));
  } else if (running->Deliver(std::move(frame)) || runaway) {
    return EndPart(running, EndReason::kRunaway, Status::Ok());
  }
  if (running->stream->ended()) return Remove(running);
  ListIfReady(running);
}

// The model has ended a part of an utterance, or missed its end. Begins the next one, or ends the utterance.
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
  CloseSlot(running.get());
  if (running->parked) RemoveFromParked(running);
  if (running->starved) std::erase(starved_, running);
  running->BeginNextPart();
  if (running->stream->ended()) return Remove(running);
  TakeNews(running);
}

// The device is lost, or memory has run out: every stream fails, now and later. A new engine is needed. Needs no
// memory; if the log's sink needs some and there is none, the line is lost.
void Scheduler::FailAll(const Status& status) {
  std::ignore = CatchExhaustion("log", [&] {
    Log(LogLevel::kWarning, status.message());
    return Status::Ok();
  });
  device_status_ = status;
  device_lost_ = true;
  outstanding_.clear();
  prompts_.clear();
  ready_.clear();
  parked_.clear();
  starved_.clear();
  parked_count_ = 0;
  waiting_.clear();
  waiting_count_ = 0;
  next_refusal_.reset();
  // Frees the backend before the streams are notified, since their users may then load a new engine. Its slots go with
  // it: closing one may need memory.
  backend_.reset();
  free_slots_ = slots_;
  real_time_slots_ = 0;
  free_pages_ = pages_.load();
  for (const RunningPtr& running : running_) {
    running->open = running->parked = running->starved = false;
    running->removed = true;
    running->stream->End(EndReason::kError, status);
  }
  running_.clear();
}

}  // namespace qtts
