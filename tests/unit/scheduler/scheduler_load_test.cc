// SPDX-License-Identifier: LGPL-2.1-or-later
// Many voices: who joins a step, who is admitted, and who gives way.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "qtts/log.h"
#include "scheduler/scheduler.h"
#include "scheduler_fixture.h"

namespace qtts {
namespace {

using std::chrono::milliseconds;

// --- many voices

// A machine that stands still for a while makes steps look too long for newcomers to have their own. An attempt with a
// longer pause than this between steps shows nothing. The next one has a new scheduler.
constexpr int kAttempts = 50;
constexpr auto kLongestPause = milliseconds(10);
// The same for what a step took longer than scripted.
constexpr int kAttemptsOfBusyDevice = 5;
constexpr auto kLongestDelay = milliseconds(10);
constexpr auto kMeanDelay = milliseconds(1);

TEST_F(SchedulerTest, NewcomersToManyVoicesHaveTwoStepsOfTheirOwn) {
  script_->max_slots = 100;
  script_->beside_host = true;
  for (uint64_t seed = 1; seed <= 20; ++seed) script_->frames_by_seed[seed] = 40;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    int own = 0, shared = 0;  // steps of newcomers
    scheduler_ = nullptr;
    script_->submissions.clear();
    script_->longest_pause = {};
    std::vector<std::shared_ptr<StreamState>> streams;
    for (uint64_t seed = 1; seed <= 20; ++seed) {
      streams.push_back(Start(seed));
      std::this_thread::sleep_for(milliseconds(1));
    }
    for (uint64_t seed = 1; seed <= 20; ++seed) EXPECT_EQ(ReadAll(*streams[seed - 1], seed).size(), 40U);
    const auto script = script_.Lock();
    std::map<uint64_t, int> frames;
    for (const std::vector<uint64_t>& submission : script->submissions) {
      const auto newcomers =
          std::count_if(submission.begin(), submission.end(), [&](uint64_t s) { return frames[s] < 2; });
      if (newcomers == static_cast<ptrdiff_t>(submission.size())) {
        ++own;
      } else if (newcomers != 0) {
        ++shared;
      }
      for (const uint64_t seed : submission) ++frames[seed];
    }
    if (own <= 4 * shared && script->longest_pause > kLongestPause) continue;
    EXPECT_GT(own, 4 * shared);
    return;
  }
  GTEST_SKIP() << "this machine is too busy";
}

// Readers that leave the device no rest. A busy machine makes steps longer, never shorter: then a newcomer may have to
// wait for more than a moment. Devices whose others run low are those of ColdStartTest.
class BusyDeviceTest : public SchedulerTest {
 protected:
  static constexpr std::chrono::microseconds kTimeOfRow{1800};  // 34 ms a step
  static constexpr uint64_t kStreams = 19;
  static constexpr uint64_t kNewcomer = 20;
  static constexpr milliseconds kLongestWait{5000};

  void Begin() {
    scheduler_ = nullptr;
    script_->max_slots = 100;
    script_->beside_host = true;
    script_->time_of_row = kTimeOfRow;
    script_->submissions.clear();
    script_->made_by_seed.clear();
    script_->longest_delay = script_->delays = {};
    script_->delayed_steps = 0;
    for (uint64_t seed = 1; seed <= kNewcomer; ++seed) script_->frames_by_seed[seed] = 1000000;
    streams_.clear();
    for (uint64_t seed = 1; seed <= kStreams; ++seed) streams_.push_back(Start(seed));
    ReadUntilStepTimeIsKnown(streams_);
    for (int i = 0; i < 20; ++i) ReadFrameOfEach(streams_);  // until they are 1.5 s ahead
  }
  // Whether the steps so far took as long as scripted. `late`: by which something else came.
  bool InTime(std::chrono::nanoseconds late = {}) {
    const auto script = script_.Lock();
    return std::max(script->longest_delay, late) <= kLongestDelay &&
           script->delays <= script->delayed_steps * std::chrono::nanoseconds(kMeanDelay);
  }

