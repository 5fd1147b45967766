// SPDX-License-Identifier: LGPL-2.1-or-later
#include "checkpoint/checkpoint.h"

#include <glib.h>

#include <algorithm>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <system_error>
#include <utility>

#include "base/ensure_memory.h"
#include "base/mapped_file.h"
#include "checkpoint/description.h"
#include "checkpoint/model_kind.h"

namespace qtts {
namespace {

constexpr std::string_view kDialectSuffix = "_dialect";
constexpr const char* kWanted = "; give the folder of a Qwen3-TTS-12Hz checkpoint as published";

// Returns the error for a folder without config.json. Looks at the folder's content to say what it is.
Status NotAModel(const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (!fs::exists(folder, error)) return Status::NotFound(folder + ": no such folder" + kWanted);
  if (!fs::is_directory(folder, error)) return Status::NotFound(folder + ": is not a folder" + kWanted);
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name.ends_with(".gguf")) {
      return Status::Unsupported(folder + ": has no config.json, but GGUF files, which cannot be read" + kWanted);
    }
    if (name == "snapshots") {
      return Status::NotFound(folder +
                              ": is a download cache; give the folder below its snapshots/ that has config.json");
    }
  }
  return Status::NotFound(folder + "/config.json: no such file" + kWanted);
}

// Returns true for dialects, which only a speaker selects (spec 12).
bool IsDialect(const std::string& language, const std::map<std::string, std::string>& dialects) {
  return language.ends_with(kDialectSuffix) ||
         std::any_of(dialects.begin(), dialects.end(), [&](const auto& entry) { return entry.second == language; });
}

}  // namespace

Result<std::shared_ptr<const Checkpoint>> Checkpoint::Open(const std::string& folder) {
  const Result<std::string> config_json = ReadSmallFile(folder + "/config.json");
  if (!config_json.ok()) {
    return config_json.status().code() == StatusCode::kNotFound ? NotAModel(folder) : config_json.status();
  }
  const Result<std::string> generation_json = ReadSmallFile(folder + "/generation_config.json");
  if (!generation_json.ok() && generation_json.status().code() != StatusCode::kNotFound) {
    return generation_json.status();
  }
  // A missing codec config is reported after config.json was checked: a folder of another kind gets an error that says
  // so.
  const std::string codec_folder = folder + "/speech_tokenizer";
  const Result<std::string> codec_json = ReadSmallFile(codec_folder + "/config.json");
  if (!codec_json.ok() && codec_json.status().code() != StatusCode::kNotFound) return codec_json.status();
  std::shared_ptr<Checkpoint> checkpoint(new Checkpoint());
  checkpoint->folder_ = folder;
  QTTS_ASSIGN_OR_RETURN(checkpoint->config_,
                        ParseModelConfig(folder, *config_json, generation_json.ok() ? *generation_json : std::string(),
                                         codec_json.ok() ? *codec_json : std::string()));
  const Result<std::string> description_json = ReadSmallFile(folder + "/qttssrc.json");
  if (description_json.ok()) {
    QTTS_ASSIGN_OR_RETURN(checkpoint->config_.description,
                          ParseDescription(folder, *description_json, checkpoint->config_.talker));
  } else if (description_json.status().code() != StatusCode::kNotFound) {
    return description_json.status();
  } else {
    checkpoint->config_.description.alignment = KnownAlignmentHead(checkpoint->config_.talker.transformer);
  }

  QTTS_ASSIGN_OR_RETURN(checkpoint->model_store_, TensorStore::Open(folder, "model"));
  const ModelConfig& config = checkpoint->config_;
  QTTS_ASSIGN_OR_RETURN(checkpoint->talker_, BindTalker(*checkpoint->model_store_, config.talker));
  QTTS_ASSIGN_OR_RETURN(checkpoint->predictor_,
                        BindPredictor(*checkpoint->model_store_, config.talker, config.predictor));
  QTTS_ASSIGN_OR_RETURN(checkpoint->codec_store_, TensorStore::Open(codec_folder, "model"));
  QTTS_ASSIGN_OR_RETURN(checkpoint->codec_, BindCodec(*checkpoint->codec_store_, config.codec));
  return std::shared_ptr<const Checkpoint>(std::move(checkpoint));
}

