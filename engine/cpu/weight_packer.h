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
#include "cpu/instructions.h"
#include "cpu/kernels.h"
#include "cpu/packed_cache.h"
#include "cpu/quantized_kernels.h"
#include "cpu/thread_pool.h"

namespace qtts::cpu {

// Converts the checkpoint's weights to the format of an arithmetic, and owns the result. Uses large pages if the system
// has them, since a frame reads all weights. Used by one thread while a model is built. Its results are valid as long
// as it lives.
class WeightPacker {
 public:
  // Called with memory of the checkpoint that has been packed and is not read any more.
  using Release = std::function<void(std::span<const std::byte>)>;

  // kBF16 needs HasBF16Products(). Weights found in `cache` are copied from there and not released; others are packed
  // and added to it.
  WeightPacker(Arithmetic arithmetic, ThreadPool& pool, Release release = nullptr, PackedCache* cache = nullptr);
  ~WeightPacker();
  WeightPacker(const WeightPacker&) = delete;
  WeightPacker& operator=(const WeightPacker&) = delete;

  Arithmetic arithmetic() const { return arithmetic_; }
  // Returns the bits of a code; for kInt8 and kInt4 only.
  CodeBits bits() const { return arithmetic_ == Arithmetic::kInt4 ? CodeBits::k4 : CodeBits::k8; }
  // Returns the unit for products of the weights; for kInt8 and kInt4 only.
  ByteUnit unit() const { return unit_; }

  // Returns the packer of weights that always have 8 bits: this one for kInt8, one that it owns for kInt4, null for the
  // others.
  WeightPacker* eight_bits() { return arithmetic_ == Arithmetic::kInt8 ? this : eight_bits_.get(); }

  // Quantises `w`. This and the next two functions may throw std::bad_alloc.
  QuantizedView Quantize(const MatrixView& w);

  // Converts `w` to BF16. Returns `w` itself if it is BF16 already.
  MatrixView ToBF16(const MatrixView& w);

  // Converts `w` to F16. Returns `w` itself if its elements have 16 bits, if a value is too large for F16, or if this
  // CPU's F16 loads are slower than F32.
  TensorView ToHalf(const TensorView& w);

  // Returns the bytes of memory allocated.
  size_t bytes() const { return bytes_ + (eight_bits_ == nullptr ? 0 : eight_bits_->bytes()); }
  // Reports that `w` has been packed, here or elsewhere, and is not read any more.
  void ReportReplaced(const MatrixView& w) const;

 private:
  struct Free {
    void operator()(std::byte* memory) const;
  };

  std::byte* Allocate(size_t bytes);
  // Returns a copy of the cache's entry for the tensor whose data is at `weight`; null if there is none.
  const std::byte* CopyFromCache(const void* weight, size_t bytes);
  void AddToCache(const void* weight, const void* packed, size_t bytes) const;

  const Arithmetic arithmetic_;
  const ByteUnit unit_;
  ThreadPool& pool_;
  const Release release_;     // may be null
  PackedCache* const cache_;  // may be null
  const std::unique_ptr<WeightPacker> eight_bits_;
  std::vector<std::unique_ptr<std::byte, Free>> chunks_;
  size_t left_ = 0;  // free bytes in the last chunk
  std::byte* next_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace qtts::cpu

#endif  // QTTS_CPU_WEIGHT_PACKER_H_
