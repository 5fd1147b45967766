// SPDX-License-Identifier: LGPL-2.1-or-later
#include "text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "golden/vocabulary/released_vocabulary.h"
#include "text/vocabulary.h"
#include "unit/text/random_text.h"

namespace qtts {
namespace {

using std::string_literals::operator""s;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Ids = std::vector<int32_t>;
using TokenizerPtr = std::shared_ptr<const Tokenizer>;

constexpr TokenizerPattern kPatterns[] = {TokenizerPattern::kNative, TokenizerPattern::kPatched};

TokenizerPtr MakeTokenizer(const VocabularyFiles& files, TokenizerPattern pattern = TokenizerPattern::kNative) {
  auto tokenizer = Tokenizer::Create(files, pattern);
  if (tokenizer.ok()) return *tokenizer;
  ADD_FAILURE() << tokenizer.status().message();
  return nullptr;
}

const TokenizerPtr& ReleasedTokenizer(TokenizerPattern pattern = TokenizerPattern::kNative) {
  static const TokenizerPtr native = MakeTokenizer(ReleasedVocabulary(), TokenizerPattern::kNative);
  static const TokenizerPtr patched = MakeTokenizer(ReleasedVocabulary(), TokenizerPattern::kPatched);
  return pattern == TokenizerPattern::kNative ? native : patched;
}

Ids Plain(const Tokenizer& tokenizer, std::string_view text) {
  auto ids = tokenizer.EncodePlain(text);
  if (ids.ok()) return *ids;
  ADD_FAILURE() << ids.status().message();
  return {};
}

Ids Full(const Tokenizer& tokenizer, std::string_view text) {
  auto ids = tokenizer.Encode(text);
  if (ids.ok()) return *ids;
  ADD_FAILURE() << ids.status().message();
  return {};
}

std::string Decoded(const Tokenizer& tokenizer, const Ids& ids) {
  std::string text;
  for (const int32_t id : ids) text += tokenizer.Decode(id);
  return text;
}

// Spec 13.
TEST(Tokenizer, SpecVectors) {
  EXPECT_EQ(Plain(*ReleasedTokenizer(), "Hello, world."), (Ids{9707, 11, 1879, 13}));
  EXPECT_EQ(Plain(*ReleasedTokenizer(), "今天天气很好，我们去公园散步吧。"),
            (Ids{100644, 104307, 101243, 3837, 97639, 85336, 102077, 111261, 100003, 1773}));
  EXPECT_EQ(Plain(*ReleasedTokenizer(), "iPhone iPad eBay macOS"), (Ids{44740, 22271, 29906, 67178}));
  EXPECT_EQ(Plain(*ReleasedTokenizer(TokenizerPattern::kPatched), "iPhone iPad eBay macOS"),
            (Ids{72, 6939, 600, 13731, 384, 22587, 8978, 3126}));
  EXPECT_EQ(
      Full(*ReleasedTokenizer(), "<|im_start|>assistant\nHello there, friend.<|im_end|>\n<|im_start|>assistant\n"),
      (Ids{151644, 77091, 198, 9707, 1052, 11, 4238, 13, 151645, 198, 151644, 77091, 198}));
}

// tests/golden/record_tokenizer.py says how the expected ids were made.
TEST(Tokenizer, EqualsTheOfficialOneOnRecordedStrings) {
  std::ifstream file(QTTS_SOURCE_DIR "/tests/golden/data/tokenizer.json");
  const nlohmann::json golden = nlohmann::json::parse(file, nullptr, false);
  ASSERT_TRUE(golden.is_object());
  ASSERT_GT(golden["plain"].size(), 3000U);
  ASSERT_GT(golden["added"].size(), 100U);
  for (const char* list : {"plain", "added"}) {
    for (const nlohmann::json& entry : golden[list]) {
      const auto text = entry[0].get<std::string>();
      for (const TokenizerPattern pattern : kPatterns) {
        const bool own = pattern == TokenizerPattern::kPatched && entry.size() == 3;
        const Ids expected = entry[own ? 2 : 1].get<Ids>();
        EXPECT_EQ(Full(*ReleasedTokenizer(pattern), text), expected) << entry.dump();
        if (list == std::string_view("plain")) {
          EXPECT_EQ(Plain(*ReleasedTokenizer(pattern), text), expected) << entry.dump();
          EXPECT_EQ(Plain(*ReleasedTokenizer(pattern), text), expected) << "again, when it is known: " << entry.dump();
        }
      }
    }
  }
}

// BPE by the list of merges, slowly: repeatedly joins the first pair of lowest rank.
class SlowBpe {
 public:
  explicit SlowBpe(const std::string& merges) {
    std::string_view rest(merges);
    while (!rest.empty()) {
      const std::string_view line = rest.substr(0, rest.find('\n'));
      rest.remove_prefix(line.size() + 1);
      const size_t blank = line.find(' ');
      ranks_.emplace(std::pair(line.substr(0, blank), line.substr(blank + 1)), ranks_.size());
    }
  }
  std::vector<std::string> Encode(std::string_view word) const {
    std::vector<std::string> parts;
    for (const char c : word) parts.emplace_back(1, c);
    while (true) {
      size_t best = parts.size();
      size_t best_rank = ranks_.size();
      for (size_t i = 0; i + 1 < parts.size(); ++i) {
        const auto found = ranks_.find({parts[i], parts[i + 1]});
        if (found != ranks_.end() && found->second < best_rank) {
          best = i;
          best_rank = found->second;
        }
      }
      if (best == parts.size()) return parts;
      parts[best] += parts[best + 1];
      parts.erase(parts.begin() + static_cast<ptrdiff_t>(best) + 1);
    }
  }

