// SPDX-License-Identifier: LGPL-2.1-or-later
#include "codec/codec.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "codec/arena.h"
#include "codec/kernels.h"
#include "device_memory.h"

namespace qtts::cuda {
namespace codec {
namespace {

constexpr float kLayerNormEps = 1e-6F;
constexpr float kSnakeEps = 1e-9F;
constexpr int kDilations[] = {1, 3, 9};  // of a block's residual units
// Of what a state holds.
constexpr size_t kStateAlignment = 256;
// Slots whose states come together.
constexpr int kSlotsTogether = 8;
// What a block may have of shared memory without asking.
constexpr size_t kSharedBytes = 48 << 10;

int PadChannels(int64_t n) { return static_cast<int>((n + kChannelBlock - 1) / kChannelBlock * kChannelBlock); }

Status CudaError(cudaError_t error, const std::string& doing) {
  const std::string message = "The codec failed on the GPU while " + doing + ": " + cudaGetErrorString(error) + ".";
  if (error == cudaErrorMemoryAllocation) {
    return Status::ResourceExhausted(message + " Use a smaller model, fewer streams, or device=cpu.");
  }
  return Status::DeviceUnavailable(message);
}

float HalfToFloat(uint16_t bits) {
  const uint32_t sign = (bits & 0x8000U) << 16;
  const uint32_t exponent = bits >> 10 & 31U;
  const uint32_t mantissa = bits & 1023U;
  if (exponent == 0) {
    const float v = std::ldexp(static_cast<float>(mantissa), -24);
    return sign != 0 ? -v : v;
  }
  const uint32_t word = sign | (exponent == 31 ? 255U : exponent + 112) << 23 | mantissa << 13;
  float v = 0;
  std::memcpy(&v, &word, sizeof v);
  return v;
}

std::vector<float> FloatsOf(const TensorView& tensor) {
  std::vector<float> floats(static_cast<size_t>(tensor.elements()));
  if (tensor.dtype == DType::kF32) {
    std::memcpy(floats.data(), tensor.data, tensor.bytes());
    return floats;
  }
  const auto* const bits = static_cast<const uint16_t*>(tensor.data);
  for (size_t i = 0; i < floats.size(); ++i) {
    if (tensor.dtype == DType::kF16) {
      floats[i] = HalfToFloat(bits[i]);
    } else {
      const uint32_t word = static_cast<uint32_t>(bits[i]) << 16;
      std::memcpy(&floats[i], &word, sizeof word);
    }
  }
  return floats;
}

// A matrix product and its input's form.
struct GemmStep {
  GemmArgs args;
  Planes x_planes = Planes::kF32;
};

using Step = std::variant<DequantizeArgs, GemmStep, AttentionArgs, DepthwiseArgs, LastConvArgs>;

// A weight matrix on the device, [rows][taps][channels], rows and channels filled up with zeros.
struct Dense {
  float* data = nullptr;
  int rows = 0;
  int taps = 0;
  int channels = 0;

  int64_t width() const { return static_cast<int64_t>(taps) * channels; }
};

struct Form {
  Planes x = Planes::kF32;
  bool split_weights = false;
};

Form FormOf(const CodecArithmetic& arithmetic) {
  // Split weights alone would gain nothing that split inputs do not: the kernels have no such form.
  const bool split = arithmetic.split_inputs || arithmetic.split_weights;
  return {split ? Planes::kTwoHalves : Planes::kHalf, arithmetic.split_weights};
}

// A SnakeBeta's parameters on the device.
struct Snake {
  const float* a = nullptr;
  const float* inverse_b = nullptr;
};

// Puts the weights into shape and writes down the steps of a frame. After the first error all further
// operations do nothing.
class Builder {
 public:
  Builder(const CodecConfig& config, const CodecWeights& weights, const DeviceTraits& device, Form early, Form late,
          int max_slots, int max_batch, Arena* memory, std::vector<Step>* steps)
      : config_(config),
        weights_(weights),
        device_(device),
        early_(early),
        late_(late),
        max_slots_(max_slots),
        max_batch_(max_batch),
        memory_(*memory),
        steps_(*steps) {}

  Status Build();
  // Bytes of a slot's state.
  size_t state_bytes() const { return state_bytes_; }
  // Steps up to the pre-transformer's last.
  size_t latent_steps() const { return latent_steps_; }
  // Steps of Codec::Begin().
  size_t early_steps() const { return early_steps_; }
  // Frames before one that its samples depend on, besides those that the pre-transformer sees.
  int SoundHistory() const;

 private:
  bool failed() const { return !status_.ok(); }
  void Check(cudaError_t error) {
    if (status_.ok() && error != cudaSuccess) status_ = CudaError(error, "loading its weights");
  }

  // Device memory: for good, or until the next product is made. Zeroed. Null after an error.
  template <typename T>
  T* Allocate(Arena* arena, size_t count) {
    if (failed()) return nullptr;
    T* const data = static_cast<T*>(arena->Allocate(count * sizeof(T)));
    if (data == nullptr) {
      Check(arena->error());
    } else {
      Check(cudaMemsetAsync(data, 0, count * sizeof(T), nullptr));
    }
    return data;
  }
  template <typename T>
  T* Keep(size_t count) {
    return Allocate<T>(&memory_, count);
  }
  // A place in every slot's state.
  int64_t Remember(size_t bytes) {
    const size_t at = state_bytes_;
    state_bytes_ += (bytes + kStateAlignment - 1) / kStateAlignment * kStateAlignment;
    return static_cast<int64_t>(at);
  }
  float* Stage(size_t count) { return Allocate<float>(&staging_, count); }

