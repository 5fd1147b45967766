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
constexpr int kThreads = kTeamThreads + kWarpgroup;  // of the last warpgroup two bring weights
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
// Candidates listed in shared memory: of all that are usual. More are listed in memory.
constexpr int kFewCandidates = 1024;

// A team sees to the predictor's first two positions, hidden state and first code, in one pass where that makes no
// more than so many rows.
constexpr int kMostRows = 4;
constexpr bool Paired(int streams) { return 2 * streams <= kMostRows; }
constexpr int MostRows(int streams) { return Paired(streams) ? 2 * streams : streams; }

// Columns of a warp's share of a product, and elements between its staged rows: no bank conflicts.
constexpr int ShareOf(int columns) { return columns / kWarps; }
constexpr int StageStride(int columns) { return (ShareOf(columns) / kChunk | 1) * kChunk; }

// What this block attends to in all layers of a pass: of a row and a query head, or the query heads of a key head,
// every split_stride-th split from first_split on.
struct AttentionPart {
  int row;
  int head;          // the first of the query heads
  int new_rows;      // rows of this pass that the row sees, itself included
  int position;      // the row's
  int first_split;   // counted from position 0 on
  int first_record;  // the same split, counted from the first one that the row sees
  int split_stride;
  int splits;
  int row_splits;  // all that the row sees
  bool silent;     // zeros are to be published for a row that is left out
};

constexpr int kGroup = kPersistentHeads / kPersistentKvHeads;  // query heads of a key head
constexpr int kMergedSplits = 2;                               // whose warps' results are put together at once

struct AttentionMemory {
  // A split's, by warps.
  struct WarpResults {
    alignas(16) float y[kWarps][kHeadDim];
    alignas(16) float maxima[kWarps];
    alignas(16) float sums[kWarps];
  };
  alignas(16) float q[kGroup][kHeadDim];
  alignas(16) __nv_bfloat16 new_keys[kNewRows][kHeadDim];
  alignas(16) __nv_bfloat16 new_values[kNewRows][kHeadDim];
  WarpResults results[kMergedSplits * kGroup];
};

constexpr int kCombined = 16;  // elements of a row that a block puts together from splits
struct CombineMemory {
  float values[32][kCombined];
  float2 factors[32];  // and sums
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
    struct Rows {
      alignas(16) __nv_bfloat16 stage[kStageElements];
      CombineMemory combine[kStreams];
    };
    // Rows are combined and staged when all warps have attended.
    union {
      Rows rows;
      AttentionMemory attention;
    };
    float partial[2][kPartials];
  } products;
  struct Choice {
    ChoiceMemory memory;
    unsigned long long list[kFewCandidates];
    float logits[kPersistentVocab];
  } choice;
};

