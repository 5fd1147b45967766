// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gstqttscodecs.h"

#include <memory>
#include <string_view>

namespace gstqtts {
namespace {

// Debian's packages.
constexpr const char* kBase = "gstreamer1.0-plugins-base";
constexpr const char* kGood = "gstreamer1.0-plugins-good";
constexpr const char* kBad = "gstreamer1.0-plugins-bad";
constexpr const char* kLibav = "gstreamer1.0-libav";

constexpr AllowedElement kWavDemuxer[] = {{"wavparse", kGood}};
constexpr AllowedElement kOggDemuxer[] = {{"oggdemux", kBase}};
constexpr AllowedElement kMp4Demuxer[] = {{"qtdemux", kGood}};
constexpr AllowedElement kMatroskaDemuxer[] = {{"matroskademux", kGood}};

constexpr AllowedElement kMp3Parser[] = {{"mpegaudioparse", kGood}};
constexpr AllowedElement kAacParser[] = {{"aacparse", kGood}};
constexpr AllowedElement kFlacParser[] = {{"flacparse", kGood}};

// Decoders for MP3, mpg123 first: libsndfile and so the official package decode with it. libav 5.1 is up to 0.1 away
// from it in some frames of MPEG-2.
constexpr AllowedElement kMp3Decoders[] = {
    {"mpg123audiodec", kGood}, {"avdec_mp3float", kLibav}, {"avdec_mp3", kLibav}};
constexpr AllowedElement kAacDecoders[] = {
    {"avdec_aac", kLibav}, {"avdec_aac_fixed", kLibav}, {"faad", kBad}, {"fdkaacdec", kBad}};
constexpr AllowedElement kFlacDecoders[] = {{"flacdec", kGood}, {"avdec_flac", kLibav}};
constexpr AllowedElement kVorbisDecoders[] = {{"vorbisdec", kBase}};
constexpr AllowedElement kOpusDecoders[] = {{"opusdec", kBase}, {"avdec_opus", kLibav}};
constexpr AllowedElement kALawDecoders[] = {{"alawdec", kGood}};
constexpr AllowedElement kMuLawDecoders[] = {{"mulawdec", kGood}};

// Codecs in any container. Telephony records in A-law and mu-law.
constexpr Codec kCodecs[] = {
    {"MP3", "audio/mpeg,mpegversion=1,layer=3", kMp3Parser, kMp3Decoders},
    {"AAC", "audio/mpeg,mpegversion={2,4}", kAacParser, kAacDecoders},
    {"FLAC", "audio/x-flac", kFlacParser, kFlacDecoders},
    {"Vorbis", "audio/x-vorbis", {}, kVorbisDecoders},
    {"Opus", "audio/x-opus", {}, kOpusDecoders},
    {"A-law", "audio/x-alaw", {}, kALawDecoders},
    {"mu-law", "audio/x-mulaw", {}, kMuLawDecoders},
    {"PCM", "audio/x-raw", {}, {}},
};

const Codec* FindCodecNamed(std::string_view name) {
  for (const Codec& codec : kCodecs) {
    if (codec.name == name) return &codec;
  }
  return nullptr;
}

bool IsUsable(const AllowedElement& element) {
  GstElementFactory* factory = gst_element_factory_find(element.factory);
  if (factory == nullptr) return false;
  const bool usable = gst_plugin_feature_get_rank(GST_PLUGIN_FEATURE(factory)) != GST_RANK_NONE;
  gst_object_unref(factory);
  return usable;
}

}  // namespace

std::span<const AllowedElement> FindDemuxer(Container container) {
  switch (container) {
    case Container::kWav:
      return kWavDemuxer;
    case Container::kOgg:
      return kOggDemuxer;
    case Container::kMp4:
      return kMp4Demuxer;
    case Container::kMatroska:
      return kMatroskaDemuxer;
    case Container::kFlac:
    case Container::kMp3:
    case Container::kAdts:
      break;
  }
  return {};
}

const Codec* FindCodec(Container container) {
  switch (container) {
    case Container::kFlac:
      return FindCodecNamed("FLAC");
    case Container::kMp3:
      return FindCodecNamed("MP3");
    case Container::kAdts:
      return FindCodecNamed("AAC");
    default:
      return nullptr;
  }
}

const Codec* FindCodec(const GstCaps* caps) {
  for (const Codec& codec : kCodecs) {
    const std::unique_ptr<GstCaps, decltype(&gst_caps_unref)> allowed(gst_caps_from_string(codec.caps), gst_caps_unref);
    if (gst_caps_can_intersect(caps, allowed.get()) != FALSE) return &codec;
  }
  return nullptr;
}

qtts::Result<GstElement*> MakeElement(std::span<const AllowedElement> choices, const std::string& content) {
  std::string factories;
  for (const AllowedElement& choice : choices) {
    if (IsUsable(choice)) {
      if (GstElement* element = gst_element_factory_make(choice.factory, nullptr)) return element;
    }
    factories += (factories.empty() ? "" : " or ") + std::string(choice.factory);
  }
  return qtts::Status::Unsupported(content + " cannot be decoded. GStreamer's element " + factories +
                                   " is missing, which Debian has in " + choices.front().package + ": apt install " +
                                   choices.front().package);
}

qtts::Status NoRecordingError(const std::string& why) {
  return qtts::Status::Unsupported(why +
                                   ". Give speech as WAV, FLAC, MP3, AAC, Ogg (Opus or Vorbis), MP4 or WebM; \"ffmpeg "
                                   "-i FILE OUT.wav\" makes one of most others.");
}

qtts::Status ExternalSoundError() { return NoRecordingError("refers to sound outside of the file, which is not read"); }

}  // namespace gstqtts
