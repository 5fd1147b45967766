// SPDX-License-Identifier: LGPL-2.1-or-later
#include "backend/checks.h"

#include <string>

namespace qtts {
namespace {

Status CheckId(const char* what, int64_t id, int64_t rows) {
  if (id >= 0 && id < rows) return Status::Ok();
  return Status::InvalidArgument("prompt: " + std::string(what) + " " + std::to_string(id) +
                                 " is not in the model's table of " + std::to_string(rows));
}

Status CheckReference(std::span<const int32_t> codes, const PromptLimits& limits) {
  if (codes.size() % limits.codes.size() != 0) {
    return Status::InvalidArgument("the reference has " + std::to_string(codes.size()) +
                                   " codes, which is not a whole number of frames of " +
                                   std::to_string(limits.codes.size()));
  }
  for (const int32_t code : codes) {
    if (code < 0 || code >= limits.codebook_size) {
      return Status::InvalidArgument("the reference holds code " + std::to_string(code) + "; codes go from 0 to " +
                                     std::to_string(limits.codebook_size - 1));
    }
  }
  return Status::Ok();
}

const char* NameOf(ModelPart part) {
  switch (part) {
    case ModelPart::kTalker:
      return "talker";
    case ModelPart::kPredictor:
      return "code predictor";
    case ModelPart::kCodec:
      return "speech tokenizer";
    case ModelPart::kSpeakerEncoder:
      return "speaker encoder";
    case ModelPart::kNone:
      break;
  }
  return "weights";
}

}  // namespace

PromptLimits PromptLimitsOf(const ModelConfig& config, int64_t positions, int64_t max_rows) {
  PromptLimits limits;
  limits.positions = positions;
  limits.max_rows = max_rows;
  limits.text_ids = config.talker.text_vocab_size;
  limits.codes.assign(static_cast<size_t>(config.talker.num_code_groups), config.predictor.vocab_size);
  limits.codes.front() = config.talker.vocab_size;
  limits.hidden_size = config.talker.transformer.hidden_size;
  limits.codebook_size = config.codec.codebook_size;
  return limits;
}

Status CheckRow(const PromptRow& row, std::span<const float> x_vector, const PromptLimits& limits) {
  if (row.text_id != kNoText) QTTS_RETURN_IF_ERROR(CheckId("text id", row.text_id, limits.text_ids));
  if (row.codes.size() > 1 && row.codes.size() != limits.codes.size()) {
    return Status::InvalidArgument("prompt: a row has " + std::to_string(row.codes.size()) +
                                   " codes; the model takes none, 1 or " + std::to_string(limits.codes.size()));
  }
  for (size_t group = 0; group < row.codes.size(); ++group) {
    QTTS_RETURN_IF_ERROR(CheckId("code", row.codes[group], limits.codes[group]));
  }
  if (row.x_vector && static_cast<int64_t>(x_vector.size()) != limits.hidden_size) {
    return Status::InvalidArgument("prompt: the x-vector has " + std::to_string(x_vector.size()) +
                                   " numbers; the model takes " + std::to_string(limits.hidden_size));
  }
  return Status::Ok();
}

Status CheckPrompt(const Prompt& prompt, const PromptLimits& limits) {
  if (prompt.rows.empty()) return Status::InvalidArgument("the prompt has no rows");
  if (static_cast<int64_t>(prompt.rows.size()) > limits.max_rows) {
    return Status::ResourceExhausted("the text is too long: its prompt takes " + std::to_string(prompt.rows.size()) +
                                     " positions, the model has room for " + std::to_string(limits.max_rows) +
                                     "; split it into shorter utterances");
  }
  for (const PromptRow& row : prompt.rows) QTTS_RETURN_IF_ERROR(CheckRow(row, prompt.x_vector, limits));
  return CheckReference(prompt.reference_codes, limits);
}

Status CheckStep(bool first, int32_t text_id, int64_t position, const PromptLimits& limits) {
  if (first && text_id != kNoText) {
    return Status::InvalidArgument("the first frame follows the prompt and takes no text");
  }
  if (!first && text_id == kNoText) return Status::InvalidArgument("a frame after the first needs a text id");
  if (!first) QTTS_RETURN_IF_ERROR(CheckId("text id", text_id, limits.text_ids));
  if (position < limits.positions) return Status::Ok();
  return Status::ResourceExhausted("the utterance has filled all " + std::to_string(limits.positions) +
                                   " positions of the model without an end; split the text");
}

Status DamagedModel(ModelPart part) {
  return Status::CorruptModel("the model's " + std::string(NameOf(part)) +
                              " gave no usable number; its weights are probably damaged: fetch them again");
}

}  // namespace qtts
