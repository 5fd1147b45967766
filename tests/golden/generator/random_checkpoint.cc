// SPDX-License-Identifier: LGPL-2.1-or-later
#include "golden/generator/random_checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <system_error>
#include <utility>

#include "golden/generator/tensor_file.h"
#include "golden/generator/tokenizer_files.h"

namespace qtts::golden {
namespace {

using Json = nlohmann::ordered_json;

// The control ids lie at fixed distances above the codebook (spec 1.3: 2148 = 2048 + 100, …).
constexpr int kControlRows = 1024;
constexpr int kPad = 100, kBos = 101, kEos = 102, kThink = 106, kNothink = 107, kThinkBos = 108, kThinkEos = 109;

// --- Tensors ---------------------------------------------------------------------------------

// Collects the tensors of one file.
class Inventory {
 public:
  Inventory(uint64_t seed, DType dtype) : seed_(seed), dtype_(dtype) {}

  // Uniform in [center - spread, center + spread).
  void Uniform(const std::string& name, std::vector<int64_t> shape, double center, double spread) {
    Add(name, std::move(shape), [values = RandomValues(seed_, name), center, spread](uint64_t first, auto out) {
      values.Uniform(first, center, spread, out);
    });
  }

  // Uniform with mean 0 and a variance of gain² / fan_in.
  void Weight(const std::string& name, std::vector<int64_t> shape, int64_t fan_in, double gain = 1) {
    Uniform(name, std::move(shape), 0, gain * kSqrt3 * InverseSqrt(static_cast<uint64_t>(fan_in)));
  }

  void Linear(const std::string& name, int64_t out, int64_t in, bool bias, double gain = 1) {
    Weight(name + ".weight", {out, in}, in, gain);
    if (bias) Uniform(name + ".bias", {out}, 0, 0.2);
  }

  void Conv(const std::string& name, int64_t out, int64_t in, int64_t kernel, double gain = 1) {
    Weight(name + ".conv.weight", {out, in, kernel}, in * kernel, gain);
    Uniform(name + ".conv.bias", {out}, 0, 0.1);
  }

  // For a convolution with `taps` kernel elements for each output.
  void TransposedConv(const std::string& name, int64_t in, int64_t out, int64_t kernel, int64_t taps) {
    Weight(name + ".conv.weight", {in, out, kernel}, in * taps);
    Uniform(name + ".conv.bias", {out}, 0, 0.1);
  }

  // Divides the elements of the last tensor for which `chosen`(index) is true by 20.
  template <typename Chosen>
  void Weaken(Chosen chosen) {
    tensors_.back().fill = [fill = tensors_.back().fill, chosen](uint64_t first, auto out) {
      fill(first, out);
      for (size_t i = 0; i < out.size(); ++i) {
        if (chosen(first + i)) out[i] *= 0.05F;
      }
    };
  }
  // Sets one element of the last tensor.
  void Set(uint64_t index, double value) {
    tensors_.back().fill = [fill = tensors_.back().fill, index, value](uint64_t first, auto out) {
      fill(first, out);
      if (index >= first && index - first < out.size()) out[index - first] = static_cast<float>(value);
    };
  }
  void WeakenFirstRow(int64_t columns) {
    Weaken([columns](uint64_t index) { return index < static_cast<uint64_t>(columns); });
  }
  void WeakenFirstColumn(int64_t columns) {
    Weaken([columns](uint64_t index) { return index % static_cast<uint64_t>(columns) == 0; });
  }

  void Norm(const std::string& name, int64_t width) { Uniform(name + ".weight", {width}, 1, 0.2); }

  void Add(const std::string& name, std::vector<int64_t> shape, TensorFill fill) {
    tensors_.push_back({name, std::move(shape), dtype_, std::move(fill)});
  }

  uint64_t seed() const { return seed_; }
  const std::vector<GeneratedTensor>& tensors() const { return tensors_; }

 private:
  static constexpr double kSqrt3 = 1.7320508075688772;

