// SPDX-License-Identifier: LGPL-2.1-or-later
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "encoder/kernels.h"
#include "runtime/elementwise.cuh"

// Kernels that bring weights into shape, run once.
namespace qtts::cuda::encoder {
namespace {

__global__ void PackKernel(Packing a) {
  const int64_t e = ElementIndex();
  if (e >= static_cast<int64_t>(a.out) * a.in * a.taps) return;
  const auto tap = static_cast<int>(e % a.taps);
  const int64_t c = e / a.taps % a.in;
  const int64_t o = e / a.taps / a.in;
  const float v = a.dtype == DType::kF32    ? static_cast<const float*>(a.from)[e]
                  : a.dtype == DType::kBF16 ? __bfloat162float(static_cast<const __nv_bfloat16*>(a.from)[e])
                                            : __half2float(static_cast<const __half*>(a.from)[e]);
  a.to[(tap * static_cast<int64_t>(a.in) + c) * a.to_out + a.first + o] = v;
}

// One thread per codeword.
__global__ void CodebookKernel(CodebookPacking a) {
  const int64_t e = ElementIndex();
  if (e >= a.entries) return;
  const float usage = fmaxf(a.usage[e], 1e-5F);
  double square = 0;
  for (int i = 0; i < a.dim; ++i) {
    const float v = __fdiv_rn(a.sums[e * a.dim + i], usage);
    a.codewords[static_cast<int64_t>(i) * a.entries + e] = v;
    square += static_cast<double>(v) * static_cast<double>(v);
  }
  a.squares[e] = static_cast<float>(square);
}

}  // namespace

cudaError_t Pack(const Packing& packing, cudaStream_t stream) {
  const int64_t elements = static_cast<int64_t>(packing.out) * packing.in * packing.taps;
  return LaunchElements(PackKernel, elements, stream, packing);
}

cudaError_t PackCodebook(const CodebookPacking& packing, cudaStream_t stream) {
  return LaunchElements(CodebookKernel, packing.entries, stream, packing);
}

}  // namespace qtts::cuda::encoder
