// SPDX-License-Identifier: LGPL-2.1-or-later
// Each CUDA call fails or hangs once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "cuda_host_fixture.h"

namespace qtts::cuda_host {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A kernel whose code is loaded only when memory is full would fail, and from then on always.
TEST_F(CudaHostTest, TheLoadLoadsTheCodeOfAllKernels) {
  struct Case {
    golden::RandomCheckpointSpec spec;
    int voices;
  };
  for (const Case& c : {Case{Preset("tiny-base-0b6"), kSlots}, Case{FullWidth(true), kSlots},
                        Case{FullWidth(false), 2 * kDefaultVoices}}) {
    for (const int major : {8, 9}) {
      SCOPED_TRACE("talker " + std::to_string(c.spec.talker.hidden_size) + ", compute capability " +
                   std::to_string(major));
      fake_cuda::Reset({{.major = major}});
      const RandomModel model(c.spec);
      const auto backend = CudaBackend::Create(model.checkpoint(), Options(0, c.voices));
      ASSERT_TRUE(backend.ok()) << backend.status().message();
      const std::set<std::string> loaded = fake_cuda::loaded_kernels();
      EXPECT_FALSE(loaded.empty());
      std::unique_ptr<VoiceEncoder> encoder;
      if (c.spec.type == ModelType::kBase) encoder = (*backend)->CreateVoiceEncoder();
      const Status status = UseEverything(model.checkpoint()->config(), backend->get(), encoder.get());
      ASSERT_TRUE(status.ok()) << status.message();
      std::vector<std::string> late;
      std::set_difference(fake_cuda::loaded_kernels().begin(), fake_cuda::loaded_kernels().end(), loaded.begin(),
                          loaded.end(), std::back_inserter(late));
      EXPECT_THAT(late, IsEmpty());
    }
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
    names_.assign(fake_cuda::calls().begin(), fake_cuda::calls().begin() + static_cast<std::ptrdiff_t>(life.calls));
    for (size_t i = 0; i < life.calls; ++i) by_name[names_[i]].push_back(i + 1);
    std::vector<size_t> some;
    for (const auto& [name, numbers] : by_name) std::ranges::sample(numbers, std::back_inserter(some), 3, random_);
    std::ranges::sample(some, std::back_inserter(calls_), 40, random_);
  }

  std::mt19937 random_{std::random_device()()};
  RandomModel model_{SpecOf(GetParam())};
  std::vector<std::string> names_;  // of all calls
  std::vector<size_t> calls_;       // numbers of the calls to fail, from 1
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
    // It takes no memory. Kernels are chosen by what it says, so some would then be wrong for the device.
    if (names_[n - 1] == "cudaGetDevice") continue;
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
}  // namespace qtts::cuda_host
