// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gstqttsinput.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "gstqttserror.h"
#include "gstqttsoverrides.h"
#include "qtts/resources.h"

using gstqtts::Intake;
using gstqtts::TextTiming;

#define GST_CAT_DEFAULT gst_qtts_src_debug

static constexpr gchar kSetVoiceEvent[] = "qtts/set-voice";
static constexpr gchar kEndUtteranceEvent[] = "qtts/end-utterance";

// `voice` may be null; it is taken.
static void gst_qtts_src_take_voice(GstQttsSrc* self, GstStructure* voice) {
  {
    const std::lock_guard lock(self->priv->lock);
    std::swap(voice, self->priv->voice);
  }
  if (voice != nullptr) {
    gst_structure_free(voice);
  }
}

void gst_qtts_src_reset_voice(GstQttsSrc* self) { gst_qtts_src_take_voice(self, nullptr); }

// For the text that comes by the sink pad from now on.
static gboolean gst_qtts_src_set_voice(GstQttsSrc* self, const GstStructure* overrides) {
  GstQttsSrcPrivate* priv = self->priv;

  gstqtts::Settings settings;
  bool streams = false;
  {
    const std::lock_guard lock(priv->lock);
    settings = priv->properties.utterance;
    streams = priv->properties.text_options.segmentation == gstqtts::Segmentation::kStream;
  }
  qtts::Status status = gst_qtts_src_override_settings(self, overrides, &settings);
  if (status.ok() && streams && settings.layout == qtts::PromptLayout::kNonStreaming) {
    status = qtts::Status::InvalidArgument(
        "\"layout\" non-streaming needs the whole text, which \"segmentation\" stream has not. Leave the layout "
        "alone.");
  }
  if (!status.ok()) {
    GST_ELEMENT_WARNING(self, RESOURCE, SETTINGS, ("%s", status.message().c_str()),
                        ("an event %s is refused", kSetVoiceEvent));
    return FALSE;
  }
  priv->speech.intake().EndUtterance();  // what has come belongs to the voice before
  GST_DEBUG_OBJECT(self, "voice of the following text: %" GST_PTR_FORMAT, static_cast<const void*>(overrides));
  gst_qtts_src_take_voice(self, gst_structure_copy(overrides));
  return TRUE;
}

// The settings of text that comes by the sink pad now.
static gstqtts::Settings gst_qtts_src_get_pad_settings(GstQttsSrc* self) {
  const std::lock_guard lock(self->priv->lock);
  gstqtts::Settings settings = self->priv->properties.utterance;
  std::string error;  // none: it was tried when the event came
  gstqtts::ApplyOverrides(G_OBJECT_GET_CLASS(self), self->priv->voice, &settings, &error);
  return settings;
}

// The part of a buffer's time that lies in upstream's segment, as far as the two are known. False if none does.
static bool gst_qtts_src_clip_text(GstQttsSrc* self, GstBuffer* buffer, GstClockTime* start, GstClockTime* stop) {
  const GstSegment* segment = &self->priv->text_segment;
  if (segment->format != GST_FORMAT_TIME || !GST_BUFFER_PTS_IS_VALID(buffer)) return true;
  if (GST_BUFFER_DURATION_IS_VALID(buffer)) *stop = GST_BUFFER_PTS(buffer) + GST_BUFFER_DURATION(buffer);
  guint64 clipped_start = 0;
  guint64 clipped_stop = 0;
  if (!gst_segment_clip(segment, GST_FORMAT_TIME, GST_BUFFER_PTS(buffer), *stop, &clipped_start, &clipped_stop)) {
    return false;
  }
  *start = clipped_start;
  *stop = clipped_stop;
  return true;
}

