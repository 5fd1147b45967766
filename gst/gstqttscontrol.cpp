// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gstqttscontrol.h"

#include <utility>

#include "gstqttslog.h"

#define GST_CAT_DEFAULT gst_qtts_src_debug

namespace gstqtts {
namespace {

// Control whose seek this thread hands to the base class, until that comes to do_seek().
thread_local const Control* seeking = nullptr;

// Sends the event to what is linked to the sink pad. Returns false if there is no such pad.
bool PushUpstream(Input& input, GstEvent* event, gboolean* result) {
  GstPad* sinkpad = input.RefPad();
  if (sinkpad == nullptr) return false;
  *result = gst_pad_push_event(sinkpad, gst_event_ref(event));
  gst_object_unref(sinkpad);
  return true;
}

}  // namespace

Control::Control(GstBaseSrc* element, GstElementClass* base, Speech& speech, LiveClock& clock,
                 ElementProperties& properties, Input& input, Output& output)
    : element_(element),
      base_(base),
      speech_(speech),
      clock_(clock),
      properties_(properties),
      input_(input),
      output_(output) {}

Control::~Control() { DropEndOfStream(); }

guint64 Control::Interrupt() {
  const guint64 frames = speech_.Interrupt();
  clock_.Recheck();  // the cue for which the speech waits
  GST_DEBUG_OBJECT(element_, "interrupted after %" G_GUINT64_FORMAT " frames", frames);
  return frames;
}

gboolean Control::SendToBase(GstEvent* event) { return base_->send_event(GST_ELEMENT(element_), event); }

gboolean Control::SendEvent(GstEvent* event) {
  switch (GST_EVENT_TYPE(event)) {
    case GST_EVENT_FLUSH_START:
      GST_DEBUG_OBJECT(element_, "flush: dropping text and speech");
      speech_.FlushStart();
      DropEndOfStream();
      return SendToBase(event);
    case GST_EVENT_FLUSH_STOP:
      return FlushStop(event);
    case GST_EVENT_SEEK: {
      const gboolean result = Seek(event);
      gst_event_unref(event);
      return result;
    }
    case GST_EVENT_CUSTOM_UPSTREAM:
    case GST_EVENT_CUSTOM_DOWNSTREAM_OOB:
    case GST_EVENT_CUSTOM_BOTH_OOB:
      if (gst_event_has_name(event, kInterruptEvent)) {
        Interrupt();
        gst_event_unref(event);
        return TRUE;
      }
      return SendToBase(event);
    case GST_EVENT_EOS:
      return EndByApplication(event);
    default:
      return SendToBase(event);
  }
}

bool Control::TakeUpstreamEvent(GstEvent* event, gboolean* result) {
  if (gst_event_has_name(event, kInterruptEvent)) {
    Interrupt();
    // Whoever makes the text may want to stop as well.
    PushUpstream(input_, event, result);
    *result = TRUE;
    return true;
  }
  if (GST_EVENT_TYPE(event) != GST_EVENT_SEEK) return false;
  if (last_seek_ == gst_event_get_seqnum(event)) {
    *result = TRUE;
    return true;
  }
  *result = Seek(event);
  if (*result) last_seek_ = gst_event_get_seqnum(event);
  return true;
}

// --- flushes

gboolean Control::FlushStop(GstEvent* event) {
  if (!speech_.flushing()) {
    GST_DEBUG_OBJECT(element_, "ignoring the end of a flush that did not start");
    gst_event_unref(event);
    return FALSE;
  }
  gboolean reset_time = TRUE;
  gst_event_parse_flush_stop(event, &reset_time);
  GstPad* srcpad = GST_BASE_SRC_PAD(element_);
  GST_PAD_STREAM_LOCK(srcpad);
  if (reset_time) {
    output_.Restart();
  } else {
    output_.Break();
  }
  properties_.SetVoice(nullptr);
  speech_.FlushStop();
  const gboolean result = SendToBase(event);
  GST_PAD_STREAM_UNLOCK(srcpad);
  return result;
}

// --- seeks

bool Control::CanSpeakAgain() {
  GstPad* sinkpad = input_.RefPad();
  if (sinkpad == nullptr) return properties_.CanSpeakAgain();
  gst_object_unref(sinkpad);
  return false;
}

void Control::DoSeek() {
  if (seeking != this) return;
  seeking = nullptr;
  --unlocking_events_;   // before the task starts again
  speech_.FlushStart();  // another seek may have spoken since
  output_.Restart();
  speech_.FlushStop();
  properties_.SpeakAgain();
}

// With a sink pad it is upstream that can seek, and the flush comes back through the pad.
gboolean Control::Seek(GstEvent* event) {
  gboolean result = FALSE;
  if (PushUpstream(input_, event, &result)) return result;
  gdouble rate = 0;
  GstFormat format = GST_FORMAT_UNDEFINED;
  GstSeekType start_type = GST_SEEK_TYPE_NONE;
  gint64 start = 0;
  GstSeekType stop_type = GST_SEEK_TYPE_NONE;
  gst_event_parse_seek(event, &rate, &format, nullptr, &start_type, &start, &stop_type, nullptr);
  // Here rather than in do_seek(), before which the base class has flushed.
  if (rate != 1.0 || format != GST_FORMAT_TIME || start_type != GST_SEEK_TYPE_SET || start != 0 ||
      stop_type == GST_SEEK_TYPE_END || !CanSpeakAgain()) {
    GST_DEBUG_OBJECT(element_, "refusing %" GST_PTR_FORMAT ": only a seek to the beginning of the text can be done",
                     event);
    return FALSE;
  }
  // Before the base class waits for the streaming thread, and without its lock, since this reports.
  speech_.FlushStart();
  DropEndOfStream();
  seeking = this;
  ++unlocking_events_;
  result = SendToBase(gst_event_ref(event));
  if (std::exchange(seeking, nullptr) == this) {  // it did not come to do_seek()
    --unlocking_events_;
    speech_.FlushStop();
  }
  return result;
}

void Control::AnswerSeeking(GstQuery* query) {
  GstPad* sinkpad = input_.RefPad();
  if (sinkpad != nullptr) {
    const gboolean answered = gst_pad_peer_query(sinkpad, query);
    gst_object_unref(sinkpad);
    if (answered) return;
  }
  GstFormat format = GST_FORMAT_UNDEFINED;
  gst_query_parse_seeking(query, &format, nullptr, nullptr, nullptr);
  if (format == GST_FORMAT_TIME && CanSpeakAgain()) {
    gst_query_set_seeking(query, format, TRUE, 0, 0);
  } else {
    gst_query_set_seeking(query, format, FALSE, 0, -1);
  }
}

// --- the end

// Keeps `event`, for when the utterance is over, and drops the one before.
void Control::KeepEndOfStream(GstEvent* event) {
  event = end_of_stream_.exchange(event);
  gst_clear_event(&event);
}

// Passes an end-of-stream to the base class, which sends it before the next buffer.
gboolean Control::EndNow(GstEvent* event) {
  ++unlocking_events_;
  const gboolean result = SendToBase(event);
  --unlocking_events_;
  return result;
}

// Ends the stream with the utterance that is being heard, for an end-of-stream that is sent to the element, other than
// one that comes from upstream. The base class would end it with the next buffer, and wait for downstream to take the
// last one.
gboolean Control::EndByApplication(GstEvent* event) {
  GST_DEBUG_OBJECT(element_, "ending with the utterance that is being heard");
  KeepEndOfStream(gst_event_ref(event));
  if (speech_.EndAfterCurrent()) {
    clock_.Recheck();  // the cue for which the speech waits
    gst_event_unref(event);
    return TRUE;
  }
  DropEndOfStream();
  return EndNow(event);
}

void Control::TextEnded() {
  GstEvent* event = end_of_stream_.exchange(nullptr);
  if (event != nullptr) EndNow(event);
}

bool Control::IsUnlocked() const {
  GstPad* pad = GST_BASE_SRC_PAD(element_);
  GST_OBJECT_LOCK(pad);
  const bool flushing = GST_PAD_IS_FLUSHING(pad);
  GST_OBJECT_UNLOCK(pad);
  return flushing || unlocking_events_ > 0;
}

}  // namespace gstqtts
