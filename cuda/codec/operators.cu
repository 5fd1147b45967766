// SPDX-License-Identifier: LGPL-2.1-or-later
#include <math_constants.h>

#include <algorithm>

#include "codec/device.cuh"
#include "codec/gemm.h"
#include "runtime/async_copy.cuh"

// The operators that are no matrix products.
namespace qtts::cuda::codec {
namespace {

constexpr int kDequantizeThreads = 128;
constexpr int kGroupsAtOnce = 16;

// Sums the codes' table entries: a block per batch row, 4 channels a thread. Several loads are in flight at once, since
// they miss the caches.
__global__ void __launch_bounds__(kDequantizeThreads) Dequantize(const __grid_constant__ DequantizeArgs a) {
  const int b = static_cast<int>(blockIdx.x);
  WaitForPrevious();
  // Codes are read before it is known whether they count: all of this comes from far away.
  __shared__ int entries[kMaxGroups];
  for (int g = static_cast<int>(threadIdx.x); g < a.groups; g += kDequantizeThreads) {
    // Padding (-1) counts as code 0, and no code reads outside the table.
    const int code = min(max(__ldcg(a.codes + b * a.groups + g), 0), a.codebook_size - 1);
    entries[g] = g * a.codebook_size + code;
  }
  const int slot = __ldcg(a.slots + b);
  std::byte* const state = slot < 0 || slot >= a.max_slots ? nullptr : LoadState(a.slot_states, slot);
  const bool idle = state == nullptr;
  const int frame = idle ? -1 : __ldcg(a.next_frame + slot);
  __syncthreads();
  if (threadIdx.x == 0) {
    a.frames[b] = frame;
    a.states[b] = state;
    if (!idle) a.next_frame[slot] = frame + 1;
    __threadfence();
  }
  __syncthreads();
  LetNextStart();  // the others may read both from now on
  if (idle) return;
  for (int c = static_cast<int>(threadIdx.x) * 4; c < a.out.channels; c += kDequantizeThreads * 4) {
    float4 sum = {0, 0, 0, 0};
    for (int first = 0; first < a.groups; first += kGroupsAtOnce) {
      float4 v[kGroupsAtOnce];
#pragma unroll
      for (int i = 0; i < kGroupsAtOnce; ++i) {
        const int64_t entry = entries[min(first + i, a.groups - 1)];
        v[i] = __ldg(reinterpret_cast<const float4*>(a.tables + entry * a.out.channels + c));
      }
#pragma unroll
      for (int i = 0; i < kGroupsAtOnce; ++i) {
        if (first + i < a.groups) sum = {sum.x + v[i].x, sum.y + v[i].y, sum.z + v[i].z, sum.w + v[i].w};
      }
    }
    StoreSink(a.out, b, 0, state, frame, c, sum);
  }
}

constexpr int kAttentionThreads = 256;

constexpr size_t kAttentionShared = 96 << 10;  // of a block; all devices from sm_80 have more
constexpr int kLanesPerKey = 8;
constexpr int kKeysAtOnce = kAttentionThreads / kLanesPerKey;

// Floats of a row of keys or values in shared memory: a quarter warp's keys lie in different banks.
__host__ __device__ constexpr int AttentionStride(int head_dim) { return head_dim + 8; }
// Floats in shared memory before the past values: a multiple of four.
__host__ __device__ constexpr int AttentionFloats(int window, int head_dim) {
  const int floats =
      window * (AttentionStride(head_dim) + 1 + kAttentionThreads / 32) + 3 * head_dim + kAttentionThreads;
  return (floats + 3) / 4 * 4;
}

// Copies four past keys or values to shared memory, keys as F32; AwaitAllCopies() comes before they are read.
__device__ __forceinline__ void BringPast(const float* from, float* to) { CopyAsync16(SharedAddress(to), from); }
__device__ __forceinline__ void BringPast(const __half* from, __half* to) {
  *reinterpret_cast<uint2*>(to) = __ldcg(reinterpret_cast<const uint2*>(from));
}
__device__ __forceinline__ void BringPast(const __half* from, float* to) {
  const uint2 v = __ldcg(reinterpret_cast<const uint2*>(from));
  const float2 low = __half22float2(*reinterpret_cast<const __half2*>(&v.x));
  const float2 high = __half22float2(*reinterpret_cast<const __half2*>(&v.y));
  *reinterpret_cast<float4*>(to) = {low.x, low.y, high.x, high.y};
}
__device__ __forceinline__ float ToFloat(float v) { return v; }
__device__ __forceinline__ float ToFloat(__half v) { return __half2float(v); }
__device__ __forceinline__ void Keep(float v, float* to) { *to = v; }
__device__ __forceinline__ void Keep(float v, __half* to) {
  constexpr float kMax = 65504;
  *to = __float2half_rn(fminf(fmaxf(v, -kMax), kMax));
}

// Memory and place of a block of attention: a head of a batch row.
template <typename T>
struct HeadBlock {
  const AttentionArgs& a;
  float* shared;
  int stride;      // of keys and values
  int count, now;  // positions attended to; the current frame's row of the past
  int kv_head;

