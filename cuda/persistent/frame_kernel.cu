// SPDX-License-Identifier: LGPL-2.1-or-later
#include "attention.h"
#include "device_math.cuh"
#include "gemm_device.cuh"
#include "persistent/frame_kernel.h"
#include "persistent/weight_ring.cuh"
#include "persistent/words.cuh"
#include "rope.cuh"
#include "sampling.cuh"

// Every block runs the same sequence of phases: for each layer the products QKV, attention, O, gate and up, down, and
// between passes the heads and the choices. A block owns every 128th tile of each product, streams its weights through
// the ring, waits for the words that the phase needs, and publishes its outputs as words of a new epoch.
//
// Buffers of words are written once a layer and need no clearing, and no reader can be overtaken: who writes a buffer
// again has read, phase by phase, words of all blocks that read it before. E.g. x_middle is written by blocks that have
// all of `attended`, which took all of this layer's qkv, whose blocks had all of x, whose blocks had all of `inner`,
// whose blocks had read x_middle. For this every phase waits for all words of all rows before it publishes.
//
// The additions are those of gemm.cu, attention.cu and sample.cu, in their order, so the results are the same
// bit for bit: eight warps share the columns, and a warp brings in and multiplies its own.
//
// A phase is some hundred instructions that run once and then not again for a whole layer. So widths and rows are
// constants, all loops but those over layers and passes are unrolled, and each phase stands in the code once for each
// width and number of rows: what a layer runs has to fit into the instruction cache.
namespace qtts::cuda {
namespace {

constexpr int kWarps = kPersistentWarps;
constexpr int kTeamThreads = 32 * kWarps;
constexpr int kWarpgroup = 128;
constexpr int kThreads = kTeamThreads + kWarpgroup;  // of the last warpgroup one copies weights
// Registers of a thread. The last warpgroup leaves most of what it begins with to the team: so the block takes three
// warps of kRegisters on each of a processor's four partitions, and leaves one of 128 there to other kernels.
constexpr int kRegisters = 128;
constexpr int kTeamRegisters = 176;
constexpr int kCopyRegisters = 32;
static_assert(kTeamThreads * kTeamRegisters + kWarpgroup * kCopyRegisters <= kThreads * kRegisters);
constexpr int kBlocks = kPersistentBlocks;
constexpr int kHeadDim = kPersistentHeadDim;
constexpr int kHalf = kHeadDim / 2;
constexpr int kNewRows = 2;
constexpr int kListedIds = 4096;  // no fewer than kPersistentVocab, a power of two

// A team sees to the predictor's first two positions, hidden state and first code, in one pass where that makes no
// more than so many rows.
constexpr int kMostRows = 4;
constexpr bool Paired(int streams) { return 2 * streams <= kMostRows; }
constexpr int MostRows(int streams) { return Paired(streams) ? 2 * streams : streams; }

// Columns of a warp's share of a product, and elements between its staged rows: no bank conflicts.
constexpr int ShareOf(int columns) { return columns / kWarps; }
constexpr int StageStride(int columns) { return (ShareOf(columns) / kChunk | 1) * kChunk; }

// A row, query head and split that this block attends to, the same in all layers of a pass.
struct AttentionItem {
  __nv_bfloat16* split_start;  // the key head's keys in layer 0, from the split's first position on; none: left out
  int row, new_rows, position;
  int head, split, split_index, used_splits;
};

struct AttentionMemory {
  float q[kHeadDim];
  float new_keys[kNewRows][kHeadDim];
  float new_values[kNewRows][kHeadDim];
  float warp_y[kWarps][kHeadDim];
  float warp_max[kWarps], warp_sum[kWarps];
};
constexpr int kCombined = 16;  // elements that are put together from splits at once
struct CombineMemory {
  float values[kPersistentSplits][kCombined];
  float sums[kPersistentSplits], maxima[kPersistentSplits], factors[kPersistentSplits];
};

// What products and attention need, or a choice.
template <int kTalkerHidden, int kStreams>
union WorkMemory {
  struct Products {
    static constexpr int kStageElements =
        kWarps * (kStreams * StageStride(3 * kTalkerHidden) > MostRows(kStreams) * StageStride(3 * kPersistentHidden)
                      ? kStreams * StageStride(3 * kTalkerHidden)
                      : MostRows(kStreams) * StageStride(3 * kPersistentHidden));
    static constexpr int kMostTiles = 6 * kTalkerHidden / 16 / kBlocks;
    static constexpr int kPartials =
        kWarps * 16 * (kMostTiles * kStreams > 3 * MostRows(kStreams) ? kMostTiles * kStreams : 3 * MostRows(kStreams));
    alignas(16) __nv_bfloat16 stage[kStageElements];
    float partial[2][kPartials];
    union {
      AttentionMemory attention;
      CombineMemory combine;
    };
  } products;
  struct Choice {
    unsigned long long list[kListedIds];
    float logits[kPersistentVocab];
  } choice;
};

template <int kTalkerHidden, int kStreams>
struct SharedMemory {
  RingBarriers ring;
  ChoiceMemory choice;
  float squares[2][kWarps][kMostRows];
  float sine[kMostRows][kHalf], cosine[kMostRows][kHalf];
  int slots[kStreams];  // below 0: nothing to do
  // Of the pass.
  int sequences[kMostRows], positions[kMostRows];
  unsigned stop, gave_up;
  unsigned seen;  // see Load()
  int num_items, splits;
  AttentionItem items[kPersistentItems];
  PersistentStack stacks[2];
  PersistentLayer layers[kPersistentLayers];
  PredictorPass passes[kPersistentGroups - 1];
  WorkMemory<kTalkerHidden, kStreams> work;
};

constexpr size_t RoundUp(size_t bytes) { return (bytes + 127) / 128 * 128; }

// The ring comes first.
template <int kTalkerHidden, int kStreams>
constexpr size_t SharedBytes(int ring_slots) {
  return static_cast<size_t>(ring_slots) * kPersistentPieceBytes +
         RoundUp(sizeof(SharedMemory<kTalkerHidden, kStreams>));
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

constexpr int kHeads = kPersistentHeads;
constexpr int kKvHeads = kPersistentKvHeads;
constexpr int kGroup = kHeads / kKvHeads;  // query heads of a key head
constexpr int kQueryWidth = kHeads * kHeadDim;
constexpr int kQkvWidth = (kHeads + 2 * kKvHeads) * kHeadDim;
// Weights that a warp waits for at once, at most, unless a tile has more.
constexpr int kTogetherBytes = 96 << 10;

// The predictor's pass p leads from code p to code p + 1. The first also takes the hidden state, at position 0, in rows
// of its own or, where these would be too many, in a pass before it.
constexpr int kHiddenPass = -1;
constexpr int kTalkerPass = -2;

__device__ __forceinline__ int TileAt(int index) { return static_cast<int>(blockIdx.x) + index * kBlocks; }
// Tiles of this block.
__device__ __forceinline__ int Mine(int tiles) {
  const int block = static_cast<int>(blockIdx.x);
  return block < tiles ? (tiles - block - 1) / kBlocks + 1 : 0;
}

// All warps but the one that copies.
struct Team {
  static constexpr int kThreads = kTeamThreads;
  static constexpr int kWarps = kPersistentWarps;
  static __device__ __forceinline__ void Sync() { asm volatile("barrier.cta.sync 1, 256;" ::: "memory"); }
  static __device__ __forceinline__ bool Any(bool value) {
    uint32_t any;
    asm volatile(
        "{\n.reg .pred p, q;\nsetp.ne.u32 p, %1, 0;\nbarrier.cta.red.or.pred q, 1, 256, p;\nselp.u32 %0, 1, 0, q;\n}"
        : "=r"(any)
        : "r"(static_cast<uint32_t>(value))
        : "memory");
    return any != 0;
  }
};

// --- The thread that copies weights: the order is the team's ------------------------------------

// A matrix of `tiles` tiles (gemm.h) of tile_bytes: this block's.
__device__ __forceinline__ void SendTiles(RingWriter* ring, const char* weights, int tiles, int tile_bytes) {
#pragma unroll 1
  for (int tile = static_cast<int>(blockIdx.x); tile < tiles; tile += kBlocks) {
    ring->Send(weights + static_cast<int64_t>(tile) * tile_bytes, tile_bytes);
  }
}

__device__ void SendPass(RingWriter* ring, const PersistentStack& stack, const PersistentLayer* layers, int hidden) {
  ring->SetPace(stack.in_flight);
#pragma unroll 1
  for (int i = 0; i < stack.num_layers; ++i) {
    const PersistentLayer& layer = layers[stack.first_layer + i];
    SendTiles(ring, layer.qkv, kQkvWidth / 16, 32 * hidden);
    SendTiles(ring, layer.o, hidden / 8, 16 * kQueryWidth);
    SendTiles(ring, layer.gated, 3 * hidden / 8, 32 * hidden);
    SendTiles(ring, layer.down, hidden / 8, 16 * 3 * hidden);
  }
}

template <int kTalkerHidden, int kStreams>
__device__ void SendFrame(const FrameKernelArguments& a, SharedMemory<kTalkerHidden, kStreams>* shared, char* memory) {
  RingWriter ring(&shared->ring, memory, a.ring_slots, &shared->stop);
  SendPass(&ring, shared->stacks[0], shared->layers, kTalkerHidden);
  SendTiles(&ring, a.talker_head, (a.talker_vocab + 15) / 16, 32 * kTalkerHidden);
  if (kTalkerHidden != kPersistentHidden) {
    SendTiles(&ring, a.projection, kPersistentHidden / 16, 32 * kTalkerHidden);
  }
#pragma unroll 1
  for (int pass = Paired(kStreams) ? 0 : kHiddenPass; pass < a.groups - 1; ++pass) {
    SendPass(&ring, shared->stacks[1], shared->layers, kPersistentHidden);
    if (pass == kHiddenPass) continue;
    SendTiles(&ring, a.passes[pass].head, (a.predictor_vocab + 15) / 16, 32 * kPersistentHidden);
  }
  ring.Drain();
}

// --- The team -----------------------------------------------------------------------------------

template <int kTalkerHidden, int kStreams>
class Block {
 public:
  using Shared = SharedMemory<kTalkerHidden, kStreams>;

  __device__ Block(const FrameKernelArguments& arguments, Shared* shared, const char* memory)
      : a(arguments),
        shared_(shared),
        patience_(arguments.patience, &shared->gave_up, arguments.report),
        warp_(static_cast<int>(threadIdx.x) / 32),
        lane_(static_cast<int>(threadIdx.x) % 32),
        ring_(&shared->ring, memory, arguments.ring_slots, lane_),
        epoch_(*arguments.frame.frame % arguments.epoch_frames * arguments.epochs_per_frame) {}

  __device__ __forceinline__ void Run() {
    constexpr bool kPaired = Paired(kStreams);
    constexpr bool kSameWidth = kTalkerHidden == kPersistentHidden;
    // The last blocks choose: the first have parts of the attention.
    const int choosing = kBlocks - 1 - static_cast<int>(blockIdx.x);
    bool alive = true;
    int pass = kTalkerPass;
    BeginPass<kStreams>(pass);
#pragma unroll 1
    for (;;) {
      const bool talker = pass == kTalkerPass;
      const PersistentStack& s = shared_->stacks[talker ? 0 : 1];
      if (pass == (kPaired ? 0 : kHiddenPass)) {
        AwaitIds();
        if (__all_sync(~0U, id_ < 0)) {
          if (threadIdx.x == 0) *static_cast<volatile unsigned*>(&shared_->stop) = 1;
          return;
        }
      }
      if (kPaired && pass == 0) {
        RunLayers<kPersistentHidden, MostRows(kStreams)>(s, pass);
      } else if (!kSameWidth && talker) {
        RunLayers<kTalkerHidden, kStreams>(s, pass);
      } else {
        RunLayers<kPersistentHidden, kStreams>(s, pass);
      }
      if (pass == kHiddenPass) {
        // Nobody may run ahead of those that still read.
        StageQuads<kPersistentHidden, kStreams>(s.x, kPersistentHidden / 4);
        pass = 0;
        BeginPass<kStreams>(pass);
        continue;
      }
      const int rows_apart = kPaired && pass == 0 ? 2 : 1;
      // While the last words of the pass are on their way.
      const int next = !talker ? pass + 1 : kPaired ? 0 : kHiddenPass;
      if (kPaired && talker) {
        BeginPass<MostRows(kStreams)>(next);
      } else {
        BeginPass<kStreams>(next);
      }
      if (!kSameWidth && talker) {
        Head<kTalkerHidden>(s, pass, rows_apart);
      } else {
        Head<kPersistentHidden>(s, pass, rows_apart);
      }
      const int group = talker ? 0 : pass + 1;
      if (choosing < kStreams) alive = ChooseCode(choosing, group, alive);
      if (group + 1 == a.groups) return;
      pass = next;
      id_epoch_ = ++epoch_;
    }
  }

 private:
  // --- Passes and layers ---

  // Sequences, positions and angles of a pass's rows.
  template <int kRows>
  __device__ __forceinline__ void BeginPass(int pass) {
    constexpr int kPerSequence = kRows > kStreams ? kRows / kStreams : 1;
    const bool talker = pass == kTalkerPass;
    const PersistentStack& s = shared_->stacks[talker ? 0 : 1];
    Team::Sync();
    if (static_cast<int>(threadIdx.x) < kRows) {
      const int r = static_cast<int>(threadIdx.x);
      shared_->sequences[r] = talker ? shared_->slots[r] : r / kPerSequence;
      shared_->positions[r] = talker ? a.frame.positions[r] : kPerSequence == 2 ? r % 2 : pass + 1;
    }
    Team::Sync();
    // The predictor's cache is read by the block that has written it, in earlier passes, which is why query heads do
    // not share their keys in it; the talker's was written in earlier frames.
    constexpr int kSequences = kRows / kPerSequence;
    int splits = 1;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (shared_->sequences[r] >= 0) splits = max(splits, UsedSplits(s, shared_->positions[r]));
    }
    const int all = splits * kSequences * kHeads;
    if (threadIdx.x < kPersistentItems) {
      const int i = static_cast<int>(threadIdx.x);
      const int k = i % kPerSequence;
      const int index = TileAt(i / kPerSequence);
      if (index < all) {
        AttentionItem item;
        item.head = index % kHeads;
        item.row = index / kHeads % kSequences * kPerSequence + k;
        item.split_index = index / kHeads / kSequences;
        item.new_rows = talker ? 1 : k + 1;
        item.position = shared_->positions[item.row];
        item.used_splits = UsedSplits(s, item.position);
        item.split = FirstSplit(s, item.position) + item.split_index;
        const int sequence = shared_->sequences[item.row];
        item.split_start = nullptr;
        if (sequence < 0) {
          item.used_splits = 1;
        } else if (item.split_index < item.used_splits) {
          const int first = item.split * kSplitPositions;
          const int cache_head = talker ? item.head / kGroup : item.head;
          item.split_start =
              static_cast<__nv_bfloat16*>(
                  s.pages[static_cast<int64_t>(sequence) * s.pages_per_sequence + first / s.page_positions]) +
              (cache_head * 2 * s.page_positions + first % s.page_positions) * kHeadDim;
        }
        shared_->items[i] = item;
      }
    }
    if (threadIdx.x == 0) {
      shared_->splits = splits;
      shared_->num_items = min(kPersistentItems, Mine(all) * kPerSequence);
    }
    const float* const frequencies = s.inverse_frequencies;
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < kRows * kHalf; i += kTeamThreads) {
      sincosf(static_cast<float>(shared_->positions[i / kHalf]) * frequencies[i % kHalf],
              &shared_->sine[i / kHalf][i % kHalf], &shared_->cosine[i / kHalf][i % kHalf]);
    }
    Team::Sync();
  }

