// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_ALIGNMENT_COVERAGE_H_
#define QTTS_ALIGNMENT_COVERAGE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <set>
#include <vector>

#include "alignment/text_path.h"
#include "qtts/words.h"

namespace qtts {

// A word of a part's text, and the tokens with a character of it.
struct TokenWord {
  TextRange text;
  int32_t first = 0;
  int32_t last = 0;
};

// Finds what of a part's text is not spoken, spoken again, or never ended, from the probabilities of its frames. The
// limits were fixed on the bundled voice before the test (doc/words.md). Not thread-safe.
class Coverage {
 public:
  // Largest probability that any frame gave to a word that was not spoken.
  static constexpr float kMinVisible = 0.15F;
  // A frame goes back if its likeliest token lies more than kBackTokens before the path. kBackFrames such frames in a
  // window of kBackWindow are a repetition.
  static constexpr int32_t kBackTokens = 3;
  static constexpr size_t kBackWindow = 4;
  static constexpr int kBackFrames = 3;
  // kOffFrames frames in a row with a probability below kNear within one token of the path are off the text.
  static constexpr float kNear = 0.3F;
  static constexpr int64_t kOffFrames = 4;
  // Tokens between the path's last position and the end token.
  static constexpr int32_t kEndTokens = 2;
  // Frames, a second, for which the path may stand at the text's last token or its end: more have missed the end. If
  // the last token belongs to a word, that word takes kWordFrames too.
  static constexpr int64_t kEndFrames = 12;
  static constexpr int64_t kWordFrames = 10;
  // Minimum mass on the text and probability near the path, on average, for the head to have followed the text.
  static constexpr double kMinTrust = 0.6;
  static constexpr int64_t kTrustedEnd = 4;  // frames at the text's end that count for it
  // Frames for which the path may stand at one token, and for which it may go back, before the speech has run away.
  static constexpr int64_t kStandFrames = 50;
  static constexpr int64_t kRepeatFrames = 50;

  // Adds a word of the text, in order.
  void AddWord(const TokenWord& word);
  // Ends the text, which has `tokens` tokens.
  void SetTextTokens(int32_t tokens) { text_tokens_ = tokens; }
  // Adds the next placed frame. Frames that are still to come have windows from `window_begin`.
  void Add(PlacedFrame frame, const TextPath& path, int32_t window_begin);
  // Ends the part.
  void Finish(const TextPath& path);

  // Returns true if the head follows the text. False if there are no frames.
  bool trusted() const;
  // Returns true if the speech should end: it has missed its end, stands still, or goes back again and again.
  bool runaway() const { return trusted() && (end_missed_ || stand_ > kStandFrames || back_total_ > kRepeatFrames); }
  bool end_missed() const { return end_missed_; }
  // Returns true if the path ended before the text did. Valid after Finish().
  bool stopped_early() const { return stopped_early_; }
  // Returns the number of tokens that were spoken so far.
  int32_t spoken_tokens() const {
    const int32_t passed = text_tokens_ < 0 ? position_ + 1 : std::min(position_ + 1, text_tokens_);
    return std::max(passed - skipped_tokens_, 0);
  }
  // Returns the words in order. All are known after Finish(); before, those that no later frame can change.
  const std::vector<TextRange>& skipped() const { return skipped_; }
  const std::vector<TextRange>& repeated() const { return repeated_; }

 private:
  void NoteBack(const PlacedFrame& frame, int32_t likeliest);
  void NoteEnd(const PlacedFrame& frame, const TextPath& path);
  void DecideWords(int32_t window_begin);
  float VisibilityOf(const TokenWord& word) const;
  void MarkRepeated(int32_t token);

  // Words that may still be seen, and those within the reach of a repetition, with whether they were marked.
  struct Word {
    TokenWord word;
    bool decided = false;
    bool repeated = false;
  };
  std::deque<Word> words_;
  std::deque<PlacedFrame> frames_;  // with windows that have tokens of words that are not decided
  std::set<int32_t> unmarked_;      // repeated tokens whose words have not come
  int32_t text_tokens_ = -1;        // -1: not known
  int32_t position_ = -1;
  int64_t stand_ = 0;  // frames at this position
  int32_t skipped_tokens_ = 0;
  int64_t end_count_ = 0;  // frames at the text's end
  int64_t count_ = 0;      // frames in the two sums
  double mass_ = 0;
  double near_ = 0;
  std::deque<int32_t> recent_;  // likeliest tokens of the last frames that went back; -1: did not
  int64_t back_total_ = 0;
  std::vector<int32_t> off_;  // likeliest tokens of the last frames, which are all off the path
  bool end_missed_ = false;
  bool stopped_early_ = false;
  std::vector<TextRange> skipped_;
  std::vector<TextRange> repeated_;
};

}  // namespace qtts

#endif  // QTTS_ALIGNMENT_COVERAGE_H_
