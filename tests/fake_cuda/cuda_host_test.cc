// SPDX-License-Identifier: LGPL-2.1-or-later
#include <dlfcn.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <thread>

#include "backend/device_module.h"
#include "codec/codec.h"
#include "cuda_backend.h"
#include "device_choice.h"
#include "fake_cuda/fake_cuda.h"
#include "gpu/gpu_test.h"
#include "language_model.h"
#include "runtime/device.h"
#include "runtime/device_memory.h"
#include "runtime/device_wait.h"
#include "runtime/memory_count.h"
#include "scheduler/scheduler.h"
#include "sequences/parked_pages.h"
#include "speech_decoder.h"

// The host code of the GPU backend, without a GPU: its CUDA calls, and its behaviour if any of them fails.
namespace qtts {
namespace {

using cuda::CudaBackend;
using cuda::CudaOptions;
using ::testing::AllOf;
using testing::FullWidth;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::MidSize;
using testing::Preset;
using testing::RandomModel;
using testing::RandomPrompt;

constexpr int kSlots = 2;

// The backend forgets devices when they are replaced. The limit of waits is short, since here work ends at once or
// never.
const bool kForgetsDevices = [] {
  setenv("QTTS_CUDA_TIMEOUT", "0.3", 1);
  fake_cuda::OnReset([] {
    cuda::ForgetDevices();
    cuda::ForgetHungDevices();
  });
  return true;
}();

// The backend knows cuBLASLt where the build has its header.
#if __has_include(<cublasLt.h>)
constexpr bool kHasLibrary = true;
#else
constexpr bool kHasLibrary = false;
#endif

CudaOptions Options(int device = -1, int slots = kSlots) {
  CudaOptions options;
  options.device = device;
  options.max_slots = slots;
  return options;
}

int64_t Count(const std::vector<std::string>& calls, const std::string& name) {
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
Status Step(Backend* backend, const std::vector<FrameStep>& steps) {
  QTTS_RETURN_IF_ERROR(backend->Submit(steps));
  QTTS_ASSIGN_OR_RETURN(const std::vector<FrameResult> results, backend->Collect());
  for (const FrameResult& result : results) QTTS_RETURN_IF_ERROR(result.status);
  return Status::Ok();
}

// Runs the whole prompt of a slot; returns the number of its pieces.
Result<int> PrefillAll(Backend* backend, SlotId slot) {
  for (int pieces = 1;; ++pieces) {
    QTTS_ASSIGN_OR_RETURN(const PrefillProgress progress, backend->Prefill(slot));
    if (progress.done) return pieces;
  }
}

Prompt NewPrompt(const ModelConfig& config, int rows, std::mt19937* random, int reference_frames = 0) {
  Prompt prompt = RandomPrompt(config, rows, *random);
  for (int i = 0; i < reference_frames * config.talker.num_code_groups; ++i) {
    prompt.reference_codes.push_back(
        static_cast<int32_t>((*random)() % static_cast<unsigned>(config.codec.codebook_size)));
  }
  return prompt;
}

// All of a backend's slots at once, of which half begin while the others speak.
Status SpeakTogether(Backend* backend, const Prompt& prompt) {
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
Status UseEverything(const ModelConfig& config, CudaBackend* backend, VoiceEncoder* encoder) {
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
Status DecodeAlone(const Checkpoint& checkpoint, std::unique_ptr<SpeechDecoder>* kept) {
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
Life Live(const std::shared_ptr<const Checkpoint>& checkpoint, int slots = kSlots) {
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

void ExpectCleanEnd() {
  EXPECT_THAT(fake_cuda::misuse(), IsEmpty());
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

// --- which device

TEST_F(CudaHostTest, WithoutADriver) {
  fake_cuda::SetDriver(0);
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("there is no NVIDIA driver"), HasSubstr("device=cpu")));
}

TEST_F(CudaHostTest, DriverTooOld) {
  fake_cuda::SetDriver(11040);
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("it is for CUDA 11.4"), HasSubstr("device=cpu")));
}

TEST_F(CudaHostTest, WithoutADevice) {
  fake_cuda::Reset({});
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("the GPU cannot be used"), HasSubstr("device=cpu")));
}

TEST_F(CudaHostTest, CardTooOld) {
  fake_cuda::Reset({{.name = "Old GPU", .major = 7, .minor = 5}});
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("Old GPU has compute capability 7.5"), HasSubstr("device=cpu")));
}

TEST_F(CudaHostTest, CardThatNoKernelIsBuiltFor) {
  fake_cuda::Reset({{.name = "New GPU", .major = 15, .minor = 1, .has_code = false}});
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("New GPU"), HasSubstr("-Dcuda-arch=151")));
}

// Consumer cards of compute capability 12.0 have clusters, but 99 KiB of shared memory a block.
TEST_F(CudaHostTest, ACardWithLittleSharedMemoryComputesWithoutClusters) {
  const fake_cuda::Device consumer = {
      .name = "Consumer GPU", .major = 12, .processors = 170, .shared_per_block = size_t{99} << 10};
  const RandomModel clones(Preset("tiny-base-0b6"));
  const RandomModel full_width(FullWidth(false));
  for (const RandomModel* const model : {&clones, &full_width}) {
    for (const int slots : {kSlots, 80}) {
      for (const bool little : {true, false}) {
        fake_cuda::Reset({little ? consumer : fake_cuda::Device()});
        const Life life = Live(model->checkpoint(), slots);
        EXPECT_TRUE(life.status.ok()) << life.status.message();
        EXPECT_EQ(Count(fake_cuda::calls(), "ClusterGemm") == 0, little);
        ExpectCleanEnd();
      }
    }
  }
}

TEST_F(CudaHostTest, TooLittleMemory) {
  fake_cuda::Reset({{.name = "Small GPU", .memory = 400000000}});
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("Small GPU has 0.4 GB free of 0.4 GB"), HasSubstr("device=cpu")));
}

// The first touch of a kernel loads its code, for which there may be no memory.
TEST_F(CudaHostTest, AGpuThatIsNearlyFullIsRefusedBeforeAKernelIsTouched) {
  fake_cuda::LeaveMemory(0, 100000000);
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("has 0.1 GB free"), HasSubstr("less than any model needs")));
  EXPECT_EQ(Count(fake_cuda::calls(), "cudaFuncSetAttribute"), 0);
  EXPECT_EQ(Count(fake_cuda::calls(), "cudaFuncGetAttributes"), 0);
}

TEST_F(CudaHostTest, NumberOfNoDevice) { EXPECT_THAT(Refusal(1), HasSubstr("this machine's GPUs are 0 to 0")); }

TEST_F(CudaHostTest, ADecoderAloneTakesTheFirstDeviceThatCanHoldIt) {
  fake_cuda::Reset({{.major = 7}, {.memory = 400000000}, {.name = "Right GPU"}, {.name = "Spare GPU"}});
  const auto decoder = cuda::CreateSpeechDecoder(*model_.checkpoint(), cuda::CodecPrecision::kExact, -1);
  ASSERT_TRUE(decoder.ok()) << decoder.status().message();
  EXPECT_THAT((*decoder)->name(), HasSubstr("Right GPU"));
  std::thread([&] { EXPECT_TRUE((*decoder)->Decode(std::vector<int32_t>(16, 1)).ok()); }).join();
  const auto none = cuda::CreateSpeechDecoder(*model_.checkpoint(), cuda::CodecPrecision::kExact, 4);
  EXPECT_THAT(none.status().message(), HasSubstr("this machine's GPUs are 0 to 3"));
}

TEST_F(CudaHostTest, TheFirstDeviceThatCanHoldTheModelIsTaken) {
  fake_cuda::Reset({{.major = 7}, {.memory = 400000000}, {.name = "Right GPU"}, {.name = "Spare GPU"}});
  EXPECT_THAT(NewBackend()->name(), HasSubstr("Right GPU"));
}

// Backends are created on one thread and used on another one, whose current device is the first.
TEST_F(CudaHostTest, AllWorkGoesToTheDeviceThatWasAskedFor) {
  fake_cuda::Reset({{}, {}});
  const auto backend = CudaBackend::Create(model_.checkpoint(), Options(1));
  ASSERT_TRUE(backend.ok()) << backend.status().message();
  Status status;
  std::thread([&] {
    const SlotId slot = Open(backend->get(), NewPrompt(config(), 20, &random_, 3));
    status = Step(backend->get(), {{slot, kNoText}});
    if (status.ok()) status = Step(backend->get(), {{slot, 0}});
  }).join();
  EXPECT_TRUE(status.ok()) << status.message();
}

