// SPDX-License-Identifier: LGPL-2.1-or-later
#include "checkpoint/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>

#include "golden/generator/random_checkpoint.h"
#include "golden/generator/tensor_file.h"
#include "unit/checkpoint/support.h"

namespace qtts {
namespace {

using golden::GeneratedTensor;
using golden::RandomCheckpointSpec;
using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::ReadFile;
using ::testing::StartsWith;
using testing::TempFolder;
using testing::WriteFile;

RandomCheckpointSpec Preset(std::string_view name) {
  auto spec = golden::FindPreset(name);
  EXPECT_TRUE(spec.ok()) << spec.status().message();
  return *std::move(spec);
}

std::shared_ptr<const Checkpoint> OpenOrFail(const std::string& folder) {
  auto checkpoint = Checkpoint::Open(folder);
  EXPECT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  return checkpoint.ok() ? *checkpoint : nullptr;
}

// The bytes a generated tensor must have in its file.
std::string ExpectedBytes(const std::vector<GeneratedTensor>& tensors, const std::string& name) {
  const auto it = std::find_if(tensors.begin(), tensors.end(), [&](const auto& t) { return t.name == name; });
  EXPECT_NE(it, tensors.end()) << name;
  if (it == tensors.end()) return {};
  std::vector<float> values(static_cast<size_t>(Elements(*it)));
  it->fill(0, values);
  std::string bytes;
  for (const float value : values) {
    const uint16_t half = it->dtype == DType::kBF16 ? golden::ToBF16(value) : golden::ToF16(value);
    const void* data = it->dtype == DType::kF32 ? static_cast<const void*>(&value) : &half;
    bytes.append(static_cast<const char*>(data), DTypeBytes(it->dtype));
  }
  return bytes;
}

std::string Bytes(const TensorView& view) { return {static_cast<const char*>(view.data), view.bytes()}; }

struct Variant {
  const char* name;
  const char* preset;
  DType dtype = DType::kBF16;
  DType codec_dtype = DType::kF32;
  int shards = 1;
  std::vector<std::pair<const char*, int>> sizes;
};

class RoundTripTest : public ::testing::TestWithParam<Variant> {};

// Every structure, dtype and way of storing: what the generator wrote is what the views show.
TEST_P(RoundTripTest, ViewsShowWhatWasWritten) {
  RandomCheckpointSpec spec = Preset(GetParam().preset);
  spec.seed = 20260101;
  spec.dtype = GetParam().dtype;
  spec.codec_dtype = GetParam().codec_dtype;
  spec.shards = GetParam().shards;
  for (const auto& [name, value] : GetParam().sizes) ASSERT_TRUE(golden::SetSize(&spec, name, value).ok());
  const TempFolder folder;
  ASSERT_TRUE(WriteRandomCheckpoint(folder.path(), spec).ok());
  const auto checkpoint = OpenOrFail(folder.path());
  ASSERT_NE(checkpoint, nullptr);
  const auto model = ModelTensors(spec);
  const auto codec = CodecTensors(spec);

  const TalkerWeights& talker = checkpoint->talker();
  EXPECT_EQ(Bytes(talker.text_embedding), ExpectedBytes(model, "talker.model.text_embedding.weight"));
  EXPECT_EQ(Bytes(talker.text_fc1.weight), ExpectedBytes(model, "talker.text_projection.linear_fc1.weight"));
  EXPECT_EQ(Bytes(*talker.text_fc1.bias), ExpectedBytes(model, "talker.text_projection.linear_fc1.bias"));
  EXPECT_EQ(Bytes(talker.text_fc2.weight), ExpectedBytes(model, "talker.text_projection.linear_fc2.weight"));
  EXPECT_EQ(Bytes(*talker.text_fc2.bias), ExpectedBytes(model, "talker.text_projection.linear_fc2.bias"));
  EXPECT_EQ(Bytes(talker.codec_embedding), ExpectedBytes(model, "talker.model.codec_embedding.weight"));
  EXPECT_EQ(Bytes(talker.codec_head), ExpectedBytes(model, "talker.codec_head.weight"));
  EXPECT_EQ(Bytes(talker.transformer.norm), ExpectedBytes(model, "talker.model.norm.weight"));
  ASSERT_EQ(talker.transformer.layers.size(), spec.talker.num_hidden_layers);
  const TransformerLayerWeights& layer = talker.transformer.layers.back();
  const std::string prefix = "talker.model.layers." + std::to_string(spec.talker.num_hidden_layers - 1) + ".";
  EXPECT_EQ(Bytes(layer.input_norm), ExpectedBytes(model, prefix + "input_layernorm.weight"));
  EXPECT_EQ(Bytes(layer.post_norm), ExpectedBytes(model, prefix + "post_attention_layernorm.weight"));
  EXPECT_EQ(Bytes(layer.q.weight), ExpectedBytes(model, prefix + "self_attn.q_proj.weight"));
  EXPECT_EQ(Bytes(layer.k.weight), ExpectedBytes(model, prefix + "self_attn.k_proj.weight"));
  EXPECT_EQ(Bytes(layer.v.weight), ExpectedBytes(model, prefix + "self_attn.v_proj.weight"));
  EXPECT_EQ(Bytes(layer.o.weight), ExpectedBytes(model, prefix + "self_attn.o_proj.weight"));
  EXPECT_EQ(Bytes(*layer.q_norm), ExpectedBytes(model, prefix + "self_attn.q_norm.weight"));
  EXPECT_EQ(Bytes(*layer.k_norm), ExpectedBytes(model, prefix + "self_attn.k_norm.weight"));
  EXPECT_EQ(Bytes(layer.gate), ExpectedBytes(model, prefix + "mlp.gate_proj.weight"));
  EXPECT_EQ(Bytes(layer.up), ExpectedBytes(model, prefix + "mlp.up_proj.weight"));
  EXPECT_EQ(Bytes(layer.down), ExpectedBytes(model, prefix + "mlp.down_proj.weight"));
  EXPECT_FALSE(layer.attention_scale.has_value());
  EXPECT_EQ(layer.q.bias.has_value(), spec.talker.attention_bias != 0);
  if (layer.q.bias.has_value()) {
    EXPECT_EQ(Bytes(*layer.q.bias), ExpectedBytes(model, prefix + "self_attn.q_proj.bias"));
    EXPECT_EQ(Bytes(*layer.o.bias), ExpectedBytes(model, prefix + "self_attn.o_proj.bias"));
  }

  const PredictorWeights& predictor = checkpoint->predictor();
  const std::string code_predictor = "talker.code_predictor.";
  ASSERT_EQ(predictor.embeddings.size(), spec.num_code_groups - 1);
  ASSERT_EQ(predictor.heads.size(), spec.num_code_groups - 1);
  for (size_t i = 0; i < predictor.heads.size(); ++i) {
    const std::string group = std::to_string(i) + ".weight";
    EXPECT_EQ(Bytes(predictor.embeddings[i]), ExpectedBytes(model, code_predictor + "model.codec_embedding." + group));
    EXPECT_EQ(Bytes(predictor.heads[i]), ExpectedBytes(model, code_predictor + "lm_head." + group));
  }
  EXPECT_EQ(Bytes(predictor.transformer.norm), ExpectedBytes(model, code_predictor + "model.norm.weight"));
  EXPECT_EQ(Bytes(predictor.transformer.layers[0].down),
            ExpectedBytes(model, code_predictor + "model.layers.0.mlp.down_proj.weight"));
  ASSERT_EQ(predictor.input_projection.has_value(), spec.talker.hidden_size != spec.predictor.hidden_size);
  if (predictor.input_projection.has_value()) {
    EXPECT_EQ(Bytes(predictor.input_projection->weight),
              ExpectedBytes(model, code_predictor + "small_to_mtp_projection.weight"));
    EXPECT_EQ(Bytes(*predictor.input_projection->bias),
              ExpectedBytes(model, code_predictor + "small_to_mtp_projection.bias"));
  }

  const CodecWeights& w = checkpoint->codec();
  const std::string quantizer = "decoder.quantizer.";
  ASSERT_EQ(w.codebooks.size(), spec.num_code_groups);
  EXPECT_EQ(Bytes(w.codebooks[0].cluster_usage),
            ExpectedBytes(codec, quantizer + "rvq_first.vq.layers.0._codebook.cluster_usage"));
  EXPECT_EQ(Bytes(w.codebooks[0].embedding_sum),
            ExpectedBytes(codec, quantizer + "rvq_first.vq.layers.0._codebook.embedding_sum"));
  EXPECT_EQ(Bytes(w.codebooks[1].embedding_sum),
            ExpectedBytes(codec, quantizer + "rvq_rest.vq.layers.0._codebook.embedding_sum"));
  EXPECT_EQ(Bytes(w.codebooks.back().cluster_usage),
            ExpectedBytes(codec, quantizer + "rvq_rest.vq.layers." + std::to_string(spec.num_code_groups - 2) +
                                     "._codebook.cluster_usage"));
  EXPECT_EQ(Bytes(w.semantic_projection), ExpectedBytes(codec, quantizer + "rvq_first.output_proj.weight"));
  EXPECT_EQ(Bytes(w.acoustic_projection), ExpectedBytes(codec, quantizer + "rvq_rest.output_proj.weight"));
  EXPECT_EQ(Bytes(w.pre_conv.weight), ExpectedBytes(codec, "decoder.pre_conv.conv.weight"));
  EXPECT_EQ(Bytes(*w.input_projection.bias), ExpectedBytes(codec, "decoder.pre_transformer.input_proj.bias"));
  EXPECT_EQ(Bytes(w.output_projection.weight), ExpectedBytes(codec, "decoder.pre_transformer.output_proj.weight"));
  EXPECT_EQ(Bytes(*w.transformer.layers[0].attention_scale),
            ExpectedBytes(codec, "decoder.pre_transformer.layers.0.self_attn_layer_scale.scale"));
  EXPECT_EQ(Bytes(*w.transformer.layers[0].mlp_scale),
            ExpectedBytes(codec, "decoder.pre_transformer.layers.0.mlp_layer_scale.scale"));
  EXPECT_FALSE(w.transformer.layers[0].q_norm.has_value());
  ASSERT_EQ(w.upsample.size(), 2);
  EXPECT_EQ(Bytes(w.upsample[1].transposed.weight), ExpectedBytes(codec, "decoder.upsample.1.0.conv.weight"));
  EXPECT_EQ(Bytes(w.upsample[1].depthwise.weight), ExpectedBytes(codec, "decoder.upsample.1.1.dwconv.conv.weight"));
  EXPECT_EQ(Bytes(w.upsample[1].norm_weight), ExpectedBytes(codec, "decoder.upsample.1.1.norm.weight"));
  EXPECT_EQ(Bytes(w.upsample[1].norm_bias), ExpectedBytes(codec, "decoder.upsample.1.1.norm.bias"));
  EXPECT_EQ(Bytes(w.upsample[1].expand.weight), ExpectedBytes(codec, "decoder.upsample.1.1.pwconv1.weight"));
  EXPECT_EQ(Bytes(*w.upsample[1].contract.bias), ExpectedBytes(codec, "decoder.upsample.1.1.pwconv2.bias"));
  EXPECT_EQ(Bytes(w.upsample[1].gamma), ExpectedBytes(codec, "decoder.upsample.1.1.gamma"));
  EXPECT_EQ(Bytes(w.first_conv.weight), ExpectedBytes(codec, "decoder.decoder.0.conv.weight"));
  ASSERT_EQ(w.blocks.size(), 4);
  EXPECT_EQ(Bytes(w.blocks[3].snake.alpha), ExpectedBytes(codec, "decoder.decoder.4.block.0.alpha"));
  EXPECT_EQ(Bytes(w.blocks[3].transposed.weight), ExpectedBytes(codec, "decoder.decoder.4.block.1.conv.weight"));
  ASSERT_EQ(w.blocks[3].residuals.size(), 3);
  EXPECT_EQ(Bytes(w.blocks[3].residuals[2].act1.beta), ExpectedBytes(codec, "decoder.decoder.4.block.4.act1.beta"));
  EXPECT_EQ(Bytes(w.blocks[3].residuals[2].act2.alpha), ExpectedBytes(codec, "decoder.decoder.4.block.4.act2.alpha"));
  EXPECT_EQ(Bytes(w.blocks[3].residuals[2].conv1.weight),
            ExpectedBytes(codec, "decoder.decoder.4.block.4.conv1.conv.weight"));
  EXPECT_EQ(Bytes(*w.blocks[3].residuals[2].conv2.bias),
            ExpectedBytes(codec, "decoder.decoder.4.block.4.conv2.conv.bias"));
  EXPECT_EQ(Bytes(w.last_snake.beta), ExpectedBytes(codec, "decoder.decoder.5.beta"));
  EXPECT_EQ(Bytes(w.last_conv.weight), ExpectedBytes(codec, "decoder.decoder.6.conv.weight"));
  EXPECT_EQ(Bytes(*w.last_conv.bias), ExpectedBytes(codec, "decoder.decoder.6.conv.bias"));

  EXPECT_EQ(checkpoint->Info().dtype, DTypeName(spec.dtype));
}

INSTANTIATE_TEST_SUITE_P(
    All, RoundTripTest,
    ::testing::Values(Variant{"Base0b6", "tiny-base-0b6"}, Variant{"Base1b7", "tiny-base-1b7"},
                      Variant{"Custom0b6", "tiny-custom-0b6"}, Variant{"Custom1b7", "tiny-custom-1b7"},
                      Variant{"Design1b7", "tiny-design-1b7"},
                      Variant{"F16", "tiny-custom-1b7", DType::kF16, DType::kF16},
                      Variant{"F32", "tiny-base-0b6", DType::kF32, DType::kF32},
                      Variant{"CodecBF16", "tiny-custom-0b6", DType::kF32, DType::kBF16},
                      Variant{"Sharded", "tiny-base-1b7", DType::kBF16, DType::kF32, 3},
                      Variant{
                          "AttentionBias",
                          "tiny-custom-1b7",
                          DType::kBF16,
                          DType::kF32,
                          1,
                          {{"talker.attention_bias", 1}, {"predictor.attention_bias", 1}, {"codec.attention_bias", 1}}},
                      Variant{"OtherSizes",
                              "tiny-custom-0b6",
                              DType::kBF16,
                              DType::kF32,
                              1,
                              {{"num_code_groups", 5},
                               {"codebook_size", 70},
                               {"codec.decoder_dim", 33},
                               {"talker.head_dim", 10},
                               {"predictor.num_hidden_layers", 1}}}),
    testing::CaseName());

TEST(CheckpointTest, InfoOfCustomVoice) {
  const TempFolder folder;
  ASSERT_TRUE(WriteRandomCheckpoint(folder.path(), Preset("tiny-custom-1b7")).ok());
  const auto checkpoint = OpenOrFail(folder.path());
  ASSERT_NE(checkpoint, nullptr);
  EXPECT_EQ(checkpoint->folder(), folder.path());
  const ModelInfo info = checkpoint->Info();
  EXPECT_EQ(info.path, folder.path());
  EXPECT_EQ(info.type, ModelType::kCustomVoice);
  EXPECT_EQ(info.size, "1b7");
  EXPECT_THAT(info.speakers,
              ElementsAre("aiden", "dylan", "eric", "ono_anna", "ryan", "serena", "sohee", "uncle_fu", "vivian"));
  EXPECT_THAT(info.languages, ElementsAre("chinese", "english", "french", "german", "italian", "japanese", "korean",
                                          "portuguese", "russian", "spanish"));
  EXPECT_TRUE(info.supports_instruct);
  EXPECT_EQ(info.dtype, "BF16");
  EXPECT_EQ(info.sample_rate, 24000);
  EXPECT_EQ(info.samples_per_frame, 1920);
  EXPECT_EQ(info.code_groups, 16);
  EXPECT_EQ(info.defaults.max_new_tokens, 8192);
}

TEST(CheckpointTest, InfoOfVoiceDesignHasNoSpeakers) {
  const TempFolder folder;
  ASSERT_TRUE(WriteRandomCheckpoint(folder.path(), Preset("tiny-design-1b7")).ok());
  const auto checkpoint = OpenOrFail(folder.path());
  ASSERT_NE(checkpoint, nullptr);
  EXPECT_THAT(checkpoint->Info().speakers, IsEmpty());
}

TEST(CheckpointTest, DialectsNamedBySpeakersAreNoLanguages) {
  const TempFolder folder;
  ASSERT_TRUE(WriteRandomCheckpoint(folder.path(), Preset("tiny-custom-1b7")).ok());
  json config = json::parse(ReadFile(folder / "config.json"));
  json& talker = config["talker_config"];
  talker["codec_language_id"] = {{"english", 70}, {"cockney", 71}, {"scots_dialect", 72}};
  talker["spk_is_dialect"] = {{"eric", "cockney"}};
  WriteFile(folder / "config.json", config.dump());
  const auto checkpoint = OpenOrFail(folder.path());
  ASSERT_NE(checkpoint, nullptr);
  EXPECT_THAT(checkpoint->Info().languages, ElementsAre("english"));
}

TEST(CheckpointTest, BundledVoiceOpens) {
  const auto checkpoint = OpenOrFail(QTTS_VOICE_DIR);
  ASSERT_NE(checkpoint, nullptr);
  const ModelInfo info = checkpoint->Info();
  EXPECT_EQ(info.type, ModelType::kCustomVoice);
  EXPECT_EQ(info.dtype, "F16");
  EXPECT_THAT(info.speakers, ElementsAre("default"));
  EXPECT_THAT(info.languages, ElementsAre("english"));
  EXPECT_FALSE(info.defaults.predictor.do_sample);
  EXPECT_TRUE(checkpoint->predictor().input_projection.has_value());
}

// The sizes of the released models (spec 1.7). Their weights are holes in sparse files.
struct Released {
  const char* name;  // of the preset
  size_t tensors;
  int64_t file_parameters;
  int64_t talker_parameters;
};

class ReleasedTest : public ::testing::TestWithParam<Released> {};

void WriteSparse(const std::string& path, const std::vector<GeneratedTensor>& tensors) {
  const std::string header = TensorFileHeader(tensors);
  WriteFile(path, header);
  int64_t size = static_cast<int64_t>(header.size());
  for (const GeneratedTensor& tensor : tensors) size += golden::Bytes(tensor);
  ASSERT_EQ(truncate(path.c_str(), size), 0) << path;
}

int64_t Parameters(const std::vector<GeneratedTensor>& tensors, const std::string& prefix) {
  return std::accumulate(tensors.begin(), tensors.end(), int64_t{0}, [&](int64_t sum, const GeneratedTensor& t) {
    return t.name.starts_with(prefix) ? sum + Elements(t) : sum;
  });
}

TEST_P(ReleasedTest, OpensAndHasThePublishedSizes) {
  const RandomCheckpointSpec spec = Preset(GetParam().name);
  const auto model = ModelTensors(spec);
  const auto codec = CodecTensors(spec);
  EXPECT_EQ(model.size(), GetParam().tensors);
  EXPECT_EQ(codec.size(), 496);
  EXPECT_EQ(Parameters(model, ""), GetParam().file_parameters);
  EXPECT_EQ(Parameters(codec, "decoder."), 114323137);
  EXPECT_EQ(Parameters(codec, "encoder."), 56234304);

  const TempFolder folder;
  ASSERT_TRUE(WriteConfigFiles(folder.path(), spec).ok());
  WriteSparse(folder / "model.safetensors", model);
  WriteSparse(folder / "speech_tokenizer/model.safetensors", codec);
  const auto checkpoint = OpenOrFail(folder.path());
  ASSERT_NE(checkpoint, nullptr);
  const ModelInfo info = checkpoint->Info();
  EXPECT_EQ(info.talker_parameters, GetParam().talker_parameters);
  // All of the decoder but the two input projections of its quantizer.
  EXPECT_EQ(info.codec_parameters, 114323137 - 2 * 256 * 512);
  EXPECT_EQ(info.weight_bytes, 2 * info.talker_parameters + 4 * info.codec_parameters);
}

INSTANTIATE_TEST_SUITE_P(All, ReleasedTest,
                         ::testing::Values(Released{"0.6b-base", 478, 914643008, 905788672},
                                           Released{"0.6b-custom", 402, 905788672, 905788672},
                                           Released{"1.7b-base", 480, 1928677440, 1916676352},
                                           Released{"1.7b-custom", 404, 1916676352, 1916676352},
                                           Released{"1.7b-design", 404, 1916676352, 1916676352}),
                         testing::CaseName());

// One thing wrong with a folder, and the error it must give.
struct Broken {
  const char* name;
  std::function<void(const std::string& folder)> damage;
  StatusCode code;
  const char* message;
};

class BrokenFolderTest : public ::testing::TestWithParam<Broken> {};

TEST_P(BrokenFolderTest, IsOneClearError) {
  const TempFolder folder;
  ASSERT_TRUE(WriteRandomCheckpoint(folder.path(), Preset("tiny-custom-1b7")).ok());
  GetParam().damage(folder.path());
  const auto checkpoint = Checkpoint::Open(folder.path());
  ASSERT_FALSE(checkpoint.ok());
  EXPECT_EQ(checkpoint.status().code(), GetParam().code) << checkpoint.status().message();
  EXPECT_THAT(checkpoint.status().message(), StartsWith(folder.path()));
  EXPECT_THAT(checkpoint.status().message(), HasSubstr(GetParam().message));
}

std::function<void(const std::string&)> Remove(const char* file) {
  return [file](const std::string& folder) { std::filesystem::remove(folder + "/" + file); };
}

std::function<void(const std::string&)> Set(const char* file, const char* pointer, int value) {
  return [=](const std::string& folder) {
    const std::string path = folder + "/" + file;
    json document = json::parse(ReadFile(path));
    document[json::json_pointer(pointer)] = value;
    WriteFile(path, document.dump());
  };
}

std::function<void(const std::string&)> Resize(const char* file, int64_t by) {
  return [=](const std::string& folder) {
    const std::string path = folder + "/" + file;
    std::filesystem::resize_file(path, std::filesystem::file_size(path) + static_cast<uint64_t>(by));
  };
}

// Writes model.safetensors (or the codec's) anew with one tensor changed.
std::function<void(const std::string&)> Change(bool codec, const char* tensor,
                                               std::function<void(std::vector<GeneratedTensor>*, size_t)> change) {
  return [=](const std::string& folder) {
    const RandomCheckpointSpec spec = Preset("tiny-custom-1b7");
    auto tensors = codec ? CodecTensors(spec) : ModelTensors(spec);
    const auto it = std::find_if(tensors.begin(), tensors.end(), [&](const auto& t) { return t.name == tensor; });
    ASSERT_NE(it, tensors.end()) << tensor;
    change(&tensors, static_cast<size_t>(it - tensors.begin()));
    ASSERT_TRUE(WriteTensorFile(folder + (codec ? "/speech_tokenizer" : "") + "/model.safetensors", tensors).ok());
  };
}

void Drop(std::vector<GeneratedTensor>* tensors, size_t index) {
  tensors->erase(tensors->begin() + static_cast<std::ptrdiff_t>(index));
}
void AddRow(std::vector<GeneratedTensor>* tensors, size_t index) { (*tensors)[index].shape[0] += 1; }
void Transpose(std::vector<GeneratedTensor>* tensors, size_t index) {
  std::swap((*tensors)[index].shape[0], (*tensors)[index].shape[1]);
}
void Flatten(std::vector<GeneratedTensor>* tensors, size_t index) {
  (*tensors)[index].shape = {Elements((*tensors)[index])};
}

constexpr StatusCode kCorrupt = StatusCode::kCorruptModel;
constexpr StatusCode kNotFound = StatusCode::kNotFound;
constexpr StatusCode kUnsupported = StatusCode::kUnsupported;
constexpr const char* kWeights = "model.safetensors";
constexpr const char* kCodecWeights = "speech_tokenizer/model.safetensors";

INSTANTIATE_TEST_SUITE_P(
    Files, BrokenFolderTest,
    ::testing::Values(
        Broken{"NoConfig", Remove("config.json"), kNotFound,
               "config.json: no such file; give the folder of a Qwen3-TTS"},
        Broken{"NoWeights", Remove(kWeights), kNotFound,
               "has neither model.safetensors nor model.safetensors.index.json"},
        Broken{"NoCodecConfig", Remove("speech_tokenizer/config.json"), kNotFound,
               "speech_tokenizer/config.json: is missing"},
        Broken{"NoCodecWeights", Remove(kCodecWeights), kNotFound, "speech_tokenizer: has neither model.safetensors"},
        Broken{"ConfigIsAFolder",
               [](const std::string& folder) {
                 std::filesystem::remove(folder + "/config.json");
                 std::filesystem::create_directory(folder + "/config.json");
               },
               StatusCode::kUnreadable, "config.json: is not a regular file"},
        Broken{"ConfigIsAFifo",
               [](const std::string& folder) {
                 std::filesystem::remove(folder + "/config.json");
                 ASSERT_EQ(mkfifo((folder + "/config.json").c_str(), 0600), 0);
               },
               StatusCode::kUnreadable, "config.json: is not a regular file"},
        Broken{"HugeConfig", Resize("config.json", int64_t{1} << 40), kCorrupt, "config.json: is 1099511"},
        Broken{"EmptyConfig", [](const std::string& folder) { WriteFile(folder + "/config.json", ""); }, kCorrupt,
               "config.json: is not valid JSON"},
        Broken{"BadGenerationConfig",
               [](const std::string& folder) { WriteFile(folder + "/generation_config.json", "{"); }, kCorrupt,
               "generation_config.json: is not valid JSON"},
        Broken{"EmptyWeights", [](const std::string& folder) { WriteFile(folder + "/model.safetensors", ""); },
               kCorrupt, "model.safetensors: is 0 bytes long"},
        Broken{"TruncatedWeights", Resize(kWeights, -1), kCorrupt, "it is truncated"},
        Broken{"LongerWeights", Resize(kWeights, 1), kCorrupt, "something follows the last tensor"},
        Broken{"TruncatedCodec", Resize(kCodecWeights, -4), kCorrupt, "speech_tokenizer/model.safetensors: tensor"},
        Broken{"GgufWeights", [](const std::string& folder) { WriteFile(folder + "/model.safetensors", "GGUF...."); },
               kUnsupported, "GGUF"}),
    testing::CaseName());

INSTANTIATE_TEST_SUITE_P(
    Tensors, BrokenFolderTest,
    ::testing::Values(
        Broken{
            "NoHead", Change(false, "talker.codec_head.weight", Drop), kCorrupt,
            "model.safetensors: tensor 'talker.codec_head.weight' is missing, expected shape [1088, 72] (vocab_size, "
            "hidden_size of talker_config)"},
        Broken{"ShortHead", Set("config.json", "/talker_config/vocab_size", 1087), kCorrupt,
               "tensor 'talker.model.codec_embedding.weight' has shape [1088, 72], expected [1087, 72] (vocab_size, "
               "hidden_size of talker_config)"},
        Broken{"TransposedQuery", Change(false, "talker.model.layers.2.self_attn.q_proj.weight", Transpose), kCorrupt,
               "'talker.model.layers.2.self_attn.q_proj.weight' has shape [72, 64], expected [64, 72] "
               "(num_attention_heads * head_dim, hidden_size of talker_config)"},
        Broken{"FlatText", Change(false, "talker.model.text_embedding.weight", Flatten), kCorrupt,
               "has shape [12288], expected [384, 32] (text_vocab_size, text_hidden_size of talker_config)"},
        Broken{"NoTextProjection", Change(false, "talker.text_projection.linear_fc1.bias", Drop), kCorrupt,
               "linear_fc1.bias' is missing, expected shape [32] (text_hidden_size of talker_config)"},
        Broken{"NoProjection", Change(false, "talker.code_predictor.small_to_mtp_projection.weight", Drop), kCorrupt,
               "small_to_mtp_projection.weight' is missing, expected shape [48, 72] (hidden_size, the talker's "
               "hidden_size "
               "of code_predictor_config)"},
        Broken{"NoLastGroup", Change(false, "talker.code_predictor.lm_head.14.weight", Drop), kCorrupt,
               "lm_head.14.weight' is missing"},
        Broken{"LongGroup", Change(false, "talker.code_predictor.model.codec_embedding.3.weight", AddRow), kCorrupt,
               "codec_embedding.3.weight' has shape [65, 72], expected [64, 72]"},
        Broken{"TooFewLayers", Set("config.json", "/talker_config/num_hidden_layers", 4), kCorrupt,
               "'talker.model.layers.3.input_layernorm.weight' is missing"},
        Broken{"OtherHeadWidth", Set("config.json", "/talker_config/head_dim", 32), kCorrupt,
               "has shape [64, 72], expected [128, 72]"},
        Broken{"NoBias",
               [](const std::string& folder) {
                 json config = json::parse(ReadFile(folder + "/config.json"));
                 config["talker_config"]["attention_bias"] = true;
                 WriteFile(folder + "/config.json", config.dump());
               },
               kCorrupt, "q_proj.bias' is missing"},
        Broken{"NoCodebook", Change(true, "decoder.quantizer.rvq_rest.vq.layers.14._codebook.cluster_usage", Drop),
               kCorrupt,
               "speech_tokenizer/model.safetensors: tensor "
               "'decoder.quantizer.rvq_rest.vq.layers.14._codebook.cluster_usage' "
               "is missing, expected shape [64] (codebook_size of decoder_config)"},
        Broken{"NoLayerScale", Change(true, "decoder.pre_transformer.layers.1.mlp_layer_scale.scale", Drop), kCorrupt,
               "mlp_layer_scale.scale' is missing"},
        Broken{"TransposedUpsample", Change(true, "decoder.decoder.1.block.1.conv.weight", Transpose), kCorrupt,
               "has shape [24, 48, 16], expected [48, 24, 16]"},
        Broken{"LongSnake", Change(true, "decoder.decoder.5.alpha", AddRow), kCorrupt, "has shape [4], expected [3]"},
        Broken{"OtherRates",
               [](const std::string& folder) {
                 json config = json::parse(ReadFile(folder + "/speech_tokenizer/config.json"));
                 config["decoder_config"]["upsample_rates"] = {5, 8, 4, 3};
                 WriteFile(folder + "/speech_tokenizer/config.json", config.dump());
               },
               kCorrupt, "has shape [48, 24, 16], expected [48, 24, 10]"}),
    testing::CaseName());

TEST(CheckpointTest, SurplusTensorsAreIgnored) {
  const TempFolder folder;
  RandomCheckpointSpec spec = Preset("tiny-custom-0b6");
  ASSERT_TRUE(WriteRandomCheckpoint(folder.path(), spec).ok());
  auto tensors = ModelTensors(spec);
  tensors.push_back(tensors.front());
  tensors.back().name = "optimizer.step";
  ASSERT_TRUE(WriteTensorFile(folder / "model.safetensors", tensors).ok());
  EXPECT_NE(OpenOrFail(folder.path()), nullptr);
}

TEST(CheckpointTest, ProjectionOfEqualWidthsIsIgnored) {
  const TempFolder folder;
  RandomCheckpointSpec spec = Preset("tiny-custom-0b6");
  ASSERT_TRUE(WriteRandomCheckpoint(folder.path(), spec).ok());
  auto tensors = ModelTensors(spec);
  GeneratedTensor weight = tensors.front();
  weight.name = "talker.code_predictor.small_to_mtp_projection.weight";
  weight.shape = {48, 48};
  tensors.push_back(weight);
  ASSERT_TRUE(WriteTensorFile(folder / "model.safetensors", tensors).ok());
  const auto checkpoint = OpenOrFail(folder.path());
  ASSERT_NE(checkpoint, nullptr);
  EXPECT_FALSE(checkpoint->predictor().input_projection.has_value());
}

TEST(CheckpointTest, MixedDTypesInOneFile) {
  const TempFolder folder;
  RandomCheckpointSpec spec = Preset("tiny-custom-0b6");
  ASSERT_TRUE(WriteRandomCheckpoint(folder.path(), spec).ok());
  auto tensors = ModelTensors(spec);
  const DType dtypes[] = {DType::kF32, DType::kF16, DType::kBF16};
  for (size_t i = 0; i < tensors.size(); ++i) tensors[i].dtype = dtypes[i % 3];
  // As the official writer does, so that everything is aligned.
  std::stable_sort(tensors.begin(), tensors.end(),
                   [](const auto& a, const auto& b) { return DTypeBytes(a.dtype) > DTypeBytes(b.dtype); });
  ASSERT_TRUE(WriteTensorFile(folder / "model.safetensors", tensors).ok());
  const auto checkpoint = OpenOrFail(folder.path());
  ASSERT_NE(checkpoint, nullptr);
  EXPECT_EQ(Bytes(checkpoint->talker().codec_head), ExpectedBytes(tensors, "talker.codec_head.weight"));
}

TEST(CheckpointTest, BaseWithoutSpeakerEncoderOpens) {
  const TempFolder folder;
  RandomCheckpointSpec spec = Preset("tiny-base-0b6");
  ASSERT_TRUE(WriteRandomCheckpoint(folder.path(), spec).ok());
  auto tensors = ModelTensors(spec);
  tensors.erase(std::remove_if(tensors.begin(), tensors.end(),
                               [](const auto& t) { return t.name.starts_with("speaker_encoder."); }),
                tensors.end());
  ASSERT_TRUE(WriteTensorFile(folder / "model.safetensors", tensors).ok());
  EXPECT_NE(OpenOrFail(folder.path()), nullptr);
}

TEST(CheckpointTest, ViewsOutliveTheFolder) {
  std::shared_ptr<const Checkpoint> checkpoint;
  {
    const TempFolder folder;
    ASSERT_TRUE(WriteRandomCheckpoint(folder.path(), Preset("tiny-custom-0b6")).ok());
    checkpoint = OpenOrFail(folder.path());
  }
  ASSERT_NE(checkpoint, nullptr);
  EXPECT_EQ(Bytes(checkpoint->talker().codec_head),
            ExpectedBytes(ModelTensors(Preset("tiny-custom-0b6")), "talker.codec_head.weight"));
}

TEST(NotAModelTest, NamesWhatItFound) {
  const TempFolder folder;
  Status status = Checkpoint::Open(folder / "nowhere").status();
  EXPECT_EQ(status.code(), kNotFound);
  EXPECT_THAT(status.message(), HasSubstr("no such folder"));

  WriteFile(folder / "model.gguf", "GGUF");
  status = Checkpoint::Open(folder / "model.gguf").status();
  EXPECT_EQ(status.code(), kNotFound);
  EXPECT_THAT(status.message(), HasSubstr("is not a folder"));
  status = Checkpoint::Open(folder.path()).status();
  EXPECT_EQ(status.code(), kUnsupported);
  EXPECT_THAT(status.message(), HasSubstr("GGUF files, which cannot be read"));
}

TEST(NotAModelTest, DownloadCache) {
  const TempFolder folder;
  std::filesystem::create_directory(folder / "snapshots");
  EXPECT_THAT(Checkpoint::Open(folder.path()).status().message(), HasSubstr("below its snapshots/"));
}

TEST(NotAModelTest, CodecAlone) {
  const TempFolder folder;
  ASSERT_TRUE(WriteRandomCheckpoint(folder.path(), Preset("tiny-custom-0b6")).ok());
  const Status status = Checkpoint::Open(folder / "speech_tokenizer").status();
  EXPECT_EQ(status.code(), kUnsupported);
  EXPECT_THAT(status.message(), HasSubstr("this folder is a codec alone"));
}

TEST(NotAModelTest, TextTokenizerAlone) {
  const TempFolder folder;
  ASSERT_TRUE(WriteRandomCheckpoint(folder.path(), Preset("tiny-custom-0b6")).ok());
  std::filesystem::remove(folder / "config.json");
  EXPECT_EQ(Checkpoint::Open(folder.path()).status().code(), kNotFound);
}

}  // namespace
}  // namespace qtts
