// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_ENGINE_H_
#define QTTS_ENGINE_H_

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "qtts/engine_options.h"
#include "qtts/frame.h"
#include "qtts/model_info.h"
#include "qtts/request.h"
#include "qtts/status.h"
#include "qtts/voice.h"

// The engine turns text into 24 kHz speech with a Qwen3-TTS-12Hz checkpoint. Example:
//
//   qtts::EngineOptions options;
//   options.model_path = "/models/Qwen3-TTS-12Hz-0.6B-CustomVoice";
//   auto engine = qtts::Engine::Acquire(options);
//   if (!engine.ok()) return Fail(engine.status().message());
//   qtts::Request request;
//   request.text = "Hello, world.";
//   request.settings = (*engine)->info().defaults;
//   auto stream = (*engine)->Start(request);
//   if (!stream.ok()) return Fail(stream.status().message());
//   qtts::Frame frame;
//   while ((*stream)->Read(&frame) == qtts::ReadState::kFrame) Play(frame.pcm);
//   if (!(*stream)->status().ok()) return Fail((*stream)->status().message());

namespace qtts {

class Engine;
class Scheduler;
class StreamState;

// One utterance, from text to frames. Engine::Start() makes it; the caller owns it. It keeps its engine alive.
// Destroying it cancels it.
//
// Thread-safe. Frames come in order, each once; one thread should read.
class Stream {
 public:
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // Adds text to an utterance started with Request::more_text. The UTF-8 may be cut anywhere. Speech stalls until the
  // next token is known; the engine never guesses.
  Status Append(std::string_view text);
  // Ends the text of an utterance started with Request::more_text. Idempotent.
  Status FinishText();

  // Waits for the next frame. Never returns kPending.
  ReadState Read(Frame* frame);
  // Reads in the same way, without waiting.
  ReadState TryRead(Frame* frame);

  // Tells how long the sound takes to play that the reader has made of the frames it has taken: less than 80 ms each if
  // it cuts silence or plays faster. An engine of many voices then knows how long a real-time listener can wait. Until
  // this is called it counts 80 ms a frame from the first one on. Takes no lock. Changes no bit.
  void SetPlayTime(std::chrono::nanoseconds time);

  // Cancels the utterance and drops all unread frames. Readers get kEnd at once, without waiting for the device. No
  // effect after the end of the utterance, if all of it was read.
  void Cancel();

  EndReason end_reason() const;
  // Returns the error; not ok exactly when end_reason() is kError or kBusy.
  Status status() const;
  // Returns the words that became known after the last frame. Empty before the end of the utterance.
  std::vector<SpokenWord> last_words() const;
  // Reports how the text was spoken so far; at the end, all of it.
  SpeechReport report() const;
  // Returns the warnings for the user about things that do not stop the utterance, e.g. an instruction that this
  // checkpoint ignores.
  const std::vector<std::string>& warnings() const;

 private:
  friend class Engine;
  Stream(std::shared_ptr<Engine> engine, std::shared_ptr<StreamState> state, std::vector<std::string> warnings);
  std::shared_ptr<Engine> engine_;
  std::shared_ptr<StreamState> state_;
  std::vector<std::string> warnings_;
};

// A loaded model on one device, with one scheduler thread that advances all its streams frame by frame. Thread-safe.
// Shared: streams hold a reference.
class Engine : public std::enable_shared_from_this<Engine> {
 public:
  // Describes a model, and checks all that Acquire() needs except the weights: options, folder, configs, tokenizer
  // files and headers of the weight files. If the options demand a GPU and no such engine exists yet, also checks
  // driver, device and free memory; the first use of a GPU in a process takes some tenths of a second.
  //
  // Takes 2 ms for the bundled voice, 0.2 to 0.3 s for the vocabulary of the released models (4.4 MB), almost no time
  // if an engine of the model is running. A load reuses this work while ModelInfo::read is kept.
  static Result<ModelInfo> Inspect(const EngineOptions& options);

  // Loads a model: 0.1 s for the bundled voice, seconds for a released checkpoint. Any thread may call it. `cancelled`,
  // if given, is polled; it ends the load early with kCancelled.
  static Result<std::shared_ptr<Engine>> Load(const EngineOptions& options,
                                              const std::atomic<bool>* cancelled = nullptr);

  // Returns the process's engine for these options: a running one if there is one, else Load(). Concurrent calls with
  // equal options load once. The last reference frees the engine. `voices` is not compared: if a running engine has
  // fewer than asked for, it is returned as it is, with a warning in the log, and occupancy() says how many it has.
  //
  // If the options leave the choice among several GPUs, users are spread over them: see EngineOptions::gpu. A lost GPU
  // ends the streams of its own engine only.
  static Result<std::shared_ptr<Engine>> Acquire(const EngineOptions& options,
                                                 const std::atomic<bool>* cancelled = nullptr);

  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  const ModelInfo& info() const;
  // Returns the device name for messages: "cpu (AVX3, 2 threads)".
  const std::string& device_name() const;
  // Returns a warning for the user, with reason and remedy, if device=auto has chosen the CPU although there is an
  // NVIDIA GPU. Else empty.
  const std::string& passed_over() const;
  // Returns true if a separate device computes, so that a polling host thread takes no computing power from it.
  bool beside_host() const;
  // Returns the number of the GPU that computes, in its driver's order, as EngineOptions::gpu; -1: the CPU does.
  int gpu() const;
  // Returns true if the device failed as a whole. All its streams end with that error, now and later, and Acquire()
  // does not return this engine any more.
  bool device_lost() const;

  // Returns the current occupancy. Takes no lock.
  Occupancy occupancy() const;

  // Makes a voice from `recording`, for Request::voice of this engine and of others of the same model. For ten seconds
  // of sound it takes about one second on two cores and some tens of milliseconds on a GPU. Any thread may call it,
  // also while streams run. Errors: kInvalidArgument, with the remedy, for an unusable recording and for a model other
  // than Base; kCorruptModel for a model without encoders; kResourceExhausted if memory is short (the GPU's on a GPU).
  Result<ClonedVoice> CloneVoice(const Recording& recording, const CloneOptions& options = {}) const;

  // Returns the number of tokens of a text, without those that a prompt has around it. The prefill of a text takes time
  // by tokens, not by characters. Any thread may call it. kResourceExhausted for a text too long for every model.
  Result<size_t> CountTokens(std::string_view text) const;

  // Starts an utterance: checks the request, tokenizes, builds the prompt and queues it. A text too long for the model
  // is refused at once with kResourceExhausted.
  //
  // `on_change`, if given, is called from a thread of the engine after a frame or the end became readable; from one at
  // a time. It must not block or call the stream. The last call may come during or just after the destruction of the
  // stream, so it must own everything that it uses.
  Result<std::unique_ptr<Stream>> Start(const Request& request, std::function<void()> on_change = {});

 private:
  // Functions that those above call, catching their exceptions:
  static Result<ModelInfo> DoInspect(const EngineOptions& options);
  static Result<std::shared_ptr<Engine>> DoLoad(const EngineOptions& options, const std::atomic<bool>* cancelled);
  Result<ClonedVoice> DoCloneVoice(const Recording& recording, const CloneOptions& options) const;
  Result<std::unique_ptr<Stream>> DoStart(const Request& request, std::function<void()> on_change);

  struct Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace qtts

#endif  // QTTS_ENGINE_H_
