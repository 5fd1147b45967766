// SPDX-License-Identifier: LGPL-2.1-or-later
// Inspect() reports errors of a model folder before a load, which may be on another thread.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include "api/tokenizer_cache.h"
#include "qtts/engine.h"

namespace qtts {
namespace {

namespace fs = std::filesystem;

// The bundled voice, its large files as links.
class ModelFolder {
 public:
  ModelFolder() {
    std::string name = (fs::temp_directory_path() / "qtts-inspect-XXXXXX").string();
    path_ = mkdtemp(name.data());
    for (const auto& entry : fs::directory_iterator(QTTS_TEST_VOICE)) {
      const std::string file = entry.path().filename().string();
      if (entry.is_directory() || file.ends_with(".safetensors")) {
        fs::create_symlink(entry.path(), path_ / file);
      } else {
        fs::copy(entry.path(), path_ / file);
        fs::permissions(path_ / file, fs::perms::owner_write, fs::perm_options::add);
      }
    }
  }
  ~ModelFolder() { fs::remove_all(path_); }
  ModelFolder(const ModelFolder&) = delete;
  ModelFolder& operator=(const ModelFolder&) = delete;

  std::string path() const { return path_.string(); }
  std::string Read(const std::string& file) const {
    std::ifstream in(path_ / file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void Write(const std::string& file, const std::string& bytes) const {
    std::ofstream(path_ / file, std::ios::binary) << bytes;
  }
  void Remove(const std::string& file) const { fs::remove(path_ / file); }

 private:
  fs::path path_;
};

EngineOptions OptionsFor(const ModelFolder& folder) {
  EngineOptions options;
  options.model_path = folder.path();
  options.device = Device::kCpu;
  return options;
}

// Check: 43
TEST(EngineInspectTest, FilesOfTheTokenizerAreChecked) {
  const ModelFolder folder;
  const EngineOptions options = OptionsFor(folder);
  ASSERT_TRUE(Engine::Inspect(options).ok());
  const auto expect_refused = [&](const std::string& part) {
    const Status inspected = Engine::Inspect(options).status();
    EXPECT_FALSE(inspected.ok());
    EXPECT_NE(inspected.message().find(part), std::string::npos) << inspected.message();
    EXPECT_EQ(Engine::Load(options).status().message(), inspected.message());
  };
  for (const char* file : {"vocab.json", "merges.txt", "tokenizer_config.json"}) {
    SCOPED_TRACE(file);
    const std::string good = folder.Read(file);
    folder.Remove(file);
    expect_refused(std::string(file) + ": no such file");
    folder.Write(file, good.substr(0, good.size() / 2));
    expect_refused("");  // half of the merges is a valid list, but does not contain "assistant"
    folder.Write(file, "\x01\x02{");
    expect_refused(file);
    folder.Write(file, good);
    EXPECT_TRUE(Engine::Inspect(options).ok());
  }
  // It also checks that they suit the config.
  std::string config = folder.Read("config.json");
  const size_t at = config.find("\"im_start_token_id\": ");
  ASSERT_NE(at, std::string::npos);
  folder.Write("config.json", config.insert(at + 21, "1"));
  expect_refused("im_start_token_id");
}

// Check: 43
TEST(EngineInspectTest, ALoadReadsNothingOfTheTokenizerAgain) {
  const ModelFolder folder;
  const EngineOptions options = OptionsFor(folder);
  const auto model = Engine::Inspect(options);
  ASSERT_TRUE(model.ok()) << model.status().message();
  const auto shared = [&] { return *SharedTokenizer(folder.path(), options.tokenizer_pattern); };
  EXPECT_EQ(shared(), model->read);
  const long before = model->read.use_count();
  const auto engine = Engine::Load(options);
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  EXPECT_GT(model->read.use_count(), before) << "the engine has another one";
}

// Check: 43
TEST(EngineInspectTest, OfARunningEngineNothingIsReadAgain) {
  const ModelFolder folder;
  const EngineOptions options = OptionsFor(folder);
  const auto before = Engine::Inspect(options);
  ASSERT_TRUE(before.ok()) << before.status().message();
  auto engine = Engine::Acquire(options);
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  folder.Remove("vocab.json");
  const auto model = Engine::Inspect(options);
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_EQ(model->path, before->path);
  EXPECT_EQ(model->speakers, before->speakers);
  EXPECT_EQ(model->read, before->read);
  EngineOptions others = options;
  others.threads = 1;
  EXPECT_FALSE(Engine::Inspect(others).ok()) << "another engine would have to read it";
  *engine = nullptr;
  EXPECT_FALSE(Engine::Inspect(options).ok()) << "no engine runs any more";
}

// Check: 43
TEST(EngineInspectTest, ATokenizerIsSharedWhileItsFilesAreWhatTheyWere) {
  const ModelFolder folder;
  const auto get = [&](TokenizerPattern pattern = TokenizerPattern::kNative) {
    auto tokenizer = SharedTokenizer(folder.path(), pattern);
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().message();
    return tokenizer.ok() ? *tokenizer : nullptr;
  };
  const auto first = get();
  EXPECT_EQ(get(), first);
  EXPECT_EQ(*SharedTokenizer(folder.path() + "/.", TokenizerPattern::kNative), first);
  EXPECT_NE(get(TokenizerPattern::kPatched), first);
  folder.Write("merges.txt", folder.Read("merges.txt") + "\n");
  const auto second = get();
  EXPECT_NE(second, first);
  // Another file of the same size.
  const std::string config = folder.Read("tokenizer_config.json");
  folder.Write("new", config);
  fs::rename(folder.path() + "/new", folder.path() + "/tokenizer_config.json");
  EXPECT_NE(get(), second);
  // The cache holds it weakly.
  std::weak_ptr<const Tokenizer> gone = get();
  EXPECT_TRUE(gone.expired());
}

}  // namespace
}  // namespace qtts
