// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TESTS_GOLDEN_GENERATOR_RANDOM_CHECKPOINT_H_
#define QTTS_TESTS_GOLDEN_GENERATOR_RANDOM_CHECKPOINT_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/safetensors.h"
#include "golden/generator/tensor_file.h"
#include "qtts/model_info.h"
#include "qtts/status.h"

// Random checkpoints in the published layout (spec 1), of any structure and size, complete enough for
// the official Python package. The same spec gives the same bytes on every machine: random integers
// (Philox), IEEE multiplications and additions, no library function that may round differently.
//
// Names and shapes are written from spec 1.5 and 1.6, independently of the engine's reader, so that each checks the
// other.
namespace qtts::golden {

// The sizes of one transformer; the meaning is that of the config.json keys.
struct TransformerSpec {
  int hidden_size = 0;
  int intermediate_size = 0;
  int num_hidden_layers = 0;
  int num_attention_heads = 0;
  int num_key_value_heads = 0;
  int head_dim = 0;
  int rope_theta = 0;
  int attention_bias = 0;  // 1: q, k, v and o have biases

  bool operator==(const TransformerSpec&) const = default;
};

// The codec's encoder, a MimiModel without its decoder half. Speech does not need it, but the official loader does.
struct EncoderSpec {
  int num_filters = 64;
  int hidden_size = 512;
  int intermediate_size = 2048;
  int num_hidden_layers = 8;
  int num_attention_heads = 8;
  int head_dim = 64;
  int codebook_dim = 256;
  int num_quantizers = 32;
  int sliding_window = 250;

  bool operator==(const EncoderSpec&) const = default;
};

struct CodecSpec {
  TransformerSpec transformer;
  int codebook_dim = 0;
  int latent_dim = 0;
  int decoder_dim = 0;
  int sliding_window = 0;
  std::vector<int> upsample_rates = {8, 5, 4, 3};
  std::vector<int> upsampling_ratios = {2, 2};
  EncoderSpec encoder;

  bool operator==(const CodecSpec&) const = default;
};

// The speaker encoder of Base checkpoints (spec 9.2).
struct SpeakerEncoderSpec {
  int channels = 512;       // of blocks 0 to 3
  int mfa_channels = 1536;  // 3 * channels
  int attention_channels = 128;
  int se_channels = 128;

  bool operator==(const SpeakerEncoderSpec&) const = default;
};

struct RandomCheckpointSpec {
  ModelType type = ModelType::kCustomVoice;
  std::string size = "0b6";  // `tts_model_size`
  uint64_t seed = 1;

  DType dtype = DType::kBF16;       // of model.safetensors
  DType codec_dtype = DType::kF32;  // of speech_tokenizer/model.safetensors
  int shards = 1;                   // more than 1: that many files and an index

  TransformerSpec talker;
  TransformerSpec predictor;  // small_to_mtp_projection exists where its width is not the talker's
  CodecSpec codec;
  SpeakerEncoderSpec speaker_encoder;
  int text_vocab_size = 0;
  int text_hidden_size = 0;
  int num_code_groups = 16;
  // Entries of each codebook. The talker's table has 1024 more rows, with the control ids at their
  // official places above the codebook.
  int codebook_size = 0;

  // merges.txt of a released model, for its vocabulary and ids. Empty: a small built-in vocabulary.
  std::string merges_file;

  // Approximate addend to the talker's logit for the end of speech. Logits of codes have a standard deviation of 3; the
  // largest is near 7 (64 codes) or 10 (2048 codes). The default practically never ends; 5 to 9 end a tiny model after
  // a few to some tens of frames.
  double eos_logit = -20;

  bool operator==(const RandomCheckpointSpec&) const = default;
};

// The names FindPreset() knows: tiny-{base,custom}-{0b6,1b7}, tiny-design-1b7 (some hundred kB each,
// with the traits of the released structures) and {0.6b,1.7b}-{base,custom}, 1.7b-design (their sizes).
std::vector<std::string> PresetNames();
Result<RandomCheckpointSpec> FindPreset(std::string_view name);

// Sets one size of `spec` by its name, e.g. "talker.hidden_size"; for command lines. The error of an
// unknown name lists all of them.
Status SetSize(RandomCheckpointSpec* spec, std::string_view name, int value);

// The tensors of model.safetensors and of speech_tokenizer/model.safetensors, in file order.
std::vector<GeneratedTensor> ModelTensors(const RandomCheckpointSpec& spec);
std::vector<GeneratedTensor> CodecTensors(const RandomCheckpointSpec& spec);

// Writes everything but the weights into `folder`, which is created if need be.
Status WriteConfigFiles(const std::string& folder, const RandomCheckpointSpec& spec);

// Writes the checkpoint into `folder`, which is created if need be; existing files are replaced.
// Streams to disk: needs some MB of memory for any size.
Status WriteRandomCheckpoint(const std::string& folder, const RandomCheckpointSpec& spec);

}  // namespace qtts::golden

#endif  // QTTS_TESTS_GOLDEN_GENERATOR_RANDOM_CHECKPOINT_H_
