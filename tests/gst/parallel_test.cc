// SPDX-License-Identifier: LGPL-2.1-or-later
// Several utterances made at once (property "parallel"): apart from time, the output is that of parallel=1.
#include <algorithm>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support.h"

namespace qtts::testing {
namespace {

// All that an application observes of a run, one line each, without measured times.
class Scene : public Speak {
 public:
  explicit Scene(guint parallel, const std::string& properties = "") : Speak(Seeded(parallel, properties)) {}

  // Waits for the messages of `count` more finished utterances.
  void AwaitFinished(int count) {
    while (count > 0) {
      auto message = Wait(GST_MESSAGE_ELEMENT | GST_MESSAGE_WARNING | GST_MESSAGE_ERROR);
      ASSERT_NE(message, nullptr);
      if (gst_message_has_name(message.get(), "qtts-utterance-finished")) --count;
      Note(std::move(message));
    }
  }
  // Ends the text and waits for the end of the stream, or an error.
  void PlayOut() {
    feeder().End();
    for (;;) {
      auto message = Wait(GST_MESSAGE_ELEMENT | GST_MESSAGE_WARNING | GST_MESSAGE_ERROR | GST_MESSAGE_EOS);
      ASSERT_NE(message, nullptr);
      const bool end = (GST_MESSAGE_TYPE(message.get()) & (GST_MESSAGE_EOS | GST_MESSAGE_ERROR)) != 0;
      Note(std::move(message));
      if (end) break;
    }
    // After an error the base class sends this event.
    EXPECT_TRUE(WaitFor([this] { return record().events().back() == GST_EVENT_EOS; }));
  }

  std::vector<std::string> Transcript() {
    std::vector<std::string> lines = notes_;
    for (const Recorder::Item& item : record().items()) {
      if (!item.is_buffer) {
        lines.emplace_back(gst_event_type_get_name(item.event));
        continue;
      }
      lines.push_back(std::to_string(item.pts) + " " + std::to_string(item.offset) + " " + std::to_string(item.size) +
                      (item.discont ? " discont " : " ") + (item.silent ? "silent " : "") +
                      std::to_string(static_cast<uint32_t>(item.label.character)) + " " +
                      std::to_string(item.label.frame));
    }
    for (const char* count : {"utterances", "interrupted", "dropped", "frames", "seed"}) {
      GstStructure* stats = nullptr;
      g_object_get(src(), "stats", &stats, nullptr);
      gchar* value = g_strdup_value_contents(gst_structure_get_value(stats, count));
      lines.push_back(std::string(count) + "=" + value);
      g_free(value);
      gst_structure_free(stats);
    }
    return lines;
  }

 private:
  // The properties of an element that draws the same seeds as each other one.
  static std::string Seeded(guint parallel, const std::string& properties) {
    g_random_set_seed(7);
    return "parallel=" + std::to_string(parallel) + " " + properties;
  }
  void Note(Owned<GstMessage> message) {
    std::string line = gst_message_type_get_name(GST_MESSAGE_TYPE(message.get()));
    if ((GST_MESSAGE_TYPE(message.get()) & (GST_MESSAGE_WARNING | GST_MESSAGE_ERROR)) != 0) {
      line += " " + ParseProblem(message.get()).text;
    } else if (const GstStructure* fields = gst_message_get_structure(message.get())) {
      GstStructure* copy = gst_structure_copy(fields);
      gst_structure_remove_field(copy, "first-frame-latency");
      gchar* text = gst_structure_to_string(copy);
      line += std::string(" ") + text;
      g_free(text);
      gst_structure_free(copy);
    }
    notes_.push_back(std::move(line));
  }

  std::vector<std::string> notes_;
};

class ParallelTest : public GstTest {
 protected:
  // The output of `play` must be equal with parallel=1 and with more.
  static void ExpectSame(const fake::Script& script, const std::function<void(Scene&)>& play,
                         const std::string& properties = "") {
    const auto show = [&](guint parallel) {
      fake::Reset(script);
      Scene run(parallel, properties);
      play(run);
      return run.Transcript();
    };
    const std::vector<std::string> alone = show(1);
    ASSERT_GT(alone.size(), 8U);
    for (const guint parallel : {2U, 3U, 8U, 2048U}) {
      SCOPED_TRACE(parallel);
      const std::vector<std::string> shown = show(parallel);
      const auto [line, other] = std::mismatch(shown.begin(), shown.end(), alone.begin(), alone.end());
      EXPECT_TRUE(line == shown.end() && other == alone.end())
          << "line " << line - shown.begin() << "\n"
          << (line != shown.end() ? *line : "the end") << "\ninstead of\n"
          << (other != alone.end() ? *other : "the end");
    }
  }

