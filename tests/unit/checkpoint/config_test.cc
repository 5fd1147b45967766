// SPDX-License-Identifier: LGPL-2.1-or-later
#include "checkpoint/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "golden/generator/random_checkpoint.h"
#include "qtts/sampling_numbers.h"
#include "unit/checkpoint/support.h"

namespace qtts {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::StartsWith;

// The JSON files of a tiny checkpoint, which tests change and parse.
struct Documents {
  json model, generation, codec;

  explicit Documents(std::string_view preset) {
    const testing::TempFolder folder;
    const auto spec = golden::FindPreset(preset);
    EXPECT_TRUE(spec.ok());
    EXPECT_TRUE(golden::WriteConfigFiles(folder.path(), *spec).ok());
    model = json::parse(testing::ReadFile(folder / "config.json"));
    generation = json::parse(testing::ReadFile(folder / "generation_config.json"));
    codec = json::parse(testing::ReadFile(folder / "speech_tokenizer/config.json"));
  }

  Result<ModelConfig> Parse() const { return ParseModelConfig("/m", model.dump(), generation.dump(), codec.dump()); }
};

TEST(ConfigTest, ReadsCustomVoice) {
  const auto config = Documents("tiny-custom-1b7").Parse();
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->type, ModelType::kCustomVoice);
  EXPECT_EQ(config->size, "1b7");
  EXPECT_TRUE(config->supports_instruct());
  EXPECT_EQ(config->speaker_encoder_dim, 0);
  const TalkerConfig& talker = config->talker;
  EXPECT_EQ(talker.transformer.hidden_size, 72);
  EXPECT_EQ(talker.transformer.num_layers, 3);
  EXPECT_EQ(talker.transformer.q_width(), 64);
  EXPECT_EQ(talker.transformer.kv_width(), 32);
  EXPECT_EQ(talker.transformer.sliding_window, 0);
  EXPECT_TRUE(talker.transformer.qk_norm);
  EXPECT_FALSE(talker.transformer.attention_bias);
  EXPECT_FLOAT_EQ(talker.transformer.rms_norm_eps, 1e-6F);
  EXPECT_FLOAT_EQ(talker.transformer.rope_theta, 1e6F);
  EXPECT_EQ(talker.transformer.max_positions, 32768);
  EXPECT_EQ(talker.vocab_size, 64 + 1024);
  EXPECT_EQ(talker.num_code_groups, 16);
  EXPECT_EQ(talker.codec_pad_id, 64 + 100);
  EXPECT_EQ(talker.codec_bos_id, 64 + 101);
  EXPECT_EQ(talker.codec_eos_id, 64 + 102);
  EXPECT_EQ(talker.codec_think_id, 64 + 106);
  EXPECT_EQ(talker.codec_nothink_id, 64 + 107);
  EXPECT_EQ(talker.codec_think_bos_id, 64 + 108);
  EXPECT_EQ(talker.codec_think_eos_id, 64 + 109);
  EXPECT_EQ(talker.languages.size(), 12);
  EXPECT_EQ(talker.languages.at("english"), 66);
  EXPECT_EQ(talker.speakers.size(), 9);
  EXPECT_EQ(talker.speakers.at("serena"), 64 + 1018);
  EXPECT_THAT(talker.dialects, ElementsAre(Pair("dylan", "beijing_dialect"), Pair("eric", "sichuan_dialect")));
  EXPECT_EQ(config->predictor.transformer.hidden_size, 48);
  EXPECT_EQ(config->predictor.vocab_size, 64);
  const CodecConfig& codec = config->codec;
  EXPECT_FALSE(codec.transformer.qk_norm);
  EXPECT_EQ(codec.transformer.sliding_window, 9);
  EXPECT_EQ(codec.transformer.num_kv_heads, 2);
  EXPECT_THAT(codec.upsample_rates, ElementsAre(8, 5, 4, 3));
  EXPECT_THAT(codec.upsampling_ratios, ElementsAre(2, 2));
  EXPECT_EQ(codec.samples_per_frame, 1920);
  EXPECT_EQ(codec.sample_rate, 24000);
  EXPECT_EQ(codec.num_quantizers, 16);
  EXPECT_EQ(codec.num_semantic_quantizers, 1);
}

