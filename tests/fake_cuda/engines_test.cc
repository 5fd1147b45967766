// SPDX-License-Identifier: LGPL-2.1-or-later
#include <glib.h>
#include <gmock/gmock.h>

#include <memory>
#include <string>
#include <vector>

#include "api/gpu_presence.h"
#include "fake_cuda/fake_cuda.h"
#include "gpu/gpu_test.h"
#include "qtts/engine.h"

// Several engines on stand-in GPUs: Engine opens the module as it does for users, and the module finds this program's
// stand-in for CUDA. Its kernels do nothing, so every frame is silence; the test checks which streams get frames.
namespace qtts {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::MidSize;
using ::testing::Not;
using testing::RandomModel;

class EnginesTest : public ::testing::Test {
 protected:
  EnginesTest() {
    g_setenv("QTTS_BACKEND_PATH", QTTS_FAKE_MODULE_FOLDER, TRUE);
    g_setenv("QTTS_CUDA_TIMEOUT", "0.3", TRUE);
    fake_cuda::Reset({{.name = "First GPU"}, {.name = "Second GPU"}});
  }
  ~EnginesTest() override {
    EXPECT_THAT(fake_cuda::misuse(), IsEmpty());
    EXPECT_EQ(fake_cuda::alive(), 0u);
    g_unsetenv("QTTS_BACKEND_PATH");
  }

  EngineOptions Options(int gpu = -1) const {
    EngineOptions options;
    options.model_path = model_.checkpoint()->folder();
    options.device = Device::kCuda;
    options.gpu = gpu;
    return options;
  }
  static std::shared_ptr<Engine> Acquire(const EngineOptions& options) {
    auto engine = Engine::Acquire(options);
    EXPECT_TRUE(engine.ok()) << engine.status().message();
    return engine.ok() ? *engine : nullptr;
  }
  static std::unique_ptr<Stream> Speak(Engine* engine) {
    Request request;
    request.text = "Hello.";
    request.settings = engine->info().defaults;
    request.lead_frames = 2;
    auto stream = engine->Start(request);
    EXPECT_TRUE(stream.ok()) << stream.status().message();
    return stream.ok() ? *std::move(stream) : nullptr;
  }
  // Reads frames up to that of index `last`.
  static void ExpectFrames(Stream* stream, int64_t first, int64_t last) {
    Frame frame;
    for (int64_t i = first; i <= last; ++i) {
      ASSERT_EQ(stream->Read(&frame), ReadState::kFrame) << i << ": " << stream->status().message();
      EXPECT_EQ(frame.index, i);
    }
  }

  RandomModel model_{MidSize(false)};
};

TEST_F(EnginesTest, ALostCardEndsItsOwnStreamsOnly) {
  std::shared_ptr<Engine> lost = Acquire(Options());
  const std::shared_ptr<Engine> other = Acquire(Options());
  ASSERT_TRUE(lost != nullptr && other != nullptr);
  EXPECT_THAT(lost->device_name(), HasSubstr("First GPU"));
  EXPECT_THAT(other->device_name(), HasSubstr("Second GPU"));
  EXPECT_EQ(lost->gpu(), 0);
  EXPECT_EQ(other->gpu(), 1);
  constexpr int kStreams = 3;
  std::vector<std::unique_ptr<Stream>> ending;
  std::vector<std::unique_ptr<Stream>> going_on;
  for (int i = 0; i < kStreams; ++i) {
    ending.push_back(Speak(lost.get()));
    going_on.push_back(Speak(other.get()));
    ASSERT_TRUE(ending.back() != nullptr && going_on.back() != nullptr);
    ExpectFrames(ending.back().get(), 0, 4);
    ExpectFrames(going_on.back().get(), 0, 4);
  }

  fake_cuda::LoseDevice(0, cudaErrorIllegalAddress);
  for (const auto& stream : ending) {
    Frame frame;
    int after = 0;
    while (stream->Read(&frame) == ReadState::kFrame) ASSERT_LT(++after, 10) << "frames made before the loss";
    EXPECT_EQ(stream->end_reason(), EndReason::kError);
    EXPECT_EQ(stream->status().code(), StatusCode::kDeviceUnavailable);
    EXPECT_THAT(stream->status().message(), HasSubstr("the GPU is lost"));
  }
  EXPECT_TRUE(lost->device_lost());
  EXPECT_FALSE(other->device_lost());
  for (const auto& stream : going_on) ExpectFrames(stream.get(), 5, 40);

  // New users get the other card, whether or not an element still holds the lost engine.
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(Acquire(Options()), other);
    EXPECT_EQ(Engine::Acquire(Options(0)).status().code(), StatusCode::kDeviceUnavailable);
    if (i == 1) {
      ending.clear();
      lost.reset();
    }
  }
  const auto late = Speak(other.get());
  ASSERT_NE(late, nullptr);
  ExpectFrames(late.get(), 0, 10);
  for (const auto& stream : going_on) ExpectFrames(stream.get(), 41, 50);
}

