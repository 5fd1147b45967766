// SPDX-License-Identifier: LGPL-2.1-or-later
// Speaking, interrupting, and their messages.
#include <glib/gstdio.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <functional>
#include <map>
#include <thread>

#include "support.h"

namespace qtts::testing {
namespace {

constexpr char kLine[] = "qttssrc name=src ! fakesink async=false";

guint64 Speak(GstElement* element, const char* text, const char* params = nullptr) {
  GstStructure* structure = params != nullptr ? gst_structure_from_string(params, nullptr) : nullptr;
  EXPECT_EQ(structure != nullptr, params != nullptr) << params;
  guint64 id = 0;
  g_signal_emit_by_name(element, "speak", text, structure, &id);
  if (structure != nullptr) gst_structure_free(structure);
  return id;
}

guint64 Interrupt(GstElement* element) {
  guint64 frames = 0;
  g_signal_emit_by_name(element, "interrupt", &frames);
  return frames;
}

GstEvent* NewEvent(GstEventType type, const char* structure) {
  return gst_event_new_custom(type, gst_structure_from_string(structure, nullptr));
}

// Keeps its sink pad, so that the element waits for text.
class SpeakTest : public GstTest {
 protected:
  void SetUp() override {
    GstTest::SetUp();
    pipeline_ = std::make_unique<Pipeline>(kLine);
    record_ = &pipeline_->Record();
    feeder_ = std::make_unique<Feeder>(src());
  }
  void TearDown() override {
    feeder_.reset();
    pipeline_.reset();
    messages_.clear();
    GstTest::TearDown();
  }

  GstElement* src() const { return pipeline_->src(); }
  void Play() {
    pipeline_->Set(GST_STATE_PLAYING);
    feeder_->Begin();
  }
  // Waits for the next element message named `name` and keeps all others; null after kPatience.
  const GstStructure* WaitFor(const std::string& name) {
    for (;;) {
      auto message = pipeline_->Wait(GST_MESSAGE_ELEMENT | GST_MESSAGE_ERROR);
      if (message == nullptr) return nullptr;
      if (GST_MESSAGE_TYPE(message.get()) == GST_MESSAGE_ERROR) {
        ADD_FAILURE() << ParseProblem(message.get()).text;
        return nullptr;
      }
      messages_.push_back(std::move(message));
      const GstStructure* structure = gst_message_get_structure(messages_.back().get());
      if (gst_structure_has_name(structure, name.c_str())) return structure;
    }
  }
  const GstStructure* WaitForFinish() { return WaitFor("qtts-utterance-finished"); }

