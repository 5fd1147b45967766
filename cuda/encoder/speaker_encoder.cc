// SPDX-License-Identifier: LGPL-2.1-or-later
#include "encoder/speaker_encoder.h"

#include <algorithm>

#include "backend/mel_tables.h"

namespace qtts::cuda::encoder {
namespace {

constexpr const char* kEncodingSpeaker = "the speaker encoder";

// Returns the rows at each end that a convolution of its input's length needs.
int Padding(const Layer& layer, int dilation) { return (layer.taps - 1) * dilation / 2; }

// Returns a convolution of its input's length, both ends reflected, and the rectifier.
Convolution Tdnn(const Layer& layer, int dilation, const ConstSignal& x, int64_t rows, const Signal& y) {
  Convolution convolution = layer.On(x, rows, rows, y);
  convolution.border = Border::kReflect;
  convolution.dilation = dilation;
  convolution.before = Padding(layer, dilation);
  convolution.activation = Activation::kRelu;
  return convolution;
}

Signal Channels(const Signal& signal, int64_t first) { return {signal.data + first, signal.stride}; }

// Returns a row of numbers as a signal that repeats it.
ConstSignal Row(const float* data) { return {data, 0}; }

}  // namespace

struct SpeakerEncoder::Arrays {
  int64_t rows = 0;
  Signal x, inner, branches;          // [rows][channels]
  Signal joined, aggregated, scores;  // [rows][channels of all blocks]
  Signal attention;                   // [rows][attention channels]
  float* means = nullptr;             // [channels]
  float* squeezed = nullptr;          // [se channels]
  float* gates = nullptr;             // [channels]
  float* pooled = nullptr;            // [2 * channels of all blocks] means and deviations
  float* constant = nullptr;          // [attention channels]
};

Result<std::unique_ptr<SpeakerEncoder>> SpeakerEncoder::Create(const SpeakerEncoderConfig& config,
                                                               const SpeakerEncoderWeights& weights,
                                                               cudaStream_t stream) {
  std::unique_ptr<SpeakerEncoder> encoder(new SpeakerEncoder);
  encoder->config_ = config;
  WeightPacker packer(&encoder->memory_, stream);
  encoder->first_ = packer.LoadConv(weights.first);
  for (size_t i = 0; i < weights.blocks.size(); ++i) {
    const Res2NetWeights& from = weights.blocks[i];
    Block& block = encoder->blocks_.emplace_back();
    block.dilation = config.dilations[i + 1];
    block.tdnn1 = packer.LoadConv(from.tdnn1);
    block.tdnn2 = packer.LoadConv(from.tdnn2);
    for (const ConvWeights& branch : from.branches) block.branches.push_back(packer.LoadConv(branch));
    block.squeeze = packer.LoadConv(from.squeeze);
    block.excite = packer.LoadConv(from.excite);
  }
  encoder->aggregate_ = packer.LoadConv(weights.aggregate);
  encoder->attention_tdnn_ = packer.LoadConv(weights.attention_tdnn);
  encoder->attention_ = packer.LoadConv(weights.attention);
  encoder->output_ = packer.LoadConv(weights.output);

  const MelTables tables(config.mel_bins);
  std::vector<double2> roots;
  for (const auto& root : tables.roots) roots.push_back({root.real(), root.imag()});
  std::vector<int32_t> first;
  std::vector<int32_t> begin = {0};
  std::vector<float> band_weights;
  for (const MelTables::Band& band : tables.bands) {
    first.push_back(static_cast<int32_t>(band.first));
    band_weights.insert(band_weights.end(), band.weights.begin(), band.weights.end());
    begin.push_back(static_cast<int32_t>(band_weights.size()));
  }
  Spectrogram& spectrogram = encoder->tables_;
  spectrogram.window = packer.LoadTable(tables.window);
  spectrogram.roots = packer.LoadTable(roots);
  spectrogram.first = packer.LoadTable(first);
  spectrogram.begin = packer.LoadTable(begin);
  spectrogram.weights = packer.LoadTable(band_weights);
  spectrogram.bins = config.mel_bins;
  QTTS_RETURN_IF_ERROR(packer.Finish());
  return encoder;
}

int64_t SpeakerEncoder::least_samples() const {
  int most = std::max(Padding(first_, config_.dilations.front()), Padding(aggregate_, config_.dilations.back()));
  for (const Block& block : blocks_) most = std::max(most, Padding(block.branches.front(), block.dilation));
  return MelTables::Samples(most + 1);
}

void SpeakerEncoder::ComputeSpectrogram(std::span<const float> pcm, float* device_pcm, float* mels,
                                        Queue* queue) const {
  queue->Copy(device_pcm, pcm.data(), pcm.size_bytes(), cudaMemcpyHostToDevice);
  Spectrogram spectrogram = tables_;
  spectrogram.pcm = device_pcm;
  spectrogram.samples = static_cast<int64_t>(pcm.size());
  spectrogram.frames = MelTables::Frames(spectrogram.samples);
  spectrogram.mels = mels;
  (*queue)(ComputeMels, spectrogram);
}

Result<std::vector<float>> SpeakerEncoder::Mels(std::span<const float> pcm, Scratch* scratch,
                                                cudaStream_t stream) const {
  const auto samples = static_cast<int64_t>(pcm.size());
  std::vector<float> mels(static_cast<size_t>(MelTables::Frames(samples) * config_.mel_bins));
  QTTS_ASSIGN_OR_RETURN(const std::vector<float*> arrays, scratch->Take({samples, static_cast<int64_t>(mels.size())}));
  Queue queue(stream);
  ComputeSpectrogram(pcm, arrays[0], arrays[1], &queue);
  queue.Copy(mels.data(), arrays[1], mels.size() * sizeof(float), cudaMemcpyDeviceToHost);
  QTTS_RETURN_IF_ERROR(queue.Finish(kEncodingSpeaker));
  return mels;
}

Result<std::vector<float>> SpeakerEncoder::Encode(std::span<const float> pcm, Scratch* scratch,
                                                  cudaStream_t stream) const {
  const auto samples = static_cast<int64_t>(pcm.size());
  const int64_t rows = MelTables::Frames(samples);
  const int64_t bins = config_.mel_bins;
  const int64_t width = first_.out;
  const int64_t joined = aggregate_.out;
  const int64_t attention = attention_tdnn_.out;
  const int64_t squeezed = config_.se_channels;
  QTTS_ASSIGN_OR_RETURN(
      const std::vector<float*> at,
      scratch->Take({samples, rows * bins, rows * width, rows * width, rows * width, rows * joined, rows * joined,
                     rows * joined, rows * attention, width, squeezed, width, 2 * joined, attention, output_.out}));
  Arrays arrays;
  arrays.rows = rows;
  arrays.x = {at[2], width};
  arrays.inner = {at[3], width};
  arrays.branches = {at[4], width};
  arrays.joined = {at[5], joined};
  arrays.aggregated = {at[6], joined};
  arrays.scores = {at[7], joined};
  arrays.attention = {at[8], attention};
  arrays.means = at[9];
  arrays.squeezed = at[10];
  arrays.gates = at[11];
  arrays.pooled = at[12];
  arrays.constant = at[13];
  float* const x_vector = at[14];

  Queue queue(stream);
  ComputeSpectrogram(pcm, at[0], at[1], &queue);
  queue(Convolve, Tdnn(first_, config_.dilations.front(), {at[1], bins}, rows, arrays.x));
  // The outputs of all blocks lie side by side; the first layer's are left out.
  ConstSignal x = arrays.x;
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const Signal y = Channels(arrays.joined, static_cast<int64_t>(i) * width);
    RunBlock(blocks_[i], arrays, x, y, &queue);
    x = y;
  }
  queue(Convolve, Tdnn(aggregate_, config_.dilations.back(), arrays.joined, rows, arrays.aggregated));
  Pool(arrays, &queue);
  queue(Convolve, output_.On(Row(arrays.pooled), 1, 1, {x_vector, output_.out}));
  std::vector<float> result(static_cast<size_t>(output_.out));
  queue.Copy(result.data(), x_vector, result.size() * sizeof(float), cudaMemcpyDeviceToHost);
  QTTS_RETURN_IF_ERROR(queue.Finish(kEncodingSpeaker));
  return result;
}