  __device__ __forceinline__ float* keys() const { return shared; }                   // [distance][stride]
  __device__ __forceinline__ float* q() const { return keys() + a.window * stride; }  // [head_dim]
  __device__ __forceinline__ float* value() const { return q() + a.head_dim; }        // [head_dim] of this frame
  __device__ __forceinline__ float* parts() const { return value() + a.head_dim; }    // [groups][head_dim]
  __device__ __forceinline__ float* scores() const { return parts() + kAttentionThreads + a.head_dim; }  // [window]
  __device__ __forceinline__ float* weights() const {  // [window] of each warp
    return scores() + a.window * (1 + static_cast<int>(threadIdx.x) / 32);
  }
  // [distance][stride], without this frame's.
  __device__ __forceinline__ T* values() const {
    return reinterpret_cast<T*>(shared + AttentionFloats(a.window, a.head_dim));
  }

  // Brings past keys and values, and turns the keys by their distances.
  __device__ __forceinline__ void BringPasts(const T* past_keys, const T* past_values) const {
    const int thread = static_cast<int>(threadIdx.x);
    const int kv_width = a.kv_heads * a.head_dim;
    const int quads = a.head_dim / 4;
#pragma unroll 4
    for (int i = thread; i < (count - 1) * quads; i += kAttentionThreads) {
      const int distance = 1 + i / quads;
      const int d = (i - (distance - 1) * quads) * 4;
      const int at = now >= distance ? now - distance : now - distance + a.window;
      const int64_t from = static_cast<int64_t>(at) * kv_width + d;
      BringPast(past_keys + from, keys() + distance * stride + d);
      BringPast(past_values + from, values() + distance * stride + d);
    }
    AwaitAllCopies();
    __syncthreads();
    const int half = a.head_dim / 2;
    for (int i = thread; i < (count - 1) * half; i += kAttentionThreads) {
      const int distance = 1 + i / half;
      const int d = i - (distance - 1) * half;
      const float2 turn = __ldg(a.rotations + distance * half + d);
      float& x = keys()[distance * stride + d];
      float& y = keys()[distance * stride + d + half];
      const float turned = x * turn.x + y * turn.y;
      y = y * turn.x - x * turn.y;
      x = turned;
    }
  }

  // Takes the frame's query, key and value from `row` of qkv; the latter two go to the past, where it is not null.
  __device__ __forceinline__ void PlaceNew(const float* row, int head, T* past_keys, T* past_values) const {
    const int kv_width = a.kv_heads * a.head_dim;
    // One head of a group keeps the new row; all read it from qkv.
    const bool keeps = head % (a.heads / a.kv_heads) == 0;
    const float* const new_key = row + a.heads * a.head_dim + kv_head * a.head_dim;
    for (int d = static_cast<int>(threadIdx.x); d < a.head_dim; d += kAttentionThreads) {
      q()[d] = __ldcg(row + head * a.head_dim + d);
      const float k = __ldcg(new_key + d);
      const float v = __ldcg(new_key + kv_width + d);
      keys()[d] = k;
      value()[d] = v;
      if (keeps) {
        const int64_t to = static_cast<int64_t>(now) * kv_width + d;
        Keep(k, past_keys + to);
        Keep(v, past_values + to);
      }
    }
  }

