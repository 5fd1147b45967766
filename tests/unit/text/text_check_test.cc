// SPDX-License-Identifier: LGPL-2.1-or-later
#include "qtts/text_check.h"

#include <gtest/gtest.h>

#include <string>

namespace qtts {
namespace {

// What is said, by Unicode's general category.
TEST(IsSayable, GeneralCategoriesDecide) {
  const struct {
    const char* text;
    const char* category;
    bool sayable;
  } cases[] = {{"A", "Lu", true},
               {"\xC3\xA4", "Ll", true},
               {"\xC7\x85", "Lt", true},
               {"\xE3\x83\xBC", "Lm", true},
               {"\xE4\xBD\xA0", "Lo", true},
               {"\xF0\xA0\x80\x80", "Lo beyond the basic plane", true},
               {"7", "Nd", true},
               {"\xE2\x85\xA7", "Nl", true},
               {"\xC2\xBD", "No", true},
               {"$", "Sc", true},
               {"\xE2\x82\xAC", "Sc", true},
               {"\xF0\xAF\xBF\xBD", "Cn: a letter some day", true},
               {"\xCC\x81", "Mn", false},
               {"\xE0\xA4\xBE", "Mc", false},
               {"\xE2\x83\x9D", "Me", false},
               {"_", "Pc", false},
               {"-", "Pd", false},
               {"(", "Ps", false},
               {")", "Pe", false},
               {"\xC2\xAB", "Pi", false},
               {"\xC2\xBB", "Pf", false},
               {"%", "Po", false},
               {"+", "Sm", false},
               {"^", "Sk", false},
               {"\xE2\x94\x80", "So: a line", false},
               {"\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x9A\x80", "So: a pictograph of several characters", false},
               {"\xEF\xBF\xBD", "So: what stands for bytes that were no text", false},
               {"\xC2\xA0", "Zs", false},
               {"\xE2\x80\xA8", "Zl", false},
               {"\xE2\x80\xA9", "Zp", false},
               {"\x01", "Cc", false},
               {"\xE2\x80\x8B\xE2\x81\xA0\xEF\xBB\xBF", "Cf: zero-width characters", false},
               {"\xEE\x80\x80", "Co", false},
               {"\xEF\xBF\xBE", "no character", false},
               {"", "nothing", false},
               {"!!!???", "P", false},
               {"+++---", "Sm, P", false}};
  const std::string silent = "!\xE2\x80\x8B\xE2\x80\xA6 ";
  for (const auto& c : cases) {
    SCOPED_TRACE(c.category);
    EXPECT_EQ(IsSayable(c.text), c.sayable);
    EXPECT_EQ(IsSayable(silent + c.text + silent), c.sayable);
  }
  EXPECT_TRUE(IsSayable("a\xCC\x81")) << "a mark on a letter";
}

}  // namespace
}  // namespace qtts
