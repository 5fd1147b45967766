// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gstqttsproperties.h"

#include <algorithm>
#include <chrono>
#include <string_view>
#include <utility>

#include "gstqttsguard.h"
#include "gstqttsoverrides.h"
#include "gstqttsparamspec.h"
#include "gstqttspresets.h"

using gstqtts::Speech;

#define GST_CAT_DEFAULT gst_qtts_src_debug

enum {
  PROP_0,
  PROP_MODEL_PATH,
  PROP_DEVICE,
  PROP_PRECISION,
  PROP_CUDA_DEVICE_ID,
  PROP_TEXT,
  PROP_SPEAKER,
  PROP_LANGUAGE,
  PROP_INSTRUCT,
  PROP_VOICE_FILE,
  PROP_REFERENCE_AUDIO,
  PROP_REFERENCE_TEXT,
  PROP_PAD_REFERENCE,
  PROP_LAYOUT,
  PROP_SEED,
  PROP_TEMPERATURE,
  PROP_TOP_K,
  PROP_TOP_P,
  PROP_REPETITION_PENALTY,
  PROP_SUBTALKER_TEMPERATURE,
  PROP_SUBTALKER_TOP_K,
  PROP_SUBTALKER_TOP_P,
  PROP_MAX_DURATION,
  PROP_MAX_WAIT,
  PROP_RUNAWAY_GUARD,
  PROP_SPEAK_ANYTHING,
  PROP_IS_LIVE,
  PROP_IDLE_MODE,
  PROP_LATENCY,
  PROP_LEADING_SILENCE,
  PROP_UTTERANCE_GAP,
  PROP_TRIM_LEADING_SILENCE,
  PROP_TEXT_TIMING,
  PROP_SPEAKERS,
  PROP_LANGUAGES,
  PROP_STATS,
  PROP_CURRENT_TEXT,
  PROP_SEGMENTATION,
  PROP_NEWLINE_ENDS,
  PROP_UTTERANCE_TIMEOUT,
  PROP_MAX_TEXT_LENGTH,
  PROP_MAX_QUEUED_TEXT,
};

/**
 * GstQttsSrcDevice:
 * @GST_QTTS_SRC_DEVICE_AUTO: the GPU when it can hold the model, else the CPU
 * @GST_QTTS_SRC_DEVICE_CPU: the CPU
 * @GST_QTTS_SRC_DEVICE_CUDA: an NVIDIA GPU
 *
 * Since: 0.1
 */
#define GST_TYPE_QTTS_SRC_DEVICE (gst_qtts_src_device_get_type())
static GType gst_qtts_src_device_get_type(void) {
  static const GEnumValue values[] = {
      {static_cast<int>(qtts::Device::kAuto), "The GPU when it can hold the model, else the CPU", "auto"},
      {static_cast<int>(qtts::Device::kCpu), "The CPU", "cpu"},
      {static_cast<int>(qtts::Device::kCuda), "An NVIDIA GPU", "cuda"},
      {0, nullptr, nullptr},
  };
  static const GType type = g_enum_register_static("GstQttsSrcDevice", values);
  return type;
}

/**
 * GstQttsSrcPrecision:
 * @GST_QTTS_SRC_PRECISION_AUTO: BF16 on the GPU, F32 on the CPU
 * @GST_QTTS_SRC_PRECISION_BF16: BF16 with sums in F32, on the GPU and on CPUs that multiply BF16
 * @GST_QTTS_SRC_PRECISION_F32: F32, slow on the GPU
 * @GST_QTTS_SRC_PRECISION_INT8: weights of 8 bits, activations of 16, on the CPU only: faster, less exact
 * @GST_QTTS_SRC_PRECISION_INT4: weights of 4 bits, activations of 16, on the CPU only: fastest, least exact
 *
 * Since: 0.1
 */
#define GST_TYPE_QTTS_SRC_PRECISION (gst_qtts_src_precision_get_type())
static GType gst_qtts_src_precision_get_type(void) {
  static const GEnumValue values[] = {
      {static_cast<int>(qtts::Precision::kAuto), "BF16 on the GPU, F32 on the CPU", "auto"},
      {static_cast<int>(qtts::Precision::kBF16), "BF16 with sums in F32, on the GPU and on CPUs that multiply BF16",
       "bf16"},
      {static_cast<int>(qtts::Precision::kF32), "F32, slow on the GPU", "f32"},
      {static_cast<int>(qtts::Precision::kInt8),
       "Weights of 8 bits, activations of 16, on the CPU only: faster, less exact", "int8"},
      {static_cast<int>(qtts::Precision::kInt4),
       "Weights of 4 bits, activations of 16, on the CPU only: fastest, least exact", "int4"},
      {0, nullptr, nullptr},
  };
  static const GType type = g_enum_register_static("GstQttsSrcPrecision", values);
  return type;
}

