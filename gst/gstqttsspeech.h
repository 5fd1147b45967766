// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef GST_QTTS_SPEECH_H_
#define GST_QTTS_SPEECH_H_

#include <glib.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "gstqttsloader.h"
#include "gstqttsposition.h"
#include "gstqttsreport.h"
#include "gstqttssegmenter.h"
#include "gstqttstext.h"
#include "gstqttsvoices.h"
#include "qtts/engine_options.h"
#include "qtts/frame.h"
#include "qtts/status.h"

namespace qtts {
class Engine;
class Stream;
}  // namespace qtts

namespace gstqtts {

// What the element does, without GStreamer: loads the model, queues text, speaks one utterance
// after the other and hands out their frames. Four kinds of threads meet here:
//
//   state changes     Start(), NeedsLoad(), Load(), Halt(), Stop(), Release()
//   loader's thread   UseLoad()
//   text              Offer(), PushChunk(), EndUtterance(), InMidCharacter(), EndText(), BeginText(),
//                     BeginSegment(), Drain(), SetPad()
//   streaming thread  Next(), the only call that waits for frames, and Commit()
//   any               SetMaxQueued(), Interrupt(), ClearQueue(), EndAfterCurrent(), FlushStart(), FlushStop(),
//                     SetUnlocked(), Fail()
//
// Thread-safe, except that Start(), Stop() and Release() need the streaming thread at rest, and that one thread changes
// states.
// One mutex guards everything and is never held while calling into an engine or a stream, nor while
// destroying one, nor while reporting. A flush or an interrupt takes the stream away and raises the epoch;
// what the streaming thread then brings back from the old stream is dropped, so that neither waits for a
// device.
//
// What happens to utterances is told to a reporter, in the order in which it happened. A thread that made it happen and
// finds nobody reporting tells what has happened so far; what happens meanwhile goes to a thread of GLib's pool, and a
// thread that finds somebody reporting leaves its own to them. So a slow reporter holds up nobody but the thread it is
// called on, and that for a bounded number of reports. kEndOfText alone waits until everything is told. The reporter
// may call back into the Speech.
class Speech {
 public:
  enum class Event {
    kFrame,       // `frame`
    kStarted,     // an utterance begins: `seed`, `warnings`, `language_warning`, `cue`, `language`
    kGap,         // there is nothing to speak until `cue.start`
    kEvent,       // the turn of `event` has come
    kEnded,       // an utterance ended: `end_reason`, `language_warning`; if kError or kBusy, what kRefused tells
    kRefused,     // an utterance could not begin: `status`, `settings`, `device_lost`, `nothing_spoken`
    kLoadFailed,  // there will be no engine, as was told by the load
    kEndOfText,   // everything was spoken and no more text can come; `status` is that of the last one if all failed
    kIdle,        // everything was spoken, more text may come: for Idle::kTell only
    kWoken,       // the waker was called, and there was nothing else to tell
    kHalted,      // SetUnlocked(true), a flush, Halt() or Fail()
  };

  // What Next() does when there is no text, and none can come by the sink pad.
  enum class Idle {
    kEnd,   // kEndOfText
    kWait,  // wait for text of the application
    kTell,  // kIdle, also while the sink pad may bring text
  };

  struct Output {
    qtts::Frame frame;
    qtts::Status status;
    qtts::EndReason end_reason = qtts::EndReason::kNone;
    Settings settings;            // that the utterance was asked to be spoken with
    bool device_lost = false;     // the engine's, with which every text will fail
    bool nothing_spoken = false;  // every utterance of the run has failed, and this was the last one
    uint64_t seed = 0;
    std::vector<std::string> warnings;  // what the user should know about the utterance
    std::string language_warning;       // qtts::LanguageWarning(), once for a text of the sink pad
    bool awaited_text = false;          // the frame could not come before text did that came late
    Cue cue;
    std::shared_ptr<void> event;  // of PushEvent()
    std::string language;         // tag of what is set for the utterance; empty: unknown
  };

