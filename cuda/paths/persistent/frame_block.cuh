// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_PATHS_PERSISTENT_FRAME_BLOCK_CUH_
#define QTTS_CUDA_PATHS_PERSISTENT_FRAME_BLOCK_CUH_

#include <cstddef>
#include <cstdint>
#include <utility>

#include "network/operations.h"
#include "paths/persistent/frame_kernel.h"
#include "paths/persistent/frame_memory.cuh"
#include "paths/persistent/frame_shape.cuh"
#include "paths/persistent/team.cuh"
#include "paths/persistent/weight_ring.cuh"
#include "paths/persistent/words.cuh"

// Every thread block runs the same sequence of phases: for each layer the products QKV, attention, O, gate and up,
// down; between passes the heads and the sampling. One of `blocks` blocks owns every blocks-th tile of each product.
// It streams its weights through the ring, waits for the words that the phase needs, and publishes its outputs as words
// of a new epoch.
//
// With fewer than kMaxBlocks blocks the kernel is folded (FrameTraits): a block goes through a phase in rounds, as many
// as it has tiles for (frame_deal.h). The phase's words are waited for in its first round, and belong to one epoch.
//
// Buffers of words are written once per layer and need no clearing. No reader can be overtaken: before a block
// overwrites a buffer it has read, phase by phase, words of all blocks that read the buffer. Example: x_middle is
// written by blocks that have read all of `attended`; its writers had read all of this layer's qkv, whose writers had
// read all of x, whose writers had read all of `inner`, whose writers had read x_middle. For this, every phase waits
// for all words of all rows before it publishes.
//
// The order of additions is that of rules/, as in the graph path, so the results are the same bit for bit: eight warps
// share the columns, and each warp loads and multiplies its own.
//
// A phase is a few hundred instructions, executed once per layer. Therefore widths and rows are compile-time constants,
// and all loops except those over layers and passes are unrolled. The code has each phase once per width and number of
// rows: a layer's code must fit the instruction cache.
namespace qtts::cuda::persistent {

// The team's part of a thread block; one object per thread. Members are defined in the files named in the comments, and
// each file includes those whose members it calls.
template <typename Traits>
class Block {
 public:
  static constexpr int kTalkerHidden = Traits::kTalkerHidden;
  static constexpr int kStreams = Traits::kStreams;
  static constexpr bool kFolded = Traits::kFolded;
  using Storage = typename Traits::Storage;
  using Shared = SharedMemory<Traits>;

  __device__ Block(const FrameKernelArguments& arguments, Shared* shared, const char* memory)
      : a(arguments),
        shared_(shared),
        patience_(arguments.patience, &shared->gave_up, arguments.report),
        thread_(static_cast<int>(threadIdx.x)),
        warp_(thread_ / 32),
        lane_(thread_ % 32),
        ring_(&shared->ring, memory, arguments.ring_slots, lane_),
        epoch_(*arguments.frame.frame % arguments.epoch_frames * arguments.epochs_per_frame) {}

  // Runs a frame, in frame_passes.cuh.
  __device__ __forceinline__ void Run();

 private:
  __device__ __forceinline__ int blocks() const { return kFolded ? static_cast<int>(gridDim.x) : kMaxBlocks; }
  // Returns the block's `index`-th of what is dealt in turn from the first block on.
  __device__ __forceinline__ int TileAt(int index) const { return static_cast<int>(blockIdx.x) + index * blocks(); }
  // Returns the block's `index`-th tile of a product.
  __device__ __forceinline__ int TileAt(const TileDeal& deal, int index) const { return deal.first + index * blocks(); }
  // Returns the rounds in which the block goes through its tiles of the residual stream.
  template <int kHidden>
  __device__ __forceinline__ int OwnRounds() const {
    if constexpr (kFolded) {
      constexpr int kTiles = OwnTiles(kHidden) / kMaxBlocks;
      return Uniform((DealOf(*shared_, kHidden).own.count + kTiles - 1) / kTiles);
    } else {
      return 1;
    }
  }

  // --- Passes and layers: frame_passes.cuh ---

