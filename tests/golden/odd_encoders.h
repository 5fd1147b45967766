// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TESTS_GOLDEN_ODD_ENCODERS_H_
#define QTTS_TESTS_GOLDEN_ODD_ENCODERS_H_

#include <utility>
#include <vector>

namespace qtts::golden {

// For SetSize(): voice encoders whose widths are multiples of nothing that vectors or tiles are made of.
inline std::vector<std::pair<const char*, int>> OddEncoderSizes() {
  return {{"num_code_groups", 3},
          {"encoder.num_filters", 6},
          {"encoder.hidden_size", 22},
          {"encoder.num_attention_heads", 1},
          {"encoder.head_dim", 10},
          {"encoder.codebook_dim", 7},
          {"speaker_encoder.channels", 24},
          {"speaker_encoder.mfa_channels", 72},
          {"speaker_encoder.se_channels", 5}};
}

}  // namespace qtts::golden

#endif  // QTTS_TESTS_GOLDEN_ODD_ENCODERS_H_