Status Checkpoint::CheckFiles() const {
  QTTS_RETURN_IF_ERROR(model_store_->Check());
  return codec_store_->Check();
}

std::string Checkpoint::Identity() const { return model_store_->Identity() + codec_store_->Identity() + Fingerprint(); }

std::string Checkpoint::NameOf(const void* data) const {
  if (const std::string_view name = model_store_->NameOf(data); !name.empty()) return "model/" + std::string(name);
  if (const std::string_view name = codec_store_->NameOf(data); !name.empty()) return "codec/" + std::string(name);
  return {};
}

void Checkpoint::Release(std::span<const std::byte> weights) const {
  model_store_->Release(weights);
  codec_store_->Release(weights);
}

Result<Checkpoint::VoiceEncoder> Checkpoint::OpenVoiceEncoder() const {
  if (!KindOf(config_.type).clones) {
    return Status::InvalidArgument(folder_ + ": " + NeedsCheckpoint("cloning a voice", ModelType::kBase, config_.type));
  }
  VoiceEncoder encoder;
  QTTS_ASSIGN_OR_RETURN(const std::string config_json, ReadSmallFile(folder_ + "/config.json"));
  QTTS_ASSIGN_OR_RETURN(const std::string codec_json, ReadSmallFile(folder_ + "/speech_tokenizer/config.json"));
  QTTS_ASSIGN_OR_RETURN(encoder.config, ParseVoiceEncoderConfig(folder_, config_, config_json, codec_json));
  QTTS_ASSIGN_OR_RETURN(encoder.weights, BindVoiceEncoder(*model_store_, *codec_store_, encoder.config));
  return encoder;
}

std::string Checkpoint::Fingerprint() const {
  std::vector<TensorView> tensors = {talker_.transformer.norm, codec_.codebooks.front().cluster_usage,
                                     codec_.last_conv.weight};
  const int64_t width = config_.speaker_encoder_dim;
  const Result<TensorView> speaker = model_store_->Get("speaker_encoder.fc.bias", std::span(&width, 1));
  if (speaker.ok()) tensors.push_back(*speaker);
  EnsureMemory(kSmallCallBytes);
  const std::unique_ptr<GChecksum, decltype(&g_checksum_free)> sum(g_checksum_new(G_CHECKSUM_SHA256), g_checksum_free);
  for (const TensorView& tensor : tensors) {
    const std::string_view dtype = DTypeName(tensor.dtype);
    g_checksum_update(sum.get(), reinterpret_cast<const guchar*>(dtype.data()), static_cast<gssize>(dtype.size()));
    g_checksum_update(sum.get(), static_cast<const guchar*>(tensor.data), static_cast<gssize>(tensor.bytes()));
  }
  return g_checksum_get_string(sum.get());
}

ModelInfo Checkpoint::Info() const {
  ModelInfo info;
  info.path = folder_;
  info.type = config_.type;
  info.size = config_.size;
  if (KindOf(config_.type).has_speakers) {
    for (const auto& [name, id] : config_.talker.speakers) info.speakers.push_back(name);
  }
  for (const auto& [name, id] : config_.talker.languages) {
    if (!IsDialect(name, config_.talker.dialects)) info.languages.push_back(name);
  }
  info.supports_instruct = config_.supports_instruct();
  info.fingerprint = Fingerprint();
  info.dtype = DTypeName(talker_.transformer.layers.front().q.weight.dtype);
  info.sample_rate = config_.codec.sample_rate;
  info.samples_per_frame = config_.codec.samples_per_frame;
  info.code_groups = config_.talker.num_code_groups;
  info.talker_parameters = talker_.totals.parameters + predictor_.totals.parameters;
  info.codec_parameters = codec_.totals.parameters;
  info.weight_bytes = talker_.totals.bytes + predictor_.totals.bytes + codec_.totals.bytes;
  info.defaults = config_.defaults;
  info.description = config_.description;
  if (info.description.text.part_characters > 0) {
    info.part_characters = static_cast<size_t>(info.description.text.part_characters);
  }
  return info;
}

}  // namespace qtts
