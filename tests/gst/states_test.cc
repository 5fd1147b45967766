// SPDX-License-Identifier: LGPL-2.1-or-later
// State changes at any moment, and loading the model in the background.
#include <chrono>
#include <random>
#include <thread>

#include "support.h"

namespace qtts::testing {
namespace {

class StatesTest : public GstTest {
 protected:
  // The kinds of the progress messages of `load` on the bus.
  static std::vector<GstProgressType> Progress(Pipeline* pipeline) {
    std::vector<GstProgressType> types;
    for (const auto& message : pipeline->Pending(GST_MESSAGE_PROGRESS)) {
      GstProgressType type = GST_PROGRESS_TYPE_ERROR;
      gchar* code = nullptr;
      gst_message_parse_progress(message.get(), &type, &code, nullptr);
      EXPECT_STREQ(code, "load");
      g_free(code);
      types.push_back(type);
    }
    return types;
  }
};

// Not live, live with silence, live without.
class RandomStatesTest : public StatesTest, public ::testing::WithParamInterface<const char*> {};

INSTANTIATE_TEST_SUITE_P(Modes, RandomStatesTest,
                         ::testing::Values("idle-mode=eos", "is-live=true", "is-live=true idle-mode=wait"));

TEST_P(RandomStatesTest, C17TwoHundredStateChangesAtRandomTimes) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  fake::Reset({.load_time = std::chrono::milliseconds(3), .frame_time = std::chrono::milliseconds(1)});
  Speak speak(std::string("text=\"some text that takes a while to be spoken\" ") + GetParam());
  for (int round = 0; round < 200; ++round) {
    const auto state = static_cast<GstState>(GST_STATE_NULL + random() % 4);
    EXPECT_NE(speak.Begin(state), GST_STATE_CHANGE_FAILURE);
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 8000));
    if (random() % 4 == 0) {
      EXPECT_NE(gst_element_get_state(speak.get(), nullptr, nullptr, kPatience), GST_STATE_CHANGE_FAILURE);
    }
  }
  speak.Set(GST_STATE_NULL);
  EXPECT_TRUE(speak.Pending(GST_MESSAGE_ERROR).empty());
}

// Changes do not wait, so each one meets the one before it at any point. PLAYING speaks after any sequence.
// Check: 31
TEST_P(RandomStatesTest, C17AThousandStateChangesOneRightAfterAnother) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  Speak speak(GetParam());
  const Owned<GstPad> pad(gst_element_get_static_pad(speak.src(), "src"));
  for (int change = 0; change < 1000; ++change) {
    // Twice as many between PAUSED and PLAYING as below.
    const GstState states[] = {GST_STATE_NULL, GST_STATE_READY, GST_STATE_PAUSED, GST_STATE_PLAYING};
    const GstState state = random() % 2 == 0 ? states[random() % 4] : states[2 + random() % 2];
    EXPECT_NE(speak.Begin(state), GST_STATE_CHANGE_FAILURE);
    if (random() % 4 == 0) g_object_set(speak.src(), "text", "some text", nullptr);
    if (random() % 4 == 0) speak.Interrupt();
    if (change % 100 != 99) continue;
    speak.Begin(GST_STATE_PLAYING);
    speak.record().Clear();
    g_object_set(speak.src(), "text", "spoken", nullptr);
    // If no text was left, idle-mode=eos has ended the stream before this text came.
    ASSERT_TRUE(WaitFor([&] { return speak.record().buffer_count() > 3 || GST_PAD_IS_EOS(pad.get()); })) << change;
  }
  speak.Set(GST_STATE_NULL);
  EXPECT_TRUE(speak.Pending(GST_MESSAGE_ERROR).empty());
}

// With a constant flow of text and a full queue.
TEST_P(RandomStatesTest, C17UpstreamIsReleasedByEveryStateChange) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  fake::Reset({.frame_time = std::chrono::milliseconds(1)});
  Speak speak(std::string("max-queued-text=10 ") + GetParam());
  for (int round = 0; round < 40; ++round) {
    Feeder feeder(speak.src());
    speak.Begin(GST_STATE_PLAYING);
    std::thread upstream([&feeder] {
      feeder.Begin();
      while (feeder.Push("some text") == GST_FLOW_OK) continue;
    });
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 8000));
    if (round % 2 == 0) speak.Begin(GST_STATE_PAUSED);
    EXPECT_EQ(speak.Begin(round % 3 == 0 ? GST_STATE_NULL : GST_STATE_READY), GST_STATE_CHANGE_SUCCESS);
    upstream.join();
  }
  speak.Set(GST_STATE_NULL);
  EXPECT_TRUE(speak.Pending(GST_MESSAGE_ERROR).empty());
}

