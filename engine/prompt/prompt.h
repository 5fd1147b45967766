// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_PROMPT_PROMPT_H_
#define QTTS_PROMPT_PROMPT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/config.h"
#include "qtts/request.h"
#include "qtts/status.h"
#include "text/tokenizer.h"

namespace qtts {

// The row has no text side; the step has no text row.
inline constexpr int32_t kNoText = -1;

// One position of the talker's input: the sum of a text side, a codec side and an external vector; each may be absent
// (spec 3.3). The backend computes the embedding.
struct PromptRow {
  int32_t text_id = kNoText;  // T(id): projected text embedding
  // Empty; one id of the talker's codec table; or num_code_groups codes, one of each group.
  std::vector<int32_t> codes;
  bool x_vector = false;  // adds Prompt::x_vector

  bool operator==(const PromptRow&) const = default;
};

// The talker's input for one utterance (spec 3). Plain values, built without weights.
struct Prompt {
  std::vector<PromptRow> rows;  // the prefill
  // Number of leading rows that depend on voice, language, instruction and layout only. Their KV cache can be shared.
  // Smaller if the text begins with a newline, since the role's newline and the text's become one token.
  size_t constant_rows = 0;
  // Position of the first token of the text to be spoken, in the prompt or behind it. Token n of the text, and tts_eos
  // after the last one, has position text_begin + n in every layout.
  size_t text_begin = 0;
  // Text ids of the inputs after the prefill: entry n goes with the codes of frame n. After the last entry comes
  // tts_pad if `text_complete`; otherwise the stream stalls until more text arrives.
  std::vector<int32_t> trailing_text;
  bool text_complete = true;
  int32_t pad_text_id = 0;      // tts_pad
  std::vector<float> x_vector;  // [hidden], for rows with PromptRow::x_vector
  // Codes that the codec decodes before frame 0, without output (spec 3.7): [frames][groups].
  std::vector<int32_t> reference_codes;
};

// Builds the prompts of requests to one model. Immutable and thread-safe.
//
// Text ids are those of "assistant\n" + text, as TextFeed gives them. As in the official slices, the first two belong
// to the role, whatever they are, and the text begins with the third.
class PromptBuilder {
 public:
  // Text ids that belong to the role: those of "assistant" and a newline, which the official slices cut off.
  static constexpr size_t kRoleIds = 2;

  // Checks that the tokenizer knows the config's control tokens, that all its ids are inside the text table, and that
  // "assistant" and a newline are one token each, as the official slices assume.
  static Result<PromptBuilder> Create(const ModelConfig& config, std::shared_ptr<const Tokenizer> tokenizer);

  // Checks `request` without its text. Returns warnings for the user, one sentence each, about parts that will be
  // ignored. Errors, all kInvalidArgument: unknown speaker or language, a voice that this checkpoint lacks or cannot
  // use, settings out of range, open text in the non-streaming layout.
  Result<std::vector<std::string>> Validate(const Request& request) const;

  // Returns the minimum number of text ids that Build() needs while the text is incomplete: the role's and one of text;
  // more for ICL, where the text runs beside the reference codes. Errors: as Validate().
  Result<size_t> TextIdsNeeded(const Request& request) const;

  // Builds the prompt of `request` with the text `text_ids`; Request::text is not read. An incomplete text must have
  // TextIdsNeeded() ids. The caller appends later ids to trailing_text, with tts_eos after the last. Errors: as
  // Validate(); kInvalidArgument for an empty text; kResourceExhausted for a prompt that leaves no position for speech.
  Result<Prompt> Build(const Request& request, std::span<const int32_t> text_ids, bool text_complete) const;

  // Maximum text of one utterance, in bytes. Text in a natural language has 2 to 5 bytes per token, so longer text has
  // more tokens than the model has positions.
  static constexpr size_t kTextBytesPerPosition = 16;
  size_t max_text_bytes() const;
  // Returns the maximum length of a text in tokens: one per position of the model, in every layout.
  size_t max_text_tokens() const;

  int32_t eos_text_id() const { return config_.tts_eos_token_id; }
  const ModelConfig& config() const { return config_; }

 private:
  // A request resolved for this model: names looked up, defaults filled in.
  struct Plan {
    bool streaming = false;
    int language_id = -1;  // codec id; -1: auto
    int speaker_id = -1;   // codec id; -1: none
    const ClonedVoice* voice = nullptr;
    std::vector<int32_t> instruct_ids;   // ids of the whole turn; empty: none
    std::vector<int32_t> reference_ids;  // ids of the reference text; empty unless ICL
    size_t reference_frames = 0;         // 0 unless ICL
    std::vector<std::string> warnings;
  };

  PromptBuilder(const ModelConfig& config, std::shared_ptr<const Tokenizer> tokenizer);

  Result<Plan> MakePlan(const Request& request) const;
  Status PlanLanguage(const Request& request, const std::string& speaker, Plan* plan) const;
  Status PlanClonedVoice(const ClonedVoice& voice, Plan* plan) const;
  // Implements TextIdsNeeded().
  static size_t IdsNeeded(const Plan& plan);
  // Returns the ids of `text` within its turn: those of role + "\n" + text.
  Result<std::vector<int32_t>> TurnIds(std::string_view role, const std::string& text) const;

  ModelConfig config_;
  std::vector<std::string> speakers_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  int32_t newline_id_ = 0;             // the newline after a role
  std::vector<int32_t> turn_end_ids_;  // of "<|im_end|>\n"
};

}  // namespace qtts

#endif  // QTTS_PROMPT_PROMPT_H_