  __device__ __forceinline__ void Score() const {
    const int thread = static_cast<int>(threadIdx.x);
    const float scale = 1.0F / sqrtf(static_cast<float>(a.head_dim));
    const int key_lane = thread % kLanesPerKey;
    for (int first = 0; first < count; first += kKeysAtOnce) {
      const int distance = min(first + thread / kLanesPerKey, count - 1);
      const float* const key = keys() + distance * stride;
      float sum = 0;
#pragma unroll 2
      for (int d = key_lane * 4; d < a.head_dim; d += kLanesPerKey * 4) {
        const float4 x = *reinterpret_cast<const float4*>(q() + d);
        const float4 k = *reinterpret_cast<const float4*>(key + d);
        sum = fmaf(x.x, k.x, sum);
        sum = fmaf(x.y, k.y, sum);
        sum = fmaf(x.z, k.z, sum);
        sum = fmaf(x.w, k.w, sum);
      }
#pragma unroll
      for (int i = kLanesPerKey / 2; i > 0; i /= 2) sum += __shfl_xor_sync(0xffffffffU, sum, i);
      if (key_lane == 0) scores()[distance] = sum * scale;
    }
  }

  // Returns the sum of the weights. Every warp finds the same maximum, weights and sum.
  __device__ __forceinline__ float Weigh() const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    float largest = -CUDART_INF_F;
    for (int i = lane; i < count; i += 32) largest = fmaxf(largest, scores()[i]);
    largest = WarpMax(largest);
    float sum = 0;
    for (int i = lane; i < count; i += 32) {
      const float weight = expf(scores()[i] - largest);
      weights()[i] = weight;
      sum += weight;
    }
    sum = WarpSum(sum);
    __syncwarp();
    return sum;
  }

