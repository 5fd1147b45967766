// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TEXT_TEXT_FEED_H_
#define QTTS_TEXT_TEXT_FEED_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "qtts/status.h"
#include "text/tokenizer.h"

namespace qtts {

// Converts the text of one utterance to token ids, whole or piece by piece. An id is emitted as soon as no later text
// can change it. The ids equal those of the whole text in one call: the official ids of "assistant\n" + text (spec
// 3.1), with control tokens spelled out. The first ids are those of the role; PromptBuilder removes them as the
// official slices do.
//
// Time is linear in the length of the text, however it is cut, if pre-tokens are shorter than about 500 bytes. A longer
// pre-token may be decided a few letters late.
//
// Owned by one stream. Not thread-safe.
class TextFeed {
 public:
  // A text with more than `max_ids` ids is refused; the rest of it is not processed.
  explicit TextFeed(std::shared_ptr<const Tokenizer> tokenizer, size_t max_ids = SIZE_MAX);

  // Adds text; a UTF-8 sequence may be cut anywhere. Errors: kResourceExhausted if the undecided rest would exceed
  // Tokenizer::kMaxTextBytes or the ids `max_ids`; kInvalidArgument after Finish(). After an error nothing was added.
  Status Append(std::string_view text);

  // Does Append() and Finish() in one faster call, for text that is complete. After an error the feed cannot be used
  // any more.
  Status AppendLast(std::string_view text);

  // Ends the text: all of it becomes decided. Idempotent.
  Status Finish();

  // Returns the ids decided since the last call, in order.
  std::vector<int32_t> TakeIds();
  // Returns the ends of their tokens, in bytes of the text: 0 for tokens of the role. To be called as often as
  // TakeIds().
  std::vector<size_t> TakeEnds() { return std::exchange(ends_, {}); }

  bool finished() const { return finished_; }
  // Returns true while the text is empty or white space only.
  bool blank() const { return blank_; }

 private:
  // Converts the first `bytes` undecided bytes to ids.
  Status Decide(size_t bytes);
  // Adds text that fits with the undecided rest into kMaxTextBytes. `more`: further text follows at once.
  Status AppendSlice(std::string_view text, bool more);
  // Adds text of any length. After an error, part of it may have been added.
  Status AppendInSlices(std::string_view text);
  void UpdateBlank(std::string_view text);

  std::shared_ptr<const Tokenizer> tokenizer_;
  std::string pending_;   // undecided bytes; begins with the role
  size_t next_scan_ = 0;  // size of pending_ at which to search for decided text again
  std::vector<int32_t> ids_;
  std::vector<size_t> ends_;  // of their tokens
  size_t decided_bytes_ = 0;  // of the role and the text
  const size_t max_ids_;
  size_t taken_ids_ = 0;
  bool finished_ = false;
  bool blank_ = true;
  std::string blank_tail_;  // while blank: an incomplete UTF-8 sequence
};

}  // namespace qtts

#endif  // QTTS_TEXT_TEXT_FEED_H_
