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

// Checks of a backend's input, with the same messages on every device. For slots see slot_table.h.
namespace qtts {

// Sizes of a model and limits of its device. Plain values.
struct PromptLimits {
  int64_t positions = 0;       // positions of the talker
  int64_t max_rows = 0;        // maximum rows of a prompt
  int64_t text_ids = 0;        // rows of the text table
  std::vector<int64_t> codes;  // rows of each group's code table; group 0 is the talker's
  int64_t hidden_size = 0;     // elements of an x-vector
  int64_t codebook_size = 0;   // a reference's codes are below this
};
PromptLimits PromptLimitsOf(const ModelConfig& config, int64_t positions, int64_t max_rows);

// Checks that all ids of `row` are inside their tables, that `row` has 0, 1 or all codes, and that `x_vector` has the
// talker's width if the row uses it.
Status CheckRow(const PromptRow& row, std::span<const float> x_vector, const PromptLimits& limits);

// Checks the rows of a prompt and its reference: whole frames of valid codes. kInvalidArgument; kResourceExhausted for
// too many rows.
Status CheckPrompt(const Prompt& prompt, const PromptLimits& limits);

// Checks a step of an open slot: no text id for the first frame, which follows the prompt; a valid text id for the
// others. `position`: the talker position of the frame; kResourceExhausted after the last one.
Status CheckStep(bool first, int32_t text_id, int64_t position, const PromptLimits& limits);

// Returns the error kCorruptModel for a `part` whose output is not a finite number.
Status DamagedModel(ModelPart part);

}  // namespace qtts

#endif  // QTTS_BACKEND_CHECKS_H_
