// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_RUNTIME_PRETENDED_CARD_H_
#define QTTS_CUDA_RUNTIME_PRETENDED_CARD_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <string>

// For tests: the environment variable QTTS_CUDA_PRETEND makes a GPU answer as another card, one that is not at hand,
// and refuse requests that the card would refuse. Tests then see the choice of kernels, their bits, and limits, but no
// times of that card. The build needs code that the card could run: of its compute capability or an earlier one, as
// machine code for the GPU that is there (-Dcuda-arch=80:90, doc/building.md).
namespace qtts::cuda {

struct PretendedCard {
  const char* id;  // value of QTTS_CUDA_PRETEND
  const char* name;
  int major, minor;
  int processors;           // SMs
  size_t shared_per_block;  // bytes
  size_t l2_bytes;
  size_t memory_bytes;
  double bandwidth;  // bytes a second
  bool clusters;
};

// Returns true if QTTS_CUDA_PRETEND is set and not empty.
bool Pretends();
// Returns the card it names; null if it names none.
const PretendedCard* FindPretendedCard();
// Returns their names, as in "a100, a10g or l4".
std::string PretendedCardNames();

// Returns the error with which the driver would refuse the pretended card; cudaSuccess if nothing is pretended.
// `cluster`: blocks of a cluster.
cudaError_t CheckPretendedLaunch(bool overlap, unsigned cluster);
// Checks `bytes` of dynamic shared memory for a kernel.
cudaError_t CheckPretendedSharedMemory(const void* kernel, size_t bytes);
// Checks an allocation of so many bytes.
cudaError_t CheckPretendedMemory(size_t bytes);

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_RUNTIME_PRETENDED_CARD_H_
