// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_NETWORK_STACK_H_
#define QTTS_CUDA_NETWORK_STACK_H_

#include <vector>

#include "attention/attention.h"
#include "checkpoint/config.h"
#include "gemm/gemm.h"

namespace qtts::cuda {

// The layers of the talker or of the code predictor on the device. The memory belongs to a WeightLoader.
struct Layer {
  Matrix qkv, o, gated, down;
  const float* input_norm = nullptr;
  const float* post_norm = nullptr;
  AttentionLayer attention;
};

struct Stack {
  TransformerConfig config;
  std::vector<Layer> layers;
  const float* norm = nullptr;
};

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_NETWORK_STACK_H_
