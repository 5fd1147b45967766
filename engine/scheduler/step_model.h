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
//
// A line through steps of few rows tells little about steps of many. A row of a larger step never takes longer than one
// of a smaller step: so a step of n times as many rows as a measured one takes at most n times as long. This bounds
// every prediction from above. The line counts up to kTrust times as many rows as were measured lately; beyond, the
// time grows with the rows from there on.
//
// Decides when a step runs and whether an utterance may begin, never what is computed. Not thread-safe.
class StepModel {
 public:
  // Learns that a step took `seconds`: `rows` streams with `positions` positions in all, and `prompts`, the work on
  // prompts since the step before, in frames' work (PrefillProgress::work).
  void Add(int64_t rows, int64_t positions, double prompts, double seconds);
  // True once there are enough steps for the line.
  bool fitted() const { return steps_ >= kLeastSteps; }
  // True once Predict() knows anything.
  bool measured() const { return steps_ > 0; }
  // In seconds. Never below zero; grows with all arguments.
  double Predict(int64_t rows, int64_t positions, double prompts = 0);
  // Time that `prompts` before a step add to it.
  double PredictPrompts(double prompts);

 private:
  static constexpr int64_t kLeastSteps = 32;
  static constexpr size_t kTerms = 4;
  using Vector = std::array<double, kTerms>;
  // Steps of about the same number of rows: means over the last few.
  struct Size {
    double rows = 0;
    double positions = 0;
    double seconds = 0;  // prompts included
    int64_t last = 0;    // number of the last step
  };
  // Two for each doubling of the rows.
  static constexpr size_t kSizes = 32;

  void Fit();
  bool IsFresh(const Size& size) const { return size.last > 0 && steps_ - size.last <= kFresh; }
  double MaxRows() const;
  double PositionSeconds() const;
  double Line(double rows, double positions) const;
  double Bound(double rows, double positions) const;

  // Steps after which a size no longer counts.
  static constexpr int64_t kFresh = 1000;
  static constexpr double kTrust = 4;

  int64_t steps_ = 0;
  bool outdated_ = false;
  std::array<Vector, kTerms> squares_ = {};  // weighted sums of the terms' products
  Vector moments_ = {};                      // and of their products with the time
  Vector factors_ = {};
  std::array<Size, kSizes> sizes_ = {};
};

}  // namespace qtts

#endif  // QTTS_SCHEDULER_STEP_MODEL_H_