  uint64_t seed_;
  DType dtype_;
  std::vector<GeneratedTensor> tensors_;
};

enum class Kind { kTalker, kPredictor, kCodec };

// The layers and final norm that talker, predictor and the codec's pre-transformer share. The first two
// normalise q and k, the last has LayerScale.
void AddTransformer(Inventory* file, const std::string& prefix, const TransformerSpec& spec, Kind kind) {
  const int64_t width = spec.hidden_size;
  const int64_t q_width = int64_t{spec.num_attention_heads} * spec.head_dim;
  const int64_t kv_width = int64_t{spec.num_key_value_heads} * spec.head_dim;
  const bool bias = spec.attention_bias != 0;
  for (int i = 0; i < spec.num_hidden_layers; ++i) {
    const std::string layer = prefix + "layers." + std::to_string(i) + ".";
    file->Norm(layer + "input_layernorm", width);
    file->Linear(layer + "self_attn.q_proj", q_width, width, bias);
    file->Linear(layer + "self_attn.k_proj", kv_width, width, bias);
    file->Linear(layer + "self_attn.v_proj", kv_width, width, bias);
    file->Linear(layer + "self_attn.o_proj", width, q_width, false, 0.7);
    if (kind == Kind::kTalker) file->WeakenFirstRow(q_width);
    if (bias) file->Uniform(layer + "self_attn.o_proj.bias", {width}, 0, 0.2);
    if (kind != Kind::kCodec) {
      file->Uniform(layer + "self_attn.q_norm.weight", {spec.head_dim}, 1.3, 0.3);
      file->Uniform(layer + "self_attn.k_norm.weight", {spec.head_dim}, 1.3, 0.3);
    } else {
      file->Uniform(layer + "self_attn_layer_scale.scale", {width}, 0.65, 0.35);
      file->Uniform(layer + "mlp_layer_scale.scale", {width}, 0.65, 0.35);
    }
    file->Norm(layer + "post_attention_layernorm", width);
    file->Linear(layer + "mlp.gate_proj", spec.intermediate_size, width, false, 1.5);
    file->Linear(layer + "mlp.up_proj", spec.intermediate_size, width, false);
    file->Linear(layer + "mlp.down_proj", width, spec.intermediate_size, false);
    if (kind == Kind::kTalker) file->WeakenFirstRow(spec.intermediate_size);
  }
  file->Norm(prefix + "norm", width);
}

// Element 0 of the talker's residual stream is nearly constant: it comes from the bias of the text projection, which is
// part of every input. It sets the probability of the end.
constexpr double kSteady = 2.5;
constexpr double kSteadyNormed = 1.6;  // its approximate value after the final norm

void AddCodecHead(Inventory* file, const RandomCheckpointSpec& spec) {
  const std::string name = "talker.codec_head.weight";
  const int64_t width = spec.talker.hidden_size;
  file->Weight(name, {spec.codebook_size + kControlRows, width}, width, 3);
  const uint64_t eos = static_cast<uint64_t>(spec.codebook_size + kEos) * static_cast<uint64_t>(width);
  file->Set(eos, spec.eos_logit / kSteadyNormed);
}

void AddTalker(Inventory* file, const RandomCheckpointSpec& spec) {
  const int64_t width = spec.talker.hidden_size;
  const int64_t text = spec.text_hidden_size;
  const std::string projection = "talker.text_projection.";
  file->Uniform("talker.model.text_embedding.weight", {spec.text_vocab_size, text}, 0, 1);
  file->Linear(projection + "linear_fc1", text, text, true, 2);
  file->Weight(projection + "linear_fc2.weight", {width, text}, text, 1.2);
  file->WeakenFirstRow(text);
  file->Uniform(projection + "linear_fc2.bias", {width}, 0, 0.3);
  file->Set(0, kSteady);
  file->Uniform("talker.model.codec_embedding.weight", {spec.codebook_size + kControlRows, width}, 0, 1);
  file->WeakenFirstColumn(width);
  AddCodecHead(file, spec);
  AddTransformer(file, "talker.model.", spec.talker, Kind::kTalker);
}

void AddPredictor(Inventory* file, const RandomCheckpointSpec& spec) {
  const int64_t width = spec.predictor.hidden_size;
  const int64_t talker_width = spec.talker.hidden_size;
  const std::string prefix = "talker.code_predictor.";
  if (width != talker_width) file->Linear(prefix + "small_to_mtp_projection", width, talker_width, true);
  for (int i = 0; i < spec.num_code_groups - 1; ++i) {
    const std::string group = std::to_string(i) + ".weight";
    file->Uniform(prefix + "model.codec_embedding." + group, {spec.codebook_size, talker_width}, 0, 0.5);
    file->WeakenFirstColumn(talker_width);
    file->Weight(prefix + "lm_head." + group, {spec.codebook_size, width}, width, 3);
  }
  AddTransformer(file, prefix + "model.", spec.predictor, Kind::kPredictor);
}

// Conv1d with bias, as everywhere in the speaker encoder.
void AddSpeakerConv(Inventory* file, const std::string& name, int64_t out, int64_t in, int64_t kernel) {
  file->Weight(name + ".weight", {out, in, kernel}, in * kernel, 1.4);
  file->Uniform(name + ".bias", {out}, 0, 0.1);
}

void AddSpeakerEncoder(Inventory* file, const SpeakerEncoderSpec& spec, int64_t enc_dim) {
  constexpr int64_t kMels = 128;
  constexpr int64_t kScale = 8;
  const int64_t c = spec.channels;
  const std::string prefix = "speaker_encoder.";
  AddSpeakerConv(file, prefix + "blocks.0.conv", c, kMels, 5);
  for (int b = 1; b <= 3; ++b) {
    const std::string block = prefix + "blocks." + std::to_string(b) + ".";
    AddSpeakerConv(file, block + "tdnn1.conv", c, c, 1);
    for (int i = 0; i < kScale - 1; ++i) {
      AddSpeakerConv(file, block + "res2net_block.blocks." + std::to_string(i) + ".conv", c / kScale, c / kScale, 3);
    }
    AddSpeakerConv(file, block + "tdnn2.conv", c, c, 1);
    AddSpeakerConv(file, block + "se_block.conv1", spec.se_channels, c, 1);
    AddSpeakerConv(file, block + "se_block.conv2", c, spec.se_channels, 1);
  }
  AddSpeakerConv(file, prefix + "mfa.conv", spec.mfa_channels, 3 * c, 1);
  AddSpeakerConv(file, prefix + "asp.tdnn.conv", spec.attention_channels, int64_t{3} * spec.mfa_channels, 1);
  AddSpeakerConv(file, prefix + "asp.conv", spec.mfa_channels, spec.attention_channels, 1);
  AddSpeakerConv(file, prefix + "fc", enc_dim, int64_t{2} * spec.mfa_channels, 1);
}

// A codebook as sums and usages. Usages lie in [0.5, 2), except two of every 29, which lie below the clamp of 1e-5.
// Their sums are small, so that their codewords are similar to the others.
void AddCodebook(Inventory* file, const std::string& prefix, const char* sum_name, int64_t entries, int64_t dim,
                 double spread) {
  const std::string usage_name = prefix + "cluster_usage";
  const auto usage = [values = RandomValues(file->seed(), usage_name)](uint64_t entry) {
    if (entry % 29 == 7) return 3e-6F;
    if (entry % 29 == 20) return 0.0F;
    float value = 0;
    values.Uniform(entry, 1.25, 0.75, std::span<float>(&value, 1));
    return value;
  };
  file->Add(usage_name, {entries}, [usage](uint64_t first, auto out) {
    for (size_t i = 0; i < out.size(); ++i) out[i] = usage(first + i);
  });
  const std::string name = prefix + sum_name;
  file->Add(name, {entries, dim},
            [values = RandomValues(file->seed(), name), usage, dim, spread](uint64_t first, auto out) {
              values.Uniform(first, 0, spread, out);
              for (size_t i = 0; i < out.size(); ++i) {
                out[i] *= std::max(usage((first + i) / static_cast<uint64_t>(dim)), 1e-5F);
              }
            });
}

void AddSnake(Inventory* file, const std::string& name, int64_t channels) {
  file->Uniform(name + ".alpha", {channels}, 0, 0.4);
  file->Uniform(name + ".beta", {channels}, 0.3, 0.4);
}

void AddCodecDecoder(Inventory* file, const RandomCheckpointSpec& spec) {
  const CodecSpec& codec = spec.codec;
  const int64_t entries = spec.codebook_size;
  const int64_t dim = codec.codebook_dim;
  const int64_t latent = codec.latent_dim;
  const int64_t hidden = codec.transformer.hidden_size;
  const std::string prefix = "decoder.";

  const int groups = spec.num_code_groups;
  for (int q = 0; q < groups; ++q) {
    const std::string book =
        (q == 0 ? std::string("rvq_first.vq.layers.0") : "rvq_rest.vq.layers." + std::to_string(q - 1)) + "._codebook.";
    AddCodebook(file, prefix + "quantizer." + book, "embedding_sum", entries, dim / 2, q == 0 ? 2.0 : 0.5);
  }
  for (const char* part : {"rvq_first", "rvq_rest"}) {
    const std::string quantizer = prefix + "quantizer." + part;
    file->Weight(quantizer + ".input_proj.weight", {dim / 2, dim, 1}, dim);
    file->Weight(quantizer + ".output_proj.weight", {dim, dim / 2, 1}, dim / 2);
  }
  file->Conv(prefix + "pre_conv", latent, dim, 3);
  file->Linear(prefix + "pre_transformer.input_proj", hidden, latent, true);
  AddTransformer(file, prefix + "pre_transformer.", codec.transformer, Kind::kCodec);
  file->Linear(prefix + "pre_transformer.output_proj", latent, hidden, true);

  for (size_t u = 0; u < codec.upsampling_ratios.size(); ++u) {
    const std::string stage = prefix + "upsample." + std::to_string(u) + ".";
    const int64_t stride = codec.upsampling_ratios[u];
    file->TransposedConv(stage + "0", latent, latent, stride, 1);
    file->Conv(stage + "1.dwconv", latent, 1, 7);
    file->Norm(stage + "1.norm", latent);
    file->Uniform(stage + "1.norm.bias", {latent}, 0, 0.2);
    file->Linear(stage + "1.pwconv1", 4 * latent, latent, true);
    file->Linear(stage + "1.pwconv2", latent, 4 * latent, true);
    file->Uniform(stage + "1.gamma", {latent}, 0.65, 0.35);
  }

  int64_t channels = codec.decoder_dim;
  file->Conv(prefix + "decoder.0", channels, latent, 7);
  int index = 1;
  for (const int64_t stride : codec.upsample_rates) {
    const std::string block = prefix + "decoder." + std::to_string(index++) + ".block.";
    AddSnake(file, block + "0", channels);
    file->TransposedConv(block + "1", channels, channels / 2, 2 * stride, 2);
    channels /= 2;
    for (int r = 2; r <= 4; ++r) {
      const std::string unit = block + std::to_string(r) + ".";
      AddSnake(file, unit + "act1", channels);
      file->Conv(unit + "conv1", channels, channels, 7, 0.6);
      AddSnake(file, unit + "act2", channels);
      file->Conv(unit + "conv2", channels, channels, 1, 0.6);
    }
  }
  AddSnake(file, prefix + "decoder." + std::to_string(index++), channels);
  file->Conv(prefix + "decoder." + std::to_string(index), 1, channels, 7, 0.13);
}

// The strides of the encoder's convolutions, first to last.
constexpr int kEncoderStrides[] = {4, 5, 6, 8};

void AddCodecEncoder(Inventory* file, const RandomCheckpointSpec& spec) {
  const EncoderSpec& encoder = spec.codec.encoder;
  const std::string prefix = "encoder.";
  int64_t channels = encoder.num_filters;
  int layer = 0;
  const auto name = [&] { return prefix + "encoder.layers." + std::to_string(layer); };
  file->Conv(name(), channels, 1, 7);
  for (const int64_t stride : kEncoderStrides) {
    layer += 1;
    file->Conv(name() + ".block.1", channels / 2, channels, 3);
    file->Conv(name() + ".block.3", channels, channels / 2, 1);
    layer += 2;  // an activation lies between
    file->Conv(name(), 2 * channels, channels, 2 * stride);
    channels *= 2;
  }
  layer += 2;
  const int64_t hidden = encoder.hidden_size;
  file->Conv(name(), hidden, channels, 3);

  const int64_t heads = int64_t{encoder.num_attention_heads} * encoder.head_dim;
  for (int i = 0; i < encoder.num_hidden_layers; ++i) {
    const std::string block = prefix + "encoder_transformer.layers." + std::to_string(i) + ".";
    for (const char* norm : {"input_layernorm", "post_attention_layernorm"}) {
      file->Norm(block + norm, hidden);
      file->Uniform(block + norm + ".bias", {hidden}, 0, 0.2);
    }
    for (const char* projection : {"q_proj", "k_proj", "v_proj"}) {
      file->Linear(block + "self_attn." + projection, heads, hidden, false);
    }
    file->Linear(block + "self_attn.o_proj", hidden, heads, false);
    file->Linear(block + "mlp.fc1", encoder.intermediate_size, hidden, false);
    file->Linear(block + "mlp.fc2", hidden, encoder.intermediate_size, false);
    file->Uniform(block + "self_attn_layer_scale.scale", {hidden}, 0.65, 0.35);
    file->Uniform(block + "mlp_layer_scale.scale", {hidden}, 0.65, 0.35);
  }
  file->Weight(prefix + "downsample.conv.weight", {hidden, hidden, 4}, hidden * 4);

  const int64_t dim = encoder.codebook_dim;
  for (const char* part : {"semantic", "acoustic"}) {
    const bool semantic = std::string_view(part) == "semantic";
    const std::string quantizer = prefix + "quantizer." + part + "_residual_vector_quantizer.";
    file->Weight(quantizer + "input_proj.weight", {dim, hidden, 1}, hidden);
    file->Weight(quantizer + "output_proj.weight", {hidden, dim, 1}, dim);
    for (int i = 0; i < (semantic ? 1 : encoder.num_quantizers - 1); ++i) {
      const std::string book = quantizer + "layers." + std::to_string(i) + ".codebook.";
      AddCodebook(file, book, "embed_sum", spec.codebook_size, dim, 1.5);
      file->Uniform(book + "initialized", {1}, 1, 0);
    }
  }
}

// --- JSON files ------------------------------------------------------------------------------

const char* DTypeTorchName(DType dtype) {
  return dtype == DType::kF32 ? "float32" : dtype == DType::kF16 ? "float16" : "bfloat16";
}

// The keys that talker, predictor and pre-transformer share.
Json TransformerJson(const TransformerSpec& spec, double eps, int max_positions) {
  return {{"attention_bias", spec.attention_bias != 0},
          {"attention_dropout", 0},
          {"head_dim", spec.head_dim},
          {"hidden_act", "silu"},
          {"hidden_size", spec.hidden_size},
          {"intermediate_size", spec.intermediate_size},
          {"max_position_embeddings", max_positions},
          {"num_attention_heads", spec.num_attention_heads},
          {"num_hidden_layers", spec.num_hidden_layers},
          {"num_key_value_heads", spec.num_key_value_heads},
          {"rms_norm_eps", eps},
          {"rope_theta", spec.rope_theta}};
}

Json PredictorJson(const RandomCheckpointSpec& spec) {
  Json json = TransformerJson(spec.predictor, 1e-6, 65536);
  json["initializer_range"] = 0.02;
  json["layer_types"] =
      std::vector<std::string>(static_cast<size_t>(spec.predictor.num_hidden_layers), "full_attention");
  json["max_window_layers"] = 28;
  json["model_type"] = "qwen3_tts_talker_code_predictor";
  json["num_code_groups"] = spec.num_code_groups;
  json["rope_scaling"] = nullptr;
  json["sliding_window"] = nullptr;
  json["use_cache"] = true;
  json["use_sliding_window"] = false;
  json["vocab_size"] = spec.codebook_size;
  return json;
}

Json TalkerJson(const RandomCheckpointSpec& spec) {
  const int base = spec.codebook_size;
  Json json = TransformerJson(spec.talker, 1e-6, 32768);
  json["code_predictor_config"] = PredictorJson(spec);
  json["codec_pad_id"] = base + kPad;
  json["codec_bos_id"] = base + kBos;
  json["codec_eos_token_id"] = base + kEos;
  json["codec_think_id"] = base + kThink;
  json["codec_nothink_id"] = base + kNothink;
  json["codec_think_bos_id"] = base + kThinkBos;
  json["codec_think_eos_id"] = base + kThinkEos;
  Json languages = {{"chinese", base + 7},     {"english", base + 2}, {"german", base + 5},    {"italian", base + 22},
                    {"portuguese", base + 23}, {"spanish", base + 6}, {"japanese", base + 10}, {"korean", base + 16},
                    {"french", base + 13},     {"russian", base + 21}};
  Json speakers = Json::object();
  Json dialects = Json::object();
  if (spec.type == ModelType::kCustomVoice) {
    languages["beijing_dialect"] = base + 26;
    languages["sichuan_dialect"] = base + 14;
    speakers = {{"serena", base + 1018}, {"vivian", base + 1017}, {"uncle_fu", base + 962},
                {"ryan", base + 1013},   {"aiden", base + 813},   {"ono_anna", base + 825},
                {"sohee", base + 816},   {"eric", base + 827},    {"dylan", base + 830}};
    for (const auto& [name, id] : speakers.items()) dialects[name] = false;
    dialects["eric"] = "sichuan_dialect";
    dialects["dylan"] = "beijing_dialect";
    json["pad_token_id"] = base + kPad;
  }
  json["codec_language_id"] = languages;
  json["spk_id"] = speakers;
  json["spk_is_dialect"] = dialects;
  json["initializer_range"] = 0.02;
  json["model_type"] = "qwen3_tts_talker";
  json["num_code_groups"] = spec.num_code_groups;
  json["position_id_per_seconds"] = 13;
  // In the proportion of the released [24, 20, 20]; any split of the frequencies has the same effect.
  const int half = spec.talker.head_dim / 2;
  const int section = half * 5 / 16;
  json["rope_scaling"] = {
      {"interleaved", true}, {"mrope_section", {half - 2 * section, section, section}}, {"rope_type", "default"}};
  json["sliding_window"] = nullptr;
  json["text_hidden_size"] = spec.text_hidden_size;
  json["text_vocab_size"] = spec.text_vocab_size;
  json["use_cache"] = true;
  json["use_sliding_window"] = false;
  json["vocab_size"] = base + kControlRows;
  return json;
}

Json ModelJson(const RandomCheckpointSpec& spec, const Vocabulary& vocabulary) {
  Json json = {{"architectures", {"Qwen3TTSForConditionalGeneration"}},
               {"assistant_token_id", vocabulary.PieceId("assistant")},
               {"im_end_token_id", vocabulary.AddedId("<|im_end|>")},
               {"im_start_token_id", vocabulary.AddedId("<|im_start|>")},
               {"tts_bos_token_id", vocabulary.AddedId("<tts_text_bos>")},
               {"tts_eos_token_id", vocabulary.AddedId("<tts_text_eod>")},
               {"tts_pad_token_id", vocabulary.AddedId("<tts_pad>")},
               {"model_type", "qwen3_tts"},
               {"tokenizer_type", "qwen3_tts_tokenizer_12hz"},
               {"tts_model_size", spec.size},
               {"tts_model_type", ModelTypeName(spec.type)},
               {"torch_dtype", DTypeTorchName(spec.dtype)},
               {"transformers_version", "4.57.3"}};
  if (spec.type == ModelType::kBase) {
    Json encoder = {{"enc_dim", spec.talker.hidden_size}, {"sample_rate", 24000}};
    // Like the released files, names only what differs from the official defaults.
    const SpeakerEncoderSpec& s = spec.speaker_encoder;
    const SpeakerEncoderSpec defaults;
    if (s.channels != defaults.channels || s.mfa_channels != defaults.mfa_channels) {
      encoder["enc_channels"] = {s.channels, s.channels, s.channels, s.channels, s.mfa_channels};
    }
    if (s.attention_channels != defaults.attention_channels) encoder["enc_attention_channels"] = s.attention_channels;
    if (s.se_channels != defaults.se_channels) encoder["enc_se_channels"] = s.se_channels;
    json["speaker_encoder_config"] = encoder;
  }
  json["talker_config"] = TalkerJson(spec);
  return json;
}

Json GenerationJson() {
  return {
      {"do_sample", true},     {"repetition_penalty", 1.05}, {"temperature", 0.9},           {"top_p", 1.0},
      {"top_k", 50},           {"subtalker_dosample", true}, {"subtalker_temperature", 0.9}, {"subtalker_top_p", 1.0},
      {"subtalker_top_k", 50}, {"max_new_tokens", 8192}};
}

int Product(const std::vector<int>& factors) {
  return std::accumulate(factors.begin(), factors.end(), 1, [](int a, int b) { return a * b; });
}

Json CodecJson(const RandomCheckpointSpec& spec) {
  const CodecSpec& codec = spec.codec;
  Json decoder = TransformerJson(codec.transformer, 1e-5, 8000);
  decoder["codebook_dim"] = codec.codebook_dim;
  decoder["codebook_size"] = spec.codebook_size;
  decoder["decoder_dim"] = codec.decoder_dim;
  decoder["latent_dim"] = codec.latent_dim;
  decoder["layer_scale_initial_scale"] = 0.01;
  decoder["num_quantizers"] = spec.num_code_groups;
  decoder["num_semantic_quantizers"] = 1;
  decoder["semantic_codebook_size"] = 2 * spec.codebook_size;            // never read by the official code
  decoder["vector_quantization_hidden_dimension"] = codec.codebook_dim;  // same
  decoder["sliding_window"] = codec.sliding_window;
  decoder["upsample_rates"] = codec.upsample_rates;
  decoder["upsampling_ratios"] = codec.upsampling_ratios;

  const EncoderSpec& e = codec.encoder;
  const Json encoder = {{"_frame_rate", 12.5},
                        {"attention_bias", false},
                        {"attention_dropout", 0.0},
                        {"audio_channels", 1},
                        {"codebook_dim", e.codebook_dim},
                        {"codebook_size", spec.codebook_size},
                        {"compress", 2},
                        {"dilation_growth_rate", 2},
                        {"head_dim", e.head_dim},
                        {"hidden_act", "gelu"},
                        {"hidden_size", e.hidden_size},
                        {"initializer_range", 0.02},
                        {"intermediate_size", e.intermediate_size},
                        {"kernel_size", 7},
                        {"last_kernel_size", 3},
                        {"layer_scale_initial_scale", 0.01},
                        {"max_position_embeddings", 8000},
                        {"norm_eps", 1e-5},
                        {"num_attention_heads", e.num_attention_heads},
                        {"num_filters", e.num_filters},
                        {"num_hidden_layers", e.num_hidden_layers},
                        {"num_key_value_heads", e.num_attention_heads},
                        {"num_quantizers", e.num_quantizers},
                        {"num_residual_layers", 1},
                        {"num_semantic_quantizers", 1},
                        {"pad_mode", "constant"},
                        {"residual_kernel_size", 3},
                        {"rope_theta", 10000.0},
                        {"sampling_rate", 24000},
                        {"sliding_window", e.sliding_window},
                        {"trim_right_ratio", 1.0},
                        {"upsample_groups", e.hidden_size},
                        {"upsampling_ratios", {8, 6, 5, 4}},
                        {"use_cache", false},
                        {"use_causal_conv", true},
                        {"use_conv_shortcut", false},
                        {"use_streaming", false},
                        {"vector_quantization_hidden_dimension", e.codebook_dim}};
  return {{"architectures", {"Qwen3TTSTokenizerV2Model"}},
          {"model_type", "qwen3_tts_tokenizer_12hz"},
          {"encoder_valid_num_quantizers", spec.num_code_groups},
          {"input_sample_rate", 24000},
          {"output_sample_rate", 24000},
          {"decode_upsample_rate", Product(codec.upsample_rates) * Product(codec.upsampling_ratios)},
          {"encode_downsample_rate", 1920},
          {"torch_dtype", DTypeTorchName(spec.codec_dtype)},
          {"transformers_version", "4.57.3"},
          {"decoder_config", decoder},
          {"encoder_config", encoder}};
}

Json FeatureExtractorJson() {
  return {{"chunk_length_s", nullptr},
          {"feature_extractor_type", "EncodecFeatureExtractor"},
          {"feature_size", 1},
          {"overlap", nullptr},
          {"padding_side", "right"},
          {"padding_value", 0.0},
          {"return_attention_mask", true},
          {"sampling_rate", 24000}};
}

Status WriteJson(const std::string& path, const Json& json) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << json.dump(2) << '\n';
  file.close();
  return file ? Status::Ok() : Status::Unreadable(path + ": writing failed");
}

// --- Presets ---------------------------------------------------------------------------------

struct Preset {
  std::string_view name;
  bool tiny;
  bool large;  // 1.7B: the talker is wider than the predictor
  ModelType type;
};

constexpr Preset kPresets[] = {
    {"tiny-base-0b6", true, false, ModelType::kBase},          {"tiny-base-1b7", true, true, ModelType::kBase},
    {"tiny-custom-0b6", true, false, ModelType::kCustomVoice}, {"tiny-custom-1b7", true, true, ModelType::kCustomVoice},
    {"tiny-design-1b7", true, true, ModelType::kVoiceDesign},  {"0.6b-base", false, false, ModelType::kBase},
    {"0.6b-custom", false, false, ModelType::kCustomVoice},    {"1.7b-base", false, true, ModelType::kBase},
    {"1.7b-custom", false, true, ModelType::kCustomVoice},     {"1.7b-design", false, true, ModelType::kVoiceDesign}};

RandomCheckpointSpec TinySpec(bool large) {
  RandomCheckpointSpec spec;
  spec.codebook_size = 64;
  spec.text_hidden_size = 32;
  spec.text_vocab_size = 384;
  spec.talker = {.hidden_size = large ? 72 : 48,
                 .intermediate_size = 80,
                 .num_hidden_layers = 3,
                 .num_attention_heads = 4,
                 .num_key_value_heads = 2,
                 .head_dim = 16,
                 .rope_theta = 1000000};
  spec.predictor = {.hidden_size = 48,
                    .intermediate_size = 96,
                    .num_hidden_layers = 2,
                    .num_attention_heads = 4,
                    .num_key_value_heads = 2,
                    .head_dim = 16,
                    .rope_theta = 1000000};
  // The released codec has as many KV heads as heads; its config would allow fewer.
  spec.codec.transformer = {.hidden_size = 24,
                            .intermediate_size = 40,
                            .num_hidden_layers = 2,
                            .num_attention_heads = 4,
                            .num_key_value_heads = large ? 2 : 4,
                            .head_dim = 8,
                            .rope_theta = 10000};
  spec.codec.codebook_dim = 24;
  spec.codec.latent_dim = 32;
  spec.codec.decoder_dim = 48;
  spec.codec.sliding_window = 9;
  spec.codec.encoder = {.num_filters = 4,
                        .hidden_size = 24,
                        .intermediate_size = 40,
                        .num_hidden_layers = 2,
                        .num_attention_heads = 3,
                        .head_dim = 8,
                        .codebook_dim = 12,
                        .num_quantizers = 20,
                        .sliding_window = 30};
  spec.speaker_encoder = {.channels = 32, .mfa_channels = 96, .attention_channels = 16, .se_channels = 8};
  return spec;
}

RandomCheckpointSpec FullSpec(bool large) {
  RandomCheckpointSpec spec;
  spec.codebook_size = 2048;
  spec.text_hidden_size = 2048;
  spec.text_vocab_size = 151936;
  spec.talker = {.hidden_size = large ? 2048 : 1024,
                 .intermediate_size = large ? 6144 : 3072,
                 .num_hidden_layers = 28,
                 .num_attention_heads = 16,
                 .num_key_value_heads = 8,
                 .head_dim = 128,
                 .rope_theta = 1000000};
  spec.predictor = {.hidden_size = 1024,
                    .intermediate_size = 3072,
                    .num_hidden_layers = 5,
                    .num_attention_heads = 16,
                    .num_key_value_heads = 8,
                    .head_dim = 128,
                    .rope_theta = 1000000};
  spec.codec.transformer = {.hidden_size = 512,
                            .intermediate_size = 1024,
                            .num_hidden_layers = 8,
                            .num_attention_heads = 16,
                            .num_key_value_heads = 16,
                            .head_dim = 64,
                            .rope_theta = 10000};
  spec.codec.codebook_dim = 512;
  spec.codec.latent_dim = 1024;
  spec.codec.decoder_dim = 1536;
  spec.codec.sliding_window = 72;
  return spec;
}

// The sizes of `spec` by name.
std::vector<std::pair<std::string, int*>> Sizes(RandomCheckpointSpec* spec) {
  std::vector<std::pair<std::string, int*>> sizes = {
      {"codebook_size", &spec->codebook_size},
      {"num_code_groups", &spec->num_code_groups},
      {"text_hidden_size", &spec->text_hidden_size},
      {"text_vocab_size", &spec->text_vocab_size},
      {"codec.codebook_dim", &spec->codec.codebook_dim},
      {"codec.latent_dim", &spec->codec.latent_dim},
      {"codec.decoder_dim", &spec->codec.decoder_dim},
      {"codec.sliding_window", &spec->codec.sliding_window},
      {"encoder.num_filters", &spec->codec.encoder.num_filters},
      {"encoder.hidden_size", &spec->codec.encoder.hidden_size},
      {"encoder.intermediate_size", &spec->codec.encoder.intermediate_size},
      {"encoder.num_hidden_layers", &spec->codec.encoder.num_hidden_layers},
      {"encoder.num_attention_heads", &spec->codec.encoder.num_attention_heads},
      {"encoder.head_dim", &spec->codec.encoder.head_dim},
      {"encoder.codebook_dim", &spec->codec.encoder.codebook_dim},
      {"encoder.num_quantizers", &spec->codec.encoder.num_quantizers},
      {"encoder.sliding_window", &spec->codec.encoder.sliding_window},
      {"speaker_encoder.channels", &spec->speaker_encoder.channels},
      {"speaker_encoder.mfa_channels", &spec->speaker_encoder.mfa_channels},
      {"speaker_encoder.attention_channels", &spec->speaker_encoder.attention_channels},
      {"speaker_encoder.se_channels", &spec->speaker_encoder.se_channels}};
  const std::pair<const char*, TransformerSpec*> transformers[] = {
      {"talker.", &spec->talker}, {"predictor.", &spec->predictor}, {"codec.", &spec->codec.transformer}};
  for (const auto& [prefix, t] : transformers) {
    const std::string p = prefix;
    sizes.insert(sizes.end(), {{p + "hidden_size", &t->hidden_size},
                               {p + "intermediate_size", &t->intermediate_size},
                               {p + "num_hidden_layers", &t->num_hidden_layers},
                               {p + "num_attention_heads", &t->num_attention_heads},
                               {p + "num_key_value_heads", &t->num_key_value_heads},
                               {p + "head_dim", &t->head_dim},
                               {p + "rope_theta", &t->rope_theta},
                               {p + "attention_bias", &t->attention_bias}});
  }
  return sizes;
}

}  // namespace

