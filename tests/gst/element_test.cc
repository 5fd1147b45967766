// SPDX-License-Identifier: LGPL-2.1-or-later
// The element as an application sees it: formats, timestamps, runs.
#include <cstdint>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "element_fixture.h"
#include "gstqttspcm.h"
#include "gstqttstext.h"

namespace qtts::testing {
namespace {

// --- formats

TEST_F(ElementTest, C5SpeaksSixteenBitsUnlessThePeerPrefersFloat) {
  const struct {
    const char* peer;
    const char* format;
  } cases[] = {
      {"audio/x-raw,format=F32LE", "F32LE"},
      {"audio/x-raw,format=S16LE", "S16LE"},
      {"audio/x-raw,format=(string){S16LE,F32LE}", "S16LE"},
      {"audio/x-raw,format=(string){F32LE,S16LE}", "S16LE"},
      {"audio/x-raw,format=S16LE;audio/x-raw,format=F32LE", "S16LE"},
      {"audio/x-raw,format=F32LE;audio/x-raw", "F32LE"},
      {"audio/x-raw", "S16LE"},
      {"ANY", "S16LE"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.peer);
    Speak speak(std::string("text=ab ! capsfilter caps=\"") + c.peer + "\"");
    speak.ExpectEnd();
    for (const Recorder::Item& item : speak.record().items()) {
      if (item.event != GST_EVENT_CAPS || item.is_buffer) continue;
      const Owned<GstCaps> expected(gst_caps_from_string(
          (std::string("audio/x-raw,layout=interleaved,rate=24000,channels=1,format=") + c.format).c_str()));
      EXPECT_TRUE(gst_caps_is_equal(item.caps.get(), expected.get()));
    }
    for (const Recorder::Item& item : speak.buffers()) {
      EXPECT_EQ(item.size, 1920U * (std::string(c.format) == "F32LE" ? 4 : 2));
    }
    EXPECT_EQ(speak.record().buffer_count(), 2U);
  }
}

TEST_F(ElementTest, C5SixteenBitsAreTheRoundedFloats) {
  std::vector<Recorder::Item> recorded[2];
  for (const bool is_float : {true, false}) {
    Speak speak(std::string("text=xyz ! audio/x-raw,format=") + (is_float ? "F32LE" : "S16LE"));
    speak.Record(true);
    fake::Reset();
    speak.ExpectEnd();
    recorded[is_float ? 0 : 1] = speak.buffers();
  }
  ASSERT_EQ(recorded[0].size(), 3U);
  ASSERT_EQ(recorded[1].size(), 3U);
  for (size_t i = 0; i < 3; ++i) {
    std::vector<float> floats(1920);
    std::vector<int16_t> expected(1920);
    ASSERT_EQ(recorded[0][i].data.size(), 1920U * 4);
    std::memcpy(floats.data(), recorded[0][i].data.data(), recorded[0][i].data.size());
    gstqtts::ConvertToS16(floats.data(), floats.size(), expected.data());
    std::vector<int16_t> got(1920);
    ASSERT_EQ(recorded[1][i].data.size(), 1920U * 2);
    std::memcpy(got.data(), recorded[1][i].data.data(), recorded[1][i].data.size());
    EXPECT_EQ(got, expected);
    EXPECT_EQ(recorded[0][i].pts, recorded[1][i].pts);
    EXPECT_EQ(recorded[0][i].offset, recorded[1][i].offset);
  }
}

TEST_F(ElementTest, C5APeerThatTakesNothingOfItIsAnError) {
  Pipeline pipeline("qttssrc name=src text=ab ! capsfilter name=filter ! fakesink");
  const auto filter = pipeline.Find("filter");
  const Owned<GstCaps> caps(gst_caps_from_string("audio/x-raw,rate=48000"));
  pipeline.Begin(GST_STATE_PAUSED);
  ASSERT_NE(pipeline.Wait(GST_MESSAGE_ASYNC_DONE), nullptr);
  pipeline.Begin(GST_STATE_READY);
  g_object_set(filter.get(), "caps", caps.get(), nullptr);
  pipeline.Begin(GST_STATE_PLAYING);
  const auto message = pipeline.Wait(GST_MESSAGE_ERROR | GST_MESSAGE_EOS);
  ASSERT_NE(message, nullptr);
  EXPECT_EQ(GST_MESSAGE_TYPE(message.get()), GST_MESSAGE_ERROR);
}

// --- the stream

TEST_F(ElementTest, C6EventsComeOnceAndInOrder) {
  Speak speak("text=abc");
  speak.ExpectEnd();
  EXPECT_EQ(speak.record().events(), (std::vector<GstEventType>{GST_EVENT_STREAM_START, GST_EVENT_CAPS,
                                                                GST_EVENT_SEGMENT, GST_EVENT_TAG, GST_EVENT_EOS}));
  const auto items = speak.record().items();
  ASSERT_EQ(items.size(), 8U);
  EXPECT_EQ(items[2].segment.format, GST_FORMAT_TIME);
  EXPECT_EQ(items[2].segment.start, 0U);
  EXPECT_EQ(items[2].segment.base, 0U);
  EXPECT_EQ(items[2].segment.rate, 1.0);
  EXPECT_EQ(items[3].event, GST_EVENT_TAG);
  for (size_t i = 4; i < 7; ++i) EXPECT_TRUE(items[i].is_buffer);
  EXPECT_EQ(speak.text(), "abc");
}

// With an odd frame size, so that nearly no time is a whole number of nanoseconds.
TEST_F(ElementTest, C7C8TenThousandFramesWithoutGapOrDrift) {
  fake::Script script;
  script.info.samples_per_frame = 1931;
  script.info.defaults.max_new_tokens = 20000;
  fake::Reset(script);
  Speak speak;
  const std::string text(10000, 'x');
  g_object_set(speak.src(), "text", text.c_str(), nullptr);
  speak.ExpectEnd();
  const auto buffers = speak.buffers();
  ASSERT_EQ(buffers.size(), 10000U);
  for (guint64 i = 0; i < buffers.size(); ++i) {
    const Recorder::Item& buffer = buffers[i];
    ASSERT_EQ(buffer.offset, i * 1931);
    ASSERT_EQ(buffer.offset_end, (i + 1) * 1931);
    ASSERT_EQ(buffer.pts, gst_util_uint64_scale(i * 1931, GST_SECOND, 24000));
    ASSERT_EQ(buffer.pts + buffer.duration, gst_util_uint64_scale((i + 1) * 1931, GST_SECOND, 24000));
    ASSERT_EQ(buffer.size, 1931U * 2);
    ASSERT_EQ(buffer.discont, i == 0);
    ASSERT_FALSE(buffer.silent);
    ASSERT_EQ(buffer.label.frame, static_cast<int64_t>(i));
  }
}

TEST_F(ElementTest, C9TextAloneIsSpokenThenTheStreamEnds) {
  Speak speak("text=\"Any text.\"");
  speak.Expect("Any text.");
  EXPECT_EQ(speak.record().events().back(), GST_EVENT_EOS);
}

TEST_F(ElementTest, C9NoTextIsAnEmptyStream) {
  for (const char* text : {static_cast<const char*>(nullptr), "", " \t\r\n", "\xC2\xA0\xE3\x80\x80"}) {
    SCOPED_TRACE(text != nullptr ? text : "unset");
    Speak speak;
    g_object_set(speak.src(), "text", text, nullptr);
    speak.ExpectEnd();
    EXPECT_EQ(speak.record().buffer_count(), 0U);
  }
  EXPECT_TRUE(fake::Requests().empty());
}

TEST_F(ElementTest, TextIsPassedOnAsItIs) {
  const std::string text =
      " Gr\xC3\xBC\xC3\x9F"
      "e,\r\n\xE4\xBD\xA0\xE5\xA5\xBD \xF0\x9F\x98\x80 \xD7\xA9\xD7\x9C\xD7\x95\xD7\x9D ";
  Speak speak;
  g_object_set(speak.src(), "text", text.c_str(), nullptr);
  speak.Expect(text);
}

TEST_F(ElementTest, SettingsReachTheEngine) {
  Speak(
      "text=ab speaker=bob language=german instruct=\"very slowly\" layout=streaming seed=77 temperature=0.5 top-k=9 "
      "top-p=0.25 repetition-penalty=1.25 subtalker-temperature=0 subtalker-top-k=3 subtalker-top-p=0.75")
      .ExpectEnd();
  ASSERT_EQ(fake::Requests().size(), 1U);
  const Request request = fake::Requests()[0];
  EXPECT_EQ(request.text, "ab");
  EXPECT_EQ(request.speaker, "bob");
  EXPECT_EQ(request.language, "german");
  EXPECT_EQ(request.instruct, "very slowly");
  EXPECT_EQ(request.layout, PromptLayout::kStreaming);
  EXPECT_EQ(request.seed, 77U);
  EXPECT_TRUE(request.settings.talker.do_sample);
  EXPECT_EQ(request.settings.talker.temperature, 0.5F);
  EXPECT_EQ(request.settings.talker.top_k, 9);
  EXPECT_EQ(request.settings.talker.top_p, 0.25F);
  EXPECT_EQ(request.settings.repetition_penalty, 1.25F);
  EXPECT_FALSE(request.settings.predictor.do_sample);
  EXPECT_EQ(request.settings.predictor.top_k, 3);
  EXPECT_EQ(request.settings.predictor.top_p, 0.75F);
  EXPECT_EQ(request.settings.max_new_tokens, 8192);
}

TEST_F(ElementTest, WithoutASeedEveryUtteranceHasItsOwn) {
  std::set<uint64_t> seeds;
  for (int i = 0; i < 5; ++i) {
    fake::Reset();
    Speak speak("text=a");
    speak.ExpectEnd();
    const uint64_t seed = fake::Requests()[0].seed;
    EXPECT_LT(seed, uint64_t{1} << 53U) << "is kept by every reader of JSON";
    EXPECT_EQ(GetStat(speak.src(), "seed"), seed);
    seeds.insert(seed);
  }
  EXPECT_EQ(seeds.size(), 5U);
}

TEST_F(ElementTest, MaxDurationCutsWithAWarning) {
  Speak("text=abcdefgh max-duration=250000000").Expect("abc");
  Pipeline second("qttssrc name=src text=abcdefgh max-duration=250000000 ! fakesink");
  second.Begin(GST_STATE_PLAYING);
  const auto message = second.Wait(GST_MESSAGE_WARNING);
  ASSERT_NE(message, nullptr);
  const Problem problem = ParseProblem(message.get());
  EXPECT_EQ(problem.domain, GST_RESOURCE_ERROR);
  EXPECT_EQ(problem.code, GST_RESOURCE_ERROR_SETTINGS);
  EXPECT_NE(problem.text.find("max-duration"), std::string::npos);
}

TEST_F(ElementTest, WithinMaxDurationNothingIsSaid) {
  Speak speak("text=abc max-duration=240000000");
  speak.Begin(GST_STATE_PLAYING);
  const auto message = speak.Wait(GST_MESSAGE_WARNING | GST_MESSAGE_ERROR | GST_MESSAGE_EOS);
  ASSERT_NE(message, nullptr);
  EXPECT_EQ(GST_MESSAGE_TYPE(message.get()), GST_MESSAGE_EOS);
  EXPECT_EQ(speak.text(), "abc");
}

TEST_F(ElementTest, WarningsOfTheEngineAreToldOnceForARowOfUtterances) {
  fake::Script script;
  script.warnings = {"This checkpoint ignores instructions."};
  fake::Reset(script);
  fake::AllowFrames(1);
  Speak speak("text=ab");
  speak.Begin(GST_STATE_PLAYING);
  ASSERT_TRUE(WaitFor([] { return fake::GetCounters().frames == 1; }));
  g_object_set(speak.src(), "text", "cd", nullptr);
  fake::AllowFrames(-1);
  std::vector<std::string> warnings;
  for (;;) {
    const auto message = speak.Wait(GST_MESSAGE_WARNING | GST_MESSAGE_EOS | GST_MESSAGE_ERROR);
    ASSERT_NE(message, nullptr);
    if (GST_MESSAGE_TYPE(message.get()) != GST_MESSAGE_WARNING) break;
    warnings.push_back(ParseProblem(message.get()).text);
  }
  EXPECT_EQ(warnings, script.warnings);
  EXPECT_EQ(fake::Requests().size(), 2U);
}

TEST_F(ElementTest, NumBuffersEndsIt) { Speak("num-buffers=2 text=abcdefgh").Expect("ab"); }

// The audible utterance plays to its end. Waiting texts and an utterance without any sound yet are dropped.
// Check: 47
TEST_F(ElementTest, C11EndOfStreamByTheApplicationEndsWithTheUtterance) {
  for (const int heard : {0, 2}) {
    SCOPED_TRACE(heard);
    fake::Reset();
    fake::AllowFrames(heard);
    Speak speak("text=abcdefgh");
    speak.Set(GST_STATE_PLAYING);
    g_object_set(speak.src(), "text", "ijkl", nullptr);
    ASSERT_TRUE(WaitFor([&] {
      return speak.record().buffer_count() == static_cast<size_t>(heard) && fake::GetCounters().live_streams == 1;
    }));
    GstEvent* end = gst_event_new_eos();
    const guint32 seqnum = gst_event_get_seqnum(end);
    EXPECT_TRUE(gst_element_send_event(speak.get(), end));
    EXPECT_EQ(speak.Say("too late"), 0U);
    fake::AllowFrames(-1);
    const auto message = speak.Wait(GST_MESSAGE_EOS | GST_MESSAGE_ERROR);
    ASSERT_NE(message, nullptr);
    EXPECT_EQ(GST_MESSAGE_TYPE(message.get()), GST_MESSAGE_EOS);
    EXPECT_EQ(gst_message_get_seqnum(message.get()), seqnum);
    EXPECT_EQ(speak.text(), heard == 0 ? "" : "abcdefgh");
  }
}

// Check: 47
TEST_F(ElementTest, C11EndOfStreamByTheApplicationWaitsForNothingElse) {
  for (const char* properties :
       {"idle-mode=wait", "idle-mode=silence", "is-live=true", "is-live=true idle-mode=wait"}) {
    SCOPED_TRACE(properties);
    Pipeline pipeline(std::string("qttssrc name=src ") + properties + " ! fakesink async=false");
    pipeline.Set(GST_STATE_PLAYING);
    EXPECT_TRUE(gst_element_send_event(pipeline.get(), gst_event_new_eos()));
    ASSERT_NE(pipeline.Wait(GST_MESSAGE_EOS | GST_MESSAGE_ERROR), nullptr);
  }
  // The same for the model.
  fake::HoldLoads(true);
  Pipeline pipeline("qttssrc name=src text=abc ! fakesink async=false");
  pipeline.Set(GST_STATE_PLAYING);
  EXPECT_TRUE(gst_element_send_event(pipeline.get(), gst_event_new_eos()));
  ASSERT_NE(pipeline.Wait(GST_MESSAGE_EOS | GST_MESSAGE_ERROR), nullptr);
  fake::HoldLoads(false);
}

// Check: 47
TEST_F(ElementTest, AfterAnEndByTheApplicationItPlaysAgain) {
  Speak speak("idle-mode=wait");
  for (int round = 0; round < 3; ++round) {
    speak.Set(GST_STATE_PLAYING);
    g_object_set(speak.src(), "text", "abc", nullptr);
    ASSERT_TRUE(WaitFor([&] { return speak.record().buffer_count() >= 3; }));
    EXPECT_TRUE(gst_element_send_event(speak.get(), gst_event_new_eos()));
    speak.ExpectEnd();
    speak.Set(GST_STATE_READY);
    speak.record().Clear();
  }
}

// Check: 47
TEST_F(ElementTest, IsLiveIsRefusedWhileItRuns) {
  Speak speak("idle-mode=wait");
  const auto live = [&] {
    gboolean value = FALSE;
    g_object_get(speak.src(), "is-live", &value, nullptr);
    return value != FALSE;
  };
  for (const GstState state : {GST_STATE_PAUSED, GST_STATE_PLAYING}) {
    speak.Set(state);
    g_object_set(speak.src(), "is-live", TRUE, nullptr);
    EXPECT_FALSE(live());
    const auto warning = speak.Wait(GST_MESSAGE_WARNING);
    ASSERT_NE(warning, nullptr);
    EXPECT_NE(ParseProblem(warning.get()).text.find("is-live=true"), std::string::npos);
  }
  g_object_set(speak.src(), "is-live", FALSE, nullptr);
  EXPECT_TRUE(speak.Pending(GST_MESSAGE_WARNING).empty()) << "nothing changes";
  speak.Set(GST_STATE_READY);
  g_object_set(speak.src(), "is-live", TRUE, nullptr);
  EXPECT_TRUE(live());
}

// --- runs

TEST_F(ElementTest, TextsSetWhileSpeakingAreMoreUtterances) {
  fake::AllowFrames(1);
  Speak speak("text=one");
  g_object_set(speak.src(), "text", "two", nullptr);  // in NULL: replaces
  ASSERT_EQ(speak.Begin(GST_STATE_PLAYING), GST_STATE_CHANGE_SUCCESS);
  speak.Await(1);
  g_object_set(speak.src(), "speaker", "ann", "text", "three", nullptr);
  g_object_set(speak.src(), "text", " ", nullptr);
  g_object_set(speak.src(), "speaker", "bob", "text", "four", nullptr);
  EXPECT_EQ(GetString(speak.src(), "text"), "four");
  fake::AllowFrames(-1);
  speak.Expect("twothreefour");
  const auto requests = fake::Requests();
  ASSERT_EQ(requests.size(), 3U);
  EXPECT_EQ(requests[0].speaker, "");
  EXPECT_EQ(requests[1].speaker, "ann");
  EXPECT_EQ(requests[2].speaker, "bob");
  EXPECT_EQ(GetStat(speak.src(), "utterances"), 3U);
  const auto buffers = speak.buffers();
  for (size_t i = 0; i < buffers.size(); ++i) EXPECT_EQ(buffers[i].discont, i == 0) << "no break between utterances";

  g_object_set(speak.src(), "text", "late", nullptr);
  EXPECT_EQ(fake::Requests().size(), 3U) << "after the end of the stream";
  speak.Set(GST_STATE_READY);
  speak.record().Clear();
  speak.ExpectEnd();
  EXPECT_EQ(speak.text(), "late") << "in the next run";
}

TEST_F(ElementTest, TooManyTextsAreRefusedWithAWarning) {
  fake::AllowFrames(0);
  Speak speak("text=x");
  speak.Begin(GST_STATE_PLAYING);
  ASSERT_TRUE(WaitFor([] { return !fake::Requests().empty(); }));
  for (size_t i = 0; i < gstqtts::TextQueue::kMaxUtterances; ++i) g_object_set(speak.src(), "text", "y", nullptr);
  EXPECT_TRUE(speak.Pending(GST_MESSAGE_WARNING).empty());
  g_object_set(speak.src(), "text", "z", nullptr);
  const auto warnings = speak.Pending(GST_MESSAGE_WARNING);
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_EQ(ParseProblem(warnings[0].get()).code, GST_RESOURCE_ERROR_BUSY);
}

TEST_F(ElementTest, TheModelStaysLoadedUntilNullAndIsLoadedAnewWhenChanged) {
  Speak speak("model-path=/first text=ab");
  for (int run = 0; run < 3; ++run) {
    speak.record().Clear();
    ASSERT_TRUE(speak.PlayToEnd());
    EXPECT_EQ(speak.text(), "ab");
    EXPECT_EQ(speak.buffers()[0].pts, 0U);
    EXPECT_TRUE(speak.buffers()[0].discont);
    speak.Set(GST_STATE_READY);
    EXPECT_EQ(fake::GetCounters().live_engines, 1);
  }
  EXPECT_EQ(fake::GetCounters().loads, 1);
  EXPECT_EQ(fake::GetCounters().inspections, 1);

  g_object_set(speak.src(), "model-path", "/second", nullptr);
  ASSERT_TRUE(speak.PlayToEnd());
  speak.Set(GST_STATE_READY);
  EXPECT_EQ(fake::GetCounters().loads, 2);
  EXPECT_EQ(fake::GetCounters().inspections, 2);
  EXPECT_EQ(fake::GetCounters().live_engines, 1);

  gst_util_set_object_arg(G_OBJECT(speak.src()), "device", "cpu");
  ASSERT_TRUE(speak.PlayToEnd());
  EXPECT_EQ(fake::GetCounters().loads, 3);

  speak.Set(GST_STATE_NULL);
  EXPECT_EQ(fake::GetCounters().live_engines, 0);
}

TEST_F(ElementTest, TheDeviceIsChosenByProperties) {
  Speak speak("text=ab device=cuda precision=bf16 codec-precision=fast cuda-device-id=3 voices=7");
  ASSERT_TRUE(speak.PlayToEnd());
  EXPECT_EQ(fake::LastOptions().device, Device::kCuda);
  EXPECT_EQ(fake::LastOptions().precision, Precision::kBF16);
  EXPECT_EQ(fake::LastOptions().codec_precision, CodecPrecision::kFast);
  EXPECT_EQ(fake::LastOptions().gpu, 3);
  EXPECT_EQ(fake::LastOptions().voices, 7);

  speak.Set(GST_STATE_READY);
  gst_util_set_object_arg(G_OBJECT(speak.src()), "precision", "f32");
  gst_util_set_object_arg(G_OBJECT(speak.src()), "codec-precision", "exact");
  ASSERT_TRUE(speak.PlayToEnd());
  EXPECT_EQ(fake::LastOptions().precision, Precision::kF32);
  EXPECT_EQ(fake::LastOptions().codec_precision, CodecPrecision::kExact);
  EXPECT_EQ(fake::GetCounters().loads, 2);
  EXPECT_EQ(fake::GetCounters().inspections, 2) << "whether the device can be had is asked again";

  for (const Precision precision : {Precision::kInt8, Precision::kInt4, Precision::kF32, Precision::kAuto}) {
    speak.Set(GST_STATE_READY);
    gst_util_set_object_arg(G_OBJECT(speak.src()), "precision", std::string(PrecisionName(precision)).c_str());
    ASSERT_TRUE(speak.PlayToEnd());
    EXPECT_EQ(fake::LastOptions().precision, precision);
  }
  EXPECT_EQ(fake::GetCounters().loads, 6);

  speak.Set(GST_STATE_READY);
  g_object_set(speak.src(), "cuda-device-id", 0, nullptr);
  ASSERT_TRUE(speak.PlayToEnd());
  EXPECT_EQ(fake::LastOptions().gpu, 0);
  EXPECT_EQ(fake::GetCounters().loads, 7);
  EXPECT_EQ(fake::GetCounters().live_engines, 1);
}

TEST_F(ElementTest, CountsTokensOnceTheModelIsLoaded) {
  const auto count = [](GstElement* element, const char* text) {
    gint64 tokens = -2;
    g_signal_emit_by_name(element, "count-tokens", text, &tokens);
    return tokens;
  };
  Speak speak("text=abcde");
  EXPECT_EQ(count(speak.src(), "eight by"), -1);
  speak.ExpectEnd();
  EXPECT_EQ(count(speak.src(), "eight by"), 2);  // of the fake engine, which counts four bytes as one
  EXPECT_EQ(count(speak.src(), nullptr), 0);
  EXPECT_EQ(count(speak.src(), std::string(2000, 'a').c_str()), -1) << "too long for every model";
}

TEST_F(ElementTest, StatsCountTheRun) {
  Speak speak("text=abcde seed=5");
  for (int run = 0; run < 2; ++run) {
    speak.ExpectEnd();
    EXPECT_EQ(GetStat(speak.src(), "utterances"), 1U);
    EXPECT_EQ(GetStat(speak.src(), "frames"), 5U);
    EXPECT_EQ(GetStat(speak.src(), "seed"), 5U);
    EXPECT_NE(GetStat(speak.src(), "first-frame-latency"), GST_CLOCK_TIME_NONE);
    speak.Set(GST_STATE_READY);
  }
}

TEST_F(ElementTest, TwoElementsSpeakEachTheirOwn) {
  Pipeline pipeline(
      "qttssrc name=src text=abcdefghijklmnopqrstuvwxyz ! fakesink qttssrc name=other text=ABCDEFGHIJKLMNOPQRSTUVWXYZ "
      "! "
      "fakesink");
  const auto other = pipeline.Find("other");
  const Owned<GstPad> pad(gst_element_get_static_pad(other.get(), "src"));
  Recorder& record = pipeline.Record();
  Recorder other_record(pad.get());
  ASSERT_TRUE(pipeline.PlayToEnd());
  EXPECT_EQ(record.text(), "abcdefghijklmnopqrstuvwxyz");
  EXPECT_EQ(other_record.text(), "ABCDEFGHIJKLMNOPQRSTUVWXYZ");
}

TEST_F(ElementTest, C27UnknownEventsAndQueriesDoNoHarm) {
  fake::AllowFrames(1);
  Pipeline pipeline("qttssrc name=src text=abc ! fakesink");
  Recorder& record = pipeline.Record();
  ASSERT_NE(pipeline.Set(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  EXPECT_FALSE(gst_element_seek_simple(pipeline.src(), GST_FORMAT_TIME, GST_SEEK_FLAG_FLUSH, GST_SECOND));
  const Owned<GstPad> pad(gst_element_get_static_pad(pipeline.src(), "src"));
  for (GstEvent* event :
       {gst_event_new_qos(GST_QOS_TYPE_UNDERFLOW, 1.0, 0, 0), gst_event_new_reconfigure(), gst_event_new_latency(0),
        gst_event_new_custom(GST_EVENT_CUSTOM_UPSTREAM, gst_structure_new_empty("qtts/nothing"))}) {
    gst_pad_send_event(pad.get(), event);
  }
  GstQuery* query = gst_query_new_custom(GST_QUERY_CUSTOM, gst_structure_new_empty("qtts/nothing"));
  EXPECT_FALSE(gst_pad_query(pad.get(), query));
  gst_query_unref(query);
  query = gst_query_new_seeking(GST_FORMAT_TIME);
  gboolean seekable = TRUE;
  EXPECT_TRUE(gst_pad_query(pad.get(), query));
  gst_query_parse_seeking(query, nullptr, &seekable, nullptr, nullptr);
  EXPECT_TRUE(seekable);
  gst_query_unref(query);
  query = gst_query_new_latency();
  gboolean live = TRUE;
  EXPECT_TRUE(gst_pad_query(pad.get(), query));
  gst_query_parse_latency(query, &live, nullptr, nullptr);
  EXPECT_FALSE(live);
  gst_query_unref(query);
  fake::AllowFrames(-1);
  ASSERT_NE(pipeline.Wait(GST_MESSAGE_EOS), nullptr);
  EXPECT_EQ(record.text(), "abc");
  gint64 position = 0;
  EXPECT_TRUE(gst_element_query_position(pipeline.src(), GST_FORMAT_TIME, &position));
  EXPECT_EQ(position, 240 * static_cast<gint64>(GST_MSECOND));
}

}  // namespace
}  // namespace qtts::testing
