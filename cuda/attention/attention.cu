// SPDX-License-Identifier: LGPL-2.1-or-later
#include <algorithm>

#include "attention/attention.h"
#include "rules/rope.cuh"
#include "runtime/device_math.cuh"

namespace qtts::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = 32 * kWarps;
constexpr int kMaxNewRows = 2;

struct AttendArguments {
  const int* slots;
  const int* positions;
  int first_position, per_sequence;
  bool appended;
  void* const* pages;
  int pages_per_sequence, page_positions;
  int layer, heads, kv_heads, head_dim, window;
  const float* q_norm;
  const float* k_norm;
  const float* inverse_frequencies;
  float eps;
  const float* qkv;
  void* y;
  int y_stride;
  int splits;
  float* partial;
  unsigned* tickets;
  const int* live;

  __device__ int Sequence(int row) const {
    const int index = row / per_sequence;
    return slots == nullptr ? index : Fresh(slots + index);
  }
  __device__ int Position(int row) const {
    return positions == nullptr ? first_position + row % per_sequence : Fresh(positions + row);
  }
  __device__ int qkv_width() const { return (heads + 2 * kv_heads) * head_dim; }
  // Elements from a page's start to the key of `position` (its value lies page_positions rows on).
  __device__ int64_t KeyOffset(int kv_head, int position) const {
    return ((static_cast<int64_t>(layer) * kv_heads + kv_head) * 2 * page_positions + position % page_positions) *
           head_dim;
  }
};

// Norm (if any) and RoPE of one head, by one warp, 2 * kPairs elements a lane. All but the head itself can
// be fetched before it is there.
class HeadPlacer {
 public:
  __device__ HeadPlacer(const float* norm, const float* inverse_frequencies, int head_dim, int position, int lane)
      : normed_(norm != nullptr), half_(head_dim / 2), lane_(lane) {
#pragma unroll
    for (int j = 0; j < kPairs; ++j) {
      const int i = lane + 32 * j;
      if (i >= half_) continue;
      low_norm_[j] = normed_ ? norm[i] : 1;
      high_norm_[j] = normed_ ? norm[half_ + i] : 1;
      sincosf(static_cast<float>(position) * inverse_frequencies[i], &sine_[j], &cosine_[j]);
    }
  }

  template <typename Store>
  __device__ void Place(const float* x, float eps, const Store& store) const {
    float low[kPairs], high[kPairs];
#pragma unroll
    for (int j = 0; j < kPairs; ++j) {
      const int i = lane_ + 32 * j;
      low[j] = i < half_ ? Fresh(x + i) : 0;
      high[j] = i < half_ ? Fresh(x + half_ + i) : 0;
    }
    NormAndRotate(low, high, normed_, low_norm_, high_norm_, eps, sine_, cosine_, half_, lane_, store);
  }

 private:
  static constexpr int kPairs = kMaxHeadDim / 64;
  bool normed_;
  int half_, lane_;
  float low_norm_[kPairs], high_norm_[kPairs], sine_[kPairs], cosine_[kPairs];
};

// Eight elements as they lie in memory.
template <typename T>
struct Eight {
  uint4 words[sizeof(T) / 2];

  __device__ void Load(const T* p) {
#pragma unroll
    for (int i = 0; i < static_cast<int>(sizeof(T) / 2); ++i) words[i] = Fresh(reinterpret_cast<const uint4*>(p) + i);
  }
  __device__ void Clear() {
#pragma unroll
    for (int i = 0; i < static_cast<int>(sizeof(T) / 2); ++i) words[i] = {};
  }
  __device__ float Get(int i) const {
    const auto word = [&](int w) {
      const uint4& u = words[w / 4];
      return w % 4 == 0 ? u.x : w % 4 == 1 ? u.y : w % 4 == 2 ? u.z : u.w;
    };
    if constexpr (sizeof(T) == 4) return __uint_as_float(word(i));
    return i % 2 == 0 ? LowBf16(word(i / 2)) : HighBf16(word(i / 2));
  }
};

