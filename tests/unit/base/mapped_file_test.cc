// SPDX-License-Identifier: LGPL-2.1-or-later
#include "base/mapped_file.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>

#include "unit/checkpoint/support.h"

namespace qtts {
namespace {

using testing::TempFolder;
using testing::WriteFile;

// Resident memory of the mapping that begins at `address`, in kB, from /proc.
int64_t ResidentKilobytes(const void* address) {
  std::ostringstream first;
  first << std::hex << reinterpret_cast<uintptr_t>(address) << '-';
  std::ifstream maps("/proc/self/smaps");
  std::string line;
  bool found = false;
  while (std::getline(maps, line)) {
    if (line.rfind(first.str(), 0) == 0) found = true;
    if (found && line.rfind("Rss:", 0) == 0) return std::stoll(line.substr(4));
  }
  return -1;
}

TEST(MappedFileTest, WhatIsReleasedTakesNoMemoryAndIsReadAgain) {
  const TempFolder folder;
  const std::string path = folder / "file";
  std::string content(4'000'000, '\0');
  for (size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i * 2654435761U >> 24);
  WriteFile(path, content);
  const auto file = MappedFile::Open(path);
  ASSERT_TRUE(file.ok());
  const auto read_all = [&] {
    return std::string(reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size());
  };
  ASSERT_EQ(read_all(), content);
  const int64_t whole = ResidentKilobytes(file->bytes().data());
  ASSERT_GE(whole, 3900);

  // A part that begins and ends within pages.
  file->Release(file->bytes().subspan(1'000'001, 2'000'000));
  const int64_t left = ResidentKilobytes(file->bytes().data());
  EXPECT_LT(left, 2100);
  EXPECT_EQ(read_all(), content);
  EXPECT_TRUE(file->Check().ok());

  file->Release(file->bytes().subspan(10, 20));
  file->Release({});
  EXPECT_EQ(read_all(), content);
}

}  // namespace
}  // namespace qtts