/**
 * GstQttsSrcLayout:
 * @GST_QTTS_SRC_LAYOUT_AUTO: the usual layout of the kind of model
 * @GST_QTTS_SRC_LAYOUT_STREAMING: text is fed to the model while it speaks
 * @GST_QTTS_SRC_LAYOUT_NON_STREAMING: the whole text lies in the prompt
 *
 * Since: 0.1
 */
#define GST_TYPE_QTTS_SRC_LAYOUT (gst_qtts_src_layout_get_type())
static GType gst_qtts_src_layout_get_type(void) {
  static const GEnumValue values[] = {
      {static_cast<int>(qtts::PromptLayout::kDefault), "The usual layout of the kind of model", "auto"},
      {static_cast<int>(qtts::PromptLayout::kStreaming), "Text is fed to the model while it speaks", "streaming"},
      {static_cast<int>(qtts::PromptLayout::kNonStreaming), "The whole text lies in the prompt", "non-streaming"},
      {0, nullptr, nullptr},
  };
  static const GType type = g_enum_register_static("GstQttsSrcLayout", values);
  return type;
}

/**
 * GstQttsSrcSegmentation:
 * @GST_QTTS_SRC_SEGMENTATION_AUTO: sentence where upstream's segment is in bytes, as a file's or a pipe's is, whose
 * buffers end anywhere; else none
 * @GST_QTTS_SRC_SEGMENTATION_NONE: each buffer is an utterance
 * @GST_QTTS_SRC_SEGMENTATION_SENTENCE: each sentence is an utterance, however buffers cut it
 * @GST_QTTS_SRC_SEGMENTATION_STREAM: buffers make one utterance grow while it is spoken, until it is ended
 *
 * Since: 0.1
 */
#define GST_TYPE_QTTS_SRC_SEGMENTATION (gst_qtts_src_segmentation_get_type())
static GType gst_qtts_src_segmentation_get_type(void) {
  static const GEnumValue values[] = {
      {static_cast<int>(gstqtts::Segmentation::kAuto),
       "By sentence from files and pipes (segments in bytes), else none", "auto"},
      {static_cast<int>(gstqtts::Segmentation::kNone), "Each buffer is an utterance", "none"},
      {static_cast<int>(gstqtts::Segmentation::kSentence), "Each sentence is an utterance, however buffers cut it",
       "sentence"},
      {static_cast<int>(gstqtts::Segmentation::kStream),
       "Buffers make one utterance grow while it is spoken, until it is ended", "stream"},
      {0, nullptr, nullptr},
  };
  static const GType type = g_enum_register_static("GstQttsSrcSegmentation", values);
  return type;
}

/**
 * GstQttsSrcIdleMode:
 * @GST_QTTS_SRC_IDLE_MODE_AUTO: silence when live, else end of stream
 * @GST_QTTS_SRC_IDLE_MODE_EOS: end of stream
 * @GST_QTTS_SRC_IDLE_MODE_WAIT: nothing until there is text
 * @GST_QTTS_SRC_IDLE_MODE_SILENCE: silence until there is text
 *
 * Since: 0.1
 */
#define GST_TYPE_QTTS_SRC_IDLE_MODE (gst_qtts_src_idle_mode_get_type())
static GType gst_qtts_src_idle_mode_get_type(void) {
  static const GEnumValue values[] = {
      {static_cast<int>(IdleMode::kAuto), "Silence when live, else end of stream", "auto"},
      {static_cast<int>(IdleMode::kEos), "End of stream", "eos"},
      {static_cast<int>(IdleMode::kWait), "Nothing until there is text", "wait"},
      {static_cast<int>(IdleMode::kSilence), "Silence until there is text", "silence"},
      {0, nullptr, nullptr},
  };
  static const GType type = g_enum_register_static("GstQttsSrcIdleMode", values);
  return type;
}

/**
 * GstQttsSrcTextTiming:
 * @GST_QTTS_SRC_TEXT_TIMING_IGNORE: timestamps of text mean nothing
 * @GST_QTTS_SRC_TEXT_TIMING_START: each text starts at its time, or as soon after it as the text before has ended
 * @GST_QTTS_SRC_TEXT_TIMING_SHIFT: like start; a text that starts late delays all that follow as much
 * @GST_QTTS_SRC_TEXT_TIMING_CLIP: like start; speech is cut where its time ends
 *
 * Since: 0.1
 */
#define GST_TYPE_QTTS_SRC_TEXT_TIMING (gst_qtts_src_text_timing_get_type())
static GType gst_qtts_src_text_timing_get_type(void) {
  static const GEnumValue values[] = {
      {static_cast<int>(TextTiming::kIgnore), "Timestamps of text mean nothing", "ignore"},
      {static_cast<int>(TextTiming::kStart), "Each text starts at its time, or when the text before it has ended",
       "start"},
      {static_cast<int>(TextTiming::kShift), "Like start; a text that starts late delays all that follow as much",
       "shift"},
      {static_cast<int>(TextTiming::kClip), "Like start; speech is cut where its time ends", "clip"},
      {0, nullptr, nullptr},
  };
  static const GType type = g_enum_register_static("GstQttsSrcTextTiming", values);
  return type;
}

