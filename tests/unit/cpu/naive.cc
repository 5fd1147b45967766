// SPDX-License-Identifier: LGPL-2.1-or-later
#include "naive.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "random_tensors.h"

namespace qtts::naive {
namespace {

using cpu::Values;

Vector RmsNorm(const Vector& x, const Vector& weight, double eps) {
  double mean = 0;
  for (const double v : x) mean += v * v / static_cast<double>(x.size());
  Vector y;
  for (size_t i = 0; i < x.size(); ++i) y.push_back(x[i] / std::sqrt(mean + eps) * weight[i]);
  return y;
}

Vector Slice(const Vector& x, size_t begin, size_t count) {
  return Vector(x.begin() + static_cast<ptrdiff_t>(begin), x.begin() + static_cast<ptrdiff_t>(begin + count));
}

// RoPE of one head: dimensions i and i + half form a pair.
Vector Rotate(const Vector& x, double theta, size_t position) {
  const size_t half = x.size() / 2;
  Vector y(x.size());
  for (size_t i = 0; i < half; ++i) {
    const double angle =
        static_cast<double>(position) * std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(x.size()));
    y[i] = x[i] * std::cos(angle) - x[i + half] * std::sin(angle);
    y[i + half] = x[i + half] * std::cos(angle) + x[i] * std::sin(angle);
  }
  return y;
}

double Silu(double x) { return x / (1 + std::exp(-x)); }

// x += scale * y. Without a scale it is 1.
void AddBranch(const std::optional<TensorView>& scale, const Matrix& y, Matrix* x) {
  const Vector factors = scale.has_value() ? Values(*scale) : Vector((*x)[0].size(), 1.0);
  for (size_t t = 0; t < x->size(); ++t) {
    for (size_t i = 0; i < factors.size(); ++i) (*x)[t][i] += factors[i] * y[t][i];
  }
}

Matrix NormRows(const Matrix& x, const TensorView& weight, double eps) {
  const Vector values = Values(weight);
  Matrix y;
  for (const Vector& row : x) y.push_back(RmsNorm(row, values, eps));
  return y;
}

Matrix Attention(const TransformerConfig& config, const TransformerLayerWeights& layer, const Matrix& x) {
  const auto dim = static_cast<size_t>(config.head_dim);
  const auto heads = static_cast<size_t>(config.num_heads);
  const size_t group = heads / static_cast<size_t>(config.num_kv_heads);
  const Matrix qs = Linear(layer.q, x);
  const Matrix ks = Linear(layer.k, x);
  const Matrix vs = Linear(layer.v, x);
  const auto place = [&](const Vector& row, size_t head, const std::optional<TensorView>& norm, size_t position) {
    Vector v = Slice(row, head * dim, dim);
    if (norm.has_value()) v = RmsNorm(v, Values(*norm), static_cast<double>(config.rms_norm_eps));
    return Rotate(v, static_cast<double>(config.rope_theta), position);
  };
  Matrix y(x.size(), Vector(heads * dim));
  for (size_t h = 0; h < heads; ++h) {
    for (size_t t = 0; t < x.size(); ++t) {
      const Vector q = place(qs[t], h, layer.q_norm, t);
      Vector weights(t + 1);
      double total = 0;
      for (size_t s = 0; s <= t; ++s) {
        if (config.sliding_window > 0 && t - s >= static_cast<size_t>(config.sliding_window)) continue;
        const Vector k = place(ks[s], h / group, layer.k_norm, s);
        double dot = 0;
        for (size_t i = 0; i < dim; ++i) dot += q[i] * k[i];
        weights[s] = std::exp(dot / std::sqrt(static_cast<double>(dim)));
        total += weights[s];
      }
      for (size_t s = 0; s <= t; ++s) {
        for (size_t i = 0; i < dim; ++i) y[t][h * dim + i] += weights[s] / total * vs[s][h / group * dim + i];
      }
    }
  }
  return Linear(layer.o, y);
}

Matrix Mlp(const TransformerLayerWeights& layer, const Matrix& x) {
  Matrix gate = Linear({layer.gate, {}}, x);
  const Matrix up = Linear({layer.up, {}}, x);
  for (size_t t = 0; t < gate.size(); ++t) {
    for (size_t i = 0; i < gate[t].size(); ++i) gate[t][i] = Silu(gate[t][i]) * up[t][i];
  }
  return Linear({layer.down, {}}, gate);
}

// Signals of the codec are channel-major here: [channels][time].

Matrix Transpose(const Matrix& x) {
  Matrix y(x[0].size(), Vector(x.size()));
  for (size_t i = 0; i < x.size(); ++i) {
    for (size_t j = 0; j < x[i].size(); ++j) y[j][i] = x[i][j];
  }
  return y;
}

// Zero-padded on the left; `depthwise`: each channel has its own kernel.
Matrix Conv(const ConvWeights& weights, int dilation, bool depthwise, const Matrix& x) {
  const Vector w = Values(weights.weight);
  const Vector b = Values(*weights.bias);
  const auto outs = static_cast<size_t>(weights.weight.shape[0]);
  const auto ins = static_cast<size_t>(weights.weight.shape[1]);
  const auto taps = static_cast<size_t>(weights.weight.shape[2]);
  const size_t time = x[0].size();
  Matrix y(outs, Vector(time));
  for (size_t o = 0; o < outs; ++o) {
    for (size_t t = 0; t < time; ++t) {
      double sum = b[o];
      for (size_t c = 0; c < ins; ++c) {
        for (size_t j = 0; j < taps; ++j) {
          const size_t back = (taps - 1 - j) * static_cast<size_t>(dilation);
          if (back <= t) sum += w[(o * ins + c) * taps + j] * x[depthwise ? o : c][t - back];
        }
      }
      y[o][t] = sum;
    }
  }
  return y;
}

// The full transposed convolution, its last kernel - stride outputs dropped.
Matrix TransposedConv(const ConvWeights& weights, int stride, const Matrix& x) {
  const Vector w = Values(weights.weight);
  const Vector b = Values(*weights.bias);
  const auto ins = static_cast<size_t>(weights.weight.shape[0]);
  const auto outs = static_cast<size_t>(weights.weight.shape[1]);
  const auto taps = static_cast<size_t>(weights.weight.shape[2]);
  const auto step = static_cast<size_t>(stride);
  const size_t time = x[0].size();
  Matrix y(outs, Vector((time - 1) * step + taps));
  for (size_t o = 0; o < outs; ++o) {
    for (double& v : y[o]) v = b[o];
    for (size_t c = 0; c < ins; ++c) {
      for (size_t t = 0; t < time; ++t) {
        for (size_t j = 0; j < taps; ++j) y[o][t * step + j] += x[c][t] * w[(c * outs + o) * taps + j];
      }
    }
    y[o].resize(time * step);
  }
  return y;
}

Matrix Snake(const SnakeWeights& weights, Matrix x) {
  const Vector alpha = Values(weights.alpha);
  const Vector beta = Values(weights.beta);
  for (size_t c = 0; c < x.size(); ++c) {
    for (double& v : x[c]) {
      const double sine = std::sin(std::exp(alpha[c]) * v);
      v += sine * sine / (std::exp(beta[c]) + 1e-9);
    }
  }
  return x;
}

Matrix Sum(Matrix x, const Matrix& y) {
  for (size_t i = 0; i < x.size(); ++i) {
    for (size_t j = 0; j < x[i].size(); ++j) x[i][j] += y[i][j];
  }
  return x;
}

Matrix ConvNeXt(const ConvNeXtWeights& weights, int ratio, const Matrix& input) {
  const Matrix x = TransposedConv(weights.transposed, ratio, input);
  Matrix rows = Transpose(Conv(weights.depthwise, 1, true, x));
  const Vector norm_weight = Values(weights.norm_weight);
  const Vector norm_bias = Values(weights.norm_bias);
  for (Vector& row : rows) {
    double mean = 0;
    for (const double v : row) mean += v / static_cast<double>(row.size());
    double variance = 0;
    for (const double v : row) variance += (v - mean) * (v - mean) / static_cast<double>(row.size());
    for (size_t i = 0; i < row.size(); ++i) {
      row[i] = (row[i] - mean) / std::sqrt(variance + 1e-6) * norm_weight[i] + norm_bias[i];
    }
  }
  Matrix wide = Linear(weights.expand, rows);
  for (Vector& row : wide) {
    for (double& v : row) v = v / 2 * (1 + std::erf(v / std::sqrt(2.0)));
  }
  Matrix narrow = Linear(weights.contract, wide);
  const Vector gamma = Values(weights.gamma);
  for (Vector& row : narrow) {
    for (size_t i = 0; i < row.size(); ++i) row[i] *= gamma[i];
  }
  return Sum(x, Transpose(narrow));
}

// Sums of codewords [codebook_dim / 2][time] of the codebooks [begin, end).
Matrix Codewords(const CodecWeights& weights, const std::vector<int32_t>& codes, size_t begin, size_t end) {
  const size_t groups = weights.codebooks.size();
  Matrix rows(codes.size() / groups);
  for (size_t t = 0; t < rows.size(); ++t) {
    for (size_t g = begin; g < end; ++g) {
      const int32_t code = codes[t * groups + g];
      Vector word = Row(weights.codebooks[g].embedding_sum, code);
      const double usage = std::max(1e-5, Values(weights.codebooks[g].cluster_usage)[static_cast<size_t>(code)]);
      for (double& v : word) v /= usage;
      rows[t] = rows[t].empty() ? word : Sum({rows[t]}, {word})[0];
    }
  }
  return rows;
}

}  // namespace

