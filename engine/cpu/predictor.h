// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CPU_PREDICTOR_H_
#define QTTS_CPU_PREDICTOR_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "checkpoint/weights.h"
#include "cpu/embedder.h"
#include "cpu/linear.h"
#include "cpu/transformer.h"

namespace qtts::cpu {

// The code predictor (spec 5). From the talker's hidden state and the code of group 0 it computes the codes of the
// other groups of the frame, one after the other. Keeps no state between frames.
//
// Holds views of the weights and scratch memory. Not thread-safe.
class Predictor {
 public:
  // `embedder` holds the code tables and must outlive the predictor. Products use the packer's arithmetic, or F32 on
  // the mapped weights if `packer` is null. The heads have 8 bits if the packer's weights have 8 or 4, else they are
  // F32.
  Predictor(const PredictorConfig& config, const PredictorWeights& weights, const Embedder& embedder, ThreadPool& pool,
            WeightPacker* packer = nullptr);

  int64_t code_groups() const { return static_cast<int64_t>(heads_.size()) + 1; }
  int64_t vocab_size() const { return heads_.front().out(); }
  // Returns the cost of one frame's codes, in multiply-adds of a matrix product.
  int64_t FrameWork() const { return code_groups() * transformer_.RowWork(code_groups()); }

  // Samples the code of `group` (1, 2, …) for `row` from `logits` [vocab_size], which it may overwrite.
  using SampleCode = std::function<int32_t(size_t row, int64_t group, std::span<float> logits)>;

  // Fills in groups 1… of codes [rows][groups] from hidden [rows][hidden]. Group 0 is given. All codes must be inside
  // their tables.
  void Predict(std::span<const float> hidden, const SampleCode& sample, std::span<int32_t> codes);

 private:
  // Projects inputs [rows][talker's width] to the predictor's width, in inputs_.
  void Project(int64_t rows);

  const Embedder& embedder_;
  ThreadPool& pool_;
  std::optional<Linear> input_projection_;
  std::vector<Linear> heads_;
  Transformer transformer_;

  // Scratch.
  std::vector<KvCache> caches_;
  std::vector<SequenceRows> sequences_;
  std::vector<float> embedded_, inputs_, last_, logits_;
};

}  // namespace qtts::cpu

#endif  // QTTS_CPU_PREDICTOR_H_
