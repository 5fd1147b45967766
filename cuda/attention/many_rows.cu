// SPDX-License-Identifier: LGPL-2.1-or-later
#include <algorithm>

#include "attention/attend_block.cuh"
#include "attention/head_pairs.h"
#include "attention/many_rows.h"

namespace qtts::cuda::attention {
namespace {

// Number of floats in a split's result: sums, largest scores, values.
__host__ __device__ constexpr int RecordElements(int group, int head_dim) { return group * (head_dim + 2); }

// Splits whose keys and values are brought into L2 ahead of the one that is attended to; the next one's are loaded from
// there.
constexpr int kSplitsAhead = 2;

// A block goes through the splits of a row's context; the next one's keys and values are loaded while its warps are
// combined. Results of up to a.splits splits are kept in shared memory until the largest score of all is known. Longer
// contexts are gone through twice, the first time for that score.
//
// One thread of each block prefetches keys and values kSplitsAhead splits ahead into L2, which keeps the memory busy
// while blocks begin, compute and end. Behind the end of its own context it goes on with the context of the block that
// will take its place: `at_once` blocks further on, as many as run at once. Rows whose keys have been appended prefetch
// nothing: they belong to few sequences, whose keys other blocks read anyway. Before WaitForPrevious() only addresses
// that LoadCached() may read are prefetched.
template <typename T, int kLanes, int kGroup>
__global__ void __launch_bounds__(kThreads, kBlocksTogether<T, kLanes, kGroup>)
    ContextKernel(AttendArguments a, int at_once) {
  using Block = AttendBlock<T, kLanes, kGroup>;
  __shared__ AttendMemory<T, kLanes, kGroup> memory;
  __shared__ float largest_of_all[kGroup];
  __shared__ typename Block::CachedKeys after[kSplitsAhead];  // the later block's; of the prefetching thread
  extern __shared__ float kept[];
  Block block(a, &memory, static_cast<int>(blockIdx.y), static_cast<int>(blockIdx.x) * kGroup, 0);
  const bool absent = block.absent();
  if (!absent && !a.appended) block.LoadCached();
  const bool prefetches = !a.appended && threadIdx.x == kThreads - 32;  // of the warp that has least to do
  if (prefetches) {
    const unsigned number = blockIdx.y * gridDim.x + blockIdx.x;
    const unsigned later = number + static_cast<unsigned>(at_once);
    const unsigned later_row = later / gridDim.x;
    const int own = absent ? 0 : block.used_splits();
    if (later_row < gridDim.y) {
      const Block next(a, &memory, static_cast<int>(later_row), static_cast<int>(later % gridDim.x) * kGroup, 0);
#pragma unroll
      for (int n = 0; n < kSplitsAhead; ++n) after[n] = next.KeysAhead(n);
    } else {
#pragma unroll
      for (int n = 0; n < kSplitsAhead; ++n) after[n] = {nullptr, 0};
    }
    // No block before the first ones has asked for theirs.
#pragma unroll
    for (int n = 1; n < kSplitsAhead; ++n) {
      if (number < static_cast<unsigned>(at_once)) block.Prefetch(block.KeysAhead(n));
    }
    for (int n = own; n < kSplitsAhead; ++n) block.Prefetch(after[n - own]);
  }
  const bool live = a.live == nullptr || LoadL2(a.live) != 0;
  const HeadPlacer<> placer = block.Placer();

  WaitForPrevious();
  LetNextStart();
  if (absent || !live) return;
  if (a.appended) block.LoadCached();
  const int used = block.used_splits();
  block.PlaceHeads(placer, block.PageOf(used - 1));
  __syncthreads();

  const int record = RecordElements(kGroup, a.head_dim);
  const bool keeps = used <= a.splits;
  const float scale = block.Scale();
  if (!keeps) {
    float most[kGroup];
#pragma unroll
    for (int g = 0; g < kGroup; ++g) most[g] = -INFINITY;
#pragma unroll 1
    for (int s = 0; s < used; ++s) {
      if (prefetches) block.Prefetch(block.KeysAhead(kSplitsAhead));
      block.FindLargest(scale, most);
      if (s + 1 < used) {
        block.GoToNext();
        block.LoadCached();
      }
    }
#pragma unroll
    for (int g = 0; g < kGroup; ++g) {
      most[g] = WarpMax(most[g]);
      if (threadIdx.x % 32 == 0) memory.warp_max[g][threadIdx.x / 32] = most[g];
    }
    __syncthreads();
    if (threadIdx.x < kGroup) {
      float largest = -INFINITY;
      for (int w = 0; w < kWarps; ++w) largest = fmaxf(largest, memory.warp_max[threadIdx.x][w]);
      largest_of_all[threadIdx.x] = largest;
    }
    block.GoTo(0);
    block.LoadCached();
    __syncthreads();
  }

  // Number of this thread's elements; used where results are not kept.
  constexpr int kElements = (kGroup * kLanes * 8 + kThreads - 1) / kThreads;
  float totals[kElements] = {}, values[kElements] = {};
  int heads[kElements];
#pragma unroll
  for (int n = 0; n < kElements; ++n) heads[n] = (static_cast<int>(threadIdx.x) + n * kThreads) / a.head_dim;
#pragma unroll 1
  for (int s = 0; s < used; ++s) {
    if (prefetches) {
      block.Prefetch(s + kSplitsAhead < used ? block.KeysAhead(kSplitsAhead) : after[s + kSplitsAhead - used]);
    }
    block.Attend(scale);
    __syncthreads();
    if (s + 1 < used) {
      block.GoToNext();
      block.LoadCached();
    } else {
      block.Drop();
    }
#pragma unroll
    for (int n = 0; n < kElements; ++n) {
      const int i = static_cast<int>(threadIdx.x) + n * kThreads;
      if (i >= block.elements()) break;
      const int g = heads[n];
      const int d = i - g * a.head_dim;
      const MergedWarps<1> merged = block.Merged(g, d);
      if (used == 1) {
        block.Store(i, merged.value[0] / merged.total);
      } else if (keeps) {
        float* const mine = kept + s * record;
        mine[2 * kGroup + i] = merged.value[0];
        if (d == 0) {
          mine[g] = merged.total;
          mine[kGroup + g] = merged.largest;
        }
      } else {
        AddSplit(SplitFactor<T>(merged.largest, largest_of_all[g]), merged.total, merged.value[0], &totals[n],
                 &values[n]);
      }
    }
    __syncthreads();
  }
  if (used == 1) return;
#pragma unroll
  for (int n = 0; n < kElements; ++n) {
    const int i = static_cast<int>(threadIdx.x) + n * kThreads;
    if (i >= block.elements()) break;
    if (keeps) {
      const int g = heads[n];
      float largest = -INFINITY;
      for (int s = 0; s < used; ++s) largest = fmaxf(largest, kept[s * record + kGroup + g]);
#pragma unroll 4
      for (int s = 0; s < used; ++s) {
        const float* const other = kept + s * record;
        AddSplit(SplitFactor<T>(other[kGroup + g], largest), other[g], other[2 * kGroup + i], &totals[n], &values[n]);
      }
    }
    block.Store(i, values[n] / totals[n]);
  }
}

constexpr int kShortWarps = 4;  // of a block
// Minimum thread blocks per SM, by register use.
template <int kLanes, int kGroup>
constexpr int kShortBlocks = (kLanes == 8 || kLanes == 16) && kGroup <= 2 ? 6 : 4;

template <int kLanes, int kGroup>
struct ShortMemory {
  static constexpr int kWidth = kLanes * 8;
  static constexpr int kTogether = 32 / kLanes;
  alignas(16) float q[kGroup][kWidth];
  alignas(16) __nv_bfloat16 new_keys[kMaxNewRows][kWidth];
  alignas(16) __nv_bfloat16 values[kWarps * kTogether][kWidth];
  // A turn's 16 numbers: [0] the sum of its weights; [1] its largest score, later its factor among the turns; from [2]
  // on the factors of its positions, as JoinLaneSums() places them.
  alignas(16) float turns[kGroup][kWarps][2 * kTogether];
};

// A warp for each row and kGroup heads that share a key head. Eight turns of it are the eight warps of a block.
//
// First all positions are scored, which gives every factor; then each group of lanes weighs and joins the values of
// whole heads, turn by turn. Values of a turn are never stored, and need no registers before they are weighed.
template <int kLanes, int kGroup>
__global__ void __launch_bounds__(32 * kShortWarps, kShortBlocks<kLanes, kGroup>)
    ShortKernel(AttendArguments a, unsigned units) {
  using T = __nv_bfloat16;
  using Memory = ShortMemory<kLanes, kGroup>;
  using Placer = HeadPlacer<(Memory::kWidth + 63) / 64>;
  constexpr int kTogether = Memory::kTogether;
  __shared__ Memory memories[kShortWarps];
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int part = lane % kLanes;
  Memory& m = memories[warp];
  const int groups = a.heads / kGroup;
  const unsigned unit = blockIdx.x * kShortWarps + static_cast<unsigned>(warp);
  const bool exists = unit < units;
  const int row = exists ? static_cast<int>(unit / static_cast<unsigned>(groups)) : 0;
  const int first_head = static_cast<int>(unit % static_cast<unsigned>(groups)) * kGroup;
  const int heads_per_kv = a.heads / a.kv_heads;
  const int kv_head = first_head / heads_per_kv;
  const bool owner = first_head == kv_head * heads_per_kv;  // its warp caches the row's own key and value
  const int sequence = exists ? a.Sequence(row) : -1;
  const int position = exists ? a.Position(row) : -1;
  const bool absent = sequence < 0 || position < 0;
  const int new_rows = a.appended ? 0 : a.RowOfSequence(row) + 1;
  const int cached = position + 1 - new_rows;
  const int begin = FirstSeen(a, position);
  const bool has_elements = part * 8 < a.head_dim;
  T* const page = absent ? nullptr : static_cast<T*>(a.pages[static_cast<int64_t>(sequence) * a.pages_per_sequence]);

  Placer placer(a.q_norm, a.inverse_frequencies, a.head_dim, max(0, position), lane);

  // Turns of which a position is seen. The others have the largest score -infinity, sums of 0 and the factor 0.
  const int first_turn = begin / kTogether;
  const int last_turn = position / kTogether;
  const auto position_of = [&](int w) { return w * kTogether + lane / kLanes; };
  const auto seen = [&](int w) { return position_of(w) >= begin && position_of(w) <= position; };
  uint4 keys[kWarps] = {};
  const auto load_cached = [&] {
    const T* const key = page + a.KeyOffset(kv_head, 0) + position_of(0) * a.head_dim + part * 8;
    const int end = has_elements ? cached : 0;
    const auto lies_there = [&](int w) { return position_of(w) >= begin && position_of(w) < end; };
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      if (lies_there(w)) LoadEight(key + w * kTogether * a.head_dim, &keys[w]);
    }
    // Zeros instead of what isn't there; new rows' are placed below.
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      if (position_of(w) >= cached && position_of(w) <= position) continue;
      CopyAsync16(SharedAddress(&m.values[position_of(w)][part * 8]),
                  key + (a.page_positions + w * kTogether) * a.head_dim, lies_there(w));
    }
  };
  if (!a.appended && !absent) load_cached();
  const bool live = a.live == nullptr || LoadL2(a.live) != 0;
  WaitForPrevious();
  LetNextStart();
  if (absent || !live) {
    AwaitAllCopies();
    return;
  }
  if (a.appended) load_cached();
  __syncwarp();

