// SPDX-License-Identifier: LGPL-2.1-or-later
#include <bit>

#include "attention.h"
#include "device_math.cuh"
#include "gemm_device.cuh"
#include "persistent/frame_kernel.h"
#include "persistent/weight_ring.cuh"
#include "persistent/words.cuh"
#include "rope.cuh"
#include "sampling.cuh"

// Every block runs the same sequence of phases: for each layer the products QKV, attention, O, gate and up, down, and
// between passes the heads and the choices. A block owns every gridDim-th tile of each product, streams its weights
// through the ring, waits for the words that the phase needs, and publishes its outputs as words of a new epoch.
//
// Buffers of words are written once a layer and need no clearing, and no reader can be overtaken: who writes a buffer
// again has read, phase by phase, words of all blocks that read it before. E.g. x_middle is written by blocks that have
// all of `attended`, which took all of this layer's qkv, whose blocks had all of x, whose blocks had all of `inner`,
// whose blocks had read x_middle. For this every phase waits for all words of all rows before it publishes.
//
// The additions are those of gemm.cu, attention.cu and sample.cu, in their order, so the results are the same
// bit for bit: eight warps share the columns, and a warp brings in and multiplies its own.
namespace qtts::cuda {
namespace {

constexpr int kWarps = kPersistentWarps;
constexpr int kTeamThreads = 32 * kWarps;
constexpr int kThreads = kTeamThreads + 32;  // and the warp that copies weights
constexpr int kHeadDim = kPersistentHeadDim;
constexpr int kHalf = kHeadDim / 2;
constexpr int kGroup = 2;  // query heads of a key head

constexpr int kNewRows = 2;

// A row, key head and split that this block attends to, the same in all layers of a pass.
struct AttentionItem {
  __nv_bfloat16* page;  // none: a row that is left out
  int row, new_rows, position;
  int kv_head, split, split_index, used_splits;
};

struct Shared {
  RingBarriers ring;
  ChoiceMemory choice;
  float squares[2][kWarps][kPersistentRows];
  float hidden_squares[kPersistentRows][32];
  float sine[kPersistentRows][kHalf], cosine[kPersistentRows][kHalf];
  int slots[kPersistentRows];  // below 0: nothing to do
  // Of the pass.
  int rows, per_sequence;
  int sequences[kPersistentRows], positions[kPersistentRows];
  unsigned stop, gave_up;
  int num_items, splits;
  AttentionItem items[kPersistentItems];
  // Copies for this block: `tiles` are its own.
  PersistentStack stacks[2];
  MatrixShape talker_head, head, projection;
  PersistentLayer layers[kPersistentLayers];
};

struct AttentionMemory {
  float q[kGroup][kHeadDim];
  float new_keys[kNewRows][kHeadDim];
  float new_values[kNewRows][kHeadDim];
  float warp_y[kWarps][kGroup][kHeadDim];
  float warp_max[kWarps][kGroup], warp_sum[kWarps][kGroup];
};
constexpr int kCombined = 16;  // elements that are put together from splits at once
struct CombineMemory {
  float values[kPersistentSplits][kCombined];
  float sums[kPersistentSplits], maxima[kPersistentSplits], factors[kPersistentSplits];
};
constexpr size_t kAttentionBytes = sizeof(AttentionMemory) > sizeof(CombineMemory) ? sizeof(AttentionMemory)
                                                                                   : sizeof(CombineMemory);

#if __CUDA_ARCH__ >= 900

// The predictor's pass p leads from code p to code p + 1. The first also takes the hidden state, at position 0, in rows
// of its own or, where these would be too many, in a pass before it.
constexpr int kHiddenPass = -1;
constexpr int kTalkerPass = -2;

// Tiles of this block.
__device__ __forceinline__ int Mine(int tiles) {
  const int block = static_cast<int>(blockIdx.x);
  return block < tiles ? (tiles - block - 1) / static_cast<int>(gridDim.x) + 1 : 0;
}
__device__ __forceinline__ int TileAt(int index) {
  return static_cast<int>(blockIdx.x) + index * static_cast<int>(gridDim.x);
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

// One loop with one call, so that this code takes little of the instruction cache.
__device__ void SendFrame(const FrameKernelArguments& a, Shared* shared, char* memory) {
  RingWriter ring(&shared->ring, memory, a.ring_slots, &shared->stop);
  for (int pass = kTalkerPass; pass < a.groups - 1; ++pass) {
    if (pass == kHiddenPass && a.paired) continue;
    const bool talker = pass == kTalkerPass;
    const PersistentStack& stack = shared->stacks[talker ? 0 : 1];
    ring.SetPace(stack.in_flight, stack.interval);
    for (int i = 0; i <= stack.num_layers; ++i) {
      const PersistentLayer& layer = shared->layers[stack.first_layer + min(i, stack.num_layers - 1)];
      for (int matrix = 0; matrix < 4; ++matrix) {
        const char* weights = matrix == 0 ? layer.qkv : matrix == 1 ? layer.o : matrix == 2 ? layer.gated : layer.down;
        const MatrixShape* shape = matrix == 0   ? &stack.qkv
                                   : matrix == 1 ? &stack.o
                                   : matrix == 2 ? &stack.gated
                                                 : &stack.down;
        int tile_outputs = matrix % 2 == 0 ? 16 : 8;
        if (i == stack.num_layers) {
          // The head, and after the talker's the projection.
          if (pass == kHiddenPass || matrix > 1 || (matrix == 1 && !talker)) continue;
          weights = matrix == 1 ? a.projection_weights : talker ? a.talker_head_weights : a.passes[pass].head;
          shape = matrix == 1 ? &shared->projection : talker ? &shared->talker_head : &shared->head;
          tile_outputs = 16;
        }
        const int tile_bytes = shape->chunks * tile_outputs * kChunk * 2;
        const int mine = shape->tiles;
        for (int t = 0; t < mine; ++t) {
          ring.Send(weights + static_cast<int64_t>(TileAt(t)) * tile_bytes, tile_bytes, i < stack.kept_layers);
        }
      }
    }
  }
  ring.Drain();
}

// --- The team -----------------------------------------------------------------------------------

// n / d of small numbers.
__device__ __forceinline__ int SmallQuotient(int n, int d) {
  return static_cast<int>(__fdividef(static_cast<float>(n) + 0.5F, static_cast<float>(d)));
}

// A warp's share of the columns of a product.
struct Share {
  __device__ Share(int chunks, int warp)
      : per_warp((chunks + kWarps - 1) / kWarps),
        begin(warp * per_warp),
        count(max(0, min(chunks - begin, per_warp))),
        stride((per_warp | 1) * kChunk),
        spans((per_warp * kChunk + 127) / 128) {}
  int per_warp, begin, count;  // in chunks
  int stride;                  // elements between staged rows: no bank conflicts
  int spans;                   // of 128 columns
};

enum class Step { kQkv, kO, kGated, kDown, kHead, kProjection };

// What becomes of the outputs of a product (gemm.h): kNormStore, kNormGated, kAdd.
enum class Finish { kStore, kGated, kAdd };

// A product: where its rows come from, and where its outputs go.
struct Phase {
  MatrixShape shape;
  int rows;
  const void* source;  // words, or F32 numbers of the kernel before
  int source_stride;
  bool plain;
  uint32_t source_epoch;
  const float* norm;  // none: pairs of BF16 come
  const float* bias;
  Finish finish;
  Word* target;
  int target_stride;
  uint32_t epoch;
  float* kept;  // a copy of the outputs
};

class Block {
 public:
  __device__ Block(const FrameKernelArguments& arguments, Shared* shared, char* memory)
      : a(arguments),
        shared_(shared),
        memory_(memory),
        patience_(arguments.patience, &shared->gave_up, arguments.report),
        ring_(&shared->ring, memory, arguments.ring_slots),
        warp_(static_cast<int>(threadIdx.x) / 32),
        lane_(static_cast<int>(threadIdx.x) % 32),
        epoch_(*arguments.frame.frame % arguments.epoch_frames * arguments.epochs_per_frame) {}

  // All products go through one piece of code, so that the loop over layers stays in the instruction cache.
  __device__ __forceinline__ void Run() {
    const auto row = static_cast<int>(blockIdx.x);  // of this block's choices
    const bool projected = a.projection.outputs > 0;
    bool alive = true;
    uint32_t input_epoch = 0;
    int pass = kTalkerPass;
    BeginPass(pass);
    int layer = 0;
    Step step = Step::kQkv;
    for (;;) {
      const PersistentStack& stack = shared_->stacks[pass == kTalkerPass ? 0 : 1];
      const Phase phase = Describe(step, pass, layer, stack, input_epoch);
      const int needed = phase.shape.tiles +
                         (step == Step::kHead && pass == kTalkerPass ? shared_->projection.tiles + stack.o.tiles : 0);
      if (step == Step::kQkv && pass == kTalkerPass) PrefetchCache(stack, layer);
      if (needed > 0 && step != Step::kProjection) {
        if (phase.norm != nullptr) {
          StageNormed(phase, step == Step::kHead && pass == kTalkerPass && !projected);
        } else {
          StagePairs(phase);
        }
      }
      Multiply(phase, stack, step == Step::kHead && pass == kTalkerPass && projected);
      epoch_ = phase.epoch;

      switch (step) {
        case Step::kQkv:
          if (layer == 0) LoadOwn(stack, phase);
          Attend(stack, shared_->layers[stack.first_layer + layer], layer);
          step = Step::kO;
          continue;
        case Step::kO:
          step = Step::kGated;
          continue;
        case Step::kGated:
          step = Step::kDown;
          continue;
        case Step::kDown:
          step = Step::kQkv;
          if (++layer < stack.num_layers) continue;
          if (pass != kHiddenPass) {
            step = Step::kHead;
            continue;
          }
          // The next pass's input is there already; wait as if it came from this pass.
          StageNormed(Describe(Step::kHead, pass, layer, stack, 0), false);
          break;
        case Step::kHead:
          if (pass == kTalkerPass && projected) {
            step = Step::kProjection;
            continue;
          }
          ++epoch_;
          if (pass == kTalkerPass) PublishHidden(epoch_);
          break;
        case Step::kProjection:
          break;
      }
      // A pass has ended.
      if (pass != kHiddenPass) {
        input_epoch = epoch_;
        if (row < a.rows) alive = ChooseCode(row, pass == kTalkerPass ? 0 : pass + 1, alive);
        if (pass == kTalkerPass && !AnySpeaks()) return;
      }
      if (pass == kTalkerPass) {
        pass = a.paired ? 0 : kHiddenPass;
      } else if (++pass == a.groups - 1) {
        return;
      }
      BeginPass(pass);
      layer = 0;
      step = Step::kQkv;
    }
  }

 private:
  // The predictor's pass p leads from code p to code p + 1. The first also takes the hidden state, at position 0, in
  // rows of its own or, where these would be too many, in a pass before it.
  static constexpr int kHiddenPass = -1;
  static constexpr int kTalkerPass = -2;

  __device__ __forceinline__ bool Pairs(int pass) const { return pass == 0 && a.paired; }
  __device__ __forceinline__ int Rows(int pass) const { return Pairs(pass) ? 2 * a.rows : a.rows; }
  __device__ __forceinline__ int max_rows() const { return a.paired ? 2 * a.rows : a.rows; }
  __device__ __forceinline__ __nv_bfloat16* Stage(const Share& share, int rows) const {
    return reinterpret_cast<__nv_bfloat16*>(memory_ + a.stage_offset) + warp_ * rows * share.stride;
  }

  // Sequences, positions and angles of a pass's rows.
  __device__ __forceinline__ void BeginPass(int pass) {
    Team::Sync();
    const int rows = Rows(pass);
    const int per_sequence = Pairs(pass) ? 2 : 1;
    const bool talker = pass == kTalkerPass;
    if (threadIdx.x == 0) {
      shared_->rows = rows;
      shared_->per_sequence = per_sequence;
    }
    if (static_cast<int>(threadIdx.x) < rows) {
      const int r = static_cast<int>(threadIdx.x);
      shared_->sequences[r] = talker ? shared_->slots[r] : r / per_sequence;
      shared_->positions[r] = talker ? a.frame.positions[r] : Pairs(pass) ? r % 2 : pass + 1;
    }
    Team::Sync();
    const PersistentStack& s = shared_->stacks[talker ? 0 : 1];
    // The predictor's cache is read by the block that has written it, in earlier passes; the talker's was written in
    // earlier frames.
    const int sequences = rows / per_sequence;
    int splits = 1;
#pragma unroll 1
    for (int r = 0; r < rows; ++r) {
      if (shared_->sequences[r] >= 0) splits = max(splits, UsedSplits(s, shared_->positions[r]));
    }
    const int all = splits * sequences * s.kv_heads;
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < kPersistentItems; i += kTeamThreads) {
      const int k = i % per_sequence;
      const int index = TileAt(i / per_sequence);
      if (index >= all) continue;
      AttentionItem item;
      item.kv_head = index % s.kv_heads;
      item.row = index / s.kv_heads % sequences * per_sequence + k;
      item.split_index = index / s.kv_heads / sequences;
      item.new_rows = k + 1;
      item.position = shared_->positions[item.row];
      item.used_splits = UsedSplits(s, item.position);
      item.split = FirstSplit(s, item.position) + item.split_index;
      const int sequence = shared_->sequences[item.row];
      item.page = nullptr;
      if (sequence < 0) {
        item.used_splits = 1;
      } else if (item.split_index < item.used_splits) {
        item.page = static_cast<__nv_bfloat16*>(s.pages[static_cast<int64_t>(sequence) * s.pages_per_sequence +
                                                        item.split * kSplitPositions / s.page_positions]);
      }
      shared_->items[i] = item;
    }
    if (threadIdx.x == 0) {
      shared_->splits = splits;
      shared_->num_items = min(kPersistentItems, Mine(all) * per_sequence);
    }
    const float* const frequencies = s.inverse_frequencies;
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < rows * kHalf; i += kTeamThreads) {
      sincosf(static_cast<float>(shared_->positions[i / kHalf]) * frequencies[i % kHalf],
              &shared_->sine[i / kHalf][i % kHalf], &shared_->cosine[i / kHalf][i % kHalf]);
    }
    Team::Sync();
  }

