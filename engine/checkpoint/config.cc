// SPDX-License-Identifier: LGPL-2.1-or-later
#include "checkpoint/config.h"

#include <algorithm>
#include <climits>
#include <nlohmann/json.hpp>

#include "checkpoint/json_reader.h"
#include "checkpoint/model_kind.h"
#include "qtts/sampling_numbers.h"

// A missing key gets the default of the official classes, whose writer omits defaults. Only keys without a default are
// required.
namespace qtts {
namespace {

using nlohmann::json;

// Bounds far above any real model. With them, products of two or three sizes fit 64 bits, and a hostile config cannot
// cause absurdly long loops.
constexpr int kMaxWidth = 1 << 16;
constexpr int kMaxHeads = 1 << 10;
constexpr int kMaxHeadDim = 1 << 10;
constexpr int kMaxLayers = 1 << 10;
constexpr int kMaxRows = 1 << 24;
constexpr int kMaxGroups = 64;
constexpr int kMaxStages = 8;
constexpr int kMaxRate = 1 << 10;
constexpr int kMaxFrameSamples = 1 << 20;
constexpr int kControlRows = 1024;  // the talker's last rows, never sampled (spec 6)
constexpr int kMinSampleRate = 8000;
constexpr int kMaxSampleRate = 192000;

struct TransformerDefaults {
  int hidden_size;
  int intermediate_size;
  int num_layers;
  int num_heads;
  int num_kv_heads;
  int head_dim;  // 0: hidden_size / num_attention_heads
  int max_positions;
  float rms_norm_eps;
};
constexpr TransformerDefaults kTalkerDefaults = {1024, 2048, 20, 16, 2, 0, 32768, 1e-6F};
constexpr TransformerDefaults kPredictorDefaults = {1024, 3072, 5, 16, 8, 128, 32768, 1e-6F};
constexpr TransformerDefaults kCodecDefaults = {1024, 3072, 8, 16, 16, 0, 8000, 1e-5F};

// Converts ASCII only, hence independent of the locale.
std::string Lower(std::string text) {
  for (char& c : text) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return text;
}

std::string UpTo(int limit) { return "at most " + std::to_string(limit); }

// Refuses settings that would change rotary embedding or attention from spec 4 and 7.3.
void RefuseVariants(JsonFields* fields) {
  const std::string activation = fields->String("hidden_act", "silu");
  if (activation != "silu" && activation != "swish") fields->Refuse("hidden_act", "\"silu\"", StatusCode::kUnsupported);
  if (fields->Positive("partial_rotary_factor", 1, 1) != 1) {
    fields->Refuse("partial_rotary_factor", "1", StatusCode::kUnsupported);
  }
  JsonFields scaling = fields->Object("rope_scaling", /*optional=*/true);
  for (const char* key : {"rope_type", "type"}) {
    if (scaling.String(key, "default") != "default") scaling.Refuse(key, "\"default\"", StatusCode::kUnsupported);
  }
}

// Refuses it for talker and predictor, which have separate tensors for embeddings and heads.
void RefuseTying(JsonFields* fields) {
  if (fields->Bool("tie_word_embeddings", false)) {
    fields->Refuse("tie_word_embeddings", "false", StatusCode::kUnsupported);
  }
}

TransformerConfig ReadTransformer(JsonFields* fields, const TransformerDefaults& defaults) {
  TransformerConfig t;
  t.hidden_size = fields->Int("hidden_size", 1, kMaxWidth, defaults.hidden_size);
  t.intermediate_size = fields->Int("intermediate_size", 1, 16 * kMaxWidth, defaults.intermediate_size);
  t.num_layers = fields->Int("num_hidden_layers", 1, kMaxLayers, defaults.num_layers);
  t.num_heads = fields->Int("num_attention_heads", 1, kMaxHeads, defaults.num_heads);
  t.num_kv_heads = fields->Int("num_key_value_heads", 1, kMaxHeads, defaults.num_kv_heads);
  t.head_dim = fields->Int("head_dim", 2, kMaxHeadDim,
                           defaults.head_dim > 0 ? defaults.head_dim : std::max(t.hidden_size / t.num_heads, 1));
  t.max_positions = fields->Int("max_position_embeddings", 1, INT_MAX, defaults.max_positions);
  t.rms_norm_eps = fields->Positive("rms_norm_eps", 1, defaults.rms_norm_eps);
  t.rope_theta = fields->Positive("rope_theta", 1e12F, 10000);
  t.attention_bias = fields->Bool("attention_bias", false);
  if (t.head_dim % 2 != 0) fields->Refuse("head_dim", "an even number");
  if (t.num_heads % t.num_kv_heads != 0) {
    fields->Refuse("num_key_value_heads", "a divisor of num_attention_heads, which is " + std::to_string(t.num_heads));
  }
  RefuseVariants(fields);
  return t;
}

// Reads a map of names to rows of the talker's codec table.
std::map<std::string, int> ReadIds(JsonFields* parent, const char* key, int rows) {
  JsonFields fields = parent->Object(key, /*optional=*/true);
  std::map<std::string, int> ids;
  const json* object = parent->Find(key);
  if (object == nullptr || !object->is_object()) return ids;
  for (const auto& [name, value] : object->items()) {
    if (!ids.emplace(Lower(name), fields.Int(name.c_str(), 0, rows - 1)).second) {
      fields.Refuse(name, "names that differ in more than case");
    }
  }
  return ids;
}

// Reads the map of speakers to dialects. Fine-tuned checkpoints keep entries of removed speakers and dialects; these
// are ignored.
std::map<std::string, std::string> ReadDialects(JsonFields* parent, const TalkerConfig& talker) {
  JsonFields fields = parent->Object("spk_is_dialect", /*optional=*/true);
  std::map<std::string, std::string> dialects;
  const json* object = parent->Find("spk_is_dialect");
  if (object == nullptr || !object->is_object()) return dialects;
  for (const auto& [name, value] : object->items()) {
    if (value.is_null() || (value.is_boolean() && !value.get<bool>())) continue;
    if (!value.is_string()) {
      fields.Refuse(name, "false or the name of a dialect");
      break;
    }
    const std::string speaker = Lower(name);
    const std::string dialect = Lower(value.get<std::string>());
    if (talker.speakers.count(speaker) != 0 && talker.languages.count(dialect) != 0) dialects[speaker] = dialect;
  }
  return dialects;
}

PredictorConfig ReadPredictor(JsonFields* parent, int num_code_groups) {
  JsonFields fields = parent->Object("code_predictor_config", /*optional=*/true);
  PredictorConfig predictor;
  predictor.transformer = ReadTransformer(&fields, kPredictorDefaults);
  RefuseTying(&fields);
  predictor.vocab_size = fields.Int("vocab_size", 1, kMaxRows, 2048);
  if (fields.Int("num_code_groups", 2, kMaxGroups, 32) != num_code_groups) {
    fields.Refuse("num_code_groups", std::to_string(num_code_groups) + ", as in talker_config");
  }
  if (const json* types = fields.Find("layer_types")) {
    const bool all_full = types->is_array() && std::all_of(types->begin(), types->end(),
                                                           [](const json& t) { return t == "full_attention"; });
    if (!all_full) fields.Refuse("layer_types", "\"full_attention\" for every layer", StatusCode::kUnsupported);
  } else if (fields.Bool("use_sliding_window", false) &&
             fields.Int("max_window_layers", 0, INT_MAX, 28) < predictor.transformer.num_layers) {
    fields.Refuse("use_sliding_window", "false", StatusCode::kUnsupported);
  }
  return predictor;
}

TalkerConfig ReadTalker(JsonFields* fields) {
  TalkerConfig talker;
  talker.transformer = ReadTransformer(fields, kTalkerDefaults);
  RefuseTying(fields);
  if (fields->Bool("use_sliding_window", false)) {
    talker.transformer.sliding_window = fields->Int("sliding_window", 1, INT_MAX, 4096);
  }
  talker.vocab_size = fields->Int("vocab_size", kControlRows + 1, kMaxRows, 3072);
  talker.text_vocab_size = fields->Int("text_vocab_size", 1, kMaxRows);
  talker.text_hidden_size = fields->Int("text_hidden_size", 1, kMaxWidth, 2048);
  talker.num_code_groups = fields->Int("num_code_groups", 2, kMaxGroups, 32);
  const int last = talker.vocab_size - 1;
  talker.codec_pad_id = fields->Int("codec_pad_id", 0, last, 4196);
  talker.codec_bos_id = fields->Int("codec_bos_id", 0, last, 4197);
  talker.codec_eos_id = fields->Int("codec_eos_token_id", 0, last, 4198);
  talker.codec_think_id = fields->Int("codec_think_id", 0, last, 4202);
  talker.codec_nothink_id = fields->Int("codec_nothink_id", 0, last, 4203);
  talker.codec_think_bos_id = fields->Int("codec_think_bos_id", 0, last, 4204);
  talker.codec_think_eos_id = fields->Int("codec_think_eos_id", 0, last, 4205);
  talker.languages = ReadIds(fields, "codec_language_id", talker.vocab_size);
  talker.speakers = ReadIds(fields, "spk_id", talker.vocab_size);
  talker.dialects = ReadDialects(fields, talker);
  return talker;
}

// Reads an array of positive integers and multiplies `product` by each.
std::vector<int> ReadRates(JsonFields* fields, const char* key, std::vector<int> fallback, int64_t* product) {
  std::vector<int> rates = std::move(fallback);
  if (const json* value = fields->Find(key)) {
    rates.clear();
    const bool good =
        value->is_array() && !value->empty() && value->size() <= kMaxStages &&
        std::all_of(value->begin(), value->end(), [](const json& rate) {
          return rate.is_number_unsigned() && rate.get<uint64_t>() >= 1 && rate.get<uint64_t>() <= kMaxRate;
        });
    if (!good) {
      fields->Refuse(key, "1 to " + std::to_string(kMaxStages) + " integers from 1 to " + std::to_string(kMaxRate));
      return rates;
    }
    rates = value->get<std::vector<int>>();
  }
  // Saturates above the largest accepted frame length.
  for (const int rate : rates) *product = std::min<int64_t>(*product * rate, int64_t{kMaxFrameSamples} * kMaxRate);
  return rates;
}

CodecConfig ReadCodec(JsonFields* document) {
  const std::string type = document->String("model_type", "");
  if (type != "qwen3_tts_tokenizer_12hz") {
    document->Refuse("model_type", "\"qwen3_tts_tokenizer_12hz\"", StatusCode::kUnsupported);
  }
  JsonFields fields = document->Object("decoder_config", /*optional=*/true);
  CodecConfig codec;
  codec.transformer = ReadTransformer(&fields, kCodecDefaults);
  codec.transformer.qk_norm = false;
  codec.transformer.sliding_window = fields.Int("sliding_window", 1, INT_MAX, 72);
  codec.codebook_size = fields.Int("codebook_size", 1, kMaxRows, 2048);
  codec.codebook_dim = fields.Int("codebook_dim", 2, kMaxWidth);
  if (codec.codebook_dim % 2 != 0) fields.Refuse("codebook_dim", "an even number");
  codec.latent_dim = fields.Int("latent_dim", 1, kMaxWidth, 1024);
  codec.decoder_dim = fields.Int("decoder_dim", 1, kMaxWidth, 1536);
  codec.num_quantizers = fields.Int("num_quantizers", 2, kMaxGroups, 16);
  // The official decoder always has one, whatever the config says.
  codec.num_semantic_quantizers = fields.Int("num_semantic_quantizers", 0, kMaxGroups, 1);
  if (codec.num_semantic_quantizers != 1) {
    fields.Refuse("num_semantic_quantizers", "1", StatusCode::kUnsupported);
  }
  int64_t samples = 1;
  codec.upsample_rates = ReadRates(&fields, "upsample_rates", {8, 5, 4, 3}, &samples);
  codec.upsampling_ratios = ReadRates(&fields, "upsampling_ratios", {2, 2}, &samples);
  if (codec.decoder_dim >> codec.upsample_rates.size() == 0) {
    fields.Refuse("decoder_dim", "enough to be halved by each of upsample_rates");
  }
  codec.sample_rate = document->Int("output_sample_rate", kMinSampleRate, kMaxSampleRate, 24000);
  codec.samples_per_frame = document->Int("decode_upsample_rate", 1, kMaxFrameSamples, 1920);
  if (samples != codec.samples_per_frame) {
    document->Refuse("decode_upsample_rate",
                     std::to_string(samples) + ", the product of upsample_rates and upsampling_ratios");
  }
  return codec;
}

// Returns "<file>: …": error for two files that contradict each other.
Status ConfigsDisagree(const std::string& file, const std::string& key, int found, const std::string& expected) {
  return Status::CorruptModel(file + ": " + key + " is " + std::to_string(found) + ", expected " + expected);
}

// Checks that every code that talker and predictor can sample has a codeword.
Status CheckTogether(const ModelConfig& config, const std::string& model_file) {
  const CodecConfig& codec = config.codec;
  if (config.talker.num_code_groups != codec.num_quantizers) {
    return ConfigsDisagree(model_file, "talker_config.num_code_groups", config.talker.num_code_groups,
                           std::to_string(codec.num_quantizers) + ", num_quantizers of speech_tokenizer/config.json");
  }
  const std::string codewords = UpTo(codec.codebook_size) + ", codebook_size of speech_tokenizer/config.json";
  if (config.talker.vocab_size - kControlRows > codec.codebook_size) {
    return ConfigsDisagree(model_file,
                           "talker_config.vocab_size less its " + std::to_string(kControlRows) + " control rows",
                           config.talker.vocab_size - kControlRows, codewords);
  }
  if (config.predictor.vocab_size > codec.codebook_size) {
    return ConfigsDisagree(model_file, "talker_config.code_predictor_config.vocab_size", config.predictor.vocab_size,
                           codewords);
  }
  return Status::Ok();
}

GenerationSettings ReadGeneration(JsonFields* fields) {
  GenerationSettings settings;
  settings.talker.do_sample = fields->Bool("do_sample", settings.talker.do_sample);
  settings.predictor.do_sample = fields->Bool("subtalker_dosample", settings.predictor.do_sample);
  for (const SamplingNumber& number : kSamplingNumbers) {
    const std::string key = number.key();
    if (fields->Find(key.c_str()) == nullptr) continue;
    const double value =
        number.whole() ? fields->Int(key.c_str(), static_cast<int>(number.minimum), static_cast<int>(number.maximum))
                       : fields->Positive(key.c_str(), static_cast<float>(number.maximum));
    if (!number.Allows(value)) fields->Refuse(key, number.Range());
    number.Set(value, &settings);
  }
  // 2048 is the official package's default for a missing key.
  settings.max_new_tokens = fields->Int("max_new_tokens", 2, INT_MAX, 2048);
  return settings;
}

// Checks the part of config.json above talker_config.
Status CheckKind(JsonFields* fields) {
  const std::string type = fields->String("model_type", "");
  if (type.starts_with("qwen3_tts_tokenizer")) {
    fields->Refuse("model_type", "\"qwen3_tts\": this folder is a codec alone, model-path needs a whole model folder",
                   StatusCode::kUnsupported);
  } else if (type != "qwen3_tts") {
    fields->Refuse("model_type", "\"qwen3_tts\": this is not a Qwen3-TTS checkpoint", StatusCode::kUnsupported);
  }
  if (fields->String("tokenizer_type", "qwen3_tts_tokenizer_12hz") != "qwen3_tts_tokenizer_12hz") {
    fields->Refuse("tokenizer_type", "\"qwen3_tts_tokenizer_12hz\": other codecs cannot be spoken with",
                   StatusCode::kUnsupported);
  }
  return fields->status();
}

ModelType ReadType(JsonFields* fields) {
  const std::string name = fields->String("tts_model_type");
  std::string names;
  const std::span<const ModelKind> kinds = ModelKinds();
  for (const ModelKind& kind : kinds) {
    if (kind.name == name) return kind.type;
    names += (&kind == &kinds.front()  ? "\""
              : &kind == &kinds.back() ? " or \""
                                       : ", \"") +
             std::string(kind.name) + "\"";
  }
  fields->Refuse("tts_model_type", names, StatusCode::kUnsupported);
  return ModelType::kBase;
}

}  // namespace

bool ModelConfig::supports_instruct() const {
  const TakesInstruct takes = KindOf(type).instruct;
  // The official test is whether "0b6" contains the size.
  const bool small = std::string_view("0b6").find(size) != std::string_view::npos;
  return takes == TakesInstruct::kAll || (takes == TakesInstruct::kAllButSmall && !small);
}

Result<ModelConfig> ParseModelConfig(const std::string& folder, std::string_view config_json,
                                     std::string_view generation_json, std::string_view codec_json) {
  ModelConfig config;
  Status status;

  const std::string model_file = folder + "/config.json";
  QTTS_ASSIGN_OR_RETURN(const json model_document, ParseJson(config_json, model_file));
  JsonFields fields(model_document, model_file, "", &status);
  QTTS_RETURN_IF_ERROR(CheckKind(&fields));
  config.type = ReadType(&fields);
  config.size = fields.String("tts_model_size", "");
  JsonFields talker = fields.Object("talker_config");
  config.talker = ReadTalker(&talker);
  config.predictor = ReadPredictor(&talker, config.talker.num_code_groups);
  const int last = config.talker.text_vocab_size - 1;
  config.im_start_token_id = fields.Int("im_start_token_id", 0, last, 151644);
  config.im_end_token_id = fields.Int("im_end_token_id", 0, last, 151645);
  config.tts_pad_token_id = fields.Int("tts_pad_token_id", 0, last, 151671);
  config.tts_bos_token_id = fields.Int("tts_bos_token_id", 0, last, 151672);
  config.tts_eos_token_id = fields.Int("tts_eos_token_id", 0, last, 151673);
  if (KindOf(config.type).clones) {
    const int width = config.talker.transformer.hidden_size;
    JsonFields encoder = fields.Object("speaker_encoder_config", /*optional=*/true);
    // An x-vector is one row of the talker's input, so the widths must agree.
    config.speaker_encoder_dim = encoder.Int("enc_dim", 1, kMaxWidth, width);
    if (config.speaker_encoder_dim != width) {
      encoder.Refuse("enc_dim", std::to_string(width) + ", hidden_size of talker_config");
    }
  }
  QTTS_RETURN_IF_ERROR(status);

  const std::string codec_file = folder + "/speech_tokenizer/config.json";
  if (codec_json.empty()) {
    return Status::NotFound(codec_file + ": is missing or empty; download the whole model folder, with its codec");
  }
  QTTS_ASSIGN_OR_RETURN(const json codec_document, ParseJson(codec_json, codec_file));
  JsonFields codec(codec_document, codec_file, "", &status);
  config.codec = ReadCodec(&codec);
  QTTS_RETURN_IF_ERROR(status);
  QTTS_RETURN_IF_ERROR(CheckTogether(config, model_file));

  if (!generation_json.empty()) {
    const std::string generation_file = folder + "/generation_config.json";
    QTTS_ASSIGN_OR_RETURN(const json generation_document, ParseJson(generation_json, generation_file));
    JsonFields generation(generation_document, generation_file, "", &status);
    config.defaults = ReadGeneration(&generation);
    QTTS_RETURN_IF_ERROR(status);
  }
  return config;
}

}  // namespace qtts
