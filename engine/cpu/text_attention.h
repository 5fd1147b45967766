// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CPU_TEXT_ATTENTION_H_
#define QTTS_CPU_TEXT_ATTENTION_H_

#include <cstdint>
#include <span>
#include <vector>

#include "backend/text_scores.h"
#include "cpu/kv_cache.h"
#include "cpu/transformer.h"

namespace qtts::cpu {

// Scores q·k / √head_dim of `head` in the cache's last row, whose query is `query` [head_dim] after norm and RoPE,
// against all positions that it sees. Returns the first of these positions.
int64_t ScorePositions(const KvCache& cache, const TransformerConfig& config, const QueryHead& head,
                       std::span<const float> query, std::vector<float>* scores);

// Returns the scores of the text in the cache's last row: see TextScores. Empty if nothing is wanted, or the row sees
// none of the text.
TextScores ScoreText(const KvCache& cache, const TransformerConfig& config, const QueryHead& head,
                     std::span<const float> query, const TextWindow& window);

}  // namespace qtts::cpu

#endif  // QTTS_CPU_TEXT_ATTENTION_H_
