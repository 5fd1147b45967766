// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gstqttsplayer.h"

#include <glib.h>

#include <algorithm>
#include <iterator>
#include <thread>
#include <utility>

#include "gstqttsdocument.h"
#include "gstqttsmarkup.h"
#include "gstqttspreparation.h"
#include "qtts/engine.h"
#include "qtts/language.h"
#include "qtts/polling.h"
#include "qtts/text_check.h"

namespace gstqtts {
namespace {

using Clock = Monitor::Clock;

// Several times the duration of a prompt and a frame on a GPU.
constexpr std::chrono::milliseconds kFirstFramePatience{20};

}  // namespace

Player::Player(std::shared_ptr<Monitor> monitor, Intake& intake, Reports& reports,
               std::optional<SpokenUtterance>& spoken)
    : monitor_(std::move(monitor)),
      intake_(intake),
      reports_(reports),
      spoken_(spoken),
      random_(uint64_t{g_random_int()} << 32U | g_random_int()),  // not std::random_device, which may throw
      voices_([monitor = monitor_] { monitor->LockAndAnnounce(); }),
      loader_([monitor = monitor_] { monitor->LockAndAnnounce(); }) {}

Player::~Player() = default;

// --- the engine

bool Player::NeedsLoad(const qtts::EngineOptions& options) const {
  const MonitorLock lock(*monitor_);
  return engine_ == nullptr || options != options_ || engine_->device_lost();
}

void Player::Load(const qtts::EngineOptions& options, const std::function<void(EngineLoader::Outcome)>& on_done) {
  // The old model goes before the new one comes: both at once may not fit into memory.
  std::shared_ptr<qtts::Engine> old;
  {
    const MonitorLock lock(*monitor_);
    old = std::exchange(engine_, nullptr);
    loading_ = true;
    load_status_ = qtts::Status::Ok();
    options_ = options;
  }
  old.reset();
  loader_.Start(options, on_done);
}

void Player::UseLoad(EngineLoader::Outcome outcome) {
  loading_ = false;
  load_status_ = outcome.status();
  if (outcome.ok()) engine_ = *std::move(outcome);
}

void Player::CancelWork() {
  loader_.Cancel();
  voices_.Cancel();
}

void Player::Start(int parallel) {
  counts_ = Counts();
  ahead_.SetParallel(parallel);
  markup_warnings_.clear();
  in_parallel_ = parallel > 1;
}

bool Player::Stop(std::shared_ptr<qtts::Engine>* engine) {
  if (std::exchange(engine_suspect_, false)) *engine = std::exchange(engine_, nullptr);
  return std::exchange(loading_, false);
}

void Player::Release() {
  std::shared_ptr<qtts::Engine> engine;
  const MonitorLock lock(*monitor_);
  engine = std::exchange(engine_, nullptr);
  load_status_ = qtts::Status::Ok();
}

qtts::Occupancy Player::occupancy() const {
  return engine_ != nullptr ? engine_->occupancy() : qtts::Occupancy();  // takes no lock
}

// --- by any thread

bool Player::WouldCommit() const {
  const MonitorLock lock(*monitor_);
  return spoken_.has_value();
}

bool Player::WaitsForEngine() const {
  const MonitorLock lock(*monitor_);
  return spoken_ && !spoken_->growing && !spoken_->awaited_text;
}

std::string Player::current_text() const {
  const MonitorLock lock(*monitor_);
  return spoken_ ? spoken_->utterance.text : std::string();
}

void Player::SetIdle(Idle idle) {
  const MonitorLock lock(*monitor_);
  idle_ = idle;
  monitor_->Announce();
}

std::function<void()> Player::waker() const {
  return [monitor = monitor_] {
    const MonitorLock lock(*monitor);
    monitor->woken = true;
    monitor->Announce();
  };
}

void Player::ClearWake() {
  const MonitorLock lock(*monitor_);
  monitor_->woken = false;
}

// --- the ends of utterances, with the mutex held

// True if there was text and all of it failed.
bool Player::NothingWasSpoken() const {
  return counts_.failed > 0 && counts_.failed == counts_.utterances && counts_.interrupted == 0;
}

void Player::FinishCurrent(qtts::EndReason reason, Told* told) {
  if (reason == qtts::EndReason::kComplete) pace_.Learn(spoken_->position.usual_seconds(), spoken_->seconds());
  Told unused;
  for (Report& report : spoken_->Finish(reason, told != nullptr ? told : &unused)) {
    if (report.kind == Report::Kind::kFinished) CountCoverage(report);
    reports_.Add(std::move(report));
  }
  ++(reason == qtts::EndReason::kCancelled ? counts_.interrupted : counts_.utterances);
  if (reason == qtts::EndReason::kNothingToSay) ++counts_.unsayable;
  if (reason == qtts::EndReason::kRunaway) ++counts_.runaways;
  spoken_.reset();
  monitor_->Announce();
}

void Player::CountCoverage(const Report& finished) {
  counts_.retries += static_cast<uint64_t>(finished.retries);
  const ReportedCoverage& coverage = finished.coverage;
  if (!coverage.measured) return;
  ++counts_.measured;
  counts_.coverage_sum += coverage.coverage;
  counts_.words_skipped += coverage.skipped.size();
  counts_.words_repeated += coverage.repeated.size();
  if (!coverage.skipped.empty() || !coverage.repeated.empty() || coverage.end_missed || coverage.stopped_early) {
    ++counts_.incomplete;
  }
}

// Finishes the utterance as failed. `output` has the status already; the rest of it is filled in.
void Player::FailCurrent(Output* output, qtts::EndReason reason) {
  output->settings = spoken_->utterance.settings;
  last_failure_ = output->status;
  ++counts_.failed;
  intake_.NoteFailure();
  FinishCurrent(reason, &output->told);
  output->nothing_spoken = TextIsOver() && NothingWasSpoken();
}

std::shared_ptr<qtts::Stream> Player::Interrupt() {
  in_break_ = false;
  if (!spoken_) return nullptr;
  // A copy: if there is no memory to finish the utterance, it goes on with its stream.
  std::shared_ptr<qtts::Stream> stream = spoken_->stream;
  FinishCurrent(qtts::EndReason::kCancelled);
  return stream;
}

// --- the streaming thread

Player::Event Player::Next(Output* output, TextAhead ahead) {
  std::optional<Event> event;
  while (!event) {
    event = NextEvent(output, ahead);
    reports_.Deliver();
  }
  return *event;
}

// Nothing if all that happened is to be reported.
std::optional<Player::Event> Player::NextEvent(Output* output, TextAhead ahead) {
  *output = Output();
  Event event = Event::kHalted;
  const MonitorLock lock(*monitor_);
  RunState& run = monitor_->run;
  for (;;) {
    const uint64_t seen = monitor_->changes();
    JoinThreads();
    if (!run.running() || run.unlocked) return Event::kHalted;
    if (!load_status_.ok()) return Event::kLoadFailed;
    if (run.failed) return Event::kHalted;
    if (!spoken_ && TextIsOver() && (engine_ != nullptr || run.ending)) {
      if (reports_.AllDelivered()) {
        run.end_handed_out = true;
        if (NothingWasSpoken()) output->status = last_failure_;
        return Event::kEndOfText;
      }
      bool told = false;
      {
        const MonitorUnlock unlock(*monitor_);
        told = reports_.DeliverSoFar();
      }
      if (!told) monitor_->Wait(seen);
      continue;
    }
    if (engine_ == nullptr) {
      // The loader wakes us.
    } else if (spoken_) {
      if (!intake_.empty() && intake_.Next().id != prepared_id_) {
        PrepareNext();
        continue;
      }
      ReadAheadStreams();
      const bool started_ahead = StartAhead();
      if (!spoken_) continue;  // an interrupt
      const bool growing = spoken_->growing;
      spoken_->ahead = ahead;
      if (ReadStream(output, &event)) return event;
      if (started_ahead) continue;
      if (growing && spoken_) spoken_->awaited_text = true;
      if (std::exchange(monitor_->woken, false)) return Event::kWoken;
      const auto start = Clock::now();
      PollForFirstFrame(seen);
      WaitForChange(seen);
      if (!growing) counts_.waited += Clock::now() - start;
      continue;
    } else if (!intake_.empty() && intake_.Next().text.empty()) {
      return TakeTextless(output);
    } else if (DropUnsayable()) {
      return std::nullopt;
    } else if (!intake_.empty() && !intake_.AwaitsWords()) {
      if (StartNext(output, &event)) return event;
    }
    if (idle_ == Idle::kTell && !spoken_ && (intake_.empty() || intake_.AwaitsWords())) {
      const auto deadline = intake_.UtteranceDeadline();
      if (!deadline || Clock::now() < *deadline) return Event::kIdle;
      intake_.CloseLateUtterance();
      continue;
    }
    if (std::exchange(monitor_->woken, false)) return Event::kWoken;
    WaitForChange(seen);
  }
}

// Takes what is next in the queue and no text.
Player::Event Player::TakeTextless(Output* output) {
  const Utterance next = intake_.Pop();
  output->cue = next.cue;
  output->event = next.event;
  if (next.event != nullptr) return Event::kEvent;
  if (!next.silence && !next.mark) return Event::kGap;
  if (next.mark) {
    output->mark.kind = Report::Kind::kMark;
    output->mark.id = next.document != nullptr ? next.document->id() : next.mark_id;
    output->mark.name = *next.mark;
    output->mark.position = next.text_offset;
    output->document = next.document;
    return Event::kMark;
  }
  output->silence = *next.silence;
  in_break_ = true;
  PassDocument(next.document.get());
  return Event::kBreak;
}

// Waits for a change, the end of the growing utterance by its time-out, or the time to read what is made ahead.
void Player::WaitForChange(uint64_t seen) {
  const auto closes = intake_.UtteranceDeadline();
  auto until = closes;
  if (const auto reads = ahead_.next_read(); reads && (!until || *reads < *until)) until = reads;
  if (!monitor_->Wait(seen, until) && until == closes) intake_.CloseLateUtterance();
}

// StartNext(), StartAhead() and ReadStream() release the mutex while they call the engine. They return false if there
// is nothing to return. Changes meanwhile have increased the monitor's count, so the caller does not wait.

// Without the mutex, which a finishing thread may still need.
void Player::JoinThreads() {
  const MonitorUnlock unlock(*monitor_);
  loader_.JoinEnded();
  voices_.JoinEnded();
}

// Starts to make the next utterance's voice while the current one is spoken.
void Player::PrepareNext() {
  prepared_id_ = intake_.Next().id;
  const Settings settings = intake_.Next().settings;
  const std::shared_ptr<qtts::Engine> engine = engine_;
  const MonitorUnlock unlock(*monitor_);
  voices_.Prepare(engine, settings);
}

// Finishes the next utterance if there is nothing to say in it.
bool Player::DropUnsayable() {
  if (intake_.empty()) return false;
  const Utterance& next = intake_.Next();
  if (next.more_text || !HasNothingToSay(next)) return false;
  spoken_ = SpokenUtterance();
  spoken_->Begin(intake_.Pop());
  FinishCurrent(qtts::EndReason::kNothingToSay);
  return true;
}

// The engine's answer to an utterance.
struct Player::Asked {
  qtts::Status status;
  std::shared_ptr<qtts::Stream> stream;  // null if it refused
  uint64_t seed = 0;
  bool device_lost = false;
  Clock::time_point start;
  std::chrono::nanoseconds first_frame_latency{0};
  std::deque<qtts::Frame> made;  // these five: as in SpokenUtterance
  std::optional<SpeechEnd> end;
  Retries retries;
  std::optional<qtts::Request> request;
  bool asked_ahead = false;
  TextPosition position;
  std::shared_ptr<qtts::TextPreparer> preparer;
  std::string language_warning;
};

bool Player::StartNext(Output* output, Event* event) {
  const std::shared_ptr<qtts::Engine> engine = engine_;
  const Settings settings = intake_.Next().settings;
  const uint64_t id = intake_.Next().id;
  std::optional<VoiceStore::Voice> voice(nullptr);
  if (!ahead_.IsMaking(id)) {
    const MonitorUnlock unlock(*monitor_);
    voice = voices_.Get(engine, settings);
  }
  if (!voice || intake_.empty() || intake_.Next().id != id) return false;
  std::shared_ptr<AheadSpeech> ahead = ahead_.Take(id);
  spoken_ = SpokenUtterance();
  spoken_->Begin(intake_.Pop());
  std::vector<std::string> markup_warnings;
  ApplyMarkup(engine->info(), &spoken_->utterance, &markup_warnings);
  spoken_->growing = spoken_->utterance.more_text;
  const Utterance utterance = spoken_->utterance;
  const uint64_t epoch = monitor_->run.epoch;
  TextPosition position(pace_.value(), LanguageTag(utterance.settings));
  Asked asked;
  {
    const MonitorUnlock unlock(*monitor_);
    asked = AskEngine(engine.get(), utterance, *std::move(voice), ahead, std::move(position));
  }
  if (epoch != monitor_->run.epoch) {
    const MonitorUnlock unlock(*monitor_);
    asked = Asked();
    ahead.reset();
    return false;
  }
  output->status = asked.status;
  output->device_lost = asked.device_lost;
  output->seed = asked.seed;
  output->cue = utterance.cue;
  output->before = utterance.before;
  output->after_break = utterance.after_break;
  output->gain = utterance.markup.gain;
  output->language = LanguageTag(utterance.settings);
  output->streamed = utterance.streamed;
  output->language_warning = std::move(asked.language_warning);
  if (asked.stream == nullptr) {
    FailCurrent(output, qtts::EndReason::kError);
    *event = Event::kRefused;
    return true;
  }
  output->warnings = asked.stream->warnings();
  for (std::string& warning : voices_.TakeWarnings()) output->warnings.push_back(std::move(warning));
  for (const std::string& warning : markup_warnings) {
    if (markup_warnings_.insert(warning).second) output->warnings.push_back(warning);
  }
  counts_.seed = asked.seed;
  spoken_->stream = std::move(asked.stream);
  spoken_->made = std::move(asked.made);
  spoken_->end = std::move(asked.end);
  spoken_->retries = std::move(asked.retries);
  spoken_->holding = spoken_->retries.on() && !spoken_->end;
  spoken_->request = std::move(asked.request);
  spoken_->asked_ahead = asked.asked_ahead;
  spoken_->measured = engine->info().description.alignment.has_value();
  spoken_->preparer = std::move(asked.preparer);
  spoken_->position = std::move(asked.position);
  spoken_->seed = asked.seed;
  spoken_->start = asked.start;
  spoken_->first_frame_latency = asked.first_frame_latency;
  spoken_->sample_rate = engine->info().sample_rate;
  *event = Event::kStarted;
  return true;
}

// The request for an utterance, without its voice and with its text as it is written. The random seed depends on the
// utterance alone, not on those before it, so it does not matter when or how often it is asked for.
qtts::Request Player::NewRequest(const Utterance& utterance, const qtts::ModelInfo& model, int attempt) const {
  // Below 2^53: a seed is told, and every reader of JSON keeps so large a number exactly.
  const uint64_t number = utterance.document != nullptr ? utterance.document->id() : utterance.id;
  const uint64_t random_seed = SeedOfAttempt(MixBits(random_ + MixBits(number)) >> 11U, attempt);
  qtts::Request request = MakeRequest(utterance.settings, model, utterance.text, random_seed);
  request.more_text = utterance.more_text;
  // Speech that is made in parallel is for files: its first utterance must not get ahead of the others.
  if (in_parallel_) request.real_time = false;
  if (utterance.streamed && request.layout == qtts::PromptLayout::kDefault) {
    request.layout = qtts::PromptLayout::kStreaming;
  }
  return request;
}

// How often an utterance may be made again: only if all of it is made before any of it leaves the element, and if a
// fault would be seen.
Retries Player::NewRetries(const Utterance& utterance, const qtts::ModelInfo& model) const {
  const Settings& settings = utterance.settings;
  if (settings.seed >= 0 || utterance.streamed || utterance.more_text) return {};
  if (settings.real_time && !in_parallel_) return {};
  if (!settings.runaway_guard && !model.description.alignment) return {};
  if (settings.retry != Settings::kAutoRetry) return Retries(settings.retry);
  return Retries(in_parallel_ ? Settings::kRetriesAhead : 0);
}

// Without the mutex. `ahead`: what is made of it, if anything. `position` is that of an empty text.
Player::Asked Player::AskEngine(qtts::Engine* engine, const Utterance& utterance, VoiceStore::Voice voice,
                                const std::shared_ptr<AheadSpeech>& ahead, TextPosition position) {
  Asked asked;
  asked.retries = ahead != nullptr ? std::move(ahead->retries) : NewRetries(utterance, engine->info());
  qtts::Request request = NewRequest(utterance, engine->info(), asked.retries.made());
  asked.seed = request.seed;
  asked.start = Clock::now();
  qtts::Result<Preparation> preparation = PrepareUtterance(utterance, engine->info());
  if (ahead != nullptr && ahead->stream != nullptr && preparation.ok()) {
    *ahead->turn_came = true;  // before the stream is read again
    asked.start = ahead->start;
    asked.first_frame_latency = ahead->first_frame_latency;
    asked.stream = std::move(ahead->stream);
    asked.made = std::move(ahead->frames);
    asked.end = std::move(ahead->end);
    asked.request = std::move(ahead->request);
    asked.seed = ahead->seed;
    asked.asked_ahead = true;
  } else {
    const auto start_stream = [&]() -> qtts::Result<std::unique_ptr<qtts::Stream>> {
      QTTS_ASSIGN_OR_RETURN(request.voice, std::move(voice));
      AdaptToVoice(utterance.settings, &request);
      QTTS_RETURN_IF_ERROR(preparation.status());
      request.text = preparation->text.spoken;
      return engine->Start(request, [monitor = monitor_] { monitor->LockAndAnnounce(); });
    };
    auto started = start_stream();
    asked.status = started.status();
    if (started.ok()) asked.stream = *std::move(started);
    if (asked.retries.on()) asked.request = std::move(request);
  }
  asked.device_lost = engine->device_lost();
  if (asked.stream != nullptr) {
    // The engine is computing the first frame now, so this delays no frame.
    position.Append(preparation->text.spoken, preparation->text.map);
    position.FindWords();
    asked.preparer = std::move(preparation->preparer);
    // The beginning of a growing text is not enough for the check.
    if (!utterance.streamed) asked.language_warning = LanguageWarningOf(utterance, engine->info());
  }
  asked.position = std::move(position);
  return asked;
}

// --- the current stream

bool Player::ReadStream(Output* output, Event* event) {
  if (!spoken_->end && spoken_->made.size() < spoken_->frames_wanted() && !ReadFrames()) return false;
  if (spoken_->holding) {
    if (!spoken_->end && spoken_->made.size() < spoken_->frames_wanted()) return false;
    spoken_->holding = false;
    counts_.seed = spoken_->seed;
  }
  spoken_->ScanFrames();
  if (!spoken_->made.empty() && !spoken_->MayHandOut()) return false;
  if (!spoken_->made.empty()) {
    HandOut(output);
    *event = Event::kFrame;
    return true;
  }
  if (!spoken_->end) return false;
  const std::shared_ptr<qtts::Engine> engine = engine_;
  std::shared_ptr<qtts::Stream> stream = spoken_->stream;
  std::optional<Utterance> grown;
  if (spoken_->utterance.streamed) grown = spoken_->utterance;
  EndStream(output);
  {
    const MonitorUnlock unlock(*monitor_);
    stream.reset();
    if (grown && output->status.ok()) output->language_warning = LanguageWarningOf(*grown, engine->info());
  }
  *event = Event::kEnded;
  return true;
}

// Gives the stream the text that has come, and reads the frames that it has, as many as are wanted. Returns false if
// the utterance was interrupted meanwhile or is being made again.
bool Player::ReadFrames() {
  std::shared_ptr<qtts::Stream> stream = spoken_->stream;
  const std::shared_ptr<qtts::Engine> engine = engine_;
  const uint64_t epoch = monitor_->run.epoch;
  const std::string more = std::exchange(spoken_->more, {});
  const bool finish = spoken_->growing && !spoken_->utterance.more_text;
  if (finish) spoken_->growing = false;
  const std::shared_ptr<qtts::TextPreparer> preparer = spoken_->preparer;
  const size_t wanted = spoken_->frames_wanted() - spoken_->made.size();
  qtts::PreparedText prepared;
  std::deque<qtts::Frame> frames;
  std::optional<SpeechEnd> end;
  bool device_lost = false;
  {
    const MonitorUnlock unlock(*monitor_);
    qtts::Status status;
    if (!more.empty() || finish) status = PrepareMore(more, finish, preparer.get(), &prepared);
    if (!prepared.spoken.empty() && status.ok()) status = stream->Append(prepared.spoken);
    if (finish && status.ok()) status = stream->FinishText();
    // Text that comes after the model has ended the utterance is no fault.
    if (status.code() == qtts::StatusCode::kCancelled) status = qtts::Status::Ok();
    if (!status.ok()) end = SpeechEnd{qtts::EndReason::kError, status, {}, {}};
    while (!end && frames.size() < wanted) {
      qtts::Frame frame;
      const qtts::ReadState state = stream->TryRead(&frame);
      if (state == qtts::ReadState::kPending) break;
      if (state == qtts::ReadState::kEnd) {
        end = EndOf(*stream);
      } else {
        frames.push_back(std::move(frame));
      }
    }
    device_lost = engine->device_lost();
  }
  if (epoch != monitor_->run.epoch) {
    const MonitorUnlock unlock(*monitor_);
    stream.reset();
    return false;
  }
  if (!prepared.spoken.empty()) spoken_->position.Append(prepared.spoken, prepared.map);
  if (!frames.empty() && spoken_->first_frame_latency.count() == 0) {
    spoken_->first_frame_latency = Clock::now() - spoken_->start;
  }
  spoken_->made.insert(spoken_->made.end(), std::make_move_iterator(frames.begin()),
                       std::make_move_iterator(frames.end()));
  spoken_->device_lost = device_lost;
  if (!end && spoken_->holding && spoken_->retries.made() > 0 && spoken_->made.size() >= spoken_->frames_wanted()) {
    // The attempts before came to their end, far earlier.
    end = SpeechEnd{qtts::EndReason::kRunaway, {}, {}, {}};
    const MonitorUnlock unlock(*monitor_);
    stream->Cancel();
  }
  if (epoch != monitor_->run.epoch) return false;
  return !end || TakeEnd(*std::move(end), &stream);
}

// The current stream has ended. Returns false if its utterance is asked for once more; `old` is then released.
bool Player::TakeEnd(SpeechEnd end, std::shared_ptr<qtts::Stream>* old) {
  const bool found_no_slot = end.reason == qtts::EndReason::kBusy && std::exchange(spoken_->asked_ahead, false);
  if (found_no_slot && RepeatStream(&end, old)) return false;
  if (spoken_->holding) {
    const uint64_t first = NewRequest(spoken_->utterance, engine_->info(), 0).seed;
    Attempt attempt = {std::exchange(spoken_->made, {}), std::move(end), spoken_->seed};
    bool again = spoken_->retries.Judge(&attempt);
    while (again) {
      spoken_->seed = spoken_->request->seed = SeedOfAttempt(first, spoken_->retries.made());
      attempt.seed = spoken_->seed;
      if (RepeatStream(&attempt.end, old)) return false;
      again = spoken_->retries.Judge(&attempt);
    }
    spoken_->made = std::move(attempt.frames);
    spoken_->seed = attempt.seed;
    end = std::move(attempt.end);
  }
  spoken_->end = std::move(end);
  return true;
}

// Hands out the first frame that was made.
void Player::HandOut(Output* output) {
  output->frame = std::move(spoken_->made.front());
  spoken_->made.pop_front();
  --spoken_->scanned;
  output->sample = spoken_->handed_out;
  output->awaited_text = std::exchange(spoken_->awaited_text, false);
  output->device_lost = spoken_->device_lost;
  spoken_->handed_out += output->frame.pcm.size();
  if (output->frame.index == 0) {
    const std::chrono::nanoseconds latency = spoken_->first_frame_latency;
    ++counts_.first_frames;
    counts_.first_frame_latency_last = latency;
    counts_.first_frame_latency_sum += latency;
    counts_.first_frame_latency_max = std::max(counts_.first_frame_latency_max, latency);
  }
  counts_.sound_seconds += static_cast<double>(output->frame.pcm.size()) / spoken_->sample_rate;
}

// All of the current utterance was handed out.
void Player::EndStream(Output* output) {
  qtts::EndReason reason = spoken_->end->reason;
  output->status = spoken_->end->status;
  output->device_lost = spoken_->device_lost;
  if (reason == qtts::EndReason::kCancelled) {  // not by us: the epoch would have changed
    reason = qtts::EndReason::kError;
    output->status =
        qtts::Status::DeviceUnavailable("The engine stopped in the middle of the speech. Start the element again.");
  }
  output->end_reason = reason;
  if (reason == qtts::EndReason::kError) engine_suspect_ = true;
  if (reason == qtts::EndReason::kError || reason == qtts::EndReason::kBusy) {
    FailCurrent(output, reason);
  } else {
    FinishCurrent(reason, &output->told);
  }
}

// Without the mutex, by the streaming thread.
std::string Player::LanguageWarningOf(const Utterance& utterance, const qtts::ModelInfo& model) {
  std::string warning = qtts::LanguageWarning(utterance.text, model.languages, utterance.settings.language);
  if (warning.empty() || utterance.stream == 0) return warning;
  if (std::exchange(warned_stream_, utterance.stream) != utterance.stream) language_warnings_.clear();
  return language_warnings_.insert(warning).second ? warning : "";
}

bool Player::Commit(const Output& output, const Moment& moment, Told* told) {
  {
    const MonitorLock lock(*monitor_);
    if (spoken_) LookAhead();
    if (!spoken_) return false;  // only Next() begins another
    ++counts_.frames;
    for (Report& report : spoken_->Commit(output.sample, output.frame.pcm.size(), moment, told)) {
      reports_.Add(std::move(report));
    }
  }
  reports_.Deliver();
  return true;
}

void Player::CommitMark(const Output& output, uint64_t running_time) {
  {
    const MonitorLock lock(*monitor_);
    Report mark = output.mark;
    mark.running_time = running_time;
    reports_.Add(std::move(mark));
    PassDocument(output.document.get());
  }
  reports_.Deliver();
}

// A break or a mark of the document, if it is of one, is over.
void Player::PassDocument(Document* document) {
  if (document == nullptr) return;
  if (auto report = document->Pass()) reports_.Add(*std::move(report));
}

bool Player::BreakGoesOn() const {
  const MonitorLock lock(*monitor_);
  return in_break_;
}

// Reads what was made while the frame waited for its time: the words that are heard now may be known by it. Not for the
// first frame, which does not wait.
void Player::LookAhead() {
  const bool wanted = spoken_->measured && spoken_->frames > 0 && !spoken_->end;
  if (!wanted || spoken_->made.size() >= spoken_->frames_wanted()) return;
  ReadFrames();
  if (spoken_) spoken_->ScanFrames();
}

void Player::Clip() {
  std::shared_ptr<qtts::Stream> stream;
  {
    const MonitorLock lock(*monitor_);
    if (!spoken_) return;
    stream = spoken_->stream;  // as in Interrupt()
    FinishCurrent(qtts::EndReason::kClipped);
  }
  reports_.Deliver();
}

// Polls for the first frame of an utterance if the device computes beside the host. A sleeping thread and its CPU take
// longer to wake up than the frame takes from here to the pad.
void Player::PollForFirstFrame(uint64_t seen) {
  if (!spoken_ || spoken_->growing || spoken_->first_frame_latency.count() != 0 || !engine_->beside_host()) return;
  const qtts::PollPermit permit;
  if (!permit.granted()) return;
  const auto end = spoken_->start + kFirstFramePatience;
  const MonitorUnlock unlock(*monitor_);
  while (monitor_->changes() == seen && Clock::now() < end) std::this_thread::yield();
}

}  // namespace gstqtts
