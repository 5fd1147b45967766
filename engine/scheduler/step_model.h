// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_SCHEDULER_STEP_MODEL_H_
#define QTTS_SCHEDULER_STEP_MODEL_H_

#include <array>
#include <cstddef>
#include <cstdint>

namespace qtts {

// Predicts the time of a step from its rows, the positions that they attend to and the prompts that are run before it:
// a + b * rows + c * positions + d * prompts, fitted by least squares to the steps so far, with lower weights for older
// ones. On a busy device prompts come before nearly every step, so that those without would tell of small steps only.
// Decides when a step runs and whether an utterance may begin, never what is computed. Not thread-safe.
class StepModel {
 public:
  // Learns that a step took `seconds`: `rows` streams with `positions` positions in all, and `prompts`, the work on
  // prompts since the step before, in frames' work (PrefillProgress::work).
  void Add(int64_t rows, int64_t positions, double prompts, double seconds);
  // True once there are enough steps to predict from.
  bool fitted() const { return steps_ >= kLeastSteps; }
  // In seconds. Never below zero; grows with all arguments.
  double Predict(int64_t rows, int64_t positions, double prompts = 0);

 private:
  static constexpr int64_t kLeastSteps = 32;
  static constexpr size_t kTerms = 4;
  using Vector = std::array<double, kTerms>;

  void Fit();

  int64_t steps_ = 0;
  bool outdated_ = false;
  std::array<Vector, kTerms> squares_ = {};  // weighted sums of the terms' products
  Vector moments_ = {};                      // and of their products with the time
  Vector factors_ = {};
};

}  // namespace qtts

#endif  // QTTS_SCHEDULER_STEP_MODEL_H_
