// SPDX-License-Identifier: LGPL-2.1-or-later
#include "checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "unit/checkpoint/support.h"

namespace qtts {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TempFolder;
using testing::WriteFile;

std::string Length(uint64_t length) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(length >> (8 * i) & 0xFF);
  return bytes;
}

// A file with this header text and `data` bytes.
std::string File(const std::string& header, size_t data) {
  std::string file = Length(header.size()) + header;
  for (size_t i = 0; i < data; ++i) file += static_cast<char>(i);
  return file;
}

Result<SafetensorsHeader> Parse(const std::string& file) {
  return SafetensorsHeader::Parse(std::as_bytes(std::span(file)), file.size(), "m.safetensors");
}

TEST(SafetensorsHeaderTest, ReadsEntriesAndSkipsMetadata) {
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"b":{"dtype":"BF16","shape":[2,3],"data_offsets":[4,16]},)"
      R"("a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
      R"("empty":{"dtype":"I64","shape":[0,5],"data_offsets":[16,16]}}  )";
  const auto parsed = Parse(File(header, 16));
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  EXPECT_EQ(parsed->data_offset, 8 + header.size());
  ASSERT_EQ(parsed->entries.size(), 3);
  EXPECT_EQ(parsed->entries.at("b").dtype, "BF16");
  EXPECT_THAT(parsed->entries.at("b").shape, ElementsAre(2, 3));
  EXPECT_EQ(parsed->entries.at("b").begin, 4);
  EXPECT_EQ(parsed->entries.at("b").end, 16);
  EXPECT_TRUE(parsed->entries.at("a").shape.empty());
}

TEST(SafetensorsHeaderTest, AcceptsNoTensors) { EXPECT_TRUE(Parse(File("{}", 0)).ok()); }

TEST(SafetensorsHeaderTest, AcceptsUnknownTypesOfAnySize) {
  EXPECT_TRUE(Parse(File(R"({"a":{"dtype":"F4","shape":[4],"data_offsets":[0,2]}})", 2)).ok());
}

struct BadHeader {
  const char* name;
  std::string file;
  StatusCode code;
  const char* message;
};

class BadHeaderTest : public ::testing::TestWithParam<BadHeader> {};

TEST_P(BadHeaderTest, IsOneClearError) {
  const auto parsed = Parse(GetParam().file);
  ASSERT_FALSE(parsed.ok());
  EXPECT_EQ(parsed.status().code(), GetParam().code) << parsed.status().message();
  EXPECT_THAT(parsed.status().message(), HasSubstr("m.safetensors"));
  EXPECT_THAT(parsed.status().message(), HasSubstr(GetParam().message));
}

std::string One(const std::string& dtype, const std::string& shape, const std::string& offsets, size_t data) {
  return File(R"({"a":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}", data);
}

std::string Two(const std::string& first, const std::string& second, size_t data) {
  return File(R"({"a":{"dtype":"I8","shape":[4],"data_offsets":)" + first +
                  R"(},"b":{"dtype":"I8","shape":[4],"data_offsets":)" + second + "}}",
              data);
}

constexpr StatusCode kCorrupt = StatusCode::kCorruptModel;

