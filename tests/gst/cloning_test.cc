// SPDX-License-Identifier: LGPL-2.1-or-later
// Cloned voices of the element: reading recordings, choosing and keeping voices, what goes wrong.
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "support.h"

namespace qtts::testing {
namespace {

class CloningTest : public GstTest {
 protected:
  // The first typefind loads all typefind plugins; their features stay loaded.
  static void SetUpTestSuite() {
    GList* list = gst_type_find_factory_get_list();
    for (GList* item = list; item != nullptr; item = item->next) {
      GstPluginFeature* loaded = gst_plugin_feature_load(GST_PLUGIN_FEATURE(item->data));
      if (loaded != nullptr) gst_object_unref(loaded);
    }
    gst_plugin_feature_list_free(list);
    KeepLiveObjects();
  }

  void SetUp() override {
    GstTest::SetUp();
    gchar* path = g_dir_make_tmp("qttssrc-cloning-XXXXXX", nullptr);
    folder_ = path;
    g_free(path);
  }
  void TearDown() override {
    std::filesystem::remove_all(folder_);
    GstTest::TearDown();
  }

  // A file of `seconds` of sound, encoded by `encoder`.
  std::string Sound(const std::string& name, double seconds, const std::string& caps, const std::string& encoder) {
    const std::string path = folder_ + "/" + name;
    const int buffers = static_cast<int>(seconds * 10);
    const std::string line = "audiotestsrc wave=sine volume=0.5 num-buffers=" + std::to_string(buffers) +
                             " samplesperbuffer=" + std::to_string(Rate(caps) / 10) + " ! " + caps + " ! " + encoder +
                             " ! filesink location=" + path;
    Owned<GstElement> pipeline(gst_parse_launch(line.c_str(), nullptr));
    gst_element_set_state(pipeline.get(), GST_STATE_PLAYING);
    GstBus* bus = gst_element_get_bus(pipeline.get());
    GstMessage* message =
        gst_bus_timed_pop_filtered(bus, kPatience, static_cast<GstMessageType>(GST_MESSAGE_EOS | GST_MESSAGE_ERROR));
    EXPECT_TRUE(message != nullptr && GST_MESSAGE_TYPE(message) == GST_MESSAGE_EOS) << line;
    if (message != nullptr) gst_message_unref(message);
    gst_object_unref(bus);
    gst_element_set_state(pipeline.get(), GST_STATE_NULL);
    return path;
  }

  static int Rate(const std::string& caps) { return std::stoi(caps.substr(caps.find("rate=") + 5)); }

  // The error of an element with these properties; empty if `text` was spoken.
  static Problem Refused(const std::string& properties) {
    Pipeline pipeline("qttssrc name=src text=abc " + properties + " ! fakesink");
    pipeline.Begin(GST_STATE_PLAYING);
    const auto message = pipeline.Wait(GST_MESSAGE_ERROR | GST_MESSAGE_EOS);
    if (message == nullptr || GST_MESSAGE_TYPE(message.get()) != GST_MESSAGE_ERROR) {
      ADD_FAILURE() << "no error: " << properties;
      return {};
    }
    return ParseProblem(message.get());
  }