 private:
  std::map<std::pair<std::string, std::string>, size_t> ranks_;
};

std::string RandomWord(std::mt19937* rng, size_t length, char last_letter) {
  std::uniform_int_distribution<int> letter('a', last_letter);
  std::string word;
  while (word.size() < length) word += static_cast<char>(letter(*rng));
  return word;
}

// Random lists of merges, mostly unlike trained ones. Accepted lists must give the same ids as the slow algorithm. A
// list is refused exactly if some merge's result never occurs.
TEST(Tokenizer, AcceptsExactlyTheMergesOnWhichItIsExact) {
  std::mt19937 rng(6);  // seed 6
  int accepted = 0;
  int refused = 0;
  for (int round = 0; round < 400; ++round) {
    std::vector<std::string> pieces = {"a", "b", "c"};
    std::set<std::string> made;
    std::string merges;
    for (int tries = std::uniform_int_distribution<int>(2, 14)(rng); tries > 0; --tries) {
      std::uniform_int_distribution<size_t> pick(0, pieces.size() - 1);
      const std::string left = pieces[pick(rng)];
      const std::string right = pieces[pick(rng)];
      if (!made.insert(left + right).second) continue;
      std::string line = left;
      line += ' ';
      line += right;
      merges += line + '\n';
      pieces.push_back(left + right);
    }
    const SlowBpe slow(merges);
    // Pieces alone would misread the vocabulary of such a list.
    const bool all_made =
        std::all_of(made.begin(), made.end(), [&](const std::string& p) { return slow.Encode(p).size() == 1; });
    const VocabularyFiles files = MakeVocabulary(merges, {});
    const auto tokenizer = Tokenizer::Create(files);
    ASSERT_EQ(tokenizer.ok(), all_made) << merges;
    if (!tokenizer.ok()) {
      EXPECT_EQ(tokenizer.status().code(), StatusCode::kUnsupported);
      ++refused;
      continue;
    }
    ++accepted;
    for (int i = 0; i < 50; ++i) {
      const std::string word = RandomWord(&rng, 1 + i % 25, 'd');
      std::vector<std::string> parts;
      for (const int32_t id : Plain(**tokenizer, word)) parts.push_back((*tokenizer)->Decode(id));
      ASSERT_EQ(parts, slow.Encode(word)) << merges << word;
    }
  }
  EXPECT_GT(accepted, 50);
  EXPECT_GT(refused, 50);
}

TEST(Tokenizer, UnreachablePiecesAreNeverProduced) {
  VocabularyFiles files = MakeVocabulary("a b\nab c\nd e\n", {});
  files.merges = "a b\nd e\n";  // "abc" stays in vocab.json
  const TokenizerPtr tokenizer = MakeTokenizer(files);
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(Decoded(*tokenizer, Plain(*tokenizer, "abcde")), "abcde");
  EXPECT_EQ(Plain(*tokenizer, "abcde"), (Ids{256, Plain(*tokenizer, "c")[0], 258}));
}

TEST(Tokenizer, DecodeGivesTheBytesBack) {
  std::mt19937 rng(7);  // seed 7
  for (int i = 0; i < 1000; ++i) {
    std::string text = RandomText(&rng, 30);
    const Ids ids = Plain(*ReleasedTokenizer(), text);
    // Decoding undoes everything except canonical composition, and composing twice changes nothing.
    EXPECT_EQ(Plain(*ReleasedTokenizer(), Decoded(*ReleasedTokenizer(), ids)), ids);
  }
  EXPECT_EQ(Decoded(*ReleasedTokenizer(), Plain(*ReleasedTokenizer(), "Grüße,\0 \n中文"s)), "Grüße,\0 \n中文"s);
  EXPECT_EQ(ReleasedTokenizer()->Decode(151644), "<|im_start|>");
  EXPECT_EQ(ReleasedTokenizer()->Decode(-1), "");
  EXPECT_EQ(ReleasedTokenizer()->Decode(151676), "");
  EXPECT_EQ(ReleasedTokenizer()->Decode(2147483647), "");
  EXPECT_EQ(ReleasedTokenizer()->vocab_size(), 151676);
}

TEST(Tokenizer, InvalidUtf8CountsAsReplacementCharacters) {
  std::mt19937 rng(8);  // seed 8
  for (int i = 0; i < 1000; ++i) {
    const std::string bytes = RandomBytes(&rng, 20);
    EXPECT_EQ(Plain(*ReleasedTokenizer(), bytes), Plain(*ReleasedTokenizer(), RepairUtf8(bytes)));
    EXPECT_EQ(Full(*ReleasedTokenizer(), bytes), Full(*ReleasedTokenizer(), RepairUtf8(bytes)));
  }
  EXPECT_EQ(Plain(*ReleasedTokenizer(), "a\xE4\xB8"), Plain(*ReleasedTokenizer(), "a\uFFFD"));
}

TEST(Tokenizer, ControlTokensInPlainTextAreSpelledOut) {
  const std::string text = "<|im_end|>\n<|im_start|>system <tts_pad><tts_text_eod>";
  const Ids ids = Plain(*ReleasedTokenizer(), text);
  EXPECT_EQ(Decoded(*ReleasedTokenizer(), ids), text);
  EXPECT_LT(*std::max_element(ids.begin(), ids.end()), 151643);
  EXPECT_EQ(Full(*ReleasedTokenizer(), "<|im_end|>a<tts_pad>"), (Ids{151645, 64, 151671}));
}

TEST(Tokenizer, TheLongestAddedTokenWins) {
  const TokenizerPtr tokenizer = MakeTokenizer(MakeVocabulary("", {"<a", "<a>", "<", "é"}));
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(Full(*tokenizer, "<a><ab<é"), (Ids{257, 256, Plain(*tokenizer, "b")[0], 258, 259}));
  EXPECT_EQ(tokenizer->AddedToken("<a"), 256);
  EXPECT_EQ(tokenizer->AddedToken("<a>"), 257);
  EXPECT_EQ(tokenizer->AddedToken("a"), -1);
  EXPECT_EQ(tokenizer->vocab_size(), 260);
}

TEST(Tokenizer, AddedTokensCutWords) {
  // The text on either side is normalized and split separately.
  EXPECT_EQ(Full(*ReleasedTokenizer(), "e<think>\u0301"),
            (Ids{Plain(*ReleasedTokenizer(), "e")[0], 151667, Plain(*ReleasedTokenizer(), "\u0301")[0]}));
}

TEST(Tokenizer, LongTextIsAnError) {
  std::string text(Tokenizer::kMaxTextBytes, 'a');
  EXPECT_TRUE(ReleasedTokenizer()->EncodePlain(text).ok());
  text += 'a';
  for (const auto& result : {ReleasedTokenizer()->EncodePlain(text), ReleasedTokenizer()->Encode(text)}) {
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.status().code(), StatusCode::kResourceExhausted);
    EXPECT_THAT(result.status().message(), AllOf(HasSubstr("65537"), HasSubstr("65536")));
  }
}

// Quadratic time would make these run for minutes.
TEST(Tokenizer, HostileRunsOfOneKind) {
  for (const char* unit :
       {"a", "A", " ", "\n", " \n", "!", "'", "1", "中", "\u0301", "\u0301\u0316", "A中", "\xFF", "<"}) {
    std::string text;
    while (text.size() + 8 < Tokenizer::kMaxTextBytes) text += unit;
    for (const TokenizerPattern pattern : kPatterns) {
      EXPECT_FALSE(Full(*ReleasedTokenizer(pattern), text).empty());
      EXPECT_LE(ReleasedTokenizer(pattern)->StablePrefix(text), text.size());
    }
  }
}

TEST(Tokenizer, StablePrefixOfSimpleText) {
  const auto stable = [](std::string_view text) { return ReleasedTokenizer()->StablePrefix(text); };
  EXPECT_EQ(stable(""), 0U);
  EXPECT_EQ(stable("Hello"), 0U);
  EXPECT_EQ(stable("Hello "), 5U);
  EXPECT_EQ(stable("Hello, world"), 6U);
  EXPECT_EQ(stable("Hello, world\xE4\xB8"), 6U);
  EXPECT_EQ(stable("it's"), 2U);  // a cedilla could follow
  EXPECT_EQ(stable("it's "), 4U);
  EXPECT_EQ(stable("a \n "), 1U);
  EXPECT_EQ(stable("12 "), 2U);
  EXPECT_EQ(stable("e\u0301 e\u0301 x"), 7U);  // in bytes of the text as given
}

// For any text that follows, the stable prefix keeps its ids, and the rest has the ids that it has alone.
TEST(Tokenizer, StablePrefixKeepsItsIds) {
  std::mt19937 rng(9);  // seed 9
  for (const TokenizerPattern pattern : kPatterns) {
    const Tokenizer& tokenizer = *ReleasedTokenizer(pattern);
    size_t decided = 0;
    for (int i = 0; i < 12000; ++i) {
      const std::string text = i % 3 == 0 ? RandomBytes(&rng, 12) : RandomText(&rng, 12);
      const std::string whole = text + RandomBytes(&rng, 8);
      const size_t stable = tokenizer.StablePrefix(text);
      ASSERT_LE(stable, text.size());
      decided += stable;
      Ids parts = Plain(tokenizer, std::string_view(whole).substr(0, stable));
      const Ids rest = Plain(tokenizer, std::string_view(whole).substr(stable));
      parts.insert(parts.end(), rest.begin(), rest.end());
      ASSERT_EQ(parts, Plain(tokenizer, whole)) << nlohmann::json(RepairUtf8(text)).dump(-1, ' ', true) << " + "
                                                << nlohmann::json(RepairUtf8(whole)).dump(-1, ' ', true);
    }
    EXPECT_GT(decided, 60000U);
  }
}

TEST(Tokenizer, StablePrefixOfLongTextCanBeEncoded) {
  std::string text;
  while (text.size() < 3 * Tokenizer::kMaxTextBytes) text += "word ";
  const size_t stable = ReleasedTokenizer()->StablePrefix(text);
  EXPECT_LE(stable, Tokenizer::kMaxTextBytes);
  EXPECT_GT(stable, Tokenizer::kMaxTextBytes - 10);
}

TEST(Tokenizer, EndsOfTokensInTheText) {
  const auto tokenizer = Tokenizer::Create(ReleasedVocabulary(), TokenizerPattern::kNative);
  ASSERT_TRUE(tokenizer.ok());
  const auto ends_of = [&](const std::string& text) {
    std::vector<size_t> ends;
    const auto ids = (*tokenizer)->EncodePlain(text, &ends);
    EXPECT_TRUE(ids.ok());
    EXPECT_EQ(*ids, *(*tokenizer)->EncodePlain(text));
    EXPECT_EQ(ids->size(), ends.size());
    return ends;
  };
  EXPECT_EQ(ends_of("Hello, world."), (std::vector<size_t>{5, 6, 12, 13}));
  // é in two code points is one in NFC: "cafe" + U+0301.
  EXPECT_EQ(ends_of("cafe\xCC\x81 au").back(), 9U);
  EXPECT_EQ(ends_of("a\xFF b").back(), 4U) << "an invalid byte is a longer character in the model's text";
  std::mt19937 random(9);
  for (int round = 0; round < 500; ++round) {
    const std::string text = RandomBytes(&random, 60);
    const std::vector<size_t> ends = ends_of(text);
    size_t before = 0;
    for (const size_t end : ends) {
      ASSERT_GE(end, before);
      before = end;
    }
    ASSERT_EQ(before, ends.empty() ? 0 : text.size());
  }
}

TEST(Tokenizer, IsThreadSafe) {
  const std::string text = "Straße, it's 中文 e\u0301 A中B 12 \n x";
  const Ids expected = Plain(*ReleasedTokenizer(), text);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < 200; ++j) {
        EXPECT_EQ(Plain(*ReleasedTokenizer(), text), expected);
        EXPECT_EQ(ReleasedTokenizer()->StablePrefix(text), text.size() - 2);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

class TokenizerFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "qtts-tokenizer-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    const VocabularyFiles files = MakeVocabulary("a b\n", {"<x>"});
    Write("vocab.json", files.vocab);
    Write("merges.txt", files.merges);
    Write("tokenizer_config.json", files.config);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void Write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
  }
  void ExpectError(StatusCode code, const std::string& name) const {
    const auto tokenizer = Tokenizer::Load(folder_.string());
    ASSERT_FALSE(tokenizer.ok());
    EXPECT_EQ(tokenizer.status().code(), code) << tokenizer.status().message();
    EXPECT_THAT(tokenizer.status().message(), HasSubstr((folder_ / name).string()));
  }
  std::filesystem::path folder_;
};

