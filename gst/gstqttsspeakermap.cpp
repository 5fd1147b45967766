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

GstStructure* SpeakerSettings(const std::string& preset) {
  return gst_structure_new("speaker", "speaker", G_TYPE_STRING, preset.c_str(), nullptr);
}

// GLib's macros cast const away. A value of another type is kept, so that it is refused where all settings are.
GstStructure* SettingsFrom(const GValue* value) {
  if (value->g_type == GST_TYPE_STRUCTURE) return gst_structure_copy(gst_value_get_structure(value));
  GstStructure* settings = gst_structure_new_empty("speaker");
  gst_structure_set_value(settings, "speaker", value);
  return settings;
}

}  // namespace

GstStructure* SpeakerMap::SettingsOf(const GstStructure* map, const std::string& name,
                                     const std::vector<std::string>& presets) {
  if (const GValue* value = gst_structure_get_value(map, name.c_str())) return SettingsFrom(value);
  const std::string lower = qtts::LowerCaseName(name);
  if (std::find(presets.begin(), presets.end(), lower) != presets.end()) return SpeakerSettings(lower);
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
    const gchar* preset = gst_structure_get_string(map, field);
    if (preset != nullptr) taken.insert(qtts::LowerCaseName(preset));
  }
  const auto free =
      std::find_if(presets.begin(), presets.end(), [&](const std::string& preset) { return taken.count(preset) == 0; });
  if (free == presets.end()) return {};
  given_[name] = *free;
  return *free;
}

}  // namespace gstqtts
