// SPDX-License-Identifier: LGPL-2.1-or-later
#include "qtts/resources.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <memory>
#include <new>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>

#include "qtts/engine.h"
#include "qtts/polling.h"

// Every allocation of C++ in this program is counted, on all threads, and some fail.
namespace {

std::atomic<int64_t> allocations{0};
std::atomic<int64_t> first_failure{std::numeric_limits<int64_t>::max()};
std::atomic<int64_t> failures{0};  // in a row
std::atomic<size_t> least_bytes{0};

// True if SentencePiece allocates: it crashes without memory, so the engine makes sure that there is some.
bool AskedBySentencePiece() {
  std::array<void*, 40> frames{};
  const int count = backtrace(frames.data(), static_cast<int>(frames.size()));
  return std::any_of(frames.begin(), frames.begin() + count, [](void* frame) {
    Dl_info info = {};
    return dladdr(frame, &info) != 0 && std::string_view(info.dli_fname).find("libsentencepiece") != std::string::npos;
  });
}

void* Allocate(size_t bytes, size_t alignment) {
  const int64_t number = bytes < least_bytes ? -1 : allocations++;
  const int64_t behind = number - first_failure;
  if (behind >= 0 && behind < failures && !AskedBySentencePiece()) throw std::bad_alloc();
  void* const memory = alignment == 0 ? std::malloc(bytes)
                                      : std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(size_t bytes) { return Allocate(bytes, 0); }
void* operator new(size_t bytes, std::align_val_t alignment) { return Allocate(bytes, static_cast<size_t>(alignment)); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }

namespace qtts {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

// While it lives, `count` allocations of at least `bytes` bytes fail, from number `first` on.
class Shortage {
 public:
  Shortage(int64_t first, int64_t count, size_t bytes) {
    allocations = 0;
    least_bytes = bytes;
    failures = count;
    first_failure = first;
  }
  ~Shortage() {
    first_failure = kNever;
    least_bytes = 0;
  }
  Shortage(const Shortage&) = delete;
  Shortage& operator=(const Shortage&) = delete;

  static int64_t Allocations() { return allocations; }
};

EngineOptions Options() {
  EngineOptions options;
  options.model_path = QTTS_TEST_VOICE;
  options.device = Device::kCpu;
  options.threads = 2;
  return options;
}

Request SomeRequest() {
  Request request;
  request.text = "Hello ";
  request.more_text = true;
  request.layout = PromptLayout::kStreaming;
  request.settings.max_new_tokens = 3;
  return request;
}

Result<std::shared_ptr<Engine>> Load() {
  QTTS_RETURN_IF_ERROR(Engine::Inspect(Options()).status());
  return Engine::Acquire(Options());
}

// With text in two pieces.
Status Speak(Engine* engine) {
  QTTS_ASSIGN_OR_RETURN(const std::unique_ptr<Stream> stream, engine->Start(SomeRequest()));
  Status text = stream->Append("there.");
  if (text.ok()) text = stream->FinishText();
  // An ended stream refuses text, and reports the reason of its end itself.
  if (!text.ok() && text.code() != StatusCode::kCancelled) return text;
  Frame frame;
  while (stream->Read(&frame) == ReadState::kFrame) {
  }
  return stream->status();
}

Status LoadAndSpeak() {
  QTTS_ASSIGN_OR_RETURN(const std::shared_ptr<Engine> engine, Load());
  return Speak(engine.get());
}

// Failing allocations: how many in a row, and their minimum size in bytes.
struct Kind {
  int64_t failures;
  size_t least_bytes;
};

// alarm() ends the test program if it hangs.
class ResourcesTest : public testing::Test {
 protected:
  void SetUp() override {
    alarm(1000);
    // This creates static objects of the libraries.
    const Status status = LoadAndSpeak();
    ASSERT_TRUE(status.ok()) << status.message();
  }
  void TearDown() override { alarm(0); }

  // Lets allocations fail in `steps` runs of `function`, from its first to its last one. Returns the number of failed
  // runs.
  template <typename Function>
  int Sweep(Kind kind, int steps, const Function& function) {
    int64_t total = 0;
    {
      const Shortage none(kNever, 0, kind.least_bytes);
      EXPECT_TRUE(function().ok());
      total = Shortage::Allocations();
    }
    int failed = 0;
    for (int step = 0; step < steps; ++step) {
      const auto jitter = static_cast<int64_t>(random_() % static_cast<uint64_t>(total));
      Status status;
      {
        const Shortage shortage((total * step + jitter) / steps, kind.failures, kind.least_bytes);
        status = function();
      }
      if (status.ok()) continue;
      SCOPED_TRACE("allocation " + std::to_string((total * step + jitter) / steps) + " of " + std::to_string(total));
      ++failed;
      EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status.message();
      EXPECT_NE(status.message().find("not enough memory"), std::string::npos) << status.message();
    }
    // The scheduler's thread may still have an exception of the last shortage on its way up. It then gives up its
    // engine, with all streams that have begun until then, and the next function() gets another.
    Status after = function();
    if (after.code() == StatusCode::kResourceExhausted) after = function();
    EXPECT_TRUE(after.ok()) << "after a shortage: " << after.message();
    return failed;
  }

 private:
  std::mt19937_64 random_{std::random_device{}()};
};

// Large allocations only, which a system refuses first: the JSON library allocates in destructors, and ends the process
// if that fails.
// Check: 34
TEST_F(ResourcesTest, WhateverLargeAllocationFailsWhileLoadingThereIsSpeechOrAnError) {
  constexpr size_t kLarge = 65536;
  int failed = 0;
  for (const int64_t failures : {int64_t{1}, kNever}) failed += Sweep({failures, kLarge}, 50, LoadAndSpeak);
  EXPECT_GT(failed, 50);
}

// Check: 34
TEST_F(ResourcesTest, WhateverAllocationFailsWhileSpeakingThereIsSpeechOrAnError) {
  // The scheduler may have dropped its engine; then the next run gets a new one.
  std::shared_ptr<Engine> engine;
  const auto speak = [&]() -> Status {
    const int64_t first = first_failure.exchange(kNever);
    const int64_t before = allocations;
    if (engine == nullptr || engine->device_lost()) engine = *Load();
    allocations = before;
    first_failure = first;
    return Speak(engine.get());
  };
  int failed = 0;
  for (const int64_t failures : {int64_t{1}, int64_t{20}, kNever}) failed += Sweep({failures, 0}, 100, speak);
  EXPECT_GT(failed, 100);
}

// Check: 34
TEST(CatchExhaustionTest, NamesWhatRanOutAndForWhat) {
  const Status memory = CatchExhaustion("sing", []() -> Status { throw std::bad_alloc(); });
  EXPECT_EQ(memory.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(memory.message().find("not enough memory to sing"), 0U) << memory.message();
  const Status threads = CatchExhaustion("sing", []() -> Status {
    throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
  });
  EXPECT_EQ(threads.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(threads.message().find("no thread could be started to sing"), 0U) << threads.message();
  const Result<int> size = CatchExhaustion("sing", []() -> Result<int> { throw std::length_error("vector"); });
  EXPECT_EQ(size.status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(*CatchExhaustion("sing", []() -> Result<int> { return 3; }), 3);
}

// Check: 49
TEST(PollPermitTest, TwoOfTheProcessAtOnce) {
  const PollPermit first;
  EXPECT_TRUE(first.granted());
  {
    const PollPermit second;
    const PollPermit third;
    EXPECT_TRUE(second.granted());
    EXPECT_FALSE(third.granted());
  }
  std::thread([] {
    const PollPermit second;
    EXPECT_TRUE(second.granted());
  }).join();
}

// Check: 34
TEST(CatchExhaustionTest, AnErrorIsCopiedWithoutMemory) {
  const Status original = Status::Internal(std::string(1000, 'x'));
  Status copy;
  int64_t used = 0;
  {
    const Shortage none(kNever, 0, 0);
    copy = original;
    used = Shortage::Allocations();
  }
  EXPECT_EQ(used, 0);
  EXPECT_EQ(copy.message(), original.message());
}

}  // namespace
}  // namespace qtts