TEST(ConfigTest, ReadsBaseAndVoiceDesign) {
  const auto base = Documents("tiny-base-1b7").Parse();
  ASSERT_TRUE(base.ok()) << base.status().message();
  EXPECT_EQ(base->type, ModelType::kBase);
  EXPECT_EQ(base->speaker_encoder_dim, 72);
  EXPECT_TRUE(base->talker.speakers.empty());
  EXPECT_FALSE(base->supports_instruct());

  const auto design = Documents("tiny-design-1b7").Parse();
  ASSERT_TRUE(design.ok()) << design.status().message();
  EXPECT_EQ(design->type, ModelType::kVoiceDesign);
  EXPECT_TRUE(design->supports_instruct());
}

TEST(ConfigTest, SmallCustomVoiceHasNoInstruct) {
  const auto config = Documents("tiny-custom-0b6").Parse();
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_FALSE(config->supports_instruct());
}

TEST(ConfigTest, GenerationSettingsComeFromTheFile) {
  Documents documents("tiny-custom-0b6");
  documents.generation = json::parse(R"({"do_sample": false, "temperature": 0.5, "top_k": 0, "top_p": 0.25,
      "repetition_penalty": 2, "subtalker_dosample": false, "subtalker_temperature": 0.75, "subtalker_top_k": 7,
      "subtalker_top_p": 0.5, "max_new_tokens": 77, "something_else": []})");
  const auto config = documents.Parse();
  ASSERT_TRUE(config.ok()) << config.status().message();
  const GenerationSettings& d = config->defaults;
  EXPECT_FALSE(d.talker.do_sample);
  EXPECT_EQ(d.talker.temperature, 0.5F);
  EXPECT_EQ(d.talker.top_k, 0);
  EXPECT_EQ(d.talker.top_p, 0.25F);
  EXPECT_EQ(d.repetition_penalty, 2.0F);
  EXPECT_FALSE(d.predictor.do_sample);
  EXPECT_EQ(d.predictor.temperature, 0.75F);
  EXPECT_EQ(d.predictor.top_k, 7);
  EXPECT_EQ(d.predictor.top_p, 0.5F);
  EXPECT_EQ(d.max_new_tokens, 77);
}

TEST(ConfigTest, EverySamplingNumberComesFromTheFile) {
  for (const SamplingNumber& number : kSamplingNumbers) {
    Documents documents("tiny-custom-0b6");
    documents.generation = number.whole() ? json{{number.key(), 7}} : json{{number.key(), 0.125}};
    const auto config = documents.Parse();
    ASSERT_TRUE(config.ok()) << config.status().message();
    EXPECT_EQ(number.Get(config->defaults), number.whole() ? 7 : 0.125) << number.name;
    documents.generation = json{{number.key(), -1}};
    EXPECT_THAT(documents.Parse().status().message(), HasSubstr(number.key() + " is -1, expected")) << number.name;
    if (number.minimum <= kAboveZero) continue;
    documents.generation = json{{number.key(), number.minimum / 2}};
    EXPECT_THAT(documents.Parse().status().message(), HasSubstr("expected " + number.Range())) << number.name;
  }
}

TEST(ConfigTest, OfficialDefaultsWithoutGenerationConfig) {
  const Documents documents("tiny-custom-0b6");
  const auto config = ParseModelConfig("/m", documents.model.dump(), "", documents.codec.dump());
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_TRUE(config->defaults.talker.do_sample);
  EXPECT_EQ(config->defaults.talker.temperature, 0.9F);
  EXPECT_EQ(config->defaults.max_new_tokens, 8192);
}

TEST(ConfigTest, MissingGenerationKeysHaveTheOfficialFallbacks) {
  Documents documents("tiny-custom-0b6");
  documents.generation = json::parse(R"({"temperature": null})");
  const auto config = documents.Parse();
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->defaults.talker.temperature, 0.9F);
  EXPECT_EQ(config->defaults.talker.top_k, 50);
  EXPECT_EQ(config->defaults.repetition_penalty, 1.05F);
  EXPECT_EQ(config->defaults.max_new_tokens, 2048);
}

