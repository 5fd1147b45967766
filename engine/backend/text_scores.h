// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_BACKEND_TEXT_SCORES_H_
#define QTTS_BACKEND_TEXT_SCORES_H_

#include <cstdint>
#include <vector>

namespace qtts {

// Maximum number of text tokens with a score of their own in a frame: one per lane of a warp.
inline constexpr int32_t kTextScores = 32;

// The text tokens that a frame's scores are asked for, as positions of the talker's context. Scores are those of the
// checkpoint's alignment head (ModelDescription::alignment) in the row that chooses the frame: the prompt's last row
// for frame 0, the row of the frame's own step for the others.
struct TextWindow {
  int32_t text_begin = 0;  // position of the text's first token: Prompt::text_begin
  int32_t text_end = 0;    // position behind the last token that is known; 0: no scores are wanted
  int32_t begin = 0;       // position of the first token with a score of its own, at least text_begin

  bool wanted() const { return text_end > text_begin; }
  bool operator==(const TextWindow&) const = default;
};

// Scores of one frame. Positions behind the row itself do not exist for it: text_end is at most the row's position + 1.
struct TextScores {
  // Scores of positions begin, begin + 1, …: q·k / √head_dim, before the softmax. Up to kTextScores of them, fewer at
  // the end of the text. Empty: none were wanted, or the checkpoint has no alignment head.
  std::vector<float> scores;
  float log_sum = 0;  // logarithm of the sum of exp(score) over the whole text
  float mass = 0;     // share of the whole attention on the text, 0 to 1

  bool operator==(const TextScores&) const = default;
};

}  // namespace qtts

#endif  // QTTS_BACKEND_TEXT_SCORES_H_
