// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_RUNTIME_CODE_PROBE_H_
#define QTTS_CUDA_RUNTIME_CODE_PROBE_H_

#include <cuda_runtime_api.h>

namespace qtts::cuda {

// Sets `code` to the compute capability, as 10 * major + minor, that the kernels which run on the current device were
// compiled for. cudaErrorNoKernelImageForDevice if the build has none for it.
cudaError_t ProbeCode(int* code);

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_RUNTIME_CODE_PROBE_H_
