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
// positions do in a constant set of streams.
constexpr double kRidge = 1e-4;

}  // namespace

void StepModel::Add(int64_t rows, int64_t positions, double prompts, double seconds) {
  const Vector terms = {1, static_cast<double>(rows) * kRows, static_cast<double>(positions) * kPositions, prompts};
  for (size_t i = 0; i < kTerms; ++i) {
    for (size_t j = 0; j < kTerms; ++j) squares_[i][j] = squares_[i][j] * kForget + terms[i] * terms[j];
    moments_[i] = moments_[i] * kForget + terms[i] * seconds;
  }
  ++steps_;
  outdated_ = true;
}

StepCost StepModel::Cost(double mean_positions) {
  if (std::exchange(outdated_, false)) Fit();
  return {.known = fitted(),
          .base = factors_[0],
          .row = factors_[1] * kRows,
          .position = factors_[2] * kPositions,
          .prompt = factors_[3],
          .mean_positions = mean_positions};
}

// Fits the model. A term whose factor would be negative is left out, and the others are fitted again.
void StepModel::Fit() {
  std::array<bool, kTerms> used = {true, true, true, true};
  for (size_t round = 0; round < kTerms; ++round) {
    std::array<Vector, kTerms> m = squares_;
    Vector x = moments_;
    for (size_t i = 0; i < kTerms; ++i) {
      m[i][i] = m[i][i] * (1 + kRidge) + 1e-12;
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