std::vector<std::string> PresetNames() {
  std::vector<std::string> names;
  for (const Preset& preset : kPresets) names.emplace_back(preset.name);
  return names;
}

Result<RandomCheckpointSpec> FindPreset(std::string_view name) {
  std::string known;
  for (const Preset& preset : kPresets) {
    if (preset.name == name) {
      RandomCheckpointSpec spec = preset.tiny ? TinySpec(preset.large) : FullSpec(preset.large);
      spec.type = preset.type;
      spec.size = preset.large ? "1b7" : "0b6";
      return spec;
    }
    known.append(known.empty() ? "" : ", ").append(preset.name);
  }
  return Status::InvalidArgument("no preset '" + std::string(name) + "'; there are " + known);
}

Status SetSize(RandomCheckpointSpec* spec, std::string_view name, int value) {
  std::string known;
  for (const auto& [size, field] : Sizes(spec)) {
    if (size == name) {
      *field = value;
      return Status::Ok();
    }
    known.append(known.empty() ? "" : ", ").append(size);
  }
  return Status::InvalidArgument("no size '" + std::string(name) + "'; there are " + known);
}

Status WriteConfigFiles(const std::string& folder, const RandomCheckpointSpec& spec) {
  Vocabulary vocabulary = TinyVocabulary();
  if (!spec.merges_file.empty()) {
    QTTS_ASSIGN_OR_RETURN(vocabulary, ReleasedVocabulary(spec.merges_file));
  }
  if (vocabulary.size() > spec.text_vocab_size) {
    return Status::InvalidArgument("text_vocab_size is " + std::to_string(spec.text_vocab_size) +
                                   ", but the vocabulary has " + std::to_string(vocabulary.size()) + " tokens");
  }
  const std::string codec_folder = folder + "/speech_tokenizer";
  std::error_code error;
  std::filesystem::create_directories(codec_folder, error);
  if (error) return Status::Unreadable(codec_folder + ": cannot be created: " + error.message());

  QTTS_RETURN_IF_ERROR(WriteTokenizerFiles(folder, vocabulary));
  QTTS_RETURN_IF_ERROR(WriteJson(folder + "/config.json", ModelJson(spec, vocabulary)));
  QTTS_RETURN_IF_ERROR(WriteJson(folder + "/generation_config.json", GenerationJson()));
  QTTS_RETURN_IF_ERROR(WriteJson(folder + "/preprocessor_config.json", {{"processor_class", "Qwen3TTSProcessor"}}));
  QTTS_RETURN_IF_ERROR(WriteJson(codec_folder + "/config.json", CodecJson(spec)));
  return WriteJson(codec_folder + "/preprocessor_config.json", FeatureExtractorJson());
}

std::vector<GeneratedTensor> ModelTensors(const RandomCheckpointSpec& spec) {
  Inventory model(spec.seed, spec.dtype);
  AddTalker(&model, spec);
  AddPredictor(&model, spec);
  if (spec.type == ModelType::kBase) AddSpeakerEncoder(&model, spec.speaker_encoder, spec.talker.hidden_size);
  return model.tensors();
}

std::vector<GeneratedTensor> CodecTensors(const RandomCheckpointSpec& spec) {
  Inventory codec(spec.seed, spec.codec_dtype);
  AddCodecDecoder(&codec, spec);
  AddCodecEncoder(&codec, spec);
  return codec.tensors();
}

Status WriteRandomCheckpoint(const std::string& folder, const RandomCheckpointSpec& spec) {
  QTTS_RETURN_IF_ERROR(WriteConfigFiles(folder, spec));
  QTTS_RETURN_IF_ERROR(WriteTensorFiles(folder, "model", ModelTensors(spec), spec.shards));
  return WriteTensorFiles(folder + "/speech_tokenizer", "model", CodecTensors(spec), 1);
}

}  // namespace qtts::golden