INSTANTIATE_TEST_SUITE_P(
    All, BadHeaderTest,
    ::testing::Values(
        BadHeader{"Empty", "", kCorrupt, "is 0 bytes long"},
        BadHeader{"SevenBytes", "\0\0\0\0\0\0\0", kCorrupt, "bytes long"},
        BadHeader{"LengthBomb", Length(UINT64_MAX) + "{}", kCorrupt, "header has 18446744073709551615 bytes"},
        BadHeader{"LengthAboveCap", Length(uint64_t{17} << 20) + "{}", kCorrupt, "at most 16777216"},
        BadHeader{"LengthBeyondFile", Length(100) + "{}", kCorrupt, "ends inside its header of 100 bytes"},
        BadHeader{"NoJson", File("hello", 0), kCorrupt, "not valid JSON"},
        BadHeader{"CutJson", File(R"({"a":{"dtype")", 0), kCorrupt, "not valid JSON"},
        BadHeader{"InvalidUtf8", File("{\"\xff\":1}", 0), kCorrupt, "not valid JSON"},
        BadHeader{"HugeNumber", One("F32", "[1e999]", "[0,4]", 4), kCorrupt, "not valid JSON"},
        BadHeader{"NaN", One("F32", "[NaN]", "[0,4]", 4), kCorrupt, "not valid JSON"},
        BadHeader{"EmptyHeader", File("", 0), kCorrupt, "not valid JSON"},
        BadHeader{"ArrayHeader", File("[]", 0), kCorrupt, "not a JSON object"},
        BadHeader{
            "DuplicateTensor",
            File(
                R"({"a":{"dtype":"I8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"I8","shape":[1],"data_offsets":[0,1]}})",
                1),
            kCorrupt, "the key 'a' twice"},
        BadHeader{"DeepNesting", File(std::string(100000, '['), 0), kCorrupt, "nested deeper"},
        BadHeader{"EntryNoObject", File(R"({"a":3})", 0), kCorrupt, "lacks a dtype"},
        BadHeader{"NoDtype", File(R"({"a":{"shape":[1],"data_offsets":[0,1]}})", 1), kCorrupt, "lacks a dtype"},
        BadHeader{"NoShape", File(R"({"a":{"dtype":"I8","data_offsets":[0,1]}})", 1), kCorrupt, "lacks a dtype"},
        BadHeader{"NoOffsets", File(R"({"a":{"dtype":"I8","shape":[1]}})", 1), kCorrupt, "lacks a dtype"},
        BadHeader{"NegativeDimension", One("F32", "[-1]", "[0,4]", 4), kCorrupt, "not a size"},
        BadHeader{"FractionalDimension", One("F32", "[1.5]", "[0,4]", 4), kCorrupt, "not a size"},
        BadHeader{"HugeDimension", One("F32", "[18446744073709551615]", "[0,4]", 4), kCorrupt, "not a size"},
        BadHeader{"TooManyDimensions", One("F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]", 4), kCorrupt, "9 dimensions"},
        BadHeader{"ProductOverflows", One("F32", "[4294967296,4294967296,4]", "[0,0]", 0), kCorrupt, "too large"},
        BadHeader{"BytesOverflow", One("F64", "[4611686018427387904]", "[0,0]", 0), kCorrupt, "too large"},
        BadHeader{"ZeroHidesOverflow", One("F32", "[4294967296,4294967296,0]", "[0,4]", 4), kCorrupt, "too large"},
        BadHeader{"OneOffset", One("F32", "[1]", "[0]", 4), kCorrupt, "data_offsets"},
        BadHeader{"NegativeOffset", One("F32", "[1]", "[-4,0]", 4), kCorrupt, "data_offsets"},
        BadHeader{"ReversedOffsets", One("F32", "[1]", "[4,0]", 4), kCorrupt, "data_offsets"},
        BadHeader{"TooFewBytes", One("F32", "[2]", "[0,4]", 4), kCorrupt, "has 4 bytes, expected 8 for F32 [2]"},
        BadHeader{"TooManyBytes", One("BF16", "[1]", "[0,4]", 4), kCorrupt, "has 4 bytes, expected 2 for BF16 [1]"},
        BadHeader{"Truncated", One("F32", "[2]", "[0,8]", 7), kCorrupt, "the file holds only 7: it is truncated"},
        BadHeader{"TrailingBytes", One("F32", "[2]", "[0,8]", 9), kCorrupt, "holds 9 bytes of data, expected 8"},
        BadHeader{"Overlap", Two("[0,4]", "[2,6]", 6), kCorrupt, "'b' overlaps with 'a'"},
        BadHeader{"SameBytesTwice", Two("[0,4]", "[0,4]", 4), kCorrupt, "overlaps"},
        BadHeader{"Gap", Two("[0,4]", "[6,10]", 10), kCorrupt, "'b' begins at byte 6 of the data, expected 4"},
        BadHeader{"Gguf", "GGUF\3\0\0\0 and more", StatusCode::kUnsupported, "GGUF"},
        BadHeader{"LfsPointer", "version https://git-lfs.github.com/spec/v1\noid", kCorrupt, "git lfs pull"}),
    testing::CaseName());

