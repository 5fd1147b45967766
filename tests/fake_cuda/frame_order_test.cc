// SPDX-License-Identifier: LGPL-2.1-or-later
#include "paths/persistent/frame_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "fake_cuda/fake_cuda.h"
#include "gpu/gpu_test.h"
#include "language_model.h"
#include "network/frame_operations.h"
#include "network/operations.h"
#include "runtime/device_memory.h"

// Every path must follow the list of a frame's operations.
namespace qtts {
namespace {

using cuda::CudaOptions;
using cuda::FrameOperation;
using cuda::FrameOperations;
using cuda::FrameRow;
using cuda::FrameRowResult;
using cuda::FrameStart;
using cuda::kLayerOperations;
using cuda::kPredictorEnd;
using cuda::kTalkerEnd;
using cuda::LanguageModel;
using cuda::Network;
using cuda::Operation;
using cuda::OperationEntry;
using cuda::Place;
using testing::FullWidth;
using testing::RandomModel;

// True if `second` depends on `first`.
bool Depends(const OperationEntry& first, const OperationEntry& second) {
  return second.input == first.output || second.output == first.output || second.output == first.input;
}

// Every operation occurs once, after those that it depends on.
template <size_t kListed, size_t kDone>
void ExpectSameOperations(const std::array<OperationEntry, kListed>& list, const std::array<Operation, kDone>& order) {
  ASSERT_EQ(kDone, kListed);
  const auto place_of = [&](const OperationEntry& entry) {
    return std::find(order.begin(), order.end(), entry.operation) - order.begin();
  };
  for (size_t i = 0; i < kListed; ++i) {
    EXPECT_EQ(std::count(order.begin(), order.end(), list[i].operation), 1);
    for (size_t j = i + 1; j < kListed; ++j) {
      if (!Depends(list[i], list[j])) continue;
      EXPECT_LT(place_of(list[i]), place_of(list[j])) << i << " and " << j;
    }
  }
}

TEST(FrameOrder, ThePersistentKernelDoesWhatTheListSays) {
  ExpectSameOperations(kTalkerEnd, cuda::persistent::kTalkerEndOrder);
  ExpectSameOperations(kPredictorEnd, cuda::persistent::kPredictorEndOrder);
}

TEST(FrameOrder, EveryOperationReadsWhatWasWritten) {
  std::set<Place> written = {Place::kResidual};
  for (const OperationEntry& entry : kLayerOperations) {
    EXPECT_TRUE(written.contains(entry.input));
    written.insert(entry.output);
  }
  EXPECT_EQ(kLayerOperations.back().output, Place::kResidual);
  for (const OperationEntry& entry : kTalkerEnd) {
    EXPECT_TRUE(written.contains(entry.input));
    written.insert(entry.output);
  }
  for (const OperationEntry& entry : kPredictorEnd) EXPECT_TRUE(written.contains(entry.input));
}

// A language model without a GPU.
class FrameOrderModel : public ::testing::TestWithParam<bool> {
 protected:
  FrameOrderModel() {
    fake_cuda::Reset();
    auto stream = cuda::Stream::Create();
    EXPECT_TRUE(stream.ok());
    stream_ = std::move(*stream);
    CudaOptions options;
    options.path = cuda::FramePath::kGraph;
    auto model = LanguageModel::Create(*random_model_.checkpoint(), options, stream_.get());
    EXPECT_TRUE(model.ok()) << model.status().message();
    if (model.ok()) model_ = std::move(*model);
  }

  RandomModel random_model_{FullWidth(GetParam())};
  cuda::Stream stream_;
  std::unique_ptr<LanguageModel> model_;
};

// The operation of a kernel, by the kernel's name.
std::string KindOf(const std::string& kernel) {
  for (const char* const name : {"BeginKernel", "EndKernel", "AttendKernel", "KeepQueryKernel", "TalkerKernel",
                                 "PredictorKernel", "ScoreKernel"}) {
    if (kernel.find(name) != std::string::npos) return name;
  }
  return kernel.find("Bf16Kernel") != std::string::npos ? "product" : kernel;
}
std::string KindOf(const FrameOperation& operation) {
  if (operation.weights != nullptr) return "product";
  if (operation.entry.operation == Operation::kAttend) return "AttendKernel";
  return operation.group == 0 ? "TalkerKernel" : "PredictorKernel";
}

TEST_P(FrameOrderModel, TheGraphPathEnqueuesTheList) {
  ASSERT_NE(model_, nullptr);
  const Network& network = model_->network();
  const std::optional<AlignmentHead>& head = network.config.description.alignment;
  ASSERT_TRUE(head.has_value());
  std::vector<std::string> expected = {"BeginKernel"};
  for (const FrameOperation& operation : FrameOperations(network)) {
    if (operation.entry.operation == Operation::kProject && !network.has_projection()) continue;
    expected.push_back(KindOf(operation));
    // The alignment head's query is kept behind its layer's attention.
    if (operation.entry.operation == Operation::kAttend && operation.group == 0 && operation.layer == head->layer) {
      expected.emplace_back("KeepQueryKernel");
    }
  }
  expected.emplace_back("ScoreKernel");
  expected.emplace_back("EndKernel");

  std::vector<FrameRow> steps(size_t{cuda::kRing} * cuda::kMaxRows);
  std::vector<FrameRowResult> results(steps.size());
  const size_t before = fake_cuda::calls().size();
  ASSERT_TRUE(model_->EnqueueFrame(FrameStart::kInput, 1, 1, steps.data(), results.data()).ok());
  std::vector<std::string> launched;
  for (size_t i = before; i < fake_cuda::calls().size(); ++i) {
    const std::string& call = fake_cuda::calls()[i];
    if (call.find("Kernel") != std::string::npos) launched.push_back(KindOf(call));
  }
  EXPECT_EQ(launched, expected);
}

TEST_P(FrameOrderModel, EpochsAreTheHandOversOfTheList) {
  ASSERT_NE(model_, nullptr);
  const Network& network = model_->network();
  int hand_overs = 0;
  for (const FrameOperation& operation : FrameOperations(network)) {
    hand_overs += cuda::persistent::HandOvers(operation.entry.operation);
  }
  // A pass that ends with the hidden state has as many operations as one that ends with logits.
  for (const auto& some : {LayerOperations(network, 1), EndOperations(network, 1)}) {
    for (const FrameOperation& operation : some) {
      hand_overs += cuda::persistent::HandOvers(operation.entry.operation);
    }
  }
  EXPECT_EQ(cuda::persistent::EpochsPerFrame(network.talker.config.num_layers, network.predictor.config.num_layers,
                                             network.groups),
            hand_overs);
}

INSTANTIATE_TEST_SUITE_P(Widths, FrameOrderModel, ::testing::Bool(),
                         [](const auto& test) { return std::string(test.param ? "Projected" : "OneWidth"); });

}  // namespace
}  // namespace qtts
