// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef GST_QTTS_OVERRIDES_H_
#define GST_QTTS_OVERRIDES_H_

#include <gst/gst.h>

#include <string>
#include <string_view>
#include <vector>

#include "gstqttssettings.h"

namespace gstqtts {

// The settings of an utterance by the names of their properties: one place that knows which field a
// name means, for the properties themselves, for the `speak` signal and for `qtts/set-voice`.

// Names of all settings.
const std::vector<std::string_view>& SettingNames();

// Sets the setting `name` from a value of its property's type. False if there is no such setting.
bool SetSetting(std::string_view name, const GValue* value, Settings* settings);

// The reverse; `value` is initialised with the property's type.
bool GetSetting(std::string_view name, const Settings& settings, GValue* value);

// Applies the fields of `overrides`, which may be null, to `settings`. A field is named like the
// property and has its type; a whole number does for any numeric property that can hold it, a nick or
// a number for an enumeration. Nothing is changed on failure: `error` then says which field is wrong
// and what would be right. `klass` is the class that has the properties.
bool ApplyOverrides(GObjectClass* klass, const GstStructure* overrides, Settings* settings, std::string* error);

}  // namespace gstqtts

#endif  // GST_QTTS_OVERRIDES_H_
