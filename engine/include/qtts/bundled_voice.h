// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_BUNDLED_VOICE_H_
#define QTTS_BUNDLED_VOICE_H_

#include <string>

namespace qtts {

// The model folder for who names none: the one that the environment variable QTTS_VOICE_PATH names, else that of the
// voice which is installed with the element. It may be missing.
std::string BundledVoicePath();

}  // namespace qtts

#endif  // QTTS_BUNDLED_VOICE_H_
