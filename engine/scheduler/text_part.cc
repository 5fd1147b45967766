// SPDX-License-Identifier: LGPL-2.1-or-later
#include "scheduler/text_part.h"

#include <utility>

namespace qtts {

TextPart::TextPart(const std::shared_ptr<const PromptBuilder>& prompts, std::shared_ptr<const Tokenizer> tokenizer)
    : TextPart(prompts, std::move(tokenizer), prompts->config().description.alignment.has_value()) {}

TextPart::TextPart(std::shared_ptr<const PromptBuilder> prompts, std::shared_ptr<const Tokenizer> tokenizer,
                   bool aligned)
    : prompts_(std::move(prompts)), feed_(std::move(tokenizer), prompts_->max_text_tokens()), aligned_(aligned) {}

Status TextPart::Append(std::string_view text, size_t begin) {
  QTTS_RETURN_IF_ERROR(feed_.Append(text));
  NoteText(text, begin);
  return Status::Ok();
}

Status TextPart::AppendLast(std::string_view text, size_t begin) {
  QTTS_RETURN_IF_ERROR(feed_.AppendLast(text));
  NoteText(text, begin);
  if (aligned_) words_.Finish();
  return Status::Ok();
}

void TextPart::NoteText(std::string_view text, size_t begin) {
  if (!begin_) begin_ = begin;
  if (aligned_) words_.Append(text);
}

Status TextPart::Take(const Request& request) {
  std::vector<int32_t> ids = feed_.TakeIds();
  const std::vector<size_t> ends = feed_.TakeEnds();
  for (size_t i = 0; i < ends.size() && aligned_; ++i) {
    if (text_tokens_ + i >= PromptBuilder::kRoleIds) token_ends_.push_back(begin_.value_or(0) + ends[i]);
  }
  text_tokens_ += ids.size();
  if (has_prompt_) {
    text_queue_.insert(text_queue_.end(), ids.begin(), ids.end());
    if (feed_.finished() && !text_complete_) {
      text_queue_.push_back(prompts_->eos_text_id());
      text_complete_ = true;
    }
    return Status::Ok();
  }
  first_ids_.insert(first_ids_.end(), ids.begin(), ids.end());
  if (!feed_.finished()) {
    QTTS_ASSIGN_OR_RETURN(const size_t needed, prompts_->TextIdsNeeded(request));
    if (first_ids_.size() < needed) return Status::Ok();
  }
  QTTS_ASSIGN_OR_RETURN(Prompt prompt, prompts_->Build(request, first_ids_, feed_.finished()));
  first_ids_.clear();
  text_queue_ = std::move(prompt.trailing_text);
  text_complete_ = prompt.text_complete;
  pad_text_id_ = prompt.pad_text_id;
  prompt_ = std::move(prompt);
  has_prompt_ = true;
  return Status::Ok();
}

TextPart::News TextPart::TakeNews() {
  std::vector<TextRange> words = words_.Take();
  for (TextRange& word : words) word = {word.begin + begin_.value_or(0), word.end + begin_.value_or(0)};
  return {std::exchange(prompt_, std::nullopt),
          std::exchange(text_queue_, {}),
          text_complete_,
          pad_text_id_,
          text_tokens_,
          std::exchange(token_ends_, {}),
          std::move(words)};
}

}  // namespace qtts
