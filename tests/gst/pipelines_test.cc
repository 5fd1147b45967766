// SPDX-License-Identifier: LGPL-2.1-or-later
// The plugin with the bundled voice in pipelines as applications build them. The sound of files and packets is compared
// with the element's own output.
#include <gst/gst.h>
#include <gst/rtp/gstrtpbuffer.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace qtts {
namespace {

using Samples = std::vector<int16_t>;

constexpr GstClockTime kPatience = 120 * GST_SECOND;
constexpr int kRate = 24000;
// One seed: the same sound in every pipeline.
const char kSpeech[] = "qttssrc seed=1 text=\"Please leave your message after the tone.\"";
const char kPcm[] = "audio/x-raw,format=S16LE,rate=24000,channels=1";

// The buffers that reach the fakesinks of a pipeline, by name of the sink.
using Buffers = std::map<std::string, std::vector<std::string>>;

void OnHandoff(GstElement* sink, GstBuffer* buffer, GstPad* /*pad*/, Buffers* buffers) {
  std::string data(gst_buffer_get_size(buffer), '\0');
  gst_buffer_extract(buffer, 0, data.data(), data.size());
  gchar* name = gst_element_get_name(sink);
  // Every sink has its entry before streaming starts: threads of two sinks share nothing.
  buffers->at(name).push_back(std::move(data));
  g_free(name);
}

// Plays to EOS. `sinks` names the recorded fakesinks.
Buffers Play(const std::string& line, const std::vector<std::string>& sinks = {}) {
  Buffers buffers;
  GError* error = nullptr;
  GstElement* pipeline = gst_parse_launch(line.c_str(), &error);
  if (error != nullptr) {
    ADD_FAILURE() << line << ": " << error->message;
    g_clear_error(&error);
    if (pipeline != nullptr) gst_object_unref(pipeline);
    return buffers;
  }
  for (const std::string& name : sinks) {
    buffers[name];
    GstElement* sink = gst_bin_get_by_name(GST_BIN(pipeline), name.c_str());
    g_object_set(sink, "signal-handoffs", TRUE, nullptr);
    g_signal_connect(sink, "handoff", G_CALLBACK(OnHandoff), &buffers);
    gst_object_unref(sink);
  }
  gst_element_set_state(pipeline, GST_STATE_PLAYING);
  GstBus* bus = gst_element_get_bus(pipeline);
  GstMessage* message =
      gst_bus_timed_pop_filtered(bus, kPatience, static_cast<GstMessageType>(GST_MESSAGE_EOS | GST_MESSAGE_ERROR));
  if (message == nullptr) {
    ADD_FAILURE() << "neither the end nor an error: " << line;
  } else {
    if (GST_MESSAGE_TYPE(message) == GST_MESSAGE_ERROR) {
      gst_message_parse_error(message, &error, nullptr);
      ADD_FAILURE() << line << ": " << error->message;
      g_clear_error(&error);
    }
    gst_message_unref(message);
  }
  gst_element_set_state(pipeline, GST_STATE_NULL);
  gst_object_unref(bus);
  gst_object_unref(pipeline);
  return buffers;
}

Samples Join(const std::vector<std::string>& buffers) {
  std::string bytes;
  for (const std::string& buffer : buffers) bytes += buffer;
  Samples samples(bytes.size() / sizeof(int16_t));
  std::memcpy(samples.data(), bytes.data(), samples.size() * sizeof(int16_t));
  return samples;
}

// Sound of a pipeline whose end is raw audio, as 16 bit at 24 kHz.
Samples Sound(const std::string& line) {
  const Buffers buffers = Play(line + " ! audioconvert ! audioresample ! " + kPcm + " ! fakesink name=sink", {"sink"});
  const auto found = buffers.find("sink");
  return found == buffers.end() ? Samples() : Join(found->second);
}

const Samples& Direct() {
  static const Samples samples = Sound(kSpeech);
  return samples;
}

double Rms(const Samples& samples, size_t begin, size_t end) {
  double sum = 0;
  for (size_t i = begin; i < end; ++i) sum += static_cast<double>(samples[i]) * samples[i];
  return std::sqrt(sum / static_cast<double>(end - begin));
}

// Returns the part below 3 kHz, by a windowed sinc of 63 taps.
std::vector<double> Below3kHz(const Samples& samples) {
  constexpr int kHalf = 31;
  std::vector<double> taps(2 * kHalf + 1);
  for (int k = -kHalf; k <= kHalf; ++k) {
    const double x = M_PI * k;
    const double sinc = k == 0 ? 0.25 : std::sin(0.25 * x) / x;  // 3 kHz of the 12 kHz that there are
    taps[k + kHalf] = sinc * (0.5 + 0.5 * std::cos(x / (kHalf + 1)));
  }
  std::vector<double> below(samples.size());
  for (size_t i = kHalf; i + kHalf < samples.size(); ++i) {
    for (size_t k = 0; k < taps.size(); ++k) below[i] += taps[k] * samples[i + k - kHalf];
  }
  return below;
}

// Highest normalised correlation of `samples` with the element's own output, over all delays up to a quarter of a
// second: 1 for the same sound, about 0 for another one. Compared below 3 kHz, where all codecs keep the waveform and
// nearly all of speech lies.
double Likeness(const Samples& samples) {
  const std::vector<double> direct = Below3kHz(Direct());
  const std::vector<double> other = Below3kHz(samples);
  double best = 0;
  for (size_t delay = 0; delay < kRate / 4; ++delay) {
    const size_t count = std::min(direct.size(), other.size() - std::min(delay, other.size()));
    if (count < direct.size() / 2) break;
    double product = 0;
    double power = 0;
    double direct_power = 0;
    for (size_t i = 0; i < count; i += 3) {
      const double a = direct[i];
      const double b = other[i + delay];
      product += a * b;
      direct_power += a * a;
      power += b * b;
    }
    if (power > 0) best = std::max(best, product / std::sqrt(power * direct_power));
  }
  return best;
}

class PipelinesTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { gst_init(nullptr, nullptr); }

