// SPDX-License-Identifier: LGPL-2.1-or-later
#include "scheduler/step_policy.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace qtts {
namespace {

using std::chrono::milliseconds;

const StreamClock::time_point kStepNow{std::chrono::hours(1)};

// A device of 1,000 slots on which a step of all streams takes `all_ms`, whatever their number.
DeviceView DeviceOf(double all_ms, int speaking = 100) {
  return {.many = true,
          .slots = 1000,
          .free_slots = 1000 - speaking,
          .real_time = speaking,
          .cost = {.known = true, .base = all_ms / 1000}};
}

// A stream that plays and has `unread` frames in hand.
StreamView Speaking(int64_t unread, int64_t submitted = 50) {
  return {.plays = true,
          .submitted = submitted,
          .delivered = submitted,
          .unread = unread,
          .lead = 25,
          .first_sound = kStepNow - (submitted - unread) * kFrameTime,
          .play_time = (submitted - unread) * kFrameTime};
}

TEST(StepPolicyTest, ADeviceIsBusyFromHalfOfAFramesTimeOn) {
  const StepPolicy policy;
  EXPECT_FALSE(policy.IsBusy(DeviceOf(39)));
  EXPECT_TRUE(policy.IsBusy(DeviceOf(41)));
  DeviceView unknown = DeviceOf(41);
  unknown.cost.known = false;
  EXPECT_FALSE(policy.IsBusy(unknown)) << "nothing is known of its speed";
  // 25 prompts a second of 1 ms each are 2 ms in a frame's time.
  DeviceView prompts = DeviceOf(39);
  prompts.cost.prompt = 1e-3;
  prompts.prompts_a_second = 25;
  EXPECT_TRUE(policy.IsBusy(prompts));
  // 300 streams at 0.2 ms each are 60 ms, the 100 real-time ones of them 20 ms.
  DeviceView mixed = DeviceOf(0, 300);
  mixed.cost.row = 0.2e-3;
  EXPECT_TRUE(policy.IsBusy(mixed));
  mixed.real_time = 100;
  EXPECT_FALSE(policy.IsBusy(mixed)) << "streams that are not real-time give way";
}

TEST(StepPolicyTest, StreamsOfABusyDeviceAreAFewFramesAhead) {
  struct Row {
    const char* name;
    bool busy, short_of_pages;
    int64_t own, lead;
  };
  for (const Row& row : std::vector<Row>{{"idle", false, false, 25, 25},
                                         {"busy", true, false, 25, 4},
                                         {"busy, a short lead of its own", true, false, 2, 2},
                                         {"busy and short of pages", true, true, 25, 25}}) {
    DeviceView device = DeviceOf(10);
    device.busy = row.busy;
    device.short_of_pages = row.short_of_pages;
    EXPECT_EQ(StepPolicy().Lead(device, row.own), row.lead) << row.name;
  }
}

TEST(StepPolicyTest, AStreamGoesOnWithTextAndBehindItsFirstFrame) {
  struct Row {
    const char* name;
    bool many;
    int64_t submitted, delivered;
    bool has_text, at_limit, goes_on;
  };
  for (const Row& row : std::vector<Row>{{"first frame", false, 0, 0, true, false, true},
                                         {"second, before the first has come", false, 1, 0, true, false, false},
                                         {"the same among many", true, 1, 0, true, false, true},
                                         {"third, among many", true, 2, 0, true, false, false},
                                         {"speaks", false, 9, 8, true, false, true},
                                         {"no text", true, 9, 8, false, false, false},
                                         {"last token", true, 9, 8, true, true, false}}) {
    DeviceView device = DeviceOf(10);
    device.many = row.many;
    const StreamView stream{.has_text = row.has_text,
                            .at_limit = row.at_limit,
                            .submitted = row.submitted,
                            .delivered = row.delivered,
                            .in_flight = row.submitted - row.delivered};
    EXPECT_EQ(StepPolicy().CanGoOn(device, stream), row.goes_on) << row.name;
  }
}

TEST(StepPolicyTest, FirstFramesComeTogetherWhereTheNextOneTakesLong) {
  struct Row {
    const char* name;
    double all_ms;
    bool low, read_ahead, many, known;
    int frames;
  };
  for (const Row& row : std::vector<Row>{{"short steps", 24, true, true, true, true, 1},
                                         {"readers keep to the time", 59, true, false, true, true, 1},
                                         {"readers take all", 26, false, true, true, true, 2},
                                         {"long steps", 61, true, false, true, true, 3},
                                         {"others have enough in store", 61, false, false, true, true, 1},
                                         {"the same, and readers take all", 61, false, true, true, true, 2},
                                         {"few slots", 61, true, true, false, true, 1},
                                         {"no times yet", 61, true, true, true, false, 1}}) {
    DeviceView device = DeviceOf(row.all_ms);
    device.low = row.low;
    device.read_ahead = row.read_ahead;
    device.many = row.many;
    device.cost.known = row.known;
    EXPECT_EQ(StepPolicy().FirstFramesTogether(device), row.frames) << row.name;
  }
  // Prompts come before these steps: 25 a second of 1 ms each are 2 ms in a frame's time.
  DeviceView prompts = DeviceOf(59);
  prompts.low = true;
  prompts.cost.prompt = 1e-3;
  prompts.prompts_a_second = 25;
  EXPECT_EQ(StepPolicy().FirstFramesTogether(prompts), 3);
}

TEST(StepPolicyTest, NewcomersHaveTwoStepsOfTheirOwn) {
  struct Row {
    const char* name;
    double all_ms;
    int64_t submitted;
    bool plays, real_time;
    int others_in_time;
    bool own;
  };
  for (const Row& row : std::vector<Row>{{"first frame", 30, 0, false, true, 100, true},
                                         {"second frame", 30, 1, false, true, 100, true},
                                         {"third frame", 30, 2, true, true, 100, false},
                                         {"first frame where all take long", 61, 0, false, true, 100, false},
                                         {"second, the first was given alone", 61, 1, true, true, 100, true},
                                         {"not real-time beside real-time", 30, 0, false, false, 100, false},
                                         {"not real-time, nor are others", 30, 0, false, false, 0, true}}) {
    DeviceView device = DeviceOf(row.all_ms);
    device.low = true;
    device.real_time = row.others_in_time;
    const StreamView stream{.real_time = row.real_time, .plays = row.plays, .submitted = row.submitted};
    EXPECT_EQ(StepPolicy().HasOwnStep(device, stream), row.own) << row.name;
  }
}

TEST(StepPolicyTest, ANewcomersStepTakesAlongThoseThatCantWait) {
  // A step takes 30 ms, and frames are due 10 ms before they are needed.
  DeviceView device = DeviceOf(30);
  const auto comes = [&](const StreamView& stream) { return StepPolicy().ComesAlong(device, stream, 5, kStepNow); };
  EXPECT_TRUE(comes(Speaking(0))) << "its reader waits";
  StreamView stream = Speaking(1);
  stream.first_sound -= kFrameTime;  // the unread frame is played now
  EXPECT_TRUE(comes(stream));
  EXPECT_FALSE(comes(Speaking(2)));
  stream.plays = false;
  EXPECT_FALSE(comes(stream)) << "its reader has no frame yet";
  // The stream needs its frame in 160 ms, and on a busy device the frame is due 50 ms before that: the step must begin
  // within 80 ms.
  device.busy = true;
  EXPECT_FALSE(comes(Speaking(2)));
  device.done_at = kStepNow + milliseconds(79);
  EXPECT_FALSE(comes(Speaking(2)));
  device.done_at = kStepNow + milliseconds(80);
  EXPECT_TRUE(comes(Speaking(2))) << "the step would begin too late";
}

TEST(StepPolicyTest, OthersMakeWayWhileTheyLeaveTimeForNewcomersOwnSteps) {
  struct Row {
    const char* name;
    double all_ms;
    int real_time, speaking;
    bool low, many, known, makes_way;
  };
  for (const Row& row : std::vector<Row>{{"short steps", 59, 400, 400, true, true, true, true},
                                         {"long steps", 61, 400, 400, true, true, true, false},
                                         {"others have enough in store", 61, 400, 400, false, true, true, true},
                                         {"beside speech for files", 59, 399, 400, false, true, true, false},
                                         {"nobody speaks", 59, 0, 0, false, true, true, false},
                                         {"few slots", 59, 400, 400, false, false, true, false},
                                         {"no times yet", 59, 400, 400, false, true, false, false}}) {
    DeviceView device = DeviceOf(row.all_ms, row.speaking);
    device.low = row.low;
    device.real_time = row.real_time;
    device.many = row.many;
    device.cost.known = row.known;
    EXPECT_EQ(StepPolicy().MakesWay(device), row.makes_way) << row.name;
  }
  DeviceView device = DeviceOf(59);
  device.low = true;
  device.done_at = kStepNow + milliseconds(20);
  EXPECT_EQ(StepPolicy().SubmitFrom(device), kStepNow + milliseconds(15));
  // 25 prompts a second of 1 ms each are 2 ms in a frame's time.
  device.cost.prompt = 1e-3;
  device.prompts_a_second = 25;
  EXPECT_FALSE(StepPolicy().MakesWay(device));
}

TEST(StepPolicyTest, StepsOfOthersAreAsLargeAsAFrameOfAllNeeds) {
  struct Row {
    const char* name;
    int real_time;
    double prompts_a_second;
    size_t rows;
  };
  // 4 ms and 40 us a row: 14.2 ms for 256, 19.4 for 384, 24.5 for 512.
  for (const Row& row : std::vector<Row>{{"few", 100, 0, 256},
                                         {"1,200 in 66.8 ms", 1200, 0, 256},
                                         {"1,300 in 72.3 ms", 1300, 0, 384},
                                         {"1,420 in 71.6 ms", 1420, 0, 384},
                                         {"1,500 in 75.6 ms", 1500, 0, 512},
                                         {"1,200, and prompts of 8 ms", 1200, 100, 384},
                                         {"a step of all takes 84 ms", 2000, 0, 2048}}) {
    DeviceView device = DeviceOf(4, row.real_time);
    device.cost.row = 40e-6;
    device.cost.prompt = 1e-3;
    device.prompts_a_second = row.prompts_a_second;
    EXPECT_EQ(StepPolicy().WayRows(device), row.rows) << row.name;
  }
}

TEST(StepPolicyTest, OthersRunLowOnceATenthOfThoseThatHaveSpokenForAWhileDo) {
  const StepPolicy policy;
  EXPECT_FALSE(policy.AreLow(0, 0));
  EXPECT_FALSE(policy.AreLow(10, 100));
  EXPECT_TRUE(policy.AreLow(11, 100));
  EXPECT_FALSE(policy.IsSettled(Speaking(1, 5))) << "it has just begun";
  EXPECT_TRUE(policy.IsSettled(Speaking(1, 6)));
  StreamView stream = Speaking(1);
  stream.has_text = false;
  EXPECT_FALSE(policy.IsSettled(stream)) << "it waits for its text";
  stream = Speaking(1);
  stream.at_limit = true;
  EXPECT_FALSE(policy.IsSettled(stream)) << "it has all its frames";
  EXPECT_TRUE(policy.RunsLow(DeviceOf(61), Speaking(1), kStepNow));
  EXPECT_FALSE(policy.RunsLow(DeviceOf(61), Speaking(2), kStepNow));
  stream = Speaking(1);
  stream.lead = 1;
  EXPECT_FALSE(policy.RunsLow(DeviceOf(61), stream, kStepNow)) << "it has as much as it asked for";
}

TEST(StepPolicyTest, AStreamIsLowWithoutTwoFramesInStore) {
  EXPECT_FALSE(StepPolicy().IsLow(DeviceOf(30), Speaking(2), kStepNow));
  EXPECT_TRUE(StepPolicy().IsLow(DeviceOf(30), Speaking(1), kStepNow));
  StreamView stream = Speaking(4);
  stream.plays = false;
  EXPECT_TRUE(StepPolicy().IsLow(DeviceOf(30), stream, kStepNow)) << "its first frame is awaited";
}

TEST(StepPolicyTest, EnoughStreamsAreAGroupOfThoseThatSpeak) {
  struct Row {
    const char* name;
    double all_ms;
    int speaking;
    size_t enough;
  };
  // Eight groups at most, and as many as take 72 ms together.
  for (const Row& row : std::vector<Row>{{"8 steps of 9 ms", 9, 800, 100},
                                         {"7 steps of 10 ms", 10, 700, 100},
                                         {"the last group is smaller", 9, 801, 101},
                                         {"2 steps of 36 ms", 36, 400, 200},
                                         {"1 step of 50 ms", 50, 400, 400},
                                         {"1 step that is too long", 90, 400, 400}}) {
    const DeviceView device = DeviceOf(row.all_ms, row.speaking);
    EXPECT_FALSE(StepPolicy().IsEnough(device, row.enough - 1)) << row.name;
    EXPECT_TRUE(StepPolicy().IsEnough(device, row.enough)) << row.name;
  }
  DeviceView unknown = DeviceOf(9, 800);
  unknown.cost.known = false;
  EXPECT_TRUE(StepPolicy().IsEnough(unknown, 1));
}

TEST(StepPolicyTest, ReadyStreamsAreGatheredUntilOneIsDue) {
  struct Row {
    const char* name;
    double all_ms;
    bool busy;
    std::vector<StreamView> ready;
    milliseconds waited;     // since the first one was ready
    milliseconds wait_from;  // now, until the step
  };
  const StreamView newcomer{.plays = false, .submitted = 1};
  // With 10 ms a step there are seven groups, 11 ms each; frames are due 20 ms before they are needed, on a busy device
  // 60 ms.
  for (const Row& row : std::vector<Row>{
           {"nothing is due", 10, true, {Speaking(4)}, milliseconds(0), milliseconds(80)},
           {"one is due first", 10, true, {Speaking(4), Speaking(2)}, milliseconds(0), milliseconds(2 * 80 - 60)},
           {"a reader waits", 10, true, {Speaking(4), Speaking(0)}, milliseconds(0), milliseconds(-60)},
           {"a newcomer that joins", 10, true, {newcomer}, milliseconds(30), milliseconds(80 - 30)}}) {
    DeviceView device = DeviceOf(row.all_ms);
    device.busy = row.busy;
    const auto until = StepPolicy().GatherUntil(device, row.ready, kStepNow - row.waited, kStepNow);
    EXPECT_EQ(until - kStepNow, std::min<StreamClock::duration>(row.wait_from, milliseconds(80))) << row.name;
  }
  // A step begins behind what was submitted before.
  DeviceView queued = DeviceOf(10);
  queued.busy = true;
  queued.done_at = kStepNow + milliseconds(15);
  EXPECT_EQ(StepPolicy().GatherUntil(queued, std::vector<StreamView>{Speaking(1)}, kStepNow, kStepNow),
            kStepNow + milliseconds(80 - 60 - 15));
  // An idle device makes frames in store once a group's part of a frame's time is over.
  const std::vector<StreamView> ready = {Speaking(9)};
  EXPECT_EQ(StepPolicy().GatherUntil(DeviceOf(9), ready, kStepNow - milliseconds(4), kStepNow),
            kStepNow + milliseconds(6));
}

TEST(StepPolicyTest, ReadersAreAheadFromOneAndAHalfSecondsOn) {
  const StepPolicy policy;
  // 30 frames are 2.4 s of sound.
  StreamView stream{.plays = true, .submitted = 30, .delivered = 30, .first_sound = kStepNow - milliseconds(899)};
  EXPECT_TRUE(policy.IsReadAhead(stream, kStepNow));
  stream.first_sound = kStepNow - milliseconds(900);
  EXPECT_FALSE(policy.IsReadAhead(stream, kStepNow));
  stream.first_sound = kStepNow - milliseconds(899);
  stream.unread = 1;
  EXPECT_FALSE(policy.IsReadAhead(stream, kStepNow)) << "one frame less was taken";
  EXPECT_FALSE(policy.AreReadAhead(25, 100));
  EXPECT_TRUE(policy.AreReadAhead(26, 100));
}

TEST(StepPolicyTest, WhatAReaderHasTakenIsInStoreWhileTheDeviceHasTime) {
  // The reader has taken two seconds more than were played.
  StreamView stream = Speaking(0);
  stream.first_sound += std::chrono::seconds(2);
  DeviceView device = DeviceOf(24);
  const auto needs = [&] { return StepPolicy().NeedsFrame(device, stream, kStepNow); };
  EXPECT_EQ(needs(), kStepNow + milliseconds(2000 - 160));
  stream.play_time -= std::chrono::seconds(1);
  EXPECT_EQ(needs(), kStepNow + milliseconds(1000 - 160)) << "silence was cut";
  device = DeviceOf(26);
  EXPECT_EQ(needs(), kStepNow) << "it has no time";
  device.cost.known = false;
  EXPECT_EQ(needs(), kStepNow + milliseconds(1000 - 160)) << "nothing is known of its speed";
  stream.real_time = false;
  EXPECT_EQ(needs(), kStepNow) << "nobody listens";
}

TEST(StepPolicyTest, AFrameIsNeededWhenTheOnesBeforeItHaveBeenPlayed) {
  for (const double all_ms : {24, 26}) {  // with time and without
    const auto needs = [&](const StreamView& stream) {
      return StepPolicy().NeedsFrame(DeviceOf(all_ms), stream, kStepNow);
    };
    EXPECT_EQ(needs(Speaking(0)), kStepNow);
    StreamView stream = Speaking(3);
    EXPECT_EQ(needs(stream), kStepNow + 3 * kFrameTime) << "the reader plays as fast as it should";
    stream.first_sound -= std::chrono::seconds(9);
    EXPECT_EQ(needs(stream), kStepNow + 2 * kFrameTime) << "the reader is late: by what is in hand";
    stream.in_flight = 2;
    EXPECT_EQ(needs(stream), kStepNow + 4 * kFrameTime);
  }
}

TEST(StreamViewTest, SoundAheadIsWhatWasSubmittedAndNotPlayed) {
  StreamView stream = Speaking(3);
  EXPECT_EQ(stream.SoundAhead(kStepNow), 3 * kFrameTime);
  stream.first_sound -= std::chrono::seconds(9);
  EXPECT_EQ(stream.SoundAhead(kStepNow), 3 * kFrameTime) << "a late reader has what is in hand";
  stream.unread = 0;
  EXPECT_EQ(stream.SoundAhead(kStepNow), StreamClock::duration::zero());
  stream.has_text = false;
  EXPECT_EQ(stream.SoundAhead(kStepNow), kFrameTime);
}

}  // namespace
}  // namespace qtts
