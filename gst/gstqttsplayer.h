// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef GST_QTTS_PLAYER_H_
#define GST_QTTS_PLAYER_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gstqttsahead.h"
#include "gstqttsaheadmaker.h"
#include "gstqttscounts.h"
#include "gstqttsengineholder.h"
#include "gstqttsintake.h"
#include "gstqttsloader.h"
#include "gstqttsmonitor.h"
#include "gstqttsposition.h"
#include "gstqttsreports.h"
#include "gstqttsretry.h"
#include "gstqttsspoken.h"
#include "gstqttsstarter.h"
#include "gstqttsstreamreader.h"
#include "gstqttswordtrack.h"
#include "qtts/engine_options.h"
#include "qtts/frame.h"
#include "qtts/model_info.h"
#include "qtts/request.h"
#include "qtts/status.h"

namespace qtts {
class Engine;
class Stream;
}  // namespace qtts

namespace gstqtts {

// Speaks utterances for the streaming thread: takes them from the Intake one after the other and has the engine speak
// them frame by frame. It owns four parts and the counts of the run:
//
//   EngineHolder      loads and keeps the engine
//   UtteranceStarter  asks the engine to speak an utterance
//   StreamReader      reads the frames of the current utterance
//   AheadMaker        has utterances made that wait
//
// With TextOptions::parallel above 1, the engine also makes the utterances that wait next. They stay in the queue until
// their turn, and cause no report before it: sound, reports, warnings and drops are those of parallel = 1.
//
// It releases the monitor's mutex while it calls the engine. If an interrupt, a flush or a stop has raised the epoch
// meanwhile, the result is dropped, so none of these waits for a device.
//
// Owned by the Speech. Each group of functions below names the thread that may call it. Functions of the first three
// groups take the monitor's mutex.
class Player {
 public:
  enum class Event {
    kFrame,    // `sound`
    kStarted,  // an utterance begins: `seed`, `warnings`, `language_warning`, `cue`, `before`, `language`, `streamed`
    kGap,      // there is nothing to speak until `cue.start`
    kEvent,    // `event` is next
    kBreak,    // silence of `silence`, as long as GoesOn() says so
    kMark,     // a mark of a document is reached: to be given to CommitMark()
    kEnded,    // an utterance ended: `end_reason`, `language_warning`; if kError or kBusy, what kRefused tells
    kRefused,  // an utterance could not begin: `status`, `settings`, `device_lost`, `nothing_spoken`
    kLoadFailed,  // there is no engine; the load has reported why
    kEndOfText,   // everything was spoken and no more text can come; `status` is that of the last one if all failed
    kIdle,        // everything was spoken, more text may come: for Idle::kTell only
    kWoken,       // the waker was called and there is nothing else to return
    kHalted,      // Speech::SetUnlocked(true), a flush, Speech::Halt() or Speech::Fail()
  };

  // Action of Next() if there is no text and none can come from the sink pad.
  enum class Idle {
    kEnd,   // kEndOfText
    kWait,  // wait for text of the application
    kTell,  // kIdle, also while the sink pad may bring text
  };

  struct Output {
    ShapedSound sound;
    qtts::Status status;
    qtts::EndReason end_reason = qtts::EndReason::kNone;
    Settings settings;            // settings of the utterance
    bool device_lost = false;     // the engine's, with which every text will fail
    bool nothing_spoken = false;  // every utterance of the run has failed, and this was the last one
    uint64_t seed = 0;
    std::vector<std::string> warnings;      // warnings for the user about the utterance
    std::vector<std::string> new_warnings;  // those that come once: about its voice and its document
    std::string language_warning;           // qtts::LanguageWarning(), once for a text of the sink pad
    bool awaited_text = false;              // the frame had to wait for late text
    Cue cue;
    qtts::SentenceGap before = qtts::SentenceGap::kSentence;
    bool after_break = false;     // no gap before the utterance
    double gain = 1;              // of its samples
    bool limited = false;         // the gain is that of `target-loudness`: peaks are limited, not clipped
    std::shared_ptr<void> event;  // of Intake::PushEvent()
    uint64_t silence = 0;         // nanoseconds
    Report mark;
    std::shared_ptr<Document> document;        // of the mark
    std::string language;                      // tag of what is set for the utterance; empty: unknown
    bool streamed = false;                     // Utterance::streamed
    std::vector<std::shared_ptr<void>> metas;  // for the buffer of `sound`
    Told told;                                 // kEnded: the last words
  };

