// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_PATHS_PERSISTENT_TEAM_CUH_
#define QTTS_CUDA_PATHS_PERSISTENT_TEAM_CUH_

#include "cuda_device.h"
#include "paths/persistent/frame_shape.cuh"
#include "thread_grid.h"

// In place of cuda/paths/persistent/team.cuh.
namespace qtts::cuda::persistent {

inline int Uniform(int value, const emulated::Place& place = emulated::Place::current()) {
  return __shfl_sync(~0U, value, 0, place);
}

template <typename T>
T* Now(T* address) {
  return address;
}

inline char* BlockMemory() { return emulated::SharedMemory(); }

struct Team {
  static constexpr int kThreads = kTeamThreads;
  static constexpr int kWarps = kPersistentWarps;
  static void Sync(const emulated::Place& place = emulated::Place::current()) { Any(false, place); }
  static bool Any(bool value, const emulated::Place& place = emulated::Place::current()) {
    return emulated::AwaitBarrier(1, kTeamThreads, value, place);
  }
};

}  // namespace qtts::cuda::persistent

#endif  // QTTS_CUDA_PATHS_PERSISTENT_TEAM_CUH_