  template <int kHidden, int kRows>
  __device__ __forceinline__ void RunLayers(const PersistentStack& s, int pass) {
    constexpr int kIntermediate = PersistentIntermediate(kHidden);
    constexpr int kOwnTiles = kHidden / 8 / kBlocks;
#pragma unroll 1
    for (int i = 0; i < s.num_layers; ++i) {
      const PersistentLayer& layer = shared_->layers[s.first_layer + i];
      PrefetchCache(s, i);
      {
        constexpr int kTiles = kQkvWidth / 16 / kBlocks;
        Multiply<kHidden, 2, kTiles, kRows>([&] {
          if (i == 0) {
            StageInput<kHidden, kRows>(s, layer.input_norm, pass);
          } else {
            StageQuads<kHidden, kRows>(s.x, kHidden / 4);
          }
        });
        ++epoch_;
        FinishRows<16, kTiles, kRows>([&](int tile, int row, int m, bool valid, const float* partial) {
          const int output = TileAt(tile) * 16 + m;
          float value = gemm::Total(partial + m, kRows * 16, Factor<kHidden>(s, row));
          if (layer.qkv_bias != nullptr) value = __fadd_rn(value, layer.qkv_bias[output]);
          if (valid) Publish(s.qkv + row * kQkvWidth + output, __float_as_uint(value), epoch_);
        });
      }
      // Now that others can go on.
      if (i == 0) TakeOwn<kHidden, kRows>(pass);
      Attend<kRows>(s, layer, i);

      // What the finishing threads need of the next norms is there before the words are.
      const float post_norm = OwnNorm<kHidden, kRows>(layer.post_norm);
      Multiply<kQueryWidth, 1, kOwnTiles, kRows>([&] { StagePairs<kQueryWidth, kRows>(s.attended); });
      ++epoch_;
      AddToOwn<kHidden, kRows>(layer.o_bias, post_norm, s.x_middle);

      {
        constexpr int kTiles = kIntermediate / 8 / kBlocks;
        Multiply<kHidden, 2, kTiles, kRows>([&] { StageQuads<kHidden, kRows>(s.x_middle, kHidden / 4); });
        ++epoch_;
        FinishRows<8, kTiles, kRows>([&](int tile, int row, int m, bool valid, const float* partial) {
          const float factor = Factor<kHidden>(s, row);
          const float gate = gemm::Total(partial + m, kRows * 16, factor);
          const float value = Silu<__nv_bfloat16>(gate) * gemm::Total(partial + m + 8, kRows * 16, factor);
          const float next = __shfl_down_sync(~0U, value, 1);
          if (valid && m % 2 == 0) {
            Publish(s.inner + row * (kIntermediate / 2) + TileAt(tile) * 4 + m / 2, PackBf16(value, next), epoch_);
          }
        });
      }

      const bool last = i + 1 == s.num_layers;
      const float next_norm =
          OwnNorm<kHidden, kRows>(last ? s.norm : shared_->layers[s.first_layer + i + 1].input_norm);
      Multiply<kIntermediate, 1, kOwnTiles, kRows>([&] { StagePairs<kIntermediate, kRows>(s.inner); });
      ++epoch_;
      AddToOwn<kHidden, kRows>(nullptr, next_norm, s.x);
    }
  }

