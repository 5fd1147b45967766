// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_VOICE_VOICE_FILE_H_
#define QTTS_VOICE_VOICE_FILE_H_

#include <cstddef>
#include <span>
#include <string>

#include "qtts/status.h"
#include "qtts/voice.h"

// What SaveVoice() writes and LoadVoice() reads, in memory.
namespace qtts {

// The bytes of a voice file. Text that is no UTF-8 is repaired.
std::string WriteVoice(const ClonedVoice& voice);

// The voice in the bytes of a file; `path` stands in messages. Untrusted input: what comes out has finite sizes but
// any values. Errors: kCorruptModel.
Result<ClonedVoice> ParseVoice(std::span<const std::byte> file, const std::string& path);

}  // namespace qtts

#endif  // QTTS_VOICE_VOICE_FILE_H_
