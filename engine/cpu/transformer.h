// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CPU_TRANSFORMER_H_
#define QTTS_CPU_TRANSFORMER_H_

#include <cstdint>
#include <span>
#include <vector>

#include "checkpoint/weights.h"
#include "cpu/kv_cache.h"
#include "cpu/linear.h"
#include "cpu/thread_pool.h"

namespace qtts::cpu {

// A query head of a transformer.
struct QueryHead {
  int layer = 0;
  int head = 0;
};

// The next `rows` rows of one sequence, whose KV cache is `cache`.
struct SequenceRows {
  KvCache* cache = nullptr;
  int64_t rows = 1;
  float* queries = nullptr;  // if not null: receives the queries of the watched heads in the last of the rows
};

// A pre-norm decoder-only transformer (spec 4, 5, 7.3): grouped-query attention, RoPE in split-half pairing, SiLU-gated
// MLP. Config and weights decide on q/k norm, biases, LayerScale and a sliding window. Used by talker, code predictor
// and the codec's pre-transformer.
//
// Holds views of the weights, and scratch memory. Not thread-safe.
class Transformer {
 public:
  // Products use the packer's arithmetic, or F32 on the mapped weights if `packer` is null.
  Transformer(const TransformerConfig& config, const TransformerWeights& weights, ThreadPool& pool,
              WeightPacker* packer = nullptr);

  // Runs the rows of `sequences`, consecutive in x [rows of all][hidden], through all layers and the final norm, in
  // place, and extends the caches. A row attends to its own sequence only. Its result does not depend on how the
  // sequence is split into calls. May throw std::bad_alloc.
  void Forward(std::span<const SequenceRows> sequences, float* x);

  // Sets the heads whose queries, after norm and RoPE, are copied to SequenceRows::queries: [heads][head_dim], in this
  // order. No other result changes.
  void Watch(std::span<const QueryHead> heads) { watched_.assign(heads.begin(), heads.end()); }
  size_t watched() const { return watched_.size(); }

  const TransformerConfig& config() const { return config_; }

  // Returns the cost of one row at `position`, in multiply-adds of a matrix product.
  int64_t RowWork(int64_t position) const;

 private:
  struct Layer {
    Layer(const TransformerLayerWeights& weights, WeightPacker* packer);

    std::vector<float> input_norm, post_norm;
    Linear q, k, v, o;
    std::vector<float> q_norm, k_norm;  // empty: none
    Linear gate, up, down;
    std::vector<float> attention_scale, mlp_scale;  // empty: none
  };
  // One row of the current call.
  struct Row {
    KvCache* cache = nullptr;
    int64_t position = 0;
    float* queries = nullptr;  // see SequenceRows; null but for the last row of a sequence
  };

  void PlaceRows(std::span<const SequenceRows> sequences);
  void Attention(int index, float* x);
  void CopyQueries(int index, const Row& row, const float* q) const;
  void AttendRow(int index, int64_t row, int64_t first_head, int64_t end_head);
  void Mlp(const Layer& layer, float* x);
  // Computes x += scale * branch_, row by row; no scale if `scale` is empty.
  void AddBranch(const std::vector<float>& scale, float* x);
  // Computes the cosines, then the sines, of the angles of `position`: [head_dim].
  void RotationOf(int64_t position, float* rotation) const;

  TransformerConfig config_;
  ThreadPool& pool_;
  std::vector<Layer> layers_;
  std::vector<float> final_norm_;
  std::vector<float> inverse_frequencies_;  // [head_dim / 2]
  std::vector<QueryHead> watched_;
  std::vector<float> first_rotations_;  // precomputed for the first positions; the predictor needs no others

  // Scratch for the rows of one call.
  std::vector<Row> rows_;
  std::vector<float> rotations_;  // [rows][head_dim]
  std::vector<float> normed_;     // [rows][hidden]
  std::vector<float> q_, k_, v_;
  std::vector<float> attended_;  // [rows][q_width]
  std::vector<float> gate_, up_;
  std::vector<float> branch_;  // [rows][hidden]
};

}  // namespace qtts::cpu

#endif  // QTTS_CPU_TRANSFORMER_H_
