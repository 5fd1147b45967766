// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_ALIGNMENT_TEXT_PATH_H_
#define QTTS_ALIGNMENT_TEXT_PATH_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/text_scores.h"

namespace qtts {

// One frame whose place in the text is known.
struct PlacedFrame {
  int64_t frame = 0;
  int32_t position = -1;  // the token that is spoken; -1: the text has not begun
  int32_t begin = 0;      // the first token with a probability
  int32_t count = 0;      // tokens with one; 0: no text existed
  std::array<float, kTextScores> values{};
  float mass = 0;  // see TextScores

  // Returns the probabilities of the tokens from `begin`, by the softmax over the text.
  std::span<const float> probabilities() const { return std::span(values).first(static_cast<size_t>(count)); }
  int32_t end() const { return begin + count; }
  // Returns the probability of token `token`; 0 outside of the window.
  float At(int32_t token) const;
  // Returns the probability of the tokens from `token`.
  float From(int32_t token) const;
  // Returns the probability of the tokens before the window. Those behind it count as well, but have next to none.
  float Before() const;
};

// Finds which token of a text each frame speaks, as frames come, from the scores of the talker's alignment head: the
// best path that moves by 0 to 2 tokens a frame, never back. A frame's token is known kLag frames later.
//
// Tokens count from 0; the end token has the number of the text's tokens. Pure computation on one part of an utterance.
// Not thread-safe.
class TextPath {
 public:
  static constexpr int32_t kMaxStep = 2;  // tokens a frame
  static constexpr int64_t kLag = 2;      // frames; eight gave the same times
  // A frame's window of scores is chosen by the path as it was kWindowLag frames before, so that it is the same however
  // far a device runs ahead of the host: at most so many frames may be in flight. It begins kBehind tokens before the
  // path, where a repetition would be.
  static constexpr int64_t kWindowLag = 8;
  static constexpr int32_t kBehind = 8;

  // Returns the first token with a score of its own in `frame`. Frames up to frame - kWindowLag must have been added.
  int32_t WindowBegin(int64_t frame) const;

  // Adds the next frame, whose scores begin with token `begin`. Empty scores: no token of the text exists yet. Scores
  // that are no finite numbers count as very low.
  void Add(int32_t begin, const TextScores& scores);
  // Places the last frames. Nothing may be added after that.
  void Finish();

  // Returns the frames placed since the last call, in order.
  std::vector<PlacedFrame> Take();

  int64_t frames() const { return static_cast<int64_t>(committed_.size()); }  // added
  int64_t placed() const { return placed_; }
  // Returns the last token that was begun; -1: none. Tokens up to it have a start.
  int32_t position() const { return static_cast<int32_t>(starts_.size()) - 1; }
  // Returns the time at which the head moved to a token, in frames; and the first frame at or beyond it.
  double StartOf(int32_t token) const { return starts_[static_cast<size_t>(token)]; }
  int64_t FirstFrameOf(int32_t token) const { return first_frames_[static_cast<size_t>(token)]; }

 private:
  // A frame that has been added.
  struct Step {
    PlacedFrame frame;
    // Sums of the scores on the best path to each token of the window, less the largest sum. Padded in front, for the
    // tokens before.
    std::array<float, kTextScores + kMaxStep> sums{};
    // The window is not where the path was, which begins anew.
    bool begins = false;
  };

  void AddSums(const TextScores& scores, Step* step) const;
  int32_t Before(size_t index, int32_t position) const;
  void Place(size_t index, int32_t position);
  int32_t BestEnd() const;

  std::vector<Step> steps_;  // frames that are not placed, and the one before
  int64_t placed_ = 0;       // frames
  std::vector<PlacedFrame> ready_;
  std::vector<int32_t> committed_;  // by frame: the path's position when it was added
  std::vector<double> starts_;
  std::vector<int64_t> first_frames_;
};

}  // namespace qtts

#endif  // QTTS_ALIGNMENT_TEXT_PATH_H_
