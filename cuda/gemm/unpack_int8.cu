// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gemm/gemm_device.cuh"
#include "gemm/int8.cuh"
#include "gemm/int8.h"
#include "gemm/unpack_int8.h"

namespace qtts::cuda::gemm {
namespace {

// A thread for each lane of a chunk's weights.
template <int kHalves>
__global__ void __launch_bounds__(kThreads)
    UnpackInt8Kernel(int64_t units, const char* weights, const int* live_word, uint4* target) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t chunk = i / 32;
  const int lane = static_cast<int>(i % 32);
  uint2 unit[kHalves] = {};
  Int8Factor factor[kHalves] = {};
  if (i < units) {
    const char* const codes = weights + chunk * (kHalves * Int8Layout::kChunkBytes);
    const char* const scales = codes + kHalves * Int8Layout::kCodeBytes;
    if constexpr (kHalves == 2) {
      const uint4 both = Streamed(reinterpret_cast<const uint4*>(codes) + lane);
      unit[0] = {both.x, both.y};
      unit[1] = {both.z, both.w};
      const uint32_t two = __ldg(reinterpret_cast<const uint32_t*>(scales) + lane / 4);
      factor[0] = LowInt8Factor(two);
      factor[1] = HighInt8Factor(two);
    } else {
      unit[0] = __ldg(reinterpret_cast<const uint2*>(codes) + lane);
      factor[0] = LowInt8Factor(__ldg(reinterpret_cast<const uint16_t*>(scales) + lane / 4));
    }
  }
  const bool live = live_word == nullptr || LoadL2(live_word) != 0;
  WaitForPrevious();
  LetNextStart();
  if (!live || i >= units) return;
#pragma unroll
  for (int h = 0; h < kHalves; ++h) target[(chunk * kHalves + h) * 32 + lane] = UnpackInt8(unit[h], factor[h]);
}

}  // namespace

void UnpackInt8(const Launcher& launch, const Matrix& matrix, const int* live) {
  const Int8Layout layout = matrix.int8_layout();
  const int64_t units = int64_t{32} * layout.tiles * layout.chunks;
  const dim3 grid(static_cast<unsigned>((units + kThreads - 1) / kThreads));
  launch(layout.halves == 2 ? UnpackInt8Kernel<2> : UnpackInt8Kernel<1>, grid, kThreads, 0, units,
         static_cast<const char*>(matrix.data), live, static_cast<uint4*>(matrix.unpacked));
}

}  // namespace qtts::cuda::gemm
