// SPDX-License-Identifier: LGPL-2.1-or-later
// The plugin as it is installed, with the real engine and the bundled voice.
#include <ebur128.h>
#include <gmock/gmock.h>
#include <gst/gst.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "gstqttspcm.h"

namespace qtts {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr GstClockTime kPatience = 120 * GST_SECOND;
constexpr size_t kFrame = 1920;

class VoiceTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { gst_init(nullptr, nullptr); }

  struct Outcome {
    GstStateChangeReturn change = GST_STATE_CHANGE_SUCCESS;  // result of the change to PLAYING
    bool ended = false;                                      // by an end-of-stream
    GQuark domain = 0;                                       // of the first error
    int code = 0;
    std::string message;
    std::vector<std::string> warnings;
  };

  // Plays a launch line to its end or its first error.
  static Outcome Play(const std::string& line, const std::function<void(GstElement*)>& prepare = {}) {
    Outcome outcome;
    GError* error = nullptr;
    GstElement* pipeline = gst_parse_launch(line.c_str(), &error);
    if (error != nullptr) ADD_FAILURE() << line << ": " << error->message;
    g_clear_error(&error);
    gst_pipeline_set_auto_flush_bus(GST_PIPELINE(pipeline), FALSE);
    if (prepare) prepare(pipeline);
    outcome.change = gst_element_set_state(pipeline, GST_STATE_PLAYING);
    GstBus* bus = gst_element_get_bus(pipeline);
    constexpr auto kAwaited = static_cast<GstMessageType>(GST_MESSAGE_EOS | GST_MESSAGE_ERROR | GST_MESSAGE_WARNING);
    GstMessage* message = nullptr;
    while ((message = gst_bus_timed_pop_filtered(bus, kPatience, kAwaited)) != nullptr &&
           GST_MESSAGE_TYPE(message) == GST_MESSAGE_WARNING) {
      gst_message_parse_warning(message, &error, nullptr);
      outcome.warnings.emplace_back(error->message);
      g_clear_error(&error);
      gst_message_unref(message);
    }
    if (message == nullptr) {
      ADD_FAILURE() << "neither the end nor an error: " << line;
    } else if (GST_MESSAGE_TYPE(message) == GST_MESSAGE_EOS) {
      outcome.ended = true;
    } else {
      gst_message_parse_error(message, &error, nullptr);
      outcome.domain = error->domain;
      outcome.code = error->code;
      outcome.message = error->message;
      g_error_free(error);
    }
    if (message != nullptr) gst_message_unref(message);
    gst_element_set_state(pipeline, GST_STATE_NULL);
    gst_bus_set_flushing(bus, TRUE);
    gst_object_unref(bus);
    gst_object_unref(pipeline);
    return outcome;
  }

  static void OnHandoff(GstElement* /*sink*/, GstBuffer* buffer, GstPad* /*pad*/, std::string* bytes) {
    const size_t begin = bytes->size();
    bytes->resize(begin + gst_buffer_get_size(buffer));
    gst_buffer_extract(buffer, 0, bytes->data() + begin, bytes->size() - begin);
  }

  // The audio bytes that the last element of a launch line makes.
  static std::string Hear(const std::string& line, const std::string& format = "F32LE") {
    std::string bytes;
    const Outcome outcome =
        Play(line + " ! audio/x-raw,format=" + format + " ! fakesink name=sink signal-handoffs=true",
             [&](GstElement* pipeline) {
               GstElement* sink = gst_bin_get_by_name(GST_BIN(pipeline), "sink");
               g_signal_connect(sink, "handoff", G_CALLBACK(OnHandoff), &bytes);
               gst_object_unref(sink);
             });
    EXPECT_TRUE(outcome.ended) << outcome.message;
    return bytes;
  }

  // The same of qttssrc with these properties.
  static std::string Speak(const std::string& properties, const char* format = "F32LE") {
    return Hear("qttssrc " + properties, format);
  }

  static std::vector<float> Floats(const std::string& bytes) {
    std::vector<float> floats(bytes.size() / sizeof(float));
    std::memcpy(floats.data(), bytes.data(), floats.size() * sizeof(float));
    return floats;
  }

  static std::string ReadFile(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }

  // A temporary folder of a test, removed at the end.
  class Folder {
   public:
    Folder() {
      gchar* path = g_dir_make_tmp("qttssrc-test-XXXXXX", nullptr);
      path_ = path;
      g_free(path);
    }
    ~Folder() { std::filesystem::remove_all(path_); }
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;
    const std::string& path() const { return path_; }

   private:
    std::string path_;
  };
};

