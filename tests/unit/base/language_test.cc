// SPDX-License-Identifier: LGPL-2.1-or-later
#include "qtts/language.h"

#include <gtest/gtest.h>

#include <string_view>
#include <tuple>

namespace qtts {
namespace {

// Check: 42
TEST(LanguageTest, NamesAndTagsOfTheOfficialLanguages) {
  for (const auto& [asked, name, tag] :
       {std::tuple<std::string_view, std::string_view, std::string_view>{"de", "german", "de"},
        {"german", "german", "de"},
        {"German", "german", "de"},
        {"de-AT", "german", "de"},
        {"DE-Latn-ch", "german", "de"},
        {"en-US-x-private", "english", "en"},
        {"EN-us", "english", "en"},
        {"ENGLISH", "english", "en"},
        {"zh", "chinese", "zh"},
        {"zh-Hant-TW", "chinese", "zh"},
        {"zh-cmn-Hans", "chinese", "zh"},
        {"cmn", "chinese", "zh"},
        {"cmn-Hans", "chinese", "zh"},
        {"chinese", "chinese", "zh"},
        {"ja-JP", "japanese", "ja"},
        {"japanese", "japanese", "ja"},
        {"ko", "korean", "ko"},
        {"korean", "korean", "ko"},
        {"fr-CA", "french", "fr"},
        {"french", "french", "fr"},
        {"pt-BR", "portuguese", "pt"},
        {"portuguese", "portuguese", "pt"},
        {"ru", "russian", "ru"},
        {"russian", "russian", "ru"},
        {"es-419", "spanish", "es"},
        {"spanish", "spanish", "es"},
        {"it", "italian", "it"},
        {"italian", "italian", "it"},
        {"und", "auto", ""},
        {"UND-Latn", "auto", ""},
        {"auto", "auto", ""},
        {"Auto", "auto", ""},
        {"", "auto", ""}}) {
    const Language language = ResolveLanguage(asked);
    EXPECT_EQ(language.name, name) << asked;
    EXPECT_EQ(language.tag, tag) << asked;
  }
}

// Check: 42
TEST(LanguageTest, WhatIsNoSuchLanguage) {
  for (const std::string_view text :
       {"-", "d", "de-", "de--AT", "de_DE", "de AT", "nl", "yue", "zh-yue", "zh-min-nan", "cmn-yue", "auto-DE",
        "german-AT", "english ", "beijing_dialect", "en-averylongsubtag", "\xC3\xA4"}) {
    EXPECT_EQ(ResolveLanguage(text).name, "") << text;
    EXPECT_EQ(ResolveLanguage(text).tag, "") << text;
  }
}

}  // namespace
}  // namespace qtts