  // Sets sequences, positions and angles of a pass's rows.
  template <int kRows>
  __device__ __forceinline__ void BeginPass(int pass);
  template <int kHidden, int kRows, bool kTalker>
  __device__ __forceinline__ void RunLayers(const PersistentStack& s, int pass);
  // Runs the i-th layer: every operation of kLayerOperations, in that order.
  template <int kHidden, int kRows, bool kTalker, size_t... kIndices>
  __device__ __forceinline__ void RunLayer(const PersistentStack& s, int i, int num_layers, int pass,
                                           std::index_sequence<kIndices...> operations);
  template <Operation kOperation, int kHidden, int kRows, bool kTalker>
  __device__ __forceinline__ void RunOperation(const PersistentStack& s, const PersistentLayer& layer, int i,
                                               int num_layers, int pass);
  template <int kHidden, int kRows>
  __device__ __forceinline__ void RunQkv(const PersistentStack& s, const PersistentLayer& layer, int i, int pass);
  template <int kHidden, int kRows>
  __device__ __forceinline__ void RunO(const PersistentStack& s, const PersistentLayer& layer);
  template <int kHidden, int kRows>
  __device__ __forceinline__ void RunGated(const PersistentStack& s);
  template <int kHidden, int kRows>
  __device__ __forceinline__ void RunDown(const PersistentStack& s, int i, int num_layers);
  // Computes the logits, and after the talker what the predictor takes of its hidden state. A row's quads lie `apart`
  // rows of the pass apart, the last of them counts.
  template <int kHidden>
  __device__ __forceinline__ void Head(const PersistentStack& s, int pass, int apart);

  // --- Activations: frame_rows.cuh ---

  template <int kColumns, int kRows>
  __device__ __forceinline__ __nv_bfloat16* Stage() const;
  // A warp sums up the squares of its columns, of each span of 128 by itself, in steps that find time between matrix
  // instructions: the next waits for what it exchanges. From 0 on; all others do nothing.
  static constexpr int kSquaresSteps = 6;
  template <int kRows, int kSpans>
  __device__ __forceinline__ void SquaresStep(int step);
  template <int kColumns, int kRows>
  __device__ __forceinline__ void SumSquares();
  // Brings this warp's columns of a layer's input, and the lanes' squares.
  template <int kColumns, int kRows>
  __device__ __forceinline__ void StageQuads(const Quad* source, int row_stride);
  // Brings this warp's columns of rows of words of two BF16.
  template <int kColumns, int kRows>
  __device__ __forceinline__ void StagePairs(const Word* source);
  // Returns the columns [column, column + 4) of a row of the pass's input: the talker's, its hidden state, or a code's
  // embedding.
  template <int kHidden>
  __device__ __forceinline__ float4 TalkerInputAt(int row, int column) const;
  __device__ __forceinline__ float4 HiddenStateAt(int stream, int column) const;
  __device__ __forceinline__ float4 EmbeddingAt(int pass, int stream, int column) const;
  template <int kHidden, int kRows>
  __device__ __forceinline__ float4 InputAt(int pass, int row, int column) const;
  // Awaits the ids at the start of a pass, for all rows; each warp reads them itself.
  __device__ __forceinline__ void AwaitIds();
  // Does StageQuads() for a pass's input.
  template <int kHidden, int kRows>
  __device__ __forceinline__ void StageInput(const PersistentStack& s, const float* norm, int pass);
  // Takes the part of a pass's input that this block's threads keep in registers.
  template <int kHidden, int kRows>
  __device__ __forceinline__ void TakeOwn(int pass);

  // --- Products: frame_products.cuh ---

