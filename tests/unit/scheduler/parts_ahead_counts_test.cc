// SPDX-License-Identifier: LGPL-2.1-or-later
// Occupancy's counts of parts that are made ahead of their turn (Request::parallel_parts).
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>

#include "sampling/philox.h"
#include "scheduler_fixture.h"

namespace qtts {
namespace {

class PartsAheadCountsTest : public SchedulerTest {
 protected:
  // Starts a text of four parts. Until somebody reads, its first part stands still after three frames of 30, and parts
  // ahead keep their slots, since they have more frames than may be held.
  std::shared_ptr<StreamState> StartFourParts() {
    script_->frames_by_seed[SeedOfPart(1, 0)] = 30;
    for (int part = 1; part < 4; ++part) script_->frames_by_seed[SeedOfPart(1, part)] = 500;
    Request request;
    request.text = "This is the first one. This is the second one. This is the third one. This is the last one.";
    request.seed = 1;
    request.parts = PartBounds::Of(36);
    request.real_time = false;
    request.parallel_parts = 4;
    return StartRequest(request, 3);
  }
  bool AwaitFreeSlots(int slots) {
    return AwaitOccupancy([=](const Occupancy& now) { return now.free_slots == slots; });
  }
  // Waits until so many slots are used by parts ahead, after so many parts were begun and preempted.
  bool AwaitAhead(int slots, uint64_t begun, uint64_t preempted) {
    return AwaitOccupancy([=](const Occupancy& now) {
      return now.ahead_slots == slots && now.ahead_parts == begun && now.preempted_parts == preempted;
    });
  }
  static void ReadFrames(StreamState& stream, int frames) {
    Frame frame;
    for (int i = 0; i < frames; ++i) ASSERT_EQ(stream.Read(&frame, true), ReadState::kFrame);
  }
  static void ReadToEnd(StreamState& stream) {
    Frame frame;
    while (stream.Read(&frame, true) == ReadState::kFrame) {
    }
    EXPECT_EQ(stream.end_reason(), EndReason::kComplete);
  }
};

TEST_F(PartsAheadCountsTest, APartIsCountedOnce) {
  script_->max_slots = 8;
  EXPECT_TRUE(AwaitAhead(0, 0, 0));
  const auto stream = StartFourParts();
  ASSERT_TRUE(AwaitAhead(3, 3, 0));
  EXPECT_EQ(scheduler().occupancy().free_slots, 7) << "those of parts ahead are anybody's";
  ReadToEnd(*stream);
  EXPECT_TRUE(AwaitAhead(0, 3, 0));
  EXPECT_TRUE(AwaitFreeSlots(8));
}

// The part whose turn has come keeps its slot, which is the utterance's own from then on.
TEST_F(PartsAheadCountsTest, APartInItsTurnIsNotAhead) {
  script_->max_slots = 2;
  const auto stream = StartFourParts();
  ASSERT_TRUE(AwaitAhead(1, 1, 0));
  ReadFrames(*stream, 31);
  ASSERT_TRUE(AwaitAhead(1, 2, 0));
  EXPECT_EQ(scheduler().occupancy().free_slots, 1);
  ReadToEnd(*stream);
  EXPECT_TRUE(AwaitAhead(0, 3, 0));
}

TEST_F(PartsAheadCountsTest, APartThatGivesWayIsPreempted) {
  script_->max_slots = 2;
  const auto stream = StartFourParts();
  ASSERT_TRUE(AwaitAhead(1, 1, 0));
  // It would be refused if it had to wait.
  const auto other = Start(50, {.lead = 3, .max_wait = std::chrono::nanoseconds(0)});
  ReadFrames(*other, 1);
  EXPECT_TRUE(AwaitAhead(0, 1, 1));
  EXPECT_EQ(scheduler().occupancy().free_slots, 0);
  other->Cancel();
  EXPECT_TRUE(AwaitAhead(1, 2, 1)) << "it is made again";
  stream->Cancel();
  EXPECT_TRUE(AwaitAhead(0, 2, 1)) << "its utterance has ended: nobody was given its slot";
  EXPECT_TRUE(AwaitFreeSlots(2));
}

TEST_F(PartsAheadCountsTest, ALostDeviceHasNoPartsAhead) {
  script_->max_slots = 4;
  const auto stream = StartFourParts();
  ASSERT_TRUE(AwaitAhead(3, 3, 0));
  script_->device_lost = true;
  Frame frame;
  while (stream->Read(&frame, true) == ReadState::kFrame) {
  }
  EXPECT_EQ(stream->end_reason(), EndReason::kError);
  EXPECT_TRUE(AwaitAhead(0, 3, 0));
}

}  // namespace
}  // namespace qtts
