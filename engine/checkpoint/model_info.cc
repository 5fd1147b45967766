// SPDX-License-Identifier: LGPL-2.1-or-later
#include "qtts/model_info.h"

#include <glib.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <memory>

#include "base/ensure_memory.h"
#include "checkpoint/model_kind.h"
#include "qtts/language.h"

namespace qtts {
namespace {

constexpr ModelKind kKinds[] = {
    {ModelType::kBase, "base", "Qwen3-TTS-12Hz-0.6B-Base or Qwen3-TTS-12Hz-1.7B-Base", /*has_speakers=*/false,
     /*clones=*/true, /*pins=*/false, /*streams_by_default=*/true, TakesInstruct::kNone},
    {ModelType::kCustomVoice, "custom_voice", "Qwen3-TTS-12Hz-0.6B-CustomVoice or Qwen3-TTS-12Hz-1.7B-CustomVoice",
     /*has_speakers=*/true, /*clones=*/false, /*pins=*/false, /*streams_by_default=*/false,
     TakesInstruct::kAllButSmall},
    {ModelType::kVoiceDesign, "voice_design", "Qwen3-TTS-12Hz-1.7B-VoiceDesign", /*has_speakers=*/false,
     /*clones=*/false, /*pins=*/true, /*streams_by_default=*/false, TakesInstruct::kAll},
};

constexpr bool AreInOrder() {
  for (size_t i = 0; i < std::size(kKinds); ++i) {
    if (kKinds[i].type != static_cast<ModelType>(i)) return false;
  }
  return true;
}
static_assert(AreInOrder(), "KindOf() takes a type as an index");

std::string MakeValidUtf8(const std::string& text) {
  EnsureMemory(4 * text.size() + kSmallCallBytes);  // U+FFFD has three bytes
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

std::span<const ModelKind> ModelKinds() { return kKinds; }

const ModelKind& KindOf(ModelType type) { return kKinds[static_cast<size_t>(type)]; }

std::string_view ModelTypeName(ModelType type) { return KindOf(type).name; }

std::string_view ReleasedCheckpoints(ModelType type) { return KindOf(type).released; }

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
  const std::string valid = MakeValidUtf8(name);
  EnsureMemory(4 * valid.size() + kSmallCallBytes);
  const std::unique_ptr<gchar, decltype(&g_free)> lower(g_utf8_strdown(valid.c_str(), -1), g_free);
  return lower.get();
}

VoiceKind VoiceKindOf(const ClonedVoice* voice) {
  if (voice == nullptr) return VoiceKind::kNone;
  return voice->designed() ? VoiceKind::kDesigned : VoiceKind::kCloned;
}

Status CheckVoiceChoice(ModelType type, const std::vector<std::string>& speakers, const std::string& speaker,
                        VoiceKind voice) {
  const ModelKind& kind = KindOf(type);
  if (!speaker.empty()) {
    const std::string named = "speaker \"" + MakeValidUtf8(speaker) + "\"";
    if (!kind.has_speakers) {
      return Status::InvalidArgument(NeedsCheckpoint("preset " + named, ModelType::kCustomVoice, type));
    }
    if (!Contains(speakers, LowerCaseName(speaker))) {
      return Status::InvalidArgument("unknown " + named +
                                     "; this model has: " + (speakers.empty() ? "none" : Join(speakers)));
    }
  }
  const bool usable = (voice != VoiceKind::kDesigned && kind.clones) || (voice != VoiceKind::kCloned && kind.pins);
  if (voice == VoiceKind::kDesigned && !usable) {
    return Status::InvalidArgument(NeedsCheckpoint("a designed voice", ModelType::kVoiceDesign, type));
  }
  if (voice != VoiceKind::kNone && !usable) {
    return Status::InvalidArgument(NeedsCheckpoint("a cloned voice", ModelType::kBase, type));
  }
  if (voice == VoiceKind::kNone && kind.clones) {
    return Status::InvalidArgument(
        "a " + std::string(kind.name) +
        " checkpoint speaks with a cloned voice only, and none is given: give a recording or a voice file, or use " +
        std::string(ReleasedCheckpoints(ModelType::kCustomVoice)) + ", which have preset speakers");
  }
  return Status::Ok();
}

Status CheckLanguage(const std::vector<std::string>& languages, const std::string& language) {
  const std::string name = LowerCaseName(language);
  const std::string_view official = ResolveLanguage(name).name;
  if (Contains(languages, name) || official == "auto" || Contains(languages, official)) return Status::Ok();
  const auto tagged =
      std::ranges::find_if(languages, [](const std::string& own) { return !ResolveLanguage(own).tag.empty(); });
  const std::string tag = tagged == languages.end() ? "" : std::string(ResolveLanguage(*tagged).tag);
  return Status::InvalidArgument("unknown language \"" + MakeValidUtf8(language) + "\"; this model has: auto" +
                                 (languages.empty() ? "" : ", ") + Join(languages) +
                                 (tag.empty() ? "" : "; or give a language tag, such as \"" + tag + "\""));
}

}  // namespace qtts
