// SPDX-License-Identifier: LGPL-2.1-or-later
#include "naive_voice.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>

#include "random_tensors.h"

namespace qtts::naive {
namespace {

using cpu::Values;

// The padding row for an `index` beyond the ends of a sequence.
using Outside = std::function<Vector(const Matrix& x, int64_t index)>;

Vector Zeros(const Matrix& x, int64_t /*index*/) { return Vector(x[0].size()); }
Vector Reflected(const Matrix& x, int64_t index) {
  const auto last = static_cast<int64_t>(x.size()) - 1;
  return x[static_cast<size_t>(index < 0 ? -index : 2 * last - index)];
}
Vector Nearest(const Matrix& x, int64_t index) { return index < 0 ? x.front() : x.back(); }

// y[t] = b + sum over j of W[:, :, j] x[t * stride + j * dilation - left], for `rows` rows.
Matrix Convolve(const ConvWeights& weights, const Matrix& x, int64_t rows, int64_t stride, int64_t dilation,
                int64_t left, const Outside& outside) {
  const std::vector<int64_t>& shape = weights.weight.shape;
  const Vector w = Values(weights.weight);
  const Vector bias = weights.bias.has_value() ? Values(*weights.bias) : Vector(static_cast<size_t>(shape[0]));
  Matrix y;
  for (int64_t t = 0; t < rows; ++t) {
    Vector row = bias;
    for (int64_t j = 0; j < shape[2]; ++j) {
      const int64_t index = t * stride + j * dilation - left;
      const bool inside = index >= 0 && index < static_cast<int64_t>(x.size());
      const Vector input = inside ? x[static_cast<size_t>(index)] : outside(x, index);
      for (int64_t o = 0; o < shape[0]; ++o) {
        for (int64_t c = 0; c < shape[1]; ++c) {
          row[static_cast<size_t>(o)] +=
              w[static_cast<size_t>((o * shape[1] + c) * shape[2] + j)] * input[static_cast<size_t>(c)];
        }
      }
    }
    y.push_back(row);
  }
  return y;
}

Matrix Map(Matrix x, double (*function)(double)) {
  for (Vector& row : x) std::transform(row.begin(), row.end(), row.begin(), function);
  return x;
}

double Relu(double x) { return std::max(x, 0.0); }
double Elu(double x) { return x > 0 ? x : std::expm1(x); }
double Gelu(double x) { return x / 2 * (1 + std::erf(x / std::numbers::sqrt2)); }

Matrix Same(const ConvWeights& weights, const Matrix& x, int64_t dilation) {
  const int64_t padding = (weights.weight.shape[2] - 1) * dilation / 2;
  return Convolve(weights, x, static_cast<int64_t>(x.size()), 1, dilation, padding, Reflected);
}
Matrix Tdnn(const ConvWeights& weights, const Matrix& x, int64_t dilation) {
  return Map(Same(weights, x, dilation), Relu);
}

Matrix Columns(const Matrix& x, size_t begin, size_t count) {
  Matrix y;
  for (const Vector& row : x) {
    y.emplace_back(row.begin() + static_cast<ptrdiff_t>(begin), row.begin() + static_cast<ptrdiff_t>(begin + count));
  }
  return y;
}

void Append(const Matrix& part, Matrix* x) {
  x->resize(part.size());
  for (size_t t = 0; t < part.size(); ++t) (*x)[t].insert((*x)[t].end(), part[t].begin(), part[t].end());
}

Matrix Added(Matrix x, const Matrix& y) {
  for (size_t t = 0; t < x.size(); ++t) {
    for (size_t i = 0; i < x[t].size(); ++i) x[t][i] += y[t][i];
  }
  return x;
}

Matrix SpeakerBlock(const Res2NetWeights& weights, int64_t dilation, const Matrix& input) {
  const Matrix x = Tdnn(weights.tdnn1, input, 1);
  const size_t width = x[0].size() / (weights.branches.size() + 1);
  Matrix joined = Columns(x, 0, width);
  Matrix previous;
  for (size_t i = 0; i < weights.branches.size(); ++i) {
    Matrix part = Columns(x, (i + 1) * width, width);
    if (i > 0) part = Added(part, previous);
    previous = Tdnn(weights.branches[i], part, dilation);
    Append(previous, &joined);
  }
  Matrix y = Tdnn(weights.tdnn2, joined, 1);
  Matrix mean(1, Vector(y[0].size()));
  for (const Vector& row : y) {
    for (size_t c = 0; c < row.size(); ++c) mean[0][c] += row[c] / static_cast<double>(y.size());
  }
  const Matrix gate = Same(weights.excite, Tdnn(weights.squeeze, mean, 1), 1);
  for (Vector& row : y) {
    for (size_t c = 0; c < row.size(); ++c) row[c] /= 1 + std::exp(-gate[0][c]);
  }
  return Added(y, input);
}

// Means, then deviations, of the columns of x, weighed by those of w.
Vector Statistics(const Matrix& x, const Matrix& w) {
  const size_t width = x[0].size();
  Vector statistics(2 * width);
  for (size_t c = 0; c < width; ++c) {
    for (size_t t = 0; t < x.size(); ++t) statistics[c] += w[t][c] * x[t][c];
    double variance = 0;
    for (size_t t = 0; t < x.size(); ++t) variance += w[t][c] * std::pow(x[t][c] - statistics[c], 2);
    statistics[width + c] = std::sqrt(std::max(variance, 1e-12));
  }
  return statistics;
}

Matrix LayerNorm(const TensorView& weight, const TensorView& bias, double eps, const Matrix& x) {
  const Vector w = Values(weight);
  const Vector b = Values(bias);
  Matrix y = x;
  for (Vector& row : y) {
    double mean = 0;
    for (const double v : row) mean += v / static_cast<double>(row.size());
    double variance = 0;
    for (const double v : row) variance += (v - mean) * (v - mean) / static_cast<double>(row.size());
    for (size_t i = 0; i < row.size(); ++i) row[i] = (row[i] - mean) / std::sqrt(variance + eps) * w[i] + b[i];
  }
  return y;
}

Matrix Project(const TensorView& weight, const Matrix& x) { return Linear({weight, std::nullopt}, x); }

Vector Rotated(const Vector& head, double theta, size_t position) {
  const size_t half = head.size() / 2;
  Vector y(head.size());
  for (size_t i = 0; i < half; ++i) {
    const double angle = static_cast<double>(position) *
                         std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(head.size()));
    y[i] = head[i] * std::cos(angle) - head[i + half] * std::sin(angle);
    y[i + half] = head[i + half] * std::cos(angle) + head[i] * std::sin(angle);
  }
  return y;
}

Matrix Attention(const CodecEncoderConfig& config, const EncoderLayerWeights& layer, const Matrix& x) {
  const Matrix q = Project(layer.q, x), k = Project(layer.k, x), v = Project(layer.v, x);
  const auto dim = static_cast<size_t>(config.head_dim);
  const auto theta = static_cast<double>(config.rope_theta);
  Matrix y(x.size(), Vector(q[0].size()));
  for (size_t head = 0; head < static_cast<size_t>(config.num_heads); ++head) {
    const Matrix qs = Columns(q, head * dim, dim), ks = Columns(k, head * dim, dim);
    for (size_t t = 0; t < x.size(); ++t) {
      const Vector query = Rotated(qs[t], theta, t);
      Vector weights;
      double total = 0;
      for (size_t s = 0; s <= t; ++s) {
        const Vector key = Rotated(ks[s], theta, s);
        double dot = 0;
        for (size_t i = 0; i < dim; ++i) dot += query[i] * key[i];
        weights.push_back(std::exp(dot / std::sqrt(static_cast<double>(dim))));
        total += weights.back();
      }
      for (size_t s = 0; s <= t; ++s) {
        for (size_t i = 0; i < dim; ++i) y[t][head * dim + i] += weights[s] / total * v[s][head * dim + i];
      }
    }
  }
  return Project(layer.o, y);
}

void AddScaled(const TensorView& scale, const Matrix& y, Matrix* x) {
  const Vector factors = Values(scale);
  for (size_t t = 0; t < x->size(); ++t) {
    for (size_t i = 0; i < factors.size(); ++i) (*x)[t][i] += factors[i] * y[t][i];
  }
}

// A causal convolution of Mimi: kernel - stride zeros in front.
Matrix Causal(const ConvWeights& weights, const Matrix& x, int64_t stride, const Outside& outside = Zeros) {
  const int64_t rows = (static_cast<int64_t>(x.size()) + stride - 1) / stride;
  return Convolve(weights, x, rows, stride, 1, weights.weight.shape[2] - stride, outside);
}

// Index of the nearest codeword; x becomes the residual.
int32_t TakeNearest(const CodebookWeights& codebook, Vector* x) {
  const Vector sums = Values(codebook.embedding_sum);
  const Vector usage = Values(codebook.cluster_usage);
  double best_distance = HUGE_VAL;
  size_t best = 0;
  const auto codeword = [&](size_t entry, size_t i) {
    return sums[entry * x->size() + i] / std::max(usage[entry], static_cast<double>(1e-5F));
  };
  for (size_t entry = 0; entry < usage.size(); ++entry) {
    double distance = 0;
    for (size_t i = 0; i < x->size(); ++i) distance += std::pow((*x)[i] - codeword(entry, i), 2);
    if (distance < best_distance) {
      best_distance = distance;
      best = entry;
    }
  }
  for (size_t i = 0; i < x->size(); ++i) (*x)[i] -= codeword(best, i);
  return static_cast<int32_t>(best);
}

}  // namespace

