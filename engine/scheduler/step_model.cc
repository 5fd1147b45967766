// SPDX-License-Identifier: LGPL-2.1-or-later
#include "scheduler/step_model.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace qtts {
namespace {

// Half the weight is that of the last 140 steps.
constexpr double kForget = 0.995;
// The terms are made about equally large.
constexpr double kRows = 1e-2;
constexpr double kPositions = 1e-4;
// A position takes at least so much of a row's time: 0.047 of 57 to 62 us on an H100, less than half of it assumed.
// Rows and positions change together while streams are young, and the line's error over rows looks like one of
// positions.
constexpr double kPositionOfRow = 5e-4;
// A frame's work on prompts takes at least as long as a step without rows, by the meaning of that unit. While prompts
// come before every step, the line could count their time as that of rows.
constexpr double kPromptOfStep = 2;
// Relative to a term's own sum of squares: bounds the factors of terms that always change together. The positions' own
// term is for what kPositionOfRow does not explain, and has to be evident: if it is too large, the forecast of a load
// whose contexts grow is far too long.
constexpr std::array<double, 4> kRidge = {1e-4, 1e-4, 0.1, 1e-4};
// Weight of a step in the means of its size.
constexpr double kMean = 0.25;

}  // namespace

void StepModel::Add(int64_t rows, int64_t positions, double prompts, double seconds) {
  const auto r = static_cast<double>(rows);
  const auto p = static_cast<double>(positions);
  const Vector terms = {1 + kPromptOfStep * prompts, (r + kPositionOfRow * p) * kRows, p * kPositions, prompts};
  for (size_t i = 0; i < kTerms; ++i) {
    for (size_t j = 0; j < kTerms; ++j) squares_[i][j] = squares_[i][j] * kForget + terms[i] * terms[j];
    moments_[i] = moments_[i] * kForget + terms[i] * seconds;
  }
  ++steps_;
  outdated_ = true;
  const double exponent = std::log2(std::max(r, 1.0));
  Size& size = sizes_[std::min(kSizes - 1, static_cast<size_t>(2 * exponent + 0.5))];
  const double weight = IsFresh(size) ? kMean : 1;
  size.rows += weight * (r - size.rows);
  size.positions += weight * (p - size.positions);
  size.seconds += weight * (seconds - size.seconds);
  size.last = steps_;
}

double StepModel::Predict(int64_t rows, int64_t positions, double prompts) {
  if (std::exchange(outdated_, false)) Fit();
  const auto r = static_cast<double>(rows);
  const auto p = static_cast<double>(positions);
  double seconds = Bound(r, p);
  if (fitted()) {
    const double trusted = kTrust * MaxRows();
    const double times = std::max(1.0, r / trusted);
    seconds = std::min(seconds, times * Line(r / times, p / times));
  }
  return seconds + PredictPrompts(prompts);
}

double StepModel::PredictPrompts(double prompts) {
  if (std::exchange(outdated_, false)) Fit();
  return (kPromptOfStep * factors_[0] + factors_[3]) * prompts;
}

// The largest rows of the sizes measured lately.
double StepModel::MaxRows() const {
  double rows = 1;
  for (const Size& size : sizes_) {
    if (IsFresh(size)) rows = std::max(rows, size.rows);
  }
  return rows;
}

double StepModel::PositionSeconds() const { return factors_[1] * kRows * kPositionOfRow + factors_[2] * kPositions; }

double StepModel::Line(double rows, double positions) const {
  return factors_[0] + factors_[1] * kRows * rows + PositionSeconds() * positions;
}

double StepModel::Bound(double rows, double positions) const {
  double bound = -1;
  for (const Size& size : sizes_) {
    if (!IsFresh(size)) continue;
    const double times = std::max(1.0, rows / size.rows);
    const double more = PositionSeconds() * std::max(0.0, positions - times * size.positions);
    const double seconds = times * size.seconds + more;
    if (bound < 0 || seconds < bound) bound = seconds;
  }
  return std::max(bound, 0.0);
}

// A term whose factor would be negative is left out, and the others are fitted again.
void StepModel::Fit() {
  std::array<bool, kTerms> used = {true, true, true, true};
  for (size_t round = 0; round < kTerms; ++round) {
    std::array<Vector, kTerms> m = squares_;
    Vector x = moments_;
    for (size_t i = 0; i < kTerms; ++i) {
      m[i][i] = m[i][i] * (1 + kRidge[i]) + 1e-12;
      if (used[i]) continue;
      for (size_t j = 0; j < kTerms; ++j) m[i][j] = m[j][i] = i == j ? 1 : 0;
      x[i] = 0;
    }
    // Positive definite: elimination needs no pivots.
    for (size_t i = 0; i < kTerms; ++i) {
      for (size_t j = i + 1; j < kTerms; ++j) {
        const double factor = m[j][i] / m[i][i];
        for (size_t k = i; k < kTerms; ++k) m[j][k] -= factor * m[i][k];
        x[j] -= factor * x[i];
      }
    }
    for (size_t i = kTerms; i-- > 0;) {
      for (size_t j = i + 1; j < kTerms; ++j) x[i] -= m[i][j] * x[j];
      x[i] /= m[i][i];
    }
    factors_ = x;
    const auto least = std::min_element(x.begin(), x.end());
    if (*least >= 0) return;
    used[static_cast<size_t>(least - x.begin())] = false;
  }
  for (double& factor : factors_) factor = std::max(factor, 0.0);
}

}  // namespace qtts
