// SPDX-License-Identifier: LGPL-2.1-or-later
#include "text/text_feed.h"

#include <algorithm>
#include <utility>

#include "qtts/utf8.h"

namespace qtts {
namespace {

// Comes before every text.
constexpr std::string_view kRole = "assistant\n";

// Undecided text of up to kAlwaysScan bytes is scanned after each addition. Longer text is scanned only after it has
// grown by 1/kGrowth; otherwise a long word that arrives byte by byte would take quadratic time.
constexpr size_t kAlwaysScan = 512;
constexpr size_t kGrowth = 16;

}  // namespace

TextFeed::TextFeed(std::shared_ptr<const Tokenizer> tokenizer, size_t max_ids)
    : tokenizer_(std::move(tokenizer)), pending_(kRole), max_ids_(max_ids) {}

Status TextFeed::Append(std::string_view text) {
  if (finished_) return Status::InvalidArgument("text was added after the end of the text");
  const size_t old_ids = ids_.size();
  const size_t old_size = pending_.size();
  if (text.size() <= Tokenizer::kMaxTextBytes - old_size) {
    Status status = AppendSlice(text, /*more=*/false);
    if (!status.ok()) {
      pending_.resize(old_size);
      return status;
    }
  } else {
    const std::string old_pending = pending_;
    const size_t old_decided = decided_bytes_;
    Status status = AppendInSlices(text);
    if (!status.ok()) {
      pending_ = old_pending;
      ids_.resize(old_ids);
      ends_.resize(old_ids);
      decided_bytes_ = old_decided;
      return status;
    }
  }
  UpdateBlank(text);
  return Status::Ok();
}

Status TextFeed::AppendLast(std::string_view text) {
  // Skips the search for decided text, since all of it is decided. Applies to text that fits one call of the tokenizer.
  if (!finished_ && text.size() <= Tokenizer::kMaxTextBytes - pending_.size()) {
    pending_ += text;
    UpdateBlank(text);
  } else {
    QTTS_RETURN_IF_ERROR(Append(text));
  }
  return Finish();
}

Status TextFeed::AppendInSlices(std::string_view text) {
  while (!text.empty()) {
    const size_t room = Tokenizer::kMaxTextBytes - pending_.size();
    if (room == 0) {
      return Status::ResourceExhausted("more than " + std::to_string(Tokenizer::kMaxTextBytes) +
                                       " bytes of text without a place to cut them, such as a space after a word");
    }
    const size_t taken = std::min(room, text.size());
    QTTS_RETURN_IF_ERROR(AppendSlice(text.substr(0, taken), taken < text.size()));
    text.remove_prefix(taken);
  }
  return Status::Ok();
}

Status TextFeed::AppendSlice(std::string_view text, bool more) {
  pending_ += text;
  const bool full = pending_.size() == Tokenizer::kMaxTextBytes;
  if (!more && !full && pending_.size() < next_scan_) return Status::Ok();
  QTTS_RETURN_IF_ERROR(Decide(tokenizer_->StablePrefix(pending_)));
  next_scan_ = pending_.size() > kAlwaysScan ? pending_.size() + pending_.size() / kGrowth : 0;
  return Status::Ok();
}

Status TextFeed::Finish() {
  if (finished_) return Status::Ok();
  QTTS_RETURN_IF_ERROR(Decide(pending_.size()));
  blank_ = blank_ && blank_tail_.empty();
  finished_ = true;
  return Status::Ok();
}

Status TextFeed::Decide(size_t bytes) {
  if (bytes == 0) return Status::Ok();
  std::vector<size_t> ends;
  QTTS_ASSIGN_OR_RETURN(const std::vector<int32_t> ids,
                        tokenizer_->EncodePlain(std::string_view(pending_).substr(0, bytes), &ends));
  if (taken_ids_ + ids_.size() + ids.size() > max_ids_) {
    return Status::ResourceExhausted("the text has more tokens than the " + std::to_string(max_ids_) +
                                     " positions of the model: split it");
  }
  ids_.insert(ids_.end(), ids.begin(), ids.end());
  for (const size_t end : ends) ends_.push_back(std::max(decided_bytes_ + end, kRole.size()) - kRole.size());
  decided_bytes_ += bytes;
  pending_.erase(0, bytes);
  return Status::Ok();
}

std::vector<int32_t> TextFeed::TakeIds() {
  taken_ids_ += ids_.size();
  return std::exchange(ids_, {});
}

void TextFeed::UpdateBlank(std::string_view text) {
  if (!blank_) return;
  blank_tail_ += text;
  std::string_view rest(blank_tail_);
  while (!rest.empty()) {
    const Utf8Char c = DecodeUtf8(rest);
    if (c.incomplete) break;
    if (!IsWhiteSpace(c.code)) {
      blank_ = false;
      blank_tail_.clear();
      return;
    }
    rest.remove_prefix(c.size);
  }
  blank_tail_.erase(0, blank_tail_.size() - rest.size());
}

}  // namespace qtts