  __device__ __forceinline__ Phase Describe(Step step, int pass, int layer, const PersistentStack& s,
                                            uint32_t input_epoch) const {
    Phase p;
    const bool talker = pass == kTalkerPass;
    const PersistentLayer& l = shared_->layers[s.first_layer + min(layer, s.num_layers - 1)];
    p.rows = shared_->rows;
    p.source = s.x;
    p.source_stride = s.hidden;
    p.plain = false;
    p.source_epoch = epoch_;
    p.norm = nullptr;
    p.bias = nullptr;
    p.finish = Finish::kStore;
    p.epoch = epoch_ + 1;
    p.kept = nullptr;
    switch (step) {
      case Step::kQkv:
        p.shape = s.qkv;
        if (layer == 0) {
          p.source = talker ? static_cast<const void*>(a.x)
                            : a.input + (pass == 0 && !a.paired ? kPersistentRows * s.hidden : 0);
          p.source_stride = talker ? a.x_stride : s.hidden;
          p.plain = talker;
          p.source_epoch = input_epoch;
        }
        p.norm = l.input_norm;
        p.bias = l.qkv_bias;
        p.target = s.qkv_words;
        p.target_stride = s.qkv.outputs;
        break;
      case Step::kO:
        p.shape = s.o;
        p.source = s.attended;
        p.source_stride = s.o.columns / 2;
        p.bias = l.o_bias;
        p.finish = Finish::kAdd;
        p.target = s.x_middle;
        p.target_stride = s.hidden;
        break;
      case Step::kGated:
        p.shape = s.gated;
        p.source = s.x_middle;
        p.norm = l.post_norm;
        p.finish = Finish::kGated;
        p.target = s.inner;
        p.target_stride = s.gated.outputs / 2;
        break;
      case Step::kDown:
        p.shape = s.down;
        p.source = s.inner;
        p.source_stride = s.gated.outputs / 2;
        p.finish = Finish::kAdd;
        p.target = s.x;
        p.target_stride = s.hidden;
        break;
      case Step::kHead:
        p.shape = talker ? shared_->talker_head : shared_->head;
        p.rows = a.rows;
        if (Pairs(pass)) {
          p.source = s.x + s.hidden;
          p.source_stride = 2 * s.hidden;
        }
        p.norm = s.norm;
        p.target = a.logits;
        p.target_stride = kPersistentVocab;
        p.kept = talker ? a.talker_logits
                        : a.predictor_logits + static_cast<int64_t>(max(pass, 0)) * kMaxRows * a.head.outputs;
        break;
      case Step::kProjection:
        p.shape = shared_->projection;
        p.bias = a.projection_bias;
        p.target = a.input;
        p.target_stride = (a.paired ? 2 : 1) * a.predictor.hidden;
        break;
    }
    return p;
  }