TEST(ConfigTest, OmittedKeysHaveTheDefaultsOfTheOfficialClasses) {
  // As the official package writes a config with the small model's sizes.
  const auto config =
      ParseModelConfig("/m", R"({"model_type": "qwen3_tts", "tts_model_type": "base", "tts_model_size": "0b6",
          "talker_config": {"text_vocab_size": 151936, "head_dim": 128, "num_code_groups": 16, "codec_pad_id": 2148,
          "codec_bos_id": 2149, "codec_eos_token_id": 2150, "codec_think_id": 2154, "codec_nothink_id": 2155,
          "codec_think_bos_id": 2156, "codec_think_eos_id": 2157, "code_predictor_config": {"num_code_groups": 16}}})",
                       "", R"({"model_type": "qwen3_tts_tokenizer_12hz", "decoder_config": {"codebook_dim": 512}})");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->talker.transformer.hidden_size, 1024);
  EXPECT_EQ(config->talker.transformer.intermediate_size, 2048);
  EXPECT_EQ(config->talker.transformer.num_layers, 20);
  EXPECT_EQ(config->talker.transformer.num_heads, 16);
  EXPECT_EQ(config->talker.transformer.num_kv_heads, 2);
  EXPECT_EQ(config->talker.transformer.rope_theta, 10000);
  EXPECT_EQ(config->talker.vocab_size, 3072);
  EXPECT_EQ(config->talker.text_hidden_size, 2048);
  EXPECT_EQ(config->im_start_token_id, 151644);
  EXPECT_EQ(config->im_end_token_id, 151645);
  EXPECT_EQ(config->tts_pad_token_id, 151671);
  EXPECT_EQ(config->tts_bos_token_id, 151672);
  EXPECT_EQ(config->tts_eos_token_id, 151673);
  EXPECT_EQ(config->speaker_encoder_dim, 1024);
  EXPECT_EQ(config->predictor.transformer.hidden_size, 1024);
  EXPECT_EQ(config->predictor.transformer.intermediate_size, 3072);
  EXPECT_EQ(config->predictor.transformer.num_layers, 5);
  EXPECT_EQ(config->predictor.transformer.head_dim, 128);
  EXPECT_EQ(config->predictor.vocab_size, 2048);
  EXPECT_EQ(config->codec.transformer.hidden_size, 1024);
  EXPECT_EQ(config->codec.transformer.head_dim, 64);
  EXPECT_EQ(config->codec.transformer.sliding_window, 72);
  EXPECT_FLOAT_EQ(config->codec.transformer.rms_norm_eps, 1e-5F);
  EXPECT_EQ(config->codec.latent_dim, 1024);
  EXPECT_EQ(config->codec.decoder_dim, 1536);
  EXPECT_EQ(config->codec.num_quantizers, 16);
  EXPECT_EQ(config->codec.samples_per_frame, 1920);
}

TEST(ConfigTest, FineTunedSpeakersReplaceThePresets) {
  Documents documents("tiny-custom-1b7");
  json& talker = documents.model["talker_config"];
  talker["spk_id"] = {{"My Voice", 1000}};  // the dialect entries of the presets stay behind
  talker["codec_language_id"].erase("beijing_dialect");
  const auto config = documents.Parse();
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_THAT(config->talker.speakers, ElementsAre(Pair("my voice", 1000)));
  EXPECT_TRUE(config->talker.dialects.empty());
}

TEST(ConfigTest, DialectsThatHaveNoIdAreDropped) {
  Documents documents("tiny-custom-1b7");
  documents.model["talker_config"]["codec_language_id"].erase("beijing_dialect");
  const auto config = documents.Parse();
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_THAT(config->talker.dialects, ElementsAre(Pair("eric", "sichuan_dialect")));
}

