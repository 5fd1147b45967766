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
    fake::Script script = fake::DefaultScript();
    script.inspect = Status(c.code, kMessage);
    fake::Reset(script);
    Pipeline pipeline("qttssrc name=src text=ab ! fakesink");
    EXPECT_EQ(pipeline.Begin(GST_STATE_READY), GST_STATE_CHANGE_FAILURE);
    const auto errors = pipeline.Pending(GST_MESSAGE_ERROR);
    ASSERT_EQ(errors.size(), 1U);
    ExpectProblem(errors[0].get(), c);
    EXPECT_EQ(GST_STATE(pipeline.src()), GST_STATE_NULL);

    fake::SetScript(fake::DefaultScript());
    EXPECT_TRUE(pipeline.PlayToEnd()) << "usable again";
  }
}

TEST_F(ErrorsTest, C19AModelChangedInReadyIsInspectedBeforePaused) {
  Pipeline pipeline("qttssrc name=src text=ab model-path=/good ! fakesink");
  ASSERT_EQ(pipeline.Begin(GST_STATE_READY), GST_STATE_CHANGE_SUCCESS);
  fake::Script script = fake::DefaultScript();
  script.inspect = Status::NotFound(kMessage);
  fake::SetScript(script);
  g_object_set(pipeline.src(), "model-path", "/bad", nullptr);
  EXPECT_EQ(pipeline.Begin(GST_STATE_PAUSED), GST_STATE_CHANGE_FAILURE);
  const auto errors = pipeline.Pending(GST_MESSAGE_ERROR);
  ASSERT_EQ(errors.size(), 1U);
  ExpectProblem(errors[0].get(), {StatusCode::kNotFound, GST_RESOURCE_ERROR, GST_RESOURCE_ERROR_NOT_FOUND});
}

TEST_F(ErrorsTest, C19AModelOfAnotherSampleRateIsRefused) {
  fake::Script script = fake::DefaultScript();
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
    fake::Script script = fake::DefaultScript();
    script.passed_over = passed_over;
    fake::Reset(script);
    std::vector<Problem> warnings;
    Pipeline pipeline("qttssrc name=src text=ab ! fakesink");
    pipeline.Begin(GST_STATE_PLAYING);
    while (const auto message = pipeline.Wait(GST_MESSAGE_WARNING | GST_MESSAGE_EOS | GST_MESSAGE_ERROR)) {
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
    fake::Script script = fake::DefaultScript();
    script.load = Status(c.code, kMessage);
    fake::Reset(script);
    Pipeline pipeline("qttssrc name=src text=ab ! fakesink async=false");
    pipeline.Begin(GST_STATE_PLAYING);
    ExpectProblem(pipeline.Wait(GST_MESSAGE_ERROR).get(), c);
    const auto progress = pipeline.Wait(GST_MESSAGE_PROGRESS);
    ASSERT_NE(progress, nullptr);
    GstProgressType type = GST_PROGRESS_TYPE_START;
    gst_message_parse_progress(progress.get(), &type, nullptr, nullptr);
    EXPECT_EQ(type, GST_PROGRESS_TYPE_ERROR) << "after the error";
    ASSERT_NE(pipeline.Wait(GST_MESSAGE_EOS | GST_MESSAGE_ERROR), nullptr);
    EXPECT_EQ(pipeline.Begin(GST_STATE_NULL), GST_STATE_CHANGE_SUCCESS);
    EXPECT_TRUE(pipeline.Pending(GST_MESSAGE_ERROR).empty()) << "one error is enough";

    fake::SetScript(fake::DefaultScript());
    EXPECT_TRUE(pipeline.PlayToEnd()) << "usable again";
  }
}

TEST_F(ErrorsTest, C19AFailedLoadEndsUpstreamToo) {
  fake::Script script = fake::DefaultScript();
  script.load = Status::CorruptModel(kMessage);
  fake::Reset(script);
  Pipeline pipeline("qttssrc name=src ! fakesink async=false");
  Feeder feeder(pipeline.src());
  pipeline.Begin(GST_STATE_PLAYING);
  feeder.Begin();
  GstFlowReturn flow = GST_FLOW_OK;
  while ((flow = feeder.Push("x")) == GST_FLOW_OK) {
  }
  EXPECT_EQ(flow, GST_FLOW_EOS);
}

// --- utterances

