// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CPU_CAUSAL_CONV_H_
#define QTTS_CPU_CAUSAL_CONV_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "checkpoint/weights.h"
#include "cpu/kernels.h"
#include "cpu/quantized_conv_kernels.h"
#include "cpu/thread_pool.h"

namespace qtts::cpu {

// A causal convolution (spec 7.2) over time-major rows. Its weights are repacked for SIMD. Immutable and thread-safe.
class CausalConv {
 public:
  // Format of the packed weights, and arithmetic of the products.
  enum class Form {
    kStored,  // weights in the dtype of the file; F32 arithmetic
    kHalf,    // F32 weights kept as F16 if they fit and F16 loads are fast; F32 arithmetic
    kBF16,    // BF16 products
    kInt8,    // 8-bit products; BF16 products if there are more than kMostInt8Inputs inputs
  };

  // Returns a plain convolution: weight [out, in, taps], stride 1.
  static CausalConv Plain(const ConvWeights& weights, int64_t dilation, ThreadPool& pool, Form form = Form::kStored);

  // Returns a transposed convolution, weight [in, out, k], k a multiple of `stride`. It runs as a plain convolution
  // with k / stride taps: each input row gives `stride` consecutive output rows, so out() is stride * the weights' out.
  // Its state is therefore earlier inputs, not partial outputs.
  static CausalConv Transposed(const ConvWeights& weights, int64_t stride, ThreadPool& pool, Form form = Form::kStored);

  // Returns a strided convolution, weight [out, in, k], k a multiple of `stride`. It runs as a plain convolution with k
  // / stride taps over wide rows of `stride` consecutive input rows: in() is stride * the weights' in, and rows and
  // history() count wide rows.
  static CausalConv Strided(const ConvWeights& weights, int64_t stride, ThreadPool& pool);

  int64_t in() const { return view_.in; }
  int64_t out() const { return view_.out; }

  // Returns the multiply-adds of one output row.
  int64_t work() const { return view_.in * view_.taps * view_.out; }

  // Returns the number of earlier input rows that an output row depends on.
  int64_t history() const { return (view_.taps - 1) * view_.dilation; }

  // Returns the bytes of an input row of Run(): F32, or the format of PrepareRows().
  int64_t row_bytes() const { return products_.has_value() ? products_->row_bytes() : in() * int64_t{sizeof(float)}; }

  // Converts F32 rows to the input format of Run(): x [rows][in] -> y [rows][row_bytes()]. With `snake`, FastSnake() is
  // applied first.
  void Prepare(const SnakeView* snake, const float* x, int64_t rows, std::byte* y) const;

  // Convolves x [history() + rows][row_bytes()] to y [rows][out]. With `accumulate`, adds to y.
  void Run(ThreadPool& pool, const std::byte* x, int64_t rows, bool accumulate, float* y) const;
  // Runs it in the calling thread only.
  void Run(const std::byte* x, int64_t rows, bool accumulate, float* y) const;

  // Runs F32 arithmetic only: x [history() + rows][in].
  void Run(ThreadPool& pool, const float* x, int64_t rows, bool accumulate, float* y) const {
    Run(pool, reinterpret_cast<const std::byte*>(x), rows, accumulate, y);
  }

 private:
  CausalConv(const ConvWeights& weights, int64_t in, int64_t out, int64_t taps, int64_t dilation, Form form);

  // Fills the packed weights: value (o, tap, c) is element index(o, tap, c) of `weight`.
  template <typename Index>
  void Pack(const TensorView& weight, const Index& index, ThreadPool& pool);
  template <typename Index>
  void PackProducts(const TensorView& weight, const Index& index, ThreadPool& pool);
  // Converts packed F32 weights to F16 if all of them fit.
  void NarrowToF16(ThreadPool& pool);
  // Sets the bias of output o to element o % (elements of `bias`).
  void SetBias(const std::optional<TensorView>& bias);
  // Computes panels [begin, end) of the `rows` output rows whose inputs begin at x.
  void RunPart(const std::byte* x, int64_t rows, int64_t begin, int64_t end, bool accumulate, float* y) const;

  Form form_;
  ConvView view_;
  std::optional<ProductConvView> products_;
  ProductUnits units_;
  std::unique_ptr<std::byte[]> weights_;
  std::vector<float> scales_;
  std::vector<float> bias_;
};

}  // namespace qtts::cpu

#endif  // QTTS_CPU_CAUSAL_CONV_H_
