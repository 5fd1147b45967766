// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_RUNTIME_DEVICE_H_
#define QTTS_CUDA_RUNTIME_DEVICE_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <string>

// Descriptions of the GPUs. The only place that asks CUDA for a device's attributes, and where the device pretends to
// be another card (pretended_card.h). All functions are thread-safe.
namespace qtts::cuda {

struct DeviceDescription {
  std::string name;
  int major = 0;  // compute capability
  int minor = 0;
  int processors = 0;           // SMs
  size_t shared_per_block = 0;  // bytes, at most, static ones counted
  size_t l2_bytes = 0;
  size_t memory_bytes = 0;
  double bandwidth = 0;      // of the memory, by its clock and bus, in bytes a second; 0: unknown
  bool clusters = false;     // of thread blocks
  bool cooperative = false;  // cooperative launches
  bool integrated = false;   // its memory is the host's, as in a Jetson
  // Compute capability that the kernels which run here were compiled for, as 10 * major + minor: of the build's machine
  // code for this card, or of code that the driver compiles.
  int code = 0;
  std::string pretended_on;  // name of the real card, while this one is pretended

  int capability() const { return 10 * major + minor; }
  std::string capability_text() const { return std::to_string(major) + "." + std::to_string(minor); }
  // Returns true if kernels may start before their predecessor has ended (overlap.cuh). In code for earlier cards they
  // do not wait for it.
  bool CanOverlap() const { return major >= 9 && code >= kCodeOfHopper; }
  // Returns true if there are kernels whose blocks work together in clusters. They are empty in code for earlier cards.
  bool CanRunClusters() const { return clusters && code >= kCodeOfHopper; }
  // Returns true if there are kernels with a warpgroup's matrix instruction (`wgmma`): on compute capability 9.0 alone,
  // and in code for it.
  bool CanRunWarpgroups() const { return major == 9 && code >= kCodeOfHopper; }
  // Returns the name, as in "NVIDIA A10G, pretended on NVIDIA H200".
  std::string FullName() const { return pretended_on.empty() ? name : name + ", pretended on " + pretended_on; }

 private:
  static constexpr int kCodeOfHopper = 90;
};

// Returns the description of the calling thread's current device, filled once and valid for as long as the process
// runs. Errors are CUDA's: cudaErrorNoKernelImageForDevice if the build has no code for the device,
// cudaErrorInvalidValue if QTTS_CUDA_PRETEND names no card.
cudaError_t DescribeDevice(const DeviceDescription** device);

// Measures the free memory of the current device, and all of it: of a pretended card, if that has less. An integrated
// device has as free what the host's programs could have.
cudaError_t MeasureMemory(size_t* free, size_t* total);

// Forgets all descriptions, which become invalid. For tests, where a stand-in exchanges the devices.
void ForgetDevices();

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_RUNTIME_DEVICE_H_
