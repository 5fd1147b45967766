// SPDX-License-Identifier: LGPL-2.1-or-later
#include "checkpoint/description.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

namespace qtts {
namespace {

using ::testing::HasSubstr;

TalkerConfig TwoSpeakers() {
  TalkerConfig talker;
  talker.speakers = {{"clara", 1}, {"grace", 2}};
  talker.transformer.num_layers = 7;
  talker.transformer.num_heads = 4;
  return talker;
}

std::string Error(const std::string& text) {
  const auto description = ParseDescription("/m", text, TwoSpeakers());
  EXPECT_FALSE(description.ok()) << text;
  EXPECT_EQ(description.status().code(), StatusCode::kCorruptModel);
  EXPECT_THAT(description.status().message(), HasSubstr("/m/qttssrc.json: "));
  return description.status().message();
}

TEST(DescriptionTest, EverythingIsRead) {
  const auto description = ParseDescription(
      "/m", R"({"default_speaker": "Grace", "text": {"part_characters": 300, "prepare": true, "normalize": "spoken"}})",
      TwoSpeakers());
  ASSERT_TRUE(description.ok()) << description.status().message();
  EXPECT_EQ(description->default_speaker, "grace");
  EXPECT_EQ(description->text.part_characters, 300);
  EXPECT_EQ(description->text.steps, (TextSteps{true, true, true, true}));
}

TEST(DescriptionTest, NothingIsRequired) {
  for (const char* text : {"{}", R"({"text": {}})", R"({"text": {"prepare": false, "normalize": "none"}})"}) {
    const auto description = ParseDescription("/m", text, TwoSpeakers());
    ASSERT_TRUE(description.ok()) << description.status().message();
    EXPECT_EQ(*description, ModelDescription());
  }
}

TEST(DescriptionTest, AlignmentHead) {
  const auto description =
      ParseDescription("/m", R"({"alignment": {"layer": 6, "head": 3, "offset_ms": -20}})", TwoSpeakers());
  ASSERT_TRUE(description.ok()) << description.status().message();
  EXPECT_EQ(description->alignment, (AlignmentHead{6, 3, -20}));
  EXPECT_THAT(Error(R"({"alignment": {"layer": 7, "head": 0}})"), HasSubstr("alignment.layer is 7"));
  EXPECT_THAT(Error(R"({"alignment": {"layer": 0, "head": 4}})"), HasSubstr("alignment.head is 4"));
  EXPECT_THAT(Error(R"({"alignment": {"layer": 0, "head": 0, "offset_ms": 1001}})"), HasSubstr("alignment.offset_ms"));
  EXPECT_THAT(Error(R"({"alignment": {"layer": 0}})"), HasSubstr("alignment.head is missing"));
  EXPECT_THAT(Error(R"({"alignment": {"heads": 0}})"), HasSubstr("alignment has the unknown key 'heads'"));
  EXPECT_THAT(Error(R"({"alignment": true})"), HasSubstr("alignment is true, expected false or an object"));
}

TEST(DescriptionTest, LoudnessOfSpeakers) {
  const auto description = ParseDescription("/m", R"({"loudness": {"Grace": -20.5, "clara": -31}})", TwoSpeakers());
  ASSERT_TRUE(description.ok()) << description.status().message();
  EXPECT_EQ(description->loudness, (std::map<std::string, double>{{"clara", -31}, {"grace", -20.5}}));
  for (const char* text :
       {R"({"loudness": -20})", R"({"loudness": {"nobody": -20}})", R"({"loudness": {"grace": -71}})",
        R"({"loudness": {"grace": 10.5}})", R"({"loudness": {"grace": "-20"}})"}) {
    EXPECT_THAT(Error(text), HasSubstr("expected an object with numbers of LUFS from -70 to 10")) << text;
  }
}

TEST(DescriptionTest, HeadsOfReleasedCheckpoints) {
  TalkerConfig talker;
  talker.transformer.num_layers = 28;
  talker.transformer.num_heads = 16;
  talker.transformer.hidden_size = 2048;
  EXPECT_EQ(ParseDescription("/m", "{}", talker)->alignment, (AlignmentHead{3, 0, 20}));
  EXPECT_EQ(ParseDescription("/m", R"({"alignment": false})", talker)->alignment, std::nullopt);
  EXPECT_EQ(ParseDescription("/m", R"({"alignment": {"layer": 1, "head": 2}})", talker)->alignment,
            (AlignmentHead{1, 2, 0}));
  talker.transformer.hidden_size = 1024;
  EXPECT_EQ(ParseDescription("/m", "{}", talker)->alignment, (AlignmentHead{6, 5, 20}));
  talker.transformer.hidden_size = 256;
  EXPECT_EQ(ParseDescription("/m", "{}", talker)->alignment, std::nullopt);
}

TEST(DescriptionTest, StepsByName) {
  const auto description = ParseDescription("/m", R"({"text": {"prepare": ["symbols", "characters"]}})", TwoSpeakers());
  ASSERT_TRUE(description.ok());
  EXPECT_EQ(description->text.steps, (TextSteps{true, false, true, false}));
}

TEST(DescriptionTest, EachKeyAndValueIsChecked) {
  EXPECT_THAT(Error("nope"), HasSubstr("not valid JSON"));
  EXPECT_THAT(Error("[]"), HasSubstr("the document is [], expected an object"));
  EXPECT_THAT(Error(R"({"speaker": "grace"})"),
              HasSubstr("unknown key 'speaker', expected default_speaker, text, alignment"));
  EXPECT_THAT(Error(R"({"text": {"steps": true}})"), HasSubstr("text has the unknown key 'steps'"));
  EXPECT_THAT(Error(R"({"default_speaker": "ryan"})"), HasSubstr("default_speaker is \"ryan\", expected one of"));
  EXPECT_THAT(Error(R"({"default_speaker": 1})"), HasSubstr("default_speaker is 1, expected a string"));
  EXPECT_THAT(Error(R"({"text": 1})"), HasSubstr("text is 1, expected an object"));
  EXPECT_THAT(Error(R"({"text": {"part_characters": -1}})"), HasSubstr("text.part_characters is -1"));
  EXPECT_THAT(Error(R"({"text": {"prepare": "all"}})"),
              HasSubstr("text.prepare is \"all\", expected true, false or a list"));
  EXPECT_THAT(Error(R"({"text": {"prepare": ["numbers"]}})"), HasSubstr("text.prepare is [\"numbers\"]"));
  EXPECT_THAT(Error(R"({"text": {"normalize": "yes"}})"), HasSubstr("text.normalize is \"yes\""));
}

}  // namespace
}  // namespace qtts