Matrix Linear(const LinearWeights& weights, const Matrix& x) {
  const Vector w = Values(weights.weight);
  const auto outs = static_cast<size_t>(weights.weight.shape[0]);
  const Vector b = weights.bias.has_value() ? Values(*weights.bias) : Vector(outs);
  Matrix y;
  for (const Vector& row : x) {
    Vector& sums = y.emplace_back(b);
    for (size_t o = 0; o < outs; ++o) {
      for (size_t i = 0; i < row.size(); ++i) sums[o] += w[o * row.size() + i] * row[i];
    }
  }
  return y;
}

Matrix Transformer(const TransformerConfig& config, const TransformerWeights& weights, Matrix x) {
  const auto eps = static_cast<double>(config.rms_norm_eps);
  for (const TransformerLayerWeights& layer : weights.layers) {
    AddBranch(layer.attention_scale, Attention(config, layer, NormRows(x, layer.input_norm, eps)), &x);
    AddBranch(layer.mlp_scale, Mlp(layer, NormRows(x, layer.post_norm, eps)), &x);
  }
  return NormRows(x, weights.norm, eps);
}

Vector Scores(const TransformerConfig& config, const TransformerWeights& weights, Matrix x, int layer, int head) {
  const auto eps = static_cast<double>(config.rms_norm_eps);
  for (int i = 0; i < layer; ++i) {
    const TransformerLayerWeights& before = weights.layers[static_cast<size_t>(i)];
    AddBranch(before.attention_scale, Attention(config, before, NormRows(x, before.input_norm, eps)), &x);
    AddBranch(before.mlp_scale, Mlp(before, NormRows(x, before.post_norm, eps)), &x);
  }
  const TransformerLayerWeights& own = weights.layers[static_cast<size_t>(layer)];
  const Matrix normed = NormRows(x, own.input_norm, eps);
  const auto dim = static_cast<size_t>(config.head_dim);
  const auto place = [&](const Vector& row, size_t h, const std::optional<TensorView>& norm, size_t position) {
    Vector v = Slice(row, h * dim, dim);
    if (norm.has_value()) v = RmsNorm(v, Values(*norm), eps);
    return Rotate(v, static_cast<double>(config.rope_theta), position);
  };
  const Matrix qs = Linear(own.q, normed);
  const Matrix ks = Linear(own.k, normed);
  const size_t group = static_cast<size_t>(config.num_heads / config.num_kv_heads);
  const Vector q = place(qs.back(), static_cast<size_t>(head), own.q_norm, x.size() - 1);
  Vector scores;
  for (size_t s = 0; s < x.size(); ++s) {
    const Vector k = place(ks[s], static_cast<size_t>(head) / group, own.k_norm, s);
    double dot = 0;
    for (size_t i = 0; i < dim; ++i) dot += q[i] * k[i];
    scores.push_back(dot / std::sqrt(static_cast<double>(dim)));
  }
  return scores;
}

