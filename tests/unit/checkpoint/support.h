// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TESTS_UNIT_CHECKPOINT_SUPPORT_H_
#define QTTS_TESTS_UNIT_CHECKPOINT_SUPPORT_H_

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

namespace qtts::testing {

// A folder of its own for one test, removed at the end.
class TempFolder {
 public:
  TempFolder() : path_(::testing::TempDir() + "qtts-test-XXXXXX") {
    if (mkdtemp(path_.data()) == nullptr) ADD_FAILURE() << "no temporary folder " << path_;
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(std::string_view name) const { return path_ + "/" + std::string(name); }

 private:
  std::string path_;
};

inline std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void WriteFile(const std::string& path, std::string_view content) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << content;
  file.close();
  EXPECT_TRUE(file.good()) << path;
}

// Names the cases of a table by their `name`.
struct CaseName {
  template <typename Case>
  std::string operator()(const ::testing::TestParamInfo<Case>& tested) const {
    std::string name;
    for (const char c : std::string_view(tested.param.name)) {
      name += (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ? c : '_';
    }
    return name;
  }
};

}  // namespace qtts::testing

#endif  // QTTS_TESTS_UNIT_CHECKPOINT_SUPPORT_H_