TEST_F(StatesTest, C17StoppingInMidSpeech) {
  fake::Reset({.frame_time = std::chrono::milliseconds(1)});
  Pipeline pipeline("qttssrc name=src ! fakesink");
  const std::string text(1000, 'x');
  g_object_set(pipeline.src(), "text", text.c_str(), nullptr);
  Recorder& record = pipeline.Record();
  for (int round = 0; round < 50; ++round) {
    record.Clear();
    pipeline.Begin(GST_STATE_PLAYING);
    ASSERT_TRUE(WaitFor([&] { return record.buffer_count() > static_cast<size_t>(round % 5); }));
    EXPECT_EQ(pipeline.Begin(round % 2 == 0 ? GST_STATE_NULL : GST_STATE_READY), GST_STATE_CHANGE_SUCCESS);
    EXPECT_EQ(fake::GetCounters().live_streams, 0);
    const auto buffers = record.buffers();
    for (size_t i = 0; i < buffers.size(); ++i) ASSERT_EQ(buffers[i].label.frame, static_cast<int64_t>(i));
  }
}

TEST_F(StatesTest, C16NoFrameIsLostOrRepeatedOverHundredPauses) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  fake::Script script;
  script.frame_time = std::chrono::milliseconds(1);
  fake::Reset(script);
  Pipeline pipeline("qttssrc name=src ! fakesink name=sink");
  const std::string text(2000, 'x');
  g_object_set(pipeline.src(), "text", text.c_str(), nullptr);
  const auto sink = pipeline.Find("sink");
  const Owned<GstPad> sink_pad(gst_element_get_static_pad(sink.get(), "sink"));
  const Recorder at_sink(sink_pad.get());
  for (int round = 0; round < 100; ++round) {
    EXPECT_NE(pipeline.Set(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 6000));
    EXPECT_NE(pipeline.Set(GST_STATE_PAUSED), GST_STATE_CHANGE_FAILURE);
  }
  script.frame_time = std::chrono::milliseconds(0);
  fake::SetScript(script);
  pipeline.Begin(GST_STATE_PLAYING);
  ASSERT_NE(pipeline.Wait(GST_MESSAGE_EOS | GST_MESSAGE_ERROR), nullptr);
  const auto buffers = at_sink.buffers();
  ASSERT_EQ(buffers.size(), text.size());
  for (size_t i = 0; i < buffers.size(); ++i) {
    ASSERT_EQ(buffers[i].label.frame, static_cast<int64_t>(i));
    ASSERT_EQ(buffers[i].offset, i * 1920);
  }
}

// --- loading

TEST_F(StatesTest, C20LoadingIsTold) {
  Speak speak("text=ab");
  speak.Begin(GST_STATE_PLAYING);
  std::vector<GstProgressType> types;
  for (;;) {
    const auto message = speak.Wait(GST_MESSAGE_PROGRESS | GST_MESSAGE_EOS | GST_MESSAGE_ERROR);
    ASSERT_NE(message, nullptr);
    if (GST_MESSAGE_TYPE(message.get()) != GST_MESSAGE_PROGRESS) break;
    GstProgressType type = GST_PROGRESS_TYPE_ERROR;
    gst_message_parse_progress(message.get(), &type, nullptr, nullptr);
    types.push_back(type);
  }
  EXPECT_EQ(types, (std::vector<GstProgressType>{GST_PROGRESS_TYPE_START, GST_PROGRESS_TYPE_COMPLETE}));
  speak.Set(GST_STATE_READY);
  speak.Begin(GST_STATE_PLAYING);
  speak.ExpectEnd();
  EXPECT_TRUE(Progress(&speak).empty()) << "nothing to load";
}

// A live pipeline has no streaming thread in PAUSED, where gst-launch-1.0 waits for the end of the progress.
TEST_F(StatesTest, C20LoadingIsToldInPausedWhenLive) {
  for (const bool fails : {false, true}) {
    fake::Script script;
    if (fails) script.load = Status::CorruptModel("The model is broken.");
    fake::Reset(script);
    Pipeline pipeline("qttssrc name=src is-live=true text=ab ! fakesink");
    EXPECT_EQ(pipeline.Begin(GST_STATE_PAUSED), GST_STATE_CHANGE_NO_PREROLL);
    std::vector<GstProgressType> types;
    while (types.size() < 2) {
      const auto message = pipeline.Wait(GST_MESSAGE_PROGRESS);
      ASSERT_NE(message, nullptr);
      GstProgressType type = GST_PROGRESS_TYPE_CONTINUE;
      gst_message_parse_progress(message.get(), &type, nullptr, nullptr);
      types.push_back(type);
    }
    EXPECT_EQ(types, (std::vector<GstProgressType>{GST_PROGRESS_TYPE_START,
                                                   fails ? GST_PROGRESS_TYPE_ERROR : GST_PROGRESS_TYPE_COMPLETE}));
  }
}

TEST_F(StatesTest, C18NoStateChangeWaitsForTheModel) {
  fake::Script script;
  script.load_time = std::chrono::hours(1);
  fake::Reset(script);
  Pipeline pipeline("qttssrc name=src text=ab ! fakesink");
  EXPECT_EQ(pipeline.Begin(GST_STATE_PAUSED), GST_STATE_CHANGE_ASYNC);
  ASSERT_TRUE(WaitFor([] { return fake::GetCounters().loads == 1; }));
  EXPECT_EQ(pipeline.Begin(GST_STATE_READY), GST_STATE_CHANGE_SUCCESS);
  EXPECT_EQ(Progress(&pipeline), (std::vector<GstProgressType>{GST_PROGRESS_TYPE_START, GST_PROGRESS_TYPE_CANCELED}));

  // The next run loads anew.
  script.load_time = std::chrono::milliseconds(1);
  fake::SetScript(script);
  EXPECT_TRUE(pipeline.PlayToEnd());
  pipeline.Set(GST_STATE_NULL);
  EXPECT_EQ(fake::GetCounters().loads, 2);
  EXPECT_TRUE(WaitFor([] { return fake::GetCounters().cancelled_loads == 1; }));
}

