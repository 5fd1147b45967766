// SPDX-License-Identifier: LGPL-2.1-or-later
// The JSON files of a model folder: config.json, generation_config.json and the codec's config.json,
// with a zero byte between them.
#include <cstdlib>
#include <string_view>

#include "checkpoint/config.h"

namespace {

void Check(bool fact) {
  if (!fact) std::abort();
}

void CheckTransformer(const qtts::TransformerConfig& t) {
  Check(t.hidden_size > 0 && t.intermediate_size > 0 && t.num_layers > 0 && t.num_heads > 0 && t.num_kv_heads > 0);
  Check(t.num_heads % t.num_kv_heads == 0 && t.head_dim > 0 && t.head_dim % 2 == 0);
  Check(t.q_width() > 0 && t.sliding_window >= 0 && t.rms_norm_eps > 0 && t.rope_theta > 0);
}

// What the rest of the engine relies on.
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

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  std::string_view documents[3];
  for (std::string_view& document : documents) {
    document = rest.substr(0, rest.find('\0'));
    rest.remove_prefix(std::min(rest.size(), document.size() + 1));
  }
  const auto config = qtts::ParseModelConfig("fuzz", documents[0], documents[1], documents[2]);
  if (config.ok()) {
    CheckConfig(*config);
  } else {
    Check(!config.status().message().empty() && config.status().message().size() < 2000);
  }
  return 0;
}