  Streams streams_;
};

// Where readers take all frames that the device can make, there is no time for steps of newcomers alone.
TEST_F(BusyDeviceTest, NewcomersJoinTheOthers) {
  for (int attempt = 0; attempt < kAttemptsOfBusyDevice; ++attempt) {
    Begin();
    // As fast as it is played, so that nobody's next frame is due.
    std::atomic<bool> stop = false;
    std::chrono::nanoseconds late{0};
    std::thread reader([&] {
      while (!stop) {
        ReadFrameOfEach(streams_);
        const auto until = std::chrono::steady_clock::now() + milliseconds(80);
        std::this_thread::sleep_until(until);
        late = std::max<std::chrono::nanoseconds>(late, std::chrono::steady_clock::now() - until);
      }
    });
    std::this_thread::sleep_for(milliseconds(300));
    const auto newcomer = Start(kNewcomer, {.max_wait = kLongestWait});
    Frame frame;
    const ReadState state = newcomer->Read(&frame, true);
    stop = true;
    reader.join();
    // Some are in the step before.
    const size_t rows = RowsOfFirstStep(kNewcomer);
    if ((state != ReadState::kFrame || rows < kStreams / 3) && !InTime(late)) continue;
    EXPECT_EQ(state, ReadState::kFrame);
    EXPECT_GE(rows, kStreams / 3);
    return;
  }
  GTEST_SKIP() << "this machine is too busy";
}

// There the next frame comes a step of all later: the first one waits for it.
TEST_F(BusyDeviceTest, FirstFramesComeTogether) {
  constexpr size_t kTogether = 2;
  for (int attempt = 0; attempt < kAttemptsOfBusyDevice; ++attempt) {
    Begin();
    std::atomic<bool> stop = false;
    std::thread reader([&] {
      while (!stop) ReadFrameOfEach(streams_);
    });
    const auto newcomer = Start(kNewcomer, {.max_wait = kLongestWait});
    Frame frame;
    const ReadState state = newcomer->Read(&frame, true);
    size_t made = 0;  // when the first is there
    made = script_->made_by_seed[kNewcomer];
    const bool in_time = InTime();
    if (state == ReadState::kFrame) {
      EXPECT_EQ(frame.index, 0);
      EXPECT_EQ(newcomer->Read(&frame, true), ReadState::kFrame);
      EXPECT_EQ(frame.index, 1);
    }
    stop = true;
    reader.join();
    if ((state != ReadState::kFrame || made < kTogether) && !in_time) continue;
    EXPECT_EQ(state, ReadState::kFrame);
    EXPECT_GE(made, kTogether);
    return;
  }
  GTEST_SKIP() << "this machine is too busy";
}

// Newcomers whose own steps fill the device's time leave none for the others' steps: those whose readers need a frame
// come along.
TEST_F(SchedulerTest, NewcomersTakeAlongWhoCannotWait) {
  constexpr uint64_t kStreams = 4;
  constexpr uint64_t kNewcomers = 150;
  constexpr auto kBetweenNewcomers = std::chrono::milliseconds(3);  // each has two steps of its own
  script_->max_slots = 400;
  script_->beside_host = true;
  script_->time_of_step = std::chrono::milliseconds(2);
  script_->time_of_row = std::chrono::microseconds(10);
  for (uint64_t seed = 1; seed <= kStreams; ++seed) script_->frames_by_seed[seed] = 1000000;
  for (uint64_t i = 1; i <= kNewcomers; ++i) script_->frames_by_seed[kStreams + i] = 2;
  for (int attempt = 0; attempt < kAttemptsOfBusyDevice; ++attempt) {
    scheduler_ = nullptr;
    script_->longest_delay = {};
    Streams streams;
    for (uint64_t seed = 1; seed <= kStreams; ++seed) streams.push_back(Start(seed));
    ReadUntilStepTimeIsKnown(streams);
    for (const auto& stream : streams) stream->SetPlayTime({});  // else what they have read would last them
    Streams newcomers;
    Frame frame;
    int read = 0;
    auto next = std::chrono::steady_clock::now();
    for (uint64_t i = 1; i <= kNewcomers; ++i) {
      newcomers.push_back(Start(kStreams + i));
      next += kBetweenNewcomers;
      std::this_thread::sleep_until(next);
      for (const auto& stream : streams) {
        while (stream->Read(&frame, false) == ReadState::kFrame) ++read;
      }
    }
    // In 450 ms and more there is time for more than 100 frames of each, on a slow host for fewer.
    const int enough = 10 * static_cast<int>(kStreams);
    if (read < enough && script_->longest_delay > kLongestDelay) continue;
    EXPECT_GE(read, enough);
    return;
  }
  GTEST_SKIP() << "this machine is too busy";
}

// A device that always has frames in store to make has time for newcomers. A step of all takes 2 ms: on a loaded host,
// whose steps take longer, too little for the device to be busy, which would end the making of frames in store.
TEST_F(SchedulerTest, FramesInStoreLeaveTimeForNewcomers) {
  constexpr uint64_t kStreams = 19;
  constexpr uint64_t kNewcomer = 20;
  constexpr size_t kStore = 1000;
  script_->max_slots = 100;
  script_->beside_host = true;
  script_->time_of_row = std::chrono::microseconds(100);
  for (uint64_t seed = 1; seed <= kNewcomer; ++seed) script_->frames_by_seed[seed] = 1000000;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    scheduler_ = nullptr;
    script_->submissions.clear();
    script_->longest_pause = {};
    std::vector<std::shared_ptr<StreamState>> streams;
    for (uint64_t seed = 1; seed <= kStreams; ++seed) streams.push_back(Start(seed, {.lead = kStore}));
    // Until a step's time is known.
    ASSERT_TRUE(Await([&] { return script_->submissions.size() > 60 || script_->longest_pause > kLongestPause; }));
    const auto newcomer = Start(kNewcomer);
    Frame frame;
    ASSERT_EQ(newcomer->Read(&frame, true), ReadState::kFrame);
    const size_t rows = RowsOfFirstStep(kNewcomer);
    if (rows != 1 && script_->longest_pause > kLongestPause) continue;
    EXPECT_EQ(rows, 1U);
    return;
  }
  GTEST_SKIP() << "this machine is too busy";
}