  void SetUp() override {
    gchar* folder = g_dir_make_tmp("qttssrc-XXXXXX", nullptr);
    folder_ = folder;
    g_free(folder);
    ASSERT_GT(Direct().size(), 1U * kRate);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string Path(const std::string& name) const { return (folder_ / name).string(); }

  // Speaks into a file through these elements, and reads it with decodebin.
  Samples ThroughFile(const std::string& name, const std::string& elements) const {
    Play(std::string(kSpeech) + " ! audioconvert ! audioresample ! " + elements + " ! filesink location=" + Path(name));
    return Sound("filesrc location=" + Path(name) + " ! decodebin");
  }

  // A lossy format: the same sound and length, except padding of the encoder at the ends.
  static void ExpectAlike(const Samples& samples, size_t padding) {
    EXPECT_GE(samples.size() + 2, Direct().size());  // rounding of a resampler
    EXPECT_LE(samples.size(), Direct().size() + padding);
    EXPECT_GT(Likeness(samples), 0.9);
  }

 private:
  std::filesystem::path folder_;
};

TEST_F(PipelinesTest, AWavFileHoldsEverySample) {
  EXPECT_EQ(ThroughFile("speech.wav", "audio/x-raw,format=S16LE ! wavenc"), Direct());
}

TEST_F(PipelinesTest, AFlacFileHoldsEverySample) {
  EXPECT_EQ(ThroughFile("speech.flac", "audio/x-raw,format=S16LE ! flacenc"), Direct());
}

TEST_F(PipelinesTest, Opus) { ExpectAlike(ThroughFile("speech.opus", "opusenc ! oggmux"), kRate / 20); }

TEST_F(PipelinesTest, Mp3) { ExpectAlike(ThroughFile("speech.mp3", "lamemp3enc ! xingmux"), kRate / 5); }

TEST_F(PipelinesTest, Aac) { ExpectAlike(ThroughFile("speech.m4a", "avenc_aac ! mp4mux"), kRate / 5); }

TEST_F(PipelinesTest, HlsSegmentsFollowOneAnother) {
  Play(std::string(kSpeech) +
       " ! audioconvert ! avenc_aac ! aacparse ! hls.audio hlssink2 name=hls target-duration=1 location=" +
       Path("%03d.ts") + " playlist-location=" + Path("list.m3u8"));
  std::ifstream file(Path("list.m3u8"));
  std::stringstream playlist;
  playlist << file.rdbuf();
  double duration = 0;
  int segments = 0;
  bool ended = false;
  for (std::string line; std::getline(playlist, line);) {
    if (line.rfind("#EXTINF:", 0) == 0) {
      duration += std::stod(line.substr(8));
      ++segments;
    }
    ended = ended || line.rfind("#EXT-X-ENDLIST", 0) == 0;
  }
  EXPECT_GE(segments, 2);
  EXPECT_TRUE(ended);
  EXPECT_NEAR(duration, static_cast<double>(Direct().size()) / kRate, 0.2);
  ExpectAlike(Sound("multifilesrc location=" + Path("%03d.ts") + " ! tsdemux ! decodebin"), kRate / 5);
}

// The 20 ms packets of a payloader.
struct Packets {
  std::vector<uint16_t> sequence;
  std::vector<uint32_t> timestamps;
  std::vector<bool> markers;
  std::vector<size_t> sizes;
  uint8_t type = 0;
};

Packets Payload(const std::string& elements) {
  Packets packets;
  const Buffers buffers =
      Play(std::string(kSpeech) + " ! audioconvert ! audioresample ! " + elements + " ! fakesink name=sink", {"sink"});
  for (const std::string& data : buffers.at("sink")) {
    GstBuffer* buffer = gst_buffer_new_memdup(data.data(), data.size());
    GstRTPBuffer rtp = GST_RTP_BUFFER_INIT;
    if (gst_rtp_buffer_map(buffer, GST_MAP_READ, &rtp) == FALSE) {
      ADD_FAILURE() << "not an RTP packet";
    } else {
      packets.sequence.push_back(gst_rtp_buffer_get_seq(&rtp));
      packets.timestamps.push_back(gst_rtp_buffer_get_timestamp(&rtp));
      packets.markers.push_back(gst_rtp_buffer_get_marker(&rtp) != FALSE);
      packets.sizes.push_back(gst_rtp_buffer_get_payload_len(&rtp));
      packets.type = gst_rtp_buffer_get_payload_type(&rtp);
      gst_rtp_buffer_unmap(&rtp);
    }
    gst_buffer_unref(buffer);
  }
  return packets;
}

// Each packet is `step` ticks of the RTP clock after the one before, the second `first_step` after the first. The first
// one begins a talk spurt.
void ExpectSteady(const Packets& packets, uint32_t step, uint32_t first_step) {
  ASSERT_GE(packets.sequence.size(), Direct().size() / (kRate / 50));
  EXPECT_TRUE(packets.markers.front());
  for (size_t i = 1; i < packets.sequence.size(); ++i) {
    EXPECT_EQ(packets.sequence[i], static_cast<uint16_t>(packets.sequence[i - 1] + 1)) << i;
    EXPECT_EQ(packets.timestamps[i] - packets.timestamps[i - 1], i == 1 ? first_step : step) << i;
    EXPECT_FALSE(packets.markers[i]) << i;
  }
}

TEST_F(PipelinesTest, RtpL16) {
  const std::string payloader = "rtpL16pay min-ptime=20000000 max-ptime=20000000";
  const Packets packets = Payload(payloader);
  ExpectSteady(packets, kRate / 50, kRate / 50);
  for (const size_t size : packets.sizes) EXPECT_EQ(size, 2U * kRate / 50);
  EXPECT_EQ(Sound(std::string(kSpeech) + " ! audioconvert ! " + payloader + " ! rtpL16depay"), Direct());
}

TEST_F(PipelinesTest, RtpPcmu) {
  const std::string elements = "audio/x-raw,rate=8000 ! mulawenc ! rtppcmupay min-ptime=20000000 max-ptime=20000000";
  const Packets packets = Payload(elements);
  EXPECT_EQ(packets.type, 0);
  ExpectSteady(packets, 8000 / 50, 8000 / 50);
  for (const size_t size : packets.sizes) EXPECT_EQ(size, 8000U / 50);
  ExpectAlike(
      Sound(std::string(kSpeech) + " ! audioconvert ! audioresample ! " + elements + " ! rtppcmudepay ! mulawdec"),
      kRate / 20);
}

TEST_F(PipelinesTest, RtpOpus) {
  const std::string elements =
      "opusenc audio-type=voice frame-size=20 inband-fec=true packet-loss-percentage=5 ! rtpopuspay";
  // The encoder's lookahead of 6.5 ms comes off the first packet.
  ExpectSteady(Payload(elements), 48000 / 50, 48000 / 50 - 312);
  ExpectAlike(Sound(std::string(kSpeech) + " ! audioconvert ! audioresample ! " + elements +
                    " ! rtpopusdepay ! opusdec use-inband-fec=true"),
              kRate / 20);
}

// Buffers and events of a pad, in the order of one streaming thread.
struct Flow {
  struct Entry {
    bool is_packet;
    GstClockTime time;
  };
  std::vector<Entry> entries;

