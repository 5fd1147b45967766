// SPDX-License-Identifier: LGPL-2.1-or-later
#include "codec/steps.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string>

#include "codec/gemm.h"
#include "codec/gemm_cut.h"
#include "codec/staged_plan.h"
#include "runtime/device_copy.h"
#include "runtime/device_wait.h"

namespace qtts::cuda::codec {
namespace {

constexpr float kLayerNormEps = 1e-6F;
constexpr int kDilations[] = {1, 3, 9};  // of a block's residual units
// Alignment of each array in a stream's state, in bytes.
constexpr size_t kStateAlignment = 256;
// Shared memory that a thread block may use without raising the limit.
constexpr size_t kSharedBytes = 48 << 10;

// Returns the elements of the widest array between two steps, for a row of a batch.
int64_t WidestRow(const CodecConfig& config, const CodecWeights& weights) {
  const TransformerConfig& transformer = config.transformer;
  int64_t widest = PadChannels(config.codebook_dim);
  const auto see = [&](int64_t rows, int64_t channels) { widest = std::max(widest, rows * PadChannels(channels)); };
  see(1, transformer.hidden_size);
  see(1, transformer.q_width() + 2 * transformer.kv_width());
  see(1, transformer.intermediate_size);
  see(1, config.latent_dim);
  int64_t rows = 1;
  for (size_t i = 0; i < weights.upsample.size(); ++i) {
    rows *= config.upsampling_ratios[i];
    see(rows, weights.upsample[i].expand.weight.shape[0]);
    see(rows, config.latent_dim);
  }
  see(rows, weights.first_conv.weight.shape[0]);
  for (size_t i = 0; i < weights.blocks.size(); ++i) {
    rows *= config.upsample_rates[i];
    see(rows, weights.blocks[i].transposed.weight.shape[1]);
  }
  return widest;
}

}  // namespace

Planes PlanesOf(CodecPrecision precision) {
  if (precision == CodecPrecision::kF32) return Planes::kF32;
  return precision == CodecPrecision::kFast ? Planes::kHalf : Planes::kTwoHalves;
}

int64_t Builder::Remember(size_t bytes) {
  const size_t at = state_bytes_;
  state_bytes_ += (bytes + kStateAlignment - 1) / kStateAlignment * kStateAlignment;
  return static_cast<int64_t>(at);
}

void* Builder::NextOperand() {
  void* const operand = operands_[next_operand_];
  next_operand_ = (next_operand_ + 1) % operands_.size();
  return operand;
}

Source Builder::Append(Step step, const Output& output) {
  Sink sink;
  sink.planes = output.planes;
  sink.rows = output.rows;
  sink.channels = output.channels;
  sink.snake_a = output.snake.a;
  sink.snake_inverse_b = output.snake.inverse_b;
  sink.data = output.to != nullptr ? output.to : NextOperand();
  sink.plane = static_cast<int64_t>(max_batch_) * output.rows * output.channels;
  if (output.look_back > 0) {
    sink.keep = std::min(output.rows, output.look_back);
    sink.ring = (output.look_back + output.rows - 1) / output.rows + 1;
    const size_t elements =
        static_cast<size_t>(sink.ring) * static_cast<size_t>(sink.keep) * static_cast<size_t>(output.channels);
    sink.history_plane = static_cast<int64_t>(elements);
    sink.history = Remember(elements * (output.planes == Planes::kHalf ? 2 : 4));
  }
  if (auto* const gemm = std::get_if<GemmStep>(&step)) {
    gemm->args.epilogue.by_out_channels = Divisor(output.channels);
    gemm->args.epilogue.out = sink;
  } else if (auto* const attention = std::get_if<AttentionArgs>(&step)) {
    attention->out = sink;
  } else if (auto* const depthwise = std::get_if<DepthwiseArgs>(&step)) {
    depthwise->out = sink;
  } else {
    std::get<DequantizeArgs>(step).out = sink;
  }
  Append(step);

  Source source;
  source.data = sink.data;
  source.history = sink.history;
  source.plane = sink.plane;
  source.history_plane = sink.history_plane;
  source.rows = sink.rows;
  source.channels = sink.channels;
  source.keep = sink.keep;
  source.ring = sink.ring;
  source.by_rows = Divisor(sink.rows);
  return source;
}

bool Builder::HasWarpgroups() const {
  const bool in_blocks = early_steps_ != 0;
  return device_.warpgroups && copies_ >= (in_blocks ? CodecCopies::kDecoderBlocks : CodecCopies::kAll) &&
         planes_ != Planes::kF32;
}

GemmGeometry Builder::Geometry(int rows, int outputs, int taps, int channels, int dilation) const {
  const int blocks = channels / kChannelBlock;
  GemmArgs args;
  args.x.channels = channels;
  GemmGeometry& geometry = args.geometry;
  geometry.columns = rows;
  geometry.taps = taps;
  geometry.dilation = dilation;
  geometry.tiles = outputs / kTileRows;
  geometry.chunks = taps * blocks;
  const GemmCut cut = ChooseCut(args, early_steps_ != 0 && planes_ != Planes::kF32, device_);
  geometry.groups = cut.groups;
  geometry.group_blocks = blocks / cut.groups;
  geometry.by_group_blocks = Divisor(geometry.group_blocks);
  geometry.segments = cut.segments;
  geometry.by_segments = Divisor(cut.segments);
  return geometry;
}

bool Builder::HasStagedUnits() const {
  return !device_.warpgroups && device_.shared_bytes >= kStagedUnitSharedBytes && copies_ != CodecCopies::kNone &&
         planes_ != Planes::kF32;
}

bool Builder::WarpgroupsHaveUnit(const ResidualUnitWeights& unit, int dilation, int channels) const {
  const auto geometry = [&](const ConvWeights& conv, int of_dilation) {
    return Geometry(rows_, channels, static_cast<int>(conv.weight.shape[2]), channels, of_dilation);
  };
  return HasWarpgroups() && WarpgroupUnitHasKernel(geometry(unit.conv1, dilation), geometry(unit.conv2, 1));
}

GemmStep Builder::Gemm(const Dense& dense, int dilation, const Source& x, const WarpgroupOrder* order) {
  GemmStep step;
  step.x_planes = planes_;
  step.args.x = x;
  step.args.geometry = Geometry(x.rows, dense.rows, dense.taps, dense.channels, dilation);
  const WarpgroupOrder own = {HasWarpgroups() ? WarpgroupOutputs(step.args.geometry) : 0};
  step.args.weights = packer_.Pack(dense, planes_, step.args.geometry, order != nullptr ? *order : own);
  return step;
}

void Builder::NormalizeInput(GemmStep* gemm) const {
  GemmEpilogue& epilogue = gemm->args.epilogue;
  epilogue.rms_input = hidden_;
  epilogue.rms_width = config_.transformer.hidden_size;
  epilogue.rms_eps = config_.transformer.rms_norm_eps;
}

const float* Builder::ByTap(const TensorView& weights, int channels) {
  const auto taps = static_cast<size_t>(weights.shape[2]);
  const auto width = static_cast<size_t>(channels);
  std::vector<float> by_tap(taps * width);
  const std::vector<float> by_channel = FloatsOf(weights);
  for (size_t i = 0; i < by_channel.size(); ++i) by_tap[i % taps * width + i / taps] = by_channel[i];
  return packer_.Vector(by_tap);
}

Source Builder::Dequantization() {
  const int width = config_.codebook_dim;
  const int padded = PadChannels(width);
  const int half = static_cast<int>(weights_.semantic_projection.shape[1]);
  DequantizeArgs args;
  args.max_slots = max_slots_;
  args.groups = static_cast<int>(weights_.codebooks.size());
  args.codebook_size = config_.codebook_size;
  const size_t table = static_cast<size_t>(args.codebook_size) * static_cast<size_t>(padded);
  auto* const tables = packer_.Keep<float>(table * static_cast<size_t>(args.groups));
  args.tables = tables;
  args.slot_states = packer_.Keep<std::byte*>(static_cast<size_t>(max_slots_));
  args.next_frame = packer_.Keep<int32_t>(static_cast<size_t>(max_slots_));
  args.states = packer_.Keep<std::byte*>(static_cast<size_t>(max_batch_));
  args.frames = packer_.Keep<int32_t>(static_cast<size_t>(max_batch_));
  // Projects each codeword of each group, once.
  for (int g = 0; g < args.groups; ++g) {
    const CodebookWeights& codebook = weights_.codebooks[static_cast<size_t>(g)];
    const bool semantic = g < config_.num_semantic_quantizers;
    auto* const codewords = const_cast<float*>(packer_.LoadFloats(codebook.embedding_sum));  // staging memory is ours
    const float* const usage = packer_.LoadFloats(codebook.cluster_usage);
    ProductArgs product;
    product.a = codewords;
    product.a_row = half;
    product.a_column = 1;
    product.b = packer_.LoadFloats(semantic ? weights_.semantic_projection : weights_.acoustic_projection);
    product.b_row = 1;
    product.b_column = half;
    product.c = tables + static_cast<size_t>(g) * table;
    product.c_row = padded;
    product.rows = args.codebook_size;
    product.inner = half;
    product.columns = width;
    if (!packer_.failed()) packer_.Check(DivideByUsage(codewords, usage, args.codebook_size, half, nullptr));
    packer_.Multiply(product);
    packer_.Release();
  }
  const auto taps = static_cast<int>(weights_.pre_conv.weight.shape[2]);
  return Append(args, {.rows = 1, .channels = padded, .look_back = taps - 1, .planes = planes_});
}

// pre_conv and the input projection after it are one convolution, since nothing lies between them.
Source Builder::PreTransformer(Source x) {
  const TransformerConfig& config = config_.transformer;
  const int hidden = config.hidden_size;
  const Dense conv = packer_.Convolution(weights_.pre_conv.weight);
  const Dense dense = packer_.NewDense(hidden, conv.taps, config_.codebook_dim);
  const float* const projection = packer_.LoadFloats(weights_.input_projection.weight);
  ProductArgs product;
  product.a = projection;
  product.a_row = config_.latent_dim;
  product.a_column = 1;
  product.b = conv.data;
  product.b_row = product.c_row = conv.width();
  product.b_column = 1;
  product.c = dense.data;
  product.rows = hidden;
  product.inner = config_.latent_dim;
  product.columns = static_cast<int>(conv.width());
  packer_.Multiply(product);

  float* const bias = packer_.Keep<float>(static_cast<size_t>(dense.rows));
  if (!packer_.failed() && weights_.input_projection.bias.has_value()) {
    const std::vector<float> own = FloatsOf(*weights_.input_projection.bias);
    packer_.Check(CopyAndWait(bias, own.data(), own.size() * sizeof(float), cudaMemcpyHostToDevice));
  }
  if (weights_.pre_conv.bias.has_value()) {
    packer_.AddBias(product, packer_.LoadFloats(*weights_.pre_conv.bias), bias);
  }

  GemmStep gemm = Gemm(dense, 1, x);
  gemm.args.epilogue.bias = bias;
  gemm.args.epilogue.y = hidden_;
  x = Append(gemm, {.rows = 1, .channels = dense.rows, .planes = planes_});

  std::vector<float> rotations;
  for (int distance = 0; distance < config.sliding_window; ++distance) {
    for (int i = 0; i < config.head_dim / 2; ++i) {
      const double angle = distance * std::pow(static_cast<double>(config.rope_theta), -2.0 * i / config.head_dim);
      rotations.push_back(static_cast<float>(std::cos(angle)));
      rotations.push_back(static_cast<float>(std::sin(angle)));
    }
  }
  const float* const turns = packer_.Vector(rotations);
  for (const TransformerLayerWeights& layer : weights_.transformer.layers) x = Layer(layer, turns, x);
  return x;
}

Source Builder::Layer(const TransformerLayerWeights& layer, const float* rotations, const Source& x) {
  const TransformerConfig& config = config_.transformer;
  const int q_width = config.q_width();
  const int kv_width = config.kv_width();
  const Dense qkv = packer_.NewDense(q_width + 2 * kv_width, 1, config.hidden_size);
  const float* norm = packer_.LoadFloats(layer.input_norm);
  packer_.FillLinear(qkv, layer.q.weight, norm);
  packer_.FillLinear(qkv, layer.k.weight, norm, q_width);
  packer_.FillLinear(qkv, layer.v.weight, norm, q_width + kv_width);
  GemmStep gemm = Gemm(qkv, 1, x);
  NormalizeInput(&gemm);
  if (layer.q.bias.has_value() && layer.k.bias.has_value() && layer.v.bias.has_value()) {
    std::vector<float> bias = FloatsOf(*layer.q.bias);
    for (const TensorView& more : {*layer.k.bias, *layer.v.bias}) {
      const std::vector<float> floats = FloatsOf(more);
      bias.insert(bias.end(), floats.begin(), floats.end());
    }
    gemm.args.epilogue.bias = packer_.Vector(bias);
  }
  // Free until attention writes it: the product's input is the other buffer.
  gemm.args.epilogue.y = static_cast<float*>(NextOperand());
  Append(gemm);

  AttentionArgs attention;
  attention.qkv = gemm.args.epilogue.y;
  attention.stride = qkv.rows;
  attention.heads = config.num_heads;
  attention.kv_heads = config.num_kv_heads;
  attention.head_dim = config.head_dim;
  attention.window = config.sliding_window;
  attention.halves = planes_ == Planes::kHalf;
  const size_t cache = static_cast<size_t>(config.sliding_window) * static_cast<size_t>(kv_width) *
                       (attention.halves ? sizeof(uint16_t) : sizeof(float));
  attention.keys = Remember(cache);
  attention.values = Remember(cache);
  attention.rotations = reinterpret_cast<const float2*>(rotations);
  const Source attended = Append(attention, {.rows = 1, .channels = PadChannels(q_width), .planes = planes_});

  gemm = Gemm(packer_.Linear(layer.o.weight), 1, attended);
  gemm.args.epilogue.bias = packer_.OptionalVector(layer.o.bias);
  gemm.args.epilogue.scale = packer_.OptionalVector(layer.attention_scale);
  gemm.args.epilogue.residual = gemm.args.epilogue.y = hidden_;
  const Output hidden = {.rows = 1, .channels = PadChannels(config.hidden_size), .planes = planes_};
  const Source middle = Append(gemm, hidden);

  const int half_tile = kTileRows / 2;
  const int inner = PadChannels(config.intermediate_size);
  const Dense gated = packer_.NewDense(2 * static_cast<int64_t>(inner), 1, config.hidden_size);
  norm = packer_.LoadFloats(layer.post_norm);
  packer_.FillLinear(gated, layer.gate, norm, 0, half_tile, kTileRows);
  packer_.FillLinear(gated, layer.up, norm, half_tile, half_tile, kTileRows);
  gemm = Gemm(gated, 1, middle);
  NormalizeInput(&gemm);
  gemm.args.epilogue.activation = Activation::kSwiGlu;
  const Source product = Append(gemm, {.rows = 1, .channels = inner, .planes = planes_});

  gemm = Gemm(packer_.Linear(layer.down), 1, product);
  gemm.args.epilogue.scale = packer_.OptionalVector(layer.mlp_scale);
  gemm.args.epilogue.residual = gemm.args.epilogue.y = hidden_;
  return Append(gemm, hidden);
}

Builder::Output Builder::UpsampleInput(size_t index) const {
  int64_t taps = weights_.first_conv.weight.shape[2];
  if (index < weights_.upsample.size()) {
    taps = weights_.upsample[index].transposed.weight.shape[2] / config_.upsampling_ratios[index];
  }
  const int channels = PadChannels(config_.latent_dim);
  return {.rows = rows_, .channels = channels, .look_back = static_cast<int>(taps) - 1, .planes = planes_};
}

// The final norm's weights are multiplied into it.
Dense Builder::OutputProjection() {
  return packer_.Linear(weights_.output_projection.weight, packer_.LoadFloats(weights_.transformer.norm));
}

// One product, since nothing lies between them: the kernel is as long as the stride (checked), so each output sees one
// input.
GemmStep Builder::ProjectAndUpsample(const Source& x) {
  const ConvNeXtWeights& stage = weights_.upsample.front();
  const int stride = config_.upsampling_ratios.front();
  const Dense transposed = packer_.Transposed(stage.transposed.weight, stride);
  const Dense projection = OutputProjection();
  const Dense dense = packer_.NewDense(transposed.rows, 1, config_.transformer.hidden_size);
  ProductArgs product;
  product.a = transposed.data;
  product.a_row = transposed.width();
  product.a_column = 1;
  product.b = projection.data;
  product.b_row = product.c_row = projection.width();
  product.b_column = 1;
  product.c = dense.data;
  product.rows = transposed.rows;
  product.inner = transposed.channels;
  product.columns = static_cast<int>(projection.width());
  packer_.Multiply(product);
  const float* bias = packer_.OptionalVector(stage.transposed.bias, stride);
  if (weights_.output_projection.bias.has_value()) {
    float* const sum = packer_.Keep<float>(static_cast<size_t>(transposed.rows));
    if (!packer_.failed() && bias != nullptr) {
      packer_.Check(EnqueueCopy(sum, bias, static_cast<size_t>(transposed.rows) * sizeof(float),
                                cudaMemcpyDeviceToDevice, nullptr));
    }
    packer_.AddBias(product, packer_.Vector(FloatsOf(*weights_.output_projection.bias)), sum);
    bias = sum;
  }
  GemmStep gemm = Gemm(dense, 1, x);
  NormalizeInput(&gemm);
  gemm.args.epilogue.bias = bias;
  return gemm;
}

Source Builder::UpsampleStage(size_t index, const Source& x) {
  const ConvNeXtWeights& stage = weights_.upsample[index];
  const int stride = config_.upsampling_ratios[index];
  const int channels = PadChannels(config_.latent_dim);
  GemmStep gemm;
  if (index == 0) {
    gemm = ProjectAndUpsample(x);
  } else {
    gemm = Gemm(packer_.Transposed(stage.transposed.weight, stride), 1, x);
    gemm.args.epilogue.bias = packer_.OptionalVector(stage.transposed.bias, stride);
  }
  gemm.args.epilogue.stride = stride;
  rows_ *= stride;

  DepthwiseArgs depthwise;
  depthwise.taps = static_cast<int>(stage.depthwise.weight.shape[2]);
  depthwise.x = Append(gemm, {.rows = rows_, .channels = channels, .look_back = depthwise.taps - 1, .to = residual_});
  depthwise.width = config_.latent_dim;
  depthwise.weights = ByTap(stage.depthwise.weight, channels);
  depthwise.bias = stage.depthwise.bias.has_value() ? packer_.Vector(FloatsOf(*stage.depthwise.bias))
                                                    : packer_.Keep<float>(static_cast<size_t>(channels));
  depthwise.norm_weight = packer_.Vector(FloatsOf(stage.norm_weight));
  depthwise.norm_bias = packer_.Vector(FloatsOf(stage.norm_bias));
  depthwise.eps = kLayerNormEps;
  const Source normed = Append(depthwise, {.rows = rows_, .channels = channels, .planes = planes_});

  gemm = Gemm(packer_.Linear(stage.expand.weight), 1, normed);
  gemm.args.epilogue.bias = packer_.OptionalVector(stage.expand.bias);
  gemm.args.epilogue.activation = Activation::kGelu;
  const int wide = PadChannels(stage.expand.weight.shape[0]);
  const Source expanded = Append(gemm, {.rows = rows_, .channels = wide, .planes = planes_});

  gemm = Gemm(packer_.Linear(stage.contract.weight), 1, expanded);
  gemm.args.epilogue.bias = packer_.OptionalVector(stage.contract.bias);
  gemm.args.epilogue.scale = packer_.Vector(FloatsOf(stage.gamma));
  gemm.args.epilogue.residual = residual_;
  return Append(gemm, UpsampleInput(index + 1));
}

Source Builder::FirstConvolution(const Source& x) {
  const ConvWeights& conv = weights_.first_conv;
  GemmStep gemm = Gemm(packer_.Convolution(conv.weight), 1, x);
  gemm.args.epilogue.bias = packer_.OptionalVector(conv.bias);
  return Append(gemm, BlockInput(0, PadChannels(conv.weight.shape[0])));
}

Builder::Output Builder::BlockInput(size_t index, int channels) {
  if (index == weights_.blocks.size()) {
    const auto taps = static_cast<int>(weights_.last_conv.weight.shape[2]);
    return {
        .rows = rows_, .channels = channels, .look_back = taps - 1, .snake = packer_.LoadSnake(weights_.last_snake)};
  }
  const DecoderBlockWeights& block = weights_.blocks[index];
  const auto taps = static_cast<int>(block.transposed.weight.shape[2] / config_.upsample_rates[index]);
  return {.rows = rows_,
          .channels = channels,
          .look_back = taps - 1,
          .planes = planes_,
          .snake = packer_.LoadSnake(block.snake)};
}

Builder::Output Builder::UnitInput(const DecoderBlockWeights& block, size_t unit, int channels) {
  const ResidualUnitWeights& weights = block.residuals[unit];
  const auto taps = static_cast<int>(weights.conv1.weight.shape[2]);
  return {.rows = rows_,
          .channels = channels,
          .look_back = (taps - 1) * kDilations[unit],
          .planes = planes_,
          .snake = packer_.LoadSnake(weights.act1)};
}

Source Builder::DecoderBlock(size_t index, Source x) {
  const DecoderBlockWeights& block = weights_.blocks[index];
  const int stride = config_.upsample_rates[index];
  const int channels = PadChannels(block.transposed.weight.shape[1]);
  GemmStep gemm = Gemm(packer_.Transposed(block.transposed.weight, stride), 1, x);
  gemm.args.epilogue.bias = packer_.OptionalVector(block.transposed.bias, stride);
  gemm.args.epilogue.y = residual_;
  gemm.args.epilogue.stride = stride;
  // Begin() ends with this step: many short steps and most of the weights, which need the whole device.
  if (index == 0) early_steps_ = steps_.size() + 1;
  rows_ *= stride;
  for (size_t i = 0; i < block.residuals.size(); ++i) {
    const ResidualUnitWeights& unit = block.residuals[i];
    x = Append(gemm, UnitInput(block, i, channels));
    const bool as_unit = WarpgroupsHaveUnit(unit, kDilations[i], channels);
    const WarpgroupOrder orders[] = {UnitOrder(true), UnitOrder(false)};
    gemm = Gemm(packer_.Convolution(unit.conv1.weight), kDilations[i], x, as_unit ? &orders[0] : nullptr);
    if (as_unit) std::swap(gemm.unit.first, gemm.args.weights.warpgroup);
    gemm.args.epilogue.bias = packer_.OptionalVector(unit.conv1.bias);
    const auto taps = static_cast<int>(unit.conv2.weight.shape[2]);
    x = Append(gemm, {.rows = rows_,
                      .channels = channels,
                      .look_back = taps - 1,
                      .planes = planes_,
                      .snake = packer_.LoadSnake(unit.act2)});
    gemm = Gemm(packer_.Convolution(unit.conv2.weight), 1, x, as_unit ? &orders[1] : nullptr);
    GemmStep& first = std::get<GemmStep>(steps_.back());
    if (as_unit) std::swap(first.unit.second, gemm.args.weights.warpgroup);
    if (HasStagedUnits() && StagedUnitHasKernel(first.args.geometry, gemm.args.geometry)) {
      first.unit = {first.args.weights.data, gemm.args.weights.data};
    }
    gemm.args.epilogue.bias = packer_.OptionalVector(unit.conv2.bias);
    gemm.args.epilogue.residual = residual_;
    if (i + 1 < block.residuals.size()) gemm.args.epilogue.y = residual_;
  }
  return Append(gemm, BlockInput(index + 1, channels));
}

void Builder::LastConvolution(const Source& x) {
  const ConvWeights& conv = weights_.last_conv;
  LastConvArgs args;
  args.taps = static_cast<int>(conv.weight.shape[2]);
  args.x = x;
  args.weights = ByTap(conv.weight, x.channels);
  args.bias = conv.bias.has_value() ? FloatsOf(*conv.bias)[0] : 0.0F;
  Append(args);
}

Status Builder::CheckStructure() const {
  const TransformerConfig& config = config_.transformer;
  const auto unsupported = [](const std::string& what) {
    return Status::Unsupported("The GPU codec cannot run this model: " + what + ". Use device=cpu.");
  };
  if (config.head_dim % 4 != 0) {
    return unsupported("its codec's head_dim is " + std::to_string(config.head_dim) + ", not a multiple of 4");
  }
  if (config.sliding_window < 1 || !AttentionFits(config.sliding_window, config.head_dim)) {
    return unsupported("its codec's sliding_window is " + std::to_string(config.sliding_window) +
                       ", and the window must fit into shared memory");
  }
  if (static_cast<size_t>(PadChannels(config_.latent_dim)) * sizeof(float) > kSharedBytes - 1024) {
    return unsupported("its codec's latent_dim is " + std::to_string(config_.latent_dim));
  }
  for (const TransformerLayerWeights& layer : weights_.transformer.layers) {
    if (layer.q_norm.has_value() || layer.k_norm.has_value()) return unsupported("its codec has q_norm or k_norm");
  }
  if (weights_.codebooks.size() > kMaxGroups || config_.codebook_size > 1 << 20) {
    return unsupported("its codec has " + std::to_string(weights_.codebooks.size()) + " codebooks of " +
                       std::to_string(config_.codebook_size) + " entries");
  }
  if (weights_.upsample.empty() || weights_.blocks.empty()) return unsupported("its codec lacks upsampling stages");
  for (size_t i = 0; i < weights_.upsample.size(); ++i) {
    const int64_t kernel = weights_.upsample[i].transposed.weight.shape[2];
    if (kernel % config_.upsampling_ratios[i] != 0 || (i == 0 && kernel != config_.upsampling_ratios[i])) {
      return unsupported("an upsampling kernel is " + std::to_string(kernel) + " long");
    }
  }
  for (size_t i = 0; i < weights_.blocks.size(); ++i) {
    const int64_t kernel = weights_.blocks[i].transposed.weight.shape[2];
    if (kernel % config_.upsample_rates[i] != 0) {
      return unsupported("a decoder block's kernel is " + std::to_string(kernel) + " long");
    }
    if (weights_.blocks[i].residuals.size() > std::size(kDilations)) {
      return unsupported("a decoder block has more than 3 residual units");
    }
  }
  if (weights_.pre_conv.weight.shape[2] > kMaxTaps || weights_.first_conv.weight.shape[2] > kMaxTaps) {
    return unsupported("a convolution's kernel is too long");
  }
  // Columns are divided by rows per frame in 32 bits.
  const auto rows = static_cast<int64_t>(config_.samples_per_frame);
  if (rows * rows * max_batch_ >= int64_t{1} << 32) {
    return unsupported("batches of " + std::to_string(max_batch_) + " frames of " + std::to_string(rows) +
                       " samples are too large");
  }
  for (const DecoderBlockWeights& block : weights_.blocks) {
    for (const ResidualUnitWeights& unit : block.residuals) {
      if (unit.conv1.weight.shape[2] > kMaxTaps) return unsupported("a convolution's kernel is too long");
    }
  }
  const auto last_channels = static_cast<size_t>(PadChannels(weights_.last_conv.weight.shape[1]));
  const auto last_taps = static_cast<size_t>(weights_.last_conv.weight.shape[2]);
  if ((last_taps * last_channels + (32 + last_taps) * (last_channels + 4)) * sizeof(float) > kSharedBytes) {
    return unsupported("its codec's last convolution has " + std::to_string(last_channels) + " channels");
  }
  return Status::Ok();
}

int Builder::SoundHistory() const {
  // From the last operator to the first: rows of its input that the operators behind it depend on.
  const auto taps = [](const ConvWeights& conv) { return conv.weight.shape[2]; };
  int64_t rows = taps(weights_.last_conv) - 1;
  // Rows in front of a transposed convolution, which makes `stride` rows of one.
  const auto behind_transposed = [&](const ConvWeights& conv, int stride) {
    rows = (rows + stride - 1) / stride + taps(conv) / stride - 1;
  };
  for (size_t i = weights_.blocks.size(); i-- > 0;) {
    const DecoderBlockWeights& block = weights_.blocks[i];
    for (size_t j = 0; j < block.residuals.size(); ++j) {
      rows += (taps(block.residuals[j].conv1) - 1) * kDilations[j] + taps(block.residuals[j].conv2) - 1;
    }
    behind_transposed(block.transposed, config_.upsample_rates[i]);
  }
  rows += taps(weights_.first_conv) - 1;
  for (size_t i = weights_.upsample.size(); i-- > 0;) {
    rows += taps(weights_.upsample[i].depthwise) - 1;
    behind_transposed(weights_.upsample[i].transposed, config_.upsampling_ratios[i]);
  }
  return static_cast<int>(rows);
}

Status Builder::Build() {
  QTTS_RETURN_IF_ERROR(CheckStructure());
  const size_t widest = static_cast<size_t>(WidestRow(config_, weights_)) * static_cast<size_t>(max_batch_);
  hidden_ = packer_.Keep<float>(static_cast<size_t>(PadChannels(config_.transformer.hidden_size)) *
                                static_cast<size_t>(max_batch_));
  residual_ = packer_.Keep<float>(widest);
  operands_.resize(device_.warpgroups || HasStagedUnits() ? 3 : 2);
  for (void*& operand : operands_) operand = packer_.Keep<float>(widest);  // as F32 or two F16 planes
  Source x = PreTransformer(Dequantization());
  latent_steps_ = steps_.size();
  for (size_t i = 0; i < weights_.upsample.size(); ++i) x = UpsampleStage(i, x);
  x = FirstConvolution(x);
  for (size_t i = 0; i < weights_.blocks.size(); ++i) x = DecoderBlock(i, x);
  LastConvolution(x);

  if (!packer_.failed()) packer_.Check(AwaitStream(nullptr));
  return packer_.status();
}

}  // namespace qtts::cuda::codec