// Blocks that registers are to leave room for on a processor: those of a prompt are to run at once.
template <typename T, int kLanes, int kGroup>
constexpr int kBlocksTogether = sizeof(T) == 2 && kLanes <= 16 && kGroup <= 2 ? 3 : 2;

// One row, kGroup query heads that share a key head, one split of the context. kLanes lanes hold a key,
// eight elements each.
template <typename T, int kLanes, int kGroup>
__global__ void __launch_bounds__(kThreads, kBlocksTogether<T, kLanes, kGroup>) AttendKernel(AttendArguments a) {
  constexpr int kTogether = 32 / kLanes;  // positions of a warp at once
  constexpr int kTurn = kWarps * kTogether;
  constexpr int kTurns = (kSplitPositions + kTurn - 1) / kTurn;
  constexpr int kWidth = kLanes * 8;
  __shared__ __align__(16) float q[kGroup][kWidth];
  __shared__ __align__(16) float new_keys[kMaxNewRows][kWidth];
  __shared__ __align__(16) float new_values[kMaxNewRows][kWidth];
  __shared__ __align__(16) float warp_y[kWarps][kGroup][kWidth];
  __shared__ float warp_max[kWarps][kGroup];
  __shared__ float warp_sum[kWarps][kGroup];
  __shared__ bool last;

  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const int part = lane % kLanes;
  const int row = blockIdx.y;
  const int groups = a.heads / kGroup;
  const int first_head = static_cast<int>(blockIdx.x) % groups * kGroup;
  const int heads_per_kv = a.heads / a.kv_heads;
  const int kv_head = first_head / heads_per_kv;

  const int sequence = a.Sequence(row);
  const int position = a.Position(row);
  const int new_rows = a.appended ? 0 : row % a.per_sequence + 1;
  const int cached = position + 1 - new_rows;
  const int start = a.window > 0 ? max(0, position + 1 - a.window) : 0;
  const int first_split = start / kSplitPositions;
  const int split_index = static_cast<int>(blockIdx.x) / groups;
  const int split = first_split + split_index;
  const int used_splits = position / kSplitPositions - first_split + 1;
  const int begin = max(start, split * kSplitPositions);
  const int end = min(position + 1, (split + 1) * kSplitPositions);
  const bool idle = sequence < 0 || position < 0 || begin >= end;

  const auto position_of = [&](int turn) {
    return split * kSplitPositions + turn * kTurn + warp * kTogether + lane / kLanes;
  };
  Eight<T> keys[kTurns], values[kTurns];
  T* page = nullptr;
  if (!idle) {
    page = static_cast<T*>(
        a.pages[static_cast<int64_t>(sequence) * a.pages_per_sequence + split * kSplitPositions / a.page_positions]);
  }
  const auto load_cached = [&] {
#pragma unroll
    for (int t = 0; t < kTurns; ++t) {
      const int p = position_of(t);
      if (p >= begin && p < end && p < cached && part * 8 < a.head_dim) {
        const T* const key = page + a.KeyOffset(kv_head, p) + part * 8;
        keys[t].Load(key);
        values[t].Load(key + a.page_positions * a.head_dim);
      }
    }
  };
#pragma unroll
  for (int t = 0; t < kTurns; ++t) {
    keys[t].Clear();
    values[t].Clear();
  }
  // What earlier frames left in the cache is there; what the kernel before put there is not yet.
  if (!idle && !a.appended) load_cached();
  const bool live = a.live == nullptr || Fresh(a.live) != 0;
  // The head that this warp places: a query, or the key of a new row.
  const bool is_key = warp >= kGroup;
  const int head_position = is_key ? position - (new_rows - 1 - (warp - kGroup)) : position;
  const HeadPlacer placer(is_key ? a.k_norm : a.q_norm, a.inverse_frequencies, a.head_dim, max(0, head_position), lane);

  WaitForPrevious();
  LetNextStart();
  if (idle || !live) return;
  if (a.appended) load_cached();

  const float* const x = a.qkv + static_cast<int64_t>(row) * a.qkv_width();
  const int q_width = a.heads * a.head_dim;
  const int kv_width = a.kv_heads * a.head_dim;
  const bool owner = first_head % heads_per_kv == 0 && split == position / kSplitPositions;
  if (warp < kGroup) {
    placer.Place(x + (first_head + warp) * a.head_dim, a.eps, [&](int i, float value) { q[warp][i] = value; });
  } else if (warp < kGroup + new_rows) {
    const int j = warp - kGroup;
    const int back = new_rows - 1 - j;
    const float* const source = x - static_cast<int64_t>(back) * a.qkv_width() + q_width + kv_head * a.head_dim;
    T* const target = owner && back == 0 ? page + a.KeyOffset(kv_head, position) : nullptr;
    placer.Place(source, a.eps, [&](int i, float value) {
      const T rounded = FromFloat<T>(value);
      new_keys[j][i] = ToFloat(rounded);
      if (target != nullptr) target[i] = rounded;
    });
  } else if (warp < kGroup + 2 * new_rows) {
    const int j = warp - kGroup - new_rows;
    const int back = new_rows - 1 - j;
    const float* const source =
        x - static_cast<int64_t>(back) * a.qkv_width() + q_width + kv_width + kv_head * a.head_dim;
    T* const target =
        owner && back == 0 ? page + a.KeyOffset(kv_head, position) + a.page_positions * a.head_dim : nullptr;
    for (int i = lane; i < a.head_dim; i += 32) {
      const T rounded = FromFloat<T>(Fresh(source + i));
      new_values[j][i] = ToFloat(rounded);
      if (target != nullptr) target[i] = rounded;
    }
  }
  __syncthreads();

  float query[kGroup][8];
#pragma unroll
  for (int g = 0; g < kGroup; ++g) {
#pragma unroll
    for (int e = 0; e < 8; ++e) query[g][e] = part * 8 < a.head_dim ? q[g][part * 8 + e] : 0;
  }
  const float scale = 1.0F / sqrtf(static_cast<float>(a.head_dim));
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
    const int p = position_of(t);
    const bool valid = p >= begin && p < end;
    const bool fresh = valid && p >= cached && part * 8 < a.head_dim;
    float key[8];
#pragma unroll
    for (int e = 0; e < 8; ++e) key[e] = fresh ? new_keys[p - cached][part * 8 + e] : keys[t].Get(e);
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
    const int p = position_of(t);
    const bool valid = p >= begin && p < end;
    const bool fresh = valid && p >= cached && part * 8 < a.head_dim;
    float value[8];
#pragma unroll
    for (int e = 0; e < 8; ++e) value[e] = fresh ? new_values[p - cached][part * 8 + e] : values[t].Get(e);
#pragma unroll
    for (int g = 0; g < kGroup; ++g) {
      const float weight = valid ? Exponential<T>(scores[g][t] - most[g]) : 0;
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
      const float factor = most[g] == -INFINITY ? 0 : Exponential<T>(most[g] - largest);
      const float other_factor = other == -INFINITY ? 0 : Exponential<T>(other - largest);
      most[g] = largest;
      sum[g] = sum[g] * factor + __shfl_xor_sync(~0U, sum[g], offset) * other_factor;
#pragma unroll
      for (int e = 0; e < 8; ++e) y[g][e] = y[g][e] * factor + __shfl_xor_sync(~0U, y[g][e], offset) * other_factor;
    }
  }
  if (lane < kLanes) {
#pragma unroll
    for (int g = 0; g < kGroup; ++g) {
#pragma unroll
      for (int e = 0; e < 8; ++e) warp_y[warp][g][part * 8 + e] = y[g][e];
      if (part == 0) {
        warp_max[warp][g] = most[g];
        warp_sum[warp][g] = sum[g];
      }
    }
  }
  __syncthreads();

  const int elements = kGroup * a.head_dim;
  const auto store = [&](int i, float value) {
    static_cast<T*>(a.y)[static_cast<int64_t>(row) * a.y_stride + first_head * a.head_dim + i] = FromFloat<T>(value);
  };
  const int record = elements + 2 * kGroup;  // sums, maxima, then values
  float* const records = a.partial + (static_cast<int64_t>(row) * groups + first_head / kGroup) * a.splits * record;
  for (int i = threadIdx.x; i < elements; i += kThreads) {
    const int g = i / a.head_dim;
    const int d = i % a.head_dim;
    float largest = -INFINITY;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) largest = fmaxf(largest, warp_max[w][g]);
    float total = 0, value = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      const float factor = warp_max[w][g] == -INFINITY ? 0 : Exponential<T>(warp_max[w][g] - largest);
      total += factor * warp_sum[w][g];
      value += factor * warp_y[w][g][d];
    }
    if (used_splits == 1) {
      store(i, value / total);
      continue;
    }
    float* const mine = records + split_index * record;
    mine[2 * kGroup + i] = value;
    if (d == 0) {
      mine[g] = total;
      mine[kGroup + g] = largest;
    }
  }
  if (used_splits == 1) return;

  // The block that comes last puts the splits together, in their order.
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    unsigned* const ticket = a.tickets + static_cast<int64_t>(row) * groups + first_head / kGroup;
    last = atomicAdd(ticket, 1U) == static_cast<unsigned>(used_splits - 1);
    if (last) *ticket = 0;
  }
  __syncthreads();
  if (!last) return;
  __threadfence();
  for (int i = threadIdx.x; i < elements; i += kThreads) {
    const int g = i / a.head_dim;
    float largest = -INFINITY;
    for (int s = 0; s < used_splits; ++s) largest = fmaxf(largest, Fresh(records + s * record + kGroup + g));
    float total = 0, value = 0;
#pragma unroll 4
    for (int s = 0; s < used_splits; ++s) {
      const float* const other = records + s * record;
      const float factor = Exponential<T>(Fresh(other + kGroup + g) - largest);
      total += factor * Fresh(other + g);
      value += factor * Fresh(other + 2 * kGroup + i);
    }
    store(i, value / total);
  }
}

