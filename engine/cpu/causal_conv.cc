// SPDX-License-Identifier: LGPL-2.1-or-later
#include "cpu/causal_conv.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <utility>

#include "cpu/linear.h"

namespace qtts::cpu {
namespace {

// Minimum rows per thread when rows are shared: whole tiles, and enough of them to amortise the reads of the weights.
constexpr int64_t kRowGrain = 64;

// Minimum panels per thread when panels are shared: those of one tile.
constexpr int64_t kPanelGrain = 2;
constexpr int64_t kProductPanelGrain = 3;

// Minimum number of weights that a thread converts to F16.
constexpr int64_t kHalfGrain = 4096;

template <typename Element, typename Index>
void PackAs(const ConvView& view, const Element* from, const Index& index, int64_t begin, int64_t end, Element* to) {
  for (int64_t panel = begin; panel < end; ++panel) {
    Element* const first = to + panel * view.taps * view.in * kPanel;
    for (int64_t lane = 0; lane < kPanel; ++lane) {
      const int64_t o = panel * kPanel + lane;
      for (int64_t tap = 0; tap < view.taps; ++tap) {
        Element* p = first + tap * view.in * kPanel + lane;
        for (int64_t c = 0; c < view.in; ++c, p += kPanel) *p = o < view.out ? from[index(o, tap, c)] : Element{};
      }
    }
  }
}

}  // namespace

CausalConv::CausalConv(const ConvWeights& weights, int64_t in, int64_t out, int64_t taps, int64_t dilation, Form form)
    : form_(form), view_{.dtype = weights.weight.dtype, .in = in, .out = out, .taps = taps, .dilation = dilation} {
  if (form == Form::kBF16 || form == Form::kInt8) {
    const bool bytes = form == Form::kInt8 && in <= kMostInt8Inputs;
    products_ = ProductConvView{.type = bytes ? ProductType::kInt8 : ProductType::kBF16,
                                .in = in,
                                .out = out,
                                .taps = taps,
                                .dilation = dilation};
    units_ = BestProductUnits();
  }
  SetBias(weights.bias);
}

template <typename Index>
void CausalConv::PackProducts(const TensorView& weight, const Index& index, ThreadPool& pool) {
  const int64_t row = view_.taps * view_.in;
  const auto bytes = static_cast<size_t>(view_.panels() * products_->panel_bytes());
  weights_ = std::make_unique<std::byte[]>(bytes);  // zeros: padding of the last panel
  scales_.assign(static_cast<size_t>(view_.panels() * kPanel), 0.0F);
  const size_t size = DTypeBytes(weight.dtype);
  pool.ParallelFor(view_.out, kPanel, 20 * row * view_.out, [&](int64_t begin, int64_t end) {
    std::vector<std::byte> gathered(static_cast<size_t>(row) * size);
    std::vector<float> values(static_cast<size_t>(row));
    for (int64_t o = begin; o < end; ++o) {
      std::byte* to = gathered.data();
      for (int64_t tap = 0; tap < view_.taps; ++tap) {
        for (int64_t c = 0; c < view_.in; ++c, to += size) {
          memcpy(to, static_cast<const std::byte*>(weight.data) + static_cast<size_t>(index(o, tap, c)) * size, size);
        }
      }
      ToFloat(weight.dtype, gathered.data(), row, values.data());
      PackOutput(*products_, o, values.data(), weights_.get(), scales_.data());
    }
  });
  products_->weights = weights_.get();
  products_->scales = scales_.data();
  products_->bias = bias_.data();
}

template <typename Index>
void CausalConv::Pack(const TensorView& weight, const Index& index, ThreadPool& pool) {
  if (products_.has_value()) return PackProducts(weight, index, pool);
  const int64_t elements = view_.panels() * kPanel * view_.taps * view_.in;
  const size_t bytes = static_cast<size_t>(elements) * DTypeBytes(weight.dtype);
  weights_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
  view_.weights = weights_.get();
  // A scattered read of a weight costs about ten multiply-adds.
  pool.ParallelFor(view_.panels(), 1, 10 * elements, [&](int64_t begin, int64_t end) {
    if (DTypeBytes(weight.dtype) == sizeof(uint32_t)) {
      PackAs(view_, static_cast<const uint32_t*>(weight.data), index, begin, end,
             reinterpret_cast<uint32_t*>(weights_.get()));
    } else {
      PackAs(view_, static_cast<const uint16_t*>(weight.data), index, begin, end,
             reinterpret_cast<uint16_t*>(weights_.get()));
    }
  });
  if (form_ == Form::kHalf && weight.dtype == DType::kF32 && HasHalfLoads()) NarrowToF16(pool);
}

void CausalConv::NarrowToF16(ThreadPool& pool) {
  const int64_t elements = view_.panels() * kPanel * view_.taps * view_.in;
  auto halves = std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(elements) * sizeof(uint16_t));
  const auto* const from = reinterpret_cast<const float*>(weights_.get());
  auto* const to = reinterpret_cast<uint16_t*>(halves.get());
  std::atomic<bool> fits{true};
  pool.ParallelFor(elements, kHalfGrain, elements, [&](int64_t begin, int64_t end) {
    if (!NarrowToHalf(from + begin, end - begin, to + begin)) fits = false;
  });
  if (!fits) return;
  weights_ = std::move(halves);
  view_.weights = weights_.get();
  view_.dtype = DType::kF16;
}