  // The tensor as F32 in staging memory.
  const float* Upload(const TensorView& tensor);
  // `values`, repeated `times`, each time filled up with zeros to whole channel blocks; kept.
  const float* Vector(const std::vector<float>& values, int times = 1);
  const float* OptionalVector(const std::optional<TensorView>& tensor, int times = 1) {
    return tensor.has_value() ? Vector(FloatsOf(*tensor), times) : nullptr;
  }
  Snake LoadSnake(const SnakeWeights& weights);

  Dense NewDense(int64_t rows, int64_t taps, int64_t channels);
  // dense rows from `first` = a linear layer's, its inputs scaled by `column_scale` (staged).
  void FillLinear(const Dense& dense, const TensorView& weight, const float* column_scale, int first = 0, int run = 0,
                  int run_stride = 0);
  Dense Linear(const TensorView& weight, const float* column_scale = nullptr);
  Dense Convolution(const TensorView& weight);
  Dense Transposed(const TensorView& weight, int stride);

  // Adds a product; the caller completes its epilogue.
  GemmArgs& AddGemm(const Dense& dense, int dilation, const Source& x, Form form);
  // Directs the last step's output to the next operator, which looks back `look_back` rows and takes its input
  // in `planes`. `rows` and `channels` (padded) as the next operator sees them.
  Source Feed(int rows, int channels, int look_back, Planes planes, const Snake& snake = {}, float* to = nullptr);
  static Sink* SinkOf(Step* step);

  void Dequantization();
  void PreTransformer();
  void Layer(const TransformerLayerWeights& layer, const float* rotations);
  void UpsampleStage(size_t index);
  void DecoderBlock(size_t index);
  // A product whose input is to be divided by the hidden stream's root mean square.
  void NormalizeInput(GemmArgs* gemm) const;
  int64_t WidestRow() const;
  Status CheckStructure() const;
  // What the decoder reads after stage `index` of upsampling (or none of it).
  Source FeedAfterUpsample(size_t next);
  Dense OutputProjection();

  const CodecConfig& config_;
  const CodecWeights& weights_;
  const DeviceTraits& device_;
  const Form early_, late_;
  const int max_slots_, max_batch_;
  Arena& memory_;
  Arena staging_;
  std::vector<Step>& steps_;
  Status status_;

