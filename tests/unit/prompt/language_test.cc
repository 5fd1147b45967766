// SPDX-License-Identifier: LGPL-2.1-or-later
#include "prompt/language.h"

#include <gtest/gtest.h>

#include <string_view>

namespace qtts {
namespace {

TEST(LanguageTest, TagsOfTheOfficialLanguages) {
  for (const auto& [tag, name] : {std::pair<std::string_view, std::string_view>{"de", "german"},
                                  {"de-AT", "german"},
                                  {"DE-Latn-ch", "german"},
                                  {"en-US-x-private", "english"},
                                  {"zh", "chinese"},
                                  {"zh-Hant-TW", "chinese"},
                                  {"zh-cmn-Hans", "chinese"},
                                  {"cmn", "chinese"},
                                  {"ja-JP", "japanese"},
                                  {"ko", "korean"},
                                  {"fr-CA", "french"},
                                  {"pt-BR", "portuguese"},
                                  {"ru", "russian"},
                                  {"es-419", "spanish"},
                                  {"it", "italian"},
                                  {"und", "auto"}}) {
    EXPECT_EQ(LanguageOfTag(tag), name) << tag;
  }
}

TEST(LanguageTest, WhatIsNoSuchTag) {
  for (const std::string_view text : {"", "-", "german", "d", "de-", "de--AT", "de_DE", "de AT", "nl", "yue", "zh-yue",
                                      "zh-min-nan", "auto", "en-averylongsubtag", "\xC3\xA4"}) {
    EXPECT_EQ(LanguageOfTag(text), "") << text;
  }
}

TEST(LanguageTest, TheTagOfAName) {
  for (const std::string_view name : {"chinese", "english", "german", "italian", "portuguese", "spanish", "japanese",
                                      "korean", "french", "russian"}) {
    EXPECT_EQ(LanguageOfTag(TagOfLanguage(name)), name);
  }
  EXPECT_EQ(TagOfLanguage("chinese"), "zh");
  EXPECT_EQ(TagOfLanguage("beijing_dialect"), "");
}

}  // namespace
}  // namespace qtts
