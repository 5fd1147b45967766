// SPDX-License-Identifier: LGPL-2.1-or-later
// A live element over a long time with the system clock: discontinuities and drift of its stream, and lateness of its
// buffers. It sends silence, and speaks a sentence every few seconds.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <mutex>
#include <string>
#include <vector>

#include "cases.h"

namespace qtts::bench {
namespace {

constexpr guint64 kSpeakEvery = 10;  // seconds

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

// Speaks for so long; false at an error.
bool SpeakFor(Speaker* speaker, GstClockTime duration) {
  const std::vector<std::string> sentences = Sentences();
  GstBus* const bus = gst_element_get_bus(speaker->pipeline());
  const gint64 start = g_get_monotonic_time();
  GstMessage* message = nullptr;
  for (size_t i = 0; message == nullptr; ++i) {
    const auto passed = static_cast<GstClockTime>(g_get_monotonic_time() - start) * GST_USECOND;
    if (passed >= duration) break;
    speaker->Speak(sentences[i % sentences.size()]);
    const GstClockTime wait = std::min<GstClockTime>(kSpeakEvery * GST_SECOND, duration - passed);
    message = gst_bus_timed_pop_filtered(bus, wait, GST_MESSAGE_ERROR);
  }
  gst_object_unref(bus);
  if (message == nullptr) return true;
  GError* error = nullptr;
  gst_message_parse_error(message, &error, nullptr);
  std::fprintf(stderr, "%s\n", error->message);
  g_error_free(error);
  gst_message_unref(message);
  return false;
}

}  // namespace

bool BenchLive(const Case& options) {
  gst_init(nullptr, nullptr);
  Speaker speaker("qttssrc name=speech is-live=true seed=1 ! fakesink sync=false async=false", options.model);
  Record record;
  record.element = speaker.element();
  GstPad* const pad = gst_element_get_static_pad(speaker.element(), "src");
  gst_pad_add_probe(pad, GST_PAD_PROBE_TYPE_BUFFER, OnBuffer, &record, nullptr);
  gst_object_unref(pad);
  speaker.Set(GST_STATE_PLAYING);
  const bool ran = SpeakFor(&speaker, static_cast<GstClockTime>(options.number) * GST_SECOND);

  GstClockTime now = 0;
  guint64 frames = 0;
  guint64 underruns = 0;
  {
    const std::lock_guard lock(record.mutex);  // no buffer leaves meanwhile
    now = gst_element_get_current_running_time(speaker.element());
    frames = speaker.Stat("frames");
    underruns = speaker.Stat("underruns");
  }
  speaker.Set(GST_STATE_NULL);
  if (!ran || record.buffers == 0) return false;

  std::sort(record.lateness.begin(), record.lateness.end());
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
  std::printf("left late by          %.2f ms median, %.2f p99, %.2f p99.9, %.2f worst\n", At(record.lateness, 0.5),
              At(record.lateness, 0.99), At(record.lateness, 0.999), At(record.lateness, 1));
  // The count of spoken frames rises shortly before the frame passes.
  const bool complete = frames == record.speech || frames == record.speech + 1;
  return record.lost_samples == 0 && record.wrong_times == 0 && complete;
}

}  // namespace qtts::bench
