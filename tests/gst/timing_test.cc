// SPDX-License-Identifier: LGPL-2.1-or-later
// Timed text, seeks and tags.
#include <thread>

#include "support.h"

namespace qtts::testing {
namespace {

constexpr GstClockTime kFrame = 80 * GST_MSECOND;

using TimingTest = GstTest;

struct Spoken {
  std::string text;
  GstClockTime start = 0;
  GstClockTime end = 0;
};

// The audible utterances, separated by silence or by the numbers of the fake engine.
std::vector<Spoken> Utterances(const std::vector<Recorder::Item>& buffers) {
  std::vector<Spoken> utterances;
  gint64 last = -1;
  for (const auto& buffer : buffers) {
    if (buffer.silent) continue;
    if (buffer.label.utterance != last) utterances.push_back({{}, buffer.pts, 0});
    last = buffer.label.utterance;
    utterances.back().text += static_cast<char>(buffer.label.character);
    utterances.back().end = buffer.pts + buffer.duration;
  }
  return utterances;
}

std::vector<Spoken> PlayTimed(const std::string& properties, const std::function<void(Pipeline&)>& feed,
                              std::vector<Recorder::Item>* buffers = nullptr) {
  Speak speak(properties);
  feed(speak.Open());
  const auto items = speak.End().ExpectEnd().buffers();
  for (size_t i = 1; i < items.size(); ++i) EXPECT_EQ(items[i].pts, items[i - 1].pts + items[i - 1].duration);
  if (buffers != nullptr) *buffers = items;
  return Utterances(items);
}

TEST_F(TimingTest, IgnoredByDefault) {
  const auto spoken = PlayTimed("", [](Pipeline& speak) {
    speak.PushCue("ab", GST_SECOND);
    speak.PushCue("cd", 5 * GST_SECOND);
  });
  ASSERT_EQ(spoken.size(), 2U);
  EXPECT_EQ(spoken[0].start, 0U);
  EXPECT_EQ(spoken[1].start, 2 * kFrame);
}

TEST_F(TimingTest, StartWaitsForTheCueAndCatchesUp) {
  const auto spoken = PlayTimed("text-timing=start", [](Pipeline& speak) {
    speak.PushCue("abcdefghij", GST_SECOND);  // 800 ms
    speak.PushCue("kl", 1500 * GST_MSECOND);  // 300 ms late
    speak.PushCue("m", 3 * GST_SECOND);       // in time again
  });
  ASSERT_EQ(spoken.size(), 3U);
  EXPECT_EQ(spoken[0].start, GST_SECOND);
  EXPECT_EQ(spoken[1].start, 1800 * GST_MSECOND);
  EXPECT_EQ(spoken[2].start, 3 * GST_SECOND);
}

TEST_F(TimingTest, ShiftKeepsTheDistances) {
  const auto spoken = PlayTimed("text-timing=shift", [](Pipeline& speak) {
    speak.PushCue("abcdefghij", GST_SECOND);
    speak.PushCue("kl", 1500 * GST_MSECOND);
    speak.PushCue("m", 3 * GST_SECOND);
  });
  ASSERT_EQ(spoken.size(), 3U);
  EXPECT_EQ(spoken[1].start, 1800 * GST_MSECOND);
  EXPECT_EQ(spoken[2].start, 3300 * GST_MSECOND);
}

TEST_F(TimingTest, ClipEndsWithTheCue) {
  const auto spoken = PlayTimed("text-timing=clip", [](Pipeline& speak) {
    speak.PushCue("abcdefghij", GST_SECOND, 500 * GST_MSECOND);
    speak.PushCue("kl", 1500 * GST_MSECOND, GST_SECOND);
  });
  ASSERT_EQ(spoken.size(), 2U);
  EXPECT_EQ(spoken[0].text, "abcdefg");
  EXPECT_EQ(spoken[0].end, 1500 * GST_MSECOND);
  EXPECT_EQ(spoken[1].start, 1500 * GST_MSECOND);
  EXPECT_EQ(spoken[1].text, "kl");
}

TEST_F(TimingTest, ClippedUtterancesSaySo) {
  Speak speak("text-timing=clip");
  speak.Open(GST_FORMAT_TIME);
  speak.PushCue("abcdefghij", 0, 200 * GST_MSECOND);
  speak.End();
  std::string reason;
  while (reason.empty()) {
    const auto message = speak.Wait(GST_MESSAGE_ELEMENT);
    ASSERT_NE(message, nullptr);
    const GstStructure* structure = gst_message_get_structure(message.get());
    if (gst_structure_has_name(structure, "qtts-utterance-finished")) {
      reason = gst_structure_get_string(structure, "reason");
    }
  }
  EXPECT_EQ(reason, "clipped");
  speak.ExpectEnd();
}

TEST_F(TimingTest, C13SegmentsMapToRunningTime) {
  Speak speak("text-timing=start");
  speak.Open(GST_FORMAT_BYTES);
  GstSegment segment;
  gst_segment_init(&segment, GST_FORMAT_TIME);
  segment.start = segment.position = 10 * GST_SECOND;
  segment.base = 2 * GST_SECOND;
  speak.feeder().Send(gst_event_new_segment(&segment));
  speak.PushCue("ab", 11 * GST_SECOND);
  speak.End().ExpectEnd();
  const auto spoken = Utterances(speak.buffers());
  ASSERT_EQ(spoken.size(), 1U);
  EXPECT_EQ(spoken[0].start, 3 * GST_SECOND);
}

// As sinks clip buffers to their segment.
// Check: 44
TEST_F(TimingTest, TextOutsideTheSegmentIsNotSpokenAndTextAcrossItsEdgesIsClipped) {
  for (const char* timing : {"ignore", "start", "clip"}) {
    SCOPED_TRACE(timing);
    fake::Reset();
    Speak speak(std::string("text-timing=") + timing);
    speak.Open(GST_FORMAT_BYTES);
    GstSegment segment;
    gst_segment_init(&segment, GST_FORMAT_TIME);
    segment.start = segment.position = 10 * GST_SECOND;
    segment.stop = 20 * GST_SECOND;
    speak.feeder().Send(gst_event_new_segment(&segment));
    speak.PushCue("never", 3 * GST_SECOND, GST_SECOND);
    speak.PushCue("ab", 9 * GST_SECOND, 2 * GST_SECOND);
    speak.PushCue("cdefghij", 19800 * GST_MSECOND, 2 * GST_SECOND);
    speak.PushCue("later", 21 * GST_SECOND, GST_SECOND);
    speak.End().ExpectEnd();
    const auto spoken = Utterances(speak.buffers());
    ASSERT_EQ(spoken.size(), 2U);
    const bool timed = std::string(timing) != "ignore";
    EXPECT_EQ(spoken[0].text, "ab");
    EXPECT_EQ(spoken[0].start, 0U);
    EXPECT_EQ(spoken[1].start, timed ? 9800 * GST_MSECOND : 2 * kFrame);
    if (std::string(timing) == "clip") {
      EXPECT_EQ(spoken[1].end, 10 * GST_SECOND) << "the end of the segment";
    } else {
      EXPECT_EQ(spoken[1].text, "cdefghij");
    }
  }
}

TEST_F(TimingTest, GapsAreFilled) {
  std::vector<Recorder::Item> buffers;
  PlayTimed(
      "text-timing=start",
      [](Pipeline& speak) {
        speak.PushCue("ab", 0);
        speak.Send(gst_event_new_gap(GST_SECOND, 2 * GST_SECOND));
      },
      &buffers);
  ASSERT_FALSE(buffers.empty());
  EXPECT_TRUE(buffers.back().silent);
  EXPECT_EQ(buffers.back().pts + buffers.back().duration, 3 * GST_SECOND);
}

TEST_F(TimingTest, SegmentationRefusesTimes) {
  Speak speak("text-timing=start segmentation=sentence");
  speak.Open(GST_FORMAT_TIME);
  speak.PushCue("ab. ", GST_SECOND);
  speak.PushCue("Cd.", 5 * GST_SECOND);
  speak.End();
  const auto warning = speak.Wait(GST_MESSAGE_WARNING);
  ASSERT_NE(warning, nullptr);
  EXPECT_NE(ParseProblem(warning.get()).text.find("text-timing"), std::string::npos);
  speak.ExpectEnd();
  EXPECT_EQ(speak.buffers()[0].pts, 0U);
}

// --- seeks

GstEvent* NewSeek(double rate, gint64 start, GstSeekFlags flags = GST_SEEK_FLAG_FLUSH, gint64 stop = -1) {
  return gst_event_new_seek(rate, GST_FORMAT_TIME, flags, GST_SEEK_TYPE_SET, start,
                            stop < 0 ? GST_SEEK_TYPE_NONE : GST_SEEK_TYPE_SET, stop);
}

// True if the answer to a seeking query is "seekable to the beginning only", and not "not seekable".
bool SaysSeekable(GstElement* element) {
  GstQuery* query = gst_query_new_seeking(GST_FORMAT_TIME);
  EXPECT_TRUE(gst_element_query(element, query));
  gboolean seekable = TRUE;
  gint64 start = -1;
  gint64 end = -1;
  gst_query_parse_seeking(query, nullptr, &seekable, &start, &end);
  gst_query_unref(query);
  EXPECT_EQ(start, 0);
  EXPECT_EQ(end, seekable ? 0 : -1);
  return seekable != FALSE;
}

gint64 Position(GstElement* element) {
  gint64 position = -1;
  EXPECT_TRUE(gst_element_query_position(element, GST_FORMAT_TIME, &position));
  return position;
}

TEST_F(TimingTest, C27OtherSeeksAreRefused) {
  Pipeline pipeline("qttssrc name=src text=abc ! fakesink sync=false");
  pipeline.Record();
  pipeline.Set(GST_STATE_PAUSED);
  EXPECT_FALSE(gst_element_send_event(pipeline.src(), NewSeek(1.0, GST_SECOND)));
  EXPECT_FALSE(gst_element_send_event(pipeline.src(), NewSeek(2.0, 0)));
  EXPECT_FALSE(
      gst_element_send_event(pipeline.src(), gst_event_new_seek(1.0, GST_FORMAT_TIME, GST_SEEK_FLAG_FLUSH,
                                                                GST_SEEK_TYPE_NONE, 0, GST_SEEK_TYPE_SET, GST_SECOND)));
  EXPECT_FALSE(gst_element_send_event(
      pipeline.src(),
      gst_event_new_seek(1.0, GST_FORMAT_BYTES, GST_SEEK_FLAG_FLUSH, GST_SEEK_TYPE_SET, 0, GST_SEEK_TYPE_NONE, -1)));
  const Owned<GstPad> pad(gst_element_get_static_pad(pipeline.src(), "src"));
  EXPECT_FALSE(gst_pad_send_event(pad.get(), NewSeek(1.0, GST_SECOND)));
  pipeline.Set(GST_STATE_PLAYING);
  ASSERT_NE(pipeline.Wait(GST_MESSAGE_EOS), nullptr);
  EXPECT_EQ(pipeline.record().text(), "abc");
}

// Check: 40
TEST_F(TimingTest, C27TheSeekingQueryAgreesWithSeeks) {
  for (const bool live : {false, true}) {
    for (const bool text : {false, true}) {
      SCOPED_TRACE(std::string(live ? "live" : "not live") + (text ? ", with text" : ", without text"));
      Pipeline pipeline(std::string("qttssrc name=src idle-mode=wait ") + (live ? "is-live=true " : "") +
                        (text ? "text=abc" : "") + " ! fakesink async=false");
      EXPECT_FALSE(SaysSeekable(pipeline.src())) << "it does not run";
      pipeline.Set(GST_STATE_PLAYING);
      EXPECT_EQ(SaysSeekable(pipeline.src()), text && !live);
      EXPECT_EQ(gst_element_send_event(pipeline.src(), NewSeek(1.0, 0)) != FALSE, text && !live);
    }
  }
  Pipeline pipeline("qttssrc name=src text=abc ! fakesink async=false");
  Feeder feeder(pipeline.src());
  pipeline.Set(GST_STATE_PLAYING);
  EXPECT_FALSE(SaysSeekable(pipeline.src())) << "upstream does not answer";
}

TEST_F(TimingTest, C27SeekToTheBeginningSpeaksAgain) {
  Pipeline pipeline("qttssrc name=src text=abc ! fakesink sync=false");
  Recorder& record = pipeline.Record();
  const Owned<GstPad> pad(gst_element_get_static_pad(pipeline.src(), "src"));
  pipeline.Set(GST_STATE_PLAYING);
  ASSERT_NE(pipeline.Wait(GST_MESSAGE_EOS), nullptr);
  EXPECT_EQ(Position(pipeline.src()), static_cast<gint64>(3 * kFrame));
  for (const bool by_pad : {false, true}) {
    SCOPED_TRACE(by_pad);
    record.Clear();
    fake::AllowFrames(0);
    if (by_pad) {
      EXPECT_TRUE(gst_pad_send_event(pad.get(), NewSeek(1.0, 0)));
    } else {
      EXPECT_TRUE(gst_element_send_event(pipeline.get(), NewSeek(1.0, 0)));
    }
    EXPECT_EQ(Position(pipeline.src()), 0);
    fake::AllowFrames(-1);
    ASSERT_NE(pipeline.Wait(GST_MESSAGE_EOS), nullptr);
    EXPECT_EQ(record.text(), "abc");
    EXPECT_EQ(record.buffers()[0].pts, 0U);
    EXPECT_TRUE(record.buffers()[0].discont);
    EXPECT_EQ(Position(pipeline.src()), static_cast<gint64>(3 * kFrame));
  }
}

// Check: 40
TEST_F(TimingTest, C27ASeekInMidSpeechBeginsAnewAtOnce) {
  fake::AllowFrames(2);
  Speak speak("text=abcdef");
  speak.record().ClearWhenFlushed();
  speak.Set(GST_STATE_PLAYING);
  speak.Await(2);
  EXPECT_TRUE(gst_element_send_event(speak.src(), NewSeek(1.0, 0))) << "while a frame is waited for";
  fake::AllowFrames(-1);
  speak.Expect("abcdef");
  EXPECT_EQ(speak.buffers()[0].pts, 0U);
}

// Check: 40
TEST_F(TimingTest, C27AStopIsHonouredToTheSample) {
  Pipeline pipeline("qttssrc name=src text=abcdef leading-silence=20000000 ! fakesink sync=false");
  Recorder& record = pipeline.Record();
  pipeline.Set(GST_STATE_PAUSED);
  record.ClearWhenFlushed();
  const gint64 stop = 200 * GST_MSECOND;
  EXPECT_TRUE(gst_element_send_event(pipeline.src(), NewSeek(1.0, 0, GST_SEEK_FLAG_FLUSH, stop)));
  pipeline.Set(GST_STATE_PLAYING);
  ASSERT_NE(pipeline.Wait(GST_MESSAGE_EOS), nullptr);
  const auto buffers = record.buffers();
  ASSERT_EQ(buffers.size(), 4U);
  EXPECT_TRUE(buffers[0].silent);
  EXPECT_EQ(buffers.back().pts + buffers.back().duration, static_cast<GstClockTime>(stop));
  EXPECT_EQ(buffers.back().size, sizeof(int16_t) * 480);
  EXPECT_EQ(Position(pipeline.src()), stop);
  // Only silence; no samples.
  for (const gint64 early : {gint64{10'000'000}, gint64{0}}) {
    EXPECT_TRUE(gst_element_send_event(pipeline.src(), NewSeek(1.0, 0, GST_SEEK_FLAG_FLUSH, early)));
    ASSERT_NE(pipeline.Wait(GST_MESSAGE_EOS), nullptr);
    EXPECT_EQ(Position(pipeline.src()), early);
  }
}

// Check: 40
TEST_F(TimingTest, C27ASegmentSeekEndsWithSegmentDoneAndMayBeRepeated) {
  Pipeline pipeline("qttssrc name=src text=abc ! fakesink sync=false");
  Recorder& record = pipeline.Record();
  pipeline.Set(GST_STATE_PAUSED);
  record.ClearWhenFlushed();
  const auto both = static_cast<GstSeekFlags>(GST_SEEK_FLAG_FLUSH | GST_SEEK_FLAG_SEGMENT);
  EXPECT_TRUE(gst_element_send_event(pipeline.src(), NewSeek(1.0, 0, both)));
  pipeline.Set(GST_STATE_PLAYING);
  std::string expected = "abc";
  for (int round = 1; round < 4; ++round) {
    const auto message = pipeline.Wait(GST_MESSAGE_SEGMENT_DONE | GST_MESSAGE_EOS);
    ASSERT_NE(message, nullptr);
    EXPECT_EQ(GST_MESSAGE_TYPE(message.get()), GST_MESSAGE_SEGMENT_DONE);
    EXPECT_EQ(record.text(), expected);
    EXPECT_TRUE(gst_element_send_event(pipeline.src(),
                                       NewSeek(1.0, 0, round < 3 ? GST_SEEK_FLAG_SEGMENT : GST_SEEK_FLAG_NONE)));
    expected += "abc";
  }
  ASSERT_NE(pipeline.Wait(GST_MESSAGE_EOS), nullptr);
  EXPECT_EQ(record.text(), expected);
  // Without a flush, running time goes on: each segment begins where the last one ended.
  GstClockTime base = 0;
  for (const auto& item : record.items()) {
    if (item.is_buffer || item.event != GST_EVENT_SEGMENT) continue;
    EXPECT_EQ(item.segment.base, base);
    base += 3 * kFrame;
  }
  EXPECT_EQ(base, 12 * kFrame);
}

// Check: 40
TEST_F(TimingTest, C27SeeksFromTwoThreadsAtOnce) {
  Speak speak("text=abcdefghijklmnop");
  speak.record().ClearWhenFlushed();
  speak.Set(GST_STATE_PLAYING);
  const auto seek = [&] {
    for (int i = 0; i < 50; ++i) EXPECT_TRUE(gst_element_send_event(speak.src(), NewSeek(1.0, 0)));
  };
  std::thread other(seek);
  seek();
  other.join();
  speak.AwaitText("abcdefghijklmnop");
}

TEST_F(TimingTest, SeeksGoUpstream) {
  Speak speak;
  speak.Open(GST_FORMAT_TIME);
  const Owned<GstPad> upstream(gst_pad_get_peer(speak.feeder().sink()));
  static gint64 sought = -1;
  gst_pad_set_event_function(upstream.get(), [](GstPad* /*pad*/, GstObject* /*parent*/, GstEvent* event) -> gboolean {
    if (GST_EVENT_TYPE(event) == GST_EVENT_SEEK) {
      gst_event_parse_seek(event, nullptr, nullptr, nullptr, nullptr, &sought, nullptr, nullptr);
    }
    gst_event_unref(event);
    return TRUE;
  });
  EXPECT_TRUE(gst_element_send_event(speak.src(), NewSeek(1.0, 7 * GST_SECOND)));
  EXPECT_EQ(sought, 7 * GST_SECOND);
}

// --- tags

// The stream has a language tag, whichever property or event selects the language.
// Check: 42
TEST_F(TimingTest, C29TagsTellLanguageAndOrigin) {
  const std::pair<const char*, const char*> languages[] = {{"english", "en"}, {"English", "en"},   {"en", "en"},
                                                           {"EN-us", "en"},   {"de-AT", "de"},     {"auto", nullptr},
                                                           {"und", nullptr},  {"klingon", nullptr}};
  for (const auto& [language, code] : languages) {
    SCOPED_TRACE(language);
    Pipeline pipeline(std::string("qttssrc name=src language=") + language + " text=ab ! fakesink sync=false");
    pipeline.Record();
    pipeline.Set(GST_STATE_PLAYING);
    const auto message = pipeline.Wait(GST_MESSAGE_TAG);
    ASSERT_NE(message, nullptr);
    GstTagList* tags = nullptr;
    gst_message_parse_tag(message.get(), &tags);
    gchar* value = nullptr;
    EXPECT_EQ(gst_tag_list_get_string(tags, GST_TAG_LANGUAGE_CODE, &value), code != nullptr);
    EXPECT_STREQ(value, code);
    g_free(value);
    ASSERT_TRUE(gst_tag_list_get_string(tags, GST_TAG_COMMENT, &value));
    EXPECT_STREQ(value, "Synthetic speech");
    g_free(value);
    gst_tag_list_unref(tags);
    ASSERT_NE(pipeline.Wait(GST_MESSAGE_EOS), nullptr);
  }
}

TEST_F(TimingTest, C28WhenDownstreamEndsUpstreamIsTold) {
  Speak speak("! identity eos-after=2");
  speak.Open();
  GstFlowReturn flow = GST_FLOW_OK;
  // The queue of text is bounded: if pushes did not fail after the end, one would wait for ever.
  for (int i = 0; i < 1000 && flow == GST_FLOW_OK; ++i) flow = speak.feeder().Push("abcdefgh");
  EXPECT_EQ(flow, GST_FLOW_EOS);
  speak.ExpectEnd();
  ASSERT_TRUE(WaitFor([] { return fake::GetCounters().live_streams == 0; }));
  const auto frames = fake::GetCounters().frames;
  g_usleep(20000);
  EXPECT_EQ(fake::GetCounters().frames, frames) << "nobody listens, so nothing should be made";
}

}  // namespace
}  // namespace qtts::testing
