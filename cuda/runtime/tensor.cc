// SPDX-License-Identifier: LGPL-2.1-or-later
#include "runtime/tensor.h"

#include <bit>
#include <cstdint>
#include <cstring>

namespace qtts::cuda {
namespace {

float HalfToFloat(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t exponent = bits >> 10 & 31;
  const uint32_t mantissa = bits & 1023;
  float value;
  if (exponent == 31) {
    value = std::bit_cast<float>(0x7F800000U | mantissa << 13);
  } else if (exponent == 0) {
    value = static_cast<float>(mantissa) / 16777216.0F;
  } else {
    value = std::bit_cast<float>((exponent + 112) << 23 | mantissa << 13);
  }
  return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | sign);
}

}  // namespace

std::vector<float> FloatsOf(const TensorView& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.elements()));
  for (size_t i = 0; i < values.size(); ++i) {
    if (tensor.dtype == DType::kF32) {
      std::memcpy(&values[i], static_cast<const char*>(tensor.data) + 4 * i, 4);
      continue;
    }
    uint16_t bits;
    std::memcpy(&bits, static_cast<const char*>(tensor.data) + 2 * i, 2);
    values[i] =
        tensor.dtype == DType::kF16 ? HalfToFloat(bits) : std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  }
  return values;
}

}  // namespace qtts::cuda
