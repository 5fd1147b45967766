// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef GST_QTTS_ENUM_TYPES_H_
#define GST_QTTS_ENUM_TYPES_H_

#include <glib-object.h>

#include <array>
#include <cstddef>
#include <iterator>

#include "gstqttssettings.h"

// The element's enumerations as types of GObject: what gst-inspect-1.0 tells of each value.
namespace gstqtts {

// Its name as a type of GObject and its values; the last is null.
template <typename Enum>
struct EnumNames;

template <>
struct EnumNames<qtts::Device> {
  static constexpr gchar kName[] = "GstQttsSrcDevice";
  static constexpr auto kTable = [] {
    std::array<GEnumValue, std::size(qtts::kDevices) + 1> values = {};
    for (size_t i = 0; i < std::size(qtts::kDevices); ++i) {
      values[i] = {static_cast<int>(i), qtts::kDevices[i].meaning, qtts::kDevices[i].name};
    }
    return values;
  }();
  static constexpr const GEnumValue* kValues = kTable.data();
};

template <>
struct EnumNames<qtts::Precision> {
  static constexpr gchar kName[] = "GstQttsSrcPrecision";
  static constexpr GEnumValue kValues[] = {
      {static_cast<int>(qtts::Precision::kAuto), "BF16 on the GPU, F32 on the CPU", "auto"},
      {static_cast<int>(qtts::Precision::kBF16), "BF16 with sums in F32, on the GPU and on CPUs that multiply BF16",
       "bf16"},
      {static_cast<int>(qtts::Precision::kF32), "F32, slow on the GPU", "f32"},
      {static_cast<int>(qtts::Precision::kInt8),
       "Weights of 8 bits, on the CPU or with device=cuda: less memory, less exact", "int8"},
      {static_cast<int>(qtts::Precision::kInt4),
       "Weights of 4 bits, activations of 16, on the CPU only: fastest, least exact", "int4"},
      {0, nullptr, nullptr},
  };
};

template <>
struct EnumNames<qtts::CodecPrecision> {
  static constexpr gchar kName[] = "GstQttsSrcCodecPrecision";
  static constexpr GEnumValue kValues[] = {
      {static_cast<int>(qtts::CodecPrecision::kExact), "As exact as F32", "exact"},
      {static_cast<int>(qtts::CodecPrecision::kFast), "A third of the multiplications, on the GPU only: less exact",
       "fast"},
      {0, nullptr, nullptr},
  };
};

template <>
struct EnumNames<qtts::PromptLayout> {
  static constexpr gchar kName[] = "GstQttsSrcLayout";
  static constexpr GEnumValue kValues[] = {
      {static_cast<int>(qtts::PromptLayout::kDefault), "The default layout of the model type", "auto"},
      {static_cast<int>(qtts::PromptLayout::kStreaming), "Text is fed to the model while it speaks", "streaming"},
      {static_cast<int>(qtts::PromptLayout::kNonStreaming), "The whole text is in the prompt", "non-streaming"},
      {0, nullptr, nullptr},
  };
};

template <>
struct EnumNames<qtts::Normalize> {
  static constexpr gchar kName[] = "GstQttsSrcNormalize";
  static constexpr GEnumValue kValues[] = {
      {static_cast<int>(qtts::Normalize::kModel), "As the checkpoint's description says; without one, none", "model"},
      {static_cast<int>(qtts::Normalize::kNone), "The model reads what is written", "none"},
      {static_cast<int>(qtts::Normalize::kSpoken), "Numbers, dates, prices, units and symbols in words", "spoken"},
      {0, nullptr, nullptr},
  };
};

template <>
struct EnumNames<qtts::Emoji> {
  static constexpr gchar kName[] = "GstQttsSrcEmoji";
  static constexpr GEnumValue kValues[] = {
      {static_cast<int>(qtts::Emoji::kSilent), "They are not spoken", "silent"},
      {static_cast<int>(qtts::Emoji::kNames), "Their English names are spoken, in English texts", "names"},
      {0, nullptr, nullptr},
  };
};

template <>
struct EnumNames<qtts::Markup> {
  static constexpr gchar kName[] = "GstQttsSrcMarkup";
  static constexpr GEnumValue kValues[] = {
      {static_cast<int>(qtts::Markup::kAuto), "SSML if the caps say so or the text begins with <speak>, else none",
       "auto"},
      {static_cast<int>(qtts::Markup::kNone), "Plain text", "none"},
      {static_cast<int>(qtts::Markup::kSsml), "SSML, a subset of 1.1", "ssml"},
      {static_cast<int>(qtts::Markup::kMarkdown), "Markdown, as CommonMark and GitHub have it", "markdown"},
      {static_cast<int>(qtts::Markup::kSubtitle), "Text of subtitles", "subtitle"},
      {0, nullptr, nullptr},
  };
};

template <>
struct EnumNames<Segmentation> {
  static constexpr gchar kName[] = "GstQttsSrcSegmentation";
  static constexpr GEnumValue kValues[] = {
      {static_cast<int>(Segmentation::kAuto), "By sentence from files and pipes (segments in bytes), else none",
       "auto"},
      {static_cast<int>(Segmentation::kNone), "Each buffer is an utterance", "none"},
      {static_cast<int>(Segmentation::kSentence), "Each sentence is an utterance, independent of the buffers",
       "sentence"},
      {static_cast<int>(Segmentation::kStream),
       "Each buffer extends one utterance while it is spoken, until it is ended", "stream"},
      {0, nullptr, nullptr},
  };
};

template <>
struct EnumNames<IdleMode> {
  static constexpr gchar kName[] = "GstQttsSrcIdleMode";
  static constexpr GEnumValue kValues[] = {
      {static_cast<int>(IdleMode::kAuto), "Silence when live, else end of stream", "auto"},
      {static_cast<int>(IdleMode::kEos), "End of stream", "eos"},
      {static_cast<int>(IdleMode::kWait), "Nothing until there is text", "wait"},
      {static_cast<int>(IdleMode::kSilence), "Silence until there is text", "silence"},
      {0, nullptr, nullptr},
  };
};

template <>
struct EnumNames<TextTiming> {
  static constexpr gchar kName[] = "GstQttsSrcTextTiming";
  static constexpr GEnumValue kValues[] = {
      {static_cast<int>(TextTiming::kIgnore), "Timestamps of text are ignored", "ignore"},
      {static_cast<int>(TextTiming::kStart), "Each text starts at its time, or when the text before it has ended",
       "start"},
      {static_cast<int>(TextTiming::kShift), "Like start; a text that starts late delays all that follow as much",
       "shift"},
      {static_cast<int>(TextTiming::kClip), "Like start; speech is cut where its time ends", "clip"},
      {static_cast<int>(TextTiming::kCompress),
       "Like start; speech that is longer than its time is spoken faster, up to \"max-compression\"", "compress"},
      {0, nullptr, nullptr},
  };
};

template <>
struct EnumNames<TrimSilence> {
  static constexpr gchar kName[] = "GstQttsSrcTrimLeadingSilence";
  static constexpr GEnumValue kValues[] = {
      {static_cast<int>(TrimSilence::kNever), "From no utterance", "false"},
      {static_cast<int>(TrimSilence::kAlways), "From every utterance", "true"},
      {static_cast<int>(TrimSilence::kAuto), "From text that grows while it is spoken (\"segmentation\" stream)",
       "auto"},
      {0, nullptr, nullptr},
  };
};

template <typename Enum>
GType EnumType() {
  static const GType type = g_enum_register_static(EnumNames<Enum>::kName, EnumNames<Enum>::kValues);
  return type;
}

}  // namespace gstqtts

#endif  // GST_QTTS_ENUM_TYPES_H_
