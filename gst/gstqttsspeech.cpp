// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gstqttsspeech.h"

#include <utility>

#include "qtts/engine.h"

namespace gstqtts {

Speech::Speech(Reports::Reporter reporter, Reports::Keeper keeper)
    : monitor_(std::make_shared<Monitor>()),
      reports_(std::move(reporter), std::move(keeper), [monitor = monitor_] { monitor->LockAndAnnounce(); }),
      intake_(*monitor_, reports_, spoken_),
      player_(monitor_, intake_, reports_, spoken_) {}

Speech::~Speech() {
  Halt();
  Stop();
}

// --- state changes

void Speech::Start(const TextOptions& options, std::optional<Utterance> first) {
  const MonitorLock lock(*monitor_);
  RunState& run = monitor_->run;
  run.active = true;
  run.flushing = run.failed = run.ending = run.end_handed_out = false;
  player_.Start(static_cast<int>(options.parallel));
  intake_.Start(options, std::move(first));
}

void Speech::UseLoad(EngineLoader::Outcome outcome) {
  Dropped dropped;
  {
    const MonitorLock lock(*monitor_);
    if (!outcome.ok()) {
      monitor_->run.failed = true;
      dropped = DropAll();
    }
    player_.UseLoad(std::move(outcome));
    monitor_->Announce();
  }
  reports_.Deliver();
}

void Speech::Halt() {
  const MonitorLock lock(*monitor_);
  monitor_->run.active = false;
  monitor_->Announce();
}

bool Speech::Stop() {
  Dropped dropped;
  std::shared_ptr<qtts::Engine> engine;
  bool cancelled = false;
  player_.CancelWork();
  {
    const MonitorLock lock(*monitor_);
    monitor_->run.active = false;
    ++monitor_->run.flushes;
    dropped = DropAll();
    cancelled = player_.Stop(&engine);
    monitor_->Announce();
  }
  reports_.Deliver();
  return cancelled;
}

// --- interruptions

uint64_t Speech::Interrupt() {
  Dropped dropped;
  uint64_t frames = 0;
  {
    const MonitorLock lock(*monitor_);
    if (spoken_) frames = spoken_->frames;
    dropped = DropAll(false);
    monitor_->Announce();
  }
  CancelCurrent(dropped);
  reports_.Deliver();
  return frames;
}

void Speech::ClearQueue() {
  Dropped dropped;
  {
    const MonitorLock lock(*monitor_);
    intake_.DropQueue(false);
    dropped.ahead = player_.DropAhead();
    monitor_->Announce();
  }
  reports_.Deliver();
}

void Speech::FlushStart() {
  Dropped dropped;
  {
    const MonitorLock lock(*monitor_);
    monitor_->run.flushing = true;
    ++monitor_->run.flushes;
    intake_.DropMidCharacter();
    dropped = DropAll();
    monitor_->Announce();
  }
  CancelCurrent(dropped);
  reports_.Deliver();
}

void Speech::FlushStop() {
  const MonitorLock lock(*monitor_);
  RunState& run = monitor_->run;
  run.flushing = run.ending = run.end_handed_out = false;
  intake_.Resume();
  monitor_->Announce();
}

bool Speech::flushing() const {
  const MonitorLock lock(*monitor_);
  return monitor_->run.flushing;
}

void Speech::SetUnlocked(bool unlocked) {
  const MonitorLock lock(*monitor_);
  monitor_->run.unlocked = unlocked;
  monitor_->Announce();
}

bool Speech::EndAfterCurrent() {
  Dropped dropped;
  {
    const MonitorLock lock(*monitor_);
    RunState& run = monitor_->run;
    if (!run.running() || run.failed || run.end_handed_out) return false;
    run.ending = true;
    intake_.DropMidCharacter();
    if (spoken_ && spoken_->frames > 0) {
      intake_.DropQueue(true);
      dropped.ahead = player_.DropAhead();
      intake_.CloseUtterance();
    } else {
      dropped = DropAll();
    }
    monitor_->Announce();
  }
  CancelCurrent(dropped);
  reports_.Deliver();
  return true;
}

bool Speech::ending() const {
  const MonitorLock lock(*monitor_);
  return monitor_->run.ending;
}

void Speech::EndSound() {
  Dropped dropped;
  {
    const MonitorLock lock(*monitor_);
    monitor_->run.end_handed_out = true;
    dropped = DropAll();
    monitor_->Announce();
  }
  reports_.Deliver();
}

void Speech::Fail() {
  Dropped dropped;
  {
    const MonitorLock lock(*monitor_);
    monitor_->run.failed = true;
    dropped = DropAll();
    monitor_->Announce();
  }
  reports_.Deliver();
}

// Drops all, with the mutex held. The caller lets go of the speech without it.
Speech::Dropped Speech::DropAll(bool with_events) {
  Dropped dropped;
  dropped.current = player_.Interrupt();
  ++monitor_->run.epoch;  // not if that failed for want of memory: the utterance goes on
  intake_.ForgetFailure();
  intake_.DropQueue(with_events);
  dropped.ahead = player_.DropAhead();
  return dropped;
}

// Cancels it without the mutex. The streaming thread may hold the stream too, so that letting go would not end it at
// once.
void Speech::CancelCurrent(const Dropped& dropped) {
  if (dropped.current != nullptr) dropped.current->Cancel();
}

Speech::Stats Speech::stats() const {
  const MonitorLock lock(*monitor_);
  return {player_.counts(), intake_.counts(), player_.occupancy()};
}

qtts::Result<size_t> Speech::CountTokens(std::string_view text) const {
  std::shared_ptr<const qtts::Engine> engine;
  {
    const MonitorLock lock(*monitor_);
    engine = player_.engine();
  }
  if (engine == nullptr) return qtts::Status::InvalidArgument("no model is loaded");
  return engine->CountTokens(text);  // without the mutex: it takes time
}

}  // namespace gstqtts
