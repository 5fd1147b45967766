// SPDX-License-Identifier: LGPL-2.1-or-later
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "api/engine_registry.h"
#include "qtts/engine.h"

namespace qtts {
namespace {

EngineOptions Voice() {
  EngineOptions options;
  options.model_path = QTTS_TEST_VOICE;
  return options;
}

TEST(EngineRegistryTest, ConcurrentCallersLoadOnceAndShare) {
  EngineRegistry registry;
  std::atomic<int> loads = 0;
  std::vector<std::shared_ptr<Engine>> engines(8);
  std::vector<std::thread> threads;
  for (auto& engine : engines) {
    threads.emplace_back([&] {
      auto result = registry.Get(
          "a",
          [&] {
            ++loads;
            return Engine::Load(Voice());
          },
          nullptr);
      ASSERT_TRUE(result.ok()) << result.status().message();
      engine = *result;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(loads, 1);
  for (const auto& engine : engines) EXPECT_EQ(engine, engines[0]);

  const std::weak_ptr<Engine> weak = engines[0];
  EXPECT_TRUE(registry.Has("a"));
  EXPECT_FALSE(registry.Has("b"));
  engines.clear();
  EXPECT_TRUE(weak.expired()) << "the last user frees the engine";
  EXPECT_FALSE(registry.Has("a"));
}

TEST(EngineRegistryTest, FailureIsNotRemembered) {
  EngineRegistry registry;
  const auto failed = registry.Get(
      "a", [] { return Result<std::shared_ptr<Engine>>(Status::NotFound("no")); }, nullptr);
  EXPECT_EQ(failed.status().code(), StatusCode::kNotFound);
  EXPECT_TRUE(registry
                  .Get(
                      "a", [] { return Engine::Load(Voice()); }, nullptr)
                  .ok());
}

TEST(EngineRegistryTest, WaitingForAnothersLoadCanBeCancelled) {
  EngineRegistry registry;
  std::atomic<bool> loading = false;
  std::atomic<bool> go_on = false;
  std::thread loader([&] {
    (void)registry.Get(
        "a",
        [&] {
          loading = true;
          while (!go_on) std::this_thread::yield();
          return Result<std::shared_ptr<Engine>>(Status::NotFound("no"));
        },
        nullptr);
  });
  while (!loading) std::this_thread::yield();
  const std::atomic<bool> cancelled = true;
  const auto result = registry.Get(
      "a", [] { return Engine::Load(Voice()); }, &cancelled);
  EXPECT_EQ(result.status().code(), StatusCode::kCancelled);
  go_on = true;
  loader.join();
}

TEST(EngineTest, AcquireSharesByFolderHoweverItIsSpelled) {
  auto first = Engine::Acquire(Voice());
  ASSERT_TRUE(first.ok()) << first.status().message();
  EngineOptions other = Voice();
  other.model_path += "/../voice/.";
  auto second = Engine::Acquire(other);
  ASSERT_TRUE(second.ok()) << second.status().message();
  EXPECT_EQ(*first, *second);
}

TEST(EngineTest, LoadErrorsAreClear) {
  EngineOptions options = Voice();
  options.model_path = "/nonexistent/model";
  const auto missing = Engine::Load(options);
  EXPECT_EQ(missing.status().code(), StatusCode::kNotFound);
  EXPECT_NE(missing.status().message().find("/nonexistent/model"), std::string::npos) << missing.status().message();

  options = Voice();
  options.device = Device::kCuda;
  EXPECT_EQ(Engine::Load(options).status().code(), StatusCode::kDeviceUnavailable);

  const std::atomic<bool> cancelled = true;
  EXPECT_EQ(Engine::Load(Voice(), &cancelled).status().code(), StatusCode::kCancelled);
}

TEST(EngineTest, SameSeedSameAudioAndNeighboursDoNotMatter) {
  auto engine = Engine::Load(Voice());
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  Request request;
  request.text = "Good morning.";
  request.seed = 11;
  request.settings = (*engine)->info().defaults;
  const auto read_all = [](Stream& stream) {
    std::vector<float> pcm;
    Frame frame;
    while (stream.Read(&frame) == ReadState::kFrame) pcm.insert(pcm.end(), frame.pcm.begin(), frame.pcm.end());
    EXPECT_TRUE(stream.status().ok()) << stream.status().message();
    return pcm;
  };
  auto alone = (*engine)->Start(request);
  ASSERT_TRUE(alone.ok()) << alone.status().message();
  const std::vector<float> expected = read_all(**alone);
  EXPECT_GT(expected.size(), 5U * 1920U);

  Request neighbour = request;
  neighbour.text = "Something else entirely.";
  neighbour.seed = 12;
  auto beside = (*engine)->Start(neighbour);
  auto again = (*engine)->Start(request);
  ASSERT_TRUE(beside.ok() && again.ok());
  EXPECT_EQ(read_all(**again), expected);
  EXPECT_NE(read_all(**beside), expected);
}

}  // namespace
}  // namespace qtts
