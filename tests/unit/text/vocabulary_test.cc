// SPDX-License-Identifier: LGPL-2.1-or-later
#include "text/vocabulary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "golden/vocabulary/released_vocabulary.h"

namespace qtts {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Bytes, "ab" (256), "abc" (257), "de" (258) and one added token (259).
VocabularyFiles Small() { return MakeVocabulary("a b\nab c\nd e\n", {"<|x|>"}); }

std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

void ExpectError(const VocabularyFiles& files, StatusCode code, const ::testing::Matcher<std::string>& message) {
  const auto result = ParseVocabulary(files);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), code) << result.status().message();
  EXPECT_THAT(result.status().message(), message);
}

TEST(Vocabulary, Small) {
  const auto vocabulary = ParseVocabulary(Small());
  ASSERT_TRUE(vocabulary.ok()) << vocabulary.status().message();
  ASSERT_EQ(vocabulary->pieces.size(), 259U);
  EXPECT_EQ(vocabulary->pieces[0], "!");
  EXPECT_EQ(vocabulary->pieces[257], "abc");
  EXPECT_EQ(vocabulary->ranks[0], Vocabulary::kByte);
  EXPECT_EQ(vocabulary->ranks[257], 1);
  ASSERT_EQ(vocabulary->added.size(), 1U);
  EXPECT_EQ(vocabulary->added[0].id, 259);
  EXPECT_EQ(vocabulary->added[0].content, "<|x|>");
}

TEST(Vocabulary, MergesMayHaveAHeaderBlankLinesAndCarriageReturns) {
  VocabularyFiles files = Small();
  files.merges = "#version: 0.2\r\na b\r\n\r\n  ab   c \r\nd e";
  const auto vocabulary = ParseVocabulary(files);
  ASSERT_TRUE(vocabulary.ok()) << vocabulary.status().message();
  EXPECT_EQ(vocabulary->ranks[258], 2);
}

TEST(Vocabulary, IdsNeedNotFollowTheMerges) {
  VocabularyFiles files = Small();
  files.vocab = Replaced(Replaced(files.vocab, R"("ab":256)", R"("ab":258)"), R"("de":258)", R"("de":256)");
  const auto vocabulary = ParseVocabulary(files);
  ASSERT_TRUE(vocabulary.ok()) << vocabulary.status().message();
  EXPECT_EQ(vocabulary->ranks[256], 2);
  EXPECT_EQ(vocabulary->ranks[258], 0);
}

TEST(Vocabulary, PiecesThatNoMergeMakesAreUnreachable) {
  VocabularyFiles files = Small();
  files.merges = "a b\nab c\n";
  const auto vocabulary = ParseVocabulary(files);
  ASSERT_TRUE(vocabulary.ok()) << vocabulary.status().message();
  EXPECT_EQ(vocabulary->ranks[258], Vocabulary::kUnreachable);
}

TEST(Vocabulary, AddedIdsMayLeaveGapsAndRepeatAPiece) {
  VocabularyFiles files = Small();
  files.config =
      R"({"added_tokens_decoder": {"9000": {"content": "<far>"}, "300": {"content": "<near>"}, "257": {"content": "abc"}}})";
  const auto vocabulary = ParseVocabulary(files);
  ASSERT_TRUE(vocabulary.ok()) << vocabulary.status().message();
  ASSERT_EQ(vocabulary->added.size(), 3U);
  EXPECT_EQ(vocabulary->added[0].id, 257);
  EXPECT_EQ(vocabulary->added[2].id, 9000);
}