// --- CUDA calls

TEST_F(CudaHostTest, ALaterFrameAllocatesAndRecordsNothing) {
  const auto backend = NewBackend();
  const SlotId slot = Open(backend.get(), NewPrompt(config(), 20, &random_));
  ASSERT_TRUE(Step(backend.get(), {{slot, kNoText}}).ok());
  for (int frame = 1; frame < 30; ++frame) {
    const std::vector<std::string> calls = CallsOf([&] { ASSERT_TRUE(Step(backend.get(), {{slot, 0}}).ok()); });
    EXPECT_EQ(Count(calls, "cudaGraphLaunch"), 2);  // codes and sound
    const std::set<std::string> names(calls.begin(), calls.end());
    EXPECT_THAT(names, ::testing::IsSubsetOf({"cudaSetDevice", "cudaGraphLaunch", "cudaEventRecord", "cudaEventQuery",
                                              "cudaStreamWaitEvent"}))
        << "frame " << frame;
  }
}

TEST_F(CudaHostTest, AFirstFrameRecordsNothing) {
  const auto backend = NewBackend();
  for (const int rows : {2, 9, 64, 65, 130}) {
    const std::vector<std::string> calls = CallsOf([&] {
      const SlotId slot = Open(backend.get(), NewPrompt(config(), rows, &random_));
      ASSERT_TRUE(Step(backend.get(), {{slot, kNoText}}).ok());
      backend->Close(slot);
    });
    EXPECT_EQ(Count(calls, "cudaStreamBeginCapture"), 0) << rows << " rows";
  }
}

TEST_F(CudaHostTest, WhatIsKeptOfAVoiceIsNotComputedAgain) {
  const auto backend = NewBackend();
  Prompt prompt = NewPrompt(config(), 40, &random_, 4);
  prompt.constant_rows = prompt.rows.size() - 1;
  const auto speak = [&] {
    return CallsOf([&] {
      const SlotId slot = OpenAndPrefill(backend.get(), prompt);
      backend->Close(slot);
    });
  };
  const std::vector<std::string> first = speak();
  const std::vector<std::string> second = speak();
  EXPECT_GT(Count(first, "cudaGraphLaunch"), 0);  // the talker, over the prompt
  EXPECT_EQ(Count(second, "cudaGraphLaunch"), 0);
  EXPECT_GT(Count(first, "Dequantize"), 0);  // the codec, over the reference
  EXPECT_EQ(Count(second, "Dequantize"), 0);
  prompt.rows.front().text_id = prompt.rows.front().text_id == 1 ? 2 : 1;
  EXPECT_GT(Count(speak(), "cudaGraphLaunch"), 0);
}

TEST_F(CudaHostTest, TheVoicesUsedLastAreKept) {
  const auto backend = NewBackend();
  std::vector<Prompt> prompts;
  for (int i = 0; i < 9; ++i) {
    prompts.push_back(NewPrompt(config(), 20, &random_));
    prompts.back().constant_rows = 19;
  }
  const auto is_kept = [&](const Prompt& prompt) {
    return Count(CallsOf([&] { backend->Close(OpenAndPrefill(backend.get(), prompt)); }), "cudaGraphLaunch") == 0;
  };
  for (int i = 0; i < 8; ++i) EXPECT_FALSE(is_kept(prompts[static_cast<size_t>(i)]));
  EXPECT_TRUE(is_kept(prompts[0]));
  EXPECT_FALSE(is_kept(prompts[8]));  // takes the place of the second
  EXPECT_TRUE(is_kept(prompts[0]));
  EXPECT_FALSE(is_kept(prompts[1]));
}

TEST_F(CudaHostTest, UtterancesThatFollowOneAnotherTakeNoMoreMemory) {
  const auto backend = NewBackend();
  const Prompt prompt = NewPrompt(config(), 300, &random_, 3);
  size_t alive = 0;
  for (int i = 0; i < 20; ++i) {
    const SlotId slot = Open(backend.get(), prompt);
    ASSERT_TRUE(Step(backend.get(), {{slot, kNoText}}).ok());
    backend->Close(slot);
    if (i == 1) alive = fake_cuda::alive();
  }
  EXPECT_EQ(fake_cuda::alive(), alive);
}

// --- prompts in pieces

// A prompt of ordinary length is enqueued in one piece, for the least latency.
TEST_F(CudaHostTest, AnOrdinaryPromptIsOnePiece) {
  const auto backend = NewBackend();
  for (const int rows : {2, 65, 256}) {
    const SlotId slot = Open(backend.get(), NewPrompt(config(), rows, &random_, 128));
    const auto progress = backend->Prefill(slot);
    ASSERT_TRUE(progress.ok()) << progress.status().message();
    EXPECT_TRUE(progress->done) << rows;
    EXPECT_LE(progress->work, 1);
    backend->Close(slot);
  }
}

// As many passes through the talker as there are pieces of prompt_rows.
TEST_F(CudaHostTest, AnOrdinaryPromptGoesThroughTheTalkerInPieces) {
  const auto launches_of = [&](int prompt_rows, int rows) {
    CudaOptions options = Options(-1, kSlots);
    options.prompt_rows = prompt_rows;
    const auto backend = CudaBackend::Create(model_.checkpoint(), options);
    EXPECT_TRUE(backend.ok()) << backend.status().message();
    Prompt prompt = NewPrompt(config(), rows, &random_, 0);
    prompt.constant_rows = 0;
    const SlotId slot = Open(backend->get(), prompt);
    const std::vector<std::string> calls = CallsOf([&] { EXPECT_TRUE((*backend)->Prefill(slot)->done); });
    EXPECT_EQ(Count(calls, "cudaStreamBeginCapture"), 0);
    return Count(calls, "cudaGraphLaunch");
  };
  for (const auto& [rows, by_64, by_256] : {std::tuple(3, 1, 1), {64, 1, 1}, {65, 2, 1}, {200, 4, 1}, {256, 4, 1}}) {
    EXPECT_EQ(launches_of(cuda::kMaxRows, rows), by_64) << rows;
    EXPECT_EQ(launches_of(cuda::Sequences::kRowsAtOnce, rows), by_256) << rows;
  }
}

// Prompts that fit into a pass through the talker together share it: one upload, one launch.
TEST_F(CudaHostTest, PromptsTogetherShareAPass) {
  CudaOptions options = Options(-1, 4);
  options.prompt_rows = cuda::Sequences::kRowsAtOnce;
  const auto backend = CudaBackend::Create(model_.checkpoint(), options);
  ASSERT_TRUE(backend.ok()) << backend.status().message();
  const auto launches_of = [&](const std::vector<int>& rows, size_t constant_rows) {
    Prompt voice = NewPrompt(config(), 300, &random_);
    std::vector<SlotId> slots;
    for (const int own_rows : rows) {
      Prompt prompt = voice;
      prompt.constant_rows = constant_rows;
      prompt.rows.resize(constant_rows + static_cast<size_t>(own_rows));
      slots.push_back(Open(backend->get(), prompt));
    }
    const std::vector<std::string> calls = CallsOf([&] {
      const std::vector<Result<PrefillProgress>> results = (*backend)->PrefillTogether(slots);
      ASSERT_EQ(results.size(), slots.size());
      for (const Result<PrefillProgress>& result : results) EXPECT_TRUE(result.ok() && result->done);
    });
    EXPECT_EQ(Count(calls, "cudaStreamBeginCapture"), 0);
    std::vector<FrameStep> steps;
    for (const SlotId slot : slots) steps.push_back({slot, kNoText});
    EXPECT_TRUE(Step(backend->get(), steps).ok());
    for (const SlotId slot : slots) (*backend)->Close(slot);
    return Count(calls, "cudaGraphLaunch");
  };
  EXPECT_EQ(launches_of({20, 30, 40}, 0), 1);
  EXPECT_EQ(launches_of({64, 64, 64, 64}, 0), 1);
  EXPECT_EQ(launches_of({64, 64, 64, 65}, 0), 2);
  EXPECT_EQ(launches_of({250, 10, 250}, 0), 3);
  // The first prompt of a voice fills the cache with the rows common to its prompts. It takes two passes.
  EXPECT_EQ(launches_of({20, 30, 40}, 10), 2 + 1);
  // A prompt with one row of its own needs no pass: that row goes through the talker with the first frame.
  EXPECT_EQ(launches_of({1, 20, 1, 30}, 12), 1 + 1);
}

