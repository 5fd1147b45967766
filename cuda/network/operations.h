// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_NETWORK_OPERATIONS_H_
#define QTTS_CUDA_NETWORK_OPERATIONS_H_

#include <array>

// The operations of a frame, in their order, as data: for the host and for kernels.
//
// A frame is a pass of the talker, then the code predictor's, one for each further code. A pass is its layers, each
// kLayerOperations, then kTalkerEnd or kPredictorEnd. The graph path enqueues this list (frame_operations.h); the
// persistent kernel runs and sends weights by it (paths/persistent/frame_order.h).
namespace qtts::cuda {

enum class Part { kTalker, kPredictor };

enum class Operation {
  kQkv,      // queries, keys and values of all rows
  kAttend,   // q/k norm, RoPE, keys and values to the cache, attention
  kO,        // attention's output, back to the residual stream
  kGated,    // gate and up
  kDown,     // back to the residual stream
  kProject,  // the talker's hidden state to the predictor's width, or as it is where the widths are one
  kHead,     // logits
  kSample,   // an id of the logits, and its embedding as input of the next pass
};

enum class OperationWeights { kNone, kQkv, kO, kGated, kDown, kProjection, kHead };
enum class OperationNorm { kNone, kInput, kPost, kFinal };

// Buffers that an operation reads and writes. Each path has its own memory for them.
enum class Place { kResidual, kQkv, kAttended, kInner, kPredictorInput, kLogits, kIds };

// Rows that an operation covers: all rows of the pass, or the last of each sequence.
enum class OperationRows { kAll, kLastOfSequence };

struct OperationEntry {
  Operation operation;
  OperationWeights weights;
  OperationNorm norm;  // of the input
  Place input, output;
  OperationRows rows;
};

inline constexpr std::array<OperationEntry, 5> kLayerOperations = {{
    {Operation::kQkv, OperationWeights::kQkv, OperationNorm::kInput, Place::kResidual, Place::kQkv,
     OperationRows::kAll},
    {Operation::kAttend, OperationWeights::kNone, OperationNorm::kNone, Place::kQkv, Place::kAttended,
     OperationRows::kAll},
    {Operation::kO, OperationWeights::kO, OperationNorm::kNone, Place::kAttended, Place::kResidual,
     OperationRows::kAll},
    {Operation::kGated, OperationWeights::kGated, OperationNorm::kPost, Place::kResidual, Place::kInner,
     OperationRows::kAll},
    {Operation::kDown, OperationWeights::kDown, OperationNorm::kNone, Place::kInner, Place::kResidual,
     OperationRows::kAll},
}};

inline constexpr std::array<OperationEntry, 3> kTalkerEnd = {{
    {Operation::kProject, OperationWeights::kProjection, OperationNorm::kFinal, Place::kResidual,
     Place::kPredictorInput, OperationRows::kAll},
    {Operation::kHead, OperationWeights::kHead, OperationNorm::kFinal, Place::kResidual, Place::kLogits,
     OperationRows::kAll},
    {Operation::kSample, OperationWeights::kNone, OperationNorm::kNone, Place::kLogits, Place::kIds,
     OperationRows::kAll},
}};

inline constexpr std::array<OperationEntry, 2> kPredictorEnd = {{
    {Operation::kHead, OperationWeights::kHead, OperationNorm::kFinal, Place::kResidual, Place::kLogits,
     OperationRows::kLastOfSequence},
    {Operation::kSample, OperationWeights::kNone, OperationNorm::kNone, Place::kLogits, Place::kIds,
     OperationRows::kAll},
}};

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_NETWORK_OPERATIONS_H_