void CausalConv::SetBias(const std::optional<TensorView>& bias) {
  bias_.assign(static_cast<size_t>(view_.panels() * kPanel), 0.0F);
  view_.bias = bias_.data();
  if (!bias.has_value()) return;
  const std::vector<float> floats = FloatsOf(*bias);
  for (size_t o = 0; o < static_cast<size_t>(view_.out); ++o) bias_[o] = floats[o % floats.size()];
}

CausalConv CausalConv::Plain(const ConvWeights& weights, int64_t dilation, ThreadPool& pool, Form form) {
  const std::vector<int64_t>& shape = weights.weight.shape;
  const int64_t in = shape[1];
  const int64_t taps = shape[2];
  CausalConv conv(weights, in, shape[0], taps, dilation, form);
  conv.Pack(
      weights.weight, [=](int64_t o, int64_t tap, int64_t c) { return (o * in + c) * taps + tap; }, pool);
  return conv;
}

CausalConv CausalConv::Transposed(const ConvWeights& weights, int64_t stride, ThreadPool& pool, Form form) {
  const std::vector<int64_t>& shape = weights.weight.shape;
  const int64_t out = shape[1];
  const int64_t kernel = shape[2];
  const int64_t taps = kernel / stride;
  CausalConv conv(weights, shape[0], stride * out, taps, 1, form);
  // For output row j of the `stride` rows of an input, channel o: the newest input (last tap) meets kernel position j,
  // the one before it position j + stride, and so on.
  conv.Pack(
      weights.weight,
      [=](int64_t wide, int64_t tap, int64_t c) {
        const int64_t j = wide / out;
        const int64_t o = wide % out;
        return (c * out + o) * kernel + j + (taps - 1 - tap) * stride;
      },
      pool);
  return conv;
}

CausalConv CausalConv::Strided(const ConvWeights& weights, int64_t stride, ThreadPool& pool) {
  const std::vector<int64_t>& shape = weights.weight.shape;
  const int64_t in = shape[1];
  const int64_t kernel = shape[2];
  CausalConv conv(weights, stride * in, shape[0], kernel / stride, 1, Form::kStored);
  conv.Pack(
      weights.weight,
      [=](int64_t o, int64_t tap, int64_t wide) { return (o * in + wide % in) * kernel + tap * stride + wide / in; },
      pool);
  return conv;
}

void CausalConv::Prepare(const SnakeView* snake, const float* x, int64_t rows, std::byte* y) const {
  if (products_.has_value()) return PrepareRows(*products_, snake, x, rows, y);
  auto* const floats = reinterpret_cast<float*>(y);
  if (snake != nullptr) {
    FastSnake(*snake, x, rows, view_.in, floats);
  } else {
    std::copy_n(x, rows * view_.in, floats);
  }
}

void CausalConv::RunPart(const std::byte* x, int64_t rows, int64_t begin, int64_t end, bool accumulate,
                         float* y) const {
  if (products_.has_value()) {
    ProductConv(*products_, x, rows, begin, end, accumulate, y, units_);
  } else {
    Conv(view_, reinterpret_cast<const float*>(x), rows, begin, end, accumulate, y);
  }
}

void CausalConv::Run(const std::byte* x, int64_t rows, bool accumulate, float* y) const {
  RunPart(x, rows, 0, view_.panels(), accumulate, y);
}

void CausalConv::Run(ThreadPool& pool, const std::byte* x, int64_t rows, bool accumulate, float* y) const {
  const int64_t work = rows * view_.taps * view_.in * view_.out;
  if (rows >= 2 * kRowGrain) {
    pool.ParallelFor(rows, kRowGrain, work, [&](int64_t begin, int64_t end) {
      Run(x + begin * row_bytes(), end - begin, accumulate, y + begin * view_.out);
    });
  } else {
    pool.ParallelFor(view_.panels(), products_.has_value() ? kProductPanelGrain : kPanelGrain, work,
                     [&](int64_t begin, int64_t end) { RunPart(x, rows, begin, end, accumulate, y); });
  }
}

}  // namespace qtts::cpu
