// SPDX-License-Identifier: LGPL-2.1-or-later
#include "checkpoint/cache_folder.h"

#include <fcntl.h>
#include <glib.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ctime>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "base/mapped_file.h"
#include "unit/checkpoint/support.h"

namespace qtts {
namespace {

namespace fs = std::filesystem;
using testing::TempFolder;
using testing::WriteFile;

class CacheFolderTest : public ::testing::Test {
 protected:
  CacheFolderTest() {
    Set("QTTS_NO_CACHE", nullptr);
    Set("XDG_CACHE_HOME", (folder_ / "xdg").c_str());
    Set("HOME", (folder_ / "home").c_str());
  }
  ~CacheFolderTest() override {
    for (const auto& [name, value] : before_) Change(name, value ? value->c_str() : nullptr);
  }

  void Set(const char* name, const char* value) {
    const char* const old = g_getenv(name);
    before_.emplace(name, old == nullptr ? std::nullopt : std::optional<std::string>(old));
    Change(name, value);
  }
  static void Change(const std::string& name, const char* value) {
    value == nullptr ? g_unsetenv(name.c_str()) : static_cast<void>(g_setenv(name.c_str(), value, TRUE));
  }
  static void ExpectNone(const std::string& why) {
    const auto folder = CacheFolder();
    ASSERT_FALSE(folder.ok());
    EXPECT_NE(folder.status().message().find(why), std::string::npos) << folder.status().message();
  }
  // Writes a packed file of 1000 bytes with access and modification times of `days` ago.
  std::string Packed(const std::string& name, int days) const {
    std::string path = folder_ / name;
    WriteFile(path, std::string(1000, 'x'));
    const time_t then = std::time(nullptr) - static_cast<time_t>(days) * 24 * 3600;
    const timespec times[] = {{then, 0}, {then, 0}};
    EXPECT_EQ(utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
    return path;
  }
  std::set<std::string> Names() const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_.path())) names.insert(entry.path().filename());
    return names;
  }

  TempFolder folder_;
  std::map<std::string, std::optional<std::string>> before_;
};

TEST_F(CacheFolderTest, IsThatOfTheUser) {
  EXPECT_EQ(*CacheFolder(), folder_ / "xdg/qttssrc");
  struct stat info = {};
  ASSERT_EQ(stat((folder_ / "xdg/qttssrc").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0700U);
  for (const char* no_path : {"", "relative/path"}) {
    Set("XDG_CACHE_HOME", no_path);
    EXPECT_EQ(*CacheFolder(), folder_ / "home/.cache/qttssrc");
  }
  Set("XDG_CACHE_HOME", nullptr);
  EXPECT_EQ(*CacheFolder(), folder_ / "home/.cache/qttssrc");
}

TEST_F(CacheFolderTest, MayBeTurnedOff) {
  Set("QTTS_NO_CACHE", "1");
  ExpectNone("QTTS_NO_CACHE is set");
  EXPECT_FALSE(fs::exists(folder_ / "xdg"));
  Set("QTTS_NO_CACHE", "");
  EXPECT_TRUE(CacheFolder().ok());
}

TEST_F(CacheFolderTest, WithoutAHomeThereIsNone) {
  Set("XDG_CACHE_HOME", nullptr);
  Set("HOME", nullptr);
  ExpectNone("HOME");
  Set("HOME", "relative");
  ExpectNone("HOME");
  Set("HOME", "/proc/none");  // read-only, for root too
  ExpectNone("/proc/none/.cache/qttssrc: cannot be made");
}

TEST_F(CacheFolderTest, OneThatOthersWriteToIsNotUsed) {
  const std::string path = *CacheFolder();
  for (const unsigned mode : {0770U, 0707U}) {
    ASSERT_EQ(chmod(path.c_str(), mode), 0);
    ExpectNone(path + ": other users may write to it");
  }
  ASSERT_EQ(chmod(path.c_str(), 0755), 0);
  EXPECT_TRUE(CacheFolder().ok());
  if (geteuid() == 0) {
    ASSERT_EQ(chown(path.c_str(), 1234, 1234), 0);
    ExpectNone(path + ": belongs to another user");
  }
  fs::remove_all(path);
  WriteFile(path, "a file");
  ExpectNone(path + ": ");
}

TEST_F(CacheFolderTest, RoomIsLeftOnTheDisk) {
  EXPECT_TRUE(CheckRoom(folder_.path(), 1000, {.leave_free = 0}).ok());
  const Status too_much = CheckRoom(folder_.path(), uint64_t{1} << 60, {.leave_free = 0});
  EXPECT_EQ(too_much.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(too_much.message().find(folder_.path() + ": its disk has "), std::string::npos) << too_much.message();
  EXPECT_FALSE(CheckRoom(folder_.path(), 1000, {.leave_free = uint64_t{1} << 60}).ok());
  EXPECT_FALSE(CheckRoom(folder_ / "none", 1000).ok());
}

TEST_F(CacheFolderTest, WhatIsUsedLeastGoesFirst) {
  const std::string keep = Packed("kept.packed", 3);
  Packed("old.packed", 2);
  Packed("new.packed", 0);
  Packed("newer.packed", 1);
  NoteUse(folder_ / "newer.packed");
  Packed("notes.txt", 1000);
  TrimCache(folder_.path(), keep, {.max_bytes = 4000});
  EXPECT_EQ(Names().size(), 5U);
  TrimCache(folder_.path(), keep, {.max_bytes = 3999});
  EXPECT_EQ(Names(), (std::set<std::string>{"kept.packed", "new.packed", "newer.packed", "notes.txt"}));
  TrimCache(folder_.path(), keep, {.max_bytes = 0});
  EXPECT_EQ(Names(), (std::set<std::string>{"kept.packed", "notes.txt"}));
  TrimCache(folder_ / "none", keep);
}

TEST_F(CacheFolderTest, WhatNobodyUsesGoesWithTime) {
  const std::string keep = Packed("kept.packed", 1000);
  Packed("forgotten.packed", 91);
  Packed("remembered.packed", 89);
  Packed("broken.packed.a1B2c3", 2);
  Packed("being-written.packed.a1B2c3", 0);
  TrimCache(folder_.path(), keep);
  EXPECT_EQ(Names(), (std::set<std::string>{"kept.packed", "remembered.packed", "being-written.packed.a1B2c3"}));
}

// Neither a use nor a removal of a packed file counts as a change for a process that has it mapped.
TEST_F(CacheFolderTest, UsingAFileChangesNothingForOthers) {
  const std::string path = Packed("file.packed", 5);
  const auto mapped = MappedFile::Open(path);
  ASSERT_TRUE(mapped.ok());
  const time_t before = std::time(nullptr);
  NoteUse(path);
  struct stat info = {};
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_GT(info.st_atim.tv_sec, before - 60);
  EXPECT_TRUE(mapped->Check().ok());
  TrimCache(folder_.path(), "", {.max_bytes = 0});
  EXPECT_FALSE(fs::exists(path));
  EXPECT_TRUE(mapped->Check().ok());
  EXPECT_EQ(std::to_integer<char>(mapped->bytes()[999]), 'x');
}

}  // namespace
}  // namespace qtts
