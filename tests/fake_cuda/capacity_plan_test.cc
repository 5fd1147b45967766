// SPDX-License-Identifier: LGPL-2.1-or-later
#include "capacity_plan.h"

#include <gtest/gtest.h>

#include "runtime/device_numbers.h"

namespace qtts {
namespace {

using cuda::CapacityPlan;
using cuda::CodecCopies;
using cuda::DeviceNumbers;
using cuda::ManyRowsProducts;

struct PlanCase {
  int voices;
  int rows, captured_rows, ring_entries;
  int prompt_rows, predictor_logits, row_splits;
  int codec_rows;
  CodecCopies codec_copies;
};

DeviceNumbers CardWith(ManyRowsProducts products) {
  DeviceNumbers card = cuda::kH200Numbers;
  card.products.many_rows = products;
  card.attention.whole_contexts = products != ManyRowsProducts::kWarp;
  return card;
}

// Everything that the number of voices changes, for a model of 16 codes a frame and contexts of 32,768 positions.
TEST(CapacityPlan, VoicesToPlan) {
  ModelConfig model;
  model.talker.num_code_groups = 16;
  model.talker.transformer.max_positions = 32768;
  constexpr int kLogits = 15 * 64;
  constexpr PlanCase kCases[] = {
      {1, 64, 1, 32, 256, kLogits, 8192, 64, CodecCopies::kDecoderBlocks},
      {5, 64, 8, 32, 256, kLogits, 8192, 64, CodecCopies::kDecoderBlocks},
      {64, 64, 64, 32, 256, kLogits, 8192, 64, CodecCopies::kDecoderBlocks},
      {65, 96, 96, 8, 512, kLogits, 8192, 96, CodecCopies::kDecoderBlocks},
      {96, 96, 96, 8, 512, kLogits, 8192, 96, CodecCopies::kDecoderBlocks},
      {97, 128, 128, 8, 512, kLogits, 8192, 128, CodecCopies::kAll},
      {256, 256, 256, 8, 512, kLogits, 8192, 256, CodecCopies::kAll},
      {257, 384, 384, 8, 512, kLogits, 8192, 256, CodecCopies::kAll},
      {1000, 1024, 1024, 8, 512, 1024, 8192, 256, CodecCopies::kAll},
      {2048, 2048, 2048, 8, 512, 2048, 8192, 256, CodecCopies::kAll},
      {2049, 2048, 2048, 8, 512, 2048, 8192, 256, CodecCopies::kAll},
      {4096, 2048, 2048, 8, 512, 2048, 8192, 256, CodecCopies::kAll},
  };
  for (const PlanCase& c : kCases) {
    SCOPED_TRACE(c.voices);
    const CapacityPlan plan = Plan(c.voices, model, CardWith(ManyRowsProducts::kWarpgroup));
    EXPECT_EQ(plan.ring.rows, c.rows);
    EXPECT_EQ(plan.ring.entries, c.ring_entries);
    EXPECT_EQ(plan.captured_rows, c.captured_rows);
    EXPECT_EQ(plan.frame.slots, c.voices);
    EXPECT_EQ(plan.frame.rows, c.rows);
    EXPECT_EQ(plan.frame.prompt_rows, c.prompt_rows);
    EXPECT_EQ(plan.frame.predictor_logits, c.predictor_logits);
    EXPECT_EQ(plan.frame.row_splits, c.row_splits);
    EXPECT_TRUE(plan.weights.swizzled);
    EXPECT_EQ(plan.weights.library_rows, 0);
    EXPECT_EQ(plan.codec_rows, c.codec_rows);
    EXPECT_EQ(plan.codec_copies, c.codec_copies);
  }
}

// The kernels for many rows change what there is beside the rows.
TEST(CapacityPlan, KernelsToPlan) {
  ModelConfig model;
  model.talker.num_code_groups = 16;
  model.talker.transformer.max_positions = 32768;
  const CapacityPlan own = Plan(1024, model, CardWith(ManyRowsProducts::kWarp));
  EXPECT_FALSE(own.weights.swizzled);
  EXPECT_EQ(own.frame.prompt_rows, 512) << "several prompts share a pass with any kernels";
  EXPECT_EQ(own.frame.row_splits, 16 * 1024) << "contexts are cut";
  const CapacityPlan few_own = Plan(64, model, CardWith(ManyRowsProducts::kWarp));
  EXPECT_EQ(few_own.frame.row_splits, 8192);
  // Where there are no warpgroups, memory may be scarce.
  EXPECT_EQ(own.codec_rows, 256);
  EXPECT_EQ(few_own.codec_rows, 64);
  EXPECT_EQ(Plan(5, model, CardWith(ManyRowsProducts::kWarp)).codec_rows, 8);
  EXPECT_EQ(Plan(1, model, CardWith(ManyRowsProducts::kWarp)).codec_rows, 1);
  const CapacityPlan library = Plan(1024, model, CardWith(ManyRowsProducts::kLibrary));
  EXPECT_FALSE(library.weights.swizzled);
  EXPECT_EQ(library.frame.prompt_rows, 512);
  EXPECT_EQ(library.weights.library_rows, 2048) << "the predictor's first pass has two rows a stream";
  EXPECT_EQ(library.weights.likely_rows, 1024);
  EXPECT_EQ(Plan(1, model, CardWith(ManyRowsProducts::kLibrary)).weights.library_rows, 256) << "rows of a prompt";
  // Eight rows may have any context.
  model.talker.transformer.max_positions = 1 << 20;
  EXPECT_EQ(Plan(1, model, CardWith(ManyRowsProducts::kWarpgroup)).frame.row_splits, 8 * (1 << 17) / 64);
}

}  // namespace
}  // namespace qtts
