// SPDX-License-Identifier: LGPL-2.1-or-later
// Every allocation of C++ fails once while upstream calls the sink pad: that is at most one error, never an abort, and
// the element can be stopped and its pad released. Tests of the same for the engine: tests/unit/resources.
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <new>
#include <string>

#include "support.h"

namespace {

// Index of the allocation of this thread that fails, counted from now; below 0: none.
thread_local int64_t fails = -1;

void* Allocate(size_t bytes) {
  if (fails >= 0 && fails-- == 0) throw std::bad_alloc();
  void* const memory = std::malloc(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(size_t bytes) { return Allocate(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace qtts::testing {
namespace {

class ExhaustionTest : public GstTest {
 protected:
  // Runs `call` with its first allocation failing, then with its second, and so on until it makes no more. `prepare`
  // runs before it, without failures. Returns the number of allocations.
  static int FailEach(const std::string& properties, const std::function<void(Feeder*)>& prepare,
                      const std::function<void(Feeder*)>& call) {
    for (int n = 0;; ++n) {
      Speak speak(properties);
      Feeder& feeder = speak.Open().feeder();
      prepare(&feeder);
      fails = n;
      call(&feeder);
      const bool failed = fails < 0;
      fails = -1;
      EXPECT_LE(speak.Pending(GST_MESSAGE_ERROR).size(), failed ? 1U : 0U) << "allocation " << n;
      if (!failed || ::testing::Test::HasFailure()) return n;
    }
  }

  static void Nothing(Feeder* /*feeder*/) {}
};

TEST_F(ExhaustionTest, EventsOfTheSinkPad) {
  const struct {
    const char* name;
    const char* properties;
    std::function<GstEvent*()> event;
  } cases[] = {
      {"a voice", "", [] { return NewEvent("qtts/set-voice, speaker=bob, temperature=0.5, language=german"); }},
      {"a wrong voice", "", [] { return NewEvent("qtts/set-voice, speaker=nobody"); }},
      {"an event for downstream", "", [] { return NewEvent("somebody/else"); }},
      {"an interrupt", "", [] { return NewEvent("qtts/interrupt"); }},
      {"the end of a sentence", "segmentation=sentence", [] { return NewEvent("qtts/end-utterance"); }},
      {"a gap", "segmentation=sentence text-timing=start", [] { return gst_event_new_gap(0, GST_SECOND); }},
      {"the end of the text", "segmentation=sentence", gst_event_new_eos},
      {"a new stream", "segmentation=sentence", [] { return gst_event_new_stream_start("other"); }},
  };
  int allocations = 0;
  for (const auto& tried : cases) {
    SCOPED_TRACE(tried.name);
    allocations += FailEach(
        tried.properties, [](Feeder* feeder) { feeder->Push("a sentence that is not over"); },
        [&tried](Feeder* feeder) { feeder->Send(tried.event()); });
  }
  EXPECT_GE(allocations, 20) << "nothing was tried";
}

// The rest of the text is closed by its time-out, if the end of the text could not do it.
TEST_F(ExhaustionTest, AfterTheEndOfTheTextTheStreamEnds) {
  for (int n = 0;; ++n) {
    Speak speak("segmentation=sentence utterance-timeout=1000000");
    speak.Push("a sentence that is not over");
    fails = n;
    speak.feeder().Send(gst_event_new_eos());
    const bool failed = fails < 0;
    fails = -1;
    EXPECT_NE(speak.Wait(GST_MESSAGE_EOS), nullptr) << "allocation " << n;
    if (!failed || ::testing::Test::HasFailure()) break;
  }
}

TEST_F(ExhaustionTest, TextOfTheSinkPad) {
  const std::string text = "One. Two. And thr";
  EXPECT_GE(FailEach("segmentation=sentence", Nothing, [&text](Feeder* feeder) { feeder->Push(text); }), 3);
}

TEST_F(ExhaustionTest, WaitingForTheSinkPad) {
  EXPECT_GE(FailEach(
                "segmentation=sentence", [](Feeder* feeder) { feeder->Push("a sentence that is not over"); },
                [](Feeder* feeder) {
                  GstQuery* const query = gst_query_new_drain();
                  gst_pad_query(feeder->sink(), query);
                  gst_query_unref(query);
                }),
            1);
}

TEST_F(ExhaustionTest, ReleasingTheSinkPad) {
  EXPECT_GE(FailEach(
                "segmentation=sentence", [](Feeder* feeder) { feeder->Push("a sentence that is not over"); },
                [](Feeder* feeder) { feeder->Release(); }),
            1);
}

}  // namespace
}  // namespace qtts::testing
