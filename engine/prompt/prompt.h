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

// No text side in a row, or no text row in a step.
inline constexpr int32_t kNoText = -1;

// One position of the talker's input: the sum of a text side, a codec side and an external vector,
// each possibly absent (spec 3.3). The backend turns it into an embedding.
struct PromptRow {
  int32_t text_id = kNoText;  // T(id): projected text embedding
  // Empty; one id of the talker's codec table; or num_code_groups codes, one of each group.
  std::vector<int32_t> codes;
  bool x_vector = false;  // adds Prompt::x_vector

  bool operator==(const PromptRow&) const = default;
};

// What the talker is given for one utterance (spec 3). Plain values, built without weights.
struct Prompt {
  std::vector<PromptRow> rows;  // the prefill
  // Leading rows that depend on voice, language, instruction and layout only: the KV of these can be
  // shared. Fewer for a text that begins with a newline than for others of the same request, since
  // the role's newline and the text's make one token.
  size_t constant_rows = 0;
  // Text ids of the following inputs: entry n goes with the codes of frame n. After the last entry
  // comes tts_pad for ever, if `text_complete`; otherwise the stream stalls for more.
  std::vector<int32_t> trailing_text;
  bool text_complete = true;
  int32_t pad_text_id = 0;      // tts_pad
  std::vector<float> x_vector;  // [hidden], for rows that name it
  // Codes to run through the codec before frame 0, audio discarded (spec 3.7): [frames][groups].
  std::vector<int32_t> reference_codes;
};

// Turns requests into prompts for one model. Immutable and thread-safe.
//
// Text ids are those of "assistant\n" + text, as TextFeed gives them. As in the official slices, the
// first two are the role's, whatever they are, and the text begins with the third.
class PromptBuilder {
 public:
  // Checks that the tokenizer knows the control tokens the config names, that all its ids lie inside
  // the text table, and that "assistant" and a newline are one token each, as the official slices
  // assume.
  static Result<PromptBuilder> Create(const ModelConfig& config, std::shared_ptr<const Tokenizer> tokenizer);

  // Everything that can be said of `request` without its text. Returns what of it will be left out, one sentence
  // each, for the user to know. Errors: unknown speaker or language, a voice that this type of checkpoint cannot
  // use or lacks, settings out of range, open text in the non-streaming layout; all are kInvalidArgument.
  Result<std::vector<std::string>> Validate(const Request& request) const;

  // Text ids Build() needs at least while the text is not complete: the role's and one of text, more
  // for ICL, where the text runs beside the reference codes. Errors: as Validate().
  Result<size_t> TextIdsNeeded(const Request& request) const;

  // The prompt of `request` with the text `text_ids` (Request::text is not read). An incomplete text
  // must have TextIdsNeeded() ids; later ones are the caller's to append to trailing_text, with
  // tts_eos after the last. Errors: as Validate(); kInvalidArgument for no text at all;
  // kResourceExhausted for a prompt that leaves no position for speech.
  Result<Prompt> Build(const Request& request, std::span<const int32_t> text_ids, bool text_complete) const;

  // Bytes of text that one utterance may have. What is longer has more tokens than the model has positions, unless it
  // is no language: those have 2 to 5 bytes a token.
  static constexpr size_t kTextBytesPerPosition = 16;
  size_t max_text_bytes() const;
  // Tokens of it: one for each of the model's positions, whatever the layout.
  size_t max_text_tokens() const;

  int32_t eos_text_id() const { return config_.tts_eos_token_id; }

 private:
  // What a request comes to on this model: names resolved, defaults filled in.
  struct Plan {
    bool streaming = false;
    int language_id = -1;  // codec id; -1: by the text
    int speaker_id = -1;   // codec id; -1: none
    const ClonedVoice* voice = nullptr;
    std::vector<int32_t> instruct_ids;   // the whole turn; empty: none
    std::vector<int32_t> reference_ids;  // of the reference's text; empty unless ICL
    size_t reference_frames = 0;         // 0 unless ICL
    std::vector<std::string> warnings;
  };

  PromptBuilder(const ModelConfig& config, std::shared_ptr<const Tokenizer> tokenizer);

  Result<Plan> MakePlan(const Request& request) const;
  Status PlanLanguage(const Request& request, const std::string& speaker, Plan* plan) const;
  Status PlanClonedVoice(const ClonedVoice& voice, Plan* plan) const;
  // Text ids that Build() needs while the text is not complete.
  static size_t IdsNeeded(const Plan& plan);
  // The ids of `text` as its turn has them: those of role + "\n" + text.
  Result<std::vector<int32_t>> TurnIds(std::string_view role, const std::string& text) const;

  ModelConfig config_;
  std::vector<std::string> speakers_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  int32_t newline_id_ = 0;             // as it stands after a role
  std::vector<int32_t> turn_end_ids_;  // of "<|im_end|>\n"
};

}  // namespace qtts

#endif  // QTTS_PROMPT_PROMPT_H_
