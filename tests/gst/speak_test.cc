// SPDX-License-Identifier: LGPL-2.1-or-later
// Speaking, and its messages.
#include <glib/gstdio.h>

#include <chrono>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "speak_fixture.h"

namespace qtts::testing {
namespace {

// --- speak

// The streaming thread then polls for the first frame for a while.
TEST_F(SpeakTest, ADeviceBesideTheHostSpeaksLikeAnother) {
  fake::SetScript({.beside_host = true});
  Play();
  EXPECT_EQ(speak_.Say("one"), 1U);
  speak_.Finish();

  fake::AllowFrames(0);
  EXPECT_EQ(speak_.Say("never"), 2U);
  ASSERT_TRUE(WaitFor([] { return fake::Requests().size() == 2; }));
  EXPECT_EQ(speak_.Interrupt(), 0U);
  EXPECT_EQ(speak_.Finish().reason, "interrupted");

  // Longer than the polling.
  EXPECT_EQ(speak_.Say("two"), 3U);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  fake::AllowFrames(-1);
  speak_.Finish();
  EXPECT_EQ(speak_.text(), "onetwo");

  // Waiting for a frame does not delay a stop.
  fake::AllowFrames(0);
  EXPECT_EQ(speak_.Say("stopped"), 4U);
  ASSERT_TRUE(WaitFor([] { return fake::Requests().size() == 4; }));
  speak_.Set(GST_STATE_NULL);
}

TEST_F(SpeakTest, QueuesInOrderAndNumbersUtterances) {
  Play();
  EXPECT_EQ(speak_.Say("one"), 1U);
  EXPECT_EQ(speak_.Say("two"), 2U);
  speak_.Push("three");
  EXPECT_EQ(speak_.Say("four"), 4U);
  speak_.End().Expect("onetwothreefour");
}

TEST_F(SpeakTest, ParamsHoldForOneUtterance) {
  g_object_set(src(), "speaker", "ann", "top-k", 5, nullptr);
  Play();
  speak_.Say("a",
             "params, speaker=bob, language=german, instruct=calm, layout=streaming, seed=7, temperature=0.5, top-k=3, "
             "top-p=1, repetition-penalty=(float)1.5, subtalker-temperature=0, subtalker-top-k=(gint64)2, "
             "subtalker-top-p=0.25, max-duration=160000000");
  speak_.Say("b");
  speak_.End().ExpectEnd();
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
    EXPECT_EQ(speak_.Say("x", c.params), 0U);
    const auto warnings = speak_.Pending(GST_MESSAGE_WARNING);
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
  speak_.Pending(GST_MESSAGE_WARNING);
  EXPECT_NE(speak_.Say("x"), 0U);
  EXPECT_NE(speak_.Say("y", "params, speaker=ANN, language=de-AT, top-p=1e-30, temperature=1e-300"), 0U);
  speak_.End().ExpectEnd();
  ASSERT_EQ(fake::Requests().size(), 2U);
  EXPECT_GT(fake::Requests()[1].settings.talker.top_p, 0);
  EXPECT_GT(fake::Requests()[1].settings.talker.temperature, 0) << "0 is what the engine would refuse";
}

// Wrong settings of one text that only the engine can detect make that text fail, not the stream.
// Check: 33
TEST_F(SpeakTest, ParamsThatTheEngineRefusesCostTheirText) {
  fake::Script script;
  script.start_match = "bad";
  for (const StatusCode code :
       {StatusCode::kInvalidArgument, StatusCode::kNotFound, StatusCode::kUnreadable, StatusCode::kCorruptModel,
        StatusCode::kUnsupported, StatusCode::kResourceExhausted, StatusCode::kInternal}) {
    SCOPED_TRACE(StatusCodeName(code));
    script.start = Status(code, "It will not do.");
    fake::Reset(script);
    speak_.record().Clear();
    Play();
    speak_.Say("good");
    const guint64 refused = speak_.Say("bad", "params, instruct=loudly");
    ASSERT_NE(refused, 0U);
    speak_.Say("well");
    speak_.Finish();
    Finished finished = speak_.Finish();
    EXPECT_EQ(finished.id, refused);
    EXPECT_EQ(finished.reason, "error");
    EXPECT_EQ(finished.frames, 0U);
    const auto warning = speak_.Wait(GST_MESSAGE_WARNING | GST_MESSAGE_ERROR);
    ASSERT_NE(warning, nullptr);
    EXPECT_EQ(GST_MESSAGE_TYPE(warning.get()), GST_MESSAGE_WARNING);
    EXPECT_EQ(ParseProblem(warning.get()).text, "It will not do.");
    finished = speak_.Finish();
    EXPECT_EQ(finished.reason, "complete");
    speak_.End().Expect("goodwell");
    speak_.Set(GST_STATE_READY);
    EXPECT_TRUE(speak_.Pending(GST_MESSAGE_ERROR).empty());
  }
}

TEST_F(SpeakTest, IsRefusedWhereNothingCanBeSpoken) {
  EXPECT_EQ(speak_.Say("null"), 0U);
  speak_.Set(GST_STATE_READY);
  EXPECT_EQ(speak_.Say("ready"), 0U);
  Play();
  EXPECT_EQ(speak_.Say(nullptr), 0U);
  EXPECT_EQ(speak_.Say(""), 0U);
  EXPECT_EQ(speak_.Say(" \xE3\x80\x80\n"), 0U);
  speak_.Send(gst_event_new_flush_start());
  EXPECT_EQ(speak_.Say("flushing"), 0U);
  speak_.Send(gst_event_new_flush_stop(TRUE));
  EXPECT_NE(speak_.Say("spoken"), 0U);
  speak_.Open().End().ExpectEnd();
  EXPECT_EQ(speak_.Say("late"), 0U);
  EXPECT_EQ(speak_.text(), "spoken");
}

TEST_F(SpeakTest, InvalidBytesAreReplaced) {
  Play();
  EXPECT_NE(speak_.Say("a\xFF"
                       "b\xE2\x82"),
            0U);
  speak_.End().ExpectEnd();
  EXPECT_EQ(speak_.text(),
            "a\xEF\xBF\xBD"
            "b\xEF\xBF\xBD");
}

// --- nothing to say

// Check: 45
TEST_F(SpeakTest, WhereThereIsNothingToSayTheModelIsNotAsked) {
  Play();
  const std::vector<std::string> texts = {"!!!???", "+++---", "\xE2\x80\x8B\xE2\x80\x8D", "\xF0\x9F\x98\x80"};
  for (const std::string& text : texts) {
    SCOPED_TRACE(text);
    const guint64 id = speak_.Say(text.c_str());
    EXPECT_NE(id, 0U) << "it was accepted";
    const Finished finished = speak_.Finish();
    EXPECT_EQ(finished.id, id);
    EXPECT_EQ(finished.reason, "nothing-to-say");
    EXPECT_EQ(finished.frames, 0U);
    EXPECT_EQ(finished.samples, 0U);
    EXPECT_EQ(finished.text_chars, static_cast<guint64>(g_utf8_strlen(text.c_str(), -1)));
    EXPECT_EQ(finished.text_spoken_chars, 0U);
    EXPECT_FALSE(finished.estimated);
  }
  EXPECT_NE(speak_.Say("so!"), 0U);
  speak_.End().Expect("so!");
  EXPECT_EQ(fake::Requests().size(), 1U);
  EXPECT_EQ(GetStat(src(), "utterances"), texts.size() + 1);
}

// Check: 45
TEST_F(SpeakTest, SpeakAnythingGivesTheModelEverything) {
  Play();
  EXPECT_NE(speak_.Say("?!", "params, speak-anything=true"), 0U);
  const Finished finished = speak_.Finish();
  EXPECT_EQ(finished.reason, "complete");
  EXPECT_EQ(finished.frames, 2U);
  g_object_set(src(), "speak-anything", TRUE, nullptr);
  speak_.Push("+-").End().Expect("?!+-");
}

// --- qtts/set-voice

TEST_F(SpeakTest, SetVoiceHoldsForTheTextAfterIt) {
  fake::AllowFrames(0);
  g_object_set(src(), "speaker", "ann", nullptr);
  Play();
  speak_.Push("a").Send("qtts/set-voice, speaker=bob, seed=3").Push("b").Push("c");
  speak_.Say("d");
  speak_.Send("qtts/set-voice, language=german").Push("e").Send("qtts/set-voice").Push("f");
  fake::AllowFrames(-1);
  speak_.End().ExpectEnd();
  std::vector<std::string> voices;
  for (const Request& request : fake::Requests()) voices.push_back(request.text + request.speaker + request.language);
  EXPECT_EQ(voices, (std::vector<std::string>{"aann", "bbob", "cbob", "dann", "eanngerman", "fann"}));
  EXPECT_EQ(fake::Requests()[1].seed, 3U);
  for (const GstEventType event : speak_.record().events()) EXPECT_NE(event, GST_EVENT_CUSTOM_DOWNSTREAM);
}

// The event applies to the texts of its stream.
// Check: 41
TEST_F(SpeakTest, SetVoiceEndsWithItsStream) {
  const struct {
    const char* what;
    std::function<void()> happens;
    const char* speaker;
  } cases[] = {
      {"an interrupt", [&] { speak_.Interrupt(); }, "bob"},
      {"a flush of the pad",
       [&] {
         speak_.Flush();
         GstSegment segment;
         gst_segment_init(&segment, GST_FORMAT_TIME);
         speak_.feeder().Send(gst_event_new_segment(&segment));
       },
       ""},
      {"a flush of the element",
       [&] {
         gst_element_send_event(src(), gst_event_new_flush_start());
         gst_element_send_event(src(), gst_event_new_flush_stop(TRUE));
       },
       ""},
      {"a new stream", [&] { speak_.Open(); }, ""},
      {"a new pad",
       [&] {
         speak_.DropFeeder();
         speak_.Open();
       },
       ""},
      {"READY",
       [&] {
         speak_.Set(GST_STATE_READY);
         Play();
       },
       ""},
      {"NULL",
       [&] {
         speak_.Set(GST_STATE_NULL);
         Play();
       },
       ""},
  };
  gst_util_set_object_arg(G_OBJECT(src()), "idle-mode", "wait");  // used if there is no pad
  for (const auto& c : cases) {
    SCOPED_TRACE(c.what);
    Play();
    speak_.Send("qtts/set-voice, speaker=bob").Push("before").AwaitStat("utterances", 1);
    EXPECT_EQ(fake::Requests().back().speaker, "bob");
    c.happens();
    const size_t requests = fake::Requests().size();
    speak_.Push("after");
    ASSERT_TRUE(WaitFor([&] { return fake::Requests().size() > requests; }));
    EXPECT_EQ(fake::Requests().back().speaker, c.speaker);
    speak_.Set(GST_STATE_READY);
  }
}

TEST_F(SpeakTest, SetVoiceThatIsWrongIsRefusedWithAWarning) {
  Play();
  speak_.Send("qtts/set-voice, speaker=bob");
  EXPECT_FALSE(speak_.feeder().Send(NewEvent("qtts/set-voice, voice=ann")));
  const auto warnings = speak_.Pending(GST_MESSAGE_WARNING);
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_NE(ParseProblem(warnings[0].get()).text.find("\"voice\" is unknown"), std::string::npos);
  for (const char* event : {"qtts/set-voice, speaker=nobody", "qtts/set-voice, repetition-penalty=0",
                            "qtts/set-voice, voice-file=some.qvoice", "qtts/set-voice, reference-text=Hello"}) {
    EXPECT_FALSE(speak_.feeder().Send(NewEvent(event))) << event;
    EXPECT_EQ(speak_.Pending(GST_MESSAGE_WARNING).size(), 1U) << event;
  }
  speak_.Push("a").End().ExpectEnd();
  EXPECT_EQ(fake::Requests()[0].speaker, "bob") << "as it was";
}

// Check: 33
TEST_F(SpeakTest, SetVoiceThatTheEngineRefusesCostsTheTextsItHoldsFor) {
  fake::Reset({.start = Status::InvalidArgument("It will not do."), .start_match = "bad"});
  Play();
  speak_.Push("good").Send("qtts/set-voice, instruct=loudly").Push("bad").Push("bad too").Send("qtts/set-voice");
  speak_.Push("well").End();
  for (int i = 0; i < 2; ++i) {
    const auto warning = speak_.Wait(GST_MESSAGE_WARNING | GST_MESSAGE_ERROR);
    ASSERT_NE(warning, nullptr);
    EXPECT_EQ(GST_MESSAGE_TYPE(warning.get()), GST_MESSAGE_WARNING);
  }
  speak_.Expect("goodwell");
}

// Check: 33
TEST_F(SpeakTest, SetVoiceWithALayoutThatCannotGrowIsRefusedWhereTextGrows) {
  gst_util_set_object_arg(G_OBJECT(src()), "segmentation", "stream");
  Play();
  EXPECT_FALSE(speak_.feeder().Send(NewEvent("qtts/set-voice, layout=non-streaming")));
  EXPECT_EQ(speak_.Pending(GST_MESSAGE_WARNING).size(), 1U);
}

// --- messages

TEST_F(SpeakTest, MessagesTellStartWordsAndEnd) {
  Play();
  speak_.Say("One, two \xC3\xBC\xC3\xBC!", "params, seed=5");
  const Finished finished = speak_.Finish();
  EXPECT_EQ(finished.reason, "complete");
  EXPECT_EQ(finished.samples, 12U * 1920);
  EXPECT_EQ(finished.text_chars, 12U);
  EXPECT_EQ(finished.text_spoken_chars, 12U);
  EXPECT_FALSE(finished.estimated);

  ASSERT_EQ(speak_.messages().size(), 5U);
  const GstStructure* started = gst_message_get_structure(speak_.messages()[0].get());
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
    const GstStructure* word = gst_message_get_structure(speak_.messages()[i + 1].get());
    EXPECT_TRUE(gst_structure_has_name(word, "qtts-text-progress"));
    EXPECT_EQ(GetField(word, "id"), 1U);
    EXPECT_EQ(GetField(word, "offset-chars"), offsets[i]);
    EXPECT_EQ(GetField(word, "length-chars"), lengths[i]);
    EXPECT_GE(GetField(word, "running-time"), time);
    EXPECT_TRUE(GetFlag(word, "estimated"));
    time = GetField(word, "running-time");
  }
  EXPECT_GT(time, 0U);

