// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gstqttspresets.h"

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "config.h"
#include "gstqttsoverrides.h"

using Strings = std::map<std::string, std::string>;

struct FreeString {
  void operator()(gchar* string) const { g_free(string); }
};
using OwnedString = std::unique_ptr<gchar, FreeString>;
using OwnedKeyFile = std::unique_ptr<GKeyFile, decltype(&g_key_file_free)>;

// The strings that GStreamer's load_preset() shall leave alone, while it runs on this thread.
static thread_local const Strings* loaded_strings = nullptr;

static thread_local bool saves_preset = false;

// Returns the files in which the preset may be, those that hide others first.
static std::vector<std::string> gst_qtts_src_preset_files(GstPreset* preset) {
  std::vector<std::string> folders;
  const auto add = [&folders](const gchar* folder, const gchar* rest) {
    folders.emplace_back(OwnedString(g_build_filename(folder, rest, nullptr)).get());
  };
  add(g_get_user_data_dir(), "gstreamer-1.0" G_DIR_SEPARATOR_S "presets");
  if (const gchar* folder = gst_preset_get_app_dir()) folders.emplace_back(folder);
  if (const gchar* path = g_getenv("GST_PRESET_PATH")) {
    gchar** list = g_strsplit(path, G_SEARCHPATH_SEPARATOR_S, -1);
    for (gchar** folder = list; *folder != nullptr; ++folder) folders.emplace_back(*folder);
    g_strfreev(list);
  }
  folders.emplace_back(GST_PRESET_DIR);
  for (std::string& folder : folders) {
    folder.append(G_DIR_SEPARATOR_S).append(G_OBJECT_TYPE_NAME(preset)).append(".prs");
  }
  return folders;
}

// Returns the file that holds the preset; null if there is none.
static OwnedKeyFile gst_qtts_src_open_preset(GstPreset* preset, const gchar* name) {
  for (const std::string& path : gst_qtts_src_preset_files(preset)) {
    OwnedKeyFile file(g_key_file_new(), g_key_file_free);
    if (g_key_file_load_from_file(file.get(), path.c_str(), G_KEY_FILE_NONE, nullptr) &&
        g_key_file_has_group(file.get(), name)) {
      return file;
    }
  }
  return {nullptr, g_key_file_free};
}

// Returns true if gst_value_serialize() made `text` from a string; `value` then holds the string. False for text
// written by hand, with plain spaces.
static bool gst_qtts_src_deserialize(const gchar* text, GValue* value) {
  if (!gst_value_deserialize(value, text)) return false;
  const OwnedString again(gst_value_serialize(value));
  return g_strcmp0(again.get(), text) == 0;
}

// Reads the preset's strings as they were saved.
static Strings gst_qtts_src_read_strings(GstPreset* preset, const gchar* name) {
  Strings strings;
  const OwnedKeyFile file = gst_qtts_src_open_preset(preset, name);
  if (file == nullptr) return strings;
  for (const std::string_view setting : gstqtts::SettingNames()) {
    const std::string key(setting);
    if (g_object_class_find_property(G_OBJECT_GET_CLASS(preset), key.c_str())->value_type != G_TYPE_STRING) continue;
    const OwnedString text(g_key_file_get_string(file.get(), name, key.c_str(), nullptr));
    GValue value = G_VALUE_INIT;
    g_value_init(&value, G_TYPE_STRING);
    if (text != nullptr && gst_qtts_src_deserialize(text.get(), &value)) {
      const gchar* string = g_value_get_string(&value);
      strings[key] = string != nullptr ? string : "";
    }
    g_value_unset(&value);
  }
  return strings;
}

// Returns the names of what presets keep. They are about voices: the settings of utterances, not what is spoken nor how
// it is paced.
static gchar** gst_qtts_src_preset_get_property_names(GstPreset* /*preset*/) {
  const std::vector<std::string_view>& names = gstqtts::SettingNames();
  gchar** list = g_new0(gchar*, names.size() + 1);
  size_t count = 0;
  for (const std::string_view name : names) {
    if (loaded_strings != nullptr && loaded_strings->count(std::string(name)) != 0) continue;
    list[count++] = g_strndup(name.data(), name.size());
  }
  return list;
}

static GstPresetInterface* gst_qtts_src_default_presets() {
  return static_cast<GstPresetInterface*>(g_type_default_interface_peek(GST_TYPE_PRESET));
}

static gboolean gst_qtts_src_save_preset(GstPreset* preset, const gchar* name) {
  saves_preset = true;
  const gboolean saved = gst_qtts_src_default_presets()->save_preset(preset, name);
  saves_preset = false;
  return saved;
}

bool gst_qtts_src_saves_preset() { return saves_preset; }

static gboolean gst_qtts_src_load_preset(GstPreset* preset, const gchar* name) {
  const Strings strings = gst_qtts_src_read_strings(preset, name);
  loaded_strings = &strings;
  const gboolean loaded = gst_qtts_src_default_presets()->load_preset(preset, name);
  loaded_strings = nullptr;
  if (!loaded) return FALSE;
  for (const auto& [key, string] : strings) {
    g_object_set(preset, key.c_str(), string.empty() ? nullptr : string.c_str(), nullptr);
  }
  return TRUE;
}

void gst_qtts_src_preset_init(GstPresetInterface* iface) {
  iface->get_property_names = gst_qtts_src_preset_get_property_names;
  iface->load_preset = gst_qtts_src_load_preset;
  iface->save_preset = gst_qtts_src_save_preset;
}
