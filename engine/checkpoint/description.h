// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CHECKPOINT_DESCRIPTION_H_
#define QTTS_CHECKPOINT_DESCRIPTION_H_

#include <optional>
#include <string>
#include <string_view>

#include "checkpoint/config.h"
#include "qtts/model_description.h"
#include "qtts/status.h"

namespace qtts {

// Returns the alignment head of a released checkpoint, by the sizes of its talker; none for other sizes. From public
// reports, and not tried here: 1.7B layer 3, head 0; 0.6B layer 6, head 5. `qtts-tool align` finds that of any
// checkpoint.
std::optional<AlignmentHead> KnownAlignmentHead(const TransformerConfig& talker);

// Parses qttssrc.json of `folder`. Untrusted input: every value is checked, unknown keys and steps are refused, and the
// default speaker must be one of the model's, the alignment head one of its talker's. Without an alignment head in the
// file it is the known one. Errors name `folder`, the file and the key.
Result<ModelDescription> ParseDescription(const std::string& folder, std::string_view json, const TalkerConfig& talker);

}  // namespace qtts

#endif  // QTTS_CHECKPOINT_DESCRIPTION_H_