template <typename T>
__global__ void __launch_bounds__(64) AppendKernel(AttendArguments a) {
  const int row = blockIdx.y;
  const int kv_head = blockIdx.x;
  const int lane = threadIdx.x % 32;
  const int sequence = a.Sequence(row);
  const int position = a.Position(row);
  const bool idle = sequence < 0 || position < 0;
  T* key = nullptr;
  if (!idle) {
    key =
        static_cast<T*>(a.pages[static_cast<int64_t>(sequence) * a.pages_per_sequence + position / a.page_positions]) +
        a.KeyOffset(kv_head, position);
  }
  const HeadPlacer placer(a.k_norm, a.inverse_frequencies, a.head_dim, max(0, position), lane);

  WaitForPrevious();
  LetNextStart();
  if (idle) return;

  const float* const x = a.qkv + static_cast<int64_t>(row) * a.qkv_width() + (a.heads + kv_head) * a.head_dim;
  if (threadIdx.x < 32) {
    placer.Place(x, a.eps, [&](int i, float v) { key[i] = FromFloat<T>(v); });
  } else {
    T* const value = key + a.page_positions * a.head_dim;
    for (int i = lane; i < a.head_dim; i += 32) value[i] = FromFloat<T>(Fresh(x + a.kv_heads * a.head_dim + i));
  }
}

