// SPDX-License-Identifier: LGPL-2.1-or-later
// The element as an application sees it: description, properties, formats, timestamps, runs.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <set>

#include "build_config.h"
#include "gstqttspcm.h"
#include "gstqttstext.h"
#include "support.h"

namespace qtts::testing {
namespace {

class ElementTest : public GstTest {
 protected:
  static Owned<GstElement> Make() {
    return Owned<GstElement>(GST_ELEMENT(gst_object_ref_sink(gst_element_factory_make("qttssrc", nullptr))));
  }

  // The properties that the element itself installs.
  static std::vector<GParamSpec*> OwnProperties(GstElement* element) {
    guint count = 0;
    GParamSpec** specs = g_object_class_list_properties(G_OBJECT_GET_CLASS(element), &count);
    std::vector<GParamSpec*> own;
    for (guint i = 0; i < count; ++i) {
      if (specs[i]->owner_type == G_OBJECT_TYPE(element)) own.push_back(specs[i]);
    }
    g_free(specs);
    return own;
  }

  static std::ifstream Page(const std::string& name) {
    const char* folder = g_getenv("QTTS_DOCUMENTS");
    std::ifstream file(std::string(folder != nullptr ? folder : "") + "/" + name);
    EXPECT_TRUE(file.good()) << "QTTS_DOCUMENTS has to name the folder doc";
    return file;
  }

