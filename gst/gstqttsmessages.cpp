// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gstqttsmessages.h"

#include "gstqttslog.h"

#define GST_CAT_DEFAULT gst_qtts_src_debug

namespace gstqtts {
namespace {

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
                               "estimated", G_TYPE_BOOLEAN, TRUE, nullptr);
    case Report::Kind::kMark:
      return gst_structure_new("qtts-mark", "id", G_TYPE_UINT64, report.id, "name", G_TYPE_STRING, report.name.c_str(),
                               "position", G_TYPE_UINT64, static_cast<guint64>(report.position), "running-time",
                               G_TYPE_UINT64, report.running_time, nullptr);
    case Report::Kind::kFinished:
      break;
  }
  return gst_structure_new(
      "qtts-utterance-finished", "id", G_TYPE_UINT64, report.id, "reason", G_TYPE_STRING,
      qtts::EndReasonName(report.reason), "frames", G_TYPE_UINT64, report.frames, "samples", G_TYPE_UINT64,
      report.samples, "text-chars", G_TYPE_UINT64, static_cast<guint64>(report.text_chars), "text-spoken-chars",
      G_TYPE_UINT64, static_cast<guint64>(report.spoken_chars), "estimated", G_TYPE_BOOLEAN,
      static_cast<gboolean>(report.reason != qtts::EndReason::kComplete && report.frames > 0), nullptr);
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
