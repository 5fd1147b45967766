// SPDX-License-Identifier: LGPL-2.1-or-later
#include "sequences/parked_pages.h"

#include <utility>

namespace qtts::cuda {
namespace {

constexpr const char* kParking = "parking an utterance";

}  // namespace

ParkedPages::ParkedPages(size_t page_bytes, int max_slots, size_t limit, cudaStream_t stream)
    : page_bytes_(page_bytes), stream_(stream), memory_(page_bytes, limit), slots_(static_cast<size_t>(max_slots)) {}

Status ParkedPages::Save(int slot, std::span<void* const> pages) {
  while (free_.size() < pages.size()) {
    QTTS_ASSIGN_OR_RETURN(LockedMemory page, memory_.Take());
    free_.push_back(std::move(page));
  }
  std::vector<LockedMemory>& kept = slots_[static_cast<size_t>(slot)];
  for (void* const page : pages) {
    kept.push_back(std::move(free_.back()));
    free_.pop_back();
    const cudaError_t error = cudaMemcpyAsync(kept.back().data(), page, page_bytes_, cudaMemcpyDeviceToHost, stream_);
    if (!Succeeds(error)) {
      Drop(slot);
      return CudaStatus(error, kParking);
    }
  }
  return Status::Ok();
}

Status ParkedPages::Restore(int slot, std::span<void* const> pages) {
  const std::vector<LockedMemory>& kept = slots_[static_cast<size_t>(slot)];
  for (size_t i = 0; i < kept.size(); ++i) {
    QTTS_RETURN_IF_CUDA_ERROR(cudaMemcpyAsync(pages[i], kept[i].data(), page_bytes_, cudaMemcpyHostToDevice, stream_),
                              kParking);
  }
  Drop(slot);
  return Status::Ok();
}

void ParkedPages::Drop(int slot) {
  std::vector<LockedMemory>& kept = slots_[static_cast<size_t>(slot)];
  for (LockedMemory& page : kept) free_.push_back(std::move(page));
  kept.clear();
}

}  // namespace qtts::cuda
