// SPDX-License-Identifier: LGPL-2.1-or-later
// Every failure is posted once, in the right domain, and the element can be used again.
#include <gst/base/gstpushsrc.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>

#include "support.h"

namespace qtts::testing {
namespace {

struct Case {
  StatusCode code;
  GQuark domain;
  int gst_code;
};

std::vector<Case> AllCases() {
  return {
      {StatusCode::kInvalidArgument, GST_RESOURCE_ERROR, GST_RESOURCE_ERROR_SETTINGS},
      {StatusCode::kNotFound, GST_RESOURCE_ERROR, GST_RESOURCE_ERROR_NOT_FOUND},
      {StatusCode::kUnreadable, GST_RESOURCE_ERROR, GST_RESOURCE_ERROR_OPEN_READ},
      {StatusCode::kCorruptModel, GST_STREAM_ERROR, GST_STREAM_ERROR_FORMAT},
      {StatusCode::kUnsupported, GST_STREAM_ERROR, GST_STREAM_ERROR_NOT_IMPLEMENTED},
      {StatusCode::kResourceExhausted, GST_RESOURCE_ERROR, GST_RESOURCE_ERROR_NO_SPACE_LEFT},
      {StatusCode::kDeviceUnavailable, GST_LIBRARY_ERROR, GST_LIBRARY_ERROR_INIT},
      {StatusCode::kInternal, GST_LIBRARY_ERROR, GST_LIBRARY_ERROR_FAILED},
      {StatusCode::kCancelled, GST_LIBRARY_ERROR, GST_LIBRARY_ERROR_FAILED},
  };
}

class ErrorsTest : public GstTest {
 protected:
  static constexpr char kMessage[] = "It went wrong; do something about it.";

