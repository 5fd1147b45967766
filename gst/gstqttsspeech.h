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

// What the element does, without GStreamer: loads the model, queues text, speaks one utterance after the other and
// hands out their frames. It owns three parts and does what concerns more than one of them:
//
//   Intake   takes text and queues utterances
//   Player   has them spoken, for the streaming thread
//   Reports  tells what happened to them
//
// They share one mutex, the Monitor's, and the utterance that is being spoken. A flush or an interrupt takes the stream
// away and raises the epoch; what the Player then brings back from the old stream is dropped, so that neither waits for
// a device.
//
// Thread-safe, except that Start(), Stop() and Player::Release() need the streaming thread at rest, and that one thread
// changes states: it calls Start(), Player::NeedsLoad(), Player::Load(), Halt(), Stop(), Player::Release(). UseLoad()
// is for the loader's thread.
class Speech {
 public:
  struct Stats : Player::Counts, Intake::Counts {
    qtts::Occupancy occupancy;  // of the engine, whoever uses it; zeros without one
  };

  explicit Speech(Reports::Reporter reporter = {}, Reports::Keeper keeper = {});
  ~Speech();
  Speech(const Speech&) = delete;
  Speech& operator=(const Speech&) = delete;

  Intake& intake() { return intake_; }
  Player& player() { return player_; }

  // Begins a run with `first`, if any, as its first utterance. From now on text is taken.
  void Start(const TextOptions& options, std::optional<Utterance> first);
  // Speaks with the engine or, without one, gives kLoadFailed out.
  void UseLoad(EngineLoader::Outcome outcome);
  // Everybody who waits returns, and nobody waits again before Start().
  void Halt();
  // Ends the run: text and speech are dropped, a load is cancelled. True if there was a load whose outcome
  // had not come yet.
  bool Stop();

  // Drops all text and speech; text that comes later is spoken. Returns the number of frames of the
  // utterance that was cut off which had left the element.
  uint64_t Interrupt();
  // Drops the text that waits. The utterance that is being spoken goes on.
  void ClearQueue();

  // Drops all text and speech; Player::Next() returns kHalted until FlushStop().
  void FlushStart();
  // Takes text again, as after Start().
  void FlushStop();
  bool flushing() const;

  // While set, Player::Next() returns kHalted.
  void SetUnlocked(bool unlocked);

  // Ends the run with the utterance that is being heard: text that waits is dropped, text that comes is refused, and
  // what comes next is kEndOfText. An utterance of which nothing was committed waits too. False if the run has ended
  // or does not speak.
  bool EndAfterCurrent();
  bool ending() const;

  // The stream of sound has ended, for good in this run: text is dropped and refused.
  void EndSound();

  // No more speech in this run: text is dropped and refused.
  void Fail();

  Stats stats() const;

 private:
  std::shared_ptr<qtts::Stream> DropAll(bool with_events = true) QTTS_REQUIRES(monitor_held);

  const std::shared_ptr<Monitor> monitor_;
  Reports reports_;
  std::optional<SpokenUtterance> spoken_ QTTS_GUARDED_BY(monitor_held);
  Intake intake_;
  Player player_;  // last: its threads use the rest until they are joined
};

}  // namespace gstqtts

#endif  // GST_QTTS_SPEECH_H_