static std::string gst_qtts_src_dup_string(const GValue* value) {
  const gchar* string = g_value_get_string(value);
  return string != nullptr ? string : "";
}

static void gst_qtts_src_take_string(GValue* value, const std::string& string) {
  g_value_set_string(value, string.empty() ? nullptr : string.c_str());
}

static void gst_qtts_src_take_array(GValue* value, const std::vector<std::string>& strings) {
  for (const std::string& string : strings) {
    GValue item = G_VALUE_INIT;
    g_value_init(&item, G_TYPE_STRING);
    g_value_set_string(&item, string.c_str());
    gst_value_array_append_and_take_value(value, &item);
  }
}

static void gst_qtts_src_set_text(GstQttsSrc* self, const gchar* text) {
  GstQttsSrcPrivate* priv = self->priv;
  Speech::Accept accept = Speech::Accept::kAccepted;
  bool offered = false;
  {
    const std::lock_guard lock(priv->lock);
    priv->text = text != nullptr ? std::optional<std::string>(text) : std::nullopt;
    offered = priv->running && priv->text && !gstqtts::IsBlank(*priv->text);
    if (offered) accept = priv->speech.Offer({*priv->text, priv->settings});
  }
  if (!offered) return;
  switch (accept) {
    case Speech::Accept::kAccepted:
      GST_DEBUG_OBJECT(self, "queued '%s'", text);
      break;
    case Speech::Accept::kFull:
      GST_ELEMENT_WARNING(self, RESOURCE, BUSY,
                          ("Too much text is waiting to be spoken; the last one is dropped. Set texts more slowly."),
                          (nullptr));
      break;
    case Speech::Accept::kFlushing:
    case Speech::Accept::kEnded:
      GST_INFO_OBJECT(self, "this text comes after the end of the stream or during a flush and is not spoken");
      break;
  }
}

void gst_qtts_src_speak_property(GstQttsSrc* self) {
  const std::lock_guard lock(self->priv->lock);
  if (self->priv->text) self->priv->speech.Offer({*self->priv->text, self->priv->settings});
}

static void gst_qtts_src_set_latency(GstQttsSrc* self, GstClockTime latency) {
  {
    const std::lock_guard lock(self->priv->lock);
    if (std::exchange(self->priv->latency, latency) == latency) return;
  }
  if (gst_base_src_is_live(GST_BASE_SRC(self))) {
    gst_element_post_message(GST_ELEMENT(self), gst_message_new_latency(GST_OBJECT(self)));
  }
}

IdleMode gst_qtts_src_get_idle_mode(GstQttsSrc* self) {
  const std::lock_guard lock(self->priv->lock);
  if (self->priv->idle_mode != IdleMode::kAuto) return self->priv->idle_mode;
  return gst_base_src_is_live(GST_BASE_SRC(self)) ? IdleMode::kSilence : IdleMode::kEos;
}

static void gst_qtts_src_update_idle_mode(GstQttsSrc* self) {
  switch (gst_qtts_src_get_idle_mode(self)) {
    case IdleMode::kSilence:
      // When live, the alarm of each piece of silence tells in its place.
      self->priv->speech.SetIdle(gst_base_src_is_live(GST_BASE_SRC(self)) ? Speech::Idle::kWait : Speech::Idle::kTell);
      break;
    case IdleMode::kWait:
      self->priv->speech.SetIdle(Speech::Idle::kWait);
      break;
    case IdleMode::kEos:
    case IdleMode::kAuto:
      self->priv->speech.SetIdle(Speech::Idle::kEnd);
      break;
  }
  self->priv->wake();  // a wait that began in the old mode
}

static void gst_qtts_src_set_live(GstQttsSrc* self, gboolean live) {
  bool running = false;
  {
    const std::lock_guard lock(self->priv->lock);
    running = self->priv->running;
  }
  if (live == gst_base_src_is_live(GST_BASE_SRC(self))) return;
  if (running) {
    GST_ELEMENT_WARNING(
        self, RESOURCE, SETTINGS,
        ("is-live=%s is refused while the element runs. Set it in NULL or READY.", live ? "true" : "false"), (nullptr));
    return;
  }
  gst_base_src_set_live(GST_BASE_SRC(self), live);
  gst_qtts_src_update_idle_mode(self);
}

