// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_PATHS_PERSISTENT_FRAME_ORDER_H_
#define QTTS_CUDA_PATHS_PERSISTENT_FRAME_ORDER_H_

#include <array>
#include <cstddef>

#include "network/operations.h"

// The order in which the persistent kernel does the operations of network/operations.h, and what follows from it: the
// order of weights, and how many epochs a frame takes. Layers are kLayerOperations itself.
namespace qtts::cuda::persistent {

// Logits come first: somebody waits for them to sample, while the others project.
inline constexpr std::array kTalkerEndOrder = {Operation::kHead, Operation::kProject, Operation::kSample};
inline constexpr std::array kPredictorEndOrder = {Operation::kHead, Operation::kSample};

// Hand-overs between blocks that an operation takes, each an epoch of its own.
constexpr int HandOvers(Operation operation) { return operation == Operation::kAttend ? 2 : 1; }

template <size_t kCount>
constexpr int HandOvers(const std::array<OperationEntry, kCount>& entries) {
  int sum = 0;
  for (const OperationEntry& entry : entries) sum += HandOvers(entry.operation);
  return sum;
}

// The predictor's first pass may take another one before it, for the hidden state alone.
constexpr int EpochsPerFrame(int talker_layers, int predictor_layers, int groups) {
  const int passes = groups;
  return talker_layers * HandOvers(kLayerOperations) + HandOvers(kTalkerEnd) +
         passes * (predictor_layers * HandOvers(kLayerOperations) + HandOvers(kPredictorEnd));
}

}  // namespace qtts::cuda::persistent

#endif  // QTTS_CUDA_PATHS_PERSISTENT_FRAME_ORDER_H_