  // `spoken`: the current utterance, if any.
  Player(std::shared_ptr<Monitor> monitor, Intake& intake, Reports& reports, std::optional<SpokenUtterance>& spoken);
  ~Player();
  Player(const Player&) = delete;
  Player& operator=(const Player&) = delete;

  // --- by the streaming thread

  // Wishes for the sound of the next output.
  struct Wishes {
    Pacing pacing;
    TextAhead ahead = TextAhead::kNone;  // how far words have to be known
    bool fit = false;                    // the current utterance is to be fitted into the samples of `slot`
    // Returns their number when the sound is about to leave. May wait for the clock.
    std::function<uint64_t()> slot = {};
  };

  // Waits for the next output. The only call that waits for frames.
  Event Next(Output* output, const Wishes& wishes) QTTS_EXCLUDES(monitor_held);
  // Commits a frame. Must be called for each when it leaves the element, before the next call of Next(). `moment`: when
  // the frame is heard. From then on it counts as spoken; `told` gets the words that are. Returns false if the frame
  // was interrupted since Next(); it must then be dropped.
  bool Commit(const Output& output, const Moment& moment, Told* told) QTTS_EXCLUDES(monitor_held);
  // Reports a mark, which is reached at `running_time`.
  void CommitMark(const Output& output, uint64_t running_time) QTTS_EXCLUDES(monitor_held);
  // Returns true while the break of the last kBreak was not interrupted.
  bool BreakGoesOn() const QTTS_EXCLUDES(monitor_held);
  // Ends the utterance that is being spoken, because its cue ended.
  void Clip() QTTS_EXCLUDES(monitor_held);

  // --- by any thread

  // Returns true if Commit() would accept the last frame of Next().
  bool WouldCommit() const QTTS_EXCLUDES(monitor_held);
  // Returns true if the next frame does not wait for text.
  bool WaitsForEngine() const QTTS_EXCLUDES(monitor_held);
  // Returns the text of the current utterance; empty if there is none.
  std::string current_text() const QTTS_EXCLUDES(monitor_held);
  void SetIdle(Idle idle) QTTS_EXCLUDES(monitor_held);
  // Makes Next() return kWoken as soon as it would wait. May be called on any thread, also after the Player
  // is gone.
  std::function<void()> waker() const;
  // Clears earlier calls of the waker.
  void ClearWake() QTTS_EXCLUDES(monitor_held);

  // --- by the thread that changes states

  // Returns true if the run must load an engine: that of the last run is released, has other options or has lost its
  // device.
  bool NeedsLoad(const qtts::EngineOptions& options) const QTTS_EXCLUDES(monitor_held) {
    return holder_.NeedsLoad(options);
  }
  // Starts the load. Unless CancelWork() comes first, `on_done` gets the result on the loader's thread, to report it
  // and to pass it to Speech::UseLoad().
  void Load(const qtts::EngineOptions& options, const std::function<void(EngineLoader::Outcome)>& on_done)
      QTTS_EXCLUDES(monitor_held) {
    holder_.Load(options, on_done);
  }
  // Cancels the load and the voices in progress. The streaming thread must be stopped.
  void CancelWork() QTTS_EXCLUDES(monitor_held);
  // Releases the engine and forgets the result of its load. Call after Speech::Stop().
  void Release() QTTS_EXCLUDES(monitor_held) { holder_.Release(); }

  // --- with the monitor's mutex held

