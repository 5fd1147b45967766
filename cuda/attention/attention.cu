// SPDX-License-Identifier: LGPL-2.1-or-later
#include <algorithm>

#include "attention/attend_block.cuh"
#include "attention/attention.h"
#include "attention/head_pairs.h"

namespace qtts::cuda {
namespace {

using namespace attention;  // NOLINT: the kernels' common code

template <typename T, int kLanes, int kGroup>
__global__ void __launch_bounds__(kThreads, kBlocksTogether<T, kLanes, kGroup>) AttendKernel(AttendArguments a) {
  __shared__ AttendMemory<T, kLanes, kGroup> memory;
  const int groups = a.heads / kGroup;
  AttendBlock<T, kLanes, kGroup> block(a, &memory, static_cast<int>(blockIdx.y),
                                       static_cast<int>(blockIdx.x) % groups * kGroup,
                                       static_cast<int>(blockIdx.x) / groups);
  // Keys and values of earlier frames are complete; those of the previous kernel are not.
  if (!block.idle() && !a.appended) block.LoadCached();
  const bool live = a.live == nullptr || LoadL2(a.live) != 0;
  const HeadPlacer<> placer = block.Placer();

  WaitForPrevious();
  LetNextStart();
  if (block.idle() || !live) return;
  if (a.appended) block.LoadCached();
  block.PlaceHeads(placer, block.OwnPage());
  __syncthreads();
  block.Attend(block.Scale());
  __syncthreads();
  block.MergeWarps();
  block.CombineSplits();
}

// A block goes through all splits of a row's context and combines them in order, without scratch memory; the next one's
// keys and values are loaded while its warps are combined.
template <typename T, int kLanes, int kGroup>
__global__ void __launch_bounds__(kThreads, kBlocksTogether<T, kLanes, kGroup>) ContextKernel(AttendArguments a) {
  __shared__ AttendMemory<T, kLanes, kGroup> memory;
  AttendBlock<T, kLanes, kGroup> block(a, &memory, static_cast<int>(blockIdx.y), static_cast<int>(blockIdx.x) * kGroup,
                                       0);
  const bool absent = block.absent();
  if (!absent && !a.appended) block.LoadCached();
  const bool live = a.live == nullptr || LoadL2(a.live) != 0;
  const HeadPlacer<> placer = block.Placer();

  WaitForPrevious();
  LetNextStart();
  if (absent || !live) return;
  if (a.appended) block.LoadCached();
  const int used = block.used_splits();
  block.PlaceHeads(placer, block.PageOf(used - 1));
  __syncthreads();

  constexpr int kElements = (kGroup * kLanes * 8 + kThreads - 1) / kThreads;  // of a thread
  SplitSums sums[kElements];
  const float scale = block.Scale();
#pragma unroll 1
  for (int s = 0; s < used; ++s) {
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
      const MergedWarps<1> merged = block.Merged(i / a.head_dim, i % a.head_dim);
      if (used == 1) {
        block.Store(i, merged.value[0] / merged.total);
      } else {
        sums[n].Add(merged.exponent, merged.total, merged.value[0]);
      }
    }
    __syncthreads();
  }
  if (used == 1) return;
#pragma unroll
  for (int n = 0; n < kElements; ++n) {
    const int i = static_cast<int>(threadIdx.x) + n * kThreads;
    if (i < block.elements()) block.Store(i, sums[n].value / sums[n].total);
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
  const HeadPlacer<> placer(a.k_norm, a.inverse_frequencies, a.head_dim, max(0, position), lane);

  WaitForPrevious();
  LetNextStart();
  if (idle) return;

  const float* const x = a.qkv + static_cast<int64_t>(row) * a.qkv_width() + (a.heads + kv_head) * a.head_dim;
  if (threadIdx.x < 32) {
    placer.Place(x, a.eps, [&](int i, float v) { key[i] = FromFloat<T>(v); });
  } else {
    T* const value = key + a.page_positions * a.head_dim;
    for (int i = lane; i < a.head_dim; i += 32) value[i] = FromFloat<T>(LoadL2(x + a.kv_heads * a.head_dim + i));
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

// Query heads per thread block. One, as long as there is an SM for each head: that is faster.
int GroupOf(const TransformerConfig& config, int64_t rows, int splits, const AttentionNumbers& numbers) {
  if (rows * splits * config.num_heads <= numbers.blocks_at_once) return 1;
  const int group = config.num_heads / config.num_kv_heads;
  return group % 4 == 0 ? 4 : group % 2 == 0 ? 2 : 1;
}

// kWhole: a block for a whole context, instead of one for each split.
template <bool kWhole, typename T, int kLanes>
void AttendGroup(const Launcher& launch, int group, dim3 grid, const AttendArguments& a) {
  const auto run = [&](auto by_splits, auto whole) { launch(kWhole ? whole : by_splits, grid, kThreads, 0, a); };
  if (group == 1) run(AttendKernel<T, kLanes, 1>, ContextKernel<T, kLanes, 1>);
  if (group == 2) run(AttendKernel<T, kLanes, 2>, ContextKernel<T, kLanes, 2>);
  if (group == 4) run(AttendKernel<T, kLanes, 4>, ContextKernel<T, kLanes, 4>);
}

template <bool kWhole, typename T>
void AttendLanes(const Launcher& launch, int group, dim3 grid, const AttendArguments& a) {
  if (a.head_dim <= 16) return AttendGroup<kWhole, T, 2>(launch, group, grid, a);
  if (a.head_dim <= 64) return AttendGroup<kWhole, T, 8>(launch, group, grid, a);
  if (a.head_dim <= 128) return AttendGroup<kWhole, T, 16>(launch, group, grid, a);
  return AttendGroup<kWhole, T, 32>(launch, group, grid, a);
}

template <bool kWhole>
void AttendRows(const Launcher& launch, Precision precision, int group, dim3 grid, const AttendArguments& a) {
  if (precision == Precision::kF32) return AttendLanes<kWhole, float>(launch, group, grid, a);
  AttendLanes<kWhole, __nv_bfloat16>(launch, group, grid, a);
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

bool NeedsSplits(const AttentionNumbers& numbers, int64_t rows) { return !numbers.whole_contexts || rows < kManyRows; }

void Attend(const Launcher& launch, Precision precision, const TransformerConfig& config, const AttentionLayer& layer,
            const SequenceRows& rows, const KeyValuePages& pages, const AttentionScratch& scratch, int splits,
            const float* qkv, const AttendedRows& y, const int* live) {
  AttendArguments a = Arguments(config, layer, rows, pages, qkv);
  a.y = y.data;
  a.y_stride = y.stride;
  a.swizzled_rows = y.swizzled ? rows.rows : 0;
  a.splits = splits;
  a.partial = scratch.partial;
  a.tickets = scratch.tickets;
  a.live = live;
  const bool whole = !NeedsSplits(launch.numbers->attention, rows.rows);
  if (whole && CanAttendPairTurns(precision, a)) return AttendPairTurns(launch, a, rows.rows);
  if (whole && CanAttendPairContexts(precision, a)) return AttendPairContexts(launch, a, rows.rows);
  const int parts = whole ? 1 : splits;  // of a context
  const int group = GroupOf(config, rows.rows, parts, launch.numbers->attention);
  const dim3 grid(static_cast<unsigned>(config.num_heads / group * parts), static_cast<unsigned>(rows.rows));
  if (whole) {
    AttendRows<true>(launch, precision, group, grid, a);
  } else {
    AttendRows<false>(launch, precision, group, grid, a);
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
