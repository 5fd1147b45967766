// SPDX-License-Identifier: LGPL-2.1-or-later
#include "qtts/model_info.h"

#include <glib.h>

#include <algorithm>
#include <memory>

#include "qtts/language.h"

namespace qtts {
namespace {

std::string MakeValidUtf8(const std::string& text) {
  const std::unique_ptr<gchar, decltype(&g_free)> valid(
      g_utf8_make_valid(text.data(), static_cast<gssize>(text.size())), g_free);
  return valid.get();
}

bool Contains(const std::vector<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string Join(const std::vector<std::string>& names) {
  std::string joined;
  for (const std::string& name : names) joined += (joined.empty() ? "" : ", ") + name;
  return joined;
}

}  // namespace

std::string_view ModelTypeName(ModelType type) {
  switch (type) {
    case ModelType::kBase:
      return "base";
    case ModelType::kCustomVoice:
      return "custom_voice";
    case ModelType::kVoiceDesign:
      return "voice_design";
  }
  return "";
}

std::string_view ReleasedCheckpoints(ModelType type) {
  switch (type) {
    case ModelType::kBase:
      return "Qwen3-TTS-12Hz-0.6B-Base or Qwen3-TTS-12Hz-1.7B-Base";
    case ModelType::kCustomVoice:
      return "Qwen3-TTS-12Hz-0.6B-CustomVoice or Qwen3-TTS-12Hz-1.7B-CustomVoice";
    case ModelType::kVoiceDesign:
      return "Qwen3-TTS-12Hz-1.7B-VoiceDesign";
  }
  return "";
}

std::string NeedsCheckpoint(std::string_view what, ModelType needed, ModelType found) {
  std::string text(what);
  text.append(" needs a ").append(ModelTypeName(needed)).append(" checkpoint, such as ");
  text.append(ReleasedCheckpoints(needed)).append("; this is a ").append(ModelTypeName(found)).append(" checkpoint");
  return text;
}

std::string LowerCaseName(const std::string& name) {
  if (std::all_of(name.begin(), name.end(), [](char c) { return g_ascii_isprint(c); })) {
    std::string lower(name);
    std::transform(lower.begin(), lower.end(), lower.begin(), g_ascii_tolower);
    return lower;
  }
  const std::unique_ptr<gchar, decltype(&g_free)> lower(g_utf8_strdown(MakeValidUtf8(name).c_str(), -1), g_free);
  return lower.get();
}

Status CheckVoiceChoice(ModelType type, const std::vector<std::string>& speakers, const std::string& speaker,
                        bool cloned) {
  if (!speaker.empty()) {
    const std::string named = "speaker \"" + MakeValidUtf8(speaker) + "\"";
    if (type != ModelType::kCustomVoice) {
      return Status::InvalidArgument(NeedsCheckpoint("preset " + named, ModelType::kCustomVoice, type));
    }
    if (!Contains(speakers, LowerCaseName(speaker))) {
      return Status::InvalidArgument("unknown " + named +
                                     "; this model has: " + (speakers.empty() ? "none" : Join(speakers)));
    }
  }
  if (cloned && type != ModelType::kBase) {
    return Status::InvalidArgument(NeedsCheckpoint("a cloned voice", ModelType::kBase, type));
  }
  if (!cloned && type == ModelType::kBase) {
    return Status::InvalidArgument(
        "a " + std::string(ModelTypeName(type)) +
        " checkpoint speaks with a cloned voice only, and none is given: give a recording or a voice file, or use " +
        std::string(ReleasedCheckpoints(ModelType::kCustomVoice)) + ", which have preset speakers");
  }
  return Status::Ok();
}

Status CheckLanguage(const std::vector<std::string>& languages, const std::string& language) {
  const std::string name = LowerCaseName(language);
  const std::string_view official = ResolveLanguage(name).name;
  if (Contains(languages, name) || official == "auto" || Contains(languages, official)) return Status::Ok();
  return Status::InvalidArgument("unknown language \"" + MakeValidUtf8(language) + "\"; this model has: auto" +
                                 (languages.empty() ? "" : ", ") + Join(languages) +
                                 ", and takes language tags such as \"de\" or \"pt-BR\"");
}

}  // namespace qtts
