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
// Relative to a term's own sum of squares: bounds the factors of terms that always change together, as rows and
// positions do while all streams are young. The rows then count for most: with a factor of the positions that is too
// large, the forecast of a load whose contexts grow would be far too long.
constexpr std::array<double, 4> kRidge = {1e-4, 1e-4, 3e-3, 1e-4};
// Weight of a step in the means of its size.
constexpr double kMean = 0.25;

}  // namespace

void StepModel::Add(int64_t rows, int64_t positions, double prompts, double seconds) {
  const Vector terms = {1, static_cast<double>(rows) * kRows, static_cast<double>(positions) * kPositions, prompts};
  for (size_t i = 0; i < kTerms; ++i) {
    for (size_t j = 0; j < kTerms; ++j) squares_[i][j] = squares_[i][j] * kForget + terms[i] * terms[j];
    moments_[i] = moments_[i] * kForget + terms[i] * seconds;
  }
  ++steps_;
  outdated_ = true;
  const double exponent = std::log2(static_cast<double>(std::max<int64_t>(rows, 1)));
  Size& size = sizes_[std::min(kSizes - 1, static_cast<size_t>(2 * exponent + 0.5))];
  const double weight = IsFresh(size) ? kMean : 1;
  size.rows += weight * (static_cast<double>(rows) - size.rows);
  size.positions += weight * (static_cast<double>(positions) - size.positions);
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
  return seconds + factors_[3] * prompts;
}

double StepModel::PredictPrompts(double prompts) {
  if (std::exchange(outdated_, false)) Fit();
  return factors_[3] * prompts;
}

// The largest rows of the sizes measured lately.
double StepModel::MaxRows() const {
  double rows = 1;
  for (const Size& size : sizes_) {
    if (IsFresh(size)) rows = std::max(rows, size.rows);
  }
  return rows;
}

double StepModel::Line(double rows, double positions) const {
  return factors_[0] + factors_[1] * rows * kRows + factors_[2] * positions * kPositions;
}

double StepModel::Bound(double rows, double positions) const {
  double bound = -1;
  for (const Size& size : sizes_) {
    if (!IsFresh(size)) continue;
    const double times = std::max(1.0, rows / size.rows);
    const double more = factors_[2] * kPositions * std::max(0.0, positions - times * size.positions);
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