  // --- Activations ---

  template <int kColumns, int kRows>
  __device__ __forceinline__ __nv_bfloat16* Stage() const {
    return shared_->work.products.stage + warp_ * kRows * StageStride(kColumns);
  }

  // Notes the squares of a warp's span of 128 columns.
  __device__ __forceinline__ void TakeSquares(int row, int span, float lanes_squares) {
    const float square = WarpSum(lanes_squares);
    if (lane_ == 0) {
      float& sum = shared_->squares[squares_][warp_][row];
      sum = span == 0 ? square : __fadd_rn(sum, square);
    }
  }

  // Brings this warp's columns of a layer's input, and the squares.
  template <int kColumns, int kRows>
  __device__ __forceinline__ void StageQuads(const Quad* source, int row_stride) {
    constexpr int kSpans = ShareOf(kColumns) / 128;
    squares_ ^= 1;
    const Quad* const first = source + warp_ * (ShareOf(kColumns) / 4) + lane_;
    Quad seen[kRows][kSpans];
    patience_.Await([&] {
      bool there = true;
#pragma unroll
      for (int row = 0; row < kRows; ++row) {
#pragma unroll
        for (int span = 0; span < kSpans; ++span) seen[row][span] = LoadQuad(first + row * row_stride + span * 32);
      }
#pragma unroll
      for (int row = 0; row < kRows; ++row) {
#pragma unroll
        for (int span = 0; span < kSpans; ++span) there = there && seen[row][span].epoch == epoch_;
      }
      return there;
    });
    __nv_bfloat16* const stage = Stage<kColumns, kRows>() + lane_ * 4;
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
#pragma unroll
      for (int span = 0; span < kSpans; ++span) {
        const Quad& quad = seen[row][span];
        *reinterpret_cast<uint2*>(stage + row * StageStride(kColumns) + span * 128) = {quad.low, quad.high};
        TakeSquares(row, span, __uint_as_float(quad.squares));
      }
    }
    __syncwarp();
  }

