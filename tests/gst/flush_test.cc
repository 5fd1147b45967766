// SPDX-License-Identifier: LGPL-2.1-or-later
// Flushes in every state of the element: none hangs, and no stale buffer follows.
#include <atomic>
#include <chrono>
#include <thread>

#include "support.h"

namespace qtts::testing {
namespace {

class FlushTest : public GstTest {
 protected:
  static GstPadProbeReturn Block(GstPad* /*pad*/, GstPadProbeInfo* /*info*/, gpointer /*data*/) {
    return GST_PAD_PROBE_OK;
  }

  // After a flush with reset_time: no earlier buffer, timestamps from zero.
  static void ExpectFreshStream(const Recorder& record, const std::string& text) {
    EXPECT_EQ(record.text(), text);
    const auto items = record.items();
    bool segment = false;
    size_t buffers = 0;
    for (const auto& item : items) {
      if (!item.is_buffer) {
        if (item.event == GST_EVENT_SEGMENT) {
          EXPECT_EQ(item.segment.start, 0U);
          EXPECT_EQ(item.segment.base, 0U);
          EXPECT_EQ(item.segment.format, GST_FORMAT_TIME);
          segment = true;
        }
        continue;
      }
      EXPECT_TRUE(segment) << "a segment comes first";
      EXPECT_EQ(item.pts, buffers * 80 * GST_MSECOND);
      EXPECT_EQ(item.offset, buffers * 1920);
      EXPECT_EQ(item.discont, buffers == 0);
      ++buffers;
    }
  }
};

TEST_F(FlushTest, C14WhileWaitingForText) {
  Speak speak;
  speak.record().ClearWhenFlushed();
  speak.Open();
  for (int round = 0; round < 20; ++round) {
    speak.Flush();
    speak.Open().Push("abc").Await(3);
    ExpectFreshStream(speak.record(), "abc");
  }
}

TEST_F(FlushTest, C14WhileTheModelSpeaks) {
  fake::Reset({.frame_time = std::chrono::milliseconds(1)});
  Speak speak;
  speak.record().ClearWhenFlushed();
  speak.Open();
  for (int round = 0; round < 50; ++round) {
    for (int i = 0; i < 5; ++i) speak.Push("ooooooooooooooooooooooooooooooooooooooooooooooo");
    ASSERT_TRUE(WaitFor([&] { return speak.record().buffer_count() > static_cast<size_t>(round % 5); }));
    speak.Flush().Open().Push("new").Await(3);
    ExpectFreshStream(speak.record(), "new");
    speak.record().Clear();
  }
  EXPECT_TRUE(WaitFor([] { return fake::GetCounters().live_streams == 0; }));
}

TEST_F(FlushTest, C14WhileTheModelIsBusyWithAFrameThatNeverComes) {
  Speak speak;
  speak.record().ClearWhenFlushed();
  speak.Open();
  fake::AllowFrames(2);
  speak.Push("old").Await(2).Send(gst_event_new_flush_start());
  EXPECT_TRUE(WaitFor([] { return fake::GetCounters().live_streams == 0; })) << "cancelled at once";
  speak.Send(gst_event_new_flush_stop(TRUE));
  fake::AllowFrames(-1);
  speak.Open().Push("new").Await(3);
  ExpectFreshStream(speak.record(), "new");
}

TEST_F(FlushTest, C14WhilePushingIsBlockedDownstream) {
  for (int round = 0; round < 20; ++round) {
    fake::Reset();
    Speak speak;
    speak.record().ClearWhenFlushed();
    const auto sink = speak.Find("sink");
    const Owned<GstPad> sink_pad(gst_element_get_static_pad(sink.get(), "sink"));
    const gulong block = gst_pad_add_probe(
        sink_pad.get(), static_cast<GstPadProbeType>(GST_PAD_PROBE_TYPE_BLOCK | GST_PAD_PROBE_TYPE_BUFFER), Block,
        nullptr, nullptr);
    speak.Open().Push("oooooooooooo").Await(1).Send(gst_event_new_flush_start());
    gst_pad_remove_probe(sink_pad.get(), block);
    speak.Send(gst_event_new_flush_stop(TRUE)).Open().Push("new").Await(3);
    ExpectFreshStream(speak.record(), "new");
  }
}

// Downstream blocks, the engine has computed all frames it may keep ahead, upstream waits for space in the queue.
TEST_F(FlushTest, C14WhileEverythingIsBlocked) {
  for (const bool reset_time : {true, false}) {
    fake::Reset();
    Speak speak("max-queued-text=10");
    speak.record().ClearWhenFlushed();
    const auto sink = speak.Find("sink");
    const Owned<GstPad> sink_pad(gst_element_get_static_pad(sink.get(), "sink"));
    const gulong block = gst_pad_add_probe(
        sink_pad.get(), static_cast<GstPadProbeType>(GST_PAD_PROBE_TYPE_BLOCK | GST_PAD_PROBE_TYPE_BUFFER), Block,
        nullptr, nullptr);
    speak.Open();
    std::atomic<GstFlowReturn> flow = GST_FLOW_OK;
    std::atomic<int> pushed = 0;
    std::thread upstream([&] {
      while ((flow = speak.feeder().Push(std::string(50, 'o'))) == GST_FLOW_OK) ++pushed;
    });
    // One text is spoken, one waits.
    ASSERT_TRUE(WaitFor([&] { return pushed == 2 && speak.record().buffer_count() == 1; }));
    const auto lead = static_cast<int64_t>(EngineOptions().lead_frames);
    ASSERT_TRUE(WaitFor([&] { return fake::GetCounters().frames == lead + 1; })) << "one was taken";
    speak.Send(gst_event_new_flush_start());
    upstream.join();
    EXPECT_EQ(flow, GST_FLOW_FLUSHING);
    gst_pad_remove_probe(sink_pad.get(), block);
    speak.Send(gst_event_new_flush_stop(static_cast<gboolean>(reset_time))).Open().Push("new").Await(3);
    EXPECT_EQ(speak.text(), "new");
    EXPECT_TRUE(speak.buffers()[0].discont);
    if (reset_time) ExpectFreshStream(speak.record(), "new");
    EXPECT_NE(speak.buffers()[0].pts, reset_time ? 80 * GST_MSECOND : 0);
  }
}

TEST_F(FlushTest, C14WhileTheModelLoads) {
  fake::HoldLoads(true);
  Speak speak;
  speak.record().ClearWhenFlushed();
  speak.feeder();
  speak.Set(GST_STATE_PLAYING);
  ASSERT_TRUE(WaitFor([] { return fake::GetCounters().loads == 1; }));
  speak.Open().Push("old");
  speak.Flush();
  speak.Open().Push("new").End();
  fake::HoldLoads(false);
  speak.Expect("new");
  EXPECT_EQ(fake::GetCounters().loads, 1) << "a flush leaves the load alone";
}

TEST_F(FlushTest, AfterTheEndTheStreamBeginsAgain) {
  Speak speak;
  speak.record().ClearWhenFlushed();
  for (int round = 0; round < 5; ++round) {
    speak.Open().Push("abc").End().ExpectEnd();
    ExpectFreshStream(speak.record(), "abc");
    speak.Flush();
  }
}

TEST_F(FlushTest, C14WithoutResetTheTimeGoesOn) {
  fake::AllowFrames(2);
  Speak speak;
  speak.record().ClearWhenFlushed();
  speak.Open().Push("old").Await(2);
  speak.Flush(false);
  fake::AllowFrames(-1);
  speak.Open().Push("new").Await(3);
  const auto buffers = speak.buffers();
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(buffers[i].pts, (i + 2) * 80 * GST_MSECOND);
    EXPECT_EQ(buffers[i].offset, (i + 2) * 1920);
    EXPECT_EQ(buffers[i].discont, i == 0);
  }
  EXPECT_EQ(speak.text(), "new");
}

TEST_F(FlushTest, SentToTheElementItDropsTheText) {
  fake::AllowFrames(2);
  Speak speak("text=old");
  speak.record().ClearWhenFlushed();
  speak.Set(GST_STATE_PLAYING);
  speak.Await(2);
  EXPECT_TRUE(gst_element_send_event(speak.src(), gst_event_new_flush_start()));
  g_object_set(speak.src(), "text", "lost", nullptr);
  fake::AllowFrames(-1);
  EXPECT_TRUE(gst_element_send_event(speak.src(), gst_event_new_flush_stop(TRUE)));
  speak.Expect("");
}

TEST_F(FlushTest, AnEndWithoutABeginIsIgnored) {
  fake::AllowFrames(2);
  Speak speak("text=abc");
  speak.record().ClearWhenFlushed();
  speak.Set(GST_STATE_PLAYING);
  speak.Await(2);
  EXPECT_FALSE(gst_element_send_event(speak.src(), gst_event_new_flush_stop(TRUE)));
  fake::AllowFrames(-1);
  speak.Expect("abc");
}

TEST_F(FlushTest, C14RacesWithStateChanges) {
  // Upstream does not change its state with the element, so that GStreamer warns of data before a stream-start.
  const GLogLevelFlags fatal = g_log_set_always_fatal(G_LOG_LEVEL_CRITICAL);
  fake::Reset({.frame_time = std::chrono::milliseconds(1)});
  Speak speak;
  Feeder& feeder = speak.feeder();
  std::atomic<bool> stop = false;
  std::thread upstream([&] {
    while (!stop) {
      feeder.Begin();
      feeder.Push("abc");
      feeder.Push("def");
      std::this_thread::yield();
      // Both fail while the pad is not active.
      feeder.Send(gst_event_new_flush_start());
      feeder.Send(gst_event_new_flush_stop(TRUE));
    }
  });
  for (int round = 0; round < 100; ++round) {
    speak.Set(GST_STATE_PLAYING);
    std::this_thread::sleep_for(std::chrono::microseconds(round * 50));
    speak.Set(round % 2 == 0 ? GST_STATE_READY : GST_STATE_NULL);
  }
  stop = true;
  upstream.join();
  g_log_set_always_fatal(fatal);
}

}  // namespace
}  // namespace qtts::testing