template <int kTalkerHidden, int kStreams>
struct SharedMemory {
  RingBarriers ring;
  float squares[2][kWarps][MostRows(kStreams)];
  float sine[MostRows(kStreams)][kHalf], cosine[MostRows(kStreams)][kHalf];
  int slots[kStreams];  // below 0: nothing to do
  // Of the pass.
  int sequences[kMostRows], positions[kMostRows];
  unsigned stop, gave_up;
  unsigned seen;     // see Load()
  int splits;        // of the row that has most
  bool shared_keys;  // whether parts are of all query heads of a key head
  AttentionPart parts[kNewRows];
  __nv_bfloat16* split_starts[kPersistentItems];  // of the parts' splits the keys in layer 0
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
constexpr int kQueryWidth = kHeads * kHeadDim;
constexpr int kQkvWidth = (kHeads + 2 * kKvHeads) * kHeadDim;
// Weights that a warp waits for at once, at most, unless a tile has more.
constexpr int kTogetherBytes = 96 << 10;

// The predictor's pass p leads from code p to code p + 1. The first also takes the hidden state, at position 0, in rows
// of its own or, where these would be too many, in a pass before it.
constexpr int kHiddenPass = -1;
constexpr int kTalkerPass = -2;

__device__ __forceinline__ int TileAt(int index) { return static_cast<int>(blockIdx.x) + index * kBlocks; }
// A value that all lanes have, as one that the compiler knows to be so: in what depends on it, it need not provide for
// lanes that are elsewhere.
__device__ __forceinline__ int Uniform(int value) { return __shfl_sync(~0U, value, 0); }

// Makes the compiler compute an address where it is called, and not where it is used: waits lie between, and what comes
// after them is what others wait for.
template <typename T>
__device__ __forceinline__ T* Now(T* address) {
  asm volatile("" : "+l"(address));
  return address;
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

// --- The thread that copies weights, and the one ahead of it: the order is the team's ----------

// A matrix of `tiles` tiles (gemm.h) of tile_bytes: this block's.
template <typename Ring>
__device__ __forceinline__ void SendTiles(Ring* ring, const char* weights, int tiles, int tile_bytes) {
#pragma unroll 1
  for (int tile = static_cast<int>(blockIdx.x); tile < tiles; tile += kBlocks) {
    ring->Send(weights + static_cast<int64_t>(tile) * tile_bytes, tile_bytes);
  }
}

template <typename Ring>
__device__ void SendPass(Ring* ring, const PersistentStack& stack, const PersistentLayer* layers, int hidden) {
  ring->SetPace(stack.pace);
#pragma unroll 1
  for (int i = 0; i < stack.num_layers; ++i) {
    const PersistentLayer& layer = layers[stack.first_layer + i];
    SendTiles(ring, layer.qkv, kQkvWidth / 16, 32 * hidden);
    SendTiles(ring, layer.o, hidden / 8, 16 * kQueryWidth);
    SendTiles(ring, layer.gated, 3 * hidden / 8, 32 * hidden);
    SendTiles(ring, layer.down, hidden / 8, 16 * 3 * hidden);
  }
}

template <int kTalkerHidden, int kStreams, typename Ring>
__device__ void SendFrame(const FrameKernelArguments& a, const SharedMemory<kTalkerHidden, kStreams>& shared,
                          Ring* ring) {
  SendPass(ring, shared.stacks[0], shared.layers, kTalkerHidden);
  SendTiles(ring, a.talker_head, (a.talker_vocab + 15) / 16, 32 * kTalkerHidden);
  if (kTalkerHidden != kPersistentHidden) {
    SendTiles(ring, a.projection, kPersistentHidden / 16, 32 * kTalkerHidden);
  }
#pragma unroll 1
  for (int pass = Paired(kStreams) ? 0 : kHiddenPass; pass < a.groups - 1; ++pass) {
    SendPass(ring, shared.stacks[1], shared.layers, kPersistentHidden);
    if (pass == kHiddenPass) continue;
    SendTiles(ring, a.passes[pass].head, (a.predictor_vocab + 15) / 16, 32 * kPersistentHidden);
  }
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
        thread_(static_cast<int>(threadIdx.x)),
        warp_(thread_ / 32),
        lane_(thread_ % 32),
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
          if (thread_ == 0) *static_cast<volatile unsigned*>(&shared_->stop) = 1;
          return;
        }
      }
      if (kPaired && pass == 0) {
        RunLayers<kPersistentHidden, MostRows(kStreams), false>(s, pass);
      } else if (talker) {
        RunLayers<kTalkerHidden, kStreams, true>(s, pass);
      } else {
        RunLayers<kPersistentHidden, kStreams, false>(s, pass);
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
    if (thread_ < kRows) {
      const int r = thread_;
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
    // While there is a block for each head and split, every query head is attended to by blocks of its own: that takes
    // less time. More splits are read once for all query heads of a key head.
    const bool shared_keys = talker && splits * kSequences * kHeads > kBlocks;
    const int heads = shared_keys ? kKvHeads : kHeads;
    const int rest = static_cast<int>(blockIdx.x) / heads;
    const int first_row = rest % kSequences * kPerSequence;
    const int sequence = shared_->sequences[first_row];
    AttentionPart part;
    part.head = static_cast<int>(blockIdx.x) % heads * (kHeads / heads);
    part.split_stride = kBlocks / heads / kSequences;
    part.first_record = rest / kSequences;
    part.silent = sequence < 0 && part.first_record == 0;
    if (thread_ < kPerSequence) {
      part.row = first_row + thread_;
      part.new_rows = thread_ + 1;
      part.position = shared_->positions[part.row];
      part.first_split = FirstSplit(s, part.position) + part.first_record;
      part.row_splits = sequence < 0 ? 0 : UsedSplits(s, part.position);
      part.splits =
          min(kPersistentItems, (part.row_splits - part.first_record - 1 + part.split_stride) / part.split_stride);
      shared_->parts[thread_] = part;
    }
    // The rows of a sequence see the same splits: there are two only where it begins.
    const int position = shared_->positions[first_row];
    const int record = part.first_record + thread_ * part.split_stride;
    if (thread_ < kPersistentItems && sequence >= 0 && record < UsedSplits(s, position)) {
      const int first = (FirstSplit(s, position) + record) * kSplitPositions;
      shared_->split_starts[thread_] =
          static_cast<__nv_bfloat16*>(
              s.pages[static_cast<int64_t>(sequence) * s.pages_per_sequence + first / s.page_positions]) +
          ((talker ? part.head / kGroup : part.head) * 2 * s.page_positions + first % s.page_positions) * kHeadDim;
    }
    if (thread_ == 0) {
      shared_->splits = splits;
      shared_->shared_keys = shared_keys;
    }
    const float* const frequencies = s.inverse_frequencies;
#pragma unroll 1
    for (int i = thread_; i < kRows * kHalf; i += kTeamThreads) {
      sincosf(static_cast<float>(shared_->positions[i / kHalf]) * frequencies[i % kHalf],
              &shared_->sine[i / kHalf][i % kHalf], &shared_->cosine[i / kHalf][i % kHalf]);
    }
    Team::Sync();
  }

  template <int kHidden, int kRows, bool kTalker>
  __device__ __forceinline__ void RunLayers(const PersistentStack& s, int pass) {
    constexpr int kIntermediate = PersistentIntermediate(kHidden);
    constexpr int kOwnTiles = kHidden / 8 / kBlocks;
    const int num_layers = Uniform(s.num_layers);
#pragma unroll 1
    for (int i = 0; i < num_layers; ++i) {
      // Addresses are computed anew: what the compiler would keep of them for all layers is more than there are
      // registers for.
      asm volatile("" : "+r"(thread_), "+r"(warp_), "+r"(lane_));
      const PersistentLayer& layer = shared_->layers[s.first_layer + i];
      PrefetchCache(s, i);
      {
        constexpr int kTiles = kQkvWidth / 16 / kBlocks;
        Multiply<kHidden, 2, kTiles, kRows, true>([&] {
          if (i == 0) {
            StageInput<kHidden, kRows>(s, layer.input_norm, pass);
          } else {
            StageQuads<kHidden, kRows>(s.x, kHidden / 4);
          }
        });
        ++epoch_;
        FinishRows<16, kTiles, kRows>(
            [&](int tile, int row, int m) { return s.qkv + row * kQkvWidth + TileAt(tile) * 16 + m; },
            [&](Word* target, int tile, int row, int m, bool valid, const float* partial) {
              float value = gemm::Total(partial + m, kRows * 16, Factor<kHidden>(s, row));
              if (layer.qkv_bias != nullptr) value = __fadd_rn(value, layer.qkv_bias[TileAt(tile) * 16 + m]);
              if (valid) Publish(target, __float_as_uint(value), epoch_);
            });
      }
      // Now that others can go on.
      if (i == 0) TakeOwn<kHidden, kRows>(pass);
      Attend<kRows, kTalker>(s, layer, i);

      // What the finishing threads need of the next norms is there before the words are.
      const float post_norm = OwnNorm<kHidden, kRows>(layer.post_norm);
      Multiply<kQueryWidth, 1, kOwnTiles, kRows, false>([&] { StagePairs<kQueryWidth, kRows>(s.attended); });
      ++epoch_;
      AddToOwn<kHidden, kRows>(layer.o_bias, post_norm, s.x_middle);

      {
        constexpr int kTiles = kIntermediate / 8 / kBlocks;
        Multiply<kHidden, 2, kTiles, kRows, true>([&] { StageQuads<kHidden, kRows>(s.x_middle, kHidden / 4); });
        ++epoch_;
        FinishRows<8, kTiles, kRows>(
            [&](int tile, int row, int m) { return s.inner + row * (kIntermediate / 2) + TileAt(tile) * 4 + m / 2; },
            [&](Word* target, int, int row, int m, bool valid, const float* partial) {
              const float factor = Factor<kHidden>(s, row);
              const float gate = gemm::Total(partial + m, kRows * 16, factor);
              const float value = Silu<__nv_bfloat16>(gate) * gemm::Total(partial + m + 8, kRows * 16, factor);
              const float next = __shfl_down_sync(~0U, value, 1);
              if (valid && m % 2 == 0) Publish(target, PackBf16(value, next), epoch_);
            });
      }

      const bool last = i + 1 == num_layers;
      const float next_norm =
          OwnNorm<kHidden, kRows>(last ? s.norm : shared_->layers[s.first_layer + i + 1].input_norm);
      Multiply<kIntermediate, 1, kOwnTiles, kRows, false>([&] { StagePairs<kIntermediate, kRows>(s.inner); });
      ++epoch_;
      AddToOwn<kHidden, kRows>(nullptr, next_norm, s.x);
    }
  }

  // --- Activations ---

  template <int kColumns, int kRows>
  __device__ __forceinline__ __nv_bfloat16* Stage() const {
    return shared_->work.products.rows.stage + warp_ * kRows * StageStride(kColumns);
  }

  // A warp sums up the squares of its columns, of each span of 128 by itself, in steps that find time between matrix
  // instructions: the next waits for what it exchanges. From 0 on; all others do nothing.
  static constexpr int kSquaresSteps = 6;
  template <int kRows, int kSpans>
  __device__ __forceinline__ void SquaresStep(int step) {
    if (step + 1 < kSquaresSteps) {
#pragma unroll
      for (int i = 0; i < kRows * kSpans; ++i) lane_squares_[i] += __shfl_xor_sync(~0U, lane_squares_[i], 16 >> step);
    } else if (step + 1 == kSquaresSteps && lane_ == 0) {
#pragma unroll
      for (int row = 0; row < kRows; ++row) {
        float sum = lane_squares_[row * kSpans];
#pragma unroll
        for (int span = 1; span < kSpans; ++span) sum = __fadd_rn(sum, lane_squares_[row * kSpans + span]);
        shared_->squares[squares_][warp_][row] = sum;
      }
    }
  }
  template <int kColumns, int kRows>
  __device__ __forceinline__ void SumSquares() {
#pragma unroll
    for (int step = 0; step < kSquaresSteps; ++step) SquaresStep<kRows, ShareOf(kColumns) / 128>(step);
  }

  // Brings this warp's columns of a layer's input, and the lanes' squares.
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
        lane_squares_[row * kSpans + span] = __uint_as_float(quad.squares);
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
    const PredictorPass& p = shared_->passes[pass];
    // Below 0, or of a wait that was given up.
    if (static_cast<unsigned>(id) >= p.table_rows) return {};
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
        lane_squares_[row * kSpans + span] = gemm::SumOfSquares(x.x, x.y, x.z, x.w);
      }
    }
    __syncwarp();
  }

  // What this block's threads keep of a pass's input.
  template <int kHidden, int kRows>
  __device__ __forceinline__ void TakeOwn(int pass) {
    constexpr int kCount = kHidden / 8 / kBlocks * 8 * kRows;
    if (warp_ * 32 < kCount) {
      const int i = min(thread_, kCount - 1);
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
  template <int kRows, bool kSquares, typename W>
  __device__ __forceinline__ void Multiply(const W& w, int first) {
    constexpr int kSpans = ShareOf(W::kColumns) / 128;
    static_assert(!kSquares || 2 * W::kShare >= kSquaresSteps);
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
      if (kSquares) SquaresStep<kRows, kSpans>(2 * c);
#pragma unroll
      for (int t = 0; t < W::kTogether; ++t) {
        const uint4& low = w.chunks[c][t][0];
        const uint4 high = W::kHalves == 2 ? w.chunks[c][t][W::kHalves - 1] : uint4{};
        Mma(sums[t], low.z, high.z, low.w, high.w, b.z, b.w);
      }
      if (kSquares) SquaresStep<kRows, kSpans>(2 * c + 1);
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

  // A product of kTiles tiles with rows that stage() brings, kSquares: and the squares of their columns; as many tiles
  // as there are registers for are taken before.
  template <int kColumns, int kHalves, int kTiles, int kRows, bool kSquares, typename StageRows>
  __device__ __forceinline__ void Multiply(const StageRows& stage) {
    constexpr int kTileBytes = kColumns * 8 * kHalves * 2;
    constexpr int kTogether = kTiles * kTileBytes <= kTogetherBytes ? kTiles : 1;
    Weights<kColumns, kHalves, kTogether> w;
    Load(&w);
    stage();
    Multiply<kRows, kSquares>(w, 0);
#pragma unroll 1
    for (int first = kTogether; first < kTiles; first += kTogether) {
      Load(&w);
      Multiply<kRows, false>(w, first);
    }
  }

  // finish(target(tile, row, m), tile, row, m, valid, partial) for kOutputs outputs m of each tile and row, by whole
  // warps, neighbours in m side by side; `partial` are the first warp's sums.
  template <int kOutputs, int kTiles, int kRows, typename Target, typename Finish>
  __device__ __forceinline__ void FinishRows(const Target& target, const Finish& finish) {
    constexpr int kCount = kTiles * kRows * kOutputs;
    static_assert(kCount <= kTeamThreads, "an output for each thread");
    const int i = min(thread_, kCount - 1);
    const int row = i / kOutputs % kRows;
    const int tile = i / (kOutputs * kRows);
    auto* const address = Now(target(tile, row, i % kOutputs));
    Team::Sync();
    if (warp_ * 32 < kCount) {
      finish(address, tile, row, i % kOutputs, thread_ < kCount,
             shared_->work.products.partial[partial_] + (tile * kWarps * kRows + row) * 16);
    }
    // The other half is for the next; nobody reads it any more.
    partial_ ^= 1;
  }

  // 1 / rms of a staged row.
  template <int kColumns>
  __device__ __forceinline__ float Factor(const PersistentStack& s, int row) const {
    return gemm::NormFactor(&shared_->squares[squares_][0][row], MostRows(kStreams), kColumns, s.eps);
  }

  // The norm's weight of the column of the residual stream that this thread keeps.
  template <int kHidden, int kRows>
  __device__ __forceinline__ float OwnNorm(const float* norm) const {
    constexpr int kCount = kHidden / 8 / kBlocks * 8 * kRows;
    const int i = thread_;
    return i < kCount ? __ldg(norm + TileAt(i / (8 * kRows)) * 8 + i % 8) : 0;
  }

  // Adds a product's outputs to this block's columns of the residual stream, which stay with their threads from pass
  // begin to pass end, and publishes them.
  template <int kHidden, int kRows>
  __device__ __forceinline__ void AddToOwn(const float* bias, float norm, Quad* target) {
    FinishRows<8, kHidden / 8 / kBlocks, kRows>(
        [&](int tile, int row, int m) { return target + row * (kHidden / 4) + (TileAt(tile) * 8 + m) / 4; },
        [&](Quad* quad, int tile, int, int m, bool valid, const float* partial) {
          float value = gemm::Total(partial + m, kRows * 16, 1);
          if (bias != nullptr) value = __fadd_rn(value, bias[TileAt(tile) * 8 + m]);
          value = __fadd_rn(own_, value);
          own_ = value;
          const float normed = value * norm;
          const float x1 = __shfl_down_sync(~0U, value, 1), n1 = __shfl_down_sync(~0U, normed, 1);
          const float x2 = __shfl_down_sync(~0U, value, 2), n2 = __shfl_down_sync(~0U, normed, 2);
          const float x3 = __shfl_down_sync(~0U, value, 3), n3 = __shfl_down_sync(~0U, normed, 3);
          if (valid && m % 4 == 0) {
            Publish(quad, {PackBf16(normed, n1), PackBf16(n2, n3),
                           __float_as_uint(gemm::SumOfSquares(value, x1, x2, x3)), epoch_});
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
      if (!staged) {
        StageQuads<kHidden, kStreams>(s.x + (apart - 1) * (kHidden / 4), apart * (kHidden / 4));
        SumSquares<kHidden, kStreams>();
      }
      staged = true;
    };
    const uint32_t logits_epoch = epoch_ + 1;
#pragma unroll 1
    for (int tile = static_cast<int>(blockIdx.x); tile * 16 < vocab; tile += kBlocks) {
      Multiply<kHidden, 2, 1, kStreams, false>(stage);
      FinishRows<16, 1, kStreams>(
          [&](int, int row, int m) { return a.logits + row * kPersistentVocab + tile * 16 + m; },
          [&](Word* target, int, int row, int m, bool valid, const float* partial) {
            const int output = tile * 16 + m;
            const float value = gemm::Total(partial + m, kStreams * 16, Factor<kHidden>(s, row));
            if (valid && output < vocab) {
              Publish(target, __float_as_uint(value), logits_epoch);
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
      Multiply<kHidden, 2, 1, kStreams, false>([] {});
      FinishRows<16, 1, kStreams>(
          [&](int, int row, int m) { return a.input + row * kPersistentHidden + TileAt(0) * 16 + m; },
          [&](Word* target, int, int row, int m, bool valid, const float* partial) {
            float value = gemm::Total(partial + m, kStreams * 16, Factor<kHidden>(s, row));
            if (a.projection_bias != nullptr) value = __fadd_rn(value, a.projection_bias[TileAt(0) * 16 + m]);
            if (valid) Publish(target, __float_as_uint(value), epoch_);
          });
    } else {
      // The hidden state itself; the squares are the head's.
      Team::Sync();
      constexpr int kCount = kHidden / 8 / kBlocks * 8 * kStreams;
      const int i = thread_;
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
  template <int kRows, bool kTalker>
  __device__ __forceinline__ void Attend(const PersistentStack& s, const PersistentLayer& layer, int layer_index) {
    constexpr int kParts = kRows > kStreams ? kRows / kStreams : 1;
    const uint32_t qkv_epoch = epoch_;
    epoch_ += 2;
#pragma unroll 1
    for (int i = 0; i < kParts; ++i) {
      const AttentionPart& part = shared_->parts[i];
      if (part.silent) PublishSilence(s, part.row, part.head);
      const int splits = Uniform(part.splits);
      if (splits == 0) continue;
      if constexpr (!kTalker) {
        static_assert(kPersistentGroups <= kTurn);
        AttendSplits<1, 1>(s, layer, layer_index, part, splits, qkv_epoch);
      } else if (Uniform(shared_->shared_keys) != 0) {
        AttendSplits<kSplitPositions / kTurn, kGroup>(s, layer, layer_index, part, splits, qkv_epoch);
      } else {
        AttendSplits<kSplitPositions / kTurn, 1>(s, layer, layer_index, part, splits, qkv_epoch);
      }
    }
    if constexpr (kTalker) {
      if (Uniform(shared_->splits) == 1 || warp_ >= kRows) return;
      if (Uniform(shared_->sequences[warp_]) < 0) return;
      const int used = Uniform(UsedSplits(s, shared_->positions[warp_]));
      if (used > 1) CombineSplits(s, warp_, used);
    }
  }

  // Asks for the keys and values of this block's first splits, that are to be in the L2 cache when queries come.
  __device__ __forceinline__ void PrefetchCache(const PersistentStack& s, int layer) {
    constexpr int kLine = 64;  // elements
    const AttentionPart& part = shared_->parts[0];
#pragma unroll 1
    for (int i = 0; i < min(part.splits, 8); ++i) {
      const int line = thread_ % 128;
      if (PositionsBefore(part, i) + line / 2 > part.position) continue;
      const int side = thread_ / 128;  // keys, values
      const __nv_bfloat16* const p =
          shared_->split_starts[i] + layer * LayerStride(s) + side * s.page_positions * kHeadDim + line * kLine;
      asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
    }
  }

  // Before the part's i-th split.
  __device__ static __forceinline__ int PositionsBefore(const AttentionPart& part, int i) {
    return (part.first_split + i * part.split_stride) * kSplitPositions;
  }

  // For a row that is left out, one head or all of a key head.
  __device__ __forceinline__ void PublishSilence(const PersistentStack& s, int row, int head) {
    const int words = shared_->shared_keys ? kGroup * kHalf : kHalf;
    if (thread_ < words) {
      Publish(s.attended + row * (kQueryWidth / 2) + head * kHalf + thread_, 0, epoch_);
    }
  }

  // attention.cu's AttendKernel for kQueries query heads, one key head and the splits of a part; of each the first
  // kTurns * kTurn positions are all that is there.
  static constexpr int kLanes = kHeadDim / 8;
  static constexpr int kTurn = kWarps * (32 / kLanes);
  template <int kTurns, int kQueries>
  __device__ __forceinline__ void AttendSplits(const PersistentStack& s, const PersistentLayer& layer, int layer_index,
                                               const AttentionPart& part, int splits, uint32_t qkv_epoch) {
    AttentionMemory& m = shared_->work.products.attention;
    const int64_t layer_offset = layer_index * LayerStride(s);
    const int value_offset = s.page_positions * kHeadDim;
    const int column = lane_ % kLanes * 8;
    const int mine = warp_ * (32 / kLanes) + lane_ / kLanes;
    // Positions are counted from a split's first on.
    const auto begin_of = [&](int i) {
      return s.window > 0 ? part.position + 1 - s.window - PositionsBefore(part, i) : 0;
    };
    const auto load = [&](int i, int offset, uint4(&words)[kTurns]) {
      const int begin = begin_of(i);
      const int cached = min(kSplitPositions, part.position + 1 - part.new_rows - PositionsBefore(part, i));
      // One address for all turns: the compiler would hold one for each, in registers that are needed.
      const __nv_bfloat16* const from =
          Now(shared_->split_starts[i] + layer_offset + offset + mine * kHeadDim + column);
#pragma unroll
      for (int t = 0; t < kTurns; ++t) {
        const int p = t * kTurn + mine;
        words[t] = {};
        if (p >= begin && p < cached) words[t] = Fresh(reinterpret_cast<const uint4*>(from + t * kTurn * kHeadDim));
      }
    };
    uint4 keys[kTurns], values[kTurns];
    load(0, 0, keys);
    load(0, value_offset, values);
    {
      const int last = splits - 1;
      const int position = part.position - PositionsBefore(part, last);
      const bool has_new = position < kSplitPositions;
      const bool writes = has_new && (s.cache_heads == kHeads || part.head % kGroup == 0);
      PlaceHeads<kQueries>(s, layer, part, has_new ? part.new_rows : 0, qkv_epoch, &m,
                           writes ? shared_->split_starts[last] + layer_offset + position * kHeadDim : nullptr,
                           value_offset);
    }
    Team::Sync();

    float query[kQueries][8];
#pragma unroll
    for (int g = 0; g < kQueries; ++g) {
#pragma unroll
      for (int e = 0; e < 8; ++e) query[g][e] = m.q[g][column + e];
    }
    const float scale = 1.0F / sqrtf(static_cast<float>(kHeadDim));
    const auto element = [](const uint4& u, int e) {
      const uint32_t word = e / 2 == 0 ? u.x : e / 2 == 1 ? u.y : e / 2 == 2 ? u.z : u.w;
      return e % 2 == 0 ? LowBf16(word) : HighBf16(word);
    };
#pragma unroll 1
    for (int i = 0; i < (kQueries == 1 ? 1 : splits); ++i) {
      const bool is_last = kQueries == 1 || i + 1 == splits;
      const int begin = begin_of(i);
      const int position = part.position - PositionsBefore(part, i);
      const int end = min(position + 1, kSplitPositions);
      if (position < kSplitPositions) {
#pragma unroll
        for (int t = 0; t < kTurns; ++t) {
          const int p = t * kTurn + mine;
          const int j = p - (position + 1 - part.new_rows);
          if (j >= 0 && p <= position) {
            keys[t] = *reinterpret_cast<const uint4*>(&m.new_keys[j][column]);
            values[t] = *reinterpret_cast<const uint4*>(&m.new_values[j][column]);
          }
        }
      }
      float scores[kQueries][kTurns];
      float most[kQueries], sum[kQueries], y[kQueries][8];
#pragma unroll
      for (int g = 0; g < kQueries; ++g) {
        most[g] = -INFINITY;
        sum[g] = 0;
#pragma unroll
        for (int e = 0; e < 8; ++e) y[g][e] = 0;
      }
#pragma unroll
      for (int t = 0; t < kTurns; ++t) {
#pragma unroll
        for (int g = 0; g < kQueries; ++g) {
          scores[g][t] = 0;
#pragma unroll
          for (int e = 0; e < 8; ++e) scores[g][t] += query[g][e] * element(keys[t], e);
        }
      }
      // Here and below all exchanges come first, so that none waits for another.
#pragma unroll
      for (int offset = kLanes / 2; offset > 0; offset /= 2) {
        float others[kQueries][kTurns];
#pragma unroll
        for (int t = 0; t < kTurns; ++t) {
#pragma unroll
          for (int g = 0; g < kQueries; ++g) others[g][t] = __shfl_xor_sync(~0U, scores[g][t], offset);
        }
#pragma unroll
        for (int t = 0; t < kTurns; ++t) {
#pragma unroll
          for (int g = 0; g < kQueries; ++g) scores[g][t] += others[g][t];
        }
      }
#pragma unroll
      for (int t = 0; t < kTurns; ++t) {
        const int p = t * kTurn + mine;
        const bool valid = p >= begin && p < end;
#pragma unroll
        for (int g = 0; g < kQueries; ++g) {
          scores[g][t] = valid ? scores[g][t] * scale : -INFINITY;
          most[g] = fmaxf(most[g], scores[g][t]);
        }
      }
      if (!is_last) load(i + 1, 0, keys);
#pragma unroll
      for (int t = 0; t < kTurns; ++t) {
        const int p = t * kTurn + mine;
        const bool valid = p >= begin && p < end;
#pragma unroll
        for (int g = 0; g < kQueries; ++g) {
          // A single score is the largest.
          const float weight = !valid ? 0 : kTurns == 1 ? 1 : Exponential<__nv_bfloat16>(scores[g][t] - most[g]);
          sum[g] += weight;
#pragma unroll
          for (int e = 0; e < 8; ++e) y[g][e] += weight * element(values[t], e);
        }
      }
      if (!is_last) load(i + 1, value_offset, values);
      static_assert(kLanes == 16, "two groups of lanes");
      float other_most[kQueries], other_sum[kQueries], other_y[kQueries][8];
#pragma unroll
      for (int g = 0; g < kQueries; ++g) {
        other_most[g] = __shfl_xor_sync(~0U, most[g], kLanes);
        other_sum[g] = __shfl_xor_sync(~0U, sum[g], kLanes);
#pragma unroll
        for (int e = 0; e < 8; ++e) other_y[g][e] = __shfl_xor_sync(~0U, y[g][e], kLanes);
      }
#pragma unroll
      for (int g = 0; g < kQueries; ++g) {
        const float largest = fmaxf(most[g], other_most[g]);
        const float base = largest == -INFINITY ? 0 : largest;  // where nobody has a position factors are 0, too
        const float factor = Exponential<__nv_bfloat16>(most[g] - base);
        const float other_factor = Exponential<__nv_bfloat16>(other_most[g] - base);
        most[g] = largest;
        sum[g] = sum[g] * factor + other_sum[g] * other_factor;
#pragma unroll
        for (int e = 0; e < 8; ++e) y[g][e] = y[g][e] * factor + other_y[g][e] * other_factor;
      }
      const int place = i % kMergedSplits;
      if (lane_ < kLanes) {
#pragma unroll
        for (int g = 0; g < kQueries; ++g) {
          AttentionMemory::WarpResults& result = m.results[place * kQueries + g];
#pragma unroll
          for (int e = 0; e < 8; ++e) result.y[warp_][column + e] = y[g][e];
          if (column == 0) {
            result.maxima[warp_] = most[g];
            result.sums[warp_] = sum[g];
          }
        }
      }
      if (is_last || place + 1 == kMergedSplits) {
        const bool whole = part.row_splits == 1;
        Word* const target = Now(MergeTarget<kQueries>(s, part, i - place));
        Team::Sync();
        MergeWarps<kQueries>(target, place + 1, whole);
        // The place is for the next splits, and then for the next phase's rows.
        Team::Sync();
      }
    }
  }

  // Each thread puts together kQueries elements of what the warps have.
  template <int kQueries>
  static constexpr int kMergingThreads = kHeadDim / kQueries;

  // Where the calling thread's go, of a part's splits from `first` on: to the row's record of the split, or to what is
  // attended if that is all.
  template <int kQueries>
  __device__ __forceinline__ Word* MergeTarget(const PersistentStack& s, const AttentionPart& part, int first) const {
    const int result = thread_ / kMergingThreads<kQueries>;
    const int d = thread_ % kMergingThreads<kQueries> * kQueries;
    const int head = part.head + result % kQueries;
    if (part.row_splits == 1) return s.attended + part.row * (kQueryWidth / 2) + (head * kHeadDim + d) / 2;
    return Record(s, part.row, head, part.first_record + (first + result / kQueries) * part.split_stride) + 2 + d;
  }

  // Of `count` splits. `whole`: they are all that the row has.
  template <int kQueries>
  __device__ __forceinline__ void MergeWarps(Word* target, int count, bool whole) {
    const int result = thread_ / kMergingThreads<kQueries>;
    if (result >= count * kQueries) return;
    const AttentionMemory::WarpResults& r = shared_->work.products.attention.results[result];
    const int d = thread_ % kMergingThreads<kQueries> * kQueries;
    float factors[kWarps], sums[kWarps], y[kWarps][kQueries];
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      factors[w] = r.maxima[w];
      sums[w] = r.sums[w];
#pragma unroll
      for (int e = 0; e < kQueries; ++e) y[w][e] = r.y[w][d + e];
    }
    float largest = factors[0];
#pragma unroll
    for (int w = 1; w < kWarps; ++w) largest = fmaxf(largest, factors[w]);
      // 0 of warps without a position.
#pragma unroll
    for (int w = 0; w < kWarps; ++w) factors[w] = Exponential<__nv_bfloat16>(factors[w] - largest);
    float total = 0, value[kQueries] = {};
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      total += factors[w] * sums[w];
#pragma unroll
      for (int e = 0; e < kQueries; ++e) value[e] += factors[w] * y[w][e];
    }
    if (whole) {
      const float low = value[0] / total;
      const float high = kQueries == 1 ? __shfl_down_sync(~0U, low, 1) : value[kQueries - 1] / total;
      if (kQueries == 2 || d % 2 == 0) Publish(target, PackBf16(low, high), epoch_);
      return;
    }
    if constexpr (kQueries == 1) {
      Publish(target, __float_as_uint(value[0]), epoch_ - 1);
    } else {
      PublishTwo(target, __float_as_uint(value[0]), __float_as_uint(value[1]), epoch_ - 1);
    }
    if (d == 0) PublishTwo(target - 2, __float_as_uint(total), __float_as_uint(largest), epoch_ - 1);
  }

  __device__ __forceinline__ Word* Record(const PersistentStack& s, int row, int head, int split) const {
    return s.records + ((static_cast<int64_t>(row) * kHeads + head) * kPersistentSplits + split) * kRecordWords;
  }

  // A part's queries, keys and values of the new rows up to its row, to shared memory; the row's own key and value to
  // the cache, at `target` (if any) and value_offset on.
  template <int kQueries>
  __device__ __forceinline__ void PlaceHeads(const PersistentStack& s, const PersistentLayer& layer,
                                             const AttentionPart& part, int new_rows, uint32_t qkv_epoch,
                                             AttentionMemory* m, __nv_bfloat16* target, int value_offset) {
    if (warp_ >= kQueries + 2 * new_rows) return;
    const bool is_query = warp_ < kQueries;
    const bool is_value = warp_ >= kQueries + new_rows;
    const int j = is_query ? warp_ : is_value ? warp_ - kQueries - new_rows : warp_ - kQueries;
    const int back = is_query ? 0 : new_rows - 1 - j;
    const int row = part.row - back;
    const int source = is_query ? part.head + j : kHeads + (is_value ? kKvHeads : 0) + part.head / kGroup;
    const Word* const words = s.qkv + row * kQkvWidth + source * kHeadDim + lane_;
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
      sine[p] = shared_->sine[row][i];
      cosine[p] = shared_->cosine[row][i];
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
        m->new_values[j][i] = rounded;
        if (stored) target[value_offset + i] = rounded;
      }
      return;
    }
    NormAndRotate(low, high, norm != nullptr, low_norm, high_norm, s.eps, sine, cosine, kHalf, lane_,
                  [&](int i, float value) {
                    if (is_query) {
                      m->q[j][i] = value;
                      return;
                    }
                    const __nv_bfloat16 rounded = FromFloat<__nv_bfloat16>(value);
                    m->new_keys[j][i] = rounded;
                    if (stored) target[i] = rounded;
                  });
  }

  // This block's kCombined attended elements of a row, from the records of all splits in their order; by one warp, as
  // many more would be in each other's way, all looking for words that are not there yet.
  __device__ __forceinline__ void CombineSplits(const PersistentStack& s, int row, int splits) {
    static_assert(kBlocks * kCombined == kQueryWidth && kCombined == 16);
    constexpr int kLanesOfSplit = kCombined / 2;  // two elements each
    constexpr int kLoads = kLanesOfSplit;         // for 32 splits
    CombineMemory& m = shared_->work.products.rows.combine[row];
    const int first = static_cast<int>(blockIdx.x) * kCombined;
    const Word* const records = Record(s, row, first / kHeadDim, 0);
    const int column = first % kHeadDim + lane_ % kLanesOfSplit * 2;
    const uint32_t epoch = epoch_ - 1;
    // 32 splits from `from` on: their elements to shared memory, and of lane's own sum and maximum; zeros where there
    // is none.
    const auto await = [&](int from) {
      const int count = min(32, splits - from);
      uint4 sums, values[kLoads];
      patience_.Await([&] {
        sums = {0, epoch, __float_as_uint(-INFINITY), epoch};
        if (lane_ < count) sums = LoadTwoWords(records + (from + lane_) * kRecordWords);
#pragma unroll
        for (int j = 0; j < kLoads; ++j) {
          const int split = j * (32 / kLanesOfSplit) + lane_ / kLanesOfSplit;
          values[j] = {0, epoch, 0, epoch};
          if (split < count) values[j] = LoadTwoWords(records + (from + split) * kRecordWords + 2 + column);
        }
        bool there = sums.y == epoch && sums.w == epoch;
#pragma unroll
        for (int j = 0; j < kLoads; ++j) there = there && values[j].y == epoch && values[j].w == epoch;
        return there;
      });
      __syncwarp();
#pragma unroll
      for (int j = 0; j < kLoads; ++j) {
        const int split = j * (32 / kLanesOfSplit) + lane_ / kLanesOfSplit;
        *reinterpret_cast<float2*>(&m.values[split][lane_ % kLanesOfSplit * 2]) = {__uint_as_float(values[j].x),
                                                                                   __uint_as_float(values[j].z)};
      }
      return float2{__uint_as_float(sums.x), __uint_as_float(sums.z)};
    };
    float most = -INFINITY;
#pragma unroll 1
    for (int from = 32; from < splits; from += 32) most = fmaxf(most, await(from).y);
    float2 sum = await(0);
    const float largest = Unordered(__reduce_max_sync(~0U, Ordered(fmaxf(most, sum.y))));
    const int d = lane_ % kCombined;
    float total = 0, value = 0;
#pragma unroll 1
    for (int from = 0;;) {
      m.factors[lane_] = {Exponential<__nv_bfloat16>(sum.y - largest), sum.x};
      __syncwarp();
      const int count = min(32, splits - from);
#pragma unroll 1
      for (int k = 0; k < count; k += 8) {
#pragma unroll
        for (int j = 0; j < 8; ++j) {
          const float2 factor = m.factors[k + j];
          total += factor.x * factor.y;
          value += factor.x * m.values[k + j][d];
        }
      }
      from += 32;
      if (from >= splits) break;
      __syncwarp();
      sum = await(from);
    }
    const float result = value / total;
    const float next = __shfl_down_sync(~0U, result, 1);
    if (lane_ < kCombined && d % 2 == 0) {
      Publish(s.attended + row * (kQueryWidth / 2) + (first + d) / 2, PackBf16(result, next), epoch_);
    }
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
        const int i = 2 * (thread_ + j * kTeamThreads);
        if (i < vocab) repeated |= (history[i / 32] >> (i % 32) & 3U) << (2 * j);
      }
    }
    float* const logits = shared_->work.choice.logits;
    // The products before this one are over for all warps.
    Team::Sync();
    constexpr int kTogether = 4;  // pairs of logits
#pragma unroll 1
    for (int base = 2 * thread_; base < vocab; base += 2 * kTogether * kTeamThreads) {
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
        for (int i = 2 * thread_; i < vocab; i += 2 * kTeamThreads) {
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
      auto& choice = shared_->work.choice;
      const CandidateLists lists = {choice.list, kFewCandidates,
                                    a.candidates + static_cast<int64_t>(row) * kPersistentCandidates};
      id = Choose<Team>(logits, vocab, rules, seed, talker ? chosen : chosen - 1, group, lists, &choice.memory,
                        prefetch);
      const SlotEnd end = EndAfter(id, a.eos_id, chosen, max_new_tokens);
      goes_on = talker ? end == SlotEnd::kRunning : id >= 0;
      if (thread_ == 0) Publish(a.ids + row, goes_on ? static_cast<uint32_t>(id) : ~0U, epoch_ + 1);
      Team::Sync();
      if (thread_ == 0) {
        if (talker) {
          TakeTalkerId(id, end, row, a.groups, a.frame, history, &state);
        } else {
          TakePredictorId(id, group, row, a.groups, a.frame, &state);
        }
      }
    } else {
      if (thread_ == 0) Publish(a.ids + row, ~0U, epoch_ + 1);
      // Others may not stage rows in the place of logits that are still coming in.
      Team::Sync();
    }
    return goes_on;
  }

  const FrameKernelArguments& a;
  Shared* shared_;
  Patience patience_;
  int thread_, warp_, lane_;  // within the team
  RingReader ring_;
  uint32_t epoch_;
  uint32_t input_epoch_ = 0, id_epoch_ = 0;
  int id_ = -1;                        // of stream `lane`: what it said last
  float own_ = 0;                      // of the residual stream, see AddToOwn()
  float lane_squares_[kMostRows * 2];  // of the staged columns, [row][span]
  int partial_ = 0;                    // which half of the partial sums is in use
  int squares_ = 0;                    // and of the squares
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
    if (threadIdx.x == kTeamThreads) {
      RingWriter ring(&shared.ring, memory, a.ring_slots, &shared.stop);
      SendFrame(a, shared, &ring);
      ring.Drain();
    } else if (threadIdx.x == kTeamThreads + 32) {
      RingScout scout(&shared.ring, &shared.stop);
      SendFrame(a, shared, &scout);
    }
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
  // What it leaves is the codec's: only where processors have all their shared memory, not just what this one needs.
  if (error == cudaSuccess && rows == 1) {
    error = cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
  }
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
