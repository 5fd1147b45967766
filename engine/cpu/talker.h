// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CPU_TALKER_H_
#define QTTS_CPU_TALKER_H_

#include <cstdint>
#include <span>
#include <vector>

#include "checkpoint/weights.h"
#include "cpu/linear.h"
#include "cpu/transformer.h"

namespace qtts::cpu {

// The talker (spec 4): takes input vectors, gives the hidden state and codebook-0 logits of the last position. Holds
// views of the weights and scratch memory. Not thread-safe.
class Talker {
 public:
  // The transformer's products use the packer's arithmetic, or F32 on the mapped weights if `packer` is null. The head
  // has 8 bits if the packer's weights have 8 or 4, else it is F32.
  Talker(const TalkerConfig& config, const TalkerWeights& weights, ThreadPool& pool, WeightPacker* packer = nullptr);

  int64_t hidden_size() const { return head_.in(); }
  int64_t vocab_size() const { return head_.out(); }
  int64_t max_positions() const { return transformer_.config().max_positions; }
  // Returns the cost of one input row at `position`, in multiply-adds of a matrix product.
  int64_t RowWork(int64_t position) const { return transformer_.RowWork(position); }
  KvCache NewCache() const { return KvCache(transformer_.config()); }

  // Sets the heads whose queries are given beside the results: [heads][head_dim] for each sequence. See
  // Transformer::Watch().
  void Watch(std::span<const QueryHead> heads) { transformer_.Watch(heads); }
  size_t query_size() const { return transformer_.watched() * static_cast<size_t>(transformer_.config().head_dim); }

  // Appends rows of a prompt to a sequence: inputs [rows][hidden].
  void Prefill(KvCache* cache, std::span<const float> inputs);
  // Runs the last rows of the prompt. Also gives hidden [hidden] and logits [vocab] of the last row, and its queries of
  // the watched heads unless `queries` is null.
  void Prefill(KvCache* cache, std::span<const float> inputs, float* hidden, float* logits, float* queries = nullptr);

  // Appends one row to each sequence. inputs [sequences][hidden] are replaced by the hidden states; logits is
  // [sequences][vocab]; `queries`, if not null, is [sequences][watched heads][head_dim].
  void Step(std::span<KvCache* const> caches, float* inputs, float* logits, float* queries = nullptr);

 private:
  void RunRows(KvCache* cache, std::span<const float> inputs, float* queries);

  ThreadPool& pool_;
  Transformer transformer_;
  Linear head_;
  std::vector<float> chunk_;
};

}  // namespace qtts::cpu

#endif  // QTTS_CPU_TALKER_H_