  float* hidden_ = nullptr;    // F32 stream of the pre-transformer
  float* residual_ = nullptr;  // F32 stream of the stage at hand, after it
  void* operands_[2] = {};     // by turns: what the next operator reads
  int next_operand_ = 0;
  size_t state_bytes_ = 0;
  size_t latent_steps_ = 0;
  size_t early_steps_ = 0;
  Source x_;      // the next operator's input
  int rows_ = 1;  // per frame, at this point
};

Sink* Builder::SinkOf(Step* step) {
  if (auto* s = std::get_if<DequantizeArgs>(step)) return &s->out;
  if (auto* s = std::get_if<GemmStep>(step)) return &s->args.out;
  if (auto* s = std::get_if<AttentionArgs>(step)) return &s->out;
  if (auto* s = std::get_if<DepthwiseArgs>(step)) return &s->out;
  return nullptr;
}

const float* Builder::Upload(const TensorView& tensor) {
  const auto count = static_cast<size_t>(tensor.elements());
  float* const floats = Stage(count);
  if (tensor.dtype == DType::kF32) {
    if (!failed()) Check(cudaMemcpyAsync(floats, tensor.data, tensor.bytes(), cudaMemcpyHostToDevice, nullptr));
    return floats;
  }
  auto* const bits = reinterpret_cast<uint16_t*>(Stage((count + 1) / 2));
  if (!failed()) Check(cudaMemcpyAsync(bits, tensor.data, tensor.bytes(), cudaMemcpyHostToDevice, nullptr));
  if (!failed()) Check(Widen(bits, tensor.dtype == DType::kBF16, tensor.elements(), floats, nullptr));
  return floats;
}

const float* Builder::Vector(const std::vector<float>& values, int times) {
  const auto padded = static_cast<size_t>(PadChannels(static_cast<int64_t>(values.size())));
  std::vector<float> all(padded * static_cast<size_t>(times));
  for (size_t i = 0; i < static_cast<size_t>(times); ++i) {
    std::copy(values.begin(), values.end(), all.begin() + static_cast<std::ptrdiff_t>(i * padded));
  }
  float* const data = Keep<float>(all.size());
  // Not asynchronous: `all` dies here.
  if (!failed()) Check(cudaMemcpy(data, all.data(), all.size() * sizeof(float), cudaMemcpyHostToDevice));
  return data;
}

Snake Builder::LoadSnake(const SnakeWeights& weights) {
  std::vector<float> a = FloatsOf(weights.alpha);
  std::vector<float> b = FloatsOf(weights.beta);
  for (float& alpha : a) alpha = std::exp(alpha);
  for (float& beta : b) beta = 1.0F / (std::exp(beta) + kSnakeEps);
  return {Vector(a), Vector(b)};
}

Dense Builder::NewDense(int64_t rows, int64_t taps, int64_t channels) {
  Dense dense{nullptr, PadChannels(rows), static_cast<int>(taps), PadChannels(channels)};
  dense.data = Stage(static_cast<size_t>(dense.rows) * static_cast<size_t>(dense.width()));
  return dense;
}

void Builder::FillLinear(const Dense& dense, const TensorView& weight, const float* column_scale, int first, int run,
                         int run_stride) {
  GatherArgs args;
  args.source = Upload(weight);
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

Dense Builder::Linear(const TensorView& weight, const float* column_scale) {
  const Dense dense = NewDense(weight.shape[0], 1, weight.shape[1]);
  FillLinear(dense, weight, column_scale);
  return dense;
}

Dense Builder::Convolution(const TensorView& weight) {
  const Dense dense = NewDense(weight.shape[0], weight.shape[2], weight.shape[1]);
  GatherArgs args;
  args.source = Upload(weight);
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
Dense Builder::Transposed(const TensorView& weight, int stride) {
  const int64_t out = weight.shape[1];
  const int64_t kernel = weight.shape[2];
  const int64_t taps = kernel / stride;
  const Dense dense = NewDense(static_cast<int64_t>(stride) * PadChannels(out), taps, weight.shape[0]);
  GatherArgs args;
  args.source = Upload(weight);
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

GemmArgs& Builder::AddGemm(const Dense& dense, int dilation, const Source& x, Form form) {
  GemmStep step;
  GemmArgs& args = step.args;
  step.x_planes = form.x;
  args.x = x;
  args.taps = dense.taps;
  args.dilation = dilation;
  args.tiles = dense.rows / kTileRows;
  args.chunks = static_cast<int>(dense.width() / kChannelBlock);
  args.columns = x.rows;
  args.weight_planes = form.split_weights ? 2 : 1;
  const int blocks = dense.channels / kChannelBlock;
  args.by_chunks_per_tap = Divisor(blocks);
  const GemmCut cut = ChooseCut(args, early_steps_ != 0 && form.x != Planes::kF32, device_);
  args.groups = cut.groups;
  args.group_blocks = blocks / cut.groups;
  args.segments = cut.segments;
  args.by_segments = Divisor(args.segments);
  const size_t elements = static_cast<size_t>(dense.rows) * static_cast<size_t>(dense.width());
  if (form.x == Planes::kF32) {
    auto* const transposed = Keep<float>(elements);
    args.weights = transposed;
    if (!failed()) Check(PackF32(dense.data, args.tiles, args.chunks, transposed, nullptr));
  } else {
    auto* const packed = Keep<uint16_t>(elements * static_cast<size_t>(args.weight_planes));
    auto* const scale = Keep<float>(static_cast<size_t>(dense.rows));
    args.weights = packed;
    args.weight_scale = scale;
    if (!failed()) {
      Check(
          PackHalf(dense.data, args.tiles, args.taps, blocks, args.groups, args.weight_planes, packed, scale, nullptr));
    }
  }
  staging_.Reuse();
  steps_.emplace_back(step);
  return std::get<GemmStep>(steps_.back()).args;
}

Source Builder::Feed(int rows, int channels, int look_back, Planes planes, const Snake& snake, float* to) {
  Source source;
  Sink& sink = *SinkOf(&steps_.back());
  sink.planes = planes;
  sink.rows = source.rows = rows;
  sink.channels = source.channels = channels;
  source.by_rows = Divisor(rows);
  if (auto* gemm = std::get_if<GemmStep>(&steps_.back())) gemm->args.by_out_channels = Divisor(channels);
  sink.snake_a = snake.a;
  sink.snake_inverse_b = snake.inverse_b;
  if (to != nullptr) {
    sink.data = to;
  } else {
    sink.data = operands_[next_operand_];
    next_operand_ ^= 1;
  }
  source.data = sink.data;
  sink.plane = source.plane = static_cast<int64_t>(max_batch_) * rows * channels;
  if (look_back > 0) {
    sink.keep = source.keep = std::min(rows, look_back);
    sink.ring = source.ring = (look_back + rows - 1) / rows + 1;
    const size_t elements =
        static_cast<size_t>(sink.ring) * static_cast<size_t>(sink.keep) * static_cast<size_t>(channels);
    sink.history_plane = source.history_plane = static_cast<int64_t>(elements);
    sink.history = source.history = Remember(elements * (planes == Planes::kHalf ? 2 : 4));
  }
  return source;
}

void Builder::NormalizeInput(GemmArgs* gemm) const {
  gemm->rms_input = hidden_;
  gemm->rms_width = config_.transformer.hidden_size;
  gemm->rms_eps = config_.transformer.rms_norm_eps;
}

void Builder::Dequantization() {
  const int width = config_.codebook_dim;
  const int padded = PadChannels(width);
  const int half = static_cast<int>(weights_.semantic_projection.shape[1]);
  DequantizeArgs args;
  args.max_slots = max_slots_;
  args.groups = static_cast<int>(weights_.codebooks.size());
  args.codebook_size = config_.codebook_size;
  const size_t table = static_cast<size_t>(args.codebook_size) * static_cast<size_t>(padded);
  auto* const tables = Keep<float>(table * static_cast<size_t>(args.groups));
  args.tables = tables;
  args.slot_states = Keep<std::byte*>(static_cast<size_t>(max_slots_));
  args.next_frame = Keep<int32_t>(static_cast<size_t>(max_slots_));
  args.states = Keep<std::byte*>(static_cast<size_t>(max_batch_));
  args.frames = Keep<int32_t>(static_cast<size_t>(max_batch_));
  // Each codeword through its group's projection, once.
  for (int g = 0; g < args.groups; ++g) {
    const CodebookWeights& codebook = weights_.codebooks[static_cast<size_t>(g)];
    const bool semantic = g < config_.num_semantic_quantizers;
    auto* const codewords = const_cast<float*>(Upload(codebook.embedding_sum));  // staging memory is ours
    const float* const usage = Upload(codebook.cluster_usage);
    ProductArgs product;
    product.a = codewords;
    product.a_row = half;
    product.a_column = 1;
    product.b = Upload(semantic ? weights_.semantic_projection : weights_.acoustic_projection);
    product.b_row = 1;
    product.b_column = half;
    product.c = tables + static_cast<size_t>(g) * table;
    product.c_row = padded;
    product.rows = args.codebook_size;
    product.inner = half;
    product.columns = width;
    if (!failed()) Check(DivideByUsage(codewords, usage, args.codebook_size, half, nullptr));
    if (!failed()) Check(Product(product, nullptr));
    staging_.Reuse();
  }
  steps_.emplace_back(args);
}

// pre_conv and the input projection after it are one convolution, since nothing lies between them.
void Builder::PreTransformer() {
  const TransformerConfig& config = config_.transformer;
  const int hidden = config.hidden_size;
  const Dense conv = Convolution(weights_.pre_conv.weight);
  const Dense dense = NewDense(hidden, conv.taps, config_.codebook_dim);
  const float* const projection = Upload(weights_.input_projection.weight);
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
  if (!failed()) Check(Product(product, nullptr));

  float* const bias = Keep<float>(static_cast<size_t>(dense.rows));
  if (!failed() && weights_.input_projection.bias.has_value()) {
    const std::vector<float> own = FloatsOf(*weights_.input_projection.bias);
    Check(cudaMemcpy(bias, own.data(), own.size() * sizeof(float), cudaMemcpyHostToDevice));
  }
  if (weights_.pre_conv.bias.has_value()) {
    product.b = Upload(*weights_.pre_conv.bias);
    product.b_row = 1;
    product.c = bias;
    product.c_row = 1;
    product.columns = 1;
    product.accumulate = true;
    if (!failed()) Check(Product(product, nullptr));
  }

  x_ = Feed(1, dense.channels, dense.taps - 1, early_.x);
  GemmArgs& gemm = AddGemm(dense, 1, x_, early_);
  gemm.bias = bias;
  gemm.y = hidden_;
  x_ = Feed(1, dense.rows, 0, early_.x);

  std::vector<float> rotations;
  for (int distance = 0; distance < config.sliding_window; ++distance) {
    for (int i = 0; i < config.head_dim / 2; ++i) {
      const double angle = distance * std::pow(static_cast<double>(config.rope_theta), -2.0 * i / config.head_dim);
      rotations.push_back(static_cast<float>(std::cos(angle)));
      rotations.push_back(static_cast<float>(std::sin(angle)));
    }
  }
  const float* const turns = Vector(rotations);
  for (const TransformerLayerWeights& layer : weights_.transformer.layers) Layer(layer, turns);
}

void Builder::Layer(const TransformerLayerWeights& layer, const float* rotations) {
  const TransformerConfig& config = config_.transformer;
  const int q_width = config.q_width();
  const int kv_width = config.kv_width();
  const Dense qkv = NewDense(q_width + 2 * kv_width, 1, config.hidden_size);
  const float* norm = Upload(layer.input_norm);
  FillLinear(qkv, layer.q.weight, norm);
  FillLinear(qkv, layer.k.weight, norm, q_width);
  FillLinear(qkv, layer.v.weight, norm, q_width + kv_width);
  AttentionArgs attention;
  {
    GemmArgs& gemm = AddGemm(qkv, 1, x_, early_);
    NormalizeInput(&gemm);
    if (layer.q.bias.has_value() && layer.k.bias.has_value() && layer.v.bias.has_value()) {
      std::vector<float> bias = FloatsOf(*layer.q.bias);
      for (const TensorView& more : {*layer.k.bias, *layer.v.bias}) {
        const std::vector<float> floats = FloatsOf(more);
        bias.insert(bias.end(), floats.begin(), floats.end());
      }
      gemm.bias = Vector(bias);
    }
    // Free until attention fills it: the product's own input is the other one.
    gemm.y = static_cast<float*>(operands_[next_operand_]);
    next_operand_ ^= 1;
    attention.qkv = gemm.y;
  }
  attention.stride = qkv.rows;
  attention.heads = config.num_heads;
  attention.kv_heads = config.num_kv_heads;
  attention.head_dim = config.head_dim;
  attention.window = config.sliding_window;
  const size_t cache = static_cast<size_t>(config.sliding_window) * static_cast<size_t>(kv_width) * sizeof(float);
  attention.keys = Remember(cache);
  attention.values = Remember(cache);
  attention.rotations = reinterpret_cast<const float2*>(rotations);
  steps_.emplace_back(attention);
  x_ = Feed(1, PadChannels(q_width), 0, early_.x);

  {
    GemmArgs& gemm = AddGemm(Linear(layer.o.weight), 1, x_, early_);
    gemm.bias = OptionalVector(layer.o.bias);
    gemm.scale = OptionalVector(layer.attention_scale);
    gemm.residual = gemm.y = hidden_;
  }
  const int hidden = PadChannels(config.hidden_size);
  x_ = Feed(1, hidden, 0, early_.x);

  const int half_tile = kTileRows / 2;
  const int inner = PadChannels(config.intermediate_size);
  const Dense gated = NewDense(2 * static_cast<int64_t>(inner), 1, config.hidden_size);
  norm = Upload(layer.post_norm);
  FillLinear(gated, layer.gate, norm, 0, half_tile, kTileRows);
  FillLinear(gated, layer.up, norm, half_tile, half_tile, kTileRows);
  {
    GemmArgs& gemm = AddGemm(gated, 1, x_, early_);
    NormalizeInput(&gemm);
    gemm.activation = Activation::kSwiGlu;
  }
  x_ = Feed(1, inner, 0, early_.x);
  {
    GemmArgs& gemm = AddGemm(Linear(layer.down), 1, x_, early_);
    gemm.scale = OptionalVector(layer.mlp_scale);
    gemm.residual = gemm.y = hidden_;
  }
  x_ = Feed(1, hidden, 0, early_.x);
}

Source Builder::FeedAfterUpsample(size_t next) {
  const int channels = PadChannels(config_.latent_dim);
  if (next < weights_.upsample.size()) {
    const ConvWeights& conv = weights_.upsample[next].transposed;
    const auto taps = static_cast<int>(conv.weight.shape[2] / config_.upsampling_ratios[next]);
    return Feed(rows_, channels, taps - 1, early_.x);
  }
  return Feed(rows_, channels, static_cast<int>(weights_.first_conv.weight.shape[2]) - 1, early_.x);
}

// The final norm's weights are in it.
Dense Builder::OutputProjection() {
  return Linear(weights_.output_projection.weight, Upload(weights_.transformer.norm));
}

void Builder::UpsampleStage(size_t index) {
  const ConvNeXtWeights& stage = weights_.upsample[index];
  const int stride = config_.upsampling_ratios[index];
  const int channels = PadChannels(config_.latent_dim);
  if (index == 0) {
    // The output projection and this are one product, since nothing lies between them: the kernel is as long as the
    // stride (checked), so each output sees one input.
    const Dense transposed = Transposed(stage.transposed.weight, stride);
    const Dense projection = OutputProjection();
    const Dense dense = NewDense(transposed.rows, 1, config_.transformer.hidden_size);
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
    if (!failed()) Check(Product(product, nullptr));
    const float* bias = OptionalVector(stage.transposed.bias, stride);
    if (weights_.output_projection.bias.has_value()) {
      float* const sum = Keep<float>(static_cast<size_t>(transposed.rows));
      if (!failed() && bias != nullptr) {
        Check(cudaMemcpyAsync(sum, bias, static_cast<size_t>(transposed.rows) * sizeof(float), cudaMemcpyDeviceToDevice,
                              nullptr));
      }
      product.b = Vector(FloatsOf(*weights_.output_projection.bias));
      product.b_row = 1;
      product.c = sum;
      product.c_row = 1;
      product.columns = 1;
      product.accumulate = true;
      if (!failed()) Check(Product(product, nullptr));
      bias = sum;
    }
    GemmArgs& gemm = AddGemm(dense, 1, x_, early_);
    NormalizeInput(&gemm);
    gemm.bias = bias;
    gemm.stride = stride;
  } else {
    GemmArgs& gemm = AddGemm(Transposed(stage.transposed.weight, stride), 1, x_, early_);
    gemm.bias = OptionalVector(stage.transposed.bias, stride);
    gemm.stride = stride;
  }
  rows_ *= stride;

  DepthwiseArgs depthwise;
  const TensorView& taps = stage.depthwise.weight;
  depthwise.taps = static_cast<int>(taps.shape[2]);
  depthwise.x = Feed(rows_, channels, depthwise.taps - 1, Planes::kF32, {}, residual_);
  depthwise.width = config_.latent_dim;
  std::vector<float> by_tap(static_cast<size_t>(depthwise.taps) * static_cast<size_t>(channels));
  const std::vector<float> by_channel = FloatsOf(taps);
  for (size_t i = 0; i < by_channel.size(); ++i) {
    const size_t kernel = static_cast<size_t>(depthwise.taps);
    by_tap[i % kernel * static_cast<size_t>(channels) + i / kernel] = by_channel[i];
  }
  depthwise.weights = Vector(by_tap);
  depthwise.bias = stage.depthwise.bias.has_value() ? Vector(FloatsOf(*stage.depthwise.bias))
                                                    : Keep<float>(static_cast<size_t>(channels));
  depthwise.norm_weight = Vector(FloatsOf(stage.norm_weight));
  depthwise.norm_bias = Vector(FloatsOf(stage.norm_bias));
  depthwise.eps = kLayerNormEps;
  steps_.emplace_back(depthwise);
  x_ = Feed(rows_, channels, 0, early_.x);

  {
    GemmArgs& gemm = AddGemm(Linear(stage.expand.weight), 1, x_, early_);
    gemm.bias = OptionalVector(stage.expand.bias);
    gemm.activation = Activation::kGelu;
  }
  x_ = Feed(rows_, PadChannels(stage.expand.weight.shape[0]), 0, early_.x);
  {
    GemmArgs& gemm = AddGemm(Linear(stage.contract.weight), 1, x_, early_);
    gemm.bias = OptionalVector(stage.contract.bias);
    gemm.scale = Vector(FloatsOf(stage.gamma));
    gemm.residual = residual_;
  }
  x_ = FeedAfterUpsample(index + 1);
}

void Builder::DecoderBlock(size_t index) {
  const DecoderBlockWeights& block = weights_.blocks[index];
  const int stride = config_.upsample_rates[index];
  const int channels = PadChannels(block.transposed.weight.shape[1]);
  {
    GemmArgs& gemm = AddGemm(Transposed(block.transposed.weight, stride), 1, x_, late_);
    gemm.bias = OptionalVector(block.transposed.bias, stride);
    gemm.y = residual_;
    gemm.stride = stride;
  }
  // Up to here it is many short steps and most of the weights: for that the whole device is needed.
  if (index == 0) early_steps_ = steps_.size();
  rows_ *= stride;
  for (size_t i = 0; i < block.residuals.size(); ++i) {
    const ResidualUnitWeights& unit = block.residuals[i];
    const Dense conv1 = Convolution(unit.conv1.weight);
    x_ = Feed(rows_, channels, (conv1.taps - 1) * kDilations[i], late_.x, LoadSnake(unit.act1));
    {
      GemmArgs& gemm = AddGemm(conv1, kDilations[i], x_, late_);
      gemm.bias = OptionalVector(unit.conv1.bias);
    }
    const Dense conv2 = Convolution(unit.conv2.weight);
    x_ = Feed(rows_, channels, (conv2.taps - 1), late_.x, LoadSnake(unit.act2));
    GemmArgs& gemm = AddGemm(conv2, 1, x_, late_);
    gemm.bias = OptionalVector(unit.conv2.bias);
    gemm.residual = residual_;
    if (i + 1 < block.residuals.size()) gemm.y = residual_;
  }
  if (index + 1 < weights_.blocks.size()) {
    const TensorView& next = weights_.blocks[index + 1].transposed.weight;
    const auto taps = static_cast<int>(next.shape[2] / config_.upsample_rates[index + 1]);
    x_ = Feed(rows_, channels, taps - 1, late_.x, LoadSnake(weights_.blocks[index + 1].snake));
  }
}

int64_t Builder::WidestRow() const {
  const TransformerConfig& config = config_.transformer;
  int64_t widest = PadChannels(config_.codebook_dim);
  const auto see = [&](int64_t rows, int64_t channels) { widest = std::max(widest, rows * PadChannels(channels)); };
  see(1, config.hidden_size);
  see(1, config.q_width() + 2 * config.kv_width());
  see(1, config.intermediate_size);
  see(1, config_.latent_dim);
  int64_t rows = 1;
  for (size_t i = 0; i < weights_.upsample.size(); ++i) {
    rows *= config_.upsampling_ratios[i];
    see(rows, weights_.upsample[i].expand.weight.shape[0]);
    see(rows, config_.latent_dim);
  }
  see(rows, weights_.first_conv.weight.shape[0]);
  for (size_t i = 0; i < weights_.blocks.size(); ++i) {
    rows *= config_.upsample_rates[i];
    see(rows, weights_.blocks[i].transposed.weight.shape[1]);
  }
  return widest;
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
  if (weights_.codebooks.size() > kMostGroups || config_.codebook_size > 1 << 20) {
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
  if (weights_.pre_conv.weight.shape[2] > kMostTaps || weights_.first_conv.weight.shape[2] > kMostTaps) {
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
      if (unit.conv1.weight.shape[2] > kMostTaps) return unsupported("a convolution's kernel is too long");
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
  // From the last operator to the first: rows of its input that what follows depends on.
  const auto taps = [](const ConvWeights& conv) { return conv.weight.shape[2]; };
  int64_t rows = taps(weights_.last_conv) - 1;
  // Of what makes `stride` rows of one.
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
  const size_t widest = static_cast<size_t>(WidestRow()) * static_cast<size_t>(max_batch_);
  hidden_ =
      Keep<float>(static_cast<size_t>(PadChannels(config_.transformer.hidden_size)) * static_cast<size_t>(max_batch_));
  residual_ = Keep<float>(widest);
  for (void*& operand : operands_) operand = Keep<float>(widest);  // as F32 or two F16 planes
  Dequantization();
  PreTransformer();
  latent_steps_ = steps_.size();
  for (size_t i = 0; i < weights_.upsample.size(); ++i) UpsampleStage(i);
  const int first = PadChannels(weights_.first_conv.weight.shape[0]);
  {
    GemmArgs& gemm = AddGemm(Convolution(weights_.first_conv.weight), 1, x_, early_);
    gemm.bias = OptionalVector(weights_.first_conv.bias);
  }
  const auto taps = static_cast<int>(weights_.blocks[0].transposed.weight.shape[2] / config_.upsample_rates[0]);
  x_ = Feed(rows_, first, taps - 1, late_.x, LoadSnake(weights_.blocks[0].snake));
  for (size_t i = 0; i < weights_.blocks.size(); ++i) DecoderBlock(i);

  const TensorView& last = weights_.last_conv.weight;
  LastConvArgs args;
  args.taps = static_cast<int>(last.shape[2]);
  args.x = Feed(rows_, PadChannels(last.shape[1]), args.taps - 1, Planes::kF32, LoadSnake(weights_.last_snake));
  std::vector<float> by_tap(static_cast<size_t>(args.taps) * static_cast<size_t>(args.x.channels));
  const std::vector<float> by_channel = FloatsOf(last);
  const auto kernel = static_cast<size_t>(args.taps);
  for (size_t i = 0; i < by_channel.size(); ++i) {
    by_tap[i % kernel * static_cast<size_t>(args.x.channels) + i / kernel] = by_channel[i];
  }
  args.weights = Vector(by_tap);
  args.bias = weights_.last_conv.bias.has_value() ? FloatsOf(*weights_.last_conv.bias)[0] : 0.0F;
  steps_.emplace_back(args);

  if (!failed()) Check(cudaDeviceSynchronize());
  return status_;
}

}  // namespace
}  // namespace codec

struct Codec::Impl {
  codec::Arena memory;
  std::vector<codec::Step> steps;
  codec::DeviceTraits device;
  int groups = 0;
  int samples = 0;
  int max_slots = 0;
  int max_batch = 0;
  codec::DequantizeArgs arrays;  // whose device arrays are filled here
  size_t state_bytes = 0;
  size_t latent_steps = 0;
  size_t early_steps = 0;
  int sound_history = 0;
  std::vector<DeviceMemory> states;     // of kSlotsTogether slots each
  std::vector<std::byte*> slot_states;  // [slot] as on the device

  // Sees to it that a slot has a state.
  Status Provide(int slot, cudaStream_t stream);
  Status CheckSlot(int slot) const;
  // Enqueues some steps of a frame for n rows, which have what they need of the rest.
  struct Call {
    int n = 0;
    const int32_t* slots = nullptr;
    const int32_t* codes = nullptr;
    float* pcm = nullptr;
    CodecRoom room = CodecRoom::kDevice;
  };
  Status Run(std::span<const codec::Step> some, const Call& call, cudaStream_t stream) const;

  static Result<std::unique_ptr<Impl>> Create(const CodecConfig& config, const CodecWeights& weights, codec::Form early,
                                              codec::Form late, int max_slots, int max_batch);
};

Result<std::unique_ptr<Codec::Impl>> Codec::Impl::Create(const CodecConfig& config, const CodecWeights& weights,
                                                         codec::Form early, codec::Form late, int max_slots,
                                                         int max_batch) {
  if (max_slots < 1 || max_batch < 1) {
    return Status::InvalidArgument("A codec needs at least one slot and one batch row.");
  }
  auto impl = std::make_unique<Impl>();
  int device = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) error = codec::PrepareKernels(device, &impl->device);
  if (error != cudaSuccess) return codec::CudaError(error, "being set up");
  impl->groups = static_cast<int>(weights.codebooks.size());
  impl->samples = config.samples_per_frame;
  impl->max_slots = max_slots;
  impl->max_batch = max_batch;
  codec::Builder builder(config, weights, impl->device, early, late, max_slots, max_batch, &impl->memory, &impl->steps);
  QTTS_RETURN_IF_ERROR(builder.Build());
  impl->arrays = std::get<codec::DequantizeArgs>(impl->steps.front());
  impl->state_bytes = builder.state_bytes();
  impl->latent_steps = builder.latent_steps();
  impl->early_steps = builder.early_steps();
  impl->sound_history = builder.SoundHistory();
  impl->slot_states.resize(static_cast<size_t>(max_slots));
  return impl;
}

Status Codec::Impl::Provide(int slot, cudaStream_t stream) {
  if (slot_states[static_cast<size_t>(slot)] != nullptr) return Status::Ok();
  const int first = slot / codec::kSlotsTogether * codec::kSlotsTogether;
  const int count = std::min(codec::kSlotsTogether, max_slots - first);
  const size_t bytes = state_bytes * static_cast<size_t>(count);
  QTTS_ASSIGN_OR_RETURN(DeviceMemory block, DeviceMemory::Allocate(bytes));
  cudaError_t error = cudaMemsetAsync(block.data(), 0, bytes, stream);
  std::byte** const entries = slot_states.data() + first;
  for (int i = 0; i < count; ++i) entries[i] = block.as<std::byte>() + static_cast<size_t>(i) * state_bytes;
  if (error == cudaSuccess) {
    error = cudaMemcpyAsync(const_cast<std::byte**>(arrays.slot_states) + first, entries,
                            static_cast<size_t>(count) * sizeof(std::byte*), cudaMemcpyHostToDevice, stream);
  }
  if (error != cudaSuccess) {
    std::fill_n(entries, count, nullptr);
    return codec::CudaError(error, "making room for a stream");
  }
  states.push_back(std::move(block));
  return Status::Ok();
}

CodecArithmetic CodecArithmetic::Early() { return {.split_inputs = true, .split_weights = true}; }
CodecArithmetic CodecArithmetic::Late() { return {.split_inputs = true, .split_weights = true}; }

Codec::Codec(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Codec::~Codec() = default;

Result<std::unique_ptr<Codec>> Codec::Create(const CodecConfig& config, const CodecWeights& weights,
                                             CodecPrecision precision, int max_slots, int max_batch) {
  if (precision == CodecPrecision::kFast) {
    return CreateWith(config, weights, CodecArithmetic::Early(), CodecArithmetic::Late(), max_slots, max_batch);
  }
  const codec::Form exact;
  QTTS_ASSIGN_OR_RETURN(auto impl, Impl::Create(config, weights, exact, exact, max_slots, max_batch));
  return std::unique_ptr<Codec>(new Codec(std::move(impl)));
}

Result<std::unique_ptr<Codec>> Codec::CreateWith(const CodecConfig& config, const CodecWeights& weights,
                                                 const CodecArithmetic& early, const CodecArithmetic& late,
                                                 int max_slots, int max_batch) {
  QTTS_ASSIGN_OR_RETURN(auto impl,
                        Impl::Create(config, weights, codec::FormOf(early), codec::FormOf(late), max_slots, max_batch));
  return std::unique_ptr<Codec>(new Codec(std::move(impl)));
}

int Codec::code_groups() const { return impl_->groups; }
int Codec::samples_per_frame() const { return impl_->samples; }
size_t Codec::device_bytes() const {
  size_t bytes = impl_->memory.total();
  for (const DeviceMemory& block : impl_->states) bytes += block.bytes();
  return bytes;
}

Status Codec::Impl::CheckSlot(int slot) const {
  if (slot >= 0 && slot < max_slots) return Status::Ok();
  return Status::InvalidArgument("The codec has no slot " + std::to_string(slot) + ".");
}

Status Codec::Reset(int slot, cudaStream_t stream) {
  QTTS_RETURN_IF_ERROR(impl_->CheckSlot(slot));
  QTTS_RETURN_IF_ERROR(impl_->Provide(slot, stream));
  const cudaError_t error = cudaMemsetAsync(impl_->arrays.next_frame + slot, 0, sizeof(int32_t), stream);
  return error == cudaSuccess ? Status::Ok() : codec::CudaError(error, "forgetting a stream");
}

int Codec::sound_history() const { return impl_->sound_history; }

// The state, and behind it the number of frames.
size_t Codec::past_bytes() const { return impl_->state_bytes + sizeof(int32_t); }

Status Codec::Save(int slot, void* past, cudaStream_t stream) const {
  QTTS_RETURN_IF_ERROR(impl_->CheckSlot(slot));
  const std::byte* const state = impl_->slot_states[static_cast<size_t>(slot)];
  if (state == nullptr) {
    return Status::InvalidArgument("The codec's slot " + std::to_string(slot) + " has no stream to save.");
  }
  auto* const to = static_cast<std::byte*>(past);
  cudaError_t error = cudaMemcpyAsync(to, state, impl_->state_bytes, cudaMemcpyDeviceToDevice, stream);
  if (error == cudaSuccess) {
    error = cudaMemcpyAsync(to + impl_->state_bytes, impl_->arrays.next_frame + slot, sizeof(int32_t),
                            cudaMemcpyDeviceToDevice, stream);
  }
  return error == cudaSuccess ? Status::Ok() : codec::CudaError(error, "saving a stream");
}

Status Codec::Restore(int slot, const void* past, cudaStream_t stream) {
  QTTS_RETURN_IF_ERROR(impl_->CheckSlot(slot));
  QTTS_RETURN_IF_ERROR(impl_->Provide(slot, stream));
  const auto* const from = static_cast<const std::byte*>(past);
  cudaError_t error = cudaMemcpyAsync(impl_->slot_states[static_cast<size_t>(slot)], from, impl_->state_bytes,
                                      cudaMemcpyDeviceToDevice, stream);
  if (error == cudaSuccess) {
    error = cudaMemcpyAsync(impl_->arrays.next_frame + slot, from + impl_->state_bytes, sizeof(int32_t),
                            cudaMemcpyDeviceToDevice, stream);
  }
  return error == cudaSuccess ? Status::Ok() : codec::CudaError(error, "taking up a stream");
}

Status Codec::Decode(int n, const int32_t* slots, const int32_t* codes, float* pcm, cudaStream_t stream) {
  QTTS_RETURN_IF_ERROR(Begin(n, slots, codes, stream));
  return Finish(n, pcm, CodecRoom::kDevice, stream);
}

Status Codec::Follow(int n, const int32_t* slots, const int32_t* codes, cudaStream_t stream) {
  return impl_->Run({impl_->steps.data(), impl_->latent_steps}, {.n = n, .slots = slots, .codes = codes}, stream);
}

Status Codec::Begin(int n, const int32_t* slots, const int32_t* codes, cudaStream_t stream) {
  return impl_->Run({impl_->steps.data(), impl_->early_steps}, {.n = n, .slots = slots, .codes = codes}, stream);
}

Status Codec::Finish(int n, float* pcm, CodecRoom room, cudaStream_t stream) {
  const std::span<const codec::Step> all = impl_->steps;
  return impl_->Run(all.subspan(impl_->early_steps), {.n = n, .pcm = pcm, .room = room}, stream);
}

Status Codec::Impl::Run(std::span<const codec::Step> some, const Call& call, cudaStream_t stream) const {
  const int n = call.n;
  if (n < 0 || n > max_batch) {
    return Status::InvalidArgument("The codec was made for batches of " + std::to_string(max_batch) +
                                   " rows at most; this one has " + std::to_string(n) + ".");
  }
  if (n == 0) return Status::Ok();
  const codec::Batch batch{arrays.states, arrays.frames};
  const auto launch = [&](const codec::Step& step) -> cudaError_t {
    if (const auto* s = std::get_if<codec::DequantizeArgs>(&step)) {
      codec::DequantizeArgs args = *s;
      args.slots = call.slots;
      args.codes = call.codes;
      return codec::LaunchDequantize(args, n, device, stream);
    }
    if (const auto* s = std::get_if<codec::GemmStep>(&step)) {
      codec::GemmArgs args = s->args;
      args.batch = batch;
      args.columns = n * args.x.rows;
      const codec::GemmTile tile = codec::ChooseTile(args, s->x_planes, device, call.room == CodecRoom::kBeside);
      return codec::LaunchGemm(args, s->x_planes, tile, device, stream);
    }
    if (const auto* s = std::get_if<codec::AttentionArgs>(&step)) {
      codec::AttentionArgs args = *s;
      args.batch = batch;
      return codec::LaunchAttention(args, n, device, stream);
    }
    if (const auto* s = std::get_if<codec::DepthwiseArgs>(&step)) {
      codec::DepthwiseArgs args = *s;
      args.batch = batch;
      return codec::LaunchDepthwise(args, n, device, stream);
    }
    codec::LastConvArgs args = std::get<codec::LastConvArgs>(step);
    args.batch = batch;
    args.pcm = call.pcm;
    return codec::LaunchLastConv(args, n, device, stream);
  };
  for (const codec::Step& step : some) {
    if (const cudaError_t error = launch(step); error != cudaSuccess) {
      (void)cudaGetLastError();
      return codec::CudaError(error, "enqueuing a frame");
    }
  }
  return Status::Ok();
}

}  // namespace qtts::cuda
