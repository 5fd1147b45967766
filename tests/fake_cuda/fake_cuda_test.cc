// SPDX-License-Identifier: LGPL-2.1-or-later
#include "fake_cuda/fake_cuda.h"

#include <cuda_runtime_api.h>
#include <gmock/gmock.h>

#include <array>
#include <thread>

// The stand-in for the CUDA runtime detects misuse.
namespace qtts {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class FakeCudaTest : public ::testing::Test {
 protected:
  FakeCudaTest() { fake_cuda::Reset({{}, {}}); }
  ~FakeCudaTest() override { fake_cuda::Reset(); }

  void* Allocate(size_t bytes) {
    void* data = nullptr;
    EXPECT_EQ(cudaMalloc(&data, bytes), cudaSuccess);
    return data;
  }
  cudaStream_t NewStream() {
    cudaStream_t stream = nullptr;
    EXPECT_EQ(cudaStreamCreateWithPriority(&stream, 0, 0), cudaSuccess);
    return stream;
  }
};

TEST_F(FakeCudaTest, RightUseIsNoMisuse) {
  void* const data = Allocate(100);
  std::array<char, 100> bytes = {};
  EXPECT_EQ(cudaMemcpy(data, bytes.data(), bytes.size(), cudaMemcpyHostToDevice), cudaSuccess);
  EXPECT_EQ(fake_cuda::alive(), 1u);
  EXPECT_EQ(cudaFree(data), cudaSuccess);
  EXPECT_EQ(fake_cuda::alive(), 0u);
  EXPECT_THAT(fake_cuda::misuse(), IsEmpty());
  EXPECT_THAT(fake_cuda::calls(), ElementsAre("cudaMalloc", "cudaMemcpy"));
}

TEST_F(FakeCudaTest, MemoryUsedBeyondItsEnd) {
  char* const data = static_cast<char*>(Allocate(4096));
  std::array<char, 100> bytes = {};
  EXPECT_EQ(cudaMemcpy(bytes.data(), data + 3996, 100, cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT_THAT(fake_cuda::misuse(), IsEmpty());
  EXPECT_EQ(cudaMemset(data + 4000, 0, 97), cudaSuccess);
  EXPECT_THAT(fake_cuda::misuse(), ElementsAre(HasSubstr("cudaMemset beyond the end")));
  (void)cudaFree(data);
}

TEST_F(FakeCudaTest, MemoryFreedTwice) {
  void* const data = Allocate(1);
  (void)cudaFree(data);
  EXPECT_NE(cudaFree(data), cudaSuccess);
  EXPECT_THAT(fake_cuda::misuse(), ElementsAre(HasSubstr("cudaFree of memory that is not there")));
}

TEST_F(FakeCudaTest, MemoryHasAnEnd) {
  fake_cuda::LeaveMemory(0, 100);
  void* const data = Allocate(60);
  void* more = nullptr;
  EXPECT_EQ(cudaMalloc(&more, 60), cudaErrorMemoryAllocation);
  (void)cudaFree(data);
  EXPECT_EQ(cudaMalloc(&more, 60), cudaSuccess);
  (void)cudaFree(more);
}

TEST_F(FakeCudaTest, SharedMemoryHasAnEnd) {
  fake_cuda::Reset({{.shared_per_block = 1000}});
  int kernel = 0;
  const auto allow = [&](int bytes) {
    return cudaFuncSetAttribute(&kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  };
  EXPECT_EQ(allow(1000), cudaSuccess);
  EXPECT_EQ(allow(1001), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFuncSetAttribute(&kernel, cudaFuncAttributePreferredSharedMemoryCarveout, 1001), cudaSuccess);
}

TEST_F(FakeCudaTest, StreamOfAnotherDevice) {
  const cudaStream_t stream = NewStream();
  EXPECT_EQ(cudaSetDevice(1), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_THAT(fake_cuda::misuse(), ElementsAre(HasSubstr("a stream of another device")));
  // Each thread has a current device.
  std::thread([&] { EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess); }).join();
  EXPECT_EQ(fake_cuda::misuse().size(), 1u);
  (void)cudaStreamDestroy(stream);
}

TEST_F(FakeCudaTest, StreamLeftRecording) {
  const cudaStream_t stream = NewStream();
  EXPECT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  (void)cudaStreamDestroy(stream);
  EXPECT_THAT(fake_cuda::misuse(), ElementsAre(HasSubstr("while the stream is recorded")));
}

TEST_F(FakeCudaTest, ACallFailsOnce) {
  fake_cuda::FailCall(2, cudaErrorMemoryAllocation, /*for_ever=*/false);
  void* const data = Allocate(1);
  EXPECT_FALSE(fake_cuda::failed());
  EXPECT_EQ(cudaMemset(data, 0, 1), cudaErrorMemoryAllocation);
  EXPECT_TRUE(fake_cuda::failed());
  EXPECT_EQ(cudaMemset(data, 0, 1), cudaSuccess);
  // The error stays until it is read.
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(cudaFree(data), cudaSuccess);
}

TEST_F(FakeCudaTest, ADeviceIsLostForEver) {
  void* const data = Allocate(1);
  fake_cuda::FailCall(1, cudaErrorIllegalAddress, /*for_ever=*/true);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(cudaMemset(data, 0, 1), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaFree(data), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaGetLastError(), cudaErrorIllegalAddress);
  EXPECT_EQ(fake_cuda::alive(), 0u);
}

}  // namespace
}  // namespace qtts