  // Adds up the weighed values: thread group g takes distances g, g + groups, …
  __device__ __forceinline__ void AddValues(int groups) const {
    for (int e = static_cast<int>(threadIdx.x); e < groups * a.head_dim; e += kAttentionThreads) {
      const int g = e / a.head_dim;
      const int d = e - g * a.head_dim;
      float y = g == 0 ? fmaf(weights()[0], value()[d], 0.0F) : 0.0F;
#pragma unroll 4
      for (int distance = g == 0 ? groups : g; distance < count; distance += groups) {
        y = fmaf(weights()[distance], ToFloat(values()[distance * stride + d]), y);
      }
      parts()[e] = y;
    }
  }
};

// Attends, a block per (head, batch row). A score depends on positions by their distance only, so keys are kept as they
// are and turned back by it here. The past is fetched and turned while earlier kernels still run. T: of past keys and
// values. Past values stay in it, since more blocks then have room on an SM.
template <typename T>
__global__ void __launch_bounds__(kAttentionThreads, sizeof(T) == sizeof(float) ? 4 : 6)
    Attend(const __grid_constant__ AttentionArgs a) {
  extern __shared__ __align__(16) float shared[];
  const int b = static_cast<int>(blockIdx.y);
  const int head = static_cast<int>(blockIdx.x);
  const int thread = static_cast<int>(threadIdx.x);
  LetNextStart();
  const int frame = __ldcg(a.batch.frames + b);
  if (frame < 0) {
    WaitForPrevious();
    return;
  }
  std::byte* const state = LoadState(a.batch.states, b);
  const HeadBlock<T> block = {a,
                              shared,
                              AttentionStride(a.head_dim),
                              min(frame + 1, a.window),
                              frame % a.window,
                              head / (a.heads / a.kv_heads)};
  T* const past_keys = reinterpret_cast<T*>(state + a.keys) + block.kv_head * a.head_dim;
  T* const past_values = reinterpret_cast<T*>(state + a.values) + block.kv_head * a.head_dim;
  block.BringPasts(past_keys, past_values);
  WaitForPrevious();

  block.PlaceNew(a.qkv + static_cast<int64_t>(b) * a.stride, head, past_keys, past_values);
  __syncthreads();
  block.Score();
  __syncthreads();
  const float sum = block.Weigh();
  const int groups = max(1, kAttentionThreads / a.head_dim);
  block.AddValues(groups);
  __syncthreads();
  for (int c = thread * 4; c < a.head_dim; c += kAttentionThreads * 4) {
    const float* const parts = block.parts();
    float4 y = *reinterpret_cast<const float4*>(parts + c);
    for (int g = 1; g < groups; ++g) {
      const float4 part = *reinterpret_cast<const float4*>(parts + g * a.head_dim + c);
      y = {y.x + part.x, y.y + part.y, y.z + part.z, y.w + part.w};
    }
    const float inverse = 1.0F / sum;
    StoreSink(a.out, b, 0, state, frame, head * a.head_dim + c,
              {y.x * inverse, y.y * inverse, y.z * inverse, y.w * inverse});
  }
  if (head == a.heads - 1) {
    for (int c = a.heads * a.head_dim + thread * 4; c < a.out.channels; c += kAttentionThreads * 4) {
      StoreSink(a.out, b, 0, state, frame, c, {0, 0, 0, 0});
    }
  }
}

// `element`: bytes of a past value.
size_t AttentionSharedBytes(int window, int head_dim, size_t element) {
  return static_cast<size_t>(AttentionFloats(window, head_dim)) * sizeof(float) +
         static_cast<size_t>(window) * static_cast<size_t>(AttentionStride(head_dim)) * element;
}

constexpr int kDepthwiseThreads = 256;
constexpr int kTapsAtOnce = 8;

constexpr size_t kDepthwiseShared = 47 << 10;  // of a block, without asking for more, beside what is static

__host__ __device__ constexpr size_t DepthwiseBytes(int channels, int rows) {
  return static_cast<size_t>(channels) * static_cast<size_t>(rows) * sizeof(float);
}
// Returns true if there is room for the weights beside a column.
__host__ __device__ constexpr bool StagesWeights(int channels, int taps) {
  return DepthwiseBytes(channels, 1 + taps) <= kDepthwiseShared;
}

// Sum over the block, the same in every thread.
__device__ float BlockSum(float v, float* scratch) {
  v = WarpSum(v);
  __syncthreads();
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = v;
  __syncthreads();
  float sum = 0;
  for (int i = 0; i < kDepthwiseThreads / 32; ++i) sum += scratch[i];
  return sum;
}

// Convolves single channels and normalises, a block per column. The column waits in shared memory for its mean and
// variance.
__global__ void __launch_bounds__(kDepthwiseThreads, 4) Depthwise(const __grid_constant__ DepthwiseArgs a) {
  extern __shared__ __align__(16) float shared[];
  __shared__ float scratch[kDepthwiseThreads / 32];
  const int b = static_cast<int>(blockIdx.x) / a.x.rows;
  const int t = static_cast<int>(blockIdx.x) - b * a.x.rows;
  LetNextStart();
  for (int c = static_cast<int>(threadIdx.x) * 4; c < a.x.channels; c += kDepthwiseThreads * 4) {
    PrefetchL2(a.bias + c);
    PrefetchL2(a.norm_weight + c);
    PrefetchL2(a.norm_bias + c);
  }
  // This thread's weights are there when the input is.
  const bool staged = StagesWeights(a.x.channels, a.taps);
  float* const weights = shared + a.x.channels;  // [tap][channel]
  if (staged) {
    for (int c = static_cast<int>(threadIdx.x) * 4; c < a.x.channels; c += kDepthwiseThreads * 4) {
      for (int j = 0; j < a.taps; ++j)
        CopyAsync16(SharedAddress(weights + j * a.x.channels + c), a.weights + j * a.x.channels + c);
    }
  }
  CommitCopies();
  const int frame = __ldcg(a.batch.frames + b);
  WaitForPrevious();
  if (frame < 0) return;
  std::byte* const state = LoadState(a.batch.states, b);
  AwaitAllCopies();
  float sum = 0;
  for (int c = static_cast<int>(threadIdx.x) * 4; c < a.x.channels; c += kDepthwiseThreads * 4) {
    float4 y = __ldg(reinterpret_cast<const float4*>(a.bias + c));
    for (int first = 0; first < a.taps; first += kTapsAtOnce) {
      float4 v[kTapsAtOnce];
#pragma unroll
      for (int i = 0; i < kTapsAtOnce; ++i) {
        v[i] = {0, 0, 0, 0};
        const int lag = a.taps - 1 - (first + i);
        const float* const row = lag >= 0 ? SourceRow<float>(a.x, b, t, lag, state, frame) : nullptr;
        if (row != nullptr) v[i] = __ldcg(reinterpret_cast<const float4*>(row + c));
      }
#pragma unroll
      for (int i = 0; i < kTapsAtOnce; ++i) {
        if (first + i >= a.taps) break;
        const int at = (first + i) * a.x.channels + c;
        const float4 w = staged ? *reinterpret_cast<const float4*>(weights + at)
                                : __ldg(reinterpret_cast<const float4*>(a.weights + at));
        y = {fmaf(w.x, v[i].x, y.x), fmaf(w.y, v[i].y, y.y), fmaf(w.z, v[i].z, y.z), fmaf(w.w, v[i].w, y.w)};
      }
    }
    *reinterpret_cast<float4*>(shared + c) = y;
    sum += y.x + y.y + y.z + y.w;  // channels of the padding are 0
  }
  const float mean = BlockSum(sum, scratch) / static_cast<float>(a.width);
  float squares = 0;
  for (int c = static_cast<int>(threadIdx.x) * 4; c < a.x.channels; c += kDepthwiseThreads * 4) {
    const float* const y = shared + c;
    for (int i = 0; i < 4; ++i) squares += c + i < a.width ? (y[i] - mean) * (y[i] - mean) : 0.0F;
  }
  const float inverse = 1.0F / sqrtf(BlockSum(squares, scratch) / static_cast<float>(a.width) + a.eps);
  for (int c = static_cast<int>(threadIdx.x) * 4; c < a.x.channels; c += kDepthwiseThreads * 4) {
    const float4 y = *reinterpret_cast<const float4*>(shared + c);
    // The padding's weight and bias are 0.
    const float4 w = __ldg(reinterpret_cast<const float4*>(a.norm_weight + c));
    const float4 bias = __ldg(reinterpret_cast<const float4*>(a.norm_bias + c));
    StoreSink(a.out, b, t, state, frame, c,
              {fmaf((y.x - mean) * inverse, w.x, bias.x), fmaf((y.y - mean) * inverse, w.y, bias.y),
               fmaf((y.z - mean) * inverse, w.z, bias.z), fmaf((y.w - mean) * inverse, w.w, bias.w)});
  }
}

constexpr int kLastThreads = 256;
constexpr int kLanesPerSample = 8;
constexpr int kLanesChannels = kLanesPerSample * 4;
constexpr int kLastGroups = kLastThreads / kLanesPerSample;  // of lanes
// Samples of a group of lanes: of few streams, whose blocks do not fill the device, and of many.
constexpr int kFewSamples = 1;
constexpr int kManySamples = 4;
// Sizes that the kernel for many streams is compiled for: the released ones.
constexpr int kLastTaps = 7;
constexpr int kLastChannels = 96;

constexpr size_t LastBytes(int samples, int taps, int channels) {
  return (static_cast<size_t>(taps * channels) +
          static_cast<size_t>(kLastGroups * samples + taps - 1) * static_cast<size_t>(channels + 4)) *
         sizeof(float);
}

// Computes a lane's part of a sample: its channels of each tap in turn. kSamples neighbouring ones at a time, for which
// a row is read once: the kernel's time is shared memory's. kTaps, kChannels: 0 where they are not known, with one
// sample.
template <int kSamples, int kTaps, int kChannels>
__device__ __forceinline__ void SumLast(const LastConvArgs& a, const float* weights, const float* rows, int row_stride,
                                        int lane, float (&sums)[kSamples]) {
  const auto add = [](float4 w, float4 v, float& sum) {
    sum = fmaf(w.x, v.x, sum);
    sum = fmaf(w.y, v.y, sum);
    sum = fmaf(w.z, v.z, sum);
    sum = fmaf(w.w, v.w, sum);
  };
  if constexpr (kTaps == 0) {
    static_assert(kSamples == 1);
    for (int j = 0; j < a.taps; ++j) {
      for (int c = lane * 4; c < a.x.channels; c += kLanesChannels) {
        add(*reinterpret_cast<const float4*>(weights + j * a.x.channels + c),
            *reinterpret_cast<const float4*>(rows + j * row_stride + c), sums[0]);
      }
    }
  } else {
    constexpr int kQuads = kChannels / kLanesChannels;
    float4 v[kSamples][kQuads];  // row r lies at r % kSamples
    const auto load = [&](int row) {
#pragma unroll
      for (int q = 0; q < kQuads; ++q) {
        v[row % kSamples][q] =
            *reinterpret_cast<const float4*>(rows + row * row_stride + lane * 4 + q * kLanesChannels);
      }
    };
#pragma unroll
    for (int row = 0; row + 1 < kSamples; ++row) load(row);
#pragma unroll
    for (int j = 0; j < kTaps; ++j) {
      load(j + kSamples - 1);
#pragma unroll
      for (int q = 0; q < kQuads; ++q) {
        const float4 w = *reinterpret_cast<const float4*>(weights + j * kChannels + lane * 4 + q * kLanesChannels);
#pragma unroll
        for (int s = 0; s < kSamples; ++s) add(w, v[(j + s) % kSamples][q], sums[s]);
      }
    }
  }
}

// Makes kSamples samples for each group of lanes; their rows lie in shared memory.
template <int kSamples, int kTaps, int kChannels>
__global__ void __launch_bounds__(kLastThreads) LastConv(const __grid_constant__ LastConvArgs a) {
  extern __shared__ __align__(16) float shared[];
  const int channels = kChannels != 0 ? kChannels : a.x.channels;
  const int taps = kTaps != 0 ? kTaps : a.taps;
  const int row_stride = channels + 4;            // spreads neighbouring rows over the banks
  float* const weights = shared;                  // [taps][channels]
  float* const rows = weights + taps * channels;  // [samples + taps - 1][row_stride]
  const int b = static_cast<int>(blockIdx.y);
  const int first = static_cast<int>(blockIdx.x) * (kLastGroups * kSamples);
  const int thread = static_cast<int>(threadIdx.x);
  LetNextStart();
  for (int i = thread; i < taps * channels; i += kLastThreads) weights[i] = __ldg(a.weights + i);
  const int frame = __ldcg(a.batch.frames + b);
  WaitForPrevious();
  if (frame < 0) return;
  std::byte* const state = LoadState(a.batch.states, b);
  const int quads = channels / 4;
  for (int i = thread; i < (kLastGroups * kSamples + taps - 1) * quads; i += kLastThreads) {
    const int r = i / quads;
    const int c = (i - r * quads) * 4;
    const int t = first + r - (taps - 1);
    const float* row = nullptr;
    if (t < a.x.rows) {
      row = t >= 0 ? SourceRow<float>(a.x, b, t, 0, state, frame) : SourceRow<float>(a.x, b, 0, -t, state, frame);
    }
    CopyAsync16(SharedAddress(rows + r * row_stride + c),
                row != nullptr ? row + c : static_cast<const float*>(a.x.data), row != nullptr);
  }
  AwaitAllCopies();
  __syncthreads();
  const int lane = thread % kLanesPerSample;
  const int sample = thread / kLanesPerSample * kSamples;
  float sums[kSamples] = {};
  SumLast<kSamples, kTaps, kChannels>(a, weights, rows + sample * row_stride, row_stride, lane, sums);
#pragma unroll
  for (int s = 0; s < kSamples; ++s) {
    float sum = sums[s];
#pragma unroll
    for (int i = kLanesPerSample / 2; i > 0; i /= 2) sum += __shfl_xor_sync(0xffffffffU, sum, i);
    sum += a.bias;
    // Into [-1, 1]; NaN stays.
    sum = sum > 1.0F ? 1.0F : (sum < -1.0F ? -1.0F : sum);
    if (lane == 0 && first + sample + s < a.x.rows) {
      a.pcm[static_cast<int64_t>(b) * a.x.rows + first + sample + s] = sum;
    }
  }
}
constexpr auto kLastOfFew = LastConv<kFewSamples, 0, 0>;
constexpr auto kLastOfMany = LastConv<kManySamples, kLastTaps, kLastChannels>;

}  // namespace

