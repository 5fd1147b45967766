// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TESTS_SCHEDULER_FIXTURE_H_
#define QTTS_TESTS_SCHEDULER_FIXTURE_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "scheduler/scheduler.h"
#include "scripted_backend.h"

namespace qtts {

// An utterance in the streaming layout.
struct StartOptions {
  std::string text = "Hello.";
  bool more_text = false;
  size_t lead = 25;  // frames ahead of the reader
  std::function<void()> on_change = {};
  bool runaway_guard = false;
  std::chrono::nanoseconds max_wait = Request::kNoLimit;
};

// Prompts and tokenizer of one model folder; the weights are not used.
class SchedulerTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    auto checkpoint = Checkpoint::Open(QTTS_TEST_VOICE);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    auto tokenizer = Tokenizer::Load(QTTS_TEST_VOICE);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
    tokenizer_ = *tokenizer;
    auto prompts = PromptBuilder::Create((*checkpoint)->config(), tokenizer_);
    ASSERT_TRUE(prompts.ok()) << prompts.status().message();
    prompts_ = std::make_shared<const PromptBuilder>(*std::move(prompts));
    pad_ = (*checkpoint)->config().tts_pad_token_id;
    eos_ = (*checkpoint)->config().tts_eos_token_id;
  }

  void TearDown() override {
    scheduler_.reset();
    EXPECT_EQ(script_->open_slots, 0) << "slots leaked";
  }

  Scheduler& scheduler() {
    if (!scheduler_) scheduler_ = *Scheduler::Create(std::make_unique<ScriptedBackend>(&script_));
    return *scheduler_;
  }

  std::shared_ptr<StreamState> Start(uint64_t seed, const StartOptions& options = {}) {
    Request request;
    request.max_wait = options.max_wait;
    request.runaway_guard = options.runaway_guard;
    request.text = options.text;
    request.more_text = options.more_text;
    request.seed = seed;
    return StartRequest(request, options.lead, options.on_change);
  }

  std::shared_ptr<StreamState> StartRequest(Request request, size_t lead = 25, std::function<void()> on_change = {}) {
    request.layout = PromptLayout::kStreaming;
    auto stream = std::make_shared<StreamState>(prompts_, tokenizer_, request, lead, std::move(on_change));
    const Status status = stream->Begin();
    EXPECT_TRUE(status.ok()) << status.message();
    scheduler().Add(stream);
    return stream;
  }

  static std::vector<int32_t> ReadAll(StreamState& stream, uint64_t seed) {
    std::vector<int32_t> codes;
    Frame frame;
    while (stream.Read(&frame, true) == ReadState::kFrame) {
      EXPECT_EQ(frame.index, static_cast<int64_t>(codes.size()));
      EXPECT_FLOAT_EQ(frame.pcm.at(0), static_cast<float>(seed) + static_cast<float>(frame.index) / 1000.0F);
      codes.push_back(frame.codes.at(0));
    }
    return codes;
  }

  // Waits until `condition` holds, evaluated under the script's lock.
  template <typename Condition>
  bool Await(const Condition& condition) {
    auto script = script_.Lock();
    return script.WaitFor(std::chrono::seconds(300), condition);
  }
  template <typename Condition>
  bool AwaitOccupancy(const Condition& condition) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(300);
    while (!condition(scheduler().occupancy())) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
  }
  // Waits until `streams` streams wait for a slot.
  bool AwaitWaiting(int streams) {
    return AwaitOccupancy([streams](const Occupancy& now) { return now.waiting == streams; });
  }

  // Waits until `seed` has `count` steps submitted; then makes sure that no more come.
  std::vector<int32_t> SettledText(uint64_t seed, size_t count) {
    EXPECT_TRUE(Await([&] { return script_->text_by_seed[seed].size() >= count; }));
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    return script_.Text(seed);
  }

  using Streams = std::vector<std::shared_ptr<StreamState>>;
  static void ReadFrameOfEach(const Streams& streams) {
    Frame frame;
    for (const auto& stream : streams) ASSERT_EQ(stream->Read(&frame, true), ReadState::kFrame);
  }
  // Reads frames until the scheduler can predict a step's time.
  static void ReadUntilStepTimeIsKnown(const Streams& streams) {
    for (int i = 0; i < 40; ++i) ReadFrameOfEach(streams);
  }
  // Number of rows of the step with the first frame of `seed`; 0: there was none.
  size_t RowsOfFirstStep(uint64_t seed) {
    const auto script = script_.Lock();
    for (const std::vector<uint64_t>& step : script->submissions) {
      if (std::find(step.begin(), step.end(), seed) != step.end()) return step.size();
    }
    return 0;
  }

  inline static std::shared_ptr<const Tokenizer> tokenizer_;
  inline static std::shared_ptr<const PromptBuilder> prompts_;
  inline static int32_t pad_, eos_;
  SharedScript script_;
  std::unique_ptr<Scheduler> scheduler_;
};

}  // namespace qtts

#endif  // QTTS_TESTS_SCHEDULER_FIXTURE_H_