  // Brings this warp's columns of normed rows to its stage: x * norm in BF16, and the sums of squares aside.
  // `for_hidden`: also those that PublishHidden() needs.
  __device__ __forceinline__ void StageNormed(const Phase& p, bool for_hidden) {
    constexpr int kTogether = 2;
    const Share share(p.shape.chunks, warp_);
    __nv_bfloat16* const stage = Stage(share, p.rows);
    const int items = p.rows * share.spans;
    const int first_column = share.begin * kChunk;
#pragma unroll 1
    for (int base = 0; base < items; base += kTogether) {
      uint4 low[kTogether], high[kTogether];
      float4 scale[kTogether];
      int row[kTogether], span[kTogether], column[kTogether];
#pragma unroll
      for (int k = 0; k < kTogether; ++k) {
        row[k] = share.spans == 1 ? base + k : SmallQuotient(base + k, share.spans);
        span[k] = base + k - row[k] * share.spans;
        column[k] = span[k] * 128 + lane_ * 4;
        if (base + k >= items) column[k] = kPersistentHidden;
        if (column[k] >= share.count * kChunk) continue;
        const int64_t at = row[k] * p.source_stride + first_column + column[k];
        scale[k] = __ldg(reinterpret_cast<const float4*>(p.norm + first_column + column[k]));
        if (p.plain) {
          const uint4 x = Fresh(reinterpret_cast<const uint4*>(static_cast<const float*>(p.source) + at));
          const bool there = shared_->sequences[row[k]] >= 0;
          low[k] = {there ? x.x : 0, p.source_epoch, there ? x.y : 0, p.source_epoch};
          high[k] = {there ? x.z : 0, p.source_epoch, there ? x.w : 0, p.source_epoch};
        } else {
          low[k] = LoadTwoWords(static_cast<const Word*>(p.source) + at);
          high[k] = LoadTwoWords(static_cast<const Word*>(p.source) + at + 2);
        }
      }
#pragma unroll
      for (int k = 0; k < kTogether; ++k) {
        if (base + k >= items) continue;
        float x0 = 0, x1 = 0, x2 = 0, x3 = 0;
        if (column[k] < share.count * kChunk) {
          const Word* const words =
              static_cast<const Word*>(p.source) + row[k] * p.source_stride + first_column + column[k];
          unsigned looks = 0;
          while ((low[k].y != p.source_epoch || low[k].w != p.source_epoch || high[k].y != p.source_epoch ||
                  high[k].w != p.source_epoch) &&
                 patience_.Lasts(&looks)) {
            low[k] = LoadTwoWords(words);
            high[k] = LoadTwoWords(words + 2);
          }
          x0 = __uint_as_float(low[k].x), x1 = __uint_as_float(low[k].z);
          x2 = __uint_as_float(high[k].x), x3 = __uint_as_float(high[k].z);
          const uint2 packed = {PackBf16(x0 * scale[k].x, x1 * scale[k].y), PackBf16(x2 * scale[k].z, x3 * scale[k].w)};
          *reinterpret_cast<uint2*>(stage + row[k] * share.stride + column[k]) = packed;
        }
        __syncwarp();
        const float square = WarpSum(gemm::SumOfSquares(x0, x1, x2, x3));
        if (lane_ == 0) {
          float& sum = shared_->squares[parity_][warp_][row[k]];
          sum = span[k] == 0 ? square : __fadd_rn(sum, square);
        }
        if (for_hidden) {
          // As a warp adds the squares of 32 columns, one in each lane.
          float s[4] = {__fmul_rn(x0, x0), __fmul_rn(x1, x1), __fmul_rn(x2, x2), __fmul_rn(x3, x3)};
#pragma unroll
          for (int offset = 4; offset > 0; offset /= 2) {
#pragma unroll
            for (int e = 0; e < 4; ++e) s[e] += __shfl_xor_sync(~0U, s[e], offset);
          }
          if (lane_ % 8 == 0 && column[k] < share.count * kChunk) {
            shared_->hidden_squares[row[k]][(first_column + column[k]) / 32] = (s[0] + s[2]) + (s[1] + s[3]);
          }
        }
      }
    }
    __syncwarp();
  }