cudaError_t PrepareOperators() {
  constexpr size_t kShared = 48 << 10;
  cudaError_t error = PrepareKernel(Dequantize, 0);
  if (error == cudaSuccess) error = PrepareKernel(Attend<float>, kAttentionShared);
  if (error == cudaSuccess) error = PrepareKernel(Attend<__half>, kAttentionShared);
  if (error == cudaSuccess) error = PrepareKernel(Depthwise, kDepthwiseShared);
  if (error == cudaSuccess) error = PrepareKernel(kLastOfFew, kShared);
  if (error == cudaSuccess) {
    error = PrepareKernel(kLastOfMany, LastBytes(kManySamples, kLastTaps, kLastChannels));
  }
  return error;
}

cudaError_t LaunchDequantize(const DequantizeArgs& args, int n, const DeviceTraits& device, cudaStream_t stream) {
  return LaunchChained(Dequantize, dim3(static_cast<unsigned>(n)), kDequantizeThreads, 0, args, device, stream);
}

bool AttentionFits(int window, int head_dim) {
  return AttentionSharedBytes(window, head_dim, sizeof(float)) <= kAttentionShared;
}

cudaError_t LaunchAttention(const AttentionArgs& args, int n, const DeviceTraits& device, cudaStream_t stream) {
  return LaunchChained(args.halves ? Attend<__half> : Attend<float>,
                       dim3(static_cast<unsigned>(args.heads), static_cast<unsigned>(n)), kAttentionThreads,
                       AttentionSharedBytes(args.window, args.head_dim, args.halves ? sizeof(__half) : sizeof(float)),
                       args, device, stream);
}

