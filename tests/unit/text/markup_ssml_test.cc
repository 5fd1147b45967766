// SPDX-License-Identifier: LGPL-2.1-or-later
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>

#include "qtts/markup.h"
#include "text/markup/ssml_values.h"
#include "unit/text/markup_documents.h"

namespace qtts {
namespace {

using std::chrono::milliseconds;

ReadDocument Ssml(std::string_view text) { return ReadGrowing(text, OptionsOf(Markup::kSsml)); }

TEST(Ssml, SpeaksADocumentWithoutItsTags) {
  const ReadDocument document = Ssml(ReadTestFile("talk.ssml"));
  EXPECT_EQ(
      document.text,
      "Welcome to the museum & the garden.|The World Wide Web Consortium meets at fourteen thirty.|{code}Your code "
      "is 4 8 2 1.<750>It is the third one.|Good evening. She said Guten Abend. Very quietly. ding 1 < 2 is "
      "true.{end}|");
  EXPECT_EQ(document.warnings.size(), 2U);  // emphasis, audio
}

TEST(Ssml, SwitchesVoiceLanguageVolumeAndRateWhereTheyStand) {
  const ReadDocument document = Ssml(
      "<speak xml:lang='en-GB'>One <voice name='ryan grace'>two <lang xml:lang='de'>drei</lang></voice> "
      "<prosody volume='soft'>four <prosody volume='+6dB' rate='slow'>five</prosody></prosody></speak>");
  std::vector<MarkupItem> texts;
  for (const MarkupItem& item : document.items) {
    if (item.kind == MarkupItem::Kind::kText) texts.push_back(item);
  }
  ASSERT_EQ(texts.size(), 5U);
  EXPECT_EQ(texts[0].settings, (MarkupSettings{"en-GB", {}, 1}));
  EXPECT_EQ(texts[1].settings, (MarkupSettings{"en-GB", {"ryan", "grace"}, 1}));
  EXPECT_EQ(texts[2].settings, (MarkupSettings{"de", {"ryan", "grace"}, 1}));
  EXPECT_EQ(texts[3].settings, (MarkupSettings{"en-GB", {}, 0.5}));
  EXPECT_EQ(texts[3].settings.rate, 1);
  EXPECT_NEAR(texts[4].settings.gain, 0.998, 0.001);
  EXPECT_EQ(texts[4].settings.rate, 0.75);
}

TEST(Ssml, MapsASubstituteToWhatItStandsFor) {
  const std::string text = "<speak>See <sub alias=\"World Wide Web\">W3</sub> now.</speak>";
  const ReadDocument document = Ssml(text);
  ASSERT_EQ(document.plain, "See World Wide Web now.");
  TextMap map;
  map.Append(document.map);
  const auto [begin, end] = map.SourceOf(10, 14);  // "Wide"
  EXPECT_EQ(CharactersOf(text, begin, end), "W3");
  const auto [next, last] = map.SourceOf(19, 22);
  EXPECT_EQ(CharactersOf(text, next, last), "now");
}

TEST(Ssml, ReadsBreaks) {
  EXPECT_EQ(Ssml("a<break time='1.5s'/>b").text, "a<1500>b|");
  EXPECT_EQ(Ssml("a<break strength='x-weak'/>b<break/>c<break strength=\"none\"/>d").text, "a<100>b<400>cd|");
  const ReadDocument odd = Ssml("a<break time='soon'/>b");
  EXPECT_EQ(odd.text, "ab|");
  ASSERT_EQ(odd.warnings.size(), 1U);
  EXPECT_EQ(odd.warnings[0], "SSML: break time \"soon\" is ignored; write \"500ms\" or \"1.5s\"");
  EXPECT_EQ(Ssml("a<break time='99h'/>b<break time='3000s'/>c").text, "ab<600000>c|");
}

TEST(Ssml, SaysAs) {
  const auto say = [](const std::string& kind, const std::string& text) {
    std::string plain = Ssml("<say-as interpret-as=\"" + kind + "\">" + text + "</say-as>").plain;
    return plain;
  };
  EXPECT_EQ(say("characters", "ab-1"), "A B dash 1");
  EXPECT_EQ(say("spell-out", "FBI"), "F B I");
  EXPECT_EQ(say("digits", "007 is 12"), "0 0 7 is 1 2");
  EXPECT_EQ(say("telephone", "+1 (555) 123"), "plus 1, 5 5 5, 1 2 3");
  EXPECT_EQ(say("cardinal", "482913"), "four hundred eighty-two thousand nine hundred thirteen");
  EXPECT_EQ(say("cardinal", "-1,200"), "minus one thousand two hundred");
  EXPECT_EQ(say("ordinal", "21"), "twenty-first");
  EXPECT_EQ(say("ordinal", "3rd"), "third");
  EXPECT_EQ(say("time", "07:05"), "seven oh five");
  EXPECT_EQ(say("date\" format=\"dmy", "3/4/2024"), say("date\" format=\"ymd", "2024-04-03"));
  EXPECT_EQ(say("date\" format=\"mdy", "03152024"), say("date\" format=\"ymd", "20240315"));
  EXPECT_EQ(say("date\" format=\"mdy", "a date"), "a date");
  const ReadDocument unknown = Ssml("<say-as interpret-as='song'>la</say-as><say-as interpret-as='song'>la</say-as>");
  EXPECT_EQ(unknown.plain, "lala");
  EXPECT_EQ(unknown.warnings.size(), 1U);
  EXPECT_EQ(Ssml("<speak xml:lang='de'><say-as interpret-as='ordinal'>3</say-as></speak>").plain, "dritte");
}

TEST(Ssml, TellsOnceWhatItDoesNotKnow) {
  const ReadDocument document =
      Ssml("<speak><amazon:effect name='x'>one</amazon:effect> <w>two</w> <w>three</w></speak>");
  EXPECT_EQ(document.plain, "one two three");
  EXPECT_EQ(document.warnings,
            (std::vector<std::string>{"SSML: <amazon:effect> is not supported, its content is spoken",
                                      "SSML: <w> is not supported, its content is spoken"}));
}

struct Broken {
  const char* document;
  const char* plain;
  const char* problem;
};

// One clear error, and nothing is lost.
TEST(Ssml, SpeaksAllOfABrokenDocument) {
  static constexpr Broken kCases[] = {
      {"<speak>One <lang>two</speak> three", "One two three", "line 1, character 28"},
      {"<speak>One & two</speak>", "One & two", "\"&\" stands for itself only as \"&amp;\""},
      {"<speak>One &foo; two</speak>", "One &foo; two", "\"&foo\" is no character"},
      {"<speak>1 < 2 <p2>yes</b></speak>", "1 < 2 yes", "\"<\" stands for itself only as \"&lt;\""},
      {"<speak>One <break time=5/>two</speak>", "One two", "line 1"},
      {"<speak>\nOne <voice name=\"x>two</voice>\nthree</speak>", "One two three", "line 3"},
      {"<speak>One", "One", "the document ends within <speak>"},
      {"<speak>One <bre", "One", "the document ends within a tag"},
      {"<!DOCTYPE speak [<!ENTITY x SYSTEM \"file:///etc/passwd\">]><speak>&x; One</speak>", "&x; One",
       "a document type declaration"},
      {"One <![CDATA[two]] three", "One two]] three", "CDATA"},
      {"</speak>One", "One", "line 1"},
  };
  for (const Broken& broken : kCases) {
    const ReadDocument document = Ssml(broken.document);
    EXPECT_EQ(document.plain, broken.plain) << broken.document;
    ASSERT_EQ(document.warnings.size(), 1U) << broken.document;
    EXPECT_NE(document.warnings[0].find(broken.problem), std::string::npos) << document.warnings[0];
    EXPECT_NE(document.warnings[0].find("From there on tags are left out"), std::string::npos);
  }
}

TEST(Ssml, BoundsDepthAndTags) {
  std::string deep;
  for (int i = 0; i < 100; ++i) deep += "<p>";
  const ReadDocument document = Ssml(deep + "One");
  EXPECT_EQ(document.plain, "One");
  ASSERT_EQ(document.warnings.size(), 1U);
  EXPECT_NE(document.warnings[0].find("nested deeper than 64"), std::string::npos);
  const ReadDocument wide = Ssml("<p a=\"" + std::string(20000, 'x') + "\">One</p>");
  EXPECT_EQ(wide.warnings.size(), 1U);
  EXPECT_NE(wide.plain.find("One"), std::string::npos);
  const std::string text = std::string(5000, 'y');
  EXPECT_EQ(Ssml("<sub alias='z'>" + text + "</sub>").plain, text);
}

TEST(Ssml, GivesTextOutBeforeTheNextTag) {
  MarkupReader reader(OptionsOf(Markup::kSsml));
  ASSERT_TRUE(reader.Append("<speak>Hello wor").ok());
  const std::vector<MarkupItem> items = reader.Take();
  ASSERT_EQ(items.size(), 1U);
  EXPECT_EQ(items[0].text, "Hello wor");
}

TEST(Ssml, IsTheSameHoweverItIsCut) {
  std::mt19937 rng(1);
  CheckDocument(ReadTestFile("talk.ssml"), OptionsOf(Markup::kSsml), &rng, 20);
  static constexpr const char* kPieces[] = {"<speak>",
                                            "</speak>",
                                            "<p>",
                                            "</p>",
                                            "<break time='1s'/>",
                                            "word ",
                                            "&amp;",
                                            "&",
                                            "<",
                                            ">",
                                            "\"",
                                            "<sub alias='x'>",
                                            "</sub>",
                                            "<!-- c -->",
                                            "<![CDATA[",
                                            "]]>",
                                            "\n",
                                            "é",
                                            "<voice name=\"a>",
                                            "<say-as interpret-as='digits'>",
                                            "</say-as>",
                                            "12",
                                            "<?pi?>",
                                            "<!D",
                                            "=",
                                            "<mark name='m'/>",
                                            "]",
                                            "-"};
  std::uniform_int_distribution<size_t> pick(0, std::size(kPieces) - 1);
  std::uniform_int_distribution<int> count(0, 25);
  for (int i = 0; i < 2000; ++i) {
    std::string text;
    for (int k = count(rng); k > 0; --k) text += kPieces[pick(rng)];
    ASSERT_NO_FATAL_FAILURE(CheckDocument(text, OptionsOf(Markup::kSsml), &rng, 2));
  }
}

TEST(SsmlValues, Parse) {
  EXPECT_EQ(ParseBreakTime(" 250ms "), milliseconds(250));
  EXPECT_EQ(ParseBreakTime("+1s"), milliseconds(1000));
  for (const char* const wrong : {"", "5", "-1s", "1.2.3s", "s", "1m", "1 s"})
    EXPECT_FALSE(ParseBreakTime(wrong)) << wrong;
  EXPECT_EQ(ParseVolume("silent", 1), 0);
  EXPECT_EQ(ParseVolume("50", 1), 0.5);
  EXPECT_NEAR(*ParseVolume("-6dB", 1), 0.501, 0.001);
  EXPECT_NEAR(*ParseVolume("+10%", 0.5), 0.55, 1e-9);
  EXPECT_EQ(ParseVolume("+90dB", 1), 4);
  for (const char* const wrong : {"", "high", "1x", "dB"}) EXPECT_FALSE(ParseVolume(wrong, 1)) << wrong;
  EXPECT_EQ(ParseRate("x-slow", 2), 0.5);
  EXPECT_EQ(ParseRate(" medium ", 2), 1);
  EXPECT_EQ(ParseRate("x-fast", 1), 1.75);
  EXPECT_EQ(ParseRate("80%", 2), 0.8);
  EXPECT_EQ(ParseRate("1.5", 2), 1.5);
  EXPECT_NEAR(*ParseRate("+10%", 2), 2.2, 1e-9);
  EXPECT_NEAR(*ParseRate("-20%", 1), 0.8, 1e-9);
  EXPECT_EQ(ParseRate("0.01", 1), 0.25);
  EXPECT_EQ(ParseRate("900%", 1), 4);
  for (const char* const wrong : {"", "quick", "+0.5", "2x", "%", "-"}) EXPECT_FALSE(ParseRate(wrong, 1)) << wrong;
}

TEST(ResolveMarkup, NeverGuessesOnPlainText) {
  EXPECT_EQ(ResolveMarkup(Markup::kAuto, "<speak>Hi", false), Markup::kSsml);
  EXPECT_EQ(ResolveMarkup(Markup::kAuto, "\xEF\xBB\xBF \n<?xml version='1.0'?><!-- x -->\n<speak version='1'>", false),
            Markup::kSsml);
  EXPECT_EQ(ResolveMarkup(Markup::kAuto, "<spe", false), std::nullopt);
  EXPECT_EQ(ResolveMarkup(Markup::kAuto, "<spe", true), Markup::kNone);
  EXPECT_EQ(ResolveMarkup(Markup::kAuto, "<?xml", false), std::nullopt);
  EXPECT_EQ(ResolveMarkup(Markup::kAuto, "<?xml" + std::string(5000, ' '), false), Markup::kNone);
  for (const char* const plain : {"# Heading", "<b>bold</b>", "**x**", "1\n00:00:01,000 --> 00:00:02,000", "a <speak>",
                                  "<speaker>", "<?xml version='1.0'?><html>"}) {
    EXPECT_EQ(ResolveMarkup(Markup::kAuto, plain, true), Markup::kNone) << plain;
  }
  EXPECT_EQ(ResolveMarkup(Markup::kMarkdown, "<speak>", false), Markup::kMarkdown);
}

}  // namespace
}  // namespace qtts
