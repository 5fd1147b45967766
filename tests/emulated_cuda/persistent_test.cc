// SPDX-License-Identifier: LGPL-2.1-or-later
#include <gtest/gtest.h>

#include "persistent_frames.h"

// The kernel of cards before compute capability 9.0, whose warps copy the weights.
namespace qtts::cuda::persistent {
namespace {

TEST(EmulatedPersistentKernelTest, AnyNumberOfBlocks) {
  Comparison<kPersistentHidden, 1> of_one(5);
  of_one.FoldedIsEqual(16, 6);
  of_one.FoldedIsEqual(103, 6);
}

TEST(EmulatedPersistentKernelTest, LongContext) { Comparison<kPersistentHidden, 1>(1500).FoldedIsEqual(28, 3); }

TEST(EmulatedPersistentKernelTest, TwoRows) { Comparison<kPersistentHidden, 2>(300).FoldedIsEqual(17, 6); }

TEST(EmulatedPersistentKernelTest, EightRows) { Comparison<kPersistentHidden, 8>(120).FoldedIsEqual(28, 4); }

TEST(EmulatedPersistentKernelTest, WeightsOf8Bits) {
  Comparison<kPersistentHidden, 1, Int8Weights> frames(5);
  frames.FoldedIsEqual(58, 9);
  EXPECT_TRUE((Comparison<kPersistentHidden, 1, ValuesOfInt8>(5).expected() == frames.expected()));
}

}  // namespace
}  // namespace qtts::cuda::persistent