  const float* const x = a.qkv + static_cast<int64_t>(row) * a.qkv_width();
  const int q_width = a.heads * a.head_dim;
  const int kv_width = a.kv_heads * a.head_dim;
#pragma unroll
  for (int g = 0; g < kGroup; ++g) {
    placer.Place(x + (first_head + g) * a.head_dim, a.eps, [&](int i, float value) { m.q[g][i] = value; });
  }
  const auto place_new_row = [&](const Placer& key_placer, int back) {
    const float* const source = x - static_cast<int64_t>(back) * a.qkv_width() + q_width + kv_head * a.head_dim;
    T* const target = back == 0 && owner ? page + a.KeyOffset(kv_head, position) : nullptr;
    key_placer.Place(source, a.eps, [&](int i, float value) {
      const T rounded = FromFloat<T>(value);
      m.new_keys[new_rows - 1 - back][i] = rounded;
      if (target != nullptr) target[i] = rounded;
    });
    for (int i = lane; i < a.head_dim; i += 32) {
      const T rounded = FromFloat<T>(LoadL2(source + kv_width + i));
      m.values[position - back][i] = rounded;
      if (target != nullptr) target[a.page_positions * a.head_dim + i] = rounded;
    }
  };
  if (new_rows > 0) {
    placer.SetNorm(a.k_norm);
    place_new_row(placer, 0);
  }
#pragma unroll 1
  for (int back = 1; back < new_rows; ++back) {
    place_new_row(Placer(a.k_norm, a.inverse_frequencies, a.head_dim, position - back, lane), back);
  }
  __syncwarp();
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    const int p = position_of(w);
    if (seen(w) && p >= cached && has_elements) {
      keys[w] = *reinterpret_cast<const uint4*>(&m.new_keys[p - cached][part * 8]);
    }
  }

  const float scale = 1.0F / sqrtf(static_cast<float>(a.head_dim));
  constexpr int kQueries = kGroup % 2 == 0 ? 2 : 1;  // and turns: scored at once
  constexpr int kScored = 2;