Vector Row(const TensorView& table, int32_t row) {
  const auto width = static_cast<size_t>(table.elements() / table.shape[0]);
  return Slice(Values(table), static_cast<size_t>(row) * width, width);
}

Vector Text(const TalkerWeights& weights, int32_t id) {
  Matrix inner = Linear(weights.text_fc1, {Row(weights.text_embedding, id)});
  for (double& v : inner[0]) v = Silu(v);
  return Linear(weights.text_fc2, inner)[0];
}

Vector Codec(const CodecConfig& config, const CodecWeights& weights, const std::vector<int32_t>& codes) {
  const size_t groups = weights.codebooks.size();
  const Matrix z = Sum(Linear({weights.semantic_projection, {}}, Codewords(weights, codes, 0, 1)),
                       Linear({weights.acoustic_projection, {}}, Codewords(weights, codes, 1, groups)));
  Matrix x = Conv(weights.pre_conv, 1, false, Transpose(z));
  const Matrix hidden =
      Transformer(config.transformer, weights.transformer, Linear(weights.input_projection, Transpose(x)));
  x = Transpose(Linear(weights.output_projection, hidden));
  for (size_t i = 0; i < weights.upsample.size(); ++i) {
    x = ConvNeXt(weights.upsample[i], config.upsampling_ratios[i], x);
  }
  x = Conv(weights.first_conv, 1, false, x);
  for (size_t i = 0; i < weights.blocks.size(); ++i) {
    const DecoderBlockWeights& block = weights.blocks[i];
    x = TransposedConv(block.transposed, config.upsample_rates[i], Snake(block.snake, x));
    const int dilations[] = {1, 3, 9};
    for (size_t j = 0; j < block.residuals.size(); ++j) {
      const ResidualUnitWeights& unit = block.residuals[j];
      const Matrix inner = Conv(unit.conv1, dilations[j], false, Snake(unit.act1, x));
      x = Sum(x, Conv(unit.conv2, 1, false, Snake(unit.act2, inner)));
    }
  }
  Vector pcm = Conv(weights.last_conv, 1, false, Snake(weights.last_snake, x))[0];
  for (double& v : pcm) v = std::clamp(v, -1.0, 1.0);
  return pcm;
}

}  // namespace qtts::naive
