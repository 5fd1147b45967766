// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_RUNTIME_LAUNCH_H_
#define QTTS_CUDA_RUNTIME_LAUNCH_H_

#include <cuda_runtime.h>

#include "runtime/succeeds.h"

namespace qtts::cuda {

// Where kernels go, and whether they may overlap their predecessor (device_math.cuh).
struct Launcher {
  static constexpr size_t kPlainSharedMemory = size_t{32} << 10;  // safe beside any kernel's static part

  cudaStream_t stream = nullptr;
  bool overlap = false;  // needs compute capability 9.0

  // First error of all launches; sticky.
  mutable cudaError_t error = cudaSuccess;

  template <typename... Parameters, typename... Arguments>
  void operator()(void (*kernel)(Parameters...), dim3 grid, int threads, size_t shared, Arguments... arguments) const {
    InClusters(1, kernel, grid, threads, shared, arguments...);
  }

  // In clusters of `blocks` (up to 8) that follow one another in x; more than one needs compute capability 9.0.
  template <typename... Parameters, typename... Arguments>
  void InClusters(unsigned blocks, void (*kernel)(Parameters...), dim3 grid, int threads, size_t shared,
                  Arguments... arguments) const {
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = dim3(static_cast<unsigned>(threads));
    config.dynamicSmemBytes = shared;
    config.stream = stream;
    cudaLaunchAttribute attributes[2] = {};
    config.attrs = attributes;
    if (overlap) {
      cudaLaunchAttribute& attribute = attributes[config.numAttrs++];
      attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
      attribute.val.programmaticStreamSerializationAllowed = 1;
    }
    if (blocks > 1) {
      cudaLaunchAttribute& attribute = attributes[config.numAttrs++];
      attribute.id = cudaLaunchAttributeClusterDimension;
      attribute.val.clusterDim = {blocks, 1, 1};
    }
    // One split of L1 and shared memory for all kernels: changing it would keep them from overlapping.
    (void)Succeeds(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                        cudaFuncAttributePreferredSharedMemoryCarveout,
                                        cudaSharedmemCarveoutMaxShared));
    if (shared > kPlainSharedMemory) {
      (void)Succeeds(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                          cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared)));
    }
    const cudaError_t result = cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...);
    if (error == cudaSuccess) error = result;
  }
};

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_RUNTIME_LAUNCH_H_