  std::string folder_;
};

TEST_F(CloningTest, RecordingsKeepTheirRateAndChannels) {
  const struct {
    const char* name;
    const char* caps;
    const char* encoder;
    int rate;
    int channels;
  } files[] = {{"a.wav", "audio/x-raw,format=S16LE,rate=8000,channels=1", "wavenc", 8000, 1},
               {"b.wav", "audio/x-raw,format=S32LE,rate=96000,channels=2", "wavenc", 96000, 2},
               {"c.ogg", "audio/x-raw,rate=44100,channels=1", "audioconvert ! vorbisenc ! oggmux", 44100, 1}};
  for (const auto& file : files) {
    SCOPED_TRACE(file.name);
    const std::string path = Sound(file.name, 1.5, file.caps, file.encoder);
    Speak("text=abc reference-audio=" + path + " reference-text=\"What is said.\" pad-reference=true").Expect("abc");
    const Recording recording = fake::LastRecording();
    EXPECT_EQ(recording.sample_rate, file.rate);
    EXPECT_EQ(recording.channels, file.channels);
    const double seconds = static_cast<double>(recording.samples.size()) / file.channels / file.rate;
    EXPECT_NEAR(seconds, 1.5, 0.01);
    float loudest = 0;
    for (const float sample : recording.samples) loudest = std::max(loudest, std::fabs(sample));
    EXPECT_NEAR(loudest, 0.5F, 0.05F);
    EXPECT_EQ(fake::LastCloneOptions().reference_text, "What is said.");
    EXPECT_TRUE(fake::LastCloneOptions().pad_reference);
    ASSERT_NE(fake::Requests().back().voice, nullptr);
    EXPECT_EQ(fake::Requests().back().voice->reference_text, "What is said.");
  }
}

TEST_F(CloningTest, WithoutTextOnlyTheTimbre) {
  const std::string path = Sound("a.wav", 1, "audio/x-raw,format=S16LE,rate=24000,channels=1", "wavenc");
  Speak("text=abc reference-audio=file://" + path).ExpectEnd();
  EXPECT_EQ(fake::LastCloneOptions().reference_text, "");
  EXPECT_FALSE(fake::LastCloneOptions().pad_reference);
}

// Each utterance has the voice that was set when it came; a voice is made once.
TEST_F(CloningTest, VoicesChangeBetweenUtterances) {
  const std::string one = Sound("one.wav", 1, "audio/x-raw,format=S16LE,rate=24000,channels=1", "wavenc");
  const std::string two = folder_ + "/two.safetensors";
  std::ofstream(two) << "voice";
  Speak speak;
  speak.Open();
  const auto say = [&](const char* text, const std::string& voice_file, const std::string& audio) {
    g_object_set(speak.src(), "voice-file", voice_file.empty() ? nullptr : voice_file.c_str(), "reference-audio",
                 audio.empty() ? nullptr : audio.c_str(), nullptr);
    speak.Push(text);
  };
  say("a", "", one);
  say("b", two, "");
  say("c", "", "");
  say("d", "", one);
  say("e", two, "");
  speak.End().Expect("abcde");
  const std::vector<Request> requests = fake::Requests();
  ASSERT_EQ(requests.size(), 5U);
  ASSERT_NE(requests[0].voice, nullptr);
  ASSERT_NE(requests[1].voice, nullptr);
  EXPECT_EQ(requests[1].voice->reference_text, two);
  EXPECT_EQ(requests[2].voice, nullptr);
  EXPECT_EQ(requests[3].voice, requests[0].voice);
  EXPECT_EQ(requests[4].voice, requests[1].voice);
  EXPECT_EQ(fake::GetCounters().clones, 1);
  EXPECT_EQ(fake::GetCounters().voice_loads, 1);
}

TEST_F(CloningTest, AVoiceIsMadeWhileAnotherSpeaks) {
  const std::string audio = Sound("one.wav", 1, "audio/x-raw,format=S16LE,rate=24000,channels=1", "wavenc");
  fake::AllowFrames(1);
  Speak speak;
  speak.Push("abc").Await(1);
  g_object_set(speak.src(), "reference-audio", audio.c_str(), nullptr);
  fake::HoldClones(true);
  speak.Push("def");
  ASSERT_TRUE(WaitFor([] { return fake::GetCounters().clones == 1; })) << "before the first text is over";
  fake::AllowFrames(-1);
  ASSERT_TRUE(WaitFor([&] { return speak.record().buffer_count() == 3; })) << "it goes on meanwhile";
  fake::HoldClones(false);
  speak.End().Expect("abcdef");
  EXPECT_EQ(fake::GetCounters().clones, 1);
}

TEST_F(CloningTest, SilenceFlowsWhileAVoiceIsMade) {
  const std::string audio = Sound("one.wav", 1, "audio/x-raw,format=S16LE,rate=24000,channels=1", "wavenc");
  fake::HoldClones(true);
  Pipeline pipeline("qttssrc name=src is-live=true text=abc reference-audio=" + audio + " ! fakesink sync=false");
  Recorder& record = pipeline.Record();
  pipeline.Set(GST_STATE_PLAYING);
  ASSERT_TRUE(WaitFor([] { return fake::GetCounters().clones == 1; }));
  const size_t count = record.buffer_count();
  ASSERT_TRUE(WaitFor([&] { return record.buffer_count() > count + 5; }));
  for (const auto& item : record.buffers()) EXPECT_TRUE(item.silent);
  fake::HoldClones(false);
  EXPECT_TRUE(WaitFor([&] {
    const auto buffers = record.buffers();
    return std::count_if(buffers.begin(), buffers.end(), [](const auto& item) { return !item.silent; }) == 3;
  }));
}

TEST_F(CloningTest, WhatStopsSpeechDoesNotWaitForAVoice) {
  const std::string audio = Sound("one.wav", 1, "audio/x-raw,format=S16LE,rate=24000,channels=1", "wavenc");
  fake::HoldClones(true);
  Speak speak;
  g_object_set(speak.src(), "reference-audio", audio.c_str(), nullptr);
  speak.Push("old");
  ASSERT_TRUE(WaitFor([] { return fake::GetCounters().clones == 1; }));
  EXPECT_EQ(speak.Interrupt(), 0U);
  g_object_set(speak.src(), "reference-audio", nullptr, nullptr);
  speak.Push("new");
  ASSERT_TRUE(WaitFor([&] { return speak.text() == "new"; })) << "another voice does not wait for it";
  g_object_set(speak.src(), "reference-audio", audio.c_str(), nullptr);
  speak.Push("never");
  speak.Set(GST_STATE_READY);
  EXPECT_EQ(speak.text(), "new");
  fake::HoldClones(false);
}

TEST_F(CloningTest, AChangedFileIsReadAgain) {
  const std::string path = folder_ + "/voice.safetensors";
  std::ofstream(path) << "voice";
  Speak speak;
  g_object_set(speak.src(), "voice-file", path.c_str(), nullptr);
  speak.Push("a");
  EXPECT_TRUE(WaitFor([] { return fake::Requests().size() == 1; }));
  std::filesystem::last_write_time(path, std::filesystem::last_write_time(path) + std::chrono::seconds(5));
  speak.Push("b").End().ExpectEnd();
  EXPECT_EQ(fake::GetCounters().voice_loads, 2);
}

TEST_F(CloningTest, BadReferencesAreOneClearError) {
  const std::string text = folder_ + "/text.txt";
  std::ofstream(text) << "This is no sound, but a text of some length.\n";
  const std::string noise = folder_ + "/noise.bin";
  std::ofstream(noise) << std::string(5000, '\xA5');
  const std::string fifo = folder_ + "/fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  const std::string good = Sound("good.wav", 1, "audio/x-raw,format=S16LE,rate=8000,channels=1", "wavenc");
  const std::string minutes = Sound("minutes.wav", 130, "audio/x-raw,format=S16LE,rate=8000,channels=1", "wavenc");
  const struct {
    std::string properties;
    GQuark domain;
    int code;
    std::string part;
  } cases[] = {
      {"reference-audio=" + folder_ + "/none.wav", GST_RESOURCE_ERROR, GST_RESOURCE_ERROR_NOT_FOUND, "no such file"},
      {"reference-audio=" + folder_, GST_RESOURCE_ERROR, GST_RESOURCE_ERROR_OPEN_READ, "is not a regular file"},
      {"reference-audio=" + fifo, GST_RESOURCE_ERROR, GST_RESOURCE_ERROR_OPEN_READ, "is not a regular file"},
      {"reference-audio=http://localhost/a.wav", GST_RESOURCE_ERROR, GST_RESOURCE_ERROR_SETTINGS, "local file"},
      {"reference-audio=" + text, GST_STREAM_ERROR, GST_STREAM_ERROR_NOT_IMPLEMENTED, text},
      {"reference-audio=" + noise, GST_STREAM_ERROR, GST_STREAM_ERROR_NOT_IMPLEMENTED, noise},
      {"reference-audio=" + minutes, GST_RESOURCE_ERROR, GST_RESOURCE_ERROR_SETTINGS, "Cut out"},
      {"reference-text=Hello", GST_RESOURCE_ERROR, GST_RESOURCE_ERROR_SETTINGS, "without reference-audio"},
      {"voice-file=" + good + " reference-audio=" + good, GST_RESOURCE_ERROR, GST_RESOURCE_ERROR_SETTINGS, "unset one"},
      {"voice-file=" + folder_ + "/none", GST_RESOURCE_ERROR, GST_RESOURCE_ERROR_NOT_FOUND, "no such file"},
  };
  for (const auto& bad : cases) {
    SCOPED_TRACE(bad.properties);
    const Problem problem = Refused(bad.properties);
    EXPECT_EQ(problem.domain, bad.domain) << problem.text;
    EXPECT_EQ(problem.code, bad.code) << problem.text;
    EXPECT_NE(problem.text.find(bad.part), std::string::npos) << problem.text;
  }
  EXPECT_EQ(fake::GetCounters().clones, 0);

  fake::SetScript({.clone = Status::InvalidArgument("The recording is silent.")});
  EXPECT_EQ(Refused("reference-audio=" + good).text, "The recording is silent.");
}

// Each fault is told once for a voice, however often it speaks.
// Check: 60
TEST_F(CloningTest, FaultsOfARecordingAreWarnedOfOnce) {
  fake::Script script;
  script.warnings = {"advice about the settings"};
  script.clone_warnings = {"the reference recording is quiet", "the reference recording is noisy"};
  fake::SetScript(script);
  const std::string path = Sound("a.wav", 1, "audio/x-raw,format=S16LE,rate=24000,channels=1", "wavenc");
  Speak speak("prepare-reference=true reference-audio=" + path);
  speak.Push("a").Push("b").End();
  std::vector<std::string> told;
  for (;;) {
    const auto message = speak.Wait(GST_MESSAGE_WARNING | GST_MESSAGE_EOS);
    ASSERT_NE(message, nullptr);
    if (GST_MESSAGE_TYPE(message.get()) == GST_MESSAGE_EOS) break;
    told.push_back(ParseProblem(message.get()).text);
  }
  EXPECT_EQ(told, (std::vector<std::string>{script.warnings[0], script.clone_warnings[0], script.clone_warnings[1]}));
  EXPECT_EQ(fake::GetCounters().clones, 1);
  EXPECT_TRUE(fake::LastCloneOptions().prepare);
}

// A voice file has several takes; `style` chooses among them, or the first word of an instruction.
// Check: 61
TEST_F(CloningTest, StylesChangeBetweenUtterances) {
  const std::string voice = folder_ + "/me.voice";
  std::ofstream(voice) << "voice";
  Speak speak("voice-file=" + voice);
  speak.Open();
  const auto say = [&](const char* text, const char* style, const char* instruct) {
    g_object_set(speak.src(), "style", style, "instruct", instruct, nullptr);
    speak.Push(text);
  };
  say("a", nullptr, nullptr);
  say("b", "excited", nullptr);
  say("c", nullptr, "Calm, please.");
  say("d", "excited", "Calm, please.");
  say("e", nullptr, "Calm, as in the morning.");
  speak.End().ExpectEnd();
  const std::vector<Request> requests = fake::Requests();
  ASSERT_EQ(requests.size(), 5U);
  EXPECT_EQ(fake::GetCounters().voice_loads, 3) << "one for each take";
  const char* styles[] = {"", "excited", "calm", "excited", "calm"};
  const char* instructs[] = {"", "", "", "Calm, please.", ""};
  for (size_t i = 0; i < 5; ++i) {
    ASSERT_NE(requests[i].voice, nullptr);
    EXPECT_EQ(requests[i].voice->style, styles[i]);
    EXPECT_EQ(requests[i].instruct, instructs[i]) << "what has chosen the take is for nothing else";
  }
  EXPECT_NE(Refused("voice-file=" + voice + " style=angry").text.find("calm, excited"), std::string::npos);
  EXPECT_NE(Refused("style=calm").text.find("without voice-file"), std::string::npos);
}

// The code predictor of a designed voice is at 0.5 unless it is set; its instruction stays for the model.
// Check: 59
TEST_F(CloningTest, DesignedVoicesHaveATemperatureOfTheirOwn) {
  fake::Script script;
  script.info.type = ModelType::kVoiceDesign;
  script.info.speakers.clear();
  fake::SetScript(script);
  const std::string voice = folder_ + "/designed.voice";
  std::ofstream(voice) << "voice";
  for (const double set : {-1.0, 0.75}) {
    Speak("text=abc instruct=Calm subtalker-temperature=" + std::to_string(set) + " voice-file=" + voice).ExpectEnd();
    const Request request = fake::Requests().back();
    ASSERT_NE(request.voice, nullptr);
    EXPECT_TRUE(request.voice->designed());
    EXPECT_EQ(request.settings.predictor.temperature, set < 0 ? kDesignedPredictorTemperature : 0.75F);
    EXPECT_EQ(request.instruct, "Calm");
  }
}

}  // namespace
}  // namespace qtts::testing
