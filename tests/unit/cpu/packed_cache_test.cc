// SPDX-License-Identifier: LGPL-2.1-or-later
#include "cpu/packed_cache.h"

#include <glib.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/log.h"
#include "cpu/cpu_backend.h"
#include "cpu/weight_packer.h"
#include "golden/generator/random_checkpoint.h"
#include "unit/checkpoint/support.h"

// The packed copy of a model's weights, as a backend uses it. Problems with it are never errors: the backend then works
// without it.
namespace qtts::cpu {
namespace {

namespace fs = std::filesystem;
using testing::ReadFile;
using testing::TempFolder;
using testing::WriteFile;

std::string log;  // of level info
constexpr LogSink kSink = {[](LogLevel level) { return level == LogLevel::kInfo; },
                           [](LogLevel, const char* line) { log += std::string(line) + "\n"; }};

class PackedCacheTest : public ::testing::Test {
 protected:
  PackedCacheTest() {
    PackedCache::SetLeastParameters(0);
    g_setenv("XDG_CACHE_HOME", cache_.path().c_str(), TRUE);
    g_unsetenv("QTTS_NO_CACHE");
    WriteModel(1);
    SetLogSink(&kSink);
  }
  ~PackedCacheTest() override {
    SetLogSink(nullptr);
    g_unsetenv("XDG_CACHE_HOME");
    g_unsetenv("QTTS_NO_CACHE");
    PackedCache::SetLeastParameters(PackedCache::kLeastParameters);
  }

  void WriteModel(uint64_t seed) const {
    auto spec = golden::FindPreset("tiny-custom-0b6");
    ASSERT_TRUE(spec.ok());
    spec->seed = seed;
    ASSERT_TRUE(golden::WriteRandomCheckpoint(model_ / "model", *spec).ok());
  }

  std::unique_ptr<Backend> Load(Arithmetic arithmetic = Arithmetic::kInt8) {
    log.clear();
    auto checkpoint = Checkpoint::Open(model_ / "model");
    EXPECT_TRUE(checkpoint.ok());
    auto backend = CreateCpuBackend(*checkpoint, 2, arithmetic);
    EXPECT_TRUE(backend.ok()) << backend.status().message();
    return *std::move(backend);
  }

  // The status of two frames, whose samples go to `pcm`.
  static Status Speak(Backend* backend, std::vector<float>* pcm) {
    Prompt prompt;
    for (int i = 0; i < 9; ++i) prompt.rows.push_back({5 * i, {}});
    GenerationSettings settings;
    settings.talker.do_sample = settings.predictor.do_sample = false;
    QTTS_ASSIGN_OR_RETURN(const SlotId slot, backend->Open(prompt, settings, 1));
    for (int frame = 0; frame < 2; ++frame) {
      const FrameStep step{slot, frame == 0 ? kNoText : 3};
      QTTS_RETURN_IF_ERROR(backend->Submit({&step, 1}));
      QTTS_ASSIGN_OR_RETURN(const auto results, backend->Collect());
      pcm->insert(pcm->end(), results.front().pcm.begin(), results.front().pcm.end());
    }
    return Status::Ok();
  }
  static std::vector<float> SpeechOf(Backend* backend) {
    std::vector<float> pcm;
    const Status status = Speak(backend, &pcm);
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_FALSE(pcm.empty());
    return pcm;
  }

  std::vector<std::string> Files() const {
    std::vector<std::string> files;
    if (!fs::exists(cache_ / "qttssrc")) return files;
    for (const auto& entry : fs::directory_iterator(cache_ / "qttssrc")) files.push_back(entry.path());
    return files;
  }
  static bool WasRead() { return log.find("packed weights were read from") != std::string::npos; }
  static bool WasWritten() { return log.find("packed weights were written to") != std::string::npos; }

