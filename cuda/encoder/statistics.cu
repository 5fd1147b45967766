// SPDX-License-Identifier: LGPL-2.1-or-later
#include <cstdint>

#include "encoder/kernels.h"
#include "runtime/launch.h"

namespace qtts::cuda::encoder {
namespace {

constexpr int kChannels = 32;  // of a block
constexpr int kLanes = 32;     // threads that share a channel's rows
constexpr int kThreads = kChannels * kLanes;
constexpr double kMinVariance = 1e-12;

// `v` of all lanes of a channel, joined in a fixed order; the same in each of them. Called by all threads.
template <typename T, typename Join>
__device__ T JoinLanes(T v, T (*scratch)[kChannels], const Join& join) {
  const int channel = static_cast<int>(threadIdx.x) % kChannels;
  const int lane = static_cast<int>(threadIdx.x) / kChannels;
  __syncthreads();
  scratch[lane][channel] = v;
  __syncthreads();
  T all = scratch[0][channel];
  for (int i = 1; i < kLanes; ++i) all = join(all, scratch[i][channel]);
  return all;
}

// Computes the statistics of kChannels channels a block.
__global__ void __launch_bounds__(kThreads) StatisticsKernel(const __grid_constant__ Statistics a) {
  __shared__ double sums[kLanes][kChannels];
  __shared__ float largest[kLanes][kChannels];
  const auto add = [](double x, double y) { return x + y; };
  const int lane = static_cast<int>(threadIdx.x) / kChannels;
  const int c = static_cast<int>(blockIdx.x) * kChannels + static_cast<int>(threadIdx.x) % kChannels;
  const bool active = c < a.channels;
  const int64_t end = active ? a.rows : 0;  // others only take part in the barriers

  float most = 0;
  double norm = static_cast<double>(a.rows);
  if (a.scores.data != nullptr) {
    most = -__int_as_float(0x7f800000);
    for (int64_t t = lane; t < end; t += kLanes) most = fmaxf(most, a.scores.data[t * a.scores.stride + c]);
    most = JoinLanes(most, largest, [](float x, float y) { return fmaxf(x, y); });
    double sum = 0;
    for (int64_t t = lane; t < end; t += kLanes) {
      sum += static_cast<double>(expf(a.scores.data[t * a.scores.stride + c] - most));
    }
    norm = JoinLanes(sum, sums, add);
  }
  const auto weight = [&](int64_t t) {
    return a.scores.data == nullptr ? 1.0 : static_cast<double>(expf(a.scores.data[t * a.scores.stride + c] - most));
  };
  double sum = 0;
  for (int64_t t = lane; t < end; t += kLanes) {
    sum += weight(t) * static_cast<double>(a.x.data[t * a.x.stride + c]);
  }
  const double mean = JoinLanes(sum, sums, add) / norm;
  if (active && lane == 0) a.means[c] = static_cast<float>(mean);
  if (a.deviations == nullptr) return;
  double squares = 0;
  for (int64_t t = lane; t < end; t += kLanes) {
    const double difference = static_cast<double>(a.x.data[t * a.x.stride + c]) - mean;
    squares += weight(t) * difference * difference;
  }
  const double variance = JoinLanes(squares, sums, add) / norm;
  // In this order a NaN stays one.
  if (active && lane == 0)
    a.deviations[c] = static_cast<float>(sqrt(variance < kMinVariance ? kMinVariance : variance));
}

constexpr int kGateThreads = 256;

__global__ void __launch_bounds__(kGateThreads) GateKernel(const __grid_constant__ Gating a) {
  const int64_t e = static_cast<int64_t>(blockIdx.x) * kGateThreads + threadIdx.x;
  if (e >= a.rows * a.channels) return;
  const int64_t t = e / a.channels;
  const int64_t c = e - t * a.channels;
  const float gated = __fmul_rn(a.gates[c], a.x.data[t * a.x.stride + c]);
  a.y.data[t * a.y.stride + c] = __fadd_rn(a.residual.data[t * a.residual.stride + c], gated);
}

}  // namespace

cudaError_t ComputeStatistics(const Statistics& statistics, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>((statistics.channels + kChannels - 1) / kChannels);
  return LaunchKernel(StatisticsKernel, dim3(blocks), kThreads, 0, stream, {}, statistics);
}

cudaError_t Gate(const Gating& gating, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>((gating.rows * gating.channels + kGateThreads - 1) / kGateThreads);
  return LaunchKernel(GateKernel, dim3(blocks), kGateThreads, 0, stream, {}, gating);
}

}  // namespace qtts::cuda::encoder