  // Loads the ring's next tiles, if folded only `tiles` of them. Call it before the phase waits for its words, so that
  // the loads do not add to its time.
  template <typename W>
  __device__ __forceinline__ void Load(W* w, int tiles);
  // Loads this warp's share of kTiles tiles, the `first`-th of `w` and later ones; `skipped` pieces of the first tile
  // were given back.
  template <int kTiles, typename W>
  __device__ __forceinline__ void LoadShare(W* w, int first, int skipped);
  // Multiplies by the staged rows: this warp's sums over its columns to `partial`, [tile][warp][row][16], from tile
  // `first` on.
  template <int kRows, bool kSquares, typename W>
  __device__ __forceinline__ void Multiply(const W& w, int first);
  // Computes a product of kTiles tiles with rows that stage() brings, kSquares: and the squares of their columns; as
  // many tiles as there are registers for are taken before. If folded, only the first `tiles` tiles have sums.
  template <int kColumns, int kHalves, int kTiles, int kRows, bool kSquares, typename StageRows>
  __device__ __forceinline__ void Multiply(int tiles, const StageRows& stage);
  // Computes the products of a phase with a norm: the block's kCount tiles, or `count` of them if folded, kTiles at a
  // time, each followed by finish(first tile, tiles). stage() brings the rows before the first of them. Takes an epoch.
  template <int kHidden, int kTiles, int kCount, int kRows, typename StageRows, typename Finish>
  __device__ __forceinline__ void MultiplyNormed(int count, const StageRows& stage, const Finish& finish);
  // Computes the product of rows of words of two BF16, added to the residual stream and published. Takes an epoch.
  template <int kColumns, int kHidden, int kRows>
  __device__ __forceinline__ void AddProduct(const Word* source, const float* bias, const float* norm, Quad* target);
  // Calls finish(target(tile, row, m), tile, row, m, valid, partial) for kOutputs outputs m of each tile and row, by
  // whole warps, neighbours in m side by side; `partial` are the first warp's sums. If folded, `tiles` tiles are valid.
  template <int kOutputs, int kTiles, int kRows, typename Target, typename Finish>
  __device__ __forceinline__ void FinishRows(int tiles, const Target& target, const Finish& finish);
  // Returns 1 / rms of a staged row.
  template <int kColumns>
  __device__ __forceinline__ float Factor(const PersistentStack& s, int row) const;
  // Returns the factor of a product's sums with the norm of a staged row.
  template <int kColumns>
  __device__ __forceinline__ float SumFactor(const PersistentStack& s, int row) const;
  // Returns the column of the residual stream that thread i keeps for a round, and its row. A thread that has none, in
  // a last round of fewer tiles, gets another one's.
  template <int kHidden, int kRows>
  __device__ __forceinline__ int OwnColumn(int round, int i) const {
    constexpr int kTiles = OwnTiles(kHidden) / kMaxBlocks;
    int index = round * kTiles + i / (8 * kRows);
    if constexpr (kFolded && kTiles > 1) index = min(index, DealOf(*shared_, kHidden).own.count - 1);
    return TileAt(index) * 8 + i % 8;
  }
  template <int kHidden, int kRows>
  __device__ __forceinline__ bool HasOwn(int round, int i) const {
    constexpr int kTiles = OwnTiles(kHidden) / kMaxBlocks;
    const bool has = i < Traits::OwnOutputs(kHidden, kRows);
    if constexpr (kFolded && kTiles > 1) {
      return has && round * kTiles + i / (8 * kRows) < DealOf(*shared_, kHidden).own.count;
    } else {
      return has;
    }
  }
  template <int kRows>
  static __device__ __forceinline__ int OwnRow(int i) {
    return i / 8 % kRows;
  }
  // Returns that element, which only its thread uses, from a pass's begin to its end.
  template <int kHidden, int kRows>
  __device__ __forceinline__ float Own(int round) const;
  template <int kHidden, int kRows>
  __device__ __forceinline__ void SetOwn(int round, float value);
  // Returns the norm's weight of its column.
  template <int kHidden, int kRows>
  __device__ __forceinline__ float OwnNorm(int round, const float* norm) const;
  // Adds a product's outputs of a round, if folded of `tiles` tiles, to this block's columns of the residual stream,
  // and publishes them.
  template <int kHidden, int kRows>
  __device__ __forceinline__ void AddToOwn(int round, int tiles, const float* bias, float norm, Quad* target);
  // Publishes four columns of the residual stream, by whole warps: of the lane that has the first of them and the next
  // three.
  __device__ __forceinline__ void PublishOwn(Quad* quad, float value, float norm, bool first);
  // Publishes the pass's input as what its layers would have left, for its head.
  template <int kHidden, int kRows>
  __device__ __forceinline__ void PublishInput(const PersistentStack& s, int pass);

  // --- Attention: frame_attention.cuh ---

