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

  static void Flush(Feeder* feeder, gboolean reset_time = TRUE) {
    EXPECT_TRUE(feeder->Send(gst_event_new_flush_start()));
    EXPECT_TRUE(feeder->Send(gst_event_new_flush_stop(reset_time)));
  }
};

TEST_F(FlushTest, C14WhileWaitingForText) {
  Pipeline pipeline("qttssrc name=src ! fakesink async=false");
  Recorder& record = pipeline.Record();
  record.ClearWhenFlushed();
  Feeder feeder(pipeline.src());
  pipeline.Set(GST_STATE_PLAYING);
  feeder.Begin();
  for (int round = 0; round < 20; ++round) {
    Flush(&feeder);
    feeder.Begin();
    EXPECT_EQ(feeder.Push("abc"), GST_FLOW_OK);
    ASSERT_TRUE(WaitFor([&] { return record.buffer_count() == 3; }));
    ExpectFreshStream(record, "abc");
  }
}

TEST_F(FlushTest, C14WhileTheModelSpeaks) {
  fake::Script script = fake::DefaultScript();
  script.frame_time = std::chrono::milliseconds(1);
  fake::Reset(script);
  Pipeline pipeline("qttssrc name=src ! fakesink async=false");
  Recorder& record = pipeline.Record();
  record.ClearWhenFlushed();
  Feeder feeder(pipeline.src());
  pipeline.Set(GST_STATE_PLAYING);
  feeder.Begin();
  for (int round = 0; round < 50; ++round) {
    for (int i = 0; i < 5; ++i) feeder.Push("ooooooooooooooooooooooooooooooooooooooooooooooo");
    ASSERT_TRUE(WaitFor([&] { return record.buffer_count() > static_cast<size_t>(round % 5); }));
    EXPECT_TRUE(feeder.Send(gst_event_new_flush_start()));
    EXPECT_TRUE(feeder.Send(gst_event_new_flush_stop(TRUE)));
    feeder.Begin();
    EXPECT_EQ(feeder.Push("new"), GST_FLOW_OK);
    ASSERT_TRUE(WaitFor([&] { return record.buffer_count() == 3; }));
    ExpectFreshStream(record, "new");
    record.Clear();
  }
  EXPECT_TRUE(WaitFor([] { return fake::GetCounters().live_streams == 0; }));
}

TEST_F(FlushTest, C14WhileTheModelIsBusyWithAFrameThatNeverComes) {
  Pipeline pipeline("qttssrc name=src ! fakesink async=false");
  Recorder& record = pipeline.Record();
  record.ClearWhenFlushed();
  Feeder feeder(pipeline.src());
  pipeline.Set(GST_STATE_PLAYING);
  feeder.Begin();
  fake::AllowFrames(2);
  feeder.Push("old");
  ASSERT_TRUE(WaitFor([&] { return record.buffer_count() == 2; }));
  EXPECT_TRUE(feeder.Send(gst_event_new_flush_start()));
  EXPECT_TRUE(WaitFor([] { return fake::GetCounters().live_streams == 0; })) << "cancelled at once";
  EXPECT_TRUE(feeder.Send(gst_event_new_flush_stop(TRUE)));
  fake::AllowFrames(-1);
  feeder.Begin();
  feeder.Push("new");
  ASSERT_TRUE(WaitFor([&] { return record.buffer_count() == 3; }));
  ExpectFreshStream(record, "new");
}

TEST_F(FlushTest, C14WhilePushingIsBlockedDownstream) {
  for (int round = 0; round < 20; ++round) {
    fake::Reset();
    Pipeline pipeline("qttssrc name=src ! fakesink name=sink async=false");
    Recorder& record = pipeline.Record();
    record.ClearWhenFlushed();
    Feeder feeder(pipeline.src());
    const auto sink = pipeline.Find("sink");
    const Owned<GstPad> sink_pad(gst_element_get_static_pad(sink.get(), "sink"));
    const gulong block = gst_pad_add_probe(
        sink_pad.get(), static_cast<GstPadProbeType>(GST_PAD_PROBE_TYPE_BLOCK | GST_PAD_PROBE_TYPE_BUFFER), Block,
        nullptr, nullptr);
    pipeline.Set(GST_STATE_PLAYING);
    feeder.Begin();
    feeder.Push("oooooooooooo");
    ASSERT_TRUE(WaitFor([&] { return record.buffer_count() == 1; }));
    EXPECT_TRUE(feeder.Send(gst_event_new_flush_start()));
    gst_pad_remove_probe(sink_pad.get(), block);
    EXPECT_TRUE(feeder.Send(gst_event_new_flush_stop(TRUE)));
    feeder.Begin();
    feeder.Push("new");
    ASSERT_TRUE(WaitFor([&] { return record.buffer_count() == 3; }));
    ExpectFreshStream(record, "new");
  }
}

