// SPDX-License-Identifier: LGPL-2.1-or-later
#include "runtime/device.h"

#include <cuda_runtime_api.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "backend/device_module.h"
#include "codec/codec.h"
#include "cuda_backend.h"
#include "device_choice.h"
#include "fake_cuda/fake_cuda.h"
#include "gpu/gpu_test.h"
#include "paths/persistent/persistent_frame.h"
#include "runtime/device_memory.h"
#include "runtime/device_wait.h"
#include "runtime/launch.h"
#include "runtime/pretended_card.h"

// The description of a device, a device that pretends to be another card, and waits for a device that hangs.
namespace qtts {
namespace {

using cuda::CudaBackend;
using cuda::CudaOptions;
using cuda::DeviceDescription;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

__attribute__((noinline)) void SomeKernel() {}

class DeviceTest : public ::testing::Test {
 protected:
  DeviceTest() { fake_cuda::Reset(); }
  ~DeviceTest() override {
    EXPECT_THAT(fake_cuda::misuse(), IsEmpty());
    unsetenv("QTTS_CUDA_PRETEND");
    fake_cuda::Reset();
  }
  // A Hopper with code for 8.0.
  static void Pretend(const char* card, int code = 80) {
    setenv("QTTS_CUDA_PRETEND", card, 1);
    fake_cuda::Reset({{.name = "NVIDIA H100", .memory = size_t{80} << 30, .code = code}});
  }
  static DeviceDescription Describe() {
    const DeviceDescription* device = nullptr;
    EXPECT_EQ(cuda::DescribeDevice(&device), cudaSuccess);
    return device == nullptr ? DeviceDescription() : *device;
  }
};

TEST_F(DeviceTest, ADescriptionIsFilledOnce) {
  fake_cuda::Reset({{.name = "First", .processors = 100}, {.name = "Second", .major = 8, .minor = 6}});
  const DeviceDescription first = Describe();
  EXPECT_EQ(first.name, "First");
  EXPECT_EQ(first.FullName(), "First");
  EXPECT_EQ(first.processors, 100);
  EXPECT_EQ(first.code, 90);
  EXPECT_TRUE(first.CanRunClusters() && first.CanRunWarpgroups() && first.CanOverlap() && first.cooperative);
  const size_t calls = fake_cuda::calls().size();
  EXPECT_EQ(Describe().name, "First");
  EXPECT_EQ(fake_cuda::calls().size(), calls + 1) << "cudaGetDevice";
  EXPECT_EQ(cudaSetDevice(1), cudaSuccess);
  const DeviceDescription second = Describe();
  EXPECT_EQ(second.capability_text(), "8.6");
  EXPECT_FALSE(second.CanRunClusters() || second.CanRunWarpgroups() || second.CanOverlap());
}

// Code that the driver compiled for a Hopper lacks the kernels for Hoppers, and its kernels do not wait for those
// before.
TEST_F(DeviceTest, CodeForAnEarlierCardHasNoKernelsOfALaterOne) {
  fake_cuda::Reset({{.code = 80}});
  const DeviceDescription device = Describe();
  EXPECT_EQ(device.capability(), 90);
  EXPECT_FALSE(device.CanRunClusters() || device.CanRunWarpgroups() || device.CanOverlap());
}

TEST_F(DeviceTest, EachPretendedCardAnswersAndRefusesAsItself) {
  struct Expected {
    const char* card;
    const char* name;
    int capability, processors;
    size_t shared;
    bool clusters;
  };
  for (const Expected& expected :
       {Expected{"a100", "NVIDIA A100", 80, 108, 166912, false}, Expected{"a10g", "NVIDIA A10G", 86, 80, 101376, false},
        Expected{"rtx3060", "NVIDIA GeForce RTX 3060", 86, 28, 101376, false},
        Expected{"rtx3050", "NVIDIA GeForce RTX 3050", 86, 18, 101376, false},
        Expected{"rtx4060", "NVIDIA GeForce RTX 4060", 89, 24, 101376, false},
        Expected{"rtx4090", "NVIDIA GeForce RTX 4090", 89, 128, 101376, false},
        Expected{"rtx5090", "NVIDIA GeForce RTX 5090", 120, 170, 101376, true},
        Expected{"l4", "NVIDIA L4", 89, 58, 101376, false}, Expected{"orin", "Orin", 87, 16, 166912, false}}) {
    SCOPED_TRACE(expected.card);
    Pretend(expected.card);
    const DeviceDescription device = Describe();
    EXPECT_THAT(device.name, StartsWith(expected.name));
    EXPECT_THAT(device.FullName(), HasSubstr(", pretended on NVIDIA H100"));
    EXPECT_EQ(device.capability(), expected.capability);
    EXPECT_EQ(device.processors, expected.processors);
    EXPECT_EQ(device.shared_per_block, expected.shared);
    EXPECT_EQ(device.clusters, expected.clusters);
    EXPECT_FALSE(device.CanRunWarpgroups());
    EXPECT_EQ(cuda::AllowSharedMemory(SomeKernel, expected.shared), cudaSuccess);
    EXPECT_EQ(cuda::AllowSharedMemory(SomeKernel, expected.shared + 1), cudaErrorInvalidValue);
    EXPECT_EQ(cuda::CheckPretendedLaunch(false, 8), expected.clusters ? cudaSuccess : cudaErrorNotSupported);
    EXPECT_EQ(cuda::CheckPretendedLaunch(true, 1), expected.capability >= 90 ? cudaSuccess : cudaErrorNotSupported);
    size_t free = 0, total = 0;
    EXPECT_EQ(cuda::MeasureMemory(&free, &total), cudaSuccess);
    EXPECT_LT(total, size_t{80} << 30);
    EXPECT_EQ(free, total);
    EXPECT_EQ(cuda::DeviceMemory::Allocate(total + 1).status().code(), StatusCode::kResourceExhausted);
  }
}

// A Jetson's CUDA counts the page cache as used.
TEST_F(DeviceTest, AnIntegratedDeviceHasTheMemoryThatTheHostCanFree) {
  for (const bool integrated : {false, true}) {
    fake_cuda::Reset({{.memory = size_t{1} << 20, .integrated = integrated}});
    fake_cuda::LeaveMemory(0, 1000);
    size_t free = 0, total = 0;
    EXPECT_EQ(cuda::MeasureMemory(&free, &total), cudaSuccess);
    EXPECT_EQ(total, size_t{1} << 20);
    EXPECT_EQ(free, integrated ? total : 1000) << "any host that runs this has a MiB";
    EXPECT_EQ(Describe().integrated, integrated);
  }
}

TEST_F(DeviceTest, NothingIsRefusedWithoutPretending) {
  EXPECT_EQ(cuda::CheckPretendedLaunch(true, 8), cudaSuccess);
  EXPECT_EQ(cuda::CheckPretendedMemory(size_t{1} << 60), cudaSuccess);
  EXPECT_FALSE(cuda::Pretends());
}

TEST_F(DeviceTest, PretendedCardsSpeakWithTheKernelsTheyHave) {
  const testing::RandomModel model(testing::FullWidth(false));
  for (const char* const card : {"a100", "rtx3060", "rtx4090", "rtx5090"}) {
    SCOPED_TRACE(card);
    Pretend(card);
    CudaOptions options;
    options.max_slots = 64;  // more have cuBLASLt's products
    {
      const auto backend = CudaBackend::Create(model.checkpoint(), options);
      ASSERT_TRUE(backend.ok()) << backend.status().message();
      EXPECT_THAT((*backend)->name(), HasSubstr(", pretended on NVIDIA H100, bf16)"));
    }
    bool has_frame_kernel = false;
    for (const std::string& call : fake_cuda::calls()) {
      for (const char* const hopper : {"TileKernel", "ClusterKernel"}) {
        EXPECT_EQ(call.find(hopper), std::string::npos) << call;
      }
      has_frame_kernel |= call.find("FrameKernel") != std::string::npos;
    }
    EXPECT_TRUE(has_frame_kernel);
    EXPECT_EQ(fake_cuda::alive(), 0U);
  }
}

TEST_F(DeviceTest, CodeThatThePretendedCardCannotRunIsRefused) {
  const testing::RandomModel model(testing::MidSize(false));
  Pretend("a10g", 90);
  const Status status = CudaBackend::Create(model.checkpoint(), {}).status();
  EXPECT_EQ(status.code(), StatusCode::kDeviceUnavailable);
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("NVIDIA A10G, pretended on NVIDIA H100 needs"), HasSubstr("-Dcuda-arch=86")));
}