TEST(VocabularyErrors, VocabJson) {
  const auto expect = [](const std::string& vocab, const ::testing::Matcher<std::string>& message) {
    VocabularyFiles files = Small();
    files.vocab = vocab;
    ExpectError(files, StatusCode::kCorruptModel, AllOf(HasSubstr("vocab.json"), message));
  };
  const std::string good = Small().vocab;
  expect("", HasSubstr("not valid JSON"));
  expect(good.substr(0, 300), HasSubstr("not valid JSON: error at byte"));
  expect(good + "x", HasSubstr("not valid JSON"));
  expect("7", HasSubstr("holds a number"));
  expect("[1]", HasSubstr("expected an object"));
  expect("{}", HasSubstr("for byte 0"));
  expect(Replaced(good, "\"#\":2,", "\"#\":-2,"), AllOf(HasSubstr("\"#\""), HasSubstr("-2")));
  expect(Replaced(good, "\"#\":2,", "\"#\":2.5,"), AllOf(HasSubstr("\"#\""), HasSubstr("2.5")));
  expect(Replaced(good, "\"#\":2,", "\"#\":\"2\","), AllOf(HasSubstr("\"#\""), HasSubstr("a string")));
  expect(Replaced(good, "\"#\":2,", "\"#\":{},"), AllOf(HasSubstr("\"#\""), HasSubstr("an object")));
  expect(Replaced(good, "\"#\":2,", "\"#\":[],"), AllOf(HasSubstr("\"#\""), HasSubstr("an array")));
  expect(Replaced(good, "\"#\":2,", "\"#\":true,"), AllOf(HasSubstr("\"#\""), HasSubstr("a boolean")));
  expect(Replaced(good, "\"#\":2,", "\"#\":null,"), AllOf(HasSubstr("\"#\""), HasSubstr("null")));
  expect(Replaced(good, "\"#\":2,", "\"#\":99999999999,"), AllOf(HasSubstr("\"#\""), HasSubstr("99999999999")));
  expect(Replaced(good, "\"#\":2,", "\"#\":99999999999999999999999,"), HasSubstr("\"#\""));
  expect(Replaced(good, "\"#\":2,", "\"#\":259,"), AllOf(HasSubstr("\"#\""), HasSubstr("0 to 258")));
  expect(Replaced(good, "\"#\":2,", "\"#\":3,"), AllOf(HasSubstr("\"#\""), HasSubstr("\"$\""), HasSubstr("same id 3")));
  expect(Replaced(good, "\"#\":2,", "\"$\":2,"), HasSubstr("\"$\" occurs twice"));
  expect(Replaced(good, "\"#\":2,", "\"xy\":2,"), AllOf(HasSubstr("no piece \"#\""), HasSubstr("byte 35")));
  expect(Replaced(good, "\"abc\":257", "\"a c\":257"), AllOf(HasSubstr("\"a c\""), HasSubstr("byte alphabet")));
  expect(Replaced(good, "\"abc\":257", "\"\":257"), HasSubstr("byte alphabet"));
  expect(Replaced(good, "\"abc\":257", "\"\u4E2D\":257"), HasSubstr("\"\u4E2D\""));
  expect(Replaced(good, "\"abc\":257", "\"\\ud83d\":257"), HasSubstr("not valid JSON"));
}

TEST(VocabularyErrors, LongKeysAreCutInMessages) {
  VocabularyFiles files = Small();
  files.vocab = Replaced(files.vocab, "\"#\":2,", "\"" + std::string(5000, 'q') + "\":-1,");
  const auto result = ParseVocabulary(files);
  ASSERT_FALSE(result.ok());
  EXPECT_LT(result.status().message().size(), 300U);
}

TEST(VocabularyErrors, MergesTxt) {
  const auto expect = [](const std::string& merges, StatusCode code, const ::testing::Matcher<std::string>& message) {
    VocabularyFiles files = Small();
    files.merges = merges;
    ExpectError(files, code, AllOf(HasSubstr("merges.txt:"), message));
  };
  expect("a b\nab\n", StatusCode::kCorruptModel, AllOf(HasSubstr(":2:"), HasSubstr("found 1")));
  expect("a b\nab c d\n", StatusCode::kCorruptModel, AllOf(HasSubstr(":2:"), HasSubstr("found 3")));
  expect("a b\n#version: 2\n", StatusCode::kCorruptModel, HasSubstr(":2:"));
  expect("a b\nqq c\n", StatusCode::kCorruptModel, AllOf(HasSubstr(":2:"), HasSubstr("\"qq\"")));
  expect("a b\nab qq\n", StatusCode::kCorruptModel, AllOf(HasSubstr(":2:"), HasSubstr("\"qq\"")));
  expect("a b\nb a\n", StatusCode::kCorruptModel, AllOf(HasSubstr(":2:"), HasSubstr("\"ba\"")));
  expect("a b\n\na b\n", StatusCode::kUnsupported, AllOf(HasSubstr(":3:"), HasSubstr("after line 1")));
  expect("ab c\na b\n", StatusCode::kUnsupported, AllOf(HasSubstr(":1:"), HasSubstr("no earlier line makes")));
}