  // Returns the elements between a head's keys in one layer and the next.
  static __device__ __forceinline__ int64_t LayerStride(const PersistentStack& s);
  // Attends from qkv, of the current epoch, to `attended`. Takes two epochs.
  template <int kRows, bool kTalker>
  __device__ __forceinline__ void Attend(const PersistentStack& s, const PersistentLayer& layer, int layer_index);
  // Returns the parts that this block has in the pass.
  __device__ __forceinline__ int Parts() const { return kFolded ? Uniform(shared_->num_parts) : 1; }
  // Returns the keys of a part's splits.
  __device__ __forceinline__ __nv_bfloat16* const* SplitStarts(const AttentionPart& part) const {
    return shared_->split_starts + (kFolded ? part.first_item : 0);
  }
  // Prefetches the keys and values of this block's first splits into L2, before the queries arrive.
  __device__ __forceinline__ void PrefetchCache(const PersistentStack& s, int layer);
  // Returns the positions before the part's i-th split.
  static __device__ __forceinline__ int PositionsBefore(const AttentionPart& part, int i);
  // Publishes zeros for a row that is left out, one head or all of a key head.
  __device__ __forceinline__ void PublishSilence(const PersistentStack& s, int row, int head);
  // Computes the attention of kQueries query heads, one key head and the splits of a part; of each the first
  // kTurns * kPositionsAtOnce positions are all that is there.
  template <int kTurns, int kQueries>
  __device__ __forceinline__ void AttendSplits(const PersistentStack& s, const PersistentLayer& layer, int layer_index,
                                               const AttentionPart& part, int splits, uint32_t qkv_epoch,
                                               float* kept_query);
  // Returns the place where the alignment head's query of a part of the talker's is kept; null: the part does not have
  // it, or another block keeps it.
  __device__ __forceinline__ float* KeptQuery(const AttentionPart& part, int layer_index) const;
  // Returns the destination of the calling thread's results, for a part's splits from `first` on: the row's record of
  // the split, or the attended row if there is only one split.
  template <int kQueries>
  __device__ __forceinline__ Word* MergeTarget(const PersistentStack& s, const AttentionPart& part, int first) const;
  // Merges the warps' results of `count` splits. `whole`: the row has no others.
  template <int kQueries>
  __device__ __forceinline__ void MergeWarps(Word* target, int count, bool whole);
  __device__ __forceinline__ Word* Record(const PersistentStack& s, int row, int head, int split) const;
  // Returns the memory for this warp to combine a row's splits in.
  __device__ __forceinline__ CombineMemory& Combine() const;
  // Places a part's queries, keys and values of the new rows up to its row, to shared memory; the row's own key and
  // value to the cache, at `target` (if any) and value_offset on; the alignment head's query to `kept_query` (if any),
  // too.
  template <int kQueries>
  __device__ __forceinline__ void PlaceHeads(const PersistentStack& s, const PersistentLayer& layer,
                                             const AttentionPart& part, int new_rows, uint32_t qkv_epoch,
                                             AttentionMemory* m, __nv_bfloat16* target, int value_offset,
                                             float* kept_query);
  // Combines this block's kCombined attended elements of a row in a round, from the records of all splits in their
  // order; by one warp, as many more would be in each other's way, all looking for words that are not there yet.
  __device__ __forceinline__ void CombineSplits(const PersistentStack& s, int row, int round, int splits);

  // --- Choices: frame_choice.cuh ---

  // Chooses a row's code of `group`, from logits of this epoch (the talker's: the one before), and publishes it as of
  // the next. Whether the row goes on. Also for a row that has nothing to say, so that nobody overtakes the readers.
  __device__ __forceinline__ bool ChooseCode(int row, int group, bool alive);

  const FrameKernelArguments& a;
  Shared* shared_;
  Patience patience_;
  int thread_, warp_, lane_;  // within the team
  RingReader<Storage> ring_;
  uint32_t epoch_;
  uint32_t input_epoch_ = 0, id_epoch_ = 0;
  int id_ = -1;                                // last word of stream `lane`
  float own_ = 0;                              // see Own(); if folded in FoldedMemory
  float lane_squares_[MaxRows(kStreams) * 2];  // of the staged columns, [row][span]
  int partial_ = 0;                            // which half of the partial sums is in use
  int squares_ = 0;                            // and of the squares
};

}  // namespace qtts::cuda::persistent

#endif  // QTTS_CUDA_PATHS_PERSISTENT_FRAME_BLOCK_CUH_