cudaError_t LaunchDepthwise(const DepthwiseArgs& args, int n, const DeviceTraits& device, cudaStream_t stream) {
  return LaunchChained(Depthwise, dim3(static_cast<unsigned>(n * args.x.rows)), kDepthwiseThreads,
                       DepthwiseBytes(args.x.channels, StagesWeights(args.x.channels, args.taps) ? 1 + args.taps : 1),
                       args, device, stream);
}

cudaError_t LaunchLastConv(const LastConvArgs& args, int n, const DeviceTraits& device, cudaStream_t stream) {
  // Turns of blocks over the SMs from which fewer, longer ones fill the device too.
  constexpr int kManyTurns = 2;
  const auto blocks = [&](int samples) { return CeilDiv(args.x.rows, kLastGroups * samples); };
  const bool many = args.taps == kLastTaps && args.x.channels == kLastChannels &&
                    n * blocks(kManySamples) >= kManyTurns * device.processors;
  const int samples = many ? kManySamples : kFewSamples;
  return LaunchChained(many ? kLastOfMany : kLastOfFew,
                       dim3(static_cast<unsigned>(blocks(samples)), static_cast<unsigned>(n)), kLastThreads,
                       LastBytes(samples, args.taps, args.x.channels), args, device, stream);
}

}  // namespace qtts::cuda::codec
