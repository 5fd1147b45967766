// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_MODEL_INFO_H_
#define QTTS_MODEL_INFO_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "qtts/request.h"
#include "qtts/status.h"

namespace qtts {

// `tts_model_type` of config.json: which voices a checkpoint can speak with.
enum class ModelType { kBase, kCustomVoice, kVoiceDesign };

// "base", "custom_voice", "voice_design": the spelling of config.json.
std::string_view ModelTypeName(ModelType type);

// The released checkpoints of a type, for people: "Qwen3-TTS-12Hz-0.6B-Base or Qwen3-TTS-12Hz-1.7B-Base".
std::string_view ReleasedCheckpoints(ModelType type);

// "<what> needs a base checkpoint, such as …; this is a custom_voice checkpoint": names the one that
// can. No stop at the end.
std::string NeedsCheckpoint(std::string_view what, ModelType needed, ModelType found);

// The name of a speaker or a language as models have it: lower case, independent of the locale. Ill-formed UTF-8
// becomes U+FFFD.
std::string LowerCaseName(const std::string& name);

// Whether a model of this type that has `speakers` can speak with `speaker` (empty: none is asked for) and, if
// `cloned`, with a cloned voice. For an answer without the model's files; Engine::Start() gives the same.
// kInvalidArgument says which speakers, or which model, would do.
Status CheckVoiceChoice(ModelType type, const std::vector<std::string>& speakers, const std::string& speaker,
                        bool cloned);

// The same of a model that has `languages` and of Request::language.
Status CheckLanguage(const std::vector<std::string>& languages, const std::string& language);

// What a model folder holds, for people and for choosing a request. Plain values.
struct ModelInfo {
  std::string path;
  ModelType type = ModelType::kCustomVoice;
  std::string size;                    // `tts_model_size`, e.g. "0b6"
  std::vector<std::string> speakers;   // preset speakers, sorted; empty unless custom_voice
  std::vector<std::string> languages;  // names a caller may ask for besides "auto", sorted; no dialects
  bool supports_instruct = false;      // whether Request::instruct has an effect
  // Tells models apart whose cloned voices are not each other's; see ClonedVoice::model.
  std::string fingerprint;
  std::string dtype;              // of the talker's weights: "BF16", "F16" or "F32"
  int sample_rate = 24000;        // Hz
  int samples_per_frame = 1920;   // one frame is one buffer
  int code_groups = 16;           // codes per frame
  int64_t talker_parameters = 0;  // talker and code predictor, text table included
  int64_t codec_parameters = 0;   // codec decoder
  int64_t weight_bytes = 0;       // file bytes of the tensors synthesis uses
  GenerationSettings defaults;    // generation_config.json over the official defaults
  // Of Engine::Inspect(): what it has read that a load needs again, and finds as long as this is kept.
  std::shared_ptr<const void> read;
};

}  // namespace qtts

#endif  // QTTS_MODEL_INFO_H_
