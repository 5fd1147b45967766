// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CHECKPOINT_CONFIG_H_
#define QTTS_CHECKPOINT_CONFIG_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/transformer_config.h"
#include "qtts/model_info.h"
#include "qtts/status.h"

namespace qtts {

// `talker_config` of config.json (spec 1.3). All ids are checked to be inside their tables.
struct TalkerConfig {
  TransformerConfig transformer;
  int vocab_size = 0;  // rows of the talker's codec table, control ids included
  int text_vocab_size = 0;
  int text_hidden_size = 0;
  int num_code_groups = 0;  // codes per frame
  int codec_pad_id = 0;
  int codec_bos_id = 0;
  int codec_eos_id = 0;
  int codec_think_id = 0;
  int codec_nothink_id = 0;
  int codec_think_bos_id = 0;
  int codec_think_eos_id = 0;
  std::map<std::string, int> languages;         // lower case -> codec id; dialects included
  std::map<std::string, int> speakers;          // lower case -> codec id
  std::map<std::string, std::string> dialects;  // speaker -> dialect's key in `languages`
};

// `talker_config.code_predictor_config`.
struct PredictorConfig {
  TransformerConfig transformer;
  int vocab_size = 0;  // entries of each codebook that the predictor samples from
};

// `decoder_config` of speech_tokenizer/config.json (spec 1.4).
struct CodecConfig {
  TransformerConfig transformer;  // the pre-transformer
  int codebook_size = 0;
  int codebook_dim = 0;  // width after the output projections; a codeword has half of it
  int latent_dim = 0;
  int decoder_dim = 0;
  int num_quantizers = 0;
  int num_semantic_quantizers = 0;
  std::vector<int> upsample_rates;     // of the decoder blocks, in order
  std::vector<int> upsampling_ratios;  // of the ConvNeXt stages, in order
  int sample_rate = 0;                 // Hz
  int samples_per_frame = 0;           // product of all rates, checked
};

// All settings from the model folder's JSON files that synthesis depends on.
struct ModelConfig {
  ModelType type = ModelType::kCustomVoice;
  std::string size;  // `tts_model_size`
  int im_start_token_id = 0;
  int im_end_token_id = 0;
  int tts_pad_token_id = 0;
  int tts_bos_token_id = 0;
  int tts_eos_token_id = 0;
  int speaker_encoder_dim = 0;  // base: width of an x-vector; 0 otherwise
  TalkerConfig talker;
  PredictorConfig predictor;
  CodecConfig codec;
  GenerationSettings defaults;
  ModelDescription description;  // not parsed by ParseModelConfig()

  // Returns false for the 0.6B CustomVoice model, whose instruction the official code drops (spec 11.20), and for Base.
  bool supports_instruct() const;
};

// Parses config.json, generation_config.json (may be empty: official defaults) and speech_tokenizer/config.json.
// Missing keys get the default of the official classes, whose writer omits defaults. Entries of spk_is_dialect with an
// unknown speaker or language are dropped. Untrusted input: every number is range-checked, every id is inside its
// table, and no product of sizes overflows. Errors name `folder`, the file and the key.
Result<ModelConfig> ParseModelConfig(const std::string& folder, std::string_view config_json,
                                     std::string_view generation_json, std::string_view codec_json);

}  // namespace qtts

#endif  // QTTS_CHECKPOINT_CONFIG_H_