TEST(ConfigTest, TalkerWindowOnlyWhenUsed) {
  Documents documents("tiny-custom-1b7");
  json& talker = documents.model["talker_config"];
  talker["sliding_window"] = 100;
  auto config = documents.Parse();
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->talker.transformer.sliding_window, 0);
  talker["use_sliding_window"] = true;
  config = documents.Parse();
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->talker.transformer.sliding_window, 100);
}

TEST(ConfigTest, OtherFrameLengthsAndRates) {
  Documents documents("tiny-custom-1b7");
  json& decoder = documents.codec["decoder_config"];
  decoder["upsample_rates"] = {6, 2};
  decoder["upsampling_ratios"] = {5};
  documents.codec["decode_upsample_rate"] = 60;
  documents.codec["output_sample_rate"] = 16000;
  const auto config = documents.Parse();
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->codec.samples_per_frame, 60);
  EXPECT_EQ(config->codec.sample_rate, 16000);
}

enum class Document { kModel, kGeneration, kCodec };

// One change of one document, and its error.
struct BadConfig {
  const char* name;
  Document document;
  const char* pointer;  // JSON pointer to the changed value
  const char* value;    // new value; empty: the key is removed
  const char* message;
  StatusCode code = StatusCode::kCorruptModel;
};

class BadConfigTest : public ::testing::TestWithParam<BadConfig> {};

TEST_P(BadConfigTest, IsOneClearError) {
  const BadConfig& bad = GetParam();
  Documents documents("tiny-base-1b7");
  json& document = bad.document == Document::kModel        ? documents.model
                   : bad.document == Document::kGeneration ? documents.generation
                                                           : documents.codec;
  const json::json_pointer pointer(bad.pointer);
  if (*bad.value == '\0') {
    ASSERT_EQ(document.at(pointer.parent_pointer()).erase(pointer.back()), 1);
  } else {
    document[pointer] = json::parse(bad.value);
  }
  const auto config = documents.Parse();
  ASSERT_FALSE(config.ok());
  EXPECT_EQ(config.status().code(), bad.code) << config.status().message();
  EXPECT_THAT(config.status().message(), StartsWith("/m/"));
  EXPECT_THAT(config.status().message(), HasSubstr(bad.message));
}

constexpr auto kModel = Document::kModel;
constexpr auto kGeneration = Document::kGeneration;
constexpr auto kCodec = Document::kCodec;
constexpr auto kUnsupported = StatusCode::kUnsupported;
#define TALKER "/talker_config"
#define PREDICTOR "/talker_config/code_predictor_config"
#define DECODER "/decoder_config"

INSTANTIATE_TEST_SUITE_P(
    Model, BadConfigTest,
    ::testing::Values(
        BadConfig{"NoModelType", kModel, "/model_type", "", "model_type is missing, expected \"qwen3_tts\"",
                  kUnsupported},
        BadConfig{"OtherModel", kModel, "/model_type", "\"qwen3\"", "not a Qwen3-TTS checkpoint", kUnsupported},
        BadConfig{"CodecAlone", kModel, "/model_type", "\"qwen3_tts_tokenizer_12hz\"", "a codec alone", kUnsupported},
        BadConfig{"Codec25Hz", kModel, "/tokenizer_type", "\"qwen3_tts_tokenizer_25hz\"",
                  "tokenizer_type is \"qwen3_tts_tokenizer_25hz\"", kUnsupported},
        BadConfig{"NoKind", kModel, "/tts_model_type", "", "tts_model_type is missing"},
        BadConfig{"UnknownKind", kModel, "/tts_model_type", "\"singing\"", "tts_model_type is \"singing\"",
                  kUnsupported},
        BadConfig{"SizeIsANumber", kModel, "/tts_model_size", "6", "tts_model_size is 6, expected a string"},
        BadConfig{"NoTalker", kModel, TALKER, "", "talker_config is missing, expected an object"},
        BadConfig{"TalkerIsANumber", kModel, TALKER, "3", "talker_config is 3, expected an object"},
        BadConfig{"PredictorIsAnArray", kModel, PREDICTOR, "[]", "code_predictor_config is [], expected an object"},
        BadConfig{"EncoderWidth", kModel, "/speaker_encoder_config/enc_dim", "48",
                  "speaker_encoder_config.enc_dim is 48, expected 72"},
        BadConfig{"ImStart", kModel, "/im_start_token_id", "384",
                  "im_start_token_id is 384, expected an integer from 0 to 383"},
        BadConfig{"ImEnd", kModel, "/im_end_token_id", "-1", "im_end_token_id is -1"},
        BadConfig{"Pad", kModel, "/tts_pad_token_id", "1e3", "tts_pad_token_id is 1000.0"},
        BadConfig{"Bos", kModel, "/tts_bos_token_id", "\"x\"", "tts_bos_token_id is \"x\""},
        BadConfig{"Eos", kModel, "/tts_eos_token_id", "18446744073709551615",
                  "tts_eos_token_id is 18446744073709551615"}),
    testing::CaseName());