static void gst_qtts_src_set_property(GObject* object, guint prop_id, const GValue* value, GParamSpec* pspec) {
  GstQttsSrc* self = GST_QTTS_SRC(object);
  GstQttsSrcPrivate* priv = self->priv;

  switch (prop_id) {
    case PROP_TEXT:
      gst_qtts_src_set_text(self, g_value_get_string(value));
      return;
    case PROP_LATENCY:
      gst_qtts_src_set_latency(self, g_value_get_uint64(value));
      return;
    case PROP_IS_LIVE:
      gst_qtts_src_set_live(self, g_value_get_boolean(value));
      return;
    case PROP_IDLE_MODE: {
      {
        const std::lock_guard lock(priv->lock);
        priv->idle_mode = static_cast<IdleMode>(g_value_get_enum(value));
      }
      gst_qtts_src_update_idle_mode(self);
      return;
    }
    default:
      break;
  }

  const std::lock_guard lock(priv->lock);
  switch (prop_id) {
    case PROP_LEADING_SILENCE:
      priv->leading_silence = g_value_get_uint64(value);
      break;
    case PROP_UTTERANCE_GAP:
      priv->utterance_gap = g_value_get_uint64(value);
      break;
    case PROP_TEXT_TIMING:
      priv->text_timing = static_cast<TextTiming>(g_value_get_enum(value));
      break;
    case PROP_TRIM_LEADING_SILENCE:
      priv->trim_leading_silence = g_value_get_boolean(value) != FALSE;
      break;
    case PROP_MODEL_PATH:
      priv->model_path = gst_qtts_src_dup_string(value);
      break;
    case PROP_DEVICE:
      priv->device = static_cast<qtts::Device>(g_value_get_enum(value));
      break;
    case PROP_PRECISION:
      priv->precision = static_cast<qtts::Precision>(g_value_get_enum(value));
      break;
    case PROP_CUDA_DEVICE_ID:
      priv->cuda_device_id = g_value_get_int(value);
      break;
    case PROP_SEGMENTATION:
      priv->text_options.segmentation = static_cast<gstqtts::Segmentation>(g_value_get_enum(value));
      break;
    case PROP_NEWLINE_ENDS:
      priv->text_options.newline_ends = g_value_get_boolean(value) != FALSE;
      break;
    case PROP_UTTERANCE_TIMEOUT:
      priv->text_options.timeout = g_value_get_uint64(value);
      break;
    case PROP_MAX_TEXT_LENGTH:
      priv->text_options.max_chars = g_value_get_uint(value);
      break;
    case PROP_MAX_QUEUED_TEXT:
      priv->text_options.max_queued = g_value_get_uint(value);
      priv->speech.SetMaxQueued(priv->text_options.max_queued);
      break;
    default:
      if (gstqtts::SetSetting(pspec->name, value, &priv->settings)) break;
      G_OBJECT_WARN_INVALID_PROPERTY_ID(object, prop_id, pspec);
      break;
  }
}

// With the lock held.
static GstStructure* gst_qtts_src_new_stats(const GstQttsSrcPrivate* priv) {
  const Speech::Stats stats = priv->speech.stats();
  const bool spoke = stats.first_frames > 0;
  const auto nanoseconds = [spoke](std::chrono::nanoseconds duration) {
    return spoke ? static_cast<guint64>(duration.count()) : GST_CLOCK_TIME_NONE;
  };
  const auto mean = stats.first_frame_latency_sum / std::max<int64_t>(static_cast<int64_t>(stats.first_frames), 1);
  const double waited = std::chrono::duration<double>(stats.waited).count();
  return gst_structure_new(
      "application/x-qttssrc-stats", "model", G_TYPE_STRING, priv->model ? priv->model->path.c_str() : "", "device",
      G_TYPE_STRING, priv->device_name.c_str(), "utterances", G_TYPE_UINT64, stats.utterances, "interrupted",
      G_TYPE_UINT64, stats.interrupted, "dropped", G_TYPE_UINT64, stats.dropped, "frames", G_TYPE_UINT64, stats.frames,
      "seed", G_TYPE_INT64, stats.seed ? static_cast<gint64>(*stats.seed) : -1, "first-frame-latency", G_TYPE_UINT64,
      nanoseconds(stats.first_frame_latency_last), "first-frame-latency-mean", G_TYPE_UINT64, nanoseconds(mean),
      "first-frame-latency-max", G_TYPE_UINT64, nanoseconds(stats.first_frame_latency_max), "real-time-factor",
      G_TYPE_DOUBLE, stats.sound_seconds > 0 ? waited / stats.sound_seconds : 0.0, "queued-utterances", G_TYPE_UINT64,
      static_cast<guint64>(stats.queued_utterances), "queued-chars", G_TYPE_UINT64,
      static_cast<guint64>(stats.queued_chars), "upstream-waits", G_TYPE_BOOLEAN,
      static_cast<gboolean>(stats.upstream_waits), "underruns", G_TYPE_UINT64, priv->underruns, "trimmed",
      G_TYPE_UINT64, gstqtts::SampleTime(priv->trimmed_samples, SAMPLE_RATE), "slots", G_TYPE_UINT64,
      static_cast<guint64>(stats.occupancy.slots), "free-slots", G_TYPE_UINT64,
      static_cast<guint64>(stats.occupancy.free_slots), "waiting-utterances", G_TYPE_UINT64,
      static_cast<guint64>(stats.occupancy.waiting), nullptr);
}

