// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CHECKPOINT_TRANSFORMER_CONFIG_H_
#define QTTS_CHECKPOINT_TRANSFORMER_CONFIG_H_

// Included by kernels, which take minutes to compile, so it includes little.
namespace qtts {

// The sizes of one decoder-only transformer (spec 4, 5, 7.3). Widths are in elements.
struct TransformerConfig {
  int hidden_size = 0;
  int intermediate_size = 0;
  int num_layers = 0;
  int num_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  int max_positions = 0;
  int sliding_window = 0;  // keys that a query attends to, itself included; 0 = all
  float rms_norm_eps = 0;
  float rope_theta = 0;
  bool attention_bias = false;
  bool qk_norm = true;  // RMSNorm on each head of q and k, before RoPE

  int q_width() const { return num_heads * head_dim; }
  int kv_width() const { return num_kv_heads * head_dim; }
};

}  // namespace qtts

#endif  // QTTS_CHECKPOINT_TRANSFORMER_CONFIG_H_
