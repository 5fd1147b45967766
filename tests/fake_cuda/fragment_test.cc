// SPDX-License-Identifier: LGPL-2.1-or-later
#include "runtime/fragment.h"

#include <gtest/gtest.h>

#include <set>
#include <utility>

// The fragments of the matrix instructions: the lanes of a warp hold each element of an operand once.
namespace qtts {
namespace {

using cuda::LeftFragment;
using cuda::RightFragment;
using cuda::SumFragment;
using cuda::UnitFragment;

using Places = std::set<std::pair<int, int>>;  // row, column

// Checks that `places`, of which `count` were added, are all rows and columns.
void ExpectAll(const Places& places, size_t count, int rows, int columns) {
  EXPECT_EQ(count, places.size()) << "an element is held twice";
  EXPECT_EQ(places.size(), static_cast<size_t>(rows) * static_cast<size_t>(columns));
  for (const auto& [row, column] : places) {
    EXPECT_TRUE(row >= 0 && row < rows && column >= 0 && column < columns) << row << " " << column;
  }
}

TEST(Fragment, LanesHoldEachElementOfAnOperandOnce) {
  Places left, right, sums;
  size_t lefts = 0, rights = 0, of_sums = 0;
  for (int lane = 0; lane < 32; ++lane) {
    for (int next = 0; next < 2; ++next) {
      for (int word = 0; word < LeftFragment::kWords; ++word, ++lefts) {
        left.emplace(LeftFragment::Row(lane, word), LeftFragment::Column(lane, word) + next);
      }
      for (int word = 0; word < RightFragment::kWords; ++word, ++rights) {
        right.emplace(RightFragment::Row(lane, word) + next, RightFragment::Column(lane));
      }
    }
    for (int i = 0; i < SumFragment::kOfLane; ++i, ++of_sums) {
      sums.emplace(SumFragment::Row(lane, i), SumFragment::Column(lane, i));
    }
  }
  ExpectAll(left, lefts, LeftFragment::kRows, LeftFragment::kColumns);
  ExpectAll(right, rights, RightFragment::kRows, RightFragment::kColumns);
  ExpectAll(sums, of_sums, SumFragment::kRows, SumFragment::kColumns);
}

// wgmma's sums of 128 columns are those of 8 columns one after the other.
TEST(Fragment, WideSumsAreHeldOnce) {
  constexpr int kColumns = 128;
  Places sums;
  size_t count = 0;
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < kColumns / 2; ++i, ++count) {
      sums.emplace(SumFragment::Row(lane, i), SumFragment::Column(lane, i));
    }
  }
  ExpectAll(sums, count, SumFragment::kRows, kColumns);
}

// A lane multiplies its own words of both operands: k-step by k-step their columns are the same for all lanes of a
// quad.
TEST(Fragment, UnitsOfBothOperandsHaveTheSameColumns) {
  Places units;
  size_t count = 0;
  for (int lane = 0; lane < 32; ++lane) {
    for (int next = 0; next < 8; ++next, ++count) {
      units.emplace(UnitFragment::Row(lane), UnitFragment::Column(lane) + next);
    }
    EXPECT_EQ(UnitFragment::Row(lane), LeftFragment::Row(lane, 0));
    EXPECT_EQ(UnitFragment::Row(lane), RightFragment::Column(lane));
    for (int word = 0; word < 2; ++word) {
      EXPECT_EQ(LeftFragment::Column(lane, 2 * word), RightFragment::Row(lane, word));
    }
  }
  ExpectAll(units, count, UnitFragment::kRows, UnitFragment::kColumns);
}

}  // namespace
}  // namespace qtts