  TempFolder cache_;
  TempFolder model_;
};

TEST_F(PackedCacheTest, TheNextLoadReadsWhatTheFirstPacked) {
  for (const Arithmetic arithmetic : {Arithmetic::kInt8, Arithmetic::kInt4}) {
    const std::vector<float> first = SpeechOf(Load(arithmetic).get());
    EXPECT_TRUE(WasWritten() && !WasRead()) << log;
    const std::vector<float> second = SpeechOf(Load(arithmetic).get());
    EXPECT_TRUE(WasRead() && !WasWritten()) << log;
    EXPECT_EQ(first, second);
  }
  EXPECT_EQ(Files().size(), 2U) << "one for each arithmetic";
}

TEST_F(PackedCacheTest, ExactAndSmallModelsKeepNothing) {
  Load(Arithmetic::kF32);
  PackedCache::SetLeastParameters(PackedCache::kLeastParameters);
  Load();
  EXPECT_FALSE(fs::exists(cache_ / "qttssrc"));
  EXPECT_EQ(log, "");
}

TEST_F(PackedCacheTest, AnotherModelInTheFolderReplacesTheOld) {
  const std::vector<float> old = SpeechOf(Load().get());
  WriteModel(2);
  const std::vector<float> other = SpeechOf(Load().get());
  EXPECT_TRUE(WasWritten() && !WasRead()) << log;
  EXPECT_NE(log.find("was made from other weights"), std::string::npos) << log;
  EXPECT_NE(old, other);
  EXPECT_EQ(Files().size(), 1U);
  EXPECT_EQ(SpeechOf(Load().get()), other);
  EXPECT_TRUE(WasRead()) << log;
}

TEST_F(PackedCacheTest, ADamagedCopyIsMadeAnew) {
  const std::vector<float> expected = SpeechOf(Load().get());
  const std::string path = Files().front();
  const std::string intact = ReadFile(path);
  for (const size_t place : {size_t{3}, size_t{40}, size_t{70}, intact.size() / 2, intact.size() - 1}) {
    std::string damaged = intact;
    damaged[place] = static_cast<char>(damaged[place] ^ 0x10);
    WriteFile(path, damaged);
    EXPECT_EQ(SpeechOf(Load().get()), expected);
    EXPECT_TRUE(WasWritten() && !WasRead()) << place << log;
    EXPECT_EQ(ReadFile(path), intact);
  }
  WriteFile(path, intact.substr(0, intact.size() / 2));
  EXPECT_EQ(SpeechOf(Load().get()), expected);
  EXPECT_EQ(ReadFile(path), intact);
}

TEST_F(PackedCacheTest, WhatLacksABlobIsCompleted) {
  const std::vector<float> expected = SpeechOf(Load().get());
  const std::string path = Files().front();
  const std::string intact = ReadFile(path);
  PackedFile::Key key;
  std::ranges::copy(std::as_bytes(std::span(intact)).subspan(32, key.size()), key.begin());
  auto blobs = *PackedFile::Parse(std::as_bytes(std::span(intact)), key, "");
  blobs.erase(blobs.begin() + 2);
  ASSERT_TRUE(WritePackedFile(path, key, blobs).ok());
  EXPECT_EQ(SpeechOf(Load().get()), expected);
  EXPECT_TRUE(WasWritten() && WasRead()) << log;
  EXPECT_EQ(ReadFile(path), intact);
}

TEST_F(PackedCacheTest, WhereNothingCanBeKeptTheModelSpeaks) {
  const std::vector<float> expected = SpeechOf(Load().get());
  const auto speaks = [&](const std::string& why) {
    EXPECT_EQ(SpeechOf(Load().get()), expected);
    EXPECT_NE(log.find("packed weights are not cached: "), std::string::npos) << log;
    EXPECT_NE(log.find(why), std::string::npos) << log;
  };
  g_setenv("QTTS_NO_CACHE", "1", TRUE);
  speaks("QTTS_NO_CACHE is set");
  g_unsetenv("QTTS_NO_CACHE");
  g_setenv("XDG_CACHE_HOME", "/proc/none", TRUE);
  speaks("/proc/none/qttssrc: cannot be made");
  // A folder in the file's place.
  g_setenv("XDG_CACHE_HOME", cache_.path().c_str(), TRUE);
  const std::string path = Files().front();
  fs::remove(path);
  fs::create_directories(path + "/in the way");
  speaks(path + ": cannot be written");
}

TEST_F(PackedCacheTest, ACopyThatIsTruncatedAfterTheLoadDoesNotMatterAndIsMadeAnew) {
  const std::vector<float> expected = SpeechOf(Load().get());
  const auto backend = Load();
  ASSERT_TRUE(WasRead());
  fs::resize_file(Files().front(), 100);
  EXPECT_EQ(SpeechOf(backend.get()), expected);
  EXPECT_EQ(SpeechOf(Load().get()), expected);
  EXPECT_TRUE(WasWritten()) << log;
}

TEST_F(PackedCacheTest, ACopyThatIsTruncatedWhileItIsReadIsOneError) {
  ASSERT_NE(Load(), nullptr);
  const auto checkpoint = Checkpoint::Open(model_ / "model");
  ASSERT_TRUE(checkpoint.ok());
  ThreadPool pool(2);
  PackedCache cache(**checkpoint, Arithmetic::kInt8, pool);
  fs::resize_file(Files().front(), 100);
  const Status status = cache.Save();
  EXPECT_EQ(status.code(), StatusCode::kUnreadable);
  EXPECT_EQ(status.message(),
            Files().front() + ": was changed while it was read. Start again: the weights will be packed again.");
}

TEST_F(PackedCacheTest, ACopyThatIsDeletedOrReplacedInUseIsKept) {
  const std::vector<float> expected = SpeechOf(Load().get());
  const auto first = Load();
  fs::remove(Files().front());
  const auto second = Load();
  EXPECT_TRUE(WasWritten()) << log;
  EXPECT_EQ(SpeechOf(first.get()), expected);
  EXPECT_EQ(SpeechOf(second.get()), expected);
}

// A change of a packer's layout must raise kVersion. Otherwise existing copies would be read in the new layout.
TEST(PackedCacheVersionTest, TheLayoutIsThatOfTheVersion) {
  constexpr int64_t kRows = 37;
  constexpr int64_t kCols = 150;
  std::vector<float> weights;
  uint32_t state = 1;
  for (int64_t i = 0; i < kRows * kCols; ++i) {
    state = state * 1664525U + 1013904223U;
    weights.push_back(static_cast<float>(state >> 8U) / 16777216.0F - 0.5F);
  }
  ThreadPool pool(2);
  const auto checksum = [&](Arithmetic arithmetic) {
    WeightPacker packer(arithmetic, pool);
    const QuantizedView view = packer.Quantize({DType::kF32, weights.data(), kRows, kCols});
    const auto* const begin = reinterpret_cast<const std::byte*>(view.codes);
    const auto* const end = reinterpret_cast<const std::byte*>(view.scales + view.panels() * view.panel_scales());
    return PackedFile::ChecksumOf({begin, end});
  };
  EXPECT_EQ(PackedCache::kVersion, 2);
  EXPECT_EQ(checksum(Arithmetic::kInt8), 895267829U);
  EXPECT_EQ(checksum(Arithmetic::kInt4), 1515210605U);
}

}  // namespace
}  // namespace qtts::cpu
