// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_RUNTIME_ARENA_H_
#define QTTS_CUDA_RUNTIME_ARENA_H_

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "runtime/cuda_error.h"
#include "runtime/device_wait.h"
#include "runtime/memory_count.h"
#include "runtime/pretended_card.h"

namespace qtts::cuda {

// A device memory arena: allocates pieces, frees all of them at once; only counts where the thread counts memory
// (memory_count.h). Not thread-safe.
class Arena {
 public:
  Arena() = default;
  ~Arena() {
    if (HangsHere()) return;
    MemoryCount* const count = MemoryCount::Current();
    for (const Block& block : blocks_) {
      if (count != nullptr) {
        count->GiveBack(block.size);
      } else {
        (void)cudaFree(block.data);
      }
    }
  }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Allocates memory that is aligned to 256 bytes. Returns null if there is no memory; see error().
  void* Allocate(size_t bytes) {
    bytes = (std::max<size_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
    auto place = std::find_if(blocks_.begin(), blocks_.end(), [&](const Block& b) { return b.size - b.used >= bytes; });
    if (place == blocks_.end()) {
      Block block;
      block.size = std::max(bytes, kBlockBytes);
      error_ = NewBlock(&block);
      if (!Succeeds(error_)) return nullptr;
      place = blocks_.insert(blocks_.end(), block);
      total_ += block.size;
    }
    void* const data = static_cast<std::byte*>(place->data) + place->used;
    place->used += bytes;
    return data;
  }

  // Frees all pieces. The arena keeps the memory for the next ones.
  void Reuse() {
    for (Block& block : blocks_) block.used = 0;
  }

  size_t total() const { return total_; }
  cudaError_t error() const { return error_; }

 private:
  static constexpr size_t kAlignment = 256;
  static constexpr size_t kBlockBytes = size_t{16} << 20;
  struct Block {
    void* data = nullptr;
    size_t size = 0;
    size_t used = 0;
  };

  static cudaError_t NewBlock(Block* block) {
    if (MemoryCount* const count = MemoryCount::Current(); count != nullptr) {
      block->data = count->Take(block->size);
      return cudaSuccess;
    }
    const cudaError_t error = Pretends() ? CheckPretendedMemory(block->size) : cudaSuccess;
    return error == cudaSuccess ? cudaMalloc(&block->data, block->size) : error;
  }

  std::vector<Block> blocks_;
  size_t total_ = 0;
  cudaError_t error_ = cudaSuccess;
};

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_RUNTIME_ARENA_H_
