// SPDX-License-Identifier: LGPL-2.1-or-later
// Inspect() reports options that contradict each other or that this machine does not support.
#include <glib.h>
#include <gtest/gtest.h>

#include <string>

#include "api/device_choice.h"
#include "api/gpu_presence.h"
#include "cpu/bf16_kernels.h"
#include "qtts/engine.h"
#include "unit/base/log_lines.h"

namespace qtts {
namespace {

class EngineOptionsTest : public ::testing::Test {
 protected:
  EngineOptionsTest() {
    options_.model_path = QTTS_TEST_VOICE;
    // A folder without a GPU backend, for the same results on every machine.
    g_setenv("QTTS_BACKEND_PATH", QTTS_TEST_VOICE, TRUE);
  }
  ~EngineOptionsTest() override { g_unsetenv("QTTS_BACKEND_PATH"); }

  void ExpectRefused(StatusCode code, const std::string& word) const {
    const Status inspected = Engine::Inspect(options_).status();
    EXPECT_EQ(inspected.code(), code) << inspected.message();
    EXPECT_NE(inspected.message().find(word), std::string::npos) << inspected.message();
    const Status loaded = Engine::Load(options_).status();
    EXPECT_EQ(loaded.code(), code);
    EXPECT_EQ(loaded.message(), inspected.message());
  }