INSTANTIATE_TEST_SUITE_P(
    Talker, BadConfigTest,
    ::testing::Values(
        BadConfig{"NoWidth", kModel, TALKER "/hidden_size", "0",
                  "talker_config.hidden_size is 0, expected an integer from 1 to 65536"},
        BadConfig{"NegativeWidth", kModel, TALKER "/hidden_size", "-72", "hidden_size is -72"},
        BadConfig{"HugeWidth", kModel, TALKER "/hidden_size", "4611686018427387904",
                  "hidden_size is 4611686018427387904"},
        BadConfig{"HugerWidth", kModel, TALKER "/hidden_size", "10000000000000000000000000", "hidden_size is 1e+25"},
        BadConfig{"FractionalWidth", kModel, TALKER "/hidden_size", "72.5", "hidden_size is 72.5"},
        BadConfig{"TextWidth", kModel, TALKER "/hidden_size", "\"72\"", "hidden_size is \"72\""},
        BadConfig{"BooleanWidth", kModel, TALKER "/hidden_size", "true", "hidden_size is true"},
        BadConfig{"Intermediate", kModel, TALKER "/intermediate_size", "0", "intermediate_size is 0"},
        BadConfig{"NoLayers", kModel, TALKER "/num_hidden_layers", "0", "num_hidden_layers is 0"},
        BadConfig{"TooManyLayers", kModel, TALKER "/num_hidden_layers", "1025", "num_hidden_layers is 1025"},
        BadConfig{"NoHeads", kModel, TALKER "/num_attention_heads", "0", "num_attention_heads is 0"},
        BadConfig{"NoKvHeads", kModel, TALKER "/num_key_value_heads", "0", "num_key_value_heads is 0"},
        BadConfig{"UnevenGroups", kModel, TALKER "/num_key_value_heads", "3",
                  "num_key_value_heads is 3, expected a divisor of num_attention_heads, which is 4"},
        BadConfig{"OddHead", kModel, TALKER "/head_dim", "15", "head_dim is 15, expected an even number"},
        BadConfig{"Activation", kModel, TALKER "/hidden_act", "\"gelu\"", "hidden_act is \"gelu\", expected \"silu\"",
                  kUnsupported},
        BadConfig{"Tying", kModel, TALKER "/tie_word_embeddings", "true", "tie_word_embeddings is true", kUnsupported},
        BadConfig{"RopeScaling", kModel, TALKER "/rope_scaling/rope_type", "\"yarn\"",
                  "talker_config.rope_scaling.rope_type is \"yarn\"", kUnsupported},
        BadConfig{"OldRopeScaling", kModel, TALKER "/rope_scaling/type", "\"linear\"",
                  "rope_scaling.type is \"linear\"", kUnsupported},
        BadConfig{"RopeScalingIsText", kModel, TALKER "/rope_scaling", "\"default\"",
                  "rope_scaling is \"default\", expected an object"},
        BadConfig{"PartialRotary", kModel, TALKER "/partial_rotary_factor", "0.5", "partial_rotary_factor is 0.5",
                  kUnsupported},
        BadConfig{"Theta", kModel, TALKER "/rope_theta", "0", "rope_theta is 0, expected a number above 0"},
        BadConfig{"HugeTheta", kModel, TALKER "/rope_theta", "1e300", "rope_theta is 1e+300"},
        BadConfig{"Eps", kModel, TALKER "/rms_norm_eps", "-1e-6", "rms_norm_eps is -1e-06"},
        BadConfig{"TinyEps", kModel, TALKER "/rms_norm_eps", "1e-300", "rms_norm_eps is 1e-300"},
        BadConfig{"Bias", kModel, TALKER "/attention_bias", "1", "attention_bias is 1, expected true or false"},
        BadConfig{"Window", kModel, TALKER "/use_sliding_window", "\"no\"", "use_sliding_window is \"no\""},
        BadConfig{"Positions", kModel, TALKER "/max_position_embeddings", "0", "max_position_embeddings is 0"},
        BadConfig{"OnlyControlRows", kModel, TALKER "/vocab_size", "1024",
                  "talker_config.vocab_size is 1024, expected an integer from 1025"},
        BadConfig{"MoreCodesThanCodewords", kModel, TALKER "/vocab_size", "1089",
                  "is 65, expected at most 64, codebook_size of speech_tokenizer"},
        BadConfig{"NoTextVocabulary", kModel, TALKER "/text_vocab_size", "", "text_vocab_size is missing"},
        BadConfig{"TextWidthTooLarge", kModel, TALKER "/text_hidden_size", "65537", "text_hidden_size is 65537"},
        BadConfig{"OneGroup", kModel, TALKER "/num_code_groups", "1", "num_code_groups is 1"},
        BadConfig{"PadId", kModel, TALKER "/codec_pad_id", "1088",
                  "codec_pad_id is 1088, expected an integer from 0 to 1087"},
        BadConfig{"BosId", kModel, TALKER "/codec_bos_id", "-1", "codec_bos_id is -1"},
        BadConfig{"EosId", kModel, TALKER "/codec_eos_token_id", "2150", "codec_eos_token_id is 2150"},
        BadConfig{"ThinkId", kModel, TALKER "/codec_think_id", "2154", "codec_think_id is 2154"},
        BadConfig{"NothinkId", kModel, TALKER "/codec_nothink_id", "2155", "codec_nothink_id is 2155"},
        BadConfig{"ThinkBosId", kModel, TALKER "/codec_think_bos_id", "2156", "codec_think_bos_id is 2156"},
        BadConfig{"ThinkEosId", kModel, TALKER "/codec_think_eos_id", "2157", "codec_think_eos_id is 2157"},
        BadConfig{"MissingId", kModel, TALKER "/codec_bos_id", "null",
                  "codec_bos_id is missing, expected an integer from 0 to 1087"},
        BadConfig{"Language", kModel, TALKER "/codec_language_id/english", "1088", "codec_language_id.english is 1088"},
        BadConfig{"LanguageList", kModel, TALKER "/codec_language_id", "[]",
                  "codec_language_id is [], expected an object"},
        BadConfig{"Speaker", kModel, TALKER "/spk_id/eve", "-3", "spk_id.eve is -3"},
        BadConfig{"SpeakerTwice", kModel, TALKER "/spk_id", R"({"Eve": 1, "eve": 2})",
                  "expected names that differ in more than case"},
        BadConfig{"SpeakerName", kModel, TALKER "/spk_id", R"({"a\nb": 5000})", "spk_id.a\\nb is 5000"},
        BadConfig{"Dialect", kModel, TALKER "/spk_is_dialect", R"({"eve": true})",
                  "spk_is_dialect.eve is true, expected false or the name"}),
    testing::CaseName());

