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

}  // namespace qtts
