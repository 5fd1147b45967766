// SPDX-License-Identifier: LGPL-2.1-or-later

/**
 * SECTION:element-qttssrc
 * @title: qttssrc
 * @short_description: Speaks text with a Qwen3-TTS model
 *
 * qttssrc makes speech of text with a Qwen3-TTS-12Hz model, frame by frame: sound leaves the element
 * while the rest of the text is still being spoken. It comes with a small English voice; set
 * #GstQttsSrc:model-path to the folder of any published checkpoint to use that one.
 *
 * Text comes from the #GstQttsSrc:text property, or from upstream through the `sink` pad, which exists
 * on request: then text is spoken in order, and end-of-stream waits until all of it has been spoken.
 * #GstQttsSrc:segmentation says what an utterance is: each buffer, each sentence, or the tokens of a
 * language model, spoken while they come. Buffers may cut UTF-8 characters; white space around utterances
 * is dropped, and blank ones are skipped. As long as the pad exists, the element waits for text.
 *
 * The first utterance of a run is the #GstQttsSrc:text that is set when the element goes from READY to
 * PAUSED. Each later change of the property, as long as end-of-stream was not sent, queues one more
 * utterance. Every utterance takes the settings (#GstQttsSrc:speaker, #GstQttsSrc:temperature, …) of the
 * moment in which its text was accepted.
 *
 * The model is loaded in the background from READY to PAUSED, with progress messages (`load`); those of a live
 * element come in PLAYING, as all that it does, and what follows them, such as gst-launch-1.0, does not wait in PAUSED.
 *
 * A flush, by the sink pad or sent to the element, drops everything that was accepted before.
 *
 * ## Live sound
 *
 * With #GstQttsSrc:is-live every buffer leaves at its running time by the pipeline's clock. While there is nothing
 * to say, #GstQttsSrc:idle-mode decides: `silence` (the default then) sends pieces of 20 ms that are flagged GAP,
 * with timestamps that go on without a break, and speech begins at the end of the piece during which it became
 * ready; `wait` sends nothing, and the next utterance begins at the running time of the moment, as a discontinuity.
 * A pause of the pipeline loses no frame. When speech is made more slowly than it is heard, the frame that is late
 * starts at the running time of the moment; this is told by a QOS message, counted in #GstQttsSrc:stats, and the
 * first time a warning.
 *
 * ## Timed text
 *
 * Subtitles say when they are meant to be heard. With #GstQttsSrc:text-timing other than `ignore` (and
 * #GstQttsSrc:segmentation `none`), each buffer's timestamp, mapped to running time by upstream's segment, is when
 * its speech starts; GAP flagged silence fills the time before it, and GAP events of upstream too. Speech that
 * is longer than its time makes the next start late (`start`), moves all that follow (`shift`) or is cut (`clip`,
 * with a fade of 5 ms).
 *
 * A seek goes upstream when there is a sink pad; without one, a flushing seek to 0 speaks #GstQttsSrc:text again, and
 * others are refused.
 *
 * ## Applications that talk back
 *
 * #GstQttsSrc::speak queues an utterance with settings of its own, #GstQttsSrc::interrupt stops speech within
 * a frame of 80 ms without a flush downstream, #GstQttsSrc::clear-queue drops what waits.
 *
 * These events do as well:
 *
 * | name | sent | does |
 * |---|---|---|
 * | `qtts/interrupt` | upstream from anywhere downstream (custom upstream), downstream out of band into the sink pad,
 * or to the element | what #GstQttsSrc::interrupt does |
 * | `qtts/set-voice` | downstream, serialized, into the sink pad | its fields, named like the properties, hold over
 * them for the text that follows, until the next such event; without fields the properties hold again |
 * | `qtts/end-utterance` | downstream, serialized, into the sink pad | ends the sentence or the growing utterance that
 * has begun, as a gap event does too |
 *
 * ## Messages
 *
 * Every utterance that was accepted ends with one `qtts-utterance-finished`, even if it was dropped before it
 * began. Numbers are guint64; times are in nanoseconds, positions in characters (Unicode code points).
 *
 * | element message | fields |
 * |---|---|
 * | `qtts-utterance-started` | `id`, `text`, `running-time` of its first frame, `first-frame-latency` from handing the
 * text to the engine to that frame, `seed` (gint64) |
 * | `qtts-text-progress` | `id`, `offset-chars` and `length-chars` of the word that begins, `running-time` of the frame
 * in which it begins, `estimated` (TRUE) |
 * | `qtts-utterance-finished` | `id`, `reason` (string: complete, interrupted, clipped, error, max-duration, runaway),
 * `frames` and `samples` that left the element, `text-chars`, `text-spoken-chars`, `estimated` (whether that is) |
 *
 * The model does not tell which word it is speaking. Positions are estimated from the length of the speech, the
 * kinds of characters and the pace of the voice so far; they never go back and never leave the text.
 *
 * ## Example launch lines
 * |[
 * gst-launch-1.0 qttssrc text="Hello, world." ! audioconvert ! audioresample ! autoaudiosink
 * ]| Speaks a sentence.
 * |[
 * gst-launch-1.0 qttssrc text="Hello, world." ! audioconvert ! audio/x-raw,format=S16LE ! wavenc ! filesink
 * location=hello.wav
 * ]| Writes it to a file.
 * |[
 * gst-launch-1.0 fdsrc ! qttssrc ! audioconvert ! audioresample ! autoaudiosink
 * ]| Speaks what is typed.
 * |[
 * gst-launch-1.0 filesrc location=film.srt ! subparse ! qttssrc ! audioconvert ! flacenc ! filesink location=film.flac
 * ]| Speaks subtitles, one after the other.
 *
 * Since: 0.1
 */

// Why a source with a sink pad: without one it is a plain source, with everything GstBaseSrc gives
// (end-of-stream by the application, num-buffers, segments, caps, errors of the flow). The pad only
// feeds the text queue; all sound still leaves by the base class' task. Two things must be kept in mind:
//
//   - While the pad exists, GST_ELEMENT_FLAG_SOURCE is off, lest an end-of-stream sent to the pipeline
//     reaches us directly and cuts the text that upstream delivered before it.
//   - Flushes of the pad go through the base class' send_event(), called directly:
//     gst_element_send_event() takes the state lock, whose holder may be waiting for our sink pad.
//
// Locks: `lock` (settings) before the one inside Speech. Neither is held while posting, pushing or
// notifying.

#include "gstqttssrc.h"

#include <gst/audio/audio.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "config.h"
#include "gstqttsclock.h"
#include "gstqttserror.h"
#include "gstqttslog.h"
#include "gstqttsmessages.h"
#include "gstqttsoverrides.h"
#include "gstqttspcm.h"
#include "gstqttsspeech.h"
#include "gstqttstimeline.h"
#include "gstqttstrim.h"
#include "qtts/engine.h"

using gstqtts::Speech;

GST_DEBUG_CATEGORY_STATIC(gst_qtts_src_debug);
#define GST_CAT_DEFAULT gst_qtts_src_debug

#define SAMPLE_RATE 24000

static GstStaticPadTemplate src_template =
    GST_STATIC_PAD_TEMPLATE("src", GST_PAD_SRC, GST_PAD_ALWAYS,
                            GST_STATIC_CAPS("audio/x-raw, format = { " GST_AUDIO_NE(F32) ", " GST_AUDIO_NE(
                                S16) " }, "
                                     "layout = interleaved, rate = " G_STRINGIFY(SAMPLE_RATE) ", channels = 1"));

static GstStaticPadTemplate sink_template =
    GST_STATIC_PAD_TEMPLATE("sink", GST_PAD_SINK, GST_PAD_REQUEST, GST_STATIC_CAPS("text/x-raw, format = utf8"));

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
  PROP_RUNAWAY_GUARD,
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

// Custom events.
static constexpr gchar kInterruptEvent[] = "qtts/interrupt";
static constexpr gchar kSetVoiceEvent[] = "qtts/set-voice";
static constexpr gchar kEndUtteranceEvent[] = "qtts/end-utterance";

#define DEFAULT_DEVICE qtts::Device::kAuto
#define DEFAULT_PRECISION qtts::Precision::kAuto
#define DEFAULT_CUDA_DEVICE_ID (-1)
#define DEFAULT_RUNAWAY_GUARD TRUE
#define DEFAULT_PAD_REFERENCE FALSE
#define DEFAULT_LAYOUT qtts::PromptLayout::kDefault
#define DEFAULT_SEED (-1)
#define DEFAULT_SAMPLING gstqtts::Settings::kModel
#define DEFAULT_MAX_DURATION 0
#define DEFAULT_SEGMENTATION gstqtts::Segmentation::kNone
#define DEFAULT_NEWLINE_ENDS FALSE
#define DEFAULT_UTTERANCE_TIMEOUT GST_SECOND
#define DEFAULT_MAX_TEXT_LENGTH 4000
#define DEFAULT_MAX_QUEUED_TEXT 65536
#define DEFAULT_IS_LIVE FALSE
#define DEFAULT_IDLE_MODE IdleMode::kAuto
#define DEFAULT_LATENCY 0
#define DEFAULT_LEADING_SILENCE 0
#define DEFAULT_UTTERANCE_GAP 0
#define DEFAULT_TRIM_LEADING_SILENCE FALSE
#define DEFAULT_TEXT_TIMING TextTiming::kIgnore

// Silence that fills pauses comes in pieces of this length: speech that is ready waits no longer for its turn,
// and it is what telephony and WebRTC send in a packet.
static constexpr guint64 kSilencePiece = SAMPLE_RATE / 50;
// A live buffer that is later than "latency" by no more than this keeps its time: less than the processing
// deadline (20 ms) by which sinks wait for late buffers anyway.
static constexpr GstClockTime kLateTolerance = 10 * GST_MSECOND;
// Later silence than that was kept waiting by downstream.
static constexpr GstClockTime kSilenceTolerance = 200 * GST_MSECOND;

