// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_VOICE_VOICE_FILE_H_
#define QTTS_VOICE_VOICE_FILE_H_

#include <cstddef>
#include <span>
#include <string>

#include "qtts/status.h"
#include "qtts/voice.h"

// The file format of SaveVoice() and LoadVoice(), in memory.
namespace qtts {

// The bytes of a voice file. Invalid UTF-8 in the text is replaced.
std::string WriteVoice(const ClonedVoice& voice);

// Parses the bytes of a voice file; `path` is for messages. Untrusted input: sizes are checked, values are not. Errors:
// kCorruptModel.
Result<ClonedVoice> ParseVoice(std::span<const std::byte> file, const std::string& path);

}  // namespace qtts

#endif  // QTTS_VOICE_VOICE_FILE_H_
