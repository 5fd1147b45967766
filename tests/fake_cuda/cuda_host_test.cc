// SPDX-License-Identifier: LGPL-2.1-or-later
// The device that is taken, and the CUDA calls of frames and voices.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "cuda_host_fixture.h"
#include "runtime/device.h"

namespace qtts::cuda_host {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

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

}  // namespace
}  // namespace qtts::cuda_host
