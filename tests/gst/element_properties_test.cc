// SPDX-License-Identifier: LGPL-2.1-or-later
// The element as an application sees it: description and properties.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "build_config.h"
#include "element_fixture.h"
#include "qtts/sampling_numbers.h"

namespace qtts::testing {
namespace {

// --- description

TEST_F(ElementTest, C1FactoryTellsWhatItIs) {
  GstElementFactory* factory = gst_element_factory_find("qttssrc");
  ASSERT_NE(factory, nullptr);
  EXPECT_STREQ(gst_element_factory_get_metadata(factory, GST_ELEMENT_METADATA_KLASS), "Source/Audio");
  for (const char* key :
       {GST_ELEMENT_METADATA_LONGNAME, GST_ELEMENT_METADATA_DESCRIPTION, GST_ELEMENT_METADATA_AUTHOR}) {
    const char* value = gst_element_factory_get_metadata(factory, key);
    ASSERT_NE(value, nullptr) << key;
    EXPECT_STRNE(value, "") << key;
  }
  ASSERT_EQ(gst_element_factory_get_num_pad_templates(factory), 3U);
  gst_object_unref(factory);
}

TEST_F(ElementTest, C5PadTemplates) {
  const auto element = Make();
  GstElementClass* klass = GST_ELEMENT_GET_CLASS(element.get());
  GstPadTemplate* src = gst_element_class_get_pad_template(klass, "src");
  EXPECT_EQ(GST_PAD_TEMPLATE_PRESENCE(src), GST_PAD_ALWAYS);
  const Owned<GstCaps> src_caps(gst_pad_template_get_caps(src));
  const Owned<GstCaps> expected(
      gst_caps_from_string("audio/x-raw, format=(string){S16LE, F32LE}, layout=interleaved, rate=24000, channels=1"));
  EXPECT_TRUE(gst_caps_is_equal(src_caps.get(), expected.get()));
  GstPadTemplate* sink = gst_element_class_get_pad_template(klass, "sink");
  EXPECT_EQ(GST_PAD_TEMPLATE_PRESENCE(sink), GST_PAD_REQUEST);
  const Owned<GstCaps> sink_caps(gst_pad_template_get_caps(sink));
  const Owned<GstCaps> text(gst_caps_from_string("text/x-raw, format=utf8; application/ssml+xml"));
  EXPECT_TRUE(gst_caps_is_equal(sink_caps.get(), text.get()));
  GstPadTemplate* words = gst_element_class_get_pad_template(klass, "text_%u");
  EXPECT_EQ(GST_PAD_TEMPLATE_PRESENCE(words), GST_PAD_REQUEST);
  EXPECT_EQ(GST_PAD_TEMPLATE_DIRECTION(words), GST_PAD_SRC);
  const Owned<GstCaps> words_caps(gst_pad_template_get_caps(words));
  const Owned<GstCaps> plain(gst_caps_from_string("text/x-raw, format=utf8"));
  EXPECT_TRUE(gst_caps_is_equal(words_caps.get(), plain.get()));
}

TEST_F(ElementTest, C4EveryPropertyAndValueIsDescribed) {
  const auto element = Make();
  std::set<std::string> names;
  for (GParamSpec* spec : OwnProperties(element.get())) {
    SCOPED_TRACE(spec->name);
    names.insert(spec->name);
    EXPECT_STRNE(g_param_spec_get_nick(spec), "");
    EXPECT_STRNE(g_param_spec_get_nick(spec), spec->name);
    EXPECT_GE(std::strlen(g_param_spec_get_blurb(spec)), 15U);
    EXPECT_TRUE(g_ascii_isupper(g_param_spec_get_blurb(spec)[0]));
    EXPECT_EQ(std::string(spec->name).find('_'), std::string::npos);
    if ((spec->flags & G_PARAM_WRITABLE) != 0) {
      EXPECT_TRUE((spec->flags & (GST_PARAM_MUTABLE_READY | GST_PARAM_MUTABLE_PLAYING)) != 0);
    }
    if (G_IS_PARAM_SPEC_ENUM(spec)) {
      const GEnumClass* values = G_PARAM_SPEC_ENUM(spec)->enum_class;
      for (guint i = 0; i < values->n_values; ++i) {
        EXPECT_STRNE(values->values[i].value_name, "");
        EXPECT_STRNE(values->values[i].value_nick, "");
      }
    }
  }
  // The page lists the properties that gst-inspect-1.0 prints.
  std::set<std::string> expected;
  for (const std::string& line : Lines("properties.md")) {
    if (line.starts_with("| `")) expected.insert(line.substr(3, line.find('`', 3) - 3));
  }
  ASSERT_GT(expected.size(), 40U);
  EXPECT_EQ(names, expected);
}

// --- properties

// doc/qttssrc.md names every field of "stats".
// Check: 48
TEST_F(ElementTest, ThePageNamesEveryStatistic) {
  std::ifstream file = Page("qttssrc.md");
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  const size_t begin = page.find("\n`stats` has ");
  ASSERT_NE(begin, std::string::npos);
  const std::string paragraph = page.substr(begin, page.find("\n\n", begin) - begin);
  Speak speak("text=ab");
  speak.ExpectEnd();
  GstStructure* stats = nullptr;
  g_object_get(speak.src(), "stats", &stats, nullptr);
  ASSERT_GT(gst_structure_n_fields(stats), 10);
  for (int i = 0; i < gst_structure_n_fields(stats); ++i) {
    const std::string name = gst_structure_nth_field_name(stats, static_cast<guint>(i));
    EXPECT_NE(paragraph.find("`" + name + "`"), std::string::npos) << name;
  }
  gst_structure_free(stats);
}

TEST_F(ElementTest, StatisticsTellPagesStepsAndPartsAheadOfTheEngine) {
  fake::SetScript({.occupancy = {.pages = 100,
                                 .free_pages = 90,
                                 .steps = 7,
                                 .step_frames = 12,
                                 .step_nanoseconds = 5000,
                                 .ahead_slots = 3,
                                 .ahead_parts = 11,
                                 .preempted_parts = 2},
                   .gpu = 3});
  Speak speak("text=ab");
  EXPECT_EQ(GetStat(speak.src(), "pages"), 0U);
  EXPECT_EQ(GetStat(speak.src(), "steps"), 0U);
  speak.ExpectEnd();
  EXPECT_EQ(GetStat(speak.src(), "pages"), 100U);
  EXPECT_EQ(GetStat(speak.src(), "free-pages"), 90U);
  EXPECT_EQ(GetStat(speak.src(), "steps"), 7U);
  EXPECT_EQ(GetStat(speak.src(), "step-frames"), 12U);
  EXPECT_EQ(GetStat(speak.src(), "step-time"), 5000U);
  EXPECT_EQ(GetStat(speak.src(), "ahead-slots"), 3U);
  EXPECT_EQ(GetStat(speak.src(), "ahead-parts"), 11U);
  EXPECT_EQ(GetStat(speak.src(), "preempted-parts"), 2U);
  GstStructure* stats = nullptr;
  g_object_get(speak.src(), "stats", &stats, nullptr);
  gint gpu = 0;
  EXPECT_TRUE(gst_structure_get_int(stats, "cuda-device-id", &gpu));
  EXPECT_EQ(gpu, 3);
  gst_structure_free(stats);
}

TEST_F(ElementTest, C3PropertiesBeginWithTheirDefaults) {
  const auto element = Make();
  for (GParamSpec* spec : OwnProperties(element.get())) {
    if ((spec->flags & G_PARAM_WRITABLE) == 0) continue;
    SCOPED_TRACE(spec->name);
    GValue value = G_VALUE_INIT;
    g_value_init(&value, spec->value_type);
    g_object_get_property(G_OBJECT(element.get()), spec->name, &value);
    EXPECT_TRUE(g_param_value_defaults(spec, &value));
    g_value_unset(&value);
  }
}

TEST_F(ElementTest, C3PropertiesKeepWhatIsSet) {
  const auto element = Make();
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  int checked = 0;
  for (GParamSpec* spec : OwnProperties(element.get())) {
    if ((spec->flags & G_PARAM_WRITABLE) == 0) continue;
    for (int round = 0; round < 20; ++round) {
      SCOPED_TRACE(spec->name);
      GValue set = G_VALUE_INIT;
      GValue get = G_VALUE_INIT;
      g_value_init(&set, spec->value_type);
      g_value_init(&get, spec->value_type);
      if (G_IS_PARAM_SPEC_STRING(spec)) {
        g_value_set_string(&set, round == 0 ? nullptr : ("value " + std::to_string(random())).c_str());
      } else if (G_IS_PARAM_SPEC_ENUM(spec)) {
        const GEnumClass* values = G_PARAM_SPEC_ENUM(spec)->enum_class;
        g_value_set_enum(&set, values->values[random() % values->n_values].value);
      } else if (G_IS_PARAM_SPEC_INT(spec)) {
        const auto* range = G_PARAM_SPEC_INT(spec);
        const auto count = static_cast<uint64_t>(int64_t{range->maximum} - range->minimum) + 1;
        g_value_set_int(&set, range->minimum + static_cast<int>(random() % std::min<uint64_t>(count, 1000)));
      } else if (G_IS_PARAM_SPEC_INT64(spec)) {
        g_value_set_int64(&set, static_cast<gint64>(random() >> 1U));
      } else if (G_IS_PARAM_SPEC_BOOLEAN(spec)) {
        g_value_set_boolean(&set, static_cast<gboolean>(round % 2));
      } else if (G_IS_PARAM_SPEC_UINT(spec)) {
        g_value_set_uint(&set, static_cast<guint>(random() % 1000) + 1);
      } else if (G_IS_PARAM_SPEC_UINT64(spec)) {
        g_value_set_uint64(&set, random() % G_PARAM_SPEC_UINT64(spec)->maximum);
      } else if (spec->value_type == GST_TYPE_STRUCTURE) {
        const std::string map = "map, S1=voice" + std::to_string(random()) + ", default=(structure)[voice, seed=7]";
        g_value_take_boxed(&set, gst_structure_from_string(map.c_str(), nullptr));
      } else if (G_IS_PARAM_SPEC_DOUBLE(spec)) {
        const auto* range = G_PARAM_SPEC_DOUBLE(spec);
        const bool sampling = range->minimum == -1;  // -1: the model's own value
        std::uniform_real_distribution<> value(sampling ? 0.01 : range->minimum, range->maximum);
        g_value_set_double(&set, sampling && round == 0 ? -1 : value(random));
      } else {
        ADD_FAILURE() << "no values for this type";
      }
      EXPECT_FALSE(g_param_value_validate(spec, &set)) << "the value should be in range";
      g_object_set_property(G_OBJECT(element.get()), spec->name, &set);
      g_object_get_property(G_OBJECT(element.get()), spec->name, &get);
      if (spec->value_type == GST_TYPE_STRUCTURE) {
        EXPECT_EQ(gst_value_compare(&set, &get), GST_VALUE_EQUAL);
      } else {
        EXPECT_EQ(g_param_values_cmp(spec, &set, &get), 0);
      }
      g_value_unset(&set);
      g_value_unset(&get);
      ++checked;
    }
  }
  EXPECT_GE(checked, 40 * 20) << "the loop met the properties";
}

TEST_F(ElementTest, C3ValuesOutOfRangeAreRefused) {
  const auto element = Make();
  int checked = 0;
  const auto expect_refused = [&](GParamSpec* spec, const auto& set) {
    SCOPED_TRACE(spec->name);
    GValue value = G_VALUE_INIT;
    g_value_init(&value, spec->value_type);
    set(&value);
    EXPECT_TRUE(g_param_value_validate(spec, &value)) << "as it was set, it is not valid";
    EXPECT_EQ(spec->flags & G_PARAM_LAX_VALIDATION, 0);
    g_value_unset(&value);
    ++checked;
  };
  for (GParamSpec* spec : OwnProperties(element.get())) {
    if ((spec->flags & G_PARAM_WRITABLE) == 0) continue;
    if (G_IS_PARAM_SPEC_DOUBLE(spec)) {
      const GParamSpecDouble* limits = G_PARAM_SPEC_DOUBLE(spec);
      expect_refused(spec, [=](GValue* value) { g_value_set_double(value, limits->minimum - 0.5); });
      expect_refused(spec, [=](GValue* value) { g_value_set_double(value, limits->maximum + 0.5); });
    } else if (G_IS_PARAM_SPEC_INT(spec)) {
      expect_refused(spec, [=](GValue* value) { g_value_set_int(value, G_PARAM_SPEC_INT(spec)->minimum - 1); });
    } else if (G_IS_PARAM_SPEC_INT64(spec)) {
      expect_refused(spec, [=](GValue* value) { g_value_set_int64(value, G_PARAM_SPEC_INT64(spec)->minimum - 1); });
    } else if (G_IS_PARAM_SPEC_ENUM(spec)) {
      expect_refused(spec, [](GValue* value) { g_value_set_enum(value, 1000); });
    }
  }
  EXPECT_GE(checked, 17);
}

TEST_F(ElementTest, EverySamplingNumberIsAProperty) {
  const auto element = Make();
  for (const qtts::SamplingNumber& number : qtts::kSamplingNumbers) {
    GParamSpec* spec = g_object_class_find_property(G_OBJECT_GET_CLASS(element.get()), number.name);
    ASSERT_NE(spec, nullptr) << number.name;
    for (const double value : {number.minimum, number.maximum, number.maximum / 2}) {
      if (number.whole()) {
        gint got = 0;
        g_object_set(element.get(), number.name, static_cast<gint>(value), nullptr);
        g_object_get(element.get(), number.name, &got, nullptr);
        EXPECT_EQ(got, static_cast<gint>(value)) << number.name;
      } else {
        gdouble got = 0;
        g_object_set(element.get(), number.name, value, nullptr);
        g_object_get(element.get(), number.name, &got, nullptr);
        EXPECT_EQ(got, value) << number.name;
      }
    }
  }
}

TEST_F(ElementTest, C3RangesEndWhereTheBlurbsSay) {
  const auto element = Make();
  for (const char* name : {"temperature", "top-p", "repetition-penalty", "subtalker-temperature", "subtalker-top-p"}) {
    GParamSpec* spec = g_object_class_find_property(G_OBJECT_GET_CLASS(element.get()), name);
    EXPECT_EQ(G_PARAM_SPEC_DOUBLE(spec)->minimum, -1) << name;
    EXPECT_EQ(G_PARAM_SPEC_DOUBLE(spec)->default_value, -1) << name;
    // Values in between would make every text fail, so they are refused.
    const bool temperature = std::string(name).ends_with("temperature");
    const bool penalty = std::string(name) == "repetition-penalty";
    for (const double number : {-1.0, -0.999, -0.5, -0.0, 0.0, 1e-30, 0.009, 0.01, 0.5, 1.0, 1.1, 100.0, 101.0,
                                static_cast<double>(NAN), static_cast<double>(INFINITY)}) {
      const bool valid = number == -1 || (temperature ? number >= 0 && number <= 100
                                          : penalty   ? number >= 0.01 && number <= 100
                                                      : number > 0 && number <= 1);
      GValue value = G_VALUE_INIT;
      g_value_init(&value, G_TYPE_DOUBLE);
      g_value_set_double(&value, number);
      EXPECT_EQ(g_param_value_is_valid(spec, &value) != FALSE, valid) << name << " " << number;
      EXPECT_EQ(g_param_value_validate(spec, &value) == FALSE, valid) << name << " " << number;
      g_value_unset(&value);
    }
  }
  for (const char* name : {"top-k", "subtalker-top-k"}) {
    GParamSpec* spec = g_object_class_find_property(G_OBJECT_GET_CLASS(element.get()), name);
    EXPECT_EQ(G_PARAM_SPEC_INT(spec)->minimum, -1) << name;
    EXPECT_EQ(G_PARAM_SPEC_INT(spec)->default_value, -1) << name;
  }
}

TEST_F(ElementTest, ListsOfVoicesAreKnownFromReadyOn) {
  const auto element = Make();
  EXPECT_TRUE(GetStrings(element.get(), "speakers").empty());
  int notified = 0;
  g_signal_connect(element.get(), "notify::speakers", G_CALLBACK(+[](GObject*, GParamSpec*, int* count) { ++*count; }),
                   &notified);
  ASSERT_EQ(gst_element_set_state(element.get(), GST_STATE_READY), GST_STATE_CHANGE_SUCCESS);
  EXPECT_EQ(GetStrings(element.get(), "speakers"), (std::vector<std::string>{"ann", "bob"}));
  EXPECT_EQ(GetStrings(element.get(), "languages"), (std::vector<std::string>{"english", "german"}));
  EXPECT_EQ(GetString(element.get(), "default-speaker"), "ann") << "without a description the first by name";
  EXPECT_EQ(notified, 1);
  EXPECT_EQ(fake::GetCounters().loads, 0) << "READY reads no weights";
  gst_element_set_state(element.get(), GST_STATE_NULL);
  EXPECT_TRUE(GetStrings(element.get(), "speakers").empty());
  EXPECT_EQ(GetString(element.get(), "default-speaker"), "");
}

TEST_F(ElementTest, ModelPathFallsBackToTheEnvironmentThenToTheInstalledVoice) {
  const auto path_in_use = [](const char* property, const char* variable) {
    const auto element = Make();
    g_object_set(element.get(), "model-path", property, nullptr);
    if (variable != nullptr) {
      g_setenv("QTTS_VOICE_PATH", variable, TRUE);
    } else {
      g_unsetenv("QTTS_VOICE_PATH");
    }
    gst_element_set_state(element.get(), GST_STATE_READY);
    GstStructure* stats = nullptr;
    g_object_get(element.get(), "stats", &stats, nullptr);
    std::string path = gst_structure_get_string(stats, "model");
    gst_structure_free(stats);
    gst_element_set_state(element.get(), GST_STATE_NULL);
    return path;
  };
  EXPECT_EQ(path_in_use("/a/model", "/a/voice"), "/a/model");
  EXPECT_EQ(path_in_use(nullptr, "/a/voice"), "/a/voice");
  EXPECT_EQ(path_in_use("", "/a/voice"), "/a/voice");
  EXPECT_EQ(path_in_use(nullptr, ""), QTTS_VOICE_DIR);
  EXPECT_EQ(path_in_use(nullptr, nullptr), QTTS_VOICE_DIR);
}

}  // namespace
}  // namespace qtts::testing