  EngineOptions options_;
};

TEST_F(EngineOptionsTest, WhatTheCpuCannotDoIsRefused) {
  options_.device = Device::kCpu;
  options_.precision = Precision::kBF16;
  if (!cpu::HasBF16Products()) ExpectRefused(StatusCode::kInvalidArgument, "precision=bf16");
  const Status refused = CheckOptions(options_, false);
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(refused.message().find("precision=int8"), std::string::npos) << "says what helps: " << refused.message();
  EXPECT_TRUE(CheckOptions(options_, true).ok());
  options_.precision = Precision::kF32;
  EXPECT_TRUE(Engine::Inspect(options_).ok()) << "it computes so anyway";
  options_.gpu = 0;
  ExpectRefused(StatusCode::kInvalidArgument, "cuda-device-id=0");
}

TEST_F(EngineOptionsTest, AFastCodecIsForTheGpu) {
  options_.codec_precision = CodecPrecision::kFast;
  options_.device = Device::kCpu;
  ExpectRefused(StatusCode::kInvalidArgument, "codec-precision=exact, with precision=int8");
  options_.device = Device::kAuto;
  options_.precision = Precision::kInt4;
  ExpectRefused(StatusCode::kInvalidArgument, "codec-precision=exact");
  options_.precision = Precision::kF32;
  ExpectRefused(StatusCode::kInvalidArgument, "precision=f32 computes all in F32");
  options_.precision = Precision::kAuto;
  ExpectRefused(StatusCode::kDeviceUnavailable, "codec-precision=fast needs a GPU");
}

TEST_F(EngineOptionsTest, NumbersOutOfRangeAreRefused) {
  options_.gpu = -2;
  ExpectRefused(StatusCode::kInvalidArgument, "cuda-device-id");
  options_.gpu = -1;
  options_.lead_frames = 0;
  ExpectRefused(StatusCode::kInvalidArgument, "lead_frames");
  options_.lead_frames = 1;
  for (const int voices : {-1, 0, kMostVoices + 1}) {
    options_.voices = voices;
    ExpectRefused(StatusCode::kInvalidArgument, "voices=" + std::to_string(voices) + ": must be 1 to 4096");
  }
  for (const int voices : {1, kDefaultVoices, kMostVoices}) {
    options_.voices = voices;
    EXPECT_TRUE(CheckOptions(options_, true).ok()) << voices;
  }
}

TEST_F(EngineOptionsTest, WhatTheGpuCannotDoIsRefused) {
  options_.precision = Precision::kInt4;
  options_.device = Device::kCuda;
  ExpectRefused(StatusCode::kInvalidArgument, "precision=int4 is arithmetic of the CPU");
  ExpectRefused(StatusCode::kInvalidArgument, "the GPU has bf16, f32 and int8: choose one of them, or device=cpu");
  options_.device = Device::kAuto;
  options_.gpu = 0;
  ExpectRefused(StatusCode::kInvalidArgument, "cuda-device-id=0 names a GPU, but precision=int4 is arithmetic of the");
  options_.precision = Precision::kInt8;
  ExpectRefused(StatusCode::kInvalidArgument,
                "precision=int8 with device=auto takes the CPU: leave it at -1, or choose "
                "device=cuda");
}

// Only where device names it; the codec beside it is as fast as asked for.
TEST_F(EngineOptionsTest, Int8TakesTheGpuThatIsAskedFor) {
  options_.precision = Precision::kInt8;
  options_.device = Device::kCuda;
  for (const int gpu : {-1, 0}) {
    options_.gpu = gpu;
    for (const CodecPrecision codec : {CodecPrecision::kExact, CodecPrecision::kFast}) {
      options_.codec_precision = codec;
      EXPECT_TRUE(CheckOptions(options_, false).ok());
      EXPECT_FALSE(NeedsCpu(options_));
      ExpectRefused(StatusCode::kDeviceUnavailable, "not installed");
    }
  }
  bool cpu_asked = false;
  const Result<int> chosen = OnChosenDevice<int>(
      options_,
      [](const EngineOptions& options) -> Result<int> { return options.precision == Precision::kInt8 ? 1 : 0; },
      [&]() -> Result<int> {
        cpu_asked = true;
        return 2;
      });
  ASSERT_TRUE(chosen.ok());
  EXPECT_EQ(*chosen, 1);
  EXPECT_FALSE(cpu_asked);
}

// Even with a GPU: Inspect() does not query the device.
TEST_F(EngineOptionsTest, Int8AndInt4TakeTheCpuAndSaySo) {
  for (const Precision precision : {Precision::kInt8, Precision::kInt4}) {
    options_.precision = precision;
    EXPECT_TRUE(Engine::Inspect(options_).ok());
    bool gpu_asked = false;
    const LogLines log(LogLevel::kInfo);
    const Result<int> chosen = OnChosenDevice<int>(
        options_,
        [&](const EngineOptions&) -> Result<int> {
          gpu_asked = true;
          return 1;
        },
        []() -> Result<int> { return 2; });
    ASSERT_TRUE(chosen.ok());
    EXPECT_EQ(*chosen, 2);
    EXPECT_FALSE(gpu_asked);
    const std::string name(PrecisionName(precision));
    const std::string why =
        precision == Precision::kInt8 ? " takes a GPU only with device=cuda\n" : " is CPU arithmetic\n";
    EXPECT_EQ(log.text(), "using the CPU: precision=" + name + why);

    const auto engine = Engine::Load(options_);
    ASSERT_TRUE(engine.ok()) << engine.status().message();
    EXPECT_NE((*engine)->device_name().find(", " + name + ", "), std::string::npos) << (*engine)->device_name();
  }
}

TEST_F(EngineOptionsTest, EveryPrecisionHasAnArithmeticOfTheCpu) {
  EXPECT_EQ(ArithmeticOf(Precision::kAuto), cpu::Arithmetic::kF32);
  EXPECT_EQ(ArithmeticOf(Precision::kF32), cpu::Arithmetic::kF32);
  EXPECT_EQ(ArithmeticOf(Precision::kBF16), cpu::Arithmetic::kBF16);
  EXPECT_EQ(ArithmeticOf(Precision::kInt8), cpu::Arithmetic::kInt8);
  EXPECT_EQ(ArithmeticOf(Precision::kInt4), cpu::Arithmetic::kInt4);
}

TEST_F(EngineOptionsTest, AMissingGpuIsToldBeforeLoading) {
  options_.device = Device::kCuda;
  ExpectRefused(StatusCode::kDeviceUnavailable, "not installed");
  ExpectRefused(StatusCode::kDeviceUnavailable, "/libqtts-cuda.so)");
}

// The reason and its remedy stay; the advice for device=cuda goes.
TEST_F(EngineOptionsTest, TheWarningThatAGpuIsPassedOverSaysWhyAndWhatToDo) {
  const Status no_code = Status::DeviceUnavailable(
      "device=cuda: Some GPU needs the GPU backend built with -Dcuda-arch=89; choose device=cpu or device=auto");
  EXPECT_EQ(PassedOverWarning(no_code, true),
            "device=auto uses the CPU although there is an NVIDIA GPU: Some GPU needs the GPU backend built with "
            "-Dcuda-arch=89. device=cpu chooses the CPU without this warning");
  const Status no_memory = Status::ResourceExhausted("GPU: not enough memory; close other programs that use it");
  EXPECT_NE(PassedOverWarning(no_memory, true).find("not enough memory; close other programs"), std::string::npos);
  EXPECT_EQ(PassedOverWarning(no_code, false), "");
}

// This program finds no backend. Whether there is a GPU to pass over depends on the machine.
TEST_F(EngineOptionsTest, AGpuWithoutABackendIsPassedOverWithOneWarningInTheLog) {
  const LogLines log(LogLevel::kInfo);
  for (int time = 0; time < 2; ++time) {
    LogLines::Clear();
    const auto engine = Engine::Load(options_);
    ASSERT_TRUE(engine.ok()) << engine.status().message();
    const std::string& warning = (*engine)->passed_over();
    EXPECT_EQ(!warning.empty(), HasNvidiaGpu());
    if (HasNvidiaGpu()) {
      EXPECT_NE(warning.find("is not installed"), std::string::npos) << warning;
      EXPECT_NE(warning.find("-Dcuda=enabled"), std::string::npos) << warning;
    }
  }
  EXPECT_NE(log.text().find("using the CPU: device=cuda: the GPU backend is not installed"), std::string::npos)
      << "at level info, after the first: " << log.text();
  options_.device = Device::kCpu;
  EXPECT_EQ((*Engine::Load(options_))->passed_over(), "");
}

TEST_F(EngineOptionsTest, AutoAsksTheGpuWithTheOptionsAsTheyAre) {
  options_.gpu = 3;
  EngineOptions asked;
  const Result<int> chosen = OnChosenDevice<int>(
      options_,
      [&](const EngineOptions& gpu) -> Result<int> {
        asked = gpu;
        return 1;
      },
      []() -> Result<int> { return 2; });
  ASSERT_TRUE(chosen.ok());
  EXPECT_EQ(*chosen, 1);
  EngineOptions expected = options_;
  expected.device = Device::kCuda;
  EXPECT_EQ(asked, expected);
}

TEST_F(EngineOptionsTest, AutoTakesTheCpuUnlessItLacksBf16) {
  EXPECT_TRUE(Engine::Inspect(options_).ok());
  options_.gpu = 1;
  const auto engine = Engine::Load(options_);
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  EXPECT_EQ((*engine)->device_name().rfind("cpu", 0), 0U);
  options_.precision = Precision::kBF16;
  EXPECT_TRUE(NeedsGpu(options_, false));
  EXPECT_FALSE(NeedsGpu(options_, true));
  if (!cpu::HasBF16Products()) ExpectRefused(StatusCode::kDeviceUnavailable, "precision=auto");
}

TEST_F(EngineOptionsTest, EnginesAreSharedByAllOptions) {
  options_.device = Device::kCpu;
  const auto first = Engine::Acquire(options_);
  const auto same = Engine::Acquire(options_);
  options_.precision = Precision::kF32;
  const auto other = Engine::Acquire(options_);
  ASSERT_TRUE(first.ok() && same.ok() && other.ok());
  EXPECT_EQ(*first, *same);
  EXPECT_NE(*first, *other);
}

}  // namespace
}  // namespace qtts
