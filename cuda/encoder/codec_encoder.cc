// SPDX-License-Identifier: LGPL-2.1-or-later
#include "encoder/codec_encoder.h"

#include <algorithm>
#include <cmath>
#include <string>

namespace qtts::cuda::encoder {
namespace {

constexpr const char* kEncodingCodes = "the codec encoder";

// Stride of the last convolution, which halves the rate behind the transformer.
constexpr int kLastStride = 2;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Returns a causal convolution: rows before the first one are zeros.
Convolution Causal(const Layer& layer, const ConstSignal& x, int64_t rows, const Signal& y) {
  Convolution convolution = layer.On(x, rows, rows, y);
  convolution.before = layer.taps - 1;
  return convolution;
}

// Causal, one row of y for each `stride` of x, the last of which may be incomplete.
Convolution Strided(const Layer& layer, int stride, const ConstSignal& x, int64_t x_rows, const Signal& y) {
  Convolution convolution = layer.On(x, x_rows, CeilDiv(x_rows, stride), y);
  convolution.step = stride;
  convolution.before = layer.taps - stride;
  return convolution;
}

}  // namespace

Result<std::unique_ptr<CodecEncoder>> CodecEncoder::Create(const CodecEncoderConfig& config,
                                                           const CodecEncoderWeights& weights, cudaStream_t stream) {
  if (config.codebook_dim > kMaxCodewordDim) {
    return Status::Unsupported("the speech tokenizer's codebooks are " + std::to_string(config.codebook_dim) +
                               " wide, and the GPU's encoder takes " + std::to_string(kMaxCodewordDim) +
                               " at most; choose device=cpu");
  }
  std::unique_ptr<CodecEncoder> encoder(new CodecEncoder);
  encoder->config_ = config;
  WeightPacker packer(&encoder->memory_, stream);
  encoder->first_conv_ = packer.LoadConv(weights.first_conv);
  for (size_t i = 0; i < weights.stages.size(); ++i) {
    const EncoderStageWeights& from = weights.stages[i];
    Stage& stage = encoder->stages_.emplace_back();
    stage.residual1 = packer.LoadConv(from.residual1);
    stage.residual2 = packer.LoadConv(from.residual2);
    stage.strided = packer.LoadConv(from.strided);
    stage.stride = config.strides[i];
    encoder->hop_ *= stage.stride;
  }
  encoder->last_conv_ = packer.LoadConv(weights.last_conv);
  for (const EncoderLayerWeights& from : weights.layers) {
    Block& layer = encoder->layers_.emplace_back();
    layer.input_norm = packer.LoadVector(from.input_norm);
    layer.input_norm_bias = packer.LoadVector(from.input_norm_bias);
    layer.post_norm = packer.LoadVector(from.post_norm);
    layer.post_norm_bias = packer.LoadVector(from.post_norm_bias);
    layer.qkv = packer.LoadLinear({&from.q, &from.k, &from.v});
    layer.o = packer.LoadLinear({&from.o});
    layer.fc1 = packer.LoadLinear({&from.fc1});
    layer.fc2 = packer.LoadLinear({&from.fc2});
    layer.attention_scale = packer.LoadVector(from.attention_scale);
    layer.mlp_scale = packer.LoadVector(from.mlp_scale);
  }
  std::vector<float> speeds;
  for (int i = 0; i < config.head_dim / 2; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(config.head_dim);
    speeds.push_back(1.0F / std::pow(config.rope_theta, exponent));
  }
  encoder->rope_speeds_ = packer.LoadTable(speeds);
  encoder->downsample_ = packer.LoadConv(weights.downsample);
  encoder->semantic_projection_ = packer.LoadLinear({&weights.semantic_projection});
  encoder->acoustic_projection_ = packer.LoadLinear({&weights.acoustic_projection});
  encoder->codebooks_ = packer.LoadCodebooks(weights.codebooks);
  QTTS_RETURN_IF_ERROR(packer.Finish());
  return encoder;
}

int64_t CodecEncoder::LooksBack() const {
  int64_t rows = last_conv_.taps - 1;
  for (auto stage = stages_.rbegin(); stage != stages_.rend(); ++stage) {
    rows = rows * stage->stride + stage->strided.taps - stage->stride;
    rows += stage->residual1.taps - 1 + stage->residual2.taps - 1;
  }
  return CeilDiv(rows + first_conv_.taps - 1, hop_);
}

Result<std::vector<int32_t>> CodecEncoder::Encode(std::span<const float> pcm, Scratch* scratch,
                                                  cudaStream_t stream) const {
  const auto samples = static_cast<int64_t>(pcm.size());
  const int64_t rows = CeilDiv(samples, hop_);
  const int64_t frames = CeilDiv(rows, kLastStride);
  const int64_t hidden = config_.hidden_size;
  const int64_t width = config_.width();
  const int64_t groups = config_.num_quantizers;
  const int64_t dim = config_.codebook_dim;
  if (rows > MaxAttentionRows(config_.head_dim)) {
    return Status::InvalidArgument("the recording is too long for the codec encoder on the GPU; cut it");
  }
  // The widest part, and the arrays its stages need.
  const int64_t part = std::min(samples, (kPartRows + LooksBack()) * hop_);
  int64_t even = part * first_conv_.out;
  int64_t odd = 0;
  int64_t inner = 0;
  int64_t stage_rows = part;
  for (size_t i = 0; i < stages_.size(); ++i) {
    inner = std::max(inner, stage_rows * stages_[i].residual1.out);
    stage_rows = CeilDiv(stage_rows, stages_[i].stride);
    int64_t& most = i % 2 == 0 ? odd : even;
    most = std::max(most, stage_rows * stages_[i].strided.out);
  }
  const int64_t wide = std::max<int64_t>(3 * width, config_.intermediate_size);
  QTTS_ASSIGN_OR_RETURN(const std::vector<float*> at,
                        scratch->Take({samples, even, odd, inner, rows * hidden, rows * hidden, rows * wide,
                                       rows * width, frames * hidden, frames * dim, frames * dim, frames * groups}));
  float* const device_pcm = at[0];
  const PartArrays arrays = {{at[1], at[2]}, at[3]};
  float* const x = at[4];
  float* const down = at[8];
  float* const semantic = at[9];
  float* const acoustic = at[10];
  auto* const device_codes = reinterpret_cast<int32_t*>(at[11]);

  Queue queue(stream);
  queue.Copy(device_pcm, pcm.data(), pcm.size_bytes(), cudaMemcpyHostToDevice);
  for (int64_t row = 0; row < rows; row += kPartRows) {
    const int64_t begin = std::max<int64_t>(0, row - LooksBack());
    const int64_t end = std::min(samples, (row + kPartRows) * hop_);
    ConvolvePart(device_pcm + begin * hop_, end - begin * hop_, row - begin, arrays, x + row * hidden, &queue);
  }
  Transform(rows, x, at[5], at[6], at[7], &queue);
  // The only convolution that repeats the first and the last row instead of taking zeros.
  Convolution downsample = Strided(downsample_, kLastStride, {x, hidden}, rows, {down, hidden});
  downsample.border = Border::kRepeat;
  queue(Convolve, downsample);
  queue(Convolve, semantic_projection_.On({down, hidden}, frames, frames, {semantic, dim}));
  queue(Convolve, acoustic_projection_.On({down, hidden}, frames, frames, {acoustic, dim}));
  Quantization quantization;
  quantization.semantic = semantic;
  quantization.acoustic = acoustic;
  quantization.codewords = codebooks_.codewords;
  quantization.squares = codebooks_.squares;
  quantization.frames = frames;
  quantization.groups = config_.num_quantizers;
  quantization.dim = config_.codebook_dim;
  quantization.entries = config_.codebook_size;
  quantization.codes = device_codes;
  queue(Quantize, quantization);
  std::vector<int32_t> codes(static_cast<size_t>(frames * groups));
  queue.Copy(codes.data(), device_codes, codes.size() * sizeof(int32_t), cudaMemcpyDeviceToHost);
  QTTS_RETURN_IF_ERROR(queue.Finish(kEncodingCodes));
  return codes;
}

void CodecEncoder::ConvolvePart(const float* pcm, int64_t samples, int64_t skip, const PartArrays& arrays,
                                float* hidden, Queue* queue) const {
  int64_t rows = samples;
  Signal x = {arrays.x[0], first_conv_.out};
  (*queue)(Convolve, Causal(first_conv_, {pcm, 1}, rows, x));
  for (size_t i = 0; i < stages_.size(); ++i) {
    const Stage& stage = stages_[i];
    const Signal inner = {arrays.inner, stage.residual1.out};
    // ELU stands before every convolution: applied by whoever writes, unless the value itself is needed too.
    Convolution residual1 = Causal(stage.residual1, x, rows, inner);
    residual1.elu_input = true;
    residual1.activation = Activation::kElu;
    (*queue)(Convolve, residual1);
    Convolution residual2 = Causal(stage.residual2, inner, rows, x);
    residual2.residual = x;
    residual2.activation = Activation::kElu;
    (*queue)(Convolve, residual2);
    const Signal y = {arrays.x[(i + 1) % 2], stage.strided.out};
    Convolution strided = Strided(stage.strided, stage.stride, x, rows, y);
    if (i + 1 == stages_.size()) strided.activation = Activation::kElu;
    (*queue)(Convolve, strided);
    rows = CeilDiv(rows, stage.stride);
    x = y;
  }
  Convolution last = Causal(last_conv_, x, rows, {hidden, last_conv_.out});
  last.rows -= skip;
  last.before -= static_cast<int>(skip);
  (*queue)(Convolve, last);
}

void CodecEncoder::Transform(int64_t rows, float* x, float* normed, float* wide, float* attended, Queue* queue) const {
  const int64_t hidden = config_.hidden_size;
  const int64_t width = config_.width();
  const int64_t intermediate = config_.intermediate_size;
  const Signal stream = {x, hidden};
  const auto normalize = [&](const float* weight, const float* bias) {
    LayerNorm norm;
    norm.x = stream;
    norm.weight = weight;
    norm.bias = bias;
    norm.eps = config_.norm_eps;
    norm.rows = rows;
    norm.channels = config_.hidden_size;
    norm.y = {normed, hidden};
    (*queue)(Normalize, norm);
  };
  // stream += scale * layer(input)
  const auto add = [&](const Layer& layer, const float* scale, const ConstSignal& input) {
    Convolution convolution = layer.On(input, rows, rows, stream);
    convolution.scale = scale;
    convolution.residual = stream;
    (*queue)(Convolve, convolution);
  };
  for (const Block& layer : layers_) {
    normalize(layer.input_norm, layer.input_norm_bias);
    const Signal qkv = {wide, 3 * width};
    (*queue)(Convolve, layer.qkv.On({normed, hidden}, rows, rows, qkv));
    Attention attention;
    attention.qkv = qkv;
    attention.rows = rows;
    attention.heads = config_.num_heads;
    attention.head_dim = config_.head_dim;
    attention.speeds = rope_speeds_;
    attention.y = {attended, width};
    (*queue)(Rotate, attention);
    (*queue)(Attend, attention);
    add(layer.o, layer.attention_scale, attention.y);
    normalize(layer.post_norm, layer.post_norm_bias);
    const Signal inner = {wide, intermediate};
    Convolution fc1 = layer.fc1.On({normed, hidden}, rows, rows, inner);
    fc1.activation = Activation::kGelu;
    (*queue)(Convolve, fc1);
    add(layer.fc2, layer.mlp_scale, inner);
  }
}

}  // namespace qtts::cuda::encoder
