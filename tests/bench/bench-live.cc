// SPDX-License-Identifier: LGPL-2.1-or-later
// A live element over a long time with the system clock: discontinuities and drift of its stream, and lateness of its
// buffers. It sends silence, and speaks a sentence every few seconds.
//
//   bench-live [SECONDS [MODEL_DIR]]      (default 600, the bundled voice)
//
// Exits with 1 if a sample was lost or stamped wrong.
#include <gst/gst.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <string>
#include <vector>

namespace {

constexpr guint64 kSpeakEvery = 10;  // seconds

[[noreturn]] void Fail(const char* message) {
  std::fprintf(stderr, "bench-live: %s\n", message);
  std::exit(1);
}

// Buffers of the src pad.
struct Record {
  GstElement* element = nullptr;
  std::mutex mutex;
  guint64 buffers = 0;
  guint64 speech = 0;
  guint64 breaks = 0;       // discontinuities after the first buffer
  guint64 wrong_times = 0;  // buffers that do not start at the end of the one before and have no DISCONT flag
  guint64 lost_samples = 0;
  GstClockTime first = 0;
  GstClockTime end = 0;
  guint64 samples = 0;
  std::vector<double> lateness;  // milliseconds after the buffer's time
};

GstPadProbeReturn OnBuffer(GstPad* /*pad*/, GstPadProbeInfo* info, gpointer data) {
  auto* record = static_cast<Record*>(data);
  GstBuffer* buffer = GST_PAD_PROBE_INFO_BUFFER(info);
  const GstClockTime now = gst_element_get_current_running_time(record->element);
  const std::lock_guard lock(record->mutex);
  const GstClockTime time = GST_BUFFER_PTS(buffer);
  const bool discont = GST_BUFFER_FLAG_IS_SET(buffer, GST_BUFFER_FLAG_DISCONT);
  if (record->buffers++ == 0) {
    record->first = time;
  } else {
    if (discont) ++record->breaks;
    if (!discont && time != record->end) ++record->wrong_times;
    if (GST_BUFFER_OFFSET(buffer) != record->samples) ++record->lost_samples;
  }
  if (!GST_BUFFER_FLAG_IS_SET(buffer, GST_BUFFER_FLAG_GAP)) ++record->speech;
  record->end = time + GST_BUFFER_DURATION(buffer);
  record->samples = GST_BUFFER_OFFSET_END(buffer);
  record->lateness.push_back(static_cast<double>(GST_CLOCK_DIFF(time, now)) / GST_MSECOND);
  return GST_PAD_PROBE_OK;
}

std::vector<std::string> Sentences() {
  std::ifstream file(QTTS_BENCH_SENTENCES);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty()) lines.push_back(line);
  }
  if (lines.empty()) Fail("no sentences in " QTTS_BENCH_SENTENCES);
  return lines;
}

// Speaks for `seconds`; false at an error.
bool Run(GstElement* element, GstBus* bus, GstClockTime duration) {
  const std::vector<std::string> sentences = Sentences();
  const gint64 start = g_get_monotonic_time();
  for (size_t i = 0;; ++i) {
    const auto passed = static_cast<GstClockTime>(g_get_monotonic_time() - start) * GST_USECOND;
    if (passed >= duration) return true;
    guint64 id = 0;
    g_signal_emit_by_name(element, "speak", sentences[i % sentences.size()].c_str(), nullptr, &id);
    if (id == 0) Fail("the element refuses to speak");
    const GstClockTime wait = std::min<GstClockTime>(kSpeakEvery * GST_SECOND, duration - passed);
    GstMessage* message = gst_bus_timed_pop_filtered(bus, wait, GST_MESSAGE_ERROR);
    if (message == nullptr) continue;
    GError* error = nullptr;
    gst_message_parse_error(message, &error, nullptr);
    std::fprintf(stderr, "bench-live: %s\n", error->message);
    g_error_free(error);
    gst_message_unref(message);
    return false;
  }
}

}  // namespace

