// SPDX-License-Identifier: LGPL-2.1-or-later

// Files of a model that change while they are mapped cause one error, and the process goes on.

#include <fcntl.h>
#include <glib.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/mapped_file.h"
#include "golden/generator/random_checkpoint.h"
#include "qtts/engine.h"
#include "unit/checkpoint/support.h"

namespace qtts {
namespace {

namespace fs = std::filesystem;
using testing::ReadFile;
using testing::TempFolder;
using testing::WriteFile;

// --- one file

// Check: 35
TEST(MappedFileTest, ATruncatedFileReadsAsZerosAndIsTold) {
  const TempFolder folder;
  const std::string path = folder / "file";
  const std::string content(5 * size_t{65536} + 7, 'x');
  WriteFile(path, content);
  auto file = MappedFile::Open(path);
  ASSERT_TRUE(file.ok());
  EXPECT_TRUE(file->Check().ok());
  fs::resize_file(path, 65536);
  EXPECT_EQ(std::to_integer<char>(file->bytes()[0]), 'x');
  for (const size_t lost : {content.size() - 1, size_t{65536}, 3 * size_t{65536} + 1}) {
    EXPECT_EQ(std::to_integer<char>(file->bytes()[lost]), '\0');
  }
  EXPECT_EQ(std::to_integer<char>(file->bytes()[65535]), 'x');
  const Status status = file->Check();
  EXPECT_EQ(status.code(), StatusCode::kUnreadable);
  EXPECT_EQ(status.message().find(path + ": was truncated while it was in use. "), 0U) << status.message();
  // Complete again, but not the same file: data read in between was lost.
  WriteFile(path, content);
  EXPECT_FALSE(file->Check().ok());
  EXPECT_TRUE(MappedFile::Open(path)->Check().ok());
}

// Check: 35
TEST(MappedFileTest, AnOverwrittenFileIsToldAndARenamedOneIsNot) {
  const TempFolder folder;
  const std::string path = folder / "file";
  WriteFile(path, std::string(10000, 'x'));
  auto file = MappedFile::Open(path);
  ASSERT_TRUE(file.ok());
  WriteFile(folder / "new", std::string(500, 'y'));
  fs::rename(folder / "new", path);
  EXPECT_TRUE(file->Check().ok());
  EXPECT_EQ(std::to_integer<char>(file->bytes()[9999]), 'x');

  file = MappedFile::Open(path);
  ASSERT_TRUE(file.ok());
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // one tick of the file system's clock
  const int writer = open(path.c_str(), O_WRONLY);
  EXPECT_EQ(pwrite(writer, "z", 1, 100), 1);
  close(writer);
  const Status status = file->Check();
  EXPECT_EQ(status.code(), StatusCode::kUnreadable);
  EXPECT_EQ(status.message().find(path + ": was overwritten while it was in use. "), 0U) << status.message();
}

// Watched ranges come and go on several threads.
// Check: 35
TEST(MappedFileTest, ManyMappingsAtOnce) {
  const TempFolder folder;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&folder, thread] {
      const std::string path = folder / std::to_string(thread);
      for (int round = 0; round < 50; ++round) {
        WriteFile(path, std::string(20000, 'x'));
        const auto file = MappedFile::Open(path);
        const auto other = MappedFile::Open(path);
        ASSERT_TRUE(file.ok() && other.ok());
        EXPECT_TRUE(file->Check().ok());
        fs::resize_file(path, 0);
        EXPECT_EQ(std::to_integer<char>(file->bytes()[12000]), '\0');
        EXPECT_FALSE(file->Check().ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// A mapping that is not ours.
void FaultElsewhere(const std::string& path) {
  WriteFile(path, std::string(8192, 'x'));
  const int file = open(path.c_str(), O_RDONLY);
  const auto* const data = static_cast<const volatile char*>(mmap(nullptr, 8192, PROT_READ, MAP_SHARED, file, 0));
  fs::resize_file(path, 0);
  (void)data[5000];
}

// Check: 35
TEST(BusErrorsDeathTest, OthersGoToTheHandlerThatWasThereBefore) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  // The child runs the test from its start and dies in it. It uses its parent's folder, which the parent removes.
  constexpr const char* kFolder = "QTTS_DEATH_TEST_FOLDER";
  std::optional<TempFolder> own;
  if (g_getenv(kFolder) == nullptr) g_setenv(kFolder, own.emplace().path().c_str(), TRUE);
  const fs::path folder = g_getenv(kFolder);
  WriteFile(folder / "ours", std::string(8192, 'x'));
  const auto fault = [&] {
    const auto ours = MappedFile::Open(folder / "ours");
    fs::resize_file(folder / "ours", 0);
    if (ours->bytes()[5000] != std::byte{0}) _exit(1);
    FaultElsewhere(folder / "others");
  };
  EXPECT_EXIT(
      {
        std::signal(SIGBUS, [](int) { _exit(42); });
        fault();
      },
      ::testing::ExitedWithCode(42), "");
  EXPECT_EXIT(
      {
        std::signal(SIGBUS, SIG_DFL);
        fault();
      },
      ::testing::KilledBySignal(SIGBUS), "");
  g_unsetenv(kFolder);
}

// --- a model

EngineOptions OptionsOf(const std::string& folder) {
  EngineOptions options;
  options.model_path = folder;
  options.device = Device::kCpu;
  options.threads = 2;
  return options;
}

Request SomeRequest() {
  Request request;
  request.text = "Hello there.";
  request.settings.max_new_tokens = 12;
  request.seed = 5;
  return request;
}

struct Speech {
  Status status;
  std::vector<float> pcm;
};

// `before(n)` is called before frame n is requested.
Speech Speak(
    Engine* engine, const std::function<void(int)>& before = [](int) {}) {
  Speech speech;
  auto stream = engine->Start(SomeRequest());
  if (!stream.ok()) {
    speech.status = stream.status();
    return speech;
  }
  Frame frame;
  for (int index = 0;; ++index) {
    before(index);
    if ((*stream)->Read(&frame) != ReadState::kFrame) break;
    speech.pcm.insert(speech.pcm.end(), frame.pcm.begin(), frame.pcm.end());
  }
  speech.status = (*stream)->status();
  return speech;
}

enum class Change { kEmpty, kHalve, kOverwrite, kCopyOver };

// Ways to change a file in place. All except the last one also change its size or time.
void Do(Change change, const std::string& path) {
  const auto size = fs::file_size(path);
  switch (change) {
    case Change::kEmpty:
      return fs::resize_file(path, 0);
    case Change::kHalve:
      return fs::resize_file(path, size / 2);
    case Change::kOverwrite: {
      const int file = open(path.c_str(), O_WRONLY);
      EXPECT_EQ(pwrite(file, "####", 4, static_cast<off_t>(size / 2)), 4);
      close(file);
      return;
    }
    case Change::kCopyOver:  // as cp does: truncated, then written
      return WriteFile(path, std::string(size, '#'));
  }
}

struct Model {
  const char* name;
  const char* preset;  // preset of the generator; null: the bundled voice
};

class ChangedModelTest : public ::testing::TestWithParam<Model> {
 protected:
  void SetUp() override {
    alarm(1000);
    if (GetParam().preset == nullptr) {
      fs::copy(QTTS_TEST_VOICE, original_, fs::copy_options::recursive);
    } else {
      const auto spec = golden::FindPreset(GetParam().preset);
      ASSERT_TRUE(spec.ok());
      ASSERT_TRUE(golden::WriteRandomCheckpoint(original_, *spec).ok());
    }
    Restore();
  }
  void TearDown() override { alarm(0); }

  // Puts the whole model back, as new files.
  void Restore() {
    fs::remove_all(folder_);
    fs::copy(original_, folder_, fs::copy_options::recursive);
    // A change within the same tick of the file system's clock would not be detected.
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }

  std::shared_ptr<Engine> Acquire() {
    auto engine = Engine::Acquire(OptionsOf(folder_));
    EXPECT_TRUE(engine.ok()) << engine.status().message();
    return engine.ok() ? *engine : nullptr;
  }

  static void ExpectChanged(const Status& status, const std::string& path) {
    EXPECT_EQ(status.code(), StatusCode::kUnreadable) << status.message();
    EXPECT_EQ(status.message().find(path + ": was "), 0U) << status.message();
    EXPECT_NE(status.message().find("Put the whole file back"), std::string::npos) << status.message();
  }

  // The engine is dropped; a model that was put back speaks as before.
  void ExpectRecovery(const std::shared_ptr<Engine>& engine, const std::vector<float>& expected) {
    EXPECT_TRUE(engine->device_lost());
    Restore();
    const auto again = Acquire();
    ASSERT_NE(again, nullptr);
    EXPECT_NE(again, engine);
    EXPECT_EQ(Speak(again.get()).pcm, expected);
  }

  static constexpr const char* kWeights[] = {"/model.safetensors", "/speech_tokenizer/model.safetensors"};

  TempFolder temporary_;
  const std::string original_ = temporary_ / "original";
  const std::string folder_ = temporary_ / "model";
};

// Check: 35
TEST_P(ChangedModelTest, WhileSpeakingAndBetweenUtterances) {
  for (const char* weights : kWeights) {
    for (const Change change : {Change::kEmpty, Change::kHalve, Change::kOverwrite, Change::kCopyOver}) {
      for (const bool between : {false, true}) {
        SCOPED_TRACE(std::string(weights) + ", change " + std::to_string(static_cast<int>(change)));
        const std::string path = folder_ + weights;
        auto engine = Acquire();
        ASSERT_NE(engine, nullptr);
        const Speech whole = Speak(engine.get());
        ASSERT_TRUE(whole.status.ok()) << whole.status.message();
        ASSERT_FALSE(whole.pcm.empty());
        Speech cut;
        if (between) {
          Do(change, path);
          cut = Speak(engine.get());
          EXPECT_TRUE(cut.pcm.empty());
        } else {
          // The engine is at the next frames, since it is one ahead at most.
          auto request = SomeRequest();
          request.settings.max_new_tokens = 200;
          request.lead_frames = 1;
          request.runaway_guard = false;
          auto stream = engine->Start(request);
          ASSERT_TRUE(stream.ok());
          Frame frame;
          ASSERT_EQ((*stream)->Read(&frame), ReadState::kFrame);
          Do(change, path);
          while ((*stream)->Read(&frame) == ReadState::kFrame) {
            for (const float sample : frame.pcm) ASSERT_TRUE(std::isfinite(sample));
          }
          cut.status = (*stream)->status();
        }
        ExpectChanged(cut.status, path);
        ExpectRecovery(engine, whole.pcm);
      }
      Restore();
    }
  }
}

// Check: 35
TEST_P(ChangedModelTest, WhileLoading) {
  const auto seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  int refused = 0;
  for (int round = 0; round < 40; ++round) {
    const std::string path = folder_ + kWeights[round % 2];
    const auto change = static_cast<Change>(round / 2 % 4);
    std::atomic<bool> loaded = false;
    // The last ones come right after the load, however long that takes.
    std::thread changer([&, late = round >= 32, delay = std::chrono::microseconds(random() % 20000)] {
      std::this_thread::sleep_for(delay);
      while (late && !loaded) std::this_thread::yield();
      Do(change, path);
    });
    Status status;
    auto engine = Engine::Acquire(OptionsOf(folder_));
    loaded = true;
    if (engine.ok()) {
      changer.join();
      status = Speak(engine->get()).status;
    } else {
      changer.join();
      status = engine.status();
    }
    // A load that maps the file after the change finds a broken model, or one with four other bytes.
    if (status.ok() && change == Change::kOverwrite) {
      Restore();
      continue;
    }
    EXPECT_TRUE(status.code() == StatusCode::kUnreadable || status.code() == StatusCode::kCorruptModel)
        << status.message();
    EXPECT_NE(status.message().find("model.safetensors"), std::string::npos) << status.message();
    refused += status.code() == StatusCode::kUnreadable ? 1 : 0;
    Restore();
  }
  EXPECT_GT(refused, 0);
  EXPECT_NE(Acquire(), nullptr);
}

// Check: 35
TEST_P(ChangedModelTest, ReplacedByRenameItSpeaksOn) {
  auto engine = Acquire();
  ASSERT_NE(engine, nullptr);
  const Speech expected = Speak(engine.get());
  const Speech same = Speak(engine.get(), [&](int index) {
    if (index != 1) return;
    for (const char* weights : kWeights) {
      WriteFile(folder_ + weights + ".new", "something else");
      fs::rename(folder_ + weights + ".new", folder_ + weights);
    }
  });
  EXPECT_TRUE(same.status.ok()) << same.status.message();
  EXPECT_EQ(same.pcm, expected.pcm);
  EXPECT_EQ(Speak(engine.get()).pcm, expected.pcm);
}

// Files that are read completely when the model is loaded.
// Check: 35
TEST_P(ChangedModelTest, SmallFilesDoNotMatterAfterTheLoad) {
  auto engine = Acquire();
  ASSERT_NE(engine, nullptr);
  const Speech expected = Speak(engine.get());
  for (const auto& entry : fs::recursive_directory_iterator(folder_)) {
    if (entry.is_regular_file() && entry.path().extension() != ".safetensors") fs::resize_file(entry.path(), 0);
  }
  EXPECT_EQ(Speak(engine.get()).pcm, expected.pcm);
}

INSTANTIATE_TEST_SUITE_P(Models, ChangedModelTest,
                         ::testing::Values(Model{"BundledVoice", nullptr}, Model{"Random", "tiny-custom-0b6"}),
                         [](const auto& model) { return model.param.name; });

// Check: 35
TEST(ChangedModelCloneTest, TheVoiceEncoderIsMappedToo) {
  const TempFolder folder;
  const auto spec = golden::FindPreset("tiny-base-0b6");
  ASSERT_TRUE(spec.ok());
  ASSERT_TRUE(golden::WriteRandomCheckpoint(folder / "model", *spec).ok());
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const auto engine = Engine::Acquire(OptionsOf(folder / "model"));
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  Recording recording;
  recording.sample_rate = 24000;
  recording.channels = 1;
  for (int i = 0; i < 48000; ++i) recording.samples.push_back(0.3F * std::sin(static_cast<float>(i * i % 7919)));
  EXPECT_TRUE((*engine)->CloneVoice(recording).ok());
  fs::resize_file(folder / "model/speech_tokenizer/model.safetensors", 100);
  const auto voice = (*engine)->CloneVoice(recording);
  EXPECT_EQ(voice.status().code(), StatusCode::kUnreadable) << voice.status().message();
}

}  // namespace
}  // namespace qtts