  enum class Accept {
    kAccepted,
    kFull,      // Offer() only
    kFlushing,  // not running, flushing, or the pad is being released
    kEnded,     // the end of the text was handed out before, or EndAfterCurrent() or Fail() was called
  };

  // Counts of a run.
  struct Stats {
    uint64_t utterances = 0;   // that came to their end, by whatever reason but an interruption
    uint64_t failed = 0;       // of these, by an error or for having waited in vain
    uint64_t unsayable = 0;    // of these, with nothing to say
    uint64_t interrupted = 0;  // utterances that were cut off
    uint64_t dropped = 0;      // utterances that were accepted but never began
    uint64_t frames = 0;       // that left the element
    // From handing a text to the engine to its first frame.
    uint64_t first_frames = 0;
    std::chrono::nanoseconds first_frame_latency_last{0};
    std::chrono::nanoseconds first_frame_latency_sum{0};
    std::chrono::nanoseconds first_frame_latency_max{0};
    // Time that Next() waited for frames, and how long their sound is.
    std::chrono::nanoseconds waited{0};
    double sound_seconds = 0;
    std::optional<uint64_t> seed;  // of the last utterance
    // Now.
    size_t queued_utterances = 0;
    size_t queued_chars = 0;
    bool upstream_waits = false;  // PushChunk() waits for room
    qtts::Occupancy occupancy;    // of the engine, whoever uses it; zeros without one
  };

  using Reporter = std::function<void(const Report&)>;
  // Something that keeps the Speech alive while the pool reports.
  using Keeper = std::function<std::shared_ptr<void>()>;

  explicit Speech(Reporter reporter = {}, Keeper keeper = {});
  ~Speech();
  Speech(const Speech&) = delete;
  Speech& operator=(const Speech&) = delete;

  // Begins a run with `first`, if any, as its first utterance. From now on text is taken.
  void Start(const TextOptions& options, std::optional<Utterance> first);
  // Changes the bound of the queue, in characters.
  void SetMaxQueued(uint64_t characters);
  // Whether the run needs an engine to be loaded: that of the last run is gone, has other options or lost its device.
  bool NeedsLoad(const qtts::EngineOptions& options);
  // Begins to load it. Unless Stop() comes first, `on_done` gets the outcome on the loader's thread, to tell of it
  // and to pass it on to UseLoad().
  void Load(const qtts::EngineOptions& options, const std::function<void(EngineLoader::Outcome)>& on_done);
  // Speaks with the engine or, without one, gives kLoadFailed out.
  void UseLoad(EngineLoader::Outcome outcome);
  // Everybody who waits returns, and nobody waits again before Start().
  void Halt();
  // Ends the run: text and speech are dropped, a load is cancelled. True if there was a load whose outcome
  // had not come yet.
  bool Stop();
  // Lets go of the engine, and forgets how its load ended; after Stop().
  void Release();

