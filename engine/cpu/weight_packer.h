// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CPU_WEIGHT_PACKER_H_
#define QTTS_CPU_WEIGHT_PACKER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "checkpoint/safetensors.h"
#include "cpu/arithmetic.h"
#include "cpu/kernels.h"
#include "cpu/packed_cache.h"
#include "cpu/quantized_kernels.h"
#include "cpu/thread_pool.h"

namespace qtts::cpu {

// Makes the weights of an arithmetic out of those of the checkpoint, and owns them: in large pages where the system
// has them, since a frame reads all of them. Used while a model is built, by one thread; what it gave lives as long as
// it does.
class WeightPacker {
 public:
  // What has been packed and is not read any more, as it lay in memory.
  using Release = std::function<void(std::span<const std::byte>)>;

  // kBF16 needs HasBF16Products(). What `cache` has is taken from there, and not released; it gets what it lacks.
  WeightPacker(Arithmetic arithmetic, ThreadPool& pool, Release release = nullptr, PackedCache* cache = nullptr);
  ~WeightPacker();
  WeightPacker(const WeightPacker&) = delete;
  WeightPacker& operator=(const WeightPacker&) = delete;

  Arithmetic arithmetic() const { return arithmetic_; }
  // Of the codes of the arithmetic, which is kInt8 or kInt4.
  CodeBits bits() const { return arithmetic_ == Arithmetic::kInt4 ? CodeBits::k4 : CodeBits::k8; }

  // `w` quantised. May throw std::bad_alloc, as may the other.
  QuantizedView Quantize(const MatrixView& w);

  // `w` in BF16: itself where it is that.
  MatrixView ToBF16(const MatrixView& w);

  // `w` in F16: itself where it has 16 bits already, where a number of it is too large, or where the processor does not
  // read F16 as fast as F32.
  TensorView ToHalf(const TensorView& w);

  // As given to the constructor.
  const Release& release() const { return release_; }
  PackedCache* cache() const { return cache_; }

  // Memory taken.
  size_t bytes() const { return bytes_; }
  // Tells that `w` has been packed, here or elsewhere, and is not read any more.
  void AddReplaced(const MatrixView& w) const;

 private:
  struct Free {
    void operator()(std::byte* memory) const;
  };

  std::byte* Allocate(size_t bytes);
  // A copy of what the cache has of the tensor whose data is at `weight`; null if nothing.
  const std::byte* TakeKept(const void* weight, size_t bytes);
  void Keep(const void* weight, const void* packed, size_t bytes) const;

  const Arithmetic arithmetic_;
  ThreadPool& pool_;
  const Release release_;     // may be null
  PackedCache* const cache_;  // may be null
  std::vector<std::unique_ptr<std::byte, Free>> chunks_;
  size_t left_ = 0;  // free bytes at the end of the last chunk
  std::byte* next_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace qtts::cpu

#endif  // QTTS_CPU_WEIGHT_PACKER_H_
