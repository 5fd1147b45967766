// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_SCHEDULER_TEXT_PART_H_
#define QTTS_SCHEDULER_TEXT_PART_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "prompt/prompt.h"
#include "qtts/request.h"
#include "qtts/status.h"
#include "qtts/words.h"
#include "text/text_feed.h"
#include "text/word_finder.h"

namespace qtts {

// One part of an utterance's text, which the model speaks from its own prompt. Turns text into that prompt and the ids
// of the text behind it. Owned by a StreamState. Not thread-safe.
class TextPart {
 public:
  // Ids and the prompt, as far as they have become known since the last call.
  struct News {
    std::optional<Prompt> prompt;  // as soon as there is enough text for it; once
    std::vector<int32_t> text;     // further ids; id n of all of them precedes frame n + 1
    bool text_complete = false;    // `pad_text_id` precedes all further frames
    int32_t pad_text_id = 0;
    size_t text_tokens = 0;  // of the text so far, those in the prompt included
    // With an alignment head, in bytes of the utterance's text: ends of further tokens of the text, without those of
    // the role; and further words.
    std::vector<size_t> token_ends;
    std::vector<TextRange> words;
  };

  TextPart(const std::shared_ptr<const PromptBuilder>& prompts, std::shared_ptr<const Tokenizer> tokenizer);
  // `aligned`: whether TakeNews() gives the ends of tokens and words. By default if the model has an alignment head.
  TextPart(std::shared_ptr<const PromptBuilder> prompts, std::shared_ptr<const Tokenizer> tokenizer, bool aligned);

  // Adds text; a UTF-8 sequence may be cut anywhere. After an error nothing was added. `begin`: position of the part in
  // the utterance's text; used by the first call only.
  Status Append(std::string_view text, size_t begin = 0);
  // Appends the last text and finishes, in one faster call. After an error the part cannot be used any more.
  Status AppendLast(std::string_view text, size_t begin = 0);
  // Takes the text added so far into the prompt of `request`, or behind it. Errors: those of PromptBuilder::Build().
  Status Take(const Request& request);

  News TakeNews();
  bool finished() const { return feed_.finished(); }
  // Returns true while the text is empty or white space only.
  bool blank() const { return feed_.blank(); }
  bool has_prompt() const { return has_prompt_; }
  size_t text_tokens() const { return text_tokens_; }

 private:
  void NoteText(std::string_view text, size_t begin);

  std::shared_ptr<const PromptBuilder> prompts_;
  TextFeed feed_;
  std::vector<int32_t> first_ids_;  // decided ids, until the prompt is built
  bool has_prompt_ = false;
  std::optional<Prompt> prompt_;
  std::vector<int32_t> text_queue_;  // ids that TakeNews() has not returned
  bool text_complete_ = false;
  int32_t pad_text_id_ = 0;
  size_t text_tokens_ = 0;  // of the text that has come
  const bool aligned_;      // the model has an alignment head
  std::optional<size_t> begin_;
  WordFinder words_;
  std::vector<size_t> token_ends_;  // ends that TakeNews() has not returned
};

}  // namespace qtts

#endif  // QTTS_SCHEDULER_TEXT_PART_H_
