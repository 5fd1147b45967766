// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_RULES_PRECISION_H_
#define QTTS_CUDA_RULES_PRECISION_H_

#include <cstddef>

namespace qtts::cuda {

// Arithmetic of the language model.
enum class Precision { kBF16, kF32 };

// Returns the bytes per weight and per activation (except the residual stream, which is F32).
constexpr size_t ElementBytes(Precision precision) { return precision == Precision::kBF16 ? 2 : 4; }

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_RULES_PRECISION_H_