  // Brings this warp's columns of rows of words of two BF16.
  template <int kColumns, int kRows>
  __device__ __forceinline__ void StagePairs(const Word* source) {
    constexpr int kLoads = ShareOf(kColumns) / 128;  // of four columns a lane
    const Word* const first = source + warp_ * (ShareOf(kColumns) / 2) + lane_ * 2;
    __nv_bfloat16* const stage = Stage<kColumns, kRows>() + lane_ * 4;
    uint4 seen[kRows][kLoads];
    patience_.Await([&] {
      bool there = true;
#pragma unroll
      for (int row = 0; row < kRows; ++row) {
#pragma unroll
        for (int k = 0; k < kLoads; ++k) seen[row][k] = LoadTwoWords(first + row * (kColumns / 2) + k * 64);
      }
#pragma unroll
      for (int row = 0; row < kRows; ++row) {
#pragma unroll
        for (int k = 0; k < kLoads; ++k) there = there && seen[row][k].y == epoch_ && seen[row][k].w == epoch_;
      }
      return there;
    });
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
#pragma unroll
      for (int k = 0; k < kLoads; ++k) {
        *reinterpret_cast<uint2*>(stage + row * StageStride(kColumns) + k * 128) = {seen[row][k].x, seen[row][k].z};
      }
    }
    __syncwarp();
  }

  // Columns [column, column + 4) of a row of the pass's input: the talker's, its hidden state, or a code's embedding.
  template <int kHidden, int kRows>
  __device__ __forceinline__ float4 InputAt(int pass, int row, int column) const {
    constexpr int kPerSequence = kRows > kStreams ? kRows / kStreams : 1;
    if (pass == kTalkerPass) {
      if (shared_->sequences[row] < 0) return {};
      const uint4 x = Fresh(reinterpret_cast<const uint4*>(a.x + row * kHidden + column));
      return {__uint_as_float(x.x), __uint_as_float(x.y), __uint_as_float(x.z), __uint_as_float(x.w)};
    }
    const int stream = row / kPerSequence;
    if (pass == kHiddenPass || (kPerSequence == 2 && row % 2 == 0)) {
      const Word* const words = a.input + stream * kPersistentHidden + column;
      uint4 low = LoadTwoWords(words);
      uint4 high = LoadTwoWords(words + 2);
      const uint2 first = Await(low, words, input_epoch_, patience_);
      const uint2 second = Await(high, words + 2, input_epoch_, patience_);
      return {__uint_as_float(first.x), __uint_as_float(first.y), __uint_as_float(second.x), __uint_as_float(second.y)};
    }
    const int id = __shfl_sync(~0U, id_, stream);
    if (id < 0) return {};
    const PredictorPass& p = shared_->passes[pass];
    const auto* const embedding =
        reinterpret_cast<const __nv_bfloat16*>(p.table) + static_cast<int64_t>(id) * p.table_stride;
    const uint2 four = __ldg(reinterpret_cast<const uint2*>(embedding + column));
    return {LowBf16(four.x), HighBf16(four.x), LowBf16(four.y), HighBf16(four.y)};
  }

  // The ids that a pass begins with; of all rows, by each warp for itself.
  __device__ __forceinline__ void AwaitIds() {
    id_ = -1;
    if (lane_ < kStreams) {
      const Word* const word = a.ids + lane_;
      id_ = static_cast<int>(Await(LoadWord(word), word, id_epoch_, patience_));
    }
    __syncwarp();
  }

  // StageQuads() for a pass's input.
  template <int kHidden, int kRows>
  __device__ __forceinline__ void StageInput(const PersistentStack& s, const float* norm, int pass) {
    constexpr int kSpans = ShareOf(kHidden) / 128;
    squares_ ^= 1;
    if (pass != kTalkerPass) AwaitIds();
    __nv_bfloat16* const stage = Stage<kHidden, kRows>() + lane_ * 4;
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
#pragma unroll
      for (int span = 0; span < kSpans; ++span) {
        const int column = warp_ * ShareOf(kHidden) + span * 128 + lane_ * 4;
        const float4 scale = __ldg(reinterpret_cast<const float4*>(norm + column));
        const float4 x = InputAt<kHidden, kRows>(pass, row, column);
        *reinterpret_cast<uint2*>(stage + row * StageStride(kHidden) + span * 128) = {
            PackBf16(x.x * scale.x, x.y * scale.y), PackBf16(x.z * scale.z, x.w * scale.w)};
        TakeSquares(row, span, gemm::SumOfSquares(x.x, x.y, x.z, x.w));
      }
    }
    __syncwarp();
  }

  // What this block's threads keep of a pass's input.
  template <int kHidden, int kRows>
  __device__ __forceinline__ void TakeOwn(int pass) {
    constexpr int kCount = kHidden / 8 / kBlocks * 8 * kRows;
    if (warp_ * 32 < kCount) {
      const int i = min(static_cast<int>(threadIdx.x), kCount - 1);
      const int column = TileAt(i / (8 * kRows)) * 8 + i % 8;
      // All lanes go through all rows together: ids are exchanged between them.
#pragma unroll
      for (int row = 0; row < kRows; ++row) {
        const float4 x = InputAt<kHidden, kRows>(pass, row, column & ~3);
        const float mine = column % 4 == 0 ? x.x : column % 4 == 1 ? x.y : column % 4 == 2 ? x.z : x.w;
        if (i / 8 % kRows == row) own_ = mine;
      }
    }
  }

  // --- Products ---

  // A warp's share of kTogether tiles (gemm.h) of kHalves * 8 outputs.
  template <int kColumns_, int kHalves_, int kTogether_>
  struct Weights {
    static constexpr int kColumns = kColumns_;
    static constexpr int kHalves = kHalves_;
    static constexpr int kTogether = kTogether_;
    static constexpr int kShare = ShareOf(kColumns) / kChunk;  // chunks of a warp
    uint4 chunks[kShare][kTogether][kHalves];
  };

  // Takes the ring's next tiles. Before a phase waits for its words: then these loads take none of its time.
  template <typename W>
  __device__ __forceinline__ void Load(W* w) {
    constexpr int kChunkBytes = 512 * W::kHalves;
    constexpr int kPieceChunks = kPieceBytes / kChunkBytes;
    constexpr int kTilePieces = W::kColumns / kChunk / kPieceChunks;
    constexpr bool kCrosses = kPieceChunks % W::kShare != 0;  // a warp's chunks can lie in two pieces
    const int begin = warp_ * W::kShare;
    const int first_piece = begin / kPieceChunks;
    // Chunks of the share that lie in the first piece.
    const int before = kCrosses ? (first_piece + 1) * kPieceChunks - begin : W::kShare;
    ring_.template Await<W::kTogether * kTilePieces>();
#pragma unroll
    for (int t = 0; t < W::kTogether; ++t) {
      const int piece = t * kTilePieces + first_piece;
      const char* const weights = ring_.Piece(piece) + (begin - first_piece * kPieceChunks) * kChunkBytes + lane_ * 16;
      const char* const crossed =
          kCrosses ? ring_.Piece(min(piece + 1, (t + 1) * kTilePieces - 1)) + lane_ * 16 - before * kChunkBytes
                   : nullptr;
#pragma unroll
      for (int c = 0; c < W::kShare; ++c) {
        const char* const at = (kCrosses && c >= before ? crossed : weights) + c * kChunkBytes;
#pragma unroll
        for (int h = 0; h < W::kHalves; ++h) w->chunks[c][t][h] = *reinterpret_cast<const uint4*>(at + 512 * h);
      }
    }
    // The loads must have come back before their places are given back: nothing else would hold up the next copies
    // into them, and the compiler waits for a load where its result is used. So all are used here.
    uint32_t bits = ~0U;
#pragma unroll
    for (int c = 0; c < W::kShare; ++c) {
#pragma unroll
      for (int t = 0; t < W::kTogether; ++t) {
#pragma unroll
        for (int h = 0; h < W::kHalves; ++h) bits &= w->chunks[c][t][h].x;
      }
    }
    if (bits == ~0U) *static_cast<volatile unsigned*>(&shared_->seen) = 1;
    ring_.template GiveBack<W::kTogether * kTilePieces>();
  }

  // Times the staged rows: this warp's sums over its columns to `partial`, [tile][warp][row][16], from tile `first` on.
  template <int kRows, typename W>
  __device__ __forceinline__ void Multiply(const W& w, int first) {
    const int group = lane_ / 4;
    const int quad = lane_ % 4;
    const __nv_bfloat16* const stage = Stage<W::kColumns, kRows>() + group * StageStride(W::kColumns) + quad * 8;
    float sums[W::kTogether][4] = {};
#pragma unroll
    for (int c = 0; c < W::kShare; ++c) {
      const uint4 b = group < kRows ? *reinterpret_cast<const uint4*>(stage + c * kChunk) : uint4{};
#pragma unroll
      for (int t = 0; t < W::kTogether; ++t) {
        const uint4& low = w.chunks[c][t][0];
        const uint4 high = W::kHalves == 2 ? w.chunks[c][t][W::kHalves - 1] : uint4{};
        Mma(sums[t], low.x, high.x, low.y, high.y, b.x, b.y);
      }
#pragma unroll
      for (int t = 0; t < W::kTogether; ++t) {
        const uint4& low = w.chunks[c][t][0];
        const uint4 high = W::kHalves == 2 ? w.chunks[c][t][W::kHalves - 1] : uint4{};
        Mma(sums[t], low.z, high.z, low.w, high.w, b.z, b.w);
      }
    }
#pragma unroll
    for (int t = 0; t < W::kTogether; ++t) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int row = 2 * quad + i;
        if (row >= kRows) continue;
        float* const out =
            shared_->work.products.partial[partial_] + (((first + t) * kWarps + warp_) * kRows + row) * 16 + group;
        out[0] = sums[t][i];
        if (W::kHalves == 2) out[8] = sums[t][2 + i];
      }
    }
  }

  // A product of kTiles tiles with rows that stage() brings; as many tiles as there are registers for are taken
  // before.
  template <int kColumns, int kHalves, int kTiles, int kRows, typename StageRows>
  __device__ __forceinline__ void Multiply(const StageRows& stage) {
    constexpr int kTileBytes = kColumns * 8 * kHalves * 2;
    constexpr int kTogether = kTiles * kTileBytes <= kTogetherBytes ? kTiles : 1;
    Weights<kColumns, kHalves, kTogether> w;
    Load(&w);
    stage();
    Multiply<kRows>(w, 0);
#pragma unroll 1
    for (int first = kTogether; first < kTiles; first += kTogether) {
      Load(&w);
      Multiply<kRows>(w, first);
    }
  }

  // finish(tile, row, m, valid, partial) for kOutputs outputs m of each tile and row, by whole warps, neighbours in m
  // side by side; `partial` are the first warp's sums.
  template <int kOutputs, int kTiles, int kRows, typename Finish>
  __device__ __forceinline__ void FinishRows(const Finish& finish) {
    constexpr int kCount = kTiles * kRows * kOutputs;
    static_assert(kCount <= kTeamThreads, "an output for each thread");
    Team::Sync();
    if (warp_ * 32 < kCount) {
      const int i = min(static_cast<int>(threadIdx.x), kCount - 1);
      const int row = i / kOutputs % kRows;
      const int tile = i / (kOutputs * kRows);
      finish(tile, row, i % kOutputs, static_cast<int>(threadIdx.x) < kCount,
             shared_->work.products.partial[partial_] + (tile * kWarps * kRows + row) * 16);
    }
    // The other half is for the next; nobody reads it any more.
    partial_ ^= 1;
  }

  // 1 / rms of a staged row.
  template <int kColumns>
  __device__ __forceinline__ float Factor(const PersistentStack& s, int row) const {
    return gemm::NormFactor(&shared_->squares[squares_][0][row], kMostRows, kColumns, s.eps);
  }

  // The norm's weight of the column of the residual stream that this thread keeps.
  template <int kHidden, int kRows>
  __device__ __forceinline__ float OwnNorm(const float* norm) const {
    constexpr int kCount = kHidden / 8 / kBlocks * 8 * kRows;
    const int i = static_cast<int>(threadIdx.x);
    return i < kCount ? __ldg(norm + TileAt(i / (8 * kRows)) * 8 + i % 8) : 0;
  }

  // Adds a product's outputs to this block's columns of the residual stream, which stay with their threads from pass
  // begin to pass end, and publishes them.
  template <int kHidden, int kRows>
  __device__ __forceinline__ void AddToOwn(const float* bias, float norm, Quad* target) {
    FinishRows<8, kHidden / 8 / kBlocks, kRows>([&](int tile, int row, int m, bool valid, const float* partial) {
      const int column = TileAt(tile) * 8 + m;
      float value = gemm::Total(partial + m, kRows * 16, 1);
      if (bias != nullptr) value = __fadd_rn(value, bias[column]);
      value = __fadd_rn(own_, value);
      own_ = value;
      const float normed = value * norm;
      const float x1 = __shfl_down_sync(~0U, value, 1), n1 = __shfl_down_sync(~0U, normed, 1);
      const float x2 = __shfl_down_sync(~0U, value, 2), n2 = __shfl_down_sync(~0U, normed, 2);
      const float x3 = __shfl_down_sync(~0U, value, 3), n3 = __shfl_down_sync(~0U, normed, 3);
      if (valid && m % 4 == 0) {
        Publish(
            target + row * (kHidden / 4) + column / 4,
            {PackBf16(normed, n1), PackBf16(n2, n3), __float_as_uint(gemm::SumOfSquares(value, x1, x2, x3)), epoch_});
      }
    });
  }

  // The logits, and after the talker what the predictor takes of its hidden state. A row's quads lie `apart` rows of
  // the pass apart, the last of them counts.
  template <int kHidden>
  __device__ __forceinline__ void Head(const PersistentStack& s, int pass, int apart) {
    const bool talker = pass == kTalkerPass;
    const int vocab = talker ? a.talker_vocab : a.predictor_vocab;
    float* const kept =
        talker ? a.talker_logits : a.predictor_logits + static_cast<int64_t>(pass) * kMaxRows * a.predictor_vocab;
    bool staged = false;
    const auto stage = [&] {
      if (!staged) StageQuads<kHidden, kStreams>(s.x + (apart - 1) * (kHidden / 4), apart * (kHidden / 4));
      staged = true;
    };
    const uint32_t logits_epoch = epoch_ + 1;
#pragma unroll 1
    for (int tile = static_cast<int>(blockIdx.x); tile * 16 < vocab; tile += kBlocks) {
      Multiply<kHidden, 2, 1, kStreams>(stage);
      FinishRows<16, 1, kStreams>([&](int, int row, int m, bool valid, const float* partial) {
        const int output = tile * 16 + m;
        const float value = gemm::Total(partial + m, kStreams * 16, Factor<kHidden>(s, row));
        if (valid && output < vocab) {
          Publish(a.logits + row * kPersistentVocab + output, __float_as_uint(value), logits_epoch);
          kept[row * vocab + output] = value;
        }
      });
    }
    if (!staged) {
      stage();
      // Warps' parts of the stage lie elsewhere in the next phase.
      Team::Sync();
    }
    epoch_ = logits_epoch;
    if (!talker) return;
    ++epoch_;
    input_epoch_ = epoch_;
    if (kTalkerHidden != kPersistentHidden) {
      if (blockIdx.x * 16 >= kPersistentHidden) return;
      Multiply<kHidden, 2, 1, kStreams>([] {});
      FinishRows<16, 1, kStreams>([&](int, int row, int m, bool valid, const float* partial) {
        const int output = static_cast<int>(blockIdx.x) * 16 + m;
        float value = gemm::Total(partial + m, kStreams * 16, Factor<kHidden>(s, row));
        if (a.projection_bias != nullptr) value = __fadd_rn(value, a.projection_bias[output]);
        if (valid) Publish(a.input + row * kPersistentHidden + output, __float_as_uint(value), epoch_);
      });
    } else {
      // The hidden state itself; the squares are the head's.
      Team::Sync();
      constexpr int kCount = kHidden / 8 / kBlocks * 8 * kStreams;
      const int i = static_cast<int>(threadIdx.x);
      if (i < kCount) {
        const int column = TileAt(i / (8 * kStreams)) * 8 + i % 8;
        const int row = i / 8 % kStreams;
        const float value = own_ * Factor<kHidden>(s, row) * s.norm[column];
        Publish(a.input + row * kPersistentHidden + column, __float_as_uint(value), epoch_);
      }
    }
  }

  // --- Attention ---

  __device__ static __forceinline__ int FirstSplit(const PersistentStack& s, int position) {
    return (s.window > 0 ? max(0, position + 1 - s.window) : 0) / kSplitPositions;
  }
  __device__ static __forceinline__ int UsedSplits(const PersistentStack& s, int position) {
    return position / kSplitPositions - FirstSplit(s, position) + 1;
  }
  // Elements between a head's keys in one layer and the next.
  __device__ static __forceinline__ int64_t LayerStride(const PersistentStack& s) {
    return static_cast<int64_t>(s.cache_heads) * 2 * s.page_positions * kHeadDim;
  }

  // From qkv, of the current epoch, to `attended`. Takes two epochs.
  template <int kRows>
  __device__ __forceinline__ void Attend(const PersistentStack& s, const PersistentLayer& layer, int layer_index) {
    const uint32_t qkv_epoch = epoch_;
    epoch_ += 2;
#pragma unroll 1
    for (int i = 0; i < shared_->num_items; ++i) {
      const AttentionItem& item = shared_->items[i];
      if (item.split_index >= item.used_splits) continue;
      if (item.split_start == nullptr) {
        PublishSilence(s, item.row, item.head);
      } else if (item.position - item.split * kSplitPositions < kTurn) {
        AttendSplit<1>(s, layer, layer_index, item, qkv_epoch);
      } else {
        AttendSplit<kSplitPositions / kTurn>(s, layer, layer_index, item, qkv_epoch);
      }
    }
    if (shared_->splits == 1) return;
    Team::Sync();
    constexpr int kPerHead = kHeadDim / kCombined;
#pragma unroll 1
    for (int unit = static_cast<int>(blockIdx.x); unit < kRows * kHeads * kPerHead; unit += kBlocks) {
      const int row = unit / (kPerHead * kHeads);
      if (shared_->sequences[row] < 0) continue;
      const int used = UsedSplits(s, shared_->positions[row]);
      if (used > 1) CombineSplits(s, row, unit / kPerHead % kHeads, unit % kPerHead * kCombined, used);
    }
  }

  // Asks for the keys and values of this block's first items, that are to be in the L2 cache when queries come.
  __device__ __forceinline__ void PrefetchCache(const PersistentStack& s, int layer) {
    constexpr int kLine = 64;  // elements
#pragma unroll 1
    for (int i = 0; i < min(shared_->num_items, 8); ++i) {
      const AttentionItem& item = shared_->items[i];
      if (item.split_start == nullptr) continue;
      const int line = static_cast<int>(threadIdx.x) % 128;
      if (item.split * kSplitPositions + line / 2 > item.position) continue;
      const int side = static_cast<int>(threadIdx.x) / 128;  // keys, values
      const __nv_bfloat16* const p =
          item.split_start + layer * LayerStride(s) + side * s.page_positions * kHeadDim + line * kLine;
      asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
    }
  }

  // For a row that is left out.
  __device__ __forceinline__ void PublishSilence(const PersistentStack& s, int row, int head) {
    if (static_cast<int>(threadIdx.x) < kHalf) {
      Publish(s.attended + row * (kQueryWidth / 2) + head * kHalf + threadIdx.x, 0, epoch_);
    }
  }

  // attention.cu's AttendKernel for two query heads, one key head and one split, whose first kTurns * kTurn positions
  // are all that is there.
  static constexpr int kLanes = kHeadDim / 8;
  static constexpr int kTurn = kWarps * (32 / kLanes);
  template <int kTurns>
  __device__ __forceinline__ void AttendSplit(const PersistentStack& s, const PersistentLayer& layer, int layer_index,
                                              const AttentionItem& item, uint32_t qkv_epoch) {
    AttentionMemory& m = shared_->work.products.attention;
    const int part = lane_ % kLanes;
    const int row = item.row;
    const int head = item.head;
    const int used_splits = item.used_splits;
    // Positions from the split's first on.
    const int first = item.split * kSplitPositions;
    const int position = item.position - first;
    const int cached = position + 1 - item.new_rows;
    const int begin = s.window > 0 ? max(0, item.position + 1 - s.window - first) : 0;
    const int end = min(position + 1, kSplitPositions);
    __nv_bfloat16* const keys_at = item.split_start + layer_index * LayerStride(s);
    const int value_offset = s.page_positions * kHeadDim;
    const int mine = warp_ * (32 / kLanes) + lane_ / kLanes;
    uint4 keys[kTurns] = {}, values[kTurns] = {};
#pragma unroll
    for (int t = 0; t < kTurns; ++t) {
      const int p = t * kTurn + mine;
      if (p >= begin && p < end && p < cached) {
        const __nv_bfloat16* const key = keys_at + p * kHeadDim + part * 8;
        keys[t] = Fresh(reinterpret_cast<const uint4*>(key));
        values[t] = Fresh(reinterpret_cast<const uint4*>(key + value_offset));
      }
    }
    const bool has_new = position < end;
    const bool writes = has_new && (s.cache_heads == kHeads || head % kGroup == 0);
    PlaceHeads(s, layer, row, head, has_new ? item.new_rows : 0, qkv_epoch, &m,
               writes ? keys_at + position * kHeadDim : nullptr, value_offset);
    Team::Sync();

    float query[8];
#pragma unroll
    for (int e = 0; e < 8; ++e) query[e] = m.q[part * 8 + e];
    const float scale = 1.0F / sqrtf(static_cast<float>(kHeadDim));
    const auto element = [](const uint4& u, int e) {
      const uint32_t word = e / 2 == 0 ? u.x : e / 2 == 1 ? u.y : e / 2 == 2 ? u.z : u.w;
      return e % 2 == 0 ? LowBf16(word) : HighBf16(word);
    };
    float scores[kTurns];
    float most = -INFINITY;
#pragma unroll
    for (int t = 0; t < kTurns; ++t) {
      const int p = t * kTurn + mine;
      const bool valid = p >= begin && p < end;
      const bool fresh = valid && p >= cached;
      float dot = 0;
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        dot += query[e] * (fresh ? m.new_keys[p - cached][part * 8 + e] : element(keys[t], e));
      }
#pragma unroll
      for (int offset = kLanes / 2; offset > 0; offset /= 2) dot += __shfl_xor_sync(~0U, dot, offset);
      scores[t] = valid ? dot * scale : -INFINITY;
      most = fmaxf(most, scores[t]);
    }
    float sum = 0, y[8] = {};