// Integrated loudness in LUFS.
double LoudnessOf(const std::vector<float>& sound) {
  ebur128_state* meter = ebur128_init(1, SAMPLE_RATE, EBUR128_MODE_I);
  ebur128_set_channel(meter, 0, EBUR128_LEFT);
  double loudness = 0;
  EXPECT_EQ(ebur128_add_frames_float(meter, sound.data(), sound.size()), EBUR128_SUCCESS);
  EXPECT_EQ(ebur128_loudness_global(meter, &loudness), EBUR128_SUCCESS);
  ebur128_destroy(&meter);
  return loudness;
}

// Another text than the one by which the loudness was measured.
// Check: 63
TEST_F(VoiceTest, EverySpeakerReachesTheTargetLoudness) {
  for (const char* speaker : {"clara", "grace", "hugh", "owen", "ross"}) {
    const std::string properties = std::string("seed=5 target-loudness=-18 speaker=") + speaker +
                                   " text=\"The ferry leaves the harbor at noon and comes back before dark. Nobody "
                                   "expected the train to arrive so early. Turn left at the bakery, then follow the "
                                   "road up the hill.\"";
    EXPECT_NEAR(LoudnessOf(Floats(Speak(properties))), -18, 1) << speaker;
  }
}

TEST_F(VoiceTest, SpeaksIntoAWavFile) {
  const Folder folder;
  const std::string path = folder.path() + "/hello.wav";
  const Outcome outcome = Play(
      "qttssrc text=\"Hello, world.\" seed=1 ! audioconvert ! audio/x-raw,format=S16LE ! wavenc ! filesink location=" +
      path);
  ASSERT_TRUE(outcome.ended) << outcome.message;
  const std::string wav = ReadFile(path);
  ASSERT_GT(wav.size(), 44U);
  const auto number = [&wav](size_t at, size_t bytes) {
    uint32_t value = 0;
    for (size_t i = bytes; i-- > 0;) value = value << 8U | static_cast<uint8_t>(wav[at + i]);
    return value;
  };
  EXPECT_EQ(wav.substr(0, 4), "RIFF");
  EXPECT_EQ(wav.substr(8, 8), "WAVEfmt ");
  EXPECT_EQ(number(20, 2), 1U) << "integer samples";
  EXPECT_EQ(number(22, 2), 1U) << "one channel";
  EXPECT_EQ(number(24, 4), 24000U);
  EXPECT_EQ(number(34, 2), 16U);
  ASSERT_EQ(wav.substr(36, 4), "data");
  const size_t samples = number(40, 4) / 2;
  EXPECT_EQ(samples % kFrame, 0U) << "whole frames";
  EXPECT_GE(samples, 24000U / 3) << "two words take a while";
  EXPECT_LE(samples, 24000U * 10) << "but not that long";
  double power = 0;
  for (size_t i = 0; i < samples; ++i) {
    const auto sample = static_cast<int16_t>(number(44 + i * 2, 2));
    power += static_cast<double>(sample) * sample;
  }
  EXPECT_GT(std::sqrt(power / static_cast<double>(samples)), 300) << "that is no speech";
}

TEST_F(VoiceTest, TheSeedDecidesTheSound) {
  const std::string first = Speak("text=\"The same words, and a few more of them, so that seeds can differ.\" seed=5");
  EXPECT_EQ(Speak("text=\"The same words, and a few more of them, so that seeds can differ.\" seed=5"), first);
  EXPECT_NE(Speak("text=\"The same words, and a few more of them, so that seeds can differ.\" seed=6"), first);
  EXPECT_NE(Speak("text=\"Other words.\" seed=5"), first);
}

TEST_F(VoiceTest, SixteenBitsAreTheRoundedFloats) {
  const std::vector<float> floats = Floats(Speak("text=\"Sixteen bits.\" seed=2"));
  ASSERT_FALSE(floats.empty());
  std::string expected(floats.size() * sizeof(int16_t), '\0');
  gstqtts::ConvertToS16(floats.data(), floats.size(), reinterpret_cast<int16_t*>(expected.data()));
  EXPECT_EQ(Speak("text=\"Sixteen bits.\" seed=2", "S16LE"), expected);
}

TEST_F(VoiceTest, BothLayoutsSpeak) {
  for (const char* layout : {"auto", "streaming", "non-streaming"}) {
    const auto floats = Floats(Speak(std::string("text=\"One two three.\" seed=3 layout=") + layout));
    EXPECT_GE(floats.size(), 24000U / 3) << layout;
    EXPECT_EQ(floats.size() % kFrame, 0U);
    for (const float x : floats) ASSERT_TRUE(x >= -1.0F && x <= 1.0F) << layout;
  }
}

TEST_F(VoiceTest, SettingsOfGreedySpeechLeaveNothingToTheSeed) {
  const std::string greedy = "text=\"No dice.\" temperature=0 subtalker-temperature=0 max-duration=2000000000 seed=";
  const std::string first = Speak(greedy + "1");
  EXPECT_FALSE(first.empty());
  EXPECT_EQ(Speak(greedy + "2"), first);
}

