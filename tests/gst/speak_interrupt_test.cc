// SPDX-License-Identifier: LGPL-2.1-or-later
// Interrupting.
#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "speak_fixture.h"

namespace qtts::testing {
namespace {

// Ways to interrupt.
enum class Way { kSignal, kUpstream, kDownstream, kElement };

class InterruptTest : public SpeakTest, public ::testing::WithParamInterface<Way> {
 protected:
  void DoInterrupt() {
    switch (GetParam()) {
      case Way::kSignal:
        speak_.Interrupt();
        break;
      case Way::kUpstream: {
        const Owned<GstPad> pad(gst_element_get_static_pad(speak_.Find("sink").get(), "sink"));
        EXPECT_TRUE(gst_pad_push_event(pad.get(), NewEvent("qtts/interrupt", GST_EVENT_CUSTOM_UPSTREAM)));
        break;
      }
      case Way::kDownstream:
        EXPECT_TRUE(speak_.feeder().Send(NewEvent("qtts/interrupt", GST_EVENT_CUSTOM_DOWNSTREAM_OOB)));
        break;
      case Way::kElement:
        EXPECT_TRUE(gst_element_send_event(src(), NewEvent("qtts/interrupt", GST_EVENT_CUSTOM_UPSTREAM)));
        break;
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Ways, InterruptTest,
                         ::testing::Values(Way::kSignal, Way::kUpstream, Way::kDownstream, Way::kElement));

TEST_P(InterruptTest, C25StopsWithinAFrameAndTheNextTextIsSpoken) {
  fake::AllowFrames(3);
  Play();
  const guint64 first = speak_.Say("abcdefgh");
  speak_.Say("never");
  speak_.Push("never either").Await(3);
  DoInterrupt();
  Finished finished = speak_.Finish();
  EXPECT_EQ(finished.id, first);
  EXPECT_EQ(finished.reason, "interrupted");
  EXPECT_EQ(finished.frames, 3U);
  EXPECT_EQ(finished.samples, 3U * 1920);
  EXPECT_EQ(finished.text_chars, 8U);
  EXPECT_GT(finished.text_spoken_chars, 0U);
  EXPECT_LT(finished.text_spoken_chars, 8U);
  EXPECT_TRUE(finished.estimated);
  for (int i = 0; i < 2; ++i) {
    finished = speak_.Finish();
    EXPECT_EQ(finished.reason, "interrupted");
    EXPECT_EQ(finished.samples, 0U);
    EXPECT_EQ(finished.text_spoken_chars, 0U);
    EXPECT_FALSE(finished.estimated);
  }
  fake::AllowFrames(-1);
  EXPECT_NE(speak_.Say("next"), 0U);
  speak_.Finish();
  EXPECT_EQ(speak_.text(), "abcnext");
  for (const GstEventType event : speak_.record().events()) {
    EXPECT_TRUE(event != GST_EVENT_FLUSH_START && event != GST_EVENT_FLUSH_STOP) << "nothing is flushed";
  }
  EXPECT_EQ(GetStat(src(), "interrupted"), 1U);
  EXPECT_EQ(GetStat(src(), "dropped"), 2U);
  EXPECT_EQ(GetStat(src(), "utterances"), 1U);
  EXPECT_EQ(GetStat(src(), "frames"), 7U);
}

// The frame being pushed is the last one; frames that are ready are dropped.
TEST_P(InterruptTest, C25WhilePushingIsBlocked) {
  const Owned<GstPad> pad(gst_element_get_static_pad(speak_.Find("sink").get(), "sink"));
  const gulong block = gst_pad_add_probe(
      pad.get(), static_cast<GstPadProbeType>(GST_PAD_PROBE_TYPE_BLOCK | GST_PAD_PROBE_TYPE_BUFFER),
      [](GstPad*, GstPadProbeInfo*, gpointer) { return GST_PAD_PROBE_OK; }, nullptr, nullptr);
  Play();
  speak_.Say("abcdefgh");
  speak_.Await(1);
  ASSERT_TRUE(WaitFor([] { return fake::GetCounters().frames == 8; }));
  DoInterrupt();
  EXPECT_EQ(speak_.Finish().frames, 1U);
  speak_.Say("next");
  gst_pad_remove_probe(pad.get(), block);
  speak_.Finish();
  EXPECT_EQ(speak_.text(), "anext");
}

TEST_P(InterruptTest, C25WhileNothingIsSpokenDoesNothing) {
  Play();
  for (int i = 0; i < 3; ++i) DoInterrupt();
  speak_.Say("abc");
  EXPECT_EQ(speak_.Finish().reason, "complete");
  EXPECT_EQ(speak_.messages().size(), 3U) << "started, progress, finished";
}

TEST_F(SpeakTest, C25EventsGoOnInTheirDirection) {
  fake::AllowFrames(0);
  Play();
  const Owned<GstPad> src_pad(gst_element_get_static_pad(src(), "src"));
  std::atomic<int> upstream = 0;
  std::atomic<int> downstream = 0;
  const auto count = [](GstPad*, GstPadProbeInfo* info, gpointer counter) {
    if (gst_event_has_name(GST_PAD_PROBE_INFO_EVENT(info), "qtts/interrupt"))
      ++*static_cast<std::atomic<int>*>(counter);
    return GST_PAD_PROBE_OK;
  };
  gst_pad_add_probe(speak_.feeder().sink(), GST_PAD_PROBE_TYPE_EVENT_UPSTREAM, count, &upstream, nullptr);
  gst_pad_add_probe(src_pad.get(), GST_PAD_PROBE_TYPE_EVENT_DOWNSTREAM, count, &downstream, nullptr);
  gst_pad_send_event(src_pad.get(), NewEvent("qtts/interrupt", GST_EVENT_CUSTOM_UPSTREAM));
  EXPECT_EQ(upstream, 1);
  EXPECT_EQ(downstream, 0);
  speak_.feeder().Send(NewEvent("qtts/interrupt", GST_EVENT_CUSTOM_DOWNSTREAM_OOB));
  EXPECT_EQ(upstream, 1);
  EXPECT_EQ(downstream, 1);
}

TEST_F(SpeakTest, C25InterruptReturnsTheFramesSpoken) {
  fake::AllowFrames(3);
  Play();
  speak_.Say("abcdefgh");
  speak_.Await(3);
  EXPECT_EQ(speak_.Interrupt(), 3U);
  EXPECT_EQ(speak_.Interrupt(), 0U);
}

TEST_F(SpeakTest, C25InterruptInEveryState) {
  EXPECT_EQ(speak_.Interrupt(), 0U);
  for (const GstState state : {GST_STATE_READY, GST_STATE_PAUSED, GST_STATE_PLAYING, GST_STATE_PAUSED, GST_STATE_READY,
                               GST_STATE_PLAYING, GST_STATE_NULL}) {
    speak_.Set(state);
    EXPECT_EQ(speak_.Interrupt(), 0U);
  }
  speak_.DropFeeder();
  speak_.feeder();
  Play();
  speak_.Say("abc");
  speak_.Finish();
  EXPECT_EQ(speak_.text(), "abc");
}

TEST_F(SpeakTest, C25InterruptWhileTheModelLoads) {
  fake::HoldLoads(true);
  Play();
  ASSERT_TRUE(WaitFor([] { return fake::GetCounters().loads == 1; }));
  speak_.Say("old");
  EXPECT_EQ(speak_.Interrupt(), 0U);
  speak_.Say("new");
  fake::HoldLoads(false);
  EXPECT_EQ(speak_.Finish().id, 1U);
  speak_.Finish();
  EXPECT_EQ(speak_.text(), "new");
  EXPECT_EQ(fake::GetCounters().loads, 1);
}

TEST_F(SpeakTest, C25InterruptWakesAPushThatWaitsForRoomAndDropsItsText) {
  fake::AllowFrames(0);
  Play();
  std::atomic<int> pushed = 0;
  std::atomic<bool> stop = false;
  std::thread upstream([&] {
    while (!stop) {
      EXPECT_EQ(speak_.feeder().Push("x"), GST_FLOW_OK) << "an interrupt does not stop upstream";
      ++pushed;
    }
  });
  ASSERT_TRUE(WaitFor([&] { return UpstreamWaits(src()); }));
  stop = true;
  speak_.Interrupt();
  upstream.join();
  EXPECT_EQ(GetStat(src(), "queued-utterances"), 0U);
  fake::AllowFrames(-1);
  speak_.Say("y");
  speak_.End().Expect("y");
}

TEST_F(SpeakTest, C25InterruptFromTwoThreadsAtOnce) {
  fake::Reset({.frame_time = std::chrono::milliseconds(1)});
  Play();
  std::atomic<bool> stop = false;
  std::atomic<int> interrupts = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] {
      while (!stop) {
        speak_.Interrupt();
        ++interrupts;
        std::this_thread::sleep_for(std::chrono::microseconds(700));
      }
    });
  }
  std::map<guint64, int> accepted;
  for (int i = 0; i < 200; ++i) {
    const guint64 id = speak_.Say("abcdef");
    if (id != 0) accepted[id] = 0;
    std::this_thread::sleep_for(std::chrono::microseconds(i * 20));
  }
  EXPECT_TRUE(WaitFor([&] { return interrupts > 2; }));
  stop = true;
  for (std::thread& thread : threads) thread.join();
  speak_.Interrupt();
  const guint64 last = speak_.Say("xyz");
  accepted[last] = 0;
  // Every accepted utterance has one "finished" message, after its "started" if there was one, and in order.
  guint64 open = 0;
  guint64 previous = 0;
  for (guint64 id = 0; id != last;) {
    const auto message = speak_.Wait(GST_MESSAGE_ELEMENT | GST_MESSAGE_ERROR);
    ASSERT_NE(message, nullptr);
    ASSERT_EQ(GST_MESSAGE_TYPE(message.get()), GST_MESSAGE_ELEMENT);
    const GstStructure* structure = gst_message_get_structure(message.get());
    const guint64 of = GetField(structure, "id");
    if (gst_structure_has_name(structure, "qtts-utterance-started")) {
      EXPECT_EQ(open, 0U);
      open = of;
    } else if (gst_structure_has_name(structure, "qtts-utterance-finished")) {
      EXPECT_TRUE(open == of || (open == 0 && GetField(structure, "frames") == 0));
      EXPECT_GT(of, previous);
      previous = of;
      open = 0;
      ++accepted[of];
      id = of;
    } else {
      EXPECT_EQ(open, of);
    }
  }
  for (const auto& [id, times] : accepted) EXPECT_EQ(times, 1) << id;
  const std::string text = speak_.text();
  EXPECT_EQ(text.substr(text.size() - 3), "xyz");
}

TEST_F(SpeakTest, C25InterruptFromASyncMessageHandler) {
  const MessageHandler handler(speak_, [this](GstMessage* message) {
    if (gst_message_has_name(message, "qtts-utterance-started")) speak_.Interrupt();
  });
  Play();
  for (int i = 0; i < 20; ++i) {
    speak_.Say("abc");
    EXPECT_EQ(speak_.Finish().reason, "interrupted");
  }
  EXPECT_LE(speak_.record().buffer_count(), 20U) << "one frame each at most";
}

// Blocks the thread `held` in the handler of its first message, and counts that thread's messages.
class HeldReporter {
 public:
  explicit HeldReporter(const Pipeline& pipeline)
      : handler_(pipeline, [state = state_](GstMessage* message) { state->OnMessage(message); }) {}
  ~HeldReporter() { Release(); }
  HeldReporter(const HeldReporter&) = delete;
  HeldReporter& operator=(const HeldReporter&) = delete;

