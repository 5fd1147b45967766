// SPDX-License-Identifier: LGPL-2.1-or-later
// Recordings with encoder delay and padding: the element keeps the same samples as the official package, and makes the
// same voice. tests/golden/data/encoded holds the files and the package's results.
#include <gst/gst.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gstqttsgapless.h"
#include "gstqttsrecordingfile.h"
#include "gstqttsreference.h"
#include "qtts/engine.h"
#include "tools/wav.h"

namespace gstqtts {
namespace {

const std::string kData = QTTS_TEST_ENCODED;

bool Never() { return false; }

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The gapless metadata of a file; none if there is no such file.
std::optional<Gapless> ReadNotes(const std::string& path) {
  const auto file = RecordingFile::Open(path);
  return file.ok() ? ReadGapless(*file) : std::nullopt;
}

std::string FromHex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

class ReferenceTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { gst_init(nullptr, nullptr); }

  void SetUp() override {
    document_ = nlohmann::json::parse(ReadFile(kData + "/encoded.json"));
    gchar* path = g_dir_make_tmp("qttssrc-reference-XXXXXX", nullptr);
    folder_ = path;
    g_free(path);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string Written(const std::string& name, const std::string& bytes) const {
    std::ofstream(folder_ + "/" + name, std::ios::binary) << bytes;
    return folder_ + "/" + name;
  }

  // Plays a pipeline to its end.
  static void Play(const std::string& line) {
    GstElement* pipeline = gst_parse_launch(line.c_str(), nullptr);
    ASSERT_NE(pipeline, nullptr) << line;
    gst_element_set_state(pipeline, GST_STATE_PLAYING);
    GstBus* bus = gst_element_get_bus(pipeline);
    GstMessage* message = gst_bus_timed_pop_filtered(bus, 60 * GST_SECOND,
                                                     static_cast<GstMessageType>(GST_MESSAGE_EOS | GST_MESSAGE_ERROR));
    EXPECT_TRUE(message != nullptr && GST_MESSAGE_TYPE(message) == GST_MESSAGE_EOS) << line;
    if (message != nullptr) gst_message_unref(message);
    gst_element_set_state(pipeline, GST_STATE_NULL);
    gst_object_unref(bus);
    gst_object_unref(pipeline);
  }

  // Every file has the length that the package reads, and begins where the encoded sound begins.
  void ExpectTheSound() {
    ASSERT_GT(document_["files"].size(), 8U);
    for (const auto& [name, file] : document_["files"].items()) {
      SCOPED_TRACE(name);
      const auto recording = ReadReference(kData + "/" + name, Never);
      ASSERT_TRUE(recording.ok()) << recording.status().message();
      EXPECT_EQ(recording->sample_rate, file["rate"].get<int>());
      // faad decodes one channel into two.
      EXPECT_EQ(recording->samples.size(), file["samples"].get<size_t>() * static_cast<size_t>(recording->channels));
      const auto original = qtts::ReadWav(kData + "/../references/" + file["reference"].get<std::string>());
      ASSERT_TRUE(original.ok());
      if (original->sample_rate != recording->sample_rate) continue;  // the test of the codes compares these
      // Opus shifts speech by less than a sample.
      EXPECT_NEAR(Delay(*recording, *original), name == "no-tag.mp3" ? 1105 : 0, name == "24000.opus" ? 1 : 0);
    }
  }

  // Delay of `recording` against `original` in samples.
  static int Delay(const qtts::Recording& recording, const qtts::Recording& original) {
    constexpr int kMost = 1300;
    constexpr int kLength = 20000;
    const auto channels = static_cast<size_t>(recording.channels);
    const auto original_channels = static_cast<size_t>(original.channels);
    std::pair<double, int> best;
    for (int delay = -kMost; delay <= kMost; ++delay) {
      double sum = 0;
      for (int i = kMost; i < kMost + kLength; i += 2) {
        sum += static_cast<double>(recording.samples[static_cast<size_t>(i + delay) * channels]) *
               static_cast<double>(original.samples[static_cast<size_t>(i) * original_channels]);
      }
      best = std::max(best, {sum, delay});
    }
    return best.second;
  }

  nlohmann::json document_;
  std::string folder_;
};

// Check: 51
TEST_F(ReferenceTest, IsReadAsTheOfficialPackageReadsIt) { ExpectTheSound(); }

// With any decoder. Each is tried with the others of its format disabled.
// Check: 51
TEST_F(ReferenceTest, IsTheSameWithOtherDecoders) {
  const std::vector<std::string> decoders = {"mpg123audiodec", "avdec_mp3",       "avdec_mp3float", "faad",
                                             "avdec_aac",      "avdec_aac_fixed", "fdkaacdec"};
  const std::vector<std::vector<std::string>> kept = {{"avdec_mp3", "faad"}, {"avdec_mp3float", "avdec_aac_fixed"}};
  std::vector<std::pair<GstPluginFeature*, guint>> ranks;
  for (const std::string& decoder : decoders) {
    GstPluginFeature* feature = gst_registry_lookup_feature(gst_registry_get(), decoder.c_str());
    if (feature != nullptr) ranks.emplace_back(feature, gst_plugin_feature_get_rank(feature));
  }
  for (const auto& names : kept) {
    SCOPED_TRACE(names[0] + " and " + names[1]);
    size_t found = 0;
    for (const auto& [feature, rank] : ranks) {
      const bool keep = std::find(names.begin(), names.end(), GST_OBJECT_NAME(feature)) != names.end();
      gst_plugin_feature_set_rank(feature, keep ? GST_RANK_PRIMARY : GST_RANK_NONE);
      found += keep ? 1 : 0;
    }
    if (found == names.size()) ExpectTheSound();
  }
  for (const auto& [feature, rank] : ranks) {
    gst_plugin_feature_set_rank(feature, rank);
    gst_object_unref(feature);
  }
}

// Check: 51
TEST_F(ReferenceTest, TagsOfMp3MeanWhatTheyMeanToLibsndfile) {
  const std::string whole = ReadFile(kData + "/mpeg-1.mp3");
  ASSERT_GT(document_["variants"].size(), 8U);
  for (const auto& variant : document_["variants"]) {
    SCOPED_TRACE(variant["about"]);
    std::string bytes = whole;
    const std::string changed = FromHex(variant["bytes"]);
    bytes.replace(variant["offset"].get<size_t>(), changed.size(), changed);
    const auto recording = ReadReference(Written("variant.mp3", bytes), Never);
    ASSERT_TRUE(recording.ok()) << recording.status().message();
    EXPECT_EQ(recording->samples.size(), variant["samples"].get<size_t>());
  }
}

// Files are untrusted: cut anywhere or with any byte changed, they cause no sanitizer report, and implausible gapless
// information is ignored.
// Check: 51
TEST_F(ReferenceTest, DamagedNotesDoNoHarm) {
  const uint32_t seed = std::random_device{}();
  RecordProperty("seed", std::to_string(seed));
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (const char* name : {"mpeg-1-lame.mp3", "edit-list.m4a", "itunes.m4a"}) {
    const std::string whole = ReadFile(kData + "/" + name);
    ASSERT_TRUE(ReadNotes(kData + "/" + name));
    const size_t index = whole.find("moov");
    const size_t begin = index == std::string::npos ? 0 : index - 4;
    const size_t end = index == std::string::npos ? 250 : whole.size();
    for (int i = 0; i < 400; ++i) {
      std::string bytes = whole;
      if (i % 4 == 0) bytes.resize(std::uniform_int_distribution<size_t>(0, whole.size())(random));
      for (int j = 0; j < i % 4; ++j) {
        const size_t at = std::uniform_int_distribution<size_t>(begin, end - 1)(random);
        if (at < bytes.size()) bytes[at] = static_cast<char>(i % 2 == 0 ? random() : 0xFFU);
      }
      const auto gapless = ReadNotes(Written("damaged", bytes));
      if (!gapless) continue;
      EXPECT_LE(gapless->hidden.size(), 10U);
      std::vector<uint8_t> data(bytes.begin(), bytes.end());
      for (size_t at = 0; at < data.size(); at += 1000) {
        HideBytes(gapless->hidden, at, data.data() + at, std::min<size_t>(1000, data.size() - at));
      }
      for (const size_t length : {0, 1, 1000, 66150}) {
        qtts::Recording recording{.samples = std::vector<float>(2 * length), .channels = 2, .sample_rate = 44100};
        TrimGapless(*gapless, &recording);
        EXPECT_LE(recording.samples.size(), 2 * length);
        EXPECT_EQ(recording.samples.size() % 2, 0U);
        EXPECT_EQ(recording.samples.empty(), length == 0) << "something is left";
      }
    }
  }
}

// Edit lists with several parts or another speed are left to GStreamer.
// Check: 51
TEST_F(ReferenceTest, OtherEditListsAreLeftToGStreamer) {
  std::string bytes = ReadFile(kData + "/edit-list.m4a");
  const size_t rate = bytes.find("elst") + 4 + 8 + 8;
  ASSERT_EQ(bytes.substr(rate, 4), std::string("\0\1\0\0", 4));
  bytes[rate + 1] = 2;
  EXPECT_FALSE(ReadNotes(Written("fast.m4a", bytes)));
  const auto none = ReadNotes(kData + "/44100.flac");
  EXPECT_FALSE(none);
  EXPECT_FALSE(ReadNotes(kData + "/48000.opus"));
  EXPECT_FALSE(ReadNotes(kData + "/no-tag.mp3"));
  EXPECT_FALSE(ReadNotes(kData + "/none"));
}

// Every kind that is allowed, against GStreamer's own choice of elements for it. The golden files above are the rest.
// Check: 51
TEST_F(ReferenceTest, AllowedKindsAreDecodedAsGStreamerDecodesThem) {
  const struct {
    const char* name;
    const char* encoder;
  } kinds[] = {{"16.wav", "audio/x-raw,format=S16LE ! wavenc"},
               {"24.wav", "audio/x-raw,format=S24LE ! wavenc"},
               {"float.wav", "audio/x-raw,format=F32LE ! wavenc"},
               {"a-law.wav", "alawenc ! wavenc"},
               {"mu-law.wav", "mulawenc ! wavenc"},
               {"flac.flac", "flacenc"},
               {"flac.ogg", "flacenc ! flacparse ! oggmux"},
               {"flac.mka", "flacenc ! flacparse ! matroskamux"},
               {"vorbis.ogg", "vorbisenc ! oggmux"},
               {"vorbis.webm", "vorbisenc ! webmmux"},
               {"opus.ogg", "opusenc ! oggmux"},
               {"opus.webm", "opusenc ! webmmux"},
               {"adts.aac", "avenc_aac ! aacparse ! audio/mpeg,stream-format=adts"},
               {"aac.mka", "avenc_aac ! aacparse ! matroskamux"},
               {"pcm.mka", "audio/x-raw,format=S16LE ! matroskamux"}};
  for (const auto& kind : kinds) {
    SCOPED_TRACE(kind.name);
    const std::string path = folder_ + "/" + kind.name;
    Play(
        "audiotestsrc wave=sine freq=440 num-buffers=20 samplesperbuffer=1600 ! audio/x-raw,rate=16000,channels=1 ! "
        "audioconvert ! audioresample ! " +
        std::string(kind.encoder) + " ! filesink location=" + path);
    const std::string raw = folder_ + "/raw";
    Play("filesrc location=" + path + " ! decodebin ! audioconvert ! audio/x-raw,format=" +
         (G_BYTE_ORDER == G_LITTLE_ENDIAN ? "F32LE" : "F32BE") + " ! filesink location=" + raw);
    const std::string expected = ReadFile(raw);
    const auto recording = ReadReference(path, Never);
    ASSERT_TRUE(recording.ok()) << recording.status().message();
    ASSERT_GT(recording->samples.size(), 16000U);
    ASSERT_EQ(recording->samples.size() * sizeof(float), expected.size());
    EXPECT_EQ(std::memcmp(recording->samples.data(), expected.data(), expected.size()), 0);
  }
}

// A file may be cut out of a stream, and begin within a frame. More before the first frame is no MP3.
// Check: 55
TEST_F(ReferenceTest, FramesMayFollowAPartOfAnother) {
  const std::string whole = ReadFile(kData + "/no-tag.mp3");
  const auto cut = ReadReference(Written("cut.mp3", whole.substr(100)), Never);
  ASSERT_TRUE(cut.ok()) << cut.status().message();
  EXPECT_GT(cut->samples.size(), 60000U);
  EXPECT_TRUE(ReadReference(Written("lead.mp3", std::string(4000, ' ') + whole), Never).ok());
  const auto late = ReadReference(Written("late.mp3", std::string(5000, ' ') + whole), Never);
  EXPECT_EQ(late.status().code(), qtts::StatusCode::kUnsupported);
  // Two frames are no proof.
  const auto few = ReadReference(Written("few.mp3", whole.substr(0, 2 * 209)), Never);
  EXPECT_NE(few.status().message().find("is no recording of a kind that is read"), std::string::npos);
}

// Check: 55
TEST_F(ReferenceTest, AMissingDecoderIsNamedWithItsPackage) {
  GstPluginFeature* feature = gst_registry_lookup_feature(gst_registry_get(), "flacdec");
  GstPluginFeature* other = gst_registry_lookup_feature(gst_registry_get(), "avdec_flac");
  ASSERT_NE(feature, nullptr);
  const guint rank = gst_plugin_feature_get_rank(feature);
  const guint other_rank = other == nullptr ? 0 : gst_plugin_feature_get_rank(other);
  gst_plugin_feature_set_rank(feature, GST_RANK_NONE);
  if (other != nullptr) gst_plugin_feature_set_rank(other, GST_RANK_NONE);
  const std::string path = kData + "/44100.flac";
  const auto recording = ReadReference(path, Never);
  EXPECT_EQ(recording.status().code(), qtts::StatusCode::kUnsupported);
  EXPECT_EQ(recording.status().message(),
            path +
                ": FLAC cannot be decoded. GStreamer's element flacdec or avdec_flac is missing, which Debian has in "
                "gstreamer1.0-plugins-good: apt install gstreamer1.0-plugins-good");
  gst_plugin_feature_set_rank(feature, rank);
  if (other != nullptr) gst_plugin_feature_set_rank(other, other_rank);
  gst_clear_object(&feature);
  gst_clear_object(&other);
}

// Check: 55
TEST_F(ReferenceTest, ACodecThatIsNotAllowedIsNamed) {
  const std::string path = folder_ + "/speex.ogg";
  Play("audiotestsrc num-buffers=20 ! audioconvert ! audioresample ! speexenc ! oggmux ! filesink location=" + path);
  const auto recording = ReadReference(path, Never);
  EXPECT_EQ(recording.status().code(), qtts::StatusCode::kUnsupported);
  EXPECT_NE(recording.status().message().find("its sound is coded as audio/x-speex, which is not read"),
            std::string::npos)
      << recording.status().message();
}

// qtdemux of GStreamer 1.22 divides by the channels of raw samples, without looking whether there are any.
// Check: 55
TEST_F(ReferenceTest, SampleDescriptionsOfMp4AreChecked) {
  const std::string whole = ReadFile(kData + "/edit-list.m4a");
  const size_t description = whole.find("mp4a");
  ASSERT_NE(description, std::string::npos);
  const auto refused = [&](const std::string& bytes) {
    const auto recording = ReadReference(Written("changed.m4a", bytes), Never);
    EXPECT_EQ(recording.status().code(), qtts::StatusCode::kUnsupported);
    return recording.status().message();
  };
  std::string bytes = whole;
  bytes.replace(description + 4 + 16, 2, std::string(2, '\0'));
  EXPECT_NE(refused(bytes).find("describes sound of version 0 with 0 channels"), std::string::npos) << refused(bytes);
  bytes.replace(description, 4, "raw ");
  EXPECT_NE(refused(bytes).find("its sound is coded as raw? in MP4, which is not read"), std::string::npos);
  bytes = whole;
  bytes.replace(whole.find("stsd"), 4, "free");
  EXPECT_NE(refused(bytes).find("describes no sound"), std::string::npos);
  bytes.replace(bytes.find("moov"), 4, "free");
  EXPECT_NE(refused(bytes).find("has no MP4 index"), std::string::npos);
}

// Less than 120 s can be more than memory holds. 100 s at 192 kHz in 8 channels are 585 MiB.
// Check: 55
TEST_F(ReferenceTest, SamplesAreLimited) {
  const std::string path = folder_ + "/wide.wav";
  Play(
      "audiotestsrc wave=silence num-buffers=1 samplesperbuffer=100 ! "
      "audio/x-raw,format=U8,rate=192000,channels=8,channel-mask=(bitmask)0xff ! wavenc ! filesink location=" +
      path);
  std::string bytes = ReadFile(path);
  const size_t begin = bytes.find("data") + 8;
  const uint32_t size = 100 * 192000 * 8;
  for (size_t i = 0; i < 4; ++i) {
    bytes[4 + i] = static_cast<char>((size + begin - 8) >> (8 * i));
    bytes[begin - 4 + i] = static_cast<char>(size >> (8 * i));
  }
  std::filesystem::resize_file(Written("wide.wav", bytes.substr(0, begin)), begin + size);  // samples are a hole
  const auto recording = ReadReference(path, Never);
  EXPECT_EQ(recording.status().code(), qtts::StatusCode::kInvalidArgument);
  EXPECT_NE(recording.status().message().find("has more than 33554432 samples at 192000 Hz in 8 channels"),
            std::string::npos)
      << recording.status().message();
}

// Check: 55
TEST_F(ReferenceTest, ARecordingThatChangesItsRateIsRefused) {
  std::string both;
  for (const char* rate : {"16000", "24000"}) {
    const std::string path = folder_ + "/" + rate;
    Play("audiotestsrc num-buffers=40 ! audioconvert ! audio/x-raw,rate=" + std::string(rate) +
         " ! avenc_aac ! aacparse ! audio/mpeg,stream-format=adts ! filesink location=" + path);
    both += ReadFile(path);
  }
  const auto recording = ReadReference(Written("both.aac", both), Never);
  EXPECT_EQ(recording.status().code(), qtts::StatusCode::kUnsupported);
  EXPECT_NE(recording.status().message().find("changes its sample rate or channels"), std::string::npos)
      << recording.status().message();
}

// The codes are the package's. Decoders round differently, and GStreamer's of Opus gives 16 bits.
// Check: 51
TEST_F(ReferenceTest, CodesAreTheOfficialPackages) {
  const std::string checkpoint = folder_ + "/checkpoint";
  std::vector<std::string> words = {QTTS_GENERATOR};
  for (const auto& option : document_["checkpoint"]["options"]) words.push_back(option.get<std::string>());
  words.push_back(checkpoint);
  std::vector<gchar*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  gint wait_status = -1;
  ASSERT_TRUE(g_spawn_sync(nullptr, arguments.data(), nullptr, G_SPAWN_DEFAULT, nullptr, nullptr, nullptr, nullptr,
                           &wait_status, nullptr));
  ASSERT_EQ(wait_status, 0);
  const auto engine = qtts::Engine::Load({.model_path = checkpoint, .device = qtts::Device::kCpu});
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  for (const auto& [name, file] : document_["files"].items()) {
    SCOPED_TRACE(name);
    const auto recording = ReadReference(kData + "/" + name, Never);
    ASSERT_TRUE(recording.ok()) << recording.status().message();
    const auto voice = (*engine)->CloneVoice(*recording, {.reference_text = "So it goes."});
    ASSERT_TRUE(voice.ok()) << voice.status().message();
    std::vector<int32_t> expected;
    for (const auto& frame : file["codes"]) {
      for (const auto& code : frame) expected.push_back(code.get<int32_t>());
    }
    ASSERT_EQ(voice->reference_codes.size(), expected.size());
    size_t equal = 0;
    for (size_t i = 0; i < expected.size(); ++i) equal += voice->reference_codes[i] == expected[i] ? 1 : 0;
    const double part = static_cast<double>(equal) / static_cast<double>(expected.size());
    EXPECT_GE(part, 0.99);
    RecordProperty("equal_codes_of_" + name, std::to_string(part));
  }
}

}  // namespace
}  // namespace gstqtts