int main(int argc, char** argv) {
  gst_init(&argc, &argv);
  const GstClockTime duration = (argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 600) * GST_SECOND;
  GstElement* const pipeline = gst_pipeline_new(nullptr);
  GstElement* const element = gst_element_factory_make("qttssrc", nullptr);
  GstElement* const sink = gst_element_factory_make("fakesink", nullptr);
  if (element == nullptr || sink == nullptr) Fail("qttssrc or fakesink is missing; run in `meson devenv`");
  g_object_set(element, "is-live", TRUE, "model-path", argc > 2 ? argv[2] : QTTS_BENCH_VOICE, "seed", gint64{1},
               nullptr);
  g_object_set(sink, "sync", FALSE, "async", FALSE, nullptr);
  gst_bin_add_many(GST_BIN(pipeline), element, sink, nullptr);
  if (!gst_element_link(element, sink)) Fail("linking failed");
  Record record;
  record.element = element;
  GstPad* const pad = gst_element_get_static_pad(element, "src");
  gst_pad_add_probe(pad, GST_PAD_PROBE_TYPE_BUFFER, OnBuffer, &record, nullptr);
  GstBus* const bus = gst_element_get_bus(pipeline);
  if (gst_element_set_state(pipeline, GST_STATE_PLAYING) == GST_STATE_CHANGE_FAILURE) Fail("it does not start");
  const bool ran = Run(element, bus, duration);

  GstClockTime now = 0;
  guint64 frames = 0;
  guint64 underruns = 0;
  {
    const std::lock_guard lock(record.mutex);  // no buffer leaves meanwhile
    now = gst_element_get_current_running_time(element);
    GstStructure* stats = nullptr;
    g_object_get(element, "stats", &stats, nullptr);
    gst_structure_get_uint64(stats, "frames", &frames);
    gst_structure_get_uint64(stats, "underruns", &underruns);
    gst_structure_free(stats);
  }
  gst_element_set_state(pipeline, GST_STATE_NULL);
  gst_object_unref(pad);
  gst_object_unref(bus);
  gst_object_unref(pipeline);
  if (!ran || record.buffers == 0) return 1;

  std::sort(record.lateness.begin(), record.lateness.end());
  const auto at = [&](double q) {
    return record.lateness[static_cast<size_t>(std::lround(q * static_cast<double>(record.lateness.size() - 1)))];
  };
  const GstClockTime length = record.end - record.first;
  const auto of_samples = static_cast<GstClockTimeDiff>(gst_util_uint64_scale(record.samples, GST_SECOND, 24000));
  std::printf("stream                %.3f s, %" G_GUINT64_FORMAT " buffers, %" G_GUINT64_FORMAT " of them speech\n",
              static_cast<double>(length) / GST_SECOND, record.buffers, record.speech);
  std::printf("ahead of the clock    %.3f ms at the end\n",
              static_cast<double>(GST_CLOCK_DIFF(now, record.end)) / GST_MSECOND);
  std::printf("time beyond samples   %.6f ms\n",
              static_cast<double>(static_cast<GstClockTimeDiff>(length) - of_samples) / GST_MSECOND);
  std::printf("lost, misplaced       %" G_GUINT64_FORMAT ", %" G_GUINT64_FORMAT "\n", record.lost_samples,
              record.wrong_times);
  std::printf("breaks, underruns     %" G_GUINT64_FORMAT ", %" G_GUINT64_FORMAT "\n", record.breaks, underruns);
  std::printf("left late by          %.2f ms median, %.2f p99, %.2f p99.9, %.2f worst\n", at(0.5), at(0.99), at(0.999),
              at(1));
  // The count of spoken frames rises shortly before the frame passes.
  const bool complete = frames == record.speech || frames == record.speech + 1;
  return record.lost_samples == 0 && record.wrong_times == 0 && complete ? 0 : 1;
}
