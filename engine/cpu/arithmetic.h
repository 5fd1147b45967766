// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CPU_ARITHMETIC_H_
#define QTTS_CPU_ARITHMETIC_H_

namespace qtts::cpu {

// How the CPU backend multiplies. Norms, attention, sampling, embeddings and heads are F32 arithmetic in all.
enum class Arithmetic {
  kF32,   // F32 activations and sums, weights in the dtype they come in: the reference
  kBF16,  // activations rounded to BF16, products of BF16 pairs summed in F32; needs HasBF16Products()
  kInt8,  // weights in 8 bits with a scale for each group of 64, activations in 16, sums in integers and F32
  kInt4,  // weights in 4 bits with a scale for each group of 32, activations in 16
};

}  // namespace qtts::cpu

#endif  // QTTS_CPU_ARITHMETIC_H_
