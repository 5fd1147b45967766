// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CHECKPOINT_VOICE_ENCODER_H_
#define QTTS_CHECKPOINT_VOICE_ENCODER_H_

#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/config.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/weights.h"
#include "qtts/status.h"

// The part of a Base checkpoint that clones voices: two networks that turn a recording into a voice. Read only when a
// voice is cloned, so a folder without them can still speak with saved voices.
namespace qtts {

// `speaker_encoder_config` of config.json (spec 9): an ECAPA-TDNN.
struct SpeakerEncoderConfig {
  int mel_bins = 0;
  int enc_dim = 0;
  // Sizes in order: first block, SE-Res2Net blocks, and the aggregation, which concatenates the outputs of the
  // SE-Res2Net blocks.
  std::vector<int> channels, kernel_sizes, dilations;
  int attention_channels = 0;
  int res2net_scale = 0;
  int se_channels = 0;
};

// `encoder_config` of speech_tokenizer/config.json (spec 8): Mimi's encoder.
struct CodecEncoderConfig {
  int num_filters = 0;
  std::vector<int> strides;  // of the strided convolutions, in order
  int hidden_size = 0;
  int intermediate_size = 0;
  int num_layers = 0;
  int num_heads = 0;
  int head_dim = 0;
  float norm_eps = 0;
  float rope_theta = 0;
  int codebook_dim = 0;
  int codebook_size = 0;
  int num_quantizers = 0;  // quantizers in use: the talker's code groups
  int samples_per_frame = 0;

  int width() const { return num_heads * head_dim; }
};

struct VoiceEncoderConfig {
  SpeakerEncoderConfig speaker;
  CodecEncoderConfig codec;
};

struct Res2NetWeights {
  ConvWeights tdnn1, tdnn2;           // [channels, channels, 1]
  std::vector<ConvWeights> branches;  // scale - 1 of [channels / scale, channels / scale, kernel]
  ConvWeights squeeze, excite;        // [se, channels, 1], [channels, se, 1]
};

struct SpeakerEncoderWeights {
  ConvWeights first;                   // [channels, mel_bins, kernel]
  std::vector<Res2NetWeights> blocks;  // one per config.channels entry between the first and the last
  ConvWeights aggregate;               // [last, last, kernel]
  ConvWeights attention_tdnn;          // [attention, 3 * last, 1]
  ConvWeights attention;               // [last, attention, 1]
  ConvWeights output;                  // [enc_dim, 2 * last, 1]
  WeightTotals totals;
};

struct EncoderStageWeights {
  ConvWeights residual1, residual2;  // [C / 2, C, 3], [C, C / 2, 1]
  ConvWeights strided;               // [2 C, C, 2 * stride]
};

struct EncoderLayerWeights {
  TensorView input_norm, input_norm_bias, post_norm, post_norm_bias;  // [hidden]
  TensorView q, k, v, o;                                              // [width, hidden]; o [hidden, width]
  TensorView fc1, fc2;                                                // [intermediate, hidden], [hidden, intermediate]
  TensorView attention_scale, mlp_scale;                              // [hidden]
};

struct CodecEncoderWeights {
  ConvWeights first_conv;  // [filters, 1, 7]
  std::vector<EncoderStageWeights> stages;
  ConvWeights last_conv;  // [hidden, filters << stages, 3]
  std::vector<EncoderLayerWeights> layers;
  ConvWeights downsample;                               // [hidden, hidden, 4], no bias
  TensorView semantic_projection, acoustic_projection;  // [codebook_dim, hidden, 1]
  std::vector<CodebookWeights> codebooks;               // num_quantizers, the semantic one first
  WeightTotals totals;
};

struct VoiceEncoderWeights {
  SpeakerEncoderWeights speaker;
  CodecEncoderWeights codec;
};

// Parses the encoder sections of both config files of a Base checkpoint whose `model` config is parsed. Untrusted
// input. Variants of Mimi that compute another function than spec 8 are kUnsupported.
Result<VoiceEncoderConfig> ParseVoiceEncoderConfig(const std::string& folder, const ModelConfig& model,
                                                   std::string_view config_json, std::string_view codec_json);

// Binds the weights of the voice encoders. The first missing or malformed tensor is an error, as in BindTalker().
Result<VoiceEncoderWeights> BindVoiceEncoder(const TensorStore& model_store, const TensorStore& codec_store,
                                             const VoiceEncoderConfig& config);

}  // namespace qtts

#endif  // QTTS_CHECKPOINT_VOICE_ENCODER_H_