#pragma unroll
    for (int t = 0; t < kTurns; ++t) {
      const int p = t * kTurn + mine;
      const bool valid = p >= begin && p < end;
      const bool fresh = valid && p >= cached;
      const float weight = valid ? Exponential<__nv_bfloat16>(scores[t] - most) : 0;
      sum += weight;
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        y[e] += weight * (fresh ? m.new_values[p - cached][part * 8 + e] : element(values[t], e));
      }
    }
#pragma unroll
    for (int offset = kLanes; offset < 32; offset *= 2) {
      const float other = __shfl_xor_sync(~0U, most, offset);
      const float largest = fmaxf(most, other);
      const float factor = most == -INFINITY ? 0 : Exponential<__nv_bfloat16>(most - largest);
      const float other_factor = other == -INFINITY ? 0 : Exponential<__nv_bfloat16>(other - largest);
      most = largest;
      sum = sum * factor + __shfl_xor_sync(~0U, sum, offset) * other_factor;
#pragma unroll
      for (int e = 0; e < 8; ++e) y[e] = y[e] * factor + __shfl_xor_sync(~0U, y[e], offset) * other_factor;
    }
    if (lane_ < kLanes) {
#pragma unroll
      for (int e = 0; e < 8; ++e) m.warp_y[warp_][part * 8 + e] = y[e];
      if (part == 0) {
        m.warp_max[warp_] = most;
        m.warp_sum[warp_] = sum;
      }
    }
    Team::Sync();

    if (static_cast<int>(threadIdx.x) >= kHeadDim) return;
    const int d = static_cast<int>(threadIdx.x);
    float largest = -INFINITY;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) largest = fmaxf(largest, m.warp_max[w]);
    float total = 0, value = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      const float factor = m.warp_max[w] == -INFINITY ? 0 : Exponential<__nv_bfloat16>(m.warp_max[w] - largest);
      total += factor * m.warp_sum[w];
      value += factor * m.warp_y[w][d];
    }
    if (used_splits == 1) {
      const float result = value / total;
      const float next = __shfl_down_sync(~0U, result, 1);
      if (d % 2 == 0) {
        Publish(s.attended + row * (kQueryWidth / 2) + (head * kHeadDim + d) / 2, PackBf16(result, next), epoch_);
      }
      return;
    }
    Word* const record = Record(s, row, head, item.split_index);
    Publish(record + 2 + d, __float_as_uint(value), epoch_ - 1);
    if (d == 0) {
      Publish(record, __float_as_uint(total), epoch_ - 1);
      Publish(record + 1, __float_as_uint(largest), epoch_ - 1);
    }
  }

  __device__ __forceinline__ Word* Record(const PersistentStack& s, int row, int head, int split) const {
    return s.records + ((static_cast<int64_t>(row) * kHeads + head) * kPersistentSplits + split) * kRecordWords;
  }

  // A row's query, keys and values of the new rows up to it, to shared memory; its own key and value to the cache,
  // at `target` (if any) and value_offset on.
  __device__ __forceinline__ void PlaceHeads(const PersistentStack& s, const PersistentLayer& layer, int row, int head,
                                             int new_rows, uint32_t qkv_epoch, AttentionMemory* m,
                                             __nv_bfloat16* target, int value_offset) {
    if (warp_ >= 1 + 2 * new_rows) return;
    const bool is_query = warp_ == 0;
    const bool is_value = warp_ >= 1 + new_rows;
    const int j = is_query ? 0 : is_value ? warp_ - 1 - new_rows : warp_ - 1;
    const int back = is_query ? 0 : new_rows - 1 - j;
    const int source = is_query ? head : kHeads + (is_value ? kKvHeads : 0) + head / kGroup;
    const Word* const words = s.qkv + (row - back) * kQkvWidth + source * kHeadDim + lane_;
    const float* const norm = is_query ? layer.q_norm : layer.k_norm;
    const bool stored = back == 0 && target != nullptr;
    float low_norm[2] = {1, 1}, high_norm[2] = {1, 1}, sine[2], cosine[2];
#pragma unroll
    for (int p = 0; p < 2; ++p) {
      const int i = lane_ + 32 * p;
      if (norm != nullptr) {
        low_norm[p] = __ldg(norm + i);
        high_norm[p] = __ldg(norm + kHalf + i);
      }
      sine[p] = shared_->sine[row - back][i];
      cosine[p] = shared_->cosine[row - back][i];
    }
    uint2 seen[4];
    patience_.Await([&] {
      bool there = true;
#pragma unroll
      for (int p = 0; p < 4; ++p) seen[p] = LoadWord(words + 32 * (p / 2) + kHalf * (p % 2));
#pragma unroll
      for (int p = 0; p < 4; ++p) there = there && seen[p].y == qkv_epoch;
      return there;
    });
    __syncwarp();
    const float low[2] = {__uint_as_float(seen[0].x), __uint_as_float(seen[2].x)};
    const float high[2] = {__uint_as_float(seen[1].x), __uint_as_float(seen[3].x)};
    if (is_value) {
#pragma unroll
      for (int p = 0; p < 4; ++p) {
        const int i = lane_ + 32 * (p / 2) + kHalf * (p % 2);
        const __nv_bfloat16 rounded = FromFloat<__nv_bfloat16>(p % 2 == 0 ? low[p / 2] : high[p / 2]);
        m->new_values[j][i] = ToFloat(rounded);
        if (stored) target[value_offset + i] = rounded;
      }
      return;
    }
    NormAndRotate(low, high, norm != nullptr, low_norm, high_norm, s.eps, sine, cosine, kHalf, lane_,
                  [&](int i, float value) {
                    if (is_query) {
                      m->q[i] = value;
                      return;
                    }
                    const __nv_bfloat16 rounded = FromFloat<__nv_bfloat16>(value);
                    m->new_keys[j][i] = ToFloat(rounded);
                    if (stored) target[i] = rounded;
                  });
  }

  // Elements [first, first + kCombined) of a head from the records of all splits, in their order.
  __device__ __forceinline__ void CombineSplits(const PersistentStack& s, int row, int head, int first, int splits) {
    CombineMemory& m = shared_->work.products.combine;
    const Word* const records = Record(s, row, head, 0);
    const uint32_t epoch = epoch_ - 1;
    // By the other half of the threads than those that begin with the values: nobody waits twice.
#pragma unroll 1
    for (int i = (static_cast<int>(threadIdx.x) + kTeamThreads / 2) % kTeamThreads; i < splits * 2; i += kTeamThreads) {
      const Word* const word = records + i / 2 * kRecordWords + i % 2;
      const float value = __uint_as_float(Await(LoadWord(word), word, epoch, patience_));
      (i % 2 == 0 ? m.sums : m.maxima)[i / 2] = value;
    }
    constexpr int kLoads = kCombined / 2;
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < splits * kLoads; i += kTeamThreads) {
      const Word* const words = records + i / kLoads * kRecordWords + 2 + first + i % kLoads * 2;
      const uint2 two = Await(LoadTwoWords(words), words, epoch, patience_);
      m.values[i / kLoads][i % kLoads * 2] = __uint_as_float(two.x);
      m.values[i / kLoads][i % kLoads * 2 + 1] = __uint_as_float(two.y);
    }
    Team::Sync();
    for (int i = static_cast<int>(threadIdx.x); i < splits; i += kTeamThreads) {
      float largest = -INFINITY;
#pragma unroll 8
      for (int k = 0; k < splits; ++k) largest = fmaxf(largest, m.maxima[k]);
      m.factors[i] = Exponential<__nv_bfloat16>(m.maxima[i] - largest);
    }
    Team::Sync();
    if (warp_ == 0) {
      const int d = lane_ % kCombined;
      float total = 0, value = 0;
#pragma unroll 8
      for (int k = 0; k < splits; ++k) {
        const float factor = m.factors[k];
        total += factor * m.sums[k];
        value += factor * m.values[k][d];
      }
      const float result = value / total;
      const float next = __shfl_down_sync(~0U, result, 1);
      if (lane_ < kCombined && d % 2 == 0) {
        Publish(s.attended + row * (kQueryWidth / 2) + (head * kHeadDim + first + d) / 2, PackBf16(result, next),
                epoch_);
      }
    }
    Team::Sync();
  }

  // --- Choices ---

  // Chooses a row's code of `group`, from logits of this epoch (the talker's: the one before), and publishes it as of
  // the next. Whether the row goes on. Also for a row that has nothing to say, so that nobody overtakes the readers.
  __device__ __forceinline__ bool ChooseCode(int row, int group, bool alive) {
    const bool talker = group == 0;
    const uint32_t logits_epoch = talker ? epoch_ - 1 : epoch_;
    const int vocab = talker ? a.talker_vocab : a.predictor_vocab;
    const int slot = shared_->slots[row];
    const bool speaks = slot >= 0 && alive;
    SlotState& state = a.slots[max(slot, 0)];
    unsigned* const history = a.history + static_cast<int64_t>(max(slot, 0)) * a.history_words;
    const int chosen = state.chosen;
    const SamplingRules rules = talker ? state.talker : state.predictor;
    const uint64_t seed = state.seed;
    const int64_t max_new_tokens = state.max_new_tokens;
    const float penalty = state.repetition_penalty;
    unsigned repeated = 0;  // of the pairs of ids that this thread brings in, which were chosen before
    if (speaks && talker) {
#pragma unroll
      for (int j = 0; j < kPersistentVocab / (2 * kTeamThreads); ++j) {
        const int i = 2 * (static_cast<int>(threadIdx.x) + j * kTeamThreads);
        if (i < vocab) repeated |= (history[i / 32] >> (i % 32) & 3U) << (2 * j);
      }
    }
    float* const logits = shared_->work.choice.logits;
    // The products before this one are over for all warps.
    Team::Sync();
    constexpr int kTogether = 4;  // pairs of logits
#pragma unroll 1
    for (int base = 2 * static_cast<int>(threadIdx.x); base < vocab; base += 2 * kTogether * kTeamThreads) {
      const Word* const words = a.logits + row * kPersistentVocab + base;
      uint4 seen[kTogether];
#pragma unroll
      for (int j = 0; j < kTogether; ++j) {
        if (base + j * 2 * kTeamThreads < vocab) seen[j] = LoadTwoWords(words + j * 2 * kTeamThreads);
      }
#pragma unroll
      for (int j = 0; j < kTogether; ++j) {
        const int i = base + j * 2 * kTeamThreads;
        if (i >= vocab) break;
        const uint2 pair = Await(seen[j], words + j * 2 * kTeamThreads, logits_epoch, patience_);
        *reinterpret_cast<float2*>(logits + i) = {__uint_as_float(pair.x), __uint_as_float(pair.y)};
      }
    }
    int id = -1;
    bool goes_on = false;
    if (speaks) {
      if (talker) {
#pragma unroll 1
        for (int i = 2 * static_cast<int>(threadIdx.x); i < vocab; i += 2 * kTeamThreads) {
          logits[i] = TalkerLogit(logits[i], i, (repeated & 1U) != 0, penalty, vocab, a.eos_id, chosen);
          logits[i + 1] = TalkerLogit(logits[i + 1], i + 1, (repeated & 2U) != 0, penalty, vocab, a.eos_id, chosen);
          repeated >>= 2;
        }
      }
      // What may be chosen will be wanted from the L2 cache.
      const auto prefetch = [&](int candidate) {
        if (group + 1 >= a.groups) return;
        const PredictorPass& p = shared_->passes[group];
        const char* const embedding = p.table + static_cast<int64_t>(candidate) * p.table_stride * 2;
#pragma unroll 4
        for (int at = 0; at < kPersistentHidden * 2; at += 128) {
          asm volatile("prefetch.global.L2 [%0];" ::"l"(embedding + at));
        }
      };
      id = Choose<Team>(logits, vocab, rules, seed, talker ? chosen : chosen - 1, group, shared_->work.choice.list,
                        &shared_->choice, prefetch);
      const SlotEnd end = EndAfter(id, a.eos_id, chosen, max_new_tokens);
      goes_on = talker ? end == SlotEnd::kRunning : id >= 0;
      if (threadIdx.x == 0) Publish(a.ids + row, goes_on ? static_cast<uint32_t>(id) : ~0U, epoch_ + 1);
      Team::Sync();
      if (threadIdx.x == 0) {
        if (talker) {
          TakeTalkerId(id, end, row, a.groups, a.frame, history, &state);
        } else {
          TakePredictorId(id, group, row, a.groups, a.frame, &state);
        }
      }
    } else {
      if (threadIdx.x == 0) Publish(a.ids + row, ~0U, epoch_ + 1);
      // Others may not stage rows in the place of logits that are still coming in.
      Team::Sync();
    }
    return goes_on;
  }

  const FrameKernelArguments& a;
  Shared* shared_;
  Patience patience_;
  int warp_, lane_;
  RingReader ring_;
  uint32_t epoch_;
  uint32_t input_epoch_ = 0, id_epoch_ = 0;
  int id_ = -1;      // of stream `lane`: what it said last
  float own_ = 0;    // of the residual stream, see AddToOwn()
  int partial_ = 0;  // which half of the partial sums is in use
  int squares_ = 0;  // and of the squares
};

