// SPDX-License-Identifier: LGPL-2.1-or-later
#include "cpu/linear.h"

namespace qtts::cpu {
namespace {

// Rows that a thread takes at least: whole tiles of the kernel.
constexpr int64_t kRowGrain = 8;

}  // namespace

std::vector<float> FloatsOf(const TensorView& tensor) {
  std::vector<float> floats(static_cast<size_t>(tensor.elements()));
  ToFloat(tensor.dtype, tensor.data, tensor.elements(), floats.data());
  return floats;
}

MatrixView MatrixOf(const TensorView& tensor) {
  const int64_t rows = tensor.shape.front();
  return {tensor.dtype, tensor.data, rows, tensor.elements() / rows};
}

void LookUp(const MatrixView& table, int64_t row, float* y) {
  const auto offset = static_cast<size_t>(row * table.cols) * DTypeBytes(table.dtype);
  ToFloat(table.dtype, static_cast<const char*>(table.data) + offset, table.cols, y);
}

Linear::Linear(const LinearWeights& weights) : weight_(MatrixOf(weights.weight)) {
  if (weights.bias.has_value()) bias_ = FloatsOf(*weights.bias);
}

void Linear::Run(ThreadPool& pool, const float* x, int64_t m, float* y) const {
  const float* const bias = bias_.empty() ? nullptr : bias_.data();
  pool.ParallelFor(out(), kRowGrain, m * in() * out(),
                   [&](int64_t begin, int64_t end) { MatMul(weight_, bias, x, m, begin, end, y); });
}

}  // namespace qtts::cpu