  // Brings this warp's columns of BF16 rows to its stage.
  __device__ __forceinline__ void StagePairs(const Phase& p) {
    constexpr int kTogether = 4;
    const Share share(p.shape.chunks, warp_);
    __nv_bfloat16* const stage = Stage(share, p.rows);
    const int per_row = share.count * (kChunk / 4);  // loads of two words
    const Word* source = static_cast<const Word*>(p.source) + share.begin * (kChunk / 2);
#pragma unroll 1
    for (int row = 0; row < p.rows; ++row) {
#pragma unroll 1
      for (int base = lane_; base < per_row; base += 32 * kTogether) {
        uint4 seen[kTogether];
#pragma unroll
        for (int k = 0; k < kTogether; ++k) {
          if (base + 32 * k < per_row) seen[k] = LoadTwoWords(source + (base + 32 * k) * 2);
        }
#pragma unroll
        for (int k = 0; k < kTogether; ++k) {
          const int at = base + 32 * k;
          if (at >= per_row) continue;
          *reinterpret_cast<uint2*>(stage + row * share.stride + at * 4) =
              Await(seen[k], source + at * 2, p.source_epoch, patience_);
        }
      }
      source += p.source_stride;
    }
    __syncwarp();
  }

  // A warp's products of the pieces of one tile.
  template <int kHalves>
  __device__ __forceinline__ void MultiplyTile(const Share& share, int chunks, const __nv_bfloat16* stage, bool has_row,
                                               float (&sums)[4]) {
    constexpr int kPieceChunks = kPieceBytes / (512 * kHalves);
#pragma unroll 1
    for (int begin = 0; begin < chunks; begin += kPieceChunks) {
      const char* const piece = ring_.Piece();
      const int from = max(begin, share.begin);
      const int to = min(begin + kPieceChunks, share.begin + share.count);
      const char* weights = piece + (from - begin) * (512 * kHalves) + lane_ * 16;
      const __nv_bfloat16* x = stage + (from - share.begin) * kChunk;
#pragma unroll 4
      for (int c = from; c < to; ++c) {
        const uint4 low = *reinterpret_cast<const uint4*>(weights);
        const uint4 high = kHalves == 2 ? *reinterpret_cast<const uint4*>(weights + 512 * (kHalves - 1)) : uint4{};
        const uint4 b = has_row ? *reinterpret_cast<const uint4*>(x) : uint4{};
        Mma(sums, low.x, high.x, low.y, high.y, b.x, b.y);
        Mma(sums, low.z, high.z, low.w, high.w, b.z, b.w);
        weights += 512 * kHalves;
        x += kChunk;
      }
      ring_.GiveBack(lane_);
    }
  }

  // Multiplies this block's tiles, whose weights come next in the ring, with the staged rows, and publishes the
  // outputs. `again`: the next product is of the same staged rows.
  __device__ __forceinline__ void Multiply(const Phase& p, const PersistentStack& stack, bool again) {
    const int mine = p.shape.tiles;
    const Share share(p.shape.chunks, warp_);
    const int group = lane_ / 4;
    const int quad = lane_ % 4;
    const __nv_bfloat16* const stage = Stage(share, p.rows) + group * share.stride + quad * 8;
    const int halves = p.finish == Finish::kAdd ? 1 : 2;
    const int outputs = 8 * halves;
#pragma unroll 1
    for (int first = 0; first < mine; first += kTilesAtOnce) {
      const int together = min(kTilesAtOnce, mine - first);
      float* const partial = reinterpret_cast<float*>(memory_ + a.partial_offset) +
                             static_cast<int>(parity_) * (kTilesAtOnce * kWarps * 16) * max_rows();
      // Sums are stored while the next tile's are being made.
      float last[4];
#pragma unroll 1
      for (int j = 0; j <= together; ++j) {
        float sums[4] = {};
        if (j < together) {
          if (halves == 2) {
            MultiplyTile<2>(share, p.shape.chunks, stage, group < p.rows, sums);
          } else {
            MultiplyTile<1>(share, p.shape.chunks, stage, group < p.rows, sums);
          }
        }
        if (j > 0) {
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            const int row = 2 * quad + i;
            if (row >= p.rows) continue;
            float* const out = partial + (((j - 1) * kWarps + warp_) * p.rows + row) * outputs + group;
            out[0] = last[i];
            if (halves == 2) out[8] = last[2 + i];
          }
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) last[i] = sums[i];
      }
      Team::Sync();
      const int values = p.finish == Finish::kStore ? 16 : 8;
      const int count = together * p.rows * values;
#pragma unroll 1
      for (int base = warp_ * 32; base < count; base += kTeamThreads) {
        const int i = base + lane_;
        const int m = i & (values - 1);
        const int rest = i >> (values == 16 ? 4 : 3);
        const int j = min(p.rows == 1 ? rest : SmallQuotient(rest, p.rows), together - 1);
        const int row = i < count ? rest - j * p.rows : 0;
        FinishOutput(p, stack, partial + (j * kWarps * p.rows + row) * outputs, outputs, first + j, row, m, i < count);
      }
      if (again || first + kTilesAtOnce < mine) CarrySquares(p.rows);
      // The other half of `partial` and of the squares is for the next; nobody reads it any more.
      parity_ ^= 1;
    }
  }

