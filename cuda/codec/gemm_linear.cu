// SPDX-License-Identifier: LGPL-2.1-or-later
#include "codec/epilogue.cuh"
#include "codec/gemm.h"
#include "codec/half_math.cuh"
#include "codec/narrow_parts.cuh"
#include "runtime/fragment.h"

// Linear layers of a row a frame: the pre-transformer's. A kernel of so little work seems to take as long as its chain
// of instructions, so what differs between layers is known at compile time, and addresses are sums.
namespace qtts::cuda::codec {
namespace {

constexpr int kColumns = 8;
constexpr int kChunks = 2;  // of a segment

// The epilogues that there are.
enum class LinearEnd {
  kNone,      // no such kernel
  kSum,       // of a normalised input, F32
  kGate,      // gated, of a normalised input
  kResidual,  // a scale and a residual
};

LinearEnd LinearEndOf(const GemmEpilogue& epilogue) {
  const Sink& out = epilogue.out;
  const bool normalises = epilogue.rms_input != nullptr;
  const bool residual = epilogue.residual != nullptr;
  const bool operand = out.data != nullptr && out.planes != Planes::kF32 && out.keep == 0 && out.snake_a == nullptr;
  if (epilogue.bias != nullptr || epilogue.stride != 1) return LinearEnd::kNone;
  if (epilogue.activation == Activation::kSwiGlu) {
    return normalises && operand && !residual && epilogue.y == nullptr && epilogue.scale == nullptr ? LinearEnd::kGate
                                                                                                    : LinearEnd::kNone;
  }
  if (epilogue.activation != Activation::kNone || epilogue.y == nullptr) return LinearEnd::kNone;
  if (normalises && !residual && epilogue.scale == nullptr && out.data == nullptr) return LinearEnd::kSum;
  if (!normalises && residual && epilogue.scale != nullptr && operand) return LinearEnd::kResidual;
  return LinearEnd::kNone;
}

// A block has one weight tile, a warp a segment of two chunks; the first warp finishes: four outputs of a column a
// lane. The order of additions is that of all kernels.
template <int kSegments, int kPlanes, LinearEnd kEnd>
__global__ void __launch_bounds__(kSegments * 32) LinearGemm(const __grid_constant__ GemmArgs a) {
  constexpr bool kGated = kEnd == LinearEnd::kGate;
  constexpr bool kNormalises = kEnd == LinearEnd::kSum || kEnd == LinearEnd::kGate;
  __shared__ __align__(16) float partial[kSegments * kColumns * kSumStride];
  __shared__ float column_scale[kColumns];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int tile = static_cast<int>(blockIdx.x);
  const int column = lane / 4;
  const bool there = column < a.geometry.columns;
  const bool finishes = warp == 0 && there && (!kGated || lane % 4 < 2);
  const int row = lane % 4 * 4;
  LetNextStart();

  constexpr int kChunkUnits = 64 * kPlanes;
  const uint4* const weights =
      static_cast<const uint4*>(a.weights.data) + (tile * kSegments + warp) * (kChunks * kChunkUnits) + lane;
  uint4 w[kChunks][2][1][kPlanes];
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
#pragma unroll
    for (int step = 0; step < 2; ++step) {
#pragma unroll
      for (int p = 0; p < kPlanes; ++p) w[c][step][0][p] = __ldg(weights + c * kChunkUnits + p * 64 + step * 32);
    }
  }
  const int m = tile * (kGated ? kTileRows / 2 : kTileRows) + row;
  const int outputs = a.geometry.tiles * kTileRows;
  const auto load4 = [](const float* from) { return __ldg(reinterpret_cast<const float4*>(from)); };
  float4 weight_scale = {}, other_weight_scale = {}, scale = {};
  int frame = -1;
  if (finishes) {
    weight_scale = load4(a.weights.scale + tile * kTileRows + row);
    if constexpr (kGated) other_weight_scale = load4(a.weights.scale + tile * kTileRows + kTileRows / 2 + row);
    if constexpr (kEnd == LinearEnd::kResidual) scale = load4(a.epilogue.scale + m);
    frame = __ldcg(a.batch.frames + column);
  }
  WaitForPrevious();