// Speech that its cue cuts fades out over this many samples, lest it clicks.
static constexpr size_t kFade = SAMPLE_RATE / 200;

enum class IdleMode { kAuto, kEos, kWait, kSilence };
enum class TextTiming { kIgnore, kStart, kShift, kClip };

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
 * @GST_QTTS_SRC_PRECISION_BF16: BF16 with sums in F32, on the GPU only
 * @GST_QTTS_SRC_PRECISION_F32: F32, slow on the GPU
 *
 * Since: 0.1
 */
#define GST_TYPE_QTTS_SRC_PRECISION (gst_qtts_src_precision_get_type())
static GType gst_qtts_src_precision_get_type(void) {
  static const GEnumValue values[] = {
      {static_cast<int>(qtts::Precision::kAuto), "BF16 on the GPU, F32 on the CPU", "auto"},
      {static_cast<int>(qtts::Precision::kBF16), "BF16 with sums in F32, on the GPU only", "bf16"},
      {static_cast<int>(qtts::Precision::kF32), "F32, slow on the GPU", "f32"},
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
 * @GST_QTTS_SRC_SEGMENTATION_NONE: each buffer is an utterance
 * @GST_QTTS_SRC_SEGMENTATION_SENTENCE: each sentence is an utterance, however buffers cut it
 * @GST_QTTS_SRC_SEGMENTATION_STREAM: buffers make one utterance grow while it is spoken, until it is ended
 *
 * Since: 0.1
 */
#define GST_TYPE_QTTS_SRC_SEGMENTATION (gst_qtts_src_segmentation_get_type())
static GType gst_qtts_src_segmentation_get_type(void) {
  static const GEnumValue values[] = {
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

struct GstQttsSrcPrivate {
  GstQttsSrcPrivate(GstElement* element, Speech::Reporter reporter)
      : speech(std::move(reporter)), clock(element), wake(speech.waker()) {}

  Speech speech;
  gstqtts::LiveClock clock;
  const std::function<void()> wake;

  std::mutex lock;
  // Guarded by the lock.
  std::string model_path;  // empty: the bundled voice
  qtts::Device device = DEFAULT_DEVICE;
  qtts::Precision precision = DEFAULT_PRECISION;
  int cuda_device_id = DEFAULT_CUDA_DEVICE_ID;
  std::optional<std::string> text;
  gstqtts::Settings settings;
  gstqtts::TextOptions text_options;
  // Of a qtts/set-voice event, over the settings for what comes after it by the sink pad; may be null.
  GstStructure* voice = nullptr;
  IdleMode idle_mode = DEFAULT_IDLE_MODE;
  GstClockTime latency = DEFAULT_LATENCY;
  GstClockTime leading_silence = DEFAULT_LEADING_SILENCE;
  GstClockTime utterance_gap = DEFAULT_UTTERANCE_GAP;
  bool trim_leading_silence = DEFAULT_TRIM_LEADING_SILENCE;
  TextTiming text_timing = DEFAULT_TEXT_TIMING;
  guint64 trimmed_samples = 0;                   // in this run
  guint64 underruns = 0;                         // in this run
  bool running = false;                          // between start and stop: a new text is queued
  std::optional<qtts::EngineOptions> inspected;  // what `model` was found with; none in NULL
  std::optional<qtts::ModelInfo> model;          // known from READY on
  std::string device_name;
  GstPad* sinkpad = nullptr;

  // Used by the streaming thread, or while that is at rest.
  gstqtts::Timeline timeline{SAMPLE_RATE};
  gstqtts::LeadingSilenceTrimmer trimmer{SAMPLE_RATE};
  std::optional<Speech::Output> frame;         // of speech, whose time has not come
  bool placed = false;                         // whether that frame has its place on the timeline
  guint64 silence_due = 0;                     // samples of silence before that frame
  bool in_utterance = false;                   // the last buffer was speech, and its utterance goes on
  gstqtts::Cue cue;                            // of the utterance
  GstClockTime shift = 0;                      // by which cues are late, for TextTiming::kShift
  std::string language;                        // of the utterance
  std::optional<std::string> tagged_language;  // of the last tags sent
  GstAudioFormat format = GST_AUDIO_FORMAT_UNKNOWN;
  std::vector<std::string> warnings;  // of the last utterance

  // Set by the thread of the sink pad.
  std::atomic<bool> upstream_live = false;

  // Used by the thread of the sink pad.
  GstSegment text_segment = {};
  bool timing_refused = false;  // a warning about that was posted
  bool repair_reported = false;

  std::atomic<bool> respeak = false;  // the end of the flush that comes queues the text property
};

struct _GstQttsSrc {
  GstPushSrc parent;

  GstQttsSrcPrivate* priv;
};

static void gst_qtts_src_finalize(GObject* object);
static void gst_qtts_src_set_property(GObject* object, guint prop_id, const GValue* value, GParamSpec* pspec);
static gboolean gst_qtts_src_seek(GstQttsSrc* self, GstEvent* event);
static void gst_qtts_src_get_property(GObject* object, guint prop_id, GValue* value, GParamSpec* pspec);

static GstStateChangeReturn gst_qtts_src_change_state(GstElement* element, GstStateChange transition);
static gboolean gst_qtts_src_set_clock(GstElement* element, GstClock* clock);
static gboolean gst_qtts_src_send_event(GstElement* element, GstEvent* event);
static GstPad* gst_qtts_src_request_new_pad(GstElement* element, GstPadTemplate* templ, const gchar* name,
                                            const GstCaps* caps);
static void gst_qtts_src_release_pad(GstElement* element, GstPad* pad);
static guint64 gst_qtts_src_speak(GstQttsSrc* self, const gchar* text, const GstStructure* params);
static guint64 gst_qtts_src_interrupt(GstQttsSrc* self);
static void gst_qtts_src_clear_queue(GstQttsSrc* self);
static void gst_qtts_src_report(GstQttsSrc* self, const gstqtts::Report& report);
static GstFlowReturn gst_qtts_src_chain(GstPad* pad, GstObject* parent, GstBuffer* buffer);
static gboolean gst_qtts_src_sink_event(GstPad* pad, GstObject* parent, GstEvent* event);
static gboolean gst_qtts_src_sink_query(GstPad* pad, GstObject* parent, GstQuery* query);

static GstCaps* gst_qtts_src_fixate(GstBaseSrc* src, GstCaps* caps);
static gboolean gst_qtts_src_set_caps(GstBaseSrc* src, GstCaps* caps);
static gboolean gst_qtts_src_start(GstBaseSrc* src);
static gboolean gst_qtts_src_stop(GstBaseSrc* src);
static gboolean gst_qtts_src_unlock(GstBaseSrc* src);
static gboolean gst_qtts_src_unlock_stop(GstBaseSrc* src);
static gboolean gst_qtts_src_event(GstBaseSrc* src, GstEvent* event);
static gboolean gst_qtts_src_query(GstBaseSrc* src, GstQuery* query);
static GstFlowReturn gst_qtts_src_create(GstPushSrc* src, GstBuffer** buffer);

static void gst_qtts_src_preset_init(GstPresetInterface* iface);

#define gst_qtts_src_parent_class parent_class
G_DEFINE_FINAL_TYPE_WITH_CODE(GstQttsSrc, gst_qtts_src, GST_TYPE_PUSH_SRC,
                              G_IMPLEMENT_INTERFACE(GST_TYPE_PRESET, gst_qtts_src_preset_init))
GST_ELEMENT_REGISTER_DEFINE_WITH_CODE(qttssrc, "qttssrc", GST_RANK_NONE, GST_TYPE_QTTS_SRC,
                                      GST_DEBUG_CATEGORY_INIT(gst_qtts_src_debug, "qttssrc", 0,
                                                              "Text-to-speech source");
                                      gstqtts::InitEngineLog())

static void gst_qtts_src_class_init(GstQttsSrcClass* klass) {
  GObjectClass* object_class = G_OBJECT_CLASS(klass);
  GstElementClass* element_class = GST_ELEMENT_CLASS(klass);
  GstBaseSrcClass* basesrc_class = GST_BASE_SRC_CLASS(klass);
  GstPushSrcClass* pushsrc_class = GST_PUSH_SRC_CLASS(klass);
  const auto rw = static_cast<GParamFlags>(G_PARAM_READWRITE | G_PARAM_STATIC_STRINGS);
  const auto ready = static_cast<GParamFlags>(rw | GST_PARAM_MUTABLE_READY);
  const auto playing = static_cast<GParamFlags>(rw | GST_PARAM_MUTABLE_PLAYING);
  const auto ro = static_cast<GParamFlags>(G_PARAM_READABLE | G_PARAM_STATIC_STRINGS);
  const auto install = [object_class](guint id, GParamSpec* pspec) {
    g_object_class_install_property(object_class, id, pspec);
  };

  object_class->finalize = gst_qtts_src_finalize;
  object_class->set_property = gst_qtts_src_set_property;
  object_class->get_property = gst_qtts_src_get_property;

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
          g_param_spec_double("temperature", "Temperature",
                              "Randomness of the speech: above 0 the model samples, the higher the wilder (-1 = as the "
                              "model says, 0 = always the likeliest)",
                              -1, 100, DEFAULT_SAMPLING, playing));
  install(PROP_TOP_K,
          g_param_spec_int("top-k", "Top K",
                           "Sample among this many of the likeliest codes (-1 = as the model says, 0 = all)", -1,
                           G_MAXINT, DEFAULT_SAMPLING, playing));
  install(PROP_TOP_P, g_param_spec_double("top-p", "Top P",
                                          "Sample among the likeliest codes that together have this probability, above "
                                          "0 (-1 = as the model says, 1 = all)",
                                          -1, 1, DEFAULT_SAMPLING, playing));
  install(PROP_REPETITION_PENALTY,
          g_param_spec_double("repetition-penalty", "Repetition Penalty",
                              "Factor above 0 by which codes spoken before become less likely (-1 = as the model says, "
                              "1 = off)",
                              -1, 100, DEFAULT_SAMPLING, playing));
  install(PROP_SUBTALKER_TEMPERATURE,
          g_param_spec_double("subtalker-temperature", "Subtalker Temperature",
                              "Like \"temperature\", for the fine codes of each frame (-1 = as the model says, 0 = "
                              "always the likeliest)",
                              -1, 100, DEFAULT_SAMPLING, playing));
  install(PROP_SUBTALKER_TOP_K,
          g_param_spec_int("subtalker-top-k", "Subtalker Top K",
                           "Like \"top-k\", for the fine codes of each frame (-1 = as the model says, 0 = all)", -1,
                           G_MAXINT, DEFAULT_SAMPLING, playing));
  install(PROP_SUBTALKER_TOP_P,
          g_param_spec_double("subtalker-top-p", "Subtalker Top P",
                              "Like \"top-p\", for the fine codes of each frame (-1 = as the model says, 1 = all)", -1,
                              1, DEFAULT_SAMPLING, playing));
  install(
      PROP_MAX_DURATION,
      g_param_spec_uint64("max-duration", "Maximum Duration",
                          "Longest sound of one utterance in nanoseconds, in whole frames of 80 ms and at least one; "
                          "a warning tells when it cuts speech (0 = the model's own limit)",
                          0, G_MAXUINT64, DEFAULT_MAX_DURATION, playing));
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
  install(PROP_TEXT_TIMING,
          g_param_spec_enum("text-timing", "Text Timing",
                            "What timestamps of text from the sink pad mean, with \"segmentation\" none. Silence fills "
                            "the time between",
                            GST_TYPE_QTTS_SRC_TEXT_TIMING, static_cast<int>(DEFAULT_TEXT_TIMING), playing));
  install(
      PROP_RUNAWAY_GUARD,
      g_param_spec_boolean("runaway-guard", "Runaway Guard",
                           "End an utterance whose end the model has missed: after 5 s of silence, or when it lasts "
                           "far longer than its text can. Off, the sound is exactly the model's",
                           DEFAULT_RUNAWAY_GUARD, playing));
  install(PROP_SPEAKERS,
          gst_param_spec_array("speakers", "Speakers",
                               "Preset voices of the model, known from READY on. Empty: it has none",
                               g_param_spec_string("speaker", "Speaker", "Name of a preset voice", nullptr, ro), ro));
  install(PROP_LANGUAGES,
          gst_param_spec_array("languages", "Languages",
                               "Languages of the model that can be asked for, known from READY on",
                               g_param_spec_string("language", "Language", "Name of a language", nullptr, ro), ro));
  install(PROP_STATS, g_param_spec_boxed(
                          "stats", "Statistics",
                          "Of the current run: \"model\" and \"device\"; counts of \"utterances\" that came to their "
                          "end, of those \"interrupted\" and \"dropped\" before they began, of \"frames\" of 80 ms "
                          "given out, of \"underruns\" and \"trimmed\" samples; \"first-frame-latency\" in "
                          "nanoseconds from handing a text to the engine to its first frame, of the last utterance, "
                          "and its mean and max; \"real-time-factor\", time waited for the engine by length of "
                          "sound; \"queued-utterances\" and \"queued-chars\" now, and whether \"upstream-waits\" "
                          "for room in the queue; \"seed\" of the last utterance",
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

  /**
   * GstQttsSrc::speak:
   * @qttssrc: the element
   * @text: the text to speak
   * @params: (nullable): settings of this utterance alone, over the properties: fields named like
   *   #GstQttsSrc:speaker, #GstQttsSrc:language, #GstQttsSrc:seed and so on
   *
   * Queues an utterance, behind those that wait already. It never blocks.
   *
   * Returns: the number of the utterance, by which messages name it; 0 if it was refused: while the
   * element is below PAUSED, after end-of-stream, during a flush, when too much text is waiting, when the
   * text is blank or a field of @params is unknown or of a wrong type. The log says why, and so does a
   * warning message where the application can mend it.
   *
   * Since: 0.1
   */
  g_signal_new_class_handler(
      "speak", G_TYPE_FROM_CLASS(klass), static_cast<GSignalFlags>(G_SIGNAL_RUN_LAST | G_SIGNAL_ACTION),
      G_CALLBACK(gst_qtts_src_speak), nullptr, nullptr, nullptr, G_TYPE_UINT64, 2, G_TYPE_STRING, GST_TYPE_STRUCTURE);
  /**
   * GstQttsSrc::interrupt:
   * @qttssrc: the element
   *
   * Stops speaking: the utterance that is being spoken and all that wait are dropped. At most the frame of
   * 80 ms that is leaving the element still comes; nothing is flushed downstream. Text that arrives later is
   * spoken. The `qtts-utterance-finished` message tells how far the utterance came. May be called in any
   * state and from any thread, and so may the event `qtts/interrupt`, which does the same.
   *
   * Returns: frames of 80 ms of the interrupted utterance that left the element; 0 if none was being spoken
   *
   * Since: 0.1
   */
  g_signal_new_class_handler("interrupt", G_TYPE_FROM_CLASS(klass),
                             static_cast<GSignalFlags>(G_SIGNAL_RUN_LAST | G_SIGNAL_ACTION),
                             G_CALLBACK(gst_qtts_src_interrupt), nullptr, nullptr, nullptr, G_TYPE_UINT64, 0);
  /**
   * GstQttsSrc::clear-queue:
   * @qttssrc: the element
   *
   * Drops the text that waits. The utterance that is being spoken goes on.
   *
   * Since: 0.1
   */
  g_signal_new_class_handler("clear-queue", G_TYPE_FROM_CLASS(klass),
                             static_cast<GSignalFlags>(G_SIGNAL_RUN_LAST | G_SIGNAL_ACTION),
                             G_CALLBACK(gst_qtts_src_clear_queue), nullptr, nullptr, nullptr, G_TYPE_NONE, 0);

  element_class->change_state = GST_DEBUG_FUNCPTR(gst_qtts_src_change_state);
  element_class->set_clock = GST_DEBUG_FUNCPTR(gst_qtts_src_set_clock);
  element_class->send_event = GST_DEBUG_FUNCPTR(gst_qtts_src_send_event);
  element_class->request_new_pad = GST_DEBUG_FUNCPTR(gst_qtts_src_request_new_pad);
  element_class->release_pad = GST_DEBUG_FUNCPTR(gst_qtts_src_release_pad);
  gst_element_class_add_static_pad_template(element_class, &src_template);
  gst_element_class_add_static_pad_template(element_class, &sink_template);
  gst_element_class_set_static_metadata(element_class, "Qwen3-TTS text-to-speech source", "Source/Audio",
                                        "Speaks text with a Qwen3-TTS model", "The qttssrc developers");

  basesrc_class->fixate = GST_DEBUG_FUNCPTR(gst_qtts_src_fixate);
  basesrc_class->set_caps = GST_DEBUG_FUNCPTR(gst_qtts_src_set_caps);
  basesrc_class->start = GST_DEBUG_FUNCPTR(gst_qtts_src_start);
  basesrc_class->stop = GST_DEBUG_FUNCPTR(gst_qtts_src_stop);
  basesrc_class->unlock = GST_DEBUG_FUNCPTR(gst_qtts_src_unlock);
  basesrc_class->event = GST_DEBUG_FUNCPTR(gst_qtts_src_event);
  basesrc_class->query = GST_DEBUG_FUNCPTR(gst_qtts_src_query);
  basesrc_class->unlock_stop = GST_DEBUG_FUNCPTR(gst_qtts_src_unlock_stop);

  pushsrc_class->create = GST_DEBUG_FUNCPTR(gst_qtts_src_create);

  gst_type_mark_as_plugin_api(GST_TYPE_QTTS_SRC_DEVICE, static_cast<GstPluginAPIFlags>(0));
  gst_type_mark_as_plugin_api(GST_TYPE_QTTS_SRC_PRECISION, static_cast<GstPluginAPIFlags>(0));
  gst_type_mark_as_plugin_api(GST_TYPE_QTTS_SRC_LAYOUT, static_cast<GstPluginAPIFlags>(0));
  gst_type_mark_as_plugin_api(GST_TYPE_QTTS_SRC_SEGMENTATION, static_cast<GstPluginAPIFlags>(0));
  gst_type_mark_as_plugin_api(GST_TYPE_QTTS_SRC_IDLE_MODE, static_cast<GstPluginAPIFlags>(0));
  gst_type_mark_as_plugin_api(GST_TYPE_QTTS_SRC_TEXT_TIMING, static_cast<GstPluginAPIFlags>(0));
}

static GstPadProbeReturn gst_qtts_src_on_sound_event(GstPad* /*pad*/, GstPadProbeInfo* info, gpointer user_data) {
  if (GST_EVENT_TYPE(GST_PAD_PROBE_INFO_EVENT(info)) == GST_EVENT_EOS) GST_QTTS_SRC(user_data)->priv->speech.EndSound();
  return GST_PAD_PROBE_OK;
}

static void gst_qtts_src_init(GstQttsSrc* self) {
  self->priv = new GstQttsSrcPrivate(GST_ELEMENT(self),
                                     [self](const gstqtts::Report& report) { gst_qtts_src_report(self, report); });
  gst_base_src_set_format(GST_BASE_SRC(self), GST_FORMAT_TIME);
  // Whoever ends the sound, be it downstream, text that comes later has nowhere to go.
  gst_pad_add_probe(GST_BASE_SRC_PAD(self), GST_PAD_PROBE_TYPE_EVENT_DOWNSTREAM, gst_qtts_src_on_sound_event, self,
                    nullptr);
}

static void gst_qtts_src_finalize(GObject* object) {
  GstQttsSrcPrivate* priv = GST_QTTS_SRC(object)->priv;
  if (priv->voice != nullptr) gst_structure_free(priv->voice);
  delete priv;

  G_OBJECT_CLASS(parent_class)->finalize(object);
}

// --- properties

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

// Queues the text property once more.
static void gst_qtts_src_speak_property(GstQttsSrc* self) {
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

// What fills the time without text. The answer is never kAuto.
static IdleMode gst_qtts_src_get_idle_mode(GstQttsSrc* self) {
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
      gst_base_src_set_live(GST_BASE_SRC(self), g_value_get_boolean(value));
      gst_qtts_src_update_idle_mode(self);
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
      G_TYPE_UINT64, gstqtts::SampleTime(priv->trimmed_samples, SAMPLE_RATE), nullptr);
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
      if (gstqtts::GetSetting(pspec->name, priv->settings, value)) break;
      G_OBJECT_WARN_INVALID_PROPERTY_ID(object, prop_id, pspec);
      break;
  }
}

// Presets are about voices: they keep the settings of utterances, not what is spoken nor how it is paced.
static gchar** gst_qtts_src_preset_get_property_names(GstPreset* /*preset*/) {
  const std::vector<std::string_view>& names = gstqtts::SettingNames();
  gchar** list = g_new0(gchar*, names.size() + 1);
  for (size_t i = 0; i < names.size(); ++i) list[i] = g_strndup(names[i].data(), names[i].size());
  return list;
}

static void gst_qtts_src_preset_init(GstPresetInterface* iface) {
  iface->get_property_names = gst_qtts_src_preset_get_property_names;
}

// --- states

static qtts::EngineOptions gst_qtts_src_get_engine_options(GstQttsSrc* self) {
  qtts::EngineOptions options;
  {
    const std::lock_guard lock(self->priv->lock);
    options.model_path = self->priv->model_path;
    options.device = self->priv->device;
    options.precision = self->priv->precision;
    options.cuda_device = self->priv->cuda_device_id;
  }
  if (options.model_path.empty()) {
    const gchar* path = g_getenv("QTTS_VOICE_PATH");
    options.model_path = path != nullptr && *path != '\0' ? path : VOICE_DIR;
  }
  return options;
}

static void gst_qtts_src_set_model(GstQttsSrc* self, const std::optional<qtts::EngineOptions>& options,
                                   const std::optional<qtts::ModelInfo>& model) {
  {
    const std::lock_guard lock(self->priv->lock);
    self->priv->inspected = options;
    self->priv->model = model;
  }
  g_object_notify(G_OBJECT(self), "speakers");
  g_object_notify(G_OBJECT(self), "languages");
}

// Looks into the model folder and for the device unless that was done, for early errors and the lists of
// voices. Posts an error on failure.
static gboolean gst_qtts_src_ensure_model(GstQttsSrc* self) {
  const qtts::EngineOptions options = gst_qtts_src_get_engine_options(self);
  const std::string& path = options.model_path;
  {
    const std::lock_guard lock(self->priv->lock);
    if (self->priv->inspected == options) return TRUE;
  }
  // A model that was loaded with other options is of no use any more, and in the way of the new one.
  self->priv->speech.Release();
  auto model = qtts::Engine::Inspect(options);
  qtts::Status status = model.status();
  if (status.ok() && model->sample_rate != SAMPLE_RATE) {
    status = qtts::Status::Unsupported("The model in " + path + " speaks at " + std::to_string(model->sample_rate) +
                                       " Hz; this element needs one of " G_STRINGIFY(SAMPLE_RATE) " Hz.");
  }
  if (!status.ok()) {
    gstqtts::PostError(GST_ELEMENT(self), status, "inspecting the model failed");
    return FALSE;
  }
  GST_INFO_OBJECT(self, "model %s: %s, %zu speakers, %zu languages", path.c_str(),
                  std::string(qtts::ModelTypeName(model->type)).c_str(), model->speakers.size(),
                  model->languages.size());
  gst_qtts_src_set_model(self, options, *model);
  return TRUE;
}

static void gst_qtts_src_post_progress(GstQttsSrc* self, GstProgressType type, const gchar* text) {
  gst_element_post_message(GST_ELEMENT(self), gst_message_new_progress(GST_OBJECT(self), type, "load", text));
}

// With the streaming thread at rest, or in it.
static void gst_qtts_src_drop_frame(GstQttsSrc* self) {
  self->priv->frame.reset();
  self->priv->placed = false;
  self->priv->silence_due = 0;
  self->priv->in_utterance = false;
}

// The stream of sound begins anew. With the streaming thread at rest, or in it.
static void gst_qtts_src_restart(GstQttsSrc* self) {
  gst_qtts_src_drop_frame(self);
  self->priv->timeline.Restart();
  self->priv->shift = 0;
}

static GstStateChangeReturn gst_qtts_src_change_state(GstElement* element, GstStateChange transition) {
  GstQttsSrc* self = GST_QTTS_SRC(element);
  GstQttsSrcPrivate* priv = self->priv;

  switch (transition) {
    case GST_STATE_CHANGE_NULL_TO_READY:
    case GST_STATE_CHANGE_READY_TO_PAUSED:
      // Here rather than in start(), where the base class would add an error of its own.
      if (!gst_qtts_src_ensure_model(self)) return GST_STATE_CHANGE_FAILURE;
      break;
    case GST_STATE_CHANGE_PAUSED_TO_PLAYING:
      priv->clock.SetPlaying(true);
      break;
    case GST_STATE_CHANGE_PLAYING_TO_PAUSED:
      priv->clock.SetPlaying(false);
      break;
    case GST_STATE_CHANGE_PAUSED_TO_READY:
      priv->speech.Halt();
      break;
    default:
      break;
  }

  const GstStateChangeReturn result = GST_ELEMENT_CLASS(parent_class)->change_state(element, transition);

  if (transition == GST_STATE_CHANGE_READY_TO_NULL) {
    priv->speech.Release();
    gst_qtts_src_set_model(self, std::nullopt, std::nullopt);
  }
  return result;
}

static gboolean gst_qtts_src_set_clock(GstElement* element, GstClock* clock) {
  const gboolean result = GST_ELEMENT_CLASS(parent_class)->set_clock(element, clock);
  GST_QTTS_SRC(element)->priv->clock.ClockChanged();
  return result;
}

// On the loader's thread, and not the streaming thread, which a live pipeline in PAUSED does not run.
static void gst_qtts_src_load_ended(GstQttsSrc* self, gstqtts::EngineLoader::Outcome outcome) {
  GstQttsSrcPrivate* priv = self->priv;

  if (outcome.ok()) {
    const std::string device_name = (*outcome)->device_name();
    GST_INFO_OBJECT(self, "model loaded, runs on %s", device_name.c_str());
    {
      const std::lock_guard lock(priv->lock);
      priv->device_name = device_name;
    }
    gst_qtts_src_post_progress(self, GST_PROGRESS_TYPE_COMPLETE, "The model is loaded");
  } else {
    gstqtts::PostError(GST_ELEMENT(self), outcome.status(), "loading the model failed");
    gst_qtts_src_post_progress(self, GST_PROGRESS_TYPE_ERROR, "Loading the model failed");
  }
  priv->speech.UseLoad(std::move(outcome));
}

static gboolean gst_qtts_src_start(GstBaseSrc* src) {
  GstQttsSrc* self = GST_QTTS_SRC(src);
  GstQttsSrcPrivate* priv = self->priv;

  qtts::EngineOptions options;
  {
    const std::lock_guard lock(priv->lock);
    options = priv->inspected.value_or(options);
    std::optional<gstqtts::Utterance> first;
    if (priv->text && !gstqtts::IsBlank(*priv->text)) first = {*priv->text, priv->settings};
    priv->speech.Start(priv->text_options, std::move(first));
    priv->running = true;
    priv->trimmed_samples = priv->underruns = 0;
  }
  gst_qtts_src_restart(self);
  priv->tagged_language.reset();
  priv->warnings.clear();

  if (priv->speech.NeedsLoad(options)) {
    GST_INFO_OBJECT(self, "loading %s", options.model_path.c_str());
    gst_qtts_src_post_progress(self, GST_PROGRESS_TYPE_START, "Loading the model");
    priv->speech.Load(
        options, [self](gstqtts::EngineLoader::Outcome outcome) { gst_qtts_src_load_ended(self, std::move(outcome)); });
  }
  return TRUE;
}

static gboolean gst_qtts_src_stop(GstBaseSrc* src) {
  GstQttsSrc* self = GST_QTTS_SRC(src);
  GstQttsSrcPrivate* priv = self->priv;

  {
    const std::lock_guard lock(priv->lock);
    priv->running = false;
  }
  priv->clock.CancelAlarm();
  if (priv->speech.Stop()) {
    gst_qtts_src_post_progress(self, GST_PROGRESS_TYPE_CANCELED, "Loading the model was canceled");
  }
  return TRUE;
}

static gboolean gst_qtts_src_unlock(GstBaseSrc* src) {
  GST_QTTS_SRC(src)->priv->speech.SetUnlocked(true);
  GST_QTTS_SRC(src)->priv->clock.SetUnlocked(true);
  return TRUE;
}

static gboolean gst_qtts_src_unlock_stop(GstBaseSrc* src) {
  GST_QTTS_SRC(src)->priv->clock.SetUnlocked(false);
  GST_QTTS_SRC(src)->priv->speech.SetUnlocked(false);
  return TRUE;
}

// --- speaking and interrupting

static void gst_qtts_src_report(GstQttsSrc* self, const gstqtts::Report& report) {
  switch (report.kind) {
    case gstqtts::Report::Kind::kStarted:
      GST_DEBUG_OBJECT(self, "utterance %" G_GUINT64_FORMAT ": started at %" GST_TIME_FORMAT, report.id,
                       GST_TIME_ARGS(report.running_time));
      break;
    case gstqtts::Report::Kind::kProgress:
      GST_LOG_OBJECT(self, "utterance %" G_GUINT64_FORMAT ": at character %" G_GSIZE_FORMAT, report.id, report.offset);
      break;
    case gstqtts::Report::Kind::kFinished:
      GST_DEBUG_OBJECT(self,
                       "utterance %" G_GUINT64_FORMAT ": finished, %s, %" G_GUINT64_FORMAT
                       " frames, character %" G_GSIZE_FORMAT " of %" G_GSIZE_FORMAT,
                       report.id, gstqtts::FinishReasonName(report.reason), report.frames, report.spoken_chars,
                       report.text_chars);
      break;
  }
  gst_element_post_message(GST_ELEMENT(self), gstqtts::NewMessage(GST_OBJECT(self), report));
}

static guint64 gst_qtts_src_speak(GstQttsSrc* self, const gchar* text, const GstStructure* params) {
  GstQttsSrcPrivate* priv = self->priv;

  gstqtts::Settings settings;
  {
    const std::lock_guard lock(priv->lock);
    settings = priv->settings;
  }
  std::string error;
  if (!gstqtts::ApplyOverrides(G_OBJECT_GET_CLASS(self), params, &settings, &error)) {
    GST_ELEMENT_WARNING(self, RESOURCE, SETTINGS, ("%s", error.c_str()), ("speak refuses its params"));
    return 0;
  }
  if (text == nullptr || gstqtts::IsBlank(gstqtts::RepairUtf8(text))) {
    GST_WARNING_OBJECT(self, "speak: there is no text");
    return 0;
  }
  guint64 id = 0;
  switch (priv->speech.Offer({text, settings}, &id)) {
    case Speech::Accept::kAccepted:
      GST_DEBUG_OBJECT(self, "utterance %" G_GUINT64_FORMAT ": queued '%s'", id, text);
      break;
    case Speech::Accept::kFull:
      GST_ELEMENT_WARNING(self, RESOURCE, BUSY,
                          ("Too much text is waiting to be spoken; the last one is dropped. Speak more slowly."),
                          ("speak found the queue full"));
      break;
    case Speech::Accept::kFlushing:
      GST_WARNING_OBJECT(self, "speak: the element is below PAUSED, or flushing");
      break;
    case Speech::Accept::kEnded:
      GST_WARNING_OBJECT(self, "speak: the end of the stream was sent");
      break;
  }
  return id;
}

static guint64 gst_qtts_src_interrupt(GstQttsSrc* self) {
  const guint64 frames = self->priv->speech.Interrupt();
  GST_DEBUG_OBJECT(self, "interrupted after %" G_GUINT64_FORMAT " frames", frames);
  return frames;
}

static void gst_qtts_src_clear_queue(GstQttsSrc* self) {
  GST_DEBUG_OBJECT(self, "dropping the text that waits");
  self->priv->speech.ClearQueue();
}

// For the text that comes by the sink pad from now on.
static gboolean gst_qtts_src_set_voice(GstQttsSrc* self, const GstStructure* overrides) {
  GstQttsSrcPrivate* priv = self->priv;

  gstqtts::Settings settings;
  std::string error;
  if (!gstqtts::ApplyOverrides(G_OBJECT_GET_CLASS(self), overrides, &settings, &error)) {
    GST_ELEMENT_WARNING(self, RESOURCE, SETTINGS, ("%s", error.c_str()), ("an event %s is refused", kSetVoiceEvent));
    return FALSE;
  }
  priv->speech.EndUtterance();  // what has come belongs to the voice before
  GST_DEBUG_OBJECT(self, "voice of the following text: %" GST_PTR_FORMAT, static_cast<const void*>(overrides));
  GstStructure* voice = gst_structure_copy(overrides);
  {
    const std::lock_guard lock(priv->lock);
    std::swap(voice, priv->voice);
  }
  if (voice != nullptr) gst_structure_free(voice);
  return TRUE;
}

// The settings of text that comes by the sink pad now.
static gstqtts::Settings gst_qtts_src_get_pad_settings(GstQttsSrc* self) {
  const std::lock_guard lock(self->priv->lock);
  gstqtts::Settings settings = self->priv->settings;
  std::string error;  // none: it was tried when the event came
  gstqtts::ApplyOverrides(G_OBJECT_GET_CLASS(self), self->priv->voice, &settings, &error);
  return settings;
}

// Events sent upstream through the src pad.
static gboolean gst_qtts_src_event(GstBaseSrc* src, GstEvent* event) {
  GstQttsSrc* self = GST_QTTS_SRC(src);

  if (gst_event_has_name(event, kInterruptEvent)) {
    gst_qtts_src_interrupt(self);
    // Whoever makes the text may want to stop as well.
    GstPad* sinkpad = gst_element_get_static_pad(GST_ELEMENT(self), "sink");
    if (sinkpad != nullptr) {
      gst_pad_push_event(sinkpad, gst_event_ref(event));
      gst_object_unref(sinkpad);
    }
    return TRUE;
  }
  if (GST_EVENT_TYPE(event) == GST_EVENT_SEEK) return gst_qtts_src_seek(self, event);
  return GST_BASE_SRC_CLASS(parent_class)->event(src, event);
}

static gboolean gst_qtts_src_query(GstBaseSrc* src, GstQuery* query) {
  GstQttsSrc* self = GST_QTTS_SRC(src);
  GstQttsSrcPrivate* priv = self->priv;

  if (GST_QUERY_TYPE(query) != GST_QUERY_LATENCY) return GST_BASE_SRC_CLASS(parent_class)->query(src, query);

  gboolean live = gst_base_src_is_live(src);
  GstClockTime latency = 0;
  GstPad* sinkpad = nullptr;
  {
    const std::lock_guard lock(priv->lock);
    latency = priv->latency;
    if (priv->sinkpad != nullptr) sinkpad = GST_PAD(gst_object_ref(priv->sinkpad));
  }
  // Time to make speech is no latency of the pipeline: a buffer takes its time when it is there.
  GstClockTime min = live ? latency : 0;
  if (sinkpad != nullptr) {
    GstQuery* upstream = gst_query_new_latency();
    gboolean upstream_live = FALSE;
    GstClockTime upstream_min = 0;
    if (gst_pad_peer_query(sinkpad, upstream)) {
      gst_query_parse_latency(upstream, &upstream_live, &upstream_min, nullptr);
      if (upstream_live) {
        live = TRUE;
        min += upstream_min;
      }
    }
    gst_query_unref(upstream);
    gst_object_unref(sinkpad);
  }
  GST_DEBUG_OBJECT(self, "latency: %s, %" GST_TIME_FORMAT, live ? "live" : "not live", GST_TIME_ARGS(min));
  // No maximum: however long downstream holds a buffer, nothing is lost.
  gst_query_set_latency(query, live, min, GST_CLOCK_TIME_NONE);
  return TRUE;
}

// --- flushes

// With a sink pad it is upstream that can seek, and the flush comes back through the pad. Without one, a flushing
// seek to the beginning speaks the text property again.
static gboolean gst_qtts_src_seek(GstQttsSrc* self, GstEvent* event) {
  GstQttsSrcPrivate* priv = self->priv;

  GstPad* sinkpad = gst_element_get_static_pad(GST_ELEMENT(self), "sink");
  if (sinkpad != nullptr) {
    const gboolean result = gst_pad_push_event(sinkpad, gst_event_ref(event));
    gst_object_unref(sinkpad);
    return result;
  }
  gdouble rate = 0;
  GstFormat format = GST_FORMAT_UNDEFINED;
  GstSeekFlags flags = GST_SEEK_FLAG_NONE;
  GstSeekType start_type = GST_SEEK_TYPE_NONE;
  gint64 start = 0;
  GstSeekType stop_type = GST_SEEK_TYPE_NONE;
  gst_event_parse_seek(event, &rate, &format, &flags, &start_type, &start, &stop_type, nullptr);
  {
    const std::lock_guard lock(priv->lock);
    if (rate != 1.0 || format != GST_FORMAT_TIME || (flags & GST_SEEK_FLAG_FLUSH) == 0 ||
        start_type != GST_SEEK_TYPE_SET || start != 0 || stop_type == GST_SEEK_TYPE_END || !priv->running ||
        !priv->text || gstqtts::IsBlank(*priv->text) || gst_base_src_is_live(GST_BASE_SRC(self))) {
      GST_DEBUG_OBJECT(self, "refusing %" GST_PTR_FORMAT ": only a flushing seek to 0 can be done", event);
      return FALSE;
    }
  }
  const guint32 seqnum = gst_event_get_seqnum(event);
  GstEvent* flush = gst_event_new_flush_start();
  gst_event_set_seqnum(flush, seqnum);
  gst_qtts_src_send_event(GST_ELEMENT(self), flush);
  priv->respeak = true;
  flush = gst_event_new_flush_stop(TRUE);
  gst_event_set_seqnum(flush, seqnum);
  return gst_qtts_src_send_event(GST_ELEMENT(self), flush);
}

static gboolean gst_qtts_src_send_event(GstElement* element, GstEvent* event) {
  GstQttsSrc* self = GST_QTTS_SRC(element);
  GstQttsSrcPrivate* priv = self->priv;

  switch (GST_EVENT_TYPE(event)) {
    case GST_EVENT_FLUSH_START:
      GST_DEBUG_OBJECT(self, "flush: dropping text and speech");
      priv->speech.FlushStart();
      return GST_ELEMENT_CLASS(parent_class)->send_event(element, event);
    case GST_EVENT_FLUSH_STOP: {
      if (!priv->speech.flushing()) {
        GST_DEBUG_OBJECT(self, "ignoring the end of a flush that did not start");
        gst_event_unref(event);
        return FALSE;
      }
      gboolean reset_time = TRUE;
      gst_event_parse_flush_stop(event, &reset_time);
      GstPad* srcpad = GST_BASE_SRC_PAD(self);
      GST_PAD_STREAM_LOCK(srcpad);
      if (reset_time) {
        gst_qtts_src_restart(self);
      } else {
        gst_qtts_src_drop_frame(self);
        priv->timeline.Break();
      }
      priv->speech.FlushStop();
      if (priv->respeak.exchange(false)) gst_qtts_src_speak_property(self);
      const gboolean result = GST_ELEMENT_CLASS(parent_class)->send_event(element, event);
      GST_PAD_STREAM_UNLOCK(srcpad);
      return result;
    }
    case GST_EVENT_SEEK: {
      const gboolean result = gst_qtts_src_seek(self, event);
      gst_event_unref(event);
      return result;
    }
    case GST_EVENT_CUSTOM_UPSTREAM:
    case GST_EVENT_CUSTOM_DOWNSTREAM_OOB:
    case GST_EVENT_CUSTOM_BOTH_OOB:
      if (gst_event_has_name(event, kInterruptEvent)) {
        gst_qtts_src_interrupt(self);
        gst_event_unref(event);
        return TRUE;
      }
      return GST_ELEMENT_CLASS(parent_class)->send_event(element, event);
    default:
      return GST_ELEMENT_CLASS(parent_class)->send_event(element, event);
  }
}

// --- the sink pad

static GstPad* gst_qtts_src_request_new_pad(GstElement* element, GstPadTemplate* templ, const gchar* /*name*/,
                                            const GstCaps* /*caps*/) {
  GstQttsSrc* self = GST_QTTS_SRC(element);
  GstQttsSrcPrivate* priv = self->priv;

  GstPad* pad = gst_pad_new_from_template(templ, "sink");
  gst_pad_set_chain_function(pad, GST_DEBUG_FUNCPTR(gst_qtts_src_chain));
  gst_pad_set_event_function(pad, GST_DEBUG_FUNCPTR(gst_qtts_src_sink_event));
  gst_pad_set_query_function(pad, GST_DEBUG_FUNCPTR(gst_qtts_src_sink_query));
  {
    const std::lock_guard lock(priv->lock);
    if (priv->sinkpad != nullptr) {
      gst_object_unref(gst_object_ref_sink(pad));
      return nullptr;
    }
    priv->sinkpad = pad;
  }
  priv->speech.SetPad(true);
  GST_OBJECT_FLAG_UNSET(self, GST_ELEMENT_FLAG_SOURCE);
  gst_pad_set_active(pad, TRUE);
  gst_element_add_pad(element, pad);
  return pad;
}

static void gst_qtts_src_release_pad(GstElement* element, GstPad* pad) {
  GstQttsSrc* self = GST_QTTS_SRC(element);
  GstQttsSrcPrivate* priv = self->priv;

  priv->speech.SetPad(false);
  gst_pad_set_active(pad, FALSE);
  GST_OBJECT_FLAG_SET(self, GST_ELEMENT_FLAG_SOURCE);
  gst_element_remove_pad(element, pad);
  const std::lock_guard lock(priv->lock);
  priv->sinkpad = nullptr;
}

// When the text of the buffer is meant to be heard, if that is known and to be minded.
static gstqtts::Cue gst_qtts_src_get_cue(GstQttsSrc* self, GstBuffer* buffer) {
  GstQttsSrcPrivate* priv = self->priv;

  gstqtts::Cue cue;
  {
    const std::lock_guard lock(priv->lock);
    if (priv->text_timing == TextTiming::kIgnore) return cue;
    if (priv->text_options.segmentation == gstqtts::Segmentation::kNone) {
      priv->timing_refused = false;
    } else if (std::exchange(priv->timing_refused, true)) {
      return cue;
    }
  }
  if (priv->timing_refused) {
    GST_ELEMENT_WARNING(self, RESOURCE, SETTINGS,
                        ("Timestamps of text are ignored: \"text-timing\" needs \"segmentation\" none."), (nullptr));
    return cue;
  }
  const GstSegment* segment = &priv->text_segment;
  if (segment->format != GST_FORMAT_TIME || !GST_BUFFER_PTS_IS_VALID(buffer)) return cue;
  const GstClockTime start = gst_segment_to_running_time(segment, GST_FORMAT_TIME, GST_BUFFER_PTS(buffer));
  if (!GST_CLOCK_TIME_IS_VALID(start)) return cue;
  cue.start = start;
  if (GST_BUFFER_DURATION_IS_VALID(buffer)) cue.end = start + GST_BUFFER_DURATION(buffer);
  return cue;
}

// No text until the end of the gap.
static void gst_qtts_src_take_gap(GstQttsSrc* self, GstEvent* event) {
  GstQttsSrcPrivate* priv = self->priv;

  priv->speech.EndUtterance();
  {
    const std::lock_guard lock(priv->lock);
    if (priv->text_timing == TextTiming::kIgnore || gst_base_src_is_live(GST_BASE_SRC(self))) return;
  }
  GstClockTime start = GST_CLOCK_TIME_NONE;
  GstClockTime duration = GST_CLOCK_TIME_NONE;
  gst_event_parse_gap(event, &start, &duration);
  if (priv->text_segment.format != GST_FORMAT_TIME || !GST_CLOCK_TIME_IS_VALID(duration)) return;
  const GstClockTime end = gst_segment_to_running_time(&priv->text_segment, GST_FORMAT_TIME, start + duration);
  if (GST_CLOCK_TIME_IS_VALID(end)) priv->speech.PushGap(end);
}

// Whether text comes in real time, so that speech after a pause has to take the time of the moment.
static void gst_qtts_src_ask_upstream(GstQttsSrc* self, GstPad* sinkpad) {
  gboolean live = FALSE;
  GstQuery* query = gst_query_new_latency();
  if (gst_pad_peer_query(sinkpad, query)) gst_query_parse_latency(query, &live, nullptr, nullptr);
  gst_query_unref(query);
  self->priv->upstream_live = live != FALSE;
}

static GstFlowReturn gst_qtts_src_chain(GstPad* /*pad*/, GstObject* parent, GstBuffer* buffer) {
  GstQttsSrc* self = GST_QTTS_SRC(parent);
  GstQttsSrcPrivate* priv = self->priv;

  GstMapInfo map;
  if (!gst_buffer_map(buffer, &map, GST_MAP_READ)) {
    gst_buffer_unref(buffer);
    GST_ELEMENT_ERROR(self, RESOURCE, READ, ("Cannot read a buffer of text."), (nullptr));
    return GST_FLOW_ERROR;
  }
  int repaired = 0;
  const Speech::Accept accept =
      priv->speech.PushChunk({reinterpret_cast<const char*>(map.data), map.size}, gst_qtts_src_get_pad_settings(self),
                             &repaired, gst_qtts_src_get_cue(self, buffer));
  GST_LOG_OBJECT(self, "%" G_GSIZE_FORMAT " bytes of text", map.size);
  gst_buffer_unmap(buffer, &map);
  gst_buffer_unref(buffer);

  if (repaired > 0 && !std::exchange(priv->repair_reported, true)) {
    GST_ELEMENT_WARNING(self, STREAM, DECODE, ("The text is not valid UTF-8; what is invalid is replaced."), (nullptr));
  }
  switch (accept) {
    case Speech::Accept::kAccepted:
      return GST_FLOW_OK;
    case Speech::Accept::kEnded:
      return GST_FLOW_EOS;
    case Speech::Accept::kFull:  // it would have waited
    case Speech::Accept::kFlushing:
      break;
  }
  return GST_FLOW_FLUSHING;
}

static gboolean gst_qtts_src_sink_event(GstPad* pad, GstObject* parent, GstEvent* event) {
  GstQttsSrc* self = GST_QTTS_SRC(parent);
  GstQttsSrcPrivate* priv = self->priv;

  GST_LOG_OBJECT(self, "%" GST_PTR_FORMAT, event);
  switch (GST_EVENT_TYPE(event)) {
    case GST_EVENT_FLUSH_START:
    case GST_EVENT_FLUSH_STOP:
      return gst_qtts_src_send_event(GST_ELEMENT(self), event);
    case GST_EVENT_STREAM_START:
      priv->repair_reported = false;
      priv->speech.BeginText();
      gst_segment_init(&priv->text_segment, GST_FORMAT_UNDEFINED);
      break;
    case GST_EVENT_SEGMENT:
      gst_event_copy_segment(event, &priv->text_segment);
      gst_qtts_src_ask_upstream(self, pad);
      break;
    case GST_EVENT_EOS:
      if (priv->speech.InMidCharacter()) {  // told before the end of the stream
        GST_ELEMENT_WARNING(self, STREAM, DECODE, ("The text ends within a character, which is dropped."), (nullptr));
      }
      priv->speech.EndText();
      break;
    case GST_EVENT_GAP:
      gst_qtts_src_take_gap(self, event);
      break;
    case GST_EVENT_CUSTOM_DOWNSTREAM: {
      if (gst_event_has_name(event, kEndUtteranceEvent)) priv->speech.EndUtterance();
      if (!gst_event_has_name(event, kSetVoiceEvent)) break;
      const gboolean result = gst_qtts_src_set_voice(self, gst_event_get_structure(event));
      gst_event_unref(event);
      return result;
    }
    case GST_EVENT_CUSTOM_DOWNSTREAM_OOB:
    case GST_EVENT_CUSTOM_BOTH_OOB:
      if (gst_event_has_name(event, kInterruptEvent)) gst_qtts_src_interrupt(self);
      return gst_pad_push_event(GST_BASE_SRC_PAD(self), event);
    default:
      // Caps, segments and tags describe the text. The sound has its own.
      break;
  }
  gst_event_unref(event);
  return TRUE;
}

static gboolean gst_qtts_src_sink_query(GstPad* pad, GstObject* parent, GstQuery* query) {
  if (GST_QUERY_TYPE(query) == GST_QUERY_DRAIN)
    return static_cast<gboolean>(GST_QTTS_SRC(parent)->priv->speech.Drain());
  return gst_pad_query_default(pad, parent, query);
}

// --- the src pad

static GstCaps* gst_qtts_src_fixate(GstBaseSrc* src, GstCaps* caps) {
  // The model speaks in floats: 16 bits only for a peer that takes nothing else.
  GstCaps* floats = gst_caps_new_simple("audio/x-raw", "format", G_TYPE_STRING, GST_AUDIO_NE(F32), nullptr);
  GstCaps* preferred = gst_caps_intersect_full(caps, floats, GST_CAPS_INTERSECT_FIRST);
  gst_caps_unref(floats);
  if (gst_caps_is_empty(preferred)) {
    gst_caps_unref(preferred);
  } else {
    gst_caps_unref(caps);
    caps = preferred;
  }
  return GST_BASE_SRC_CLASS(parent_class)->fixate(src, caps);
}

static gboolean gst_qtts_src_set_caps(GstBaseSrc* src, GstCaps* caps) {
  GstAudioInfo info;
  if (!gst_audio_info_from_caps(&info, caps)) return FALSE;
  GST_QTTS_SRC(src)->priv->format = GST_AUDIO_INFO_FORMAT(&info);
  return TRUE;
}

// `pcm` null: silence.
static GstBuffer* gst_qtts_src_new_buffer(GstQttsSrc* self, const float* pcm, gsize samples) {
  GstQttsSrcPrivate* priv = self->priv;
  const bool is_float = priv->format == GST_AUDIO_FORMAT_F32;

  GstAllocator* allocator = nullptr;
  GstAllocationParams params;
  gst_base_src_get_allocator(GST_BASE_SRC(self), &allocator, &params);
  GstBuffer* buffer =
      gst_buffer_new_allocate(allocator, samples * (is_float ? sizeof(float) : sizeof(gint16)), &params);
  if (allocator != nullptr) gst_object_unref(allocator);
  GstMapInfo map;
  if (buffer == nullptr || !gst_buffer_map(buffer, &map, GST_MAP_WRITE)) {
    gst_clear_buffer(&buffer);
    return nullptr;
  }
  if (pcm == nullptr) {
    std::memset(map.data, 0, map.size);
  } else if (is_float) {
    std::memcpy(map.data, pcm, map.size);
  } else {
    gstqtts::ConvertToS16(pcm, samples, reinterpret_cast<gint16*>(map.data));
  }
  gst_buffer_unmap(buffer, &map);
  return buffer;
}

static void gst_qtts_src_stamp(GstBuffer* buffer, const gstqtts::Stamp& stamp) {
  GST_BUFFER_PTS(buffer) = stamp.pts;
  GST_BUFFER_DURATION(buffer) = stamp.duration;
  GST_BUFFER_OFFSET(buffer) = stamp.offset;
  GST_BUFFER_OFFSET_END(buffer) = stamp.offset_end;
  if (stamp.discont) GST_BUFFER_FLAG_SET(buffer, GST_BUFFER_FLAG_DISCONT);
  if (stamp.resync) GST_BUFFER_FLAG_SET(buffer, GST_BUFFER_FLAG_RESYNC);
  if (stamp.silence) GST_BUFFER_FLAG_SET(buffer, GST_BUFFER_FLAG_GAP);
}

// Of the next buffer.
static guint64 gst_qtts_src_next_running_time(GstQttsSrc* self) {
  return gst_segment_to_running_time(&GST_BASE_SRC(self)->segment, GST_FORMAT_TIME, self->priv->timeline.time());
}

// One ERROR, and the end of the stream. Not GST_FLOW_ERROR, to which the base class would add a second
// error that says nothing ("Internal data stream error"); downstream it sends the same end-of-stream.
static GstFlowReturn gst_qtts_src_fail(GstQttsSrc* self, const qtts::Status& status, const char* what) {
  self->priv->speech.Fail();
  gstqtts::PostError(GST_ELEMENT(self), status, what);
  return GST_FLOW_EOS;
}

// An utterance could not be spoken. From the sink pad others may follow, which are not lost for it.
static GstFlowReturn gst_qtts_src_fail_utterance(GstQttsSrc* self, const Speech::Output& output, const char* what) {
  if (!output.from_pad || gstqtts::ConcernsAllUtterances(output.status)) {
    return gst_qtts_src_fail(self, output.status, what);
  }
  gstqtts::PostWarning(GST_ELEMENT(self), output.status, what);
  return GST_FLOW_OK;
}

static void gst_qtts_src_utterance_started(GstQttsSrc* self, const Speech::Output& output) {
  GstQttsSrcPrivate* priv = self->priv;

  GST_DEBUG_OBJECT(self, "the engine took an utterance, seed %" G_GUINT64_FORMAT, output.seed);
  // Once for a row of utterances with the same settings.
  if (output.warnings == priv->warnings) return;
  priv->warnings = output.warnings;
  for (const std::string& warning : output.warnings) {
    gst_element_message_full(GST_ELEMENT(self), GST_MESSAGE_WARNING, GST_RESOURCE_ERROR, GST_RESOURCE_ERROR_SETTINGS,
                             g_strdup(warning.c_str()), nullptr, __FILE__, GST_FUNCTION, __LINE__);
  }
}

static GstFlowReturn gst_qtts_src_utterance_ended(GstQttsSrc* self, const Speech::Output& output) {
  if (output.end_reason == qtts::EndReason::kError) {
    return gst_qtts_src_fail_utterance(self, output, "speaking failed");
  }
  if (output.end_reason == qtts::EndReason::kMaxDuration) {
    GST_ELEMENT_WARNING(
        self, RESOURCE, SETTINGS,
        ("The speech was cut at the longest duration allowed. Raise max-duration, or say less at once."), (nullptr));
  }
  if (output.end_reason == qtts::EndReason::kRunaway) {
    GST_ELEMENT_WARNING(self, STREAM, FAILED,
                        ("The model missed the end of its text, and was stopped. Another seed will most likely do; "
                         "runaway-guard=false lets it go on."),
                        (nullptr));
  }
  return GST_FLOW_OK;
}

static GstFlowReturn gst_qtts_src_no_buffer(GstQttsSrc* self) {
  return gst_qtts_src_fail(self, qtts::Status::ResourceExhausted("Cannot allocate a buffer for a frame of sound."),
                           "no buffer");
}

// Cuts leading silence off a frame of speech where that is asked for. False if nothing is left of it.
static bool gst_qtts_src_trim(GstQttsSrc* self, std::vector<float>* pcm) {
  const size_t cut = self->priv->trimmer.Trim(pcm);
  if (cut > 0) {
    const std::lock_guard lock(self->priv->lock);
    self->priv->trimmed_samples += cut;
  }
  return !pcm->empty();
}

// Tells about speech that came too late for its place in a live stream, by `jitter`.
static void gst_qtts_src_report_underrun(GstQttsSrc* self, GstClockTimeDiff jitter) {
  GstQttsSrcPrivate* priv = self->priv;

  guint64 underruns = 0;
  {
    const std::lock_guard lock(priv->lock);
    underruns = ++priv->underruns;
  }
  const GstClockTime time = priv->timeline.time();
  GstMessage* message = gst_message_new_qos(GST_OBJECT(self), TRUE, gst_qtts_src_next_running_time(self), time, time,
                                            GST_CLOCK_TIME_NONE);
  gst_message_set_qos_values(message, jitter, 1.0, 0);
  gst_element_post_message(GST_ELEMENT(self), message);
  if (underruns == 1) {
    GST_ELEMENT_WARNING(
        self, RESOURCE, BUSY,
        ("Speech is made more slowly than it is heard: there are gaps in it. Run the model on a GPU, use "
         "a smaller one, speak fewer streams at once, or raise \"latency\"."),
        ("%" GST_TIME_FORMAT " too late", GST_TIME_ARGS(jitter)));
  } else {
    GST_INFO_OBJECT(self, "underrun %" G_GUINT64_FORMAT ", %" GST_TIME_FORMAT " too late", underruns,
                    GST_TIME_ARGS(jitter));
  }
}

// Finds the place of the next frame of speech, which is there: moves the timeline of a live stream on if the frame
// is too late for where that is, and notes the silence that has to come before the frame. False if it was
// interrupted.
static bool gst_qtts_src_place_frame(GstQttsSrc* self) {
  GstQttsSrcPrivate* priv = self->priv;

  GstClockTime latency = 0;
  GstClockTime leading = 0;
  GstClockTime gap = 0;
  TextTiming timing = TextTiming::kIgnore;
  {
    const std::lock_guard lock(priv->lock);
    latency = priv->latency;
    leading = priv->leading_silence;
    gap = priv->utterance_gap;
    timing = priv->text_timing;
  }
  const bool live = gst_base_src_is_live(GST_BASE_SRC(self));
  GstClockTime lag = 0;
  if (live || priv->upstream_live) {
    std::optional<GstClockTime> running_time;
    if (!priv->clock.WaitForNow(&running_time)) return false;
    const GstClockTime now = running_time.value_or(0);
    const GstClockTime time = priv->timeline.time();
    // Silence that flows up to here leaves no pause to move in, but for one that nobody filled in time.
    GstClockTime tolerance = 0;
    if (priv->in_utterance) {
      tolerance = kLateTolerance;
    } else if (live && gst_qtts_src_get_idle_mode(self) == IdleMode::kSilence) {
      tolerance = kSilenceTolerance;
    }
    const bool late = now > time + latency + tolerance;
    if (live && late && priv->in_utterance && !priv->frame->awaited_text && priv->speech.WaitsForEngine())
      gst_qtts_src_report_underrun(self, GST_CLOCK_DIFF(time, now));
    if (late || priv->timeline.broken()) {
      priv->timeline.MoveTo(now);
    } else if (now > time + latency + kLateTolerance / 2) {
      lag = now - time - latency;
    }
  }
  priv->placed = true;
  priv->silence_due = 0;
  if (priv->in_utterance) return true;
  // The silence before it goes on for as long as the speech is late, so that all of the speech is on time.
  priv->silence_due = gstqtts::SamplesWithin(lag, SAMPLE_RATE);
  if (timing != TextTiming::kIgnore && priv->cue.start) {
    const GstClockTime start = *priv->cue.start + (timing == TextTiming::kShift ? priv->shift : 0);
    const GstClockTime time = priv->timeline.time();
    if (time > start) {
      if (timing == TextTiming::kShift) priv->shift += time - start;
    } else if (live && gst_qtts_src_get_idle_mode(self) != IdleMode::kSilence) {
      priv->timeline.MoveTo(start);
    } else {
      priv->silence_due = std::max(priv->silence_due, gstqtts::SamplesWithin(start - time, SAMPLE_RATE));
    }
  }
  priv->silence_due = std::max(priv->silence_due, priv->timeline.MissingSilence(leading, gap));
  return true;
}

// Cuts a frame of speech that is placed where its cue ends, if it has to be minded. False if nothing is left of it.
static bool gst_qtts_src_clip(GstQttsSrc* self, std::vector<float>* pcm) {
  GstQttsSrcPrivate* priv = self->priv;

  {
    const std::lock_guard lock(priv->lock);
    if (priv->text_timing != TextTiming::kClip || !priv->cue.end) return true;
  }
  const GstClockTime time = priv->timeline.time() + gstqtts::SampleTime(priv->silence_due, SAMPLE_RATE);
  const guint64 left = *priv->cue.end > time ? gstqtts::SamplesWithin(*priv->cue.end - time, SAMPLE_RATE) : 0;
  if (left >= pcm->size()) return true;
  pcm->resize(left);
  const size_t fade = std::min(kFade, pcm->size());
  for (size_t i = 0; i < fade; ++i) (*pcm)[pcm->size() - 1 - i] *= static_cast<float>(i) / static_cast<float>(fade);
  return !pcm->empty();
}

// Waits for the next frame of speech and keeps it in `frame`. Without one when it is time for silence.
static GstFlowReturn gst_qtts_src_next_frame(GstQttsSrc* self) {
  GstQttsSrcPrivate* priv = self->priv;

  Speech::Output output;
  GstFlowReturn flow = GST_FLOW_OK;
  while (flow == GST_FLOW_OK) {
    switch (priv->speech.Next(&output)) {
      case Speech::Event::kStarted: {
        gst_qtts_src_utterance_started(self, output);
        priv->in_utterance = false;
        priv->cue = output.cue;
        priv->language = output.language;
        const std::lock_guard lock(priv->lock);
        if (priv->trim_leading_silence) priv->trimmer.Restart();
        break;
      }
      case Speech::Event::kFrame:
        if (!gst_qtts_src_trim(self, &output.frame.pcm)) break;
        priv->frame = std::move(output);
        return GST_FLOW_OK;
      case Speech::Event::kGap:
        if (output.cue.start.value_or(0) > priv->timeline.time()) {
          priv->silence_due = gstqtts::SamplesWithin(*output.cue.start - priv->timeline.time(), SAMPLE_RATE);
          return GST_FLOW_OK;
        }
        break;
      case Speech::Event::kEnded:
        priv->in_utterance = false;
        flow = gst_qtts_src_utterance_ended(self, output);
        break;
      case Speech::Event::kRefused:
        flow = gst_qtts_src_fail_utterance(self, output, "the engine refused an utterance");
        break;
      case Speech::Event::kLoadFailed:
        return GST_FLOW_EOS;
      case Speech::Event::kEndOfText:
        GST_DEBUG_OBJECT(self, "everything is spoken");
        return GST_FLOW_EOS;
      case Speech::Event::kIdle:
      case Speech::Event::kWoken:
        return GST_FLOW_OK;
      case Speech::Event::kHalted:
        return GST_FLOW_FLUSHING;
    }
  }
  return flow;
}

// Tags go out before the first speech and where the language changes.
static void gst_qtts_src_update_tags(GstQttsSrc* self) {
  GstQttsSrcPrivate* priv = self->priv;

  if (priv->tagged_language == priv->language) return;
  priv->tagged_language = priv->language;
  GstTagList* tags = gst_tag_list_new(GST_TAG_COMMENT, "Synthetic speech", nullptr);
  gst_tag_list_set_scope(tags, GST_TAG_SCOPE_STREAM);
  const std::string code = gstqtts::LanguageCode(priv->language);
  if (!code.empty()) gst_tag_list_add(tags, GST_TAG_MERGE_REPLACE, GST_TAG_LANGUAGE_CODE, code.c_str(), nullptr);
  GST_ELEMENT_CLASS(parent_class)->send_event(GST_ELEMENT(self), gst_event_new_tag(tags));
}

// Until the time of the next buffer, when live. False if the wait was interrupted.
static bool gst_qtts_src_wait(GstQttsSrc* self) {
  if (!gst_base_src_is_live(GST_BASE_SRC(self))) return true;
  return self->priv->clock.WaitUntil(gst_qtts_src_next_running_time(self));
}

// Silence that was not taken in time is not handed out late: a live stream moves on. False if it was interrupted.
static bool gst_qtts_src_catch_up(GstQttsSrc* self) {
  GstQttsSrcPrivate* priv = self->priv;

  if (!gst_base_src_is_live(GST_BASE_SRC(self))) return true;
  std::optional<GstClockTime> now;
  if (!priv->clock.WaitForNow(&now)) return false;
  GstClockTime latency = 0;
  {
    const std::lock_guard lock(priv->lock);
    latency = priv->latency;
  }
  if (now && *now > priv->timeline.time() + latency + kSilenceTolerance) priv->timeline.MoveTo(*now);
  return true;
}

static GstFlowReturn gst_qtts_src_create_silence(GstQttsSrc* self, guint64 samples, GstBuffer** buffer) {
  GstQttsSrcPrivate* priv = self->priv;

  if (!gst_qtts_src_wait(self)) return GST_FLOW_FLUSHING;
  if (!gst_qtts_src_catch_up(self)) return GST_FLOW_FLUSHING;
  *buffer = gst_qtts_src_new_buffer(self, nullptr, samples);
  if (*buffer == nullptr) return gst_qtts_src_no_buffer(self);
  gst_qtts_src_stamp(*buffer, priv->timeline.Silence(samples));
  GST_LOG_OBJECT(self, "silence: %" GST_PTR_FORMAT, static_cast<void*>(*buffer));
  return GST_FLOW_OK;
}

// For how long silence waits for a frame of speech that goes on.
static GstClockTime gst_qtts_src_get_grace(GstQttsSrc* self) {
  GstQttsSrcPrivate* priv = self->priv;

  if (!priv->in_utterance) return 0;
  const std::lock_guard lock(priv->lock);
  return priv->latency + kLateTolerance;
}

static GstFlowReturn gst_qtts_src_create(GstPushSrc* src, GstBuffer** buffer) {
  GstQttsSrc* self = GST_QTTS_SRC(src);
  GstQttsSrcPrivate* priv = self->priv;
  const bool live = gst_base_src_is_live(GST_BASE_SRC(self));

  for (;;) {
    if (!priv->frame && priv->silence_due == 0) {
      priv->speech.ClearWake();  // before the mode is read: its changes wake
      const bool fill = gst_qtts_src_get_idle_mode(self) == IdleMode::kSilence;
      if (fill && live) {
        std::optional<GstClockTime> now;
        if (!priv->clock.WaitForNow(&now)) return GST_FLOW_FLUSHING;
        if (priv->timeline.broken()) priv->timeline.MoveTo(now.value_or(0));
        priv->clock.SetAlarm(gst_qtts_src_next_running_time(self) + gst_qtts_src_get_grace(self), priv->wake);
      }
      const GstFlowReturn flow = gst_qtts_src_next_frame(self);
      priv->clock.CancelAlarm();
      if (flow != GST_FLOW_OK) return flow;
      if (!priv->frame && priv->silence_due == 0) {
        if (!fill) continue;  // woken by a change of the mode
        if (std::exchange(priv->in_utterance, false) && priv->speech.WaitsForEngine())
          gst_qtts_src_report_underrun(self, 0);
        return gst_qtts_src_create_silence(self, kSilencePiece, buffer);
      }
    }

    if (priv->frame && !priv->placed) {
      if (!gst_qtts_src_place_frame(self)) return GST_FLOW_FLUSHING;
      if (!gst_qtts_src_clip(self, &priv->frame->frame.pcm)) {
        priv->speech.Clip();
        gst_qtts_src_drop_frame(self);
        continue;
      }
    }

    // An interrupted wait leaves the frame where it is: not a frame is lost when a live stream is paused.
    if (priv->silence_due > 0 && (!priv->frame || priv->speech.WouldCommit())) {
      const guint64 samples = std::min(priv->silence_due, live ? kSilencePiece : SAMPLE_RATE);
      const GstFlowReturn flow = gst_qtts_src_create_silence(self, samples, buffer);
      if (flow == GST_FLOW_OK) priv->silence_due -= samples;
      return flow;
    }
    if (!gst_qtts_src_wait(self)) return GST_FLOW_FLUSHING;
    const Speech::Output frame = std::move(*priv->frame);
    gst_qtts_src_drop_frame(self);
    if (!priv->speech.Commit(frame, gst_qtts_src_next_running_time(self))) continue;  // it was interrupted
    const std::vector<float>& pcm = frame.frame.pcm;
    *buffer = gst_qtts_src_new_buffer(self, pcm.data(), pcm.size());
    if (*buffer == nullptr) return gst_qtts_src_no_buffer(self);
    gst_qtts_src_update_tags(self);
    gst_qtts_src_stamp(*buffer, priv->timeline.Speech(pcm.size()));
    GST_LOG_OBJECT(self, "speech: %" GST_PTR_FORMAT, static_cast<void*>(*buffer));
    priv->in_utterance = true;
    return GST_FLOW_OK;
  }
}