  // By all lanes of a warp together, neighbours in m side by side. `partial` are the sums of the first warp.
  __device__ __forceinline__ void FinishOutput(const Phase& p, const PersistentStack& stack, const float* partial,
                                               int outputs, int index, int row, int m, bool valid) {
    const int stride = p.rows * outputs;
    float factor = 1;
    if (p.finish != Finish::kAdd) {
      factor = gemm::NormFactor(&shared_->squares[parity_][0][row], kPersistentRows, p.shape.columns, stack.eps);
    }
    float value = gemm::Total(partial + m, stride, factor);
    if (p.finish == Finish::kGated) value = Silu(value) * gemm::Total(partial + m + 8, stride, factor);
    const int output = TileAt(index) * (p.finish == Finish::kStore ? 16 : 8) + m;
    valid = valid && output < p.shape.outputs;
    if (p.finish == Finish::kGated) {
      const float next = __shfl_down_sync(~0U, value, 1);
      if (valid && m % 2 == 0) Publish(p.target + row * p.target_stride + output / 2, PackBf16(value, next), p.epoch);
      return;
    }
    if (!valid) return;
    if (p.bias != nullptr) value = __fadd_rn(value, p.bias[output]);
    if (p.finish == Finish::kAdd) {
      float* const own = reinterpret_cast<float*>(memory_ + a.own_offset) + (index * p.rows + row) * 8 + m;
      value = __fadd_rn(*own, value);
      *own = value;
    }
    Publish(p.target + row * p.target_stride + output, __float_as_uint(value), p.epoch);
    if (p.kept != nullptr) p.kept[row * p.shape.outputs + output] = value;
  }

  // Makes this warp's squares known to the next round of products of the same staged rows.
  __device__ __forceinline__ void CarrySquares(int rows) {
    if (lane_ < rows) shared_->squares[parity_ ^ 1][warp_][lane_] = shared_->squares[parity_][warp_][lane_];
    __syncwarp();
  }

