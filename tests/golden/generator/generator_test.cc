// SPDX-License-Identifier: LGPL-2.1-or-later
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "golden/generator/random_checkpoint.h"
#include "golden/generator/tensor_file.h"
#include "golden/generator/tokenizer_files.h"
#include "unit/checkpoint/support.h"

namespace qtts::golden {
namespace {

using qtts::testing::ReadFile;
using qtts::testing::TempFolder;
using ::testing::HasSubstr;

uint64_t Fnv(std::string_view bytes) {
  uint64_t hash = 0xCBF29CE484222325;
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  return hash;
}

// The goldens are recorded with these bytes: after a change of the generator, record them again.
TEST(RandomCheckpointTest, SameBytesEverywhere) {
  const std::map<std::string, std::pair<uint64_t, uint64_t>> kExpected = {
      {"tiny-base-0b6", {0xDD7A574042FB5D87, 0x38F3011BF7FEE4C9}},
      {"tiny-base-1b7", {0xC1388FA0D9EC79CF, 0xDEBFDF41FAE336BD}},
      {"tiny-custom-0b6", {0xFCA740A26FBCD6F7, 0x38F3011BF7FEE4C9}},
      {"tiny-custom-1b7", {0x9F36AE3080517BEF, 0xDEBFDF41FAE336BD}},
      {"tiny-design-1b7", {0x9F36AE3080517BEF, 0xDEBFDF41FAE336BD}}};
  for (const auto& [preset, hashes] : kExpected) {
    SCOPED_TRACE(preset);
    const TempFolder folder;
    auto spec = FindPreset(preset);
    ASSERT_TRUE(spec.ok());
    ASSERT_TRUE(WriteRandomCheckpoint(folder.path(), *spec).ok());
    EXPECT_EQ(Fnv(ReadFile(folder / "model.safetensors")), hashes.first);
    EXPECT_EQ(Fnv(ReadFile(folder / "speech_tokenizer/model.safetensors")), hashes.second);
  }
}

TEST(RandomCheckpointTest, SeedChangesEveryTensor) {
  auto spec = FindPreset("tiny-base-0b6");
  ASSERT_TRUE(spec.ok());
  const auto one = ModelTensors(*spec);
  spec->seed = uint64_t{1} << 32 | 1;
  const auto two = ModelTensors(*spec);
  ASSERT_EQ(one.size(), two.size());
  for (size_t i = 0; i < one.size(); ++i) {
    std::vector<float> a(8);
    std::vector<float> b(8);
    one[i].fill(0, a);
    two[i].fill(0, b);
    EXPECT_NE(a, b) << one[i].name;
  }
}

// The values of a tensor do not depend on the chunk size.
TEST(RandomCheckpointTest, FillDependsOnTheIndexAlone) {
  auto spec = FindPreset("tiny-custom-1b7");
  ASSERT_TRUE(spec.ok());
  auto tensors = ModelTensors(*spec);
  for (const GeneratedTensor& tensor : CodecTensors(*spec)) tensors.push_back(tensor);
  for (const GeneratedTensor& tensor : tensors) {
    const auto elements = static_cast<size_t>(Elements(tensor));
    std::vector<float> whole(elements);
    tensor.fill(0, whole);
    const size_t first = elements / 3;
    std::vector<float> rest(elements - first);
    tensor.fill(first, rest);
    EXPECT_TRUE(std::equal(rest.begin(), rest.end(), whole.begin() + static_cast<std::ptrdiff_t>(first)))
        << tensor.name;
  }
}

TEST(RandomCheckpointTest, SomeCodewordsAreHardlyUsed) {
  auto spec = FindPreset("tiny-custom-1b7");
  ASSERT_TRUE(spec.ok());
  for (const GeneratedTensor& tensor : CodecTensors(*spec)) {
    if (!tensor.name.ends_with("cluster_usage")) continue;
    std::vector<float> usage(static_cast<size_t>(Elements(tensor)));
    tensor.fill(0, usage);
    const auto rare = std::count_if(usage.begin(), usage.end(), [](float u) { return u < 1e-5F; });
    EXPECT_GE(rare, 2) << tensor.name;
    EXPECT_EQ(std::count_if(usage.begin(), usage.end(), [](float u) { return u >= 0.5F && u <= 2; }),
              static_cast<std::ptrdiff_t>(usage.size()) - rare)
        << tensor.name;
  }
}

TEST(RandomCheckpointTest, NamesItsPresetsAndSizes) {
  EXPECT_THAT(FindPreset("huge").status().message(), HasSubstr("tiny-design-1b7"));
  auto spec = FindPreset(PresetNames().front());
  ASSERT_TRUE(spec.ok());
  EXPECT_TRUE(SetSize(&*spec, "talker.hidden_size", 80).ok());
  EXPECT_EQ(spec->talker.hidden_size, 80);
  EXPECT_THAT(SetSize(&*spec, "talker.size", 80).message(), HasSubstr("talker.hidden_size"));
  spec->text_vocab_size = 100;
  EXPECT_THAT(WriteRandomCheckpoint("/nonexistent", *spec).message(), HasSubstr("text_vocab_size is 100"));
}

TEST(RandomValuesTest, UniformInItsRange) {
  std::vector<float> values(100000);
  RandomValues(7, "some.tensor").Uniform(0, 2, 0.5, values);
  double sum = 0;
  double squares = 0;
  for (const float v : values) {
    ASSERT_GE(v, 1.5F);
    ASSERT_LE(v, 2.5F);
    sum += v - 2;
    squares += (v - 2) * (v - 2);
  }
  EXPECT_NEAR(sum / 100000, 0, 0.005);
  EXPECT_NEAR(squares / 100000, 0.25 / 3, 0.001);
}

TEST(InverseSqrtTest, IsTheInverseSquareRoot) {
  for (const uint64_t n : {1, 2, 3, 24, 48, 1024, 6144, 4194304}) {
    EXPECT_NEAR(InverseSqrt(n) * std::sqrt(static_cast<double>(n)), 1, 1e-5) << n;
  }
}

// The value of a half-precision number, from the definition of the format.
double HalfValue(uint16_t bits) {
  const int exponent = bits >> 10 & 31;
  const int mantissa = bits & 0x3FF;
  const double magnitude = exponent == 31  ? (mantissa == 0 ? HUGE_VAL : NAN)
                           : exponent == 0 ? std::ldexp(mantissa, -24)
                                           : std::ldexp(1024 + mantissa, exponent - 25);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

TEST(ToF16Test, RoundsEveryNeighbourhoodToNearestEven) {
  for (uint32_t bits = 0; bits < 0x7C00; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const double value = HalfValue(half);
    const double next = bits == 0x7BFF ? 65536.0 : HalfValue(static_cast<uint16_t>(bits + 1));
    const auto middle = static_cast<float>((value + next) / 2);  // exact
    ASSERT_EQ(ToF16(static_cast<float>(value)), half);
    ASSERT_EQ(ToF16(-static_cast<float>(value)), half | 0x8000);
    ASSERT_EQ(ToF16(middle), (half & 1) == 0 ? half : half + 1) << value;
    ASSERT_EQ(ToF16(std::nextafter(middle, 0.0F)), half) << value;
    ASSERT_EQ(ToF16(std::nextafter(middle, HUGE_VALF)), half + 1) << value;
  }
  EXPECT_EQ(ToF16(1e30F), 0x7C00);
  EXPECT_EQ(ToF16(-HUGE_VALF), 0xFC00);
}

TEST(ToBF16Test, RoundsToNearestEven) {
  for (uint32_t high = 1; high < 0x7F80; ++high) {
    const uint32_t bits = high << 16;
    ASSERT_EQ(ToBF16(std::bit_cast<float>(bits)), high);
    ASSERT_EQ(ToBF16(std::bit_cast<float>(bits | 0x7FFF)), high);
    ASSERT_EQ(ToBF16(std::bit_cast<float>(bits | 0x8000)), (high & 1) == 0 ? high : high + 1);
    ASSERT_EQ(ToBF16(std::bit_cast<float>(bits | 0x8001)), high + 1);
  }
}

// Then every piece has one way of merging, and BPE by list equals BPE by piece.
TEST(TinyVocabularyTest, EveryPieceSplitsInOneWay) {
  const Vocabulary vocabulary = TinyVocabulary();
  const TempFolder folder;
  ASSERT_TRUE(WriteTokenizerFiles(folder.path(), vocabulary).ok());
  const auto vocab = nlohmann::json::parse(ReadFile(folder / "vocab.json"));
  ASSERT_EQ(vocab.size(), 256 + vocabulary.merges.size());
  int id = 256;
  for (const auto& [left, right] : vocabulary.merges) {
    const std::string piece = left + right;
    EXPECT_EQ(vocab.at(piece), id++);
    int splits = 0;
    for (size_t cut = 1; cut < piece.size(); ++cut) {
      splits += static_cast<int>(vocab.contains(piece.substr(0, cut)) && vocab.contains(piece.substr(cut)));
    }
    EXPECT_EQ(splits, 1) << piece;
  }
  EXPECT_EQ(vocab.at("assistant"), vocabulary.PieceId("assistant"));
  EXPECT_EQ(vocab.at("\u010A"), 198) << "the newline has its official id";
  EXPECT_EQ(vocabulary.AddedId("<|endoftext|>"), 256 + static_cast<int>(vocabulary.merges.size()));
}

TEST(ReleasedVocabularyTest, ReadsMergesWithAndWithoutAVersionLine) {
  const TempFolder folder;
  qtts::testing::WriteFile(folder / "merges.txt", "#version: 0.2\na b\nab c\n");
  auto vocabulary = ReleasedVocabulary(folder / "merges.txt");
  ASSERT_TRUE(vocabulary.ok());
  EXPECT_EQ(vocabulary->merges.size(), 2);
  EXPECT_EQ(vocabulary->added.size(), 33);
  qtts::testing::WriteFile(folder / "merges.txt", "a b\n");
  vocabulary = ReleasedVocabulary(folder / "merges.txt");
  ASSERT_TRUE(vocabulary.ok());
  EXPECT_EQ(vocabulary->merges.size(), 1);
  qtts::testing::WriteFile(folder / "merges.txt", "ab\n");
  EXPECT_THAT(ReleasedVocabulary(folder / "merges.txt").status().message(), HasSubstr("'ab' is not a pair"));
  EXPECT_EQ(ReleasedVocabulary(folder / "none").status().code(), StatusCode::kNotFound);
}

TEST(WriteTensorFilesTest, ReportsWhatCannotBeWritten) {
  EXPECT_EQ(WriteTensorFile("/nonexistent/a.safetensors", {}).code(), StatusCode::kUnreadable);
  EXPECT_EQ(WriteTensorFiles("/nonexistent", "model", {}, 2).code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace qtts::golden