TEST(SafetensorsHeaderTest, NamesInMessagesAreEscapedAndCut) {
  const std::string name = "line\\nbreak" + std::string(5000, 'x');
  const auto parsed = Parse(File("{\"" + name + "\":3}", 0));
  ASSERT_FALSE(parsed.ok());
  EXPECT_LT(parsed.status().message().size(), 300);
  EXPECT_EQ(parsed.status().message().find('\n'), std::string::npos);
}

constexpr int64_t kShape23[] = {2, 3};
constexpr int64_t kShape4[] = {4};

// A file with one tensor, F16 [2, 3], and a header padded like the official writer's.
std::string SmallFile(const std::string& tensor) {
  std::string header = "{\"" + tensor + R"(":{"dtype":"F16","shape":[2,3],"data_offsets":[0,12]}})";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  return File(header, 12);
}

std::string Index(const std::string& weight_map) { return R"({"metadata":{},"weight_map":)" + weight_map + "}"; }

TEST(TensorStoreTest, GivesViewsOfTheFile) {
  const TempFolder folder;
  WriteFile(folder / "model.safetensors", SmallFile("a"));
  const auto store = TensorStore::Open(folder.path(), "model");
  ASSERT_TRUE(store.ok()) << store.status().message();
  const auto view = (*store)->Get("a", kShape23);
  ASSERT_TRUE(view.ok()) << view.status().message();
  EXPECT_EQ(view->dtype, DType::kF16);
  EXPECT_EQ(view->elements(), 6);
  EXPECT_EQ(view->bytes(), 12);
  EXPECT_EQ(std::memcmp(view->data, "\0\1\2\3\4\5\6\7\10\11\12\13", 12), 0);
  EXPECT_TRUE((*store)->Contains("a"));
  EXPECT_FALSE((*store)->Contains("b"));
  EXPECT_THAT((*store)->Names(), ElementsAre("a"));
}

TEST(TensorStoreTest, GetNamesFileTensorExpectedAndFound) {
  const TempFolder folder;
  WriteFile(folder / "model.safetensors", SmallFile("a"));
  const auto store = TensorStore::Open(folder.path(), "model");
  ASSERT_TRUE(store.ok()) << store.status().message();
  EXPECT_EQ((*store)->Get("b", kShape4).status().message(),
            folder / "model.safetensors" + ": tensor 'b' is missing, expected shape [4]");
  EXPECT_EQ((*store)->Get("a", kShape4).status().message(),
            folder / "model.safetensors" + ": tensor 'a' has shape [2, 3], expected [4]");
}

TEST(TensorStoreTest, RefusesTypesThatAreNoWeights) {
  const TempFolder folder;
  WriteFile(folder / "model.safetensors", File(R"({"a":{"dtype":"I32","shape":[4],"data_offsets":[0,16]}})", 16));
  const auto store = TensorStore::Open(folder.path(), "model");
  ASSERT_TRUE(store.ok()) << store.status().message();
  const auto view = (*store)->Get("a", kShape4);
  EXPECT_EQ(view.status().code(), StatusCode::kUnsupported);
  EXPECT_THAT(view.status().message(), HasSubstr("has dtype 'I32', expected BF16, F16 or F32"));
}

TEST(TensorStoreTest, RefusesUnalignedTensors) {
  const TempFolder folder;
  std::string header = R"({"a":{"dtype":"F16","shape":[4],"data_offsets":[0,8]}})";
  while (header.size() % 2 == 0) header += ' ';
  WriteFile(folder / "model.safetensors", File(header, 8));
  const auto store = TensorStore::Open(folder.path(), "model");
  ASSERT_TRUE(store.ok()) << store.status().message();
  EXPECT_THAT((*store)->Get("a", kShape4).status().message(), HasSubstr("expected a multiple of 2"));
}

TEST(TensorStoreTest, ReadsShards) {
  const TempFolder folder;
  WriteFile(folder / "one.safetensors", SmallFile("a"));
  WriteFile(folder / "two.safetensors", SmallFile("b"));
  WriteFile(folder / "model.safetensors.index.json", Index(R"({"a":"one.safetensors","b":"two.safetensors"})"));
  const auto store = TensorStore::Open(folder.path(), "model");
  ASSERT_TRUE(store.ok()) << store.status().message();
  EXPECT_THAT((*store)->Names(), ElementsAre("a", "b"));
  EXPECT_TRUE((*store)->Get("b", kShape23).ok());
  EXPECT_THAT((*store)->Get("b", kShape4).status().message(), HasSubstr("two.safetensors: tensor 'b'"));
}

