// SPDX-License-Identifier: LGPL-2.1-or-later
#include "sampling/philox.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <set>

namespace qtts {
namespace {

using Words = std::array<uint32_t, 4>;

Words Cipher(const Words& counter, uint32_t key0, uint32_t key1) {
  const PhiloxWords out = Philox4x32({{counter[0], counter[1], counter[2], counter[3]}}, key0, key1);
  return {out.v[0], out.v[1], out.v[2], out.v[3]};
}

// The known-answer vectors that the authors of Philox published for philox4x32 with 10 rounds.
TEST(PhiloxTest, KnownAnswers) {
  EXPECT_EQ(Cipher({0, 0, 0, 0}, 0, 0), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Cipher({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, 0xffffffff, 0xffffffff),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Cipher({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0xa4093822, 0x299f31d0),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(PhiloxTest, DrawDependsOnEveryCoordinate) {
  const std::set<uint32_t> draws = {
      DrawBits(1, 2, 3, 4, DrawPurpose::kGumbel),
      DrawBits(2, 2, 3, 4, DrawPurpose::kGumbel),
      DrawBits(uint64_t{1} << 32 | 1, 2, 3, 4, DrawPurpose::kGumbel),
      DrawBits(1, 3, 3, 4, DrawPurpose::kGumbel),
      DrawBits(1, 2, 4, 4, DrawPurpose::kGumbel),
      DrawBits(1, 2, 3, 5, DrawPurpose::kGumbel),
  };
  EXPECT_EQ(draws.size(), 6U);
}

TEST(PhiloxTest, UnitIntervalExcludesBothEnds) {
  EXPECT_EQ(UnitInterval(0), 0.5F / 8388608.0F);
  EXPECT_GT(UnitInterval(0), 0.0F);
  EXPECT_LT(UnitInterval(0xffffffff), 1.0F);
  EXPECT_EQ(1.0 - static_cast<double>(UnitInterval(0xffffffff)), 0.5 / 8388608.0);
}

}  // namespace
}  // namespace qtts
