// SPDX-License-Identifier: LGPL-2.1-or-later
#include "checkpoint/voice_encoder.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "checkpoint/json_reader.h"
#include "checkpoint/tensor_binder.h"

namespace qtts {
namespace {

using nlohmann::json;

// Bounds far above any real model, as in config.cc.
constexpr int kMaxEncoderWidth = 1 << 16;
constexpr int kMaxSmall = 1 << 10;
constexpr int kMaxEncoderRows = 1 << 24;
constexpr int kMaxEncoderStages = 8;

// Sample rate of recordings, and stride of the last stage: the transformer runs at twice the frame rate.
constexpr int kRecordingRate = 24000;
constexpr int kLastStride = 2;

// Reads an array of integers from 1 to `most`.
std::vector<int> Integers(JsonFields* fields, const char* key, std::vector<int> fallback, int most) {
  const json* value = fields->Find(key);
  if (value == nullptr) return fallback;
  const bool good = value->is_array() && !value->empty() && value->size() <= kMaxEncoderStages &&
                    std::all_of(value->begin(), value->end(), [most](const json& item) {
                      return item.is_number_unsigned() && item.get<uint64_t>() >= 1 &&
                             item.get<uint64_t>() <= static_cast<uint64_t>(most);
                    });
  if (good) return value->get<std::vector<int>>();
  fields->Refuse(key, "1 to " + std::to_string(kMaxEncoderStages) + " integers from 1 to " + std::to_string(most));
  return fallback;
}

SpeakerEncoderConfig ReadSpeaker(JsonFields* document, int enc_dim) {
  JsonFields fields = document->Object("speaker_encoder_config", /*optional=*/true);
  SpeakerEncoderConfig config;
  config.enc_dim = enc_dim;
  config.mel_bins = fields.Int("mel_dim", 1, kMaxSmall, 128);
  config.channels = Integers(&fields, "enc_channels", {512, 512, 512, 512, 1536}, kMaxEncoderWidth);
  config.kernel_sizes = Integers(&fields, "enc_kernel_sizes", {5, 3, 3, 3, 1}, kMaxSmall);
  config.dilations = Integers(&fields, "enc_dilations", {1, 2, 3, 4, 1}, kMaxSmall);
  config.attention_channels = fields.Int("enc_attention_channels", 1, kMaxEncoderWidth, 128);
  config.res2net_scale = fields.Int("enc_res2net_scale", 2, kMaxSmall, 8);
  config.se_channels = fields.Int("enc_se_channels", 1, kMaxEncoderWidth, 128);
  if (fields.Int("sample_rate", 1, INT32_MAX, kRecordingRate) != kRecordingRate) {
    fields.Refuse("sample_rate", std::to_string(kRecordingRate), StatusCode::kUnsupported);
  }
  const size_t layers = config.channels.size();
  if (layers < 3) fields.Refuse("enc_channels", "at least 3 entries");
  if (config.kernel_sizes.size() != layers) fields.Refuse("enc_kernel_sizes", "as many entries as enc_channels");
  if (config.dilations.size() != layers) fields.Refuse("enc_dilations", "as many entries as enc_channels");
  for (const int size : config.kernel_sizes) {
    if (size % 2 == 0) fields.Refuse("enc_kernel_sizes", "odd numbers", StatusCode::kUnsupported);
  }
  int joined = 0;
  for (size_t i = 0; i + 1 < layers; ++i) {
    if (config.channels[i] != config.channels[0]) {
      fields.Refuse("enc_channels", "equal entries but for the last", StatusCode::kUnsupported);
    }
    if (i > 0) joined += config.channels[i];
  }
  if (config.channels[0] % config.res2net_scale != 0) fields.Refuse("enc_res2net_scale", "a divisor of enc_channels");
  if (layers >= 3 && config.channels.back() != joined) {
    fields.Refuse("enc_channels", std::to_string(joined) + " as its last entry, the sum of those it joins");
  }
  return config;
}

// Refuses settings of Mimi that would change its arithmetic from spec 8.
void RefuseEncoderVariants(JsonFields* fields) {
  const auto unsupported = [&](const char* key, const std::string& expected) {
    fields->Refuse(key, expected, StatusCode::kUnsupported);
  };
  const std::pair<const char*, int> integers[] = {
      {"audio_channels", 1}, {"sampling_rate", kRecordingRate}, {"num_residual_layers", 1},
      {"kernel_size", 7},    {"last_kernel_size", 3},           {"residual_kernel_size", 3},
      {"compress", 2},       {"num_semantic_quantizers", 1}};
  for (const auto& [key, wanted] : integers) {
    if (fields->Int(key, 0, INT32_MAX, wanted) != wanted) unsupported(key, std::to_string(wanted));
  }
  if (!fields->Bool("use_causal_conv", true)) unsupported("use_causal_conv", "true");
  if (fields->Bool("use_conv_shortcut", false)) unsupported("use_conv_shortcut", "false");
  if (fields->Bool("attention_bias", false)) unsupported("attention_bias", "false");
  if (fields->String("pad_mode", "constant") != "constant") unsupported("pad_mode", "\"constant\"");
  if (fields->String("hidden_act", "gelu") != "gelu") unsupported("hidden_act", "\"gelu\"");
}

CodecEncoderConfig ReadCodec(JsonFields* document, const ModelConfig& model) {
  JsonFields fields = document->Object("encoder_config", /*optional=*/true);
  RefuseEncoderVariants(&fields);
  CodecEncoderConfig config;
  config.num_filters = fields.Int("num_filters", 2, kMaxEncoderWidth >> kMaxEncoderStages, 64);
  if (config.num_filters % 2 != 0) fields.Refuse("num_filters", "an even number");
  config.strides = Integers(&fields, "upsampling_ratios", {8, 6, 5, 4}, kMaxSmall);
  std::reverse(config.strides.begin(), config.strides.end());
  config.hidden_size = fields.Int("hidden_size", 1, kMaxEncoderWidth, 512);
  config.intermediate_size = fields.Int("intermediate_size", 1, kMaxEncoderWidth, 2048);
  config.num_layers = fields.Int("num_hidden_layers", 1, kMaxSmall, 8);
  config.num_heads = fields.Int("num_attention_heads", 1, kMaxSmall, 8);
  if (fields.Int("num_key_value_heads", 1, kMaxSmall, config.num_heads) != config.num_heads) {
    fields.Refuse("num_key_value_heads", "num_attention_heads", StatusCode::kUnsupported);
  }
  config.head_dim = fields.Int("head_dim", 2, kMaxSmall, std::max(config.hidden_size / config.num_heads, 2));
  if (config.head_dim % 2 != 0) fields.Refuse("head_dim", "an even number");
  config.norm_eps = fields.Positive("norm_eps", 1, 1e-5F);
  config.rope_theta = fields.Positive("rope_theta", 1e12F, 10000);
  config.codebook_dim = fields.Int("codebook_dim", 1, kMaxEncoderWidth, 256);
  // Otherwise there would be no projection before the codebooks.
  if (fields.Int("vector_quantization_hidden_dimension", 1, kMaxEncoderWidth, 256) != config.codebook_dim ||
      config.codebook_dim == config.hidden_size) {
    fields.Refuse("vector_quantization_hidden_dimension", "codebook_dim, and less than hidden_size",
                  StatusCode::kUnsupported);
  }
  config.codebook_size = fields.Int("codebook_size", 1, kMaxEncoderRows, 2048);
  if (config.codebook_size > model.codec.codebook_size) {
    fields.Refuse("codebook_size", "at most the decoder's " + std::to_string(model.codec.codebook_size));
  }
  config.num_quantizers = model.talker.num_code_groups;
  if (fields.Int("num_quantizers", 2, kMaxSmall, 32) < config.num_quantizers) {
    fields.Refuse("num_quantizers", "at least the talker's " + std::to_string(config.num_quantizers));
  }
  int64_t samples = kLastStride;
  for (const int stride : config.strides) samples = std::min<int64_t>(samples * stride, INT32_MAX);
  config.samples_per_frame = static_cast<int>(samples);
  if (samples != model.codec.samples_per_frame) {
    fields.Refuse("upsampling_ratios", "a product of half the decoder's " +
                                           std::to_string(model.codec.samples_per_frame) + " samples per frame");
  }
  return config;
}

// Binds "<name>.weight" [out, in, kernel] and "<name>.bias".
ConvWeights SpeakerConv(TensorBinder* binder, const std::string& name, Dim out, Dim in, int64_t kernel) {
  return {binder->Tensor(name + ".weight", {out, in, {kernel}}), binder->Tensor(name + ".bias", {out})};
}

SpeakerEncoderWeights BindSpeaker(TensorBinder* binder, const SpeakerEncoderConfig& config) {
  const std::string prefix = "speaker_encoder.";
  const Dim channels = {config.channels.front(), "enc_channels"};
  const Dim branch = {config.channels.front() / config.res2net_scale, "enc_channels / enc_res2net_scale"};
  const Dim joined = {config.channels.back(), "enc_channels"};
  const Dim squeezed = {config.se_channels, "enc_se_channels"};
  const Dim attention = {config.attention_channels, "enc_attention_channels"};
  SpeakerEncoderWeights w;
  w.first = SpeakerConv(binder, prefix + "blocks.0.conv", channels, {config.mel_bins, "mel_dim"},
                        config.kernel_sizes.front());
  for (size_t i = 1; i + 1 < config.channels.size(); ++i) {
    const std::string block = prefix + "blocks." + std::to_string(i) + ".";
    Res2NetWeights& b = w.blocks.emplace_back();
    b.tdnn1 = SpeakerConv(binder, block + "tdnn1.conv", channels, channels, 1);
    for (int j = 0; j + 1 < config.res2net_scale; ++j) {
      b.branches.push_back(SpeakerConv(binder, block + "res2net_block.blocks." + std::to_string(j) + ".conv", branch,
                                       branch, config.kernel_sizes[i]));
    }
    b.tdnn2 = SpeakerConv(binder, block + "tdnn2.conv", channels, channels, 1);
    b.squeeze = SpeakerConv(binder, block + "se_block.conv1", squeezed, channels, 1);
    b.excite = SpeakerConv(binder, block + "se_block.conv2", channels, squeezed, 1);
  }
  w.aggregate = SpeakerConv(binder, prefix + "mfa.conv", joined, joined, config.kernel_sizes.back());
  w.attention_tdnn = SpeakerConv(binder, prefix + "asp.tdnn.conv", attention,
                                 {int64_t{3} * config.channels.back(), "3 * enc_channels"}, 1);
  w.attention = SpeakerConv(binder, prefix + "asp.conv", joined, attention, 1);
  w.output = SpeakerConv(binder, prefix + "fc", {config.enc_dim, "enc_dim"},
                         {int64_t{2} * config.channels.back(), "2 * enc_channels"}, 1);
  w.totals = binder->totals();
  return w;
}

EncoderLayerWeights BindLayer(TensorBinder* binder, const std::string& layer, const CodecEncoderConfig& config) {
  const Dim hidden = {config.hidden_size, "hidden_size"};
  const Dim width = {config.width(), "num_attention_heads * head_dim"};
  const Dim intermediate = {config.intermediate_size, "intermediate_size"};
  EncoderLayerWeights w;
  w.input_norm = binder->Tensor(layer + "input_layernorm.weight", {hidden});
  w.input_norm_bias = binder->Tensor(layer + "input_layernorm.bias", {hidden});
  w.post_norm = binder->Tensor(layer + "post_attention_layernorm.weight", {hidden});
  w.post_norm_bias = binder->Tensor(layer + "post_attention_layernorm.bias", {hidden});
  w.q = binder->Tensor(layer + "self_attn.q_proj.weight", {width, hidden});
  w.k = binder->Tensor(layer + "self_attn.k_proj.weight", {width, hidden});
  w.v = binder->Tensor(layer + "self_attn.v_proj.weight", {width, hidden});
  w.o = binder->Tensor(layer + "self_attn.o_proj.weight", {hidden, width});
  w.fc1 = binder->Tensor(layer + "mlp.fc1.weight", {intermediate, hidden});
  w.fc2 = binder->Tensor(layer + "mlp.fc2.weight", {hidden, intermediate});
  w.attention_scale = binder->Tensor(layer + "self_attn_layer_scale.scale", {hidden});
  w.mlp_scale = binder->Tensor(layer + "mlp_layer_scale.scale", {hidden});
  return w;
}

CodecEncoderWeights BindCodecEncoder(TensorBinder* binder, const CodecEncoderConfig& config) {
  const std::string prefix = "encoder.";
  const char* const kWidths = "num_filters";
  const auto module = [&](int index) { return prefix + "encoder.layers." + std::to_string(index); };
  const Dim hidden = {config.hidden_size, "hidden_size"};
  CodecEncoderWeights w;
  int64_t channels = config.num_filters;
  int index = 0;
  w.first_conv = binder->Conv(module(index), {{channels, kWidths}, {1}, {7}}, {channels});
  for (const int stride : config.strides) {
    const Dim in = {channels, kWidths};
    const Dim half = {channels / 2, kWidths};
    const Dim out = {2 * channels, kWidths};
    EncoderStageWeights& stage = w.stages.emplace_back();
    stage.residual1 = binder->Conv(module(index + 1) + ".block.1", {half, in, {3}}, half);
    stage.residual2 = binder->Conv(module(index + 1) + ".block.3", {in, half, {1}}, in);
    stage.strided = binder->Conv(module(index + 3), {out, in, {int64_t{2} * stride, "2 * upsampling_ratios"}}, out);
    index += 3;
    channels *= 2;
  }
  w.last_conv = binder->Conv(module(index + 2), {hidden, {channels, kWidths}, {3}}, hidden);
  for (int i = 0; i < config.num_layers && !binder->failed(); ++i) {
    w.layers.push_back(BindLayer(binder, prefix + "encoder_transformer.layers." + std::to_string(i) + ".", config));
  }
  w.downsample.weight = binder->Tensor(prefix + "downsample.conv.weight", {hidden, hidden, {int64_t{2} * kLastStride}});
  const Dim dim = {config.codebook_dim, "codebook_dim"};
  const auto quantizer = [&](bool semantic) {
    return prefix + "quantizer." + (semantic ? "semantic" : "acoustic") + "_residual_vector_quantizer.";
  };
  w.semantic_projection = binder->Tensor(quantizer(true) + "input_proj.weight", {dim, hidden, {1}});
  w.acoustic_projection = binder->Tensor(quantizer(false) + "input_proj.weight", {dim, hidden, {1}});
  for (int q = 0; q < config.num_quantizers && !binder->failed(); ++q) {
    const Dim entries = {config.codebook_size, "codebook_size"};
    const std::string book = quantizer(q == 0) + "layers." + std::to_string(q == 0 ? 0 : q - 1) + ".codebook.";
    w.codebooks.push_back(
        {binder->Tensor(book + "embed_sum", {entries, dim}), binder->Tensor(book + "cluster_usage", {entries})});
  }
  w.totals = binder->totals();
  return w;
}

}  // namespace

Result<VoiceEncoderConfig> ParseVoiceEncoderConfig(const std::string& folder, const ModelConfig& model,
                                                   std::string_view config_json, std::string_view codec_json) {
  VoiceEncoderConfig config;
  Status status;
  const std::string model_file = folder + "/config.json";
  QTTS_ASSIGN_OR_RETURN(const json model_document, ParseJson(config_json, model_file));
  JsonFields fields(model_document, model_file, "", &status);
  config.speaker = ReadSpeaker(&fields, model.speaker_encoder_dim);
  QTTS_RETURN_IF_ERROR(status);
  const std::string codec_file = folder + "/speech_tokenizer/config.json";
  QTTS_ASSIGN_OR_RETURN(const json codec_document, ParseJson(codec_json, codec_file));
  JsonFields codec(codec_document, codec_file, "", &status);
  config.codec = ReadCodec(&codec, model);
  QTTS_RETURN_IF_ERROR(status);
  return config;
}

Result<VoiceEncoderWeights> BindVoiceEncoder(const TensorStore& model_store, const TensorStore& codec_store,
                                             const VoiceEncoderConfig& config) {
  VoiceEncoderWeights weights;
  TensorBinder speaker(model_store, "speaker_encoder_config");
  weights.speaker = BindSpeaker(&speaker, config.speaker);
  if (speaker.failed()) return speaker.status();
  TensorBinder codec(codec_store, "encoder_config");
  weights.codec = BindCodecEncoder(&codec, config.codec);
  if (codec.failed()) return codec.status();
  return weights;
}

}  // namespace qtts