TEST(VocabularyErrors, MergesOnWhichSentencePieceWouldNotBeExact) {
  // By the list, "abc" never occurs: b and c are joined first. By pieces, a and bc would become "abc".
  ExpectError(MakeVocabulary("b c\na b\nab c\n", {}), StatusCode::kUnsupported,
              AllOf(HasSubstr("merges.txt:3:"), HasSubstr("line 1 comes first")));
  EXPECT_TRUE(ParseVocabulary(MakeVocabulary("b c\na b\na bc\n", {})).ok());
  // A run of one letter is joined from the left: the pair is "aa" and "a", never "a" and "aa".
  ExpectError(MakeVocabulary("a a\na aa\n", {}), StatusCode::kUnsupported, HasSubstr("merges.txt:2:"));
  EXPECT_TRUE(ParseVocabulary(MakeVocabulary("a a\naa a\naa aa\naaa aa\n", {})).ok() == false);
  EXPECT_TRUE(ParseVocabulary(MakeVocabulary("a a\naa aa\naaaa aaaa\n", {})).ok());
}

TEST(VocabularyErrors, TokenizerConfig) {
  const auto expect = [](const std::string& config, StatusCode code, const ::testing::Matcher<std::string>& message) {
    VocabularyFiles files = Small();
    files.config = config;
    ExpectError(files, code, AllOf(HasSubstr("tokenizer_config.json"), message));
  };
  const auto corrupt = [&](const std::string& config, const ::testing::Matcher<std::string>& message) {
    expect(config, StatusCode::kCorruptModel, message);
  };
  corrupt("", HasSubstr("not a JSON object"));
  corrupt("[]", HasSubstr("not a JSON object"));
  corrupt("{", HasSubstr("not a JSON object"));
  corrupt(std::string(100000, '['), HasSubstr("not a JSON object"));
  corrupt("{}", HasSubstr("no key \"added_tokens_decoder\""));
  corrupt(R"({"added_tokens_decoder": []})", HasSubstr("not an object"));
  const auto token = [](const std::string& key, const std::string& value) {
    return R"({"added_tokens_decoder": {")" + key + R"(": )" + value + "}}";
  };
  for (const char* key : {"", "x", "-1", "0300", "300x", "3e2", "16777217", "99999999999999999999"}) {
    corrupt(token(key, R"({"content": "<x>"})"), AllOf(HasSubstr(key), HasSubstr("not an id")));
  }
  corrupt(token("300", "7"), AllOf(HasSubstr("\"300\""), HasSubstr("expected an object")));
  corrupt(token("300", "{}"), AllOf(HasSubstr("\"300\""), HasSubstr("\"content\"")));
  corrupt(token("300", R"({"content": ""})"), HasSubstr("\"content\""));
  corrupt(token("300", R"({"content": 5})"), HasSubstr("\"content\""));
  corrupt(token("300", R"({"content": "<x>", "lstrip": 1})"), HasSubstr("\"lstrip\""));
  corrupt(token("257", R"({"content": "<x>"})"), AllOf(HasSubstr("\"<x>\""), HasSubstr("\"abc\"")));
  corrupt(R"({"added_tokens_decoder": {"300": {"content": "<x>"}, "301": {"content": "<x>"}}})",
          AllOf(HasSubstr("\"<x>\""), HasSubstr("twice")));
  for (const char* flag : {"lstrip", "rstrip", "single_word"}) {
    expect(token("300", R"({"content": "<x>", ")" + std::string(flag) + R"(": true})"), StatusCode::kUnsupported,
           AllOf(HasSubstr("\"300\""), HasSubstr(flag)));
  }
  expect(R"({"add_prefix_space": true, "added_tokens_decoder": {}})", StatusCode::kUnsupported,
         HasSubstr("add_prefix_space"));
  std::string many = R"({"added_tokens_decoder": {)";
  for (int i = 0; i < 5000; ++i) many += (i > 0 ? ",\"" : "\"") + std::to_string(1000 + i) + "\": 0";
  expect(many + "}}", StatusCode::kUnsupported, HasSubstr("5000 entries"));
}

}  // namespace
}  // namespace qtts
