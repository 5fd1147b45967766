// SPDX-License-Identifier: LGPL-2.1-or-later
// Text pads: words, sentences and cues in time with the sound.
#include <glib/gstdio.h>

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "live_pipeline.h"
#include "text_sink.h"
#include "words_fixture.h"

namespace qtts::testing {
namespace {

using std::chrono::milliseconds;

TEST_F(WordsTest, APadSendsEachWord) {
  Speak speak("text=\"Hello, \xE2\x80\x9Cmy world\xE2\x80\x9D! Well-known.\"");
  TextSink sink(speak.src());
  speak.ExpectEnd();
  ASSERT_TRUE(sink.Ended());
  EXPECT_EQ(sink.texts(), (std::vector<TextSink::Text>{{"Hello,", 0, 5 * kFrame},
                                                       {"\xE2\x80\x9Cmy", 8 * kFrame, 2 * kFrame},
                                                       {"world\xE2\x80\x9D!", 11 * kFrame, 5 * kFrame},
                                                       {"Well-", 19 * kFrame, 4 * kFrame},
                                                       {"known.", 24 * kFrame, 5 * kFrame}}));
  const auto items = sink.items();
  ASSERT_GT(items.size(), 4U);
  EXPECT_EQ(items[0].event, GST_EVENT_STREAM_START);
  EXPECT_EQ(items[0].flags, GST_STREAM_FLAG_SPARSE);
  EXPECT_TRUE(g_str_has_suffix(items[0].id.c_str(), "/text_0"));
  GstPad* sound = gst_element_get_static_pad(speak.src(), "src");
  GstEvent* start = gst_pad_get_sticky_event(sound, GST_EVENT_STREAM_START, 0);
  guint group = 0;
  EXPECT_TRUE(gst_event_parse_group_id(start, &group));
  gst_event_unref(start);
  gst_object_unref(sound);
  EXPECT_EQ(items[0].group, group);
  EXPECT_EQ(items[1].event, GST_EVENT_CAPS);
  EXPECT_EQ(items[2].event, GST_EVENT_SEGMENT);
  const auto audio = speak.record().items();
  const auto segment =
      std::find_if(audio.begin(), audio.end(), [](const auto& item) { return item.event == GST_EVENT_SEGMENT; });
  ASSERT_NE(segment, audio.end());
  EXPECT_TRUE(gst_segment_is_equal(&items[2].segment, &segment->segment));
  // Buffers and gaps follow one another until the end of the sound.
  GstClockTime end = 0;
  for (const auto& item : items) {
    if (item.event != GST_EVENT_UNKNOWN && item.event != GST_EVENT_GAP) continue;
    EXPECT_EQ(item.time, end);
    end = item.time + item.duration;
  }
  EXPECT_EQ(end, 30 * kFrame * GST_MSECOND);
}

TEST_F(WordsTest, APadSendsEachSentence) {
  Speak speak("text=\"Hello, Mr. Smith. How are you?  Fine\"");
  TextSink sink(speak.src(), "sentence");
  speak.ExpectEnd();
  ASSERT_TRUE(sink.Ended());
  EXPECT_EQ(sink.texts(), (std::vector<TextSink::Text>{{"Hello, Mr. Smith.", 0, 16 * kFrame},
                                                       {"How are you?", 18 * kFrame, 11 * kFrame},
                                                       {"Fine", 32 * kFrame, 4 * kFrame}}));
}

TEST_F(WordsTest, PadsOfAllKindsAtOnce) {
  Speak speak("text=\"One two. Three.\"");
  TextSink words(speak.src());
  TextSink sentences(speak.src(), "sentence");
  TextSink cues(speak.src(), "cue");
  speak.ExpectEnd();
  ASSERT_TRUE(words.Ended());
  ASSERT_TRUE(sentences.Ended());
  ASSERT_TRUE(cues.Ended());
  EXPECT_EQ(words.texts().size(), 3U);
  EXPECT_EQ(sentences.texts().size(), 2U);
  EXPECT_EQ(cues.texts(), sentences.texts());
  EXPECT_STREQ(GST_PAD_NAME(cues.source()), "text_2");
}

// Without measured words the pads have estimates.
TEST_F(WordsTest, EstimatesComeByThePadToo) {
  fake::SetScript({});
  Speak speak("text=\"One, two.\"");
  TextSink sink(speak.src());
  speak.ExpectEnd();
  ASSERT_TRUE(sink.Ended());
  const auto texts = sink.texts();
  ASSERT_EQ(texts.size(), 2U);
  EXPECT_EQ(texts[0].text, "One,");
  EXPECT_EQ(texts[1].text, "two.");
}

// A pad that is not linked, is refused or blocks does not stop the sound.
TEST_F(WordsTest, TroubleOfThePadIsNotThatOfTheSound) {
  for (const GstFlowReturn flow : {GST_FLOW_ERROR, GST_FLOW_EOS, GST_FLOW_FLUSHING, GST_FLOW_NOT_NEGOTIATED}) {
    SCOPED_TRACE(gst_flow_get_name(flow));
    Pipeline pipeline("qttssrc name=src text=\"One two three\" ! fakesink");
    TextSink sink(pipeline.src());
    sink.Answer(flow);
    TextSink good(pipeline.src());
    pipeline.Record();
    ASSERT_TRUE(pipeline.PlayToEnd());
    ASSERT_TRUE(good.Ended());
    EXPECT_EQ(good.texts().size(), 3U);
    EXPECT_EQ(pipeline.record().text(), "One two three");
  }
  Pipeline pipeline("qttssrc name=src text=\"One two three\" ! fakesink");
  GstPad* unlinked = gst_element_request_pad_simple(pipeline.src(), "text_%u");
  TextSink blocked(pipeline.src());
  blocked.Block(true);
  pipeline.Record();
  ASSERT_TRUE(pipeline.PlayToEnd());
  EXPECT_EQ(pipeline.record().text(), "One two three");
  ASSERT_TRUE(WaitFor([&] { return blocked.blocked(); }));
  blocked.Release();  // while it holds a buffer
  gst_element_release_request_pad(pipeline.src(), unlinked);
  gst_object_unref(unlinked);
}

TEST_F(WordsTest, APadMayComeAndGoWhileItSpeaks) {
  Speak speak;
  fake::AllowFrames(6);
  speak.Push("One two three four");
  ASSERT_TRUE(WaitFor([&] { return speak.record().buffer_count() == 6; }));
  TextSink sink(speak.src());
  fake::AllowFrames(-1);
  ASSERT_TRUE(WaitFor([&] { return sink.texts().size() == 3; }));
  EXPECT_EQ(sink.texts()[0], (TextSink::Text{"two", 4 * kFrame, 3 * kFrame}));
  const auto items = sink.items();
  EXPECT_EQ(items[0].event, GST_EVENT_STREAM_START);
  EXPECT_EQ(items[1].event, GST_EVENT_CAPS);
  EXPECT_EQ(items[2].event, GST_EVENT_SEGMENT);
  sink.Release();
  speak.Push("more").End().Expect("One two three fourmore");
  EXPECT_EQ(sink.texts().size(), 3U);
}

// While frames leave, from another thread.
TEST_F(WordsTest, PadsComeAndGoAtAnyTime) {
  script_.frame_time = milliseconds(1);
  fake::SetScript(script_);
  Speak speak;
  for (int round = 0; round < 30; ++round) {
    speak.Push("a b c d e f g h");
    TextSink one(speak.src());
    TextSink two(speak.src(), "cue");
    if (round % 3 == 0) two.Block(true);
    std::this_thread::sleep_for(milliseconds(round % 7));
    if (round % 5 == 0) {
      speak.Flush().Open();
    }
  }
  speak.End().ExpectEnd();
}

TEST_F(WordsTest, AFlushUnblocksAndBeginsAnew) {
  Speak speak;
  TextSink sink(speak.src());
  sink.Block(true);
  speak.Push("one two");
  ASSERT_TRUE(WaitFor([&] { return sink.blocked() && speak.record().buffer_count() == 7; }));
  speak.feeder().Send(gst_event_new_flush_start());
  ASSERT_TRUE(WaitFor([&] { return !sink.blocked(); }));
  sink.Block(false);
  speak.feeder().Send(gst_event_new_flush_stop(TRUE));
  speak.Open().Push("three").End().ExpectEnd();
  ASSERT_TRUE(sink.Ended());
  EXPECT_EQ(sink.texts(), (std::vector<TextSink::Text>{{"three", 0, 5 * kFrame}}));
  std::vector<GstEventType> events;
  for (const auto& item : sink.items()) {
    if (item.event != GST_EVENT_UNKNOWN && item.event != GST_EVENT_GAP) events.push_back(item.event);
  }
  EXPECT_EQ(std::count(events.begin(), events.end(), GST_EVENT_SEGMENT), 2);
  EXPECT_EQ(std::count(events.begin(), events.end(), GST_EVENT_FLUSH_START), 1);
  EXPECT_EQ(std::count(events.begin(), events.end(), GST_EVENT_FLUSH_STOP), 1);
}

// A seek reaches the element by each of its pads, and is one seek.
TEST_F(WordsTest, ASeekSpeaksTheTextAgain) {
  Speak speak("text=\"one two\"");
  TextSink sink(speak.src());
  speak.Record().ClearWhenFlushed();
  speak.ExpectEnd();
  ASSERT_TRUE(sink.Ended());
  GstEvent* seek = gst_event_new_seek(1.0, GST_FORMAT_TIME, GST_SEEK_FLAG_FLUSH, GST_SEEK_TYPE_SET, 0,
                                      GST_SEEK_TYPE_NONE, GST_CLOCK_TIME_NONE);
  GstPad* sound = gst_element_get_static_pad(speak.src(), "src");
  EXPECT_TRUE(gst_pad_send_event(sink.source(), gst_event_ref(seek)));
  EXPECT_TRUE(gst_pad_send_event(sound, gst_event_ref(seek)));
  EXPECT_TRUE(gst_pad_send_event(sink.source(), seek));
  gst_object_unref(sound);
  speak.ExpectEnd();
  ASSERT_TRUE(WaitFor([&] { return sink.texts().size() == 4; }));
  ASSERT_TRUE(sink.Ended());
  EXPECT_EQ(sink.texts()[2], sink.texts()[0]);
  EXPECT_EQ(speak.text(), "one two");
  const auto items = sink.items();
  EXPECT_EQ(
      std::count_if(items.begin(), items.end(), [](const auto& item) { return item.event == GST_EVENT_FLUSH_STOP; }),
      1);
}

TEST_F(WordsTest, EachRunIsANewStream) {
  Speak speak("text=\"one two\"");
  TextSink sink(speak.src());
  for (size_t run = 1; run <= 3; ++run) {
    speak.ExpectEnd();
    ASSERT_TRUE(WaitFor([&] { return sink.texts().size() == 2 * run; }));
    ASSERT_TRUE(sink.Ended());
    speak.Set(run == 2 ? GST_STATE_NULL : GST_STATE_READY);
  }
  const auto items = sink.items();
  const auto starts =
      std::count_if(items.begin(), items.end(), [](const auto& item) { return item.event == GST_EVENT_STREAM_START; });
  EXPECT_EQ(starts, 3);
}

// A sentence that is cut off is sent as far as it was heard.
TEST_F(WordsTest, AnInterruptSendsWhatHasBegun) {
  LivePipeline pipeline("idle-mode=wait");
  TextSink sink(pipeline.src(), "sentence");
  pipeline.Push("One two three four.");
  ASSERT_TRUE(pipeline.AdvanceUntil(10, kFrame * GST_MSECOND));
  ASSERT_TRUE(pipeline.WaitUntilSomebodyWaits());
  EXPECT_EQ(pipeline.Interrupt(), 10U);
  pipeline.Push("Five.").End();
  ASSERT_TRUE(WaitFor([&] {
    if (gst_test_clock_peek_id_count(pipeline.clock()) > 0) pipeline.Advance(kFrame * GST_MSECOND);
    return sink.texts().size() == 2;
  }));
  EXPECT_EQ(sink.texts()[0], (TextSink::Text{"One two three", 0, 13 * kFrame}));
  EXPECT_EQ(sink.texts()[1].text, "Five.");
}

// The sound is kept by a muxer until the video comes, the video by the overlay until the text does: each sentence is
// sent before its sound.
TEST_F(WordsTest, TextComesBeforeItsSoundUnlessLive) {
  for (const char* granularity : {"word", "sentence", "cue"}) {
    SCOPED_TRACE(granularity);
    Pipeline pipeline("qttssrc name=src text=\"One two. Three.\" ! fakesink");
    TextSink sink(pipeline.src(), granularity);
    pipeline.Set(GST_STATE_PAUSED);  // one buffer of sound has left
    const size_t texts = g_str_equal(granularity, "word") ? 3 : 2;
    EXPECT_TRUE(WaitFor([&] { return sink.texts().size() == texts; }));
  }
}

// An estimate too: spread over the length of the speech, which is known then.
TEST_F(WordsTest, EstimatedSentencesComeBeforeTheirSound) {
  fake::SetScript({});
  Pipeline pipeline("qttssrc name=src text=\"One two. Three.\" ! fakesink");
  TextSink sink(pipeline.src(), "sentence");
  pipeline.Set(GST_STATE_PAUSED);
  ASSERT_TRUE(WaitFor([&] { return sink.texts().size() == 2; }));
  pipeline.Begin(GST_STATE_PLAYING);
  ReadMessages(&pipeline);
  ASSERT_TRUE(sink.Ended());
  const auto texts = sink.texts();
  ASSERT_EQ(texts.size(), 2U);
  EXPECT_EQ(texts[0].text, "One two.");
  EXPECT_EQ(texts[1].text, "Three.");
  EXPECT_GT(texts[1].time, texts[0].time + texts[0].duration);
  EXPECT_LE(texts[1].time + texts[1].duration, 16 * kFrame);
  EXPECT_EQ(words_.size(), 3U);
}

// Silence of a live element is a gap for the text.
TEST_F(WordsTest, LiveTextGoesOnInSilence) {
  LivePipeline pipeline("idle-mode=silence");
  TextSink sink(pipeline.src());
  pipeline.Open();
  ASSERT_TRUE(pipeline.AdvanceUntil(20));
  const auto gap_until = [&] {
    GstClockTime end = 0;
    for (const auto& item : sink.items()) {
      if (item.event == GST_EVENT_GAP) end = std::max(end, item.time + item.duration);
    }
    return end;
  };
  ASSERT_TRUE(WaitFor([&] { return gap_until() >= 300 * GST_MSECOND; }));
  GstQuery* query = gst_query_new_latency();
  EXPECT_TRUE(gst_pad_query(sink.source(), query));
  gboolean live = FALSE;
  gst_query_parse_latency(query, &live, nullptr, nullptr);
  EXPECT_TRUE(live);
  gst_query_unref(query);
}

// --- with the elements that take text

TEST_F(WordsTest, WebVttOfWords) {
  gchar* folder = g_dir_make_tmp("qttssrc-test-XXXXXX", nullptr);
  const std::string file = std::string(folder) + "/words.vtt";
  {
    Pipeline pipeline(
        "qttssrc name=src text=\"Hello, world.\" ! fakesink  src.text_0 ! webvttenc ! filesink async=false location=" +
        file);
    ASSERT_TRUE(pipeline.PlayToEnd());
  }
  gchar* content = nullptr;
  ASSERT_TRUE(g_file_get_contents(file.c_str(), &content, nullptr, nullptr));
  EXPECT_STREQ(content, "WEBVTT\n\n00:00:00.000 --> 00:00:00.400\nHello,\n\n00:00:00.560 --> 00:00:00.960\nworld.\n\n");
  g_free(content);
  g_remove(file.c_str());
  g_rmdir(folder);
  g_free(folder);
}

// The video waits for the text, the text for the video, and the sound for neither.
// In a smaller picture strokes are thin, and dim in some releases of Pango.
TEST_F(WordsTest, TextOverlayShowsWords) {
  Pipeline pipeline(
      "videotestsrc num-buffers=40 pattern=black ! video/x-raw,format=AYUV,width=200,height=150,framerate=25/1 ! "
      "textoverlay name=overlay font-desc=\"Sans 20\" ! fakesink name=video sync=false  "
      "qttssrc name=src text=\"Hello, my world.\" ! fakesink sync=false  src.text_0 ! overlay.text_sink");
  const auto video = pipeline.Find("video");
  const Owned<GstPad> pad(gst_element_get_static_pad(video.get(), "sink"));
  const auto frames = std::make_shared<SharedList<bool>>();
  const Probe probe(pad.get(), GST_PAD_PROBE_TYPE_BUFFER, [frames](GstPadProbeInfo* info) {
    GstMapInfo map;
    gst_buffer_map(GST_PAD_PROBE_INFO_BUFFER(info), &map, GST_MAP_READ);
    bool bright = false;
    for (gsize i = 1; i < map.size; i += 4) bright = bright || map.data[i] > 100;
    gst_buffer_unmap(GST_PAD_PROBE_INFO_BUFFER(info), &map);
    frames->Add(bright);
    return GST_PAD_PROBE_OK;
  });
  ASSERT_TRUE(pipeline.PlayToEnd());
  const std::vector<bool> shown = frames->items();
  ASSERT_EQ(shown.size(), 40U);
  for (const size_t frame : {0U, 9U, 15U, 17U, 22U, 29U}) {
    EXPECT_TRUE(shown[frame]) << frame;  // Hello: 0 to 400 ms; my: 560 to 720; world: 800 to 1200
  }
  for (const size_t frame : {11U, 13U, 19U, 30U, 39U}) EXPECT_FALSE(shown[frame]) << frame;
}

}  // namespace
}  // namespace qtts::testing
