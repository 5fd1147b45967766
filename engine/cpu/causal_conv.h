// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CPU_CAUSAL_CONV_H_
#define QTTS_CPU_CAUSAL_CONV_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "checkpoint/weights.h"
#include "cpu/kernels.h"
#include "cpu/thread_pool.h"

namespace qtts::cpu {

// A causal convolution (spec 7.2) over time-major rows, with its weights repacked for the vector
// units in the dtype they came in. Immutable and thread-safe.
class CausalConv {
 public:
  // weight [out, in, taps], stride 1.
  static CausalConv Plain(const ConvWeights& weights, int64_t dilation, ThreadPool& pool);

  // A transposed convolution, weight [in, out, k] with k a multiple of `stride`. It is the same as a
  // plain one of k / stride taps that makes, from each row, `stride` output rows lying one after the
  // other: out() is stride * the weights' out. So its state is earlier inputs, not partial outputs.
  static CausalConv Transposed(const ConvWeights& weights, int64_t stride, ThreadPool& pool);

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

  // x [history() + rows][in] -> y [rows][out]; added to y with `accumulate`.
  void Run(ThreadPool& pool, const float* x, int64_t rows, bool accumulate, float* y) const;

 private:
  CausalConv(DType dtype, int64_t in, int64_t out, int64_t taps, int64_t dilation);

  // Fills the packed weights: value (o, tap, c) is element index(o, tap, c) of `weight`.
  template <typename Index>
  void Pack(const TensorView& weight, const Index& index, ThreadPool& pool);
  // Bias of output o: element o % (elements of `bias`).
  void SetBias(const std::optional<TensorView>& bias);

  ConvView view_;
  std::unique_ptr<std::byte[]> weights_;
  std::vector<float> bias_;
};

}  // namespace qtts::cpu

#endif  // QTTS_CPU_CAUSAL_CONV_H_
