// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TOOLS_HEAD_SEARCH_H_
#define QTTS_TOOLS_HEAD_SEARCH_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "forced_talker.h"
#include "prompt/prompt.h"
#include "qtts/model_description.h"
#include "qtts/status.h"
#include "scheduler/text_part.h"

// Finds the attention head of a talker that follows its text, and the offset of its times, without recordings
// (doc/words.md).
namespace qtts {

// An utterance that the model has spoken.
struct SpokenUtterance {
  Prompt prompt;
  std::vector<size_t> token_ends;  // of the text
  std::vector<TextRange> words;
  std::vector<int32_t> codes;  // [frames][groups]
};

// Measure of how far a head follows the text, as means over the frames of all utterances.
struct HeadScore {
  int layer = 0;
  int head = 0;
  double mass = 0;          // share of its attention on the text
  double monotonicity = 0;  // share of frames whose likeliest token is 0 to 2 tokens behind that of the frame before
  double score() const { return mass * monotonicity; }
};

// Heads below this score do not follow the text: the bundled voice's has 0.98, its next one 0.91, shuffled weights at
// most 0.21.
inline constexpr double kMinHeadScore = 0.8;

// Returns the scores of all heads, by layer and head.
Result<std::vector<HeadScore>> ScoreHeads(ForcedTalker* talker, const std::vector<SpokenUtterance>& utterances);

// Returns the offset of a head: its words' tokens are exchanged for others, and the first frame whose codes then would
// be others is where the word begins. None if no word shows it.
Result<std::optional<int>> FindOffset(ForcedTalker* talker, const std::vector<SpokenUtterance>& utterances,
                                      const HeadScore& head);

// Returns the head to use: the best one or, of those with nearly its score, the one that leads least. None below
// kMinHeadScore.
Result<std::optional<AlignmentHead>> ChooseHead(ForcedTalker* talker, const std::vector<SpokenUtterance>& utterances,
                                                const std::vector<HeadScore>& scores);

}  // namespace qtts

#endif  // QTTS_TOOLS_HEAD_SEARCH_H_
