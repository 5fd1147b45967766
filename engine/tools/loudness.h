// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TOOLS_LOUDNESS_H_
#define QTTS_TOOLS_LOUDNESS_H_

#include <memory>
#include <optional>
#include <string>

#include "options.h"
#include "qtts/request.h"
#include "qtts/status.h"

namespace qtts {

// Runs `qtts-tool loudness`: measures the speech of each preset speaker.
Status Loudness(const ToolOptions& options);

// Loads the model folder and returns the loudness of a voice's speech in LUFS. None if the voice is silent.
Result<std::optional<double>> LoudnessOfVoice(ToolOptions options, const std::string& folder,
                                              std::shared_ptr<const ClonedVoice> voice);

}  // namespace qtts

#endif  // QTTS_TOOLS_LOUDNESS_H_
