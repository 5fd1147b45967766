// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_RULES_PRECISION_H_
#define QTTS_CUDA_RULES_PRECISION_H_

#include <cstddef>

namespace qtts::cuda {

// Arithmetic of the language model.
enum class Precision { kBF16, kF32 };

// Returns the bytes per weight and per activation (except the residual stream, which is F32).
constexpr size_t ElementBytes(Precision precision) { return precision == Precision::kBF16 ? 2 : 4; }

// Form in which the matrices of a frame lie in device memory. kInt8: codes of 8 bits with a scale per group
// (gemm/int8.h), for products in BF16; the arithmetic is that of BF16 weights with the rounded values.
enum class WeightForm { kPlain, kInt8 };

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_RULES_PRECISION_H_
