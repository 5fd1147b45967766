// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CHECKPOINT_DTYPE_H_
#define QTTS_CHECKPOINT_DTYPE_H_

#include <cstddef>
#include <string_view>

// Included by kernels, which take minutes to compile, so it includes little.
namespace qtts {

enum class DType { kF32, kF16, kBF16 };

// Returns "F32", "F16", "BF16": the spelling of safetensors.
std::string_view DTypeName(DType dtype);
size_t DTypeBytes(DType dtype);

}  // namespace qtts

#endif  // QTTS_CHECKPOINT_DTYPE_H_
