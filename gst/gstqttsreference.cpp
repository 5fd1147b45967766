// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gstqttsreference.h"

#include <gst/app/gstappsink.h>
#include <gst/audio/audio.h>
#include <gst/gst.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "gstqttsgapless.h"

namespace gstqtts {
namespace {

using Clock = std::chrono::steady_clock;

// A pipeline without news for so long hangs: the file is no regular one, or a decoder is broken.
constexpr std::chrono::seconds kPatience{10};
constexpr GstClockTime kPoll = 50 * GST_MSECOND;

// More than any reference may have: decoding stops here.
constexpr int kMostSeconds = 120;

struct Unref {
  void operator()(gpointer object) const { gst_object_unref(object); }
};
template <typename T>
using Reference = std::unique_ptr<T, Unref>;

qtts::Status NoSoundError(const std::string& location, const std::string& why) {
  return qtts::Status::Unsupported(location + ": " + why +
                                   ". Give a file with speech that an installed GStreamer plugin can decode.");
}

// The path of a regular local file. Others are refused: what a network gives can change between two
// utterances, and a pipe may give nothing for ever.
qtts::Result<std::string> PathOf(const std::string& location) {
  std::string path = location;
  if (gst_uri_is_valid(location.c_str()) != FALSE) {
    gchar* local = g_filename_from_uri(location.c_str(), nullptr, nullptr);
    if (local == nullptr) {
      return qtts::Status::InvalidArgument(location + ": is not a local file. Download it and give its path.");
    }
    path = local;
    g_free(local);
  }
  if (g_file_test(path.c_str(), G_FILE_TEST_EXISTS) == FALSE) {
    return qtts::Status::NotFound(location + ": no such file");
  }
  if (g_file_test(path.c_str(), G_FILE_TEST_IS_REGULAR) == FALSE) {
    return qtts::Status::Unreadable(location + ": is not a regular file");
  }
  return path;
}

// Hides the file's notes about delay and padding from everything behind the source.
GstPadProbeReturn OnBytes(GstPad* /*pad*/, GstPadProbeInfo* info, gpointer user_data) {
  const auto& gapless = *static_cast<const Gapless*>(user_data);
  GstBuffer* buffer = GST_PAD_PROBE_INFO_BUFFER(info);
  const uint64_t offset = GST_BUFFER_OFFSET(buffer);
  if (!HasHiddenBytes(gapless, offset, gst_buffer_get_size(buffer))) return GST_PAD_PROBE_OK;
  buffer = gst_buffer_make_writable(buffer);
  GST_PAD_PROBE_INFO_DATA(info) = buffer;
  GstMapInfo map;
  if (gst_buffer_map(buffer, &map, GST_MAP_READWRITE) != FALSE) {
    HideMetadata(gapless, offset, map.data, map.size);
    gst_buffer_unmap(buffer, &map);
  }
  return GST_PAD_PROBE_OK;
}

void OnSourceSetup(GstElement* /*bin*/, GstElement* source, gpointer gapless) {
  GstPad* pad = gst_element_get_static_pad(source, "src");
  gst_pad_add_probe(pad, GST_PAD_PROBE_TYPE_BUFFER, OnBytes, gapless, nullptr);
  gst_object_unref(pad);
}

// For MP3 mpg123, where it is installed: libsndfile and so the official package decode with it. libav 5.1 is up to 0.1
// away from it in some frames of MPEG-2.
int OnAutoplugSelect(GstElement* /*bin*/, GstPad* /*pad*/, GstCaps* /*caps*/, GstElementFactory* factory,
                     gpointer /*user_data*/) {
  // GstAutoplugSelectResult, which is in no public header.
  constexpr int kTry = 0;
  constexpr int kSkip = 2;
  if (g_str_has_prefix(GST_OBJECT_NAME(factory), "avdec_mp3") == FALSE) return kTry;
  const Reference<GstElementFactory> mpg123(gst_element_factory_find("mpg123audiodec"));
  const bool usable =
      mpg123 != nullptr && gst_plugin_feature_get_rank(GST_PLUGIN_FEATURE(mpg123.get())) >= GST_RANK_MARGINAL;
  return usable ? kSkip : kTry;
}

// The first pad with sound goes on to `target`, a sink element.
void OnPadAdded(GstElement* /*source*/, GstPad* pad, gpointer target) {
  GstPad* sink = gst_element_get_static_pad(GST_ELEMENT(target), "sink");
  if (gst_pad_is_linked(sink) == FALSE) gst_pad_link(pad, sink);
  gst_object_unref(sink);
}

qtts::Status StatusOf(GstMessage* message, const std::string& location) {
  GError* error = nullptr;
  gst_message_parse_error(message, &error, nullptr);
  const GQuark domain = error->domain;
  std::string text = error->message;
  g_error_free(error);
  while (!text.empty() && text.back() == '.') text.pop_back();
  if (domain == GST_RESOURCE_ERROR) return qtts::Status::Unreadable(location + ": " + text);
  return NoSoundError(location, text);
}

// Adds the samples of a buffer. False if its format makes no sense.
bool Append(GstSample* sample, qtts::Recording* recording) {
  GstAudioInfo info;
  if (gst_audio_info_from_caps(&info, gst_sample_get_caps(sample)) == FALSE) return false;
  recording->channels = GST_AUDIO_INFO_CHANNELS(&info);
  recording->sample_rate = GST_AUDIO_INFO_RATE(&info);
  GstMapInfo map;
  GstBuffer* buffer = gst_sample_get_buffer(sample);
  if (gst_buffer_map(buffer, &map, GST_MAP_READ) == FALSE) return false;
  const size_t old = recording->samples.size();
  recording->samples.resize(old + map.size / sizeof(float));
  std::memcpy(recording->samples.data() + old, map.data, map.size / sizeof(float) * sizeof(float));
  gst_buffer_unmap(buffer, &map);
  return true;
}

bool TooLong(const qtts::Recording& recording) {
  return static_cast<double>(recording.samples.size()) / recording.channels >
         static_cast<double>(kMostSeconds) * recording.sample_rate;
}

// Takes samples to the end of the stream.
qtts::Status Collect(GstElement* pipeline, GstAppSink* sink, const std::string& location,
                     const std::function<bool()>& cancelled, qtts::Recording* recording) {
  const Reference<GstBus> bus(gst_element_get_bus(pipeline));
  auto deadline = Clock::now() + kPatience;
  for (;;) {
    if (cancelled()) return qtts::Status::Cancelled("reading the reference recording was cancelled");
    if (GstSample* sample = gst_app_sink_try_pull_sample(sink, kPoll)) {
      const bool good = Append(sample, recording);
      gst_sample_unref(sample);
      if (!good) return NoSoundError(location, "its sound cannot be read");
      if (TooLong(*recording)) {
        return qtts::Status::InvalidArgument(location + ": is longer than " + std::to_string(kMostSeconds) +
                                             " s. Cut out 3 to 15 s of clear speech, and the reference text with it.");
      }
      deadline = Clock::now() + kPatience;
      continue;
    }
    if (GstMessage* message = gst_bus_pop_filtered(bus.get(), GST_MESSAGE_ERROR)) {
      qtts::Status status = StatusOf(message, location);
      gst_message_unref(message);
      return status;
    }
    if (gst_app_sink_is_eos(sink) != FALSE) return qtts::Status::Ok();
    if (GstMessage* message = gst_bus_pop_filtered(bus.get(), GST_MESSAGE_EOS)) {
      gst_message_unref(message);
      return qtts::Status::Ok();
    }
    if (Clock::now() > deadline) return NoSoundError(location, "gives no sound");
  }
}

}  // namespace

qtts::Result<qtts::Recording> ReadReference(const std::string& location, const std::function<bool()>& cancelled) {
  QTTS_ASSIGN_OR_RETURN(const std::string path, PathOf(location));
  std::optional<Gapless> gapless = ReadGapless(path);
  const Reference<GstElement> pipeline(GST_ELEMENT(gst_object_ref_sink(gst_pipeline_new(nullptr))));
  GstElement* source = gst_element_factory_make("uridecodebin", nullptr);
  GstElement* convert = gst_element_factory_make("audioconvert", nullptr);
  GstElement* sink = gst_element_factory_make("appsink", nullptr);
  for (GstElement* element : {source, convert, sink}) {
    if (element != nullptr) gst_bin_add(GST_BIN(pipeline.get()), element);
  }
  if (source == nullptr || convert == nullptr || sink == nullptr) {
    return qtts::Status::Unsupported("Reading reference recordings needs GStreamer's base plugins; install them.");
  }
  // Rate and channels stay as they are: the engine converts them as the official package does.
  GstCaps* raw = gst_caps_new_empty_simple("audio/x-raw");
  GstCaps* floats =
      gst_caps_new_simple("audio/x-raw", "format", G_TYPE_STRING, G_BYTE_ORDER == G_LITTLE_ENDIAN ? "F32LE" : "F32BE",
                          "layout", G_TYPE_STRING, "interleaved", nullptr);
  gchar* uri = gst_filename_to_uri(path.c_str(), nullptr);
  g_object_set(source, "uri", uri, "caps", raw, "expose-all-streams", FALSE, nullptr);
  g_free(uri);
  g_object_set(sink, "caps", floats, "sync", FALSE, "max-buffers", 64U, nullptr);
  gst_caps_unref(raw);
  gst_caps_unref(floats);
  if (gapless) g_signal_connect(source, "source-setup", G_CALLBACK(OnSourceSetup), &*gapless);
  g_signal_connect(source, "autoplug-select", G_CALLBACK(OnAutoplugSelect), nullptr);
  g_signal_connect(source, "pad-added", G_CALLBACK(OnPadAdded), convert);
  gst_element_link(convert, sink);

  qtts::Recording recording;
  gst_element_set_state(pipeline.get(), GST_STATE_PLAYING);
  qtts::Status status = Collect(pipeline.get(), GST_APP_SINK(sink), location, cancelled, &recording);
  gst_element_set_state(pipeline.get(), GST_STATE_NULL);
  if (!status.ok()) return status;
  if (recording.samples.empty()) return NoSoundError(location, "holds no sound");
  if (gapless) TrimGapless(*gapless, &recording);
  return recording;
}

}  // namespace gstqtts
