// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gstqttsplayer.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "gstqttsdocument.h"
#include "gstqttsloudness.h"
#include "gstqttsmarkup.h"
#include "gstqttstimeline.h"
#include "qtts/engine.h"
#include "qtts/language.h"
#include "qtts/polling.h"
#include "qtts/text_check.h"

namespace gstqtts {
namespace {

using Clock = Monitor::Clock;

// Several times the duration of a prompt and a frame on a GPU.
constexpr std::chrono::milliseconds kFirstFramePatience{20};

// Shapes a frame, or the end of the speech if it is empty.
void Shape(std::vector<float> pcm, std::optional<uint64_t> slot, double max_compression, SoundShaper* shaper) {
  if (!pcm.empty()) return shaper->Put(std::move(pcm));
  shaper->Finish();
  if (slot) shaper->Fit(*slot, max_compression);
}

}  // namespace

Player::Player(std::shared_ptr<Monitor> monitor, Intake& intake, Reports& reports,
               std::optional<SpokenUtterance>& spoken)
    : monitor_(std::move(monitor)),
      intake_(intake),
      reports_(reports),
      spoken_(spoken),
      starter_([announced = monitor_] { announced->LockAndAnnounce(); }),
      ahead_(monitor_, intake, starter_),
      holder_(monitor_),
      reader_(monitor_, spoken_, starter_, holder_) {}

Player::~Player() = default;

// --- by the thread that changes states

void Player::CancelWork() {
  holder_.CancelLoad();
  starter_.CancelVoice();
}

void Player::Start(int parallel) {
  counts_ = RunCounts();
  ahead_.speeches().SetParallel(parallel);
  starter_.Start(parallel > 1);
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

void Player::FinishCurrent(qtts::EndReason reason, Told* told) {
  if (reason == qtts::EndReason::kComplete) pace_.Learn(spoken_->position.usual_seconds(), spoken_->seconds());
  Told unused;
  for (Report& report : spoken_->Finish(reason, told != nullptr ? told : &unused)) {
    if (report.kind == Report::Kind::kFinished) counts_.AddCoverage(report);
    reports_.Add(std::move(report));
  }
  counts_.AddEnd(reason);
  spoken_.reset();
  monitor_->Announce();
}

// Finishes the utterance as failed. `output` has the status already; the rest of it is filled in.
void Player::FailCurrent(Output* output, qtts::EndReason reason) {
  output->settings = spoken_->utterance.settings;
  last_failure_ = output->status;
  ++counts_.failed;
  intake_.NoteFailure();
  FinishCurrent(reason, &output->told);
  output->nothing_spoken = TextIsOver() && counts_.NothingWasSpoken();
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

Player::Event Player::Next(Output* output, const Wishes& wishes) {
  std::optional<Event> event;
  while (!event) {
    event = NextEvent(output, wishes);
    reports_.Deliver();
  }
  return *event;
}

// Returns nothing if all that happened is to be reported.
std::optional<Player::Event> Player::NextEvent(Output* output, const Wishes& wishes) {
  *output = Output();
  Event event = Event::kHalted;
  const MonitorLock lock(*monitor_);
  RunState& run = monitor_->run;
  for (;;) {
    const uint64_t seen = monitor_->changes();
    JoinThreads();
    if (!run.running() || run.unlocked) return Event::kHalted;
    if (holder_.load_failed()) return Event::kLoadFailed;
    if (run.failed) return Event::kHalted;
    if (!spoken_ && TextIsOver() && (holder_.engine() != nullptr || run.ending)) {
      if (reports_.AllDelivered()) {
        run.end_handed_out = true;
        if (counts_.NothingWasSpoken()) output->status = last_failure_;
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
    if (holder_.engine() == nullptr) {
      // The loader wakes us.
    } else if (spoken_) {
      if (!intake_.empty() && intake_.Next().id != prepared_id_) {
        PrepareNext();
        continue;
      }
      ahead_.Read(spoken_->first_frame_latency.count() == 0 && holder_.engine()->occupancy().waiting > 0);
      const bool started_ahead = ahead_.StartOne(holder_.engine());
      if (!spoken_) continue;  // an interrupt
      const bool growing = spoken_->growing;
      spoken_->ahead = wishes.ahead;
      spoken_->fit = wishes.fit;
      if (ReadStream(wishes, output, &event)) return event;
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
  if (const auto reads = ahead_.speeches().next_read(); reads && (!until || *reads < *until)) until = reads;
  if (!monitor_->Wait(seen, until) && until == closes) intake_.CloseLateUtterance();
}

// StartNext() and ReadStream() release the mutex while they call the engine. They return false if there
// is nothing to return. Changes meanwhile have increased the monitor's count, so the caller does not wait.

// Joins them without the mutex, which a finishing thread may still need.
void Player::JoinThreads() {
  const MonitorUnlock unlock(*monitor_);
  holder_.JoinEnded();
  starter_.voices().JoinEnded();
}

// Starts to make the next utterance's voice while the current one is spoken.
void Player::PrepareNext() {
  prepared_id_ = intake_.Next().id;
  const Settings settings = intake_.Next().settings;
  const std::shared_ptr<qtts::Engine> engine = holder_.engine();
  const MonitorUnlock unlock(*monitor_);
  starter_.voices().Prepare(engine, settings);
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

bool Player::StartNext(Output* output, Event* event) {
  const std::shared_ptr<qtts::Engine> engine = holder_.engine();
  const Settings settings = intake_.Next().settings;
  const uint64_t id = intake_.Next().id;
  std::optional<VoiceStore::Voice> voice(nullptr);
  if (!ahead_.speeches().IsMaking(id)) {
    const MonitorUnlock unlock(*monitor_);
    voice = starter_.voices().Get(engine, settings);
  }
  if (!voice || intake_.empty() || intake_.Next().id != id) return false;
  std::shared_ptr<AheadSpeech> ahead = ahead_.speeches().Take(id);
  spoken_ = SpokenUtterance();
  spoken_->Begin(intake_.Pop());
  std::vector<std::string> warnings_once;  // told once a run
  ApplyMarkup(engine->info(), &spoken_->utterance, &warnings_once);
  spoken_->growing = spoken_->utterance.more_text;
  const Utterance utterance = spoken_->utterance;
  const uint64_t epoch = monitor_->run.epoch;
  TextPosition position(pace_.value(), LanguageTag(utterance.settings));
  UtteranceStarter::Asked asked;
  {
    const MonitorUnlock unlock(*monitor_);
    asked = starter_.Ask(engine.get(), utterance, *std::move(voice), ahead, std::move(position));
  }
  if (epoch != monitor_->run.epoch) {
    const MonitorUnlock unlock(*monitor_);
    asked = UtteranceStarter::Asked();
    ahead.reset();
    return false;
  }
  output->status = asked.status;
  output->device_lost = asked.device_lost;
  output->seed = asked.seed;
  output->cue = utterance.cue;
  output->before = utterance.before;
  output->after_break = utterance.after_break;
  output->gain = utterance.markup.gain * asked.level.gain;
  output->limited = asked.level.on;
  output->language = LanguageTag(utterance.settings);
  output->streamed = utterance.streamed;
  output->language_warning = std::move(asked.language_warning);
  if (asked.stream == nullptr) {
    FailCurrent(output, qtts::EndReason::kError);
    *event = Event::kRefused;
    return true;
  }
  output->warnings = asked.stream->warnings();
  if (!asked.level.warning.empty()) warnings_once.push_back(std::move(asked.level.warning));
  output->new_warnings = starter_.voices().TakeWarnings();
  for (std::string& warning : starter_.NewWarnings(std::move(warnings_once))) {
    output->new_warnings.push_back(std::move(warning));
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

// --- the current stream

bool Player::ReadStream(const Wishes& wishes, Output* output, Event* event) {
  // Again if frames were taken of which nothing is left or ready: the stream does not announce what it has once more.
  for (bool again = true; again;) {
    if (!spoken_->end && spoken_->made.size() < spoken_->frames_wanted() && !reader_.Read()) return false;
    if (spoken_->holding) {
      if (!spoken_->end && spoken_->made.size() < spoken_->frames_wanted()) return false;
      spoken_->holding = false;
      counts_.seed = spoken_->seed;
    }
    spoken_->ScanFrames();
    const uint64_t taken = spoken_->handed_out;
    if (!ShapeSound(wishes)) return false;
    again = spoken_->handed_out > taken && !spoken_->shaper->ready() && !spoken_->end;
  }
  if (spoken_->shaper != nullptr && spoken_->shaper->ready()) {
    HandOut(output);
    *event = Event::kFrame;
    return true;
  }
  if (!spoken_->made.empty() || !spoken_->end) return false;
  const std::shared_ptr<qtts::Engine> engine = holder_.engine();
  std::shared_ptr<qtts::Stream> stream = spoken_->stream;
  std::optional<Utterance> grown;
  if (spoken_->utterance.streamed) grown = spoken_->utterance;
  EndStream(output);
  {
    const MonitorUnlock unlock(*monitor_);
    stream.reset();
    if (grown && output->status.ok()) output->language_warning = starter_.LanguageWarningOf(*grown, engine->info());
  }
  *event = Event::kEnded;
  return true;
}

// Takes frames that were made until some sound is ready to leave, or no more may be taken. Returns false if the
// utterance was interrupted meanwhile.
bool Player::ShapeSound(const Wishes& wishes) {
  SpokenUtterance& spoken = *spoken_;
  if (spoken.shaper == nullptr) {
    if (spoken.made.empty() ? !spoken.end : !spoken.MayHandOut()) return true;
    // Less than a sample is a limit as well, not none.
    const uint64_t nanoseconds = wishes.pacing.max_silence;
    const uint64_t max_silence =
        nanoseconds > 0 ? std::max<uint64_t>(SamplesWithin(nanoseconds, spoken.sample_rate), 1) : 0;
    const bool fit = wishes.fit && spoken.end;
    spoken.shaper = std::make_shared<SoundShaper>(
        spoken.sample_rate, SoundShaper::Options{wishes.pacing.trims(spoken.utterance.streamed), max_silence, fit});
  }
  const std::shared_ptr<SoundShaper> shaper = spoken.shaper;
  shaper->SetRate(spoken.RateOf(wishes.pacing.rate));
  // Texts that are told ahead, and a slot, need the places of all sound.
  const bool whole = spoken.end && spoken.handed_out == 0 && shaper->changes_sound() &&
                     (wishes.fit || wishes.ahead != TextAhead::kNone);
  const uint64_t epoch = monitor_->run.epoch;
  while (whole || !shaper->ready()) {
    std::vector<float> pcm;
    if (!spoken.made.empty()) {
      if (!spoken.MayHandOut()) return true;
      pcm = TakeFrame();
    } else if (!spoken.end || shaper->finished()) {
      break;
    }
    const uint64_t trimmed = shaper->trimmed();
    if (shaper->changes_sound() || pcm.empty()) {
      const bool fits = pcm.empty() && wishes.fit && whole;
      const MonitorUnlock unlock(*monitor_);
      Shape(std::move(pcm), fits ? std::optional(wishes.slot()) : std::nullopt, wishes.pacing.max_compression,
            shaper.get());
    } else {
      shaper->Put(std::move(pcm));
    }
    if (epoch != monitor_->run.epoch) return false;
    counts_.trimmed += shaper->trimmed() - trimmed;
  }
  if (whole) spoken.places.Plan(shaper->ReadySpans(), spoken.sample_rate);
  return true;
}

// Takes the first frame that was made from the current utterance.
std::vector<float> Player::TakeFrame() {
  qtts::Frame frame = std::move(spoken_->made.front());
  spoken_->made.pop_front();
  --spoken_->scanned;
  spoken_->handed_out += frame.pcm.size();
  if (frame.index == 0) counts_.AddFirstFrame(spoken_->first_frame_latency);
  counts_.sound_seconds += static_cast<double>(frame.pcm.size()) / spoken_->sample_rate;
  return std::move(frame.pcm);
}

void Player::HandOut(Output* output) {
  output->sound = spoken_->shaper->Take();
  output->metas = std::exchange(spoken_->utterance.metas, {});
  output->awaited_text = std::exchange(spoken_->awaited_text, false);
  output->device_lost = spoken_->device_lost;
}

// Ends the current utterance, all of which was handed out.
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
  if (reason == qtts::EndReason::kError) holder_.NoteFailedStream();
  if (reason == qtts::EndReason::kError || reason == qtts::EndReason::kBusy) {
    FailCurrent(output, reason);
  } else {
    FinishCurrent(reason, &output->told);
  }
}

bool Player::Commit(const Output& output, const Moment& moment, Told* told) {
  {
    const MonitorLock lock(*monitor_);
    if (spoken_) LookAhead();
    if (!spoken_) return false;  // only Next() begins another
    ++counts_.frames;
    for (Report& report : spoken_->Commit(output.sound, moment, told)) {
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

// Ends a break or a mark of the document, if it is of one.
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
  reader_.Read();
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
  if (!spoken_ || spoken_->growing || spoken_->first_frame_latency.count() != 0 || !holder_.engine()->beside_host())
    return;
  const qtts::PollPermit permit;
  if (!permit.granted()) return;
  const auto end = spoken_->start + kFirstFramePatience;
  const MonitorUnlock unlock(*monitor_);
  while (monitor_->changes() == seen && Clock::now() < end) std::this_thread::yield();
}

}  // namespace gstqtts
