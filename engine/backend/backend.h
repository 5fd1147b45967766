// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_BACKEND_BACKEND_H_
#define QTTS_BACKEND_BACKEND_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/text_scores.h"
#include "backend/voice_encoder.h"
#include "prompt/prompt.h"
#include "qtts/end_reason.h"
#include "qtts/request.h"
#include "qtts/status.h"

namespace qtts {

using SlotId = int32_t;

// Request for one frame of one slot.
struct FrameStep {
  SlotId slot = 0;
  // Text side of the talker's input before the frame: for frame n, entry n-1 of the utterance's text queue, or tts_pad
  // after its end. kNoText for frame 0, whose input is the prompt.
  int32_t text_id = kNoText;
  TextWindow window;  // asks for FrameResult::text_scores; changes no bit of codes and samples
};

// Result of one call of Backend::Prefill().
struct PrefillProgress {
  bool done = false;  // the whole prompt has been run: the slot's first frame may be submitted
  double work = 0;    // work done, in frames: at most about 1
};

// Result of one FrameStep.
struct FrameResult {
  SlotId slot = 0;
  // kNone: a frame was made and more can follow. kComplete, kMaxDuration: no frame, the utterance is over. kError: this
  // slot failed, see `status`; the others continue.
  EndReason end = EndReason::kNone;
  Status status;
  std::vector<int32_t> codes;  // [code_groups]
  std::vector<float> pcm;      // [samples_per_frame]
  TextScores text_scores;      // of FrameStep::window; independent of other slots, as the codes are
};

// Memory for the contexts of utterances: pages of one size, shared by all slots.
struct ContextPages {
  int64_t positions = 0;  // of a context in a page
  int64_t total = 0;      // an estimate: other programs use the device too
  int64_t free = 0;       // of these

  // Returns true if fewer than one page in kShortShare is free, so that utterances will soon be parked.
  bool IsShort() const { return free * kShortShare < total; }
  static constexpr int64_t kShortShare = 40;
};

// Optional part of a Backend: contexts lie in pages that all slots share. A lack of pages is no reason for an utterance
// to fail: the scheduler begins one only if there are enough.
class PagedContexts {
 public:
  virtual ~PagedContexts() = default;

  // Positions that a slot may take pages ahead of its next frame: 1.3 s of speech, so that a device allocates a page
  // long before it is needed.
  static constexpr int64_t kPositionsAhead = 16;

  // Returns the numbers of pages. Cheap.
  virtual ContextPages pages() const = 0;

  // Takes the pages of an open slot's next frame, or finds them taken. Returns the number of frames that may be
  // submitted in all before the next call. kResourceExhausted: no page is free; the slot is as before and may be tried
  // again, parked or closed. Backend::Submit() takes what was not reserved, and fails the slot if there is none.
  virtual Result<int64_t> Reserve(SlotId slot) = 0;

  // Moves the pages of an open slot, whose whole prompt has been run, to the host's memory and frees them. Frames in
  // flight come as ever; none may be submitted until Unpark(). No bit of later results changes. kResourceExhausted: the
  // host has no memory for them; the slot is as before.
  virtual Status Park(SlotId slot) = 0;

  // Brings a parked slot's pages back. kResourceExhausted: there are too few; it stays parked.
  virtual Status Unpark(SlotId slot) = 0;

  // Returns the memory of the device that the model and its slots take; 0: not known.
  virtual size_t device_bytes() const { return 0; }
};

// Optional part of a Backend: prompts of several slots share one pass over the weights.
class SharedPrompts {
 public:
  virtual ~SharedPrompts() = default;

  // Returns the rows of several prompts that are about one frame's work together, constant.
  virtual int64_t prompt_rows_together() const = 0;

  // Does the same as Backend::Prefill() for several slots. Returns one result per slot, in their order.
  virtual std::vector<Result<PrefillProgress>> PrefillTogether(std::span<const SlotId> slots) = 0;
};

// A loaded model on a device. It advances any number of utterances ("slots") frame by frame. It owns weights, KV
// caches, codec state, sampling and random numbers. The output of a slot depends on its own prompt, settings and seed
// only, never on other slots.
//
// Submission and completion are separate, so that a device can run ahead of the host: several Submit() calls may be
// outstanding, and Collect() completes them in order. Owned by one scheduler. Not thread-safe.
class Backend {
 public:
  virtual ~Backend() = default;

  // Returns the name for messages: "cpu (AVX3, 2 threads)".
  virtual const std::string& name() const = 0;

  // Returns true if a separate device computes, so that a polling host thread takes no computing power from it.
  virtual bool beside_host() const = 0;

  // Returns the number of the GPU that computes, in its driver's order; -1: none does.
  virtual int gpu() const { return -1; }

  // Returns the number of outstanding submissions that keeps the device busy; at least 1.
  virtual int max_outstanding() const = 0;

  // Returns the maximum number of open slots. At least 1, constant.
  virtual int max_slots() const = 0;

  // Optional parts, owned by the backend and constant; null if the device has no such thing:
  virtual PagedContexts* paged() { return nullptr; }
  virtual SharedPrompts* shared_prompts() { return nullptr; }

  // Opens a slot: checks the prompt and allocates the slot's memory, without computing. The caller feeds trailing_text
  // through FrameStep. kDeviceUnavailable: the device is lost, and with it every slot.
  virtual Result<SlotId> Open(Prompt prompt, const GenerationSettings& settings, uint64_t seed) = 0;

  // Runs or queues the next piece of an open slot's prompt: first the codec's priming with the reference codes, then
  // the talker's prefill. A piece is at most about one frame's work, so that other slots get their frames and
  // cancellation takes effect between pieces. A device that runs ahead has few pieces in flight. The split changes no
  // bit of later results. kDeviceUnavailable: as for Open(). After any other error the slot can only be closed.
  virtual Result<PrefillProgress> Prefill(SlotId slot) = 0;

  // Queues one frame for each of `steps`, which name distinct, open slots. If a slot's prompt is not complete, the rest
  // of it is run first, in one piece. A slot that has ended (a host that runs ahead may not know yet) does nothing and
  // reports its end again.
  virtual Status Submit(std::span<const FrameStep> steps) = 0;

  // Waits for the oldest outstanding submission. Returns one result per step, in their order. An error means that the
  // device is lost, and with it every slot.
  virtual Result<std::vector<FrameResult>> Collect() = 0;

  // Closes a slot in any state. Its outstanding results are still delivered, but are meaningless. Its id is not reused
  // before that.
  virtual void Close(SlotId slot) = 0;

  // Returns the model's voice encoders on the same device. They may be used on another thread and may outlive the
  // backend. Cheap: nothing is set up before the first voice. Null if the CPU is to make voices.
  virtual std::unique_ptr<VoiceEncoder> CreateVoiceEncoder() const { return nullptr; }
};

}  // namespace qtts

#endif  // QTTS_BACKEND_BACKEND_H_