TEST_F(ErrorsTest, ATextPropertyThatIsRefusedIsAnError) {
  for (const Case& c : AllCases()) {
    SCOPED_TRACE(StatusCodeName(c.code));
    fake::Script script = fake::DefaultScript();
    script.start = Status(c.code, kMessage);
    fake::Reset(script);
    Pipeline pipeline("qttssrc name=src text=ab ! fakesink async=false");
    pipeline.Begin(GST_STATE_PLAYING);
    ExpectProblem(pipeline.Wait(GST_MESSAGE_ERROR | GST_MESSAGE_WARNING).get(), c);
    ASSERT_NE(pipeline.Wait(GST_MESSAGE_EOS), nullptr);
    pipeline.Set(GST_STATE_READY);
    EXPECT_TRUE(pipeline.Pending(GST_MESSAGE_ERROR).empty());

    fake::SetScript(fake::DefaultScript());
    EXPECT_TRUE(pipeline.PlayToEnd()) << "usable again";
  }
}

TEST_F(ErrorsTest, AnUnknownSpeakerIsAnErrorOfSettings) {
  Pipeline pipeline("qttssrc name=src text=ab speaker=nobody ! fakesink async=false");
  pipeline.Begin(GST_STATE_PLAYING);
  const auto message = pipeline.Wait(GST_MESSAGE_ERROR);
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
TEST_F(ErrorsTest, AfterAnErrorTheFlowIsAnError) {
  for (const bool load : {true, false}) {
    SCOPED_TRACE(load);
    fake::Script script = fake::DefaultScript();
    (load ? script.load : script.start) = Status::CorruptModel(kMessage);
    fake::Reset(script);
    Pipeline pipeline("qttssrc name=src text=ab ! fakesink async=false");
    const Flow flow(pipeline.src());
    pipeline.Begin(GST_STATE_PLAYING);
    ASSERT_NE(pipeline.Wait(GST_MESSAGE_ERROR), nullptr);
    EXPECT_TRUE(WaitFor([] { return Flow::last == GST_FLOW_ERROR; })) << gst_flow_get_name(Flow::last);
    ASSERT_NE(pipeline.Wait(GST_MESSAGE_EOS), nullptr) << "downstream closes its files";
    pipeline.Set(GST_STATE_READY);
    EXPECT_TRUE(pipeline.Pending(GST_MESSAGE_ERROR).empty());
  }
}

// An error, since the next text would be spoken with the wrong properties too.
TEST_F(ErrorsTest, PropertiesThatAreWrongAreAnErrorUnlessTheyHaveChangedSince) {
  for (const bool changed : {false, true}) {
    SCOPED_TRACE(changed);
    fake::Reset();
    fake::AllowFrames(0);
    Pipeline pipeline("qttssrc name=src idle-mode=wait text=a ! fakesink async=false");
    Recorder& record = pipeline.Record();
    pipeline.Set(GST_STATE_PLAYING);
    g_object_set(pipeline.src(), "speaker", "nobody", "text", "b", nullptr);
    if (changed) g_object_set(pipeline.src(), "speaker", "bob", nullptr);
    g_object_set(pipeline.src(), "text", "c", nullptr);
    fake::AllowFrames(-1);
    const auto message = pipeline.Wait(GST_MESSAGE_ERROR | GST_MESSAGE_WARNING);
    ASSERT_NE(message, nullptr);
    EXPECT_EQ(GST_MESSAGE_TYPE(message.get()), changed ? GST_MESSAGE_WARNING : GST_MESSAGE_ERROR);
    EXPECT_NE(ParseProblem(message.get()).text.find("nobody"), std::string::npos);
    if (!changed) continue;
    EXPECT_TRUE(WaitFor([&] { return record.text() == "ac"; }));
  }
}

// An application that waits for EOS gets the error instead.
TEST_F(ErrorsTest, AStreamOfWhichNothingWasSpokenEndsWithAnError) {
  fake::Script script = fake::DefaultScript();
  script.start = Status::ResourceExhausted(kMessage);
  script.start_match = "bad";
  for (const bool spoken : {false, true}) {
    SCOPED_TRACE(spoken);
    fake::Reset(script);
    Pipeline pipeline("qttssrc name=src ! fakesink async=false");
    Feeder feeder(pipeline.src());
    pipeline.Set(GST_STATE_PLAYING);
    feeder.Begin();
    feeder.Push("bad");
    if (spoken) feeder.Push("good");
    ASSERT_NE(pipeline.Wait(GST_MESSAGE_WARNING), nullptr);
    feeder.End();
    const auto message = pipeline.Wait(GST_MESSAGE_ERROR | GST_MESSAGE_EOS);
    ASSERT_NE(message, nullptr);
    EXPECT_EQ(GST_MESSAGE_TYPE(message.get()), spoken ? GST_MESSAGE_EOS : GST_MESSAGE_ERROR);
    if (spoken) continue;
    EXPECT_EQ(ParseProblem(message.get()).text,
              std::string("None of the texts could be spoken. The last one: ") + kMessage);
  }
}

// The rest of a failed growing utterance is dropped with it: it does not begin another one in mid-sentence.
TEST_F(ErrorsTest, AGrowingUtteranceThatFailsTakesItsRestWithIt) {
  fake::Script script = fake::DefaultScript();
  script.fail_at_frame = 2;
  script.failure = Status::Internal(kMessage);
  script.failure_match = "bad";
  fake::Reset(script);
  Pipeline pipeline("qttssrc name=src segmentation=stream newline-ends=true ! fakesink async=false");
  Recorder& record = pipeline.Record();
  Feeder feeder(pipeline.src());
  pipeline.Set(GST_STATE_PLAYING);
  feeder.Begin();
  feeder.Push("bad");
  ASSERT_NE(pipeline.Wait(GST_MESSAGE_WARNING), nullptr);
  feeder.Push(" news");
  feeder.Push(" today\n");
  feeder.Push("good");
  feeder.End();
  ASSERT_NE(pipeline.Wait(GST_MESSAGE_EOS), nullptr);
  EXPECT_EQ(record.text(), "bagood");
}

// No event ends the utterance: the time-out does.
TEST_F(ErrorsTest, TheRestOfAGrowingUtteranceThatFailedEndsByTimeOut) {
  fake::Script script = fake::DefaultScript();
  script.start = Status::Internal(kMessage);
  script.start_match = "bad";
  fake::Reset(script);
  Pipeline pipeline("qttssrc name=src segmentation=stream utterance-timeout=20000000 ! fakesink async=false");
  Recorder& record = pipeline.Record();
  Feeder feeder(pipeline.src());
  pipeline.Set(GST_STATE_PLAYING);
  feeder.Begin();
  feeder.Push("bad");
  ASSERT_NE(pipeline.Wait(GST_MESSAGE_WARNING), nullptr);
  EXPECT_TRUE(WaitFor([&] {
    feeder.Push("x");
    g_usleep(100000);
    return record.buffer_count() > 0;
  }));
}

TEST_F(ErrorsTest, ATextFromThePadThatIsRefusedCostsOnlyItself) {
  for (const StatusCode code : {StatusCode::kResourceExhausted, StatusCode::kInternal}) {
    SCOPED_TRACE(StatusCodeName(code));
    fake::Script script = fake::DefaultScript();
    script.start = Status(code, kMessage);
    script.start_match = "bad";
    fake::Reset(script);
    Pipeline pipeline("qttssrc name=src ! fakesink async=false");
    Recorder& record = pipeline.Record();
    Feeder feeder(pipeline.src());
    pipeline.Set(GST_STATE_PLAYING);
    feeder.Begin();
    for (const char* text : {"good", "bad", "well"}) EXPECT_EQ(feeder.Push(text), GST_FLOW_OK);
    feeder.End();
    const auto warning = pipeline.Wait(GST_MESSAGE_WARNING | GST_MESSAGE_ERROR);
    ASSERT_NE(warning, nullptr);
    EXPECT_EQ(GST_MESSAGE_TYPE(warning.get()), GST_MESSAGE_WARNING);
    EXPECT_EQ(ParseProblem(warning.get()).text, kMessage);
    ASSERT_NE(pipeline.Wait(GST_MESSAGE_EOS), nullptr);
    EXPECT_EQ(record.text(), "goodwell");
  }
}

TEST_F(ErrorsTest, ALostDeviceIsOneErrorAndTheNextStartLoadsAnew) {
  fake::Script script = fake::DefaultScript();
  script.fail_at_frame = 2;
  script.failure = Status::DeviceUnavailable(kMessage);
  fake::Reset(script);
  Pipeline pipeline("qttssrc name=src text=abcdef ! fakesink");
  Recorder& record = pipeline.Record();
  pipeline.Set(GST_STATE_PLAYING);
  const auto error = pipeline.Wait(GST_MESSAGE_ERROR);
  ExpectProblem(error.get(), {StatusCode::kDeviceUnavailable, GST_LIBRARY_ERROR, GST_LIBRARY_ERROR_INIT});
  EXPECT_EQ(record.text(), "ab");
  pipeline.Set(GST_STATE_READY);
  EXPECT_TRUE(pipeline.Pending(GST_MESSAGE_ERROR).empty());

  fake::SetScript(fake::DefaultScript());
  ASSERT_TRUE(pipeline.PlayToEnd());
  EXPECT_EQ(record.text(), "ababcdef");
  EXPECT_EQ(fake::GetCounters().loads, 2);
  EXPECT_EQ(fake::GetCounters().live_engines, 1);
}

TEST_F(ErrorsTest, WhatWouldMeetEveryTextFromThePadIsAnError) {
  for (const StatusCode code :
       {StatusCode::kInvalidArgument, StatusCode::kUnsupported, StatusCode::kDeviceUnavailable}) {
    SCOPED_TRACE(StatusCodeName(code));
    fake::Script script = fake::DefaultScript();
    script.start = Status(code, kMessage);
    fake::Reset(script);
    Pipeline pipeline("qttssrc name=src ! fakesink async=false");
    Feeder feeder(pipeline.src());
    pipeline.Set(GST_STATE_PLAYING);
    feeder.Begin();
    feeder.Push("bad");
    const auto message = pipeline.Wait(GST_MESSAGE_WARNING | GST_MESSAGE_ERROR);
    ASSERT_NE(message, nullptr);
    EXPECT_EQ(GST_MESSAGE_TYPE(message.get()), GST_MESSAGE_ERROR);
    ASSERT_TRUE(WaitFor([&] { return feeder.Push("more") == GST_FLOW_EOS; }));
  }
}

TEST_F(ErrorsTest, AFailureInMidSpeechComesAfterTheFramesBeforeIt) {
  for (const Case& c : AllCases()) {
    SCOPED_TRACE(StatusCodeName(c.code));
    fake::Script script = fake::DefaultScript();
    script.fail_at_frame = 3;
    script.failure = Status(c.code, kMessage);
    fake::Reset(script);
    Pipeline pipeline("qttssrc name=src text=abcdef ! fakesink async=false");
    Recorder& record = pipeline.Record();
    pipeline.Begin(GST_STATE_PLAYING);
    ExpectProblem(pipeline.Wait(GST_MESSAGE_ERROR | GST_MESSAGE_WARNING).get(), c);
    ASSERT_NE(pipeline.Wait(GST_MESSAGE_EOS | GST_MESSAGE_ERROR), nullptr);
    EXPECT_EQ(record.text(), "abc");

    pipeline.Set(GST_STATE_READY);
    EXPECT_EQ(fake::GetCounters().live_engines, 0) << "an engine that failed is not kept";
    fake::SetScript(fake::DefaultScript());
    EXPECT_TRUE(pipeline.PlayToEnd()) << "usable again";
    EXPECT_EQ(fake::GetCounters().loads, 2);
  }
}

TEST_F(ErrorsTest, AFailureInMidSpeechFromThePadCostsOnlyItsUtterance) {
  fake::Script script = fake::DefaultScript();
  script.fail_at_frame = 1;
  script.failure = Status::Internal(kMessage);
  script.failure_match = "bad";
  fake::Reset(script);
  Pipeline pipeline("qttssrc name=src ! fakesink async=false");
  Recorder& record = pipeline.Record();
  Feeder feeder(pipeline.src());
  pipeline.Set(GST_STATE_PLAYING);
  feeder.Begin();
  for (const char* text : {"good", "bad", "well"}) EXPECT_EQ(feeder.Push(text), GST_FLOW_OK);
  feeder.End();
  const auto warning = pipeline.Wait(GST_MESSAGE_WARNING | GST_MESSAGE_ERROR);
  ASSERT_NE(warning, nullptr);
  EXPECT_EQ(GST_MESSAGE_TYPE(warning.get()), GST_MESSAGE_WARNING);
  ASSERT_NE(pipeline.Wait(GST_MESSAGE_EOS), nullptr);
  EXPECT_EQ(record.text(), "goodbwell");
}

TEST_F(ErrorsTest, C26OneElementsFailureLeavesAnotherAlone) {
  fake::Script script = fake::DefaultScript();
  script.fail_at_frame = 3;
  script.failure = Status::Internal(kMessage);
  script.failure_match = "bad";
  fake::Reset(script);
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
  fake::Script script = fake::DefaultScript();
  script.start = Status::ResourceExhausted(kMessage);
  script.start_match = "zulu";
  fake::Reset(script);
  {
    Pipeline pipeline("qttssrc name=src text=secret-alpha max-duration=1 ! fakesink async=false");
    Feeder feeder(pipeline.src());
    pipeline.Set(GST_STATE_PLAYING);
    feeder.Begin();
    feeder.Push("secret-bravo");
    feeder.Push("secret-zulu\xFF");
    g_object_set(pipeline.src(), "text", "secret-delta", nullptr);
    feeder.End();
    ASSERT_NE(pipeline.Wait(GST_MESSAGE_EOS), nullptr);
    g_object_set(pipeline.src(), "text", "secret-late", nullptr);
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