#pragma unroll 1
  for (int first = 0; first < kGroup; first += kQueries) {
    float query[kQueries][8];
#pragma unroll
    for (int g = 0; g < kQueries; ++g) LoadQuery(&m.q[first + g][part * 8], has_elements, &query[g]);
#pragma unroll
    for (int w = 0; w < kWarps; w += kScored) {
      if (w + kScored <= first_turn || w > last_turn) continue;
      uint4 some[kScored];
#pragma unroll
      for (int t = 0; t < kScored; ++t) some[t] = keys[w + t];
      float scores[kQueries][kScored];
      SoftmaxPart<kQueries> unused;
      unused.Clear();
      ScorePositions<kLanes>(
          query, some, scale, [&](int t) { return seen(w + t); }, scores, &unused);
#pragma unroll
      for (int t = 0; t < kScored; ++t) {
#pragma unroll
        for (int g = 0; g < kQueries; ++g) {
          float* const turn = m.turns[first + g][w + t];
          float most = fmaxf(-INFINITY, scores[g][t]);
          float sum = seen(w + t) ? 1 : 0;
          JoinLaneSums<kLanes, T>(threadIdx.x % 32, &most, &sum,
                                  [&](unsigned place, float factor) { turn[place] = factor; });
          if (lane == 0) {
            turn[0] = sum;
            turn[1] = most;
          }
        }
      }
    }
  }
  __syncwarp();
  {
    // A lane for each turn of each head.
    static_assert(kGroup * kWarps <= 32);
    const int w = lane % kWarps;
    const bool joined = lane < kGroup * kWarps && w >= first_turn && w <= last_turn;
    float* const turn = m.turns[lane / kWarps % kGroup][w];
    const float most = joined ? turn[1] : -INFINITY;
    float largest = most;
#pragma unroll
    for (int offset = 1; offset < kWarps; offset *= 2) {
      largest = fmaxf(largest, __shfl_xor_sync(~0U, largest, offset));
    }
    if (joined) turn[1] = WarpFactor<T>(most, largest);
  }
  AwaitAllCopies();
  __syncwarp();
  if (!has_elements) return;
