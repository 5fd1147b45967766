// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_VOICE_VOICE_FILE_H_
#define QTTS_VOICE_VOICE_FILE_H_

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "qtts/status.h"
#include "qtts/voice.h"

// The file format of SaveTakes() and LoadTakes(), in memory.
namespace qtts {

// Returns the bytes of a voice file: one take, or several whose model is that of the first. Invalid UTF-8 in the texts
// is replaced.
std::string WriteTakes(std::span<const ClonedVoice> takes);

// Parses the bytes of a voice file; `path` is for messages. Untrusted input: sizes are checked, values are not. Errors:
// kCorruptModel.
Result<std::vector<ClonedVoice>> ParseTakes(std::span<const std::byte> file, const std::string& path);

}  // namespace qtts

#endif  // QTTS_VOICE_VOICE_FILE_H_
