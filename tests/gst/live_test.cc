// SPDX-License-Identifier: LGPL-2.1-or-later
// Live streams: each buffer leaves at its clock time; pauses, idle times, silence, latency. The tests set the clock.
#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <tuple>
#include <utility>

#include "gstqttsclock.h"
#include "live_pipeline.h"
#include "support.h"

namespace qtts::testing {
namespace {

constexpr GstClockTime kFrame = 80 * GST_MSECOND;
// An hour, of which sanitizers get six minutes.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr GstClockTime kLongTime = 360 * GST_SECOND;
#else
constexpr GstClockTime kLongTime = 3600 * GST_SECOND;
#endif

using LiveTest = GstTest;

TEST_F(LiveTest, C16NoPrerollOnlyWhenLive) {
  Pipeline live("qttssrc name=src is-live=true text=abc ! fakesink");
  EXPECT_EQ(live.Begin(GST_STATE_PAUSED), GST_STATE_CHANGE_NO_PREROLL);
  Pipeline other("qttssrc name=src text=abc ! fakesink");
  EXPECT_EQ(other.Set(GST_STATE_PAUSED), GST_STATE_CHANGE_SUCCESS);
}

TEST_F(LiveTest, C21FramesLeaveOnTheClock) {
  LivePipeline pipeline("idle-mode=eos text=abcdefgh");
  pipeline.Set(GST_STATE_PLAYING);
  ASSERT_TRUE(pipeline.AdvanceUntil(1));
  const GstClockTime anchor = pipeline.record().buffers()[0].pts;
  for (size_t n = 1; n < 8; ++n) {
    ASSERT_TRUE(pipeline.WaitUntilSomebodyWaits());
    const GstClockTime due = anchor + n * kFrame;
    pipeline.Advance(due - pipeline.now() - 1);
    g_usleep(2000);
    ASSERT_EQ(pipeline.record().buffer_count(), n) << "before its time";
    pipeline.Advance(1);
    ASSERT_TRUE(WaitFor([&] { return pipeline.record().buffer_count() == n + 1; })) << "at its time";
    EXPECT_EQ(pipeline.record().buffers()[n].pts, due);
  }
  EXPECT_EQ(pipeline.record().text(), "abcdefgh");
  ExpectContinuous(pipeline.record().buffers());
  ASSERT_NE(pipeline.Wait(GST_MESSAGE_EOS), nullptr);
}

TEST_F(LiveTest, C16PausesLoseAndRepeatNoFrame) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += static_cast<char>('A' + i % 26);
  Speak speak(std::string("is-live=true idle-mode=eos text=") + text);
  for (int i = 0; i < 100; ++i) {
    speak.Set(GST_STATE_PLAYING);
    g_usleep(static_cast<gulong>(i % 13) * 3000);
    speak.Set(GST_STATE_PAUSED);
  }
  speak.Set(GST_STATE_PLAYING);
  speak.Expect(text);
  const auto buffers = speak.buffers();
  for (size_t i = 0; i < buffers.size(); ++i) EXPECT_EQ(buffers[i].offset, i * 1920);
}

// Calls `action` on a thread of its own, while the thread that posts the next message of this type waits for it.
class DuringMessage : public MessageHandler {
 public:
  DuringMessage(const Pipeline& pipeline, GstMessageType type, const std::function<void()>& action)
      : MessageHandler(pipeline,
                       [type, action, done = std::make_shared<std::atomic<bool>>(false)](GstMessage* message) {
                         if (GST_MESSAGE_TYPE(message) == type && !done->exchange(true)) std::thread(action).join();
                       }) {}
};

// Each message is posted within create(): the warning before the wait for speech, the element message after it.
// Check: 31
TEST_F(LiveTest, C16APauseMayBeginAndEndWithinCreate) {
  for (const GstMessageType type : {GST_MESSAGE_WARNING, GST_MESSAGE_ELEMENT}) {
    SCOPED_TRACE(gst_message_type_get_name(type));
    fake::Reset({.warnings = {"a warning"}});
    Speak speak("is-live=true idle-mode=eos text=abc");
    const DuringMessage during(speak, type, [&] {
      speak.Set(GST_STATE_PAUSED);
      speak.Set(GST_STATE_PLAYING);
    });
    speak.Begin(GST_STATE_PLAYING);
    ASSERT_NE(speak.Wait(GST_MESSAGE_EOS | GST_MESSAGE_ERROR), nullptr);
    EXPECT_EQ(speak.text(), "abc");
  }
}

// Check: 31
TEST_F(LiveTest, C16TheFrameThatAPauseMeetsIsKept) {
  Speak speak("is-live=true idle-mode=eos text=abc");
  std::atomic<bool> paused = false;
  const DuringMessage during(speak, GST_MESSAGE_ELEMENT, [&] {
    speak.Set(GST_STATE_PAUSED);
    paused = true;
  });
  speak.Begin(GST_STATE_PLAYING);
  ASSERT_TRUE(WaitFor([&] { return paused.load(); }));
  g_usleep(20000);  // for the streaming thread to come back from create()
  speak.Begin(GST_STATE_PLAYING);
  ASSERT_NE(speak.Wait(GST_MESSAGE_EOS | GST_MESSAGE_ERROR), nullptr);
  EXPECT_EQ(speak.text(), "abc");
  ExpectContinuous(speak.buffers());
}

// EOS is not lost either.
// Check: 31
TEST_F(LiveTest, C16AnErrorThatAPauseMeetsEndsTheStream) {
  fake::Reset({.fail_at_frame = 1, .failure = Status::DeviceUnavailable("The device is gone.")});
  Speak speak("is-live=true text=abc");
  std::atomic<bool> paused = false;
  const DuringMessage during(speak, GST_MESSAGE_ERROR, [&] {
    speak.Set(GST_STATE_PAUSED);
    paused = true;
  });
  speak.Begin(GST_STATE_PLAYING);
  ASSERT_TRUE(WaitFor([&] { return paused.load(); }));
  g_usleep(20000);
  speak.Begin(GST_STATE_PLAYING);
  ASSERT_TRUE(WaitFor([&] {
    const auto events = speak.record().events();
    return std::find(events.begin(), events.end(), GST_EVENT_EOS) != events.end();
  }));
}

// Check: 31
TEST_F(LiveTest, C16PlayingRightAfterPaused) {
  Speak speak("is-live=true idle-mode=silence");
  speak.Set(GST_STATE_PLAYING);
  for (int round = 0; round < 10; ++round) {
    const size_t count = speak.record().buffer_count();
    g_object_set(speak.src(), "text", "abcdefgh", nullptr);
    ASSERT_TRUE(WaitFor([&] { return speak.record().buffer_count() >= count + 4; })) << round;
    speak.Interrupt();
    speak.Begin(GST_STATE_PAUSED);
    speak.Begin(GST_STATE_PLAYING);
  }
}

// With a clock that continues during pauses. Each pause interrupts a wait.
TEST_F(LiveTest, C16APauseStopsTheTimeOfTheStream) {
  LivePipeline pipeline("idle-mode=eos text=" + std::string(100, 'x'));
  pipeline.Set(GST_STATE_PLAYING);
  ASSERT_TRUE(pipeline.AdvanceUntil(1));
  for (size_t n = 1; n < 100; ++n) {
    ASSERT_TRUE(pipeline.WaitUntilSomebodyWaits());
    pipeline.Advance(n % 80 * GST_MSECOND);
    ASSERT_EQ(pipeline.record().buffer_count(), n);
    EXPECT_EQ(pipeline.Set(GST_STATE_PAUSED), GST_STATE_CHANGE_NO_PREROLL);
    pipeline.Advance(GST_SECOND);
    ASSERT_EQ(pipeline.record().buffer_count(), n);
    pipeline.Set(GST_STATE_PLAYING);
    ASSERT_TRUE(pipeline.WaitUntilSomebodyWaits());
    pipeline.Advance((80 - n % 80) * GST_MSECOND - 1);
    ASSERT_EQ(pipeline.record().buffer_count(), n) << "before its time";
    pipeline.Advance(1);
    ASSERT_TRUE(WaitFor([&] { return pipeline.record().buffer_count() == n + 1; }));
  }
  ExpectContinuous(pipeline.record().buffers());
  EXPECT_EQ(GetStat(pipeline.src(), "underruns"), 0U);
}

TEST_F(LiveTest, C16TextThatComesInAPauseIsSpokenAfterIt) {
  for (const char* mode : {"wait", "silence"}) {
    SCOPED_TRACE(mode);
    LivePipeline pipeline(std::string("text=ab idle-mode=") + mode);
    pipeline.Set(GST_STATE_PLAYING);
    ASSERT_TRUE(WaitFor([&] {
      if (Speech(pipeline.record().buffers()).size() == 2) return true;
      pipeline.AdvanceWithTheEngine();
      return false;
    }));
    pipeline.Advance(30 * GST_MSECOND);
    const GstClockTime now = pipeline.now();
    EXPECT_EQ(pipeline.Set(GST_STATE_PAUSED), GST_STATE_CHANGE_NO_PREROLL);
    pipeline.Advance(10 * GST_SECOND);
    g_object_set(pipeline.src(), "text", "cd", nullptr);
    if (g_str_equal(mode, "wait")) {
      ASSERT_TRUE(WaitFor([] { return fake::GetCounters().frames == 4; }));
    }
    pipeline.Advance(10 * GST_SECOND);
    pipeline.Set(GST_STATE_PLAYING);
    ASSERT_TRUE(WaitFor([&] {
      if (Speech(pipeline.record().buffers()).size() == 4) return true;
      pipeline.AdvanceWithTheEngine();
      return false;
    }));
    const GstClockTime start = Speech(pipeline.record().buffers())[2].pts;
    EXPECT_GE(start, now);
    EXPECT_LT(start, now + 2 * kFrame) << "the pause is no running time";
    EXPECT_EQ(GetStat(pipeline.src(), "underruns"), 0U);
  }
}

TEST_F(LiveTest, C21TheClockMayChange) {
  for (const char* mode : {"eos", "silence"}) {
    for (const bool pause : {false, true}) {
      SCOPED_TRACE(std::string(mode) + (pause ? ", in a pause" : ", at once"));
      LivePipeline pipeline(std::string("text=abcdef idle-mode=") + mode);
      pipeline.Set(GST_STATE_PLAYING);
      ASSERT_TRUE(WaitFor([&] {
        if (Speech(pipeline.record().buffers()).size() == 3) return true;
        pipeline.AdvanceWithTheEngine();
        return false;
      }));
      ASSERT_TRUE(pipeline.WaitUntilSomebodyWaits());
      const GstClockTime now = pipeline.now();
      const size_t count = pipeline.record().buffer_count();
      if (pause) pipeline.Set(GST_STATE_PAUSED);
      // The old clock stands still from here on. The new one is hours away.
      GstClock* other = gst_test_clock_new_with_start_time(5000 * GST_SECOND);
      if (pause) {
        gst_pipeline_use_clock(GST_PIPELINE(pipeline.get()), other);
        pipeline.Set(GST_STATE_PLAYING);
      } else {
        gst_element_set_base_time(pipeline.src(), 5000 * GST_SECOND - now);
        gst_element_set_clock(pipeline.src(), other);
      }
      EXPECT_TRUE(WaitFor([&] {
        if (gst_test_clock_peek_id_count(GST_TEST_CLOCK(other)) > 0) gst_test_clock_crank(GST_TEST_CLOCK(other));
        return Speech(pipeline.record().buffers()).size() == 6;
      }));
      EXPECT_GE(pipeline.record().buffer_count(), count + 3);
      ExpectContinuous(pipeline.record().buffers());
      EXPECT_EQ(SpokenText(pipeline.record().buffers()), "abcdef");
      EXPECT_EQ(GetStat(pipeline.src(), "underruns"), 0U);
      pipeline.Set(GST_STATE_NULL);
      gst_object_unref(other);
    }
  }
}

// A clock that is taken from `element` while it is asked for the time.
struct LostClock {
  GstSystemClock parent;
  GstElement* element;
};
struct LostClockClass {
  GstSystemClockClass parent;
};
G_DEFINE_TYPE(LostClock, lost_clock, GST_TYPE_SYSTEM_CLOCK)

GstClockTime GetTimeAndLoseClock(GstClock* clock) {
  GstElement* element = std::exchange(reinterpret_cast<LostClock*>(clock)->element, nullptr);
  if (element != nullptr) gst_element_set_clock(element, nullptr);
  return GST_CLOCK_CLASS(lost_clock_parent_class)->get_internal_time(clock);
}
void lost_clock_class_init(LostClockClass* type) { GST_CLOCK_CLASS(type)->get_internal_time = GetTimeAndLoseClock; }
void lost_clock_init(LostClock* /*clock*/) {}

TEST_F(LiveTest, TheClockMayGoWhileAWaitBegins) {
  GstElement* element = GST_ELEMENT(gst_object_ref_sink(gst_element_factory_make("fakesink", nullptr)));
  const auto set_clock = [element] {
    auto* clock = GST_CLOCK(gst_object_ref_sink(g_object_new(lost_clock_get_type(), nullptr)));
    gst_element_set_clock(element, clock);
    reinterpret_cast<LostClock*>(clock)->element = element;
    gst_object_unref(clock);
  };
  {
    gstqtts::LiveClock clock(element);
    clock.SetPlaying(true);
    const GstClockTime never = g_get_monotonic_time() * GST_USECOND + 1000 * GST_SECOND;
    std::atomic<int> alarms = 0;
    set_clock();
    clock.SetAlarm(never, [&alarms] { ++alarms; });
    clock.ClockChanged();  // as the element does
    EXPECT_GE(alarms, 1);
    clock.CancelAlarm();
    set_clock();
    EXPECT_TRUE(clock.WaitUntil(never)) << "it should not wait for a clock that has gone";
  }
  gst_object_unref(element);
}

TEST_F(LiveTest, C22AfterIdleSpeechStartsNow) {
  LivePipeline pipeline("idle-mode=wait text=ab");
  pipeline.Set(GST_STATE_PLAYING);
  ASSERT_TRUE(pipeline.AdvanceUntil(2));
  pipeline.Advance(2 * GST_SECOND);
  const GstClockTime now = pipeline.now();
  g_object_set(pipeline.src(), "text", "cd", nullptr);
  ASSERT_TRUE(WaitFor([&] { return pipeline.record().buffer_count() == 3; })) << "it should not wait";
  ASSERT_TRUE(pipeline.AdvanceUntil(4));
  const auto buffers = pipeline.record().buffers();
  EXPECT_EQ(buffers[2].pts, now);
  EXPECT_TRUE(buffers[2].discont);
  EXPECT_EQ(buffers[2].offset, 2U * 1920);
  EXPECT_EQ(buffers[3].pts, now + kFrame);
  EXPECT_FALSE(buffers[3].discont);
}

// With a sink that drops buffers as late as the idle time was long.
TEST_F(LiveTest, C22NothingIsDroppedAfterIdle) {
  LivePipeline pipeline("idle-mode=wait text=ab");
  const auto sink = pipeline.Find("sink");
  g_object_set(sink.get(), "sync", TRUE, "max-lateness", static_cast<gint64>(GST_SECOND), nullptr);
  const auto rendered = [&] {
    GstStructure* stats = nullptr;
    g_object_get(sink.get(), "stats", &stats, nullptr);
    guint64 count = 0;
    guint64 dropped = 0;
    gst_structure_get_uint64(stats, "rendered", &count);
    gst_structure_get_uint64(stats, "dropped", &dropped);
    gst_structure_free(stats);
    EXPECT_EQ(dropped, 0U);
    return count;
  };
  const auto advance_until_rendered = [&](guint64 count) {
    return WaitFor([&] {
      if (rendered() == count) return true;
      if (gst_test_clock_peek_id_count(pipeline.clock()) > 0) pipeline.Advance(10 * GST_MSECOND);
      return false;
    });
  };
  pipeline.Set(GST_STATE_PLAYING);
  ASSERT_TRUE(advance_until_rendered(2));
  pipeline.Advance(10 * GST_SECOND);
  g_object_set(pipeline.src(), "text", "cd", nullptr);
  EXPECT_TRUE(advance_until_rendered(4));
}

TEST_F(LiveTest, C23SilenceFillsEveryPause) {
  LivePipeline pipeline("");
  pipeline.Set(GST_STATE_PLAYING);
  ASSERT_TRUE(pipeline.AdvanceUntil(5));
  const GstClockTime before = pipeline.now();
  g_object_set(pipeline.src(), "text", "abc", nullptr);
  ASSERT_TRUE(WaitFor([&] {
    pipeline.AdvanceWithTheEngine();
    return Speech(pipeline.record().buffers()).size() == 3;
  }));
  const size_t spoken = pipeline.record().buffer_count();
  ASSERT_TRUE(pipeline.AdvanceUntil(spoken + 5));
  const auto buffers = pipeline.record().buffers();
  ExpectContinuous(buffers);
  EXPECT_TRUE(buffers.front().silent);
  EXPECT_TRUE(buffers.back().silent);
  EXPECT_EQ(SpokenText(buffers), "abc");
  EXPECT_LE(Speech(buffers)[0].pts, before + kFrame + 100 * GST_MSECOND);
  EXPECT_EQ(GetStat(pipeline.src(), "underruns"), 0U);
}

// The streaming thread may run a little late.
TEST_F(LiveTest, C23SpeechThatBeginsALittleLateBreaksNothing) {
  LivePipeline pipeline("");
  pipeline.Set(GST_STATE_PLAYING);
  ASSERT_TRUE(pipeline.AdvanceUntil(3));
  for (size_t spoken = 1; spoken <= 5; ++spoken) {
    ASSERT_TRUE(pipeline.WaitUntilSomebodyWaits());
    g_object_set(pipeline.src(), "text", "a", nullptr);
    ASSERT_TRUE(WaitFor([&] {
      if (Speech(pipeline.record().buffers()).size() == spoken) return true;
      if (gst_test_clock_peek_id_count(pipeline.clock()) > 0) pipeline.Advance(23 * GST_MSECOND);
      return false;
    }));
  }
  ExpectContinuous(pipeline.record().buffers());
}

// A network sink may block for seconds. The element does not send the missed time in a burst afterwards.
TEST_F(LiveTest, SilenceThatDownstreamDidNotTakeIsNotMadeUpFor) {
  LivePipeline pipeline("");
  const auto sink = pipeline.Find("sink");
  pipeline.Set(GST_STATE_PLAYING);
  ASSERT_TRUE(pipeline.AdvanceUntil(3));
  const Owned<GstPad> pad(gst_element_get_static_pad(sink.get(), "sink"));
  const gulong block = gst_pad_add_probe(
      pad.get(), static_cast<GstPadProbeType>(GST_PAD_PROBE_TYPE_BLOCK | GST_PAD_PROBE_TYPE_BUFFER),
      [](GstPad*, GstPadProbeInfo*, gpointer) { return GST_PAD_PROBE_OK; }, nullptr, nullptr);
  ASSERT_TRUE(pipeline.AdvanceUntil(4));
  ASSERT_TRUE(WaitFor([&] { return gst_pad_is_blocking(pad.get()); }));
  pipeline.Advance(5 * GST_SECOND);
  const GstClockTime now = pipeline.now();
  gst_pad_remove_probe(pad.get(), block);
  ASSERT_TRUE(pipeline.AdvanceUntil(6));
  const auto buffers = pipeline.record().buffers();
  EXPECT_EQ(buffers[4].pts, now);
  EXPECT_TRUE(buffers[4].discont);
  EXPECT_EQ(buffers[5].pts, now + buffers[4].duration);
  EXPECT_FALSE(buffers[5].discont);
}

TEST_F(LiveTest, C23AnHourWithoutDrift) {
  LivePipeline pipeline("");
  pipeline.Set(GST_STATE_PLAYING);
  const GstClockTime step = 60 * GST_SECOND;
  guint64 spoken = 0;
  for (GstClockTime time = step; time <= kLongTime; time += step) {
    g_object_set(pipeline.src(), "text", "abcdefghij", nullptr);
    spoken += 10;
    // An hour takes seconds here. On a busy machine it would be over before the engine's thread has spoken.
    ASSERT_TRUE(WaitFor([&] { return fake::GetCounters().frames == static_cast<int64_t>(spoken); }));
    while (pipeline.now() < time) {
      gst_test_clock_wait_for_next_pending_id(pipeline.clock(), nullptr);
      gst_test_clock_crank(pipeline.clock());
    }
  }
  const auto buffers = pipeline.record().buffers();
  ExpectContinuous(buffers);
  EXPECT_EQ(Speech(buffers).size(), spoken);
  EXPECT_GE(buffers.back().pts + buffers.back().duration + 200 * GST_MSECOND, kLongTime);
  EXPECT_EQ(buffers.back().pts + buffers.back().duration,
            buffers.front().pts + gst_util_uint64_scale(buffers.back().offset_end, GST_SECOND, 24000));
}

TEST_F(LiveTest, SilenceWithoutAClockToo) {
  Pipeline pipeline("qttssrc name=src idle-mode=silence text=ab ! fakesink name=sink sync=false");
  pipeline.Record(true);
  pipeline.Set(GST_STATE_PLAYING);
  ASSERT_TRUE(WaitFor([&] { return pipeline.record().buffer_count() >= 20; }));
  g_object_set(pipeline.src(), "text", "cd", nullptr);
  ASSERT_TRUE(WaitFor([&] { return SpokenText(pipeline.record().buffers()).size() == 4; }));
  pipeline.Set(GST_STATE_PAUSED);
  ExpectContinuous(pipeline.record().buffers());
  EXPECT_EQ(SpokenText(pipeline.record().buffers()), "abcd");
}

TEST_F(LiveTest, IdleModeMayChangeWhilePlaying) {
  Pipeline pipeline("qttssrc name=src idle-mode=wait text=ab ! fakesink name=sink sync=false");
  pipeline.Record();
  pipeline.Set(GST_STATE_PLAYING);
  ASSERT_TRUE(WaitFor([&] { return pipeline.record().buffer_count() == 2; }));
  gst_util_set_object_arg(G_OBJECT(pipeline.src()), "idle-mode", "silence");
  ASSERT_TRUE(WaitFor([&] { return pipeline.record().buffer_count() > 10; }));
  gst_util_set_object_arg(G_OBJECT(pipeline.src()), "idle-mode", "eos");
  ASSERT_NE(pipeline.Wait(GST_MESSAGE_EOS), nullptr);
}

TEST_F(LiveTest, LeadingSilenceAndGaps) {
  Speak speak("leading-silence=50000000 utterance-gap=30000000 text=ab");
  speak.Record(true);
  speak.Push("cd").End().ExpectEnd();
  ExpectContinuous(speak.buffers());
  const auto speech = Speech(speak.buffers());
  ASSERT_EQ(speech.size(), 4U);
  EXPECT_EQ(speech[0].pts, 50 * GST_MSECOND);
  EXPECT_EQ(speech[1].pts, speech[0].pts + kFrame);
  EXPECT_EQ(speech[2].pts, speech[1].pts + kFrame + 30 * GST_MSECOND);
}

// The silence before each sentence but the first, in milliseconds.
std::vector<guint64> SilencesBetween(const std::string& properties, const std::string& text, size_t frames) {
  Speak speak("segmentation=sentence " + properties);
  speak.Record(true);
  speak.Push(text).End().ExpectEnd();
  ExpectContinuous(speak.buffers());
  const auto speech = Speech(speak.buffers());
  EXPECT_EQ(speech.size(), frames);
  std::vector<guint64> silences;
  for (size_t i = 1; i < speech.size(); ++i) {
    silences.push_back((speech[i].pts - speech[i - 1].pts - kFrame) / GST_MSECOND);
  }
  return silences;
}

// Check: 46
TEST_F(LiveTest, SilenceAfterParagraphsAndHeadings) {
  // A character is a frame, and the line end within a paragraph a space.
  const std::string text = "A\n\nB.\n\nC\nD.\fE";
  using Silences = std::vector<guint64>;
  const auto between = [&](const char* properties) {
    Silences silences = SilencesBetween(properties, text, 8);
    silences.erase(std::remove(silences.begin(), silences.end(), 0U), silences.end());
    return silences;
  };
  EXPECT_EQ(between(""), (Silences{500, 300, 300}));
  EXPECT_EQ(between("utterance-gap=20000000"), (Silences{520, 320, 320}));
  EXPECT_EQ(between("utterance-gap=20000000 paragraph-gap=40000000"), (Silences{520, 40, 40}));
  EXPECT_EQ(between("utterance-gap=20000000 heading-gap=60000000"), (Silences{60, 320, 320}));
  EXPECT_EQ(between("paragraph-gap=0 heading-gap=0"), Silences{});
}

TEST_F(LiveTest, C24Latency) {
  const auto query = [](GstElement* element, gboolean* live, GstClockTime* min, GstClockTime* max) {
    const Owned<GstPad> pad(gst_element_get_static_pad(element, "src"));
    GstQuery* latency = gst_query_new_latency();
    EXPECT_TRUE(gst_pad_query(pad.get(), latency));
    gst_query_parse_latency(latency, live, min, max);
    gst_query_unref(latency);
  };
  gboolean live = TRUE;
  GstClockTime min = 1;
  GstClockTime max = 0;
  {
    Pipeline pipeline("qttssrc name=src latency=100000000 ! fakesink");
    query(pipeline.src(), &live, &min, &max);
    EXPECT_FALSE(live);
    EXPECT_EQ(min, 0U);
    EXPECT_EQ(max, GST_CLOCK_TIME_NONE);
  }
  LivePipeline pipeline("latency=100000000");
  pipeline.Set(GST_STATE_PLAYING);
  query(pipeline.src(), &live, &min, &max);
  EXPECT_TRUE(live);
  EXPECT_EQ(min, 100 * GST_MSECOND);
  const auto told = [&] {  // the sink posts its own latency
    const auto messages = pipeline.Pending(GST_MESSAGE_LATENCY);
    return std::count_if(messages.begin(), messages.end(), [&](const auto& message) {
      return GST_MESSAGE_SRC(message.get()) == GST_OBJECT(pipeline.src());
    });
  };
  EXPECT_EQ(told(), 0);
  g_object_set(pipeline.src(), "latency", 20 * GST_MSECOND, nullptr);
  EXPECT_EQ(told(), 1);
  query(pipeline.src(), &live, &min, &max);
  EXPECT_EQ(min, 20 * GST_MSECOND);
  g_object_set(pipeline.src(), "latency", 20 * GST_MSECOND, nullptr);
  EXPECT_EQ(told(), 0) << "it did not change";
}

TEST_F(LiveTest, C24LatencyOfUpstreamIsAdded) {
  for (const bool live : {false, true}) {
    for (const bool upstream_live : {false, true}) {
      SCOPED_TRACE(std::string(live ? "live" : "not live") +
                   (upstream_live ? ", upstream live" : ", upstream not live"));
      Pipeline pipeline(
          "appsrc name=in format=time min-latency=30 max-latency=70 ! qttssrc name=src latency=100 ! fakesink");
      const auto in = pipeline.Find("in");
      g_object_set(in.get(), "is-live", upstream_live ? TRUE : FALSE, nullptr);
      g_object_set(pipeline.src(), "is-live", live ? TRUE : FALSE, nullptr);
      GstQuery* latency = gst_query_new_latency();
      EXPECT_TRUE(gst_element_query(pipeline.src(), latency));
      gboolean answer = FALSE;
      GstClockTime min = 0;
      GstClockTime max = 0;
      gst_query_parse_latency(latency, &answer, &min, &max);
      gst_query_unref(latency);
      EXPECT_EQ(answer != FALSE, live || upstream_live);
      EXPECT_EQ(min, (live ? 100U : 0U) + (upstream_live ? 30U : 0U));
      EXPECT_EQ(max, GST_CLOCK_TIME_NONE);
    }
  }
}

TEST_F(LiveTest, SlowSpeechIsCountedToldAndMoved) {
  fake::Reset({.frame_time = std::chrono::milliseconds(150)});
  // Frames that come while a busy machine holds up the element hide some of the underruns, but not of so many.
  Speak speak("is-live=true idle-mode=eos text=abcdefghijklmnop");
  speak.Set(GST_STATE_PLAYING);
  ASSERT_NE(speak.Wait(GST_MESSAGE_QOS), nullptr);
  const auto warning = speak.Wait(GST_MESSAGE_WARNING);
  ASSERT_NE(warning, nullptr);
  EXPECT_NE(ParseProblem(warning.get()).text.find("more slowly"), std::string::npos);
  speak.ExpectEnd();
  EXPECT_TRUE(speak.Pending(GST_MESSAGE_WARNING).empty());
  EXPECT_GE(GetStat(speak.src(), "underruns"), 2U);
  EXPECT_EQ(speak.text(), "abcdefghijklmnop");
}

TEST_F(LiveTest, SlowSpeechIsToldWithTheSettingThatHelps) {
  const struct {
    const char* precision;
    bool beside_host;
    std::string advice;
  } cases[] = {{"auto", false, "Set precision=int8, run the model on a GPU"},
               {"f32", false, "Set precision=int8, run the model on a GPU"},
               {"int8", false, "Set precision=int4, run the model on a GPU"},
               {"int4", false, "so it has gaps. Run the model on a GPU"},
               {"auto", true, "so it has gaps. Use a smaller model"}};
  for (const auto& [precision, beside_host, advice] : cases) {
    SCOPED_TRACE(std::string(precision) + (beside_host ? " on a GPU" : ""));
    fake::Reset({.frame_time = std::chrono::milliseconds(150), .beside_host = beside_host});
    Speak speak("is-live=true idle-mode=eos text=abcdefghijklmnop");
    gst_util_set_object_arg(G_OBJECT(speak.src()), "precision", precision);
    speak.Set(GST_STATE_PLAYING);
    const auto warning = speak.Wait(GST_MESSAGE_WARNING);
    ASSERT_NE(warning, nullptr);
    EXPECT_NE(ParseProblem(warning.get()).text.find(advice), std::string::npos) << ParseProblem(warning.get()).text;
  }
}

TEST_F(LiveTest, TextThatComesLateIsNoUnderrun) {
  for (const char* mode : {"wait", "silence"}) {
    SCOPED_TRACE(mode);
    fake::Reset();
    LivePipeline pipeline(std::string("segmentation=stream newline-ends=true utterance-timeout=-1 idle-mode=") + mode);
    const auto spoken = [&](const std::string& text) {
      return WaitFor([&] {
        pipeline.AdvanceWithTheEngine();
        return SpokenText(pipeline.record().buffers()) == text;
      });
    };
    pipeline.Push("ab");
    ASSERT_TRUE(spoken("ab"));
    ASSERT_TRUE(WaitFor([] { return fake::GetCounters().stalled_reads > 0; }));
    for (int i = 0; i < 100; ++i) pipeline.Advance(20 * GST_MSECOND);
    pipeline.Push("cd\n");
    ASSERT_TRUE(spoken("abcd"));
    EXPECT_EQ(GetStat(pipeline.src(), "underruns"), 0U);
    EXPECT_TRUE(pipeline.Pending(GST_MESSAGE_WARNING).empty());
  }
}

TEST_F(LiveTest, C25InterruptWhileAFrameWaitsForItsTime) {
  LivePipeline pipeline("text=abcdefgh");
  pipeline.Set(GST_STATE_PLAYING);
  ASSERT_TRUE(WaitFor([&] {
    pipeline.AdvanceWithTheEngine();
    return Speech(pipeline.record().buffers()).size() == 2;
  }));
  EXPECT_EQ(pipeline.Interrupt(), 2U);
  const size_t count = pipeline.record().buffer_count();
  ASSERT_TRUE(pipeline.AdvanceUntil(count + 8));
  const auto buffers = pipeline.record().buffers();
  EXPECT_EQ(Speech(buffers).size(), 2U);
  ExpectContinuous(buffers);
  EXPECT_EQ(GetStat(pipeline.src(), "underruns"), 0U);
}

// By default not: audioresample would break the stream (resample_test.cc).
// Check: 8
TEST_F(LiveTest, SilenceHasTheGapFlagOnlyOnRequest) {
  for (const bool requested : {false, true}) {
    SCOPED_TRACE(requested);
    LivePipeline pipeline(std::string("leading-silence=50000000 utterance-gap=30000000 text=ab") +
                          (requested ? " gap-flag=true" : ""));
    pipeline.Set(GST_STATE_PLAYING);
    g_object_set(pipeline.src(), "text", "cd", nullptr);
    ASSERT_TRUE(WaitFor([&] {
      pipeline.AdvanceWithTheEngine();
      return Speech(pipeline.record().buffers()).size() == 4;
    }));
    ASSERT_TRUE(pipeline.AdvanceUntil(pipeline.record().buffer_count() + 2));
    for (const auto& buffer : pipeline.record().buffers()) EXPECT_EQ(buffer.gap_flag, requested && buffer.silent);
  }
}

TEST_F(LiveTest, TrimmedSilenceIsCounted) {
  Speak speak("trim-leading-silence=true text=ab");
  speak.ExpectEnd();
  // The fake engine's frames are a tone from their fourth sample on: nothing to cut.
  EXPECT_EQ(GetStat(speak.src(), "trimmed"), 0U);
  EXPECT_EQ(speak.text(), "ab");
}

// Check: 48
TEST_F(LiveTest, TrimmedSilenceIsToldInNanoseconds) {
  fake::SetScript({.leading_silence = 1000});
  Speak speak("trim-leading-silence=true text=ab");
  speak.ExpectEnd();
  guint64 heard = 0;
  for (const Recorder::Item& buffer : speak.buffers()) heard += buffer.size / sizeof(int16_t);
  constexpr guint64 kMade = 2 * 1920;
  EXPECT_EQ(heard, kMade - 480) << "10 ms of 1000 samples stay, and what is no whole packet of 20 ms";
  EXPECT_EQ(GetStat(speak.src(), "trimmed"), gst_util_uint64_scale(kMade - heard, GST_SECOND, 24000));
}

// Unless the property says otherwise, growing text is trimmed and whole texts are not.
// Check: 58
TEST_F(LiveTest, LeadingSilenceIsTrimmedFromGrowingText) {
  fake::SetScript({.leading_silence = 1000});
  for (const auto& [setting, whole, growing] :
       {std::tuple{"auto", false, true}, {"", false, true}, {"true", true, true}, {"false", false, false}}) {
    SCOPED_TRACE(setting);
    const std::string property = *setting == '\0' ? "" : std::string(" trim-leading-silence=") + setting;
    Speak speak(std::string("text=ab segmentation=stream") + property);
    speak.Push("cd").End().ExpectEnd();
    const auto buffers = speak.buffers();
    ASSERT_EQ(buffers.size(), 4U);
    EXPECT_EQ(buffers[0].size < 1920 * sizeof(int16_t), whole);
    EXPECT_EQ(buffers[2].size < 1920 * sizeof(int16_t), growing);
  }
}

// It was a boolean: what applications set as one stays valid.
// Check: 58
TEST_F(LiveTest, TrimLeadingSilenceIsSetAsABoolean) {
  Speak speak;
  const auto value = [&] {
    gint number = -1;
    g_object_get(speak.src(), "trim-leading-silence", &number, nullptr);
    return number;
  };
  g_object_set(speak.src(), "trim-leading-silence", TRUE, nullptr);
  EXPECT_EQ(value(), 1);
  g_object_set(speak.src(), "trim-leading-silence", FALSE, nullptr);
  EXPECT_EQ(value(), 0);
  gst_util_set_object_arg(G_OBJECT(speak.src()), "trim-leading-silence", "true");
  EXPECT_EQ(value(), 1);
}

// While the stream sends nothing, the speech of a cue waits for its time. An interrupt ends that wait, and the next
// speech does not inherit the time of the cue.
// Check: 38
TEST_F(LiveTest, SpeechAfterAnInterruptDoesNotWaitForTheCueThatWasInterrupted) {
  LivePipeline pipeline("idle-mode=wait text-timing=start");
  pipeline.PushCue("cue", 9 * GST_SECOND);
  ASSERT_TRUE(pipeline.WaitUntilSomebodyWaits());
  pipeline.Advance(1500 * GST_MSECOND);
  ASSERT_TRUE(pipeline.WaitUntilSomebodyWaits());
  EXPECT_EQ(pipeline.record().buffer_count(), 0U);
  pipeline.Interrupt();
  EXPECT_NE(pipeline.Say("now"), 0U);
  ASSERT_TRUE(pipeline.AdvanceUntil(3));
  const auto buffers = pipeline.record().buffers();
  EXPECT_EQ(SpokenText(buffers), "now");
  EXPECT_EQ(buffers[0].pts, 1500 * GST_MSECOND);

  // The next cue has its own time.
  pipeline.PushCue("cue", 9 * GST_SECOND);
  ASSERT_TRUE(pipeline.AdvanceUntil(6));
  EXPECT_EQ(pipeline.record().buffers()[3].pts, 9 * GST_SECOND);
}

// A cue outlives a pause that comes while its speech waits.
// Check: 38
TEST_F(LiveTest, APauseWhileSpeechWaitsForItsCue) {
  LivePipeline pipeline("idle-mode=wait text-timing=start");
  pipeline.PushCue("cue", 2 * GST_SECOND);
  ASSERT_TRUE(pipeline.WaitUntilSomebodyWaits());
  pipeline.Advance(GST_SECOND);
  pipeline.Set(GST_STATE_PAUSED);
  pipeline.Advance(5 * GST_SECOND);
  EXPECT_EQ(pipeline.record().buffer_count(), 0U);
  pipeline.Set(GST_STATE_PLAYING);
  ASSERT_TRUE(pipeline.WaitUntilSomebodyWaits());
  ASSERT_TRUE(pipeline.AdvanceUntil(3));
  EXPECT_EQ(SpokenText(pipeline.record().buffers()), "cue");
  EXPECT_EQ(pipeline.record().buffers()[0].pts, 2 * GST_SECOND);
}

}  // namespace
}  // namespace qtts::testing