Matrix Mel(const Vector& pcm, int bins) {
  constexpr int kLength = 1024, kHop = 256, kPadding = 384;
  Matrix samples;
  for (const double v : pcm) samples.push_back({v});
  const auto mel_of = [](double hz) {
    return hz < 1000 ? 3 * hz / 200 : 15 + 27 * std::log(hz / 1000) / std::log(6.4);
  };
  const auto hz_of = [](double mel) { return mel < 15 ? mel * 200 / 3 : 1000 * std::pow(6.4, (mel - 15) / 27); };
  const auto edge = [&](int i) { return hz_of(mel_of(12000) * i / (bins + 1)); };
  Matrix mels;
  for (int begin = 0; begin + kLength <= static_cast<int>(pcm.size()) + 2 * kPadding; begin += kHop) {
    Vector mel(static_cast<size_t>(bins));
    for (int f = 0; f <= kLength / 2; ++f) {
      double re = 0, im = 0;
      for (int n = 0; n < kLength; ++n) {
        const int64_t index = begin + n - kPadding;
        const bool inside = index >= 0 && index < static_cast<int64_t>(pcm.size());
        const double sample = inside ? pcm[static_cast<size_t>(index)] : Reflected(samples, index)[0];
        const double window = static_cast<float>(0.5 - 0.5 * std::cos(2 * std::numbers::pi * n / kLength));
        const double angle = 2 * std::numbers::pi * f * n / kLength;
        re += window * sample * std::cos(angle);
        im -= window * sample * std::sin(angle);
      }
      const double magnitude = std::sqrt(re * re + im * im + 1e-9);
      const double hz = 24000.0 * f / kLength;
      for (int b = 0; b < bins; ++b) {
        const double low = edge(b), middle = edge(b + 1), high = edge(b + 2);
        const double height = std::max(0.0, std::min((hz - low) / (middle - low), (high - hz) / (high - middle)));
        mel[static_cast<size_t>(b)] += magnitude * height * 2 / (high - low);
      }
    }
    for (double& v : mel) v = std::log(std::max(v, 1e-5));
    mels.push_back(mel);
  }
  return mels;
}

