// SPDX-License-Identifier: LGPL-2.1-or-later
// Text through the sink pad: buffers, the pad itself, and back-pressure.
#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "gstqttstext.h"
#include "input_fixture.h"

namespace qtts::testing {
namespace {

// Pushes until the pad refuses. `pushed` counts the accepted buffers.
class Flood {
 public:
  explicit Flood(Feeder* feeder) {
    thread_ = std::thread([this, feeder] {
      GstFlowReturn flow = GST_FLOW_OK;
      while ((flow = feeder->Push("x")) == GST_FLOW_OK) ++pushed;
      result = flow;
    });
  }
  // Waits until the queue is full and pushing blocks.
  static bool Full(const Flood& flood) {
    // One text is spoken, the queue holds the rest.
    return WaitFor([&] { return flood.pushed > static_cast<int>(gstqtts::TextQueue::kMaxUtterances); });
  }
  void Join() { thread_.join(); }

  std::atomic<int> pushed = 0;
  std::atomic<GstFlowReturn> result = GST_FLOW_OK;

 private:
  std::thread thread_;
};

TEST_F(InputTest, C10EveryBufferIsAnUtteranceSpokenInOrderBeforeTheEnd) {
  Speak speak;
  std::string expected;
  for (int i = 0; i < 200; ++i) {
    const std::string text = "t" + std::to_string(i) + ";";
    expected += text;
    speak.Push(text);
  }
  speak.End().Expect(expected);
  EXPECT_EQ(fake::Requests().size(), 200U);
  const auto buffers = speak.buffers();
  for (size_t i = 0; i < buffers.size(); ++i) {
    ASSERT_EQ(buffers[i].pts, i * 80 * GST_MSECOND);
    ASSERT_EQ(buffers[i].discont, i == 0);
  }
  EXPECT_EQ(speak.record().events(), (std::vector<GstEventType>{GST_EVENT_STREAM_START, GST_EVENT_CAPS,
                                                                GST_EVENT_SEGMENT, GST_EVENT_TAG, GST_EVENT_EOS}))
      << "nothing of upstream leaks";
}

// Check: 13
TEST_F(InputTest, CapsTagsGapsAndSegmentsOfAnyFormatDoNoHarm) {
  for (const GstFormat format : {GST_FORMAT_BYTES, GST_FORMAT_TIME, GST_FORMAT_DEFAULT}) {
    Speak speak;
    speak.feeder();
    speak.Set(GST_STATE_PLAYING);
    speak.feeder().Send(gst_event_new_stream_start("text"));
    const Owned<GstCaps> caps(gst_caps_from_string("text/x-raw,format=utf8"));
    speak.Send(gst_event_new_caps(caps.get()));
    GstSegment segment;
    gst_segment_init(&segment, format);
    segment.start = 17 * GST_SECOND;
    segment.base = 3 * GST_SECOND;
    speak.Send(gst_event_new_segment(&segment));
    speak.Send(gst_event_new_tag(gst_tag_list_new(GST_TAG_SUBTITLE_CODEC, "SubRip", nullptr)));
    speak.Send(gst_event_new_gap(0, GST_SECOND)).Push("ab").End().Expect("ab");
    EXPECT_EQ(speak.record().events(), (std::vector<GstEventType>{GST_EVENT_STREAM_START, GST_EVENT_CAPS,
                                                                  GST_EVENT_SEGMENT, GST_EVENT_TAG, GST_EVENT_EOS}));
    EXPECT_EQ(speak.buffers()[0].pts, 0U);
  }
}

// The end of such a buffer is unknown: a sum that overflows would lie before the segment.
TEST_F(InputTest, ALengthBeyondAllTimesDropsNoText) {
  Speak speak;
  speak.Open();
  GstBuffer* buffer = gst_buffer_new_memdup("ab", 2);
  GST_BUFFER_PTS(buffer) = 2;
  GST_BUFFER_DURATION(buffer) = GST_CLOCK_TIME_NONE - 1;
  EXPECT_EQ(gst_pad_chain(speak.feeder().sink(), buffer), GST_FLOW_OK);
  speak.End().Expect("ab");
}

TEST_F(InputTest, OtherCapsAreRefused) {
  Speak speak;
  speak.Open(GST_FORMAT_TIME, "text/x-raw,format=pango-markup");
  EXPECT_EQ(speak.feeder().Push("<b>x</b>"), GST_FLOW_NOT_NEGOTIATED);
}

TEST_F(InputTest, C12CharactersCutByBuffersAreJoined) {
  Speak speak("language=german");
  const std::string text = "\xF0\xA0\x80\x80\xE4\xBD\xA0\xC3\xBC";
  for (const char byte : text) speak.Push(std::string(1, byte));
  speak.End();
  const auto message = speak.Wait(GST_MESSAGE_EOS | GST_MESSAGE_WARNING);
  ASSERT_NE(message, nullptr);
  EXPECT_EQ(GST_MESSAGE_TYPE(message.get()), GST_MESSAGE_EOS);
  EXPECT_EQ(speak.text(), text);
  EXPECT_EQ(fake::Requests().size(), 3U);
}

TEST_F(InputTest, C12AnyScriptAndLineEndReachesTheEngineAsItIs) {
  Speak speak("speak-anything=true");
  const std::vector<std::string> texts = {
      "two\r\nlines", "\xD7\xA9\xD7\x9C\xD7\x95\xD7\x9D \xD8\xB3\xD9\x84\xD8\xA7\xD9\x85",
      "\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x91\xA7 \xF0\x9F\x87\xA9\xF0\x9F\x87\xAA", "a\xCC\x88",
      "\xE0\xB8\xAA\xE0\xB8\xA7"};
  for (const std::string& text : texts) speak.Push(text);
  speak.End().ExpectEnd();
  std::vector<std::string> requested;
  for (const Request& request : fake::Requests()) requested.push_back(request.text);
  EXPECT_EQ(requested, texts);
}

// The fake model speaks English and German.
// Check: 53
TEST_F(InputTest, AScriptOfNoLanguageOfTheModelIsWarnedOfOnceForAText) {
  Speak speak("segmentation=sentence");
  speak.Push("Привет. Hello. Как дела? Hello. 你好。Hello. Хорошо. 再见。Hello. ")
      .Open()
      .Push("Привет. Как дела?")
      .End();
  const std::vector<Problem> warnings = speak.WarningsUntilEnd();
  ASSERT_EQ(warnings.size(), 3U);
  const char* const scripts[] = {"Cyrillic", "Han", "Cyrillic"};
  for (size_t i = 0; i < warnings.size(); ++i) {
    EXPECT_EQ(warnings[i].domain, GST_RESOURCE_ERROR);
    EXPECT_EQ(warnings[i].code, GST_RESOURCE_ERROR_SETTINGS);
    EXPECT_EQ(warnings[i].text.find("The text is in " + std::string(scripts[i]) + " script."), 0U) << warnings[i].text;
  }
  EXPECT_GT(fake::Requests().size(), 6U) << "it is spoken all the same";
}

// Check: 53
TEST_F(InputTest, AGrowingTextIsJudgedWhenItIsWhole) {
  Speak speak("segmentation=stream");
  for (const char* part : {"α", "-rays", " are", " helium."}) speak.Push(part);
  speak.Send("qtts/end-utterance");
  for (const char* part : {"O", "K: ", "привет", " и", " пока"}) speak.Push(part);
  speak.End();
  const std::vector<Problem> warnings = speak.WarningsUntilEnd();
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_NE(warnings[0].text.find("Cyrillic"), std::string::npos) << warnings[0].text;
}

// Check: 53
TEST_F(InputTest, ALanguageThatIsSetSilencesTheWarning) {
  Speak speak("language=english text=Привет");
  speak.Set(GST_STATE_PLAYING);
  EXPECT_TRUE(speak.WarningsUntilEnd().empty());
}

// A stream without sound ends with the reason as an error; one with sound does not.
// Check: 53
TEST_F(InputTest, WhereNothingWasSpokenOneWarningSaysSo) {
  for (const bool spoken : {false, true}) {
    Speak speak;
    speak.Push("\U0001F642").Push(spoken ? "a" : "?!").End();
    const std::vector<Problem> warnings = speak.WarningsUntilEnd();
    ASSERT_EQ(warnings.size(), spoken ? 0U : 1U);
    if (spoken) continue;
    EXPECT_EQ(warnings[0].text.find("Nothing was spoken: "), 0U) << warnings[0].text;
  }
}

TEST_F(InputTest, C12InvalidBytesAreReplacedWithOneWarning) {
  Speak speak;
  speak.Push("a\xFF").Push("b\xC0\xAF").End();
  const std::vector<Problem> warnings = speak.WarningsUntilEnd();
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_EQ(warnings[0].domain, GST_STREAM_ERROR);
  EXPECT_EQ(warnings[0].code, GST_STREAM_ERROR_DECODE);
  EXPECT_EQ(speak.text(),
            "a\xEF\xBF\xBD"
            "b\xEF\xBF\xBD\xEF\xBF\xBD");
}

TEST_F(InputTest, C12ATextThatEndsWithinACharacterIsSpokenWithoutItAndWarnedOf) {
  Speak speak;
  speak.Push("ab\xE2\x82").End();
  const auto warning = speak.Wait(GST_MESSAGE_WARNING | GST_MESSAGE_ERROR);
  ASSERT_NE(warning, nullptr);
  EXPECT_EQ(ParseProblem(warning.get()).code, GST_STREAM_ERROR_DECODE);
  speak.Expect("ab");
}

TEST_F(InputTest, C12BlankBuffersNulsAndSpaceAroundTextAreDropped) {
  Speak speak;
  for (const char* text : {"", "\xEF\xBB\xBF", " ", "\r\n", "\xFF", " one \r\n", "\xE3\x80\x80", "\ntwo three\n"}) {
    speak.Push(text);
  }
  speak.Push(std::string("f\0our\0", 6)).End().Expect("onetwo threefour");
}

TEST_F(InputTest, OnlyTheEndOfTextIsAnEmptyStream) {
  Speak speak;
  speak.Open().End().ExpectEnd();
  EXPECT_EQ(speak.record().buffer_count(), 0U);
  EXPECT_EQ(speak.feeder().Push("late"), GST_FLOW_EOS);
}

TEST_F(InputTest, C12AMegabyteIsTakenInPiecesOfTheLengthAllowed) {
  fake::AllowFrames(0);
  Speak speak("max-text-length=20000 max-queued-text=2000000");
  std::string text;
  while (text.size() < 1024 * 1024) text += "some words ";
  speak.Push(text);
  ASSERT_TRUE(WaitFor([] { return fake::Requests().size() == 1; }));
  const std::string first = fake::Requests()[0].text;
  EXPECT_LE(first.size(), 20000U);
  EXPECT_GT(first.size(), 19900U);
  const guint64 waiting = GetStat(speak.src(), "queued-chars");
  const guint64 parts = GetStat(speak.src(), "queued-utterances") + 1;
  EXPECT_EQ(waiting + first.size() + parts, text.size()) << "all but the spaces between the parts";
}

TEST_F(InputTest, ALongTextIsTakenInOnePieceWhereAllowed) {
  fake::Script script;
  script.info.samples_per_frame = fake::kLabelSamples;
  script.info.defaults.max_new_tokens = 5000;
  fake::Reset(script);
  Speak speak("max-queued-text=1000 max-text-length=1000000");
  const std::string text(2000, 'y');  // longer than the queue, which is empty
  speak.Push(text).End().ExpectEnd();
  EXPECT_EQ(speak.record().buffer_count(), text.size());
  EXPECT_TRUE(fake::Requests()[0].text == text);
}

TEST_F(InputTest, TheTextPropertyComesFirst) { Speak("text=first").Push("second").End().Expect("firstsecond"); }

TEST_F(InputTest, SettingsAreThoseOfTheMomentOfAcceptance) {
  fake::AllowFrames(0);
  Speak speak;
  for (const char* speaker : {"ann", "bob", "ann"}) {
    g_object_set(speak.src(), "speaker", speaker, nullptr);
    speak.Push("x");
  }
  g_object_set(speak.src(), "speaker", "nobody", nullptr);
  fake::AllowFrames(-1);
  speak.End().ExpectEnd();
  const auto requests = fake::Requests();
  ASSERT_EQ(requests.size(), 3U);
  EXPECT_EQ(requests[0].speaker, "ann");
  EXPECT_EQ(requests[1].speaker, "bob");
  EXPECT_EQ(requests[2].speaker, "ann");
}

TEST_F(InputTest, MoreTextAfterTheEndOfUpstreamIsTakenUntilTheEndWasSent) {
  fake::AllowFrames(0);
  Speak speak;
  speak.Push("ab").End().Open().Push("cd");
  fake::AllowFrames(-1);
  speak.Await(4);
  EXPECT_TRUE(speak.Pending(GST_MESSAGE_EOS).empty());
  speak.End().Expect("abcd");
}

// --- the pad

TEST_F(InputTest, ThePadExistsOnce) {
  Speak speak;
  GstElement* src = speak.src();
  for (int round = 0; round < 3; ++round) {
    GstPad* pad = gst_element_request_pad_simple(src, "sink");
    ASSERT_NE(pad, nullptr);
    EXPECT_STREQ(GST_PAD_NAME(pad), "sink");
    EXPECT_TRUE(GST_OBJECT_FLAG_IS_SET(src, GST_ELEMENT_FLAG_SOURCE)) << "an end-of-stream of the pipeline reaches it";
    GstPadTemplate* templ = gst_element_class_get_pad_template(GST_ELEMENT_GET_CLASS(src), "sink");
    EXPECT_EQ(gst_element_request_pad(src, templ, nullptr, nullptr), nullptr) << "there is one already";
    gst_element_release_request_pad(src, pad);
    gst_object_unref(pad);
  }
}

TEST_F(InputTest, LaunchLinesLinkTextWithoutNamingThePad) {
  for (const char* line : {"appsrc name=in ! qttssrc name=src ! fakesink", "fakesrc ! qttssrc name=src ! fakesink"}) {
    Pipeline pipeline(line);
    const Owned<GstPad> sink(gst_element_get_static_pad(pipeline.src(), "sink"));
    ASSERT_NE(sink, nullptr) << line;
    EXPECT_TRUE(gst_pad_is_linked(sink.get())) << line;
  }
}

// An EOS from upstream comes after all text; one sent to the pipeline does not wait for queued text.
// Check: 47
TEST_F(InputTest, C11AnEndOfStreamOfUpstreamSpeaksAllOneOfTheApplicationTheUtterance) {
  for (const bool by_application : {false, true}) {
    SCOPED_TRACE(by_application);
    fake::Reset();
    fake::AllowFrames(3);
    Pipeline pipeline("appsrc name=in format=bytes ! qttssrc name=src segmentation=none ! fakesink async=false");
    Recorder& record = pipeline.Record();
    const auto in = pipeline.Find("in");
    pipeline.Set(GST_STATE_PLAYING);
    GstFlowReturn flow = GST_FLOW_OK;
    for (const char* text : {"abcdefgh", "ijklmnop"}) {
      GstBuffer* buffer = gst_buffer_new_memdup(text, 8);
      g_signal_emit_by_name(in.get(), "push-buffer", buffer, &flow);
      gst_buffer_unref(buffer);
      ASSERT_EQ(flow, GST_FLOW_OK);
    }
    ASSERT_TRUE(WaitFor([&] { return record.buffer_count() == 3; }));
    if (by_application) {
      EXPECT_TRUE(gst_element_send_event(pipeline.get(), gst_event_new_eos()));
    } else {
      g_signal_emit_by_name(in.get(), "end-of-stream", &flow);
    }
    fake::AllowFrames(-1);
    ASSERT_NE(pipeline.Wait(GST_MESSAGE_EOS), nullptr);
    EXPECT_EQ(record.text(), by_application ? "abcdefgh" : "abcdefghijklmnop");
  }
}

// A growing utterance ends with the text that has come; upstream, which may be waiting for space, gets GST_FLOW_EOS.
// Check: 47
TEST_F(InputTest, C11AnEndOfStreamOfTheApplicationEndsAGrowingUtterance) {
  Speak speak("segmentation=stream max-queued-text=10");
  speak.Push("abc def");
  ASSERT_TRUE(WaitFor([&] { return speak.record().buffer_count() >= 3; }));
  EXPECT_TRUE(gst_element_send_event(speak.get(), gst_event_new_eos()));
  speak.Expect("abc def");
  EXPECT_EQ(speak.feeder().Push("too late"), GST_FLOW_EOS);
}

// Check: 47
TEST_F(InputTest, C11APadThatIsNotLinkedDoesNotKeepTheEndFromComing) {
  Speak speak("text=abc");
  GstPad* pad = gst_element_request_pad_simple(speak.src(), "sink");
  speak.Set(GST_STATE_PLAYING);
  speak.Await(3);
  EXPECT_TRUE(gst_element_send_event(speak.get(), gst_event_new_eos()));
  EXPECT_NE(speak.Wait(GST_MESSAGE_EOS), nullptr);
  gst_element_release_request_pad(speak.src(), pad);
  gst_object_unref(pad);
}

// The live flag comes from upstream. The next run does not inherit it.
// Check: 37
TEST_F(InputTest, LiveUpstreamIsForgottenWithItsRunAndItsPad) {
  for (const bool stop_first : {false, true}) {
    SCOPED_TRACE(stop_first);
    Pipeline pipeline("appsrc name=in is-live=true format=time ! qttssrc name=src ! fakesink sync=false");
    const auto in = pipeline.Find("in");
    pipeline.Begin(GST_STATE_PLAYING);
    GstFlowReturn flow = GST_FLOW_OK;
    GstBuffer* buffer = gst_buffer_new_memdup("abc", 3);
    g_signal_emit_by_name(in.get(), "push-buffer", buffer, &flow);
    gst_buffer_unref(buffer);
    g_signal_emit_by_name(in.get(), "end-of-stream", &flow);
    ASSERT_NE(pipeline.Wait(GST_MESSAGE_EOS), nullptr);
    if (stop_first) pipeline.Set(GST_STATE_READY);
    gst_element_set_locked_state(in.get(), TRUE);
    gst_element_set_state(in.get(), GST_STATE_NULL);
    const Owned<GstPad> pad(gst_element_get_static_pad(pipeline.src(), "sink"));
    const Owned<GstPad> peer(gst_pad_get_peer(pad.get()));
    gst_pad_unlink(peer.get(), pad.get());
    gst_element_release_request_pad(pipeline.src(), pad.get());
    pipeline.Set(GST_STATE_READY);
    g_object_set(pipeline.src(), "text", "def", nullptr);
    EXPECT_EQ(pipeline.Set(GST_STATE_PAUSED), GST_STATE_CHANGE_SUCCESS) << "it prerolls";
    EXPECT_TRUE(pipeline.PlayToEnd());
  }
}

TEST_F(InputTest, WithoutThePadTheRestIsSpokenAndTheStreamEnds) {
  fake::AllowFrames(1);
  Speak speak;
  speak.Push("ab").Push("cd").Await(1);
  speak.feeder().Release();
  fake::AllowFrames(-1);
  speak.Expect("abcd");
}

TEST_F(InputTest, ThePadMayComeWhileTheElementSpeaks) {
  fake::AllowFrames(1);
  Speak speak("text=ab");
  speak.Set(GST_STATE_PLAYING);
  speak.Await(1);
  speak.Open().Push("cd");
  fake::AllowFrames(-1);
  speak.Await(4);
  EXPECT_TRUE(speak.Pending(GST_MESSAGE_EOS).empty());
  speak.End().Expect("abcd");
}

TEST_F(InputTest, C15ThePadMayGoInMidSpeechFiftyTimes) {
  fake::Reset({.frame_time = std::chrono::milliseconds(1)});
  Speak speak("text=start");
  for (int round = 0; round < 50; ++round) {
    speak.record().Clear();
    Feeder feeder(speak.src());
    ASSERT_EQ(speak.Begin(GST_STATE_PLAYING), GST_STATE_CHANGE_SUCCESS);
    feeder.Begin();
    Flood flood(&feeder);
    if (round % 3 == 0) {
      ASSERT_TRUE(Flood::Full(flood) || flood.pushed > 0);
    } else {
      ASSERT_TRUE(WaitFor([&] { return speak.record().buffer_count() >= static_cast<size_t>(round % 7); }));
    }
    // The element wakes the pushing thread first; then the unlinked pad refuses pushes.
    feeder.Release();
    flood.Join();
    EXPECT_TRUE(flood.result == GST_FLOW_FLUSHING || flood.result == GST_FLOW_NOT_LINKED)
        << gst_flow_get_name(flood.result);
    if (round % 2 == 0) {
      speak.ExpectEnd();
    }
    speak.Begin(GST_STATE_READY);
    speak.Pending(GST_MESSAGE_ANY);
  }
}

// --- back-pressure

class BackPressureTest : public InputTest {
 protected:
  void SetUp() override {
    fake::AllowFrames(0);
    speak_.Open();
    flood_.emplace(&speak_.feeder());
    ASSERT_TRUE(Flood::Full(*flood_));
  }

