// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TESTS_CUDA_HOST_FIXTURE_H_
#define QTTS_TESTS_CUDA_HOST_FIXTURE_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "backend/device_module.h"
#include "codec/codec.h"
#include "cuda_backend.h"
#include "device_choice.h"
#include "fake_cuda/fake_cuda.h"
#include "gpu/gpu_test.h"
#include "qtts/engine_options.h"
#include "qtts/engine_options.h"
#include "runtime/device.h"
#include "runtime/device_wait.h"
#include "speech_decoder.h"

// The host code of the GPU backend, without a GPU: its CUDA calls, and its behaviour if any of them fails.

namespace qtts::cuda_host {

using cuda::CudaBackend;
using cuda::CudaOptions;
using testing::FullWidth;
using testing::MidSize;
using testing::Preset;
using testing::RandomModel;
using testing::RandomPrompt;

inline constexpr int kSlots = 2;

// The backend forgets devices when they are replaced. The limit of waits is short, since here work ends at once or
// never.
inline const bool kForgetsDevices = [] {
  setenv("QTTS_CUDA_TIMEOUT", "0.3", 1);
  fake_cuda::OnReset([] {
    cuda::ForgetDevices();
    cuda::ForgetHungDevices();
  });
  return true;
}();

inline CudaOptions Options(int device = -1, int slots = kSlots) {
  CudaOptions options;
  options.device = device;
  options.max_slots = slots;
  return options;
}

inline int64_t Count(const std::vector<std::string>& calls, const std::string& name) {
  return std::count_if(calls.begin(), calls.end(),
                       [&](const std::string& call) { return call.find(name) != std::string::npos; });
}

// The CUDA calls of `work`.
template <typename Work>
std::vector<std::string> CallsOf(const Work& work) {
  const size_t before = fake_cuda::calls().size();
  work();
  const std::vector<std::string>& all = fake_cuda::calls();
  return {all.begin() + static_cast<std::ptrdiff_t>(before), all.end()};
}

// One frame of each slot.
inline Status Step(Backend* backend, const std::vector<FrameStep>& steps) {
  QTTS_RETURN_IF_ERROR(backend->Submit(steps));
  QTTS_ASSIGN_OR_RETURN(const std::vector<FrameResult> results, backend->Collect());
  for (const FrameResult& result : results) QTTS_RETURN_IF_ERROR(result.status);
  return Status::Ok();
}

// Runs the whole prompt of a slot; returns the number of its pieces.
inline Result<int> PrefillAll(Backend* backend, SlotId slot) {
  for (int pieces = 1;; ++pieces) {
    QTTS_ASSIGN_OR_RETURN(const PrefillProgress progress, backend->Prefill(slot));
    if (progress.done) return pieces;
  }
}

inline Prompt NewPrompt(const ModelConfig& config, int rows, std::mt19937* random, int reference_frames = 0) {
  Prompt prompt = RandomPrompt(config, rows, *random);
  for (int i = 0; i < reference_frames * config.talker.num_code_groups; ++i) {
    prompt.reference_codes.push_back(
        static_cast<int32_t>((*random)() % static_cast<unsigned>(config.codec.codebook_size)));
  }
  return prompt;
}

// All of a backend's slots at once, of which half begin while the others speak.
inline Status SpeakTogether(Backend* backend, const Prompt& prompt) {
  std::vector<FrameStep> steps;
  for (int round = 0; round < 4; ++round) {
    for (int i = 0; round < 2 && i < backend->max_slots() / 2; ++i) {
      QTTS_ASSIGN_OR_RETURN(const SlotId slot, backend->Open(prompt, GenerationSettings(), 1));
      steps.push_back({slot, kNoText});
    }
    QTTS_RETURN_IF_ERROR(Step(backend, steps));
    for (FrameStep& step : steps) step.text_id = 0;
  }
  for (const FrameStep& step : steps) backend->Close(step.slot);
  return Status::Ok();
}

// Everything that a backend does: two voices together, each twice, so that the second time uses the caches; then a
// prompt and a reference too long for one piece, beside frames of another slot, and once closed in the middle; then
// more voices than the caches hold; and, with an encoder, the voice of a recording.
inline Status UseEverything(const ModelConfig& config, CudaBackend* backend, VoiceEncoder* encoder) {
  std::mt19937 random(1);
  const std::vector<Prompt> voices = {NewPrompt(config, 20, &random), NewPrompt(config, 90, &random, 5)};
  for (int time = 0; time < 2; ++time) {
    std::vector<FrameStep> steps;
    for (const Prompt& voice : voices) {
      QTTS_ASSIGN_OR_RETURN(const SlotId slot, backend->Open(voice, GenerationSettings(), 1));
      steps.push_back({slot, kNoText});
    }
    for (int frame = 0; frame < 3; ++frame) {
      QTTS_RETURN_IF_ERROR(Step(backend, steps));
      for (FrameStep& step : steps) step.text_id = 0;
    }
    for (const FrameStep& step : steps) backend->Close(step.slot);
  }
  std::vector<SlotId> together;
  for (const int rows : {20, 30}) {
    QTTS_ASSIGN_OR_RETURN(const SlotId slot, backend->Open(NewPrompt(config, rows, &random), GenerationSettings(), 1));
    together.push_back(slot);
  }
  for (const Result<PrefillProgress>& result : backend->PrefillTogether(together)) {
    QTTS_RETURN_IF_ERROR(result.status());
  }
  for (const SlotId slot : together) backend->Close(slot);
  const Prompt long_prompt = NewPrompt(config, 600, &random, 150);
  QTTS_ASSIGN_OR_RETURN(const SlotId beside, backend->Open(voices[0], GenerationSettings(), 1));
  FrameStep step = {beside, kNoText};
  QTTS_RETURN_IF_ERROR(PrefillAll(backend, beside).status());
  QTTS_RETURN_IF_ERROR(backend->Reserve(beside).status());
  QTTS_RETURN_IF_ERROR(backend->Park(beside));
  QTTS_RETURN_IF_ERROR(backend->Unpark(beside));
  for (const bool gives_up : {true, false}) {
    QTTS_ASSIGN_OR_RETURN(const SlotId slot, backend->Open(long_prompt, GenerationSettings(), 1));
    for (int pieces = 0;; ++pieces) {
      QTTS_ASSIGN_OR_RETURN(const PrefillProgress progress, backend->Prefill(slot));
      QTTS_RETURN_IF_ERROR(Step(backend, {step}));
      step.text_id = 0;
      if (progress.done || (gives_up && pieces == 4)) break;
    }
    if (!gives_up) QTTS_RETURN_IF_ERROR(Step(backend, {{slot, kNoText}, step}));
    backend->Close(slot);
  }
  backend->Close(beside);
  if (backend->max_slots() > kDefaultVoices) QTTS_RETURN_IF_ERROR(SpeakTogether(backend, voices[0]));
  for (int i = 0; i < 10; ++i) {
    QTTS_ASSIGN_OR_RETURN(const SlotId slot, backend->Open(NewPrompt(config, 8, &random), GenerationSettings(), 1));
    QTTS_RETURN_IF_ERROR(Step(backend, {{slot, kNoText}}));
    backend->Close(slot);
  }
  if (encoder == nullptr) return Status::Ok();
  const std::vector<float> recording(36000, 0.1F);
  QTTS_RETURN_IF_ERROR(encoder->SpeakerVector(recording).status());
  return encoder->Codes(recording).status();
}

// The speech tokenizer's decoder alone, over more frames than one upload holds.
inline Status DecodeAlone(const Checkpoint& checkpoint, std::unique_ptr<SpeechDecoder>* kept) {
  QTTS_ASSIGN_OR_RETURN(*kept, cuda::CreateSpeechDecoder(checkpoint, cuda::CodecPrecision::kExact, -1));
  constexpr size_t kFrames = 70;
  const std::vector<int32_t> codes(kFrames * static_cast<size_t>(checkpoint.config().talker.num_code_groups), 1);
  QTTS_ASSIGN_OR_RETURN(const std::vector<float> pcm, (*kept)->Decode(codes));
  EXPECT_EQ(pcm.size(), kFrames * static_cast<size_t>(checkpoint.config().codec.samples_per_frame));
  return Status::Ok();
}

struct Life {
  Status status;
  size_t calls = 0;  // without the last calls, whose errors are not reported
};

// Creates a backend, uses it beside a decoder and destroys it, on a thread of its own, as an engine does.
inline Life Live(const std::shared_ptr<const Checkpoint>& checkpoint, int slots = kSlots) {
  Life life;
  std::thread([&] {
    auto backend = CudaBackend::Create(checkpoint, Options(-1, slots));
    life.status = backend.status();
    std::unique_ptr<VoiceEncoder> encoder;
    std::unique_ptr<SpeechDecoder> decoder;
    if (backend.ok()) {
      if (checkpoint->Info().type == ModelType::kBase) encoder = (*backend)->CreateVoiceEncoder();
      life.status = UseEverything(checkpoint->config(), backend->get(), encoder.get());
    }
    if (life.status.ok()) life.status = DecodeAlone(*checkpoint, &decoder);
    life.calls = fake_cuda::calls().size();
  }).join();
  return life;
}

inline void ExpectCleanEnd() {
  EXPECT_THAT(fake_cuda::misuse(), ::testing::IsEmpty());
  EXPECT_EQ(fake_cuda::alive(), 0u);
}

class CudaHostTest : public ::testing::Test {
 protected:
  CudaHostTest() { fake_cuda::Reset(); }
  ~CudaHostTest() override { ExpectCleanEnd(); }

