// SPDX-License-Identifier: LGPL-2.1-or-later
// Shipped presets and presets of an application.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
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
  Speak speak;
  const auto names = Take(gst_preset_get_property_names(GST_PRESET(speak.src())));
  const auto& settings = gstqtts::SettingNames();
  EXPECT_EQ(names, std::vector<std::string>(settings.begin(), settings.end()));
  for (const std::string& name : names) {
    EXPECT_NE(g_object_class_find_property(G_OBJECT_GET_CLASS(speak.src()), name.c_str()), nullptr) << name;
  }
}

TEST_F(PresetsTest, TheShippedOnesAreThereAndSpeak) {
  Speak speak("text=ab");
  GstPreset* preset = GST_PRESET(speak.src());
  const auto names = Names(speak);
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()),
            (std::set<std::string>{"as-the-model-says", "lively", "repeatable", "steady"}));
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    gchar* comment = nullptr;
    EXPECT_TRUE(gst_preset_get_meta(preset, name.c_str(), "comment", &comment));
    EXPECT_NE(comment, nullptr);
    g_free(comment);
    ASSERT_TRUE(gst_preset_load_preset(preset, name.c_str()));
    speak.ExpectEnd();
    speak.Set(GST_STATE_READY);
  }
}

// Each key of the file is a property, and each value is in range.
TEST_F(PresetsTest, TheShippedFileHoldsNothingElse) {
  GKeyFile* file = g_key_file_new();
  const std::string path = std::string(g_getenv("GST_PRESET_PATH")) + "/GstQttsSrc.prs";
  ASSERT_TRUE(g_key_file_load_from_file(file, path.c_str(), G_KEY_FILE_NONE, nullptr));
  Speak speak;
  GObjectClass* klass = G_OBJECT_GET_CLASS(speak.src());
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
  Speak speak("text=ab speaker=bob temperature=2 subtalker-top-k=7");
  ASSERT_TRUE(gst_preset_load_preset(GST_PRESET(speak.src()), "repeatable"));
  speak.ExpectEnd();
  const Request request = fake::Requests()[0];
  EXPECT_EQ(request.seed, 0U);
  EXPECT_EQ(request.settings.talker.temperature, fake::DefaultInfo().defaults.talker.temperature);
  EXPECT_EQ(request.settings.predictor.top_k, fake::DefaultInfo().defaults.predictor.top_k);
  EXPECT_EQ(request.speaker, "bob") << "the voice is left alone";
}

TEST_F(PresetsTest, AnApplicationsOwnComesBack) {
  Speak speak("text=ab speaker=bob language=german instruct=calm layout=streaming seed=9 max-duration=80000000");
  GstPreset* preset = GST_PRESET(speak.src());
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

// Every property with unusual values, above all strings of any characters.
// Check: 39
TEST_F(PresetsTest, EveryValueComesBack) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  const auto random_string = [&random] {
    std::string string;
    for (uint64_t length = random() % 40; length > 0; --length) {
      gunichar character = 0;
      do {
        static constexpr gunichar kLast[] = {0x7F, 0x7FF, 0xFFFF, 0x10FFFF};
        character = static_cast<gunichar>(1 + random() % kLast[random() % 4]);
      } while (!g_unichar_validate(character));
      gchar utf8[6];
      string.append(utf8, static_cast<size_t>(g_unichar_to_utf8(character, utf8)));
    }
    return string;
  };
  std::vector<std::string> strings = {"Speak very softly",
                                      "Sag \"Gr\xC3\xBC\xC3\x9F Gott\" leise",
                                      " spaces around ",
                                      "\"quoted\"",
                                      "\"",
                                      "\\",
                                      "a\\ b\\\\n",
                                      "two\r\nlines\tand a tab",
                                      "NULL",
                                      "[group]",
                                      "key=value;list",
                                      "# no comment",
                                      "\x01\x1F\x7F",
                                      "\xE4\xBD\xA0\xE5\xA5\xBD \xF0\x9F\x98\x80",
                                      "\\303\\274",
                                      "%s",
                                      "-1",
                                      "plain",
                                      ""};
  for (int i = 0; i < 60; ++i) strings.push_back(random_string());
  Speak speak;
  Pipeline other("qttssrc name=src ! fakesink");
  GObjectClass* klass = G_OBJECT_GET_CLASS(speak.src());
  for (const std::string& string : strings) {
    SCOPED_TRACE(string);
    std::map<std::string, GValue> values;
    for (const std::string_view setting : gstqtts::SettingNames()) {
      const std::string name(setting);
      GParamSpec* spec = g_object_class_find_property(klass, name.c_str());
      GValue& value = values.emplace(name, GValue G_VALUE_INIT).first->second;
      g_value_init(&value, spec->value_type);
      if (G_IS_PARAM_SPEC_STRING(spec)) {
        g_value_set_string(&value, string.c_str());
      } else if (G_IS_PARAM_SPEC_ENUM(spec)) {
        g_value_set_enum(&value, static_cast<int>(random() % G_PARAM_SPEC_ENUM(spec)->enum_class->n_values));
      } else if (G_IS_PARAM_SPEC_INT(spec)) {
        const auto* range = G_PARAM_SPEC_INT(spec);
        const auto count = static_cast<uint64_t>(int64_t{range->maximum} - range->minimum) + 1;
        g_value_set_int(&value, static_cast<int>(range->minimum + static_cast<int64_t>(random() % count)));
      } else if (G_IS_PARAM_SPEC_INT64(spec)) {
        g_value_set_int64(&value, static_cast<gint64>(random() >> 1U));
      } else if (G_IS_PARAM_SPEC_UINT64(spec)) {
        g_value_set_uint64(&value, random());
      } else if (G_IS_PARAM_SPEC_BOOLEAN(spec)) {
        g_value_set_boolean(&value, static_cast<gboolean>(random() % 2));
      } else if (G_IS_PARAM_SPEC_DOUBLE(spec)) {
        const auto* range = G_PARAM_SPEC_DOUBLE(spec);
        const bool sampling = range->minimum == -1;  // -1: the model's own value
        std::uniform_real_distribution<> number(sampling ? 0.01 : range->minimum, std::min(range->maximum, 1.0));
        g_value_set_double(&value, sampling && random() % 3 == 0 ? -1 : number(random));
      } else {
        ADD_FAILURE() << "no values for " << name;
      }
      g_object_set_property(G_OBJECT(speak.src()), name.c_str(), &value);
    }
    ASSERT_TRUE(gst_preset_save_preset(GST_PRESET(speak.src()), "mine"));
    ASSERT_TRUE(gst_preset_load_preset(GST_PRESET(other.src()), "mine"));
    for (auto& [name, saved] : values) {
      GValue loaded = G_VALUE_INIT;
      g_value_init(&loaded, G_VALUE_TYPE(&saved));
      g_object_get_property(G_OBJECT(other.src()), name.c_str(), &loaded);
      if (G_VALUE_HOLDS_STRING(&saved)) {
        EXPECT_EQ(GetString(other.src(), name.c_str()), string) << name;
      } else if (G_VALUE_HOLDS_DOUBLE(&saved)) {
        EXPECT_EQ(g_value_get_double(&loaded), g_value_get_double(&saved)) << name;
      } else {
        EXPECT_EQ(gst_value_compare(&loaded, &saved), GST_VALUE_EQUAL) << name;
      }
      g_value_unset(&loaded);
      g_value_unset(&saved);
    }
  }
  EXPECT_TRUE(gst_preset_delete_preset(GST_PRESET(speak.src()), "mine"));
}

