// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_PATHS_PERSISTENT_FRAME_ORDER_H_
#define QTTS_CUDA_PATHS_PERSISTENT_FRAME_ORDER_H_

#include <array>
#include <cstddef>

#include "network/operations.h"

// The order in which the persistent kernel runs the operations of network/operations.h. It determines the order of the
// weights and the number of epochs of a frame. Layers are kLayerOperations unchanged.
namespace qtts::cuda::persistent {

// Logits first: a block waits for them to sample while the others project.
inline constexpr std::array kTalkerEndOrder = {Operation::kHead, Operation::kProject, Operation::kSample};
inline constexpr std::array kPredictorEndOrder = {Operation::kHead, Operation::kSample};

// Returns the hand-overs between thread blocks within an operation; each takes one epoch.
constexpr int HandOvers(Operation operation) { return operation == Operation::kAttend ? 2 : 1; }

template <size_t kCount>
constexpr int HandOvers(const std::array<OperationEntry, kCount>& entries) {
  int sum = 0;
  for (const OperationEntry& entry : entries) sum += HandOvers(entry.operation);
  return sum;
}

// Returns the epochs of a frame. The predictor's first pass may need an additional pass before it, for the hidden state
// alone.
constexpr int EpochsPerFrame(int talker_layers, int predictor_layers, int groups) {
  const int passes = groups;
  return talker_layers * HandOvers(kLayerOperations) + HandOvers(kTalkerEnd) +
         passes * (predictor_layers * HandOvers(kLayerOperations) + HandOvers(kPredictorEnd));
}

}  // namespace qtts::cuda::persistent

#endif  // QTTS_CUDA_PATHS_PERSISTENT_FRAME_ORDER_H_
