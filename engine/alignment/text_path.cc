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
constexpr float kNoExponent = -40;  // of a probability that is none

float Finite(float score) { return std::isfinite(score) ? std::clamp(score, kWorst, -kWorst) : kWorst; }

}  // namespace

float PlacedFrame::At(int32_t token) const {
  const int64_t index = int64_t{token} - begin;
  return index < 0 || index >= count ? 0 : values[static_cast<size_t>(index)];
}

float PlacedFrame::From(int32_t token) const {
  float sum = 0;
  for (int32_t i = std::max(token - begin, 0); i < count; ++i) sum += values[static_cast<size_t>(i)];
  return std::min(sum, 1.0F);
}

float PlacedFrame::Before() const { return count == 0 ? 0 : 1 - From(begin); }

int32_t TextPath::WindowBegin(int64_t frame) const {
  const int64_t seen = std::min(frame - kWindowLag, frames() - 1);
  return seen < 0 ? 0 : std::max(committed_[static_cast<size_t>(seen)] - kBehind, 0);
}

void TextPath::Add(int32_t begin, const TextScores& scores) {
  Step step;
  PlacedFrame& frame = step.frame;
  frame.frame = frames();
  frame.begin = begin;
  frame.count = static_cast<int32_t>(std::min(scores.scores.size(), frame.values.size()));
  frame.mass = std::isfinite(scores.mass) ? std::clamp(scores.mass, 0.0F, 1.0F) : 0;
  if (frame.count > 0) {
    const float log_sum = Finite(scores.log_sum);
    for (size_t i = 0; i < static_cast<size_t>(frame.count); ++i) {
      const float exponent = Finite(scores.scores[i]) - log_sum;
      frame.values[i] = exponent < kNoExponent ? 0 : std::exp(std::min(exponent, 0.0F));
    }
    AddSums(scores, &step);
  }
  steps_.push_back(step);
  if (step.frame.frame >= kLag) {
    // Traces back from the best token of this frame.
    const size_t target = steps_.size() - 1 - static_cast<size_t>(kLag);
    int32_t position = BestEnd();
    for (size_t i = steps_.size() - 1; i > target; --i) position = Before(i, position);
    Place(target, position);
    // The frame before the next one to be placed stays, for the time within the frame.
    if (steps_.size() > static_cast<size_t>(kLag) + 1) steps_.erase(steps_.begin());
  }
  committed_.push_back(position());
}

// Extends the best paths by one frame.
void TextPath::AddSums(const TextScores& scores, Step* step) const {
  const PlacedFrame& frame = step->frame;
  const Step* const before = steps_.empty() || steps_.back().frame.count == 0 ? nullptr : &steps_.back();
  const auto count = static_cast<size_t>(frame.count);
  // The sums of the frame before, by the tokens of this one: `from[i + kMaxStep]` is that of token begin + i.
  std::array<float, kTextScores + kMaxStep> from;
  from.fill(kNone);
  if (before != nullptr) {
    const int64_t shift = int64_t{frame.begin} - before->frame.begin;
    for (int64_t i = -kMaxStep; i < frame.count; ++i) {
      if (i + shift >= 0 && i + shift < before->frame.count) {
        from[static_cast<size_t>(i + kMaxStep)] = before->sums[static_cast<size_t>(i + shift + kMaxStep)];
      }
    }
  } else {
    for (int64_t token = frame.begin; token <= kMaxStep && token < frame.end(); ++token) {
      from[static_cast<size_t>(token - frame.begin + kMaxStep)] = 0;
    }
  }
  // Without a frame before, a token is reached from nowhere else.
  const bool first = before == nullptr;
  float largest = kNone;
  step->sums.fill(kNone);
  for (size_t i = 0; i < count; ++i) {
    const float best = first ? from[i + 2] : std::max(from[i + 2], std::max(from[i + 1], from[i]));
    step->sums[i + kMaxStep] = best + Finite(scores.scores[i]);
    largest = std::max(largest, step->sums[i + kMaxStep]);
  }
  step->begins = largest == kNone;
  if (step->begins) {
    for (size_t i = 0; i < count; ++i) {
      step->sums[i + kMaxStep] = Finite(scores.scores[i]);
      largest = std::max(largest, step->sums[i + kMaxStep]);
    }
  }
  for (float& sum : step->sums) sum -= largest;
}

// Returns the token of the frame before on the best path to `position` in the frame steps_[index]; -1 if there was
// none.
int32_t TextPath::Before(size_t index, int32_t position) const {
  const Step& step = steps_[index];
  const Step& before = steps_[index - 1];
  if (position < 0 || step.frame.count == 0 || before.frame.count == 0) return -1;
  if (step.begins) return position;
  int32_t token = position;
  float best = kNone;
  for (int32_t move = 0; move <= kMaxStep; ++move) {
    const int32_t from = position - move;
    if (from < before.frame.begin || from >= before.frame.end()) continue;
    const float sum = before.sums[static_cast<size_t>(from - before.frame.begin) + kMaxStep];
    if (sum > best) {
      best = sum;
      token = from;
    }
  }
  return token;
}

void TextPath::Finish() {
  // The frames that are not placed, the last one first.
  const auto open = static_cast<size_t>(frames() - placed_);
  std::vector<int32_t> positions;
  int32_t position = BestEnd();
  for (size_t i = 0; i < open; ++i) {
    positions.push_back(position);
    const size_t index = steps_.size() - 1 - i;
    if (index > 0) position = Before(index, position);
  }
  for (size_t i = open; i > 0; --i) Place(steps_.size() - i, positions[i - 1]);
}

std::vector<PlacedFrame> TextPath::Take() { return std::exchange(ready_, {}); }

// Returns the best token of the last frame.
int32_t TextPath::BestEnd() const {
  if (steps_.empty() || steps_.back().frame.count == 0) return -1;
  const Step& last = steps_.back();
  const auto begin = last.sums.begin() + kMaxStep;
  return last.frame.begin + static_cast<int32_t>(std::max_element(begin, begin + last.frame.count) - begin);
}

// Places the frame steps_[index], which speaks `position`, or what the path has reached before.
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