INSTANTIATE_TEST_SUITE_P(Predictor, BadConfigTest,
                         ::testing::Values(BadConfig{"Width", kModel, PREDICTOR "/hidden_size", "0",
                                                     "talker_config.code_predictor_config.hidden_size is 0"},
                                           BadConfig{"Groups", kModel, PREDICTOR "/num_code_groups", "15",
                                                     "num_code_groups is 15, expected 16, as in talker_config"},
                                           BadConfig{"NoGroups", kModel, PREDICTOR "/num_code_groups", "",
                                                     "num_code_groups is missing, expected 16"},
                                           BadConfig{"Vocabulary", kModel, PREDICTOR "/vocab_size", "65",
                                                     "vocab_size is 65, expected at most 64"},
                                           BadConfig{"Layers", kModel, PREDICTOR "/layer_types/1",
                                                     "\"sliding_attention\"", "layer_types is", kUnsupported},
                                           BadConfig{"LayersAreText", kModel, PREDICTOR "/layer_types",
                                                     "\"full_attention\"", "layer_types is", kUnsupported},
                                           BadConfig{"Tying", kModel, PREDICTOR "/tie_word_embeddings", "true",
                                                     "tie_word_embeddings is true", kUnsupported},
                                           BadConfig{"Activation", kModel, PREDICTOR "/hidden_act", "\"relu\"",
                                                     "hidden_act is \"relu\"", kUnsupported}),
                         testing::CaseName());