  static void ExpectProblem(GstMessage* message, const Case& expected) {
    ASSERT_NE(message, nullptr);
    const Problem problem = ParseProblem(message);
    EXPECT_EQ(problem.domain, expected.domain) << g_quark_to_string(problem.domain);
    EXPECT_EQ(problem.code, expected.gst_code);
    EXPECT_EQ(problem.text, kMessage);
  }
};

TEST_F(ErrorsTest, C19AModelThatCannotBeInspectedFailsFromNullToReady) {
  for (const Case& c : AllCases()) {
    SCOPED_TRACE(StatusCodeName(c.code));
    fake::Reset({.inspect = Status(c.code, kMessage)});
    Pipeline pipeline("qttssrc name=src text=ab model-path=/a/model ! fakesink");
    EXPECT_EQ(pipeline.Begin(GST_STATE_READY), GST_STATE_CHANGE_FAILURE);
    const auto errors = pipeline.Pending(GST_MESSAGE_ERROR);
    ASSERT_EQ(errors.size(), 1U);
    ExpectProblem(errors[0].get(), c);
    EXPECT_EQ(GST_STATE(pipeline.src()), GST_STATE_NULL);

    fake::SetScript({});
    EXPECT_TRUE(pipeline.PlayToEnd()) << "usable again";
  }
}

TEST_F(ErrorsTest, AMissingBundledVoiceIsNamedWithTheRemedy) {
  fake::Reset({.inspect = Status::NotFound("/voice: no such folder")});
  Pipeline pipeline("qttssrc name=src text=ab ! fakesink");
  EXPECT_EQ(pipeline.Begin(GST_STATE_READY), GST_STATE_CHANGE_FAILURE);
  const auto errors = pipeline.Pending(GST_MESSAGE_ERROR);
  ASSERT_EQ(errors.size(), 1U);
  EXPECT_EQ(ParseProblem(errors[0].get()).text,
            "there is no bundled voice: /voice: no such folder, or set QTTS_VOICE_PATH to that of the voice");
}

TEST_F(ErrorsTest, C19AModelChangedInReadyIsInspectedBeforePaused) {
  Pipeline pipeline("qttssrc name=src text=ab model-path=/good ! fakesink");
  ASSERT_EQ(pipeline.Begin(GST_STATE_READY), GST_STATE_CHANGE_SUCCESS);
  fake::SetScript({.inspect = Status::NotFound(kMessage)});
  g_object_set(pipeline.src(), "model-path", "/bad", nullptr);
  EXPECT_EQ(pipeline.Begin(GST_STATE_PAUSED), GST_STATE_CHANGE_FAILURE);
  const auto errors = pipeline.Pending(GST_MESSAGE_ERROR);
  ASSERT_EQ(errors.size(), 1U);
  ExpectProblem(errors[0].get(), {StatusCode::kNotFound, GST_RESOURCE_ERROR, GST_RESOURCE_ERROR_NOT_FOUND});
}

TEST_F(ErrorsTest, C19AModelOfAnotherSampleRateIsRefused) {
  fake::Script script;
  script.info.sample_rate = 48000;
  fake::Reset(script);
  Pipeline pipeline("qttssrc name=src text=ab ! fakesink");
  EXPECT_EQ(pipeline.Begin(GST_STATE_READY), GST_STATE_CHANGE_FAILURE);
  const auto errors = pipeline.Pending(GST_MESSAGE_ERROR);
  ASSERT_EQ(errors.size(), 1U);
  const Problem problem = ParseProblem(errors[0].get());
  EXPECT_EQ(problem.code, GST_STREAM_ERROR_NOT_IMPLEMENTED);
  EXPECT_NE(problem.text.find("48000"), std::string::npos);
  EXPECT_NE(problem.text.find("24000"), std::string::npos);
}

// device=auto without the GPU that is there. One test for all, since it is once per process.
TEST_F(ErrorsTest, AGpuThatIsPassedOverIsOneWarningOfTheProcess) {
  const auto warnings_of = [](const std::string& passed_over) {
    fake::Reset({.passed_over = passed_over});
    std::vector<Problem> warnings;
    Speak speak("text=ab");
    speak.Begin(GST_STATE_PLAYING);
    while (const auto message = speak.Wait(GST_MESSAGE_WARNING | GST_MESSAGE_EOS | GST_MESSAGE_ERROR)) {
      if (GST_MESSAGE_TYPE(message.get()) != GST_MESSAGE_WARNING) break;
      warnings.push_back(ParseProblem(message.get()));
    }
    return warnings;
  };
  EXPECT_TRUE(warnings_of("").empty());
  const std::vector<Problem> first = warnings_of(kMessage);
  ASSERT_EQ(first.size(), 1U);
  EXPECT_EQ(first[0].domain, GST_LIBRARY_ERROR);
  EXPECT_EQ(first[0].code, GST_LIBRARY_ERROR_INIT);
  EXPECT_EQ(first[0].text, kMessage);
  EXPECT_TRUE(warnings_of(kMessage).empty());
  EXPECT_TRUE(warnings_of("Another reason.").empty());
}

TEST_F(ErrorsTest, C19C20AModelThatCannotBeLoadedIsOneErrorThenTheEndOfTheProgress) {
  for (const Case& c : AllCases()) {
    SCOPED_TRACE(StatusCodeName(c.code));
    fake::Reset({.load = Status(c.code, kMessage)});
    Speak speak("text=ab");
    speak.Begin(GST_STATE_PLAYING);
    ExpectProblem(speak.Wait(GST_MESSAGE_ERROR).get(), c);
    const auto progress = speak.Wait(GST_MESSAGE_PROGRESS);
    ASSERT_NE(progress, nullptr);
    GstProgressType type = GST_PROGRESS_TYPE_START;
    gst_message_parse_progress(progress.get(), &type, nullptr, nullptr);
    EXPECT_EQ(type, GST_PROGRESS_TYPE_ERROR) << "after the error";
    ASSERT_NE(speak.Wait(GST_MESSAGE_EOS | GST_MESSAGE_ERROR), nullptr);
    EXPECT_EQ(speak.Begin(GST_STATE_NULL), GST_STATE_CHANGE_SUCCESS);
    EXPECT_TRUE(speak.Pending(GST_MESSAGE_ERROR).empty()) << "one error is enough";

    fake::SetScript({});
    EXPECT_TRUE(speak.PlayToEnd()) << "usable again";
  }
}

TEST_F(ErrorsTest, C19AFailedLoadEndsUpstreamToo) {
  fake::Reset({.load = Status::CorruptModel(kMessage)});
  Speak speak;
  speak.Open();
  GstFlowReturn flow = GST_FLOW_OK;
  while ((flow = speak.feeder().Push("x")) == GST_FLOW_OK) {
  }
  EXPECT_EQ(flow, GST_FLOW_EOS);
}

// --- utterances

TEST_F(ErrorsTest, ATextPropertyThatIsRefusedIsAnError) {
  for (const Case& c : AllCases()) {
    SCOPED_TRACE(StatusCodeName(c.code));
    fake::Reset({.start = Status(c.code, kMessage)});
    Speak speak("text=ab");
    speak.Begin(GST_STATE_PLAYING);
    ExpectProblem(speak.Wait(GST_MESSAGE_ERROR | GST_MESSAGE_WARNING).get(), c);
    speak.ExpectEnd();
    speak.Set(GST_STATE_READY);
    EXPECT_TRUE(speak.Pending(GST_MESSAGE_ERROR).empty());

    fake::SetScript({});
    EXPECT_TRUE(speak.PlayToEnd()) << "usable again";
  }
}

TEST_F(ErrorsTest, AnUnknownSpeakerIsAnErrorOfSettings) {
  Speak speak("text=ab speaker=nobody");
  speak.Begin(GST_STATE_PLAYING);
  const auto message = speak.Wait(GST_MESSAGE_ERROR);
  ASSERT_NE(message, nullptr);
  const Problem problem = ParseProblem(message.get());
  EXPECT_EQ(problem.code, GST_RESOURCE_ERROR_SETTINGS);
  EXPECT_NE(problem.text.find("nobody"), std::string::npos);
}

// Records the last result of create(), of any element, while it lives.
class Flow {
 public:
  explicit Flow(GstElement* element) : class_(GST_PUSH_SRC_GET_CLASS(element)) {
    last = GST_FLOW_OK;
    create = class_->create;
    class_->create = [](GstPushSrc* src, GstBuffer** buffer) { return last = create(src, buffer); };
  }
  ~Flow() { class_->create = create; }
  Flow(const Flow&) = delete;
  Flow& operator=(const Flow&) = delete;

