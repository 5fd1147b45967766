// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gstqttslog.h"

#include <gst/gst.h>

#include "qtts/log.h"

GST_DEBUG_CATEGORY_STATIC(gst_qtts_engine_debug);

namespace gstqtts {
namespace {

GstDebugLevel DebugLevel(qtts::LogLevel level) {
  switch (level) {
    case qtts::LogLevel::kWarning:
      return GST_LEVEL_WARNING;
    case qtts::LogLevel::kInfo:
      return GST_LEVEL_INFO;
    case qtts::LogLevel::kDebug:
      return GST_LEVEL_DEBUG;
    case qtts::LogLevel::kTrace:
      break;
  }
  return GST_LEVEL_TRACE;
}

bool Enabled(qtts::LogLevel level) {
  return DebugLevel(level) <= gst_debug_category_get_threshold(gst_qtts_engine_debug);
}

void Write(qtts::LogLevel level, const char* line) {
  GST_CAT_LEVEL_LOG(gst_qtts_engine_debug, DebugLevel(level), nullptr, "%s", line);
}

constexpr qtts::LogSink kSink = {.enabled = Enabled, .write = Write};

}  // namespace

void InitEngineLog() {
  GST_DEBUG_CATEGORY_INIT(gst_qtts_engine_debug, "qttsengine", 0, "Engine of qttssrc");
  qtts::SetLogSink(&kSink);
}

}  // namespace gstqtts
