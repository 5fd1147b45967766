// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gstqttsmessages.h"

#include <cstddef>
#include <vector>

#include "gstqttslog.h"

#define GST_CAT_DEFAULT gst_qtts_src_debug

namespace gstqtts {
namespace {

// Adds the texts of `parts` as strings, and their positions: offset, length, offset, length, …
void AddParts(GstStructure* structure, const char* texts_name, const char* positions_name,
              const std::vector<ReportedText>& parts) {
  auto** texts = g_new0(gchar*, parts.size() + 1);
  GValue positions = G_VALUE_INIT;
  gst_value_array_init(&positions, static_cast<guint>(2 * parts.size()));
  GValue number = G_VALUE_INIT;
  g_value_init(&number, G_TYPE_UINT64);
  for (size_t i = 0; i < parts.size(); ++i) {
    texts[i] = g_strdup(parts[i].text.c_str());
    for (const size_t position : {parts[i].offset, parts[i].length}) {
      g_value_set_uint64(&number, position);
      gst_value_array_append_value(&positions, &number);
    }
  }
  gst_structure_set(structure, texts_name, G_TYPE_STRV, texts, nullptr);
  g_strfreev(texts);
  gst_structure_take_value(structure, positions_name, &positions);
}

void AddCoverage(GstStructure* structure, const ReportedCoverage& coverage) {
  gst_structure_set(structure, "measured", G_TYPE_BOOLEAN, static_cast<gboolean>(coverage.measured), nullptr);
  if (!coverage.measured) return;
  gst_structure_set(structure, "coverage", G_TYPE_DOUBLE, coverage.coverage, "end-missed", G_TYPE_BOOLEAN,
                    static_cast<gboolean>(coverage.end_missed), "stopped-early", G_TYPE_BOOLEAN,
                    static_cast<gboolean>(coverage.stopped_early), nullptr);
  AddParts(structure, "skipped", "skipped-chars", coverage.skipped);
  AddParts(structure, "repeated", "repeated-chars", coverage.repeated);
}

GstStructure* NewStructure(const Report& report) {
  switch (report.kind) {
    case Report::Kind::kStarted:
      return gst_structure_new("qtts-utterance-started", "id", G_TYPE_UINT64, report.id, "text", G_TYPE_STRING,
                               report.text.c_str(), "text-offset", G_TYPE_UINT64,
                               static_cast<guint64>(report.text_offset), "running-time", G_TYPE_UINT64,
                               report.running_time, "first-frame-latency", G_TYPE_UINT64,
                               static_cast<guint64>(report.first_frame_latency.count()), "seed", G_TYPE_INT64,
                               static_cast<gint64>(report.seed), nullptr);
    case Report::Kind::kProgress:
      return gst_structure_new("qtts-text-progress", "id", G_TYPE_UINT64, report.id, "offset-chars", G_TYPE_UINT64,
                               static_cast<guint64>(report.offset), "length-chars", G_TYPE_UINT64,
                               static_cast<guint64>(report.length), "running-time", G_TYPE_UINT64, report.running_time,
                               "duration", G_TYPE_UINT64, report.duration, "estimated", G_TYPE_BOOLEAN,
                               static_cast<gboolean>(report.estimated), nullptr);
    case Report::Kind::kMark:
      return gst_structure_new("qtts-mark", "id", G_TYPE_UINT64, report.id, "name", G_TYPE_STRING, report.name.c_str(),
                               "position", G_TYPE_UINT64, static_cast<guint64>(report.position), "running-time",
                               G_TYPE_UINT64, report.running_time, nullptr);
    case Report::Kind::kFinished:
      break;
  }
  GstStructure* finished = gst_structure_new(
      "qtts-utterance-finished", "id", G_TYPE_UINT64, report.id, "reason", G_TYPE_STRING,
      qtts::EndReasonName(report.reason), "frames", G_TYPE_UINT64, report.frames, "samples", G_TYPE_UINT64,
      report.samples, "duration", G_TYPE_UINT64, report.heard, "cue-duration", G_TYPE_UINT64,
      report.slot.value_or(GST_CLOCK_TIME_NONE), "late", G_TYPE_UINT64, report.lateness, "text-chars", G_TYPE_UINT64,
      static_cast<guint64>(report.text_chars), "text-spoken-chars", G_TYPE_UINT64,
      static_cast<guint64>(report.spoken_chars), "estimated", G_TYPE_BOOLEAN, static_cast<gboolean>(report.estimated),
      "retries", G_TYPE_UINT, static_cast<guint>(report.retries), nullptr);
  AddCoverage(finished, report.coverage);
  return finished;
}

}  // namespace

void PostReport(GstElement* element, const Report& report) {
  switch (report.kind) {
    case Report::Kind::kStarted:
      GST_DEBUG_OBJECT(element, "utterance %" G_GUINT64_FORMAT ": started at %" GST_TIME_FORMAT, report.id,
                       GST_TIME_ARGS(report.running_time));
      break;
    case Report::Kind::kProgress:
      GST_LOG_OBJECT(element, "utterance %" G_GUINT64_FORMAT ": at character %" G_GSIZE_FORMAT, report.id,
                     report.offset);
      break;
    case Report::Kind::kMark:
      GST_LOG_OBJECT(element, "mark '%s' at %" GST_TIME_FORMAT, report.name.c_str(),
                     GST_TIME_ARGS(report.running_time));
      break;
    case Report::Kind::kFinished:
      GST_DEBUG_OBJECT(element,
                       "utterance %" G_GUINT64_FORMAT ": finished, %s, %" G_GUINT64_FORMAT
                       " frames, character %" G_GSIZE_FORMAT " of %" G_GSIZE_FORMAT,
                       report.id, qtts::EndReasonName(report.reason), report.frames, report.spoken_chars,
                       report.text_chars);
      break;
  }
  gst_element_post_message(element, gst_message_new_element(GST_OBJECT(element), NewStructure(report)));
}

}  // namespace gstqtts
