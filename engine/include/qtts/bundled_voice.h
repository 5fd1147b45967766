// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_BUNDLED_VOICE_H_
#define QTTS_BUNDLED_VOICE_H_

#include <string>

#include "qtts/status.h"

namespace qtts {

// Returns the default model folder: that of the environment variable QTTS_VOICE_PATH, else the voice installed with the
// element. The folder may not exist.
std::string BundledVoicePath();

// Adds the remedy to `error`, met in opening the model folder `path`, if that is the bundled voice's and is missing.
// Returns any other error as it is.
Status ExplainMissingVoice(const Status& error, const std::string& path);

}  // namespace qtts

#endif  // QTTS_BUNDLED_VOICE_H_