  const __half* const from = static_cast<const __half*>(a.x.data) + column * a.x.channels +
                             warp * (kChunks * kChannelBlock) + UnitFragment::Column(lane);
  uint4 x[kChunks][1][kPlanes] = {};
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
#pragma unroll
    for (int p = 0; p < kPlanes; ++p) {
      if (there) x[c][0][p] = __ldcg(reinterpret_cast<const uint4*>(from + c * kChannelBlock + p * a.x.plane));
    }
  }
  float4 residual = {};
  if (kEnd == LinearEnd::kResidual && finishes) {
    residual = __ldcg(reinterpret_cast<const float4*>(a.epilogue.residual + column * outputs + m));
  }
  // From the last warp on, since the first one finishes.
  if (kNormalises && kSegments - 1 - warp < a.geometry.columns) {
    float normalise[1];
    InverseRms(a, kSegments - 1 - warp, normalise);
    if (lane == 0) column_scale[kSegments - 1 - warp] = normalise[0];
  }
  float sum[1][1][4] = {};
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    MultiplyStep<1, 1, kPlanes>(sum, w[c][0], x[c], 0);
    MultiplyStep<1, 1, kPlanes>(sum, w[c][1], x[c], 1);
  }
  StoreSums(sum[0], lane, kSumStride, partial + warp * kColumns * kSumStride);
  __syncthreads();
  if (frame < 0) return;

  const auto sums = [&](int first_row) {
    const float* const at = partial + column * kSumStride + first_row;
    float4 part[kSegments];
#pragma unroll
    for (int s = 0; s < kSegments; ++s) part[s] = Load4(at + s * kColumns * kSumStride);
    float4 total = part[0];
#pragma unroll
    for (int s = 1; s < kSegments; ++s) total = Plus(total, part[s]);
    return total;
  };
  const float normalise = kNormalises ? column_scale[column] : 1.0F;
  float4 v = Times(Times(sums(row), weight_scale), normalise);
  if constexpr (kGated) {
    const float4 gate = v;
    v = Times(Times(sums(kTileRows / 2 + row), other_weight_scale), normalise);
    v = Times(v, float4{Silu(gate.x), Silu(gate.y), Silu(gate.z), Silu(gate.w)});
  } else {
    v = PlusRounded(v, float4{0, 0, 0, 0});  // the bias of other kernels
  }
  if constexpr (kEnd == LinearEnd::kResidual) v = PlusRounded(Times(v, scale), residual);
  if constexpr (!kGated) *reinterpret_cast<float4*>(a.epilogue.y + column * outputs + m) = v;
  if constexpr (kEnd != LinearEnd::kSum) {
    __half* const to = static_cast<__half*>(a.epilogue.out.data) + column * a.epilogue.out.channels + m;
    const uint2 high = HighHalves(v);
    *reinterpret_cast<uint2*>(to) = high;
    if (kPlanes == 2) *reinterpret_cast<uint2*>(to + a.epilogue.out.plane) = LowHalves(v, high);
  }
}

using Kernel = void (*)(GemmArgs);
template <int kSegments, int kPlanes>
Kernel KernelFor(LinearEnd end) {
  return end == LinearEnd::kSum    ? LinearGemm<kSegments, kPlanes, LinearEnd::kSum>
         : end == LinearEnd::kGate ? LinearGemm<kSegments, kPlanes, LinearEnd::kGate>
                                   : LinearGemm<kSegments, kPlanes, LinearEnd::kResidual>;
}
template <int kPlanes>
Kernel KernelFor(LinearEnd end, int segments) {
  return segments == 8 ? KernelFor<8, kPlanes>(end) : KernelFor<16, kPlanes>(end);
}
Kernel KernelFor(Planes planes, LinearEnd end, int segments) {
  return planes == Planes::kHalf ? KernelFor<1>(end, segments) : KernelFor<2>(end, segments);
}

}  // namespace

bool LinearTakes(const GemmArgs& args, Planes x_planes) {
  const GemmGeometry& geometry = args.geometry;
  const bool as_planes = x_planes != Planes::kF32 && args.weights.planes == (x_planes == Planes::kHalf ? 1 : 2) &&
                         (args.epilogue.out.data == nullptr || args.epilogue.out.planes == x_planes);
  return as_planes && args.weights.scale != nullptr && geometry.columns <= kColumns && args.x.rows == 1 &&
         geometry.taps == 1 && geometry.groups == 1 && (geometry.segments == 8 || geometry.segments == 16) &&
         geometry.chunks == kChunks * geometry.segments && LinearEndOf(args.epilogue) != LinearEnd::kNone;
}

cudaError_t PrepareLinearGemms() {
  for (const Planes planes : {Planes::kHalf, Planes::kTwoHalves}) {
    for (const int segments : {8, 16}) {
      for (const LinearEnd end : {LinearEnd::kSum, LinearEnd::kGate, LinearEnd::kResidual}) {
        const cudaError_t error = PrepareKernel(KernelFor(planes, end, segments), 0);
        if (error != cudaSuccess) return error;
      }
    }
  }
  return cudaSuccess;
}

cudaError_t LaunchLinearGemm(const GemmArgs& args, Planes x_planes, const DeviceTraits& device, cudaStream_t stream) {
  const int segments = args.geometry.segments;
  return LaunchChained(KernelFor(x_planes, LinearEndOf(args.epilogue), segments),
                       dim3(static_cast<unsigned>(args.geometry.tiles)), segments * 32, 0, args, device, stream);
}

}  // namespace qtts::cuda::codec