  static bool Started(size_t count) {
    return WaitFor([&] { return fake::Requests().size() == count; });
  }
};

TEST_F(ParallelTest, ManyTextsLeaveInOrder) {
  ExpectSame({}, [](Scene& run) {
    run.Open();
    for (int i = 0; i < 150; ++i) {
      run.Push("text " + std::to_string(i) + std::string(static_cast<size_t>(i * 7 % 60), '.'));
    }
    run.PlayOut();
  });
}

// The same draws of seeds, in the same order.
TEST_F(ParallelTest, SeedsAreThoseOfOneByOne) {
  const auto seeds = [](guint parallel) {
    fake::Reset();
    Scene run(parallel);
    run.Open();
    for (int i = 0; i < 20; ++i) run.Say("text", i % 3 == 0 ? "params, seed=5" : nullptr);
    run.PlayOut();
    std::vector<uint64_t> all;
    for (const Request& request : fake::Requests()) all.push_back(request.seed);
    return all;
  };
  const auto alone = seeds(1);
  ASSERT_EQ(alone.size(), 20U);
  EXPECT_NE(alone[1], alone[2]);
  EXPECT_EQ(seeds(8), alone);
}

TEST_F(ParallelTest, AsManyAsAskedForAreMadeAtOnce) {
  fake::AllowFrames(0);
  Scene run(4);
  run.Open();
  for (int i = 0; i < 10; ++i) run.Push("text " + std::to_string(i));
  ASSERT_TRUE(Started(4));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(fake::Requests().size(), 4U);
  EXPECT_EQ(GetStat(run.src(), "queued-utterances"), 9U) << "they stay in the queue until their turn comes";
  fake::AllowFrames(-1);
  run.PlayOut();
  EXPECT_EQ(fake::Requests().size(), 10U);
}

TEST_F(ParallelTest, PartsThatAreMadeAtOnceAreTheEngines) {
  Speak("text=\"a b\" real-time=false parallel-parts=3").ExpectEnd();
  ASSERT_EQ(fake::Requests().size(), 1U);
  EXPECT_EQ(fake::Requests().at(0).parallel_parts, 3);
  EXPECT_FALSE(fake::Requests().at(0).real_time);
}

TEST_F(ParallelTest, SpeechThatIsMadeInParallelIsNotRealTime) {
  fake::AllowFrames(0);
  Scene run(4);
  run.Open();
  run.Push("text 0");
  ASSERT_TRUE(Started(1));
  for (int i = 1; i < 4; ++i) run.Push("text " + std::to_string(i));
  ASSERT_TRUE(Started(4));
  for (size_t i = 0; i < 4; ++i) EXPECT_FALSE(fake::Requests()[i].real_time) << i;
  fake::AllowFrames(-1);
  run.PlayOut();
}

// The texts exceed the limit of the queue for parallel=1, and are all made at once.
TEST_F(ParallelTest, TheQueueHoldsTwiceAsMany) {
  fake::Reset({.slots = 200});
  fake::AllowFrames(0);
  Scene run(100);
  run.Open();
  std::thread upstream([&] {
    for (int i = 0; i < 201; ++i) run.Push("text");
  });
  ASSERT_TRUE(Started(100));
  upstream.join();
  EXPECT_EQ(GetStat(run.src(), "queued-utterances"), 200U);
  fake::AllowFrames(-1);
  run.PlayOut();
}

// Errors, refusals, texts with nothing to say, gaps, events and settings in the middle.
TEST_F(ParallelTest, TroubleComesInItsTurn) {
  fake::Script script;
  script.start = Status::InvalidArgument("It will not do.");
  script.start_match = "refused";
  script.fail_at_frame = 3;
  script.failure = Status::Internal("It broke.");
  script.failure_match = "broken";
  ExpectSame(script, [](Scene& run) {
    run.Open();
    for (int round = 0; round < 6; ++round) {
      run.Push("good");
      run.Say("refused", "params, instruct=loudly");
      run.Push("?!");
      run.Push("broken text");
      run.Send("mark");
      run.Send("qtts/set-voice, speaker=bob");
      run.Push("late");
    }
    run.PlayOut();
  });
}

// Timed text: gaps before it, and cuts at its end.
TEST_F(ParallelTest, CuesHold) {
  ExpectSame(
      {},
      [](Scene& run) {
        run.Open();
        for (guint64 i = 0; i < 12; ++i) {
          run.PushCue(std::string(1 + i % 5, 'a'), i * 200 * GST_MSECOND, 200 * GST_MSECOND);
        }
        run.PlayOut();
      },
      "text-timing=clip");
}

// Nothing behind a growing text is made ahead.
TEST_F(ParallelTest, GrowingTextIsMadeInItsTurn) {
  ExpectSame(
      {},
      [](Scene& run) {
        fake::AllowFrames(0);  // the first frame reports the whole text
        run.Open();
        for (int i = 0; i < 8; ++i) {
          run.Push("Beginning, ");
          run.Say("between");
          run.Push("end.");
          run.Send("qtts/end-utterance");
        }
        fake::AllowFrames(-1);
        run.PlayOut();
      },
      "segmentation=stream");
}

TEST_F(ParallelTest, LostDeviceEndsTheStream) {
  fake::Script script;
  script.fail_at_frame = 2;
  script.failure = Status::DeviceUnavailable("The GPU is gone.");
  script.failure_match = "broken";
  ExpectSame(script, [](Scene& run) {
    fake::AllowFrames(4);  // of the first: the device is lost while its frames are being played
    run.Open();
    run.Push("good");
    run.AwaitFinished(1);
    run.Push("broken");
    run.Push("never");
    fake::AllowFrames(-1);
    run.PlayOut();
  });
}

// --- drops

TEST_F(ParallelTest, InterruptDropsWhatIsMadeAhead) {
  ExpectSame({}, [](Scene& run) {
    fake::AllowFrames(0);
    run.Open();
    for (int i = 0; i < 10; ++i) run.Push("text");
    ASSERT_TRUE(WaitFor([] { return !fake::Requests().empty(); }));
    run.Interrupt();
    EXPECT_TRUE(WaitFor([] { return fake::GetCounters().live_streams == 0; }));
    run.AwaitFinished(10);
    fake::AllowFrames(-1);
    run.Push("after it");
    run.AwaitFinished(1);
    run.PlayOut();
    EXPECT_EQ(run.record().text(), "after it");
  });
}

TEST_F(ParallelTest, ClearQueueKeepsTheCurrentUtterance) {
  ExpectSame({}, [](Scene& run) {
    fake::AllowFrames(0);
    run.Open();
    run.Push("current");
    ASSERT_TRUE(Started(1));
    for (int i = 0; i < 5; ++i) run.Push("dropped");
    g_signal_emit_by_name(run.src(), "clear-queue");
    EXPECT_TRUE(WaitFor([] { return fake::GetCounters().live_streams == 1; }));
    run.AwaitFinished(5);
    run.Push("and later");
    fake::AllowFrames(-1);
    run.PlayOut();
    EXPECT_EQ(run.record().text(), "currentand later");
  });
}

TEST_F(ParallelTest, FlushDropsWhatIsMadeAhead) {
  ExpectSame({}, [](Scene& run) {
    fake::AllowFrames(0);
    run.Open();
    for (int i = 0; i < 5; ++i) run.Push("dropped");
    ASSERT_TRUE(WaitFor([] { return !fake::Requests().empty(); }));
    run.feeder().Send(gst_event_new_flush_start());
    EXPECT_TRUE(WaitFor([] { return fake::GetCounters().live_streams == 0; }));
    run.feeder().Send(gst_event_new_flush_stop(TRUE));
    run.AwaitFinished(5);
    fake::AllowFrames(-1);
    run.Open();
    for (int i = 0; i < 5; ++i) run.Push("after");
    run.PlayOut();
    EXPECT_EQ(run.record().text(), "afterafterafterafterafter");
  });
}

// An end-of-stream of the application lets the current utterance finish.
TEST_F(ParallelTest, EndOfStreamKeepsTheCurrentUtterance) {
  ExpectSame(
      {},
      [](Scene& run) {
        fake::AllowFrames(0);
        run.Open();
        run.Push("current");
        ASSERT_TRUE(Started(1));
        fake::AllowFrames(1);
        ASSERT_TRUE(WaitFor([&] { return run.record().buffer_count() == 1; }));
        for (int i = 0; i < 5; ++i) run.Push("dropped");
        gst_element_send_event(run.src(), gst_event_new_eos());
        EXPECT_TRUE(WaitFor([] { return fake::GetCounters().live_streams == 1; }));
        fake::AllowFrames(-1);
        run.PlayOut();
        EXPECT_EQ(run.record().text(), "current");
      },
      "retry=0");
}

TEST_F(ParallelTest, StopsAtAnyTime) {
  fake::Reset({.frame_time = std::chrono::milliseconds(1)});
  Scene run(8);
  for (int round = 0; round < 40; ++round) {
    run.Open();
    for (int i = 0; i < 12; ++i) run.Say("text");
    std::this_thread::sleep_for(std::chrono::microseconds(round * 150));
    if (round % 4 == 0) run.Interrupt();
    if (round % 4 == 1) g_signal_emit_by_name(run.src(), "clear-queue");
    if (round % 4 == 2) {
      run.Flush();
    }
    run.Set(GST_STATE_READY);
    EXPECT_TRUE(WaitFor([] { return fake::GetCounters().live_streams == 0; }));
  }
}

// --- bounds

// Utterances made ahead do not wait for slots that others use; one slot suffices for all texts.
TEST_F(ParallelTest, OnlySpareSlotsAreUsed) {
  fake::Script script;
  for (const int slots : {1, 2, 3}) {
    SCOPED_TRACE(slots);
    script.slots = slots;
    ExpectSame(script, [](Scene& run) {
      run.Open();
      for (int i = 0; i < 40; ++i) run.Push("text " + std::to_string(i));
      run.PlayOut();
    });
  }
}

// Two elements that each want more slots than exist.
TEST_F(ParallelTest, ElementsThatCompeteForSlotsBothFinish) {
  fake::Reset({.slots = 4});
  Scene one(8);
  Scene two(8);
  one.Open();
  two.Open();
  std::string expected;
  for (int i = 0; i < 60; ++i) {
    const std::string text = std::to_string(i) + std::string(static_cast<size_t>(i % 40), '.');
    expected += text;
    one.Push(text);
    two.Push(text);
  }
  one.PlayOut();
  two.PlayOut();
  EXPECT_EQ(one.record().text(), expected);
  EXPECT_EQ(two.record().text(), expected);
}

// Upper bound of frames kept for 4 utterances: 1 MiB each, one frame more, and the lead of each stream.
constexpr int64_t kFramesOfFour = 4 * (1024 * 1024 / (1920 * 4) + 1 + 25);

// While downstream accepts nothing, no more is made.
TEST_F(ParallelTest, BackPressureHolds) {
  Scene run(4, "retry=0");
  run.feeder();  // before it runs: with no text and nobody who could bring some, it ends at once
  run.Set(GST_STATE_PAUSED);
  run.Open();
  for (int i = 0; i < 10; ++i) run.Say(std::string(5000, 'a').c_str());
  ASSERT_TRUE(WaitFor([] { return fake::GetCounters().frames >= EngineOptions().lead_frames; }));
  int64_t frames = 0;
  EXPECT_TRUE(WaitFor([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    return std::exchange(frames, fake::GetCounters().frames) == fake::GetCounters().frames;
  }));
  EXPECT_LE(frames, kFramesOfFour);
}

// While the current utterance waits for text, those behind it are made, up to the bound.
TEST_F(ParallelTest, WhatIsMadeAheadIsBounded) {
  Scene run(4, "segmentation=stream utterance-timeout=18446744073709551615");
  run.Open();
  run.Push("Growing");
  for (int i = 0; i < 6; ++i) run.Say(std::string(1000, 'a').c_str());
  ASSERT_TRUE(WaitFor([] { return fake::GetCounters().frames > 4 * 1024 * 1024 / (1920 * 4); }));
  ASSERT_TRUE(WaitFor([&] { return run.record().buffer_count() == 7; }));
  int64_t frames = 0;
  EXPECT_TRUE(WaitFor([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    return std::exchange(frames, fake::GetCounters().frames) == fake::GetCounters().frames;
  }));
  EXPECT_LE(frames, kFramesOfFour);
  run.PlayOut();
  EXPECT_EQ(run.record().buffer_count(), 6007U);
}

// --- live

TEST_F(ParallelTest, LiveIsRefused) {
  Pipeline pipeline("qttssrc name=src text=hello is-live=true parallel=3 ! fakesink");
  EXPECT_EQ(pipeline.Set(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  const auto error = pipeline.Wait(GST_MESSAGE_ERROR);
  ASSERT_NE(error, nullptr);
  const Problem problem = ParseProblem(error.get());
  EXPECT_EQ(problem.domain, GST_RESOURCE_ERROR);
  EXPECT_EQ(problem.code, GST_RESOURCE_ERROR_SETTINGS);
  EXPECT_EQ(problem.text,
            "parallel=3 makes speech before its time, and is-live=true speaks in time: set parallel=1 or "
            "is-live=false.");
  g_object_set(pipeline.src(), "parallel", 1, nullptr);
  EXPECT_NE(pipeline.Set(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
}

}  // namespace
}  // namespace qtts::testing
