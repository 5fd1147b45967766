// SPDX-License-Identifier: LGPL-2.1-or-later
#include "checkpoint/packed_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "unit/checkpoint/support.h"

namespace qtts {
namespace {

namespace fs = std::filesystem;
using testing::ReadFile;
using testing::TempFolder;
using testing::WriteFile;
using Blobs = std::vector<std::pair<std::string, std::string>>;  // names and contents

PackedFile::Key KeyOf(char fill) {
  PackedFile::Key key;
  key.fill(static_cast<std::byte>(fill));
  return key;
}

Status Write(const std::string& path, const Blobs& contents, const PackedFile::Key& key = KeyOf('k')) {
  std::vector<PackedFile::Blob> blobs;
  for (const auto& [name, content] : contents) {
    const auto bytes = std::as_bytes(std::span(content));
    blobs.push_back({name, bytes, PackedFile::ChecksumOf(bytes)});
  }
  return WritePackedFile(path, key, blobs);
}

// The contents, or the error.
Result<Blobs> Read(const std::string& path, const PackedFile::Key& key = KeyOf('k')) {
  QTTS_ASSIGN_OR_RETURN(const PackedFile file, PackedFile::Open(path, key));
  Blobs contents;
  for (const PackedFile::Blob& blob : file.blobs()) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(blob.bytes.data()) % 64, 0U);
    if (!PackedFile::IsIntact(blob)) return Status::CorruptModel("a blob is damaged");
    contents.emplace_back(blob.name, std::string(reinterpret_cast<const char*>(blob.bytes.data()), blob.bytes.size()));
  }
  QTTS_RETURN_IF_ERROR(file.Check());
  return contents;
}

const Blobs kSmall = {{"a", "first"}, {"talker.0.q", ""}, {"b", std::string(64, 'x')}, {"c", std::string(65, 'y')}};

