// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CPU_EMBEDDER_H_
#define QTTS_CPU_EMBEDDER_H_

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "checkpoint/weights.h"
#include "cpu/linear.h"
#include "prompt/prompt.h"

namespace qtts::cpu {

// Turns rows of ids into inputs of the talker (spec 3): projected text embedding, plus code embeddings in the order of
// their groups, plus the external vector.
//
// Caches the projections of recent text ids, since every frame after the end of the text adds the same one. Holds views
// of the weights. Not thread-safe.
class Embedder {
 public:
  Embedder(const TalkerWeights& talker, const PredictorWeights& predictor, ThreadPool& pool);

  int64_t hidden_size() const { return text_fc2_.out(); }

  // Computes the input vectors y [rows][hidden] of `rows`, which CheckPrompt() or CheckStep() took. Text ids are
  // projected together.
  void Embed(std::span<const PromptRow> rows, std::span<const float> x_vector, float* y);

  // Copies row `code` of the table of `group` to y [hidden]. Group 0 is the talker's own table.
  void LookUpCode(int64_t group, int32_t code, float* y) const {
    LookUp(code_tables_[static_cast<size_t>(group)], code, y);
  }
  int64_t code_rows(int64_t group) const { return code_tables_[static_cast<size_t>(group)].rows; }

 private:
  // Adds the projections of all text ids of `rows` to `projected_`.
  void ProjectTexts(std::span<const PromptRow> rows);

  ThreadPool& pool_;
  MatrixView text_table_;
  Linear text_fc1_, text_fc2_;
  std::vector<MatrixView> code_tables_;  // [code groups]
  std::unordered_map<int32_t, std::vector<float>> projected_;
  std::vector<float> code_row_;  // scratch, [hidden]
};

}  // namespace qtts::cpu

#endif  // QTTS_CPU_EMBEDDER_H_
