// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gstqttsspeech.h"

#include <glib.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <tuple>
#include <utility>

#include "qtts/engine.h"
#include "qtts/language.h"
#include "qtts/polling.h"
#include "qtts/resources.h"
#include "qtts/text_check.h"

namespace gstqtts {
namespace {

// Several times as long as a GPU takes for a prompt and a frame.
constexpr std::chrono::milliseconds kFirstFramePatience{20};

// BCP-47 tag of the language that is asked for; empty: that of the text, which nobody knows.
std::string Tag(const Settings& settings) { return std::string(qtts::ResolveLanguage(settings.language).tag); }

}  // namespace

struct Speech::Monitor {
  std::mutex mutex;
  std::condition_variable changed;
  std::atomic<uint64_t> changes = 0;  // written with the mutex held
  bool woken = false;

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

Speech::Speech(Reporter reporter, Keeper keeper)
    : monitor_(std::make_shared<Monitor>()),
      reporter_(std::move(reporter)),
      keeper_(std::move(keeper)),
      seeds_(uint64_t{g_random_int()} << 32U | g_random_int()),  // not std::random_device, which may throw
      voices_([monitor = monitor_] { monitor->LockAndAnnounce(); }),
      loader_([monitor = monitor_] { monitor->LockAndAnnounce(); }) {}

Speech::~Speech() {
  Halt();
  Stop();
}

// --- state changes

void Speech::Start(const TextOptions& options, std::optional<Utterance> first) {
  const Lock lock(monitor_->mutex);
  text_options_ = options;
  queue_.SetMaxCharacters(options.max_queued);
  active_ = true;
  flushing_ = failed_ = text_ended_ = ending_ = end_handed_out_ = false;
  joiner_ = Utf8Joiner();
  stats_ = Stats();
  if (first) Enqueue(*std::move(first));
}

void Speech::SetMaxQueued(uint64_t characters) {
  const Lock lock(monitor_->mutex);
  queue_.SetMaxCharacters(characters);
  monitor_->Announce();
}

bool Speech::NeedsLoad(const qtts::EngineOptions& options) {
  const Lock lock(monitor_->mutex);
  return engine_ == nullptr || options != options_ || engine_->device_lost();
}

void Speech::Load(const qtts::EngineOptions& options, const std::function<void(EngineLoader::Outcome)>& on_done) {
  // The old model goes before the new one comes: both at once may not fit into memory.
  std::shared_ptr<qtts::Engine> old;
  {
    const Lock lock(monitor_->mutex);
    old = std::exchange(engine_, nullptr);
    loading_ = true;
    load_status_ = qtts::Status::Ok();
    options_ = options;
  }
  old.reset();
  loader_.Start(options, on_done);
}

void Speech::UseLoad(EngineLoader::Outcome outcome) {
  std::shared_ptr<qtts::Stream> stream;
  {
    const Lock lock(monitor_->mutex);
    loading_ = false;
    load_status_ = outcome.status();
    if (outcome.ok()) {
      engine_ = *std::move(outcome);
    } else {
      failed_ = true;
      stream = DropAll();
    }
    monitor_->Announce();
  }
  DeliverReports();
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
  loader_.Cancel();
  voices_.Cancel();
  {
    const Lock lock(monitor_->mutex);
    active_ = false;
    ++flushes_;
    stream = DropAll();
    cancelled = std::exchange(loading_, false);
    if (std::exchange(engine_suspect_, false)) engine = std::exchange(engine_, nullptr);
    monitor_->Announce();
  }
  DeliverReports();
  return cancelled;
}

void Speech::Release() {
  std::shared_ptr<qtts::Engine> engine;
  const Lock lock(monitor_->mutex);
  engine = std::exchange(engine_, nullptr);
  load_status_ = qtts::Status::Ok();
}

// --- text

Speech::Accept Speech::Offer(Utterance utterance, uint64_t* id) {
  utterance.text = RepairUtf8(utterance.text);
  const Lock lock(monitor_->mutex);
  if (!Running()) return Accept::kFlushing;
  if (failed_ || ending_ || end_handed_out_) return Accept::kEnded;
  if (!queue_.HasRoom(utterance.text)) return Accept::kFull;
  Enqueue(std::move(utterance));
  if (id != nullptr) *id = last_id_;
  return Accept::kAccepted;
}

Speech::Accept Speech::PushChunk(std::string_view chunk, const Settings& settings, int* repaired, const Cue& cue) {
  Lock lock(monitor_->mutex);
  *repaired = 0;
  const uint64_t epoch = epoch_;
  const uint64_t flushes = flushes_;
  std::optional<std::string> text;
  for (;;) {
    if (!Running() || !pad_exists_) return Accept::kFlushing;
    if (failed_ || ending_ || end_handed_out_) return Accept::kEnded;
    if (flushes != flushes_) return Accept::kFlushing;
    if (epoch != epoch_) return Accept::kAccepted;
    if (!text) {
      text = joiner_.Push(chunk, repaired);
      pad_settings_ = settings;
      pad_cue_ = cue;
      last_text_ = Clock::now();
      monitor_->Announce();  // the deadline has moved
    }
    if (QueueText(&*text)) return Accept::kAccepted;
    upstream_waits_ = true;
    WaitForChange(&lock, monitor_->changes);
    upstream_waits_ = false;
  }
}

// These are called with the lock held. The first four take from `text` what there is room for, and return
// whether that was all.

Segmentation Speech::segmentation() const {
  if (text_options_.segmentation != Segmentation::kAuto) return text_options_.segmentation;
  return pieces_ ? Segmentation::kSentence : Segmentation::kNone;
}

bool Speech::QueueText(std::string* text) {
  switch (segmentation()) {
    case Segmentation::kAuto:
    case Segmentation::kNone:
      return QueueWhole(text);
    case Segmentation::kSentence:
      segmenter_.SetOptions({.newline_ends = text_options_.newline_ends,
                             .max_chars = text_options_.max_chars,
                             .language = Tag(pad_settings_)});
      segmenter_.Append(*text);
      text->clear();
      return QueueSentences();
    case Segmentation::kStream:
      return GrowUtterance(text);
  }
  return true;
}

bool Speech::QueueWhole(std::string* text) {
  while (!IsBlank(*text)) {
    const size_t end = CutPosition(*text, text_options_.max_chars, Tag(pad_settings_));
    std::string part(Trim(std::string_view(*text).substr(0, end)));
    if (!IsBlank(part)) {
      if (!queue_.HasRoom(part)) return false;
      Enqueue({.text = std::move(part), .settings = pad_settings_, .stream = pad_stream_, .cue = pad_cue_});
      pad_cue_.start.reset();  // of a text that is cut, the first part alone has a beginning of its own
    }
    text->erase(0, end);
  }
  return true;
}

bool Speech::QueueSentences() {
  while (sentence_ || (sentence_ = segmenter_.Next())) {
    if (!queue_.HasRoom(*sentence_)) return false;
    Enqueue({.text = *std::exchange(sentence_, std::nullopt), .settings = pad_settings_, .stream = pad_stream_});
    QueueEvents();
  }
  return true;
}

bool Speech::GrowUtterance(std::string* text) {
  while (!text->empty()) {
    const size_t newline = text_options_.newline_ends ? text->find_first_of("\r\n") : std::string::npos;
    const std::string_view line = std::string_view(*text).substr(0, newline);
    const bool spoken = current_ && current_->utterance.id == growing_id_;
    Utterance* growing = spoken ? &current_->utterance : queue_.Find(growing_id_);
    size_t taken = line.size();
    if (growing == nullptr) {
      if (!growing_failed_ && !IsBlank(line)) {
        taken = CutPosition(line, text_options_.max_chars, Tag(pad_settings_));
        const std::string begun(TrimLeft(line.substr(0, taken)));
        if (!queue_.HasRoom(begun)) return false;
        // The only layout that can wait for text, and the same however fast the text comes.
        Enqueue({.text = begun, .settings = pad_settings_, .streamed = true, .more_text = true, .stream = pad_stream_});
        growing_id_ = last_id_;
        if (taken < line.size()) CloseUtterance();
      }
    } else if (CountCharacters(growing->text) + CountCharacters(line) > text_options_.max_chars ||
               (AwaitsWords() && !queue_.HasRoom(line))) {  // nothing else would make room
      CloseUtterance();
      continue;
    } else if (spoken) {
      growing->text.append(line);
      if (current_->stream != nullptr) current_->position.Append(line);
      current_->more.append(line);
    } else if (queue_.HasRoom(line)) {
      queue_.Grow(growing, line);
    } else {
      return false;
    }
    if (taken == newline) {
      CloseUtterance();
      ++taken;
    }
    text->erase(0, taken);
    monitor_->Announce();
  }
  return true;
}

void Speech::CloseUtterance() {
  while (sentence_ || (sentence_ = segmenter_.NextAtEnd())) {
    Enqueue({.text = *std::exchange(sentence_, std::nullopt), .settings = pad_settings_, .stream = pad_stream_});
    QueueEvents();
  }
  if (current_ && current_->utterance.id == growing_id_) {
    current_->utterance.more_text = false;
  } else if (Utterance* growing = queue_.Find(growing_id_)) {
    growing->more_text = false;
  }
  QueueEvents();
  growing_id_ = 0;
  growing_failed_ = false;
  monitor_->Announce();
}

// When the streaming thread has to close what has begun, unless more text comes.
std::optional<Speech::Clock::time_point> Speech::UtteranceDeadline() const {
  constexpr std::chrono::nanoseconds kForever = std::chrono::hours(24 * 365);
  const bool grows = current_ && current_->utterance.more_text;
  const bool begun = !current_ && (!segmenter_.empty() || AwaitsWords() || growing_failed_);
  if ((!grows && !begun) || text_options_.timeout > static_cast<uint64_t>(kForever.count())) return std::nullopt;
  return last_text_ + std::chrono::nanoseconds(text_options_.timeout);
}

void Speech::EndUtterance() {
  const Lock lock(monitor_->mutex);
  CloseUtterance();
}

bool Speech::Drain() {
  Lock lock(monitor_->mutex);
  const uint64_t flushes = flushes_;
  CloseUtterance();
  for (;;) {
    if (!Running() || !pad_exists_ || failed_ || ending_ || flushes != flushes_) return false;
    if (queue_.empty() && !current_) return true;
    WaitForChange(&lock, monitor_->changes);
  }
}

// With the lock held.
void Speech::Enqueue(Utterance utterance) {
  utterance.id = ++last_id_;
  queue_.Push(std::move(utterance));
  monitor_->Announce();
}

void Speech::PushGap(uint64_t until) {
  const Lock lock(monitor_->mutex);
  // Where much is waiting, the silence comes before the text that follows.
  if (!Running() || failed_ || ending_ || end_handed_out_ || !queue_.HasRoom({})) return;
  queue_.Push({.cue = {.start = until, .end = {}}});
  monitor_->Announce();
}

bool Speech::PushEvent(std::shared_ptr<void> event) {
  Lock lock(monitor_->mutex);
  const uint64_t flushes = flushes_;
  for (;;) {
    if (!Running() || !pad_exists_ || failed_ || end_handed_out_ || flushes != flushes_) return false;
    if (queue_.HasRoom({})) break;
    upstream_waits_ = true;
    WaitForChange(&lock, monitor_->changes);
    upstream_waits_ = false;
  }
  events_.push_back(std::move(event));
  if (segmenter_.empty()) QueueEvents();
  return true;
}

// With the lock held.
void Speech::QueueEvents() {
  for (std::shared_ptr<void>& event : events_) queue_.Push({.event = std::move(event)});
  events_.clear();
  monitor_->Announce();
}

void Speech::EndText() {
  const Lock lock(monitor_->mutex);
  joiner_ = Utf8Joiner();
  CloseUtterance();
  text_ended_ = true;
}

bool Speech::InMidCharacter() const {
  const Lock lock(monitor_->mutex);
  return joiner_.in_mid_character();
}

void Speech::BeginSegment(bool pieces) {
  const Lock lock(monitor_->mutex);
  if (std::exchange(pieces_, pieces) != pieces) CloseUtterance();
}

void Speech::BeginText() {
  const Lock lock(monitor_->mutex);
  ++pad_stream_;
  text_ended_ = false;
}

void Speech::SetPad(bool exists) {
  const Lock lock(monitor_->mutex);
  pad_exists_ = exists;
  text_ended_ = false;
  joiner_ = Utf8Joiner();
  CloseUtterance();
}

// --- interruptions

uint64_t Speech::Interrupt() {
  std::shared_ptr<qtts::Stream> stream;
  uint64_t frames = 0;
  {
    const Lock lock(monitor_->mutex);
    if (current_) frames = current_->frames;
    stream = DropAll(false);
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
    DropQueue(false);
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
  flushing_ = text_ended_ = ending_ = end_handed_out_ = false;
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

void Speech::SetIdle(Idle idle) {
  const Lock lock(monitor_->mutex);
  idle_ = idle;
  monitor_->Announce();
}

std::function<void()> Speech::waker() const {
  return [monitor = monitor_] {
    const std::lock_guard lock(monitor->mutex);
    monitor->woken = true;
    monitor->Announce();
  };
}

void Speech::ClearWake() {
  const Lock lock(monitor_->mutex);
  monitor_->woken = false;
}

bool Speech::EndAfterCurrent() {
  std::shared_ptr<qtts::Stream> stream;
  {
    const Lock lock(monitor_->mutex);
    if (!Running() || failed_ || end_handed_out_) return false;
    ending_ = true;
    joiner_ = Utf8Joiner();
    if (current_ && current_->frames > 0) {
      DropQueue(true);
      CloseUtterance();
    } else {
      stream = DropAll();
    }
    monitor_->Announce();
  }
  if (stream != nullptr) stream->Cancel();
  DeliverReports();
  return true;
}

bool Speech::ending() const {
  const Lock lock(monitor_->mutex);
  return ending_;
}

void Speech::EndSound() {
  std::shared_ptr<qtts::Stream> stream;
  {
    const Lock lock(monitor_->mutex);
    end_handed_out_ = true;
    stream = DropAll();
    monitor_->Announce();
  }
  DeliverReports();
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

// No text waits, and none can come.
bool Speech::TextIsOver() const {
  if (ending_) return true;
  return queue_.empty() && segmenter_.empty() && (pad_exists_ ? text_ended_ : idle_ == Idle::kEnd);
}

// There was text, and all of it failed.
bool Speech::NothingWasSpoken() const {
  return stats_.failed > 0 && stats_.failed == stats_.utterances && stats_.interrupted == 0;
}

void Speech::DropQueue(bool with_events) {
  sentence_.reset();
  segmenter_.Clear();
  std::vector<std::shared_ptr<void>> waiting;
  while (!queue_.empty()) {
    const Utterance utterance = queue_.Pop();
    if (utterance.event != nullptr) waiting.push_back(utterance.event);
    if (utterance.text.empty()) continue;  // a gap
    Report report;
    report.kind = Report::Kind::kFinished;
    report.id = utterance.id;
    report.reason = FinishReason::kInterrupted;
    report.text_chars = CountCharacters(utterance.text);
    reports_.push_back(std::move(report));
    ++stats_.dropped;
  }
  waiting.insert(waiting.end(), events_.begin(), events_.end());
  events_.clear();
  if (with_events) return;
  events_ = std::move(waiting);
  QueueEvents();
}

// The caller lets go of the stream without the lock.
std::shared_ptr<qtts::Stream> Speech::DropAll(bool with_events) {
  ++epoch_;
  growing_failed_ = false;
  std::shared_ptr<qtts::Stream> stream;
  if (current_) {
    stream = std::move(current_->stream);
    FinishCurrent(FinishReason::kInterrupted);
  }
  DropQueue(with_events);
  return stream;
}

void Speech::FinishCurrent(FinishReason reason) {
  Report report;
  report.kind = Report::Kind::kFinished;
  report.id = current_->utterance.id;
  report.reason = reason;
  report.frames = current_->frames;
  report.samples = current_->samples;
  report.text_chars = CountCharacters(current_->utterance.text);
  report.spoken_chars = reason == FinishReason::kComplete ? report.text_chars : current_->position.spoken();
  if (reason == FinishReason::kComplete) {
    pace_.Learn(current_->position.usual_seconds(), static_cast<double>(current_->samples) / current_->sample_rate);
  }
  reports_.push_back(std::move(report));
  ++(reason == FinishReason::kInterrupted ? stats_.interrupted : stats_.utterances);
  if (reason == FinishReason::kNothingToSay) ++stats_.unsayable;
  current_.reset();
  monitor_->Announce();
}

// Of `output`, the status is known already.
void Speech::FailCurrent(Output* output, FinishReason reason) {
  output->settings = current_->utterance.settings;
  last_failure_ = output->status;
  ++stats_.failed;
  growing_failed_ = growing_id_ != 0 && growing_id_ == current_->utterance.id;
  FinishCurrent(reason);
  output->nothing_spoken = TextIsOver() && NothingWasSpoken();
}

// Without the lock. Whoever finds somebody reporting leaves its own to them.
void Speech::DeliverReports() {
  Lock lock(monitor_->mutex);
  if (reports_.empty() || !DeliverReports(&lock) || reports_.empty()) return;
  lock.unlock();
  DeliverRestOnPool();
}

// What has happened so far. False if somebody is reporting.
bool Speech::DeliverReports(Lock* lock) {
  if (reporting_ != std::thread::id()) {
    // By the handler of one of its reports the thread made more happen, which is its own as well.
    if (reporting_ == std::this_thread::get_id()) to_report_ = reports_.size();
    return false;
  }
  reporting_ = std::this_thread::get_id();
  to_report_ = reports_.size();
  while (to_report_ > 0) {
    --to_report_;
    const Report report = std::move(reports_.front());
    reports_.pop_front();
    lock->unlock();
    // What a full memory keeps from being told is lost; that nobody reports any more must not be.
    std::ignore = qtts::CatchExhaustion("tell of an utterance", [&] {
      if (reporter_) reporter_(report);
      return qtts::Status::Ok();
    });
    lock->lock();
  }
  reporting_ = {};
  monitor_->Announce();  // kEndOfText waits for it
  return true;
}

struct Speech::PoolJob {
  Speech* speech;
  std::shared_ptr<void> keeper;
};

void Speech::DeliverRestOnPool() {
  static GThreadPool* const pool = g_thread_pool_new(DeliverRest, nullptr, -1, FALSE, nullptr);
  auto* job = new PoolJob{this, keeper_ ? keeper_() : nullptr};
  // Without a thread the job stays in the pool until there is one. Until then the reports are not lost, but late.
  g_thread_pool_push(pool, job, nullptr);
}

void Speech::DeliverRest(gpointer data, gpointer /*user_data*/) {
  const std::unique_ptr<PoolJob> job(static_cast<PoolJob*>(data));
  Speech* speech = job->speech;
  Lock lock(speech->monitor_->mutex);
  while (!speech->reports_.empty() && speech->DeliverReports(&lock)) continue;
}

// --- the streaming thread

Speech::Event Speech::Next(Output* output) {
  std::optional<Event> event;
  while (!event) {
    event = NextEvent(output);
    DeliverReports();
  }
  return *event;
}

// Nothing if all that happened is to be reported.
std::optional<Speech::Event> Speech::NextEvent(Output* output) {
  *output = Output();
  Event event = Event::kHalted;
  Lock lock(monitor_->mutex);
  for (;;) {
    const uint64_t seen = monitor_->changes;
    JoinThreads(&lock);
    if (!Running() || unlocked_) return Event::kHalted;
    if (!load_status_.ok()) return Event::kLoadFailed;
    if (failed_) return Event::kHalted;
    if (!current_ && TextIsOver() && (engine_ != nullptr || ending_)) {
      if (reports_.empty() && reporting_ == std::thread::id()) {
        end_handed_out_ = true;
        if (NothingWasSpoken()) output->status = last_failure_;
        return Event::kEndOfText;
      }
      if (!DeliverReports(&lock)) WaitForChange(&lock, seen);
      continue;
    }
    if (engine_ == nullptr) {
      // The loader wakes us.
    } else if (current_) {
      if (!queue_.empty() && queue_.front().id != prepared_id_) {
        PrepareNext(&lock);
        continue;
      }
      const bool growing = current_->growing;
      if (ReadStream(&lock, output, &event)) return event;
      if (growing && current_) current_->awaited_text = true;
      if (std::exchange(monitor_->woken, false)) return Event::kWoken;
      const auto start = Clock::now();
      PollForFirstFrame(&lock, seen);
      if (!WaitForChange(&lock, seen, UtteranceDeadline())) CloseUtterance();
      if (!growing) stats_.waited += Clock::now() - start;
      continue;
    } else if (!queue_.empty() && queue_.front().text.empty()) {
      const Utterance next = queue_.Pop();
      monitor_->Announce();  // there is room
      output->cue = next.cue;
      output->event = next.event;
      return next.event != nullptr ? Event::kEvent : Event::kGap;
    } else if (DropUnsayable()) {
      return std::nullopt;
    } else if (!queue_.empty() && !AwaitsWords()) {
      if (StartNext(&lock, output, &event)) return event;
    }
    if (idle_ == Idle::kTell && !current_ && (queue_.empty() || AwaitsWords())) {
      const auto deadline = UtteranceDeadline();
      if (!deadline || Clock::now() < *deadline) return Event::kIdle;
      CloseUtterance();
      continue;
    }
    if (std::exchange(monitor_->woken, false)) return Event::kWoken;
    if (!WaitForChange(&lock, seen, UtteranceDeadline())) CloseUtterance();
  }
}

// Both leave the lock while they are with the engine. They return false when there is nothing to
// tell; what changed meanwhile has moved `changes` on, so that the caller does not wait.

// Without the lock, which an ended thread may still be about to let go of.
void Speech::JoinThreads(Lock* lock) {
  lock->unlock();
  loader_.JoinEnded();
  voices_.JoinEnded();
  lock->lock();
}

// Has the voice of the utterance that comes next made while the current one is spoken.
void Speech::PrepareNext(Lock* lock) {
  prepared_id_ = queue_.front().id;
  const Settings settings = queue_.front().settings;
  const std::shared_ptr<qtts::Engine> engine = engine_;
  lock->unlock();
  voices_.Prepare(engine, settings);
  lock->lock();
}

// With the lock held. Whether the next utterance grows, and there is nothing to say in it so far: whether it will be
// spoken shows with the first word or at its end.
bool Speech::AwaitsWords() const {
  if (current_ || queue_.empty()) return false;
  const Utterance& next = queue_.front();
  return next.more_text && !next.settings.speak_anything && !qtts::IsSayable(next.text);
}

// With the lock held. Finishes the next utterance if there is nothing to say in it.
bool Speech::DropUnsayable() {
  if (queue_.empty()) return false;
  const Utterance& next = queue_.front();
  if (next.more_text || next.settings.speak_anything || qtts::IsSayable(next.text)) return false;
  current_ = Current();
  current_->utterance = queue_.Pop();
  FinishCurrent(FinishReason::kNothingToSay);
  return true;
}

bool Speech::StartNext(Lock* lock, Output* output, Event* event) {
  const std::shared_ptr<qtts::Engine> engine = engine_;
  const Settings settings = queue_.front().settings;
  const uint64_t id = queue_.front().id;
  lock->unlock();
  std::optional<VoiceStore::Voice> voice = voices_.Get(engine, settings);
  lock->lock();
  if (!voice || queue_.empty() || queue_.front().id != id) return false;
  current_ = Current();
  current_->utterance = queue_.Pop();
  current_->growing = current_->utterance.more_text;
  monitor_->Announce();  // there is room
  const Utterance utterance = current_->utterance;
  const uint64_t epoch = epoch_;
  const uint64_t random_seed = seeds_() >> 1U;  // non-negative as a signed number, which `seed` is
  // Here rather than where it is needed first, and not with the lock held: of a long text it takes a while.
  TextPosition position(pace_.value(), Tag(current_->utterance.settings));
  lock->unlock();
  const auto start = Clock::now();
  qtts::Request request = MakeRequest(utterance.settings, engine->info(), utterance.text, random_seed);
  request.more_text = utterance.more_text;
  if (utterance.streamed && request.layout == qtts::PromptLayout::kDefault) {
    request.layout = qtts::PromptLayout::kStreaming;
  }
  const auto start_stream = [&]() -> qtts::Result<std::unique_ptr<qtts::Stream>> {
    QTTS_ASSIGN_OR_RETURN(request.voice, *std::move(voice));
    return engine->Start(request, [monitor = monitor_] { monitor->LockAndAnnounce(); });
  };
  auto started = start_stream();
  output->status = started.status();
  output->device_lost = engine->device_lost();
  std::shared_ptr<qtts::Stream> stream;
  std::string language_warning;
  if (started.ok()) {
    stream = *std::move(started);
    // The engine is busy with the first frame now, and nobody waits for us.
    position.Append(utterance.text);
    position.FindWords();
    // Of a text that grows, the beginning tells too little.
    if (!utterance.streamed) language_warning = LanguageWarningOf(utterance, engine->info());
  }
  lock->lock();
  if (epoch != epoch_) {
    lock->unlock();
    stream.reset();
    lock->lock();
    return false;
  }
  output->seed = request.seed;
  output->cue = utterance.cue;
  output->language = Tag(utterance.settings);
  output->language_warning = std::move(language_warning);
  if (stream == nullptr) {
    FailCurrent(output, FinishReason::kError);
    *event = Event::kRefused;
    return true;
  }
  output->warnings = stream->warnings();
  stats_.seed = request.seed;
  current_->stream = std::move(stream);
  // With what the text has grown by meanwhile.
  position.Append(std::string_view(current_->utterance.text).substr(utterance.text.size()));
  current_->position = std::move(position);
  current_->seed = request.seed;
  current_->start = start;
  current_->sample_rate = engine->info().sample_rate;
  *event = Event::kStarted;
  return true;
}

bool Speech::ReadStream(Lock* lock, Output* output, Event* event) {
  std::shared_ptr<qtts::Stream> stream = current_->stream;
  const std::shared_ptr<qtts::Engine> engine = engine_;
  const uint64_t epoch = epoch_;
  const std::string more = std::exchange(current_->more, {});
  const bool finish = current_->growing && !current_->utterance.more_text;
  if (finish) current_->growing = false;
  lock->unlock();
  qtts::Status status;
  if (!more.empty()) status = stream->Append(more);
  if (finish && status.ok()) status = stream->FinishText();
  // Text that comes after the model has ended the utterance is no fault.
  if (status.code() == qtts::StatusCode::kCancelled) status = qtts::Status::Ok();
  qtts::ReadState state = qtts::ReadState::kEnd;
  qtts::EndReason reason = qtts::EndReason::kError;
  if (status.ok()) {
    state = stream->TryRead(&output->frame);
    if (state == qtts::ReadState::kEnd) {
      reason = stream->end_reason();
      status = stream->status();
    }
  }
  if (reason == qtts::EndReason::kCancelled) {  // not by us: the epoch would have changed
    reason = qtts::EndReason::kError;
    status =
        qtts::Status::DeviceUnavailable("The engine stopped in the middle of the speech. Start the element again.");
  }
  output->device_lost = engine->device_lost();
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
        const std::chrono::nanoseconds latency = Clock::now() - current_->start;
        current_->first_frame_latency = latency;
        ++stats_.first_frames;
        stats_.first_frame_latency_last = latency;
        stats_.first_frame_latency_sum += latency;
        stats_.first_frame_latency_max = std::max(stats_.first_frame_latency_max, latency);
      }
      stats_.sound_seconds += static_cast<double>(output->frame.pcm.size()) / current_->sample_rate;
      output->awaited_text = std::exchange(current_->awaited_text, false);
      *event = Event::kFrame;
      return true;
    case qtts::ReadState::kEnd:
      break;
  }
  output->end_reason = reason;
  output->status = std::move(status);
  std::optional<Utterance> grown;
  if (current_->utterance.streamed && output->status.ok()) grown = current_->utterance;
  if (reason == qtts::EndReason::kError) engine_suspect_ = true;
  if (reason == qtts::EndReason::kError || reason == qtts::EndReason::kBusy) {
    FailCurrent(output, reason == qtts::EndReason::kBusy ? FinishReason::kBusy : FinishReason::kError);
  } else {
    FinishCurrent(reason == qtts::EndReason::kMaxDuration ? FinishReason::kMaxDuration
                  : reason == qtts::EndReason::kRunaway   ? FinishReason::kRunaway
                                                          : FinishReason::kComplete);
  }
  // `stream` holds it until the lock is gone.
  lock->unlock();
  if (grown) output->language_warning = LanguageWarningOf(*grown, engine->info());
  *event = Event::kEnded;
  return true;
}

// Without the lock, by the streaming thread.
std::string Speech::LanguageWarningOf(const Utterance& utterance, const qtts::ModelInfo& model) {
  std::string warning = qtts::LanguageWarning(utterance.text, model.languages, utterance.settings.language);
  if (warning.empty() || utterance.stream == 0) return warning;
  if (std::exchange(warned_stream_, utterance.stream) != utterance.stream) language_warnings_.clear();
  return language_warnings_.insert(warning).second ? warning : "";
}

bool Speech::Commit(const Output& output, uint64_t running_time) {
  {
    const Lock lock(monitor_->mutex);
    if (!current_) return false;  // only Next() begins another
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

void Speech::Clip() {
  std::shared_ptr<qtts::Stream> stream;
  {
    const Lock lock(monitor_->mutex);
    if (!current_) return;
    stream = std::move(current_->stream);
    FinishCurrent(FinishReason::kClipped);
    monitor_->Announce();
  }
  DeliverReports();
}

bool Speech::WouldCommit() const {
  const Lock lock(monitor_->mutex);
  return current_.has_value();
}

// Waits awake for the first frame of an utterance where that takes nothing from the device that makes it: a thread that
// sleeps, and the processor under it, take longer to wake up than the frame takes from here to the pad.
void Speech::PollForFirstFrame(Lock* lock, uint64_t seen) {
  if (!current_ || current_->growing || current_->first_frame_latency.count() != 0 || !engine_->beside_host()) return;
  const qtts::PollPermit permit;
  if (!permit.granted()) return;
  const auto end = current_->start + kFirstFramePatience;
  lock->unlock();
  while (monitor_->changes == seen && Clock::now() < end) std::this_thread::yield();
  lock->lock();
}

// False if `until` came first.
bool Speech::WaitForChange(Lock* lock, uint64_t seen, std::optional<Clock::time_point> until) {
  const auto changed = [this, seen] { return monitor_->changes != seen; };
  if (until) return monitor_->changed.wait_until(*lock, *until, changed);
  monitor_->changed.wait(*lock, changed);
  return true;
}

Speech::Stats Speech::stats() const {
  const Lock lock(monitor_->mutex);
  Stats stats = stats_;
  stats.queued_utterances = queue_.size();
  stats.queued_chars = queue_.characters();
  stats.upstream_waits = upstream_waits_;
  if (engine_ != nullptr) stats.occupancy = engine_->occupancy();  // takes no lock
  return stats;
}

std::string Speech::current_text() const {
  const Lock lock(monitor_->mutex);
  return current_ ? current_->utterance.text : std::string();
}

bool Speech::WaitsForEngine() const {
  const Lock lock(monitor_->mutex);
  return current_ && !current_->growing && !current_->awaited_text;
}

}  // namespace gstqtts
