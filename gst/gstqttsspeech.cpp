// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gstqttsspeech.h"

#include <algorithm>
#include <utility>

namespace gstqtts {

struct Speech::Monitor {
  std::mutex mutex;
  std::condition_variable changed;
  uint64_t changes = 0;

  // With the mutex held.
  void Announce() {
    ++changes;
    changed.notify_all();
  }
  void LockAndAnnounce() {
    const std::lock_guard lock(mutex);
    Announce();
  }
};

Speech::Speech(Reporter reporter) : monitor_(std::make_shared<Monitor>()), reporter_(std::move(reporter)) {
  std::random_device device;
  seeds_.seed(uint64_t{device()} << 32U | device());
}

Speech::~Speech() {
  Halt();
  Stop();
}

// --- state changes

void Speech::Start(std::optional<Utterance> first) {
  const Lock lock(monitor_->mutex);
  active_ = true;
  flushing_ = failed_ = text_ended_ = end_handed_out_ = false;
  joiner_ = Utf8Joiner();
  stats_ = Stats();
  if (first) Enqueue(*std::move(first));
}

bool Speech::Load(const qtts::EngineOptions& options) {
  // The old model goes before the new one comes: both at once may not fit into memory.
  std::shared_ptr<qtts::Engine> old;
  {
    const Lock lock(monitor_->mutex);
    if (engine_ != nullptr && options == options_) return false;
    old = std::exchange(engine_, nullptr);
    loading_ = true;
    load_status_ = qtts::Status::Ok();
    options_ = options;
  }
  old.reset();
  loader_.Start(options, [monitor = monitor_] { monitor->LockAndAnnounce(); });
  return true;
}

void Speech::Halt() {
  const Lock lock(monitor_->mutex);
  active_ = false;
  monitor_->Announce();
}

bool Speech::Stop() {
  std::shared_ptr<qtts::Stream> stream;
  std::shared_ptr<qtts::Engine> engine;
  bool cancelled = false;
  {
    const Lock lock(monitor_->mutex);
    active_ = false;
    ++flushes_;
    stream = DropAll();
    cancelled = std::exchange(loading_, false);
    if (std::exchange(engine_suspect_, false)) engine = std::exchange(engine_, nullptr);
    monitor_->Announce();
  }
  loader_.Cancel();
  DeliverReports();
  return cancelled;
}

void Speech::Release() {
  std::shared_ptr<qtts::Engine> engine;
  const Lock lock(monitor_->mutex);
  engine = std::exchange(engine_, nullptr);
}

// --- text

Speech::Accept Speech::Offer(Utterance utterance, uint64_t* id) {
  utterance.text = RepairUtf8(utterance.text);
  const Lock lock(monitor_->mutex);
  if (!Running()) return Accept::kFlushing;
  if (failed_ || end_handed_out_) return Accept::kEnded;
  if (!queue_.HasRoom(utterance.text)) return Accept::kFull;
  Enqueue(std::move(utterance));
  if (id != nullptr) *id = last_id_;
  return Accept::kAccepted;
}

Speech::Accept Speech::PushChunk(std::string_view chunk, const Settings& settings, int* repaired) {
  Lock lock(monitor_->mutex);
  *repaired = 0;
  const uint64_t epoch = epoch_;
  const uint64_t flushes = flushes_;
  std::optional<std::string> text;
  for (;;) {
    if (!Running() || !pad_exists_) return Accept::kFlushing;
    if (failed_ || end_handed_out_) return Accept::kEnded;
    if (flushes != flushes_) return Accept::kFlushing;
    if (epoch != epoch_) return Accept::kAccepted;
    if (!text) {
      const std::string joined = joiner_.Push(chunk, repaired);
      text = Trim(joined);
      if (IsBlank(*text)) return Accept::kAccepted;
    }
    if (queue_.HasRoom(*text)) break;
    WaitForChange(&lock, monitor_->changes);
  }
  Enqueue({*std::move(text), settings, true});
  return Accept::kAccepted;
}

// With the lock held.
void Speech::Enqueue(Utterance utterance) {
  utterance.id = ++last_id_;
  queue_.Push(std::move(utterance));
  monitor_->Announce();
}

void Speech::EndText() {
  const Lock lock(monitor_->mutex);
  joiner_ = Utf8Joiner();
  text_ended_ = true;
  monitor_->Announce();
}

bool Speech::InMidCharacter() const {
  const Lock lock(monitor_->mutex);
  return joiner_.in_mid_character();
}

void Speech::BeginText() {
  const Lock lock(monitor_->mutex);
  text_ended_ = false;
}

void Speech::SetPad(bool exists) {
  const Lock lock(monitor_->mutex);
  pad_exists_ = exists;
  text_ended_ = false;
  joiner_ = Utf8Joiner();
  monitor_->Announce();
}

// --- interruptions

uint64_t Speech::Interrupt() {
  std::shared_ptr<qtts::Stream> stream;
  uint64_t frames = 0;
  {
    const Lock lock(monitor_->mutex);
    if (current_) frames = current_->frames;
    stream = DropAll();
    monitor_->Announce();
  }
  // The streaming thread may hold it too, so that letting go would not end it.
  if (stream != nullptr) stream->Cancel();
  DeliverReports();
  return frames;
}

void Speech::ClearQueue() {
  {
    const Lock lock(monitor_->mutex);
    DropQueue();
    monitor_->Announce();
  }
  DeliverReports();
}

void Speech::FlushStart() {
  std::shared_ptr<qtts::Stream> stream;
  {
    const Lock lock(monitor_->mutex);
    flushing_ = true;
    ++flushes_;
    joiner_ = Utf8Joiner();
    stream = DropAll();
    monitor_->Announce();
  }
  if (stream != nullptr) stream->Cancel();
  DeliverReports();
}

void Speech::FlushStop() {
  const Lock lock(monitor_->mutex);
  flushing_ = text_ended_ = end_handed_out_ = false;
  monitor_->Announce();
}

bool Speech::flushing() const {
  const Lock lock(monitor_->mutex);
  return flushing_;
}

void Speech::SetUnlocked(bool unlocked) {
  const Lock lock(monitor_->mutex);
  unlocked_ = unlocked;
  monitor_->Announce();
}

void Speech::Fail() {
  std::shared_ptr<qtts::Stream> stream;
  {
    const Lock lock(monitor_->mutex);
    failed_ = true;
    stream = DropAll();
    monitor_->Announce();
  }
  DeliverReports();
}

// These are called with the lock held.

void Speech::DropQueue() {
  while (!queue_.empty()) {
    const Utterance utterance = queue_.Pop();
    Report report;
    report.kind = Report::Kind::kFinished;
    report.id = utterance.id;
    report.reason = FinishReason::kInterrupted;
    report.text_chars = CountCharacters(utterance.text);
    reports_.push_back(std::move(report));
    ++stats_.dropped;
  }
}

// The caller lets go of the stream without the lock.
std::shared_ptr<qtts::Stream> Speech::DropAll() {
  ++epoch_;
  std::shared_ptr<qtts::Stream> stream;
  if (current_) {
    stream = std::move(current_->stream);
    FinishCurrent(FinishReason::kInterrupted);
  }
  DropQueue();
  return stream;
}

void Speech::FinishCurrent(FinishReason reason) {
  Report report;
  report.kind = Report::Kind::kFinished;
  report.id = current_->utterance.id;
  report.reason = reason;
  report.frames = current_->frames;
  report.samples = current_->samples;
  report.text_chars = current_->position.size();
  report.spoken_chars = reason == FinishReason::kComplete ? report.text_chars : current_->position.spoken();
  if (reason == FinishReason::kComplete) {
    pace_.Learn(current_->position.usual_seconds(), static_cast<double>(current_->samples) / current_->sample_rate);
  }
  reports_.push_back(std::move(report));
  ++(reason == FinishReason::kInterrupted ? stats_.interrupted : stats_.utterances);
  current_.reset();
}

// Without the lock. Whoever finds somebody reporting leaves its own to them.
void Speech::DeliverReports() {
  Lock lock(monitor_->mutex);
  if (std::exchange(reporting_, true)) return;
  while (!reports_.empty()) {
    const Report report = std::move(reports_.front());
    reports_.pop_front();
    lock.unlock();
    if (reporter_) reporter_(report);
    lock.lock();
  }
  reporting_ = false;
}

// --- the streaming thread

Speech::Event Speech::Next(Output* output) {
  const Event event = NextEvent(output);
  DeliverReports();
  return event;
}

Speech::Event Speech::NextEvent(Output* output) {
  *output = Output();
  Event event = Event::kHalted;
  Lock lock(monitor_->mutex);
  for (;;) {
    const uint64_t seen = monitor_->changes;
    if (!Running() || unlocked_ || failed_) return Event::kHalted;
    if (engine_ == nullptr) {
      if (auto loaded = loader_.Take()) {
        loading_ = false;
        if (loaded->ok()) {
          engine_ = **std::move(loaded);
          return Event::kLoaded;
        }
        load_status_ = loaded->status();
      }
      if (!load_status_.ok()) {
        output->status = load_status_;
        return Event::kLoadFailed;
      }
    } else if (current_) {
      if (ReadStream(&lock, output, &event)) return event;
      const auto start = std::chrono::steady_clock::now();
      WaitForChange(&lock, seen);
      stats_.waited += std::chrono::steady_clock::now() - start;
      continue;
    } else if (!queue_.empty()) {
      if (StartNext(&lock, output, &event)) return event;
    } else if (!pad_exists_ || text_ended_) {
      end_handed_out_ = true;
      return Event::kEndOfText;
    }
    WaitForChange(&lock, seen);
  }
}

// Both leave the lock while they are with the engine. They return false when there is nothing to
// tell; what changed meanwhile has moved `changes` on, so that the caller does not wait.

bool Speech::StartNext(Lock* lock, Output* output, Event* event) {
  current_.emplace();
  current_->utterance = queue_.Pop();
  current_->position = TextPosition(pace_.value());
  current_->position.Append(current_->utterance.text);
  monitor_->Announce();  // there is room
  const Utterance utterance = current_->utterance;
  const uint64_t epoch = epoch_;
  const std::shared_ptr<qtts::Engine> engine = engine_;
  const uint64_t random_seed = seeds_() >> 1U;  // non-negative as a signed number, which `seed` is
  lock->unlock();
  const auto start = std::chrono::steady_clock::now();
  const qtts::Request request = MakeRequest(utterance.settings, engine->info(), utterance.text, random_seed);
  auto started = engine->Start(request, [monitor = monitor_] { monitor->LockAndAnnounce(); });
  output->status = started.status();
  std::shared_ptr<qtts::Stream> stream;
  if (started.ok()) stream = *std::move(started);
  lock->lock();
  if (epoch != epoch_) {
    lock->unlock();
    stream.reset();
    lock->lock();
    return false;
  }
  output->from_pad = utterance.from_pad;
  output->seed = request.seed;
  if (stream == nullptr) {
    FinishCurrent(FinishReason::kError);
    *event = Event::kRefused;
    return true;
  }
  output->warnings = stream->warnings();
  stats_.seed = request.seed;
  current_->stream = std::move(stream);
  current_->seed = request.seed;
  current_->start = start;
  current_->sample_rate = engine->info().sample_rate;
  *event = Event::kStarted;
  return true;
}

bool Speech::ReadStream(Lock* lock, Output* output, Event* event) {
  std::shared_ptr<qtts::Stream> stream = current_->stream;
  const uint64_t epoch = epoch_;
  lock->unlock();
  const qtts::ReadState state = stream->TryRead(&output->frame);
  qtts::EndReason reason = qtts::EndReason::kNone;
  qtts::Status status;
  if (state == qtts::ReadState::kEnd) {
    reason = stream->end_reason();
    status = stream->status();
    if (reason == qtts::EndReason::kCancelled) {  // not by us: the epoch would have changed
      reason = qtts::EndReason::kError;
      status =
          qtts::Status::DeviceUnavailable("The engine stopped in the middle of the speech. Start the element again.");
    }
  }
  lock->lock();
  if (epoch != epoch_) {
    lock->unlock();
    stream.reset();
    lock->lock();
    return false;
  }
  switch (state) {
    case qtts::ReadState::kPending:
      return false;
    case qtts::ReadState::kFrame:
      if (output->frame.index == 0) {
        const std::chrono::nanoseconds latency = std::chrono::steady_clock::now() - current_->start;
        current_->first_frame_latency = latency;
        ++stats_.first_frames;
        stats_.first_frame_latency_last = latency;
        stats_.first_frame_latency_sum += latency;
        stats_.first_frame_latency_max = std::max(stats_.first_frame_latency_max, latency);
      }
      stats_.sound_seconds += static_cast<double>(output->frame.pcm.size()) / current_->sample_rate;
      output->epoch = epoch;
      *event = Event::kFrame;
      return true;
    case qtts::ReadState::kEnd:
      break;
  }
  output->end_reason = reason;
  output->status = std::move(status);
  output->from_pad = current_->utterance.from_pad;
  if (reason == qtts::EndReason::kError) engine_suspect_ = true;
  FinishCurrent(reason == qtts::EndReason::kError         ? FinishReason::kError
                : reason == qtts::EndReason::kMaxDuration ? FinishReason::kMaxDuration
                                                          : FinishReason::kComplete);
  // `stream` holds it until the lock is gone.
  lock->unlock();
  *event = Event::kEnded;
  return true;
}

bool Speech::Commit(const Output& output, uint64_t running_time) {
  {
    const Lock lock(monitor_->mutex);
    if (output.epoch != epoch_ || !current_) return false;
    Current& current = *current_;
    Report report;
    report.id = current.utterance.id;
    report.running_time = running_time;
    if (current.frames == 0) {
      Report started = report;
      started.text = current.utterance.text;
      started.seed = current.seed;
      started.first_frame_latency = current.first_frame_latency;
      reports_.push_back(std::move(started));
    }
    ++stats_.frames;
    ++current.frames;
    current.samples += output.frame.pcm.size();
    report.kind = Report::Kind::kProgress;
    for (const TextPosition::Word& word :
         current.position.Advance(static_cast<double>(current.samples) / current.sample_rate)) {
      report.offset = word.offset;
      report.length = word.length;
      reports_.push_back(report);
    }
  }
  DeliverReports();
  return true;
}

void Speech::WaitForChange(Lock* lock, uint64_t seen) {
  monitor_->changed.wait(*lock, [this, seen] { return monitor_->changes != seen; });
}

Speech::Stats Speech::stats() const {
  const Lock lock(monitor_->mutex);
  Stats stats = stats_;
  stats.queued_utterances = queue_.size();
  stats.queued_chars = queue_.characters();
  return stats;
}

std::string Speech::current_text() const {
  const Lock lock(monitor_->mutex);
  return current_ ? current_->utterance.text : std::string();
}

std::shared_ptr<qtts::Engine> Speech::engine() const {
  const Lock lock(monitor_->mutex);
  return engine_;
}

}  // namespace gstqtts