static void gst_qtts_src_get_property(GObject* object, guint prop_id, GValue* value, GParamSpec* pspec) {
  GstQttsSrcPrivate* priv = GST_QTTS_SRC(object)->priv;

  const std::lock_guard lock(priv->lock);
  switch (prop_id) {
    case PROP_MODEL_PATH:
      gst_qtts_src_take_string(value, priv->model_path);
      break;
    case PROP_DEVICE:
      g_value_set_enum(value, static_cast<int>(priv->device));
      break;
    case PROP_PRECISION:
      g_value_set_enum(value, static_cast<int>(priv->precision));
      break;
    case PROP_CUDA_DEVICE_ID:
      g_value_set_int(value, priv->cuda_device_id);
      break;
    case PROP_TEXT:
      g_value_set_string(value, priv->text ? priv->text->c_str() : nullptr);
      break;
    case PROP_IS_LIVE:
      g_value_set_boolean(value, gst_base_src_is_live(GST_BASE_SRC(object)));
      break;
    case PROP_IDLE_MODE:
      g_value_set_enum(value, static_cast<int>(priv->idle_mode));
      break;
    case PROP_LATENCY:
      g_value_set_uint64(value, priv->latency);
      break;
    case PROP_LEADING_SILENCE:
      g_value_set_uint64(value, priv->leading_silence);
      break;
    case PROP_UTTERANCE_GAP:
      g_value_set_uint64(value, priv->utterance_gap);
      break;
    case PROP_TEXT_TIMING:
      g_value_set_enum(value, static_cast<int>(priv->text_timing));
      break;
    case PROP_TRIM_LEADING_SILENCE:
      g_value_set_boolean(value, priv->trim_leading_silence);
      break;
    case PROP_SPEAKERS:
      if (priv->model) gst_qtts_src_take_array(value, priv->model->speakers);
      break;
    case PROP_LANGUAGES:
      if (priv->model) gst_qtts_src_take_array(value, priv->model->languages);
      break;
    case PROP_STATS:
      g_value_take_boxed(value, gst_qtts_src_new_stats(priv));
      break;
    case PROP_CURRENT_TEXT:
      gst_qtts_src_take_string(value, priv->speech.current_text());
      break;
    case PROP_SEGMENTATION:
      g_value_set_enum(value, static_cast<int>(priv->text_options.segmentation));
      break;
    case PROP_NEWLINE_ENDS:
      g_value_set_boolean(value, static_cast<gboolean>(priv->text_options.newline_ends));
      break;
    case PROP_UTTERANCE_TIMEOUT:
      g_value_set_uint64(value, priv->text_options.timeout);
      break;
    case PROP_MAX_TEXT_LENGTH:
      g_value_set_uint(value, static_cast<guint>(priv->text_options.max_chars));
      break;
    case PROP_MAX_QUEUED_TEXT:
      g_value_set_uint(value, static_cast<guint>(priv->text_options.max_queued));
      break;
    default:
      if (gstqtts::GetSetting(pspec->name, priv->settings, value)) {
        const bool unset = G_VALUE_HOLDS_STRING(value) && g_value_get_string(value) == nullptr;
        if (unset && gst_qtts_src_saves_preset()) g_value_set_static_string(value, "");
        break;
      }
      G_OBJECT_WARN_INVALID_PROPERTY_ID(object, prop_id, pspec);
      break;
  }
}

