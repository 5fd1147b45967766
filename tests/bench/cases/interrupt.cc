// SPDX-License-Identifier: LGPL-2.1-or-later
// How fast speech stops: flushes of the sink pad with everything blocked (downstream blocks, the engine is at its limit
// of frames ahead, upstream waits for space in the queue), and interrupts of a live stream.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "cases.h"

namespace qtts::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr char kText[] = "This is a rather long sentence, which takes a while to say, so that it can be cut off. ";

void PrintTimes(const char* what, std::vector<double> values) {
  std::sort(values.begin(), values.end());
  std::printf("%-34s median %6.3f ms, p95 %6.3f ms, worst %6.3f ms\n", what, values[values.size() / 2],
              values[values.size() * 95 / 100], values.back());
}

void BenchFlush(const Case& options) {
  std::vector<double> starts;
  std::vector<double> stops;
  Speaker speaker("qttssrc name=speech max-queued-text=100 ! fakesink name=sink async=false", options.model);
  GstPad* feeder = gst_pad_new("feeder", GST_PAD_SRC);
  GstPad* sink = gst_element_request_pad_simple(speaker.element(), "sink");
  gst_pad_set_active(feeder, TRUE);
  gst_pad_link(feeder, sink);
  GstElement* fakesink = gst_bin_get_by_name(GST_BIN(speaker.pipeline()), "sink");
  GstPad* blocked = gst_element_get_static_pad(fakesink, "sink");
  speaker.Set(GST_STATE_PLAYING);
  for (int round = 0; round < options.number; ++round) {
    const int begin = speaker.buffers();
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
    Speaker::Await([&] { return pushed >= 2 && speaker.buffers() == begin + 1; });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // the engine computes up to its limit of frames ahead
    auto start = Clock::now();
    gst_pad_push_event(feeder, gst_event_new_flush_start());
    starts.push_back(MillisecondsSince(start));
    upstream.join();
    start = Clock::now();
    gst_pad_push_event(feeder, gst_event_new_flush_stop(TRUE));
    stops.push_back(MillisecondsSince(start));
    gst_pad_remove_probe(blocked, block);
  }
  speaker.Set(GST_STATE_NULL);
  gst_element_release_request_pad(speaker.element(), sink);
  gst_object_unref(blocked);
  gst_object_unref(fakesink);
  gst_object_unref(sink);
  gst_pad_set_active(feeder, FALSE);
  gst_object_unref(feeder);
  PrintTimes("flush-start, everything blocked", starts);
  PrintTimes("flush-stop", stops);
}

bool BenchInterruptsOfALiveStream(const Case& options) {
  std::vector<double> calls;
  int most = 0;
  Speaker speaker("qttssrc name=speech is-live=true ! fakesink", options.model);
  speaker.Set(GST_STATE_PLAYING);
  for (int round = 0; round < options.number; ++round) {
    const int begin = speaker.buffers();
    speaker.Speak(kText);
    Speaker::Await([&] { return speaker.buffers() == begin + 1 + round % 3; });
    std::this_thread::sleep_for(std::chrono::milliseconds(round % 8 * 10));
    const auto start = Clock::now();
    guint64 frames = 0;
    g_signal_emit_by_name(speaker.element(), "interrupt", &frames);
    calls.push_back(MillisecondsSince(start));
    const int before = speaker.buffers();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    most = std::max(most, speaker.buffers() - before);
  }
  PrintTimes("interrupt, live", calls);
  std::printf("frames of speech after an interrupt: at most %d\n", most);
  return most <= 1;
}

}  // namespace

bool BenchInterrupt(const Case& options) {
  gst_init(nullptr, nullptr);
  BenchFlush(options);
  return BenchInterruptsOfALiveStream(options);
}

}  // namespace qtts::bench