void SpeakerEncoder::RunBlock(const Block& block, const Arrays& arrays, const ConstSignal& x, const Signal& y,
                              Queue* queue) const {
  const int64_t rows = arrays.rows;
  const int width = first_.out;
  (*queue)(Convolve, Tdnn(block.tdnn1, 1, x, rows, arrays.inner));
  // Res2Net: the first part passes; each other takes the result of the one before along.
  const int part = width / config_.res2net_scale;
  constexpr size_t kFloat = sizeof(float);
  queue->CopyRows(arrays.branches.data, static_cast<size_t>(arrays.branches.stride) * kFloat, arrays.inner.data,
                  static_cast<size_t>(arrays.inner.stride) * kFloat, static_cast<size_t>(part) * kFloat,
                  static_cast<size_t>(rows));
  for (size_t i = 0; i < block.branches.size(); ++i) {
    const int64_t first = static_cast<int64_t>(i + 1) * part;
    Convolution branch =
        Tdnn(block.branches[i], block.dilation, Channels(arrays.inner, first), rows, Channels(arrays.branches, first));
    if (i > 0) branch.addend = Channels(arrays.branches, first - part);
    (*queue)(Convolve, branch);
  }
  (*queue)(Convolve, Tdnn(block.tdnn2, 1, arrays.branches, rows, arrays.inner));
  // Squeeze and excitation.
  Statistics statistics;
  statistics.x = arrays.inner;
  statistics.rows = rows;
  statistics.channels = width;
  statistics.means = arrays.means;
  (*queue)(ComputeStatistics, statistics);
  (*queue)(Convolve, Tdnn(block.squeeze, 1, Row(arrays.means), 1, {arrays.squeezed, 0}));
  Convolution excite = block.excite.On(Row(arrays.squeezed), 1, 1, {arrays.gates, 0});
  excite.activation = Activation::kSigmoid;
  (*queue)(Convolve, excite);
  Gating gating;
  gating.x = arrays.inner;
  gating.residual = x;
  gating.gates = arrays.gates;
  gating.rows = rows;
  gating.channels = width;
  gating.y = y;
  (*queue)(Gate, gating);
}