  std::unique_ptr<CudaBackend> NewBackend(int slots = kSlots) {
    auto backend = CudaBackend::Create(model_.checkpoint(), Options(-1, slots));
    EXPECT_TRUE(backend.ok()) << backend.status().message();
    return backend.ok() ? std::move(*backend) : nullptr;
  }
  SlotId Open(Backend* backend, const Prompt& prompt) {
    const auto slot = backend->Open(prompt, GenerationSettings(), 1);
    EXPECT_TRUE(slot.ok()) << slot.status().message();
    return slot.ok() ? *slot : 0;
  }
  SlotId OpenAndPrefill(Backend* backend, const Prompt& prompt) {
    const SlotId slot = Open(backend, prompt);
    EXPECT_TRUE(PrefillAll(backend, slot).ok());
    return slot;
  }
  // Leaves free memory for a first block of pages only, after all other allocations of an utterance.
  ContextPages LeaveNoMemory(CudaBackend* backend) {
    backend->Close(OpenAndPrefill(backend, NewPrompt(config(), 1000, &random_)));
    fake_cuda::LeaveMemory(0, 0);
    EXPECT_FALSE(backend->Open(NewPrompt(config(), 20000, &random_), GenerationSettings(), 1).ok());
    return backend->pages();
  }
  const ModelConfig& config() const { return model_.checkpoint()->config(); }
  std::string Refusal(int device = -1) {
    const auto backend = CudaBackend::Create(model_.checkpoint(), Options(device));
    EXPECT_FALSE(backend.ok());
    return backend.status().message();
  }

  RandomModel model_{MidSize(false)};
  std::mt19937 random_{std::random_device()()};
};

}  // namespace qtts::cuda_host

#endif  // QTTS_TESTS_CUDA_HOST_FIXTURE_H_
