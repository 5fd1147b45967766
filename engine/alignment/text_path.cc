// SPDX-License-Identifier: LGPL-2.1-or-later
#include "alignment/text_path.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace qtts {
namespace {

constexpr float kNone = -std::numeric_limits<float>::infinity();
constexpr float kWorst = -1e6F;

float Finite(float score) { return std::isfinite(score) ? std::clamp(score, kWorst, -kWorst) : kWorst; }

}  // namespace

float PlacedFrame::At(int32_t token) const {
  const int64_t index = int64_t{token} - begin;
  if (index < 0 || index >= static_cast<int64_t>(probabilities.size())) return 0;
  return probabilities[static_cast<size_t>(index)];
}

float PlacedFrame::From(int32_t token) const {
  float sum = 0;
  for (auto i = static_cast<size_t>(std::max(token - begin, 0)); i < probabilities.size(); ++i) sum += probabilities[i];
  return std::min(sum, 1.0F);
}

float PlacedFrame::Before() const { return probabilities.empty() ? 0 : 1 - From(begin); }

int32_t TextPath::WindowBegin(int64_t frame) const {
  const int64_t seen = std::min(frame - kWindowLag, frames() - 1);
  return seen < 0 ? 0 : std::max(committed_[static_cast<size_t>(seen)] - kBehind, 0);
}

void TextPath::Add(int32_t begin, const TextScores& scores) {
  Step step;
  step.frame.frame = frames();
  step.frame.begin = begin;
  step.frame.mass = std::isfinite(scores.mass) ? std::clamp(scores.mass, 0.0F, 1.0F) : 0;
  const size_t count = scores.scores.size();
  if (count > 0) {
    const float log_sum = Finite(scores.log_sum);
    std::vector<float> sums(count);
    float largest = kNone;
    for (size_t i = 0; i < count; ++i) {
      const float score = Finite(scores.scores[i]);
      step.frame.probabilities.push_back(std::min(std::exp(score - log_sum), 1.0F));
      const int64_t token = begin + static_cast<int64_t>(i);
      float best = kNone;
      uint8_t move = 0;
      if (!begun_) {
        if (token <= kMaxStep) best = 0;
      } else {
        for (int32_t m = 0; m <= kMaxStep; ++m) {
          const int64_t from = token - m - sums_begin_;
          if (from < 0 || from >= static_cast<int64_t>(sums_.size())) continue;
          if (sums_[static_cast<size_t>(from)] > best) {
            best = sums_[static_cast<size_t>(from)];
            move = static_cast<uint8_t>(m);
          }
        }
      }
      step.moves.push_back(move);
      sums[i] = best + score;
      largest = std::max(largest, sums[i]);
    }
    // No path leads here: the window is not where the path is. It begins anew.
    if (largest == kNone) {
      for (size_t i = 0; i < count; ++i) sums[i] = Finite(scores.scores[i]);
      largest = *std::max_element(sums.begin(), sums.end());
    }
    for (float& sum : sums) sum -= largest;
    sums_ = std::move(sums);
    sums_begin_ = begin;
    begun_ = true;
  }
  steps_.push_back(std::move(step));
  const int64_t added = steps_.back().frame.frame;
  if (added >= kLag) {
    // Traces back from the best token of this frame.
    int32_t position = BestEnd();
    const size_t target = steps_.size() - 1 - static_cast<size_t>(kLag);
    for (size_t i = steps_.size() - 1; i > target && position >= 0; --i) {
      const Step& at = steps_[i];
      if (at.frame.probabilities.empty()) {
        position = -1;
        break;
      }
      const int64_t index = position - at.frame.begin;
      if (index >= 0 && index < static_cast<int64_t>(at.moves.size())) position -= at.moves[static_cast<size_t>(index)];
    }
    if (steps_[target].frame.probabilities.empty()) position = -1;
    Place(target, position);
    // The frame before the next one to be placed stays, for the time within the frame.
    while (steps_.size() > static_cast<size_t>(kLag) + 1) steps_.pop_front();
  }
  committed_.push_back(position());
}

void TextPath::Finish() {
  // Of the frames that are not placed, the last one first.
  std::vector<int32_t> positions;
  int32_t position = BestEnd();
  const auto open = static_cast<size_t>(frames() - placed_);
  for (size_t i = 0; i < open; ++i) {
    const Step& at = steps_[steps_.size() - 1 - i];
    if (at.frame.probabilities.empty()) position = -1;
    positions.push_back(position);
    const int64_t index = int64_t{position} - at.frame.begin;
    if (index >= 0 && index < static_cast<int64_t>(at.moves.size())) position -= at.moves[static_cast<size_t>(index)];
  }
  for (size_t i = open; i > 0; --i) Place(steps_.size() - i, positions[i - 1]);
}

std::vector<PlacedFrame> TextPath::Take() { return std::exchange(ready_, {}); }

int32_t TextPath::BestEnd() const {
  if (!begun_) return -1;
  return sums_begin_ + static_cast<int32_t>(std::max_element(sums_.begin(), sums_.end()) - sums_.begin());
}

// The frame steps_[index] speaks `position`, or what the path has reached before.
void TextPath::Place(size_t index, int32_t new_position) {
  PlacedFrame& frame = steps_[index].frame;
  const PlacedFrame* const before = index > 0 ? &steps_[index - 1].frame : nullptr;
  for (int32_t token = position() + 1; token <= new_position; ++token) {
    const float at_once = before == nullptr ? 0 : before->From(token);
    const double start = static_cast<double>(frame.frame) - at_once + 1 - frame.From(token);
    starts_.push_back(std::max(start, 0.0));
    first_frames_.push_back(frame.frame);
  }
  frame.position = position();
  ready_.push_back(frame);
  ++placed_;
}

}  // namespace qtts
