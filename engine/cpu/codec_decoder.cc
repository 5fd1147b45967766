// SPDX-License-Identifier: LGPL-2.1-or-later
#include "cpu/codec_decoder.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "cpu/kernels.h"
#include "cpu/scratch.h"

namespace qtts::cpu {
namespace {

// Frames per chunk: enough to amortise the reads of the weights, few enough to keep scratch small.
constexpr int64_t kChunkFrames = 8;
constexpr float kMinUsage = 1e-5F;
constexpr float kLayerNormEps = 1e-6F;
constexpr float kSnakeEps = 1e-9F;

// Dilations of a block's residual units, in order.
constexpr int64_t kDilations[] = {1, 3, 9};

// Costs of one element in multiply-adds, and the minimum rows per thread.
constexpr int64_t kSnakeWork = 16;
constexpr int64_t kGeluWork = 64;
constexpr int64_t kElementwiseGrain = 16;

// Minimum number of channels for 8-bit products. With fewer, computing the scales takes as long as the products save;
// on the bundled voice the loss of quality outweighs the time saved.
constexpr int64_t kLeastInt8Channels = 96;

// Rows that one thread runs through both convolutions of a residual unit while they are in its caches.
constexpr int64_t kUnitRows = 64;
// Minimum rows per thread for this: whole tiles.
constexpr int64_t kUnitGrain = 16;

// Converts weight [channels, 1, taps] to [taps][channels].
std::vector<float> DepthwiseWeights(const TensorView& weight) {
  const std::vector<float> by_channel = FloatsOf(weight);
  const auto channels = static_cast<size_t>(weight.shape[0]);
  const auto taps = static_cast<size_t>(weight.shape[2]);
  std::vector<float> by_tap(by_channel.size());
  for (size_t c = 0; c < channels; ++c) {
    for (size_t j = 0; j < taps; ++j) by_tap[j * channels + c] = by_channel[c * taps + j];
  }
  return by_tap;
}

std::vector<float> BiasOf(const ConvWeights& weights, size_t channels) {
  return weights.bias.has_value() ? FloatsOf(*weights.bias) : std::vector<float>(channels);
}

bool IsReduced(const WeightPacker* packer) { return packer != nullptr && packer->arithmetic() != Arithmetic::kF32; }

bool IsQuantised(const WeightPacker* packer) { return IsReduced(packer) && packer->arithmetic() != Arithmetic::kBF16; }

// Returns the packer of the matrices, always with 8 bits. Null if they are not quantised.
WeightPacker* MatrixPacker(WeightPacker* packer) { return packer == nullptr ? nullptr : packer->eight_bits(); }

// Returns the weights for a reduced arithmetic: matrices that will not be quantised are converted to F16.
CodecWeights Narrowed(CodecWeights weights, WeightPacker* packer) {
  if (!IsReduced(packer)) return weights;
  const auto narrow = [&](TensorView* tensor) { *tensor = packer->ToHalf(*tensor); };
  narrow(&weights.semantic_projection);
  narrow(&weights.acoustic_projection);
  narrow(&weights.input_projection.weight);
  narrow(&weights.output_projection.weight);
  if (IsQuantised(packer)) return weights;
  for (TransformerLayerWeights& layer : weights.transformer.layers) {
    for (LinearWeights* linear : {&layer.q, &layer.k, &layer.v, &layer.o}) narrow(&linear->weight);
    for (TensorView* tensor : {&layer.gate, &layer.up, &layer.down}) narrow(tensor);
  }
  for (ConvNeXtWeights& stage : weights.upsample) {
    narrow(&stage.expand.weight);
    narrow(&stage.contract.weight);
  }
  return weights;
}

// Reports the weights that the convolutions have packed to `packer`.
void ReleaseConvolutions(const CodecWeights& weights, const WeightPacker& packer) {
  const auto release = [&](const ConvWeights& conv) { packer.ReportReplaced(MatrixOf(conv.weight)); };
  release(weights.pre_conv);
  for (const ConvNeXtWeights& stage : weights.upsample) release(stage.transposed);
  release(weights.first_conv);
  for (const DecoderBlockWeights& block : weights.blocks) {
    release(block.transposed);
    for (const ResidualUnitWeights& unit : block.residuals) {
      release(unit.conv1);
      release(unit.conv2);
    }
  }
  release(weights.last_conv);
}

// Returns the form of the convolutions before and after the blocks.
CausalConv::Form OuterForm(const WeightPacker* packer) {
  return IsReduced(packer) ? CausalConv::Form::kHalf : CausalConv::Form::kStored;
}

// Returns the form of the convolutions of block `index`, whose residual units have `channels`.
CausalConv::Form BlockForm(const WeightPacker* packer, size_t index, int64_t channels) {
  if (!IsReduced(packer)) return CausalConv::Form::kStored;
  // Errors of the first block pass through all others, so it stays in BF16.
  const bool bytes = IsQuantised(packer) && index > 0 && channels >= kLeastInt8Channels;
  return bytes ? CausalConv::Form::kInt8 : CausalConv::Form::kBF16;
}

}  // namespace

CodecDecoder::Snake::Snake(const SnakeWeights& weights)
    : a(FloatsOf(weights.alpha)), inverse_b(FloatsOf(weights.beta)) {
  for (float& alpha : a) alpha = std::exp(alpha);
  for (float& beta : inverse_b) beta = 1.0F / (std::exp(beta) + kSnakeEps);
  turns = a;
  for (float& turn : turns) turn *= std::numbers::inv_pi_v<float>;
}

CodecDecoder::ConvNeXt::ConvNeXt(const ConvNeXtWeights& weights, int64_t s, ThreadPool& pool, CausalConv::Form form,
                                 WeightPacker* packer)
    : stride(s),
      transposed(CausalConv::Transposed(weights.transposed, s, pool, form)),
      depthwise(DepthwiseWeights(weights.depthwise.weight)),
      depthwise_bias(BiasOf(weights.depthwise, static_cast<size_t>(weights.depthwise.weight.shape[0]))),
      norm_weight(FloatsOf(weights.norm_weight)),
      norm_bias(FloatsOf(weights.norm_bias)),
      expand(weights.expand, packer),
      contract(weights.contract, packer),
      gamma(FloatsOf(weights.gamma)) {}

CodecDecoder::ResidualUnit::ResidualUnit(const ResidualUnitWeights& weights, int64_t dilation, ThreadPool& pool,
                                         CausalConv::Form form)
    : act1(weights.act1),
      conv1(CausalConv::Plain(weights.conv1, dilation, pool, form)),
      act2(weights.act2),
      conv2(CausalConv::Plain(weights.conv2, 1, pool, form)) {}

CodecDecoder::Block::Block(const DecoderBlockWeights& weights, int64_t s, ThreadPool& pool, CausalConv::Form form)
    : stride(s), snake(weights.snake), transposed(CausalConv::Transposed(weights.transposed, s, pool, form)) {
  residuals.reserve(weights.residuals.size());
  for (size_t i = 0; i < weights.residuals.size(); ++i) {
    residuals.emplace_back(weights.residuals[i], kDilations[i], pool, form);
  }
}

CodecDecoder::CodecDecoder(const CodecConfig& config, const CodecWeights& weights, ThreadPool& pool,
                           WeightPacker* packer)
    : CodecDecoder(config, Narrowed(weights, packer), packer, pool) {}

CodecDecoder::CodecDecoder(const CodecConfig& config, const CodecWeights& weights, WeightPacker* packer,
                           ThreadPool& pool)
    : config_(config),
      pool_(pool),
      exact_(!IsReduced(packer)),
      semantic_projection_(weights.semantic_projection),
      acoustic_projection_(weights.acoustic_projection),
      pre_conv_(CausalConv::Plain(weights.pre_conv, 1, pool, OuterForm(packer))),
      input_projection_(weights.input_projection),
      output_projection_(weights.output_projection),
      transformer_(config_.transformer, weights.transformer, pool, MatrixPacker(packer)),
      first_conv_(CausalConv::Plain(weights.first_conv, 1, pool, OuterForm(packer))),
      last_snake_(weights.last_snake),
      last_conv_(CausalConv::Plain(weights.last_conv, 1, pool, OuterForm(packer))) {
  for (const CodebookWeights& codebook : weights.codebooks) {
    codebooks_.push_back({MatrixOf(codebook.embedding_sum), FloatsOf(codebook.cluster_usage)});
  }
  upsample_.reserve(weights.upsample.size());
  for (size_t i = 0; i < weights.upsample.size(); ++i) {
    upsample_.emplace_back(weights.upsample[i], config_.upsampling_ratios[i], pool, OuterForm(packer),
                           MatrixPacker(packer));
  }
  blocks_.reserve(weights.blocks.size());
  for (size_t i = 0; i < weights.blocks.size(); ++i) {
    const DecoderBlockWeights& block = weights.blocks[i];
    blocks_.emplace_back(block, config_.upsample_rates[i], pool,
                         BlockForm(packer, i, block.transposed.weight.shape[1]));
  }
  if (!exact_) ReleaseConvolutions(weights, *packer);
  sound_history_ = SoundHistory();
  frame_work_ = LatentWork() + SoundWork();
  latent_frames_ = std::max<int64_t>(1, frame_work_ / LatentWork());
}

CodecDecoder::State CodecDecoder::State::Copy() const {
  State copy(cache.Copy(cache.length()));
  copy.histories = histories;
  return copy;
}

size_t CodecDecoder::State::bytes() const {
  size_t bytes = cache.bytes();
  for (const std::vector<std::byte>& history : histories) bytes += history.size();
  return bytes;
}

CodecDecoder::State CodecDecoder::NewState() const { return State(KvCache(config_.transformer)); }

void CodecDecoder::Decode(State* state, std::span<const int32_t> codes, std::span<float> pcm) {
  const auto groups = static_cast<size_t>(code_groups());
  const auto samples = static_cast<size_t>(samples_per_frame());
  const size_t frames = codes.size() / groups;
  size_t count = 0;
  for (size_t begin = 0; begin < frames; begin += count) {
    count = std::min<size_t>(kChunkFrames, frames - begin);
    DecodeChunk(state, codes.subspan(begin * groups, count * groups), pcm.subspan(begin * samples, count * samples));
  }
}

int64_t CodecDecoder::Prime(State* state, std::span<const int32_t> codes, int64_t begin) {
  const int64_t frames = static_cast<int64_t>(codes.size()) / code_groups();
  const int64_t first_sound = std::max<int64_t>(0, frames - sound_history_);
  const bool sound = begin >= first_sound;
  const int64_t end = sound ? begin + 1 : std::min(begin + latent_frames_, first_sound);
  RunLatents(state, codes.subspan(static_cast<size_t>(begin * code_groups()),
                                  static_cast<size_t>((end - begin) * code_groups())));
  if (sound) RunSound(state);
  return end;
}

void CodecDecoder::DecodeChunk(State* state, std::span<const int32_t> codes, std::span<float> pcm) {
  RunLatents(state, codes);
  RunSound(state);
  ClampUnit(rows_, x_.data());
  std::copy_n(x_.begin(), rows_, pcm.begin());
}

void CodecDecoder::RunLatents(State* state, std::span<const int32_t> codes) {
  state->next = 0;
  rows_ = static_cast<int64_t>(codes.size()) / code_groups();
  Convolve(state, pre_conv_, 1, [&](std::byte* to) { Dequantize(codes, reinterpret_cast<float*>(to)); });
  PreTransformer(state);
}

void CodecDecoder::RunSound(State* state) {
  for (const ConvNeXt& stage : upsample_) RunConvNeXt(state, stage);
  Convolve(state, first_conv_, 1, [&](std::byte* to) { Prepare(first_conv_, nullptr, x_.data(), to); });
  for (const Block& block : blocks_) RunBlock(state, block);
  Convolve(state, last_conv_, 1, [&](std::byte* to) { Prepare(last_conv_, &last_snake_, x_.data(), to); });
}

int64_t CodecDecoder::SoundHistory() const {
  // From the last operator to the first: `rows` is the number of earlier input rows that the operators seen so far
  // depend on.
  int64_t rows = last_conv_.history();
  const auto behind = [&](int64_t stride, int64_t history) { rows = (rows + stride - 1) / stride + history; };
  for (auto block = blocks_.rbegin(); block != blocks_.rend(); ++block) {
    for (const ResidualUnit& unit : block->residuals) behind(1, unit.conv1.history());
    behind(block->stride, block->transposed.history());
  }
  behind(1, first_conv_.history());
  for (auto stage = upsample_.rbegin(); stage != upsample_.rend(); ++stage) {
    behind(1, static_cast<int64_t>(stage->depthwise.size() / stage->depthwise_bias.size()) - 1);
    behind(stage->stride, stage->transposed.history());
  }
  return rows;
}

int64_t CodecDecoder::LatentWork() const {
  return semantic_projection_.work() + acoustic_projection_.work() + pre_conv_.work() + input_projection_.work() +
         transformer_.RowWork(config_.transformer.sliding_window) + output_projection_.work();
}

int64_t CodecDecoder::SoundWork() const {
  int64_t rows = 1;
  int64_t work = 0;
  for (const ConvNeXt& stage : upsample_) {
    work += rows * stage.transposed.work();
    rows *= stage.stride;
    work += rows * (stage.expand.work() + kGeluWork * stage.expand.out() + stage.contract.work());
  }
  work += rows * first_conv_.work();
  for (const Block& block : blocks_) {
    work += rows * (kSnakeWork * block.transposed.in() + block.transposed.work());
    rows *= block.stride;
    for (const ResidualUnit& unit : block.residuals) {
      work += rows * (kSnakeWork * (unit.conv1.in() + unit.conv2.in()) + unit.conv1.work() + unit.conv2.work());
    }
  }
  return work + rows * (kSnakeWork * last_conv_.in() + last_conv_.work());
}

void CodecDecoder::Dequantize(std::span<const int32_t> codes, float* y) {
  const int64_t dim = semantic_projection_.in();
  const size_t groups = codebooks_.size();
  // Codewords of the first group, then the sums of the others: [frames][dim] each.
  float* const semantic = GrowScratch(&wide_, 2 * rows_ * dim);
  float* const acoustic = semantic + rows_ * dim;
  std::fill_n(acoustic, rows_ * dim, 0.0F);
  std::vector<float> codeword(static_cast<size_t>(dim));
  for (int64_t t = 0; t < rows_; ++t) {
    for (size_t group = 0; group < groups; ++group) {
      const int32_t code = codes[static_cast<size_t>(t) * groups + group];
      LookUp(codebooks_[group].sums, code, codeword.data());
      const float usage = std::max(codebooks_[group].usage[static_cast<size_t>(code)], kMinUsage);
      for (float& value : codeword) value /= usage;
      if (group == 0) {
        std::copy(codeword.begin(), codeword.end(), semantic + t * dim);
      } else {
        Add(codeword.data(), dim, acoustic + t * dim);
      }
    }
  }
  semantic_projection_.Run(pool_, semantic, rows_, y);
  float* const projected = GrowScratch(&inner_, rows_ * acoustic_projection_.out());
  acoustic_projection_.Run(pool_, acoustic, rows_, projected);
  Add(projected, rows_ * acoustic_projection_.out(), y);
}

void CodecDecoder::PreTransformer(State* state) {
  float* const hidden = GrowScratch(&inner_, rows_ * input_projection_.out());
  input_projection_.Run(pool_, x_.data(), rows_, hidden);
  const SequenceRows sequence{&state->cache, rows_};
  transformer_.Forward({&sequence, 1}, hidden);
  output_projection_.Run(pool_, hidden, rows_, x_.data());
}

void CodecDecoder::RunConvNeXt(State* state, const ConvNeXt& stage) {
  const auto copy = [&](std::byte* to) { std::copy_n(x_.begin(), rows_ * width_, reinterpret_cast<float*>(to)); };
  Convolve(state, stage.transposed, stage.stride, copy);

  const auto channels = static_cast<size_t>(width_);
  const auto taps = static_cast<int64_t>(stage.depthwise.size() / channels);
  const auto* const window =
      reinterpret_cast<const float*>(Window(state, taps - 1, width_ * int64_t{sizeof(float)}, copy));
  float* const inner = GrowScratch(&inner_, rows_ * width_);
  DepthwiseConv(stage.depthwise.data(), stage.depthwise_bias.data(), window, taps, rows_, width_, inner);
  for (int64_t t = 0; t < rows_; ++t) {
    float* const row = inner + t * width_;
    LayerNorm(row, stage.norm_weight.data(), stage.norm_bias.data(), kLayerNormEps, width_, row);
  }
  const int64_t expanded = stage.expand.out();
  float* const wide = GrowScratch(&wide_, rows_ * expanded);
  stage.expand.Run(pool_, inner, rows_, wide);
  pool_.ParallelFor(rows_, 1, rows_ * expanded * kGeluWork, [&](int64_t begin, int64_t end) {
    Gelu(wide + begin * expanded, (end - begin) * expanded, wide + begin * expanded);
  });
  stage.contract.Run(pool_, wide, rows_, inner);
  for (int64_t t = 0; t < rows_; ++t) {
    AddScaled(stage.gamma.data(), inner + t * width_, width_, x_.data() + t * width_);
  }
}

void CodecDecoder::RunBlock(State* state, const Block& block) {
  Convolve(state, block.transposed, block.stride,
           [&](std::byte* to) { Prepare(block.transposed, &block.snake, x_.data(), to); });
  for (const ResidualUnit& unit : block.residuals) RunResidual(state, unit);
}

void CodecDecoder::RunResidual(State* state, const ResidualUnit& unit) {
  const std::byte* const window = Window(state, unit.conv1.history(), unit.conv1.row_bytes(),
                                         [&](std::byte* to) { Prepare(unit.conv1, &unit.act1, x_.data(), to); });
  float* const inner = GrowScratch(&inner_, rows_ * width_);
  std::byte* const prepared = GrowScratch(&prepared_, rows_ * unit.conv2.row_bytes());
  if (exact_ || rows_ < 2 * kUnitRows) {
    unit.conv1.Run(pool_, window, rows_, false, inner);
    Prepare(unit.conv2, &unit.act2, inner, prepared);
    return unit.conv2.Run(pool_, prepared, rows_, true, x_.data());
  }
  const SnakeView snake = unit.act2.fast();
  const int64_t work = rows_ * (unit.conv1.work() + unit.conv2.work() + kSnakeWork * width_);
  pool_.ParallelFor(rows_, kUnitGrain, work, [&](int64_t begin, int64_t end) {
    // All tiles of this part use the same scratch rows, which stay in cache.
    float* const mine = inner + begin * width_;
    std::byte* const mine_prepared = prepared + begin * unit.conv2.row_bytes();
    for (int64_t t = begin; t < end; t += kUnitRows) {
      const int64_t rows = std::min(kUnitRows, end - t);
      unit.conv1.Run(window + t * unit.conv1.row_bytes(), rows, false, mine);
      unit.conv2.Prepare(&snake, mine, rows, mine_prepared);
      unit.conv2.Run(mine_prepared, rows, true, x_.data() + t * width_);
    }
  });
}

void CodecDecoder::Prepare(const CausalConv& conv, const Snake* snake, const float* x, std::byte* y) {
  if (exact_) {
    auto* const floats = reinterpret_cast<float*>(y);
    if (snake != nullptr) return RunSnake(*snake, x, floats);
    std::copy_n(x, rows_ * width_, floats);
    return;
  }
  const SnakeView fast = snake != nullptr ? snake->fast() : SnakeView();
  pool_.ParallelFor(rows_, kElementwiseGrain, rows_ * width_ * kSnakeWork, [&](int64_t begin, int64_t end) {
    conv.Prepare(snake != nullptr ? &fast : nullptr, x + begin * width_, end - begin, y + begin * conv.row_bytes());
  });
}

void CodecDecoder::RunSnake(const Snake& snake, const float* x, float* y) {
  pool_.ParallelFor(rows_, kElementwiseGrain, rows_ * width_ * kSnakeWork, [&](int64_t begin, int64_t end) {
    SnakeBeta(snake.a.data(), snake.inverse_b.data(), x + begin * width_, end - begin, width_, y + begin * width_);
  });
}

template <typename Fill>
const std::byte* CodecDecoder::Window(State* state, int64_t history, int64_t row_bytes, const Fill& fill) {
  std::byte* const window = GrowScratch(&window_, (history + rows_) * row_bytes);
  fill(window + history * row_bytes);
  if (history == 0) return window;
  if (state->next == state->histories.size()) state->histories.emplace_back(static_cast<size_t>(history * row_bytes));
  std::vector<std::byte>& remembered = state->histories[state->next++];
  std::copy(remembered.begin(), remembered.end(), window);
  std::copy_n(window + rows_ * row_bytes, history * row_bytes, remembered.begin());
  return window;
}

template <typename Fill>
void CodecDecoder::Convolve(State* state, const CausalConv& conv, int64_t stride, const Fill& fill) {
  const std::byte* const window = Window(state, conv.history(), conv.row_bytes(), fill);
  float* const y = GrowScratch(&inner_, rows_ * conv.out());
  conv.Run(pool_, window, rows_, false, y);
  x_.swap(inner_);
  rows_ *= stride;
  width_ = conv.out() / stride;
}

}  // namespace qtts::cpu
