// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gstqttsinput.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "gstqttsguard.h"
#include "gstqttslog.h"
#include "gstqttsmetas.h"
#include "gstqttsspeakermap.h"

#define GST_CAT_DEFAULT gst_qtts_src_debug

namespace gstqtts {

static constexpr gchar kSetVoiceEvent[] = "qtts/set-voice";
static constexpr gchar kEndUtteranceEvent[] = "qtts/end-utterance";

// Ends the text so far, and with it a document.
void Input::EndUtterance() {
  speech_.intake().EndUtterance();
  properties_.WarnOfMarkup();
}

// Returns the settings of the text that comes now: its caps may say what it is.
Settings Input::TextSettings() const {
  Settings settings = properties_.PadSettings();
  if (ssml_ && settings.markup == qtts::Markup::kAuto) settings.markup = qtts::Markup::kSsml;
  return settings;
}

void Input::TakeCaps(GstEvent* event) {
  GstCaps* caps = nullptr;
  gst_event_parse_caps(event, &caps);
  const GstStructure* format = gst_caps_get_structure(caps, 0);
  ssml_ = gst_structure_has_name(format, "application/ssml+xml") != FALSE;
}

// Takes the voice of the text that comes by the sink pad from now on.
gboolean Input::TakeVoice(const GstStructure* overrides) {
  Settings settings;
  const bool streams = properties_.segmentation() == Segmentation::kStream;
  qtts::Status status = properties_.OverridePad(overrides, &settings);
  if (status.ok() && streams && settings.layout == qtts::PromptLayout::kNonStreaming) {
    status = qtts::Status::InvalidArgument(
        "\"layout\" non-streaming needs the whole text, which \"segmentation\" stream does not have. Leave the layout "
        "alone.");
  }
  if (!status.ok()) {
    GST_ELEMENT_WARNING(element_, RESOURCE, SETTINGS, ("%s", status.message().c_str()),
                        ("an event %s is refused", kSetVoiceEvent));
    return FALSE;
  }
  EndUtterance();  // earlier text belongs to the voice before
  GST_DEBUG_OBJECT(element_, "voice of the following text: %" GST_PTR_FORMAT, static_cast<const void*>(overrides));
  properties_.SetVoice(gst_structure_copy(overrides));
  return TRUE;
}

// Takes the speaker of the text that comes now, another speaker of a transcript.
void Input::TakeSpeaker(const GstStructure* change) {
  if (properties_.maps_speakers()) EndUtterance();  // earlier text belongs to the speaker before
  const gchar* name = gst_structure_get_string(change, "speaker");
  GST_DEBUG_OBJECT(element_, "speaker of the transcript: %s", GST_STR_NULL(name));
  const qtts::Status status = properties_.SetTranscriptSpeaker(name);
  if (status.ok()) return;
  GST_ELEMENT_WARNING(element_, RESOURCE, SETTINGS, ("%s", status.message().c_str()),
                      ("the text is spoken with the voice of the properties"));
}

// Clips a buffer's time to upstream's segment, as far as both are known. Returns false if nothing is left.
bool Input::ClipText(GstBuffer* buffer, GstClockTime* start, GstClockTime* stop) const {
  const GstSegment* segment = &segment_;
  if (segment->format != GST_FORMAT_TIME || !GST_BUFFER_PTS_IS_VALID(buffer)) return true;
  if (GST_BUFFER_DURATION_IS_VALID(buffer)) {
    // A sum that is no time is unknown.
    if (!g_uint64_checked_add(stop, GST_BUFFER_PTS(buffer), GST_BUFFER_DURATION(buffer))) *stop = GST_CLOCK_TIME_NONE;
  }
  guint64 clipped_start = 0;
  guint64 clipped_stop = 0;
  if (!gst_segment_clip(segment, GST_FORMAT_TIME, GST_BUFFER_PTS(buffer), *stop, &clipped_start, &clipped_stop)) {
    return false;
  }
  *start = clipped_start;
  *stop = clipped_stop;
  return true;
}

// Returns the time at which text with this time is to be heard; none if unknown or ignored.
Cue Input::CueOf(GstClockTime start, GstClockTime stop) {
  Cue cue;
  if (properties_.pacing().text_timing == TextTiming::kIgnore) return cue;
  const Segmentation segmentation = properties_.segmentation();
  if (segmentation == Segmentation::kNone || segmentation == Segmentation::kAuto) {
    timing_refused_ = false;
  } else {
    if (std::exchange(timing_refused_, true)) return cue;
    GST_ELEMENT_WARNING(element_, RESOURCE, SETTINGS,
                        ("Timestamps of text are ignored: \"text-timing\" needs \"segmentation\" auto or none."),
                        (nullptr));
    return cue;
  }
  const auto running_time = [this](GstClockTime time) -> std::optional<uint64_t> {
    const GstClockTime running = gst_segment_to_running_time(&segment_, GST_FORMAT_TIME, time);
    return GST_CLOCK_TIME_IS_VALID(running) ? std::optional<uint64_t>(running) : std::nullopt;
  };
  if (GST_CLOCK_TIME_IS_VALID(start)) cue.start = running_time(start);
  if (cue.start && GST_CLOCK_TIME_IS_VALID(stop)) cue.end = running_time(stop);
  return cue;
}

// Takes a gap: no text comes until the end of the gap.
void Input::TakeGap(GstEvent* event) {
  EndUtterance();
  const Pacing pacing = properties_.pacing();
  if (pacing.text_timing == TextTiming::kIgnore || pacing.is_live) return;
  GstClockTime start = GST_CLOCK_TIME_NONE;
  GstClockTime duration = GST_CLOCK_TIME_NONE;
  gst_event_parse_gap(event, &start, &duration);
  if (segment_.format != GST_FORMAT_TIME || !GST_CLOCK_TIME_IS_VALID(duration)) return;
  const GstClockTime stop = std::min(start + duration, segment_.stop);  // which may be GST_CLOCK_TIME_NONE
  const GstClockTime end = gst_segment_to_running_time(&segment_, GST_FORMAT_TIME, stop);
  if (GST_CLOCK_TIME_IS_VALID(end)) speech_.intake().PushGap(end);
}

// Returns the latency of a live source at the other end of the pad.
static std::optional<GstClockTime> LiveLatencyOf(GstPad* pad) {
  gboolean live = FALSE;
  GstClockTime min = 0;
  GstQuery* query = gst_query_new_latency();
  if (gst_pad_peer_query(pad, query)) gst_query_parse_latency(query, &live, &min, nullptr);
  gst_query_unref(query);
  return live ? std::optional<GstClockTime>(min) : std::nullopt;
}

std::optional<GstClockTime> Input::AskLiveLatency() const {
  GstPad* pad = RefPad();
  if (pad == nullptr) return std::nullopt;
  const std::optional<GstClockTime> latency = LiveLatencyOf(pad);
  gst_object_unref(pad);
  return latency;
}

GstFlowReturn Input::Chain(GstBuffer* buffer) {
  GstClockTime start = GST_CLOCK_TIME_NONE;
  GstClockTime stop = GST_CLOCK_TIME_NONE;
  if (!ClipText(buffer, &start, &stop)) {
    GST_DEBUG_OBJECT(element_, "dropping text outside the segment: %" GST_PTR_FORMAT, static_cast<void*>(buffer));
    gst_buffer_unref(buffer);
    return GST_FLOW_OK;
  }
  GstMapInfo map;
  if (!gst_buffer_map(buffer, &map, GST_MAP_READ)) {
    gst_buffer_unref(buffer);
    GST_ELEMENT_ERROR(element_, RESOURCE, READ, ("Cannot read a buffer of text."), (nullptr));
    return GST_FLOW_ERROR;
  }
  int repaired = 0;
  Intake::Accept accept = Intake::Accept::kFlushing;
  const bool taken = RunGuarded(element_, [&] {
    accept = speech_.intake().PushChunk({reinterpret_cast<const char*>(map.data), map.size}, TextSettings(), &repaired,
                                        CueOf(start, stop), {KeptMetas(buffer), IsAccumulatedSentence(buffer)});
  });
  GST_LOG_OBJECT(element_, "%" G_GSIZE_FORMAT " bytes of text", map.size);
  gst_buffer_unmap(buffer, &map);
  gst_buffer_unref(buffer);

  if (!taken) return GST_FLOW_ERROR;
  properties_.WarnOfMarkup();
  if (repaired > 0 && !std::exchange(repair_reported_, true)) {
    GST_ELEMENT_WARNING(element_, STREAM, DECODE, ("The text is not valid UTF-8; invalid bytes are replaced."),
                        (nullptr));
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

// Takes a serialized one. Ours end here; others, and an interrupt, go on in order with the sound.
gboolean Input::TakeCustomEvent(GstEvent* event) {
  const std::shared_ptr<void> owned(event, [](void* taken) { gst_event_unref(static_cast<GstEvent*>(taken)); });

  if (gst_event_has_name(event, kEndUtteranceEvent)) {
    EndUtterance();
    return TRUE;
  }
  if (gst_event_has_name(event, kSetVoiceEvent)) return TakeVoice(gst_event_get_structure(event));
  if (gst_event_has_name(event, kSpeakerChangeEvent)) TakeSpeaker(gst_event_get_structure(event));
  if (gst_event_has_name(event, kInterruptEvent)) interrupt_();
  return static_cast<gboolean>(speech_.intake().PushEvent(owned));
}

gboolean Input::TakeEvent(GstPad* pad, GstEvent* event) {
  GST_LOG_OBJECT(element_, "%" GST_PTR_FORMAT, event);
  std::unique_ptr<GstEvent, void (*)(GstEvent*)> owned(event, gst_event_unref);
  switch (GST_EVENT_TYPE(event)) {
    case GST_EVENT_FLUSH_START:
    case GST_EVENT_FLUSH_STOP:
      // Not gst_element_send_event(): the holder of the state lock may be waiting for this pad.
      return GST_ELEMENT_GET_CLASS(element_)->send_event(element_, owned.release());
    case GST_EVENT_STREAM_START:
      repair_reported_ = false;
      properties_.SetVoice(nullptr);
      speech_.intake().BeginText();
      properties_.WarnOfMarkup();
      ssml_ = false;
      gst_segment_init(&segment_, GST_FORMAT_UNDEFINED);
      break;
    case GST_EVENT_SEGMENT:
      gst_event_copy_segment(event, &segment_);
      speech_.intake().BeginSegment(segment_.format == GST_FORMAT_BYTES);
      upstream_live_ = LiveLatencyOf(pad).has_value();
      break;
    case GST_EVENT_EOS:
      if (speech_.intake().InMidCharacter()) {  // told before the end of the stream
        GST_ELEMENT_WARNING(element_, STREAM, DECODE, ("The text ends within a character, which is dropped."),
                            (nullptr));
      }
      speech_.intake().EndText();
      properties_.WarnOfMarkup();
      break;
    case GST_EVENT_GAP:
      TakeGap(event);
      break;
    case GST_EVENT_CAPS:
      TakeCaps(event);
      break;
    case GST_EVENT_CUSTOM_DOWNSTREAM:
    case GST_EVENT_CUSTOM_DOWNSTREAM_STICKY:
    case GST_EVENT_CUSTOM_BOTH:
      return TakeCustomEvent(owned.release());
    case GST_EVENT_CUSTOM_DOWNSTREAM_OOB:
    case GST_EVENT_CUSTOM_BOTH_OOB:
      if (gst_event_has_name(event, kInterruptEvent)) interrupt_();
      return gst_pad_push_event(GST_BASE_SRC_PAD(element_), owned.release());
    default:
      // Tags and the like describe the text. The sound has its own.
      break;
  }
  return TRUE;
}

GstFlowReturn Input::OnBuffer(GstPad* pad, GstObject* /*parent*/, GstBuffer* buffer) { return Of(pad)->Chain(buffer); }

gboolean Input::OnEvent(GstPad* pad, GstObject* /*parent*/, GstEvent* event) {
  Input* input = Of(pad);
  gboolean taken = FALSE;
  RunGuarded(input->element_, [&] { taken = input->TakeEvent(pad, event); });
  return taken;
}

gboolean Input::OnQuery(GstPad* pad, GstObject* parent, GstQuery* query) {
  if (GST_QUERY_TYPE(query) != GST_QUERY_DRAIN) return gst_pad_query_default(pad, parent, query);
  Input* input = Of(pad);
  bool drained = false;
  RunGuarded(input->element_, [&] { drained = input->speech_.intake().Drain(); });
  return static_cast<gboolean>(drained);
}

GstPad* Input::RequestPad(GstPadTemplate* templ) {
  GstPad* pad = gst_pad_new_from_template(templ, "sink");
  gst_pad_set_element_private(pad, this);
  gst_pad_set_chain_function(pad, GST_DEBUG_FUNCPTR(OnBuffer));
  gst_pad_set_event_function(pad, GST_DEBUG_FUNCPTR(OnEvent));
  gst_pad_set_query_function(pad, GST_DEBUG_FUNCPTR(OnQuery));
  {
    const qtts::MutexLock lock(mutex_);
    if (pad_ != nullptr) {
      gst_object_unref(gst_object_ref_sink(pad));
      return nullptr;
    }
    pad_ = pad;
  }
  RunGuarded(element_, [&] { speech_.intake().SetPad(true); });
  gst_pad_set_active(pad, TRUE);
  gst_element_add_pad(element_, pad);
  return pad;
}

void Input::ReleasePad(GstPad* pad) {
  RunGuarded(element_, [&] { speech_.intake().SetPad(false); });  // the pad goes all the same
  gst_pad_set_active(pad, FALSE);
  properties_.SetVoice(nullptr);
  upstream_live_ = false;
  gst_element_remove_pad(element_, pad);
  const qtts::MutexLock lock(mutex_);
  pad_ = nullptr;
}

GstPad* Input::RefPad() const {
  const qtts::MutexLock lock(mutex_);
  return pad_ != nullptr ? GST_PAD(gst_object_ref(pad_)) : nullptr;
}

}  // namespace gstqtts
