// SPDX-License-Identifier: LGPL-2.1-or-later
#define __CUDA_ARCH_FEAT_SM90_ALL  // before the kernel's headers, which choose by it

#include <gtest/gtest.h>

#include "persistent_frames.h"

// The kernel of compute capability 9.0, for which the hardware copies the weights.
namespace qtts::cuda::persistent {
namespace {

TEST(EmulatedBulkKernelTest, OneRow) { Comparison<kPersistentHidden, 1>(300).FoldedIsEqual(16, 7); }

TEST(EmulatedBulkKernelTest, WideTalker) { Comparison<2048, 1>(5).FoldedIsEqual(58, 6); }

}  // namespace
}  // namespace qtts::cuda::persistent