// The second frame is submitted before the first is collected. Otherwise a step of others would come between them.
TEST_F(SchedulerTest, AmongManyVoicesTheFirstTwoFramesAreSubmittedTogether) {
  script_->beside_host = true;
  script_->max_outstanding = 3;
  for (const int slots : {100, kDefaultVoices}) {
    script_->max_slots = slots;
    scheduler_ = nullptr;
    script_.SetGate(false);
    const auto seed = static_cast<uint64_t>(slots);
    const auto stream = Start(seed);
    EXPECT_EQ(SettledText(seed, slots == 100 ? 2 : 1).size(), slots == 100 ? 2U : 1U);
    script_.SetGate(true);
    EXPECT_EQ(ReadAll(*stream, seed).size(), 5U);
  }
}

TEST_F(SchedulerTest, StreamsWithFramesInStoreAreGatheredWithManyVoices) {
  constexpr size_t kStreams = 40;
  script_->max_slots = 100;
  script_->beside_host = true;
  script_->frames_by_seed[99] = 60;
  for (uint64_t seed = 1; seed <= kStreams; ++seed) script_->frames_by_seed[seed] = 1000000;
  EXPECT_EQ(ReadAll(*Start(99), 99).size(), 60U);  // the scheduler now has a measured time of a step
  ASSERT_TRUE(Await([&] { return script_->open_slots == 0; }));
  script_->text_by_seed.clear();
  std::vector<std::shared_ptr<StreamState>> streams;
  for (uint64_t seed = 1; seed <= kStreams; ++seed) streams.push_back(Start(seed));
  const auto steps = [&] {
    const auto script = script_.Lock();
    size_t rows = 0;
    for (const std::vector<uint64_t>& submission : script->submissions) rows += submission.size();
    return std::pair(script->submissions.size(), rows);
  };
  ASSERT_TRUE(Await([&] {
    return std::all_of(script_->text_by_seed.begin(), script_->text_by_seed.end(),
                       [](const auto& text) { return text.second.size() == 25; }) &&
           script_->text_by_seed.size() == kStreams;
  }));
  const auto full = steps();
  Frame frame;
  for (size_t i = 0; i < 4; ++i) ASSERT_EQ(streams[i]->Read(&frame, true), ReadState::kFrame) << i;
  // Four are fewer than an eighth of all: the idle device waits an eighth of 80 ms for others.
  const auto rows = [&] {
    size_t sum = 0;
    for (const std::vector<uint64_t>& submission : script_->submissions) sum += submission.size();
    return sum;
  };
  ASSERT_TRUE(Await([&] { return rows() == full.second + 4; }));
  for (int i = 0; i < 100; ++i) {
    for (const auto& stream : streams) ASSERT_EQ(stream->Read(&frame, true), ReadState::kFrame);
  }
  const auto later = steps();
  EXPECT_GE(later.second - full.second, (later.first - full.first) * 3)
      << "steps of many, though reads come one by one";
  // A reader that takes every frame has none in store, so its stream is stepped at once.
  for (int i = 0; i < 100; ++i) ASSERT_EQ(streams[6]->Read(&frame, true), ReadState::kFrame);
}

