// SPDX-License-Identifier: LGPL-2.1-or-later
#include "qtts/model_info.h"

namespace qtts {

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

}  // namespace qtts
