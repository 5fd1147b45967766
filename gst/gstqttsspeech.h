// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef GST_QTTS_SPEECH_H_
#define GST_QTTS_SPEECH_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "gstqttsloader.h"
#include "gstqttstext.h"
#include "qtts/engine.h"

namespace gstqtts {

// What the element does, without GStreamer: loads the model, queues text, speaks one utterance
// after the other and hands out their frames. Four kinds of threads meet here:
//
//   state changes     Start(), Load(), Interrupt(), Stop(), Release()
//   text              Offer(), PushChunk(), InMidCharacter(), EndText(), BeginText(), SetPad()
//   streaming thread  Next(), the only call that waits for frames
//   any               FlushStart(), FlushStop(), SetUnlocked(), Fail()
//
// Thread-safe, except that Start(), Load(), Stop() and Release() need the streaming thread at rest.
// One mutex guards everything and is never held while calling into an engine or a stream, nor while
// destroying one. A flush takes the stream away and raises the epoch; what the streaming thread then
// brings back from the old stream is dropped, so that no flush waits for a device.
class Speech {
 public:
  enum class Event {
    kFrame,        // `frame`
    kLoaded,       // the engine is there: engine()
    kStarted,      // an utterance begins: `seed`, `warnings`
    kEnded,        // an utterance ended: `end_reason`; `status` and `from_pad` if that is kError
    kRefused,      // an utterance could not begin: `status`, `from_pad`
    kLoadFailed,   // `status`
    kEndOfText,    // everything was spoken and no more text can come
    kInterrupted,  // SetUnlocked(true), a flush, Interrupt() or Fail()
  };

  struct Output {
    qtts::Frame frame;
    qtts::Status status;
    qtts::EndReason end_reason = qtts::EndReason::kNone;
    bool from_pad = false;  // whether the text came by the sink pad
    uint64_t seed = 0;
    std::vector<std::string> warnings;  // what the user should know about the utterance
    // Frame 0 only: time from handing the text to the engine to this frame.
    std::optional<std::chrono::nanoseconds> first_frame_latency;
  };

  enum class Accept {
    kAccepted,
    kFull,      // Offer() only
    kFlushing,  // not running, flushing, or the pad is being released
    kEnded,     // the end of the text was handed out before, or Fail() was called
  };

  Speech();
  ~Speech();
  Speech(const Speech&) = delete;
  Speech& operator=(const Speech&) = delete;

  // Begins a run with `first`, if any, as its first utterance. From now on text is taken.
  void Start(std::optional<Utterance> first);
  // Begins to load the engine of the run, unless that of the last run is still held and has the same
  // options. True if a load began.
  bool Load(const qtts::EngineOptions& options);
  // Everybody who waits returns, and nobody waits again before Start().
  void Interrupt();
  // Ends the run: text and speech are dropped, a load is cancelled. True if the outcome of a load
  // had not been handed out yet.
  bool Stop();
  // Lets go of the engine, after Stop().
  void Release();

  // Queues an utterance without waiting.
  Accept Offer(Utterance utterance);
  // Queues a chunk of text from the sink pad as an utterance, waiting for room. Blank text is
  // accepted and dropped. `repaired` receives the number of ill-formed UTF-8 sequences.
  Accept PushChunk(std::string_view chunk, const Settings& settings, int* repaired);
  // No more chunks. What a cut character leaves is dropped.
  void EndText();
  // Whether the chunks so far end within a character.
  bool InMidCharacter() const;
  // More chunks after EndText(), if that has not been handed out as kEndOfText yet.
  void BeginText();
  // Whether the sink pad exists: while it does, only EndText() ends the text.
  void SetPad(bool exists);

  // Drops all text and speech; Next() returns kInterrupted until FlushStop().
  void FlushStart();
  // Takes text again, as after Start().
  void FlushStop();
  bool flushing() const;

  // While set, Next() returns kInterrupted.
  void SetUnlocked(bool unlocked);

  // No more speech in this run: text is dropped and refused.
  void Fail();

  // Waits for the next thing to tell.
  Event Next(Output* output);

  // The loaded engine; null before kLoaded.
  std::shared_ptr<qtts::Engine> engine() const;

 private:
  // Outlives the Speech in the callbacks of engines and loads.
  struct Monitor;
  using Lock = std::unique_lock<std::mutex>;

  bool Running() const { return active_ && !flushing_; }
  void WaitForChange(Lock* lock, uint64_t seen);
  std::shared_ptr<qtts::Stream> TakeStream();
  bool StartNext(Lock* lock, Output* output, Event* event);
  bool ReadStream(Lock* lock, Output* output, Event* event);

  const std::shared_ptr<Monitor> monitor_;

  // Guarded by the monitor's mutex.
  bool active_ = false;
  bool unlocked_ = false;
  bool flushing_ = false;
  bool failed_ = false;
  bool pad_exists_ = false;
  bool text_ended_ = false;      // by the upstream of the pad
  bool end_handed_out_ = false;  // kEndOfText
  uint64_t epoch_ = 0;           // counts flushes and stops
  Utf8Joiner joiner_;
  TextQueue queue_;

  bool loading_ = false;  // the outcome was not handed out yet
  EngineLoader loader_;
  qtts::EngineOptions options_;
  qtts::Status load_status_;
  std::shared_ptr<qtts::Engine> engine_;
  bool engine_suspect_ = false;  // a stream of it failed: do not keep it for the next run

  std::shared_ptr<qtts::Stream> stream_;
  bool stream_from_pad_ = false;
  std::chrono::steady_clock::time_point stream_start_;

  std::mt19937_64 seeds_;
};

}  // namespace gstqtts

#endif  // GST_QTTS_SPEECH_H_