#endif  // __CUDA_ARCH_FEAT_SM90_ALL

// Empty but in code for compute capability 9.0 alone, the only one whose warps can hand each other registers.
template <int kTalkerHidden, int kStreams>
__global__ void __maxnreg__(kRegisters) FrameKernel(const __grid_constant__ FrameKernelArguments a) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(128) char memory[];
  auto& shared =
      *reinterpret_cast<SharedMemory<kTalkerHidden, kStreams>*>(memory + a.ring_slots * kPersistentPieceBytes);
  if (a.frame.live[0] == 0) return;
  const int layers = a.talker.num_layers + a.predictor.num_layers;
  for (int i = static_cast<int>(threadIdx.x); i < layers; i += kThreads) shared.layers[i] = a.layers[i];
  for (int i = static_cast<int>(threadIdx.x); i < a.groups - 1; i += kThreads) shared.passes[i] = a.passes[i];
  if (threadIdx.x < kStreams) shared.slots[threadIdx.x] = a.frame.slots[threadIdx.x];
  if (threadIdx.x == 0) {
    shared.stacks[0] = a.talker;
    shared.stacks[1] = a.predictor;
    shared.stop = 0;
    shared.gave_up = 0;
    InitializeRing(&shared.ring, a.ring_slots, kWarps);
  }
  __syncthreads();
  if (threadIdx.x >= kTeamThreads) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCopyRegisters));
    if (threadIdx.x == kTeamThreads) SendFrame(a, &shared, memory);
    return;
  }
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kTeamRegisters));
  Block<kTalkerHidden, kStreams>(a, &shared, memory).Run();