// The first part of a long text has the utterance's seed, so it sounds like its text alone.
TEST_F(VoiceTest, ALongTextIsSpokenInParts) {
  const std::string first = "This is the first sentence of two, which is not short.";
  const std::string both = "text=\"" + first + " And here is the second one.\" seed=5 trim-leading-silence=false ";
  const std::string alone = Speak("text=\"" + first + "\" seed=5 trim-leading-silence=false");
  const std::string parts = Speak(both + "part-length=60");
  EXPECT_GT(parts.size(), alone.size());
  EXPECT_EQ(parts.substr(0, alone.size()), alone);
  EXPECT_NE(Speak(both + "part-length=0").substr(0, alone.size()), alone);
}

// A text of several sentences in a file, with several made at once.
TEST_F(VoiceTest, ParallelChangesNoSample) {
  const Folder folder;
  std::ofstream(folder.path() + "/text")
      << "The first sentence. And the second, which is longer than the others. Third! "
         "?! Does the fourth ask? The fifth is the last but one. The end.";
  const auto speak = [&](const std::string& parallel) {
    return Hear("filesrc location=" + folder.path() + "/text ! qttssrc seed=4 parallel=" + parallel);
  };
  const std::string alone = speak("1");
  ASSERT_GT(alone.size(), 5 * kFrame * sizeof(float));
  EXPECT_EQ(speak("3"), alone);
  EXPECT_EQ(speak("64"), alone);
}

// Pipelines of one process that share the engine.
class ManyTest : public VoiceTest {
 protected:
  struct Member {
    GstElement* pipeline = nullptr;
    GstElement* element = nullptr;
    std::string bytes;
  };