  speak_.Say("more");
  started = speak_.NextMessage("qtts-utterance-started");
  ASSERT_NE(started, nullptr);
  EXPECT_EQ(GetField(started, "running-time"), 12 * 80 * GST_MSECOND);
}

TEST_F(SpeakTest, TextIsPreparedAndPositionsAreOfWhatIsWritten) {
  Play();
  speak_.Say("It costs $5, now.", "params, normalize=spoken");
  const Finished finished = speak_.Finish();
  EXPECT_EQ(speak_.text(), "It costs five dollars, now.");
  EXPECT_EQ(finished.text_chars, 17U);
  EXPECT_EQ(finished.text_spoken_chars, 17U);
  std::vector<std::pair<guint64, guint64>> words;
  for (const auto& message : speak_.messages()) {
    const GstStructure* word = gst_message_get_structure(message.get());
    if (!gst_structure_has_name(word, "qtts-text-progress")) continue;
    words.emplace_back(GetField(word, "offset-chars"), GetField(word, "length-chars"));
  }
  EXPECT_EQ(words, (std::vector<std::pair<guint64, guint64>>{{0, 2}, {3, 5}, {9, 2}, {13, 3}}));
}

TEST_F(SpeakTest, TextIsAsItIsWrittenUnlessItIsAskedFor) {
  Play();
  speak_.Say("It costs $5.", "params, normalize=none");
  speak_.Say("It costs $5.");
  speak_.End().ExpectEnd();
  EXPECT_EQ(speak_.text(), "It costs $5.It costs $5.") << "this checkpoint has no description";
}

TEST_F(SpeakTest, ALexiconSaysWhatIsSpoken) {
  gchar* folder = g_dir_make_tmp("qttssrc-test-XXXXXX", nullptr);
  const std::string file = std::string(folder) + "/words.tsv";
  ASSERT_TRUE(g_file_set_contents(file.c_str(), "nginx\tengine x\n", -1, nullptr));
  Play();
  g_object_set(src(), "lexicon", file.c_str(), nullptr);
  EXPECT_NE(speak_.Say("Start nginx."), 0U);
  speak_.Finish();
  EXPECT_EQ(speak_.text(), "Start engine x.");
  g_remove(file.c_str());
  g_rmdir(folder);
  g_free(folder);
  EXPECT_NE(speak_.Say("Start nginx.", "params, lexicon=/nonexistent/words.tsv"), 0U);
  const Finished refused = speak_.Finish();
  EXPECT_EQ(refused.reason, "error");
}

// By the estimate a syllable sign and a pause last far longer than the 80 ms that the engine here takes for a
// character.
TEST_F(SpeakTest, WordsThatTheEstimateDidNotReachBeginWithTheLastFrame) {
  Play();
  speak_.Say("\u5929\uFF0C\u5730\uFF0C\u4EBA\uFF0C\u5C71\uFF0C\u6C34");
  speak_.Finish();
  std::vector<guint64> offsets;
  guint64 time = 0;
  for (const auto& message : speak_.messages()) {
    const GstStructure* word = gst_message_get_structure(message.get());
    if (!gst_structure_has_name(word, "qtts-text-progress")) continue;
    offsets.push_back(GetField(word, "offset-chars"));
    time = GetField(word, "running-time");
  }
  EXPECT_EQ(offsets, (std::vector<guint64>{0, 2, 4, 6, 8}));
  EXPECT_EQ(time, 8 * 80 * GST_MSECOND);
}

TEST_F(SpeakTest, TheEndTellsWhy) {
  fake::Reset({.start = Status::ResourceExhausted("Too long."),
               .start_match = "refused",
               .fail_at_frame = 1,
               .failure = Status::Internal("It failed."),
               .failure_match = "fails"});
  Play();
  speak_.Push("refused").Push("fails");
  speak_.Say("abcdef", "params, max-duration=160000000");
  const struct {
    const char* reason;
    guint64 frames;
  } expected[] = {{"error", 0}, {"error", 1}, {"max-duration", 2}};
  for (const auto& e : expected) {
    const Finished finished = speak_.Finish();
    EXPECT_EQ(finished.reason, e.reason);
    EXPECT_EQ(finished.frames, e.frames);
  }
}

// --- more utterances than the engine speaks at once

// If other elements use all slots, an utterance waits for max-wait at most.
// Check: 36
TEST_F(SpeakTest, AnUtteranceWaitsItsTurn) {
  fake::Script script;
  script.slots = 1;
  fake::Reset(script);
  fake::AllowFrames(0);
  Pipeline other("qttssrc name=src text=other ! fakesink async=false");
  other.Begin(GST_STATE_PLAYING);
  ASSERT_TRUE(WaitFor([&] { return GetStat(other.src(), "slots") == 1; }));
  ASSERT_TRUE(WaitFor([&] { return GetStat(other.src(), "free-slots") == 0; }));
  Play();
  guint64 id = 0;
  const std::pair<const char*, const char*> cases[] = {{"params, max-wait=0", "All slots are taken."},
                                                       {"params, max-wait=30000000", "The device has no time."}};
  for (const auto& [params, reason] : cases) {
    SCOPED_TRACE(params);
    script.busy = reason;
    fake::SetScript(script);
    EXPECT_EQ(speak_.Say("in vain", params), ++id);
    const Finished finished = speak_.Finish();
    EXPECT_EQ(finished.id, id);
    EXPECT_EQ(finished.reason, "busy");
    EXPECT_EQ(finished.frames, 0U);
    const auto warning = speak_.Wait(GST_MESSAGE_WARNING);
    ASSERT_NE(warning, nullptr);
    const Problem problem = ParseProblem(warning.get());
    EXPECT_EQ(problem.domain, GST_RESOURCE_ERROR);
    EXPECT_EQ(problem.code, GST_RESOURCE_ERROR_BUSY);
    EXPECT_EQ(problem.text, reason);
  }
  // An utterance whose wait has ended leaves the queue.
  EXPECT_EQ(speak_.Say("interrupted"), ++id);
  speak_.AwaitStat("waiting-utterances", 1);
  EXPECT_EQ(GetStat(other.src(), "waiting-utterances"), 1U);
  speak_.Interrupt();
  speak_.AwaitStat("waiting-utterances", 0);
  speak_.Finish();

  EXPECT_EQ(speak_.Say("patient"), ++id);
  speak_.AwaitStat("waiting-utterances", 1);
  fake::AllowFrames(-1);
  EXPECT_EQ(speak_.Finish().reason, "complete");
  EXPECT_EQ(speak_.text(), "patient");
  EXPECT_TRUE(WaitFor([&] { return GetStat(src(), "free-slots") == 1; }));
}

TEST_F(SpeakTest, StatsHaveTheMemoryOfAGpu) {
  fake::Script script;
  script.occupancy.parked = 2;
  script.occupancy.pages = 100;
  script.occupancy.device_bytes = 12345;
  fake::Reset(script);
  Play();
  speak_.AwaitStat("pages", 100);
  EXPECT_EQ(GetStat(src(), "parked-utterances"), 2U);
  EXPECT_EQ(GetStat(src(), "device-memory"), 12345U);
}

// 65 elements share an engine for 64: all of them speak.
// Check: 36
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
  ASSERT_TRUE(WaitFor([&] { return GetStat(any, "waiting-utterances") == 1; }));
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
    speak_.record().Clear();
    Play();
    speak_.Say("abc");
    speak_.Say("def");
    speak_.Await(1);
    if (flush) {
      speak_.Flush();
    } else {
      speak_.Set(GST_STATE_READY);
    }
    for (const guint64 frames : {1, 0}) {
      const Finished finished = speak_.Finish();
      EXPECT_EQ(finished.reason, "interrupted");
      EXPECT_EQ(finished.frames, frames);
    }
    speak_.Set(GST_STATE_READY);
    EXPECT_TRUE(speak_.Pending(GST_MESSAGE_ELEMENT).empty());
  }
}

TEST_F(SpeakTest, StatsTellLatenciesAndLevels) {
  fake::Script script;
  script.frame_time = std::chrono::milliseconds(20);  // slow frames: the element has to wait for them
  fake::Reset(script);
  fake::AllowFrames(0);
  Play();
  EXPECT_EQ(GetStat(src(), "first-frame-latency-max"), GST_CLOCK_TIME_NONE);
  for (int i = 0; i < 3; ++i) speak_.Say("ab\xC3\xBC");
  speak_.AwaitStat("queued-utterances", 2);
  EXPECT_EQ(GetStat(src(), "queued-chars"), 6U);
  fake::AllowFrames(-1);
  speak_.End().ExpectEnd();
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
