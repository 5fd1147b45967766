// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TESTS_UNIT_BASE_ROOT_FOLDER_H_
#define QTTS_TESTS_UNIT_BASE_ROOT_FOLDER_H_

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace qtts {

// A test with a folder in the place of "/", for functions that read system files below a root.
class RootFolderTest : public testing::Test {
 protected:
  RootFolderTest() {
    std::string name = testing::TempDir() + "root-XXXXXX";
    root_ = mkdtemp(name.data());
  }
  ~RootFolderTest() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& file, const std::string& text) {
    std::filesystem::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text;
  }

  std::filesystem::path root_;
};

}  // namespace qtts

#endif  // QTTS_TESTS_UNIT_BASE_ROOT_FOLDER_H_
