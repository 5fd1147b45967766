// SPDX-License-Identifier: LGPL-2.1-or-later
#include "runtime/pretended_card.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <string_view>

#include "runtime/device.h"

namespace qtts::cuda {
namespace {

constexpr size_t kKiB = size_t{1} << 10;
constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kGiB = size_t{1} << 30;

// By NVIDIA's data sheets; shared memory by the tables of the CUDA programming guide.
constexpr PretendedCard kCards[] = {
    {"a100", "NVIDIA A100-SXM4-40GB", 8, 0, 108, 163 * kKiB, 40 * kMiB, 40 * kGiB, 1555e9, false},
    {"a10g", "NVIDIA A10G", 8, 6, 80, 99 * kKiB, 6 * kMiB, 24 * kGiB, 600e9, false},
    {"rtx3060", "NVIDIA GeForce RTX 3060", 8, 6, 28, 99 * kKiB, 3 * kMiB, 12 * kGiB, 360e9, false},
    {"rtx3050", "NVIDIA GeForce RTX 3050 6GB", 8, 6, 18, 99 * kKiB, 2 * kMiB, 6 * kGiB, 168e9, false},
    {"rtx4060", "NVIDIA GeForce RTX 4060", 8, 9, 24, 99 * kKiB, 24 * kMiB, 8 * kGiB, 272e9, false},
    {"rtx4090", "NVIDIA GeForce RTX 4090", 8, 9, 128, 99 * kKiB, 72 * kMiB, 24 * kGiB, 1008e9, false},
    {"rtx5090", "NVIDIA GeForce RTX 5090", 12, 0, 170, 99 * kKiB, 96 * kMiB, 32 * kGiB, 1792e9, true},
    {"l4", "NVIDIA L4", 8, 9, 58, 99 * kKiB, 48 * kMiB, 24 * kGiB, 300e9, false},
    {"orin", "Orin", 8, 7, 16, 163 * kKiB, 4 * kMiB, 64 * kGiB, 204.8e9, false},
};

std::string_view Wanted() {
  const char* const value = std::getenv("QTTS_CUDA_PRETEND");
  return value == nullptr ? "" : value;
}

// Returns the description of the pretended card; null if there is none, or if there is no device.
const DeviceDescription* Pretended() {
  const DeviceDescription* device = nullptr;
  return Pretends() && DescribeDevice(&device) == cudaSuccess ? device : nullptr;
}

}  // namespace

bool Pretends() { return !Wanted().empty(); }

const PretendedCard* FindPretendedCard() {
  const std::string_view wanted = Wanted();
  const auto* const found =
      std::find_if(std::begin(kCards), std::end(kCards), [&](const PretendedCard& card) { return card.id == wanted; });
  return found == std::end(kCards) ? nullptr : found;
}

std::string PretendedCardNames() {
  std::string names;
  for (const PretendedCard& card : kCards) {
    if (!names.empty()) names += &card == std::prev(std::end(kCards)) ? " or " : ", ";
    names += card.id;
  }
  return names;
}

cudaError_t CheckPretendedLaunch(bool overlap, unsigned cluster) {
  const DeviceDescription* const device = Pretended();
  if (device == nullptr) return cudaSuccess;
  const bool can = (!overlap || device->major >= 9) && (cluster <= 1 || device->clusters);
  return can ? cudaSuccess : cudaErrorNotSupported;
}

cudaError_t CheckPretendedSharedMemory(const void* kernel, size_t bytes) {
  const DeviceDescription* const device = Pretended();
  if (device == nullptr) return cudaSuccess;
  cudaFuncAttributes attributes = {};
  const cudaError_t error = cudaFuncGetAttributes(&attributes, kernel);
  if (error != cudaSuccess) return error;
  return attributes.sharedSizeBytes + bytes <= device->shared_per_block ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t CheckPretendedMemory(size_t bytes) {
  if (Pretended() == nullptr) return cudaSuccess;
  size_t free = 0;
  size_t total = 0;
  const cudaError_t error = MeasureMemory(&free, &total);
  if (error != cudaSuccess) return error;
  return bytes <= free ? cudaSuccess : cudaErrorMemoryAllocation;
}

}  // namespace qtts::cuda