// A slot that fails does not affect the others.
TEST_F(CudaHostTest, AmongPromptsTogetherOneFailsAlone) {
  const auto backend = NewBackend(3);
  const SlotId good = Open(backend.get(), NewPrompt(config(), 20, &random_));
  const SlotId closed = Open(backend.get(), NewPrompt(config(), 20, &random_));
  const SlotId other = Open(backend.get(), NewPrompt(config(), 30, &random_));
  backend->Close(closed);
  const auto results = backend->PrefillTogether(std::vector<SlotId>{good, closed, other});
  ASSERT_EQ(results.size(), 3U);
  EXPECT_TRUE(results[0].ok() && results[0]->done);
  EXPECT_EQ(results[1].status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(results[2].ok() && results[2]->done);
  EXPECT_TRUE(Step(backend.get(), {{good, kNoText}, {other, kNoText}}).ok());
}

// For a long prompt, each call enqueues about the work of a frame: 64 rows of the talker beside 16 frames of the codec.
// Few are in flight at once, since each one needs a free upload buffer.
TEST_F(CudaHostTest, ALongPromptIsManyPieces) {
  const auto backend = NewBackend();
  Prompt prompt = NewPrompt(config(), 1000, &random_, 200);
  prompt.constant_rows = 100;
  const SlotId slot = Open(backend.get(), prompt);
  int launches = 0;
  int frames = 0;
  int pieces = 0;
  for (bool done = false; !done; ++pieces) {
    const std::vector<std::string> calls = CallsOf([&] {
      const auto progress = backend->Prefill(slot);
      ASSERT_TRUE(progress.ok()) << progress.status().message();
      EXPECT_DOUBLE_EQ(progress->work, 1);
      done = progress->done;
    });
    EXPECT_LE(Count(calls, "cudaGraphLaunch"), 1);
    EXPECT_LE(Count(calls, "Dequantize"), 16);
    EXPECT_GE(Count(calls, "cudaEventQuery"), 1);
    EXPECT_EQ(Count(calls, "cudaStreamBeginCapture"), 0);
    launches += static_cast<int>(Count(calls, "cudaGraphLaunch"));
    frames += static_cast<int>(Count(calls, "Dequantize"));
  }
  EXPECT_EQ(launches, 2 + 15);  // for 100 rows and for 900
  EXPECT_EQ(frames, 200);
  EXPECT_EQ(pieces, 17);
  EXPECT_TRUE(Step(backend.get(), {{slot, kNoText}}).ok());
  // The next prompt of the voice restores the first 100 rows and the codec's state.
  const SlotId next = Open(backend.get(), prompt);
  EXPECT_EQ(*PrefillAll(backend.get(), next), 15);
}

// Any cutting enqueues the same kernels in the same order.
TEST_F(CudaHostTest, PiecesAreTheWholePrompt) {
  const Prompt prompt = NewPrompt(config(), 700, &random_, 150);
  const auto kernels = [&](bool pieces) {
    const auto backend = NewBackend();
    std::vector<std::string> calls = CallsOf([&] {
      const SlotId slot = pieces ? OpenAndPrefill(backend.get(), prompt) : Open(backend.get(), prompt);
      EXPECT_TRUE(Step(backend.get(), {{slot, kNoText}}).ok());
    });
    std::erase_if(calls, [](const std::string& call) { return call.starts_with("cudaSetDevice"); });
    std::erase_if(calls, [](const std::string& call) { return call.starts_with("cudaEventQuery"); });
    return calls;
  };
  EXPECT_EQ(kernels(true), kernels(false));
}

TEST_F(CudaHostTest, ClosedInMidPrompt) {
  const auto backend = NewBackend();
  const Prompt prompt = NewPrompt(config(), 1000, &random_, 200);
  const SlotId speaking = Open(backend.get(), NewPrompt(config(), 20, &random_));
  ASSERT_TRUE(Step(backend.get(), {{speaking, kNoText}}).ok());
  for (int pieces = 0; pieces < 18; ++pieces) {
    const SlotId slot = Open(backend.get(), prompt);
    for (int i = 0; i < pieces; ++i) ASSERT_TRUE(backend->Prefill(slot).ok());
    ASSERT_TRUE(Step(backend.get(), {{speaking, 0}}).ok());
    backend->Close(slot);
    EXPECT_EQ(backend->Prefill(slot).status().code(), StatusCode::kInvalidArgument);
  }
  const SlotId slot = Open(backend.get(), prompt);
  EXPECT_TRUE(Step(backend.get(), {{speaking, 0}, {slot, kNoText}}).ok());
}

// If memory runs out within a prompt, only that utterance ends, and its slot is free again.
TEST_F(CudaHostTest, AFaultInMidPromptEndsOneUtterance) {
  const auto backend = NewBackend();
  const SlotId speaking = Open(backend.get(), NewPrompt(config(), 20, &random_));
  ASSERT_TRUE(Step(backend.get(), {{speaking, kNoText}}).ok());
  for (int piece = 0; piece < 5; ++piece) {
    const SlotId slot = Open(backend.get(), NewPrompt(config(), 1000, &random_));
    for (int i = 0; i < piece; ++i) ASSERT_TRUE(backend->Prefill(slot).ok());
    fake_cuda::FailCall(2, cudaErrorMemoryAllocation, /*for_ever=*/false);
    EXPECT_EQ(backend->Prefill(slot).status().code(), StatusCode::kResourceExhausted);
    EXPECT_EQ(backend->Prefill(slot).status().code(), StatusCode::kResourceExhausted);
    EXPECT_FALSE(Step(backend.get(), {{slot, kNoText}}).ok());
    ASSERT_TRUE(Step(backend.get(), {{speaking, 0}}).ok());
    backend->Close(slot);
  }
}

// --- more utterances than slots

TEST_F(CudaHostTest, UtterancesBeyondItsSlotsWaitTheirTurn) {
  const auto tokenizer = Tokenizer::Load(model_.checkpoint()->folder());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  auto builder = PromptBuilder::Create(config(), *tokenizer);
  ASSERT_TRUE(builder.ok()) << builder.status().message();
  const auto prompts = std::make_shared<const PromptBuilder>(*std::move(builder));
  for (const int utterances : {65, 200}) {
    SCOPED_TRACE(utterances);
    CudaOptions options = Options();
    options.max_slots = kDefaultVoices;
    auto backend = CudaBackend::Create(model_.checkpoint(), options);
    ASSERT_TRUE(backend.ok()) << backend.status().message();
    const auto scheduler = Scheduler::Create(*std::move(backend));
    ASSERT_TRUE(scheduler.ok()) << scheduler.status().message();
    std::vector<std::shared_ptr<StreamState>> streams;
    for (int i = 0; i < utterances; ++i) {
      Request request;
      request.text = "Hello.";
      streams.push_back(std::make_shared<StreamState>(prompts, *tokenizer, request, 2, std::function<void()>()));
      const Status status = streams.back()->Begin();
      ASSERT_TRUE(status.ok()) << status.message();
      (*scheduler)->Add(streams.back());
    }
    for (const auto& stream : streams) {
      Frame frame;
      EXPECT_EQ(stream->Read(&frame, true), ReadState::kFrame) << stream->status().message();
      stream->Cancel();
    }
  }
}

// --- many voices

TEST_F(CudaHostTest, AFrameOfManyIsALaunchOfCodesAndOneOfEachSliceOfSoundAndAllocatesNothing) {
  constexpr int kMany = 300;
  const auto launches_of = [](size_t rows) { return rows > 256 ? 3 : 2; };
  const auto backend = NewBackend(kMany);
  ASSERT_EQ(backend->max_slots(), kMany);
  std::vector<FrameStep> steps;
  for (int i = 0; i < kMany; ++i) {
    steps.push_back({OpenAndPrefill(backend.get(), NewPrompt(config(), 20, &random_)), kNoText});
  }
  EXPECT_EQ(backend->Open(NewPrompt(config(), 20, &random_), GenerationSettings(), 1).status().code(),
            StatusCode::kResourceExhausted);
  const std::vector<std::string> first = CallsOf([&] { ASSERT_TRUE(Step(backend.get(), steps).ok()); });
  EXPECT_EQ(Count(first, "cudaGraphLaunch"), launches_of(kMany));
  for (FrameStep& step : steps) step.text_id = 0;
  for (const size_t rows : {size_t{300}, size_t{65}, size_t{1}, size_t{257}, size_t{256}, size_t{290}}) {
    const std::vector<FrameStep> some(steps.begin(), steps.begin() + static_cast<std::ptrdiff_t>(rows));
    const std::vector<std::string> calls = CallsOf([&] {
      ASSERT_TRUE(backend->Submit(some).ok());
      const auto results = backend->Collect();
      ASSERT_TRUE(results.ok()) << results.status().message();
      ASSERT_EQ(results->size(), rows);
      for (size_t i = 0; i < rows; ++i) {
        EXPECT_EQ((*results)[i].slot, some[i].slot);
        EXPECT_EQ((*results)[i].pcm.size(), static_cast<size_t>(config().codec.samples_per_frame));
      }
    });
    EXPECT_EQ(Count(calls, "cudaGraphLaunch"), launches_of(rows)) << rows;
    EXPECT_EQ(Count(calls, "cudaStreamBeginCapture"), 0) << rows;
    const std::set<std::string> names(calls.begin(), calls.end());
    EXPECT_THAT(names, ::testing::IsSubsetOf({"cudaSetDevice", "cudaGraphLaunch", "cudaEventRecord", "cudaEventQuery",
                                              "cudaStreamWaitEvent"}));
  }
  const size_t alive = fake_cuda::alive();
  for (const FrameStep& step : steps) backend->Close(step.slot);
  ASSERT_TRUE(SpeakTogether(backend.get(), NewPrompt(config(), 20, &random_)).ok());
  EXPECT_EQ(fake_cuda::alive(), alive) << "memory stays flat";
}

TEST_F(CudaHostTest, FirstFramesJoinTheOthersOfAStepOfMany) {
  constexpr int kMany = 200;
  const auto backend = NewBackend(kMany);
  std::vector<FrameStep> steps;
  for (int i = 0; i < kMany; ++i) {
    steps.push_back({OpenAndPrefill(backend.get(), NewPrompt(config(), 20, &random_)), kNoText});
  }
  struct Case {
    size_t others, newcomers;
    int launches;  // of codes and of sound
  };
  size_t next = 100;
  ASSERT_TRUE(Step(backend.get(), {steps.begin(), steps.begin() + 100}).ok());
  for (const Case& c : {Case{100, 3, 2}, Case{65, 20, 2}, Case{64, 3, 4}, Case{65, 66, 4}}) {
    std::vector<FrameStep> some(steps.begin(), steps.begin() + static_cast<std::ptrdiff_t>(c.others));
    for (FrameStep& step : some) step.text_id = 0;
    for (size_t i = 0; i < c.newcomers; ++i) some.push_back(steps[next++]);
    const std::vector<std::string> calls = CallsOf([&] { ASSERT_TRUE(Step(backend.get(), some).ok()); });
    EXPECT_EQ(Count(calls, "cudaGraphLaunch"), c.launches) << c.others << " and " << c.newcomers;
    EXPECT_EQ(Count(calls, "cudaStreamBeginCapture"), 0);
  }
}

// Where contexts are cut into splits, steps of long contexts take many launches: more are under way than the rings have
// entries.
TEST_F(CudaHostTest, AStepOfManyLaunchesGoesAroundTheRings) {
  constexpr int kMany = 80;
  CudaOptions options = Options(-1, kMany);
  options.products = cuda::ManyRowsProducts::kWarp;
  auto created = CudaBackend::Create(model_.checkpoint(), options);
  ASSERT_TRUE(created.ok()) << created.status().message();
  const auto backend = std::move(*created);
  const Prompt long_prompt = NewPrompt(config(), 17000, &random_);
  const Prompt short_prompt = NewPrompt(config(), 20, &random_);
  std::vector<FrameStep> steps;
  for (int i = 0; i < kMany; ++i) {
    steps.push_back({OpenAndPrefill(backend.get(), i % 8 == 0 ? short_prompt : long_prompt), kNoText});
  }
  ASSERT_TRUE(Step(backend.get(), steps).ok());
  for (FrameStep& step : steps) step.text_id = 0;
  for (int round = 0; round < 3; ++round) {
    const std::vector<std::string> calls = CallsOf([&] {
      for (int i = 0; i < 2; ++i) ASSERT_TRUE(backend->Submit(steps).ok());
    });
    EXPECT_GT(Count(calls, "cudaGraphLaunch"), 2 * cuda::kManyRowsRing) << "each frame is one of codes, one of sound";
    backend->Close(steps[1].slot);
    for (int i = 0; i < 2; ++i) {
      const auto results = backend->Collect();
      ASSERT_TRUE(results.ok()) << results.status().message();
      ASSERT_EQ(results->size(), steps.size());
      for (size_t n = 0; n < steps.size(); ++n) {
        EXPECT_EQ((*results)[n].slot, steps[n].slot);
        EXPECT_EQ((*results)[n].end, n == 1 ? EndReason::kError : EndReason::kNone);
        EXPECT_EQ((*results)[n].codes.empty(), n == 1) << n;
      }
    }
    steps.erase(steps.begin() + 1);
  }
}

// Attention over whole contexts needs no memory for splits, so rows of any contexts share a launch. Launches of fewer
// rows than its minimum are padded if they do not fit otherwise.
TEST_F(CudaHostTest, WithoutSplitsAFrameOfLongContextsIsOneLaunch) {
  constexpr int kMany = 80;
  CudaOptions options = Options(-1, kMany);
  options.products = cuda::ManyRowsProducts::kWarpgroup;
  options.prompt_rows = cuda::Sequences::kRowsAtOnce;
  const auto backend = CudaBackend::Create(model_.checkpoint(), options);
  ASSERT_TRUE(backend.ok()) << backend.status().message();
  const Prompt long_prompt = NewPrompt(config(), 17000, &random_);
  const Prompt short_prompt = NewPrompt(config(), 20, &random_);
  std::vector<FrameStep> steps;
  for (int i = 0; i < kMany; ++i) {
    steps.push_back({OpenAndPrefill(backend->get(), i % 2 == 0 ? short_prompt : long_prompt), kNoText});
  }
  ASSERT_TRUE(Step(backend->get(), steps).ok());
  for (FrameStep& step : steps) step.text_id = 0;
  for (const size_t rows : {size_t{80}, size_t{64}, size_t{40}, size_t{3}}) {
    const std::vector<FrameStep> some(steps.begin(), steps.begin() + static_cast<std::ptrdiff_t>(rows));
    const std::vector<std::string> calls = CallsOf([&] { ASSERT_TRUE(Step(backend->get(), some).ok()); });
    EXPECT_EQ(Count(calls, "cudaGraphLaunch"), 2) << rows << ": one of codes, one of sound";
    EXPECT_EQ(Count(calls, "cudaStreamBeginCapture"), 0) << rows;
  }
  EXPECT_THAT(fake_cuda::misuse(), IsEmpty());
}

TEST_F(CudaHostTest, MoreVoicesThanFitAreRefusedWithTheNumberThatFits) {
  fake_cuda::Reset({{.name = "Half GPU", .memory = size_t{2} << 30}});
  const auto capacity = cuda::CapacityOf(*model_.checkpoint(), Options(-1, kMostVoices));
  ASSERT_TRUE(capacity.ok()) << capacity.status().message();
  EXPECT_EQ(capacity->device, "Half GPU");
  EXPECT_EQ(capacity->compute_capability, "9.0");
  EXPECT_DOUBLE_EQ(capacity->bandwidth, 256e9);  // 1 GHz, both edges, 1024 bits
  EXPECT_GT(capacity->voices, kDefaultVoices);
  EXPECT_LT(capacity->voices, kMostVoices);
  const auto refused = CudaBackend::Create(model_.checkpoint(), Options(-1, kMostVoices));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(refused.status().message(), AllOf(HasSubstr("voices=4096 need about"), HasSubstr("choose voices=")));
  const auto fits = CudaBackend::Create(model_.checkpoint(), Options(-1, 100));
  EXPECT_TRUE(fits.ok()) << fits.status().message();
}

// Weights of 8 bits take 17 of 32 bytes, without a second copy, and what a frame reads is counted alike.
TEST_F(CudaHostTest, Int8TakesHalfOfTheMemory) {
  const auto memory_of = [&](const RandomModel& model, cuda::WeightForm weights) {
    CudaOptions options = Options(0, 1);
    options.weights = weights;
    options.path = cuda::FramePath::kGraph;
    const auto counted = CudaBackend::CountMemory(*model.checkpoint(), options);
    EXPECT_TRUE(counted.ok()) << counted.status().message();
    return *counted;
  };
  const RandomModel model(FullWidth(true));
  const cuda::LoadMemory bf16 = memory_of(model, cuda::WeightForm::kPlain);
  const cuda::LoadMemory int8 = memory_of(model, cuda::WeightForm::kInt8);
  // FullWidth() has two layers of each part, a frame reads the predictor's 15 times, and the codec's are the same.
  EXPECT_LT(int8.frame_bytes, bf16.frame_bytes);
  EXPECT_LT(int8.held, bf16.held);
  const auto backend = CudaBackend::Create(model.checkpoint(), [&] {
    CudaOptions options = Options(0, 1);
    options.weights = cuda::WeightForm::kInt8;
    return options;
  }());
  ASSERT_TRUE(backend.ok()) << backend.status().message();
  EXPECT_THAT((*backend)->name(), HasSubstr(", int8)"));
  CudaOptions plain = Options(0, 1);
  const auto larger = CudaBackend::Create(model.checkpoint(), plain);
  ASSERT_TRUE(larger.ok()) << larger.status().message();
  EXPECT_EQ((*backend)->facts().frame_bytes * 32, (*larger)->facts().frame_bytes * 17);
}

// Where BF16 does not fit and int8 does, the error says so.
TEST_F(CudaHostTest, AModelThatFitsInInt8AloneIsToldHow) {
  const RandomModel model(FullWidth(true));
  const auto needs = [&](cuda::WeightForm weights) {
    CudaOptions options = Options(0, 1);
    options.weights = weights;
    const auto counted = CudaBackend::CountMemory(*model.checkpoint(), options);
    EXPECT_TRUE(counted.ok()) << counted.status().message();
    return std::max(counted->max_held, counted->held + (size_t{512} << 20));
  };
  const size_t bf16 = needs(cuda::WeightForm::kPlain);
  const size_t int8 = needs(cuda::WeightForm::kInt8);
  ASSERT_LT(int8, bf16);
  CudaOptions options = Options(-1, 1);
  fake_cuda::Reset({{.name = "Small GPU", .memory = (int8 + bf16) / 2}});
  const auto refused = CudaBackend::Create(model.checkpoint(), options);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.status().message(), HasSubstr("choose precision=int8 with device=cuda ("));
  options.weights = cuda::WeightForm::kInt8;
  EXPECT_TRUE(cuda::ChooseDevice(*model.checkpoint(), options).ok());
  fake_cuda::Reset({{.name = "Small GPU", .memory = int8 - (size_t{16} << 20)}});
  for (const cuda::WeightForm weights : {cuda::WeightForm::kPlain, cuda::WeightForm::kInt8}) {
    options.weights = weights;
    const auto none = CudaBackend::Create(model.checkpoint(), options);
    ASSERT_FALSE(none.ok());
    EXPECT_THAT(none.status().message(), AllOf(HasSubstr("choose a smaller model"), Not(HasSubstr("int8"))));
  }
}

