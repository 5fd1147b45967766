// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_PATHS_PERSISTENT_FRAME_KERNEL_H_
#define QTTS_CUDA_PATHS_PERSISTENT_FRAME_KERNEL_H_

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "attention/text_scores.h"
#include "frame/frame.h"
#include "frame/frame_state.h"

// Arguments of the persistent kernel. persistent_frame.h describes it.
namespace qtts::cuda {

// A number and the epoch in which it was made; four columns of the residual stream, likewise (words.cuh).
using Word = unsigned long long;
struct Quad;

inline constexpr int kPersistentPieceBytes = 16 << 10;  // of weights, in one bulk copy
inline constexpr int kPersistentRows = 8;               // utterances of one launch
inline constexpr int kPersistentBlocks = 128;           // thread blocks, which share every product evenly
inline constexpr int kPersistentHeadDim = 128;
inline constexpr int kPersistentHeads = 16;
inline constexpr int kPersistentKvHeads = 8;
inline constexpr int kPersistentLayers = 40;        // of both stacks together
inline constexpr int kPersistentGroups = 16;        // codes per frame
inline constexpr int kPersistentVocab = 3072;       // maximum logits
inline constexpr int kPersistentCandidates = 4096;  // at least as many; a power of two
// Supported widths: of the predictor, and of talkers (also in cuda/meson.build).
inline constexpr int kPersistentHidden = 1024;
inline constexpr std::array kPersistentTalkerWidths = {kPersistentHidden, 2048};
constexpr int PersistentIntermediate(int hidden) { return 3 * hidden; }
// Splits of the longest context, and those that one block attends to at most, for so many rows.
constexpr int PersistentSplits(int rows) { return rows > 4 ? 128 : 256; }
constexpr int PersistentItems(int rows) { return rows > 4 ? 32 : 16; }

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

// Pace of the weight stream (weight_ring.cuh), in pieces.
struct WeightPace {
  int in_flight = 1;  // maximum copies in flight
  int ahead = 0;      // prefetch distance into L2, counted from the next piece to copy; 0 or 1: no prefetch
};

struct PersistentStack {
  int first_layer = 0;  // in the table of both stacks' layers
  int num_layers = 0;
  WeightPace pace;
  int window = 0;
  float eps = 0;
  const float* norm = nullptr;
  const float* inverse_frequencies = nullptr;
  void* const* pages = nullptr;  // as KeyValuePages (attention.h)
  int pages_per_sequence = 0, page_positions = 0;
  int cache_heads = 0;  // whose keys and values lie in a page, kPersistentKvHeads or one for each query head
  // Data exchanged between thread blocks. x_middle and x [rows][hidden / 4]: the residual stream after attention and
  // after the layer. F32 words: qkv [rows][outputs]; records [rows][heads][PersistentSplits()][kRecordWords], partial
  // attention. Words of two BF16: attended [rows][q width / 2], inner [rows][intermediate / 2].
  Quad* x_middle = nullptr;
  Quad* x = nullptr;
  Word* qkv = nullptr;
  Word* records = nullptr;
  Word* attended = nullptr;
  Word* inner = nullptr;
};

// Sum and maximum of a query head, and its unscaled result.
inline constexpr int kRecordWords = 2 + kPersistentHeadDim;

// The predictor's pass p: from the embedding of code p to the logits of code p + 1.
struct PredictorPass {
  const char* head;
  const char* table;  // BF16 [table_rows][table_stride]
  int table_stride;
  unsigned table_rows;
};

struct FrameKernelArguments {
  int groups = 0;
  int talker_hidden = 0;
  const PersistentLayer* layers = nullptr;
  PersistentStack talker, predictor;
  int talker_vocab = 0, predictor_vocab = 0;
  const char* talker_head = nullptr;
  const char* projection = nullptr;  // of a wide talker
  const float* projection_bias = nullptr;
  const PredictorPass* passes = nullptr;  // [groups - 1]
  const float* x = nullptr;               // the talker's input [rows][hidden]
  bool runs_talker = true;                // false: x is the talker's output; only its head is run
  int eos_id = 0;
  FrameRows frame;
  SlotState* slots = nullptr;
  AlignedQueries aligned;
  unsigned* history = nullptr;
  int history_words = 0;
  float* talker_logits = nullptr;     // kept for tests
  float* predictor_logits = nullptr;  // [groups - 1][kMaxRows][vocab]
  Word* input = nullptr;              // F32, the talker's hidden state for the predictor [rows][kPersistentHidden]
  Word* logits = nullptr;             // F32, [rows][kPersistentVocab]
  Word* ids = nullptr;                // [rows] the last sampled id; below 0: the row has ended
  unsigned long long* candidates = nullptr;  // [rows][kPersistentCandidates], see CandidateLists
  unsigned epochs_per_frame = 0;
  unsigned epoch_frames = 0;  // epochs restart after so many frames
  unsigned patience = 0;      // polls per wait
  unsigned* report = nullptr;
  int ring_slots = 0;
};

inline constexpr int kPersistentWarps = 8;

// Dynamic shared memory of a block with so many slots of weights.
size_t FrameKernelBytes(int talker_hidden, int rows, int ring_slots);
// Prepares the kernel for up to `ring_slots` slots. Sets the number of its thread blocks that fit one SM. `rows`: 1, 2,
// 4 or 8. cudaErrorNoKernelImageForDevice if the build has no code for compute capability 9.
cudaError_t PrepareFrameKernel(int talker_hidden, int rows, int ring_slots, int* blocks_per_processor);
cudaError_t LaunchFrameKernel(const FrameKernelArguments& arguments, int rows, cudaStream_t stream);

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_PATHS_PERSISTENT_FRAME_KERNEL_H_