  // Begins a run. `parallel`: number of utterances that are made at once.
  void Start(int parallel) QTTS_REQUIRES(monitor_held);
  // Uses the engine or, without one, returns kLoadFailed.
  void UseLoad(EngineLoader::Outcome outcome) QTTS_REQUIRES(monitor_held) { holder_.UseLoad(std::move(outcome)); }
  // Ends the current utterance, if any, as interrupted. The caller must release the stream without the mutex.
  std::shared_ptr<qtts::Stream> Interrupt() QTTS_REQUIRES(monitor_held);
  // Drops the speech made ahead. To be called when the queue is dropped. The caller must release it without the mutex.
  AheadList::Speeches DropAhead() QTTS_REQUIRES(monitor_held) { return ahead_.speeches().TakeAll(); }
  // Ends the run. Returns true if a load was still running. `engine`: an engine to release, without the mutex.
  bool Stop(std::shared_ptr<qtts::Engine>* engine) QTTS_REQUIRES(monitor_held) { return holder_.EndRun(engine); }
  const RunCounts& counts() const QTTS_REQUIRES(monitor_held) { return counts_; }
  // Returns the occupancy of the engine, over all its users; zeros without an engine.
  qtts::Occupancy occupancy() const QTTS_REQUIRES(monitor_held) { return holder_.occupancy(); }
  // Returns the engine; null before it is loaded.
  std::shared_ptr<const qtts::Engine> engine() const QTTS_REQUIRES(monitor_held) { return holder_.engine(); }

 private:
  std::optional<Event> NextEvent(Output* output, const Wishes& wishes) QTTS_EXCLUDES(monitor_held);
  void JoinThreads() QTTS_REQUIRES(monitor_held);
  void PrepareNext() QTTS_REQUIRES(monitor_held);
  bool DropUnsayable() QTTS_REQUIRES(monitor_held);
  Event TakeTextless(Output* output) QTTS_REQUIRES(monitor_held);
  void PassDocument(Document* document) QTTS_REQUIRES(monitor_held);
  bool StartNext(Output* output, Event* event) QTTS_REQUIRES(monitor_held);
  void WaitForChange(uint64_t seen) QTTS_REQUIRES(monitor_held);
  bool ReadStream(const Wishes& wishes, Output* output, Event* event) QTTS_REQUIRES(monitor_held);
  bool ShapeSound(const Wishes& wishes) QTTS_REQUIRES(monitor_held);
  void LookAhead() QTTS_REQUIRES(monitor_held);
  std::vector<float> TakeFrame() QTTS_REQUIRES(monitor_held);
  void HandOut(Output* output) QTTS_REQUIRES(monitor_held);
  void EndStream(Output* output) QTTS_REQUIRES(monitor_held);
  void PollForFirstFrame(uint64_t seen) QTTS_REQUIRES(monitor_held);
  bool TextIsOver() const QTTS_REQUIRES(monitor_held) { return intake_.TextIsOver(idle_ != Idle::kEnd); }
  void FinishCurrent(qtts::EndReason reason, Told* told = nullptr) QTTS_REQUIRES(monitor_held);
  void FailCurrent(Output* output, qtts::EndReason reason) QTTS_REQUIRES(monitor_held);

  const std::shared_ptr<Monitor> monitor_;
  Intake& intake_;
  Reports& reports_;
  std::optional<SpokenUtterance>& spoken_ QTTS_GUARDED_BY(monitor_held);

  Idle idle_ QTTS_GUARDED_BY(monitor_held) = Idle::kEnd;
  qtts::Status last_failure_ QTTS_GUARDED_BY(monitor_held);  // of an utterance
  Pace pace_ QTTS_GUARDED_BY(monitor_held);
  RunCounts counts_ QTTS_GUARDED_BY(monitor_held);
  uint64_t prepared_id_ QTTS_GUARDED_BY(monitor_held) = 0;  // the last utterance whose voice was prepared

  bool in_break_ QTTS_GUARDED_BY(monitor_held) = false;

  UtteranceStarter starter_;  // the streaming thread's
  AheadMaker ahead_;
  EngineHolder holder_;
  StreamReader reader_;
};

}  // namespace gstqtts

#endif  // GST_QTTS_PLAYER_H_