#pragma unroll 1
  for (int g = lane / kLanes; g < kGroup; g += kTogether) {
    float total = 0, merged[8] = {};
#pragma unroll 2
    for (int w = first_turn; w <= last_turn; ++w) {
      const float* const turn = m.turns[g][w];
      const auto weighed = [&](int n, float(&y)[8]) {
        const int p = w * kTogether + n;
        const float scores[1][1] = {};
        const uint4 value[1] = {*reinterpret_cast<const uint4*>(&m.values[p][part * 8])};
        SoftmaxPart<1> position_part;
        position_part.Clear();
        WeighValues<true, T>(
            scores, value, [&](int) { return p >= begin && p <= position; }, &position_part);
#pragma unroll
        for (int e = 0; e < 8; ++e) y[e] = position_part.y[0][e];
      };
      float y[8];
      JoinPositions<kTogether, kTogether>(turn, 0, weighed, y);
      total = WithWarp(turn[1], turn[0], total);
#pragma unroll
      for (int e = 0; e < 8; ++e) merged[e] = WithWarp(turn[1], y[e], merged[e]);
    }
    // The turns left out would each add 0: nothing to 0 before the first, and after the last nothing but that -0, to
    // which a value can underflow, becomes 0.
    if (last_turn + 1 < kWarps) {
#pragma unroll
      for (int e = 0; e < 8; ++e) merged[e] = __fadd_rn(merged[e], 0);
    }
    const auto of = [&](int e) { return merged[e] / total; };
    if (a.swizzled_rows != 0) {
      // A word of each unit of the chunk.
      const int column = (first_head + g) * a.head_dim + part * 8;
#pragma unroll
      for (int e = 0; e < 8; e += 2) {
        *reinterpret_cast<uint32_t*>(static_cast<char*>(a.y) + gemm::ElementOffset(a.swizzled_rows, row, column + e)) =
            PackBf16(of(e), of(e + 1));
      }
      continue;
    }
    auto* const to = static_cast<T*>(a.y) + static_cast<int64_t>(row) * a.y_stride + (first_head + g) * a.head_dim;
    *reinterpret_cast<uint4*>(to + part * 8) = {PackBf16(of(0), of(1)), PackBf16(of(2), of(3)), PackBf16(of(4), of(5)),
                                                PackBf16(of(6), of(7))};
  }
}

