// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gstqttsspeakermap.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "qtts/model_info.h"

namespace gstqtts {
namespace {

constexpr gchar kDefaultField[] = "default";
constexpr gchar kSpeakerField[] = "speaker";

GstStructure* SpeakerSettings(const std::string& preset) {
  return gst_structure_new("speaker", kSpeakerField, G_TYPE_STRING, preset.c_str(), nullptr);
}

// GLib's macros cast const away. A value of another type is kept, so that it is refused where all settings are.
GstStructure* SettingsFrom(const GValue* value) {
  if (value->g_type == GST_TYPE_STRUCTURE) return gst_structure_copy(gst_value_get_structure(value));
  GstStructure* settings = gst_structure_new_empty("speaker");
  gst_structure_set_value(settings, kSpeakerField, value);
  return settings;
}

// Returns the preset voice that a value of the map names; null if none.
const gchar* PresetIn(const GValue* value) {
  if (value->g_type == G_TYPE_STRING) return g_value_get_string(value);
  if (value->g_type != GST_TYPE_STRUCTURE) return nullptr;
  return gst_structure_get_string(gst_value_get_structure(value), kSpeakerField);
}

}  // namespace

GstStructure* SpeakerMap::SettingsOf(const GstStructure* map, const std::string& name,
                                     const std::vector<std::string>& presets) {
  if (const GValue* value = gst_structure_get_value(map, name.c_str())) return SettingsFrom(value);
  const std::string lower = qtts::LowerCaseName(name);
  if (std::find(presets.begin(), presets.end(), lower) != presets.end()) {
    given_[lower] = lower;
    return SpeakerSettings(lower);
  }
  if (const GValue* value = gst_structure_get_value(map, kDefaultField)) return SettingsFrom(value);
  const std::string given = Give(map, name, presets);
  return given.empty() ? nullptr : SpeakerSettings(given);
}

// Returns an empty string if all are taken.
std::string SpeakerMap::Give(const GstStructure* map, const std::string& name,
                             const std::vector<std::string>& presets) {
  if (const auto found = given_.find(name); found != given_.end()) return found->second;
  std::set<std::string> taken;
  for (const auto& [speaker, preset] : given_) taken.insert(preset);
  for (gint i = 0; i < gst_structure_n_fields(map); ++i) {
    const gchar* field = gst_structure_nth_field_name(map, static_cast<guint>(i));
    const gchar* preset = PresetIn(gst_structure_get_value(map, field));
    if (preset != nullptr) taken.insert(qtts::LowerCaseName(preset));
  }
  const auto free =
      std::find_if(presets.begin(), presets.end(), [&](const std::string& preset) { return taken.count(preset) == 0; });
  if (free == presets.end()) return {};
  given_[name] = *free;
  return *free;
}

}  // namespace gstqtts