TEST(ConfigTest, PredictorWindowIsUnsupported) {
  Documents documents("tiny-base-0b6");
  json& predictor = documents.model["talker_config"]["code_predictor_config"];
  predictor.erase("layer_types");
  ASSERT_TRUE(documents.Parse().ok());
  predictor["use_sliding_window"] = true;
  ASSERT_TRUE(documents.Parse().ok()) << "the window begins above the last layer";
  predictor["max_window_layers"] = 1;
  EXPECT_EQ(documents.Parse().status().code(), kUnsupported);
}

INSTANTIATE_TEST_SUITE_P(
    Codec, BadConfigTest,
    ::testing::Values(
        BadConfig{"NoType", kCodec, "/model_type", "", "speech_tokenizer/config.json: model_type is missing",
                  kUnsupported},
        BadConfig{"Codec25Hz", kCodec, "/model_type", "\"qwen3_tts_tokenizer_25hz\"",
                  "model_type is \"qwen3_tts_tokenizer_25hz\"", kUnsupported},
        BadConfig{"SampleRate", kCodec, "/output_sample_rate", "0", "output_sample_rate is 0"},
        BadConfig{"FrameLength", kCodec, "/decode_upsample_rate", "1921",
                  "decode_upsample_rate is 1921, expected 1920, the product"},
        BadConfig{"NoRates", kCodec, DECODER "/upsample_rates", "[]", "decoder_config.upsample_rates is []"},
        BadConfig{"RatesAreNoArray", kCodec, DECODER "/upsample_rates", "8", "upsample_rates is 8"},
        BadConfig{"ZeroRate", kCodec, DECODER "/upsample_rates/0", "0", "upsample_rates is [0,5,4,3]"},
        BadConfig{"NegativeRate", kCodec, DECODER "/upsample_rates/0", "-8", "upsample_rates is [-8,5,4,3]"},
        BadConfig{"HugeRates", kCodec, DECODER "/upsampling_ratios", "[1024,1024,1024,1024,1024,1024,1024,1024]",
                  "decode_upsample_rate is 1920"},
        BadConfig{"TooManyRates", kCodec, DECODER "/upsampling_ratios", "[1,1,1,1,1,1,1,1,1]",
                  "upsampling_ratios is an array of 9"},
        BadConfig{"TooNarrow", kCodec, DECODER "/decoder_dim", "15", "decoder_dim is 15, expected enough to be halved"},
        BadConfig{"OddCodebook", kCodec, DECODER "/codebook_dim", "23", "codebook_dim is 23, expected an even number"},
        BadConfig{"NoCodebookDim", kCodec, DECODER "/codebook_dim", "", "codebook_dim is missing"},
        BadConfig{"CodebookSize", kCodec, DECODER "/codebook_size", "63",
                  "expected at most 63, codebook_size of speech_tokenizer"},
        BadConfig{"Quantizers", kCodec, DECODER "/num_quantizers", "8",
                  "num_code_groups is 16, expected 8, num_quantizers of"},
        BadConfig{"SemanticQuantizers", kCodec, DECODER "/num_semantic_quantizers", "2",
                  "num_semantic_quantizers is 2, expected 1", kUnsupported},
        BadConfig{"Window", kCodec, DECODER "/sliding_window", "0", "sliding_window is 0"},
        BadConfig{"Latent", kCodec, DECODER "/latent_dim", "0", "latent_dim is 0"},
        BadConfig{"Heads", kCodec, DECODER "/num_key_value_heads", "3", "num_key_value_heads is 3"},
        BadConfig{"HeadDim", kCodec, DECODER "/head_dim", "7", "head_dim is 7"},
        BadConfig{"Activation", kCodec, DECODER "/hidden_act", "\"gelu\"", "hidden_act is \"gelu\"", kUnsupported},
        BadConfig{"RopeScaling", kCodec, DECODER "/rope_scaling", R"({"rope_type": "llama3"})",
                  "rope_type is \"llama3\"", kUnsupported}),
    testing::CaseName());