  // This block's columns of the residual stream, [tile][row][8], stay with it from pass begin to pass end. `p` is the
  // pass's first product.
  __device__ __forceinline__ void LoadOwn(const PersistentStack& s, const Phase& p) {
    float* const own = reinterpret_cast<float*>(memory_ + a.own_offset);
    const int count = s.o.tiles * p.rows * 8;
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < count; i += kTeamThreads) {
      const int column = TileAt(i / (8 * p.rows)) * 8 + i % 8;
      const int row = i / 8 % p.rows;
      if (column >= s.hidden) continue;
      if (p.plain) {
        own[i] = shared_->sequences[row] >= 0
                     ? Fresh(static_cast<const float*>(p.source) + row * p.source_stride + column)
                     : 0;
      } else {
        const Word* const word = static_cast<const Word*>(p.source) + row * p.source_stride + column;
        own[i] = __uint_as_float(Await(LoadWord(word), word, p.source_epoch, patience_));
      }
    }
    Team::Sync();
  }

  // --- Attention ---

  __device__ static __forceinline__ int FirstSplit(const PersistentStack& s, int position) {
    return (s.window > 0 ? max(0, position + 1 - s.window) : 0) / kSplitPositions;
  }
  __device__ static __forceinline__ int UsedSplits(const PersistentStack& s, int position) {
    return position / kSplitPositions - FirstSplit(s, position) + 1;
  }

  // From qkv, of the current epoch, to `attended`. Takes two epochs.
  __device__ __forceinline__ void Attend(const PersistentStack& s, const PersistentLayer& layer, int layer_index) {
    const uint32_t qkv_epoch = epoch_;
    epoch_ += 2;
#pragma unroll 1
    for (int i = 0; i < shared_->num_items; ++i) {
      const AttentionItem& item = shared_->items[i];
      if (item.split_index >= item.used_splits) continue;
      if (item.page == nullptr) {
        PublishSilence(s, item.row, item.kv_head);
      } else {
        AttendSplit(s, layer, layer_index, item, qkv_epoch);
      }
    }
    if (shared_->splits == 1) return;
    Team::Sync();
    constexpr int kPerHead = kHeadDim / kCombined;
#pragma unroll 1
    for (int unit = static_cast<int>(blockIdx.x); unit < shared_->rows * s.heads * kPerHead;
         unit += static_cast<int>(gridDim.x)) {
      const int row = unit / kPerHead / s.heads;
      if (shared_->sequences[row] < 0) continue;
      const int used = UsedSplits(s, shared_->positions[row]);
      if (used > 1) CombineSplits(s, row, unit / kPerHead % s.heads, unit % kPerHead * kCombined, used);
    }
  }

  // Asks for the keys and values of this block's first items, that are to be in the L2 cache when queries come.
  __device__ __forceinline__ void PrefetchCache(const PersistentStack& s, int layer) {
    constexpr int kLine = 64;  // elements
#pragma unroll 1
    for (int i = 0; i < min(shared_->num_items, 2); ++i) {
      const AttentionItem& item = shared_->items[i];
      if (item.page == nullptr) continue;
      const int line = static_cast<int>(threadIdx.x) % 128;
      if (item.split * kSplitPositions + line / 2 > item.position) continue;
      const int side = static_cast<int>(threadIdx.x) / 128;  // keys, values
      const __nv_bfloat16* const head =
          item.page +
          ((static_cast<int64_t>(layer) * s.kv_heads + item.kv_head) * 2 + side) * s.page_positions * kHeadDim;
      const __nv_bfloat16* const p = head + item.split * kSplitPositions % s.page_positions * kHeadDim + line * kLine;
      asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
    }
  }

  // For a row that is left out.
  __device__ __forceinline__ void PublishSilence(const PersistentStack& s, int row, int kv_head) {
    constexpr int kWords = kGroup * kHeadDim / 2;
    if (static_cast<int>(threadIdx.x) < kWords) {
      Publish(s.attended + row * (s.heads * kHeadDim / 2) + kv_head * kWords + threadIdx.x, 0, epoch_);
    }
  }

  // attention.cu's AttendKernel for two query heads, one key head and one split.
  __device__ __forceinline__ void AttendSplit(const PersistentStack& s, const PersistentLayer& layer, int layer_index,
                                              const AttentionItem& item, uint32_t qkv_epoch) {
    constexpr int kLanes = kHeadDim / 8;
    constexpr int kTurn = kWarps * (32 / kLanes);
    constexpr int kTurns = kSplitPositions / kTurn;
    AttentionMemory& m = *reinterpret_cast<AttentionMemory*>(memory_ + a.attention_offset);
    const int part = lane_ % kLanes;
    const int row = item.row;
    const int kv_head = item.kv_head;
    const int position = item.position;
    const int cached = position + 1 - item.new_rows;
    const int start = s.window > 0 ? max(0, position + 1 - s.window) : 0;
    const int used_splits = item.used_splits;
    const int split = item.split;
    const int begin = max(start, split * kSplitPositions);
    const int end = min(position + 1, (split + 1) * kSplitPositions);
    __nv_bfloat16* const page = item.page;
    const int page_position = split * kSplitPositions % s.page_positions - split * kSplitPositions;
    const auto key_at = [&](int p) {
      return page +
             ((static_cast<int64_t>(layer_index) * s.kv_heads + kv_head) * 2 * s.page_positions + p + page_position) *
                 kHeadDim;
    };
    const auto position_of = [&](int turn) {
      return split * kSplitPositions + turn * kTurn + warp_ * 2 + lane_ / kLanes;
    };
    uint4 keys[kTurns] = {}, values[kTurns] = {};
#pragma unroll
    for (int t = 0; t < kTurns; ++t) {
      if (split * kSplitPositions + t * kTurn >= end) break;
      const int p = position_of(t);
      if (p >= begin && p < end && p < cached) {
        const __nv_bfloat16* const key = key_at(p) + part * 8;
        keys[t] = Fresh(reinterpret_cast<const uint4*>(key));
        values[t] = Fresh(reinterpret_cast<const uint4*>(key + s.page_positions * kHeadDim));
      }
    }
    PlaceHeads(s, layer, row, kv_head, position < end ? item.new_rows : 0, qkv_epoch, &m,
               position < end ? key_at(position) : nullptr);
    Team::Sync();

    float query[kGroup][8];
#pragma unroll
    for (int g = 0; g < kGroup; ++g) {
#pragma unroll
      for (int e = 0; e < 8; ++e) query[g][e] = m.q[g][part * 8 + e];
    }
    const float scale = 1.0F / sqrtf(static_cast<float>(kHeadDim));
    const auto element = [](const uint4& u, int e) {
      const uint32_t word = e / 2 == 0 ? u.x : e / 2 == 1 ? u.y : e / 2 == 2 ? u.z : u.w;
      return e % 2 == 0 ? LowBf16(word) : HighBf16(word);
    };
    float scores[kGroup][kTurns];
    float most[kGroup], sum[kGroup], y[kGroup][8];
#pragma unroll
    for (int g = 0; g < kGroup; ++g) {
      most[g] = -INFINITY;
      sum[g] = 0;
#pragma unroll
      for (int e = 0; e < 8; ++e) y[g][e] = 0;
    }
#pragma unroll
    for (int t = 0; t < kTurns; ++t) {
      if (split * kSplitPositions + t * kTurn >= end) break;
      const int p = position_of(t);
      const bool valid = p >= begin && p < end;
      const bool fresh = valid && p >= cached;
      float key[8];
#pragma unroll
      for (int e = 0; e < 8; ++e) key[e] = fresh ? m.new_keys[p - cached][part * 8 + e] : element(keys[t], e);
#pragma unroll
      for (int g = 0; g < kGroup; ++g) {
        float dot = 0;
#pragma unroll
        for (int e = 0; e < 8; ++e) dot += query[g][e] * key[e];
#pragma unroll
        for (int offset = kLanes / 2; offset > 0; offset /= 2) dot += __shfl_xor_sync(~0U, dot, offset);
        scores[g][t] = valid ? dot * scale : -INFINITY;
        most[g] = fmaxf(most[g], scores[g][t]);
      }
    }
#pragma unroll
    for (int t = 0; t < kTurns; ++t) {
      if (split * kSplitPositions + t * kTurn >= end) break;
      const int p = position_of(t);
      const bool valid = p >= begin && p < end;
      const bool fresh = valid && p >= cached;
      float value[8];
#pragma unroll
      for (int e = 0; e < 8; ++e) value[e] = fresh ? m.new_values[p - cached][part * 8 + e] : element(values[t], e);
#pragma unroll
      for (int g = 0; g < kGroup; ++g) {
        const float weight = valid ? expf(scores[g][t] - most[g]) : 0;
        sum[g] += weight;
#pragma unroll
        for (int e = 0; e < 8; ++e) y[g][e] += weight * value[e];
      }
    }
#pragma unroll
    for (int offset = kLanes; offset < 32; offset *= 2) {
#pragma unroll
      for (int g = 0; g < kGroup; ++g) {
        const float other = __shfl_xor_sync(~0U, most[g], offset);
        const float largest = fmaxf(most[g], other);
        const float factor = most[g] == -INFINITY ? 0 : expf(most[g] - largest);
        const float other_factor = other == -INFINITY ? 0 : expf(other - largest);
        most[g] = largest;
        sum[g] = sum[g] * factor + __shfl_xor_sync(~0U, sum[g], offset) * other_factor;
#pragma unroll
        for (int e = 0; e < 8; ++e) y[g][e] = y[g][e] * factor + __shfl_xor_sync(~0U, y[g][e], offset) * other_factor;
      }
    }
    if (lane_ < kLanes) {
#pragma unroll
      for (int g = 0; g < kGroup; ++g) {
#pragma unroll
        for (int e = 0; e < 8; ++e) m.warp_y[warp_][g][part * 8 + e] = y[g][e];
        if (part == 0) {
          m.warp_max[warp_][g] = most[g];
          m.warp_sum[warp_][g] = sum[g];
        }
      }
    }
    Team::Sync();

    static_assert(kGroup * kHeadDim == kTeamThreads, "a thread for each element");
    const int i = static_cast<int>(threadIdx.x);
    const int g = i / kHeadDim;
    const int d = i % kHeadDim;
    float largest = -INFINITY;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) largest = fmaxf(largest, m.warp_max[w][g]);
    float total = 0, value = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      const float factor = m.warp_max[w][g] == -INFINITY ? 0 : expf(m.warp_max[w][g] - largest);
      total += factor * m.warp_sum[w][g];
      value += factor * m.warp_y[w][g][d];
    }
    if (used_splits == 1) {
      PublishAttended(s, row, kv_head * kGroup * kHeadDim + i, value / total);
      return;
    }
    Word* const record =
        s.records +
        ((static_cast<int64_t>(row) * s.kv_heads + kv_head) * kPersistentSplits + item.split_index) * kRecordWords;
    Publish(record + 2 * kGroup + i, __float_as_uint(value), epoch_ - 1);
    if (d == 0) {
      Publish(record + g, __float_as_uint(total), epoch_ - 1);
      Publish(record + kGroup + g, __float_as_uint(largest), epoch_ - 1);
    }
  }

  // Element i of a row of `attended`, by all lanes of a warp, neighbours side by side.
  __device__ __forceinline__ void PublishAttended(const PersistentStack& s, int row, int i, float value) {
    const float next = __shfl_down_sync(~0U, value, 1);
    if (i % 2 == 0) Publish(s.attended + row * (s.heads * kHeadDim / 2) + i / 2, PackBf16(value, next), epoch_);
  }

  // Queries of a row, keys and values of the new rows up to it, to shared memory; its own key and value to the cache,
  // at `target`.
  __device__ __forceinline__ void PlaceHeads(const PersistentStack& s, const PersistentLayer& layer, int row,
                                             int kv_head, int new_rows, uint32_t qkv_epoch, AttentionMemory* m,
                                             __nv_bfloat16* target) {
    if (warp_ >= kGroup + 2 * new_rows) return;
    const bool is_query = warp_ < kGroup;
    const bool is_value = warp_ >= kGroup + new_rows;
    const int j = is_query ? 0 : (warp_ - kGroup) % max(1, new_rows);
    const int back = is_query ? 0 : new_rows - 1 - j;
    const int head = is_query ? kv_head * kGroup + warp_ : s.heads + (is_value ? s.kv_heads : 0) + kv_head;
    const Word* const words = s.qkv_words + (row - back) * s.qkv.outputs + head * kHeadDim;
    const float* const norm = is_query ? layer.q_norm : layer.k_norm;
    float low_norm[2] = {1, 1}, high_norm[2] = {1, 1}, sine[2], cosine[2];
    uint2 seen[4];
#pragma unroll
    for (int p = 0; p < 2; ++p) {
      const int i = lane_ + 32 * p;
      seen[2 * p] = LoadWord(words + i);
      seen[2 * p + 1] = LoadWord(words + kHalf + i);
      if (norm != nullptr) {
        low_norm[p] = __ldg(norm + i);
        high_norm[p] = __ldg(norm + kHalf + i);
      }
      sine[p] = shared_->sine[row - back][i];
      cosine[p] = shared_->cosine[row - back][i];
    }
    float low[2], high[2];
#pragma unroll
    for (int p = 0; p < 2; ++p) {
      const Word* const word = words + lane_ + 32 * p;
      low[p] = __uint_as_float(Await(seen[2 * p], word, qkv_epoch, patience_));
      high[p] = __uint_as_float(Await(seen[2 * p + 1], word + kHalf, qkv_epoch, patience_));
    }
    __syncwarp();
    if (is_value) {
      if (target != nullptr) target += s.page_positions * kHeadDim;
#pragma unroll
      for (int p = 0; p < 4; ++p) {
        const int i = lane_ + 32 * (p / 2) + kHalf * (p % 2);
        const __nv_bfloat16 rounded = FromFloat<__nv_bfloat16>(p % 2 == 0 ? low[p / 2] : high[p / 2]);
        m->new_values[j][i] = ToFloat(rounded);
        if (back == 0) target[i] = rounded;
      }
      return;
    }
    NormAndRotate(low, high, norm != nullptr, low_norm, high_norm, s.eps, sine, cosine, kHalf, lane_,
                  [&](int i, float value) {
                    if (is_query) {
                      m->q[warp_][i] = value;
                      return;
                    }
                    const __nv_bfloat16 rounded = FromFloat<__nv_bfloat16>(value);
                    m->new_keys[j][i] = ToFloat(rounded);
                    if (back == 0) target[i] = rounded;
                  });
  }

  // Elements [first, first + kCombined) of a head from the records of all splits, in their order.
  __device__ __forceinline__ void CombineSplits(const PersistentStack& s, int row, int head, int first, int splits) {
    CombineMemory& m = *reinterpret_cast<CombineMemory*>(memory_ + a.attention_offset);
    const int g = head % kGroup;
    const Word* const records =
        s.records + (static_cast<int64_t>(row) * s.kv_heads + head / kGroup) * kPersistentSplits * kRecordWords;
    const uint32_t epoch = epoch_ - 1;
    for (int i = static_cast<int>(threadIdx.x); i < splits * 2; i += kTeamThreads) {
      const Word* const word = records + i / 2 * kRecordWords + i % 2 * kGroup + g;
      const float value = __uint_as_float(Await(LoadWord(word), word, epoch, patience_));
      (i % 2 == 0 ? m.sums : m.maxima)[i / 2] = value;
    }
    constexpr int kLoads = kCombined / 2;
    for (int i = static_cast<int>(threadIdx.x); i < splits * kLoads; i += kTeamThreads) {
      const Word* const words =
          records + i / kLoads * kRecordWords + 2 * kGroup + g * kHeadDim + first + i % kLoads * 2;
      const uint2 two = Await(LoadTwoWords(words), words, epoch, patience_);
      m.values[i / kLoads][i % kLoads * 2] = __uint_as_float(two.x);
      m.values[i / kLoads][i % kLoads * 2 + 1] = __uint_as_float(two.y);
    }
    Team::Sync();
    for (int i = static_cast<int>(threadIdx.x); i < splits; i += kTeamThreads) {
      float largest = -INFINITY;
      for (int k = 0; k < splits; ++k) largest = fmaxf(largest, m.maxima[k]);
      m.factors[i] = expf(m.maxima[i] - largest);
    }
    Team::Sync();
    if (warp_ == 0) {
      const int d = lane_ % kCombined;
      float total = 0, value = 0;
#pragma unroll 4
      for (int k = 0; k < splits; ++k) {
        const float factor = m.factors[k];
        total += factor * m.sums[k];
        value += factor * m.values[k][d];
      }
      const float result = value / total;
      const float next = __shfl_down_sync(~0U, result, 1);
      if (lane_ < kCombined && d % 2 == 0) {
        Publish(s.attended + row * (s.heads * kHeadDim / 2) + (head * kHeadDim + first + d) / 2, PackBf16(result, next),
                epoch_);
      }
    }
    Team::Sync();
  }

  // --- Choices ---

  // The talker's hidden state, normed, as the predictor's first input: for models without projection.
  __device__ __forceinline__ void PublishHidden(uint32_t epoch) {
    const int width = a.talker.hidden;
    const int step = a.paired ? 2 : 1;
    const float* const own = reinterpret_cast<const float*>(memory_ + a.own_offset);
    const int count = shared_->stacks[0].o.tiles * a.rows * 8;
    if (count == 0) return;
    Team::Sync();
    for (int i = static_cast<int>(threadIdx.x); i < count; i += kTeamThreads) {
      const int column = TileAt(i / (8 * a.rows)) * 8 + i % 8;
      const int row = i / 8 % a.rows;
      if (column >= width) continue;
      float total = 0;
      for (int w = 0; w < width / 32; ++w) total += shared_->hidden_squares[row][w];
      const float factor = 1.0F / sqrtf(total / static_cast<float>(width) + a.talker.eps);
      Publish(a.input + row * step * width + column, __float_as_uint(own[i] * factor * a.talker.norm[column]), epoch);
    }
  }

  // A row's logits, thread t those of t, t + kTeamThreads, …
  template <int kPerThread>
  __device__ __forceinline__ void GatherLogits(int row, int vocab, uint32_t epoch, float (&logits)[kPerThread]) {
    const Word* const words = a.logits + row * kPersistentVocab + threadIdx.x;
    uint2 seen[kPerThread];
#pragma unroll
    for (int j = 0; j < kPerThread; ++j) {
      if (static_cast<int>(threadIdx.x) + j * kTeamThreads < vocab) seen[j] = LoadWord(words + j * kTeamThreads);
    }
#pragma unroll
    for (int j = 0; j < kPerThread; ++j) {
      logits[j] = -INFINITY;
      if (static_cast<int>(threadIdx.x) + j * kTeamThreads < vocab) {
        logits[j] = __uint_as_float(Await(seen[j], words + j * kTeamThreads, epoch, patience_));
      }
    }
  }

  // The embedding of a row's code `id` (below 0: zeros) as row `input_row` of the predictor's input.
  __device__ __forceinline__ void PublishEmbedding(int pass, int id, int input_row, uint32_t epoch) {
    const int width = a.predictor.hidden;
    const PredictorPass& p = a.passes[pass];
    const auto* const embedding =
        reinterpret_cast<const uint32_t*>(p.table) + static_cast<int64_t>(id) * p.table_stride / 2;
    Word* const words = a.input + input_row * width;
    for (int i = static_cast<int>(threadIdx.x); i < width / 2; i += kTeamThreads) {
      const uint32_t pair = id < 0 ? 0 : __ldg(embedding + i);
      Publish(words + 2 * i, __float_as_uint(LowBf16(pair)), epoch);
      Publish(words + 2 * i + 1, __float_as_uint(HighBf16(pair)), epoch);
    }
  }

  // Chooses a row's code of `group` and publishes its embedding, as input of the next pass. Whether the row goes on.
  __device__ __forceinline__ bool ChooseCode(int row, int group, bool alive) {
    const uint32_t input_epoch = epoch_;
    const bool talker = group == 0;
    const int vocab = talker ? a.talker_head.outputs : a.head.outputs;
    constexpr int kPerThread = kPersistentVocab / kTeamThreads;
    float logits[kPerThread];
    // Also for a row that has nothing to say, so that its input does not come before others have read the last.
    GatherLogits(row, vocab, input_epoch - 1, logits);
    const int slot = shared_->slots[row];
    int id = -1;
    bool goes_on = false;
    if (slot >= 0 && alive) {
      SlotState& state = a.slots[slot];
      unsigned* const history = a.history + static_cast<int64_t>(slot) * a.history_words;
      const int chosen = state.chosen;
      if (talker) {
        const float penalty = state.repetition_penalty;
#pragma unroll
        for (int j = 0; j < kPerThread; ++j) {
          const int i = static_cast<int>(threadIdx.x) + j * kTeamThreads;
          if (i >= vocab) continue;
          const bool repeated = (history[i / 32] >> (i % 32) & 1U) != 0;
          logits[j] = TalkerLogit(logits[j], i, repeated, penalty, vocab, a.eos_id, chosen);
        }
      }
      id =
          Choose<Team>(logits, vocab, talker ? state.talker : state.predictor, state.seed, talker ? chosen : chosen - 1,
                       group, reinterpret_cast<unsigned long long*>(memory_ + a.stage_offset), &shared_->choice);
      const SlotEnd end = EndAfter(id, a.eos_id, chosen, state.max_new_tokens);
      goes_on = talker ? end == SlotEnd::kRunning : id >= 0;
      Team::Sync();
      if (threadIdx.x == 0) {
        if (talker) {
          TakeTalkerId(id, end, row, a.groups, a.frame, history, &state);
        } else {
          TakePredictorId(id, group, row, a.groups, a.frame, &state);
        }
      }
    }
    if (talker && threadIdx.x == 0) Publish(a.speaking + row, goes_on ? 1 : 0, input_epoch);
    if (group + 1 < a.groups) {
      const int input_row = !talker ? row : a.paired ? 2 * row + 1 : kPersistentRows + row;
      PublishEmbedding(group, goes_on ? id : -1, input_row, input_epoch);
    }
    return goes_on;
  }

  // Whether any row goes on after the talker; otherwise no more weights are needed.
  __device__ __forceinline__ bool AnySpeaks() {
    bool speaks = false;
    if (static_cast<int>(threadIdx.x) < a.rows) {
      const Word* const word = a.speaking + threadIdx.x;
      speaks = Await(LoadWord(word), word, epoch_, patience_) != 0;
    }
    speaks = Team::Any(speaks);
    if (!speaks && threadIdx.x == 0) *static_cast<volatile unsigned*>(&shared_->stop) = 1;
    return speaks;
  }

  const FrameKernelArguments& a;
  Shared* shared_;
  char* memory_;
  Patience patience_;
  RingReader ring_;
  int warp_, lane_;
  uint32_t epoch_;
  unsigned parity_ = 0;  // of the products: which half of squares and partial sums is in use
};

