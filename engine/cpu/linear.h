// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CPU_LINEAR_H_
#define QTTS_CPU_LINEAR_H_

#include <cstdint>
#include <vector>

#include "checkpoint/weights.h"
#include "cpu/kernels.h"
#include "cpu/thread_pool.h"

namespace qtts::cpu {

// A small tensor (norm weights, biases, scales) as F32.
std::vector<float> FloatsOf(const TensorView& tensor);

// The tensor as a matrix: its first dimension is the rows, all others together the columns.
MatrixView MatrixOf(const TensorView& tensor);

// Row `row` of a table as F32, [cols].
void LookUp(const MatrixView& table, int64_t row, float* y);

// y = W x + b on the mapped weights. Immutable and thread-safe; does not own the weights.
class Linear {
 public:
  explicit Linear(const TensorView& weight) : weight_(MatrixOf(weight)) {}
  explicit Linear(const LinearWeights& weights);

  int64_t in() const { return weight_.cols; }
  int64_t out() const { return weight_.rows; }
  // Multiply-adds of one row.
  int64_t work() const { return in() * out(); }

  // x [m][in] -> y [m][out].
  void Run(ThreadPool& pool, const float* x, int64_t m, float* y) const;

 private:
  MatrixView weight_;
  std::vector<float> bias_;  // empty: none
};

}  // namespace qtts::cpu

#endif  // QTTS_CPU_LINEAR_H_