#endif
}

using Kernel = void (*)(FrameKernelArguments);

struct Variant {
  Kernel kernel;
  size_t (*bytes)(int ring_slots);
};
template <int kTalkerHidden>
Variant VariantOf(int rows) {
  if (rows == 1) return {FrameKernel<kTalkerHidden, 1>, SharedBytes<kTalkerHidden, 1>};
  if (rows == 2) return {FrameKernel<kTalkerHidden, 2>, SharedBytes<kTalkerHidden, 2>};
  return {FrameKernel<kTalkerHidden, 4>, SharedBytes<kTalkerHidden, 4>};
}
Variant VariantOf(int talker_hidden, int rows) {
  return talker_hidden == kPersistentHidden ? VariantOf<kPersistentHidden>(rows)
                                            : VariantOf<kPersistentWideHidden>(rows);
}

}  // namespace

size_t FrameKernelBytes(int talker_hidden, int rows, int ring_slots) {
  return VariantOf(talker_hidden, rows).bytes(ring_slots);
}

cudaError_t PrepareFrameKernel(int talker_hidden, int rows, int ring_slots, int* blocks_per_processor) {
  const Variant variant = VariantOf(talker_hidden, rows);
  const auto* const kernel = reinterpret_cast<const void*>(variant.kernel);
  const size_t bytes = variant.bytes(ring_slots);
  cudaFuncAttributes attributes = {};
  cudaError_t error = cudaFuncGetAttributes(&attributes, kernel);
  if (error != cudaSuccess) return error;
  // The driver made it from code for earlier ones.
  if (attributes.ptxVersion < 90) return cudaErrorNoKernelImageForDevice;
  error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
  if (error != cudaSuccess) return error;
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks_per_processor, kernel, kThreads, bytes);
}

cudaError_t LaunchFrameKernel(const FrameKernelArguments& arguments, int rows, cudaStream_t stream) {
  const Variant variant = VariantOf(arguments.talker_hidden, rows);
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(kBlocks);
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = variant.bytes(arguments.ring_slots);
  config.stream = stream;
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeCooperative;
  attribute.val.cooperative = 1;
  config.attrs = &attribute;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, variant.kernel, arguments);
}

}  // namespace qtts::cuda