  // Queues an utterance without waiting. `id`, when given, receives the number by which reports name it:
  // 1, 2, … over the life of the Speech.
  Accept Offer(Utterance utterance, uint64_t* id = nullptr);
  // Takes a chunk of text from the sink pad: an utterance, or a part of one or of several, as the options
  // of the run say. Waits for room; an interrupt meanwhile drops what is left, which counts as accepted. Blank
  // text is accepted and dropped. `repaired` receives the number of ill-formed UTF-8 sequences.
  // `cue` is when the chunk is meant to be heard; it holds where each chunk is an utterance.
  Accept PushChunk(std::string_view chunk, const Settings& settings, int* repaired, const Cue& cue = {});
  // There will be no text from the sink pad that is meant to be heard before `until` (running time).
  void PushGap(uint64_t until);
  // Hands `event` out in its turn, as kEvent: after the text that came before it, and where that has begun a sentence
  // or a growing utterance, after the end of that. Waits for room as PushChunk() does. False if it cannot be, after a
  // flush, the end or an error. An interrupt leaves it.
  bool PushEvent(std::shared_ptr<void> event);
  // Ends the sentence or the growing utterance that the chunks so far have begun, if any.
  void EndUtterance();
  // Ends it, and waits until everything is spoken. False if that cannot be: after a flush, a stop, an
  // error or the release of the pad.
  bool Drain();
  // No more chunks. What a cut character leaves is dropped.
  void EndText();
  // Whether the chunks so far end within a character.
  bool InMidCharacter() const;
  // Whether the chunks that come are `pieces` of a text, which end anywhere: with Segmentation::kAuto they are taken by
  // sentence then.
  void BeginSegment(bool pieces);
  // More chunks after EndText(), if that has not been handed out as kEndOfText yet.
  void BeginText();
  // Whether the sink pad exists: while it does, only EndText() ends the text.
  void SetPad(bool exists);

  // Drops all text and speech; text that comes later is spoken. Returns the number of frames of the
  // utterance that was cut off which had left the element.
  uint64_t Interrupt();
  // Drops the text that waits. The utterance that is being spoken goes on.
  void ClearQueue();

  // Drops all text and speech; Next() returns kHalted until FlushStop().
  void FlushStart();
  // Takes text again, as after Start().
  void FlushStop();
  bool flushing() const;

  // While set, Next() returns kHalted.
  void SetUnlocked(bool unlocked);

  void SetIdle(Idle idle);
  // Makes Next() return kWoken as soon as it would wait. May be called on any thread, also after the Speech
  // is gone.
  std::function<void()> waker() const;
  // Forgets calls of the waker so far.
  void ClearWake();

  // Ends the run with the utterance that is being heard: text that waits is dropped, text that comes is refused, and
  // what comes next is kEndOfText. An utterance of which nothing was committed waits too. False if the run has ended
  // or does not speak.
  bool EndAfterCurrent();
  bool ending() const;

  // The stream of sound has ended, for good in this run: text is dropped and refused.
  void EndSound();

  // No more speech in this run: text is dropped and refused.
  void Fail();

  // Waits for the next thing to tell.
  Event Next(Output* output);
  // To be called for each frame when it leaves the element, before the next call of Next(), to be heard at
  // `running_time` (nanoseconds): from then on it counts as spoken. False if the frame was interrupted since Next()
  // gave it out; then it must be dropped.
  bool Commit(const Output& output, uint64_t running_time);
  // Ends the utterance that is being spoken, because its cue ended. For the streaming thread.
  void Clip();
  // Whether Commit() would take the frame that Next() gave out last.
  bool WouldCommit() const;

  Stats stats() const;
  // The text that is being spoken; empty when there is none.
  std::string current_text() const;
  // Whether the next frame comes as soon as the engine has made it: it does not wait for text.
  bool WaitsForEngine() const;

 private:
  // Outlives the Speech in the callbacks of engines and loads.
  struct Monitor;
  struct PoolJob;
  using Lock = std::unique_lock<std::mutex>;
  using Clock = std::chrono::steady_clock;

  // The utterance that is being spoken.
  struct Current {
    Utterance utterance;
    std::shared_ptr<qtts::Stream> stream;  // null while the engine is asked for it
    uint64_t seed = 0;
    Clock::time_point start;
    std::chrono::nanoseconds first_frame_latency{0};
    TextPosition position;  // of the text, once there is the stream
    int sample_rate = 0;
    uint64_t frames = 0;  // committed
    uint64_t samples = 0;
    std::string more;           // text that the stream has not been given yet
    bool growing = false;       // the stream does not know the end of its text yet
    bool awaited_text = false;  // since the last frame
  };