  static inline std::atomic<GstFlowReturn> last = GST_FLOW_OK;

 private:
  static inline GstFlowReturn (*create)(GstPushSrc*, GstBuffer**) = nullptr;
  GstPushSrcClass* class_;
};

// The streaming thread says why it stopped, and GStreamer's base class adds no error to ours.
// Check: 33
TEST_F(ErrorsTest, AfterAnErrorTheFlowIsAnError) {
  for (const bool load : {true, false}) {
    SCOPED_TRACE(load);
    fake::Script script;
    (load ? script.load : script.start) = Status::CorruptModel(kMessage);
    fake::Reset(script);
    Speak speak("text=ab");
    const Flow flow(speak.src());
    speak.Begin(GST_STATE_PLAYING);
    ASSERT_NE(speak.Wait(GST_MESSAGE_ERROR), nullptr);
    EXPECT_TRUE(WaitFor([] { return Flow::last == GST_FLOW_ERROR; })) << gst_flow_get_name(Flow::last);
    ASSERT_NE(speak.Wait(GST_MESSAGE_EOS), nullptr) << "downstream closes its files";
    speak.Set(GST_STATE_READY);
    EXPECT_TRUE(speak.Pending(GST_MESSAGE_ERROR).empty());
  }
}

// An error, since the next text would be spoken with the wrong properties too.
// Check: 33
TEST_F(ErrorsTest, PropertiesThatAreWrongAreAnErrorUnlessTheyHaveChangedSince) {
  for (const bool changed : {false, true}) {
    SCOPED_TRACE(changed);
    fake::Reset();
    fake::AllowFrames(0);
    Speak speak("idle-mode=wait text=a");
    speak.Set(GST_STATE_PLAYING);
    g_object_set(speak.src(), "speaker", "nobody", "text", "b", nullptr);
    if (changed) g_object_set(speak.src(), "speaker", "bob", nullptr);
    g_object_set(speak.src(), "text", "c", nullptr);
    fake::AllowFrames(-1);
    const auto message = speak.Wait(GST_MESSAGE_ERROR | GST_MESSAGE_WARNING);
    ASSERT_NE(message, nullptr);
    EXPECT_EQ(GST_MESSAGE_TYPE(message.get()), changed ? GST_MESSAGE_WARNING : GST_MESSAGE_ERROR);
    EXPECT_NE(ParseProblem(message.get()).text.find("nobody"), std::string::npos);
    if (!changed) continue;
    EXPECT_TRUE(WaitFor([&] { return speak.text() == "ac"; }));
  }
}

// An application that waits for EOS gets the error instead.
// Check: 33
TEST_F(ErrorsTest, AStreamOfWhichNothingWasSpokenEndsWithAnError) {
  fake::Script script;
  script.start = Status::ResourceExhausted(kMessage);
  script.start_match = "bad";
  for (const bool spoken : {false, true}) {
    SCOPED_TRACE(spoken);
    fake::Reset(script);
    Speak speak;
    speak.Push("bad");
    if (spoken) speak.Push("good");
    ASSERT_NE(speak.Wait(GST_MESSAGE_WARNING), nullptr);
    speak.End();
    const auto message = speak.Wait(GST_MESSAGE_ERROR | GST_MESSAGE_EOS);
    ASSERT_NE(message, nullptr);
    EXPECT_EQ(GST_MESSAGE_TYPE(message.get()), spoken ? GST_MESSAGE_EOS : GST_MESSAGE_ERROR);
    if (spoken) continue;
    EXPECT_EQ(ParseProblem(message.get()).text,
              std::string("None of the texts could be spoken. The last one: ") + kMessage);
  }
}

// The rest of a failed growing utterance is dropped with it: it does not begin another one in mid-sentence.
// Check: 33
TEST_F(ErrorsTest, AGrowingUtteranceThatFailsTakesItsRestWithIt) {
  fake::Reset({.fail_at_frame = 2, .failure = Status::Internal(kMessage), .failure_match = "bad"});
  Speak speak("segmentation=stream newline-ends=true");
  speak.Push("bad");
  ASSERT_NE(speak.Wait(GST_MESSAGE_WARNING), nullptr);
  speak.Push(" news").Push(" today\n").Push("good").End().Expect("bagood");
}

// No event ends the utterance: the time-out does.
// Check: 33
TEST_F(ErrorsTest, TheRestOfAGrowingUtteranceThatFailedEndsByTimeOut) {
  fake::Reset({.start = Status::Internal(kMessage), .start_match = "bad"});
  Speak speak("segmentation=stream utterance-timeout=20000000");
  speak.Push("bad");
  ASSERT_NE(speak.Wait(GST_MESSAGE_WARNING), nullptr);
  EXPECT_TRUE(WaitFor([&] {
    speak.Push("x");
    g_usleep(100000);
    return speak.record().buffer_count() > 0;
  }));
}

TEST_F(ErrorsTest, ATextFromThePadThatIsRefusedCostsOnlyItself) {
  for (const StatusCode code : {StatusCode::kResourceExhausted, StatusCode::kInternal}) {
    SCOPED_TRACE(StatusCodeName(code));
    fake::Reset({.start = Status(code, kMessage), .start_match = "bad"});
    Speak speak;
    for (const char* text : {"good", "bad", "well"}) speak.Push(text);
    speak.End();
    const auto warning = speak.Wait(GST_MESSAGE_WARNING | GST_MESSAGE_ERROR);
    ASSERT_NE(warning, nullptr);
    EXPECT_EQ(GST_MESSAGE_TYPE(warning.get()), GST_MESSAGE_WARNING);
    EXPECT_EQ(ParseProblem(warning.get()).text, kMessage);
    speak.Expect("goodwell");
  }
}

TEST_F(ErrorsTest, ALostDeviceIsOneErrorAndTheNextStartLoadsAnew) {
  fake::Reset({.fail_at_frame = 2, .failure = Status::DeviceUnavailable(kMessage)});
  Pipeline pipeline("qttssrc name=src text=abcdef ! fakesink");
  Recorder& record = pipeline.Record();
  pipeline.Set(GST_STATE_PLAYING);
  const auto error = pipeline.Wait(GST_MESSAGE_ERROR);
  ExpectProblem(error.get(), {StatusCode::kDeviceUnavailable, GST_LIBRARY_ERROR, GST_LIBRARY_ERROR_INIT});
  EXPECT_EQ(record.text(), "ab");
  pipeline.Set(GST_STATE_READY);
  EXPECT_TRUE(pipeline.Pending(GST_MESSAGE_ERROR).empty());

  fake::SetScript({});
  ASSERT_TRUE(pipeline.PlayToEnd());
  EXPECT_EQ(record.text(), "ababcdef");
  EXPECT_EQ(fake::GetCounters().loads, 2);
  EXPECT_EQ(fake::GetCounters().live_engines, 1);
}

TEST_F(ErrorsTest, WhatWouldMeetEveryTextFromThePadIsAnError) {
  for (const StatusCode code :
       {StatusCode::kInvalidArgument, StatusCode::kUnsupported, StatusCode::kDeviceUnavailable}) {
    SCOPED_TRACE(StatusCodeName(code));
    fake::Reset({.start = Status(code, kMessage)});
    Speak speak;
    speak.Push("bad");
    const auto message = speak.Wait(GST_MESSAGE_WARNING | GST_MESSAGE_ERROR);
    ASSERT_NE(message, nullptr);
    EXPECT_EQ(GST_MESSAGE_TYPE(message.get()), GST_MESSAGE_ERROR);
    ASSERT_TRUE(WaitFor([&] { return speak.feeder().Push("more") == GST_FLOW_EOS; }));
  }
}

TEST_F(ErrorsTest, AFailureInMidSpeechComesAfterTheFramesBeforeIt) {
  for (const Case& c : AllCases()) {
    SCOPED_TRACE(StatusCodeName(c.code));
    fake::Reset({.fail_at_frame = 3, .failure = Status(c.code, kMessage)});
    Speak speak("text=abcdef");
    speak.Begin(GST_STATE_PLAYING);
    ExpectProblem(speak.Wait(GST_MESSAGE_ERROR | GST_MESSAGE_WARNING).get(), c);
    ASSERT_NE(speak.Wait(GST_MESSAGE_EOS | GST_MESSAGE_ERROR), nullptr);
    EXPECT_EQ(speak.text(), "abc");

    speak.Set(GST_STATE_READY);
    EXPECT_EQ(fake::GetCounters().live_engines, 0) << "an engine that failed is not kept";
    fake::SetScript({});
    EXPECT_TRUE(speak.PlayToEnd()) << "usable again";
    EXPECT_EQ(fake::GetCounters().loads, 2);
  }
}

TEST_F(ErrorsTest, AFailureInMidSpeechFromThePadCostsOnlyItsUtterance) {
  fake::Reset({.fail_at_frame = 1, .failure = Status::Internal(kMessage), .failure_match = "bad"});
  Speak speak;
  for (const char* text : {"good", "bad", "well"}) speak.Push(text);
  speak.End();
  const auto warning = speak.Wait(GST_MESSAGE_WARNING | GST_MESSAGE_ERROR);
  ASSERT_NE(warning, nullptr);
  EXPECT_EQ(GST_MESSAGE_TYPE(warning.get()), GST_MESSAGE_WARNING);
  speak.Expect("goodbwell");
}

TEST_F(ErrorsTest, C26OneElementsFailureLeavesAnotherAlone) {
  fake::Reset({.fail_at_frame = 3, .failure = Status::Internal(kMessage), .failure_match = "bad"});
  Pipeline good("qttssrc name=src text=\"a long and good text\" ! fakesink");
  Pipeline bad("qttssrc name=src text=\"a bad text\" ! fakesink async=false");
  Recorder& record = good.Record();
  fake::AllowFrames(2);
  good.Begin(GST_STATE_PLAYING);
  ASSERT_TRUE(WaitFor([&] { return record.buffer_count() == 2; }));
  bad.Begin(GST_STATE_PLAYING);
  ASSERT_TRUE(WaitFor([] { return fake::Requests().size() == 2; }));
  fake::AllowFrames(-1);
  ASSERT_NE(bad.Wait(GST_MESSAGE_ERROR), nullptr);
  ASSERT_NE(good.Wait(GST_MESSAGE_EOS), nullptr);
  EXPECT_EQ(record.text(), "a long and good text");
}

// --- privacy

// GStreamer's log file; it must be set before GStreamer starts.
const std::string& LogFile() {
  static const std::string path = [] {
    gchar* name = nullptr;
    const int file = g_file_open_tmp("qttssrc-log-XXXXXX", &name, nullptr);
    close(file);
    std::string result = name;
    g_free(name);
    return result;
  }();
  return path;
}

[[maybe_unused]] const bool kLogsIntoFile = g_setenv("GST_DEBUG_FILE", LogFile().c_str(), TRUE) != FALSE;

TEST_F(ErrorsTest, C30TextIsNotLoggedAboveDebug) {
  gst_debug_set_threshold_for_name("qttssrc", GST_LEVEL_INFO);
  fake::Reset({.start = Status::ResourceExhausted(kMessage), .start_match = "zulu"});
  {
    Speak speak("text=secret-alpha max-duration=1");
    speak.Push("secret-bravo").Push("secret-zulu\xFF");
    g_object_set(speak.src(), "text", "secret-delta", nullptr);
    speak.End().ExpectEnd();
    g_object_set(speak.src(), "text", "secret-late", nullptr);
  }
  gst_debug_set_threshold_for_name("qttssrc", GST_LEVEL_NONE);
  std::ifstream file(LogFile());
  const std::string log{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  std::remove(LogFile().c_str());
  EXPECT_NE(log.find("qttssrc"), std::string::npos) << log;
  EXPECT_EQ(log.find("secret"), std::string::npos) << log;
}

}  // namespace
}  // namespace qtts::testing