// When text with this time is meant to be heard, if that is known and to be minded.
static gstqtts::Cue gst_qtts_src_get_cue(GstQttsSrc* self, GstClockTime start, GstClockTime stop) {
  GstQttsSrcPrivate* priv = self->priv;

  gstqtts::Cue cue;
  {
    const std::lock_guard lock(priv->lock);
    if (priv->properties.pacing.text_timing == TextTiming::kIgnore) return cue;
    const gstqtts::Segmentation segmentation = priv->properties.text_options.segmentation;
    if (segmentation == gstqtts::Segmentation::kNone || segmentation == gstqtts::Segmentation::kAuto) {
      priv->timing_refused = false;
    } else if (std::exchange(priv->timing_refused, true)) {
      return cue;
    }
  }
  if (priv->timing_refused) {
    GST_ELEMENT_WARNING(self, RESOURCE, SETTINGS,
                        ("Timestamps of text are ignored: \"text-timing\" needs \"segmentation\" auto or none."),
                        (nullptr));
    return cue;
  }
  const auto running_time = [priv](GstClockTime time) -> std::optional<uint64_t> {
    const GstClockTime running = gst_segment_to_running_time(&priv->text_segment, GST_FORMAT_TIME, time);
    return GST_CLOCK_TIME_IS_VALID(running) ? std::optional<uint64_t>(running) : std::nullopt;
  };
  if (GST_CLOCK_TIME_IS_VALID(start)) cue.start = running_time(start);
  if (cue.start && GST_CLOCK_TIME_IS_VALID(stop)) cue.end = running_time(stop);
  return cue;
}

// No text until the end of the gap.
static void gst_qtts_src_take_gap(GstQttsSrc* self, GstEvent* event) {
  GstQttsSrcPrivate* priv = self->priv;

  priv->speech.intake().EndUtterance();
  {
    const std::lock_guard lock(priv->lock);
    if (priv->properties.pacing.text_timing == TextTiming::kIgnore || gst_base_src_is_live(GST_BASE_SRC(self))) return;
  }
  GstClockTime start = GST_CLOCK_TIME_NONE;
  GstClockTime duration = GST_CLOCK_TIME_NONE;
  gst_event_parse_gap(event, &start, &duration);
  if (priv->text_segment.format != GST_FORMAT_TIME || !GST_CLOCK_TIME_IS_VALID(duration)) return;
  const GstClockTime stop = std::min(start + duration, priv->text_segment.stop);  // which may be GST_CLOCK_TIME_NONE
  const GstClockTime end = gst_segment_to_running_time(&priv->text_segment, GST_FORMAT_TIME, stop);
  if (GST_CLOCK_TIME_IS_VALID(end)) priv->speech.intake().PushGap(end);
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

  GstClockTime start = GST_CLOCK_TIME_NONE;
  GstClockTime stop = GST_CLOCK_TIME_NONE;
  if (!gst_qtts_src_clip_text(self, buffer, &start, &stop)) {
    GST_DEBUG_OBJECT(self, "dropping text outside the segment: %" GST_PTR_FORMAT, static_cast<void*>(buffer));
    gst_buffer_unref(buffer);
    return GST_FLOW_OK;
  }
  GstMapInfo map;
  if (!gst_buffer_map(buffer, &map, GST_MAP_READ)) {
    gst_buffer_unref(buffer);
    GST_ELEMENT_ERROR(self, RESOURCE, READ, ("Cannot read a buffer of text."), (nullptr));
    return GST_FLOW_ERROR;
  }
  int repaired = 0;
  Intake::Accept accept = Intake::Accept::kFlushing;
  const qtts::Status status = qtts::CatchExhaustion("take the text", [&] {
    accept = priv->speech.intake().PushChunk({reinterpret_cast<const char*>(map.data), map.size},
                                             gst_qtts_src_get_pad_settings(self), &repaired,
                                             gst_qtts_src_get_cue(self, start, stop));
    return qtts::Status::Ok();
  });
  GST_LOG_OBJECT(self, "%" G_GSIZE_FORMAT " bytes of text", map.size);
  gst_buffer_unmap(buffer, &map);
  gst_buffer_unref(buffer);

  if (!status.ok()) {
    gstqtts::PostError(GST_ELEMENT(self), status, "memory ran out");
    return GST_FLOW_ERROR;
  }
  if (repaired > 0 && !std::exchange(priv->repair_reported, true)) {
    GST_ELEMENT_WARNING(self, STREAM, DECODE, ("The text is not valid UTF-8; what is invalid is replaced."), (nullptr));
  }
  switch (accept) {
    case Intake::Accept::kAccepted:
      return GST_FLOW_OK;
    case Intake::Accept::kEnded:
      return GST_FLOW_EOS;
    case Intake::Accept::kFull:  // it would have waited
    case Intake::Accept::kFlushing:
      break;
  }
  return GST_FLOW_FLUSHING;
}

