// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_RUNTIME_CODE_LOAD_H_
#define QTTS_CUDA_RUNTIME_CODE_LOAD_H_

#include <cuda_runtime_api.h>

namespace qtts::cuda {

// While one exists, launches of its thread only load their kernels' code. CUDA loads code with a kernel's first launch;
// where that finds no memory, later launches fail too. Kernels that no launch or graph of a load has, and that later
// work may need when memory is full, are therefore loaded with an empty launch.
class CodeLoad {
 public:
  CodeLoad() { active_ = true; }
  ~CodeLoad() { active_ = false; }
  CodeLoad(const CodeLoad&) = delete;
  CodeLoad& operator=(const CodeLoad&) = delete;

  static bool IsActive() { return active_; }
  static cudaError_t Load(const void* kernel) {
    cudaFuncAttributes attributes = {};
    return cudaFuncGetAttributes(&attributes, kernel);
  }

 private:
  inline static thread_local bool active_ = false;
};

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_RUNTIME_CODE_LOAD_H_