void SpeakerEncoder::Pool(const Arrays& arrays, Queue* queue) const {
  const int channels = aggregate_.out;
  Statistics statistics;
  statistics.x = arrays.aggregated;
  statistics.rows = arrays.rows;
  statistics.channels = channels;
  statistics.means = arrays.pooled;
  statistics.deviations = arrays.pooled + channels;
  (*queue)(ComputeStatistics, statistics);
  // The attention sees each row beside the statistics of all, which are the same for every row: their
  // contribution is computed once and joins the bias.
  Layer own = attention_tdnn_;
  own.in = channels;
  own.bias = arrays.constant;
  Layer common = attention_tdnn_;
  common.in = 2 * channels;
  common.weights = attention_tdnn_.weights + static_cast<int64_t>(channels) * attention_tdnn_.out;
  (*queue)(Convolve, common.On(Row(arrays.pooled), 1, 1, {arrays.constant, 0}));
  Convolution attend = own.On(arrays.aggregated, arrays.rows, arrays.rows, arrays.attention);
  attend.activation = Activation::kTanhOfRelu;
  (*queue)(Convolve, attend);
  (*queue)(Convolve, attention_.On(arrays.attention, arrays.rows, arrays.rows, arrays.scores));
  statistics.scores = arrays.scores;
  (*queue)(ComputeStatistics, statistics);
}

}  // namespace qtts::cuda::encoder