TEST_F(CudaHostTest, Int8IsForTheProjectsOwnProducts) {
  CudaOptions options = Options();
  options.weights = cuda::WeightForm::kInt8;
  options.products = cuda::ManyRowsProducts::kLibrary;
  const auto library = CudaBackend::Create(model_.checkpoint(), options);
  ASSERT_FALSE(library.ok());
  EXPECT_THAT(library.status().message(), HasSubstr("cublaslt needs precision=bf16"));
}

// Expects that `load`, which frees what it has loaded, takes the same memory whether it is counted or allocated, and
// that counting asks nothing of the device.
void ExpectSameMemory(const std::function<void()>& load) {
  fake_cuda::Reset();
  size_t counted = 0;
  const std::vector<std::string> calls = CallsOf([&] {
    cuda::MemoryCount count;
    load();
    counted = count.max_held();
    EXPECT_EQ(count.held(), 0U);
  });
  EXPECT_EQ(fake_cuda::most_memory(0), 0U);
  for (const char* const call : {"cudaMemcpy", "cudaMemset", "cudaLaunch", "cudaStreamCreate", "cudaEventCreate"}) {
    EXPECT_EQ(Count(calls, call), 0) << call;
  }
  load();
  EXPECT_EQ(fake_cuda::most_memory(0), counted);
}

