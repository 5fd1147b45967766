// SPDX-License-Identifier: LGPL-2.1-or-later
#include "network/frame_operations.h"

namespace qtts::cuda {
namespace {

const Matrix* WeightsOf(const Network& network, const OperationEntry& entry, const Layer* layer, int group) {
  switch (entry.weights) {
    case OperationWeights::kNone:
      return nullptr;
    case OperationWeights::kQkv:
      return &layer->qkv;
    case OperationWeights::kO:
      return &layer->o;
    case OperationWeights::kGated:
      return &layer->gated;
    case OperationWeights::kDown:
      return &layer->down;
    case OperationWeights::kProjection:
      return &network.projection;
    case OperationWeights::kHead:
      return &network.head(group);
  }
  return nullptr;
}

const float* NormOf(const Stack& stack, const OperationEntry& entry, const Layer* layer) {
  switch (entry.norm) {
    case OperationNorm::kNone:
      return nullptr;
    case OperationNorm::kInput:
      return layer->input_norm;
    case OperationNorm::kPost:
      return layer->post_norm;
    case OperationNorm::kFinal:
      return stack.norm;
  }
  return nullptr;
}

}  // namespace

std::vector<FrameOperation> LayerOperations(const Network& network, int group) {
  const Part part = group == 0 ? Part::kTalker : Part::kPredictor;
  const Stack& stack = network.stack(part);
  std::vector<FrameOperation> operations;
  for (size_t i = 0; i < stack.layers.size(); ++i) {
    const Layer* const layer = &stack.layers[i];
    for (const OperationEntry& entry : kLayerOperations) {
      operations.push_back({entry, part, group, static_cast<int>(i), WeightsOf(network, entry, layer, group),
                            NormOf(stack, entry, layer)});
    }
  }
  return operations;
}

std::vector<FrameOperation> EndOperations(const Network& network, int group) {
  std::vector<FrameOperation> operations;
  const auto add = [&](Part part, const auto& entries) {
    for (const OperationEntry& entry : entries) {
      operations.push_back({entry, part, group, -1, WeightsOf(network, entry, nullptr, group),
                            NormOf(network.stack(part), entry, nullptr)});
    }
  };
  if (group == 0) {
    add(Part::kTalker, kTalkerEnd);
  } else {
    add(Part::kPredictor, kPredictorEnd);
  }
  return operations;
}

std::vector<FrameOperation> FrameOperations(const Network& network) {
  std::vector<FrameOperation> operations;
  for (int group = 0; group < network.groups; ++group) {
    for (const auto& some : {LayerOperations(network, group), EndOperations(network, group)}) {
      operations.insert(operations.end(), some.begin(), some.end());
    }
  }
  return operations;
}

}  // namespace qtts::cuda
