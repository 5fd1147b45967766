// SPDX-License-Identifier: LGPL-2.1-or-later
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "api/engine_registry.h"
#include "qtts/engine.h"
#include "unit/base/log_lines.h"

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

// --- several devices; engines on the CPU stand in for GPUs

Result<std::shared_ptr<Engine>> LoadWith(int voices) {
  EngineOptions options = Voice();
  options.voices = voices;
  return Engine::Load(options);
}

TEST(EngineRegistryTest, UsersAreSpreadByFreeVoices) {
  EngineRegistry registry;
  std::vector<size_t> loads;
  const auto get = [&] {
    auto engine = registry.GetFreest(
        {"a", "b", "c"}, 2,
        [&](size_t index) {
          loads.push_back(index);
          return LoadWith(2);
        },
        nullptr);
    EXPECT_TRUE(engine.ok()) << engine.status().message();
    return *engine;
  };
  std::vector<std::shared_ptr<Engine>> users;
  users.reserve(9);
  for (int i = 0; i < 3; ++i) users.push_back(get());
  EXPECT_EQ(loads, (std::vector<size_t>{0, 1, 2})) << "an engine for each device";
  EXPECT_NE(users[0], users[1]);
  EXPECT_NE(users[1], users[2]);
  for (int i = 0; i < 6; ++i) users.push_back(get());
  EXPECT_EQ(loads.size(), 3U);
  for (size_t i = 3; i < 9; ++i) EXPECT_EQ(users[i], users[i - 3]) << "in turn while all are equally busy, and beyond";
  users[1] = users[4] = nullptr;
  EXPECT_EQ(get(), users[7]) << "the one with the fewest users";

  const std::shared_ptr<Engine> last = users[2];
  users.clear();
  EXPECT_NE(get(), last) << "a device without an engine has all its voices";
  EXPECT_EQ(loads.size(), 4U);
}

TEST(EngineRegistryTest, ConcurrentUsersAreSpreadToo) {
  EngineRegistry registry;
  std::atomic<int> loads = 0;
  std::vector<std::shared_ptr<Engine>> engines(8);
  std::vector<std::thread> threads;
  for (auto& engine : engines) {
    threads.emplace_back([&] {
      auto result = registry.GetFreest(
          {"a", "b"}, 4,
          [&](size_t) {
            ++loads;
            return LoadWith(4);
          },
          nullptr);
      ASSERT_TRUE(result.ok()) << result.status().message();
      engine = *result;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(loads, 2);
  const auto of_first = std::count(engines.begin(), engines.end(), engines[0]);
  EXPECT_GE(of_first, 2) << "of 8 users";
  EXPECT_LE(of_first, 6) << "of 8 users";
}

TEST(EngineRegistryTest, DevicesThatFailAreLeftOut) {
  EngineRegistry registry;
  std::vector<size_t> tried;
  int good = 1;
  const auto load = [&](size_t index) -> Result<std::shared_ptr<Engine>> {
    tried.push_back(index);
    if (static_cast<int>(index) == good) return LoadWith(2);
    return Status::ResourceExhausted("device " + std::to_string(index) + " is full");
  };
  const auto engine = registry.GetFreest({"a", "b", "c"}, 2, load, nullptr);
  ASSERT_TRUE(engine.ok());
  EXPECT_EQ(tried, (std::vector<size_t>{0, 1}));
  const auto again = registry.GetFreest({"a", "b", "c"}, 1, load, nullptr);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(*again, *engine);
  good = -1;
  const auto none = registry.GetFreest({"d", "e"}, 2, load, nullptr);
  EXPECT_EQ(none.status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(none.status().message(), "device 0 is full") << "the first device's error";

  tried.clear();
  const auto stopped = registry.GetFreest(
      {"d", "e"}, 2,
      [&](size_t index) -> Result<std::shared_ptr<Engine>> {
        tried.push_back(index);
        return Status::Cancelled("stopped");
      },
      nullptr);
  EXPECT_EQ(stopped.status().code(), StatusCode::kCancelled);
  EXPECT_EQ(tried, (std::vector<size_t>{0})) << "who stops wants no other device";
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

TEST(EngineTest, CountsTokens) {
  const auto engine = Engine::Acquire(Voice());
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  const auto count = [&](std::string_view text) {
    const Result<size_t> tokens = (*engine)->CountTokens(text);
    EXPECT_TRUE(tokens.ok()) << tokens.status().message();
    return tokens.ok() ? *tokens : 0;
  };
  EXPECT_EQ(count(""), 0U);
  EXPECT_GT(count("Good morning."), 1U);
  EXPECT_LT(count("Good morning."), 13U) << "words are longer than bytes";
  EXPECT_EQ(count("\uFDFA\uFDFA"), 6U) << "a character that the vocabulary lacks has a token a byte";
  EXPECT_EQ((*engine)->CountTokens(std::string(1 << 17, 'a')).status().code(), StatusCode::kResourceExhausted);
}

TEST(EngineTest, TheFirstUserOfAnEngineDecidesHowManyVoicesItHas) {
  const LogLines warnings(LogLevel::kWarning);
  EngineOptions options = Voice();
  options.voices = 3;
  const auto first = Engine::Acquire(options);
  ASSERT_TRUE(first.ok()) << first.status().message();
  EXPECT_EQ((*first)->occupancy().slots, 3);
  options.voices = 2;
  const auto fewer = Engine::Acquire(options);
  ASSERT_TRUE(fewer.ok()) << fewer.status().message();
  EXPECT_EQ(*fewer, *first);
  EXPECT_EQ(warnings.text(), "");
  options.voices = 100;
  const auto more = Engine::Acquire(options);
  ASSERT_TRUE(more.ok()) << more.status().message();
  EXPECT_EQ(*more, *first);
  EXPECT_NE(warnings.text().find("voices=100: the engine of this model already runs with 3"), std::string::npos)
      << warnings.text();
  options.voices = 0;
  EXPECT_EQ(Engine::Acquire(options).status().code(), StatusCode::kInvalidArgument) << "running or not";
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