AttendArguments Arguments(const TransformerConfig& config, const AttentionLayer& layer, const SequenceRows& rows,
                          const KeyValuePages& pages, const float* qkv) {
  AttendArguments a = {};
  a.slots = rows.slots;
  a.positions = rows.positions;
  a.first_position = rows.first_position;
  a.per_sequence = rows.per_sequence;
  a.appended = rows.appended;
  a.pages = pages.table;
  a.pages_per_sequence = pages.pages_per_sequence;
  a.page_positions = pages.page_positions;
  a.layer = layer.layer;
  a.heads = config.num_heads;
  a.kv_heads = config.num_kv_heads;
  a.head_dim = config.head_dim;
  a.window = config.sliding_window;
  a.q_norm = layer.q_norm;
  a.k_norm = layer.k_norm;
  a.inverse_frequencies = layer.inverse_frequencies;
  a.eps = config.rms_norm_eps;
  a.qkv = qkv;
  return a;
}

// Query heads of a block. While there is a processor for each of them, alone: that takes less time.
int GroupOf(const TransformerConfig& config, int64_t rows, int splits) {
  constexpr int64_t kBlocks = 128;
  if (rows * splits * config.num_heads <= kBlocks) return 1;
  const int group = config.num_heads / config.num_kv_heads;
  return group % 4 == 0 ? 4 : group % 2 == 0 ? 2 : 1;
}