// A step of one stream takes more than 72 ms. A busy machine makes it longer, never shorter, so noise in the step model
// does not change the result.
TEST_F(SchedulerTest, NobodyIsAdmittedForWhomTheDeviceHasNoTime) {
  script_->max_slots = 100;
  script_->beside_host = true;
  script_->time_of_row = milliseconds(75);
  script_->frames_by_seed[1] = 1000000;
  const auto speaking = Start(1);
  Frame frame;
  for (int i = 0; i < 33; ++i) ASSERT_EQ(speaking->Read(&frame, true), ReadState::kFrame);
  std::vector<std::shared_ptr<StreamState>> more;
  for (uint64_t seed = 2; seed <= 31; ++seed) {
    more.push_back(Start(seed, {.max_wait = milliseconds(300)}));
  }
  for (const auto& stream : more) {
    ASSERT_EQ(stream->Read(&frame, true), ReadState::kEnd);
    EXPECT_EQ(stream->end_reason(), EndReason::kBusy);
    EXPECT_NE(stream->status().message().find("the device has no time for another"), std::string::npos)
        << stream->status().message();
  }
  EXPECT_EQ(script_->most_open_slots, 1);
  // The speaking stream goes on, and the next one gets the free slot.
  ASSERT_EQ(speaking->Read(&frame, true), ReadState::kFrame);
  speaking->Cancel();
  EXPECT_EQ(ReadAll(*Start(99), 99).size(), 5U);
}

std::string slow_lines;  // of level debug, written on the scheduler's thread
constexpr LogSink kSlowLines = {[](LogLevel level) { return level == LogLevel::kDebug; },
                                [](LogLevel, const char* line) {
                                  if (std::string_view(line).find("slower") == std::string_view::npos) return;
                                  slow_lines += std::string(line) + "\n";
                                }};

// Speech that is not real-time has no deadlines, so long steps do not indicate a slow device.
TEST_F(SchedulerTest, LongStepsAreNoSlowDeviceWhileNoUtteranceIsRealTime) {
  for (const bool real_time : {false, true}) {
    slow_lines.clear();
    SetLogSink(&kSlowLines);
    script_->max_slots = 100;
    script_->beside_host = true;
    script_->time_of_row = milliseconds(85);
    script_->frames_by_seed[1] = 1000000;
    Request request;
    request.text = "Hello.";
    request.seed = 1;
    request.real_time = real_time;
    const auto stream = StartRequest(request);
    Frame frame;
    for (int i = 0; i < 42; ++i) ASSERT_EQ(stream->Read(&frame, true), ReadState::kFrame);
    stream->Cancel();
    scheduler_.reset();
    SetLogSink(nullptr);
    EXPECT_EQ(slow_lines.empty(), !real_time) << slow_lines;
  }
}

// A step of one stream takes more than 72 ms here, too.
TEST_F(SchedulerTest, AdmissionIgnoresTheTimeOfUtterancesThatAreNotRealTime) {
  constexpr uint64_t kRealTime = 50;
  script_->max_slots = 100;
  script_->beside_host = true;
  script_->time_of_row = milliseconds(75);
  const auto start = [this](uint64_t seed, bool real_time, std::chrono::nanoseconds max_wait) {
    script_->frames_by_seed[seed] = 1000000;
    Request request;
    request.text = "Hello.";
    request.seed = seed;
    request.real_time = real_time;
    request.max_wait = max_wait;
    return StartRequest(request);
  };
  const auto is_open = [this](int slots) { return Await([this, slots] { return script_->open_slots == slots; }); };
  std::vector<std::shared_ptr<StreamState>> streams = {start(1, false, Request::kNoLimit)};
  Frame frame;
  for (int i = 0; i < 33; ++i) ASSERT_EQ(streams[0]->Read(&frame, true), ReadState::kFrame);
  for (uint64_t seed = 2; seed <= 4; ++seed) streams.push_back(start(seed, false, Request::kNoLimit));
  ASSERT_TRUE(is_open(4)) << "no matter how long a step takes";

  // They give way to a real-time utterance, which begins at once.
  const auto real_time = start(kRealTime, true, Request::kNoLimit);
  ASSERT_EQ(real_time->Read(&frame, true), ReadState::kFrame);
  streams.push_back(start(5, false, Request::kNoLimit));
  ASSERT_TRUE(is_open(6)) << "beside it, too";
  const auto refused = start(kRealTime + 1, true, milliseconds(300));
  EXPECT_EQ(refused->Read(&frame, true), ReadState::kEnd);
  EXPECT_EQ(refused->end_reason(), EndReason::kBusy) << "for a second one there is no time";
  real_time->Cancel();
  for (const auto& stream : streams) stream->Cancel();
}