// A card that hangs reports no error. It gets a number that no other test has, since it stays lost for the process.
TEST_F(EnginesTest, AHungCardEndsItsStreamsAndItsEngine) {
  constexpr int kHung = 3;
  fake_cuda::Reset({{}, {}, {}, {.name = "Hung GPU"}});
  std::shared_ptr<Engine> hung = Acquire(Options(kHung));
  std::shared_ptr<Engine> other = Acquire(Options(0));
  ASSERT_TRUE(hung != nullptr && other != nullptr);
  const auto ending = Speak(hung.get());
  auto going_on = Speak(other.get());
  ASSERT_TRUE(ending != nullptr && going_on != nullptr);
  ExpectFrames(ending.get(), 0, 4);
  fake_cuda::HangDevice(kHung);
  Frame frame;
  while (ending->Read(&frame) == ReadState::kFrame) {
  }
  EXPECT_EQ(ending->end_reason(), EndReason::kError);
  EXPECT_EQ(ending->status().code(), StatusCode::kDeviceUnavailable);
  EXPECT_THAT(ending->status().message(), HasSubstr("has not finished its work"));
  EXPECT_TRUE(hung->device_lost());
  EXPECT_THAT(Engine::Acquire(Options(kHung)).status().message(), HasSubstr("the GPU is lost"));
  ExpectFrames(going_on.get(), 0, 10);
  hung.reset();
  going_on.reset();
  other.reset();
  EXPECT_THAT(fake_cuda::misuse(), IsEmpty());
  fake_cuda::Reset();  // drops memory left on the hung card
}

TEST_F(EnginesTest, WithAllCardsLostTheCpuSpeaks) {
  std::vector<std::shared_ptr<Engine>> engines = {Acquire(Options()), Acquire(Options())};
  for (size_t i = 0; i < engines.size(); ++i) {
    ASSERT_NE(engines[i], nullptr);
    const auto stream = Speak(engines[i].get());
    ASSERT_NE(stream, nullptr);
    fake_cuda::LoseDevice(static_cast<int>(i), cudaErrorIllegalAddress);
    Frame frame;
    while (stream->Read(&frame) == ReadState::kFrame) {
    }
    EXPECT_TRUE(engines[i]->device_lost());
  }
  EXPECT_EQ(Engine::Acquire(Options()).status().code(), StatusCode::kDeviceUnavailable);
  EngineOptions options = Options();
  options.device = Device::kAuto;
  const auto engine = Acquire(options);
  ASSERT_NE(engine, nullptr);
  EXPECT_THAT(engine->device_name(), HasSubstr("cpu"));
}

// With device=auto the CPU speaks, and the engine says why the card does not.
TEST_F(EnginesTest, ACardThatIsPassedOverIsToldWithTheRemedy) {
  EngineOptions options = Options();
  options.device = Device::kAuto;
  const auto passed_over = [&](const fake_cuda::Device& device) {
    fake_cuda::Reset({device});
    const auto engine = Acquire(options);
    if (engine == nullptr) return std::string();
    EXPECT_EQ(engine->passed_over().empty(), engine->device_name().find("cpu") == std::string::npos);
    return engine->passed_over();
  };
  EXPECT_EQ(passed_over({.name = "Right GPU"}), "");
  EXPECT_THAT(passed_over({.name = "New GPU", .major = 15, .minor = 1, .has_code = false}),
              AllOf(HasSubstr("New GPU"), HasSubstr("-Dcuda-arch=151"), Not(HasSubstr("device=auto;"))));
  EXPECT_THAT(passed_over({.name = "Old GPU", .major = 7, .minor = 5}), HasSubstr("needed is 8.0 or later"));
  EXPECT_THAT(passed_over({.name = "Small GPU", .memory = 400000000}),
              AllOf(HasSubstr(" has 0.4 GB free"), HasSubstr("close other programs")));
  // The card itself is not told by a driver that is too old.
  fake_cuda::Reset();
  fake_cuda::SetDriver(11040);
  const auto engine = Acquire(options);
  ASSERT_NE(engine, nullptr);
  if (HasNvidiaGpu()) {
    EXPECT_THAT(engine->passed_over(), AllOf(HasSubstr("it is for CUDA 11.4"), HasSubstr("update it")));
  } else {
    EXPECT_EQ(engine->passed_over(), "");
  }
}

TEST_F(EnginesTest, EnginesOfACardDifferByTheirCodecsPrecision) {
  const auto exact = Acquire(Options(0));
  EngineOptions options = Options(0);
  options.codec_precision = CodecPrecision::kFast;
  const auto fast = Acquire(options);
  ASSERT_TRUE(exact != nullptr && fast != nullptr);
  EXPECT_NE(exact, fast);
  EXPECT_THAT(exact->device_name(), Not(HasSubstr("fast codec")));
  EXPECT_THAT(fast->device_name(), HasSubstr("First GPU, bf16, fast codec"));
  EXPECT_EQ(Acquire(options), fast);
  EXPECT_EQ(Acquire(Options(0)), exact);
  // With `auto` too, a fast codec needs the GPU.
  options.device = Device::kAuto;
  options.gpu = -1;
  const auto automatic = Acquire(options);
  ASSERT_NE(automatic, nullptr);
  EXPECT_THAT(automatic->device_name(), HasSubstr("fast codec"));
}

}  // namespace
}  // namespace qtts
