// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TEXT_TEXT_FEED_H_
#define QTTS_TEXT_TEXT_FEED_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "qtts/status.h"
#include "text/tokenizer.h"

namespace qtts {

// The text of one utterance on its way to ids, whole or piece by piece. Ids come out as soon as no
// later text can change them, and their sequence equals that of the whole text in one call: the
// official ids of "assistant\n" + text (spec 3.1), control tokens spelled out. The first ids are
// those of the role, which PromptBuilder takes off as the official slices do.
//
// Time is linear in the length of the text as long as pre-tokens are shorter than about 500 bytes,
// however the text is cut; a longer one may be decided a few letters late.
//
// Owned by one stream; not thread-safe.
class TextFeed {
 public:
  // Of a text with more than `max_ids` ids the rest is not even looked at.
  explicit TextFeed(std::shared_ptr<const Tokenizer> tokenizer, size_t max_ids = SIZE_MAX);

  // Adds text; a UTF-8 sequence may be cut anywhere. Fails with kResourceExhausted when the
  // undecided rest would exceed Tokenizer::kMaxTextBytes, or the ids their limit, and with kInvalidArgument after
  // Finish(); then nothing was added.
  Status Append(std::string_view text);

  // Append() and Finish() at once, and quicker: for a text that is there as a whole. After a failure the feed is of no
  // use any more.
  Status AppendLast(std::string_view text);

  // No more text: everything becomes decided. Idempotent.
  Status Finish();

  // Ids decided since the last call, in order.
  std::vector<int32_t> TakeIds();

  bool finished() const { return finished_; }
  // Whether only white space has been seen so far.
  bool blank() const { return blank_; }

 private:
  // Turns the first `bytes` undecided bytes into ids.
  Status Decide(size_t bytes);
  // Adds text that fits beside the undecided rest; `more` when further text is at hand.
  Status AppendSlice(std::string_view text, bool more);
  // Adds text of any length; on failure a part of it may have been added.
  Status AppendInSlices(std::string_view text);
  void UpdateBlank(std::string_view text);

  std::shared_ptr<const Tokenizer> tokenizer_;
  std::string pending_;   // undecided bytes, the role included at first
  size_t next_scan_ = 0;  // size of pending_ at which to look for decided text again
  std::vector<int32_t> ids_;
  const size_t max_ids_;
  size_t taken_ids_ = 0;
  bool finished_ = false;
  bool blank_ = true;
  std::string blank_tail_;  // while blank: a character of which bytes are still missing
};

}  // namespace qtts

#endif  // QTTS_TEXT_TEXT_FEED_H_
