// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_BUNDLED_VOICE_H_
#define QTTS_BUNDLED_VOICE_H_

#include <string>

namespace qtts {

// Returns the default model folder: that of the environment variable QTTS_VOICE_PATH, else the voice installed with the
// element. The folder may not exist.
std::string BundledVoicePath();

}  // namespace qtts

#endif  // QTTS_BUNDLED_VOICE_H_