  // `blocked`: downstream accepts nothing.
  static void Begin(Member* member, const std::string& properties, const std::string& between = "",
                    bool blocked = false) {
    const std::string line = "qttssrc name=src " + properties + " ! audio/x-raw,format=F32LE ! " + between +
                             " fakesink name=sink signal-handoffs=true async=false";
    GError* error = nullptr;
    member->pipeline = gst_parse_launch(line.c_str(), &error);
    ASSERT_EQ(error, nullptr) << error->message;
    member->element = gst_bin_get_by_name(GST_BIN(member->pipeline), "src");
    GstElement* sink = gst_bin_get_by_name(GST_BIN(member->pipeline), "sink");
    g_signal_connect(sink, "handoff", G_CALLBACK(OnHandoff), &member->bytes);
    gst_object_unref(sink);
    if (blocked) {
      GstPad* pad = gst_element_get_static_pad(member->element, "src");
      const auto keep = [](GstPad*, GstPadProbeInfo*, gpointer) { return GST_PAD_PROBE_OK; };
      gst_pad_add_probe(pad, GST_PAD_PROBE_TYPE_BLOCK_DOWNSTREAM, keep, nullptr, nullptr);
      gst_object_unref(pad);
    }
    ASSERT_NE(gst_element_set_state(member->pipeline, GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  }
  // Type of the message that ended the run.
  static GstMessageType Await(const Member& member) {
    GstBus* bus = gst_element_get_bus(member.pipeline);
    GstMessage* message =
        gst_bus_timed_pop_filtered(bus, kPatience, static_cast<GstMessageType>(GST_MESSAGE_EOS | GST_MESSAGE_ERROR));
    const GstMessageType type = message != nullptr ? GST_MESSAGE_TYPE(message) : GST_MESSAGE_UNKNOWN;
    if (message != nullptr) gst_message_unref(message);
    gst_object_unref(bus);
    return type;
  }
  static void End(Member* member) {
    gst_element_set_state(member->pipeline, GST_STATE_NULL);
    gst_object_unref(member->element);
    gst_object_unref(member->pipeline);
  }
};

TEST_F(ManyTest, ASlowAFailingAndAFlushingElementDisturbNobody) {
  constexpr size_t kOthers = 47;
  const std::string settings = "text=\"Nobody is disturbed by that.\" max-duration=800000000 seed=";
  std::vector<std::string> expected;
  for (int seed = 0; seed < 4; ++seed) expected.push_back(Speak(settings + std::to_string(seed)));

  Member slow;
  Begin(&slow, settings + "0", "", true);
  // Downstream fails after the first buffers; then the element is started again and again.
  Member failing;
  Begin(&failing, settings + "0", "identity error-after=3 !");
  Member flushing;
  Begin(&flushing, settings + "0 idle-mode=wait");
  std::vector<Member> others(kOthers);
  for (size_t i = 0; i < kOthers; ++i) Begin(&others[i], settings + std::to_string(i % expected.size()));
  int flushes = 0;
  for (size_t i = 0; i < kOthers; ++i) {
    if (i % 8 == 0) {
      EXPECT_EQ(Await(failing), GST_MESSAGE_ERROR);
      gst_element_set_state(failing.pipeline, GST_STATE_NULL);
      gst_element_set_state(failing.pipeline, GST_STATE_PLAYING);
    }
    gst_element_send_event(flushing.element, gst_event_new_flush_start());
    gst_element_send_event(flushing.element, gst_event_new_flush_stop(TRUE));
    guint64 id = 0;
    g_signal_emit_by_name(flushing.element, "speak", "This is never heard to its end.", nullptr, &id);
    if (id != 0) ++flushes;
    EXPECT_EQ(Await(others[i]), GST_MESSAGE_EOS);
    EXPECT_TRUE(others[i].bytes == expected[i % expected.size()]) << "element " << i;
  }
  EXPECT_EQ(flushes, static_cast<int>(kOthers));
  EXPECT_TRUE(slow.bytes.empty()) << "it was slow to the end";
  for (Member& member : others) End(&member);
  for (Member* member : {&slow, &failing, &flushing}) End(member);
}

TEST_F(VoiceTest, MaxDurationIsKept) {
  const std::string bytes =
      Speak("text=\"This text is much longer than a third of a second.\" seed=1 max-duration=320000000");
  EXPECT_EQ(bytes.size(), 4 * kFrame * sizeof(float));
}

TEST_F(VoiceTest, BuffersOfTextAreSpokenLikeTexts) {
  const std::string expected = Speak("text=\"First words.\" seed=4") + Speak("text=\"Second words.\" seed=4");
  const Folder folder;
  // One buffer of 13 bytes for each text.
  std::ofstream(folder.path() + "/text") << "First words.\nSecond words.";
  EXPECT_EQ(Hear("filesrc blocksize=13 location=" + folder.path() + "/text ! qttssrc seed=4"), expected);
}

// Text that comes token by token gives the same sound as text that is complete, less the silence at its beginning.
// Check: 58
TEST_F(VoiceTest, AStreamSoundsLikeTheWholeText) {
  const Folder folder;
  const std::string path = folder.path() + "/text";
  const std::string text = "Hello there, this is a stream of words.";
  std::ofstream(path) << text;
  const std::string expected = Speak("layout=streaming seed=5 text=\"" + text + "\"");
  ASSERT_GT(expected.size(), 10 * kFrame * sizeof(float));
  for (const int size : {1, 3, 7}) {
    const std::string bytes = Hear("filesrc location=" + path + " blocksize=" + std::to_string(size) +
                                   " ! qttssrc segmentation=stream seed=5");
    ASSERT_LT(bytes.size(), expected.size()) << size;
    EXPECT_TRUE(expected.ends_with(bytes)) << size;
    EXPECT_TRUE(Hear("filesrc location=" + path + " blocksize=" + std::to_string(size) +
                     " ! qttssrc segmentation=stream trim-leading-silence=false seed=5") == expected)
        << size;
  }
}

TEST_F(VoiceTest, C30TheEngineLogsItsLifeAndNoText) {
  gst_debug_remove_log_function(gst_debug_log_default);
  std::string lines;  // whole lines, so that reading needs no mutex
  std::mutex mutex;
  std::pair<std::string*, std::mutex*> log(&lines, &mutex);
  const GstLogFunction collect = [](GstDebugCategory* category, GstDebugLevel level, const gchar*, const gchar*, gint,
                                    GObject*, GstDebugMessage* message, gpointer user_data) {
    if (g_strcmp0(gst_debug_category_get_name(category), "qttsengine") != 0) return;
    const auto* sink = static_cast<decltype(log)*>(user_data);
    const std::lock_guard lock(*sink->second);
    *sink->first += std::string(gst_debug_level_get_name(level)) + ' ' + gst_debug_message_get(message) + '\n';
  };
  gst_debug_add_log_function(collect, &log, nullptr);
  gst_debug_set_threshold_from_string("qttsengine:9", TRUE);
  Speak("text=\"Confidential matters.\" seed=77 device=cpu");
  gst_debug_set_threshold_from_string("", TRUE);
  Speak("text=\"Nobody listens.\" seed=78 device=cpu");
  gst_debug_remove_log_function_by_data(&log);
  gst_debug_add_log_function(gst_debug_log_default, nullptr, nullptr);
  const std::lock_guard lock(mutex);
  EXPECT_THAT(lines, ContainsRegex("INFO *loaded .* in [0-9.]+ ms, on cpu"));
  EXPECT_THAT(lines, ContainsRegex("DEBUG *slot [0-9]+: prompt of [0-9]+ rows, .* seed 77"));
  EXPECT_THAT(lines, ContainsRegex("TRACE *a frame of 1 streams, [0-9.]+ ms"));
  EXPECT_THAT(lines, ContainsRegex("DEBUG *slot [0-9]+: complete after [0-9]+ frames"));
  EXPECT_THAT(lines, Not(HasSubstr("seed 78"))) << "nobody wants it";
  EXPECT_THAT(lines, Not(HasSubstr("Confidential")));
}

TEST_F(VoiceTest, C30LoggingEverythingChangesNothing) {
  const std::string expected = Speak("text=\"Nothing to hide.\" seed=4", "S16LE");
  gst_debug_remove_log_function(gst_debug_log_default);
  static std::atomic<int> lines = 0;  // a thread may be in the function when it is removed
  const GstLogFunction count = [](GstDebugCategory* category, GstDebugLevel, const gchar*, const gchar*, gint, GObject*,
                                  GstDebugMessage* message, gpointer) {
    EXPECT_NE(gst_debug_message_get(message), nullptr);
    if (g_strcmp0(gst_debug_category_get_name(category), "qttssrc") == 0) ++lines;
  };
  gst_debug_add_log_function(count, nullptr, nullptr);
  gst_debug_set_threshold_from_string("*:9", TRUE);
  const std::string logged = Speak("text=\"Nothing to hide.\" seed=4", "S16LE");
  gst_debug_set_threshold_from_string("", TRUE);
  gst_debug_remove_log_function(count);
  gst_debug_add_log_function(gst_debug_log_default, nullptr, nullptr);
  EXPECT_TRUE(logged == expected);
  EXPECT_GT(lines, 10);
}

TEST_F(VoiceTest, C26ElementsSideBySideSoundLikeEachAlone) {
  const std::string expected = Speak("text=\"Side by side.\" seed=9");
  std::string bytes[2];
  const Outcome outcome = Play(
      "qttssrc text=\"Side by side.\" seed=9 ! audio/x-raw,format=F32LE ! fakesink name=sink0 signal-handoffs=true "
      "qttssrc text=\"Side by side.\" seed=9 ! audio/x-raw,format=F32LE ! fakesink name=sink1 signal-handoffs=true "
      "qttssrc text=\"Quite another text.\" ! fakesink",
      [&](GstElement* pipeline) {
        for (int i = 0; i < 2; ++i) {
          GstElement* sink = gst_bin_get_by_name(GST_BIN(pipeline), ("sink" + std::to_string(i)).c_str());
          g_signal_connect(sink, "handoff", G_CALLBACK(OnHandoff), &bytes[i]);
          gst_object_unref(sink);
        }
      });
  ASSERT_TRUE(outcome.ended) << outcome.message;
  EXPECT_EQ(bytes[0], expected);
  EXPECT_EQ(bytes[1], expected);
}

TEST_F(VoiceTest, StopsInMidSpeech) {
  GstElement* pipeline = gst_parse_launch("qttssrc name=src ! fakesink", nullptr);
  GstElement* src = gst_bin_get_by_name(GST_BIN(pipeline), "src");
  g_object_set(src, "text", "A long text that goes on and on, and would take a good while to be spoken to its end.",
               nullptr);
  for (int round = 0; round < 10; ++round) {
    gst_element_set_state(pipeline, GST_STATE_PLAYING);
    EXPECT_EQ(gst_element_get_state(pipeline, nullptr, nullptr, kPatience), GST_STATE_CHANGE_SUCCESS) << "speaks";
    EXPECT_EQ(gst_element_set_state(pipeline, round % 2 == 0 ? GST_STATE_READY : GST_STATE_NULL),
              GST_STATE_CHANGE_SUCCESS);
  }
  gst_element_set_state(pipeline, GST_STATE_NULL);
  gst_object_unref(src);
  gst_object_unref(pipeline);
}

TEST_F(VoiceTest, TellsItsSpeakersAndLanguages) {
  GstElement* src = gst_element_factory_make("qttssrc", nullptr);
  ASSERT_NE(src, nullptr);
  ASSERT_EQ(gst_element_set_state(src, GST_STATE_READY), GST_STATE_CHANGE_SUCCESS);
  const std::pair<const char*, std::vector<std::string>> lists[] = {
      {"speakers", {"clara", "grace", "hugh", "owen", "ross"}}, {"languages", {"english"}}};
  for (const auto& [property, expected] : lists) {
    gchar** list = nullptr;
    g_object_get(src, property, &list, nullptr);
    EXPECT_EQ(std::vector<std::string>(list, list + g_strv_length(list)), expected) << property;
    g_strfreev(list);
  }
  gchar* speaker = nullptr;
  g_object_get(src, "default-speaker", &speaker, nullptr);
  EXPECT_STREQ(speaker, "grace");
  g_free(speaker);
  gst_element_set_state(src, GST_STATE_NULL);
  gst_object_unref(src);
}

// A warning names what the bundled voice cannot speak; other texts have none.
// Check: 53
TEST_F(VoiceTest, WarnsOfTextThatItsLanguageIsNotWrittenIn) {
  const struct {
    const char* properties;
    const char* part;  // of the only warning; empty: no warning
  } cases[] = {{"text=你好，世界", "The text is in Han script. This model speaks English"},
               {"text=\"Je voudrais réserver une table pour deux personnes, s'il vous plaît.\"",
                "The text looks like another language."},
               {"text=🙂", "Nothing was spoken"},
               {"text=你好，世界 language=en", ""},
               {"text=\"Meet me at the café.\"", ""}};
  for (const auto& c : cases) {
    SCOPED_TRACE(c.properties);
    const Outcome outcome = Play("qttssrc max-duration=400000000 seed=1 " + std::string(c.properties) + " ! fakesink");
    EXPECT_TRUE(outcome.ended) << outcome.message;
    std::vector<std::string> warnings = outcome.warnings;
    std::erase_if(warnings,
                  [](const std::string& warning) { return warning.find("max-duration") != std::string::npos; });
    ASSERT_EQ(warnings.size(), *c.part == '\0' ? 0U : 1U);
    for (const std::string& warning : warnings) EXPECT_THAT(warning, HasSubstr(c.part));
  }
}

// --- cloned voices, with a random checkpoint of the Base kind

void RunProgram(const std::vector<std::string>& words) {
  std::vector<gchar*> arguments;
  std::vector<std::string> copies = words;
  for (std::string& word : copies) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  gint wait_status = -1;
  const auto flags = static_cast<GSpawnFlags>(G_SPAWN_STDOUT_TO_DEV_NULL);
  EXPECT_TRUE(g_spawn_sync(nullptr, arguments.data(), nullptr, flags, nullptr, nullptr, nullptr, nullptr, &wait_status,
                           nullptr));
  EXPECT_EQ(wait_status, 0) << words[0];
}

TEST_F(VoiceTest, ClonesARecordingAndSpeaksWithSavedVoices) {
  const Folder folder;
  const std::string base = folder.path() + "/base";
  const std::string voice = folder.path() + "/voice.safetensors";
  const std::string wav = std::string(QTTS_TEST_REFERENCES) + "/speech-44100.wav";
  RunProgram({QTTS_GENERATOR, "--preset", "tiny-base-0b6", base});
  RunProgram({QTTS_TOOL, "voice", "make", base, "--audio", wav, "--reference-text", "So it goes.", "--output", voice});
  const std::string common = "model-path=" + base + " device=cpu text=Hi. seed=1 max-duration=400000000 ";
  const std::string cloned = Speak(common + "reference-audio=" + wav + " reference-text=\"So it goes.\"");
  EXPECT_EQ(cloned.size(), 5 * kFrame * sizeof(float));
  EXPECT_EQ(Speak(common + "voice-file=" + voice), cloned);
  EXPECT_NE(Speak(common + "reference-audio=" + wav), cloned) << "the timbre alone";

  const std::string ogg = folder.path() + "/reference.ogg";
  ASSERT_TRUE(
      Play("filesrc location=" + wav + " ! wavparse ! audioconvert ! vorbisenc ! oggmux ! filesink location=" + ogg)
          .ended);
  EXPECT_EQ(Speak(common + "reference-audio=" + ogg + " reference-text=\"So it goes.\"").size(), cloned.size());
}

// Two elements with one model at the same time, and one after another with the same voice.
TEST_F(VoiceTest, ElementsSideBySideKeepTheirVoices) {
  const Folder folder;
  const std::string base = folder.path() + "/base";
  RunProgram({QTTS_GENERATOR, "--preset", "tiny-base-0b6", base});
  const std::string references = QTTS_TEST_REFERENCES;
  const std::string common = "model-path=" + base + " device=cpu text=\"Side by side.\" seed=4 max-duration=800000000 ";
  const std::string voices[] = {"reference-audio=" + references + "/speech-44100.wav reference-text=\"So it goes.\"",
                                "reference-audio=" + references + "/speech-8000.wav reference-text=\"Another one.\"",
                                "reference-audio=" + references + "/speech-44100.wav"};
  std::string alone[3], together[6];
  for (size_t i = 0; i < 3; ++i) {
    alone[i] = Speak(common + voices[i]);
    EXPECT_EQ(alone[i].size(), 10 * kFrame * sizeof(float));
    for (size_t j = 0; j < i; ++j) EXPECT_NE(alone[i], alone[j]);
  }
  std::string line;
  for (size_t i = 0; i < 6; ++i) {
    line += "qttssrc " + common + voices[i % 3] +
            " ! audio/x-raw,format=F32LE ! fakesink signal-handoffs=true name=sink" + std::to_string(i) + " ";
  }
  const Outcome outcome = Play(line, [&](GstElement* pipeline) {
    for (size_t i = 0; i < 6; ++i) {
      GstElement* sink = gst_bin_get_by_name(GST_BIN(pipeline), ("sink" + std::to_string(i)).c_str());
      g_signal_connect(sink, "handoff", G_CALLBACK(OnHandoff), &together[i]);
      gst_object_unref(sink);
    }
  });
  ASSERT_TRUE(outcome.ended) << outcome.message;
  for (size_t i = 0; i < 6; ++i) EXPECT_TRUE(together[i] == alone[i % 3]) << i;
}

TEST_F(VoiceTest, WhatAModelCannotDoNamesTheOneThatCan) {
  const Folder folder;
  const std::string base = folder.path() + "/base";
  const std::string wav = std::string(QTTS_TEST_REFERENCES) + "/speech-8000.wav";
  RunProgram({QTTS_GENERATOR, "--preset", "tiny-base-0b6", base});
  const std::pair<std::string, std::string> cases[] = {
      {"reference-audio=" + wav, "Qwen3-TTS-12Hz-0.6B-Base"},
      {"model-path=" + base + " speaker=ryan", "Qwen3-TTS-12Hz-0.6B-CustomVoice"},
      {"model-path=" + base, "give a recording or a voice file"}};
  for (const auto& [properties, part] : cases) {
    const Outcome outcome = Play("qttssrc device=cpu text=x " + properties + " ! fakesink");
    EXPECT_EQ(outcome.domain, GST_RESOURCE_ERROR) << properties;
    EXPECT_EQ(outcome.code, GST_RESOURCE_ERROR_SETTINGS) << properties << ": " << outcome.message;
    EXPECT_NE(outcome.message.find(part), std::string::npos) << outcome.message;
  }
}

// The results that doc/modes/recordings.md states for each recording, with the real encoders.
TEST_F(VoiceTest, EveryRecordingGivesWhatIsDocumented) {
  const Folder folder;
  const std::string base = folder.path() + "/base";
  const std::string other = folder.path() + "/other";
  RunProgram({QTTS_GENERATOR, "--preset", "tiny-base-0b6", base});
  RunProgram({QTTS_GENERATOR, "--preset", "tiny-base-0b6", "--seed", "2", other});
  const std::string speech = std::string(QTTS_TEST_REFERENCES) + "/speech-48000-stereo.wav";
  const auto path = [&](const char* name) { return folder.path() + "/" + name; };
  const auto sound = [&](const char* name, const std::string& source) {
    EXPECT_TRUE(Play(source + " ! wavenc ! filesink location=" + path(name)).ended) << source;
  };
  const auto tone = [&](const char* name, const char* wave, int tenths) {
    sound(name, std::string("audiotestsrc samplesperbuffer=800 wave=") + wave +
                    " num-buffers=" + std::to_string(tenths) + " ! audio/x-raw,format=S16LE,rate=8000,channels=1");
  };
  sound("stereo.wav", "filesrc location=" + speech + " ! wavparse ! audioconvert ! audioresample ! " +
                          "audio/x-raw,format=S16LE,rate=96000,channels=2");
  tone("silence.wav", "silence", 30);
  tone("short.wav", "sine", 2);
  tone("long.wav", "sine", 900);
  tone("minutes.wav", "sine", 6000);
  std::ofstream(path("letter.txt")) << "This is a letter, no sound.\n";
  RunProgram({QTTS_TOOL, "voice", "make", other, "--audio", speech, "--output", path("other.safetensors")});

  const std::string recording = "reference-audio=" + speech + " ";
  const std::string text_of_it = "reference-text=\"So it goes.\" ";
  const struct {
    std::string properties;
    std::string error;  // as documented; empty: it speaks
  } cases[] = {
      {"reference-audio=" + path("stereo.wav"), ""},
      {recording + text_of_it, ""},
      {recording, ""},
      {recording + "reference-text=\"Das sagt hier niemand.\"", ""},
      {recording + text_of_it + "language=japanese", ""},
      {"reference-audio=" + path("silence.wav"),
       "the reference recording is silent: nothing in it is louder than -60 dB"},
      {"reference-audio=" + path("short.wav"),
       "the reference recording is 0.2 s long, expected 1 s at least; 3 to 15 s of clear speech make the best voice"},
      {"reference-audio=" + path("long.wav"),
       "the reference recording is 90 s long, expected 60 s at most; cut out 3 to 15 s of clear speech, and the "
       "reference text with it"},
      {"reference-audio=" + path("minutes.wav"),
       "is longer than 120 s. Cut out 3 to 15 s of clear speech, and the reference text with it."},
      {"reference-audio=" + path("letter.txt"),
       "is no recording of a kind that is read. Give speech as WAV, FLAC, MP3, AAC, Ogg (Opus or Vorbis), MP4 or WebM; "
       "\"ffmpeg -i FILE OUT.wav\" makes one of most others."},
      {"reference-audio=" + path("none.wav"), "no such file"},
      {"reference-audio=" + folder.path(), "is not a regular file"},
      {"reference-audio=https://localhost/me.wav", "is not a local file. Download it and give its path."},
      {text_of_it, "reference-text is set without reference-audio, the recording that says it. Set both or none."},
      {"voice-file=" + path("other.safetensors"), "make it again from its recording with this one"},
  };
  const std::string page = ReadFile(QTTS_TEST_RECORDINGS_PAGE);
  for (const auto& [properties, error] : cases) {
    SCOPED_TRACE(properties);
    const Outcome outcome = Play("qttssrc device=cpu seed=1 max-duration=160000000 text=Hello. model-path=" + base +
                                 " " + properties + " ! fakesink");
    EXPECT_EQ(outcome.ended, error.empty()) << outcome.message;
    EXPECT_NE(outcome.message.find(error), std::string::npos) << outcome.message;
    EXPECT_NE(page.find(error), std::string::npos) << "not in the document";
  }
}

// --- failures

TEST_F(VoiceTest, AMissingFolderIsNotFound) {
  const Outcome outcome = Play("qttssrc text=x model-path=/no/such/folder ! fakesink");
  EXPECT_EQ(outcome.change, GST_STATE_CHANGE_FAILURE);
  EXPECT_EQ(outcome.domain, GST_RESOURCE_ERROR);
  EXPECT_EQ(outcome.code, GST_RESOURCE_ERROR_NOT_FOUND);
  EXPECT_NE(outcome.message.find("/no/such/folder"), std::string::npos) << outcome.message;
}

TEST_F(VoiceTest, ATruncatedModelFailsBeforeItIsLoaded) {
  const Folder folder;
  const std::string model = folder.path() + "/voice";
  std::filesystem::copy(g_getenv("QTTS_VOICE_PATH"), model, std::filesystem::copy_options::recursive);
  std::filesystem::permissions(model + "/model.safetensors", std::filesystem::perms::owner_write,
                               std::filesystem::perm_options::add);
  std::filesystem::resize_file(model + "/model.safetensors", 100000);
  const Outcome outcome = Play("qttssrc text=x model-path=" + model + " ! fakesink");
  EXPECT_EQ(outcome.change, GST_STATE_CHANGE_FAILURE);
  EXPECT_EQ(outcome.domain, GST_STREAM_ERROR);
  EXPECT_EQ(outcome.code, GST_STREAM_ERROR_FORMAT);
  EXPECT_NE(outcome.message.find("model.safetensors"), std::string::npos) << outcome.message;
}

// Check: 43
TEST_F(VoiceTest, ABrokenTokenizerFailsBeforeItIsLoaded) {
  const Folder folder;
  const std::string model = folder.path() + "/voice";
  std::filesystem::copy(g_getenv("QTTS_VOICE_PATH"), model, std::filesystem::copy_options::recursive);
  std::filesystem::remove(model + "/merges.txt");
  Outcome outcome = Play("qttssrc text=x model-path=" + model + " ! fakesink");
  EXPECT_EQ(outcome.change, GST_STATE_CHANGE_FAILURE);
  EXPECT_EQ(outcome.domain, GST_RESOURCE_ERROR);
  EXPECT_EQ(outcome.code, GST_RESOURCE_ERROR_NOT_FOUND);
  EXPECT_NE(outcome.message.find("merges.txt"), std::string::npos) << outcome.message;
  std::ofstream(model + "/merges.txt") << "a b c\n";
  outcome = Play("qttssrc text=x model-path=" + model + " ! fakesink");
  EXPECT_EQ(outcome.change, GST_STATE_CHANGE_FAILURE);
  EXPECT_EQ(outcome.domain, GST_STREAM_ERROR);
  EXPECT_EQ(outcome.code, GST_STREAM_ERROR_FORMAT);
  EXPECT_NE(outcome.message.find("merges.txt:1"), std::string::npos) << outcome.message;
}

TEST_F(VoiceTest, UnknownNamesAreErrorsOfSettings) {
  for (const char* setting : {"speaker=nobody", "language=klingon", "reference-text=Hello"}) {
    const Outcome outcome = Play(std::string("qttssrc text=x ") + setting + " ! fakesink");
    EXPECT_EQ(outcome.domain, GST_RESOURCE_ERROR) << setting;
    EXPECT_EQ(outcome.code, GST_RESOURCE_ERROR_SETTINGS) << setting << ": " << outcome.message;
  }
}

}  // namespace
}  // namespace qtts
