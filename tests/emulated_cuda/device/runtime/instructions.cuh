// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_RUNTIME_INSTRUCTIONS_CUH_
#define QTTS_CUDA_RUNTIME_INSTRUCTIONS_CUH_

#include <bit>
#include <cmath>
#include <cstdint>

#include "cuda_device.h"
#include "runtime/fragment.h"
#include "thread_grid.h"

// In place of cuda/runtime/instructions.cuh.
namespace qtts::cuda {

inline uint4 Streamed(const uint4* p) { return *p; }

// Adds the products in their order, which the device does not promise: its last bits may be others.
inline void Mma(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1,
                const emulated::Place& place = emulated::Place::current()) {
  struct Operands {
    uint32_t words[LeftFragment::kWords + RightFragment::kWords];
  };
  const Operands own = {{a0, a1, a2, a3, b0, b1}};
  const emulated::Exchanged all = emulated::Exchange(&own, sizeof(own), place);
  const auto element = [](uint32_t pair, int i) {
    return std::bit_cast<float>(i % 2 == 0 ? pair << 16 : pair & 0xFFFF0000U);
  };
  for (int i = 0; i < SumFragment::kOfLane; ++i) {
    const int row = SumFragment::Row(emulated::Lane(), i);
    const int column = SumFragment::Column(emulated::Lane(), i);
    float sum = 0;
    for (int k = 0; k < LeftFragment::kColumns; ++k) {
      const int in_pair = k % 8 / 2;
      const uint32_t left = all.Of<Operands>(row % 8 * 4 + in_pair).words[row / 8 + k / 8 * 2];
      const uint32_t right = all.Of<Operands>(column * 4 + in_pair).words[LeftFragment::kWords + k / 8];
      sum += element(left, k) * element(right, k);
    }
    c[i] += sum;
  }
}

inline uint32_t FmaBf16x2(uint32_t a, uint32_t b, uint32_t c) {
  const auto fma = [](uint32_t x, uint32_t y, uint32_t z) {
    const auto value = [](uint32_t bits) { return static_cast<double>(std::bit_cast<float>(bits << 16)); };
    const __nv_bfloat16 rounded = __double2bfloat16(std::fma(value(x), value(y), value(z)));
    return static_cast<uint32_t>(std::bit_cast<uint16_t>(rounded));
  };
  return fma(a >> 16, b >> 16, c >> 16) << 16 | fma(a & 0xFFFF, b & 0xFFFF, c & 0xFFFF);
}

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_RUNTIME_INSTRUCTIONS_CUH_
