// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_BACKEND_BACKEND_H_
#define QTTS_BACKEND_BACKEND_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/voice_encoder.h"
#include "prompt/prompt.h"
#include "qtts/end_reason.h"
#include "qtts/request.h"
#include "qtts/status.h"

namespace qtts {

using SlotId = int32_t;

// Utterances that a backend speaks at once, on any device.
inline constexpr int kDefaultSlots = 64;

// One frame to make for one slot.
struct FrameStep {
  SlotId slot = 0;
  // Text side of the talker input that precedes the frame: entry n-1 of the utterance's text queue
  // for frame n, tts_pad after its end. kNoText for frame 0, whose input is the prompt.
  int32_t text_id = kNoText;
};

// What one call of Backend::Prefill() did.
struct PrefillProgress {
  bool done = false;  // nothing of the prompt is left: the slot's first frame may be submitted
  double work = 0;    // that was done, in frames: about 1 at most
};

// What one FrameStep gave.
struct FrameResult {
  SlotId slot = 0;
  // kNone: a frame was made, and more can follow. kComplete, kMaxDuration: none was made, the utterance is over.
  // kError: this slot failed, see `status`; others go on.
  EndReason end = EndReason::kNone;
  Status status;
  std::vector<int32_t> codes;  // [code_groups]
  std::vector<float> pcm;      // [samples_per_frame]
};

// A loaded model on a device: advances any number of utterances ("slots") frame by frame. Weights,
// KV caches, codec state, sampling and random numbers all live inside; what a slot gives depends on
// its own prompt, settings and seed only, never on its neighbours.
//
// Submission and completion are separate so that a device can run ahead of the host: several
// Submit() calls may be outstanding, completed in order by Collect(). Owned by one scheduler; not
// thread-safe.
class Backend {
 public:
  virtual ~Backend() = default;

  // For people: "cpu (AVX3, 2 threads)".
  virtual const std::string& name() const = 0;

  // Whether a device computes beside the host, so that a thread of the host that polls takes nothing from it.
  virtual bool beside_host() const = 0;

  // Outstanding submissions that keep the device busy; more gain nothing. At least 1.
  virtual int max_outstanding() const = 0;

  // Slots that may be open at once. At least 1; the same for the backend's life.
  virtual int max_slots() const = 0;

  // Begins an utterance: checks the prompt, takes a slot and memory for it, and runs nothing of it yet. Its
  // trailing_text is the caller's to feed through FrameStep. kDeviceUnavailable means that the device is lost: every
  // slot is dead.
  virtual Result<SlotId> Open(Prompt prompt, const GenerationSettings& settings, uint64_t seed) = 0;

  // Runs, or queues, the next piece of an open slot's prompt: of the codec's priming with the reference codes, then
  // of the talker's prefill. A piece is about a frame's work at most, so that between two of them other slots get
  // their frames and whoever gives up is heard; on a device that runs ahead, few pieces are under way at once.
  // How a prompt is cut changes no bit of what follows. kDeviceUnavailable as above; with any other error the slot
  // is good for nothing but Close().
  virtual Result<PrefillProgress> Prefill(SlotId slot) = 0;

  // Queues one frame for each of `steps`: distinct, open slots. What is left of a slot's prompt is run first, in one
  // go. A slot that has ended (the host may not know yet when it runs ahead) does nothing and reports its end again.
  virtual Status Submit(std::span<const FrameStep> steps) = 0;

  // Waits for the oldest outstanding submission; one result a step, in their order. A failed
  // status means that the device is lost: every slot is dead.
  virtual Result<std::vector<FrameResult>> Collect() = 0;

  // Ends a slot, in any state. Results still outstanding for it are delivered but mean nothing; its
  // id is not given out again before they are.
  virtual void Close(SlotId slot) = 0;

  // The model's encoders on the same device, which may be used in another thread than the backend and outlive it.
  // Costs nothing before the first voice. Null from a backend that leaves voices to the CPU.
  virtual std::unique_ptr<VoiceEncoder> CreateVoiceEncoder() const { return nullptr; }
};

}  // namespace qtts

#endif  // QTTS_BACKEND_BACKEND_H_