// The load that counts and the load that allocates take the same memory, byte for byte.
TEST_F(CudaHostTest, MemoryThatIsCountedIsMemoryThatIsAllocated) {
  golden::RandomCheckpointSpec released_codec = MidSize(false);
  released_codec.codec = Preset("0.6b-custom").codec;
  released_codec.codec_dtype = DType::kF16;
  using cuda::CodecPrecision;
  using cuda::ManyRowsProducts;
  using cuda::Precision;
  struct Case {
    int voices;
    Precision precision;
    CodecPrecision codec_precision;
    ManyRowsProducts products;
    cuda::WeightForm weights = cuda::WeightForm::kPlain;
  };
  std::vector<Case> cases = {{1, Precision::kBF16, CodecPrecision::kExact, ManyRowsProducts::kBest},
                             {65, Precision::kBF16, CodecPrecision::kFast, ManyRowsProducts::kBest},
                             {256, Precision::kBF16, CodecPrecision::kExact, ManyRowsProducts::kBest},
                             {256, Precision::kBF16, CodecPrecision::kExact, ManyRowsProducts::kWarp},
                             {65, Precision::kF32, CodecPrecision::kExact, ManyRowsProducts::kBest}};
  for (const int voices : {1, 65}) {
    cases.push_back(
        {voices, Precision::kBF16, CodecPrecision::kExact, ManyRowsProducts::kBest, cuda::WeightForm::kInt8});
  }
  if (kHasLibrary) cases.push_back({65, Precision::kBF16, CodecPrecision::kExact, ManyRowsProducts::kLibrary});
  for (const auto& spec : {Preset("tiny-base-0b6"), FullWidth(true), released_codec}) {
    const RandomModel model(spec);
    for (const Case& c : cases) {
      SCOPED_TRACE("talker " + std::to_string(spec.talker.hidden_size) + ", codec " +
                   std::to_string(spec.codec.decoder_dim) + ", voices " + std::to_string(c.voices));
      fake_cuda::Reset();
      CudaOptions options = Options(0, c.voices);
      options.precision = c.precision;
      options.codec_precision = c.codec_precision;
      options.products = c.products;
      options.weights = c.weights;
      const Checkpoint& checkpoint = *model.checkpoint();
      ExpectSameMemory([&] {
        const auto loaded = cuda::LanguageModel::Create(checkpoint, options, nullptr);
        EXPECT_TRUE(loaded.ok()) << loaded.status().message();
      });
      ExpectSameMemory([&] {
        const auto loaded = cuda::Codec::Create(checkpoint.config().codec, checkpoint.codec(), c.codec_precision,
                                                c.voices, std::min(c.voices, 256));
        EXPECT_TRUE(loaded.ok()) << loaded.status().message();
      });
      const auto counted = CudaBackend::CountMemory(checkpoint, options);
      ASSERT_TRUE(counted.ok()) << counted.status().message();
      const auto backend = CudaBackend::Create(model.checkpoint(), options);
      ASSERT_TRUE(backend.ok()) << backend.status().message();
      // An utterance has spoken: there are eight states of the codec, and room for uploads.
      constexpr size_t kUploads = size_t{1} << 20;
      EXPECT_GT(fake_cuda::used_memory(0), counted->held);
      EXPECT_LT(fake_cuda::used_memory(0), counted->held + 8 * counted->voice_bytes + kUploads);
      EXPECT_EQ(fake_cuda::most_memory(0), std::max(counted->max_held, fake_cuda::used_memory(0)));
    }
  }
}

