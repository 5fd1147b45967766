// SPDX-License-Identifier: LGPL-2.1-or-later
#include "backend/slot_table.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace qtts {
namespace {

TEST(SlotTableTest, SlotsAreFoundByIdsOfTheirOwn) {
  SlotTable<int> slots("CPU", 2);
  ASSERT_TRUE(slots.CheckFree().ok());
  const SlotId first = slots.Add(7).first;
  const SlotId second = slots.Add(8).first;
  EXPECT_EQ(**slots.Get(first), 7);
  EXPECT_EQ(*slots.Find(second), 8);
  EXPECT_EQ(slots.CheckFree().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(slots.CheckFree().message(), "the CPU backend already has 2 utterances; wait for one to end");

  slots.Remove(first);
  EXPECT_TRUE(slots.CheckFree().ok());
  EXPECT_EQ(slots.Find(first), nullptr);
  EXPECT_EQ(slots.Get(first).status().message(), "slot " + std::to_string(first) + " is not open");
  const SlotId third = slots.Add(9).first;
  EXPECT_NE(third, first);
  EXPECT_NE(third, second);
}

TEST(SlotTableTest, StepsAreOfOpenSlotsOnceEach) {
  SlotTable<int> slots("GPU", 3);
  const SlotId a = slots.Add(1).first;
  const SlotId b = slots.Add(2).first;
  EXPECT_TRUE(slots.CheckSteps(std::vector<FrameStep>{{a, kNoText}, {b, 1}}).ok());
  EXPECT_EQ(slots.CheckSteps(std::vector<FrameStep>{{a, 1}, {b, 1}, {a, 1}}).message(),
            "slot " + std::to_string(a) + " appears twice in one submission");
  slots.Remove(b);
  EXPECT_EQ(slots.CheckSteps(std::vector<FrameStep>{{a, 1}, {b, 1}}).message(),
            "slot " + std::to_string(b) + " is not open");
}

}  // namespace
}  // namespace qtts
