// SPDX-License-Identifier: LGPL-2.1-or-later
#include "frame/frame.h"
#include "runtime/device_math.cuh"

namespace qtts::cuda {
namespace {

constexpr int kThreads = 256;

// Returns the first row of a frame's entry.
__device__ int64_t Entry(const FrameRing& ring, unsigned frame) {
  return static_cast<int64_t>(frame % static_cast<unsigned>(ring.entries)) * ring.rows;
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    BeginKernel(EmbeddingTables tables, const FrameRow* steps, FrameRing ring, FrameRows frame, SlotState* slots,
                const float* first_x, float* x) {
  __shared__ const T* rows[kMaxGroups + 1];
  WaitForPrevious();
  LetNextStart();
  const int row = blockIdx.x;
  const FrameRow* const step = steps + Entry(ring, *frame.frame) + row;
  const RowKind kind = step->kind;
  const int index = step->slot;
  const int text_id = step->text_id;
  // Host memory is far: read with the rest, and stored when it has arrived.
  const bool keeps_window = frame.windows != nullptr && threadIdx.x == 0;
  TextWindow window;
  if (keeps_window) window = step->window;
  if (kind == RowKind::kIdle || slots[index].end != EndReason::kNone) {
    if (threadIdx.x == 0) frame.slots[row] = frame.joining[row] = -1;
    return;
  }
  SlotState& slot = slots[index];
  const bool joins = kind == RowKind::kJoins;
  if (threadIdx.x == 0) {
    frame.positions[row] = slot.position;
    frame.slots[row] = joins ? -1 : index;
    frame.joining[row] = joins ? index : -1;
    slot.position += 1;
    atomicOr(frame.live, 1);
  }
  const bool first = slot.chosen == 0;
  if (!first && threadIdx.x <= tables.groups) {
    const int g = static_cast<int>(threadIdx.x);
    rows[g] = g < tables.groups
                  ? static_cast<const T*>(tables.codes[g]) + static_cast<int64_t>(slot.codes[g]) * tables.stride
                  : static_cast<const T*>(tables.text) + static_cast<int64_t>(text_id) * tables.stride;
  }
  __syncthreads();
  for (int i = threadIdx.x; i < tables.width && !joins; i += kThreads) {
    float sum = 0;
    if (first) {
      sum = first_x[static_cast<int64_t>(index) * tables.stride + i];
    } else {
#pragma unroll 4
      for (int g = 0; g <= tables.groups; ++g) sum += ToFloat(rows[g][i]);
    }
    x[static_cast<int64_t>(row) * tables.stride + i] = sum;
  }
  if (keeps_window) frame.windows[row] = window;
}

__global__ void __launch_bounds__(kThreads)
    JoinKernel(FrameRows frame, const float* first_x, int width, int stride, float* x) {
  WaitForPrevious();
  LetNextStart();
  const int row = blockIdx.x;
  const int64_t slot = frame.joining[row];
  if (slot < 0) return;
  if (threadIdx.x == 0) frame.slots[row] = static_cast<int>(slot);
  for (int i = threadIdx.x; i < width; i += kThreads) {
    x[static_cast<int64_t>(row) * stride + i] = LoadL2(first_x + slot * stride + i);
  }
}

__global__ void __launch_bounds__(kThreads)
    EndKernel(const FrameRow* steps, FrameRing ring, FrameRows frame, const SlotState* slots, int groups,
              FrameRowResult* results, CodecHandOver hand_over, EpochWords epochs) {
  WaitForPrevious();
  LetNextStart();
  const int row = blockIdx.x;
  const unsigned number = *frame.frame;
  const int64_t entry = Entry(ring, number) + row;
  const int64_t place = static_cast<int64_t>(number % kHandOvers) * ring.rows + row;
  const int slot = steps[entry].kind == RowKind::kIdle ? -1 : steps[entry].slot;
  const int speaking = slot >= 0 ? LoadL2(frame.slots + row) : -1;
  if (speaking >= 0) {
    for (int g = threadIdx.x; g < groups; g += kThreads) {
      const int code = LoadL2(frame.codes + row * groups + g);
      results[entry].codes[g] = code;
      hand_over.codes[place * groups + g] = code;
    }
  }
  if (epochs.words != nullptr && (number + 1) % epochs.frames == 0) {
    for (int64_t i = static_cast<int64_t>(row) * kThreads + threadIdx.x; i < epochs.count;
         i += static_cast<int64_t>(gridDim.x) * kThreads) {
      epochs.words[i] = 0;
    }
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  hand_over.slots[place] = speaking;
  if (slot >= 0) {
    results[entry].end = slots[slot].end;
    results[entry].fault = slots[slot].fault;
  }
  if (row == 0) hand_over.frames[number % kHandOvers] = number;
  __threadfence_system();
  if (atomicAdd(frame.finished, 1U) == gridDim.x - 1) {
    *frame.finished = 0;
    frame.live[0] = 0;
    frame.live[1] = 0;
    *frame.frame = number + 1;
  }
}

__global__ void __launch_bounds__(kThreads)
    DeliverKernel(const int* slots, const unsigned* frame, FrameRing ring, const float* pcm, int samples,
                  FrameRowResult* results, float* out) {
  const int row = blockIdx.x;
  if (slots[row] < 0) return;
  const int64_t entry = Entry(ring, *frame) + row;
  bool usable = true;
  for (int i = threadIdx.x; i < samples; i += kThreads) {
    const float sample = LoadL2(pcm + static_cast<int64_t>(row) * samples + i);
    usable = usable && !isnan(sample);
    out[entry * samples + i] = sample;
  }
  usable = __syncthreads_and(usable);
  if (threadIdx.x == 0 && !usable) {
    results[entry].end = EndReason::kError;
    results[entry].fault = ModelPart::kCodec;
  }
}

__global__ void OpenKernel(int slot, SlotState state, SlotState* slots, unsigned* history, int history_words) {
  if (threadIdx.x == 0) slots[slot] = state;
  for (int i = threadIdx.x; i < history_words; i += blockDim.x) {
    history[static_cast<int64_t>(slot) * history_words + i] = 0;
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    PromptKernel(EmbeddingTables tables, const PromptRowIds* rows, const float* x_vectors, int count, float* x,
                 PromptRows prompt_rows) {
  const int row = blockIdx.x;
  const int padded = gridDim.x;
  const int index = row - (padded - count);
  if (threadIdx.x == 0 && prompt_rows.slots != nullptr) {
    prompt_rows.slots[row] = index < 0 ? -1 : rows[index].slot;
    prompt_rows.positions[row] = index < 0 ? -1 : rows[index].position;
    prompt_rows.kept[row] = index < 0 || rows[index].last == 0 ? -1 : rows[index].slot;
  }
  if (index < 0) return;
  const PromptRowIds& ids = rows[index];
  for (int i = threadIdx.x; i < tables.width; i += kThreads) {
    float sum = 0;
    for (int g = 0; g < ids.num_codes; ++g) {
      sum += ToFloat(static_cast<const T*>(tables.codes[g])[static_cast<int64_t>(ids.codes[g]) * tables.stride + i]);
    }
    if (ids.x_vector >= 0) sum += x_vectors[static_cast<int64_t>(ids.x_vector) * tables.width + i];
    if (ids.text_id >= 0) {
      sum += ToFloat(static_cast<const T*>(tables.text)[static_cast<int64_t>(ids.text_id) * tables.stride + i]);
    }
    x[static_cast<int64_t>(row) * tables.stride + i] = sum;
  }
}

__global__ void __launch_bounds__(kThreads)
    KeepKernel(const int* kept, const float* x, int width, int stride, float* first_x) {
  const int64_t slot = kept[blockIdx.x];
  WaitForPrevious();
  if (slot < 0) return;
  for (int i = threadIdx.x; i < width; i += kThreads) {
    first_x[slot * stride + i] = LoadL2(x + static_cast<int64_t>(blockIdx.x) * stride + i);
  }
}

__global__ void SetPageKernel(void** table, int64_t index, void* page) { table[index] = page; }

__global__ void CopyPageKernel(const char* source, char* target, int positions, int page_positions, int64_t row_bytes) {
  // A block copies the keys or the values of one head of one layer.
  const int64_t offset = static_cast<int64_t>(blockIdx.x) * page_positions * row_bytes;
  for (int64_t i = threadIdx.x * 16; i < positions * row_bytes; i += blockDim.x * 16) {
    *reinterpret_cast<uint4*>(target + offset + i) = *reinterpret_cast<const uint4*>(source + offset + i);
  }
}

}  // namespace

void BeginFrame(const Launcher& launch, Precision precision, const EmbeddingTables& tables, const FrameRow* steps,
                const FrameRing& ring, const FrameRows& frame, SlotState* slots, const float* first_x, int rows,
                float* x) {
  const auto kernel = precision == Precision::kF32 ? BeginKernel<float> : BeginKernel<__nv_bfloat16>;
  launch(kernel, dim3(static_cast<unsigned>(rows)), kThreads, 0, tables, steps, ring, frame, slots, first_x, x);
}

void JoinRows(const Launcher& launch, const FrameRows& frame, const float* first_x, int width, int stride, int rows,
              float* x) {
  launch(JoinKernel, dim3(static_cast<unsigned>(rows)), kThreads, 0, frame, first_x, width, stride, x);
}

void EndFrame(const Launcher& launch, const FrameRow* steps, const FrameRing& ring, const FrameRows& frame,
              const SlotState* slots, int groups, int rows, FrameRowResult* results, const CodecHandOver& hand_over,
              const EpochWords& epochs) {
  launch(EndKernel, dim3(static_cast<unsigned>(rows)), kThreads, 0, steps, ring, frame, slots, groups, results,
         hand_over, epochs);
}

void DeliverPcm(const Launcher& launch, const int* slots, const unsigned* frame, const FrameRing& ring, int rows,
                const float* pcm, int samples, FrameRowResult* results, float* out) {
  launch(DeliverKernel, dim3(static_cast<unsigned>(rows)), kThreads, 0, slots, frame, ring, pcm, samples, results, out);
}

void OpenSlot(const Launcher& launch, int slot, const SlotState& state, SlotState* slots, unsigned* history,
              int history_words) {
  launch(OpenKernel, dim3(1), kThreads, 0, slot, state, slots, history, history_words);
}

void EmbedPrompt(const Launcher& launch, Precision precision, const EmbeddingTables& tables, const PromptRowIds* rows,
                 const float* x_vectors, int count, float* x, int padded, const PromptRows& prompt_rows) {
  const auto kernel = precision == Precision::kF32 ? PromptKernel<float> : PromptKernel<__nv_bfloat16>;
  launch(kernel, dim3(static_cast<unsigned>(padded)), kThreads, 0, tables, rows, x_vectors, count, x, prompt_rows);
}

void KeepRows(const Launcher& launch, const int* kept, const float* x, int width, int stride, int rows,
              float* first_x) {
  launch(KeepKernel, dim3(static_cast<unsigned>(rows)), kThreads, 0, kept, x, width, stride, first_x);
}

void SetPage(const Launcher& launch, void** table, int64_t index, void* page) {
  launch(SetPageKernel, dim3(1), 1, 0, table, index, page);
}

void CopyPage(const Launcher& launch, const void* source, void* target, int64_t heads_and_layers, int positions,
              int page_positions, int64_t row_bytes) {
  launch(CopyPageKernel, dim3(static_cast<unsigned>(2 * heads_and_layers)), kThreads, 0,
         static_cast<const char*>(source), static_cast<char*>(target), positions, page_positions, row_bytes);
}

}  // namespace qtts::cuda
