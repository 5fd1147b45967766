// SPDX-License-Identifier: LGPL-2.1-or-later
#include "checkpoint/description.h"

#include <algorithm>
#include <initializer_list>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "checkpoint/json_reader.h"

namespace qtts {
namespace {

using nlohmann::json;

constexpr int kMaxPartCharacters = 100000;
constexpr int kMaxOffsetMs = 1000;  // either way
constexpr int kMinLoudness = -70;   // LUFS: the gate of BS.1770
constexpr int kMaxLoudness = 10;

struct KnownHead {
  int hidden_size;
  AlignmentHead head;
};
// Heads of the released checkpoints, by the talker's width. The offset was published for the 1.7B alone.
constexpr int kReleasedLayers = 28;
constexpr int kReleasedHeads = 16;
constexpr KnownHead kReleased[] = {{2048, {3, 0, 20}}, {1024, {6, 5, 20}}};

// Refuses all keys but `known`.
Status CheckKeys(const json& object, const std::string& where, std::initializer_list<std::string_view> known) {
  if (!object.is_object()) return Status::Ok();
  std::string names;
  for (const std::string_view name : known) names.append(names.empty() ? "" : ", ").append(name);
  for (const auto& [key, value] : object.items()) {
    if (std::ranges::find(known, key) == known.end()) {
      return Status::CorruptModel(where + " has the unknown key " + Quoted(key) + ", expected " + names);
    }
  }
  return Status::Ok();
}

// Reads "prepare": true for all steps, or a list of them.
void ReadSteps(JsonFields* fields, TextSteps* steps) {
  const json* const value = fields->Find("prepare");
  if (value == nullptr) return;
  constexpr const char* kExpected = "true, false or a list of \"characters\", \"symbols\" and \"capitals\"";
  if (value->is_boolean()) {
    steps->characters = steps->symbols = steps->capitals = value->get<bool>();
    return;
  }
  if (!value->is_array()) return fields->Refuse("prepare", kExpected);
  for (const json& step : *value) {
    if (step == "characters") {
      steps->characters = true;
    } else if (step == "symbols") {
      steps->symbols = true;
    } else if (step == "capitals") {
      steps->capitals = true;
    } else {
      return fields->Refuse("prepare", kExpected);
    }
  }
}

// Reads "alignment": an object, or false for none.
std::optional<AlignmentHead> ReadAlignment(JsonFields* fields, const std::string& file, const TransformerConfig& talker,
                                           Status* status) {
  const json* const value = fields->Find("alignment");
  if (value == nullptr) return KnownAlignmentHead(talker);
  if (value->is_boolean() && !value->get<bool>()) return std::nullopt;
  if (!value->is_object()) {
    fields->Refuse("alignment", "false or an object with layer, head and offset_ms");
    return std::nullopt;
  }
  if (Status keys = CheckKeys(*value, file + ": alignment", {"layer", "head", "offset_ms"}); !keys.ok()) {
    if (status->ok()) *status = std::move(keys);
    return std::nullopt;
  }
  JsonFields written = fields->Object("alignment");
  AlignmentHead head;
  head.layer = written.Int("layer", 0, std::max(talker.num_layers - 1, 0));
  head.head = written.Int("head", 0, std::max(talker.num_heads - 1, 0));
  head.offset_ms = written.Int("offset_ms", -kMaxOffsetMs, kMaxOffsetMs, 0);
  return head;
}

// Reads "loudness": LUFS by speaker.
void ReadLoudness(JsonFields* fields, const TalkerConfig& talker, std::map<std::string, double>* loudness) {
  const json* const value = fields->Find("loudness");
  if (value == nullptr) return;
  const std::string expected = "an object with numbers of LUFS from " + std::to_string(kMinLoudness) + " to " +
                               std::to_string(kMaxLoudness) + " for speakers of talker_config.spk_id of config.json";
  if (!value->is_object()) return fields->Refuse("loudness", expected);
  for (const auto& [name, number] : value->items()) {
    const std::string speaker = LowerCaseName(name);
    const bool valid = number.is_number() && number.get<double>() >= kMinLoudness &&
                       number.get<double>() <= kMaxLoudness && talker.speakers.count(speaker) != 0;
    if (!valid) return fields->Refuse("loudness", expected);
    (*loudness)[speaker] = number.get<double>();
  }
}

}  // namespace

std::optional<AlignmentHead> KnownAlignmentHead(const TransformerConfig& talker) {
  if (talker.num_layers != kReleasedLayers || talker.num_heads != kReleasedHeads) return std::nullopt;
  for (const KnownHead& known : kReleased) {
    if (known.hidden_size == talker.hidden_size) return known.head;
  }
  return std::nullopt;
}

Result<ModelDescription> ParseDescription(const std::string& folder, std::string_view text,
                                          const TalkerConfig& talker) {
  const std::string file = folder + "/qttssrc.json";
  QTTS_ASSIGN_OR_RETURN(const json document, ParseJson(text, file));
  Status status;
  JsonFields fields(document, file, "", &status);
  QTTS_RETURN_IF_ERROR(
      CheckKeys(document, file + ": the document", {"default_speaker", "text", "alignment", "loudness"}));
  ModelDescription description;
  description.default_speaker = LowerCaseName(fields.String("default_speaker", ""));
  if (!description.default_speaker.empty() && talker.speakers.count(description.default_speaker) == 0) {
    fields.Refuse("default_speaker", "one of talker_config.spk_id of config.json");
  }
  JsonFields written = fields.Object("text", /*optional=*/true);
  if (const json* const object = fields.Find("text")) {
    QTTS_RETURN_IF_ERROR(CheckKeys(*object, file + ": text", {"part_characters", "prepare", "normalize"}));
  }
  description.text.part_characters = written.Int("part_characters", 0, kMaxPartCharacters, 0);
  ReadSteps(&written, &description.text.steps);
  const std::string normalize = written.String("normalize", "none");
  if (normalize != "none" && normalize != "spoken") written.Refuse("normalize", "\"none\" or \"spoken\"");
  description.text.steps.numbers = normalize == "spoken";
  description.alignment = ReadAlignment(&fields, file, talker.transformer, &status);
  ReadLoudness(&fields, talker, &description.loudness);
  QTTS_RETURN_IF_ERROR(status);
  return description;
}

}  // namespace qtts