// Query heads of a block or warp: those of a key head, or as many of them as there are kernels for.
int GroupOf(const AttendArguments& a) {
  const int group = a.heads / a.kv_heads;
  return group % 4 == 0 ? 4 : group % 2 == 0 ? 2 : 1;
}

template <typename T, int kLanes>
void RunContexts(const Launcher& launch, AttendArguments a, int64_t rows) {
  const int group = GroupOf(a);
  const size_t record = static_cast<size_t>(RecordElements(group, a.head_dim)) * sizeof(float);
  const dim3 grid(static_cast<unsigned>(a.heads / group), static_cast<unsigned>(rows));
  // Together with the static part no more than a block may have without raising the limit.
  const auto run = [&](auto kernel, int blocks_together, size_t memory) {
    constexpr size_t kMax = size_t{48} << 10;
    constexpr size_t kRest = 1 << 10;  // of the static part
    const size_t left = kMax - kRest - std::min(kMax - kRest, memory);
    a.splits = static_cast<int>(std::min(Launcher::kPlainSharedMemory, left) / record);
    launch(kernel, grid, kThreads, static_cast<size_t>(a.splits) * record, a,
           launch.numbers->attention.processors * blocks_together);
  };
  if (group == 1) run(ContextKernel<T, kLanes, 1>, kBlocksTogether<T, kLanes, 1>, sizeof(AttendMemory<T, kLanes, 1>));
  if (group == 2) run(ContextKernel<T, kLanes, 2>, kBlocksTogether<T, kLanes, 2>, sizeof(AttendMemory<T, kLanes, 2>));
  if (group == 4) run(ContextKernel<T, kLanes, 4>, kBlocksTogether<T, kLanes, 4>, sizeof(AttendMemory<T, kLanes, 4>));
}

template <int kLanes>
void RunShort(const Launcher& launch, const AttendArguments& a, int64_t rows) {
  const int group = GroupOf(a);
  const auto units = static_cast<unsigned>(rows * (a.heads / group));
  const dim3 grid((units + kShortWarps - 1) / kShortWarps);
  if (group == 1) launch(ShortKernel<kLanes, 1>, grid, 32 * kShortWarps, 0, a, units);
  if (group == 2) launch(ShortKernel<kLanes, 2>, grid, 32 * kShortWarps, 0, a, units);
  if (group == 4) launch(ShortKernel<kLanes, 4>, grid, 32 * kShortWarps, 0, a, units);
}

template <typename T, int kLanes>
void Run(const Launcher& launch, const AttendArguments& a, int64_t rows) {
  if constexpr (sizeof(T) == 2) {
    // One page, of no more positions than a turn has; rows of whole 16 bytes.
    if (a.pages_per_sequence == 1 && a.page_positions <= kWarps * (32 / kLanes) && a.y_stride % 8 == 0) {
      return RunShort<kLanes>(launch, a, rows);
    }
  }
  RunContexts<T, kLanes>(launch, a, rows);
}

template <typename T>
void RunLanes(const Launcher& launch, const AttendArguments& a, int64_t rows) {
  if (a.head_dim <= 16) return Run<T, 2>(launch, a, rows);
  if (a.head_dim <= 64) return Run<T, 8>(launch, a, rows);
  if (a.head_dim <= 128) return Run<T, 16>(launch, a, rows);
  return Run<T, 32>(launch, a, rows);
}

}  // namespace

void AttendManyRows(const Launcher& launch, Precision precision, const AttendArguments& a, int64_t rows) {
  if (CanAttendPairTurns(precision, a)) return AttendPairTurns(launch, a, rows);
  if (CanAttendPairContexts(precision, a)) return AttendPairContexts(launch, a, rows);
  if (precision == Precision::kF32) return RunLanes<float>(launch, a, rows);
  RunLanes<__nv_bfloat16>(launch, a, rows);
}

}  // namespace qtts::cuda::attention