#endif  // __CUDA_ARCH__ >= 900

__global__ void __launch_bounds__(kThreads, 1) FrameKernel(const __grid_constant__ FrameKernelArguments a) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) char memory[];
  __shared__ Shared shared;
  if (a.frame.live[0] == 0) return;
  const int layers = a.talker.num_layers + a.predictor.num_layers;
  for (int i = static_cast<int>(threadIdx.x); i < layers; i += kThreads) shared.layers[i] = a.layers[i];
  if (static_cast<int>(threadIdx.x) < a.rows) {
    shared.slots[threadIdx.x] = a.frame.slots[threadIdx.x];
  }
  if (threadIdx.x == 0) {
    shared.stacks[0] = a.talker;
    shared.stacks[1] = a.predictor;
    shared.talker_head = a.talker_head;
    shared.head = a.head;
    shared.projection = a.projection;
    for (PersistentStack& s : shared.stacks) {
      for (MatrixShape* const m : {&s.qkv, &s.o, &s.gated, &s.down}) m->tiles = Mine(m->tiles);
    }
    for (MatrixShape* const m : {&shared.talker_head, &shared.head, &shared.projection}) m->tiles = Mine(m->tiles);
    shared.stop = 0;
    shared.gave_up = 0;
    InitializeRing(&shared.ring, a.ring_slots, kWarps);
  }
  __syncthreads();
  if (threadIdx.x >= kTeamThreads) {
    if (threadIdx.x == kTeamThreads) SendFrame(a, &shared, memory);
    return;
  }
  Block(a, &shared, memory).Run();
#endif
}

}  // namespace

size_t PersistentAttentionBytes() { return kAttentionBytes; }

cudaError_t PrepareFrameKernel(size_t shared_bytes, int* blocks_per_processor) {
  const auto* const kernel = reinterpret_cast<const void*>(FrameKernel);
  cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes));
  if (error != cudaSuccess) return error;
  (void)cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks_per_processor, kernel, kThreads, shared_bytes);
}

cudaError_t LaunchFrameKernel(const FrameKernelArguments& arguments, int blocks, size_t shared_bytes,
                              cudaStream_t stream) {
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeCooperative;
  attribute.val.cooperative = 1;
  config.attrs = &attribute;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, FrameKernel, arguments);
}

}  // namespace qtts::cuda
