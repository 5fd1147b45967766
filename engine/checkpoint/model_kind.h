// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CHECKPOINT_MODEL_KIND_H_
#define QTTS_CHECKPOINT_MODEL_KIND_H_

#include <span>
#include <string_view>

#include "qtts/model_info.h"

namespace qtts {

// Which checkpoints of a kind heed an instruction.
enum class TakesInstruct {
  kNone,
  kAllButSmall,  // the official code drops that of the 0.6B model (spec 11.20)
  kAll,
};

// Abilities of a kind of checkpoint. Code asks for these and not for the type, so a new kind is one more row of the
// table in model_info.cc.
struct ModelKind {
  ModelType type;
  std::string_view name;      // in config.json
  std::string_view released;  // checkpoints, for messages
  bool has_speakers;          // speaks with preset speakers
  bool clones;                // speaks with cloned voices, and only so; has the encoders that make them
  bool pins;                  // speaks with designed voices, which its own utterances pin
  bool streams_by_default;    // PromptLayout::kDefault is kStreaming
  TakesInstruct instruct;
};

// Returns all kinds, in the order of ModelType.
std::span<const ModelKind> ModelKinds();
const ModelKind& KindOf(ModelType type);

}  // namespace qtts

#endif  // QTTS_CHECKPOINT_MODEL_KIND_H_
