// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_NETWORK_FRAME_OPERATIONS_H_
#define QTTS_CUDA_NETWORK_FRAME_OPERATIONS_H_

#include <vector>

#include "network/network.h"
#include "network/operations.h"

namespace qtts::cuda {

// One operation of a frame, with its weights.
struct FrameOperation {
  OperationEntry entry = {};
  Part part = Part::kTalker;
  int group = 0;   // the code that its pass gives; 0: the talker's pass
  int layer = -1;  // below 0: after the layers
  const Matrix* weights = nullptr;
  const float* norm = nullptr;
};

// Returns the layers of a pass, then its end.
std::vector<FrameOperation> LayerOperations(const Network& network, int group);
std::vector<FrameOperation> EndOperations(const Network& network, int group);
// Returns all passes.
std::vector<FrameOperation> FrameOperations(const Network& network);

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_NETWORK_FRAME_OPERATIONS_H_
