// SPDX-License-Identifier: LGPL-2.1-or-later
// Weights of 8 bits: memory, and errors that name them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "cuda_host_fixture.h"
#include "device_choice.h"
#include "language_model.h"

namespace qtts::cuda_host {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

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
    return std::max(counted->max_held, counted->held + (size_t{512} << 20)) + counted->voice_bytes;
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

}  // namespace
}  // namespace qtts::cuda_host