  bool Running() const { return active_ && !flushing_; }
  void PollForFirstFrame(Lock* lock, uint64_t seen);
  bool WaitForChange(Lock* lock, uint64_t seen, std::optional<Clock::time_point> until = {});
  Segmentation segmentation() const;
  bool QueueText(std::string* text);
  bool QueueWhole(std::string* text);
  bool QueueSentences();
  bool GrowUtterance(std::string* text);
  void CloseUtterance();
  std::optional<Clock::time_point> UtteranceDeadline() const;
  std::optional<Event> NextEvent(Output* output);
  void JoinThreads(Lock* lock);
  void PrepareNext(Lock* lock);
  bool AwaitsWords() const;
  bool DropUnsayable();
  bool StartNext(Lock* lock, Output* output, Event* event);
  bool ReadStream(Lock* lock, Output* output, Event* event);
  std::string LanguageWarningOf(const Utterance& utterance, const qtts::ModelInfo& model);
  void Enqueue(Utterance utterance);
  bool TextIsOver() const;
  bool NothingWasSpoken() const;
  void QueueEvents();
  void DropQueue(bool with_events);
  std::shared_ptr<qtts::Stream> DropAll(bool with_events = true);
  void FinishCurrent(FinishReason reason);
  void FailCurrent(Output* output, FinishReason reason);
  void DeliverReports();
  bool DeliverReports(Lock* lock);
  void DeliverRestOnPool();
  static void DeliverRest(gpointer job, gpointer user_data);

  const std::shared_ptr<Monitor> monitor_;
  const Reporter reporter_;
  const Keeper keeper_;

  // Guarded by the monitor's mutex.
  bool active_ = false;
  bool unlocked_ = false;
  Idle idle_ = Idle::kEnd;
  bool flushing_ = false;
  bool failed_ = false;
  bool pad_exists_ = false;
  bool text_ended_ = false;      // by the upstream of the pad
  bool ending_ = false;          // by EndAfterCurrent()
  bool end_handed_out_ = false;  // kEndOfText
  uint64_t epoch_ = 0;           // counts interrupts, flushes and stops
  uint64_t flushes_ = 0;         // counts flushes and stops
  uint64_t last_id_ = 0;
  TextOptions text_options_;
  bool pieces_ = false;  // what the chunks are
  Utf8Joiner joiner_;
  Segmenter segmenter_;                        // the sentence that has begun
  std::optional<std::string> sentence_;        // waits for room
  std::vector<std::shared_ptr<void>> events_;  // that wait for the end of the sentence that has begun
  uint64_t growing_id_ = 0;                    // the utterance that grows, if it is still there
  bool growing_failed_ = false;                // it failed: what it would have grown by is dropped
  Settings pad_settings_;                      // of the last chunk
  Cue pad_cue_;                                // of the last chunk
  Clock::time_point last_text_;                // when it came
  uint64_t pad_stream_ = 1;                    // number of the text that the chunks are of
  TextQueue queue_;
  bool upstream_waits_ = false;

  bool loading_ = false;  // the outcome has not come yet
  qtts::EngineOptions options_;
  qtts::Status load_status_;
  std::shared_ptr<qtts::Engine> engine_;
  bool engine_suspect_ = false;  // a stream of it failed: do not keep it for the next run
  qtts::Status last_failure_;    // of an utterance

  std::optional<Current> current_;
  Pace pace_;
  Stats stats_;
  std::deque<Report> reports_;
  std::thread::id reporting_;  // the thread that does, if any
  size_t to_report_ = 0;       // by that thread

  std::mt19937_64 seeds_;

  // The streaming thread's own: the warnings of the text of the sink pad that had one last.
  uint64_t warned_stream_ = 0;
  std::set<std::string> language_warnings_;

  VoiceStore voices_;         // the streaming thread's own
  uint64_t prepared_id_ = 0;  // the last utterance whose voice voices_ was told of

  EngineLoader loader_;  // last: its thread uses the rest until it is joined
};

}  // namespace gstqtts

#endif  // GST_QTTS_SPEECH_H_