Vector Speaker(const SpeakerEncoderConfig& config, const SpeakerEncoderWeights& weights, const Matrix& mels) {
  Matrix x = Tdnn(weights.first, mels, config.dilations.front());
  Matrix joined;
  for (size_t i = 0; i < weights.blocks.size(); ++i) {
    x = SpeakerBlock(weights.blocks[i], config.dilations[i + 1], x);
    Append(x, &joined);
  }
  x = Tdnn(weights.aggregate, joined, config.dilations.back());
  const Matrix equal(x.size(), Vector(x[0].size(), 1.0 / static_cast<double>(x.size())));
  Matrix input = x;
  Append(Matrix(x.size(), Statistics(x, equal)), &input);
  Matrix attention = Same(weights.attention, Map(Tdnn(weights.attention_tdnn, input, 1), std::tanh), 1);
  for (size_t c = 0; c < x[0].size(); ++c) {
    double total = 0;
    for (Vector& row : attention) total += row[c] = std::exp(row[c]);
    for (Vector& row : attention) row[c] /= total;
  }
  return Same(weights.output, {Statistics(x, attention)}, 1)[0];
}

std::vector<std::vector<int32_t>> CodecCodes(const CodecEncoderConfig& config, const CodecEncoderWeights& weights,
                                             const Vector& pcm) {
  Matrix x;
  for (const double v : pcm) x.push_back({v});
  x = Causal(weights.first_conv, x, 1);
  for (size_t i = 0; i < weights.stages.size(); ++i) {
    const EncoderStageWeights& stage = weights.stages[i];
    const Matrix inner = Causal(stage.residual1, Map(x, Elu), 1);
    x = Added(x, Causal(stage.residual2, Map(inner, Elu), 1));
    x = Causal(stage.strided, Map(x, Elu), config.strides[i]);
  }
  x = Causal(weights.last_conv, Map(x, Elu), 1);
  const auto eps = static_cast<double>(config.norm_eps);
  for (const EncoderLayerWeights& layer : weights.layers) {
    AddScaled(layer.attention_scale,
              Attention(config, layer, LayerNorm(layer.input_norm, layer.input_norm_bias, eps, x)), &x);
    const Matrix inner = Map(Project(layer.fc1, LayerNorm(layer.post_norm, layer.post_norm_bias, eps, x)), Gelu);
    AddScaled(layer.mlp_scale, Project(layer.fc2, inner), &x);
  }
  x = Causal(weights.downsample, x, 2, Nearest);
  const ConvWeights semantic{weights.semantic_projection, std::nullopt};
  const ConvWeights acoustic{weights.acoustic_projection, std::nullopt};
  const Matrix first = Causal(semantic, x, 1);
  const Matrix rest = Causal(acoustic, x, 1);
  std::vector<std::vector<int32_t>> codes;
  for (size_t t = 0; t < x.size(); ++t) {
    Vector left = first[t];
    std::vector<int32_t> frame = {TakeNearest(weights.codebooks[0], &left)};
    left = rest[t];
    for (size_t q = 1; q < weights.codebooks.size(); ++q) frame.push_back(TakeNearest(weights.codebooks[q], &left));
    codes.push_back(frame);
  }
  return codes;
}

}  // namespace qtts::naive
