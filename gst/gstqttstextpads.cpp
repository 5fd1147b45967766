// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gstqttstextpads.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "gstqttslog.h"

#define GST_CAT_DEFAULT gst_qtts_src_debug

namespace gstqtts {
namespace {

using PadRef = std::unique_ptr<GstPad, void (*)(gpointer)>;

// Returns true if gst_element_add_pad() wants an active pad.
bool NeedsActivePad(GstElement* element) {
  GST_OBJECT_LOCK(element);
  const bool needs = GST_STATE(element) > GST_STATE_READY || GST_STATE_NEXT(element) == GST_STATE_PAUSED;
  GST_OBJECT_UNLOCK(element);
  return needs;
}

// GstBaseSrc has gst_pad_create_stream_id() name the stream of its src pad, without a name of its own for it; that
// function refuses this for an element with several src pads, by their number. Nothing else in GStreamer reads the
// number, so the text pads are not counted.
void CountTextPad(GstElement* element, bool counted) {
  GST_OBJECT_LOCK(element);
  element->numsrcpads = static_cast<guint16>(element->numsrcpads + (counted ? 1 : -1));
  GST_OBJECT_UNLOCK(element);
}

}  // namespace

// Leaves queries about caps to GStreamer; the element answers all others as on the src pad.
gboolean TextPads::OnQuery(GstPad* pad, GstObject* parent, GstQuery* query) {
  switch (GST_QUERY_TYPE(query)) {
    case GST_QUERY_CAPS:
    case GST_QUERY_ACCEPT_CAPS:
      return gst_pad_query_default(pad, parent, query);
    default:
      return GST_BASE_SRC_GET_CLASS(parent)->query(GST_BASE_SRC(parent), query);
  }
}

gboolean TextPads::OnEvent(GstPad* /*pad*/, GstObject* parent, GstEvent* event) {
  gboolean result = TRUE;
  switch (GST_EVENT_TYPE(event)) {
    case GST_EVENT_QOS:
    case GST_EVENT_RECONFIGURE:
      break;
    default:
      result = GST_BASE_SRC_GET_CLASS(parent)->event(GST_BASE_SRC(parent), event);
      break;
  }
  gst_event_unref(event);
  return result;
}

// Repeats the events that have passed the src pad already.
void TextPads::CatchUp(TextStream& stream) const {
  for (const GstEventType type : {GST_EVENT_STREAM_START, GST_EVENT_SEGMENT, GST_EVENT_TAG, GST_EVENT_EOS}) {
    GstEvent* event = gst_pad_get_sticky_event(GST_BASE_SRC_PAD(element_), type, 0);
    if (event == nullptr) continue;
    stream.Mirror(event);
    gst_event_unref(event);
  }
}

GstPad* TextPads::RequestPad(GstPadTemplate* templ, const gchar* name) {
  GstElement* element = GST_ELEMENT(element_);
  guint number = 0;
  {
    const qtts::MutexLock lock(mutex_);
    number = next_number_;
    if (name != nullptr && std::sscanf(name, "text_%u", &number) != 1) number = next_number_;
    next_number_ = std::max(next_number_, number + 1);
  }
  const std::string unique = "text_" + std::to_string(number);
  auto* pad = GST_PAD(g_object_new(GST_TYPE_QTTS_TEXT_PAD, "name", unique.c_str(), "direction", GST_PAD_SRC, "template",
                                   templ, nullptr));
  gst_pad_set_event_function(pad, GST_DEBUG_FUNCPTR(OnEvent));
  gst_pad_set_query_function(pad, GST_DEBUG_FUNCPTR(OnQuery));
  gst_pad_use_fixed_caps(pad);
  if (NeedsActivePad(element)) gst_pad_set_active(pad, TRUE);
  const PadRef kept(GST_PAD(gst_object_ref(pad)), gst_object_unref);
  if (!gst_element_add_pad(element, pad)) {  // its name is taken
    gst_pad_set_active(kept.get(), FALSE);
    return nullptr;
  }
  CountTextPad(element, false);
  {
    const qtts::MutexLock lock(mutex_);
    pads_.push_back(pad);
    StreamOf(pad).SetRunning(running_);
    if (running_) CatchUp(StreamOf(pad));
  }
  gst_child_proxy_child_added(GST_CHILD_PROXY(element), G_OBJECT(pad), unique.c_str());
  return pad;
}

void TextPads::ReleasePad(GstPad* pad) {
  {
    const qtts::MutexLock lock(mutex_);
    pads_.erase(std::remove(pads_.begin(), pads_.end(), pad), pads_.end());
  }
  TextStream& stream = StreamOf(pad);
  stream.SetRunning(false);
  // Downstream may hold the last buffer for as long as it likes, and deactivation waits for that.
  if (stream.pushing()) {
    gst_pad_push_event(pad, gst_event_new_flush_start());
    gst_pad_set_active(pad, FALSE);
    gst_pad_push_event(pad, gst_event_new_flush_stop(FALSE));
  } else {
    gst_pad_set_active(pad, FALSE);
  }
  gst_child_proxy_child_removed(GST_CHILD_PROXY(element_), G_OBJECT(pad), GST_PAD_NAME(pad));
  CountTextPad(GST_ELEMENT(element_), true);
  gst_element_remove_pad(GST_ELEMENT(element_), pad);
}

GObject* TextPads::RefChild(guint index) const {
  const qtts::MutexLock lock(mutex_);
  return index < pads_.size() ? G_OBJECT(gst_object_ref(pads_[index])) : nullptr;
}

guint TextPads::children() const {
  const qtts::MutexLock lock(mutex_);
  return static_cast<guint>(pads_.size());
}

void TextPads::ForEach(const std::function<void(TextStream&)>& function) {
  std::vector<PadRef> pads;
  {
    const qtts::MutexLock lock(mutex_);
    for (GstPad* pad : pads_) pads.emplace_back(GST_PAD(gst_object_ref(pad)), gst_object_unref);
  }
  for (const PadRef& pad : pads) function(StreamOf(pad.get()));
}

void TextPads::SetRunning(bool running) {
  const qtts::MutexLock lock(mutex_);
  running_ = running;
  for (GstPad* pad : pads_) StreamOf(pad).SetRunning(running);
}

TextAhead TextPads::WantedAhead() const {
  const qtts::MutexLock lock(mutex_);
  if (pads_.empty()) return TextAhead::kNone;
  const bool words = std::all_of(pads_.begin(), pads_.end(),
                                 [](GstPad* pad) { return StreamOf(pad).granularity() == Granularity::kWord; });
  return words ? TextAhead::kWords : TextAhead::kSentences;
}

void TextPads::TakeEvent(GstEvent* event) {
  switch (GST_EVENT_TYPE(event)) {
    case GST_EVENT_FLUSH_START:
      ForEach([event](TextStream& stream) { stream.BeginFlush(event); });
      break;
    case GST_EVENT_FLUSH_STOP:
      ForEach([event](TextStream& stream) { stream.EndFlush(event); });
      break;
    default:
      ForEach([event](TextStream& stream) { stream.Mirror(event); });
      break;
  }
}

void TextPads::TakeWords(const Told& told, GstClockTime known) {
  ForEach([&](TextStream& stream) { stream.Take(told, known); });
}

}  // namespace gstqtts
