// SPDX-License-Identifier: LGPL-2.1-or-later
#include "cpu/linear.h"

#include <algorithm>

#include "base/of_thread.h"
#include "cpu/bf16_kernels.h"
#include "cpu/scratch.h"

namespace qtts::cpu {
namespace {

// Minimum input rows that a thread quantises.
constexpr int64_t kInputGrain = 4;
// Cost of quantising one input value, in multiply-adds of a matrix product.
constexpr int64_t kQuantizingWork = 8;

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

// Inputs in the format of the arithmetic.
struct Linear::Inputs {
  // One per thread, reused from call to call.
  struct Scratch {
    std::vector<uint16_t> bf16;
    std::vector<int8_t> high, low;
    std::vector<float> scales;
    std::vector<int32_t> sums;
  };

  Inputs(const Linear& linear, ThreadPool& pool, const float* x, int64_t m) : floats(x) {
    auto& scratch = OfThread<Scratch>();
    const int64_t cols = linear.in();
    switch (linear.arithmetic_) {
      case Arithmetic::kF32:
        return;
      case Arithmetic::kBF16:
        bf16 = GrowScratch(&scratch.bf16, m * cols);
        ToBF16(x, m * cols, scratch.bf16.data());
        return;
      case Arithmetic::kInt8:
      case Arithmetic::kInt4:
        break;
    }
    const int64_t group = GroupColumns(linear.quantized_.bits);
    const int64_t groups = linear.quantized_.groups();
    int8_t* const high = GrowScratch(&scratch.high, m * groups * group);
    int8_t* const low = GrowScratch(&scratch.low, m * groups * group);
    float* const scales = GrowScratch(&scratch.scales, m * groups);
    int32_t* const sums = GrowScratch(&scratch.sums, m * groups);
    pool.ParallelFor(m, kInputGrain, kQuantizingWork * m * cols, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t at = i * groups * group;
        QuantizeRow(x + i * cols, cols, group, high + at, low + at, scales + i * groups, sums + i * groups);
      }
    });
    quantized = {group, groups, high, low, scales, sums};
  }

  const float* floats = nullptr;
  const uint16_t* bf16 = nullptr;
  QuantizedRows quantized;
};

Linear::Linear(const TensorView& weight, WeightPacker* packer) : weight_(MatrixOf(weight)) {
  if (packer == nullptr) return;
  arithmetic_ = packer->arithmetic();
  switch (arithmetic_) {
    case Arithmetic::kF32:
      return;
    case Arithmetic::kBF16:
      weight_ = packer->ToBF16(weight_);
      return;
    case Arithmetic::kInt8:
    case Arithmetic::kInt4:
      quantized_ = packer->Quantize(weight_);
      unit_ = packer->unit();
  }
}

Linear::Linear(const LinearWeights& weights, WeightPacker* packer) : Linear(weights.weight, packer) {
  if (weights.bias.has_value()) bias_ = FloatsOf(*weights.bias);
}

int64_t Linear::bytes() const {
  if (arithmetic_ == Arithmetic::kF32 || arithmetic_ == Arithmetic::kBF16) {
    return work() * static_cast<int64_t>(DTypeBytes(weight_.dtype));
  }
  return quantized_.panels() * (quantized_.panel_codes() + quantized_.panel_scales() * int64_t{sizeof(uint16_t)});
}

void Linear::RunParts(const Inputs& inputs, int64_t m, int64_t begin, int64_t end, float* y) const {
  const float* const bias = bias_.empty() ? nullptr : bias_.data();
  const int64_t first = begin * part_rows();
  const int64_t last = std::min(end * part_rows(), out());
  switch (arithmetic_) {
    case Arithmetic::kF32:
      return MatMul(weight_, bias, inputs.floats, m, first, last, y);
    case Arithmetic::kBF16:
      return BF16MatMul(static_cast<const uint16_t*>(weight_.data), out(), in(), bias, inputs.bf16, m, first, last, y);
    case Arithmetic::kInt8:
    case Arithmetic::kInt4:
      return QuantizedMatMul(quantized_, bias, inputs.quantized, m, begin, end, y, unit_);
  }
}

void Linear::RunTogether(ThreadPool& pool, const float* x, int64_t m, std::initializer_list<Product> products) {
  const Inputs inputs(*products.begin()->linear, pool, x, m);
  int64_t parts = 0;
  int64_t work = 0;
  for (const Product& product : products) {
    parts += product.linear->parts();
    work += std::max(m * product.linear->work(), WorkOfReading(product.linear->bytes()));
  }
  pool.ParallelFor(parts, 1, work, [&](int64_t begin, int64_t end) {
    for (const Product& product : products) {
      const int64_t count = product.linear->parts();
      if (begin < count && end > 0) {
        product.linear->RunParts(inputs, m, std::max<int64_t>(begin, 0), std::min(end, count), product.y);
      }
      begin -= count;
      end -= count;
    }
  });
}

}  // namespace qtts::cpu