  void Hold(std::thread::id thread) { state_->held = thread; }
  void Release() { state_->released = true; }
  bool holds() const { return state_->holds; }
  int on_held_thread() const { return state_->on_held_thread; }

 private:
  struct State {
    std::atomic<std::thread::id> held = std::thread::id();
    std::atomic<bool> released = false;
    std::atomic<bool> holds = false;
    std::atomic<int> on_held_thread = 0;

    void OnMessage(GstMessage* message) {
      if (GST_MESSAGE_TYPE(message) != GST_MESSAGE_ELEMENT || std::this_thread::get_id() != held.load()) return;
      ++on_held_thread;
      holds = true;
      EXPECT_TRUE(WaitFor([this] { return released.load(); }));
    }
  };

  const std::shared_ptr<State> state_ = std::make_shared<State>();
  MessageHandler handler_;
};

// Check: 47
TEST_F(SpeakTest, C25WhoeverIsHeldByAHandlerHoldsUpNobodyAndReportsForNobody) {
  fake::AllowFrames(1);
  Play();
  const guint64 first = speak_.Say("abc");
  speak_.Await(1);
  HeldReporter reporter(speak_);
  std::thread interrupter([&] {
    reporter.Hold(std::this_thread::get_id());
    EXPECT_EQ(speak_.Interrupt(), 1U);
  });
  ASSERT_TRUE(WaitFor([&] { return reporter.holds(); }));
  // Speech and the interrupting threads continue.
  const guint64 second = speak_.Say("a b c d e f g h i j k l m n o p q r s t u v w x y z");
  fake::AllowFrames(20);
  speak_.Await(21);
  EXPECT_EQ(speak_.Interrupt(), 20U);
  reporter.Release();
  interrupter.join();
  EXPECT_EQ(reporter.on_held_thread(), 1) << "its own";
  // In order, on any thread.
  std::vector<std::string> seen;
  while (seen.empty() || seen.back() != "finished " + std::to_string(second)) {
    const auto message = speak_.Wait(GST_MESSAGE_ELEMENT);
    ASSERT_NE(message, nullptr);
    const GstStructure* structure = gst_message_get_structure(message.get());
    const std::string name =
        std::string(gst_structure_get_name(structure)).substr(std::string("qtts-utterance-").size());
    const std::string id = std::to_string(GetField(structure, "id"));
    if (seen.empty() || seen.back() != name + " " + id) seen.push_back(name + " " + id);
    if (!gst_structure_has_name(structure, "qtts-text-progress")) continue;
    seen.back() = "progress " + id;
    if (seen.size() > 1 && seen[seen.size() - 2] == seen.back()) seen.pop_back();
  }
  const std::string one = std::to_string(first);
  const std::string two = std::to_string(second);
  EXPECT_EQ(seen, (std::vector<std::string>{"started " + one, "progress " + one, "finished " + one, "started " + two,
                                            "progress " + two, "finished " + two}));
}

// Check: 47
TEST_F(SpeakTest, TheEndOfTheStreamComesAfterAllReports) {
  fake::AllowFrames(1);
  Play();
  speak_.Say("abc");
  speak_.Await(1);
  HeldReporter reporter(speak_);
  std::thread interrupter([&] {
    reporter.Hold(std::this_thread::get_id());
    speak_.Interrupt();
  });
  ASSERT_TRUE(WaitFor([&] { return reporter.holds(); }));
  const guint64 last = speak_.Say("def");
  speak_.End();
  fake::AllowFrames(-1);
  speak_.Await(4);
  g_usleep(20000);
  EXPECT_TRUE(speak_.record().events().empty() || speak_.record().events().back() != GST_EVENT_EOS);
  reporter.Release();
  interrupter.join();
  bool finished = false;
  for (;;) {
    const auto message = speak_.Wait(GST_MESSAGE_ELEMENT | GST_MESSAGE_EOS);
    ASSERT_NE(message, nullptr);
    if (GST_MESSAGE_TYPE(message.get()) == GST_MESSAGE_EOS) break;
    const GstStructure* structure = gst_message_get_structure(message.get());
    finished = gst_structure_has_name(structure, "qtts-utterance-finished") && GetField(structure, "id") == last;
  }
  EXPECT_TRUE(finished) << "and nothing after it";
}

TEST_F(SpeakTest, ClearQueueLeavesTheUtteranceThatIsBeingSpoken) {
  fake::AllowFrames(1);
  Play();
  speak_.Say("abc");
  speak_.Await(1);
  const guint64 second = speak_.Say("never");
  speak_.Push("never");
  g_signal_emit_by_name(src(), "clear-queue");
  EXPECT_EQ(speak_.Finish().id, second);
  EXPECT_EQ(GetStat(src(), "dropped"), 2U);
  EXPECT_EQ(GetString(src(), "current-text"), "abc");
  fake::AllowFrames(-1);
  speak_.Say("def");
  speak_.End().Expect("abcdef");
  EXPECT_EQ(GetString(src(), "current-text"), "");
}

}  // namespace
}  // namespace qtts::testing