template <typename T, int kLanes>
void AttendGroup(const Launcher& launch, int group, dim3 grid, const AttendArguments& a) {
  if (group == 1) launch(AttendKernel<T, kLanes, 1>, grid, kThreads, 0, a);
  if (group == 2) launch(AttendKernel<T, kLanes, 2>, grid, kThreads, 0, a);
  if (group == 4) launch(AttendKernel<T, kLanes, 4>, grid, kThreads, 0, a);
}

template <typename T>
void AttendLanes(const Launcher& launch, int group, dim3 grid, const AttendArguments& a) {
  if (a.head_dim <= 16) return AttendGroup<T, 2>(launch, group, grid, a);
  if (a.head_dim <= 64) return AttendGroup<T, 8>(launch, group, grid, a);
  if (a.head_dim <= 128) return AttendGroup<T, 16>(launch, group, grid, a);
  return AttendGroup<T, 32>(launch, group, grid, a);
}

}  // namespace

size_t PartialElements(const TransformerConfig& config, int64_t rows, int splits) {
  return static_cast<size_t>(rows) * static_cast<size_t>(config.num_heads) * static_cast<size_t>(splits) *
         static_cast<size_t>(config.head_dim + 2);
}

size_t TicketElements(const TransformerConfig& config, int64_t rows) {
  return static_cast<size_t>(rows) * static_cast<size_t>(config.num_heads);
}

int SplitsFor(const TransformerConfig& config, int64_t positions) {
  const int64_t all = (positions + kSplitPositions - 1) / kSplitPositions;
  if (config.sliding_window == 0) return static_cast<int>(all);
  return static_cast<int>(std::min<int64_t>(all, (config.sliding_window - 1) / kSplitPositions + 2));
}

void Attend(const Launcher& launch, Precision precision, const TransformerConfig& config, const AttentionLayer& layer,
            const SequenceRows& rows, const KeyValuePages& pages, const AttentionScratch& scratch, int splits,
            const float* qkv, void* y, int y_stride, const int* live) {
  AttendArguments a = Arguments(config, layer, rows, pages, qkv);
  a.y = y;
  a.y_stride = y_stride;
  a.splits = splits;
  a.partial = scratch.partial;
  a.tickets = scratch.tickets;
  a.live = live;
  const int group = GroupOf(config, rows.rows, splits);
  const dim3 grid(static_cast<unsigned>(config.num_heads / group * splits), static_cast<unsigned>(rows.rows));
  if (precision == Precision::kF32) {
    AttendLanes<float>(launch, group, grid, a);
  } else {
    AttendLanes<__nv_bfloat16>(launch, group, grid, a);
  }
}

void AppendKeyValues(const Launcher& launch, Precision precision, const TransformerConfig& config,
                     const AttentionLayer& layer, const SequenceRows& rows, const KeyValuePages& pages,
                     const float* qkv) {
  const AttendArguments a = Arguments(config, layer, rows, pages, qkv);
  const dim3 grid(static_cast<unsigned>(config.num_kv_heads), static_cast<unsigned>(rows.rows));
  if (precision == Precision::kF32) {
    launch(AppendKernel<float>, grid, 64, 0, a);
  } else {
    launch(AppendKernel<__nv_bfloat16>, grid, 64, 0, a);
  }
}

}  // namespace qtts::cuda