// Reads a stream to its end on a thread of its own, as fast as it comes.
class FastReader {
 public:
  explicit FastReader(std::shared_ptr<StreamState> stream)
      : stream_(std::move(stream)), thread_([this] {
          Frame frame;
          while (stream_->Read(&frame, true) == ReadState::kFrame) ++frames_;
        }) {}
  ~FastReader() {
    stream_->Cancel();
    thread_.join();
  }
  FastReader(const FastReader&) = delete;
  FastReader& operator=(const FastReader&) = delete;
  int frames() const { return frames_; }

 private:
  std::shared_ptr<StreamState> stream_;
  std::atomic<int> frames_ = 0;
  std::thread thread_;
};

// A step of all 21 streams would take 210 ms, in which a real-time stream is played for 80. A busy machine makes steps
// longer, never shorter, which leaves even fewer in a step.
TEST_F(SchedulerTest, UtterancesThatAreNotRealTimeGiveWay) {
  constexpr uint64_t kRealTime = 50;
  constexpr int kFiles = 20;
  constexpr size_t kRowsOfAFrame = 10;  // 8, and what the prediction may be off
  for (const int slots : {kDefaultVoices, 2 * kDefaultVoices}) {
    script_->max_slots = slots;
    script_->beside_host = slots > kDefaultVoices;
    script_->time_of_row = milliseconds(10);
    script_->submissions.clear();
    Request request;
    request.text = "Hello.";
    const auto start = [&](uint64_t seed, bool real_time, int frames) {
      script_->frames_by_seed[seed] = frames;
      request.seed = seed;
      request.real_time = real_time;
      return StartRequest(request);
    };
    {
      ReadAll(*start(kRealTime + 1, false, 40), kRealTime + 1);  // teaches the scheduler the time of a step
      std::deque<FastReader> files;
      for (uint64_t seed = 1; seed <= kFiles; ++seed) files.emplace_back(start(seed, false, 1000000));
      ASSERT_TRUE(Await([this] {
        return std::count_if(script_->submissions.begin(), script_->submissions.end(),
                             [](const auto& step) { return step.size() == kFiles; }) >= 4;
      }));
      size_t begin = 0;
      begin = script_->submissions.size();
      const auto live = start(kRealTime, true, 30);
      EXPECT_EQ(ReadAll(*live, kRealTime).size(), 30U);
      const auto script = script_.Lock();
      std::map<uint64_t, int> frames;
      bool speaks = false;
      for (size_t i = begin; i < script->submissions.size(); ++i) {
        const std::vector<uint64_t>& step = script->submissions[i];
        const auto has_live = std::count(step.begin(), step.end(), kRealTime) > 0;
        if (has_live) {
          EXPECT_LE(step.size(), speaks ? kRowsOfAFrame : 2) << "step " << i - begin;
          speaks = true;
        }
        if (!speaks) continue;
        for (const uint64_t seed : step) ++frames[seed];
      }
      // Each in its turn.
      for (uint64_t seed = 1; seed <= kFiles; ++seed) EXPECT_NEAR(frames[seed], frames[1], 2) << seed;
      EXPECT_GE(frames[1], 1) << "no one is left out for ever";
    }
    scheduler_.reset();
  }
}

// A file is made beside a real-time stream that has no text for now, or whose reader does not read.
TEST_F(SchedulerTest, NobodyGivesWayToARealTimeStreamThatCannotGoOn) {
  constexpr uint64_t kFile = 9;
  script_->time_of_row = std::chrono::microseconds(100);
  script_->frames_by_seed = {{1, 1000000}, {2, 1000000}, {kFile, 100}};
  const auto awaits_text = Start(1, {.text = "Hello", .more_text = true});
  const auto not_read = Start(2, {.lead = 1});
  ASSERT_TRUE(AwaitOccupancy([](const Occupancy& now) { return now.steps > 0; }));
  Request request;
  request.text = "Hello.";
  request.seed = kFile;
  request.real_time = false;
  EXPECT_EQ(ReadAll(*StartRequest(request), kFile).size(), 100U);
  awaits_text->Cancel();
  not_read->Cancel();
}

TEST_F(SchedulerTest, OccupancyCountsSteps) {
  EXPECT_EQ(scheduler().occupancy().steps, 0U);
  script_->time_of_row = milliseconds(1);
  script_->frames_by_seed[2] = 3;
  for (const uint64_t seed : {1, 2}) ReadAll(*Start(seed), seed);
  // 5 and 3 frames, and for each utterance one more step that reports the end.
  ASSERT_TRUE(AwaitOccupancy([](const Occupancy& now) { return now.steps == 10; }));
  EXPECT_EQ(scheduler().occupancy().step_frames, 10U);
  EXPECT_GE(scheduler().occupancy().step_nanoseconds, 10 * 1000000);
}

}  // namespace
}  // namespace qtts