// Memory that is free after the load holds as many voices as the count says.
TEST_F(CudaHostTest, AVoiceTakesWhatItWasCountedWith) {
  const auto used_by = [&](int voices) {
    const auto backend = NewBackend(voices);
    const Prompt prompt = NewPrompt(config(), 2 * cuda::kPagePositions - 40, &random_);
    for (int i = 0; i < voices; ++i) {
      const auto slot = backend->Open(prompt, GenerationSettings(), 1);
      EXPECT_TRUE(slot.ok() && PrefillAll(backend.get(), *slot).ok());
    }
    return static_cast<double>(fake_cuda::used_memory(0));
  };
  const auto held_by = [&](int voices) {
    const auto counted = CudaBackend::CountMemory(*model_.checkpoint(), Options(0, voices));
    EXPECT_TRUE(counted.ok()) << counted.status().message();
    return static_cast<double>(counted->held + static_cast<size_t>(voices) * counted->voice_bytes);
  };
  const double added = used_by(512) - used_by(257);
  EXPECT_NEAR(held_by(512) - held_by(257), added, added / 10);
}

// A variable of fake_cublas_lt.cc, while that is open.
template <typename T>
T* VariableOfLibrary(const char* name) {
  void* const library = dlopen("libcublasLt.so.13", RTLD_NOW | RTLD_LOCAL);
  EXPECT_NE(library, nullptr) << dlerror();
  return library == nullptr ? nullptr : static_cast<T*>(dlsym(library, name));
}

// After the weights are plain rows, the library computes all products of frames and prompts, each followed by one
// kernel. The remaining products are those that selected the algorithms.
TEST_F(CudaHostTest, ProductsByTheLibrary) {
  if (!kHasLibrary) GTEST_SKIP() << "there is no cublasLt.h";
  auto* const products = VariableOfLibrary<int64_t>("fake_cublas_lt_products");
  ASSERT_NE(products, nullptr);
  CudaOptions options = Options(0, kDefaultVoices + 1);
  options.products = cuda::ManyRowsProducts::kLibrary;
  options.prompt_rows = cuda::Sequences::kRowsAtOnce;
  const int64_t before = *products;
  const auto calls = CallsOf([&] {
    auto backend = CudaBackend::Create(model_.checkpoint(), options);
    ASSERT_TRUE(backend.ok()) << backend.status().message();
    const Status status = UseEverything(model_.checkpoint()->config(), backend->get(), nullptr);
    EXPECT_TRUE(status.ok()) << status.message();
  });
  const auto is = [](const char* name) {
    return [name](const std::string& call) { return call.find(name) != std::string::npos; };
  };
  const auto last = std::find_if(calls.rbegin(), calls.rend(), is("UnpackKernel"));
  ASSERT_NE(last, calls.rend());
  const std::vector<std::string> later(last.base(), calls.end());
  EXPECT_GT(Count(later, "FinishKernel"), 0);
  EXPECT_LT(Count(later, "FinishKernel"), *products - before);
  EXPECT_EQ(Count(later, "Bf16Kernel") + Count(later, "WideKernel") + Count(later, "ClusterKernel"), 0);
  EXPECT_EQ(fake_cuda::alive(), 0U);
  EXPECT_THAT(fake_cuda::misuse(), IsEmpty());
}

TEST_F(CudaHostTest, WithoutTheLibraryItsProductsAreRefused) {
  if (!kHasLibrary) GTEST_SKIP() << "there is no cublasLt.h";
  auto* const refuses = VariableOfLibrary<bool>("fake_cublas_lt_refuses");
  ASSERT_NE(refuses, nullptr);
  CudaOptions options = Options();
  options.products = cuda::ManyRowsProducts::kLibrary;
  *refuses = true;
  const auto backend = CudaBackend::Create(model_.checkpoint(), options);
  *refuses = false;
  ASSERT_FALSE(backend.ok());
  EXPECT_THAT(backend.status().message(), HasSubstr("cuBLASLt: opening"));
  options.precision = cuda::Precision::kF32;
  EXPECT_EQ(CudaBackend::Create(model_.checkpoint(), options).status().code(), StatusCode::kUnsupported);
}

// A fast codec has half the weights, and less state for each voice.
TEST_F(CudaHostTest, AFastCodecNeedsLessMemory) {
  golden::RandomCheckpointSpec released_codec = MidSize(false);
  released_codec.codec = Preset("0.6b-custom").codec;
  released_codec.codec_dtype = DType::kF16;
  const RandomModel model(released_codec);
  CudaOptions options = Options(0, 1000);
  const auto exact = cuda::CapacityOf(*model.checkpoint(), options);
  options.codec_precision = cuda::CodecPrecision::kFast;
  const auto fast = cuda::CapacityOf(*model.checkpoint(), options);
  ASSERT_TRUE(exact.ok() && fast.ok());
  EXPECT_LT(fast->model_bytes, exact->model_bytes);
  EXPECT_LT(fast->voice_bytes, exact->voice_bytes);
  // With F32 the codec computes in F32.
  options.precision = cuda::Precision::kF32;
  const auto f32 = cuda::CapacityOf(*model.checkpoint(), options);
  options.codec_precision = cuda::CodecPrecision::kExact;
  const auto same = cuda::CapacityOf(*model.checkpoint(), options);
  ASSERT_TRUE(f32.ok() && same.ok());
  EXPECT_EQ(f32->model_bytes, same->model_bytes);
}

// The kernels' names contain the numbers of planes: <column tiles, planes of x, planes of w, ...>.
TEST_F(CudaHostTest, AFastCodecHasOnePlane) {
  const auto products_of = [&](cuda::CodecPrecision precision) {
    fake_cuda::Reset();
    CudaOptions options = Options();
    options.codec_precision = precision;
    const auto backend = CudaBackend::Create(model_.checkpoint(), options);
    EXPECT_TRUE(backend.ok()) << backend.status().message();
    EXPECT_EQ((*backend)->name().find("fast codec") != std::string::npos, precision == cuda::CodecPrecision::kFast);
    std::set<std::string> planes;
    for (const std::string& call : fake_cuda::calls()) {
      for (const std::string kind : {"NarrowGemmI", "WideGemmI", "ClusterGemmI"}) {
        const size_t at = call.find(kind);
        if (at == std::string::npos) continue;
        // Mangled: Li8ELi2ELi2E.
        const size_t x = call.find("ELi", at) + 3;
        planes.insert(call.substr(x, 1) + call.substr(x + 4, 1));
      }
    }
    return planes;
  };
  EXPECT_EQ(products_of(cuda::CodecPrecision::kExact), (std::set<std::string>{"22"}));
  EXPECT_EQ(products_of(cuda::CodecPrecision::kFast), (std::set<std::string>{"11"}));
}

// --- failures

// If an utterance finds no memory, only that utterance fails; the others go on, and a later one can begin.
TEST_F(CudaHostTest, MemoryRunsOutInMidSpeech) {
  const auto backend = NewBackend();
  const SlotId speaking = Open(backend.get(), NewPrompt(config(), 20, &random_));
  ASSERT_TRUE(Step(backend.get(), {{speaking, kNoText}}).ok());
  fake_cuda::LeaveMemory(0, 0);
  const Prompt large = NewPrompt(config(), 20000, &random_);
  const auto refused = backend->Open(large, GenerationSettings(), 1);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(refused.status().message(), HasSubstr("device=cpu"));
  EXPECT_TRUE(Step(backend.get(), {{speaking, 0}}).ok());
  fake_cuda::LeaveMemory(0, size_t{16} << 30);
  const SlotId later = Open(backend.get(), large);
  EXPECT_TRUE(Step(backend.get(), {{speaking, 0}, {later, kNoText}}).ok());
}

// The pages are those that fit into the device's free memory beside the slots' codec states.
TEST_F(CudaHostTest, PagesAreCountedBeforeTheyAreAllocated) {
  fake_cuda::LeaveMemory(0, size_t{4} << 30);
  const auto backend = NewBackend(kDefaultVoices);
  const ContextPages at_first = backend->pages();
  EXPECT_GT(at_first.positions, 0);
  EXPECT_GT(at_first.free, 100);
  EXPECT_GT(at_first.total, at_first.free - 1);
  const SlotId slot = Open(backend.get(), NewPrompt(config(), 1000, &random_));
  const ContextPages with_one = backend->pages();
  EXPECT_NEAR(static_cast<double>(with_one.total), static_cast<double>(at_first.total), 20);
  EXPECT_GE(with_one.total - with_one.free, 1000 / with_one.positions);
  // Another program allocates the rest.
  fake_cuda::LeaveMemory(0, 0);
  EXPECT_FALSE(backend->Open(NewPrompt(config(), 20000, &random_), GenerationSettings(), 1).ok());
  EXPECT_LT(backend->pages().total, with_one.total / 2);
  // It frees that memory again.
  fake_cuda::LeaveMemory(0, size_t{4} << 30);
  Open(backend.get(), NewPrompt(config(), 20000, &random_));
  EXPECT_GT(backend->pages().total, with_one.total / 2);
  backend->Close(slot);
}

