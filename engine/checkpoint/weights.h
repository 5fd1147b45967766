// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CHECKPOINT_WEIGHTS_H_
#define QTTS_CHECKPOINT_WEIGHTS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "checkpoint/config.h"
#include "checkpoint/safetensors.h"
#include "qtts/status.h"

// The tensors of synthesis, found by name and checked against the config. The only place that knows the names of spec
// 1.5 and 1.6. Views, valid as long as their TensorStore. The comments give shapes: H is the talker's width, P the
// predictor's, G the number of code groups.
namespace qtts {

// Totals over the tensors of a part.
struct WeightTotals {
  int64_t parameters = 0;
  int64_t bytes = 0;  // in the file
};

// y = W x + b.
struct LinearWeights {
  TensorView weight;               // [out, in]
  std::optional<TensorView> bias;  // [out]
};

struct TransformerLayerWeights {
  TensorView input_norm;                                 // [hidden]
  TensorView post_norm;                                  // [hidden]
  LinearWeights q, k, v, o;                              // biases if attention_bias
  std::optional<TensorView> q_norm, k_norm;              // [head_dim], if qk_norm
  TensorView gate, up;                                   // [intermediate, hidden]
  TensorView down;                                       // [hidden, intermediate]
  std::optional<TensorView> attention_scale, mlp_scale;  // [hidden], LayerScale; codec only
};

struct TransformerWeights {
  std::vector<TransformerLayerWeights> layers;
  TensorView norm;  // [hidden]
};

struct TalkerWeights {
  TensorView text_embedding;         // [text_vocab, text_hidden]
  LinearWeights text_fc1, text_fc2;  // [text_hidden, text_hidden], [H, text_hidden]
  TensorView codec_embedding;        // [vocab, H]
  TensorView codec_head;             // [vocab, H]
  TransformerWeights transformer;
  WeightTotals totals;
};

struct PredictorWeights {
  // H -> P before every input. Absent (identity) if the widths agree, as in the official code.
  std::optional<LinearWeights> input_projection;
  std::vector<TensorView> embeddings;  // G-1 of [predictor vocab, H]; group i+1 is entry i
  std::vector<TensorView> heads;       // G-1 of [predictor vocab, P]
  TransformerWeights transformer;
  WeightTotals totals;
};

struct ConvWeights {
  TensorView weight;               // [out, in/groups, kernel]; transposed: [in, out, kernel]
  std::optional<TensorView> bias;  // [out]
};

struct SnakeWeights {
  TensorView alpha, beta;  // [channels], logarithms
};

struct CodebookWeights {
  TensorView embedding_sum;  // [codebook_size, codebook_dim / 2]
  TensorView cluster_usage;  // [codebook_size]
};

struct ConvNeXtWeights {
  ConvWeights transposed;  // k = stride
  ConvWeights depthwise;   // [latent, 1, 7]
  TensorView norm_weight, norm_bias;
  LinearWeights expand, contract;
  TensorView gamma;
};

struct ResidualUnitWeights {
  SnakeWeights act1, act2;
  ConvWeights conv1, conv2;  // k = 7 dilated; k = 1
};

struct DecoderBlockWeights {
  SnakeWeights snake;
  ConvWeights transposed;                      // k = 2 * stride
  std::vector<ResidualUnitWeights> residuals;  // dilation 1, 3, 9
};

struct CodecWeights {
  std::vector<CodebookWeights> codebooks;             // num_quantizers; semantic ones first
  TensorView semantic_projection;                     // [codebook_dim, codebook_dim / 2, 1]
  TensorView acoustic_projection;                     // same
  ConvWeights pre_conv;                               // [latent, codebook_dim, 3]
  LinearWeights input_projection, output_projection;  // of the pre-transformer
  TransformerWeights transformer;
  std::vector<ConvNeXtWeights> upsample;
  ConvWeights first_conv;  // [decoder_dim, latent, 7]
  std::vector<DecoderBlockWeights> blocks;
  SnakeWeights last_snake;
  ConvWeights last_conv;  // [1, decoder_dim >> blocks, 7]
  WeightTotals totals;
};

// Binds the talker's weights. The first missing or malformed tensor is an error that names the file, the tensor, the
// expected shape with its config keys, and the found one.
Result<TalkerWeights> BindTalker(const TensorStore& store, const TalkerConfig& config);
Result<PredictorWeights> BindPredictor(const TensorStore& store, const TalkerConfig& talker,
                                       const PredictorConfig& config);
Result<CodecWeights> BindCodec(const TensorStore& store, const CodecConfig& config);

}  // namespace qtts

#endif  // QTTS_CHECKPOINT_WEIGHTS_H_
