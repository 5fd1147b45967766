// SPDX-License-Identifier: LGPL-2.1-or-later
#include "text/text_feed.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "golden/vocabulary/released_vocabulary.h"
#include "unit/text/random_text.h"

namespace qtts {
namespace {

using std::string_literals::operator""s;
using Ids = std::vector<int32_t>;

std::shared_ptr<const Tokenizer> Released(TokenizerPattern pattern) {
  static const auto native = *Tokenizer::Create(ReleasedVocabulary(), TokenizerPattern::kNative);
  static const auto patched = *Tokenizer::Create(ReleasedVocabulary(), TokenizerPattern::kPatched);
  return pattern == TokenizerPattern::kNative ? native : patched;
}

class TextFeedTest : public ::testing::Test {
 protected:
  Ids Whole(std::string_view text) const {
    auto ids = tokenizer_->EncodePlain("assistant\n" + std::string(text));
    return ids.ok() ? *ids : Ids{};
  }
  std::shared_ptr<const Tokenizer> tokenizer_ = Released(TokenizerPattern::kNative);
};

void AppendTo(Ids* all, const Ids& more) { all->insert(all->end(), more.begin(), more.end()); }

TEST_F(TextFeedTest, IdsAppearAsSoonAsTheyAreDecided) {
  TextFeed feed(tokenizer_);
  ASSERT_TRUE(feed.Append("Hel").ok());
  EXPECT_EQ(feed.TakeIds(), (Ids{77091, 198}));  // the role
  ASSERT_TRUE(feed.Append("lo").ok());
  EXPECT_EQ(feed.TakeIds(), Ids());
  ASSERT_TRUE(feed.Append(", ").ok());
  EXPECT_EQ(feed.TakeIds(), (Ids{9707, 11}));
  ASSERT_TRUE(feed.Append("world.").ok());
  EXPECT_EQ(feed.TakeIds(), (Ids{1879}));
  EXPECT_FALSE(feed.finished());
  ASSERT_TRUE(feed.Finish().ok());
  EXPECT_TRUE(feed.finished());
  EXPECT_EQ(feed.TakeIds(), (Ids{13}));
  ASSERT_TRUE(feed.Finish().ok());
  EXPECT_EQ(feed.TakeIds(), Ids());
}

TEST_F(TextFeedTest, EndsOfTokensAreThoseOfTheText) {
  const std::string text = "Hello, world: caf\xC3\xA9 and caf\x65\xCC\x81, twice.";
  TextFeed whole(tokenizer_);
  ASSERT_TRUE(whole.AppendLast(text).ok());
  const Ids ids = whole.TakeIds();
  const std::vector<size_t> expected = whole.TakeEnds();
  ASSERT_EQ(expected.size(), ids.size());
  EXPECT_EQ(expected[0], 0U) << "the role";
  EXPECT_EQ(expected[1], 0U);
  EXPECT_EQ(expected[2], 5U);
  EXPECT_EQ(expected.back(), text.size());
  for (size_t size = 1; size < 6; ++size) {
    TextFeed feed(tokenizer_);
    Ids all;
    std::vector<size_t> ends;
    const auto take = [&] {
      AppendTo(&all, feed.TakeIds());
      for (const size_t end : feed.TakeEnds()) ends.push_back(end);
    };
    for (size_t at = 0; at < text.size(); at += size) {
      ASSERT_TRUE(feed.Append(std::string_view(text).substr(at, size)).ok());
      take();
    }
    ASSERT_TRUE(feed.Finish().ok());
    take();
    EXPECT_EQ(all, ids);
    EXPECT_EQ(ends, expected) << size;
  }
}

TEST_F(TextFeedTest, NewlinesInFrontJoinTheRole) {
  TextFeed feed(tokenizer_);
  ASSERT_TRUE(feed.Append("\n").ok());
  ASSERT_TRUE(feed.Append("A").ok());
  ASSERT_TRUE(feed.Finish().ok());
  EXPECT_EQ(feed.TakeIds(), (Ids{77091, 271, 32}));
}

TEST_F(TextFeedTest, ControlTokensAreSpelledOut) {
  TextFeed feed(tokenizer_);
  ASSERT_TRUE(feed.Append("<|im_").ok());
  ASSERT_TRUE(feed.Append("end|> x").ok());
  ASSERT_TRUE(feed.Finish().ok());
  const Ids ids = feed.TakeIds();
  EXPECT_EQ(ids, Whole("<|im_end|> x"));
  for (const int32_t id : ids) EXPECT_LT(id, 151643);
}

TEST_F(TextFeedTest, NoTextAtAll) {
  TextFeed feed(tokenizer_);
  ASSERT_TRUE(feed.Append("").ok());
  ASSERT_TRUE(feed.Finish().ok());
  EXPECT_TRUE(feed.blank());
  EXPECT_EQ(feed.TakeIds(), (Ids{77091, 198}));
}

TEST_F(TextFeedTest, Blank) {
  TextFeed feed(tokenizer_);
  EXPECT_TRUE(feed.blank());
  ASSERT_TRUE(feed.Append(" \n\xE3").ok());
  EXPECT_TRUE(feed.blank());
  ASSERT_TRUE(feed.Append("\x80").ok());
  ASSERT_TRUE(feed.Append("\x80\t").ok());  // U+3000 is complete
  EXPECT_TRUE(feed.blank());
  ASSERT_TRUE(feed.Append("\0"s).ok());
  EXPECT_FALSE(feed.blank());
  ASSERT_TRUE(feed.Append(" ").ok());
  EXPECT_FALSE(feed.blank());

  TextFeed cut(tokenizer_);
  ASSERT_TRUE(cut.Append(" \xE3\x80").ok());
  EXPECT_TRUE(cut.blank());
  ASSERT_TRUE(cut.Finish().ok());  // the cut sequence is U+FFFD now
  EXPECT_FALSE(cut.blank());
}

TEST_F(TextFeedTest, TextAfterTheEndIsAnError) {
  TextFeed feed(tokenizer_);
  ASSERT_TRUE(feed.Finish().ok());
  EXPECT_EQ(feed.Append("x").code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(feed.AppendLast("x").code(), StatusCode::kInvalidArgument);
}

TEST_F(TextFeedTest, AnyCutGivesTheIdsOfTheWhole) {
  std::mt19937 rng(10);  // seed 10
  for (const TokenizerPattern pattern : {TokenizerPattern::kNative, TokenizerPattern::kPatched}) {
    tokenizer_ = Released(pattern);
    for (int i = 0; i < 4000; ++i) {
      const std::string text = i % 2 == 0 ? RandomBytes(&rng, 30) : RandomText(&rng, 30);
      std::uniform_int_distribution<size_t> length(0, i % 4 < 2 ? 1 : 9);
      TextFeed feed(tokenizer_);
      Ids ids;
      for (std::string_view rest = text; !rest.empty();) {
        const std::string_view piece = rest.substr(0, length(rng));
        ASSERT_TRUE(feed.Append(piece).ok());
        rest.remove_prefix(piece.size());
        if (i % 3 == 0) AppendTo(&ids, feed.TakeIds());
      }
      ASSERT_TRUE(feed.Finish().ok());
      AppendTo(&ids, feed.TakeIds());
      ASSERT_EQ(ids, Whole(text)) << RepairUtf8(text);

      TextFeed two(tokenizer_);
      const size_t cut = std::min(text.size(), length(rng) * 3);
      ASSERT_TRUE(two.Append(std::string_view(text).substr(0, cut)).ok());
      ASSERT_TRUE(two.AppendLast(std::string_view(text).substr(cut)).ok());
      EXPECT_TRUE(two.finished());
      EXPECT_EQ(two.blank(), feed.blank());
      ASSERT_EQ(two.TakeIds(), Whole(text)) << RepairUtf8(text);
    }
  }
}

TEST_F(TextFeedTest, TextLongerThanOneCallOfTheTokenizer) {
  std::string text;
  Ids expected = Whole("");
  const std::string sentence = "Sch\u00F6n e\u0301, it's 中文; ";
  auto ids = tokenizer_->EncodePlain(sentence);
  ASSERT_TRUE(ids.ok());
  // A sentence's last space begins the next one's first word.
  auto again = tokenizer_->EncodePlain(" " + sentence.substr(0, sentence.size() - 1));
  auto first = tokenizer_->EncodePlain(sentence.substr(0, sentence.size() - 1));
  auto last = tokenizer_->EncodePlain(" ");
  ASSERT_TRUE(again.ok() && first.ok() && last.ok());
  AppendTo(&expected, *first);
  text = sentence;
  while (text.size() < 5 * Tokenizer::kMaxTextBytes) {
    text += sentence;
    AppendTo(&expected, *again);
  }
  AppendTo(&expected, *last);
  TextFeed feed(tokenizer_);
  ASSERT_TRUE(feed.Append(text).ok());
  ASSERT_TRUE(feed.Finish().ok());
  EXPECT_EQ(feed.TakeIds(), expected);

  TextFeed at_once(tokenizer_);
  ASSERT_TRUE(at_once.AppendLast(text).ok());
  EXPECT_EQ(at_once.TakeIds(), expected);
}

TEST_F(TextFeedTest, ATooLongWordIsRefusedAndLeavesTheFeedAsItWas) {
  TextFeed feed(tokenizer_);
  ASSERT_TRUE(feed.Append("one two").ok());
  const std::string word(Tokenizer::kMaxTextBytes, 'x');
  for (const std::string& text : {word, " three" + word, word + " four"}) {
    const Status status = feed.Append(text);
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status.message();
    EXPECT_EQ(feed.AppendLast(text).code(), StatusCode::kResourceExhausted);
    EXPECT_FALSE(feed.finished());
  }
  ASSERT_TRUE(feed.Append("s").ok());
  ASSERT_TRUE(feed.Finish().ok());
  EXPECT_EQ(feed.TakeIds(), Whole("one twos"));
}

TEST_F(TextFeedTest, ALongWordMayFillTheRoom) {
  TextFeed feed(tokenizer_);
  const std::string word(Tokenizer::kMaxTextBytes - 1, 'x');
  ASSERT_TRUE(feed.Append(word).ok());
  ASSERT_TRUE(feed.Append(" y").ok());
  ASSERT_TRUE(feed.Finish().ok());
  Ids expected = Whole("");
  AppendTo(&expected, *tokenizer_->EncodePlain(word));
  AppendTo(&expected, *tokenizer_->EncodePlain(" y"));
  EXPECT_EQ(feed.TakeIds(), expected);
}

// The role takes two ids.
// Check: 32
TEST_F(TextFeedTest, IdsAreLimited) {
  const auto ids_of = [&](const std::string& text) { return Whole(text).size(); };
  const std::string text = "one two three four five six seven";
  for (const size_t limit : {ids_of(text), ids_of(text) - 1}) {
    SCOPED_TRACE(limit);
    const bool fits = limit == ids_of(text);
    TextFeed whole(tokenizer_, limit);
    const Status status = whole.AppendLast(text);
    EXPECT_EQ(status.code(), fits ? StatusCode::kOk : StatusCode::kResourceExhausted) << status.message();
    TextFeed growing(tokenizer_, limit);
    Status grown;
    for (const char c : text) {
      if (grown.ok()) grown = growing.Append(std::string_view(&c, 1));
      growing.TakeIds();
    }
    if (grown.ok()) grown = growing.Finish();
    EXPECT_EQ(grown.code(), fits ? StatusCode::kOk : StatusCode::kResourceExhausted);
  }
  // Only a small part of a megabyte of text is read.
  TextFeed feed(tokenizer_, 1000);
  std::string longer;
  while (longer.size() < (size_t{1} << 20)) longer += text;
  const Status status = feed.AppendLast(longer);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("1000 positions"), std::string::npos) << status.message();
}

// Quadratic time would make this run for minutes.
TEST_F(TextFeedTest, HostileRunsByteByByte) {
  for (const char* unit : {"a", " ", "\n", "\u0301", "A中", "!", "e\u0301"}) {
    TextFeed feed(tokenizer_);
    std::string text;
    while (text.size() < 20000) text += unit;
    for (const char c : text) ASSERT_TRUE(feed.Append(std::string_view(&c, 1)).ok());
    ASSERT_TRUE(feed.Finish().ok());
    EXPECT_EQ(feed.TakeIds(), Whole(text)) << unit;
  }
}

}  // namespace
}  // namespace qtts
