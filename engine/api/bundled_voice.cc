// SPDX-License-Identifier: LGPL-2.1-or-later
#include "qtts/bundled_voice.h"

#include <glib.h>

#include "build_config.h"

namespace qtts {

std::string BundledVoicePath() {
  const gchar* const path = g_getenv("QTTS_VOICE_PATH");
  return path != nullptr && *path != '\0' ? path : QTTS_VOICE_DIR;
}

Status ExplainMissingVoice(const Status& error, const std::string& path) {
  if (error.code() != StatusCode::kNotFound || path != BundledVoicePath()) return error;
  return Status::NotFound("there is no bundled voice: " + error.message() +
                          ", or set QTTS_VOICE_PATH to that of the voice");
}

}  // namespace qtts
