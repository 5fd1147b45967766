// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_VOICE_TAKES_H_
#define QTTS_VOICE_TAKES_H_

#include <span>
#include <string>
#include <vector>

#include "qtts/request.h"
#include "qtts/status.h"

// The takes of a voice file and their styles, without the file.
namespace qtts {

// Returns kInvalidArgument for takes that cannot be in one file: none or too many, different models, or several of
// which two have one style or one has none.
Status CheckTakes(std::span<const ClonedVoice> takes);

// Returns the first word of an instruction in lower case, without marks around it. May be empty.
std::string StyleOfInstruct(const std::string& instruct);

// Implements LoadVoice() on the takes of the file `path`. At least one.
Result<ClonedVoice> ChooseTake(std::vector<ClonedVoice> takes, const std::string& style, const std::string& instruct,
                               const std::string& path);

}  // namespace qtts

#endif  // QTTS_VOICE_TAKES_H_