// --- parking

TEST_F(CudaHostTest, ParkedPagesKeepTheirBytes) {
  constexpr size_t kBytes = 1000;
  auto stream = cuda::Stream::Create();
  ASSERT_TRUE(stream.ok());
  cuda::ParkedPages parked(kBytes, 2, 5 * kBytes, stream->get());
  std::vector<cuda::DeviceMemory> memory;
  std::vector<void*> pages;
  for (int i = 0; i < 3; ++i) {
    memory.push_back(*cuda::DeviceMemory::Allocate(kBytes));
    pages.push_back(memory.back().data());
  }
  const auto fill = [&](int first) {
    for (size_t i = 0; i < pages.size(); ++i) std::memset(pages[i], first + static_cast<int>(i), kBytes);
  };
  const auto expect = [&](int first) {
    for (size_t i = 0; i < pages.size(); ++i) {
      const auto* const bytes = memory[i].as<char>();
      EXPECT_EQ(std::count(bytes, bytes + kBytes, static_cast<char>(first + static_cast<int>(i))), kBytes) << i;
    }
  };
  fill(10);
  ASSERT_TRUE(parked.Save(0, pages).ok());
  EXPECT_EQ(parked.PagesOf(0), 3U);
  fill(20);
  EXPECT_EQ(parked.Save(1, pages).code(), StatusCode::kResourceExhausted) << "six pages are more than the limit";
  EXPECT_FALSE(parked.Holds(1));
  fill(30);
  ASSERT_TRUE(parked.Restore(0, pages).ok());
  expect(10);
  EXPECT_FALSE(parked.Holds(0));
  // A failed Save() leaves nothing behind.
  fake_cuda::FailCall(2, cudaErrorInvalidValue, /*for_ever=*/false);
  EXPECT_FALSE(parked.Save(1, pages).ok());
  EXPECT_FALSE(parked.Holds(1));
  const size_t alive = fake_cuda::alive();
  ASSERT_TRUE(parked.Save(1, pages).ok());
  EXPECT_EQ(fake_cuda::alive(), alive) << "the host's memory is used again";
  fill(40);
  ASSERT_TRUE(parked.Restore(1, pages).ok());
  expect(10);
}

TEST_F(CudaHostTest, AParkedSlotFreesItsPagesAndGoesOn) {
  const auto backend = NewBackend(3);
  const SlotId slot = OpenAndPrefill(backend.get(), NewPrompt(config(), 1000, &random_));
  const SlotId beside = OpenAndPrefill(backend.get(), NewPrompt(config(), 20, &random_));
  ASSERT_TRUE(Step(backend.get(), {{slot, kNoText}, {beside, kNoText}}).ok());
  const ContextPages before = backend->pages();
  // With a frame in flight.
  ASSERT_TRUE(backend->Submit(std::vector<FrameStep>{{slot, 0}, {beside, 0}}).ok());
  const std::vector<std::string> calls = CallsOf([&] { ASSERT_TRUE(backend->Park(slot).ok()); });
  EXPECT_EQ(Count(calls, "cudaMemcpyAsync"), 1000 / before.positions + 1);
  EXPECT_GE(backend->pages().free - before.free, 1000 / before.positions + 1);
  const auto results = backend->Collect();
  ASSERT_TRUE(results.ok()) << results.status().message();
  for (const FrameResult& result : *results) {
    EXPECT_EQ(result.end, EndReason::kNone);
    EXPECT_FALSE(result.pcm.empty());
  }
  EXPECT_FALSE(backend->Park(slot).ok());
  EXPECT_FALSE(backend->Reserve(slot).ok());
  ASSERT_TRUE(Step(backend.get(), {{beside, 0}}).ok());
  ASSERT_TRUE(backend->Unpark(slot).ok());
  EXPECT_FALSE(backend->Unpark(slot).ok());
  EXPECT_EQ(backend->pages().free, before.free);
  const auto room = backend->Reserve(slot);
  ASSERT_TRUE(room.ok()) << room.status().message();
  EXPECT_GT(*room, 2);
  for (int frame = 0; frame < 300; ++frame) ASSERT_TRUE(Step(backend.get(), {{slot, 0}, {beside, 0}}).ok()) << frame;
  // The second parking reuses most of the host memory.
  EXPECT_LT(Count(CallsOf([&] { ASSERT_TRUE(backend->Park(slot).ok()); }), "cudaHostRegister"), 5);
  backend->Close(slot);
  EXPECT_GE(backend->pages().free, before.free);
}

// Returns the number of threads of this process.
size_t Threads() {
  const std::filesystem::directory_iterator threads("/proc/self/task");
  return static_cast<size_t>(std::distance(threads, std::filesystem::directory_iterator()));
}

TEST_F(CudaHostTest, HostMemoryIsMadeReadyOncePagesAreShort) {
  const auto backend = NewBackend(3);
  const size_t before = Threads();
  const SlotId slot = OpenAndPrefill(backend.get(), NewPrompt(config(), 1000, &random_));
  ASSERT_TRUE(Step(backend.get(), {{slot, kNoText}}).ok());
  EXPECT_EQ(Threads(), before);
  (void)LeaveNoMemory(backend.get());
  EXPECT_EQ(Threads(), before + 1);
  EXPECT_TRUE(backend->Park(slot).ok());
  EXPECT_TRUE(backend->Unpark(slot).ok());
  EXPECT_TRUE(Step(backend.get(), {{slot, 0}}).ok());
  EXPECT_EQ(Threads(), before + 1);
}

