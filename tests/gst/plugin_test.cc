// SPDX-License-Identifier: LGPL-2.1-or-later
// The plugin file as GStreamer loads it, without a model and a GPU: checks 1, 2 and 4.
#include <gst/gst.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

namespace {

class PluginTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { gst_init(nullptr, nullptr); }

  // Returns the output of gst-inspect-1.0.
  static std::string Inspect(const char* argument) {
    std::string command = std::string(QTTS_GST_INSPECT) + " " + argument;
    gchar* output = nullptr;
    gchar* errors = nullptr;
    gint status = -1;
    EXPECT_TRUE(g_spawn_command_line_sync(command.c_str(), &output, &errors, &status, nullptr));
    EXPECT_EQ(status, 0);
    EXPECT_STREQ(errors, "");
    std::string text = output != nullptr ? output : "";
    g_free(output);
    g_free(errors);
    return text;
  }
};

TEST_F(PluginTest, C1GstInspectTellsEverything) {
  const std::string text = Inspect("qttssrc");
  for (const char* part :
       {"Qwen3-TTS text-to-speech source", "Source/Audio", "The qttssrc authors", "LGPL", "SINK template: 'sink'",
        "SRC template: 'src'", "\"speak\"", "\"interrupt\"", "\"clear-queue\"", "\"count-tokens\"", "GstPreset"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part;
  }
  const size_t origin = text.find("Origin URL");
  ASSERT_NE(origin, std::string::npos);
  EXPECT_NE(text.substr(origin, text.find('\n', origin) - origin).find(QTTS_PACKAGE_ORIGIN), std::string::npos);
  // No invalid URL, and no folder of the build machine.
  for (const char* part : {".invalid", "file://"}) EXPECT_EQ(text.find(part), std::string::npos) << part;
}

TEST_F(PluginTest, C1NoFileIsBlacklisted) {
  EXPECT_NE(Inspect("--print-blacklist").find("Total count: 0 blacklisted files"), std::string::npos);
}

TEST_F(PluginTest, C2NamesAgreeAndTheLicenceIsKnown) {
  GstPlugin* plugin = gst_registry_find_plugin(gst_registry_get(), "qtts");
  ASSERT_NE(plugin, nullptr);
  gchar* file = g_path_get_basename(gst_plugin_get_filename(plugin));
  EXPECT_EQ(std::string(file), std::string("libgst") + gst_plugin_get_name(plugin) + "." G_MODULE_SUFFIX);
  g_free(file);
  // Licences that gst_plugin.c accepts; it replaces others by "UNKNOWN" or refuses the plugin.
  EXPECT_EQ(std::set<std::string>({"LGPL", "GPL", "QPL", "GPL/QPL", "MPL", "BSD", "MIT/X11", "0BSD", "Apache 2.0"})
                .count(gst_plugin_get_license(plugin)),
            1U);
  EXPECT_STREQ(gst_plugin_get_version(plugin), QTTS_VERSION);
  EXPECT_STREQ(gst_plugin_get_source(plugin), "qttssrc");
  GstElementFactory* factory = gst_element_factory_find("qttssrc");
  ASSERT_NE(factory, nullptr);
  EXPECT_STREQ(gst_plugin_feature_get_plugin_name(GST_PLUGIN_FEATURE(factory)), "qtts");
  EXPECT_EQ(gst_plugin_feature_get_rank(GST_PLUGIN_FEATURE(factory)), static_cast<guint>(GST_RANK_NONE))
      << "nothing plugs it in by itself";
  gst_object_unref(factory);
  gst_object_unref(plugin);
}

TEST_F(PluginTest, C4EveryValueOfEveryEnumShowsInGstInspect) {
  const std::string text = Inspect("qttssrc");
  GstElement* element = gst_element_factory_make("qttssrc", nullptr);
  ASSERT_NE(element, nullptr);
  guint count = 0;
  GParamSpec** specs = g_object_class_list_properties(G_OBJECT_GET_CLASS(element), &count);
  int checked = 0;
  for (guint i = 0; i < count; ++i) {
    if (specs[i]->owner_type != G_OBJECT_TYPE(element)) continue;
    EXPECT_NE(text.find("\n  " + std::string(specs[i]->name)), std::string::npos) << specs[i]->name;
    if (!G_IS_PARAM_SPEC_ENUM(specs[i])) continue;
    const GEnumClass* values = G_PARAM_SPEC_ENUM(specs[i])->enum_class;
    for (guint v = 0; v < values->n_values; ++v) {
      const std::string description = values->values[v].value_name;
      EXPECT_NE(text.find(std::string(values->values[v].value_nick) + " "), std::string::npos);
      EXPECT_NE(text.find("- " + description), std::string::npos) << description;
      EXPECT_NE(description.find(" "), std::string::npos) << description << ": words, not the name of a constant";
      ++checked;
    }
  }
  EXPECT_GE(checked, 9);
  g_free(specs);
  gst_object_unref(element);
}

}  // namespace