  Speak speak_;
  std::optional<Flood> flood_;
};

TEST_F(BackPressureTest, C15SpeechMakesRoom) {
  const int before = flood_->pushed;
  fake::AllowFrames(3);
  EXPECT_TRUE(WaitFor([&] { return flood_->pushed == before + 3; }));
  speak_.Set(GST_STATE_NULL);
  flood_->Join();
  EXPECT_EQ(speak_.text(), "xxx");
}

TEST_F(BackPressureTest, C15MoreRoomWakesIt) {
  const int before = flood_->pushed;
  g_object_set(speak_.src(), "max-queued-text", 10, nullptr);
  fake::AllowFrames(3);
  EXPECT_TRUE(WaitFor([&] { return speak_.record().buffer_count() == 3; }));
  EXPECT_EQ(flood_->pushed, before) << "there are still more than ten";
  g_object_set(speak_.src(), "max-queued-text", 1000, nullptr);
  EXPECT_TRUE(WaitFor([&] { return flood_->pushed == before + 3; }));
  speak_.Set(GST_STATE_NULL);
  flood_->Join();
}

TEST_F(BackPressureTest, C15AFlushWakesIt) {
  speak_.Send(gst_event_new_flush_start());
  flood_->Join();
  EXPECT_EQ(flood_->result, GST_FLOW_FLUSHING);
  fake::AllowFrames(-1);
  speak_.Send(gst_event_new_flush_stop(TRUE)).Open().Push("after").End().Expect("after");
}

TEST_F(BackPressureTest, C15AFlushSentToTheElementWakesIt) {
  gst_element_send_event(speak_.src(), gst_event_new_flush_start());
  flood_->Join();
  EXPECT_EQ(flood_->result, GST_FLOW_FLUSHING);
  gst_element_send_event(speak_.src(), gst_event_new_flush_stop(TRUE));
}

TEST_F(BackPressureTest, C15LeavingPausedWakesIt) {
  EXPECT_EQ(speak_.Begin(GST_STATE_READY), GST_STATE_CHANGE_SUCCESS);
  flood_->Join();
  EXPECT_EQ(flood_->result, GST_FLOW_FLUSHING);
}

TEST_F(BackPressureTest, C15ReleasingThePadWakesIt) {
  speak_.feeder().Release();
  flood_->Join();
  EXPECT_TRUE(flood_->result == GST_FLOW_FLUSHING || flood_->result == GST_FLOW_NOT_LINKED);
}

TEST_F(BackPressureTest, C15AFatalErrorWakesIt) {
  fake::SetScript({.start = Status::DeviceUnavailable("The GPU is gone.")});
  fake::AllowFrames(-1);
  flood_->Join();
  EXPECT_EQ(flood_->result, GST_FLOW_EOS);
  ASSERT_NE(speak_.Wait(GST_MESSAGE_ERROR), nullptr);
}

}  // namespace
}  // namespace qtts::testing
