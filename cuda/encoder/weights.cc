// SPDX-License-Identifier: LGPL-2.1-or-later
#include "encoder/weights.h"

#include <limits>
#include <string>

#include "runtime/device_wait.h"

namespace qtts::cuda::encoder {

Convolution Layer::On(const ConstSignal& x, int64_t x_rows, int64_t rows, const Signal& y) const {
  Convolution convolution;
  convolution.x = x;
  convolution.x_rows = x_rows;
  convolution.in = in;
  convolution.taps = taps;
  convolution.weights = weights;
  convolution.bias = bias;
  convolution.out = out;
  convolution.rows = rows;
  convolution.y = y;
  return convolution;
}

void WeightPacker::PackInto(const TensorView& tensor, int out, int in, int taps, float* to, int to_out, int first) {
  Packing packing;
  packing.from = StageCopy(tensor.data, tensor.bytes());
  packing.dtype = tensor.dtype;
  packing.out = out;
  packing.in = in;
  packing.taps = taps;
  packing.to = to;
  packing.to_out = to_out;
  packing.first = first;
  if (!failed()) Check(Pack(packing, stream()));
  Release();
}

Layer WeightPacker::LoadLinear(const std::vector<const TensorView*>& weights) {
  const std::vector<int64_t>& shape = weights.front()->shape;
  int64_t elements = 0;
  int64_t out = 0;
  for (const TensorView* const part : weights) {
    elements += part->elements();
    out += part->shape[0];
  }
  if (elements > std::numeric_limits<int32_t>::max()) {
    Fail(Status::Unsupported("a layer of the voice encoder has too many weights for the GPU"));
    return {};
  }
  Layer layer;
  layer.out = static_cast<int>(out);
  layer.in = static_cast<int>(shape[1]);
  layer.taps = shape.size() > 2 ? static_cast<int>(shape[2]) : 1;
  float* const to = Keep(elements);
  layer.weights = to;
  int first = 0;
  for (const TensorView* const part : weights) {
    const int outs = static_cast<int>(part->shape[0]);
    PackInto(*part, outs, layer.in, layer.taps, to, layer.out, first);
    first += outs;
  }
  return layer;
}

Layer WeightPacker::LoadConv(const ConvWeights& weights) {
  Layer layer = LoadLinear({&weights.weight});
  if (weights.bias.has_value()) layer.bias = LoadVector(*weights.bias);
  return layer;
}

const float* WeightPacker::LoadVector(const TensorView& tensor) {
  const auto count = static_cast<int>(tensor.elements());
  float* const to = Keep(count);
  PackInto(tensor, count, 1, 1, to, count, 0);
  return to;
}

WeightPacker::Codebooks WeightPacker::LoadCodebooks(const std::vector<CodebookWeights>& codebooks) {
  const auto entries = static_cast<int>(codebooks.front().embedding_sum.shape[0]);
  const auto dim = static_cast<int>(codebooks.front().embedding_sum.shape[1]);
  const auto groups = static_cast<int64_t>(codebooks.size());
  const int64_t size = static_cast<int64_t>(entries) * dim;
  float* const codewords = Keep(groups * size);
  float* const squares = Keep(groups * entries);
  Arena trained;
  float* const sums = Allocate<float>(&trained, static_cast<size_t>(size));
  float* const usage = Allocate<float>(&trained, static_cast<size_t>(entries));
  for (int64_t g = 0; g < groups && !failed(); ++g) {
    const CodebookWeights& codebook = codebooks[static_cast<size_t>(g)];
    PackInto(codebook.embedding_sum, static_cast<int>(size), 1, 1, sums, static_cast<int>(size), 0);
    PackInto(codebook.cluster_usage, entries, 1, 1, usage, entries, 0);
    if (failed()) break;
    Check(PackCodebook({sums, usage, entries, dim, codewords + g * size, squares + g * entries}, stream()));
  }
  if (!failed()) Check(AwaitStream(stream()));
  return {codewords, squares};
}

Status WeightPacker::Finish() {
  if (!failed()) Check(AwaitStream(stream()));
  return status();
}

}  // namespace qtts::cuda::encoder
