// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_MODEL_INFO_H_
#define QTTS_MODEL_INFO_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "qtts/model_description.h"
#include "qtts/request.h"
#include "qtts/status.h"

namespace qtts {

// `tts_model_type` of config.json: the kind of voices that a checkpoint can speak with.
enum class ModelType { kBase, kCustomVoice, kVoiceDesign };

// Returns "base", "custom_voice", "voice_design": the spelling of config.json.
std::string_view ModelTypeName(ModelType type);

// Returns the released checkpoints of a type, for messages: "Qwen3-TTS-12Hz-0.6B-Base or Qwen3-TTS-12Hz-1.7B-Base".
std::string_view ReleasedCheckpoints(ModelType type);

// Returns the message "<what> needs a base checkpoint, such as …; this is a custom_voice checkpoint", without a full
// stop.
std::string NeedsCheckpoint(std::string_view what, ModelType needed, ModelType found);

// Returns the lower case of a speaker's or language's name, as models store it. Independent of the locale. Ill-formed
// UTF-8 becomes U+FFFD.
std::string LowerCaseName(const std::string& name);

// The voice of a request, as far as it is known.
enum class VoiceKind {
  kNone,      // no ClonedVoice
  kCloned,    // from a recording
  kDesigned,  // ClonedVoice::designed()
  kFile,      // in a voice file that has not been read: one of the two
};

// Returns the kind of a request's voice, which may be null.
VoiceKind VoiceKindOf(const ClonedVoice* voice);

// Checks that a model of this type with `speakers` can speak with `speaker` (empty: none requested) and with a voice of
// this kind. Needs no model files; Engine::Start() makes the same check. kInvalidArgument names the usable speakers or
// models.
Status CheckVoiceChoice(ModelType type, const std::vector<std::string>& speakers, const std::string& speaker,
                        VoiceKind voice);

// Checks the same for Request::language and a model with `languages`.
Status CheckLanguage(const std::vector<std::string>& languages, const std::string& language);

// Contents of a model folder, for display and to prepare a request. Plain values.
struct ModelInfo {
  std::string path;
  ModelType type = ModelType::kCustomVoice;
  std::string size;                    // `tts_model_size`, e.g. "0b6"
  std::vector<std::string> speakers;   // preset speakers, sorted; empty unless custom_voice
  std::vector<std::string> languages;  // names for Request::language besides "auto", sorted; no dialects
  bool supports_instruct = false;      // true if Request::instruct has an effect
  // Identifies models that can use the same cloned voices; see ClonedVoice::model.
  std::string fingerprint;
  std::string dtype;             // dtype of the talker's weights: "BF16", "F16" or "F32"
  int sample_rate = 24000;       // Hz
  int samples_per_frame = 1920;  // one frame is one buffer
  int code_groups = 16;          // codes per frame
  // Longest text that the model speaks well at once, in characters, for PartBounds::Of(). Some 75 words for a released
  // model: longer segments stall and lose words.
  size_t part_characters = 400;
  int64_t talker_parameters = 0;  // talker and code predictor, including the text table
  int64_t codec_parameters = 0;   // codec decoder
  int64_t weight_bytes = 0;       // bytes in the files of the tensors for synthesis
  GenerationSettings defaults;    // generation_config.json, with official defaults for missing keys
  ModelDescription description;   // qttssrc.json; empty if there is none
  // Set by Engine::Inspect(): keeps the data it has read, which a later load then reuses.
  std::shared_ptr<const void> read;
};

}  // namespace qtts

#endif  // QTTS_MODEL_INFO_H_