struct BadIndex {
  const char* name;
  std::string index;
  StatusCode code;
  const char* message;
};

class BadIndexTest : public ::testing::TestWithParam<BadIndex> {};

TEST_P(BadIndexTest, IsOneClearError) {
  const TempFolder folder;
  WriteFile(folder / "one.safetensors", SmallFile("a"));
  WriteFile(folder / "two.safetensors", SmallFile("a"));
  WriteFile(folder / "cut.safetensors", SmallFile("b").substr(0, 40));
  WriteFile(folder / "model.safetensors.index.json", GetParam().index);
  const auto store = TensorStore::Open(folder.path(), "model");
  ASSERT_FALSE(store.ok());
  EXPECT_EQ(store.status().code(), GetParam().code) << store.status().message();
  EXPECT_THAT(store.status().message(), HasSubstr(folder.path()));
  EXPECT_THAT(store.status().message(), HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    All, BadIndexTest,
    ::testing::Values(BadIndex{"NoJson", "x", kCorrupt, "not valid JSON"},
                      BadIndex{"NoObject", "[]", kCorrupt, "weight_map is missing"},
                      BadIndex{"NoMap", "{}", kCorrupt, "weight_map is missing"},
                      BadIndex{"EmptyMap", Index("{}"), kCorrupt, "weight_map is missing"},
                      BadIndex{"NoName", Index(R"({"a":3})"), kCorrupt, "no file name"},
                      BadIndex{"OtherFolder", Index(R"({"a":"../one.safetensors"})"), kCorrupt, "of the same folder"},
                      BadIndex{"AbsolutePath", Index(R"({"a":"/etc/x.safetensors"})"), kCorrupt, "of the same folder"},
                      BadIndex{"OtherKind", Index(R"({"a":"/etc/passwd"})"), kCorrupt, "of the same folder"},
                      BadIndex{"NulInName", Index(R"({"a":"x\u0000.safetensors"})"), kCorrupt, "of the same folder"},
                      BadIndex{"MissingShard", Index(R"({"a":"three.safetensors"})"), StatusCode::kNotFound,
                               "three.safetensors: no such file"},
                      BadIndex{"TruncatedShard", Index(R"({"b":"cut.safetensors"})"), kCorrupt, "cut.safetensors"},
                      BadIndex{"MissingTensor", Index(R"({"a":"one.safetensors","z":"one.safetensors"})"), kCorrupt,
                               "tensor 'z' is missing"},
                      BadIndex{"TensorTwice", Index(R"({"a":"one.safetensors","b":"two.safetensors"})"), kCorrupt,
                               "tensor 'a' is also in"}),
    testing::CaseName());

TEST(TensorStoreTest, SaysWhatIsMissing) {
  const TempFolder folder;
  EXPECT_EQ(TensorStore::Open(folder.path(), "model").status().code(), StatusCode::kNotFound);
  WriteFile(folder / "pytorch_model.bin", "x");
  const Status status = TensorStore::Open(folder.path(), "model").status();
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_THAT(status.message(), HasSubstr("pytorch_model.bin"));
}

TEST(TensorStoreTest, RefusesWhatIsNoRegularFile) {
  const TempFolder folder;
  std::filesystem::create_directory(folder / "model.safetensors");
  const Status status = TensorStore::Open(folder.path(), "model").status();
  EXPECT_EQ(status.code(), StatusCode::kUnreadable);
  EXPECT_THAT(status.message(), HasSubstr("not a regular file"));
}

TEST(DTypeTest, NamesAndSizes) {
  EXPECT_EQ(DTypeName(DType::kF32), "F32");
  EXPECT_EQ(DTypeName(DType::kF16), "F16");
  EXPECT_EQ(DTypeName(DType::kBF16), "BF16");
  EXPECT_EQ(DTypeBytes(DType::kF32), 4);
  EXPECT_EQ(DTypeBytes(DType::kF16), 2);
  EXPECT_EQ(DTypeBytes(DType::kBF16), 2);
}

}  // namespace
}  // namespace qtts