// A serialized one. Ours end here; others, and an interrupt, go on in order with the sound.
static gboolean gst_qtts_src_take_custom_event(GstQttsSrc* self, GstEvent* event) {
  GstQttsSrcPrivate* priv = self->priv;
  const std::shared_ptr<void> owned(event, [](void* taken) { gst_event_unref(static_cast<GstEvent*>(taken)); });

  if (gst_event_has_name(event, kEndUtteranceEvent)) {
    priv->speech.intake().EndUtterance();
    return TRUE;
  }
  if (gst_event_has_name(event, kSetVoiceEvent)) return gst_qtts_src_set_voice(self, gst_event_get_structure(event));
  if (gst_event_has_name(event, kInterruptEvent)) gst_qtts_src_interrupt(self);
  return static_cast<gboolean>(priv->speech.intake().PushEvent(owned));
}

static gboolean gst_qtts_src_sink_event(GstPad* pad, GstObject* parent, GstEvent* event) {
  GstQttsSrc* self = GST_QTTS_SRC(parent);
  GstQttsSrcPrivate* priv = self->priv;

  GST_LOG_OBJECT(self, "%" GST_PTR_FORMAT, event);
  switch (GST_EVENT_TYPE(event)) {
    case GST_EVENT_FLUSH_START:
    case GST_EVENT_FLUSH_STOP:
      // Not gst_element_send_event(): whoever holds the state lock may be waiting for this pad.
      return GST_ELEMENT_GET_CLASS(self)->send_event(GST_ELEMENT(self), event);
    case GST_EVENT_STREAM_START:
      priv->repair_reported = false;
      gst_qtts_src_reset_voice(self);
      priv->speech.intake().BeginText();
      gst_segment_init(&priv->text_segment, GST_FORMAT_UNDEFINED);
      break;
    case GST_EVENT_SEGMENT:
      gst_event_copy_segment(event, &priv->text_segment);
      priv->speech.intake().BeginSegment(priv->text_segment.format == GST_FORMAT_BYTES);
      gst_qtts_src_ask_upstream(self, pad);
      break;
    case GST_EVENT_EOS:
      if (priv->speech.intake().InMidCharacter()) {  // told before the end of the stream
        GST_ELEMENT_WARNING(self, STREAM, DECODE, ("The text ends within a character, which is dropped."), (nullptr));
      }
      priv->speech.intake().EndText();
      break;
    case GST_EVENT_GAP:
      gst_qtts_src_take_gap(self, event);
      break;
    case GST_EVENT_CUSTOM_DOWNSTREAM:
    case GST_EVENT_CUSTOM_DOWNSTREAM_STICKY:
    case GST_EVENT_CUSTOM_BOTH:
      return gst_qtts_src_take_custom_event(self, event);
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
    return static_cast<gboolean>(GST_QTTS_SRC(parent)->priv->speech.intake().Drain());
  return gst_pad_query_default(pad, parent, query);
}

GstPad* gst_qtts_src_request_new_pad(GstElement* element, GstPadTemplate* templ, const gchar* /*name*/,
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
  priv->speech.intake().SetPad(true);
  gst_pad_set_active(pad, TRUE);
  gst_element_add_pad(element, pad);
  return pad;
}

void gst_qtts_src_release_pad(GstElement* element, GstPad* pad) {
  GstQttsSrc* self = GST_QTTS_SRC(element);
  GstQttsSrcPrivate* priv = self->priv;

  priv->speech.intake().SetPad(false);
  gst_pad_set_active(pad, FALSE);
  gst_qtts_src_reset_voice(self);
  priv->upstream_live = false;
  gst_element_remove_pad(element, pad);
  const std::lock_guard lock(priv->lock);
  priv->sinkpad = nullptr;
}