INSTANTIATE_TEST_SUITE_P(
    Generation, BadConfigTest,
    ::testing::Values(
        BadConfig{"DoSample", kGeneration, "/do_sample", "1",
                  "generation_config.json: do_sample is 1, expected true or false"},
        BadConfig{"Temperature", kGeneration, "/temperature", "0", "temperature is 0, expected a number above 0"},
        BadConfig{"TopK", kGeneration, "/top_k", "-1", "top_k is -1"},
        BadConfig{"TopP", kGeneration, "/top_p", "1.5", "top_p is 1.5"},
        BadConfig{"Penalty", kGeneration, "/repetition_penalty", "-1", "repetition_penalty is -1"},
        BadConfig{"SubtalkerDoSample", kGeneration, "/subtalker_dosample", "\"yes\"", "subtalker_dosample is \"yes\""},
        BadConfig{"SubtalkerTemperature", kGeneration, "/subtalker_temperature", "1e99",
                  "subtalker_temperature is 1e+99"},
        BadConfig{"SubtalkerTopK", kGeneration, "/subtalker_top_k", "2147483648", "subtalker_top_k is 2147483648"},
        BadConfig{"SubtalkerTopP", kGeneration, "/subtalker_top_p", "0", "subtalker_top_p is 0"},
        BadConfig{"TooFewTokens", kGeneration, "/max_new_tokens", "1",
                  "max_new_tokens is 1, expected an integer from 2"}),
    testing::CaseName());

TEST(ConfigTest, BrokenJsonNamesTheFile) {
  const Documents d("tiny-base-0b6");
  const std::string model = d.model.dump();
  const std::string codec = d.codec.dump();
  EXPECT_THAT(ParseModelConfig("/m", "", "", codec).status().message(), HasSubstr("/m/config.json: is not valid JSON"));
  EXPECT_THAT(ParseModelConfig("/m", "[]", "", codec).status().message(),
              HasSubstr("the document is [], expected an object"));
  EXPECT_THAT(ParseModelConfig("/m", "{\"a\":1,\"a\":2}", "", codec).status().message(),
              HasSubstr("the key 'a' twice"));
  EXPECT_THAT(ParseModelConfig("/m", model, "{", codec).status().message(), HasSubstr("/m/generation_config.json"));
  EXPECT_THAT(ParseModelConfig("/m", model, "3", codec).status().message(), HasSubstr("the document is 3"));
  EXPECT_THAT(ParseModelConfig("/m", model, "", "nope").status().message(),
              HasSubstr("/m/speech_tokenizer/config.json"));
  EXPECT_EQ(ParseModelConfig("/m", model, "", "").status().code(), StatusCode::kNotFound);
}

TEST(ModelTypeTest, Names) {
  EXPECT_EQ(ModelTypeName(ModelType::kBase), "base");
  EXPECT_EQ(ModelTypeName(ModelType::kCustomVoice), "custom_voice");
  EXPECT_EQ(ModelTypeName(ModelType::kVoiceDesign), "voice_design");
}

}  // namespace
}  // namespace qtts
