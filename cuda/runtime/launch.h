// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_RUNTIME_LAUNCH_H_
#define QTTS_CUDA_RUNTIME_LAUNCH_H_

#include <cuda_runtime.h>

#include "runtime/code_load.h"
#include "runtime/device_numbers.h"
#include "runtime/memory_count.h"
#include "runtime/pretended_card.h"
#include "runtime/succeeds.h"

// Every kernel is launched here: the language model's by a Launcher, the others by LaunchKernel().
namespace qtts::cuda {

struct LaunchOptions {
  bool overlap = false;      // programmatic dependent launch (overlap.cuh); needs compute capability 9.0
  unsigned cluster = 1;      // blocks of a cluster, up to 8, neighbours in x; more than one needs 9.0
  bool cooperative = false;  // cooperative launch: all thread blocks are resident, or the launch fails
};

// Enqueues a kernel. CUDA keeps an error as its last one too (cuda_error.h).
template <typename... Parameters, typename... Arguments>
cudaError_t LaunchKernel(void (*kernel)(Parameters...), const dim3& grid, int threads, size_t shared,
                         cudaStream_t stream, const LaunchOptions& options, const Arguments&... arguments) {
  if (CountsMemory()) return cudaSuccess;
  if (CodeLoad::IsActive()) return CodeLoad::Load(reinterpret_cast<const void*>(kernel));
  if (Pretends()) {
    const cudaError_t error = CheckPretendedLaunch(options.overlap, options.cluster);
    if (error != cudaSuccess) return error;
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = shared;
  config.stream = stream;
  cudaLaunchAttribute attributes[3] = {};
  config.attrs = attributes;
  if (options.overlap) {
    cudaLaunchAttribute& attribute = attributes[config.numAttrs++];
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
  }
  if (options.cluster > 1) {
    cudaLaunchAttribute& attribute = attributes[config.numAttrs++];
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {options.cluster, 1, 1};
  }
  if (options.cooperative) {
    cudaLaunchAttribute& attribute = attributes[config.numAttrs++];
    attribute.id = cudaLaunchAttributeCooperative;
    attribute.val.cooperative = 1;
  }
  return cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...);
}

// Gives shared memory as much of L1's memory as there is. Kernels that overlap must all have it: a change of the split
// between two kernels would keep the second from starting early. While memory is counted, it touches no kernel:
// the first touch loads a kernel's code, and where that finds no memory, later launches fail too.
template <typename... Parameters>
cudaError_t PreferSharedMemory(void (*kernel)(Parameters...)) {
  if (CountsMemory()) return cudaSuccess;
  return cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributePreferredSharedMemoryCarveout,
                              cudaSharedmemCarveoutMaxShared);
}

// Raises the limit of dynamic shared memory of `kernel` to `bytes`.
template <typename... Parameters>
cudaError_t AllowSharedMemory(void (*kernel)(Parameters...), size_t bytes) {
  const auto* const function = reinterpret_cast<const void*>(kernel);
  if (Pretends()) {
    const cudaError_t error = CheckPretendedSharedMemory(function, bytes);
    if (error != cudaSuccess) return error;
  }
  if (CountsMemory()) return cudaSuccess;
  return cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
}

// Stream of kernels, the numbers by which operations choose them, and whether they may overlap their predecessor
// (overlap.cuh).
struct Launcher {
  // `card_numbers` must outlive the launcher. `may_overlap` needs compute capability 9.0.
  Launcher(cudaStream_t kernel_stream, const DeviceNumbers* card_numbers, bool may_overlap = false)
      : stream(kernel_stream), numbers(card_numbers), overlap(may_overlap) {}

  static constexpr size_t kPlainSharedMemory = size_t{32} << 10;  // safe beside any kernel's static part

  cudaStream_t stream;
  const DeviceNumbers* numbers;
  bool overlap;

  // The first error of all launches; sticky.
  mutable cudaError_t error = cudaSuccess;

  template <typename... Parameters, typename... Arguments>
  void operator()(void (*kernel)(Parameters...), dim3 grid, int threads, size_t shared, Arguments... arguments) const {
    InClusters(1, kernel, grid, threads, shared, arguments...);
  }

  // Launches in clusters of `blocks` thread blocks, see LaunchOptions.
  template <typename... Parameters, typename... Arguments>
  void InClusters(unsigned blocks, void (*kernel)(Parameters...), dim3 grid, int threads, size_t shared,
                  Arguments... arguments) const {
    if (CountsMemory()) return;
    (void)Succeeds(PreferSharedMemory(kernel));
    if (shared > kPlainSharedMemory) {
      if (const cudaError_t refused = AllowSharedMemory(kernel, shared); !Succeeds(refused)) {
        if (error == cudaSuccess) error = refused;
        return;
      }
    }
    const LaunchOptions options = {overlap, blocks, false};
    const cudaError_t result = LaunchKernel(kernel, grid, threads, shared, stream, options, arguments...);
    if (error == cudaSuccess) error = result;
  }
};

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_RUNTIME_LAUNCH_H_
