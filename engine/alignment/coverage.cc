// SPDX-License-Identifier: LGPL-2.1-or-later
#include "alignment/coverage.h"

#include <algorithm>
#include <limits>
#include <span>
#include <utility>

namespace qtts {

void Coverage::AddWord(const TokenWord& word) {
  words_.push_back({word, false, false});
  for (auto it = unmarked_.lower_bound(word.first); it != unmarked_.end() && *it <= word.last;) {
    const int32_t token = *it;
    it = unmarked_.erase(it);
    MarkRepeated(token);
  }
}

void Coverage::Add(PlacedFrame frame, const TextPath& path, int32_t window_begin) {
  if (frame.count == 0) return;  // the text does not exist yet
  stand_ = frame.position == position_ ? stand_ + 1 : 0;
  position_ = frame.position;
  const std::span<const float> probabilities = frame.probabilities();
  const auto largest = std::max_element(probabilities.begin(), probabilities.end());
  const auto likeliest = frame.begin + static_cast<int32_t>(largest - probabilities.begin());
  const float near = frame.At(position_ - 1) + frame.At(position_) + frame.At(position_ + 1);
  const bool at_end = text_tokens_ >= 0 && position_ >= text_tokens_ - 1;
  if (at_end) stand_ = 0;
  // Speech behind the text's end, which should not be there, does not tell whether the head follows the text.
  if (!at_end || end_count_++ < kTrustedEnd) {
    ++count_;
    mass_ += frame.mass;
    near_ += std::min(near, 1.0F);
  }
  // Attention before the window is that of a repetition from further back, whose word is not known.
  const bool before = frame.Before() > *largest;
  NoteBack(frame, before ? frame.begin : likeliest);
  if (near < kNear && !at_end) {
    off_.push_back(likeliest);
  } else {
    off_.clear();
  }
  if (static_cast<int64_t>(off_.size()) >= kOffFrames) {
    for (const int32_t token : off_) {
      if (token < position_ - 1) MarkRepeated(token);
    }
  }
  NoteEnd(frame, path);
  frames_.push_back(frame);
  DecideWords(window_begin);
}

void Coverage::NoteBack(const PlacedFrame& frame, int32_t likeliest) {
  recent_.push_back(likeliest < frame.position - kBackTokens ? likeliest : -1);
  if (recent_.size() > kBackWindow) recent_.pop_front();
  const auto back = std::count_if(recent_.begin(), recent_.end(), [](int32_t token) { return token >= 0; });
  if (back < kBackFrames) return;
  for (const int32_t token : recent_) {
    if (token >= 0) MarkRepeated(token);
  }
  if (recent_.back() >= 0) ++back_total_;
}

void Coverage::NoteEnd(const PlacedFrame& frame, const TextPath& path) {
  if (text_tokens_ <= 0 || end_missed_) return;
  const int32_t last = text_tokens_ - 1;
  const bool word_last = !words_.empty() && words_.back().word.last >= last;
  if (position_ >= last) {
    const int64_t after = frame.frame - path.FirstFrameOf(last) + 1;
    end_missed_ = after > kEndFrames + (word_last ? kWordFrames : 0);
  }
  if (position_ >= text_tokens_) {
    end_missed_ = end_missed_ || frame.frame - path.FirstFrameOf(text_tokens_) + 1 > kEndFrames;
  }
}

void Coverage::MarkRepeated(int32_t token) {
  const auto found =
      std::find_if(words_.begin(), words_.end(), [token](const Word& w) { return w.word.last >= token; });
  if (found == words_.end()) {
    unmarked_.insert(token);
    return;
  }
  if (found->word.first > token || found->repeated) return;  // between words, or known
  found->repeated = true;
  const auto at = std::upper_bound(repeated_.begin(), repeated_.end(), found->word.text,
                                   [](const TextRange& a, const TextRange& b) { return a.begin < b.begin; });
  repeated_.insert(at, found->word.text);
}

float Coverage::VisibilityOf(const TokenWord& word) const {
  float visible = 0;
  for (const PlacedFrame& frame : frames_) {
    if (frame.end() <= word.first || frame.begin > word.last) continue;
    float sum = 0;
    for (int32_t token = word.first; token <= word.last; ++token) sum += frame.At(token);
    visible = std::max(visible, sum);
  }
  return visible;
}

// Decides words: those before `window_begin` have had their last frame. They stay for a while, to be marked as
// repeated.
void Coverage::DecideWords(int32_t window_begin) {
  constexpr int32_t kKept = 64;  // tokens
  size_t i = 0;
  for (; i < words_.size() && words_[i].word.last < window_begin; ++i) {
    Word& word = words_[i];
    if (word.decided) continue;
    word.decided = true;
    if (VisibilityOf(word.word) >= kMinVisible) continue;
    skipped_.push_back(word.word.text);
    if (word.word.last <= position_) skipped_tokens_ += word.word.last - word.word.first + 1;
  }
  while (!words_.empty() && words_.front().decided && words_.front().word.last < window_begin - kKept) {
    words_.pop_front();
    --i;
  }
  const int32_t needed = i < words_.size() ? std::min(words_[i].word.first, window_begin) : window_begin;
  while (!frames_.empty() && frames_.front().end() <= needed) frames_.pop_front();
}

void Coverage::Finish(const TextPath& path) {
  position_ = path.position();
  stopped_early_ = text_tokens_ >= 0 && text_tokens_ - position_ > kEndTokens;
  // Up to kEndTokens the path does not reach, though they are spoken.
  if (!stopped_early_ && text_tokens_ >= 0) position_ = std::max(position_, text_tokens_ - 1);
  DecideWords(std::numeric_limits<int32_t>::max());
  position_ = std::min(position_, std::max(text_tokens_ - 1, path.position()));
}

bool Coverage::trusted() const {
  if (count_ == 0) return false;
  if (mass_ < kMinTrust * static_cast<double>(count_)) return false;
  return near_ >= kMinTrust * static_cast<double>(count_);
}

}  // namespace qtts
