// SPDX-License-Identifier: LGPL-2.1-or-later
#include "checkpoint/weights.h"

#include <string>

#include "checkpoint/tensor_binder.h"

namespace qtts {
namespace {

TransformerWeights BindTransformer(TensorBinder* binder, const std::string& prefix, const TransformerConfig& config,
                                   bool layer_scale) {
  const Dim hidden = {config.hidden_size, "hidden_size"};
  const Dim q = {config.q_width(), "num_attention_heads * head_dim"};
  const Dim kv = {config.kv_width(), "num_key_value_heads * head_dim"};
  const Dim head = {config.head_dim, "head_dim"};
  const Dim intermediate = {config.intermediate_size, "intermediate_size"};
  const bool bias = config.attention_bias;

  TransformerWeights weights;
  for (int i = 0; i < config.num_layers && !binder->failed(); ++i) {
    const std::string layer = prefix + "layers." + std::to_string(i) + ".";
    TransformerLayerWeights& w = weights.layers.emplace_back();
    w.input_norm = binder->Tensor(layer + "input_layernorm.weight", {hidden});
    w.post_norm = binder->Tensor(layer + "post_attention_layernorm.weight", {hidden});
    w.q = binder->Linear(layer + "self_attn.q_proj", q, hidden, bias);
    w.k = binder->Linear(layer + "self_attn.k_proj", kv, hidden, bias);
    w.v = binder->Linear(layer + "self_attn.v_proj", kv, hidden, bias);
    w.o = binder->Linear(layer + "self_attn.o_proj", hidden, q, bias);
    if (config.qk_norm) {
      w.q_norm = binder->Tensor(layer + "self_attn.q_norm.weight", {head});
      w.k_norm = binder->Tensor(layer + "self_attn.k_norm.weight", {head});
    }
    w.gate = binder->Tensor(layer + "mlp.gate_proj.weight", {intermediate, hidden});
    w.up = binder->Tensor(layer + "mlp.up_proj.weight", {intermediate, hidden});
    w.down = binder->Tensor(layer + "mlp.down_proj.weight", {hidden, intermediate});
    if (layer_scale) {
      w.attention_scale = binder->Tensor(layer + "self_attn_layer_scale.scale", {hidden});
      w.mlp_scale = binder->Tensor(layer + "mlp_layer_scale.scale", {hidden});
    }
  }
  weights.norm = binder->Tensor(prefix + "norm.weight", {hidden});
  return weights;
}

ConvNeXtWeights BindConvNeXt(TensorBinder* binder, const std::string& prefix, int latent_dim, int stride) {
  const Dim latent = {latent_dim, "latent_dim"};
  const Dim wide = {int64_t{4} * latent_dim, "4 * latent_dim"};
  ConvNeXtWeights w;
  w.transposed = binder->Conv(prefix + "0", {latent, latent, {stride, "upsampling_ratios"}}, latent);
  w.depthwise = binder->Conv(prefix + "1.dwconv", {latent, {1}, {7}}, latent);
  w.norm_weight = binder->Tensor(prefix + "1.norm.weight", {latent});
  w.norm_bias = binder->Tensor(prefix + "1.norm.bias", {latent});
  w.expand = binder->Linear(prefix + "1.pwconv1", wide, latent, true);
  w.contract = binder->Linear(prefix + "1.pwconv2", latent, wide, true);
  w.gamma = binder->Tensor(prefix + "1.gamma", {latent});
  return w;
}

DecoderBlockWeights BindDecoderBlock(TensorBinder* binder, const std::string& prefix, int in_channels, int rate) {
  constexpr int kFirstResidual = 2;
  constexpr int kResiduals = 3;
  const Dim in = {in_channels, "halves of decoder_dim"};
  const Dim out = {in_channels / 2, "halves of decoder_dim"};
  DecoderBlockWeights w;
  w.snake = binder->Snake(prefix + "0", in);
  w.transposed = binder->Conv(prefix + "1", {in, out, {int64_t{2} * rate, "2 * upsample_rates"}}, out);
  for (int i = kFirstResidual; i < kFirstResidual + kResiduals; ++i) {
    const std::string unit = prefix + std::to_string(i) + ".";
    ResidualUnitWeights& r = w.residuals.emplace_back();
    r.act1 = binder->Snake(unit + "act1", out);
    r.conv1 = binder->Conv(unit + "conv1", {out, out, {7}}, out);
    r.act2 = binder->Snake(unit + "act2", out);
    r.conv2 = binder->Conv(unit + "conv2", {out, out, {1}}, out);
  }
  return w;
}

}  // namespace

Result<TalkerWeights> BindTalker(const TensorStore& store, const TalkerConfig& config) {
  const Dim hidden = {config.transformer.hidden_size, "hidden_size"};
  const Dim text = {config.text_hidden_size, "text_hidden_size"};
  const Dim vocab = {config.vocab_size, "vocab_size"};
  TensorBinder binder(store, "talker_config");
  TalkerWeights w;
  w.text_embedding =
      binder.Tensor("talker.model.text_embedding.weight", {{config.text_vocab_size, "text_vocab_size"}, text});
  w.text_fc1 = binder.Linear("talker.text_projection.linear_fc1", text, text, true);
  w.text_fc2 = binder.Linear("talker.text_projection.linear_fc2", hidden, text, true);
  w.codec_embedding = binder.Tensor("talker.model.codec_embedding.weight", {vocab, hidden});
  w.codec_head = binder.Tensor("talker.codec_head.weight", {vocab, hidden});
  w.transformer = BindTransformer(&binder, "talker.model.", config.transformer, false);
  w.totals = binder.totals();
  if (binder.failed()) return binder.status();
  return w;
}

Result<PredictorWeights> BindPredictor(const TensorStore& store, const TalkerConfig& talker,
                                       const PredictorConfig& config) {
  const std::string prefix = "talker.code_predictor.";
  const Dim hidden = {config.transformer.hidden_size, "hidden_size"};
  const Dim talker_width = {talker.transformer.hidden_size, "the talker's hidden_size"};
  const Dim vocab = {config.vocab_size, "vocab_size"};
  TensorBinder binder(store, "code_predictor_config");
  PredictorWeights w;
  if (hidden.size != talker_width.size) {
    w.input_projection = binder.Linear(prefix + "small_to_mtp_projection", hidden, talker_width, true);
  }
  for (int i = 0; i < talker.num_code_groups - 1; ++i) {
    const std::string group = std::to_string(i) + ".weight";
    w.embeddings.push_back(binder.Tensor(prefix + "model.codec_embedding." + group, {vocab, talker_width}));
    w.heads.push_back(binder.Tensor(prefix + "lm_head." + group, {vocab, hidden}));
  }
  w.transformer = BindTransformer(&binder, prefix + "model.", config.transformer, false);
  w.totals = binder.totals();
  if (binder.failed()) return binder.status();
  return w;
}

Result<CodecWeights> BindCodec(const TensorStore& store, const CodecConfig& config) {
  const std::string prefix = "decoder.";
  const Dim entries = {config.codebook_size, "codebook_size"};
  const Dim width = {config.codebook_dim, "codebook_dim"};
  const Dim codeword = {config.codebook_dim / 2, "codebook_dim / 2"};
  const Dim latent = {config.latent_dim, "latent_dim"};
  const Dim hidden = {config.transformer.hidden_size, "hidden_size"};
  TensorBinder binder(store, "decoder_config");
  CodecWeights w;
  for (int q = 0; q < config.num_quantizers; ++q) {
    const bool semantic = q < config.num_semantic_quantizers;
    const std::string book = prefix + "quantizer." + (semantic ? "rvq_first" : "rvq_rest") + ".vq.layers." +
                             std::to_string(semantic ? q : q - config.num_semantic_quantizers) + "._codebook.";
    CodebookWeights& codebook = w.codebooks.emplace_back();
    codebook.embedding_sum = binder.Tensor(book + "embedding_sum", {entries, codeword});
    codebook.cluster_usage = binder.Tensor(book + "cluster_usage", {entries});
  }
  w.semantic_projection = binder.Tensor(prefix + "quantizer.rvq_first.output_proj.weight", {width, codeword, {1}});
  w.acoustic_projection = binder.Tensor(prefix + "quantizer.rvq_rest.output_proj.weight", {width, codeword, {1}});
  w.pre_conv = binder.Conv(prefix + "pre_conv", {latent, width, {3}}, latent);
  w.input_projection = binder.Linear(prefix + "pre_transformer.input_proj", hidden, latent, true);
  w.output_projection = binder.Linear(prefix + "pre_transformer.output_proj", latent, hidden, true);
  w.transformer = BindTransformer(&binder, prefix + "pre_transformer.", config.transformer, true);
  for (size_t i = 0; i < config.upsampling_ratios.size(); ++i) {
    w.upsample.push_back(BindConvNeXt(&binder, prefix + "upsample." + std::to_string(i) + ".", config.latent_dim,
                                      config.upsampling_ratios[i]));
  }
  const auto module = [&](size_t i) { return prefix + "decoder." + std::to_string(i); };
  const size_t blocks = config.upsample_rates.size();
  const Dim first = {config.decoder_dim, "decoder_dim"};
  const Dim last = {config.decoder_dim >> blocks, "halves of decoder_dim"};
  w.first_conv = binder.Conv(module(0), {first, latent, {7}}, first);
  for (size_t i = 0; i < blocks; ++i) {
    w.blocks.push_back(
        BindDecoderBlock(&binder, module(i + 1) + ".block.", config.decoder_dim >> i, config.upsample_rates[i]));
  }
  w.last_snake = binder.Snake(module(blocks + 1), last);
  w.last_conv = binder.Conv(module(blocks + 2), {{1}, last, {7}}, {1});
  w.totals = binder.totals();
  if (binder.failed()) return binder.status();
  return w;
}

}  // namespace qtts
