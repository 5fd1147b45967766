// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_PERSISTENT_FRAME_KERNEL_H_
#define QTTS_CUDA_PERSISTENT_FRAME_KERNEL_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "frame.h"
#include "frame_state.h"

// What the persistent kernel is given. See persistent_frame.h for what it is.
namespace qtts::cuda {

// A number and the epoch in which it was made (words.cuh).
using Word = unsigned long long;

inline constexpr int kPersistentPieceBytes = 16 << 10;  // of weights, copied at once
inline constexpr int kPersistentRows = 8;               // utterances of one launch
inline constexpr int kPersistentSplits = 128;           // of the longest context
inline constexpr int kPersistentItems = 32;             // parts of the attention that one block can have
inline constexpr int kPersistentHeadDim = 128;
inline constexpr int kPersistentLayers = 64;   // of both stacks together
inline constexpr int kPersistentVocab = 3072;  // logits that there is room for
inline constexpr int kPersistentHidden = 4096;

// A packed matrix (gemm.h).
struct MatrixShape {
  int outputs = 0, columns = 0, chunks = 0, tiles = 0;
};

struct PersistentLayer {
  const char* qkv;
  const char* o;
  const char* gated;
  const char* down;
  const float* qkv_bias;
  const float* o_bias;
  const float* input_norm;
  const float* post_norm;
  const float* q_norm;
  const float* k_norm;
};

struct PersistentStack {
  int first_layer = 0;  // in the table of both stacks' layers
  int num_layers = 0;
  int kept_layers = 0;  // whose weights are to stay in the L2 cache
  int in_flight = 1;    // pace of the weights (weight_ring.cuh)
  int interval = 0;
  int hidden = 0, heads = 0, kv_heads = 0, window = 0;
  float eps = 0;
  MatrixShape qkv, o, gated, down;
  const float* norm = nullptr;
  const float* inverse_frequencies = nullptr;
  void* const* pages = nullptr;  // as KeyValuePages (attention.h)
  int pages_per_sequence = 0, page_positions = 0;
  // What the blocks exchange. F32 words: x_middle and x [rows][hidden], the residual stream after attention and
  // after the layer; qkv [rows][outputs]; records [rows][kv heads][kPersistentSplits][kRecordWords], partial attention.
  // Words of two BF16: attended [rows][q width / 2], inner [rows][intermediate / 2].
  Word* x_middle = nullptr;
  Word* x = nullptr;
  Word* qkv_words = nullptr;
  Word* records = nullptr;
  Word* attended = nullptr;
  Word* inner = nullptr;
};

// Sums and maxima of the two query heads that share a key head, and their unscaled results.
inline constexpr int kRecordWords = 4 + 2 * kPersistentHeadDim;

// The predictor's pass p: from the embedding of code p to the logits of code p + 1.
struct PredictorPass {
  const char* head;
  const char* table;  // BF16 [vocab][table_stride]
  int table_stride;
};

struct FrameKernelArguments {
  int rows = 0;
  int groups = 0;
  bool paired = false;  // the predictor's first two positions in one pass
  const PersistentLayer* layers = nullptr;
  PersistentStack talker, predictor;
  MatrixShape talker_head, head, projection;  // projection: no tiles where there is none
  const char* talker_head_weights = nullptr;
  const char* projection_weights = nullptr;
  const float* projection_bias = nullptr;
  const PredictorPass* passes = nullptr;  // [groups - 1]
  const float* x = nullptr;               // the talker's input [rows][x_stride]
  int x_stride = 0;
  int eos_id = 0;
  FrameRows frame;
  SlotState* slots = nullptr;
  unsigned* history = nullptr;
  int history_words = 0;
  float* talker_logits = nullptr;     // kept for tests
  float* predictor_logits = nullptr;  // [groups - 1][kMaxRows][vocab]
  Word* input = nullptr;              // F32, the predictor's [2 * kPersistentRows][hidden]
  Word* logits = nullptr;             // F32, [kPersistentRows][vocab]
  Word* speaking = nullptr;           // [kPersistentRows] whether the row goes on after the talker
  unsigned epochs_per_frame = 0;
  unsigned epoch_frames = 0;  // after so many frames epochs begin anew
  unsigned patience = 0;      // looks of one wait
  unsigned* report = nullptr;
  int ring_slots = 0;
  // Offsets in the block's shared memory.
  int stage_offset = 0, partial_offset = 0, attention_offset = 0, own_offset = 0;
};

// Bytes of shared memory for attention.
size_t PersistentAttentionBytes();
// Tiles of one product whose sums a block keeps at once.
inline constexpr int kTilesAtOnce = 4;
inline constexpr int kPersistentWarps = 8;

// Makes the kernel ready for `shared_bytes` of dynamic shared memory; blocks of it that a processor can hold.
cudaError_t PrepareFrameKernel(size_t shared_bytes, int* blocks_per_processor);
cudaError_t LaunchFrameKernel(const FrameKernelArguments& arguments, int blocks, size_t shared_bytes,
                              cudaStream_t stream);

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_PERSISTENT_FRAME_KERNEL_H_