  static GstPadProbeReturn OnSound(GstPad* /*pad*/, GstPadProbeInfo* info, gpointer user_data) {
    static_cast<Flow*>(user_data)->entries.push_back({false, GST_BUFFER_PTS(GST_PAD_PROBE_INFO_BUFFER(info))});
    return GST_PAD_PROBE_OK;
  }
  static GstPadProbeReturn OnPacket(GstPad* /*pad*/, GstPadProbeInfo* info, gpointer user_data) {
    static_cast<Flow*>(user_data)->entries.push_back({true, GST_BUFFER_PTS(GST_PAD_PROBE_INFO_BUFFER(info))});
    return GST_PAD_PROBE_OK;
  }
};

// Speaks, and waits for the end.
void Say(GstElement* pipeline, GstElement* speech, const char* text) {
  guint64 id = 0;
  g_signal_emit_by_name(speech, "speak", text, nullptr, &id);
  ASSERT_NE(id, 0U);
  GstBus* bus = gst_element_get_bus(pipeline);
  bool finished = false;
  while (!finished) {
    GstMessage* message = gst_bus_timed_pop_filtered(
        bus, kPatience, static_cast<GstMessageType>(GST_MESSAGE_ELEMENT | GST_MESSAGE_ERROR));
    const bool is_error = message != nullptr && GST_MESSAGE_TYPE(message) == GST_MESSAGE_ERROR;
    finished = message != nullptr && gst_message_has_name(message, "qtts-utterance-finished");
    if (message != nullptr) gst_message_unref(message);
    if (is_error || message == nullptr) break;
  }
  gst_object_unref(bus);
  ASSERT_TRUE(finished) << text;
}

// By default opusenc stamps the first packet after a pause with the end of the packet before the pause, so receivers
// take it to be late by the whole pause. perfect-timestamp=true, named in doc/qttssrc.md, keeps the times of the sound.
TEST_F(PipelinesTest, OpusAfterAPauseIsDatedByItsSound) {
  GstElement* pipeline = gst_parse_launch(
      "qttssrc name=speech seed=1 is-live=true idle-mode=wait ! audioconvert ! audio/x-raw,format=S16LE ! "
      "opusenc perfect-timestamp=true ! rtpopuspay name=payloader ! fakesink sync=false",
      nullptr);
  ASSERT_NE(pipeline, nullptr);
  GstElement* speech = gst_bin_get_by_name(GST_BIN(pipeline), "speech");
  Flow flow;
  for (const char* name : {"speech", "payloader"}) {
    GstElement* element = gst_bin_get_by_name(GST_BIN(pipeline), name);
    GstPad* pad = gst_element_get_static_pad(element, "src");
    gst_pad_add_probe(pad, GST_PAD_PROBE_TYPE_BUFFER, element == speech ? Flow::OnSound : Flow::OnPacket, &flow,
                      nullptr);
    gst_object_unref(pad);
    gst_object_unref(element);
  }
  gst_element_set_state(pipeline, GST_STATE_PLAYING);
  constexpr GstClockTime kPause = GST_SECOND / 2;
  Say(pipeline, speech, "Hello.");
  GstClock* clock = gst_pipeline_get_clock(GST_PIPELINE(pipeline));
  ASSERT_NE(clock, nullptr);
  GstClockID pause = gst_clock_new_single_shot_id(clock, gst_clock_get_time(clock) + kPause);
  gst_clock_id_wait(pause, nullptr);
  gst_clock_id_unref(pause);
  gst_object_unref(clock);
  Say(pipeline, speech, "Hello.");
  gst_element_set_state(pipeline, GST_STATE_NULL);
  gst_object_unref(speech);
  gst_object_unref(pipeline);

  const std::vector<Flow::Entry>& entries = flow.entries;
  bool resumed = false;
  GstClockTime last_sound = entries.empty() ? 0 : entries.front().time;
  for (size_t i = 0; i + 1 < entries.size() && !resumed; ++i) {
    if (entries[i].is_packet) continue;
    resumed = entries[i].time > last_sound + kPause;
    last_sound = entries[i].time;
    if (!resumed) continue;
    EXPECT_TRUE(entries[i + 1].is_packet);
    EXPECT_LE(entries[i + 1].time, last_sound);
    EXPECT_GE(entries[i + 1].time + 20 * GST_MSECOND, last_sound);
  }
  EXPECT_TRUE(resumed);
}

TEST_F(PipelinesTest, BothBranchesOfATeeGetTheSame) {
  const Buffers buffers = Play(std::string(kSpeech) + " ! audioconvert ! audio/x-raw,format=S16LE ! tee name=t " +
                                   "t. ! queue ! fakesink name=one t. ! queue ! fakesink name=two",
                               {"one", "two"});
  EXPECT_EQ(Join(buffers.at("one")), Direct());
  EXPECT_EQ(Join(buffers.at("two")), Direct());
}

TEST_F(PipelinesTest, BuffersAreCutToWhatAConsumerWants) {
  const Buffers buffers = Play(std::string(kSpeech) + " ! audioconvert ! audio/x-raw,format=S16LE ! audiobuffersplit " +
                                   "output-buffer-duration=1/50 ! fakesink name=sink",
                               {"sink"});
  for (const std::string& buffer : buffers.at("sink")) EXPECT_EQ(buffer.size(), 2U * kRate / 50);
  EXPECT_EQ(Join(buffers.at("sink")), Direct());
}

TEST_F(PipelinesTest, AMixerKeepsSpeechInPlace) {
  // Mixed with silence that is longer than the speech.
  const Samples mixed = Sound(std::string(kSpeech) + " ! audioconvert ! " + kPcm + " ! mix. " +
                              "audiotestsrc wave=silence num-buffers=100 samplesperbuffer=2400 ! " + kPcm +
                              " ! mix. audiomixer name=mix");
  ASSERT_EQ(mixed.size(), 240000U);
  EXPECT_TRUE(std::equal(Direct().begin(), Direct().end(), mixed.begin()));
  EXPECT_EQ(Rms(mixed, Direct().size(), mixed.size()), 0);
}

}  // namespace
}  // namespace qtts
