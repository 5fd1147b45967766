// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_RUNTIME_OVERLAP_CUH_
#define QTTS_CUDA_RUNTIME_OVERLAP_CUH_

// Overlap of consecutive kernels on a stream by programmatic dependent launch (LaunchOptions::overlap). No effect
// before compute capability 9.0.
namespace qtts::cuda {

// Waits until the previous kernel has ended and its writes are visible.
__device__ __forceinline__ void WaitForPrevious() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Lets the next kernel start once all blocks have called this or ended.
__device__ __forceinline__ void LetNextStart() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_RUNTIME_OVERLAP_CUH_