TEST_F(DeviceTest, ACardThatNobodyKnowsCannotBePretended) {
  const testing::RandomModel model(testing::MidSize(false));
  Pretend("t4");
  const Status status = CudaBackend::Create(model.checkpoint(), {}).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("QTTS_CUDA_PRETEND is \"t4\""), HasSubstr("a100, a10g"), HasSubstr(" or orin")));
}

// The figures of qtts-tool inspect.
TEST_F(DeviceTest, ThePathAndTheBytesOfAFrameAreKnownBeforeTheModelIsLoaded) {
  for (const bool large : {false, true}) {
    const testing::RandomModel model(testing::FullWidth(large));
    const Checkpoint& checkpoint = *model.checkpoint();
    const auto capacity = cuda::CapacityOf(checkpoint, {});
    ASSERT_TRUE(capacity.ok()) << capacity.status().message();
    EXPECT_EQ(capacity->path, "persistent");
    const auto backend = CudaBackend::Create(model.checkpoint(), {});
    ASSERT_TRUE(backend.ok()) << backend.status().message();
    const auto codec = cuda::Codec::Create(checkpoint.config().codec, checkpoint.codec(), cuda::CodecPrecision::kExact,
                                           /*max_slots=*/1, /*max_batch=*/1);
    ASSERT_TRUE(codec.ok()) << codec.status().message();
    EXPECT_EQ(capacity->frame_bytes, (*backend)->facts().frame_bytes + (*codec)->frame_bytes());
    // Nearly all parameters of the codec are read, as two F16 each.
    const auto read = static_cast<double>((*codec)->frame_bytes());
    EXPECT_NEAR(read, 4.0 * static_cast<double>(checkpoint.Info().codec_parameters), 0.3 * read);
  }
  const testing::RandomModel model(testing::FullWidth(false));
  fake_cuda::Reset({{.major = 8, .minor = 9, .processors = 24, .shared_per_block = 99 << 10, .code = 86}});
  EXPECT_EQ(cuda::CapacityOf(*model.checkpoint(), {})->path, "persistent");
  fake_cuda::Reset({{.major = 8, .minor = 9, .processors = 15}});
  EXPECT_EQ(cuda::CapacityOf(*model.checkpoint(), {})->path,
            "graph (the persistent kernel: the GPU has 15 SMs, and it needs 16)");
  DeviceDescription small = Describe();
  small.processors = 16;
  small.shared_per_block = size_t{48} << 10;
  EXPECT_EQ(cuda::PersistentFrame::CheckSupport(model.checkpoint()->config(), cuda::Precision::kBF16,
                                                cuda::WeightForm::kPlain, small)
                .message(),
            "the persistent kernel: the GPU's SMs have too little shared memory");
  CudaOptions options;
  options.path = cuda::FramePath::kGraph;
  EXPECT_EQ(cuda::CapacityOf(*model.checkpoint(), options)->path, "graph (QTTS_CUDA_PATH)");
}