  std::unique_ptr<Pipeline> pipeline_;
  Recorder* record_ = nullptr;
  std::unique_ptr<Feeder> feeder_;
  std::vector<Owned<GstMessage>> messages_;
};

// --- speak

// The streaming thread then polls for the first frame for a while.
TEST_F(SpeakTest, ADeviceBesideTheHostSpeaksLikeAnother) {
  fake::Script script = fake::DefaultScript();
  script.beside_host = true;
  fake::SetScript(script);
  Play();
  EXPECT_EQ(Speak(src(), "one"), 1U);
  ASSERT_NE(WaitForFinish(), nullptr);

  fake::AllowFrames(0);
  EXPECT_EQ(Speak(src(), "never"), 2U);
  ASSERT_TRUE(testing::WaitFor([] { return fake::Requests().size() == 2; }));
  EXPECT_EQ(Interrupt(src()), 0U);
  const GstStructure* finished = WaitForFinish();
  ASSERT_NE(finished, nullptr);
  EXPECT_STREQ(gst_structure_get_string(finished, "reason"), "interrupted");

  // Longer than the polling.
  EXPECT_EQ(Speak(src(), "two"), 3U);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  fake::AllowFrames(-1);
  ASSERT_NE(WaitForFinish(), nullptr);
  EXPECT_EQ(record_->text(), "onetwo");

  // Waiting for a frame does not delay a stop.
  fake::AllowFrames(0);
  EXPECT_EQ(Speak(src(), "stopped"), 4U);
  ASSERT_TRUE(testing::WaitFor([] { return fake::Requests().size() == 4; }));
  pipeline_->Set(GST_STATE_NULL);
}

TEST_F(SpeakTest, QueuesInOrderAndNumbersUtterances) {
  Play();
  EXPECT_EQ(Speak(src(), "one"), 1U);
  EXPECT_EQ(Speak(src(), "two"), 2U);
  EXPECT_EQ(feeder_->Push("three"), GST_FLOW_OK);
  EXPECT_EQ(Speak(src(), "four"), 4U);
  feeder_->End();
  ASSERT_NE(pipeline_->Wait(GST_MESSAGE_EOS), nullptr);
  EXPECT_EQ(record_->text(), "onetwothreefour");
}

TEST_F(SpeakTest, ParamsHoldForOneUtterance) {
  g_object_set(src(), "speaker", "ann", "top-k", 5, nullptr);
  Play();
  Speak(src(), "a",
        "params, speaker=bob, language=german, instruct=calm, layout=streaming, seed=7, temperature=0.5, top-k=3, "
        "top-p=1, repetition-penalty=(float)1.5, subtalker-temperature=0, subtalker-top-k=(gint64)2, "
        "subtalker-top-p=0.25, max-duration=160000000");
  Speak(src(), "b");
  feeder_->End();
  ASSERT_NE(pipeline_->Wait(GST_MESSAGE_EOS), nullptr);
  const auto requests = fake::Requests();
  ASSERT_EQ(requests.size(), 2U);
  EXPECT_EQ(requests[0].speaker, "bob");
  EXPECT_EQ(requests[0].language, "german");
  EXPECT_EQ(requests[0].instruct, "calm");
  EXPECT_EQ(requests[0].layout, PromptLayout::kStreaming);
  EXPECT_EQ(requests[0].seed, 7U);
  EXPECT_EQ(requests[0].settings.talker.temperature, 0.5F);
  EXPECT_EQ(requests[0].settings.talker.top_k, 3);
  EXPECT_EQ(requests[0].settings.talker.top_p, 1.0F);
  EXPECT_EQ(requests[0].settings.repetition_penalty, 1.5F);
  EXPECT_FALSE(requests[0].settings.predictor.do_sample);
  EXPECT_EQ(requests[0].settings.predictor.top_k, 2);
  EXPECT_EQ(requests[0].settings.predictor.top_p, 0.25F);
  EXPECT_EQ(requests[0].settings.max_new_tokens, 3);
  EXPECT_EQ(requests[1].speaker, "ann");
  EXPECT_EQ(requests[1].language, "");
  EXPECT_EQ(requests[1].settings.talker.top_k, 5);
  EXPECT_EQ(GetString(src(), "speaker"), "ann") << "the properties stay";
}

TEST_F(SpeakTest, ParamsThatAreWrongAreRefusedWithAWarning) {
  Play();
  const struct {
    const char* params;
    const char* complaint;
  } cases[] = {
      {"params, spaeker=bob", "\"spaeker\" is unknown"},
      {"params, text=other", "\"text\" is unknown"},
      {"params, speaker=5", "\"speaker\" is a gint"},
      {"params, top-k=3.5", "\"top-k\" is a gdouble"},
      {"params, top-k=(gint64)99999999999", "\"top-k\" is a gint64"},
      {"params, layout=sideways", "\"layout\" is a gchararray"},
      {"params, layout=17", "out of range"},
      {"params, seed=-2", "out of range"},
      {"params, max-duration=-1", "\"max-duration\" is a gint"},
      {"params, top-p=2.0", "\"top-p\" is 2.000000, which is out of range: it may be -1, or above 0 to 1."},
      {"params, top-p=-0.5", "out of range"},
      {"params, top-p=0.0", "out of range"},
      {"params, subtalker-top-p=0", "out of range"},
      {"params, temperature=-0.01", "it may be -1, or 0 to 100."},
      {"params, subtalker-temperature=-2", "out of range"},
      {"params, repetition-penalty=0",
       "\"repetition-penalty\" is 0, which is out of range: it may be -1, or 0.01 to 100."},
      {"params, top-k=-2", "\"top-k\" is -2, which is out of range: it may be -1 to 2147483647."},
      {"params, speaker=nobody", "unknown speaker \"nobody\"; this model has: ann, bob"},
      {"params, language=klingon", "unknown language \"klingon\"; this model has: auto, english, german"},
      {"params, voice-file=some.qvoice", "a cloned voice needs a base checkpoint"},
      {"params, voice-file=some.qvoice, reference-audio=me.wav", "Both voice-file and a reference are set."},
      {"params, reference-text=Hello", "reference-text is set without reference-audio"},
      {"params, style=calm", "style is set without voice-file"},
      {"params, speaker=bob, seed=(string)x", "\"seed\" is a gchararray"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.params);
    EXPECT_EQ(Speak(src(), "x", c.params), 0U);
    const auto warnings = pipeline_->Pending(GST_MESSAGE_WARNING);
    ASSERT_EQ(warnings.size(), 1U);
    const Problem problem = ParseProblem(warnings[0].get());
    EXPECT_EQ(problem.domain, GST_RESOURCE_ERROR);
    EXPECT_EQ(problem.code, GST_RESOURCE_ERROR_SETTINGS);
    EXPECT_NE(problem.text.find(c.complaint), std::string::npos) << problem.text;
  }
  GstStructure* params = gst_structure_new("params", "temperature", G_TYPE_DOUBLE, std::nan(""), nullptr);
  guint64 id = 1;
  g_signal_emit_by_name(src(), "speak", "x", params, &id);
  gst_structure_free(params);
  EXPECT_EQ(id, 0U) << "no number is no temperature";
  pipeline_->Pending(GST_MESSAGE_WARNING);
  EXPECT_NE(Speak(src(), "x"), 0U);
  EXPECT_NE(Speak(src(), "y", "params, speaker=ANN, language=de-AT, top-p=1e-30, temperature=1e-300"), 0U);
  feeder_->End();
  ASSERT_NE(pipeline_->Wait(GST_MESSAGE_EOS), nullptr);
  ASSERT_EQ(fake::Requests().size(), 2U);
  EXPECT_GT(fake::Requests()[1].settings.talker.top_p, 0);
  EXPECT_GT(fake::Requests()[1].settings.talker.temperature, 0) << "0 is what the engine would refuse";
}

// Wrong settings of one text that only the engine can detect make that text fail, not the stream.
TEST_F(SpeakTest, ParamsThatTheEngineRefusesCostTheirText) {
  fake::Script script = fake::DefaultScript();
  script.start_match = "bad";
  for (const StatusCode code :
       {StatusCode::kInvalidArgument, StatusCode::kNotFound, StatusCode::kUnreadable, StatusCode::kCorruptModel,
        StatusCode::kUnsupported, StatusCode::kResourceExhausted, StatusCode::kInternal}) {
    SCOPED_TRACE(StatusCodeName(code));
    script.start = Status(code, "It will not do.");
    fake::Reset(script);
    record_->Clear();
    Play();
    Speak(src(), "good");
    const guint64 refused = Speak(src(), "bad", "params, instruct=loudly");
    ASSERT_NE(refused, 0U);
    Speak(src(), "well");
    ASSERT_NE(WaitForFinish(), nullptr);
    const GstStructure* finished = WaitForFinish();
    ASSERT_NE(finished, nullptr);
    EXPECT_EQ(GetField(finished, "id"), refused);
    EXPECT_STREQ(gst_structure_get_string(finished, "reason"), "error");
    EXPECT_EQ(GetField(finished, "frames"), 0U);
    const auto warning = pipeline_->Wait(GST_MESSAGE_WARNING | GST_MESSAGE_ERROR);
    ASSERT_NE(warning, nullptr);
    EXPECT_EQ(GST_MESSAGE_TYPE(warning.get()), GST_MESSAGE_WARNING);
    EXPECT_EQ(ParseProblem(warning.get()).text, "It will not do.");
    finished = WaitForFinish();
    ASSERT_NE(finished, nullptr);
    EXPECT_STREQ(gst_structure_get_string(finished, "reason"), "complete");
    feeder_->End();
    ASSERT_NE(pipeline_->Wait(GST_MESSAGE_EOS), nullptr);
    EXPECT_EQ(record_->text(), "goodwell");
    pipeline_->Set(GST_STATE_READY);
    EXPECT_TRUE(pipeline_->Pending(GST_MESSAGE_ERROR).empty());
  }
}

TEST_F(SpeakTest, IsRefusedWhereNothingCanBeSpoken) {
  EXPECT_EQ(Speak(src(), "null"), 0U);
  pipeline_->Set(GST_STATE_READY);
  EXPECT_EQ(Speak(src(), "ready"), 0U);
  Play();
  EXPECT_EQ(Speak(src(), nullptr), 0U);
  EXPECT_EQ(Speak(src(), ""), 0U);
  EXPECT_EQ(Speak(src(), " \xE3\x80\x80\n"), 0U);
  feeder_->Send(gst_event_new_flush_start());
  EXPECT_EQ(Speak(src(), "flushing"), 0U);
  feeder_->Send(gst_event_new_flush_stop(TRUE));
  EXPECT_NE(Speak(src(), "spoken"), 0U);
  feeder_->Begin();
  feeder_->End();
  ASSERT_NE(pipeline_->Wait(GST_MESSAGE_EOS), nullptr);
  EXPECT_EQ(Speak(src(), "late"), 0U);
  EXPECT_EQ(record_->text(), "spoken");
}

TEST_F(SpeakTest, InvalidBytesAreReplaced) {
  Play();
  EXPECT_NE(Speak(src(),
                  "a\xFF"
                  "b\xE2\x82"),
            0U);
  feeder_->End();
  ASSERT_NE(pipeline_->Wait(GST_MESSAGE_EOS), nullptr);
  EXPECT_EQ(record_->text(),
            "a\xEF\xBF\xBD"
            "b\xEF\xBF\xBD");
}

// --- nothing to say

TEST_F(SpeakTest, WhereThereIsNothingToSayTheModelIsNotAsked) {
  Play();
  const std::vector<std::string> texts = {"!!!???", "+++---", "\xE2\x80\x8B\xE2\x80\x8D", "\xF0\x9F\x98\x80"};
  for (const std::string& text : texts) {
    SCOPED_TRACE(text);
    const guint64 id = Speak(src(), text.c_str());
    EXPECT_NE(id, 0U) << "it was accepted";
    const GstStructure* finished = WaitForFinish();
    ASSERT_NE(finished, nullptr);
    EXPECT_EQ(GetField(finished, "id"), id);
    EXPECT_STREQ(gst_structure_get_string(finished, "reason"), "nothing-to-say");
    EXPECT_EQ(GetField(finished, "frames"), 0U);
    EXPECT_EQ(GetField(finished, "samples"), 0U);
    EXPECT_EQ(GetField(finished, "text-chars"), static_cast<guint64>(g_utf8_strlen(text.c_str(), -1)));
    EXPECT_EQ(GetField(finished, "text-spoken-chars"), 0U);
    EXPECT_FALSE(GetFlag(finished, "estimated"));
  }
  EXPECT_NE(Speak(src(), "so!"), 0U);
  feeder_->End();
  ASSERT_NE(pipeline_->Wait(GST_MESSAGE_EOS), nullptr);
  EXPECT_EQ(record_->text(), "so!");
  EXPECT_EQ(fake::Requests().size(), 1U);
  EXPECT_EQ(GetStat(src(), "utterances"), texts.size() + 1);
}

TEST_F(SpeakTest, SpeakAnythingGivesTheModelEverything) {
  Play();
  EXPECT_NE(Speak(src(), "?!", "params, speak-anything=true"), 0U);
  const GstStructure* finished = WaitForFinish();
  ASSERT_NE(finished, nullptr);
  EXPECT_STREQ(gst_structure_get_string(finished, "reason"), "complete");
  EXPECT_EQ(GetField(finished, "frames"), 2U);
  g_object_set(src(), "speak-anything", TRUE, nullptr);
  feeder_->Push("+-");
  feeder_->End();
  ASSERT_NE(pipeline_->Wait(GST_MESSAGE_EOS), nullptr);
  EXPECT_EQ(record_->text(), "?!+-");
}

// --- qtts/set-voice

TEST_F(SpeakTest, SetVoiceHoldsForTheTextAfterIt) {
  fake::AllowFrames(0);
  g_object_set(src(), "speaker", "ann", nullptr);
  Play();
  feeder_->Push("a");
  EXPECT_TRUE(feeder_->Send(NewEvent(GST_EVENT_CUSTOM_DOWNSTREAM, "qtts/set-voice, speaker=bob, seed=3")));
  feeder_->Push("b");
  feeder_->Push("c");
  Speak(src(), "d");
  EXPECT_TRUE(feeder_->Send(NewEvent(GST_EVENT_CUSTOM_DOWNSTREAM, "qtts/set-voice, language=german")));
  feeder_->Push("e");
  EXPECT_TRUE(feeder_->Send(NewEvent(GST_EVENT_CUSTOM_DOWNSTREAM, "qtts/set-voice")));
  feeder_->Push("f");
  fake::AllowFrames(-1);
  feeder_->End();
  ASSERT_NE(pipeline_->Wait(GST_MESSAGE_EOS), nullptr);
  std::vector<std::string> voices;
  for (const Request& request : fake::Requests()) voices.push_back(request.text + request.speaker + request.language);
  EXPECT_EQ(voices, (std::vector<std::string>{"aann", "bbob", "cbob", "dann", "eanngerman", "fann"}));
  EXPECT_EQ(fake::Requests()[1].seed, 3U);
  for (const GstEventType event : record_->events()) EXPECT_NE(event, GST_EVENT_CUSTOM_DOWNSTREAM);
}

// The event applies to the texts of its stream.
TEST_F(SpeakTest, SetVoiceEndsWithItsStream) {
  const struct {
    const char* what;
    std::function<void()> happens;
    const char* speaker;
  } cases[] = {
      {"an interrupt", [&] { Interrupt(src()); }, "bob"},
      {"a flush of the pad",
       [&] {
         feeder_->Send(gst_event_new_flush_start());
         feeder_->Send(gst_event_new_flush_stop(TRUE));
         GstSegment segment;
         gst_segment_init(&segment, GST_FORMAT_TIME);
         feeder_->Send(gst_event_new_segment(&segment));
       },
       ""},
      {"a flush of the element",
       [&] {
         gst_element_send_event(src(), gst_event_new_flush_start());
         gst_element_send_event(src(), gst_event_new_flush_stop(TRUE));
       },
       ""},
      {"a new stream", [&] { feeder_->Begin(); }, ""},
      {"a new pad",
       [&] {
         feeder_.reset();
         feeder_ = std::make_unique<Feeder>(src());
         feeder_->Begin();
       },
       ""},
      {"READY",
       [&] {
         pipeline_->Set(GST_STATE_READY);
         Play();
       },
       ""},
      {"NULL",
       [&] {
         pipeline_->Set(GST_STATE_NULL);
         Play();
       },
       ""},
  };
  gst_util_set_object_arg(G_OBJECT(src()), "idle-mode", "wait");  // used if there is no pad
  for (const auto& c : cases) {
    SCOPED_TRACE(c.what);
    Play();
    EXPECT_TRUE(feeder_->Send(NewEvent(GST_EVENT_CUSTOM_DOWNSTREAM, "qtts/set-voice, speaker=bob")));
    EXPECT_EQ(feeder_->Push("before"), GST_FLOW_OK);
    ASSERT_TRUE(testing::WaitFor([&] { return GetStat(src(), "utterances") == 1; }));
    EXPECT_EQ(fake::Requests().back().speaker, "bob");
    c.happens();
    const size_t requests = fake::Requests().size();
    EXPECT_EQ(feeder_->Push("after"), GST_FLOW_OK);
    ASSERT_TRUE(testing::WaitFor([&] { return fake::Requests().size() > requests; }));
    EXPECT_EQ(fake::Requests().back().speaker, c.speaker);
    pipeline_->Set(GST_STATE_READY);
  }
}

TEST_F(SpeakTest, SetVoiceThatIsWrongIsRefusedWithAWarning) {
  Play();
  EXPECT_TRUE(feeder_->Send(NewEvent(GST_EVENT_CUSTOM_DOWNSTREAM, "qtts/set-voice, speaker=bob")));
  EXPECT_FALSE(feeder_->Send(NewEvent(GST_EVENT_CUSTOM_DOWNSTREAM, "qtts/set-voice, voice=ann")));
  const auto warnings = pipeline_->Pending(GST_MESSAGE_WARNING);
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_NE(ParseProblem(warnings[0].get()).text.find("\"voice\" is unknown"), std::string::npos);
  for (const char* event : {"qtts/set-voice, speaker=nobody", "qtts/set-voice, repetition-penalty=0",
                            "qtts/set-voice, voice-file=some.qvoice", "qtts/set-voice, reference-text=Hello"}) {
    EXPECT_FALSE(feeder_->Send(NewEvent(GST_EVENT_CUSTOM_DOWNSTREAM, event))) << event;
    EXPECT_EQ(pipeline_->Pending(GST_MESSAGE_WARNING).size(), 1U) << event;
  }
  feeder_->Push("a");
  feeder_->End();
  ASSERT_NE(pipeline_->Wait(GST_MESSAGE_EOS), nullptr);
  EXPECT_EQ(fake::Requests()[0].speaker, "bob") << "as it was";
}

TEST_F(SpeakTest, SetVoiceThatTheEngineRefusesCostsTheTextsItHoldsFor) {
  fake::Script script = fake::DefaultScript();
  script.start = Status::InvalidArgument("It will not do.");
  script.start_match = "bad";
  fake::Reset(script);
  Play();
  feeder_->Push("good");
  EXPECT_TRUE(feeder_->Send(NewEvent(GST_EVENT_CUSTOM_DOWNSTREAM, "qtts/set-voice, instruct=loudly")));
  feeder_->Push("bad");
  feeder_->Push("bad too");
  EXPECT_TRUE(feeder_->Send(NewEvent(GST_EVENT_CUSTOM_DOWNSTREAM, "qtts/set-voice")));
  feeder_->Push("well");
  feeder_->End();
  for (int i = 0; i < 2; ++i) {
    const auto warning = pipeline_->Wait(GST_MESSAGE_WARNING | GST_MESSAGE_ERROR);
    ASSERT_NE(warning, nullptr);
    EXPECT_EQ(GST_MESSAGE_TYPE(warning.get()), GST_MESSAGE_WARNING);
  }
  ASSERT_NE(pipeline_->Wait(GST_MESSAGE_EOS), nullptr);
  EXPECT_EQ(record_->text(), "goodwell");
}

TEST_F(SpeakTest, SetVoiceWithALayoutThatCannotGrowIsRefusedWhereTextGrows) {
  gst_util_set_object_arg(G_OBJECT(src()), "segmentation", "stream");
  Play();
  EXPECT_FALSE(feeder_->Send(NewEvent(GST_EVENT_CUSTOM_DOWNSTREAM, "qtts/set-voice, layout=non-streaming")));
  EXPECT_EQ(pipeline_->Pending(GST_MESSAGE_WARNING).size(), 1U);
}

// --- interrupt

// Ways to interrupt.
enum class Way { kSignal, kUpstream, kDownstream, kElement };

class InterruptTest : public SpeakTest, public ::testing::WithParamInterface<Way> {
 protected:
  void DoInterrupt() {
    switch (GetParam()) {
      case Way::kSignal:
        Interrupt(src());
        break;
      case Way::kUpstream: {
        const Owned<GstPad> pad(gst_element_get_static_pad(pipeline_->Find("sink").get(), "sink"));
        EXPECT_TRUE(gst_pad_push_event(pad.get(), NewEvent(GST_EVENT_CUSTOM_UPSTREAM, "qtts/interrupt")));
        break;
      }
      case Way::kDownstream:
        EXPECT_TRUE(feeder_->Send(NewEvent(GST_EVENT_CUSTOM_DOWNSTREAM_OOB, "qtts/interrupt")));
        break;
      case Way::kElement:
        EXPECT_TRUE(gst_element_send_event(src(), NewEvent(GST_EVENT_CUSTOM_UPSTREAM, "qtts/interrupt")));
        break;
    }
  }
  void SetUp() override {
    SpeakTest::SetUp();
    feeder_.reset();
    pipeline_ = std::make_unique<Pipeline>("qttssrc name=src ! fakesink name=sink async=false");
    record_ = &pipeline_->Record();
    feeder_ = std::make_unique<Feeder>(src());
  }
};

INSTANTIATE_TEST_SUITE_P(Ways, InterruptTest,
                         ::testing::Values(Way::kSignal, Way::kUpstream, Way::kDownstream, Way::kElement));

TEST_P(InterruptTest, C25StopsWithinAFrameAndTheNextTextIsSpoken) {
  fake::AllowFrames(3);
  Play();
  const guint64 first = Speak(src(), "abcdefgh");
  Speak(src(), "never");
  feeder_->Push("never either");
  ASSERT_TRUE(testing::WaitFor([&] { return record_->buffer_count() == 3; }));
  DoInterrupt();
  const GstStructure* finished = WaitForFinish();
  ASSERT_NE(finished, nullptr);
  EXPECT_EQ(GetField(finished, "id"), first);
  EXPECT_STREQ(gst_structure_get_string(finished, "reason"), "interrupted");
  EXPECT_EQ(GetField(finished, "frames"), 3U);
  EXPECT_EQ(GetField(finished, "samples"), 3U * 1920);
  EXPECT_EQ(GetField(finished, "text-chars"), 8U);
  EXPECT_GT(GetField(finished, "text-spoken-chars"), 0U);
  EXPECT_LT(GetField(finished, "text-spoken-chars"), 8U);
  EXPECT_TRUE(GetFlag(finished, "estimated"));
  for (int i = 0; i < 2; ++i) {
    finished = WaitForFinish();
    ASSERT_NE(finished, nullptr);
    EXPECT_STREQ(gst_structure_get_string(finished, "reason"), "interrupted");
    EXPECT_EQ(GetField(finished, "samples"), 0U);
    EXPECT_EQ(GetField(finished, "text-spoken-chars"), 0U);
    EXPECT_FALSE(GetFlag(finished, "estimated"));
  }
  fake::AllowFrames(-1);
  EXPECT_NE(Speak(src(), "next"), 0U);
  ASSERT_NE(WaitForFinish(), nullptr);
  EXPECT_EQ(record_->text(), "abcnext");
  for (const GstEventType event : record_->events()) {
    EXPECT_TRUE(event != GST_EVENT_FLUSH_START && event != GST_EVENT_FLUSH_STOP) << "nothing is flushed";
  }
  EXPECT_EQ(GetStat(src(), "interrupted"), 1U);
  EXPECT_EQ(GetStat(src(), "dropped"), 2U);
  EXPECT_EQ(GetStat(src(), "utterances"), 1U);
  EXPECT_EQ(GetStat(src(), "frames"), 7U);
}

// The frame being pushed is the last one; frames that are ready are dropped.
TEST_P(InterruptTest, C25WhilePushingIsBlocked) {
  const Owned<GstPad> pad(gst_element_get_static_pad(pipeline_->Find("sink").get(), "sink"));
  const gulong block = gst_pad_add_probe(
      pad.get(), static_cast<GstPadProbeType>(GST_PAD_PROBE_TYPE_BLOCK | GST_PAD_PROBE_TYPE_BUFFER),
      [](GstPad*, GstPadProbeInfo*, gpointer) { return GST_PAD_PROBE_OK; }, nullptr, nullptr);
  Play();
  Speak(src(), "abcdefgh");
  ASSERT_TRUE(testing::WaitFor([&] { return record_->buffer_count() == 1; }));
  ASSERT_TRUE(testing::WaitFor([] { return fake::GetCounters().frames == 8; }));
  DoInterrupt();
  const GstStructure* finished = WaitForFinish();
  ASSERT_NE(finished, nullptr);
  EXPECT_EQ(GetField(finished, "frames"), 1U);
  Speak(src(), "next");
  gst_pad_remove_probe(pad.get(), block);
  ASSERT_NE(WaitForFinish(), nullptr);
  EXPECT_EQ(record_->text(), "anext");
}

TEST_P(InterruptTest, C25WhileNothingIsSpokenDoesNothing) {
  Play();
  for (int i = 0; i < 3; ++i) DoInterrupt();
  Speak(src(), "abc");
  const GstStructure* finished = WaitForFinish();
  ASSERT_NE(finished, nullptr);
  EXPECT_STREQ(gst_structure_get_string(finished, "reason"), "complete");
  EXPECT_EQ(messages_.size(), 3U) << "started, progress, finished";
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
  gst_pad_add_probe(feeder_->sink(), GST_PAD_PROBE_TYPE_EVENT_UPSTREAM, count, &upstream, nullptr);
  gst_pad_add_probe(src_pad.get(), GST_PAD_PROBE_TYPE_EVENT_DOWNSTREAM, count, &downstream, nullptr);
  gst_pad_send_event(src_pad.get(), NewEvent(GST_EVENT_CUSTOM_UPSTREAM, "qtts/interrupt"));
  EXPECT_EQ(upstream, 1);
  EXPECT_EQ(downstream, 0);
  feeder_->Send(NewEvent(GST_EVENT_CUSTOM_DOWNSTREAM_OOB, "qtts/interrupt"));
  EXPECT_EQ(upstream, 1);
  EXPECT_EQ(downstream, 1);
}

TEST_F(SpeakTest, C25InterruptReturnsTheFramesSpoken) {
  fake::AllowFrames(3);
  Play();
  Speak(src(), "abcdefgh");
  ASSERT_TRUE(testing::WaitFor([&] { return record_->buffer_count() == 3; }));
  EXPECT_EQ(Interrupt(src()), 3U);
  EXPECT_EQ(Interrupt(src()), 0U);
}

TEST_F(SpeakTest, C25InterruptInEveryState) {
  EXPECT_EQ(Interrupt(src()), 0U);
  for (const GstState state : {GST_STATE_READY, GST_STATE_PAUSED, GST_STATE_PLAYING, GST_STATE_PAUSED, GST_STATE_READY,
                               GST_STATE_PLAYING, GST_STATE_NULL}) {
    pipeline_->Set(state);
    EXPECT_EQ(Interrupt(src()), 0U);
  }
  feeder_ = nullptr;
  feeder_ = std::make_unique<Feeder>(src());
  Play();
  Speak(src(), "abc");
  ASSERT_NE(WaitForFinish(), nullptr);
  EXPECT_EQ(record_->text(), "abc");
}

TEST_F(SpeakTest, C25InterruptWhileTheModelLoads) {
  fake::HoldLoads(true);
  Play();
  ASSERT_TRUE(testing::WaitFor([] { return fake::GetCounters().loads == 1; }));
  Speak(src(), "old");
  EXPECT_EQ(Interrupt(src()), 0U);
  Speak(src(), "new");
  fake::HoldLoads(false);
  const GstStructure* finished = WaitForFinish();
  ASSERT_NE(finished, nullptr);
  EXPECT_EQ(GetField(finished, "id"), 1U);
  ASSERT_NE(WaitForFinish(), nullptr);
  EXPECT_EQ(record_->text(), "new");
  EXPECT_EQ(fake::GetCounters().loads, 1);
}

TEST_F(SpeakTest, C25InterruptWakesAPushThatWaitsForRoomAndDropsItsText) {
  fake::AllowFrames(0);
  Play();
  std::atomic<int> pushed = 0;
  std::atomic<bool> stop = false;
  std::thread upstream([&] {
    while (!stop) {
      EXPECT_EQ(feeder_->Push("x"), GST_FLOW_OK) << "an interrupt does not stop upstream";
      ++pushed;
    }
  });
  ASSERT_TRUE(testing::WaitFor([&] { return UpstreamWaits(src()); }));
  stop = true;
  Interrupt(src());
  upstream.join();
  EXPECT_EQ(GetStat(src(), "queued-utterances"), 0U);
  fake::AllowFrames(-1);
  Speak(src(), "y");
  feeder_->End();
  ASSERT_NE(pipeline_->Wait(GST_MESSAGE_EOS), nullptr);
  EXPECT_EQ(record_->text(), "y");
}

TEST_F(SpeakTest, C25InterruptFromTwoThreadsAtOnce) {
  fake::Script script = fake::DefaultScript();
  script.frame_time = std::chrono::milliseconds(1);
  fake::Reset(script);
  Play();
  std::atomic<bool> stop = false;
  std::atomic<int> interrupts = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] {
      while (!stop) {
        Interrupt(src());
        ++interrupts;
        std::this_thread::sleep_for(std::chrono::microseconds(700));
      }
    });
  }
  std::map<guint64, int> accepted;
  for (int i = 0; i < 200; ++i) {
    const guint64 id = Speak(src(), "abcdef");
    if (id != 0) accepted[id] = 0;
    std::this_thread::sleep_for(std::chrono::microseconds(i * 20));
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(interrupts, 2);
  Interrupt(src());
  const guint64 last = Speak(src(), "xyz");
  accepted[last] = 0;
  // Every accepted utterance has one "finished" message, after its "started" if there was one, and in order.
  guint64 open = 0;
  guint64 previous = 0;
  for (guint64 id = 0; id != last;) {
    const auto message = pipeline_->Wait(GST_MESSAGE_ELEMENT | GST_MESSAGE_ERROR);
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
  const std::string text = record_->text();
  EXPECT_EQ(text.substr(text.size() - 3), "xyz");
}

TEST_F(SpeakTest, C25InterruptFromASyncMessageHandler) {
  const Owned<GstObject> bus(GST_OBJECT(gst_element_get_bus(pipeline_->get())));
  gst_bus_set_sync_handler(
      GST_BUS(bus.get()),
      [](GstBus*, GstMessage* message, gpointer element) {
        if (gst_message_has_name(message, "qtts-utterance-started")) Interrupt(static_cast<GstElement*>(element));
        return GST_BUS_PASS;
      },
      src(), nullptr);
  Play();
  for (int i = 0; i < 20; ++i) {
    Speak(src(), "abc");
    const GstStructure* finished = WaitForFinish();
    ASSERT_NE(finished, nullptr);
    EXPECT_STREQ(gst_structure_get_string(finished, "reason"), "interrupted");
  }
  EXPECT_LE(record_->buffer_count(), 20U) << "one frame each at most";
  gst_bus_set_sync_handler(GST_BUS(bus.get()), nullptr, nullptr, nullptr);
}

// Blocks the thread `held` in the handler of its first message, and records the thread of each message.
class HeldReporter {
 public:
  explicit HeldReporter(const Pipeline& pipeline) : bus_(gst_element_get_bus(pipeline.get())) {
    gst_bus_set_sync_handler(bus_, OnMessage, this, nullptr);
  }
  ~HeldReporter() {
    Release();
    gst_bus_set_sync_handler(bus_, nullptr, nullptr, nullptr);
    gst_object_unref(bus_);
  }
  HeldReporter(const HeldReporter&) = delete;
  HeldReporter& operator=(const HeldReporter&) = delete;

  void Hold(std::thread::id thread) { held_ = thread; }
  void Release() { released_ = true; }
  bool holds() const { return holds_; }
  int on_held_thread() const { return on_held_thread_; }

 private:
  static GstBusSyncReply OnMessage(GstBus* /*bus*/, GstMessage* message, gpointer user_data) {
    auto* self = static_cast<HeldReporter*>(user_data);
    if (GST_MESSAGE_TYPE(message) == GST_MESSAGE_ELEMENT && std::this_thread::get_id() == self->held_.load()) {
      ++self->on_held_thread_;
      self->holds_ = true;
      EXPECT_TRUE(testing::WaitFor([self] { return self->released_.load(); }));
    }
    return GST_BUS_PASS;
  }

  GstBus* bus_;
  std::atomic<std::thread::id> held_ = std::thread::id();
  std::atomic<bool> released_ = false;
  std::atomic<bool> holds_ = false;
  std::atomic<int> on_held_thread_ = 0;
};

TEST_F(SpeakTest, C25WhoeverIsHeldByAHandlerHoldsUpNobodyAndReportsForNobody) {
  fake::AllowFrames(1);
  Play();
  const guint64 first = Speak(src(), "abc");
  ASSERT_TRUE(testing::WaitFor([&] { return record_->buffer_count() == 1; }));
  HeldReporter reporter(*pipeline_);
  std::thread interrupter([&] {
    reporter.Hold(std::this_thread::get_id());
    EXPECT_EQ(Interrupt(src()), 1U);
  });
  ASSERT_TRUE(testing::WaitFor([&] { return reporter.holds(); }));
  // Speech and the interrupting threads continue.
  const guint64 second = Speak(src(), "a b c d e f g h i j k l m n o p q r s t u v w x y z");
  fake::AllowFrames(20);
  ASSERT_TRUE(testing::WaitFor([&] { return record_->buffer_count() == 21; }));
  EXPECT_EQ(Interrupt(src()), 20U);
  reporter.Release();
  interrupter.join();
  EXPECT_EQ(reporter.on_held_thread(), 1) << "its own";
  // In order, on any thread.
  std::vector<std::string> seen;
  while (seen.empty() || seen.back() != "finished " + std::to_string(second)) {
    const auto message = pipeline_->Wait(GST_MESSAGE_ELEMENT);
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

TEST_F(SpeakTest, TheEndOfTheStreamComesAfterAllReports) {
  fake::AllowFrames(1);
  Play();
  Speak(src(), "abc");
  ASSERT_TRUE(testing::WaitFor([&] { return record_->buffer_count() == 1; }));
  HeldReporter reporter(*pipeline_);
  std::thread interrupter([&] {
    reporter.Hold(std::this_thread::get_id());
    Interrupt(src());
  });
  ASSERT_TRUE(testing::WaitFor([&] { return reporter.holds(); }));
  const guint64 last = Speak(src(), "def");
  feeder_->End();
  fake::AllowFrames(-1);
  ASSERT_TRUE(testing::WaitFor([&] { return record_->buffer_count() == 4; }));
  g_usleep(20000);
  EXPECT_TRUE(record_->events().empty() || record_->events().back() != GST_EVENT_EOS);
  reporter.Release();
  interrupter.join();
  bool finished = false;
  for (;;) {
    const auto message = pipeline_->Wait(GST_MESSAGE_ELEMENT | GST_MESSAGE_EOS);
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
  Speak(src(), "abc");
  ASSERT_TRUE(testing::WaitFor([&] { return record_->buffer_count() == 1; }));
  const guint64 second = Speak(src(), "never");
  feeder_->Push("never");
  g_signal_emit_by_name(src(), "clear-queue");
  const GstStructure* finished = WaitForFinish();
  ASSERT_NE(finished, nullptr);
  EXPECT_EQ(GetField(finished, "id"), second);
  EXPECT_EQ(GetStat(src(), "dropped"), 2U);
  EXPECT_EQ(GetString(src(), "current-text"), "abc");
  fake::AllowFrames(-1);
  Speak(src(), "def");
  feeder_->End();
  ASSERT_NE(pipeline_->Wait(GST_MESSAGE_EOS), nullptr);
  EXPECT_EQ(record_->text(), "abcdef");
  EXPECT_EQ(GetString(src(), "current-text"), "");
}

// --- messages

TEST_F(SpeakTest, MessagesTellStartWordsAndEnd) {
  Play();
  Speak(src(), "One, two \xC3\xBC\xC3\xBC!", "params, seed=5");
  const GstStructure* finished = WaitForFinish();
  ASSERT_NE(finished, nullptr);
  EXPECT_STREQ(gst_structure_get_string(finished, "reason"), "complete");
  EXPECT_EQ(GetField(finished, "samples"), 12U * 1920);
  EXPECT_EQ(GetField(finished, "text-chars"), 12U);
  EXPECT_EQ(GetField(finished, "text-spoken-chars"), 12U);
  EXPECT_FALSE(GetFlag(finished, "estimated"));

  ASSERT_EQ(messages_.size(), 5U);
  const GstStructure* started = gst_message_get_structure(messages_[0].get());
  EXPECT_TRUE(gst_structure_has_name(started, "qtts-utterance-started"));
  EXPECT_STREQ(gst_structure_get_string(started, "text"), "One, two \xC3\xBC\xC3\xBC!");
  EXPECT_EQ(GetField(started, "running-time"), 0U);
  EXPECT_GT(GetField(started, "first-frame-latency"), 0U);
  gint64 seed = 0;
  EXPECT_TRUE(gst_structure_get_int64(started, "seed", &seed));
  EXPECT_EQ(seed, 5);
  const guint64 offsets[] = {0, 5, 9};
  const guint64 lengths[] = {3, 3, 2};
  guint64 time = 0;
  for (size_t i = 0; i < 3; ++i) {
    const GstStructure* word = gst_message_get_structure(messages_[i + 1].get());
    EXPECT_TRUE(gst_structure_has_name(word, "qtts-text-progress"));
    EXPECT_EQ(GetField(word, "id"), 1U);
    EXPECT_EQ(GetField(word, "offset-chars"), offsets[i]);
    EXPECT_EQ(GetField(word, "length-chars"), lengths[i]);
    EXPECT_GE(GetField(word, "running-time"), time);
    EXPECT_TRUE(GetFlag(word, "estimated"));
    time = GetField(word, "running-time");
  }
  EXPECT_GT(time, 0U);

  Speak(src(), "more");
  started = WaitFor("qtts-utterance-started");
  ASSERT_NE(started, nullptr);
  EXPECT_EQ(GetField(started, "running-time"), 12 * 80 * GST_MSECOND);
}

TEST_F(SpeakTest, TextIsPreparedAndPositionsAreOfWhatIsWritten) {
  Play();
  Speak(src(), "It costs $5, now.", "params, normalize=spoken");
  const GstStructure* finished = WaitForFinish();
  ASSERT_NE(finished, nullptr);
  EXPECT_EQ(record_->text(), "It costs five dollars, now.");
  EXPECT_EQ(GetField(finished, "text-chars"), 17U);
  EXPECT_EQ(GetField(finished, "text-spoken-chars"), 17U);
  std::vector<std::pair<guint64, guint64>> words;
  for (const auto& message : messages_) {
    const GstStructure* word = gst_message_get_structure(message.get());
    if (!gst_structure_has_name(word, "qtts-text-progress")) continue;
    words.emplace_back(GetField(word, "offset-chars"), GetField(word, "length-chars"));
  }
  EXPECT_EQ(words, (std::vector<std::pair<guint64, guint64>>{{0, 2}, {3, 5}, {9, 2}, {13, 3}}));
}

TEST_F(SpeakTest, TextIsAsItIsWrittenUnlessItIsAskedFor) {
  Play();
  Speak(src(), "It costs $5.", "params, normalize=none");
  Speak(src(), "It costs $5.");
  feeder_->End();
  ASSERT_NE(pipeline_->Wait(GST_MESSAGE_EOS), nullptr);
  EXPECT_EQ(record_->text(), "It costs $5.It costs $5.") << "this checkpoint has no description";
}

TEST_F(SpeakTest, ALexiconSaysWhatIsSpoken) {
  gchar* folder = g_dir_make_tmp("qttssrc-test-XXXXXX", nullptr);
  const std::string file = std::string(folder) + "/words.tsv";
  ASSERT_TRUE(g_file_set_contents(file.c_str(), "nginx\tengine x\n", -1, nullptr));
  Play();
  g_object_set(src(), "lexicon", file.c_str(), nullptr);
  EXPECT_NE(Speak(src(), "Start nginx."), 0U);
  ASSERT_NE(WaitForFinish(), nullptr);
  EXPECT_EQ(record_->text(), "Start engine x.");
  g_remove(file.c_str());
  g_rmdir(folder);
  g_free(folder);
  EXPECT_NE(Speak(src(), "Start nginx.", "params, lexicon=/nonexistent/words.tsv"), 0U);
  const GstStructure* refused = WaitForFinish();
  ASSERT_NE(refused, nullptr);
  EXPECT_STREQ(gst_structure_get_string(refused, "reason"), "error");
}

// By the estimate a syllable sign and a pause last far longer than the 80 ms that the engine here takes for a
// character.
TEST_F(SpeakTest, WordsThatTheEstimateDidNotReachBeginWithTheLastFrame) {
  Play();
  Speak(src(), "\u5929\uFF0C\u5730\uFF0C\u4EBA\uFF0C\u5C71\uFF0C\u6C34");
  ASSERT_NE(WaitForFinish(), nullptr);
  std::vector<guint64> offsets;
  guint64 time = 0;
  for (const auto& message : messages_) {
    const GstStructure* word = gst_message_get_structure(message.get());
    if (!gst_structure_has_name(word, "qtts-text-progress")) continue;
    offsets.push_back(GetField(word, "offset-chars"));
    time = GetField(word, "running-time");
  }
  EXPECT_EQ(offsets, (std::vector<guint64>{0, 2, 4, 6, 8}));
  EXPECT_EQ(time, 8 * 80 * GST_MSECOND);
}

TEST_F(SpeakTest, TheEndTellsWhy) {
  fake::Script script = fake::DefaultScript();
  script.fail_at_frame = 1;
  script.failure = Status::Internal("It failed.");
  script.failure_match = "fails";
  script.start = Status::ResourceExhausted("Too long.");
  script.start_match = "refused";
  fake::Reset(script);
  Play();
  feeder_->Push("refused");
  feeder_->Push("fails");
  Speak(src(), "abcdef", "params, max-duration=160000000");
  const struct {
    const char* reason;
    guint64 frames;
  } expected[] = {{"error", 0}, {"error", 1}, {"max-duration", 2}};
  for (const auto& e : expected) {
    const GstStructure* finished = WaitForFinish();
    ASSERT_NE(finished, nullptr);
    EXPECT_STREQ(gst_structure_get_string(finished, "reason"), e.reason);
    EXPECT_EQ(GetField(finished, "frames"), e.frames);
  }
}

// --- more utterances than the engine speaks at once

// If other elements use all slots, an utterance waits for max-wait at most.
TEST_F(SpeakTest, AnUtteranceWaitsItsTurn) {
  fake::Script script = fake::DefaultScript();
  script.slots = 1;
  fake::Reset(script);
  fake::AllowFrames(0);
  Pipeline other("qttssrc name=src text=other ! fakesink async=false");
  other.Begin(GST_STATE_PLAYING);
  ASSERT_TRUE(testing::WaitFor([&] { return GetStat(other.src(), "slots") == 1; }));
  ASSERT_TRUE(testing::WaitFor([&] { return GetStat(other.src(), "free-slots") == 0; }));
  Play();
  guint64 id = 0;
  const std::pair<const char*, const char*> cases[] = {{"params, max-wait=0", "All slots are taken."},
                                                       {"params, max-wait=30000000", "The device has no time."}};
  for (const auto& [params, reason] : cases) {
    SCOPED_TRACE(params);
    script.busy = reason;
    fake::SetScript(script);
    EXPECT_EQ(Speak(src(), "in vain", params), ++id);
    const GstStructure* finished = WaitForFinish();
    ASSERT_NE(finished, nullptr);
    EXPECT_EQ(GetField(finished, "id"), id);
    EXPECT_STREQ(gst_structure_get_string(finished, "reason"), "busy");
    EXPECT_EQ(GetField(finished, "frames"), 0U);
    const auto warning = pipeline_->Wait(GST_MESSAGE_WARNING);
    ASSERT_NE(warning, nullptr);
    const Problem problem = ParseProblem(warning.get());
    EXPECT_EQ(problem.domain, GST_RESOURCE_ERROR);
    EXPECT_EQ(problem.code, GST_RESOURCE_ERROR_BUSY);
    EXPECT_EQ(problem.text, reason);
  }
  // An utterance whose wait has ended leaves the queue.
  EXPECT_EQ(Speak(src(), "interrupted"), ++id);
  ASSERT_TRUE(testing::WaitFor([&] { return GetStat(src(), "waiting-utterances") == 1; }));
  EXPECT_EQ(GetStat(other.src(), "waiting-utterances"), 1U);
  Interrupt(src());
  ASSERT_TRUE(testing::WaitFor([&] { return GetStat(src(), "waiting-utterances") == 0; }));
  ASSERT_NE(WaitForFinish(), nullptr);

  EXPECT_EQ(Speak(src(), "patient"), ++id);
  ASSERT_TRUE(testing::WaitFor([&] { return GetStat(src(), "waiting-utterances") == 1; }));
  fake::AllowFrames(-1);
  const GstStructure* finished = WaitForFinish();
  ASSERT_NE(finished, nullptr);
  EXPECT_STREQ(gst_structure_get_string(finished, "reason"), "complete");
  EXPECT_EQ(record_->text(), "patient");
  EXPECT_TRUE(testing::WaitFor([&] { return GetStat(src(), "free-slots") == 1; }));
}

TEST_F(SpeakTest, StatsHaveTheMemoryOfAGpu) {
  fake::Script script = fake::DefaultScript();
  script.occupancy.parked = 2;
  script.occupancy.pages = 100;
  script.occupancy.device_bytes = 12345;
  fake::Reset(script);
  Play();
  ASSERT_TRUE(testing::WaitFor([&] { return GetStat(src(), "pages") == 100; }));
  EXPECT_EQ(GetStat(src(), "parked-utterances"), 2U);
  EXPECT_EQ(GetStat(src(), "device-memory"), 12345U);
}

// 65 elements share an engine for 64: all of them speak.
TEST_F(SpeakTest, OneMoreElementThanSlots) {
  fake::AllowFrames(0);
  constexpr size_t kElements = 65;
  std::vector<std::unique_ptr<Pipeline>> pipelines;
  for (size_t i = 0; i < kElements; ++i) {
    pipelines.push_back(std::make_unique<Pipeline>("qttssrc name=src text=abc ! fakesink async=false"));
    pipelines.back()->Record();
    pipelines.back()->Begin(GST_STATE_PLAYING);
  }
  GstElement* const any = pipelines.front()->src();
  ASSERT_TRUE(testing::WaitFor([&] { return GetStat(any, "waiting-utterances") == 1; }));
  EXPECT_EQ(GetStat(any, "slots"), 64U);
  EXPECT_EQ(GetStat(any, "free-slots"), 0U);
  fake::AllowFrames(-1);
  for (const auto& pipeline : pipelines) {
    ASSERT_NE(pipeline->Wait(GST_MESSAGE_EOS), nullptr);
    EXPECT_EQ(pipeline->record().text(), "abc");
  }
}

TEST_F(SpeakTest, FlushesAndStopsFinishWhatTheyDrop) {
  for (const bool flush : {true, false}) {
    fake::AllowFrames(1);
    record_->Clear();
    Play();
    Speak(src(), "abc");
    Speak(src(), "def");
    ASSERT_TRUE(testing::WaitFor([&] { return record_->buffer_count() == 1; }));
    if (flush) {
      feeder_->Send(gst_event_new_flush_start());
      feeder_->Send(gst_event_new_flush_stop(TRUE));
    } else {
      pipeline_->Set(GST_STATE_READY);
    }
    for (const guint64 frames : {1, 0}) {
      const GstStructure* finished = WaitForFinish();
      ASSERT_NE(finished, nullptr);
      EXPECT_STREQ(gst_structure_get_string(finished, "reason"), "interrupted");
      EXPECT_EQ(GetField(finished, "frames"), frames);
    }
    pipeline_->Set(GST_STATE_READY);
    EXPECT_TRUE(pipeline_->Pending(GST_MESSAGE_ELEMENT).empty());
  }
}

TEST_F(SpeakTest, StatsTellLatenciesAndLevels) {
  fake::Script script = fake::DefaultScript();
  script.frame_time = std::chrono::milliseconds(20);  // slow frames: the element has to wait for them
  fake::Reset(script);
  fake::AllowFrames(0);
  Play();
  EXPECT_EQ(GetStat(src(), "first-frame-latency-max"), GST_CLOCK_TIME_NONE);
  for (int i = 0; i < 3; ++i) Speak(src(), "ab\xC3\xBC");
  ASSERT_TRUE(testing::WaitFor([&] { return GetStat(src(), "queued-utterances") == 2; }));
  EXPECT_EQ(GetStat(src(), "queued-chars"), 6U);
  fake::AllowFrames(-1);
  feeder_->End();
  ASSERT_NE(pipeline_->Wait(GST_MESSAGE_EOS), nullptr);
  EXPECT_EQ(GetStat(src(), "queued-utterances"), 0U);
  EXPECT_EQ(GetStat(src(), "queued-chars"), 0U);
  EXPECT_EQ(GetStat(src(), "utterances"), 3U);
  EXPECT_LE(GetStat(src(), "first-frame-latency-mean"), GetStat(src(), "first-frame-latency-max"));
  EXPECT_LE(GetStat(src(), "first-frame-latency"), GetStat(src(), "first-frame-latency-max"));
  GstStructure* stats = nullptr;
  g_object_get(src(), "stats", &stats, nullptr);
  double factor = 0;
  EXPECT_TRUE(gst_structure_get_double(stats, "real-time-factor", &factor));
  EXPECT_GT(factor, 0);
  gst_structure_free(stats);
}

}  // namespace
}  // namespace qtts::testing