void gst_qtts_src_install_properties(GObjectClass* klass) {
  const auto rw = static_cast<GParamFlags>(G_PARAM_READWRITE | G_PARAM_STATIC_STRINGS);
  const auto ready = static_cast<GParamFlags>(rw | GST_PARAM_MUTABLE_READY);
  const auto playing = static_cast<GParamFlags>(rw | GST_PARAM_MUTABLE_PLAYING);
  const auto ro = static_cast<GParamFlags>(G_PARAM_READABLE | G_PARAM_STATIC_STRINGS);
  const auto install = [klass](guint id, GParamSpec* pspec) { g_object_class_install_property(klass, id, pspec); };

  klass->set_property = gstqtts::Guarded<gst_qtts_src_set_property>::Call;
  klass->get_property = gstqtts::Guarded<gst_qtts_src_get_property>::Call;

  install(PROP_MODEL_PATH,
          g_param_spec_string("model-path", "Model Path",
                              "Folder of a Qwen3-TTS-12Hz checkpoint as published. Unset: the folder that the "
                              "environment variable QTTS_VOICE_PATH names, else the voice that comes with the element",
                              nullptr, ready));
  install(PROP_DEVICE, g_param_spec_enum("device", "Device", "Where the model runs", GST_TYPE_QTTS_SRC_DEVICE,
                                         static_cast<int>(DEFAULT_DEVICE), ready));
  install(PROP_PRECISION, g_param_spec_enum("precision", "Precision", "Arithmetic of the model",
                                            GST_TYPE_QTTS_SRC_PRECISION, static_cast<int>(DEFAULT_PRECISION), ready));
  install(PROP_CUDA_DEVICE_ID,
          g_param_spec_int("cuda-device-id", "CUDA Device ID",
                           "Number of the GPU, as CUDA counts them (-1 = the first that can hold the model)", -1,
                           G_MAXINT, DEFAULT_CUDA_DEVICE_ID, ready));
  install(PROP_TEXT,
          g_param_spec_string("text", "Text",
                              "Text to speak. Each text set after the element has started, and before end-of-stream, "
                              "is one more utterance",
                              nullptr, playing));
  install(PROP_SPEAKER, g_param_spec_string("speaker", "Speaker",
                                            "Preset voice, one of \"speakers\", from the next utterance on. Unset: the "
                                            "model's first",
                                            nullptr, playing));
  install(PROP_LANGUAGE, g_param_spec_string("language", "Language",
                                             "Language of the text, one of \"languages\", its BCP-47 tag, or \"auto\", "
                                             "from the next utterance on. Unset: auto, the model goes by the text",
                                             nullptr, playing));
  install(PROP_INSTRUCT, g_param_spec_string("instruct", "Instruct",
                                             "How to speak, in plain words, from the next utterance on; for a "
                                             "voice-design model, what the voice is like. Unset: nothing in particular",
                                             nullptr, playing));
  install(PROP_VOICE_FILE, g_param_spec_string("voice-file", "Voice File",
                                               "Cloned voice for a base model, a file that \"qtts-tool voice make\" "
                                               "wrote, from the next utterance on",
                                               nullptr, playing));
  install(PROP_REFERENCE_AUDIO,
          g_param_spec_string("reference-audio", "Reference Audio",
                              "Recording of the voice to clone with a base model, from the next utterance on: a local "
                              "file with 1 to 60 s of speech, in any format that GStreamer decodes. The first "
                              "utterance with it waits until it is cloned; \"voice-file\" does not",
                              nullptr, playing));
  install(PROP_REFERENCE_TEXT,
          g_param_spec_string("reference-text", "Reference Text",
                              "All that \"reference-audio\" says: its manner of speaking is cloned, too. Unset: only "
                              "its timbre",
                              nullptr, playing));
  install(PROP_PAD_REFERENCE,
          g_param_spec_boolean("pad-reference", "Pad Reference",
                               "Add half a second of silence to \"reference-audio\", for when speech begins with its "
                               "last sounds. The official package does not",
                               DEFAULT_PAD_REFERENCE, playing));
  install(PROP_LAYOUT, g_param_spec_enum("layout", "Prompt Layout",
                                         "How text is laid out in the model's prompt, from the next utterance on",
                                         GST_TYPE_QTTS_SRC_LAYOUT, static_cast<int>(DEFAULT_LAYOUT), playing));
  install(PROP_SEED, g_param_spec_int64("seed", "Seed",
                                        "Seed of the random choices of each utterance: the same text, settings, model, "
                                        "device and seed give the same sound (-1 = a new one for every utterance, see "
                                        "\"stats\")",
                                        -1, G_MAXINT64, DEFAULT_SEED, playing));
  install(PROP_TEMPERATURE,
          gstqtts::NewModelValueParamSpec(
              "temperature", "Temperature",
              "Randomness of the speech: above 0 the model samples, the higher the wilder (-1 = as the "
              "model says, 0 = always the likeliest)",
              0, 100, playing));
  install(PROP_TOP_K,
          g_param_spec_int("top-k", "Top K",
                           "Sample among this many of the likeliest codes (-1 = as the model says, 0 = all)", -1,
                           G_MAXINT, DEFAULT_SAMPLING, playing));
  install(PROP_TOP_P,
          gstqtts::NewModelValueParamSpec("top-p", "Top P",
                                          "Sample among the likeliest codes that together have this probability, above "
                                          "0 (-1 = as the model says, 1 = all)",
                                          gstqtts::kAboveZero, 1, playing));
  install(PROP_REPETITION_PENALTY,
          gstqtts::NewModelValueParamSpec(
              "repetition-penalty", "Repetition Penalty",
              "Factor from 0.01 on by which codes spoken before become less likely (-1 = as the model "
              "says, 1 = off)",
              0.01, 100, playing));
  install(PROP_SUBTALKER_TEMPERATURE,
          gstqtts::NewModelValueParamSpec(
              "subtalker-temperature", "Subtalker Temperature",
              "Like \"temperature\", for the fine codes of each frame (-1 = as the model says, 0 = "
              "always the likeliest)",
              0, 100, playing));
  install(PROP_SUBTALKER_TOP_K,
          g_param_spec_int("subtalker-top-k", "Subtalker Top K",
                           "Like \"top-k\", for the fine codes of each frame (-1 = as the model says, 0 = all)", -1,
                           G_MAXINT, DEFAULT_SAMPLING, playing));
  install(PROP_SUBTALKER_TOP_P,
          gstqtts::NewModelValueParamSpec(
              "subtalker-top-p", "Subtalker Top P",
              "Like \"top-p\", for the fine codes of each frame (-1 = as the model says, 1 = all)", gstqtts::kAboveZero,
              1, playing));
  install(
      PROP_MAX_DURATION,
      g_param_spec_uint64("max-duration", "Maximum Duration",
                          "Longest sound of one utterance in nanoseconds, in whole frames of 80 ms and at least one; "
                          "a warning tells when it cuts speech (0 = the model's own limit)",
                          0, G_MAXUINT64, DEFAULT_MAX_DURATION, playing));
  install(PROP_MAX_WAIT,
          g_param_spec_uint64("max-wait", "Maximum Wait",
                              "Longest time in nanoseconds that an utterance waits for its turn while the model speaks "
                              "as many as it can, those of other elements included, see \"stats\"; then a warning "
                              "tells, and it is finished with the reason busy (0 = it does not wait, "
                              "18446744073709551615 = for ever)",
                              0, G_MAXUINT64, DEFAULT_MAX_WAIT, playing));
  install(PROP_IS_LIVE,
          g_param_spec_boolean("is-live", "Is Live",
                               "Give out each buffer at its running time by the pipeline's clock, like a microphone, "
                               "and none in PAUSED. Speech after a pause starts at the running time of the moment",
                               DEFAULT_IS_LIVE, ready));
  install(PROP_IDLE_MODE,
          g_param_spec_enum("idle-mode", "Idle Mode",
                            "What leaves the element when there is no text to speak. With a sink pad, the end of its "
                            "stream alone ends the sound, and eos means wait",
                            GST_TYPE_QTTS_SRC_IDLE_MODE, static_cast<int>(DEFAULT_IDLE_MODE), playing));
  install(PROP_LATENCY,
          g_param_spec_uint64("latency", "Latency",
                              "When live: nanoseconds by which a buffer may leave the element after its running time "
                              "without losing its place; it is reported to the pipeline, whose sinks play that much "
                              "later (0 = none)",
                              0, G_MAXINT64, DEFAULT_LATENCY, playing));
  install(PROP_LEADING_SILENCE,
          g_param_spec_uint64("leading-silence", "Leading Silence",
                              "Nanoseconds of silence before the first utterance, and before the first one after a "
                              "discontinuity, for receivers that swallow the beginning (0 = none)",
                              0, G_MAXINT64, DEFAULT_LEADING_SILENCE, playing));
  install(PROP_UTTERANCE_GAP, g_param_spec_uint64("utterance-gap", "Utterance Gap",
                                                  "Nanoseconds of silence between two utterances (0 = none)", 0,
                                                  G_MAXINT64, DEFAULT_UTTERANCE_GAP, playing));
  install(PROP_TRIM_LEADING_SILENCE,
          g_param_spec_boolean("trim-leading-silence", "Trim Leading Silence",
                               "Cut the silence with which a voice begins an utterance, at most one second of it; see "
                               "\"stats\" for how much it was. The first buffer of the utterance is shorter then",
                               DEFAULT_TRIM_LEADING_SILENCE, playing));
  install(
      PROP_TEXT_TIMING,
      g_param_spec_enum("text-timing", "Text Timing",
                        "What timestamps of text from the sink pad mean, with \"segmentation\" auto or none. Silence "
                        "fills the time between",
                        GST_TYPE_QTTS_SRC_TEXT_TIMING, static_cast<int>(DEFAULT_TEXT_TIMING), playing));
  install(
      PROP_RUNAWAY_GUARD,
      g_param_spec_boolean("runaway-guard", "Runaway Guard",
                           "End an utterance whose end the model has missed: after 5 s of silence, or when it lasts "
                           "far longer than its text can. Off, the sound is exactly the model's",
                           DEFAULT_RUNAWAY_GUARD, playing));
  install(
      PROP_SPEAK_ANYTHING,
      g_param_spec_boolean("speak-anything", "Speak Anything",
                           "Give texts to the model in which there is nothing to say, no letter, number or currency "
                           "sign, too, from the next utterance on: it mostly babbles for seconds. Off, they are "
                           "finished without sound, for the reason nothing-to-say",
                           DEFAULT_SPEAK_ANYTHING, playing));
  install(PROP_SPEAKERS,
          gst_param_spec_array("speakers", "Speakers",
                               "Preset voices of the model, known from READY on. Empty: it has none",
                               g_param_spec_string("speaker", "Speaker", "Name of a preset voice", nullptr, ro), ro));
  install(PROP_LANGUAGES,
          gst_param_spec_array("languages", "Languages",
                               "Languages of the model that can be asked for, known from READY on",
                               g_param_spec_string("language", "Language", "Name of a language", nullptr, ro), ro));
  install(
      PROP_STATS,
      g_param_spec_boxed(
          "stats", "Statistics",
          "Of the current run: \"model\" and \"device\"; counts of \"utterances\" that came to their "
          "end, of those \"interrupted\" and \"dropped\" before they began, of \"frames\" of 80 ms "
          "given out and of \"underruns\"; the silence that was \"trimmed\" and \"first-frame-latency\" in "
          "nanoseconds, the latter from handing a text to the engine to its first frame, of the last utterance, "
          "and its mean and max; \"real-time-factor\", time waited for the engine by length of "
          "sound; \"queued-utterances\" and \"queued-chars\" now, and whether \"upstream-waits\" "
          "for room in the queue; \"seed\" of the last utterance; of the model, shared by all elements that use it, "
          "now: \"slots\", utterances that it speaks at once, \"free-slots\" of them, and "
          "\"waiting-utterances\" that wait for one, see \"max-wait\"",
          GST_TYPE_STRUCTURE, ro));
  install(PROP_CURRENT_TEXT,
          g_param_spec_string("current-text", "Current Text",
                              "Text of the utterance that is being spoken. Unset: there is none", nullptr, ro));
  install(PROP_SEGMENTATION,
          g_param_spec_enum("segmentation", "Segmentation",
                            "How text from the sink pad becomes utterances. What has begun also ends with a gap, "
                            "the event qtts/end-utterance, \"utterance-timeout\" and the end of the stream",
                            GST_TYPE_QTTS_SRC_SEGMENTATION, static_cast<int>(DEFAULT_SEGMENTATION), ready));
  install(
      PROP_NEWLINE_ENDS,
      g_param_spec_boolean("newline-ends", "Newline Ends",
                           "Whether the end of a line ends a sentence (\"segmentation\" sentence; otherwise an empty "
                           "line does) or a growing utterance (stream). Without meaning for none",
                           DEFAULT_NEWLINE_ENDS, ready));
  install(PROP_UTTERANCE_TIMEOUT,
          g_param_spec_uint64("utterance-timeout", "Utterance Timeout",
                              "Time in nanoseconds without text from the sink pad after which a sentence or a growing "
                              "utterance counts as ended, when nothing else is left to speak (18446744073709551615 = "
                              "never). Without meaning for \"segmentation\" none",
                              0, G_MAXUINT64, DEFAULT_UTTERANCE_TIMEOUT, ready));
  install(PROP_MAX_TEXT_LENGTH,
          g_param_spec_uint("max-text-length", "Maximum Text Length",
                            "Longest utterance from the sink pad in characters; longer text becomes several, cut after "
                            "a sentence where there is one, else where a line could be broken. \"text\" and speak "
                            "are limited by the model alone",
                            1, G_MAXUINT, DEFAULT_MAX_TEXT_LENGTH, ready));
  install(PROP_MAX_QUEUED_TEXT,
          g_param_spec_uint("max-queued-text", "Maximum Queued Text",
                            "Characters that may wait to be spoken, in at most 64 utterances. Beyond, the sink pad "
                            "blocks, and \"text\" and speak are refused with a warning; one text of any length may "
                            "always wait",
                            0, G_MAXUINT, DEFAULT_MAX_QUEUED_TEXT, playing));

  gst_type_mark_as_plugin_api(GST_TYPE_QTTS_SRC_DEVICE, static_cast<GstPluginAPIFlags>(0));
  gst_type_mark_as_plugin_api(GST_TYPE_QTTS_SRC_PRECISION, static_cast<GstPluginAPIFlags>(0));
  gst_type_mark_as_plugin_api(GST_TYPE_QTTS_SRC_LAYOUT, static_cast<GstPluginAPIFlags>(0));
  gst_type_mark_as_plugin_api(GST_TYPE_QTTS_SRC_SEGMENTATION, static_cast<GstPluginAPIFlags>(0));
  gst_type_mark_as_plugin_api(GST_TYPE_QTTS_SRC_IDLE_MODE, static_cast<GstPluginAPIFlags>(0));
  gst_type_mark_as_plugin_api(GST_TYPE_QTTS_SRC_TEXT_TIMING, static_cast<GstPluginAPIFlags>(0));
}
