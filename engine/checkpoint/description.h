// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CHECKPOINT_DESCRIPTION_H_
#define QTTS_CHECKPOINT_DESCRIPTION_H_

#include <string>
#include <string_view>

#include "checkpoint/config.h"
#include "qtts/model_description.h"
#include "qtts/status.h"

namespace qtts {

// Parses qttssrc.json of `folder`. Untrusted input: every value is checked, unknown keys and steps are refused, and the
// default speaker must be one of the model's. Errors name `folder`, the file and the key.
Result<ModelDescription> ParseDescription(const std::string& folder, std::string_view json, const TalkerConfig& talker);

}  // namespace qtts

#endif  // QTTS_CHECKPOINT_DESCRIPTION_H_
