// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_RUNTIME_WARPGROUP_CUH_
#define QTTS_CUDA_RUNTIME_WARPGROUP_CUH_

// In place of cuda/runtime/warpgroup.cuh, with what the persistent kernel takes of it: here registers are no matter.
namespace qtts::cuda {

template <int kCount>
void TakeRegisters() {}
template <int kCount>
void GiveUpRegisters() {}

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_RUNTIME_WARPGROUP_CUH_
