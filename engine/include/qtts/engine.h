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

// The engine turns text into 24 kHz speech with a Qwen3-TTS-12Hz checkpoint. In short:
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

// One utterance on its way from text to frames. Made by Engine::Start(), owned by the caller; it
// keeps its engine alive. Destroying it cancels it.
//
// Thread-safe. Frames come in order, each handed out once; one thread should read.
class Stream {
 public:
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // Adds text to an utterance started with Request::more_text. Any cut of the UTF-8 is fine.
  // Speech stalls, and never guesses, while the next token is not known.
  Status Append(std::string_view text);
  // Ends the text of an utterance started with Request::more_text. Idempotent.
  Status FinishText();

  // Waits for the next frame. Never returns kPending.
  ReadState Read(Frame* frame);
  // Same without waiting.
  ReadState TryRead(Frame* frame);

  // Drops everything not yet read; readers get kEnd at once, without waiting for the device. Without
  // effect once the utterance has ended and all of it was read.
  void Cancel();

  EndReason end_reason() const;
  // Not ok exactly when end_reason() is kError or kBusy.
  Status status() const;
  // What the user should know but that does not stop the utterance, e.g. an instruction that this
  // checkpoint ignores.
  const std::vector<std::string>& warnings() const;

 private:
  friend class Engine;
  Stream(std::shared_ptr<Engine> engine, std::shared_ptr<StreamState> state, std::vector<std::string> warnings);
  std::shared_ptr<Engine> engine_;
  std::shared_ptr<StreamState> state_;
  std::vector<std::string> warnings_;
};

// A loaded model on one device, with one scheduler thread that advances all its streams frame by
// frame. Thread-safe. Shared: streams hold a reference.
class Engine : public std::enable_shared_from_this<Engine> {
 public:
  // Checks what Acquire() needs and can be told without weights: the options, the folder, its configs, its tokenizer's
  // files and the headers of its weight files; where only a GPU will do, also driver, device and free memory, unless
  // the engine is there already (the first use of CUDA in a process takes some tenths of a second). For errors that
  // should come early, and for listing voices. Takes 2 ms for the bundled voice and 0.2 to 0.3 s for the vocabulary of
  // the released ones (4.4 MB), by which a load takes less while ModelInfo::read is kept; next to nothing when an
  // engine of the model runs.
  static Result<ModelInfo> Inspect(const EngineOptions& options);

  // Loads a model. Takes 0.1 s for the bundled voice and seconds for a released checkpoint; may
  // be called on any thread. `cancelled`, when given, is polled and ends the load early with
  // kCancelled.
  static Result<std::shared_ptr<Engine>> Load(const EngineOptions& options,
                                              const std::atomic<bool>* cancelled = nullptr);

  // The process's engine for these options: a running one where there is one, else
  // Load(). The last reference frees it. Concurrent calls for one key load once.
  static Result<std::shared_ptr<Engine>> Acquire(const EngineOptions& options,
                                                 const std::atomic<bool>* cancelled = nullptr);

  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  const ModelInfo& info() const;
  // Where it runs, for people: "cpu (AVX3, 2 threads)".
  const std::string& device_name() const;
  // Whether a device computes beside the host, so that a thread of the host that polls takes nothing from it.
  bool beside_host() const;
  // Whether its device failed as a whole. All its streams end with that error, now and later, and Acquire() no longer
  // hands it out.
  bool device_lost() const;

  // As of now; takes no lock.
  Occupancy occupancy() const;

  // Makes a voice of `recording`, for Request::voice of this engine and others of the same model. Takes
  // about a second on two cores for ten seconds of sound, some tens of milliseconds on a GPU; may be called
  // on any thread, beside running streams. Errors: kInvalidArgument for a recording that no voice can come of
  // and for a model that is no Base one, saying what to do; kCorruptModel for a model without its encoders;
  // kResourceExhausted where memory, the GPU's on a GPU, is too short.
  Result<ClonedVoice> CloneVoice(const Recording& recording, const CloneOptions& options = {}) const;

  // Accepts an utterance: checks the request, tokenizes, builds the prompt and queues it. A text too long for the
  // model is refused before that: kResourceExhausted.
  // `on_change`, when given, is called from the scheduler thread after a frame or the end became
  // readable; it must not block nor call back into the stream. A last call may come while or just
  // after the stream is destroyed, so let it own what it touches.
  Result<std::unique_ptr<Stream>> Start(const Request& request, std::function<void()> on_change = {});

 private:
  // The functions above, which keep exceptions in.
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
