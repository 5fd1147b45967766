// SPDX-License-Identifier: LGPL-2.1-or-later
#include "qtts/text_check.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace qtts {
namespace {

// Characters that are spoken, by Unicode's general category.
// Check: 45
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

const std::vector<std::string> kEnglish = {"english"};
const std::vector<std::string> kReleased = {"chinese",  "english", "french",     "german",  "italian",
                                            "japanese", "korean",  "portuguese", "russian", "spanish"};
const std::string kChinese = "你好，世界。";
const std::string kRussian = "Привет, мир!";

// Check: 53
TEST(LanguageWarning, ScriptsOfTheModelsLanguagesAreWritten) {
  const struct {
    const char* text;
    const char* script;  // the script that an English model cannot speak; empty: none
    bool released;       // whether the released models can
  } cases[] = {{"你好，世界。", "Han", true},
               {"こんにちは", "Hiragana", true},
               {"カタカナー", "Katakana", true},
               {"안녕하세요", "Hangul", true},
               {"Привет, мир!", "Cyrillic", true},
               {"Γειά σου Κόσμε", "Greek", false},
               {"שלום עולם", "Hebrew", false},
               {"مرحبا بالعالم", "Arabic", false},
               {"नमस्ते दुनिया", "Devanagari", false},
               {"สวัสดีชาวโลก", "Thai", false},
               {"\U00020000\U00020001", "Han", true},
               {"7 你好", "Han", true},
               {"Привет, world!", "Cyrillic", true},  // half of the letters and more
               {"Hello, world!", "", true},
               {"Ｈｅｌｌｏ", "", true},
               {"12:30, $5 & 100 %", "", true},
               {"\U0001F642", "", true},
               {"5 µm", "", true},
               {"The Greek letter α is alpha.", "", true},
               {"The city of 北京 is large.", "", true},
               {"", "", true}};
  for (const auto& c : cases) {
    SCOPED_TRACE(c.text);
    const std::string warning = LanguageWarning(c.text, kEnglish, "");
    if (*c.script == '\0') {
      EXPECT_EQ(warning, "");
    } else {
      EXPECT_EQ(warning.find("The text is in " + std::string(c.script) + " script. This model speaks English, "), 0U)
          << warning;
    }
    EXPECT_EQ(LanguageWarning(c.text, kReleased, "").empty(), c.released);
  }
}

// Check: 53
TEST(LanguageWarning, OtherLatinLanguagesAreToldByAForeignLetterAndTheirTrigrams) {
  const struct {
    const char* text;
    const char* language;  // expected language; empty: taken for English, or too short to judge
  } cases[] = {{"Je voudrais réserver une table pour deux personnes, s'il vous plaît.", "French"},
               {"Où est la bibliothèque ? Je l’ai cherchée partout, mais je ne l’ai pas trouvée.", "French"},
               {"Die Straße ist leider für Fußgänger und für Radfahrer gesperrt.", "German"},
               {"Buenos días, me llamo José y vivo en Madrid desde hace siete años.", "Spanish"},
               {"Vi ses på stationen i morgon bitti klockan åtta, om tåget är i tid.", "Swedish"},
               // Too short.
               {"Ça va ?", ""},
               // English letters only.
               {"Le train part demain matin et arrive dans la soirée", "French"},
               {"Bonjour, comment allez-vous aujourd'hui mon cher ami ?", ""},
               {"The naïve fiancé ate a soufflé and crème brûlée at the café in Málaga.", ""},
               {"El Niño and La Niña are climate patterns in the tropical Pacific Ocean.", ""},
               {"Please leave your message after the tone, and we will call you back.", ""}};
  for (const auto& c : cases) {
    SCOPED_TRACE(c.text);
    const std::string warning = LanguageWarning(c.text, kEnglish, "auto");
    if (*c.language == '\0') {
      EXPECT_EQ(warning, "");
    } else {
      EXPECT_EQ(warning.find("The text looks like another language. This model speaks English, "), 0U) << warning;
    }
    EXPECT_EQ(LanguageWarning(c.text, kReleased, "").empty(),
              *c.language == '\0' || std::string(c.language) != "Swedish");
  }
}

// Check: 53
TEST(LanguageWarning, WhoNamesALanguageIsNotWarned) {
  for (const char* language : {"english", "EN-us", "german", "klingon"}) {
    EXPECT_EQ(LanguageWarning(kChinese, kEnglish, language), "") << language;
  }
  for (const char* language : {"", "auto", "Auto", "und"}) {
    EXPECT_NE(LanguageWarning(kChinese, kEnglish, language), "") << language;
  }
}

// Check: 53
TEST(LanguageWarning, AModelWithALanguageOfItsOwnIsNotJudged) {
  EXPECT_EQ(LanguageWarning(kChinese, {"english", "klingon"}, ""), "");
  EXPECT_EQ(LanguageWarning(kChinese, {}, ""), "");
}

// Check: 53
TEST(LanguageWarning, SaysWhatTheModelSpeaks) {
  EXPECT_EQ(LanguageWarning(kRussian, {"english", "french", "german"}, ""),
            "The text is in Cyrillic script. This model speaks English, French or German, so the speech will "
            "most likely be unintelligible. Choose a model of the text's language. Setting \"language\" silences this "
            "warning.");
}

}  // namespace
}  // namespace qtts