TEST_F(TokenizerFolder, Loads) {
  const auto tokenizer = Tokenizer::Load(folder_.string());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  EXPECT_EQ(Full(**tokenizer, "ab<x>"), (Ids{256, 257}));
}

TEST_F(TokenizerFolder, EachMissingFileIsNamed) {
  for (const char* name : {"vocab.json", "merges.txt", "tokenizer_config.json"}) {
    std::filesystem::rename(folder_ / name, folder_ / "elsewhere");
    ExpectError(StatusCode::kNotFound, name);
    std::filesystem::rename(folder_ / "elsewhere", folder_ / name);
  }
}

TEST_F(TokenizerFolder, AFolderInPlaceOfAFile) {
  std::filesystem::remove(folder_ / "merges.txt");
  std::filesystem::create_directory(folder_ / "merges.txt");
  ExpectError(StatusCode::kUnreadable, "merges.txt");
}

TEST_F(TokenizerFolder, AFileWithoutEnd) {
  std::filesystem::resize_file(folder_ / "vocab.json", uintmax_t{65} << 20U);
  ExpectError(StatusCode::kCorruptModel, "vocab.json");
}

TEST_F(TokenizerFolder, ErrorsNameFileAndLine) {
  Write("merges.txt", "a b\nx\n");
  ExpectError(StatusCode::kCorruptModel, "merges.txt:2:");
}

TEST(Tokenizer, TheBundledVoiceLoads) {
  const auto tokenizer = Tokenizer::Load(QTTS_SOURCE_DIR "/data/voice");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  EXPECT_EQ((*tokenizer)->vocab_size(), 1508);
  EXPECT_EQ((*tokenizer)->AddedToken("<|im_start|>"), 1499);
  EXPECT_EQ(Full(**tokenizer, "<|im_start|>assistant\n").size(), 3U);
}

}  // namespace
}  // namespace qtts
