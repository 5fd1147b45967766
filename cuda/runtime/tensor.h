// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_RUNTIME_TENSOR_H_
#define QTTS_CUDA_RUNTIME_TENSOR_H_

#include <vector>

#include "checkpoint/safetensors.h"

namespace qtts::cuda {

// Returns the elements of a small mapped tensor, of whichever float type, as F32.
std::vector<float> FloatsOf(const TensorView& tensor);

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_RUNTIME_TENSOR_H_
