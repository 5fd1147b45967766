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
#include "gemm/int8.h"
#include "rules/precision.h"

// Arguments of the persistent kernel. persistent_frame.h describes it.
namespace qtts::cuda {

// A number and the epoch in which it was made; four columns of the residual stream, likewise (words.cuh).
using Word = unsigned long long;
struct Quad;

inline constexpr int kPersistentRows = 8;  // utterances of one launch
// Thread blocks, one per SM. More than 128 would have 208 of 240 KiB of a layer on 170 SMs, and as much on 148
// (frame_deal.h).
inline constexpr int kPersistentMaxBlocks = 128;
inline constexpr int kPersistentMinBlocks = 16;
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
// Returns the splits of the longest context, and those that one of kPersistentMaxBlocks attends to at most, for so many
// rows.
constexpr int PersistentSplits(int rows) { return rows > 4 ? 128 : 256; }
constexpr int PersistentItems(int rows) { return rows > 4 ? 32 : 16; }
// Returns whether the kernel attends to so long contexts, on any number of blocks.
constexpr bool PersistentCovers(int rows, int splits) {
  return splits <= PersistentSplits(rows) &&
         rows * splits * kPersistentKvHeads <= PersistentItems(rows) * kPersistentMaxBlocks;
}

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

// How weights come into shared memory (weight_ring.cuh): by bulk copies in code for compute capability 9.0 alone, else
// by cp.async of a warp. A piece is copied and given back as a whole; smaller ones fit better into 99 KiB.
enum class RingCopies { kBulk, kAsync };
constexpr int PersistentPieceBytes(RingCopies copies, WeightForm weights) {
  constexpr int kPlainChunkBytes = 512;  // of 8 outputs
  const int chunks = copies == RingCopies::kBulk || weights == WeightForm::kInt8 ? 32 : 16;
  return chunks * (weights == WeightForm::kInt8 ? gemm::Int8Layout::kChunkBytes : kPlainChunkBytes);
}

// Returns the warps that copy with cp.async, one piece each by turns. With an even number of slots the pieces of a slot
// are all of one warp, which therefore knows whether the last one has landed.
constexpr int AsyncCopyWarps(int ring_slots) { return ring_slots % 2 == 0 ? 2 : 1; }

// Pace of the weight stream, in units of kPaceBytes.
inline constexpr int kPaceBytes = 16 << 10;
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

// One compiled form of the kernel and its launch.
struct FrameKernelForm {
  int talker_hidden = 0;
  int rows = 0;  // 1, 2, 4 or 8
  // For any number of blocks; else for kPersistentMaxBlocks. The folded form also saves shared memory.
  bool folded = false;
  int blocks = 0;
  int ring_slots = 0;  // pieces of weights in shared memory
  RingCopies copies = RingCopies::kAsync;
  WeightForm weights = WeightForm::kPlain;  // kInt8: for one row
};

// Returns the bytes of dynamic shared memory of a block of the form.
size_t FrameKernelBytes(const FrameKernelForm& form);
// Returns the slots that the form needs at least.
int MinRingSlots(const FrameKernelForm& form);
// Returns the form for a card of so many SMs and so much shared memory of a block, with all its members set; blocks: 0
// if there is none. folded_only: the folded form, for tests of any number of blocks; no SM is left to the codec.
FrameKernelForm ChooseForm(int talker_hidden, int rows, RingCopies copies, int processors, size_t shared_limit,
                           bool folded_only = false, WeightForm weights = WeightForm::kPlain);
// Prepares the form's kernel. Sets the number of its thread blocks that fit one SM.
cudaError_t PrepareFrameKernel(const FrameKernelForm& form, int* blocks_per_processor);
// Sets the arguments that depend on the form.
cudaError_t LaunchFrameKernel(FrameKernelArguments arguments, const FrameKernelForm& form, cudaStream_t stream);

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_PATHS_PERSISTENT_FRAME_KERNEL_H_
