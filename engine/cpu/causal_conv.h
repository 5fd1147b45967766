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

// A causal convolution (spec 7.2) over time-major rows, with its weights repacked for the vector
// units. Immutable and thread-safe.
class CausalConv {
 public:
  // How weights are kept, and what is multiplied.
  enum class Form {
    kStored,  // in the dtype they came in; F32 arithmetic
    kHalf,    // F32 weights in F16, where that holds them and is read as fast; F32 arithmetic
    kBF16,    // products of BF16
    kInt8,    // products of bytes; of BF16 where there are too many inputs for these
  };

  // weight [out, in, taps], stride 1.
  static CausalConv Plain(const ConvWeights& weights, int64_t dilation, ThreadPool& pool, Form form = Form::kStored);

  // A transposed convolution, weight [in, out, k] with k a multiple of `stride`. It is the same as a
  // plain one of k / stride taps that makes, from each row, `stride` output rows lying one after the
  // other: out() is stride * the weights' out. So its state is earlier inputs, not partial outputs.
  static CausalConv Transposed(const ConvWeights& weights, int64_t stride, ThreadPool& pool, Form form = Form::kStored);

  // A strided convolution, weight [out, in, k] with k a multiple of `stride`. It is the same as a
  // plain one of k / stride taps over rows that are `stride` input rows lying one after the other:
  // in() is stride * the weights' in, and rows and history() count such wide rows.
  static CausalConv Strided(const ConvWeights& weights, int64_t stride, ThreadPool& pool);

  int64_t in() const { return view_.in; }
  int64_t out() const { return view_.out; }

  // Multiply-adds of one output row.
  int64_t work() const { return view_.in * view_.taps * view_.out; }

  // Input rows before the first that an output needs.
  int64_t history() const { return (view_.taps - 1) * view_.dilation; }

  // An input row as Run() takes it: F32, or what PrepareRows() makes.
  int64_t row_bytes() const { return products_.has_value() ? products_->row_bytes() : in() * int64_t{sizeof(float)}; }

  // x [rows][in] -> y [rows][row_bytes()], with `snake` of FastSnake(x).
  void Prepare(const SnakeView* snake, const float* x, int64_t rows, std::byte* y) const;

  // x [history() + rows][row_bytes()] -> y [rows][out]; added to y with `accumulate`.
  void Run(ThreadPool& pool, const std::byte* x, int64_t rows, bool accumulate, float* y) const;
  // The same in the calling thread.
  void Run(const std::byte* x, int64_t rows, bool accumulate, float* y) const;

  // Of F32 arithmetic only: x [history() + rows][in].
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
  // Brings packed F32 weights to F16 if they fit.
  void Halve(ThreadPool& pool);
  // Bias of output o: element o % (elements of `bias`).
  void SetBias(const std::optional<TensorView>& bias);
  // Rows that begin at x, and panels [begin, end).
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
