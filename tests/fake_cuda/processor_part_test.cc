// SPDX-License-Identifier: LGPL-2.1-or-later
#include "runtime/processor_part.h"

#include <cuda_runtime_api.h>
#include <gmock/gmock.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "fake_cuda/cuda_host_fixture.h"
#include "fake_cuda/fake_cuda.h"
#include "runtime/device_numbers.h"

// Parts of a device's SMs, and the codec's among them.
namespace qtts::cuda_host {
namespace {

using cuda::CodecNumbers;
using cuda::ProcessorPart;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class ProcessorPartTest : public CudaHostTest {
 protected:
  ~ProcessorPartTest() override { unsetenv("QTTS_CUDA_PRETEND"); }

  // SMs of a part of `eighths` eighths of this device; 0: the whole.
  static int ProcessorsOf(int eighths, const fake_cuda::Device& device) {
    fake_cuda::Reset({device});
    const auto part = ProcessorPart::Create(eighths, false);
    EXPECT_TRUE(part.ok()) << part.status().message();
    EXPECT_NE(part->stream(), nullptr);
    return part->processors();
  }
};

TEST_F(ProcessorPartTest, ItIsRoundedDownToWhatTheDeviceSetsApart) {
  EXPECT_EQ(ProcessorsOf(4, {.processors = 132}), 64);
  EXPECT_EQ(ProcessorsOf(5, {.processors = 132}), 80);
  EXPECT_EQ(ProcessorsOf(6, {.processors = 132}), 96);
  EXPECT_EQ(ProcessorsOf(6, {.processors = 128}), 96);
  EXPECT_EQ(ProcessorsOf(6, {.major = 8, .minor = 6, .processors = 28, .part_step = 2}), 20);
  EXPECT_EQ(ProcessorsOf(8, {.processors = 132}), 0);
  EXPECT_THAT(fake_cuda::parts(), IsEmpty());
  EXPECT_EQ(fake_cuda::alive(), 0U);
}

TEST_F(ProcessorPartTest, WithoutPartsItIsTheWholeDevice) {
  EXPECT_EQ(ProcessorsOf(4, {.has_parts = false}), 0) << "an old driver";
  EXPECT_EQ(ProcessorsOf(4, {.processors = 6}), 0) << "fewer SMs than the device sets apart";
  EXPECT_EQ(fake_cuda::alive(), 0U);
}

TEST_F(ProcessorPartTest, OfAPretendedCardItHasTheSameShare) {
  setenv("QTTS_CUDA_PRETEND", "a100", 1);
  EXPECT_EQ(ProcessorsOf(6, {.processors = 132, .code = 80}), 78) << "of 108: 96 of 132";
  EXPECT_THAT(fake_cuda::parts(), ElementsAre(96));
}

// Any call of the driver may fail: the whole device takes the part's place, and nothing is left of it.
TEST_F(ProcessorPartTest, ARefusalCostsOnlyTime) {
  int refused = 0;
  for (size_t n = 1;; ++n) {
    fake_cuda::Reset();
    fake_cuda::FailCall(n, cudaErrorNotSupported, /*for_ever=*/false);
    {
      const auto part = ProcessorPart::Create(4, false);
      if (!fake_cuda::failed()) {
        EXPECT_EQ(part->processors(), 64);
        EXPECT_GE(refused, 12) << "six functions are found, and each is called";
        break;
      }
      const std::string& call = fake_cuda::calls()[n - 1];
      SCOPED_TRACE(call);
      const bool of_driver = !call.starts_with("cuda") || call == "cudaGetDriverEntryPointByVersion";
      refused += of_driver ? 1 : 0;
      if (of_driver) {
        ASSERT_TRUE(part.ok()) << part.status().message();
        EXPECT_EQ(part->processors(), 0);
        EXPECT_EQ(fake_cuda::alive(), 1U) << "a stream";
      } else {
        // Neither the device's bandwidth nor a priority is needed; without a description there is no engine.
        EXPECT_TRUE(!part.ok() || call == "cudaGetDevice" || call == "cudaDeviceGetAttribute" ||
                    call == "cudaDeviceGetStreamPriorityRange");
      }
    }
    EXPECT_EQ(fake_cuda::alive(), 0U);
    EXPECT_THAT(fake_cuda::misuse(), IsEmpty());
  }
}

TEST_F(ProcessorPartTest, OneMovesWithItsStream) {
  fake_cuda::Reset();
  auto first = ProcessorPart::Create(4, false);
  ASSERT_TRUE(first.ok());
  const cudaStream_t stream = first->stream();
  ProcessorPart second(std::move(*first));
  EXPECT_EQ(second.stream(), stream);
  EXPECT_EQ(second.processors(), 64);
  auto third = ProcessorPart::Create(6, false);
  ASSERT_TRUE(third.ok());
  second = std::move(*third);
  EXPECT_EQ(second.processors(), 96);
  EXPECT_EQ(fake_cuda::alive(), 2U) << "a stream and a context";
}

TEST_F(ProcessorPartTest, SharesFollowTheStreamsOfAFrame) {
  const auto eighths = [](const CodecNumbers& numbers, int streams) { return numbers.ShareOf(streams).eighths; };
  const auto urgent = [](const CodecNumbers& numbers, int streams) { return numbers.ShareOf(streams).urgent; };
  const CodecNumbers& h200 = cuda::kH200Numbers.codec;
  EXPECT_EQ(eighths(h200, 1), 8);
  EXPECT_EQ(eighths(h200, 8), 8);
  EXPECT_EQ(eighths(h200, 9), 4);
  EXPECT_EQ(eighths(h200, 96), 4);
  EXPECT_EQ(eighths(h200, 128), 5);
  EXPECT_FALSE(urgent(h200, 128));
  EXPECT_EQ(eighths(h200, 192), 5);
  EXPECT_TRUE(urgent(h200, 192));
  EXPECT_EQ(eighths(h200, 256), 6);
  EXPECT_EQ(eighths(h200, 2048), 8);
  EXPECT_TRUE(urgent(h200, 2048));
  const CodecNumbers a100 = cuda::NumbersOf("NVIDIA A100", 108).codec;
  EXPECT_EQ(eighths(a100, 8), 8);
  EXPECT_EQ(eighths(a100, 9), 6);
  EXPECT_EQ(eighths(a100, 130), 6);
  EXPECT_EQ(eighths(a100, 131), 8);
  EXPECT_EQ(eighths(a100, 2048), 8);
  const CodecNumbers orin = cuda::NumbersOf("Orin", 4).codec;
  EXPECT_EQ(eighths(orin, 8), 8);
  EXPECT_EQ(eighths(orin, 9), 8) << "few SMs have no room for codes beside the codec";
}

TEST_F(ProcessorPartTest, AnEngineMakesThoseThatItsFramesNeed) {
  for (const auto& [voices, parts] : {std::pair(8, std::vector<int>{}), std::pair(64, std::vector<int>{64}),
                                      std::pair(300, std::vector<int>{64, 80, 80, 96})}) {
    fake_cuda::Reset({{.name = "NVIDIA H200"}});
    const auto backend = NewBackend(voices);
    ASSERT_NE(backend, nullptr);
    EXPECT_THAT(fake_cuda::parts(), ::testing::ElementsAreArray(parts)) << voices;
  }
}

// First frames, for which somebody waits, and a device that has nothing else to do have the codec on all SMs.
TEST_F(ProcessorPartTest, OnlyStepsThatFollowOneAnotherAreConfined) {
  const auto backend = NewBackend(64);
  ASSERT_NE(backend, nullptr);
  constexpr size_t kMany = 20;
  std::vector<FrameStep> steps;
  for (size_t i = 0; i < kMany; ++i) {
    steps.push_back({OpenAndPrefill(backend.get(), NewPrompt(config(), 20, &random_)), kNoText});
  }
  const auto launched = [&](size_t rows) {
    const size_t before = fake_cuda::launched_in_parts();
    EXPECT_TRUE(backend->Submit({steps.data(), rows}).ok());
    for (size_t i = 0; i < rows; ++i) steps[i].text_id = 0;
    return fake_cuda::launched_in_parts() - before;
  };
  const auto collect = [&] { EXPECT_TRUE(backend->Collect().ok()); };
  EXPECT_EQ(launched(kMany - 1), 0U) << "first frames";
  EXPECT_EQ(launched(kMany - 1), 1U) << "behind them";
  collect();
  EXPECT_EQ(launched(8), 0U) << "the persistent kernel's";
  collect();
  collect();
  EXPECT_EQ(launched(kMany - 1), 0U) << "an idle device";
  EXPECT_EQ(launched(kMany - 1), 1U);
  collect();
  // A first frame among others has a launch of its own up to kMaxRows rows.
  EXPECT_EQ(launched(kMany), 1U);
  collect();
  EXPECT_EQ(launched(kMany), 1U);
  collect();
  collect();
  for (const FrameStep& step : steps) backend->Close(step.slot);
}

TEST_F(ProcessorPartTest, KernelsThatAPartHasNoRoomForHaveTheWholeDevice) {
  fake_cuda::Reset({{.parts_take_kernels = false}});
  const auto backend = NewBackend(64);
  ASSERT_NE(backend, nullptr);
  EXPECT_THAT(fake_cuda::parts(), ElementsAre(96));
  EXPECT_TRUE(SpeakTogether(backend.get(), NewPrompt(config(), 20, &random_)).ok());
}

TEST_F(ProcessorPartTest, BenchmarksMayDoWithout) {
  fake_cuda::Reset();
  cuda::CudaOptions options = Options(-1, 64);
  options.codec_in_part = false;
  const auto backend = cuda::CudaBackend::Create(model_.checkpoint(), options);
  ASSERT_TRUE(backend.ok()) << backend.status().message();
  EXPECT_THAT(fake_cuda::parts(), IsEmpty());
}

}  // namespace
}  // namespace qtts::cuda_host