TEST_F(CudaHostTest, WhatCannotBeParkedOrBroughtBackStaysWhereItIs) {
  CudaOptions options = Options(-1, 3);
  options.parking_bytes = 0;
  auto without_host_memory = CudaBackend::Create(model_.checkpoint(), options);
  ASSERT_TRUE(without_host_memory.ok());
  const Prompt large = NewPrompt(config(), 1000, &random_);
  SlotId slot = OpenAndPrefill(without_host_memory->get(), large);
  EXPECT_EQ((*without_host_memory)->Park(slot).code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(Step(without_host_memory->get(), {{slot, kNoText}}).ok());
  without_host_memory->reset();

  const auto backend = NewBackend(3);
  slot = OpenAndPrefill(backend.get(), large);
  ASSERT_TRUE(Step(backend.get(), {{slot, kNoText}}).ok());
  ASSERT_TRUE(backend->Park(slot).ok());
  const ContextPages pages = LeaveNoMemory(backend.get());
  const auto rows = static_cast<int>((pages.total - 2) * pages.positions);
  const SlotId other = OpenAndPrefill(backend.get(), NewPrompt(config(), rows, &random_));
  EXPECT_EQ(backend->Unpark(slot).code(), StatusCode::kResourceExhausted);
  backend->Close(other);
  ASSERT_TRUE(backend->Unpark(slot).ok());
  EXPECT_TRUE(Step(backend.get(), {{slot, 0}}).ok());
}

// Pages kept for voices are given to speaking utterances.
TEST_F(CudaHostTest, PagesOfKeptVoicesAreFree) {
  const auto backend = NewBackend();
  const int64_t total = LeaveNoMemory(backend.get()).total;
  const int64_t page = backend->pages().positions;
  for (int i = 0; i < 4; ++i) {
    Prompt prompt = NewPrompt(config(), 1000, &random_);
    prompt.constant_rows = 999;
    backend->Close(OpenAndPrefill(backend.get(), prompt));
    EXPECT_EQ(backend->pages().free, total);
  }
  const SlotId slot =
      OpenAndPrefill(backend.get(), NewPrompt(config(), static_cast<int>((total - 1) * page), &random_));
  EXPECT_LE(backend->pages().free, 1);
  EXPECT_TRUE(Step(backend.get(), {{slot, kNoText}}).ok());
}

// Three utterances whose contexts exceed the device's memory.
TEST_F(CudaHostTest, NobodyWhoSpeaksFailsForWantOfPages) {
  const auto tokenizer = Tokenizer::Load(model_.checkpoint()->folder());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  auto builder = PromptBuilder::Create(config(), *tokenizer);
  ASSERT_TRUE(builder.ok()) << builder.status().message();
  const auto prompts = std::make_shared<const PromptBuilder>(*std::move(builder));
  auto backend = NewBackend(3);
  const ContextPages pages = LeaveNoMemory(backend.get());
  const auto frames = static_cast<int>(pages.total * pages.positions * 2 / 5);
  const auto scheduler = Scheduler::Create(std::move(backend));
  ASSERT_TRUE(scheduler.ok()) << scheduler.status().message();
  std::vector<std::shared_ptr<StreamState>> streams;
  for (int i = 0; i < 3; ++i) {
    Request request;
    request.text = "Hello.";
    streams.push_back(std::make_shared<StreamState>(prompts, *tokenizer, request, 25, std::function<void()>()));
    ASSERT_TRUE(streams.back()->Begin().ok());
    (*scheduler)->Add(streams.back());
  }
  Frame frame;
  for (const auto& stream : streams) {
    for (int i = 0; i < frames; ++i) {
      ASSERT_EQ(stream->Read(&frame, true), ReadState::kFrame) << i << ": " << stream->status().message();
    }
  }
  EXPECT_GE((*scheduler)->occupancy().parked, 1);
  EXPECT_EQ((*scheduler)->occupancy().pages, pages.total);
  EXPECT_GT((*scheduler)->occupancy().device_bytes, 0U);
  for (const auto& stream : streams) {
    ASSERT_EQ(stream->Read(&frame, true), ReadState::kFrame) << stream->status().message();
    EXPECT_EQ(frame.index, frames);
  }
}

// If one half of a buffer finds no memory, the next attempt allocates both again.
TEST_F(CudaHostTest, AnUploadThatFoundNoMemoryFindsItTheNextTime) {
  constexpr size_t kBytes = 100000;
  for (size_t call = 1; call <= 3; ++call) {
    SCOPED_TRACE(call);
    fake_cuda::Reset();
    auto ring = cuda::UploadRing::Create();
    auto stream = cuda::Stream::Create();
    ASSERT_TRUE(ring.ok() && stream.ok());
    fake_cuda::FailCall(call, cudaErrorMemoryAllocation, /*for_ever=*/false);
    EXPECT_EQ(ring->Prepare(kBytes).status().code(), StatusCode::kResourceExhausted);
    const auto host = ring->Prepare(kBytes);
    ASSERT_TRUE(host.ok()) << host.status().message();
    std::fill_n(*host, kBytes, 'x');
    const auto sent = ring->Send(stream->get());
    ASSERT_TRUE(sent.ok()) << sent.status().message();
    EXPECT_TRUE(std::equal(*host, *host + kBytes, *sent));
    EXPECT_THAT(fake_cuda::misuse(), IsEmpty());
  }
}

// Errors other than a lost device and a lack of memory say what failed and what to do.
TEST_F(CudaHostTest, AnyOtherErrorSaysWhatToDo) {
  fake_cuda::FailCall(1, cudaErrorInvalidValue, /*for_ever=*/true);
  EXPECT_THAT(Refusal(), HasSubstr("device=cpu"));
  fake_cuda::Reset();
  const auto backend = NewBackend();
  fake_cuda::FailCall(1, cudaErrorInvalidValue, /*for_ever=*/false);
  const Status status = backend->Open(NewPrompt(config(), 20, &random_), GenerationSettings(), 1).status();
  EXPECT_THAT(status.message(), AllOf(HasSubstr("making speech failed"), HasSubstr("device=cpu")));
}

enum class Model { kGraphPath, kPersistentKernel, kClonesVoices, kManyVoices };

int SlotsOf(Model model) { return model == Model::kManyVoices ? 80 : kSlots; }

golden::RandomCheckpointSpec SpecOf(Model model) {
  switch (model) {
    case Model::kManyVoices:
    case Model::kGraphPath:
      return MidSize(false);
    case Model::kPersistentKernel:
      return FullWidth(false);
    case Model::kClonesVoices:
      break;
  }
  return Preset("tiny-base-0b6");
}

class CudaFaultTest : public ::testing::TestWithParam<Model> {
 protected:
  CudaFaultTest() {
    fake_cuda::Reset();
    const Life life = Live(model_.checkpoint(), SlotsOf(GetParam()));
    EXPECT_TRUE(life.status.ok()) << life.status.message();
    EXPECT_EQ(Count(fake_cuda::calls(), "FrameKernel") > 0, GetParam() == Model::kPersistentKernel);
    // Failing every call would take too long, so this picks some of each name at random.
    std::map<std::string, std::vector<size_t>> by_name;
    for (size_t i = 0; i < life.calls; ++i) by_name[fake_cuda::calls()[i]].push_back(i + 1);
    std::vector<size_t> some;
    for (const auto& [name, numbers] : by_name) std::ranges::sample(numbers, std::back_inserter(some), 3, random_);
    std::ranges::sample(some, std::back_inserter(calls_), 40, random_);
  }

  std::mt19937 random_{std::random_device()()};
  RandomModel model_{SpecOf(GetParam())};
  std::vector<size_t> calls_;  // numbers of the calls to fail, from 1
};

TEST_P(CudaFaultTest, ALostDeviceIsOneErrorAndEverythingIsFreed) {
  for (const size_t n : calls_) {
    fake_cuda::Reset();
    fake_cuda::FailCall(n, cudaErrorIllegalAddress, /*for_ever=*/true);
    const Status status = Live(model_.checkpoint(), SlotsOf(GetParam())).status;
    SCOPED_TRACE("call " + std::to_string(n) + ", " + fake_cuda::calls()[n - 1]);
    ASSERT_TRUE(fake_cuda::failed());
    EXPECT_EQ(status.code(), StatusCode::kDeviceUnavailable) << status.message();
    EXPECT_THAT(status.message(), HasSubstr("the GPU is lost"));
    ExpectCleanEnd();
  }
}

TEST_P(CudaFaultTest, WhatIsOutOfMemoryOnceWorksTheNextTime) {
  for (const size_t n : calls_) {
    fake_cuda::Reset();
    fake_cuda::FailCall(n, cudaErrorMemoryAllocation, /*for_ever=*/false);
    const Status status = Live(model_.checkpoint(), SlotsOf(GetParam())).status;
    SCOPED_TRACE("call " + std::to_string(n) + ", " + fake_cuda::calls()[n - 1]);
    ASSERT_TRUE(fake_cuda::failed());
    EXPECT_TRUE(status.ok() || status.code() == StatusCode::kResourceExhausted) << status.message();
    const Status next = Live(model_.checkpoint(), SlotsOf(GetParam())).status;
    EXPECT_TRUE(next.ok()) << next.message();
    ExpectCleanEnd();
  }
}

// Work that never ends is an error after a bounded wait, and nothing that would block is called afterwards.
TEST_P(CudaFaultTest, AHungDeviceIsLost) {
  constexpr size_t kCalls = 10;
  if (calls_.size() > kCalls) calls_.resize(kCalls);
  for (const size_t n : calls_) {
    fake_cuda::Reset();
    fake_cuda::HangAtCall(n);
    const Status status = Live(model_.checkpoint(), SlotsOf(GetParam())).status;
    SCOPED_TRACE("call " + std::to_string(n) + ", " + fake_cuda::calls()[n - 1]);
    EXPECT_EQ(status.code(), StatusCode::kDeviceUnavailable) << status.message();
    EXPECT_THAT(status.message(), AllOf(HasSubstr("has not finished its work within 0.3 s"), HasSubstr("restart")));
    EXPECT_THAT(fake_cuda::misuse(), IsEmpty());
    // No other engine gets this device.
    EXPECT_THAT(CudaBackend::Create(model_.checkpoint(), Options()).status().message(), HasSubstr("the GPU is lost"));
    EXPECT_THAT(fake_cuda::misuse(), IsEmpty());
  }
  fake_cuda::Reset();
}

std::string NameOf(const ::testing::TestParamInfo<Model>& model) {
  constexpr std::array kNames = {"GraphPath", "PersistentKernel", "ClonesVoices", "ManyVoices"};
  return kNames.at(static_cast<size_t>(model.param));
}

INSTANTIATE_TEST_SUITE_P(Models, CudaFaultTest,
                         ::testing::Values(Model::kGraphPath, Model::kPersistentKernel, Model::kClonesVoices,
                                           Model::kManyVoices),
                         NameOf);

}  // namespace
}  // namespace qtts