// A preset sets each string once: an utterance that is accepted meanwhile never has an intermediate value.
// Check: 39
TEST_F(PresetsTest, AStringIsSetOnce) {
  Speak speak("instruct=\"very softly\"");
  ASSERT_TRUE(gst_preset_save_preset(GST_PRESET(speak.src()), "mine"));
  g_object_set(speak.src(), "instruct", nullptr, nullptr);
  std::vector<std::string> seen;
  const gulong handler = g_signal_connect(
      speak.src(), "notify::instruct", G_CALLBACK(+[](GstElement* element, GParamSpec*, std::vector<std::string>* all) {
        all->push_back(GetString(element, "instruct"));
      }),
      &seen);
  ASSERT_TRUE(gst_preset_load_preset(GST_PRESET(speak.src()), "mine"));
  g_signal_handler_disconnect(speak.src(), handler);
  EXPECT_EQ(seen, std::vector<std::string>{"very softly"});
  gst_preset_delete_preset(GST_PRESET(speak.src()), "mine");
}

// Files that GStreamer has written, and hand-written files.
// Check: 39
TEST_F(PresetsTest, OlderFilesLoadAndThoseWrittenByHand) {
  // GStreamer reads presets once in a process, so the test starts itself again with a home folder of its own.
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const std::string home = g_getenv("XDG_DATA_HOME");
  if (!home.ends_with("/older")) {
    const std::string other = home + "/older";
    const std::string folder = other + "/gstreamer-1.0/presets";
    std::filesystem::remove_all(other);
    std::filesystem::create_directories(folder);
    std::ofstream(folder + "/GstQttsSrc.prs")
        << "[_presets_]\nversion=1.22.0\nelement-name=GstQttsSrc\n"
           "[gstreamers]\ninstruct=\"Sag\\\\ \\\\\"Gr\\\\303\\\\274\\\\303\\\\237\\\\\"\"\nspeaker=bob\nseed=5\n"
           "[hand]\ninstruct=Speak very softly, please\nlanguage=german\n"
           "[hand-utf8]\ninstruct=Gr\xC3\xBC\xC3\x9F Gott\n";
    g_setenv("XDG_DATA_HOME", other.c_str(), TRUE);
  }
  EXPECT_EXIT(
      {
        Speak speak("speaker=ann");
        const auto loads = [&speak](const char* preset, const char* property, const char* value) {
          if (gst_preset_load_preset(GST_PRESET(speak.src()), preset) && GetString(speak.src(), property) == value) {
            return;
          }
          std::fprintf(stderr, "%s: %s\n", preset, GetString(speak.src(), property).c_str());
          std::_Exit(1);
        };
        loads("gstreamers", "instruct", "Sag \"Gr\xC3\xBC\xC3\x9F\"");
        loads("gstreamers", "speaker", "bob");
        loads("hand", "instruct", "Speak very softly, please");
        loads("hand", "language", "german");
        loads("hand-utf8", "instruct", "Gr\xC3\xBC\xC3\x9F Gott");
        std::_Exit(0);
      },
      ::testing::ExitedWithCode(0), "");
  g_setenv("XDG_DATA_HOME", home.c_str(), TRUE);
}

}  // namespace
}  // namespace qtts::testing
