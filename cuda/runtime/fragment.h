// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_RUNTIME_FRAGMENT_H_
#define QTTS_CUDA_RUNTIME_FRAGMENT_H_

// Operands and sums of the matrix instruction m16n8k16, as the 32 lanes of a warp hold them. Each type says how many
// rows and columns it has and which of them a lane holds, so that no kernel spells it out. constexpr: tests run them on
// the host.
//
//            k: 16                n: 8                     Lane l has the group g = l / 4 and the quad q = l % 4.
//        ┌──────────┐ m: 16   ┌──────┐ k: 16   ┌──────┐ m
//  sums += left     │      ×  │ right│     =   │ sums │    left: weights, right: activations in most kernels
//        └──────────┘         └──────┘         └──────┘
//
// wgmma has the same fragments: warp w of a warpgroup has rows 16 w to 16 w + 15, and sums of more than 8 columns are
// those of 8 columns one after the other.
namespace qtts::cuda {

// Four words of two 16-bit elements, which are neighbours in a row.
struct LeftFragment {
  static constexpr int kRows = 16, kColumns = 16, kWords = 4;
  static constexpr int Row(int lane, int word) { return lane / 4 + word % 2 * 8; }
  static constexpr int Column(int lane, int word) { return lane % 4 * 2 + word / 2 * 8; }  // and the next one
};

// Two words of two 16-bit elements, which are neighbours in a column.
struct RightFragment {
  static constexpr int kRows = 16, kColumns = 8, kWords = 2;
  static constexpr int Row(int lane, int word) { return lane % 4 * 2 + word * 8; }  // and the next one
  static constexpr int Column(int lane) { return lane / 4; }
};

// F32: four for each 8 columns.
struct SumFragment {
  static constexpr int kRows = 16, kColumns = 8, kOfLane = 4;
  static constexpr int kBytes = kRows * kColumns * 4;
  static constexpr int Row(int lane, int i) { return lane / 4 + i / 2 % 2 * 8; }
  static constexpr int Column(int lane, int i) { return i / 4 * 8 + lane % 4 * 2 + i % 2; }
};

// A chunk of either operand in memory: 8 rows of 32 columns, one unit of 16 bytes a lane. It serves two k-steps: words
// x and y of the unit are the lane's part of the first, z and w that of the second. The columns of a k-step therefore
// are not neighbours; both operands have them in the same order.
struct UnitFragment {
  static constexpr int kRows = 8, kColumns = 32;
  static constexpr int Row(int lane) { return lane / 4; }
  static constexpr int Column(int lane) { return lane % 4 * 8; }  // and the next seven
};

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_RUNTIME_FRAGMENT_H_
