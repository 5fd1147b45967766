// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_BACKEND_CHECKS_H_
#define QTTS_BACKEND_CHECKS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "backend/model_part.h"
#include "checkpoint/config.h"
#include "prompt/prompt.h"
#include "qtts/status.h"

// What every backend checks of its input, in the same words on every device. Slots: slot_table.h.
namespace qtts {

// What a model has, and its device has room for. Plain values.
struct PromptLimits {
  int64_t positions = 0;       // of the talker
  int64_t max_rows = 0;        // of a prompt
  int64_t text_ids = 0;        // rows of the table of texts
  std::vector<int64_t> codes;  // rows of each group's table of codes; group 0 is the talker's
  int64_t hidden_size = 0;     // numbers of an x-vector
  int64_t codebook_size = 0;   // codes of a reference are less
};
PromptLimits PromptLimitsOf(const ModelConfig& config, int64_t positions, int64_t max_rows);

// That all ids of `row` lie inside their tables, that there are 0, 1 or all codes, and that `x_vector` has the talker's
// width if the row names it.
Status CheckRow(const PromptRow& row, std::span<const float> x_vector, const PromptLimits& limits);

// The rows of a prompt, and its reference: whole frames of codes that exist. kInvalidArgument; kResourceExhausted for
// too many rows.
Status CheckPrompt(const Prompt& prompt, const PromptLimits& limits);

// What a step asks of an open slot: no text for its first frame, which follows the prompt; an id of the table for the
// others. `position` of the talker that the frame takes: kResourceExhausted behind the last one.
Status CheckStep(bool first, int32_t text_id, int64_t position, const PromptLimits& limits);

// kCorruptModel: `part` gave no usable number.
Status DamagedModel(ModelPart part);

}  // namespace qtts

#endif  // QTTS_BACKEND_CHECKS_H_