  static std::vector<std::string> Lines(const std::string& page) {
    std::ifstream file = Page(page);
    std::vector<std::string> lines;
    for (std::string line; std::getline(file, line);) lines.push_back(line);
    return lines;
  }
};

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
TEST_F(ElementTest, ThePageNamesEveryStatistic) {
  std::ifstream file = Page("qttssrc.md");
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  const size_t begin = page.find("\n`stats` has ");
  ASSERT_NE(begin, std::string::npos);
  const std::string paragraph = page.substr(begin, page.find("\n\n", begin) - begin);
  Pipeline pipeline("qttssrc name=src text=ab ! fakesink");
  ASSERT_TRUE(pipeline.PlayToEnd());
  GstStructure* stats = nullptr;
  g_object_get(pipeline.src(), "stats", &stats, nullptr);
  ASSERT_GT(gst_structure_n_fields(stats), 10);
  for (int i = 0; i < gst_structure_n_fields(stats); ++i) {
    const std::string name = gst_structure_nth_field_name(stats, static_cast<guint>(i));
    EXPECT_NE(paragraph.find("`" + name + "`"), std::string::npos) << name;
  }
  gst_structure_free(stats);
}

TEST_F(ElementTest, StatisticsTellPagesAndStepsOfTheEngine) {
  fake::Script script = fake::DefaultScript();
  script.occupancy = {.pages = 100, .free_pages = 90, .steps = 7, .step_frames = 12, .step_nanoseconds = 5000};
  fake::SetScript(script);
  Pipeline pipeline("qttssrc name=src text=ab ! fakesink");
  EXPECT_EQ(GetStat(pipeline.src(), "pages"), 0U);
  EXPECT_EQ(GetStat(pipeline.src(), "steps"), 0U);
  ASSERT_TRUE(pipeline.PlayToEnd());
  EXPECT_EQ(GetStat(pipeline.src(), "pages"), 100U);
  EXPECT_EQ(GetStat(pipeline.src(), "free-pages"), 90U);
  EXPECT_EQ(GetStat(pipeline.src(), "steps"), 7U);
  EXPECT_EQ(GetStat(pipeline.src(), "step-frames"), 12U);
  EXPECT_EQ(GetStat(pipeline.src(), "step-time"), 5000U);
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
      } else if (G_IS_PARAM_SPEC_DOUBLE(spec)) {
        const auto* range = G_PARAM_SPEC_DOUBLE(spec);
        const double minimum = std::max(range->minimum, 0.01);  // values between -1 and this are invalid
        const double drawn = std::uniform_real_distribution<>(minimum, range->maximum)(random);
        g_value_set_double(&set, round == 0 ? range->default_value : drawn);
      } else {
        ADD_FAILURE() << "no values for this type";
      }
      EXPECT_FALSE(g_param_value_validate(spec, &set)) << "the value should be in range";
      g_object_set_property(G_OBJECT(element.get()), spec->name, &set);
      g_object_get_property(G_OBJECT(element.get()), spec->name, &get);
      EXPECT_EQ(g_param_values_cmp(spec, &set, &get), 0);
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

// --- formats

TEST_F(ElementTest, C5SpeaksSixteenBitsUnlessThePeerPrefersFloat) {
  const struct {
    const char* peer;
    const char* format;
  } cases[] = {
      {"audio/x-raw,format=F32LE", "F32LE"},
      {"audio/x-raw,format=S16LE", "S16LE"},
      {"audio/x-raw,format=(string){S16LE,F32LE}", "S16LE"},
      {"audio/x-raw,format=(string){F32LE,S16LE}", "S16LE"},
      {"audio/x-raw,format=S16LE;audio/x-raw,format=F32LE", "S16LE"},
      {"audio/x-raw,format=F32LE;audio/x-raw", "F32LE"},
      {"audio/x-raw", "S16LE"},
      {"ANY", "S16LE"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.peer);
    Pipeline pipeline(std::string("qttssrc name=src text=ab ! capsfilter caps=\"") + c.peer + "\" ! fakesink");
    Recorder& record = pipeline.Record();
    ASSERT_TRUE(pipeline.PlayToEnd());
    for (const Recorder::Item& item : record.items()) {
      if (item.event != GST_EVENT_CAPS || item.is_buffer) continue;
      const Owned<GstCaps> expected(gst_caps_from_string(
          (std::string("audio/x-raw,layout=interleaved,rate=24000,channels=1,format=") + c.format).c_str()));
      EXPECT_TRUE(gst_caps_is_equal(item.caps.get(), expected.get()));
    }
    for (const Recorder::Item& item : record.buffers()) {
      EXPECT_EQ(item.size, 1920U * (std::string(c.format) == "F32LE" ? 4 : 2));
    }
    EXPECT_EQ(record.buffer_count(), 2U);
  }
}

TEST_F(ElementTest, C5SixteenBitsAreTheRoundedFloats) {
  std::vector<Recorder::Item> recorded[2];
  for (const bool is_float : {true, false}) {
    Pipeline pipeline(std::string("qttssrc name=src text=xyz ! audio/x-raw,format=") + (is_float ? "F32LE" : "S16LE") +
                      " ! fakesink");
    Recorder& record = pipeline.Record(true);
    fake::Reset();
    ASSERT_TRUE(pipeline.PlayToEnd());
    recorded[is_float ? 0 : 1] = record.buffers();
  }
  ASSERT_EQ(recorded[0].size(), 3U);
  ASSERT_EQ(recorded[1].size(), 3U);
  for (size_t i = 0; i < 3; ++i) {
    std::vector<float> floats(1920);
    std::vector<int16_t> expected(1920);
    ASSERT_EQ(recorded[0][i].data.size(), 1920U * 4);
    std::memcpy(floats.data(), recorded[0][i].data.data(), recorded[0][i].data.size());
    gstqtts::ConvertToS16(floats.data(), floats.size(), expected.data());
    std::vector<int16_t> got(1920);
    ASSERT_EQ(recorded[1][i].data.size(), 1920U * 2);
    std::memcpy(got.data(), recorded[1][i].data.data(), recorded[1][i].data.size());
    EXPECT_EQ(got, expected);
    EXPECT_EQ(recorded[0][i].pts, recorded[1][i].pts);
    EXPECT_EQ(recorded[0][i].offset, recorded[1][i].offset);
  }
}

TEST_F(ElementTest, C5APeerThatTakesNothingOfItIsAnError) {
  Pipeline pipeline("qttssrc name=src text=ab ! capsfilter name=filter ! fakesink");
  const auto filter = pipeline.Find("filter");
  const Owned<GstCaps> caps(gst_caps_from_string("audio/x-raw,rate=48000"));
  pipeline.Begin(GST_STATE_PAUSED);
  ASSERT_NE(pipeline.Wait(GST_MESSAGE_ASYNC_DONE), nullptr);
  pipeline.Begin(GST_STATE_READY);
  g_object_set(filter.get(), "caps", caps.get(), nullptr);
  pipeline.Begin(GST_STATE_PLAYING);
  const auto message = pipeline.Wait(GST_MESSAGE_ERROR | GST_MESSAGE_EOS);
  ASSERT_NE(message, nullptr);
  EXPECT_EQ(GST_MESSAGE_TYPE(message.get()), GST_MESSAGE_ERROR);
}

// --- the stream

TEST_F(ElementTest, C6EventsComeOnceAndInOrder) {
  Pipeline pipeline("qttssrc name=src text=abc ! fakesink");
  Recorder& record = pipeline.Record();
  ASSERT_TRUE(pipeline.PlayToEnd());
  EXPECT_EQ(record.events(), (std::vector<GstEventType>{GST_EVENT_STREAM_START, GST_EVENT_CAPS, GST_EVENT_SEGMENT,
                                                        GST_EVENT_TAG, GST_EVENT_EOS}));
  const auto items = record.items();
  ASSERT_EQ(items.size(), 8U);
  EXPECT_EQ(items[2].segment.format, GST_FORMAT_TIME);
  EXPECT_EQ(items[2].segment.start, 0U);
  EXPECT_EQ(items[2].segment.base, 0U);
  EXPECT_EQ(items[2].segment.rate, 1.0);
  EXPECT_EQ(items[3].event, GST_EVENT_TAG);
  for (size_t i = 4; i < 7; ++i) EXPECT_TRUE(items[i].is_buffer);
  EXPECT_EQ(record.text(), "abc");
}

// With an odd frame size, so that nearly no time is a whole number of nanoseconds.
TEST_F(ElementTest, C7C8TenThousandFramesWithoutGapOrDrift) {
  fake::Script script = fake::DefaultScript();
  script.info.samples_per_frame = 1931;
  script.info.defaults.max_new_tokens = 20000;
  fake::Reset(script);
  Pipeline pipeline("qttssrc name=src ! fakesink");
  const std::string text(10000, 'x');
  g_object_set(pipeline.src(), "text", text.c_str(), nullptr);
  Recorder& record = pipeline.Record();
  ASSERT_TRUE(pipeline.PlayToEnd());
  const auto buffers = record.buffers();
  ASSERT_EQ(buffers.size(), 10000U);
  for (guint64 i = 0; i < buffers.size(); ++i) {
    const Recorder::Item& buffer = buffers[i];
    ASSERT_EQ(buffer.offset, i * 1931);
    ASSERT_EQ(buffer.offset_end, (i + 1) * 1931);
    ASSERT_EQ(buffer.pts, gst_util_uint64_scale(i * 1931, GST_SECOND, 24000));
    ASSERT_EQ(buffer.pts + buffer.duration, gst_util_uint64_scale((i + 1) * 1931, GST_SECOND, 24000));
    ASSERT_EQ(buffer.size, 1931U * 2);
    ASSERT_EQ(buffer.discont, i == 0);
    ASSERT_FALSE(buffer.silent);
    ASSERT_EQ(buffer.label.frame, static_cast<int64_t>(i));
  }
}

TEST_F(ElementTest, C9TextAloneIsSpokenThenTheStreamEnds) {
  Pipeline pipeline("qttssrc name=src text=\"Any text.\" ! fakesink");
  Recorder& record = pipeline.Record();
  ASSERT_TRUE(pipeline.PlayToEnd());
  EXPECT_EQ(record.text(), "Any text.");
  EXPECT_EQ(record.events().back(), GST_EVENT_EOS);
}

TEST_F(ElementTest, C9NoTextIsAnEmptyStream) {
  for (const char* text : {static_cast<const char*>(nullptr), "", " \t\r\n", "\xC2\xA0\xE3\x80\x80"}) {
    SCOPED_TRACE(text != nullptr ? text : "unset");
    Pipeline pipeline("qttssrc name=src ! fakesink");
    g_object_set(pipeline.src(), "text", text, nullptr);
    Recorder& record = pipeline.Record();
    ASSERT_TRUE(pipeline.PlayToEnd());
    EXPECT_EQ(record.buffer_count(), 0U);
  }
  EXPECT_TRUE(fake::Requests().empty());
}

TEST_F(ElementTest, TextIsPassedOnAsItIs) {
  const std::string text =
      " Gr\xC3\xBC\xC3\x9F"
      "e,\r\n\xE4\xBD\xA0\xE5\xA5\xBD \xF0\x9F\x98\x80 \xD7\xA9\xD7\x9C\xD7\x95\xD7\x9D ";
  Pipeline pipeline("qttssrc name=src ! fakesink");
  g_object_set(pipeline.src(), "text", text.c_str(), nullptr);
  Recorder& record = pipeline.Record();
  ASSERT_TRUE(pipeline.PlayToEnd());
  EXPECT_EQ(record.text(), text);
}

TEST_F(ElementTest, SettingsReachTheEngine) {
  Pipeline pipeline(
      "qttssrc name=src text=ab speaker=bob language=german instruct=\"very slowly\" layout=streaming seed=77 "
      "temperature=0.5 top-k=9 top-p=0.25 repetition-penalty=1.25 subtalker-temperature=0 subtalker-top-k=3 "
      "subtalker-top-p=0.75 ! fakesink");
  ASSERT_TRUE(pipeline.PlayToEnd());
  ASSERT_EQ(fake::Requests().size(), 1U);
  const Request request = fake::Requests()[0];
  EXPECT_EQ(request.text, "ab");
  EXPECT_EQ(request.speaker, "bob");
  EXPECT_EQ(request.language, "german");
  EXPECT_EQ(request.instruct, "very slowly");
  EXPECT_EQ(request.layout, PromptLayout::kStreaming);
  EXPECT_EQ(request.seed, 77U);
  EXPECT_TRUE(request.settings.talker.do_sample);
  EXPECT_EQ(request.settings.talker.temperature, 0.5F);
  EXPECT_EQ(request.settings.talker.top_k, 9);
  EXPECT_EQ(request.settings.talker.top_p, 0.25F);
  EXPECT_EQ(request.settings.repetition_penalty, 1.25F);
  EXPECT_FALSE(request.settings.predictor.do_sample);
  EXPECT_EQ(request.settings.predictor.top_k, 3);
  EXPECT_EQ(request.settings.predictor.top_p, 0.75F);
  EXPECT_EQ(request.settings.max_new_tokens, 8192);
}

TEST_F(ElementTest, WithoutASeedEveryUtteranceHasItsOwn) {
  std::set<uint64_t> seeds;
  for (int i = 0; i < 5; ++i) {
    fake::Reset();
    Pipeline pipeline("qttssrc name=src text=a ! fakesink");
    ASSERT_TRUE(pipeline.PlayToEnd());
    const uint64_t seed = fake::Requests()[0].seed;
    EXPECT_LT(seed, uint64_t{1} << 53U) << "is kept by every reader of JSON";
    EXPECT_EQ(GetStat(pipeline.src(), "seed"), seed);
    seeds.insert(seed);
  }
  EXPECT_EQ(seeds.size(), 5U);
}

TEST_F(ElementTest, MaxDurationCutsWithAWarning) {
  Pipeline pipeline("qttssrc name=src text=abcdefgh max-duration=250000000 ! fakesink");
  Recorder& record = pipeline.Record();
  ASSERT_TRUE(pipeline.PlayToEnd());
  EXPECT_EQ(record.text(), "abc");
  Pipeline second("qttssrc name=src text=abcdefgh max-duration=250000000 ! fakesink");
  second.Begin(GST_STATE_PLAYING);
  const auto message = second.Wait(GST_MESSAGE_WARNING);
  ASSERT_NE(message, nullptr);
  const Problem problem = ParseProblem(message.get());
  EXPECT_EQ(problem.domain, GST_RESOURCE_ERROR);
  EXPECT_EQ(problem.code, GST_RESOURCE_ERROR_SETTINGS);
  EXPECT_NE(problem.text.find("max-duration"), std::string::npos);
}

TEST_F(ElementTest, WithinMaxDurationNothingIsSaid) {
  Pipeline pipeline("qttssrc name=src text=abc max-duration=240000000 ! fakesink");
  Recorder& record = pipeline.Record();
  pipeline.Begin(GST_STATE_PLAYING);
  const auto message = pipeline.Wait(GST_MESSAGE_WARNING | GST_MESSAGE_ERROR | GST_MESSAGE_EOS);
  ASSERT_NE(message, nullptr);
  EXPECT_EQ(GST_MESSAGE_TYPE(message.get()), GST_MESSAGE_EOS);
  EXPECT_EQ(record.text(), "abc");
}

TEST_F(ElementTest, WarningsOfTheEngineAreToldOnceForARowOfUtterances) {
  fake::Script script = fake::DefaultScript();
  script.warnings = {"This checkpoint ignores instructions."};
  fake::Reset(script);
  fake::AllowFrames(1);
  Pipeline pipeline("qttssrc name=src text=ab ! fakesink async=false");
  pipeline.Begin(GST_STATE_PLAYING);
  ASSERT_TRUE(WaitFor([] { return fake::GetCounters().frames == 1; }));
  g_object_set(pipeline.src(), "text", "cd", nullptr);
  fake::AllowFrames(-1);
  std::vector<std::string> warnings;
  for (;;) {
    const auto message = pipeline.Wait(GST_MESSAGE_WARNING | GST_MESSAGE_EOS | GST_MESSAGE_ERROR);
    ASSERT_NE(message, nullptr);
    if (GST_MESSAGE_TYPE(message.get()) != GST_MESSAGE_WARNING) break;
    warnings.push_back(ParseProblem(message.get()).text);
  }
  EXPECT_EQ(warnings, script.warnings);
  EXPECT_EQ(fake::Requests().size(), 2U);
}

TEST_F(ElementTest, NumBuffersEndsIt) {
  Pipeline pipeline("qttssrc name=src num-buffers=2 text=abcdefgh ! fakesink");
  Recorder& record = pipeline.Record();
  ASSERT_TRUE(pipeline.PlayToEnd());
  EXPECT_EQ(record.text(), "ab");
}

// The audible utterance plays to its end. Waiting texts and an utterance without any sound yet are dropped.
TEST_F(ElementTest, C11EndOfStreamByTheApplicationEndsWithTheUtterance) {
  for (const int heard : {0, 2}) {
    SCOPED_TRACE(heard);
    fake::Reset();
    fake::AllowFrames(heard);
    Pipeline pipeline("qttssrc name=src text=abcdefgh ! fakesink async=false");
    Recorder& record = pipeline.Record();
    pipeline.Set(GST_STATE_PLAYING);
    g_object_set(pipeline.src(), "text", "ijkl", nullptr);
    ASSERT_TRUE(WaitFor(
        [&] { return record.buffer_count() == static_cast<size_t>(heard) && fake::GetCounters().live_streams == 1; }));
    GstEvent* end = gst_event_new_eos();
    const guint32 seqnum = gst_event_get_seqnum(end);
    EXPECT_TRUE(gst_element_send_event(pipeline.get(), end));
    guint64 id = 1;
    g_signal_emit_by_name(pipeline.src(), "speak", "too late", nullptr, &id);
    EXPECT_EQ(id, 0U);
    fake::AllowFrames(-1);
    const auto message = pipeline.Wait(GST_MESSAGE_EOS | GST_MESSAGE_ERROR);
    ASSERT_NE(message, nullptr);
    EXPECT_EQ(GST_MESSAGE_TYPE(message.get()), GST_MESSAGE_EOS);
    EXPECT_EQ(gst_message_get_seqnum(message.get()), seqnum);
    EXPECT_EQ(record.text(), heard == 0 ? "" : "abcdefgh");
  }
}

TEST_F(ElementTest, C11EndOfStreamByTheApplicationWaitsForNothingElse) {
  for (const char* properties :
       {"idle-mode=wait", "idle-mode=silence", "is-live=true", "is-live=true idle-mode=wait"}) {
    SCOPED_TRACE(properties);
    Pipeline pipeline(std::string("qttssrc name=src ") + properties + " ! fakesink async=false");
    pipeline.Set(GST_STATE_PLAYING);
    EXPECT_TRUE(gst_element_send_event(pipeline.get(), gst_event_new_eos()));
    ASSERT_NE(pipeline.Wait(GST_MESSAGE_EOS | GST_MESSAGE_ERROR), nullptr);
  }
  // The same for the model.
  fake::HoldLoads(true);
  Pipeline pipeline("qttssrc name=src text=abc ! fakesink async=false");
  pipeline.Set(GST_STATE_PLAYING);
  EXPECT_TRUE(gst_element_send_event(pipeline.get(), gst_event_new_eos()));
  ASSERT_NE(pipeline.Wait(GST_MESSAGE_EOS | GST_MESSAGE_ERROR), nullptr);
  fake::HoldLoads(false);
}

TEST_F(ElementTest, AfterAnEndByTheApplicationItPlaysAgain) {
  Pipeline pipeline("qttssrc name=src idle-mode=wait ! fakesink async=false");
  Recorder& record = pipeline.Record();
  for (int round = 0; round < 3; ++round) {
    pipeline.Set(GST_STATE_PLAYING);
    g_object_set(pipeline.src(), "text", "abc", nullptr);
    ASSERT_TRUE(WaitFor([&] { return record.buffer_count() >= 3; }));
    EXPECT_TRUE(gst_element_send_event(pipeline.get(), gst_event_new_eos()));
    ASSERT_NE(pipeline.Wait(GST_MESSAGE_EOS), nullptr);
    pipeline.Set(GST_STATE_READY);
    record.Clear();
  }
}

TEST_F(ElementTest, IsLiveIsRefusedWhileItRuns) {
  Pipeline pipeline("qttssrc name=src idle-mode=wait ! fakesink async=false");
  const auto live = [&] {
    gboolean value = FALSE;
    g_object_get(pipeline.src(), "is-live", &value, nullptr);
    return value != FALSE;
  };
  for (const GstState state : {GST_STATE_PAUSED, GST_STATE_PLAYING}) {
    pipeline.Set(state);
    g_object_set(pipeline.src(), "is-live", TRUE, nullptr);
    EXPECT_FALSE(live());
    const auto warning = pipeline.Wait(GST_MESSAGE_WARNING);
    ASSERT_NE(warning, nullptr);
    EXPECT_NE(ParseProblem(warning.get()).text.find("is-live=true"), std::string::npos);
  }
  g_object_set(pipeline.src(), "is-live", FALSE, nullptr);
  EXPECT_TRUE(pipeline.Pending(GST_MESSAGE_WARNING).empty()) << "nothing changes";
  pipeline.Set(GST_STATE_READY);
  g_object_set(pipeline.src(), "is-live", TRUE, nullptr);
  EXPECT_TRUE(live());
}

// --- runs

TEST_F(ElementTest, TextsSetWhileSpeakingAreMoreUtterances) {
  fake::AllowFrames(1);
  Pipeline pipeline("qttssrc name=src text=one ! fakesink async=false");
  Recorder& record = pipeline.Record();
  g_object_set(pipeline.src(), "text", "two", nullptr);  // in NULL: replaces
  ASSERT_EQ(pipeline.Begin(GST_STATE_PLAYING), GST_STATE_CHANGE_SUCCESS);
  ASSERT_TRUE(WaitFor([&] { return record.buffer_count() == 1; }));
  g_object_set(pipeline.src(), "speaker", "ann", "text", "three", nullptr);
  g_object_set(pipeline.src(), "text", " ", nullptr);
  g_object_set(pipeline.src(), "speaker", "bob", "text", "four", nullptr);
  EXPECT_EQ(GetString(pipeline.src(), "text"), "four");
  fake::AllowFrames(-1);
  ASSERT_NE(pipeline.Wait(GST_MESSAGE_EOS), nullptr);
  EXPECT_EQ(record.text(), "twothreefour");
  const auto requests = fake::Requests();
  ASSERT_EQ(requests.size(), 3U);
  EXPECT_EQ(requests[0].speaker, "");
  EXPECT_EQ(requests[1].speaker, "ann");
  EXPECT_EQ(requests[2].speaker, "bob");
  EXPECT_EQ(GetStat(pipeline.src(), "utterances"), 3U);
  const auto buffers = record.buffers();
  for (size_t i = 0; i < buffers.size(); ++i) EXPECT_EQ(buffers[i].discont, i == 0) << "no break between utterances";

  g_object_set(pipeline.src(), "text", "late", nullptr);
  EXPECT_EQ(fake::Requests().size(), 3U) << "after the end of the stream";
  pipeline.Set(GST_STATE_READY);
  record.Clear();
  ASSERT_TRUE(pipeline.PlayToEnd());
  EXPECT_EQ(record.text(), "late") << "in the next run";
}

TEST_F(ElementTest, TooManyTextsAreRefusedWithAWarning) {
  fake::AllowFrames(0);
  Pipeline pipeline("qttssrc name=src text=x ! fakesink async=false");
  pipeline.Begin(GST_STATE_PLAYING);
  ASSERT_TRUE(WaitFor([] { return !fake::Requests().empty(); }));
  for (size_t i = 0; i < gstqtts::TextQueue::kMaxUtterances; ++i) g_object_set(pipeline.src(), "text", "y", nullptr);
  EXPECT_TRUE(pipeline.Pending(GST_MESSAGE_WARNING).empty());
  g_object_set(pipeline.src(), "text", "z", nullptr);
  const auto warnings = pipeline.Pending(GST_MESSAGE_WARNING);
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_EQ(ParseProblem(warnings[0].get()).code, GST_RESOURCE_ERROR_BUSY);
}

TEST_F(ElementTest, TheModelStaysLoadedUntilNullAndIsLoadedAnewWhenChanged) {
  Pipeline pipeline("qttssrc name=src model-path=/first text=ab ! fakesink");
  Recorder& record = pipeline.Record();
  for (int run = 0; run < 3; ++run) {
    record.Clear();
    ASSERT_TRUE(pipeline.PlayToEnd());
    EXPECT_EQ(record.text(), "ab");
    EXPECT_EQ(record.buffers()[0].pts, 0U);
    EXPECT_TRUE(record.buffers()[0].discont);
    pipeline.Set(GST_STATE_READY);
    EXPECT_EQ(fake::GetCounters().live_engines, 1);
  }
  EXPECT_EQ(fake::GetCounters().loads, 1);
  EXPECT_EQ(fake::GetCounters().inspections, 1);

  g_object_set(pipeline.src(), "model-path", "/second", nullptr);
  ASSERT_TRUE(pipeline.PlayToEnd());
  pipeline.Set(GST_STATE_READY);
  EXPECT_EQ(fake::GetCounters().loads, 2);
  EXPECT_EQ(fake::GetCounters().inspections, 2);
  EXPECT_EQ(fake::GetCounters().live_engines, 1);

  gst_util_set_object_arg(G_OBJECT(pipeline.src()), "device", "cpu");
  ASSERT_TRUE(pipeline.PlayToEnd());
  EXPECT_EQ(fake::GetCounters().loads, 3);

  pipeline.Set(GST_STATE_NULL);
  EXPECT_EQ(fake::GetCounters().live_engines, 0);
}

TEST_F(ElementTest, TheDeviceIsChosenByProperties) {
  Pipeline pipeline(
      "qttssrc name=src text=ab device=cuda precision=bf16 "
      "codec-precision=fast cuda-device-id=3 voices=7 ! fakesink");
  ASSERT_TRUE(pipeline.PlayToEnd());
  EXPECT_EQ(fake::LastOptions().device, Device::kCuda);
  EXPECT_EQ(fake::LastOptions().precision, Precision::kBF16);
  EXPECT_EQ(fake::LastOptions().codec_precision, CodecPrecision::kFast);
  EXPECT_EQ(fake::LastOptions().gpu, 3);
  EXPECT_EQ(fake::LastOptions().voices, 7);

  pipeline.Set(GST_STATE_READY);
  gst_util_set_object_arg(G_OBJECT(pipeline.src()), "precision", "f32");
  gst_util_set_object_arg(G_OBJECT(pipeline.src()), "codec-precision", "exact");
  ASSERT_TRUE(pipeline.PlayToEnd());
  EXPECT_EQ(fake::LastOptions().precision, Precision::kF32);
  EXPECT_EQ(fake::LastOptions().codec_precision, CodecPrecision::kExact);
  EXPECT_EQ(fake::GetCounters().loads, 2);
  EXPECT_EQ(fake::GetCounters().inspections, 2) << "whether the device can be had is asked again";

  for (const Precision precision : {Precision::kInt8, Precision::kInt4, Precision::kF32, Precision::kAuto}) {
    pipeline.Set(GST_STATE_READY);
    gst_util_set_object_arg(G_OBJECT(pipeline.src()), "precision", std::string(PrecisionName(precision)).c_str());
    ASSERT_TRUE(pipeline.PlayToEnd());
    EXPECT_EQ(fake::LastOptions().precision, precision);
  }
  EXPECT_EQ(fake::GetCounters().loads, 6);

  pipeline.Set(GST_STATE_READY);
  g_object_set(pipeline.src(), "cuda-device-id", 0, nullptr);
  ASSERT_TRUE(pipeline.PlayToEnd());
  EXPECT_EQ(fake::LastOptions().gpu, 0);
  EXPECT_EQ(fake::GetCounters().loads, 7);
  EXPECT_EQ(fake::GetCounters().live_engines, 1);
}

TEST_F(ElementTest, CountsTokensOnceTheModelIsLoaded) {
  const auto count = [](GstElement* element, const char* text) {
    gint64 tokens = -2;
    g_signal_emit_by_name(element, "count-tokens", text, &tokens);
    return tokens;
  };
  Pipeline pipeline("qttssrc name=src text=abcde ! fakesink");
  EXPECT_EQ(count(pipeline.src(), "eight by"), -1);
  ASSERT_TRUE(pipeline.PlayToEnd());
  EXPECT_EQ(count(pipeline.src(), "eight by"), 2);  // of the fake engine, which counts four bytes as one
  EXPECT_EQ(count(pipeline.src(), nullptr), 0);
  EXPECT_EQ(count(pipeline.src(), std::string(2000, 'a').c_str()), -1) << "too long for every model";
}

TEST_F(ElementTest, StatsCountTheRun) {
  Pipeline pipeline("qttssrc name=src text=abcde seed=5 ! fakesink");
  for (int run = 0; run < 2; ++run) {
    ASSERT_TRUE(pipeline.PlayToEnd());
    EXPECT_EQ(GetStat(pipeline.src(), "utterances"), 1U);
    EXPECT_EQ(GetStat(pipeline.src(), "frames"), 5U);
    EXPECT_EQ(GetStat(pipeline.src(), "seed"), 5U);
    EXPECT_NE(GetStat(pipeline.src(), "first-frame-latency"), GST_CLOCK_TIME_NONE);
    pipeline.Set(GST_STATE_READY);
  }
}

TEST_F(ElementTest, TwoElementsSpeakEachTheirOwn) {
  Pipeline pipeline(
      "qttssrc name=src text=abcdefghijklmnopqrstuvwxyz ! fakesink qttssrc name=other text=ABCDEFGHIJKLMNOPQRSTUVWXYZ "
      "! "
      "fakesink");
  const auto other = pipeline.Find("other");
  const Owned<GstPad> pad(gst_element_get_static_pad(other.get(), "src"));
  Recorder& record = pipeline.Record();
  Recorder other_record(pad.get());
  ASSERT_TRUE(pipeline.PlayToEnd());
  EXPECT_EQ(record.text(), "abcdefghijklmnopqrstuvwxyz");
  EXPECT_EQ(other_record.text(), "ABCDEFGHIJKLMNOPQRSTUVWXYZ");
}

TEST_F(ElementTest, C27UnknownEventsAndQueriesDoNoHarm) {
  fake::AllowFrames(1);
  Pipeline pipeline("qttssrc name=src text=abc ! fakesink");
  Recorder& record = pipeline.Record();
  ASSERT_NE(pipeline.Set(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  EXPECT_FALSE(gst_element_seek_simple(pipeline.src(), GST_FORMAT_TIME, GST_SEEK_FLAG_FLUSH, GST_SECOND));
  const Owned<GstPad> pad(gst_element_get_static_pad(pipeline.src(), "src"));
  for (GstEvent* event :
       {gst_event_new_qos(GST_QOS_TYPE_UNDERFLOW, 1.0, 0, 0), gst_event_new_reconfigure(), gst_event_new_latency(0),
        gst_event_new_custom(GST_EVENT_CUSTOM_UPSTREAM, gst_structure_new_empty("qtts/nothing"))}) {
    gst_pad_send_event(pad.get(), event);
  }
  GstQuery* query = gst_query_new_custom(GST_QUERY_CUSTOM, gst_structure_new_empty("qtts/nothing"));
  EXPECT_FALSE(gst_pad_query(pad.get(), query));
  gst_query_unref(query);
  query = gst_query_new_seeking(GST_FORMAT_TIME);
  gboolean seekable = TRUE;
  EXPECT_TRUE(gst_pad_query(pad.get(), query));
  gst_query_parse_seeking(query, nullptr, &seekable, nullptr, nullptr);
  EXPECT_TRUE(seekable);
  gst_query_unref(query);
  query = gst_query_new_latency();
  gboolean live = TRUE;
  EXPECT_TRUE(gst_pad_query(pad.get(), query));
  gst_query_parse_latency(query, &live, nullptr, nullptr);
  EXPECT_FALSE(live);
  gst_query_unref(query);
  fake::AllowFrames(-1);
  ASSERT_NE(pipeline.Wait(GST_MESSAGE_EOS), nullptr);
  EXPECT_EQ(record.text(), "abc");
  gint64 position = 0;
  EXPECT_TRUE(gst_element_query_position(pipeline.src(), GST_FORMAT_TIME, &position));
  EXPECT_EQ(position, 240 * static_cast<gint64>(GST_MSECOND));
}

}  // namespace
}  // namespace qtts::testing
