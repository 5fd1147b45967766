// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef GST_QTTS_OVERRIDES_H_
#define GST_QTTS_OVERRIDES_H_

#include <gst/gst.h>

#include <string>
#include <string_view>
#include <vector>

#include "gstqttssettings.h"

namespace gstqtts {

// The settings of an utterance by the names of their properties, for the `speak` signal, for `qtts/set-voice` and for
// presets. They are marked in the property table.

// Returns the names of all settings.
const std::vector<std::string_view>& SettingNames();

// Applies the fields of `overrides`, which may be null, to `settings`. A field is named like the
// property and has its type. A whole number is accepted for any numeric property that can hold it, a
// nick or a number for an enumeration. On failure nothing is changed, and `error` names the wrong field
// and the allowed values. `klass` is the class that has the properties.
bool ApplyOverrides(GObjectClass* klass, const GstStructure* overrides, Settings* settings, std::string* error);

}  // namespace gstqtts

#endif  // GST_QTTS_OVERRIDES_H_
