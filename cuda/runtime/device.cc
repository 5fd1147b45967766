// SPDX-License-Identifier: LGPL-2.1-or-later
#include "runtime/device.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <string>

#include "qtts/mutex.h"
#include "runtime/code_probe.h"
#include "runtime/pretended_card.h"
#include "runtime/succeeds.h"

namespace qtts::cuda {
namespace {

struct Descriptions {
  Mutex mutex;
  std::map<int, DeviceDescription> by_number QTTS_GUARDED_BY(mutex);
};

// Never destroyed: engines may be used while the process exits.
Descriptions& All() {
  static auto* const all = new Descriptions();
  return *all;
}

// Returns the bandwidth. Transfers are on both edges of the clock.
double BandwidthOf(int device) {
  int kilohertz = 0;
  int bits = 0;
  if (!Succeeds(cudaDeviceGetAttribute(&kilohertz, cudaDevAttrMemoryClockRate, device)) ||
      !Succeeds(cudaDeviceGetAttribute(&bits, cudaDevAttrGlobalMemoryBusWidth, device))) {
    return 0;
  }
  return 2.0 * 1000 * kilohertz * bits / 8;
}

// Returns the host's memory that programs can have, in bytes; 0 if unknown. The kernel's page cache counts, as it gives
// way.
size_t AvailableHostBytes() {
  std::ifstream file("/proc/meminfo");
  for (std::string name, rest; file >> name && std::getline(file, rest);) {
    if (name == "MemAvailable:") return std::stoull(rest) << 10;
  }
  return 0;
}

cudaError_t Pretend(DeviceDescription* device) {
  const PretendedCard* const card = FindPretendedCard();
  if (card == nullptr) return cudaErrorInvalidValue;
  device->pretended_on = device->name;
  device->name = card->name;
  device->major = card->major;
  device->minor = card->minor;
  device->processors = card->processors;
  device->shared_per_block = std::min(card->shared_per_block, device->shared_per_block);
  device->l2_bytes = card->l2_bytes;
  device->memory_bytes = std::min(card->memory_bytes, device->memory_bytes);
  device->bandwidth = card->bandwidth;
  device->clusters = card->clusters && device->clusters;
  // A card runs code for itself and for earlier ones.
  return device->code <= device->capability() ? cudaSuccess : cudaErrorNoKernelImageForDevice;
}

cudaError_t Fill(int number, DeviceDescription* device) {
  cudaDeviceProp properties = {};
  if (const cudaError_t error = cudaGetDeviceProperties(&properties, number); error != cudaSuccess) return error;
  device->name = properties.name;
  device->major = properties.major;
  device->minor = properties.minor;
  device->processors = properties.multiProcessorCount;
  device->shared_per_block = properties.sharedMemPerBlockOptin;
  device->l2_bytes = static_cast<size_t>(std::max(properties.l2CacheSize, 0));
  device->memory_bytes = properties.totalGlobalMem;
  device->bandwidth = BandwidthOf(number);
  device->clusters = properties.clusterLaunch != 0;
  device->cooperative = properties.cooperativeLaunch != 0;
  device->integrated = properties.integrated != 0;
  if (const cudaError_t error = ProbeCode(&device->code); error != cudaSuccess) return error;
  return Pretends() ? Pretend(device) : cudaSuccess;
}

}  // namespace

cudaError_t DescribeDevice(const DeviceDescription** device) {
  int number = 0;
  if (const cudaError_t error = cudaGetDevice(&number); error != cudaSuccess) return error;
  Descriptions& all = All();
  const MutexLock lock(all.mutex);
  auto found = all.by_number.find(number);
  if (found == all.by_number.end()) {
    DeviceDescription description;
    if (const cudaError_t error = Fill(number, &description); error != cudaSuccess) return error;
    found = all.by_number.emplace(number, std::move(description)).first;
  }
  *device = &found->second;
  return cudaSuccess;
}

cudaError_t MeasureMemory(size_t* free, size_t* total) {
  int number = 0;
  int integrated = 0;
  cudaError_t error = cudaGetDevice(&number);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&integrated, cudaDevAttrIntegrated, number);
  if (error == cudaSuccess) error = cudaMemGetInfo(free, total);
  if (error != cudaSuccess) return error;
  // CUDA counts what the host's page cache holds, such as the checkpoint, as used.
  if (integrated != 0) *free = std::max(*free, std::min(AvailableHostBytes(), *total));
  if (!Pretends()) return cudaSuccess;
  const PretendedCard* const card = FindPretendedCard();
  if (card == nullptr || card->memory_bytes >= *total) return cudaSuccess;
  const size_t used = *total - *free;
  *total = card->memory_bytes;
  *free = *total - std::min(used, *total);
  return cudaSuccess;
}

void ForgetDevices() {
  Descriptions& all = All();
  const MutexLock lock(all.mutex);
  all.by_number.clear();
}

}  // namespace qtts::cuda
