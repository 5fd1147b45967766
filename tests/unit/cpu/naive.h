// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TESTS_UNIT_CPU_NAIVE_H_
#define QTTS_TESTS_UNIT_CPU_NAIVE_H_

#include <cstdint>
#include <vector>

#include "checkpoint/weights.h"

// A second implementation of the model, from doc/model.md: whole sequences at once, in double precision, not optimised.
// The reference of the backend's tests. Shares no code with the backend.
namespace qtts::naive {

using Vector = std::vector<double>;
using Matrix = std::vector<Vector>;  // rows

// y = W x + b, for each row of x.
Matrix Linear(const LinearWeights& weights, const Matrix& x);

// Spec 4, 5 and 7.3: all layers and the final norm over a whole sequence from position 0.
Matrix Transformer(const TransformerConfig& config, const TransformerWeights& weights, Matrix x);

// The same for the last row of one head in `layer`: q·k / √head_dim against each position of x, before the softmax.
Vector Scores(const TransformerConfig& config, const TransformerWeights& weights, Matrix x, int layer, int head);

// Spec 3: T(id), the projected text embedding.
Vector Text(const TalkerWeights& weights, int32_t id);

// Row `row` of a table.
Vector Row(const TensorView& table, int32_t row);

// Spec 7: codes [frames][groups] to samples.
Vector Codec(const CodecConfig& config, const CodecWeights& weights, const std::vector<int32_t>& codes);

}  // namespace qtts::naive

#endif  // QTTS_TESTS_UNIT_CPU_NAIVE_H_
