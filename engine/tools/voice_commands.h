// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TOOLS_VOICE_COMMANDS_H_
#define QTTS_TOOLS_VOICE_COMMANDS_H_

#include <string>

#include "options.h"
#include "qtts/request.h"
#include "qtts/status.h"

// Makes voices out of descriptions and of other voices, and keeps them.
namespace qtts {

// Implements `voice design`.
Status DesignVoice(const ToolOptions& options);

// Implements `voice mix`.
Status MixVoiceFiles(const ToolOptions& options);

// Writes `voice`, with --style, to --output, or as one more take into the file --add-to. Returns the file's path.
Result<std::string> KeepVoice(ClonedVoice voice, const ToolOptions& options);

// Prints the content of a voice file.
Status PrintVoiceFile(const std::string& path, bool as_json);

}  // namespace qtts

#endif  // QTTS_TOOLS_VOICE_COMMANDS_H_
