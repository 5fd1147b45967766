// SPDX-License-Identifier: LGPL-2.1-or-later
// How fast speech stops: flushes of the sink pad with everything blocked (downstream blocks, the engine is at its limit
// of frames ahead, upstream waits for space in the queue), and interrupts of a live stream.
//
//   bench-interrupt [ROUNDS]      (default 200; the bundled voice)
//
// Exits with 1 if more than one frame of speech left after an interrupt had returned.
#include <gst/gst.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

constexpr char kText[] = "This is a rather long sentence, which takes a while to say, so that it can be cut off. ";

[[noreturn]] void Fail(const char* message) {
  std::fprintf(stderr, "bench-interrupt: %s\n", message);
  std::exit(1);
}

double Milliseconds(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

void Print(const char* what, std::vector<double> values) {
  std::sort(values.begin(), values.end());
  std::printf("%-34s median %6.3f ms, p95 %6.3f ms, worst %6.3f ms\n", what, values[values.size() / 2],
              values[values.size() * 95 / 100], values.back());
}

template <typename Condition>
void WaitFor(const Condition& condition) {
  const auto start = Clock::now();
  while (!condition()) {
    if (Milliseconds(start) > 60000) Fail("nothing happened for a minute");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

struct Counter {
  std::atomic<int> speech = 0;
  static GstPadProbeReturn Count(GstPad*, GstPadProbeInfo* info, gpointer user) {
    if (!GST_BUFFER_FLAG_IS_SET(GST_PAD_PROBE_INFO_BUFFER(info), GST_BUFFER_FLAG_GAP)) {
      ++static_cast<Counter*>(user)->speech;
    }
    return GST_PAD_PROBE_OK;
  }
};

GstElement* Launch(const char* line, GstElement** speech, Counter* counter) {
  GstElement* pipeline = gst_parse_launch(line, nullptr);
  if (pipeline == nullptr) Fail("no pipeline; is the plugin in GST_PLUGIN_PATH?");
  *speech = gst_bin_get_by_name(GST_BIN(pipeline), "speech");
  GstPad* pad = gst_element_get_static_pad(*speech, "src");
  gst_pad_add_probe(pad, GST_PAD_PROBE_TYPE_BUFFER, Counter::Count, counter, nullptr);
  gst_object_unref(pad);
  return pipeline;
}

void Stop(GstElement* pipeline, GstElement* speech) {
  gst_element_set_state(pipeline, GST_STATE_NULL);
  gst_object_unref(speech);
  gst_object_unref(pipeline);
}

void BenchFlush(int rounds) {
  std::vector<double> starts;
  std::vector<double> stops;
  Counter counter;
  GstElement* speech = nullptr;
  GstElement* pipeline =
      Launch("qttssrc name=speech max-queued-text=100 ! fakesink name=sink async=false", &speech, &counter);
  GstPad* feeder = gst_pad_new("feeder", GST_PAD_SRC);
  GstPad* sink = gst_element_request_pad_simple(speech, "sink");
  gst_pad_set_active(feeder, TRUE);
  gst_pad_link(feeder, sink);
  GstElement* fakesink = gst_bin_get_by_name(GST_BIN(pipeline), "sink");
  GstPad* blocked = gst_element_get_static_pad(fakesink, "sink");
  gst_element_set_state(pipeline, GST_STATE_PLAYING);
  for (int round = 0; round < rounds; ++round) {
    counter.speech = 0;
    const gulong block = gst_pad_add_probe(
        blocked, static_cast<GstPadProbeType>(GST_PAD_PROBE_TYPE_BLOCK | GST_PAD_PROBE_TYPE_BUFFER),
        [](GstPad*, GstPadProbeInfo*, gpointer) { return GST_PAD_PROBE_OK; }, nullptr, nullptr);
    gst_pad_push_event(feeder, gst_event_new_stream_start("feeder"));
    GstSegment segment;
    gst_segment_init(&segment, GST_FORMAT_BYTES);
    gst_pad_push_event(feeder, gst_event_new_segment(&segment));
    std::atomic<int> pushed = 0;
    std::thread upstream([&] {
      while (gst_pad_push(feeder, gst_buffer_new_memdup(kText, sizeof kText - 1)) == GST_FLOW_OK) ++pushed;
    });
    WaitFor([&] { return pushed >= 2 && counter.speech == 1; });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // the engine computes up to its limit of frames ahead
    auto start = Clock::now();
    gst_pad_push_event(feeder, gst_event_new_flush_start());
    starts.push_back(Milliseconds(start));
    upstream.join();
    start = Clock::now();
    gst_pad_push_event(feeder, gst_event_new_flush_stop(TRUE));
    stops.push_back(Milliseconds(start));
    gst_pad_remove_probe(blocked, block);
  }
  gst_element_set_state(pipeline, GST_STATE_NULL);
  gst_element_release_request_pad(speech, sink);
  gst_object_unref(blocked);
  gst_object_unref(fakesink);
  gst_object_unref(sink);
  gst_pad_set_active(feeder, FALSE);
  gst_object_unref(feeder);
  Stop(pipeline, speech);
  Print("flush-start, everything blocked", starts);
  Print("flush-stop", stops);
}

void BenchInterrupt(int rounds) {
  std::vector<double> calls;
  int most = 0;
  Counter counter;
  GstElement* speech = nullptr;
  GstElement* pipeline = Launch("qttssrc name=speech is-live=true ! fakesink", &speech, &counter);
  gst_element_set_state(pipeline, GST_STATE_PLAYING);
  for (int round = 0; round < rounds; ++round) {
    counter.speech = 0;
    guint64 number = 0;
    g_signal_emit_by_name(speech, "speak", kText, nullptr, &number);
    if (number == 0) Fail("the text was refused");
    WaitFor([&] { return counter.speech == 1 + round % 3; });
    std::this_thread::sleep_for(std::chrono::milliseconds(round % 8 * 10));
    const auto start = Clock::now();
    g_signal_emit_by_name(speech, "interrupt", &number);
    calls.push_back(Milliseconds(start));
    const int before = counter.speech;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    most = std::max(most, counter.speech - before);
  }
  Stop(pipeline, speech);
  Print("interrupt, live", calls);
  std::printf("frames of speech after an interrupt: at most %d\n", most);
  if (most > 1) Fail("speech went on");
}

}  // namespace

int main(int argc, char** argv) {
  gst_init(&argc, &argv);
  g_setenv("QTTS_VOICE_PATH", QTTS_BENCH_VOICE, FALSE);
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 200;
  if (rounds < 1) Fail("how many rounds?");
  BenchFlush(rounds);
  BenchInterrupt(rounds);
  return 0;
}
