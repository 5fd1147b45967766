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
 * to say, #GstQttsSrc:idle-mode decides: `silence` (the default then) sends pieces of 20 ms,
 * with timestamps that go on without a break, and speech begins at the end of the piece during which it became
 * ready; `wait` sends nothing, and the next utterance begins at the running time of the moment, as a discontinuity.
 * A pause of the pipeline loses no frame. When speech is generated more slowly than real time, the frame that is late
 * starts at the running time of the moment; this is told by a QOS message, counted in #GstQttsSrc:stats, and the
 * first time a warning.
 *
 * ## Timed text
 *
 * Subtitles say when they are meant to be heard. With #GstQttsSrc:text-timing other than `ignore` (and
 * #GstQttsSrc:segmentation `auto` or `none`), each buffer's timestamp, mapped to running time by upstream's segment, is
 * when its speech starts; silence fills the time before it, and GAP events of upstream too. Speech that is
 * longer than its time makes the next start late (`start`), moves all that follow (`shift`), is cut (`clip`, with a
 * fade of 5 ms) or spoken faster (`compress`, up to #GstQttsSrc:max-compression).
 *
 * A seek goes upstream when there is a sink pad. Without one, a seek to 0 at rate 1 speaks #GstQttsSrc:text again, with
 * or without a flush, up to the stop that it sets, and as a segment if it asks for that; the seeking query tells the
 * range 0 to 0. Other seeks are refused, and so are all when live.
 *
 * ## The end
 *
 * An end-of-stream from upstream comes after all text before it. One that is sent to the element or the pipeline, as by
 * gst-launch-1.0 -e, lets the utterance that is being heard come to its end and drops what waits.
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
 * them for the text that follows, until the next such event, a flush, a new stream (stream-start), the release of the
 * pad or READY; without fields the properties hold again |
 * | `qtts/end-utterance` | downstream, serialized, into the sink pad | ends the sentence or the growing utterance that
 * has begun, as a gap event does too |
 * | `rstranscribe/speaker-change` | downstream, serialized, into the sink pad | the voice that #GstQttsSrc:speaker-map
 * gives to its field `speaker` holds over all that for the text that follows; the event goes on downstream |
 *
 * ## Messages
 *
 * Every utterance that was accepted ends with one `qtts-utterance-finished`, even if it was dropped before it
 * began. Numbers are guint64; times are in nanoseconds, positions in characters (Unicode code points).
 *
 * | element message | fields |
 * |---|---|
 * | `qtts-utterance-started` | `id`, `text`, `text-offset` (characters of a document before it), `running-time` of its
 * first frame, `first-frame-latency` from handing the text to the engine to that frame, `seed` (gint64) |
 * | `qtts-mark` | `id`, `name`, `position` of a mark of an SSML document (#GstQttsSrc:markup) in that document,
 * `running-time` at which it is reached |
 * | `qtts-text-progress` | `id`, `offset-chars` and `length-chars` of the word that begins, its `running-time` and
 * `duration`, `estimated` (FALSE if the model's words are measured) |
 * | `qtts-utterance-finished` | `id`, `reason` (string: complete, interrupted, clipped, error, max-duration, runaway,
 * nothing-to-say, busy), `frames` and `samples` that left the element, their `duration`, the `cue-duration` and how
 * `late` it began, `text-chars`, `text-spoken-chars`, `estimated`
 * (whether that is), `retries` (guint), `measured` (gboolean); if TRUE, `coverage` (gdouble), `skipped` and `repeated`
 * (GStrv) with their positions `skipped-chars` and `repeated-chars`, `end-missed` and `stopped-early` (gboolean) |
 *
 * A text in which there is nothing to say (no letter, number or currency sign) is not given to the model, which would
 * babble: it is finished without sound, for the reason `nothing-to-say`, unless #GstQttsSrc:speak-anything is set.
 *
 * Words are measured where the attention of the model follows its text, as that of the bundled voice does. Otherwise
 * positions are estimated from the length of the speech, the kinds of characters and the pace of the voice so far. They
 * never go back and never leave the text.
 *
 * ## Text
 *
 * Request pads `text_%u` send the words that are spoken, or sentences or subtitles (#GstQttsTextPad:granularity), as a
 * sparse stream of text on the clock of the sound, for textoverlay, webvttenc, muxers and the like. A pad that is not
 * linked, blocks or fails does not stop the sound.
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
// feeds the text queue; all sound still leaves by the base class' task.

#include "gstqttssrc.h"

#include <gst/audio/audio.h>

#include <atomic>
#include <memory>

#include "config.h"
#include "gstqttsclock.h"
#include "gstqttscontrol.h"
#include "gstqttserror.h"
#include "gstqttsguard.h"
#include "gstqttsinput.h"
#include "gstqttslimits.h"
#include "gstqttslog.h"
#include "gstqttsmessages.h"
#include "gstqttsmodel.h"
#include "gstqttsoutput.h"
#include "gstqttspcm.h"
#include "gstqttspresets.h"
#include "gstqttsproperties.h"
#include "gstqttsspeech.h"
#include "gstqttstextpad.h"
#include "gstqttstextpads.h"

GST_DEBUG_CATEGORY(gst_qtts_src_debug);
#define GST_CAT_DEFAULT gst_qtts_src_debug

// The parts of the element.
struct GstQttsSrcPrivate {
  explicit GstQttsSrcPrivate(GstQttsSrc* self);

  gstqtts::Speech speech;
  gstqtts::LiveClock clock;
  gstqtts::ElementModel model;
  gstqtts::ElementProperties properties;
  gstqtts::Input input;
  gstqtts::TextPads text_pads;
  gstqtts::Output output;
  gstqtts::Control control;

  // The thread that takes the element from PLAYING to PAUSED: see gst_qtts_src_unlock().
  std::atomic<GThread*> pausing_thread = nullptr;
  std::atomic<bool> error_posted = false;  // since the element was started
};

struct _GstQttsSrc {
  GstPushSrc parent;

  GstQttsSrcPrivate* priv;
};

// Formats in order of preference: GstBaseSrc takes the first one that downstream's most preferred caps allow. 16 bits
// come first, since everything takes them and files usually have them; downstream may ask for float.
static GstStaticPadTemplate src_template =
    GST_STATIC_PAD_TEMPLATE("src", GST_PAD_SRC, GST_PAD_ALWAYS,
                            GST_STATIC_CAPS("audio/x-raw, format = { " GST_AUDIO_NE(S16) ", " GST_AUDIO_NE(
                                F32) " }, "
                                     "layout = interleaved, rate = " G_STRINGIFY(SAMPLE_RATE) ", channels = 1"));

static GstStaticPadTemplate sink_template = GST_STATIC_PAD_TEMPLATE(
    "sink", GST_PAD_SINK, GST_PAD_REQUEST, GST_STATIC_CAPS("text/x-raw, format = utf8; application/ssml+xml"));

static GstStaticPadTemplate text_template =
    GST_STATIC_PAD_TEMPLATE("text_%u", GST_PAD_SRC, GST_PAD_REQUEST, GST_STATIC_CAPS("text/x-raw, format = utf8"));

static void gst_qtts_src_set_property(GObject* object, guint prop_id, const GValue* value, GParamSpec* pspec);
static void gst_qtts_src_get_property(GObject* object, guint prop_id, GValue* value, GParamSpec* pspec);
static void gst_qtts_src_finalize(GObject* object);
static gboolean gst_qtts_src_is_seekable(GstBaseSrc* src);
static gboolean gst_qtts_src_do_seek(GstBaseSrc* src, GstSegment* segment);

static GstStateChangeReturn gst_qtts_src_change_state(GstElement* element, GstStateChange transition);
static GstPad* gst_qtts_src_request_new_pad(GstElement* element, GstPadTemplate* templ, const gchar* name,
                                            const GstCaps* caps);
static void gst_qtts_src_release_pad(GstElement* element, GstPad* pad);
static gboolean gst_qtts_src_set_clock(GstElement* element, GstClock* clock);
static gboolean gst_qtts_src_post_message(GstElement* element, GstMessage* message);
static gboolean gst_qtts_src_send_event(GstElement* element, GstEvent* event);
static guint64 gst_qtts_src_speak(GstQttsSrc* self, const gchar* text, const GstStructure* params);
static guint64 gst_qtts_src_interrupt(GstQttsSrc* self);
static void gst_qtts_src_clear_queue(GstQttsSrc* self);
static gint64 gst_qtts_src_count_tokens(GstQttsSrc* self, const gchar* text);

static gboolean gst_qtts_src_set_caps(GstBaseSrc* src, GstCaps* caps);
static gboolean gst_qtts_src_start(GstBaseSrc* src);
static gboolean gst_qtts_src_stop(GstBaseSrc* src);
static gboolean gst_qtts_src_unlock(GstBaseSrc* src);
static gboolean gst_qtts_src_unlock_stop(GstBaseSrc* src);
static gboolean gst_qtts_src_event(GstBaseSrc* src, GstEvent* event);
static gboolean gst_qtts_src_query(GstBaseSrc* src, GstQuery* query);
static GstFlowReturn gst_qtts_src_create(GstPushSrc* src, GstBuffer** buffer);

static void gst_qtts_src_child_proxy_init(gpointer iface, gpointer data);

#define gst_qtts_src_parent_class parent_class
G_DEFINE_FINAL_TYPE_WITH_CODE(GstQttsSrc, gst_qtts_src, GST_TYPE_PUSH_SRC,
                              G_IMPLEMENT_INTERFACE(GST_TYPE_PRESET, gst_qtts_src_preset_init)
                                  G_IMPLEMENT_INTERFACE(GST_TYPE_CHILD_PROXY, gst_qtts_src_child_proxy_init))
GST_ELEMENT_REGISTER_DEFINE_WITH_CODE(qttssrc, "qttssrc", GST_RANK_NONE, GST_TYPE_QTTS_SRC,
                                      GST_DEBUG_CATEGORY_INIT(gst_qtts_src_debug, "qttssrc", 0,
                                                              "Text-to-speech source");
                                      gstqtts::InitEngineLog())

static void gst_qtts_src_install_signals(GstQttsSrcClass* klass) {
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
   * text is blank, or a setting is unknown, of a wrong type, out of range or nothing that the model has. The log
   * says why, and so does a warning message where the application can mend it.
   *
   * Since: 0.1
   */
  g_signal_new_class_handler("speak", G_TYPE_FROM_CLASS(klass),
                             static_cast<GSignalFlags>(G_SIGNAL_RUN_LAST | G_SIGNAL_ACTION),
                             G_CALLBACK((gstqtts::Guarded<gst_qtts_src_speak, guint64{0}>::Call)), nullptr, nullptr,
                             nullptr, G_TYPE_UINT64, 2, G_TYPE_STRING, GST_TYPE_STRUCTURE);
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
                             G_CALLBACK((gstqtts::Guarded<gst_qtts_src_interrupt, guint64{0}>::Call)), nullptr, nullptr,
                             nullptr, G_TYPE_UINT64, 0);
  /**
   * GstQttsSrc::clear-queue:
   * @qttssrc: the element
   *
   * Drops the text that waits. The utterance that is being spoken goes on.
   *
   * Since: 0.1
   */
  g_signal_new_class_handler(
      "clear-queue", G_TYPE_FROM_CLASS(klass), static_cast<GSignalFlags>(G_SIGNAL_RUN_LAST | G_SIGNAL_ACTION),
      G_CALLBACK(gstqtts::Guarded<gst_qtts_src_clear_queue>::Call), nullptr, nullptr, nullptr, G_TYPE_NONE, 0);
  /**
   * GstQttsSrc::count-tokens:
   * @qttssrc: the element
   * @text: a text
   *
   * Counts the tokens of a text, without speaking it: for applications that limit what others may ask for. The model
   * reads them all before it speaks; a text of rare characters has several tokens a character.
   *
   * Returns: the number of tokens; -1 before the model is loaded, and for a text of more than 64 KiB
   *
   * Since: 0.1
   */
  g_signal_new_class_handler("count-tokens", G_TYPE_FROM_CLASS(klass),
                             static_cast<GSignalFlags>(G_SIGNAL_RUN_LAST | G_SIGNAL_ACTION),
                             G_CALLBACK((gstqtts::Guarded<gst_qtts_src_count_tokens, gint64{-1}>::Call)), nullptr,
                             nullptr, nullptr, G_TYPE_INT64, 1, G_TYPE_STRING);
}

static void gst_qtts_src_class_init(GstQttsSrcClass* klass) {
  GObjectClass* object_class = G_OBJECT_CLASS(klass);
  GstElementClass* element_class = GST_ELEMENT_CLASS(klass);
  GstBaseSrcClass* basesrc_class = GST_BASE_SRC_CLASS(klass);
  GstPushSrcClass* pushsrc_class = GST_PUSH_SRC_CLASS(klass);
  object_class->finalize = gst_qtts_src_finalize;
  object_class->set_property = gstqtts::Guarded<gst_qtts_src_set_property>::Call;
  object_class->get_property = gstqtts::Guarded<gst_qtts_src_get_property>::Call;
  gstqtts::ElementProperties::Install(object_class);

  gst_qtts_src_install_signals(klass);

  element_class->change_state = gstqtts::Guarded<gst_qtts_src_change_state, GST_STATE_CHANGE_FAILURE>::Call;
  element_class->set_clock = GST_DEBUG_FUNCPTR(gst_qtts_src_set_clock);
  element_class->post_message = GST_DEBUG_FUNCPTR(gst_qtts_src_post_message);
  element_class->send_event = gstqtts::Guarded<gst_qtts_src_send_event, FALSE>::Call;
  element_class->request_new_pad = GST_DEBUG_FUNCPTR(gst_qtts_src_request_new_pad);
  element_class->release_pad = GST_DEBUG_FUNCPTR(gst_qtts_src_release_pad);
  gst_element_class_add_static_pad_template(element_class, &src_template);
  gst_element_class_add_static_pad_template(element_class, &sink_template);
  gst_element_class_add_static_pad_template_with_gtype(element_class, &text_template, GST_TYPE_QTTS_TEXT_PAD);
  gst_type_mark_as_plugin_api(GST_TYPE_QTTS_TEXT_PAD, static_cast<GstPluginAPIFlags>(0));
  gst_element_class_set_static_metadata(element_class, "Qwen3-TTS text-to-speech source", "Source/Audio",
                                        "Speaks text with a Qwen3-TTS model", "The qttssrc authors");

  basesrc_class->set_caps = GST_DEBUG_FUNCPTR(gst_qtts_src_set_caps);
  basesrc_class->start = gstqtts::Guarded<gst_qtts_src_start, FALSE>::Call;
  basesrc_class->stop = gstqtts::Guarded<gst_qtts_src_stop, FALSE>::Call;
  basesrc_class->unlock = GST_DEBUG_FUNCPTR(gst_qtts_src_unlock);
  basesrc_class->is_seekable = gstqtts::Guarded<gst_qtts_src_is_seekable, FALSE>::Call;
  basesrc_class->do_seek = gstqtts::Guarded<gst_qtts_src_do_seek, FALSE>::Call;
  basesrc_class->event = gstqtts::Guarded<gst_qtts_src_event, FALSE>::Call;
  basesrc_class->query = GST_DEBUG_FUNCPTR(gst_qtts_src_query);
  basesrc_class->unlock_stop = GST_DEBUG_FUNCPTR(gst_qtts_src_unlock_stop);

  pushsrc_class->create = gstqtts::Guarded<gst_qtts_src_create, GST_FLOW_ERROR>::Call;
}

GstQttsSrcPrivate::GstQttsSrcPrivate(GstQttsSrc* self)
    : speech([self](const gstqtts::Report& report) { gstqtts::PostReport(GST_ELEMENT(self), report); },
             [self] { return std::shared_ptr<void>(gst_object_ref(self), gst_object_unref); }),
      clock(GST_ELEMENT(self)),
      model(GST_ELEMENT(self), speech),
      properties(GST_BASE_SRC(self), speech, model),
      input(GST_ELEMENT(self), speech, properties, [this] { control.Interrupt(); }),
      text_pads(GST_BASE_SRC(self)),
      output(GST_BASE_SRC(self), speech, clock, properties, model, input, text_pads),
      control(GST_BASE_SRC(self), GST_ELEMENT_CLASS(parent_class), speech, clock, properties, input, output) {}

static GstPadProbeReturn gst_qtts_src_on_sound(GstPad* /*pad*/, GstPadProbeInfo* info, gpointer user_data) {
  GstQttsSrc* self = GST_QTTS_SRC(user_data);
  if ((GST_PAD_PROBE_INFO_TYPE(info) & GST_PAD_PROBE_TYPE_BUFFER) != 0) {
    gstqtts::RunGuarded(GST_ELEMENT(self), [self] { self->priv->output.BufferTaken(); });
    return GST_PAD_PROBE_OK;
  }
  GstEvent* event = GST_PAD_PROBE_INFO_EVENT(info);
  if (GST_EVENT_TYPE(event) == GST_EVENT_EOS) self->priv->speech.EndSound();
  gstqtts::RunGuarded(GST_ELEMENT(self), [self, event] { self->priv->text_pads.TakeEvent(event); });
  return GST_PAD_PROBE_OK;
}

static void gst_qtts_src_init(GstQttsSrc* self) {
  self->priv = new GstQttsSrcPrivate(self);
  gst_base_src_set_format(GST_BASE_SRC(self), GST_FORMAT_TIME);
  // Buffers: they are not handed out again. The end of the sound, be it by downstream: text that comes later has
  // nowhere to go. The text pads mirror the events.
  gst_pad_add_probe(GST_BASE_SRC_PAD(self),
                    static_cast<GstPadProbeType>(GST_PAD_PROBE_TYPE_BUFFER | GST_PAD_PROBE_TYPE_EVENT_DOWNSTREAM |
                                                 GST_PAD_PROBE_TYPE_EVENT_FLUSH),
                    gst_qtts_src_on_sound, self, nullptr);
}

static void gst_qtts_src_finalize(GObject* object) {
  GstQttsSrcPrivate* priv = GST_QTTS_SRC(object)->priv;
  delete priv;

  G_OBJECT_CLASS(parent_class)->finalize(object);
}

// --- states

static GstStateChangeReturn gst_qtts_src_change_state(GstElement* element, GstStateChange transition) {
  GstQttsSrc* self = GST_QTTS_SRC(element);
  GstQttsSrcPrivate* priv = self->priv;

  switch (transition) {
    case GST_STATE_CHANGE_NULL_TO_READY:
    case GST_STATE_CHANGE_READY_TO_PAUSED:
      priv->error_posted = false;
      if (const qtts::Status status =
              transition == GST_STATE_CHANGE_NULL_TO_READY ? gstqtts::CheckDescriptors() : gstqtts::CheckThreads();
          !status.ok()) {
        gstqtts::PostError(element, status, "a limit is too low");
        return GST_STATE_CHANGE_FAILURE;
      }
      // Here rather than in start(), where the base class would add an error of its own.
      if (const qtts::Status status = priv->properties.CheckRun();
          transition == GST_STATE_CHANGE_READY_TO_PAUSED && !status.ok()) {
        gstqtts::PostError(element, status, "the settings contradict each other");
        return GST_STATE_CHANGE_FAILURE;
      }
      if (!priv->model.Inspect(priv->properties.engine())) return GST_STATE_CHANGE_FAILURE;
      break;
    case GST_STATE_CHANGE_PAUSED_TO_PLAYING:
      priv->clock.SetPlaying(true);
      break;
    case GST_STATE_CHANGE_PLAYING_TO_PAUSED:
      priv->clock.SetPlaying(false);
      priv->pausing_thread = g_thread_self();
      break;
    case GST_STATE_CHANGE_PAUSED_TO_READY:
      priv->speech.Halt();
      break;
    default:
      break;
  }

  const GstStateChangeReturn result = GST_ELEMENT_CLASS(parent_class)->change_state(element, transition);

  priv->pausing_thread = nullptr;
  if (transition == GST_STATE_CHANGE_READY_TO_PAUSED && result != GST_STATE_CHANGE_FAILURE) priv->model.Load();
  if (transition == GST_STATE_CHANGE_READY_TO_NULL) priv->model.Forget();
  return result;
}

static gboolean gst_qtts_src_set_clock(GstElement* element, GstClock* clock) {
  const gboolean result = GST_ELEMENT_CLASS(parent_class)->set_clock(element, clock);
  GST_QTTS_SRC(element)->priv->clock.ClockChanged();
  return result;
}

// Drops the base class's own error for GST_FLOW_ERROR ("Internal data stream error"), which follows the real one and
// has no information.
static gboolean gst_qtts_src_post_message(GstElement* element, GstMessage* message) {
  if (GST_MESSAGE_TYPE(message) == GST_MESSAGE_ERROR && GST_QTTS_SRC(element)->priv->error_posted.exchange(true)) {
    GST_DEBUG_OBJECT(element, "another error: %" GST_PTR_FORMAT, static_cast<void*>(message));
    gst_message_unref(message);
    return TRUE;
  }
  return GST_ELEMENT_CLASS(parent_class)->post_message(element, message);
}

static gboolean gst_qtts_src_start(GstBaseSrc* src) {
  GstQttsSrc* self = GST_QTTS_SRC(src);
  GstQttsSrcPrivate* priv = self->priv;

  priv->properties.BeginRun();
  priv->text_pads.SetRunning(true);
  priv->input.Restart();
  priv->output.Begin();
  // The old model goes before the streaming thread may ask for one; the new one comes by Load().
  priv->model.ReleaseOther();
  return TRUE;
}

static gboolean gst_qtts_src_stop(GstBaseSrc* src) {
  GstQttsSrcPrivate* priv = GST_QTTS_SRC(src)->priv;

  priv->properties.EndRun();
  priv->clock.CancelAlarm();
  priv->text_pads.SetRunning(false);
  priv->output.End();
  priv->control.DropEndOfStream();
  priv->model.EndRun(priv->speech.Stop());
  return TRUE;
}

// Since 1.24 GstBaseSrc also calls this when a live source pauses. Such a call must not make create() return: if
// PLAYING follows before the streaming thread is back in the base class, the base class finds itself playing, takes the
// GST_FLOW_FLUSHING for a flush and pauses its task, which nothing starts again. A pause needs no unlocking here:
// LiveClock knows of it, and create() may wait through it, as it does with 1.22.
static gboolean gst_qtts_src_unlock(GstBaseSrc* src) {
  GstQttsSrcPrivate* priv = GST_QTTS_SRC(src)->priv;
  if (priv->pausing_thread == g_thread_self()) return TRUE;
  priv->speech.SetUnlocked(true);
  priv->clock.SetUnlocked(true);
  return TRUE;
}

// Since 1.24 also called before the first create() after a pause, where it may end an unlock() that was for something
// else: see Control::IsUnlocked().
static gboolean gst_qtts_src_unlock_stop(GstBaseSrc* src) {
  GST_QTTS_SRC(src)->priv->clock.SetUnlocked(false);
  GST_QTTS_SRC(src)->priv->speech.SetUnlocked(false);
  return TRUE;
}

// --- speaking and interrupting

static guint64 gst_qtts_src_speak(GstQttsSrc* self, const gchar* text, const GstStructure* params) {
  return self->priv->properties.Speak(text, params);
}

static guint64 gst_qtts_src_interrupt(GstQttsSrc* self) { return self->priv->control.Interrupt(); }

static void gst_qtts_src_clear_queue(GstQttsSrc* self) {
  GST_DEBUG_OBJECT(self, "dropping the text that waits");
  self->priv->speech.ClearQueue();
}

static gint64 gst_qtts_src_count_tokens(GstQttsSrc* self, const gchar* text) {
  const qtts::Result<size_t> count = self->priv->speech.CountTokens(text != nullptr ? text : "");
  return count.ok() ? static_cast<gint64>(*count) : -1;
}

// --- events, seeks and queries

static gboolean gst_qtts_src_send_event(GstElement* element, GstEvent* event) {
  return GST_QTTS_SRC(element)->priv->control.SendEvent(event);
}

// Handles events sent upstream through the src pad.
static gboolean gst_qtts_src_event(GstBaseSrc* src, GstEvent* event) {
  gboolean result = FALSE;
  if (GST_QTTS_SRC(src)->priv->control.TakeUpstreamEvent(event, &result)) return result;
  return GST_BASE_SRC_CLASS(parent_class)->event(src, event);
}

static gboolean gst_qtts_src_is_seekable(GstBaseSrc* src) {
  return static_cast<gboolean>(GST_QTTS_SRC(src)->priv->control.CanSpeakAgain());
}

// Called for every seek that Control lets pass and, as GstBaseSrc has it, when the element starts.
static gboolean gst_qtts_src_do_seek(GstBaseSrc* src, GstSegment* segment) {
  GST_QTTS_SRC(src)->priv->control.DoSeek();
  return GST_BASE_SRC_CLASS(parent_class)->do_seek(src, segment);
}

static gboolean gst_qtts_src_query(GstBaseSrc* src, GstQuery* query) {
  GstQttsSrcPrivate* priv = GST_QTTS_SRC(src)->priv;

  if (GST_QUERY_TYPE(query) == GST_QUERY_SEEKING) {
    priv->control.AnswerSeeking(query);
    return TRUE;
  }
  if (GST_QUERY_TYPE(query) != GST_QUERY_LATENCY) return GST_BASE_SRC_CLASS(parent_class)->query(src, query);

  gboolean live = gst_base_src_is_live(src);
  const GstClockTime latency = priv->properties.pacing().latency;
  // Time to make speech is no latency of the pipeline: a buffer takes its time when it is there.
  GstClockTime min = live ? latency : 0;
  if (const auto upstream = priv->input.AskLiveLatency()) {
    live = TRUE;
    min += *upstream;
  }
  GST_DEBUG_OBJECT(src, "latency: %s, %" GST_TIME_FORMAT, live ? "live" : "not live", GST_TIME_ARGS(min));
  // No maximum: however long downstream holds a buffer, nothing is lost.
  gst_query_set_latency(query, live, min, GST_CLOCK_TIME_NONE);
  return TRUE;
}

// --- caps

static gboolean gst_qtts_src_set_caps(GstBaseSrc* src, GstCaps* caps) {
  GstAudioInfo info;
  if (!gst_audio_info_from_caps(&info, caps)) return FALSE;
  GST_QTTS_SRC(src)->priv->output.SetFormat(GST_AUDIO_INFO_FORMAT(&info));
  return TRUE;
}

// --- the streaming thread

static GstFlowReturn gst_qtts_src_create(GstPushSrc* src, GstBuffer** buffer) {
  GstQttsSrcPrivate* priv = GST_QTTS_SRC(src)->priv;

  if (priv->control.IsUnlocked()) return GST_FLOW_FLUSHING;
  const bool ended = priv->output.ended();
  const GstFlowReturn flow = priv->output.Create(buffer);
  if (flow == GST_FLOW_EOS && !ended) priv->control.TextEnded();
  return flow;
}

// --- request pads and properties

static GstPad* gst_qtts_src_request_new_pad(GstElement* element, GstPadTemplate* templ, const gchar* name,
                                            const GstCaps* /*caps*/) {
  GstQttsSrcPrivate* priv = GST_QTTS_SRC(element)->priv;
  if (GST_PAD_TEMPLATE_DIRECTION(templ) == GST_PAD_SINK) return priv->input.RequestPad(templ);
  GstPad* pad = nullptr;
  gstqtts::RunGuarded(element, [&] { pad = priv->text_pads.RequestPad(templ, name); });
  return pad;
}

static void gst_qtts_src_release_pad(GstElement* element, GstPad* pad) {
  GstQttsSrcPrivate* priv = GST_QTTS_SRC(element)->priv;
  if (GST_PAD_IS_SINK(pad)) {
    priv->input.ReleasePad(pad);
  } else {
    priv->text_pads.ReleasePad(pad);
  }
}

static GObject* gst_qtts_src_get_child_by_index(GstChildProxy* proxy, guint index) {
  return GST_QTTS_SRC(proxy)->priv->text_pads.RefChild(index);
}

static guint gst_qtts_src_get_children_count(GstChildProxy* proxy) {
  return GST_QTTS_SRC(proxy)->priv->text_pads.children();
}

static void gst_qtts_src_child_proxy_init(gpointer iface, gpointer /*data*/) {
  auto* child_proxy = static_cast<GstChildProxyInterface*>(iface);
  child_proxy->get_child_by_index = gst_qtts_src_get_child_by_index;
  child_proxy->get_children_count = gst_qtts_src_get_children_count;
}

static void gst_qtts_src_set_property(GObject* object, guint prop_id, const GValue* value, GParamSpec* /*pspec*/) {
  GST_QTTS_SRC(object)->priv->properties.Set(prop_id, value);
}

static void gst_qtts_src_get_property(GObject* object, guint prop_id, GValue* value, GParamSpec* /*pspec*/) {
  GST_QTTS_SRC(object)->priv->properties.Get(prop_id, value);
}
