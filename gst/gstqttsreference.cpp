// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gstqttsreference.h"

#include <gst/app/gstappsink.h>
#include <gst/audio/audio.h>
#include <gst/gst.h>

#include <chrono>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "gstqttscodecs.h"
#include "gstqttscontainer.h"
#include "gstqttsdecoding.h"
#include "gstqttsgapless.h"
#include "gstqttsmp4.h"
#include "gstqttsrecordingfile.h"

namespace gstqtts {
namespace {

using Clock = std::chrono::steady_clock;

// A pipeline without news for so long hangs: a decoder is broken.
constexpr std::chrono::seconds kPatience{10};
constexpr GstClockTime kPoll = 50 * GST_MSECOND;

// More than any reference may have: decoding stops here.
constexpr int kMaxSeconds = 120;
// 128 MiB. Few bytes of FLAC or Vorbis can become that many samples, at rates and in channels that no recording has.
constexpr size_t kMaxSamples = size_t{1} << 25;

qtts::Status DamagedError(Container container, GstMessage* message) {
  GError* error = nullptr;
  gst_message_parse_error(message, &error, nullptr);
  std::string text = error->message;
  g_error_free(error);
  while (!text.empty() && text.back() == '.') text.pop_back();
  return NoRecordingError(std::string("is damaged, or no ") + ContainerName(container) + ". GStreamer says: " + text);
}

// Adds the samples of a buffer.
qtts::Status Append(GstSample* sample, qtts::Recording* recording) {
  GstAudioInfo info;
  if (gst_audio_info_from_caps(&info, gst_sample_get_caps(sample)) == FALSE)
    return NoRecordingError("has no valid format");
  const bool first = recording->samples.empty();
  if (!first &&
      (recording->channels != GST_AUDIO_INFO_CHANNELS(&info) || recording->sample_rate != GST_AUDIO_INFO_RATE(&info))) {
    return NoRecordingError("changes its sample rate or channels");
  }
  recording->channels = GST_AUDIO_INFO_CHANNELS(&info);
  recording->sample_rate = GST_AUDIO_INFO_RATE(&info);
  GstMapInfo map;
  GstBuffer* buffer = gst_sample_get_buffer(sample);
  if (gst_buffer_map(buffer, &map, GST_MAP_READ) == FALSE) return NoRecordingError("its sound cannot be read");
  const size_t old = recording->samples.size();
  recording->samples.resize(old + map.size / sizeof(float));
  std::memcpy(recording->samples.data() + old, map.data, map.size / sizeof(float) * sizeof(float));
  gst_buffer_unmap(buffer, &map);

  const double seconds = static_cast<double>(recording->samples.size()) / recording->channels / recording->sample_rate;
  if (seconds > kMaxSeconds || recording->samples.size() > kMaxSamples) {
    const std::string what = seconds > kMaxSeconds ? "is longer than " + std::to_string(kMaxSeconds) + " s"
                                                   : "has more than " + std::to_string(kMaxSamples) + " samples at " +
                                                         std::to_string(recording->sample_rate) + " Hz in " +
                                                         std::to_string(recording->channels) + " channels";
    return qtts::Status::InvalidArgument(what + ". Cut out 3 to 15 s of clear speech, and the reference text with it.");
  }
  return qtts::Status::Ok();
}

// Returns the outcome that the messages so far stand for; none while the decoding goes on.
std::optional<qtts::Status> TakeMessages(const Decoding& decoding, Container container) {
  constexpr auto kTypes =
      static_cast<GstMessageType>(GST_MESSAGE_ERROR | GST_MESSAGE_EOS | GST_MESSAGE_ELEMENT | GST_MESSAGE_REDIRECT);
  while (GstMessage* message = gst_bus_pop_filtered(decoding.bus(), kTypes)) {
    std::optional<qtts::Status> outcome;
    if (GST_MESSAGE_TYPE(message) == GST_MESSAGE_EOS) {
      outcome = qtts::Status::Ok();
    } else if (GST_MESSAGE_TYPE(message) == GST_MESSAGE_REDIRECT ||
               gst_message_has_name(message, "redirect") != FALSE) {
      // Players follow these to another address.
      outcome = ExternalSoundError();
    } else if (GST_MESSAGE_TYPE(message) == GST_MESSAGE_ERROR) {
      outcome = DamagedError(container, message);
    }
    gst_message_unref(message);
    if (outcome) return outcome;
  }
  return std::nullopt;
}

// Takes samples to the end of the stream.
qtts::Status Collect(const Decoding& decoding, Container container, const std::function<bool()>& cancelled,
                     qtts::Recording* recording) {
  auto deadline = Clock::now() + kPatience;
  for (;;) {
    if (cancelled()) return qtts::Status::Cancelled("reading the reference recording was cancelled");
    if (GstSample* sample = gst_app_sink_try_pull_sample(decoding.sink(), kPoll)) {
      qtts::Status status = Append(sample, recording);
      gst_sample_unref(sample);
      if (!status.ok()) return status;
      deadline = Clock::now() + kPatience;
      continue;
    }
    // Before the error that follows from it.
    if (qtts::Status problem = decoding.problem(); !problem.ok()) return problem;
    if (auto outcome = TakeMessages(decoding, container)) return *outcome;
    if (gst_app_sink_is_eos(decoding.sink()) != FALSE) return qtts::Status::Ok();
    if (Clock::now() > deadline) return NoRecordingError("gives no sound");
  }
}

qtts::Result<qtts::Recording> Read(const RecordingFile& file, const std::function<bool()>& cancelled) {
  const auto identified = IdentifyContainer(file);
  if (!identified) return NoRecordingError("is no recording of a kind that is read");
  const std::optional<Gapless> gapless = ReadGapless(file);
  std::vector<HiddenBytes> hidden;
  if (gapless) hidden = gapless->hidden;
  if (identified->container == Container::kFlac) hidden = HideFlacMetadata(file, identified->begin);
  if (identified->container == Container::kMp4) {
    const Mp4Index index = ReadMp4Index(file);
    QTTS_RETURN_IF_ERROR(CheckMp4(index));
    for (HiddenBytes& part : HideMp4Rest(index)) hidden.push_back(std::move(part));
  }
  qtts::Recording recording;
  {
    Decoding decoding(file, *identified, std::move(hidden));
    QTTS_RETURN_IF_ERROR(decoding.Start());
    QTTS_RETURN_IF_ERROR(Collect(decoding, identified->container, cancelled, &recording));
  }
  if (recording.samples.empty()) return NoRecordingError("holds no sound");
  if (gapless) TrimGapless(*gapless, &recording);
  return recording;
}

}  // namespace

qtts::Result<qtts::Recording> ReadReference(const std::string& location, const std::function<bool()>& cancelled) {
  QTTS_ASSIGN_OR_RETURN(const RecordingFile file, RecordingFile::Open(location));
  auto recording = Read(file, cancelled);
  if (recording.ok() || recording.status().code() == qtts::StatusCode::kCancelled) return recording;
  return qtts::Status(recording.status().code(), location + ": " + recording.status().message());
}

}  // namespace gstqtts
