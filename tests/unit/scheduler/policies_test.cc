// SPDX-License-Identifier: LGPL-2.1-or-later
// YieldPolicy, Admission, PagePolicy, PromptOrder and LookAhead, each decision by a table.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "scheduler/admission.h"
#include "scheduler/look_ahead.h"
#include "scheduler/page_policy.h"
#include "scheduler/prompt_order.h"
#include "scheduler/yield_policy.h"

namespace qtts {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const StreamClock::time_point kPolicyNow{std::chrono::hours(1)};

// A stream that plays, and whose reader has `frames` frames in hand.
StreamView WithFrames(int64_t frames) {
  return {.plays = true, .submitted = 50, .delivered = 50, .unread = frames, .lead = 25};
}

TEST(YieldPolicyTest, AStepMayTakeAsLongAsReadersHaveSound) {
  struct Row {
    const char* name;
    std::vector<StreamView> streams;
    milliseconds time;
  };
  StreamView awaited = WithFrames(0);
  awaited.plays = false;
  StreamView stalled = WithFrames(0);
  stalled.has_text = false;
  StreamView ending = WithFrames(0);
  ending.at_limit = true;
  StreamView short_lead = WithFrames(2);
  short_lead.lead = 2;
  for (const Row& row : std::vector<Row>{{"no real-time stream", {}, milliseconds(80)},
                                         {"much sound in hand", {WithFrames(9)}, milliseconds(80)},
                                         {"160 ms stay in hand", {WithFrames(9), WithFrames(2)}, milliseconds(0)},
                                         {"a frame more than those", {WithFrames(3)}, milliseconds(80)},
                                         {"too little already", {WithFrames(1)}, milliseconds(-80)},
                                         {"half of a short lead stays", {short_lead}, milliseconds(80)},
                                         {"a first frame is awaited", {WithFrames(9), awaited}, milliseconds(0)},
                                         {"one that can't go on", {stalled}, milliseconds(80)},
                                         {"one that ends", {ending}, milliseconds(80)}}) {
    EXPECT_EQ(YieldPolicy().TimeForOthers(row.streams, kPolicyNow), row.time) << row.name;
  }
}

TEST(YieldPolicyTest, OthersTakePartWhileTheStepFitsIntoThatTime) {
  struct Row {
    const char* name;
    bool known;
    size_t candidates, real_time;
    milliseconds time, yielded;
    double prompts;
    size_t rows;
  };
  // A step takes 10 ms and 1 ms a stream, and 5 ms for a frame's work on prompts.
  for (const Row& row : std::vector<Row>{
           {"40 ms: 30 streams", true, 90, 10, milliseconds(40), milliseconds(0), 0, 30},
           {"25 after a prompt", true, 90, 10, milliseconds(40), milliseconds(0), 1, 25},
           {"all fit", true, 12, 10, milliseconds(40), milliseconds(0), 0, 12},
           {"no time", true, 90, 10, milliseconds(0), milliseconds(0), 0, 10},
           {"no time, and none took part for long", true, 90, 10, milliseconds(0), milliseconds(251), 0, 11},
           {"the device would be idle", true, 90, 0, milliseconds(0), milliseconds(0), 0, 1},
           {"the times are not known", false, 90, 10, milliseconds(80), milliseconds(0), 0, 10}}) {
    const StepCost cost{.known = row.known, .base = 10e-3, .row = 1e-3, .prompt = 5e-3};
    const std::vector<int64_t> positions(row.candidates, 100);
    // Half a millisecond more: the sums are not exact.
    EXPECT_EQ(YieldPolicy().Rows(cost, positions, row.real_time, row.prompts, row.time + std::chrono::microseconds(500),
                                 row.yielded),
              row.rows)
        << row.name;
  }
  // 1 us a position: streams with long contexts take more of the time.
  const StepCost long_contexts{.known = true, .position = 1e-6};
  EXPECT_EQ(YieldPolicy().Rows(long_contexts, std::vector<int64_t>{9000, 9000, 9000}, 1, 0,
                               std::chrono::microseconds(18500), milliseconds(0)),
            2U);
}

TEST(AdmissionTest, AnUtteranceBeginsWithASlotPagesAndTime) {
  struct Row {
    const char* name;
    int free_slots, real_time_streams;
    bool many, known;
    WaitingView first;
    double prompts_a_second, slowness;
    Verdict verdict;
  };
  const WaitingView ordinary;
  const WaitingView goes_on{.goes_on = true};
  const WaitingView no_pages{.has_pages = false};
  const WaitingView not_real_time{.real_time = false};
  // A step takes 10 ms, 0.1 ms a stream, and 10 ms for a frame's work on prompts: 619 streams and one more take 72 ms.
  for (const Row& row : std::vector<Row>{
           {"there is time", 10, 600, true, true, ordinary, 0, 1, Verdict::kBegin},
           {"no slot", 0, 600, true, true, ordinary, 0, 1, Verdict::kNoSlot},
           {"no slot for the next part either", 0, 600, true, true, goes_on, 0, 1, Verdict::kNoSlot},
           {"no pages", 10, 600, true, true, no_pages, 0, 1, Verdict::kNoPages},
           {"the last one", 10, 618, true, true, ordinary, 0, 1, Verdict::kBegin},
           {"one too many", 10, 620, true, true, ordinary, 0, 1, Verdict::kNoTime},
           {"its next part", 10, 620, true, true, goes_on, 0, 1, Verdict::kBegin},
           {"not real-time", 10, 620, true, true, not_real_time, 0, 1, Verdict::kBegin},
           {"no real-time stream speaks", 10, 0, true, true, ordinary, 0, 99, Verdict::kBegin},
           {"few slots", 10, 620, false, true, ordinary, 0, 1, Verdict::kBegin},
           {"no times yet", 10, 620, true, false, ordinary, 0, 1, Verdict::kBegin},
           {"prompts: 12.5 a second are one a frame", 10, 600, true, true, ordinary, 12.5, 1, Verdict::kNoTime},
           {"the device has become slower", 10, 600, true, true, ordinary, 0, 1.1, Verdict::kNoTime}}) {
    const DeviceView device{.many = row.many,
                            .slots = 1000,
                            .free_slots = row.free_slots,
                            .real_time = row.real_time_streams,
                            .cost = {.known = row.known, .base = 10e-3, .row = 0.1e-3, .prompt = 10e-3},
                            .prompts_a_second = row.prompts_a_second};
    EXPECT_EQ(Admission().Decide(device, row.first, row.slowness), row.verdict) << row.name;
  }
}

TEST(AdmissionTest, AnUtteranceIsRefusedAfterItsPatience) {
  const Admission admission;
  EXPECT_EQ(admission.Deadline(seconds(2), false, kPolicyNow), kPolicyNow + seconds(2));
  EXPECT_EQ(admission.Deadline(seconds(0), false, kPolicyNow), kPolicyNow);
  EXPECT_EQ(admission.Deadline(Request::kNoLimit, false, kPolicyNow), std::nullopt);
  EXPECT_EQ(admission.Deadline(seconds(2), true, kPolicyNow), std::nullopt) << "it speaks already";
}

TEST(AdmissionTest, TheReasonNamesWhatIsMissing) {
  const DeviceView device{.slots = 8, .free_slots = 3};
  const ContextPages pages{128, 40, 2};
  EXPECT_EQ(Admission::Reason(Verdict::kNoSlot, device, pages), "all 8 slots of the engine are taken");
  EXPECT_EQ(Admission::Reason(Verdict::kNoPages, device, pages),
            "the 5 utterances that speak need the device's memory, or are expected to (2 of 40 pages are free)");
  EXPECT_EQ(Admission::Reason(Verdict::kNoTime, device, pages),
            "with the 5 utterances that speak the device has no time for another");
}

TEST(PagePolicyTest, AContextIsForecastToItsExpectedEnd) {
  struct Row {
    const char* name;
    ContextView context;
    int64_t now, last;
  };
  // Pages of 128 positions; 16 positions ahead of a stream are taken.
  for (const Row& row : std::vector<Row>{{"before its first frame", {30, 0, 200, 8192}, 46, 246},
                                         {"in the middle", {30, 50, 200, 8192}, 96, 246},
                                         {"expected to end soon", {30, 150, 200, 8192}, 196, 324},
                                         {"outlives the estimate: a page more", {30, 500, 200, 8192}, 546, 674},
                                         {"limited by max_new_tokens", {30, 50, 200, 100}, 96, 146}}) {
    const PageForecast::Context forecast = PagePolicy().Forecast(row.context, 128);
    EXPECT_EQ(forecast.positions, row.now) << row.name;
    EXPECT_EQ(forecast.last, row.last) << row.name;
  }
}

TEST(PagePolicyTest, APromptNeedsItsPagesBesideThoseOfParkedStreams) {
  struct Row {
    const char* name;
    int64_t free, prompt, owed;
    std::optional<bool> holds;
  };
  for (const Row& row : std::vector<Row>{{"one page", 1, 112, 0, std::nullopt},
                                         {"with its first frames it needs two", 1, 113, 0, false},
                                         {"a parked stream needs the other", 2, 113, 1, false},
                                         {"there are enough for both", 3, 113, 1, std::nullopt},
                                         {"more than all pages: refused with an error", 0, 12800, 0, true}}) {
    EXPECT_EQ(PagePolicy().HoldsPrompt({128, 100, row.free}, row.prompt, row.owed), row.holds) << row.name;
  }
}

TEST(PagePolicyTest, OneInTwentyPagesIsSpare) {
  EXPECT_TRUE(PagePolicy().HoldsToTheEnd({128, 100, 0}, 95));
  EXPECT_FALSE(PagePolicy().HoldsToTheEnd({128, 100, 0}, 96));
  EXPECT_TRUE(PagePolicy().HoldsToTheEnd({128, 10, 0}, 10));
}

TEST(PagePolicyTest, TheStreamFurthestAheadIsParked) {
  const std::vector<StreamView> streams = {WithFrames(3), WithFrames(7), WithFrames(7), WithFrames(0)};
  EXPECT_EQ(PagePolicy().FurthestAhead(streams, kPolicyNow), 1U);
  EXPECT_EQ(PagePolicy().FurthestAhead({}, kPolicyNow), std::nullopt);
  EXPECT_EQ(PagePolicy().FurthestAhead(std::vector<StreamView>{WithFrames(0)}, kPolicyNow), 0U);
}

TEST(PagePolicyTest, TheStreamThatRunsDryFirstReturns) {
  const std::vector<ParkView> parked = {{WithFrames(9)}, {WithFrames(1), false}, {WithFrames(4)}, {WithFrames(4)}};
  EXPECT_EQ(PagePolicy().NextToReturn(parked, kPolicyNow), 2U) << "one that can't go on stays";
  EXPECT_EQ(PagePolicy().NextToReturn(std::vector<ParkView>{{WithFrames(1), false}}, kPolicyNow), std::nullopt);
}

TEST(PagePolicyTest, AParkedStreamReturnsSoonBeforeItRunsDry) {
  EXPECT_TRUE(PagePolicy().ReturnsSoon(WithFrames(3), kPolicyNow));
  EXPECT_FALSE(PagePolicy().ReturnsSoon(WithFrames(4), kPolicyNow));
  StreamView fast = WithFrames(0);
  fast.first_sound = kPolicyNow;
  EXPECT_TRUE(PagePolicy().ReturnsSoon(fast, kPolicyNow)) << "it has 4 s of sound, and its reader has taken all of it";
}

TEST(PagePolicyTest, AReturnLeavesPagesForOthers) {
  const ContextPages pages{128, 100, 0};
  // Its own pages, the next one, those of two streams that wait, and one in twenty.
  EXPECT_EQ(PagePolicy().PagesToReturn(pages, 3, 2, false), 3 + 1 + 2 + 5);
  EXPECT_EQ(PagePolicy().PagesToReturn(pages, 3, 2, true), 3 + 1 + 2);
  EXPECT_EQ(PagePolicy().PagesToReturn({128, 10, 0}, 3, 0, false), 3 + 1 + 1);
}

TEST(PagePolicyTest, StreamsChangePlacesIfOneIsMuchFurtherAhead) {
  struct Row {
    const char* name;
    ParkView other;
    bool may;
  };
  for (const Row& row : std::vector<Row>{{"3 frames further", {WithFrames(5)}, true},
                                         {"2 frames further", {WithFrames(4)}, false},
                                         {"it can't go on", {WithFrames(0), false}, true}}) {
    EXPECT_EQ(PagePolicy().MayExchange(row.other, 2 * kFrameTime, kPolicyNow), row.may) << row.name;
  }
  EXPECT_EQ(PagePolicy().NextExchange(10, kPolicyNow), kPolicyNow + milliseconds(6)) << "10 pages there, 10 back";
}

TEST(PromptOrderTest, PromptsFillAPassInTurn) {
  using enum PromptOrder::Choice;
  struct Row {
    const char* name;
    PromptView prompt;
    PassView pass;
    PromptOrder::Choice choice;
  };
  for (const Row& row :
       std::vector<Row>{{"the first, of any length", {900}, {0, 0, 512}, kTake},
                        {"another that fits", {112}, {4, 400, 512}, kTake},
                        {"another that does not", {113}, {4, 400, 512}, kFull},
                        {"prompts share nothing", {10}, {1, 10, 0}, kFull},
                        {"its stream has ended", {10, true, true}, {0, 0, 512}, kDrop},
                        {"a long one while a reader runs short", {10, true}, {0, 0, 512, true}, kLater},
                        {"a first piece then", {10, false}, {0, 0, 512, true}, kTake}}) {
    EXPECT_EQ(PromptOrder().Choose(row.prompt, row.pass), row.choice) << row.name;
  }
}

TEST(PromptOrderTest, LongPromptsAreHeldBackForThreeSteps) {
  EXPECT_TRUE(PromptOrder().Holds(2));
  EXPECT_FALSE(PromptOrder().Holds(3));
  EXPECT_TRUE(PromptOrder().RunsShort(WithFrames(2)));
  EXPECT_FALSE(PromptOrder().RunsShort(WithFrames(3)));
  StreamView file = WithFrames(0);
  file.real_time = false;
  EXPECT_FALSE(PromptOrder().RunsShort(file));
  EXPECT_FALSE(PromptOrder().RunsShort(StreamView{})) << "its first frame has not come";
}

TEST(PromptOrderTest, PromptsTakeAFramesTime) {
  EXPECT_TRUE(PromptOrder().HasTime(0.9));
  EXPECT_FALSE(PromptOrder().HasTime(1));
}

TEST(PromptOrderTest, PartsAheadComeBehindAllOthers) {
  const PromptOrder order;
  const PromptView ahead{.own_rows = 10, .ahead = true};
  EXPECT_EQ(order.Choose(ahead, {.max_rows = 256}), PromptOrder::Choice::kTake);
  EXPECT_EQ(order.Choose(ahead, {.max_rows = 256, .hold_ahead = true}), PromptOrder::Choice::kLater);
  EXPECT_EQ(order.Choose({.own_rows = 10}, {.max_rows = 256, .hold_ahead = true}), PromptOrder::Choice::kTake);
}

TEST(LookAheadTest, APartBeginsInASlotThatNobodyWaitsFor) {
  const LookAhead look_ahead;
  const DeviceView idle{.slots = 4, .free_slots = 1};
  EXPECT_TRUE(look_ahead.MayBegin(idle, 0, false, false));
  EXPECT_TRUE(look_ahead.MayBegin(idle, look_ahead.max_parts - 1, false, false));
  EXPECT_FALSE(look_ahead.MayBegin(idle, look_ahead.max_parts, false, false));
  EXPECT_FALSE(look_ahead.MayBegin(idle, 0, true, false)) << "an utterance waits";
  EXPECT_FALSE(look_ahead.MayBegin(idle, 0, false, true)) << "a first frame is awaited";
  EXPECT_FALSE(look_ahead.MayBegin({.slots = 4, .free_slots = 0}, 0, false, false));
  EXPECT_FALSE(look_ahead.MayBegin({.slots = 4, .free_slots = 1, .busy = true}, 0, false, false));
  EXPECT_FALSE(look_ahead.MayBegin({.slots = 4, .free_slots = 1, .short_of_pages = true}, 0, false, false));
}

TEST(LookAheadTest, SlotsAreSharedEvenly) {
  const LookAhead look_ahead;
  std::vector<LongTextView> texts = {{.arrival = 3, .wants_more = true, .held = 2, .open = 2},
                                     {.arrival = 5, .wants_more = true, .held = 1, .open = 0},
                                     {.arrival = 4, .wants_more = true, .held = 1, .open = 1},
                                     {.arrival = 1, .wants_more = false, .held = 0, .open = 0}};
  EXPECT_EQ(look_ahead.NextToBegin(texts), 2U) << "the first of those with the fewest";
  EXPECT_EQ(look_ahead.NextToGiveWay(texts), 0U) << "the one with the most slots";
  texts[2].open = 2;
  EXPECT_EQ(look_ahead.NextToGiveWay(texts), 2U) << "the last to come of these";
  for (LongTextView& text : texts) text.wants_more = false;
  EXPECT_EQ(look_ahead.NextToBegin(texts), std::nullopt);
  for (LongTextView& text : texts) text.open = 0;
  EXPECT_EQ(look_ahead.NextToGiveWay(texts), std::nullopt);
}

TEST(LookAheadTest, PartsLengthenTheStepsOfOthersByAQuarter) {
  const LookAhead look_ahead;
  const std::vector<int64_t> positions(8, 100);
  const StepCost device{.known = true, .base = 0.010, .row = 0.0009};  // 11.8 ms with two rows
  EXPECT_EQ(look_ahead.Rows(device, positions, 2, true, 0), 5U);
  EXPECT_EQ(look_ahead.Rows(device, positions, 2, false, 0), 8U) << "nobody else speaks";
  EXPECT_EQ(look_ahead.Rows(device, positions, 0, true, 0), 8U) << "nobody waits for the step";
  EXPECT_EQ(look_ahead.Rows({}, positions, 2, true, 0), 8U) << "its time is not known";
  const StepCost host{.known = true, .base = 0, .row = 0.009};
  EXPECT_EQ(look_ahead.Rows(host, positions, 2, true, 0), 2U);
  EXPECT_EQ(look_ahead.Rows(host, positions, 1, false, 0), 4U) << "a step is half as long as a frame of sound";
  EXPECT_EQ(look_ahead.Rows(host, positions, 5, false, 0), 6U) << "or a quarter longer";
}

}  // namespace
}  // namespace qtts
