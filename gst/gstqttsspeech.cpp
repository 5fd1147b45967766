// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gstqttsspeech.h"

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

Speech::Speech() : monitor_(std::make_shared<Monitor>()) {
  std::random_device device;
  seeds_.seed(uint64_t{device()} << 32U | device());
}

Speech::~Speech() {
  Interrupt();
  Stop();
}

// --- state changes

void Speech::Start(std::optional<Utterance> first) {
  const Lock lock(monitor_->mutex);
  active_ = true;
  flushing_ = failed_ = text_ended_ = end_handed_out_ = false;
  joiner_ = Utf8Joiner();
  if (first) queue_.Push(*std::move(first));
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

void Speech::Interrupt() {
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
    queue_.Clear();
    stream = TakeStream();
    cancelled = std::exchange(loading_, false);
    if (std::exchange(engine_suspect_, false)) engine = std::exchange(engine_, nullptr);
    monitor_->Announce();
  }
  loader_.Cancel();
  return cancelled;
}

void Speech::Release() {
  std::shared_ptr<qtts::Engine> engine;
  const Lock lock(monitor_->mutex);
  engine = std::exchange(engine_, nullptr);
}

// --- text

Speech::Accept Speech::Offer(Utterance utterance) {
  const Lock lock(monitor_->mutex);
  if (!Running()) return Accept::kFlushing;
  if (failed_ || end_handed_out_) return Accept::kEnded;
  if (!queue_.HasRoom(utterance.text.size())) return Accept::kFull;
  queue_.Push(std::move(utterance));
  monitor_->Announce();
  return Accept::kAccepted;
}

Speech::Accept Speech::PushChunk(std::string_view chunk, const Settings& settings, int* repaired) {
  Lock lock(monitor_->mutex);
  *repaired = 0;
  const uint64_t epoch = epoch_;
  std::optional<std::string> text;
  for (;;) {
    if (!Running() || !pad_exists_) return Accept::kFlushing;
    if (failed_ || end_handed_out_) return Accept::kEnded;
    if (epoch != epoch_) return Accept::kFlushing;
    if (!text) {
      const std::string joined = joiner_.Push(chunk, repaired);
      text = Trim(joined);
      if (IsBlank(*text)) return Accept::kAccepted;
    }
    if (queue_.HasRoom(text->size())) break;
    WaitForChange(&lock, monitor_->changes);
  }
  queue_.Push({*std::move(text), settings, true});
  monitor_->Announce();
  return Accept::kAccepted;
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

// --- flushes and other interruptions

void Speech::FlushStart() {
  std::shared_ptr<qtts::Stream> stream;
  {
    const Lock lock(monitor_->mutex);
    flushing_ = true;
    queue_.Clear();
    joiner_ = Utf8Joiner();
    stream = TakeStream();
    monitor_->Announce();
  }
  // The streaming thread may hold it too, so that letting go would not end it.
  if (stream != nullptr) stream->Cancel();
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
  const Lock lock(monitor_->mutex);
  failed_ = true;
  queue_.Clear();
  stream = TakeStream();
  monitor_->Announce();
}

// --- the streaming thread

Speech::Event Speech::Next(Output* output) {
  *output = Output();
  Event event = Event::kInterrupted;
  Lock lock(monitor_->mutex);
  for (;;) {
    const uint64_t seen = monitor_->changes;
    if (!Running() || unlocked_ || failed_) return Event::kInterrupted;
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
    } else if (stream_ != nullptr) {
      if (ReadStream(&lock, output, &event)) return event;
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
  Utterance utterance = queue_.Pop();
  monitor_->Announce();  // there is room
  const uint64_t epoch = epoch_;
  const std::shared_ptr<qtts::Engine> engine = engine_;
  const uint64_t random_seed = seeds_() >> 1U;  // non-negative as a signed number, which `seed` is
  lock->unlock();
  const auto start = std::chrono::steady_clock::now();
  const qtts::Request request = MakeRequest(utterance.settings, engine->info(), std::move(utterance.text), random_seed);
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
    *event = Event::kRefused;
    return true;
  }
  output->warnings = stream->warnings();
  stream_ = std::move(stream);
  stream_from_pad_ = utterance.from_pad;
  stream_start_ = start;
  *event = Event::kStarted;
  return true;
}

bool Speech::ReadStream(Lock* lock, Output* output, Event* event) {
  std::shared_ptr<qtts::Stream> stream = stream_;
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
      if (output->frame.index == 0) output->first_frame_latency = std::chrono::steady_clock::now() - stream_start_;
      *event = Event::kFrame;
      return true;
    case qtts::ReadState::kEnd:
      break;
  }
  stream_.reset();  // `stream` holds it until the lock is gone
  output->end_reason = reason;
  output->status = std::move(status);
  output->from_pad = stream_from_pad_;
  if (reason == qtts::EndReason::kError) engine_suspect_ = true;
  lock->unlock();
  *event = Event::kEnded;
  return true;
}

void Speech::WaitForChange(Lock* lock, uint64_t seen) {
  monitor_->changed.wait(*lock, [this, seen] { return monitor_->changes != seen; });
}

// With the lock held. The caller lets go of the stream without it.
std::shared_ptr<qtts::Stream> Speech::TakeStream() {
  ++epoch_;
  return std::exchange(stream_, nullptr);
}

std::shared_ptr<qtts::Engine> Speech::engine() const {
  const Lock lock(monitor_->mutex);
  return engine_;
}

}  // namespace gstqtts