// Downstream blocks, the engine has computed all frames it may keep ahead, upstream waits for space in the queue.
TEST_F(FlushTest, C14WhileEverythingIsBlocked) {
  for (const bool reset_time : {true, false}) {
    fake::Reset();
    Pipeline pipeline("qttssrc name=src max-queued-text=10 ! fakesink name=sink async=false");
    Recorder& record = pipeline.Record();
    record.ClearWhenFlushed();
    Feeder feeder(pipeline.src());
    const auto sink = pipeline.Find("sink");
    const Owned<GstPad> sink_pad(gst_element_get_static_pad(sink.get(), "sink"));
    const gulong block = gst_pad_add_probe(
        sink_pad.get(), static_cast<GstPadProbeType>(GST_PAD_PROBE_TYPE_BLOCK | GST_PAD_PROBE_TYPE_BUFFER), Block,
        nullptr, nullptr);
    pipeline.Set(GST_STATE_PLAYING);
    feeder.Begin();
    std::atomic<GstFlowReturn> flow = GST_FLOW_OK;
    std::atomic<int> pushed = 0;
    std::thread upstream([&] {
      while ((flow = feeder.Push(std::string(50, 'o'))) == GST_FLOW_OK) ++pushed;
    });
    // One text is spoken, one waits.
    ASSERT_TRUE(WaitFor([&] { return pushed == 2 && record.buffer_count() == 1; }));
    const auto lead = static_cast<int64_t>(EngineOptions().lead_frames);
    ASSERT_TRUE(WaitFor([&] { return fake::GetCounters().frames == lead + 1; })) << "one was taken";
    EXPECT_TRUE(feeder.Send(gst_event_new_flush_start()));
    upstream.join();
    EXPECT_EQ(flow, GST_FLOW_FLUSHING);
    gst_pad_remove_probe(sink_pad.get(), block);
    EXPECT_TRUE(feeder.Send(gst_event_new_flush_stop(static_cast<gboolean>(reset_time))));
    feeder.Begin();
    feeder.Push("new");
    ASSERT_TRUE(WaitFor([&] { return record.buffer_count() == 3; }));
    EXPECT_EQ(record.text(), "new");
    EXPECT_TRUE(record.buffers()[0].discont);
    if (reset_time) ExpectFreshStream(record, "new");
    EXPECT_NE(record.buffers()[0].pts, reset_time ? 80 * GST_MSECOND : 0);
  }
}

TEST_F(FlushTest, C14WhileTheModelLoads) {
  fake::HoldLoads(true);
  Pipeline pipeline("qttssrc name=src ! fakesink async=false");
  Recorder& record = pipeline.Record();
  record.ClearWhenFlushed();
  Feeder feeder(pipeline.src());
  pipeline.Set(GST_STATE_PLAYING);
  ASSERT_TRUE(WaitFor([] { return fake::GetCounters().loads == 1; }));
  feeder.Begin();
  feeder.Push("old");
  Flush(&feeder);
  feeder.Begin();
  feeder.Push("new");
  feeder.End();
  fake::HoldLoads(false);
  ASSERT_NE(pipeline.Wait(GST_MESSAGE_EOS), nullptr);
  EXPECT_EQ(record.text(), "new");
  EXPECT_EQ(fake::GetCounters().loads, 1) << "a flush leaves the load alone";
}