TEST_F(DeviceTest, AWaitForAHungDeviceEndsAndNothingIsFreedThere) {
  fake_cuda::Reset({{}, {}});
  auto memory = cuda::DeviceMemory::Allocate(100);
  auto stream = cuda::Stream::Create();
  auto event = cuda::Event::Create();
  ASSERT_TRUE(memory.ok() && stream.ok() && event.ok());
  EXPECT_EQ(cuda::AwaitStream(stream->get()), cudaSuccess);
  EXPECT_FALSE(cuda::HangsHere());
  fake_cuda::HangDevice(0);
  EXPECT_EQ(cuda::AwaitEvent(event->get()), cudaErrorLaunchTimeout);
  EXPECT_TRUE(cuda::HangsHere());
  const size_t calls = fake_cuda::calls().size();
  EXPECT_EQ(cuda::AwaitStream(stream->get()), cudaErrorLaunchTimeout);
  EXPECT_EQ(fake_cuda::calls().size(), calls + 1) << "cudaGetDevice: later waits end at once";
  EXPECT_EQ(cuda::UseDevice(0), cudaErrorLaunchTimeout);
  // The other device goes on.
  EXPECT_EQ(cuda::UseDevice(1), cudaSuccess);
  EXPECT_FALSE(cuda::HangsHere());
  { EXPECT_TRUE(cuda::DeviceMemory::AllocateZeroed(100).ok()); }
  const size_t alive = fake_cuda::alive();
  (void)cudaSetDevice(0);
  *memory = cuda::DeviceMemory();
  EXPECT_EQ(fake_cuda::alive(), alive);
}

}  // namespace
}  // namespace qtts
