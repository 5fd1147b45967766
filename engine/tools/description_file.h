// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TOOLS_DESCRIPTION_FILE_H_
#define QTTS_TOOLS_DESCRIPTION_FILE_H_

#include <string>

#include "print_json.h"
#include "qtts/status.h"

namespace qtts {

// Sets one key of qttssrc.json in `folder`, which may have no such file yet. Everything else in it stays.
Status WriteDescription(const std::string& folder, const std::string& key, const Json& value);

}  // namespace qtts

#endif  // QTTS_TOOLS_DESCRIPTION_FILE_H_
