// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TOOLS_CODES_FILE_H_
#define QTTS_TOOLS_CODES_FILE_H_

#include <cstdint>
#include <istream>
#include <string>
#include <vector>

#include "qtts/status.h"

namespace qtts {

// Reads codes as `qtts-tool codes` prints them: plain lines or its JSON object. `name` is for messages; each frame has
// `groups` codes below `entries`.
Result<std::vector<int32_t>> ReadCodes(std::istream& in, const std::string& name, int groups, int entries);

}  // namespace qtts

#endif  // QTTS_TOOLS_CODES_FILE_H_
