// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TESTS_GPU_INT8_VALUES_H_
#define QTTS_TESTS_GPU_INT8_VALUES_H_

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "gemm/int8.h"

// Weights of 8 bits by plain arithmetic, for tests and measurements: the values that the GPU's int8 has in their place.
namespace qtts::testing {

// Replaces weights [rows][columns] by their values.
inline void RoundToInt8(int64_t rows, int64_t columns, float* weights) {
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t first = 0; first < columns; first += cuda::kChunk) {
      float* const group = weights + row * columns + first;
      const int64_t count = std::min<int64_t>(cuda::kChunk, columns - first);
      float largest = 0;
      for (int64_t i = 0; i < count; ++i) largest = std::max(largest, std::fabs(group[i]));
      const uint16_t scale = cuda::gemm::Int8Scale(largest);
      for (int64_t i = 0; i < count; ++i) {
        const int code = cuda::gemm::Int8Code(group[i], scale);
        group[i] = cuda::gemm::FloatOfBf16(cuda::gemm::Int8Value(code, scale));
      }
    }
  }
}

}  // namespace qtts::testing

#endif  // QTTS_TESTS_GPU_INT8_VALUES_H_
