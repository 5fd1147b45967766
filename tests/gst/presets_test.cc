// SPDX-License-Identifier: LGPL-2.1-or-later
// Presets: those that are shipped, and an application's own.
#include <algorithm>
#include <set>

#include "gstqttsoverrides.h"
#include "support.h"

namespace qtts::testing {
namespace {

std::vector<std::string> Take(gchar** list) {
  std::vector<std::string> strings;
  for (gchar** item = list; item != nullptr && *item != nullptr; ++item) strings.emplace_back(*item);
  g_strfreev(list);
  return strings;
}

class PresetsTest : public GstTest {
 protected:
  static std::vector<std::string> Names(const Pipeline& pipeline) {
    return Take(gst_preset_get_preset_names(GST_PRESET(pipeline.src())));
  }
};

TEST_F(PresetsTest, KeepTheSettingsOfUtterancesAlone) {
  Pipeline pipeline("qttssrc name=src ! fakesink");
  const auto names = Take(gst_preset_get_property_names(GST_PRESET(pipeline.src())));
  const auto& settings = gstqtts::SettingNames();
  EXPECT_EQ(names, std::vector<std::string>(settings.begin(), settings.end()));
  for (const std::string& name : names) {
    EXPECT_NE(g_object_class_find_property(G_OBJECT_GET_CLASS(pipeline.src()), name.c_str()), nullptr) << name;
  }
}

TEST_F(PresetsTest, TheShippedOnesAreThereAndSpeak) {
  Pipeline pipeline("qttssrc name=src text=ab ! fakesink");
  GstPreset* preset = GST_PRESET(pipeline.src());
  const auto names = Names(pipeline);
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()),
            (std::set<std::string>{"as-the-model-says", "lively", "repeatable", "steady"}));
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    gchar* comment = nullptr;
    EXPECT_TRUE(gst_preset_get_meta(preset, name.c_str(), "comment", &comment));
    EXPECT_NE(comment, nullptr);
    g_free(comment);
    ASSERT_TRUE(gst_preset_load_preset(preset, name.c_str()));
    ASSERT_TRUE(pipeline.PlayToEnd());
    pipeline.Set(GST_STATE_READY);
  }
}

// The file says what it is for: each of its keys is a setting, each of its values in range.
TEST_F(PresetsTest, TheShippedFileHoldsNothingElse) {
  GKeyFile* file = g_key_file_new();
  const std::string path = std::string(g_getenv("GST_PRESET_PATH")) + "/GstQttsSrc.prs";
  ASSERT_TRUE(g_key_file_load_from_file(file, path.c_str(), G_KEY_FILE_NONE, nullptr));
  Pipeline pipeline("qttssrc name=src ! fakesink");
  GObjectClass* klass = G_OBJECT_GET_CLASS(pipeline.src());
  const auto& settings = gstqtts::SettingNames();
  for (const std::string& group : Take(g_key_file_get_groups(file, nullptr))) {
    if (group == "_presets_") continue;
    for (const std::string& key : Take(g_key_file_get_keys(file, group.c_str(), nullptr, nullptr))) {
      if (key == "_meta/comment") continue;
      SCOPED_TRACE(group + " " + key);
      ASSERT_NE(std::find(settings.begin(), settings.end(), key), settings.end());
      GParamSpec* spec = g_object_class_find_property(klass, key.c_str());
      gchar* text = g_key_file_get_value(file, group.c_str(), key.c_str(), nullptr);
      GValue value = G_VALUE_INIT;
      g_value_init(&value, spec->value_type);
      EXPECT_TRUE(gst_value_deserialize(&value, text));
      EXPECT_FALSE(g_param_value_validate(spec, &value)) << "out of range";
      g_value_unset(&value);
      g_free(text);
    }
  }
  g_key_file_free(file);
}

TEST_F(PresetsTest, AShippedOneSetsWhatItSays) {
  Pipeline pipeline("qttssrc name=src text=ab speaker=bob temperature=2 subtalker-top-k=7 ! fakesink");
  ASSERT_TRUE(gst_preset_load_preset(GST_PRESET(pipeline.src()), "repeatable"));
  ASSERT_TRUE(pipeline.PlayToEnd());
  const Request request = fake::Requests()[0];
  EXPECT_EQ(request.seed, 0U);
  EXPECT_EQ(request.settings.talker.temperature, fake::DefaultScript().info.defaults.talker.temperature);
  EXPECT_EQ(request.settings.predictor.top_k, fake::DefaultScript().info.defaults.predictor.top_k);
  EXPECT_EQ(request.speaker, "bob") << "the voice is left alone";
}

TEST_F(PresetsTest, AnApplicationsOwnComesBack) {
  Pipeline pipeline(
      "qttssrc name=src text=ab speaker=bob language=german instruct=calm layout=streaming seed=9 "
      "max-duration=80000000 "
      "! fakesink");
  GstPreset* preset = GST_PRESET(pipeline.src());
  ASSERT_TRUE(gst_preset_save_preset(preset, "mine"));
  Pipeline other("qttssrc name=src text=spoken ! fakesink");
  ASSERT_TRUE(gst_preset_load_preset(GST_PRESET(other.src()), "mine"));
  EXPECT_EQ(GetString(other.src(), "speaker"), "bob");
  EXPECT_EQ(GetString(other.src(), "language"), "german");
  EXPECT_EQ(GetString(other.src(), "instruct"), "calm");
  EXPECT_EQ(GetString(other.src(), "text"), "spoken") << "no part of a preset";
  ASSERT_TRUE(other.PlayToEnd());
  EXPECT_EQ(fake::Requests()[0].seed, 9U);
  EXPECT_EQ(fake::Requests()[0].layout, PromptLayout::kStreaming);
  EXPECT_TRUE(gst_preset_delete_preset(preset, "mine"));
  EXPECT_FALSE(gst_preset_load_preset(preset, "mine"));
}

}  // namespace
}  // namespace qtts::testing
