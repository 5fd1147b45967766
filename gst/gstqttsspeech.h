// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef GST_QTTS_SPEECH_H_
#define GST_QTTS_SPEECH_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "gstqttsintake.h"
#include "gstqttsloader.h"
#include "gstqttsmonitor.h"
#include "gstqttsplayer.h"
#include "gstqttsreports.h"
#include "gstqttsspoken.h"
#include "gstqttstext.h"
#include "qtts/engine_options.h"

namespace gstqtts {

// The element without GStreamer: loads the model, queues text, speaks one utterance after the other and returns their
// frames. It owns three parts and does the work that concerns more than one of them:
//
//   Intake   takes text and queues utterances
//   Player   takes utterances from the queue and lets the engine speak them, for the streaming thread
//   Reports  delivers reports about utterances
//
// They share one mutex, the Monitor's, and the current utterance. A flush or an interrupt takes the stream away and
// raises the epoch. Later results of the old stream are dropped, so neither waits for a device.
//
// Thread-safe, except that Start(), Stop() and Player::Release() need the streaming thread at rest, and that one thread
// changes states: it calls Start(), Player::NeedsLoad(), Player::Load(), Halt(), Stop(), Player::Release(). UseLoad()
// is for the loader's thread.
class Speech {
 public:
  struct Stats : RunCounts, Intake::Counts {
    qtts::Occupancy occupancy;  // of the engine, over all its users; zeros without an engine
  };

  explicit Speech(Reports::Reporter reporter = {}, Reports::Keeper keeper = {});
  ~Speech();
  Speech(const Speech&) = delete;
  Speech& operator=(const Speech&) = delete;

  Intake& intake() { return intake_; }
  Player& player() { return player_; }

  // Begins a run; `first`, if any, is its first utterance. Text is accepted from now on.
  void Start(const TextOptions& options, std::optional<Utterance> first);
  // Uses the engine; without one Player::Next() returns kLoadFailed.
  void UseLoad(EngineLoader::Outcome outcome);
  // Makes all waits return; no new wait blocks before Start().
  void Halt();
  // Ends the run: drops text and speech, cancels a load. Returns true if a load was still running.
  bool Stop();

  // Drops all text and speech; later text is spoken. Returns the number of frames of the interrupted utterance that had
  // left the element.
  uint64_t Interrupt();
  // Drops queued text. The current utterance continues.
  void ClearQueue();

  // Drops all text and speech; Player::Next() returns kHalted until FlushStop().
  void FlushStart();
  // Accepts text again, as after Start().
  void FlushStop();
  bool flushing() const;

  // Makes Player::Next() return kHalted while it is set.
  void SetUnlocked(bool unlocked);

  // Ends the run with the audible utterance: drops queued text, refuses later text, and lets Player::Next() return
  // kEndOfText after it. An utterance without a committed frame counts as queued. False if the run has ended or does
  // not speak.
  bool EndAfterCurrent();
  bool ending() const;

  // Drops and refuses text: the stream of sound has ended for this run.
  void EndSound();

  // Ends speech for this run: drops and refuses text.
  void Fail();

  Stats stats() const;

  // Returns the number of tokens of a text. Without an engine, and for a text too long for every model: an error.
  qtts::Result<size_t> CountTokens(std::string_view text) const;

 private:
  // Speech to be released without the mutex.
  struct Dropped {
    std::shared_ptr<qtts::Stream> current;
    AheadList::Speeches ahead;
  };

  Dropped DropAll(bool with_events = true) QTTS_REQUIRES(monitor_held);
  static void CancelCurrent(const Dropped& dropped);

  const std::shared_ptr<Monitor> monitor_;
  Reports reports_;
  std::optional<SpokenUtterance> spoken_ QTTS_GUARDED_BY(monitor_held);
  Intake intake_;
  Player player_;  // last: its threads use the rest until they are joined
};

}  // namespace gstqtts

#endif  // GST_QTTS_SPEECH_H_
