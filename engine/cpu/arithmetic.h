// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CPU_ARITHMETIC_H_
#define QTTS_CPU_ARITHMETIC_H_

namespace qtts::cpu {

// Arithmetic of the CPU backend's matrix products. Norms, attention, sampling and embeddings always use F32. Heads have
// 8 bits with kInt8 and kInt4, else F32.
enum class Arithmetic {
  kF32,   // reference: F32 activations and sums, weights in the dtype of the file
  kBF16,  // activations rounded to BF16, products of BF16 summed in F32; needs HasBF16Products()
  kInt8,  // 8-bit weights, one scale per group of 64; 16-bit activations; integer sums per group, F32 across groups
  kInt4,  // 4-bit weights, one scale per group of 32; 16-bit activations; sums as for kInt8
};

}  // namespace qtts::cpu

#endif  // QTTS_CPU_ARITHMETIC_H_
