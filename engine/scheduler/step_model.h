// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_SCHEDULER_STEP_MODEL_H_
#define QTTS_SCHEDULER_STEP_MODEL_H_

#include <array>
#include <cstddef>
#include <cstdint>

namespace qtts {

// Terms of a step's time. The predicted time is never below zero and never falls as an argument grows.
struct StepCost {
  bool known = false;         // there were enough steps to predict from
  double base = 0;            // s
  double row = 0;             // s for each stream
  double position = 0;        // s for each position that the streams attend to
  double prompt = 0;          // s for a frame's work on prompts before the step
  double mean_positions = 0;  // of a stream of the last step

  double Seconds(int64_t rows, int64_t positions, double prompts = 0) const {
    return base + row * static_cast<double>(rows) + position * static_cast<double>(positions) + prompt * prompts;
  }
  // Returns the time of a step of `rows` streams with positions as those of the last step.
  double SecondsOf(int64_t rows, double prompts = 0) const {
    return Seconds(rows, static_cast<int64_t>(mean_positions * static_cast<double>(rows)), prompts);
  }
};

// Predicts the time of a step from its rows, the positions that they attend to and the prompts that are run before it:
// a + b * rows + c * positions + d * prompts, fitted by least squares to the steps so far, with lower weights for older
// ones. Steps with prompts count too: on a busy device only small steps have none. The prediction decides when a step
// runs and whether an utterance may begin, never its results. Not thread-safe.
class StepModel {
 public:
  // Learns that a step took `seconds`: `rows` streams with `positions` positions in all, and `prompts`, the work on
  // prompts since the step before, in frames' work (PrefillProgress::work).
  void Add(int64_t rows, int64_t positions, double prompts, double seconds);
  // Returns true once there are enough steps to predict from.
  bool fitted() const { return steps_ >= kMinSteps; }
  // Returns the model's terms. `mean_positions`: of a stream of the last step.
  StepCost Cost(double mean_positions = 0);

 private:
  static constexpr int64_t kMinSteps = 32;
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
