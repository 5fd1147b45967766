// SPDX-License-Identifier: LGPL-2.1-or-later
#include "text/prepare/acronyms.h"

#include <gtest/gtest.h>

namespace qtts {
namespace {

TEST(AcronymsTest, WordsCanBePronounced) {
  for (const char* word : {"PLEASE", "DOOR", "NEVER", "STRENGTH", "THOUGHT", "WARNING", "SCHOOL", "TWELFTH", "RHYTHM",
                           "QUICK", "KNIGHT", "WORLD", "BIRTHDAY"}) {
    EXPECT_TRUE(IsPronounceable(word)) << word;
  }
}

TEST(AcronymsTest, LettersCannot) {
  for (const char* word : {"HTML", "XHTML", "NSFW", "LGBT", "IEEE", "HDMI", "MDMA", "YMCA", "ABC", "CRWTH", "PDFS"}) {
    EXPECT_FALSE(IsPronounceable(word)) << word;
  }
}

TEST(AcronymsTest, TablesDoNotOverlap) {
  for (const char* word : {"FBI", "USA", "HTML", "IBAN"}) {
    EXPECT_TRUE(IsSpelledAcronym(word)) << word;
    EXPECT_FALSE(IsSpokenAcronym(word)) << word;
  }
  for (const char* word : {"NASA", "NATO", "JSON"}) {
    EXPECT_TRUE(IsSpokenAcronym(word)) << word;
    EXPECT_FALSE(IsSpelledAcronym(word)) << word;
  }
  EXPECT_TRUE(IsKeptAcronym("JSON"));
  EXPECT_FALSE(IsKeptAcronym("NATO"));
  EXPECT_TRUE(IsShortWord("NOT"));
  EXPECT_FALSE(IsShortWord("XYZ"));
}

}  // namespace
}  // namespace qtts
