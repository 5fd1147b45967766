// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CPU_LINEAR_H_
#define QTTS_CPU_LINEAR_H_

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "checkpoint/weights.h"
#include "cpu/arithmetic.h"
#include "cpu/kernels.h"
#include "cpu/quantized_kernels.h"
#include "cpu/thread_pool.h"
#include "cpu/weight_packer.h"

namespace qtts::cpu {

// Converts a small tensor (norm weights, biases, scales) to F32.
std::vector<float> FloatsOf(const TensorView& tensor);

// Returns the tensor as a matrix: the first dimension is the rows, the product of the others the columns.
MatrixView MatrixOf(const TensorView& tensor);

// Converts row `row` of a table to F32, y [cols].
void LookUp(const MatrixView& table, int64_t row, float* y);

// y = W x + b, on the mapped weights or on the packer's copy of them. Immutable and thread-safe. Does not own the
// weights.
class Linear {
 public:
  // Uses the packer's arithmetic, or F32 on the mapped weights if `packer` is null.
  explicit Linear(const TensorView& weight, WeightPacker* packer = nullptr);
  explicit Linear(const LinearWeights& weights, WeightPacker* packer = nullptr);

  int64_t in() const { return weight_.cols; }
  int64_t out() const { return weight_.rows; }
  // Returns the multiply-adds of one row.
  int64_t work() const { return in() * out(); }
  // Returns the bytes of weights that a product reads.
  int64_t bytes() const;

  // Multiplies x [m][in] -> y [m][out].
  void Run(ThreadPool& pool, const float* x, int64_t m, float* y) const { RunTogether(pool, x, m, {{this, y}}); }

  // A product and its output: y [m][linear->out()].
  struct Product {
    const Linear* linear = nullptr;
    float* y = nullptr;
  };

  // Runs products of the same inputs x [m][in] and the same arithmetic as one parallel loop.
  static void RunTogether(ThreadPool& pool, const float* x, int64_t m, std::initializer_list<Product> products);

 private:
  struct Inputs;

  // Returns the rows of a part, the unit that threads share: whole tiles of the kernel.
  int64_t part_rows() const { return arithmetic_ == Arithmetic::kF32 || arithmetic_ == Arithmetic::kBF16 ? 8 : kPanel; }
  int64_t parts() const { return (out() + part_rows() - 1) / part_rows(); }
  void RunParts(const Inputs& inputs, int64_t m, int64_t begin, int64_t end, float* y) const;

  Arithmetic arithmetic_ = Arithmetic::kF32;
  MatrixView weight_;        // for kF32 and kBF16; for the others only its size is used
  QuantizedView quantized_;  // for kInt8 and kInt4
  ByteUnit unit_ = ByteUnit::kPortable;
  std::vector<float> bias_;  // empty: none
};

}  // namespace qtts::cpu

#endif  // QTTS_CPU_LINEAR_H_
