// SPDX-License-Identifier: LGPL-2.1-or-later
#include "codec/weights.h"

#include <algorithm>
#include <cmath>

namespace qtts::cuda::codec {
namespace {

constexpr float kSnakeEps = 1e-9F;

}  // namespace

const float* WeightPacker::LoadFloats(const TensorView& tensor) {
  const auto count = static_cast<size_t>(tensor.elements());
  auto* const raw = StageCopy(tensor.data, tensor.bytes());
  if (tensor.dtype == DType::kF32) return static_cast<const float*>(raw);
  const auto* const bits = static_cast<const uint16_t*>(raw);
  float* const floats = Allocate<float>(staging(), count);
  if (!failed()) Check(Widen(bits, tensor.dtype == DType::kBF16, tensor.elements(), floats, nullptr));
  return floats;
}

const float* WeightPacker::Vector(const std::vector<float>& values, int times) {
  const auto padded = static_cast<size_t>(PadChannels(static_cast<int64_t>(values.size())));
  std::vector<float> all(padded * static_cast<size_t>(times));
  for (size_t i = 0; i < static_cast<size_t>(times); ++i) {
    std::copy(values.begin(), values.end(), all.begin() + static_cast<std::ptrdiff_t>(i * padded));
  }
  return static_cast<const float*>(KeepCopy(all.data(), all.size() * sizeof(float)));
}

Snake WeightPacker::LoadSnake(const SnakeWeights& weights) {
  std::vector<float> a = FloatsOf(weights.alpha);
  std::vector<float> b = FloatsOf(weights.beta);
  for (float& alpha : a) alpha = std::exp(alpha);
  for (float& beta : b) beta = 1.0F / (std::exp(beta) + kSnakeEps);
  return {Vector(a), Vector(b)};
}

Dense WeightPacker::NewDense(int64_t rows, int64_t taps, int64_t channels) {
  Dense dense{nullptr, PadChannels(rows), static_cast<int>(taps), PadChannels(channels)};
  dense.data = Stage(static_cast<size_t>(dense.rows) * static_cast<size_t>(dense.width()));
  return dense;
}

void WeightPacker::FillLinear(const Dense& dense, const TensorView& weight, const float* column_scale, int first,
                              int run, int run_stride) {
  GatherArgs args;
  args.source = LoadFloats(weight);
  args.dense = dense.data;
  args.column_scale = column_scale;
  args.rows = args.group_rows = static_cast<int>(weight.shape[0]);
  args.taps = 1;
  args.source_channels = static_cast<int>(weight.shape[1]);
  args.channels = dense.channels;
  args.row_stride = weight.shape[1];
  args.channel_stride = 1;
  args.first = first;
  args.run = run != 0 ? run : args.rows;
  args.run_stride = run_stride;
  if (!failed()) Check(Gather(args, nullptr));
}

Dense WeightPacker::Linear(const TensorView& weight, const float* column_scale) {
  const Dense dense = NewDense(weight.shape[0], 1, weight.shape[1]);
  FillLinear(dense, weight, column_scale);
  return dense;
}

Dense WeightPacker::Convolution(const TensorView& weight) {
  const Dense dense = NewDense(weight.shape[0], weight.shape[2], weight.shape[1]);
  GatherArgs args;
  args.source = LoadFloats(weight);
  args.dense = dense.data;
  args.rows = args.group_rows = args.run = static_cast<int>(weight.shape[0]);
  args.taps = static_cast<int>(weight.shape[2]);
  args.source_channels = static_cast<int>(weight.shape[1]);
  args.channels = dense.channels;
  args.row_stride = weight.shape[1] * weight.shape[2];
  args.tap_stride = 1;
  args.channel_stride = weight.shape[2];
  if (!failed()) Check(Gather(args, nullptr));
  return dense;
}

// Output step j, channel o: the newest input (the last tap) meets kernel position j, the one before it j + stride.
Dense WeightPacker::Transposed(const TensorView& weight, int stride) {
  const int64_t out = weight.shape[1];
  const int64_t kernel = weight.shape[2];
  const int64_t taps = kernel / stride;
  const Dense dense = NewDense(static_cast<int64_t>(stride) * PadChannels(out), taps, weight.shape[0]);
  GatherArgs args;
  args.source = LoadFloats(weight);
  args.dense = dense.data;
  args.rows = static_cast<int>(stride * out);
  args.group_rows = args.run = static_cast<int>(out);
  args.run_stride = PadChannels(out);
  args.taps = static_cast<int>(taps);
  args.source_channels = static_cast<int>(weight.shape[0]);
  args.channels = dense.channels;
  args.offset = (taps - 1) * stride;
  args.group_stride = 1;
  args.row_stride = kernel;
  args.tap_stride = -stride;
  args.channel_stride = out * kernel;
  if (!failed()) Check(Gather(args, nullptr));
  return dense;
}

void WeightPacker::AddBias(ProductArgs product, const float* bias, float* sum) {
  product.b = bias;
  product.b_row = 1;
  product.c = sum;
  product.c_row = 1;
  product.columns = 1;
  product.accumulate = true;
  Multiply(product);
}

GemmWeights WeightPacker::Pack(const Dense& dense, Planes stored_as, const GemmGeometry& geometry,
                               const WarpgroupOrder& warpgroups) {
  const size_t elements = static_cast<size_t>(dense.rows) * static_cast<size_t>(dense.width());
  GemmWeights weights;
  const int planes = stored_as == Planes::kTwoHalves ? 2 : 1;
  weights.planes = planes;
  if (stored_as == Planes::kF32) {
    auto* const transposed = Keep<float>(elements);
    weights.data = transposed;
    if (!failed()) Check(PackF32(dense.data, geometry.tiles, geometry.chunks, transposed, nullptr));
  } else {
    auto* const packed = Keep<uint16_t>(elements * static_cast<size_t>(planes));
    auto* const scale = Keep<float>(static_cast<size_t>(dense.rows));
    weights.data = packed;
    weights.scale = scale;
    if (!failed()) {
      Check(PackHalf(dense.data, geometry.tiles, geometry.taps, dense.channels / kChannelBlock, geometry.groups, planes,
                     packed, scale, nullptr));
    }
    if (warpgroups.block_outputs != 0) {
      auto* const again = Keep<std::byte>(WarpgroupBytes(geometry.tiles, geometry.chunks, planes));
      weights.warpgroup = again;
      if (!failed()) {
        Check(PackWarpgroup(dense.data, geometry.tiles, geometry.taps, dense.channels / kChannelBlock, geometry.groups,
                            planes, warpgroups, scale, again, nullptr));
      }
    }
  }
  Release();
  return weights;
}

}  // namespace qtts::cuda::codec
