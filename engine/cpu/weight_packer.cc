// SPDX-License-Identifier: LGPL-2.1-or-later
#include "cpu/weight_packer.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>
#include <utility>

#include "cpu/bf16_kernels.h"
#include "cpu/linear.h"
#include "cpu/quantized_conv_kernels.h"

namespace qtts::cpu {
namespace {

constexpr size_t kLargePage = size_t{2} << 20;
// Large pages per chunk: many, so that little of the last chunk is wasted.
constexpr size_t kChunkPages = 4;
constexpr size_t kCacheLine = 64;

// Cost of packing one weight, in multiply-adds of a matrix product.
constexpr int64_t kPackingWork = 40;
// Minimum bytes that a thread copies.
constexpr int64_t kCopyGrain = 1 << 18;
// Minimum weights that a thread converts to F16.
constexpr int64_t kPackHalfGrain = 4096;

size_t RoundUp(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

void WeightPacker::Free::operator()(std::byte* memory) const { std::free(memory); }

WeightPacker::WeightPacker(Arithmetic arithmetic, ThreadPool& pool, Release release, PackedCache* cache)
    : arithmetic_(arithmetic),
      unit_(BestByteUnit()),
      pool_(pool),
      release_(std::move(release)),
      cache_(cache),
      eight_bits_(arithmetic == Arithmetic::kInt4
                      ? std::make_unique<WeightPacker>(Arithmetic::kInt8, pool, release_, cache)
                      : nullptr) {}

WeightPacker::~WeightPacker() = default;

std::byte* WeightPacker::Allocate(size_t bytes) {
  bytes = RoundUp(bytes, kCacheLine);
  if (bytes > left_) {
    const size_t size = RoundUp(std::max(bytes, kChunkPages * kLargePage), kLargePage);
    auto* const memory = static_cast<std::byte*>(std::aligned_alloc(kLargePage, size));
    if (memory == nullptr) throw std::bad_alloc();
    chunks_.emplace_back(memory);
    // Advice only: without large pages the allocation uses small ones.
    madvise(memory, size, MADV_HUGEPAGE);
    next_ = memory;
    left_ = size;
  }
  std::byte* const place = next_;
  next_ += bytes;
  left_ -= bytes;
  bytes_ += bytes;
  return place;
}

const std::byte* WeightPacker::CopyFromCache(const void* weight, size_t bytes) {
  const std::span<const std::byte> kept =
      cache_ == nullptr ? std::span<const std::byte>() : cache_->Find(weight, bytes);
  if (kept.empty()) return nullptr;
  std::byte* const memory = Allocate(bytes);
  const auto count = static_cast<int64_t>(bytes);
  pool_.ParallelFor(count, kCopyGrain, WorkOfReading(count), [&](int64_t begin, int64_t end) {
    std::copy(kept.begin() + begin, kept.begin() + end, memory + begin);
  });
  return memory;
}

void WeightPacker::AddToCache(const void* weight, const void* packed, size_t bytes) const {
  if (cache_ != nullptr) cache_->Add(weight, {static_cast<const std::byte*>(packed), bytes});
}

void WeightPacker::ReportReplaced(const MatrixView& w) const {
  if (release_ == nullptr) return;
  release_({static_cast<const std::byte*>(w.data), static_cast<size_t>(w.rows * w.cols) * DTypeBytes(w.dtype)});
}

QuantizedView WeightPacker::Quantize(const MatrixView& w) {
  QuantizedView view;
  view.bits = bits();
  view.rows = w.rows;
  view.cols = w.cols;
  const size_t codes_size = RoundUp(static_cast<size_t>(view.panels() * view.panel_codes()), kCacheLine);
  const size_t scales_size = static_cast<size_t>(view.panels() * view.panel_scales()) * sizeof(uint16_t);
  if (const std::byte* const kept = CopyFromCache(w.data, codes_size + scales_size); kept != nullptr) {
    view.codes = reinterpret_cast<const uint8_t*>(kept);
    view.scales = reinterpret_cast<const uint16_t*>(kept + codes_size);
    return view;
  }
  std::byte* const memory = Allocate(codes_size + scales_size);
  auto* const codes = reinterpret_cast<uint8_t*>(memory);
  auto* const scales = reinterpret_cast<uint16_t*>(memory + codes_size);
  view.codes = codes;
  view.scales = scales;
  pool_.ParallelFor(view.panels(), 1, kPackingWork * w.rows * w.cols,
                    [&](int64_t begin, int64_t end) { QuantizeWeights(w, view, begin, end, codes, scales); });
  AddToCache(w.data, memory, codes_size + scales_size);
  ReportReplaced(w);
  return view;
}

MatrixView WeightPacker::ToBF16(const MatrixView& w) {
  if (w.dtype == DType::kBF16) return w;
  auto* const to = reinterpret_cast<uint16_t*>(Allocate(static_cast<size_t>(w.rows * w.cols) * sizeof(uint16_t)));
  pool_.ParallelFor(w.rows, 1, w.rows * w.cols, [&](int64_t begin, int64_t end) {
    std::vector<float> floats(static_cast<size_t>(w.cols));
    for (int64_t r = begin; r < end; ++r) {
      const auto offset = static_cast<size_t>(r * w.cols) * DTypeBytes(w.dtype);
      ToFloat(w.dtype, static_cast<const char*>(w.data) + offset, w.cols, floats.data());
      cpu::ToBF16(floats.data(), w.cols, to + r * w.cols);
    }
  });
  ReportReplaced(w);
  return {DType::kBF16, to, w.rows, w.cols};
}

TensorView WeightPacker::ToHalf(const TensorView& w) {
  if (w.dtype != DType::kF32 || !HasHalfLoads()) return w;
  const int64_t elements = w.elements();
  const auto bytes = static_cast<size_t>(elements) * sizeof(uint16_t);
  if (const void* const kept = CopyFromCache(w.data, bytes); kept != nullptr) return {DType::kF16, w.shape, kept};
  auto* const to = reinterpret_cast<uint16_t*>(Allocate(bytes));
  std::atomic<bool> fits{true};
  pool_.ParallelFor(elements, kPackHalfGrain, elements, [&](int64_t begin, int64_t end) {
    if (!NarrowToHalf(static_cast<const float*>(w.data) + begin, end - begin, to + begin)) fits = false;
  });
  if (!fits) return w;
  AddToCache(w.data, to, bytes);
  ReportReplaced(MatrixOf(w));
  return {DType::kF16, w.shape, to};
}

}  // namespace qtts::cpu
