// SPDX-License-Identifier: LGPL-2.1-or-later
// The JSON files of a model folder: config.json, generation_config.json and the codec's config.json,
// with a zero byte between them; what synthesis reads of them and what cloning does.
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include "checkpoint/config.h"
#include "checkpoint/voice_encoder.h"

namespace {

void Check(bool fact) {
  if (!fact) std::abort();
}

void CheckTransformer(const qtts::TransformerConfig& t) {
  Check(t.hidden_size > 0 && t.intermediate_size > 0 && t.num_layers > 0 && t.num_heads > 0 && t.num_kv_heads > 0);
  Check(t.num_heads % t.num_kv_heads == 0 && t.head_dim > 0 && t.head_dim % 2 == 0);
  Check(t.q_width() > 0 && t.sliding_window >= 0 && t.rms_norm_eps > 0 && t.rope_theta > 0);
}

// Properties that the rest of the engine relies on.
void CheckConfig(const qtts::ModelConfig& config) {
  CheckTransformer(config.talker.transformer);
  CheckTransformer(config.predictor.transformer);
  CheckTransformer(config.codec.transformer);
  Check(config.codec.transformer.sliding_window > 0);
  for (const int id : {config.talker.codec_pad_id, config.talker.codec_bos_id, config.talker.codec_eos_id,
                       config.talker.codec_think_id, config.talker.codec_nothink_id, config.talker.codec_think_bos_id,
                       config.talker.codec_think_eos_id}) {
    Check(id >= 0 && id < config.talker.vocab_size);
  }
  for (const auto& [name, id] : config.talker.languages) Check(id >= 0 && id < config.talker.vocab_size);
  for (const auto& [name, id] : config.talker.speakers) Check(id >= 0 && id < config.talker.vocab_size);
  for (const auto& [speaker, dialect] : config.talker.dialects) {
    Check(config.talker.speakers.count(speaker) == 1 && config.talker.languages.count(dialect) == 1);
  }
  int64_t samples = 1;
  for (const int rate : config.codec.upsample_rates) samples *= rate;
  for (const int ratio : config.codec.upsampling_ratios) samples *= ratio;
  Check(samples == config.codec.samples_per_frame);
  Check(config.talker.num_code_groups == config.codec.num_quantizers);
  Check(config.predictor.vocab_size <= config.codec.codebook_size);
  Check(config.talker.vocab_size - 1024 <= config.codec.codebook_size);
  Check(config.defaults.talker.temperature > 0 && config.defaults.max_new_tokens >= 2);
}

void CheckSpeakerEncoder(const qtts::SpeakerEncoderConfig& config) {
  const size_t layers = config.channels.size();
  Check(config.mel_bins > 0 && config.enc_dim > 0 && config.attention_channels > 0 && config.se_channels > 0);
  Check(layers >= 3 && config.kernel_sizes.size() == layers && config.dilations.size() == layers);
  int joined = 0;
  for (size_t i = 0; i < layers; ++i) {
    Check(config.kernel_sizes[i] % 2 == 1 && config.dilations[i] > 0);
    if (i + 1 < layers) Check(config.channels[i] == config.channels[0]);
    if (i > 0 && i + 1 < layers) joined += config.channels[i];
  }
  Check(config.channels.back() == joined);
  Check(config.res2net_scale > 1 && config.channels[0] > 0 && config.channels[0] % config.res2net_scale == 0);
}

void CheckCodecEncoder(const qtts::CodecEncoderConfig& config, const qtts::ModelConfig& model) {
  Check(config.num_filters > 0 && config.num_filters % 2 == 0);
  Check(config.hidden_size > 0 && config.intermediate_size > 0 && config.num_layers > 0);
  Check(config.width() > 0 && config.head_dim % 2 == 0 && config.norm_eps > 0 && config.rope_theta > 0);
  Check(config.codebook_dim > 0 && config.codebook_dim != config.hidden_size);
  Check(config.codebook_size > 0 && config.codebook_size <= model.codec.codebook_size);
  Check(config.num_quantizers == model.talker.num_code_groups);
  int64_t samples = 2;
  for (const int stride : config.strides) samples *= stride;
  Check(samples == config.samples_per_frame && samples == model.codec.samples_per_frame);
}

// The documents of a seed, or of an input.
struct Documents {
  explicit Documents(std::string_view rest) {
    for (std::string_view* document : {&model, &generation, &codec}) {
      *document = rest.substr(0, rest.find('\0'));
      rest.remove_prefix(std::min(rest.size(), document->size() + 1));
    }
  }
  std::string_view model, generation, codec;
};

// A Base model, for documents that are valid for the encoders only.
const qtts::ModelConfig& BaseModel() {
  static const qtts::ModelConfig model = [] {
    std::ifstream file(QTTS_SOURCE_DIR "/tests/fuzz/corpus/config/tiny-base-1b7", std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    const Documents documents(text);
    const auto config = qtts::ParseModelConfig("seed", documents.model, documents.generation, documents.codec);
    Check(config.ok() && config->type == qtts::ModelType::kBase);
    return *config;
  }();
  return model;
}

void CheckMessage(const qtts::Status& status) { Check(!status.message().empty() && status.message().size() < 2000); }

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Documents documents(std::string_view(reinterpret_cast<const char*>(data), size));
  const auto config = qtts::ParseModelConfig("fuzz", documents.model, documents.generation, documents.codec);
  if (config.ok()) {
    CheckConfig(*config);
  } else {
    CheckMessage(config.status());
  }
  const bool base = config.ok() && config->type == qtts::ModelType::kBase;
  const qtts::ModelConfig& model = base ? *config : BaseModel();
  const auto encoder = qtts::ParseVoiceEncoderConfig("fuzz", model, documents.model, documents.codec);
  if (encoder.ok()) {
    CheckSpeakerEncoder(encoder->speaker);
    CheckCodecEncoder(encoder->codec, model);
  } else {
    CheckMessage(encoder.status());
  }
  return 0;
}