TEST_F(FlushTest, AfterTheEndTheStreamBeginsAgain) {
  Pipeline pipeline("qttssrc name=src ! fakesink async=false");
  Recorder& record = pipeline.Record();
  record.ClearWhenFlushed();
  Feeder feeder(pipeline.src());
  pipeline.Set(GST_STATE_PLAYING);
  for (int round = 0; round < 5; ++round) {
    feeder.Begin();
    feeder.Push("abc");
    feeder.End();
    ASSERT_NE(pipeline.Wait(GST_MESSAGE_EOS), nullptr);
    ExpectFreshStream(record, "abc");
    Flush(&feeder);
  }
}

TEST_F(FlushTest, C14WithoutResetTheTimeGoesOn) {
  fake::AllowFrames(2);
  Pipeline pipeline("qttssrc name=src ! fakesink async=false");
  Recorder& record = pipeline.Record();
  record.ClearWhenFlushed();
  Feeder feeder(pipeline.src());
  pipeline.Set(GST_STATE_PLAYING);
  feeder.Begin();
  feeder.Push("old");
  ASSERT_TRUE(WaitFor([&] { return record.buffer_count() == 2; }));
  Flush(&feeder, FALSE);
  fake::AllowFrames(-1);
  feeder.Begin();
  feeder.Push("new");
  ASSERT_TRUE(WaitFor([&] { return record.buffer_count() == 3; }));
  const auto buffers = record.buffers();
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(buffers[i].pts, (i + 2) * 80 * GST_MSECOND);
    EXPECT_EQ(buffers[i].offset, (i + 2) * 1920);
    EXPECT_EQ(buffers[i].discont, i == 0);
  }
  EXPECT_EQ(record.text(), "new");
}

TEST_F(FlushTest, SentToTheElementItDropsTheText) {
  fake::AllowFrames(2);
  Pipeline pipeline("qttssrc name=src text=old ! fakesink async=false");
  Recorder& record = pipeline.Record();
  record.ClearWhenFlushed();
  pipeline.Set(GST_STATE_PLAYING);
  ASSERT_TRUE(WaitFor([&] { return record.buffer_count() == 2; }));
  EXPECT_TRUE(gst_element_send_event(pipeline.src(), gst_event_new_flush_start()));
  g_object_set(pipeline.src(), "text", "lost", nullptr);
  fake::AllowFrames(-1);
  EXPECT_TRUE(gst_element_send_event(pipeline.src(), gst_event_new_flush_stop(TRUE)));
  ASSERT_NE(pipeline.Wait(GST_MESSAGE_EOS), nullptr);
  EXPECT_EQ(record.text(), "");
}

TEST_F(FlushTest, AnEndWithoutABeginIsIgnored) {
  fake::AllowFrames(2);
  Pipeline pipeline("qttssrc name=src text=abc ! fakesink async=false");
  Recorder& record = pipeline.Record();
  record.ClearWhenFlushed();
  pipeline.Set(GST_STATE_PLAYING);
  ASSERT_TRUE(WaitFor([&] { return record.buffer_count() == 2; }));
  EXPECT_FALSE(gst_element_send_event(pipeline.src(), gst_event_new_flush_stop(TRUE)));
  fake::AllowFrames(-1);
  ASSERT_NE(pipeline.Wait(GST_MESSAGE_EOS), nullptr);
  EXPECT_EQ(record.text(), "abc");
}

TEST_F(FlushTest, C14RacesWithStateChanges) {
  // Upstream does not change its state with the element, so that GStreamer warns of data before a stream-start.
  const GLogLevelFlags fatal = g_log_set_always_fatal(G_LOG_LEVEL_CRITICAL);
  fake::Script script = fake::DefaultScript();
  script.frame_time = std::chrono::milliseconds(1);
  fake::Reset(script);
  Pipeline pipeline("qttssrc name=src ! fakesink async=false");
  Feeder feeder(pipeline.src());
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
    pipeline.Set(GST_STATE_PLAYING);
    std::this_thread::sleep_for(std::chrono::microseconds(round * 50));
    pipeline.Set(round % 2 == 0 ? GST_STATE_READY : GST_STATE_NULL);
  }
  stop = true;
  upstream.join();
  g_log_set_always_fatal(fatal);
}

}  // namespace
}  // namespace qtts::testing