size_t FilesIn(const std::string& folder) {
  return static_cast<size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

TEST(PackedFileTest, GivesBackWhatWasWritten) {
  const TempFolder folder;
  const std::string path = folder / "file";
  for (const Blobs& contents : {kSmall, Blobs{}, Blobs{{"x", std::string(1000000, 'z')}}}) {
    ASSERT_TRUE(Write(path, contents).ok());
    const auto read = Read(path);
    ASSERT_TRUE(read.ok()) << read.status().message();
    EXPECT_EQ(*read, contents);
    EXPECT_EQ(FilesIn(folder.path()), 1U);
    struct stat info = {};
    ASSERT_EQ(stat(path.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777U, 0600U);
  }
}

TEST(PackedFileTest, TheLayoutIsThatOfTheHeader) {
  const TempFolder folder;
  const std::string path = folder / "file";
  ASSERT_TRUE(Write(path, {{"one", "1"}, {"three", "333"}}).ok());
  const std::string file = ReadFile(path);
  ASSERT_EQ(file.size(), 256U);  // 64 + 2 * 16 + 8 padded, and two padded blobs
  const auto number = [&](size_t offset, auto value) {
    std::memcpy(&value, file.data() + offset, sizeof value);
    return static_cast<uint64_t>(value);
  };
  EXPECT_EQ(file.substr(0, 8), "qttspack");
  EXPECT_EQ(number(8, uint32_t{}), 1U);
  EXPECT_EQ(number(12, uint32_t{}), 2U);
  EXPECT_EQ(number(16, uint64_t{}), 256U);
  EXPECT_EQ(number(24, uint32_t{}), 104U);
  EXPECT_EQ(file.substr(32, 32), std::string(32, 'k'));
  EXPECT_EQ(number(64, uint64_t{}), 1U);
  EXPECT_EQ(number(72, uint32_t{}), 0x83DCEFB7U);  // CRC-32 of "1"
  EXPECT_EQ(number(76, uint32_t{}), 3U);
  EXPECT_EQ(number(80, uint64_t{}), 3U);
  EXPECT_EQ(file.substr(96, 8), "onethree");
  EXPECT_EQ(file.substr(128, 1), "1");
  EXPECT_EQ(file.substr(192, 3), "333");
}

TEST(PackedFileTest, EveryFlippedBitIsFound) {
  const TempFolder folder;
  const std::string path = folder / "file";
  ASSERT_TRUE(Write(path, kSmall).ok());
  const std::string intact = ReadFile(path);
  std::string damaged = intact;
  for (size_t i = 0; i < intact.size(); ++i) {
    for (const int flip : {1, 0x80, 0xFF}) {
      damaged[i] = static_cast<char>(intact[i] ^ flip);
      WriteFile(path, damaged);
      EXPECT_FALSE(Read(path).ok()) << "byte " << i << " flipped by " << flip;
    }
    damaged[i] = intact[i];
  }
  WriteFile(path, damaged);
  EXPECT_TRUE(Read(path).ok());
}

TEST(PackedFileTest, AFileOfAnyOtherLengthIsRefused) {
  const TempFolder folder;
  const std::string path = folder / "file";
  ASSERT_TRUE(Write(path, kSmall).ok());
  const std::string intact = ReadFile(path);
  for (size_t length = 0; length < intact.size(); ++length) {
    WriteFile(path, intact.substr(0, length));
    const auto read = Read(path);
    ASSERT_EQ(read.status().code(), StatusCode::kCorruptModel) << length;
    EXPECT_EQ(read.status().message().find(path + ": "), 0U);
  }
  for (const size_t more : {1, 64, 100000}) {
    WriteFile(path, intact + std::string(more, '\0'));
    EXPECT_EQ(Read(path).status().code(), StatusCode::kCorruptModel) << more;
  }
}

// Contradicting numbers with a correct checksum: an invalid file that is not damaged.
TEST(PackedFileTest, ImpossibleHeadersAreRefused) {
  struct Case {
    const char* name;
    size_t offset;
    uint64_t value;
    size_t bytes;
  };
  const TempFolder folder;
  const std::string path = folder / "file";
  ASSERT_TRUE(Write(path, {{"ab", std::string(64, 'x')}, {"cd", std::string(64, 'y')}}).ok());
  const std::string intact = ReadFile(path);
  for (const Case& c : {Case{"one blob less", 12, 1, 4},
                        {"one blob more", 12, 3, 4},
                        {"most blobs", 12, 0xFFFFFFFF, 4},
                        {"a short header", 24, 63, 4},
                        {"a header without names", 24, 96, 4},
                        {"a header with zeros behind the names", 24, 101, 4},
                        {"a header as long as the file", 24, 256, 4},
                        {"a header longer than any", 24, 0xFFFFFFFF, 4},
                        {"a longer blob", 64, 65, 8},
                        {"a shorter blob", 64, 0, 8},
                        {"a blob beyond the file", 64, 1000, 8},
                        {"a blob whose end wraps around", 64, ~uint64_t{0}, 8},
                        {"a blob whose filling wraps around", 64, ~uint64_t{0} - 62, 8},
                        {"a name of no length", 76, 0, 4},
                        {"a longer name", 76, 3, 4},
                        {"a name beyond the header", 76, 300, 4},
                        {"a name longer than any", 76, 0xFFFFFFFF, 4},
                        {"two equal names", 98, 'a' | 'b' << 8, 2},
                        {"bytes behind the names", 100, 1, 1}}) {
    std::string file = intact;
    std::memcpy(file.data() + c.offset, &c.value, c.bytes);
    uint32_t header = 0;
    std::memcpy(&header, file.data() + 24, sizeof header);
    std::memset(file.data() + 28, 0, 4);
    const size_t checked = std::min<size_t>(file.size(), (uint64_t{header} + 63) / 64 * 64);
    const uint32_t checksum = PackedFile::ChecksumOf(std::as_bytes(std::span(file)).first(checked));
    std::memcpy(file.data() + 28, &checksum, sizeof checksum);
    const auto parsed = PackedFile::Parse(std::as_bytes(std::span(file)), KeyOf('k'), "name");
    EXPECT_EQ(parsed.status().code(), StatusCode::kCorruptModel) << c.name;
    EXPECT_EQ(parsed.status().message().find("another checksum"), std::string::npos) << c.name;
  }
}

TEST(PackedFileTest, OtherKeysVersionsAndFilesAreRefused) {
  const TempFolder folder;
  const std::string path = folder / "file";
  ASSERT_TRUE(Write(path, kSmall).ok());
  EXPECT_EQ(Read(path, KeyOf('l')).status().message(), path + ": was made from other weights or for another purpose");
  std::string file = ReadFile(path);
  file[8] = 2;
  WriteFile(path, file);
  EXPECT_EQ(Read(path).status().message(), path + ": is of version 2, expected 1");
  WriteFile(path, std::string(1000, 'x'));
  EXPECT_EQ(Read(path).status().message(), path + ": is not a file of packed weights");
  EXPECT_EQ(Read(folder / "none").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(Read(folder.path()).status().code(), StatusCode::kUnreadable);
}

TEST(PackedFileTest, WhatCannotBeWrittenLeavesTheOldFileAndNothingElse) {
  const TempFolder folder;
  const std::string path = folder / "file";
  ASSERT_TRUE(Write(path, kSmall).ok());
  const Status none = Write(folder / "no" + "/file", kSmall);
  EXPECT_EQ(none.code(), StatusCode::kUnreadable);
  EXPECT_NE(none.message().find("cannot be written: No such file"), std::string::npos) << none.message();

  // By default, exceeding the limit of a file's size ends the process.
  const rlimit small = {100, RLIM_INFINITY};
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const Status full = Write(path, {{"big", std::string(100000, 'x')}});
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_NE(full.message().find("cannot be written: File too large"), std::string::npos) << full.message();
  EXPECT_EQ(FilesIn(folder.path()), 1U);
  EXPECT_EQ(*Read(path), kSmall);
}

TEST(PackedFileTest, WritersAtOnceLeaveOneWholeFile) {
  const TempFolder folder;
  const std::string path = folder / "file";
  std::vector<std::thread> threads;
  for (char fill = 'a'; fill < 'e'; ++fill) {
    threads.emplace_back([&, fill] {
      for (int round = 0; round < 20; ++round) {
        EXPECT_TRUE(Write(path, {{"blob", std::string(200000, fill)}}).ok());
        const auto read = Read(path);
        ASSERT_TRUE(read.ok()) << read.status().message();
        EXPECT_EQ(read->front().second, std::string(200000, read->front().second.front()));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(FilesIn(folder.path()), 1U);
}

}  // namespace
}  // namespace qtts
