// SPDX-License-Identifier: LGPL-2.1-or-later
#include "scheduler/announcer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "scheduler/stream_state.h"
#include "scheduler_fixture.h"

namespace qtts {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr size_t kLarge = 16;  // streams of a step whose readers are called by a thread

class AnnouncerTest : public SchedulerTest {
 protected:
  struct Call {
    std::string stream;
    bool here = false;  // on the scheduler's thread, which is the test's
  };

  void SetUp() override {
    SchedulerTest::SetUp();
    announcer_ = *Announcer::Create();
  }

  // Returns a stream whose calls are noted, and wait for Release() if they are not made here.
  std::shared_ptr<StreamState> Make(const std::string& name) {
    Request request;
    request.layout = PromptLayout::kStreaming;
    request.text = "Hello";
    auto stream = std::make_shared<StreamState>(prompts_, tokenizer_, request, 25,
                                                [this, name, test = std::this_thread::get_id()] {
                                                  const bool here = std::this_thread::get_id() == test;
                                                  if (!here) released_.wait();
                                                  EXPECT_EQ(calls_at_once_++, 0);
                                                  calls_.push_back({name, here});
                                                  --calls_at_once_;
                                                });
    EXPECT_TRUE(stream->Begin().ok());
    stream->SetAnnouncer(announcer_.get());
    return stream;
  }
  static void Deliver(StreamState* stream, int64_t index) { stream->Deliver({index, {}, {0.5F}, {}}); }
  void Release() { release_.set_value(); }
  // Waits until all calls are made. Returns those of the thread and of this one.
  std::vector<std::string> Calls(bool here) {
    announcer_.reset();
    std::vector<std::string> names;
    for (const Call& call : calls_) {
      if (call.here == here) names.push_back(call.stream);
    }
    return names;
  }

  std::promise<void> release_;
  std::shared_future<void> released_ = release_.get_future().share();
  std::atomic<int> calls_at_once_ = 0;
  std::vector<Call> calls_;
  std::unique_ptr<Announcer> announcer_;
};

TEST_F(AnnouncerTest, LargeStepsDoNotWaitForReaders) {
  const auto a = Make("a"), b = Make("b");
  announcer_->BeginStep(kLarge);
  for (int64_t i = 0; i < 3; ++i) {
    Deliver(a.get(), i);
    Deliver(b.get(), i);
  }
  EXPECT_EQ(a->unread(), 3U);
  a->End(EndReason::kComplete, Status::Ok());
  EXPECT_TRUE(a->ended());
  Release();
  EXPECT_THAT(Calls(false), ElementsAre("a", "b", "a", "b", "a"));
  EXPECT_THAT(Calls(true), ElementsAre("a", "b")) << "first frames are announced at once";
}

TEST_F(AnnouncerTest, SmallStepsCallReadersAtOnce) {
  const auto a = Make("a");
  announcer_->BeginStep(kLarge - 1);
  for (int64_t i = 0; i < 3; ++i) Deliver(a.get(), i);
  a->End(EndReason::kComplete, Status::Ok());
  EXPECT_EQ(calls_.size(), 4U);
  EXPECT_THAT(Calls(false), IsEmpty());
}

// A call that is not made yet is not overtaken by one of the same stream.
TEST_F(AnnouncerTest, SmallStepsWaitForCallsOfLargeOnes) {
  const auto a = Make("a");
  announcer_->BeginStep(kLarge);
  Deliver(a.get(), 0);
  Deliver(a.get(), 1);
  announcer_->BeginStep(1);
  Deliver(a.get(), 2);
  EXPECT_EQ(calls_.size(), 1U);
  Release();
  EXPECT_THAT(Calls(false), ElementsAre("a", "a"));
}

TEST_F(AnnouncerTest, AStreamThatNobodyElseHoldsIsKeptForItsCall) {
  auto a = Make("a");
  const std::weak_ptr<StreamState> weak = a;
  announcer_->BeginStep(kLarge);
  Deliver(a.get(), 1);
  a.reset();
  EXPECT_FALSE(weak.expired());
  Release();
  EXPECT_THAT(Calls(false), ElementsAre("a"));
  EXPECT_TRUE(weak.expired());
}

}  // namespace
}  // namespace qtts