TEST_F(StatesTest, C18ALoadThatCannotBeCancelledIsLeftBehind) {
  fake::Reset({.load_ignores_cancel = true});
  fake::HoldLoads(true);
  Pipeline pipeline("qttssrc name=src text=ab ! fakesink");
  pipeline.Begin(GST_STATE_PLAYING);
  ASSERT_TRUE(WaitFor([] { return fake::GetCounters().loads == 1; }));
  EXPECT_EQ(pipeline.Begin(GST_STATE_NULL), GST_STATE_CHANGE_SUCCESS) << "without waiting, which would be for ever";
  fake::HoldLoads(false);
  EXPECT_TRUE(pipeline.PlayToEnd());
  // The result of the first load is dropped before this test ends: see TearDown().
}

TEST_F(StatesTest, C18C20StoppingAtAnyMomentOfALoad) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  fake::Script script;
  script.load_time = std::chrono::milliseconds(2);
  for (const bool ignores : {false, true}) {
    script.load_ignores_cancel = ignores;
    fake::Reset(script);
    Pipeline pipeline("qttssrc name=src text=ab ! fakesink");
    for (int round = 0; round < 50; ++round) {
      pipeline.Begin(GST_STATE_PLAYING);
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 4000));
      EXPECT_EQ(pipeline.Begin(GST_STATE_NULL), GST_STATE_CHANGE_SUCCESS);
      const auto progress = Progress(&pipeline);
      ASSERT_EQ(progress.size(), 2U) << "each start has an end";
      EXPECT_EQ(progress[0], GST_PROGRESS_TYPE_START);
    }
    EXPECT_TRUE(pipeline.PlayToEnd());
  }
}

TEST_F(StatesTest, C18TheElementMayGoWhileItsModelLoads) {
  fake::Script script;
  script.load_time = std::chrono::milliseconds(20);
  for (const bool ignores : {false, true}) {
    script.load_ignores_cancel = ignores;
    fake::Reset(script);
    for (int round = 0; round < 5; ++round) {
      const Pipeline pipeline("qttssrc name=src text=ab ! fakesink");
      gst_element_set_state(pipeline.get(), GST_STATE_PAUSED);
    }
  }
}

TEST_F(StatesTest, TextSetWhileTheModelLoadsIsSpoken) {
  fake::HoldLoads(true);
  Speak speak("text=ab");
  speak.Begin(GST_STATE_PLAYING);
  ASSERT_TRUE(WaitFor([] { return fake::GetCounters().loads == 1; }));
  g_object_set(speak.src(), "text", "cd", nullptr);
  fake::HoldLoads(false);
  speak.Expect("abcd");
}

TEST_F(StatesTest, C26TwoElementsShareTheirModel) {
  fake::Script script;
  fake::Reset(script);
  Pipeline first("qttssrc name=src text=ab ! fakesink");
  ASSERT_TRUE(first.PlayToEnd());
  Pipeline second("qttssrc name=src text=cd ! fakesink");
  Recorder& record = second.Record();
  ASSERT_TRUE(second.PlayToEnd());
  EXPECT_EQ(fake::GetCounters().loads, 1);
  EXPECT_EQ(fake::GetCounters().live_engines, 1);
  first.Set(GST_STATE_NULL);
  EXPECT_EQ(fake::GetCounters().live_engines, 1);
  EXPECT_EQ(record.text(), "cd");
}

TEST_F(StatesTest, C26InterruptingOneElementLeavesAnotherAlone) {
  fake::AllowFrames(0);
  Pipeline first("qttssrc name=src text=interrupted ! fakesink async=false");
  Pipeline second("qttssrc name=src text=\"goes on\" ! fakesink async=false");
  Recorder& record = second.Record();
  first.Begin(GST_STATE_PLAYING);
  // The fake engine, unlike the real one, loads a model twice if two elements request it at the same time.
  ASSERT_TRUE(WaitFor([] { return fake::GetCounters().live_streams == 1; }));
  second.Begin(GST_STATE_PLAYING);
  ASSERT_TRUE(WaitFor([] { return fake::GetCounters().live_streams == 2; }));
  first.Interrupt();
  ASSERT_NE(first.Wait(GST_MESSAGE_EOS), nullptr) << "nothing is left to speak";
  fake::AllowFrames(-1);
  ASSERT_NE(second.Wait(GST_MESSAGE_EOS), nullptr);
  EXPECT_EQ(record.text(), "goes on");
  EXPECT_EQ(fake::GetCounters().loads, 1);
}

}  // namespace
}  // namespace qtts::testing
