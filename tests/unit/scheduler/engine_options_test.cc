// SPDX-License-Identifier: LGPL-2.1-or-later
// Options that contradict each other or that this machine cannot serve are told early, by Inspect().
#include <glib.h>
#include <gtest/gtest.h>

#include <string>

#include "qtts/engine.h"

namespace qtts {
namespace {

class EngineOptionsTest : public ::testing::Test {
 protected:
  EngineOptionsTest() {
    options_.model_path = QTTS_TEST_VOICE;
    // A folder without a GPU backend: the same answers on every machine.
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
  ExpectRefused(StatusCode::kInvalidArgument, "precision=bf16");
  options_.precision = Precision::kF32;
  EXPECT_TRUE(Engine::Inspect(options_).ok()) << "it computes so anyway";
  options_.cuda_device = 0;
  ExpectRefused(StatusCode::kInvalidArgument, "cuda-device-id=0");
}

TEST_F(EngineOptionsTest, NumbersOutOfRangeAreRefused) {
  options_.cuda_device = -2;
  ExpectRefused(StatusCode::kInvalidArgument, "cuda-device-id");
  options_.cuda_device = -1;
  options_.lead_frames = 0;
  ExpectRefused(StatusCode::kInvalidArgument, "lead_frames");
}

TEST_F(EngineOptionsTest, AMissingGpuIsToldBeforeLoading) {
  options_.device = Device::kCuda;
  ExpectRefused(StatusCode::kDeviceUnavailable, "not installed");
}

TEST_F(EngineOptionsTest, AutoTakesTheCpuUnlessBf16IsAskedFor) {
  EXPECT_TRUE(Engine::Inspect(options_).ok());
  options_.cuda_device = 1;
  const auto engine = Engine::Load(options_);
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  EXPECT_EQ((*engine)->device_name().rfind("cpu", 0), 0U);
  options_.precision = Precision::kBF16;
  ExpectRefused(StatusCode::kDeviceUnavailable, "precision=auto");
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
