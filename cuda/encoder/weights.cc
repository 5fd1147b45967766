// SPDX-License-Identifier: LGPL-2.1-or-later
#include "encoder/weights.h"

#include <limits>
#include <string>

#include "runtime/device_memory.h"

namespace qtts::cuda::encoder {
namespace {

constexpr const char* kLoading = "loading the voice encoder";

}  // namespace

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

void WeightPacker::Check(cudaError_t error) {
  if (!Succeeds(error) && status_.ok()) status_ = CudaStatus(error, kLoading);
}

void* WeightPacker::Allocate(Arena* arena, size_t bytes) {
  if (failed()) return nullptr;
  void* const data = arena->Allocate(bytes);
  if (data == nullptr) Check(arena->error());
  return data;
}

float* WeightPacker::Floats(Arena* arena, int64_t count) {
  return static_cast<float*>(Allocate(arena, static_cast<size_t>(count) * sizeof(float)));
}

const void* WeightPacker::Stage(const TensorView& tensor) {
  void* const data = Allocate(&staging_, tensor.bytes());
  if (!failed()) Check(cudaMemcpyAsync(data, tensor.data, tensor.bytes(), cudaMemcpyHostToDevice, stream_));
  return data;
}

const void* WeightPacker::Copy(const void* data, size_t bytes) {
  void* const copy = Allocate(&memory_, bytes);
  if (!failed()) Check(cudaMemcpyAsync(copy, data, bytes, cudaMemcpyHostToDevice, stream_));
  // What was copied from may not outlive the call.
  if (!failed()) Check(cudaStreamSynchronize(stream_));
  return copy;
}

void WeightPacker::PackInto(const TensorView& tensor, int out, int in, int taps, float* to, int to_out, int first) {
  Packing packing;
  packing.from = Stage(tensor);
  packing.dtype = tensor.dtype;
  packing.out = out;
  packing.in = in;
  packing.taps = taps;
  packing.to = to;
  packing.to_out = to_out;
  packing.first = first;
  if (!failed()) Check(Pack(packing, stream_));
  // Work on a stream is in order: the next tensor comes after this one is packed.
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
    if (!failed()) status_ = Status::Unsupported("a layer of the voice encoder has too many weights for the GPU");
    return {};
  }
  Layer layer;
  layer.out = static_cast<int>(out);
  layer.in = static_cast<int>(shape[1]);
  layer.taps = shape.size() > 2 ? static_cast<int>(shape[2]) : 1;
  float* const to = Floats(&memory_, elements);
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
  float* const to = Floats(&memory_, count);
  PackInto(tensor, count, 1, 1, to, count, 0);
  return to;
}

WeightPacker::Codebooks WeightPacker::LoadCodebooks(const std::vector<CodebookWeights>& codebooks) {
  const auto entries = static_cast<int>(codebooks.front().embedding_sum.shape[0]);
  const auto dim = static_cast<int>(codebooks.front().embedding_sum.shape[1]);
  const auto groups = static_cast<int64_t>(codebooks.size());
  const int64_t size = static_cast<int64_t>(entries) * dim;
  float* const codewords = Floats(&memory_, groups * size);
  float* const squares = Floats(&memory_, groups * entries);
  Arena trained;
  float* const sums = Floats(&trained, size);
  float* const usage = Floats(&trained, entries);
  for (int64_t g = 0; g < groups && !failed(); ++g) {
    const CodebookWeights& codebook = codebooks[static_cast<size_t>(g)];
    PackInto(codebook.embedding_sum, static_cast<int>(size), 1, 1, sums, static_cast<int>(size), 0);
    PackInto(codebook.cluster_usage, entries, 1, 1, usage, entries, 0);
    if (failed()) break;
    Check(PackCodebook({sums, usage, entries, dim, codewords + g * size, squares + g * entries}, stream_));
  }
  if (!failed()) Check(cudaStreamSynchronize(stream_));
  return {codewords, squares};
}

Status WeightPacker::Finish() {
  if (!failed()) Check(cudaStreamSynchronize(stream_));
  return status_;
}

}  // namespace qtts::cuda::encoder
