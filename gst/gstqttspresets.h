// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef GST_QTTS_PRESETS_H_
#define GST_QTTS_PRESETS_H_

#include <gst/gst.h>

// Implements GstPreset: the settings of utterances are what a preset keeps. GStreamer's implementation does the rest,
// but for strings, whose escapes it adds twice when it saves and removes once when it loads (gst_value_serialize() and
// g_key_file_set_string(), then g_key_file_get_value() and gst_value_deserialize()): "very softly" comes back with a
// backslash before the space, and other characters than ASCII are lost. Strings are therefore read from the preset's
// file here, and both escapes are removed. The files have GStreamer's format; older ones load too.
void gst_qtts_src_preset_init(GstPresetInterface* iface);

// Returns true while this thread reads properties to save a preset. An unset string must then be empty instead of null:
// GStreamer does not save null strings, so the preset's old value would stay.
bool gst_qtts_src_saves_preset();

#endif  // GST_QTTS_PRESETS_H_
