// SPDX-License-Identifier: LGPL-2.1-or-later
#include "cpu/causal_conv.h"

#include <cstddef>
#include <cstring>
#include <limits>
#include <utility>

#include "cpu/linear.h"

namespace qtts::cpu {
namespace {

// Rows that a thread takes at least when rows are shared out: whole tiles, and enough of them that
// reading the weights pays.
constexpr int64_t kRowGrain = 64;

// Panels that a thread takes at least when panels are shared out: one tile's.
constexpr int64_t kPanelGrain = 2;

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

CausalConv::CausalConv(DType dtype, int64_t in, int64_t out, int64_t taps, int64_t dilation)
    : view_{.dtype = dtype, .in = in, .out = out, .taps = taps, .dilation = dilation} {}

template <typename Index>
void CausalConv::Pack(const TensorView& weight, const Index& index, ThreadPool& pool) {
  const int64_t elements = view_.panels() * kPanel * view_.taps * view_.in;
  const size_t bytes = static_cast<size_t>(elements) * DTypeBytes(weight.dtype);
  weights_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
  view_.weights = weights_.get();
  // Reading scattered weights costs some ten times a multiply-add.
  pool.ParallelFor(view_.panels(), 1, 10 * elements, [&](int64_t begin, int64_t end) {
    if (DTypeBytes(weight.dtype) == sizeof(uint32_t)) {
      PackAs(view_, static_cast<const uint32_t*>(weight.data), index, begin, end,
             reinterpret_cast<uint32_t*>(weights_.get()));
    } else {
      PackAs(view_, static_cast<const uint16_t*>(weight.data), index, begin, end,
             reinterpret_cast<uint16_t*>(weights_.get()));
    }
  });
}

void CausalConv::SetBias(const std::optional<TensorView>& bias) {
  bias_.assign(static_cast<size_t>(view_.panels() * kPanel), 0.0F);
  view_.bias = bias_.data();
  if (!bias.has_value()) return;
  const std::vector<float> floats = FloatsOf(*bias);
  for (size_t o = 0; o < static_cast<size_t>(view_.out); ++o) bias_[o] = floats[o % floats.size()];
}

CausalConv CausalConv::Plain(const ConvWeights& weights, int64_t dilation, ThreadPool& pool) {
  const std::vector<int64_t>& shape = weights.weight.shape;
  const int64_t in = shape[1];
  const int64_t taps = shape[2];
  CausalConv conv(weights.weight.dtype, in, shape[0], taps, dilation);
  conv.Pack(
      weights.weight, [=](int64_t o, int64_t tap, int64_t c) { return (o * in + c) * taps + tap; }, pool);
  conv.SetBias(weights.bias);
  return conv;
}

CausalConv CausalConv::Transposed(const ConvWeights& weights, int64_t stride, ThreadPool& pool) {
  const std::vector<int64_t>& shape = weights.weight.shape;
  const int64_t out = shape[1];
  const int64_t kernel = shape[2];
  const int64_t taps = kernel / stride;
  CausalConv conv(weights.weight.dtype, shape[0], stride * out, taps, 1);
  // Output row j of an input's `stride`, channel o: the newest input (the last tap) meets kernel
  // position j, the one before it position j + stride, and so on.
  conv.Pack(
      weights.weight,
      [=](int64_t wide, int64_t tap, int64_t c) {
        const int64_t j = wide / out;
        const int64_t o = wide % out;
        return (c * out + o) * kernel + j + (taps - 1 - tap) * stride;
      },
      pool);
  conv.SetBias(weights.bias);
  return conv;
}

CausalConv CausalConv::Strided(const ConvWeights& weights, int64_t stride, ThreadPool& pool) {
  const std::vector<int64_t>& shape = weights.weight.shape;
  const int64_t in = shape[1];
  const int64_t kernel = shape[2];
  CausalConv conv(weights.weight.dtype, stride * in, shape[0], kernel / stride, 1);
  conv.Pack(
      weights.weight,
      [=](int64_t o, int64_t tap, int64_t wide) { return (o * in + wide % in) * kernel + tap * stride + wide / in; },
      pool);
  conv.SetBias(weights.bias);
  return conv;
}

void CausalConv::Run(ThreadPool& pool, const float* x, int64_t rows, bool accumulate, float* y) const {
  const int64_t work = rows * view_.taps * view_.in * view_.out;
  if (rows >= 2 * kRowGrain) {
    pool.ParallelFor(rows, kRowGrain, work, [&](int64_t begin, int64_t end) {
      Conv(view_, x + begin * view_.in, end - begin, 0, view_.panels(), accumulate, y + begin * view_.out);
    });
  } else {
    pool.ParallelFor(view_.panels(), kPanelGrain, work,
                     [&](int64_t begin, int64_t end) { Conv(view_, x, rows, begin, end, accumulate, y); });
  }
}

}  // namespace qtts::cpu
