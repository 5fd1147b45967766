// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gstqttstextpad.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "gstqttsguard.h"
#include "gstqttslog.h"

#define GST_CAT_DEFAULT gst_qtts_src_debug

namespace gstqtts {
namespace {

// Passes ownership of the caller's reference.
GstBuffer* NewTextBuffer(const TimedText& text) {
  // With a NUL behind the text, which some consumers of text expect.
  GstBuffer* buffer = gst_buffer_new_allocate(nullptr, text.text.size() + 1, nullptr);
  gst_buffer_fill(buffer, 0, text.text.c_str(), text.text.size() + 1);
  gst_buffer_set_size(buffer, static_cast<gssize>(text.text.size()));
  GST_BUFFER_PTS(buffer) = text.time;
  GST_BUFFER_DURATION(buffer) = text.duration;
  return buffer;
}

bool IsGap(GstMiniObject* item) { return GST_IS_EVENT(item) && GST_EVENT_TYPE(item) == GST_EVENT_GAP; }

// Returns true for a sticky event that begins or describes the stream. It is never dropped.
bool IsSticky(GstMiniObject* item) {
  return GST_IS_EVENT(item) && (gst_event_type_get_flags(GST_EVENT_TYPE(item)) & GST_EVENT_TYPE_STICKY) != 0;
}

}  // namespace

TextStream::~TextStream() {
  const qtts::MutexLock lock(mutex_);
  Forget();
}

// --- the pad

bool TextStream::SetActive(bool active) {
  {
    const qtts::MutexLock lock(mutex_);
    active_ = active;
    changed_.NotifyAll();
  }
  return (active ? gst_pad_start_task(pad_, Run, this, nullptr) : gst_pad_stop_task(pad_)) != FALSE;
}

void TextStream::SetGranularity(Granularity granularity) {
  const qtts::MutexLock lock(mutex_);
  granularity_ = granularity;
}

Granularity TextStream::granularity() const {
  const qtts::MutexLock lock(mutex_);
  return granularity_;
}

bool TextStream::pushing() const {
  const qtts::MutexLock lock(mutex_);
  return pushing_;
}

// --- the sound

void TextStream::Forget() {
  for (GstMiniObject* item : waiting_) gst_mini_object_unref(item);
  waiting_.clear();
  ForgetSegment();
  gst_clear_event(&stream_start_);
  gst_clear_event(&tags_);
  ended_ = false;
}

void TextStream::ForgetSegment() {
  gst_clear_event(&segment_);
  cues_.reset();
  end_queued_ = false;
  discont_ = true;
}

void TextStream::SetRunning(bool running) {
  const qtts::MutexLock lock(mutex_);
  running_ = running;
  flushing_ = false;
  Forget();
  changed_.NotifyAll();
}

// Queues the start. The text is a stream of its own in the group of the sound.
void TextStream::QueueStart(GstEvent* stream_start) {
  const gchar* sound = nullptr;
  gst_event_parse_stream_start(stream_start, &sound);
  gchar* name = gst_pad_get_name(pad_);
  gchar* id = g_strdup_printf("%s/%s", sound, name);
  GstEvent* start = gst_event_new_stream_start(id);
  g_free(id);
  g_free(name);
  gst_event_set_stream_flags(start, GST_STREAM_FLAG_SPARSE);
  guint group = 0;
  if (gst_event_parse_group_id(stream_start, &group)) gst_event_set_group_id(start, group);
  gst_event_set_seqnum(start, gst_event_get_seqnum(stream_start));
  Queue(GST_MINI_OBJECT_CAST(start));
  GstCaps* caps = gst_caps_new_simple("text/x-raw", "format", G_TYPE_STRING, "utf8", nullptr);
  Queue(GST_MINI_OBJECT_CAST(gst_event_new_caps(caps)));
  gst_caps_unref(caps);
}

void TextStream::Mirror(GstEvent* event) {
  const qtts::MutexLock lock(mutex_);
  if (!running_ || flushing_) return;
  switch (GST_EVENT_TYPE(event)) {
    case GST_EVENT_STREAM_START:
      if (event == stream_start_) return;
      gst_event_replace(&stream_start_, event);
      QueueStart(event);
      break;
    case GST_EVENT_SEGMENT: {
      if (event == segment_) return;
      if (cues_) QueueTexts(cues_->End());
      ForgetSegment();
      gst_event_replace(&segment_, event);
      const GstSegment* segment = nullptr;
      gst_event_parse_segment(event, &segment);
      earliest_ = covered_ = segment->start;
      Queue(GST_MINI_OBJECT_CAST(gst_event_ref(event)));
      break;
    }
    case GST_EVENT_TAG:
      if (event == tags_) return;
      gst_event_replace(&tags_, event);
      Queue(GST_MINI_OBJECT_CAST(gst_event_ref(event)));
      break;
    case GST_EVENT_SEGMENT_DONE:
    case GST_EVENT_EOS:
      if (std::exchange(end_queued_, true)) return;
      if (cues_) QueueTexts(cues_->End());
      Queue(GST_MINI_OBJECT_CAST(gst_event_ref(event)));
      break;
    default:
      break;
  }
}

void TextStream::Take(const Told& told, GstClockTime known) {
  const qtts::MutexLock lock(mutex_);
  if (!running_ || flushing_ || segment_ == nullptr || end_queued_) return;
  if (cues_ && cues_->granularity() != granularity_) {
    QueueTexts(cues_->End());
    cues_.reset();
  }
  if (!cues_) cues_.emplace(granularity_);
  if (told.id != 0) {
    QueueTexts(cues_->Add(told));
  } else if (told.over) {
    QueueTexts(cues_->End());
  }
  QueueGap(std::min(known, cues_->begun().value_or(known)));
}

void TextStream::QueueTexts(const std::vector<TimedText>& texts) {
  for (TimedText text : texts) {
    const GstClockTime stop = text.time + text.duration;
    text.time = std::max(text.time, earliest_);
    text.duration = std::max<GstClockTime>(stop > text.time ? stop - text.time : 0, GST_MSECOND);
    QueueGap(text.time);
    earliest_ = text.time;
    covered_ = std::max(covered_, text.time + text.duration);
    GstBuffer* buffer = NewTextBuffer(text);
    if (std::exchange(discont_, false)) GST_BUFFER_FLAG_SET(buffer, GST_BUFFER_FLAG_DISCONT);
    Queue(GST_MINI_OBJECT_CAST(buffer));
  }
}

// Queues a gap: there is no text before `until` but what was queued. One that waits already becomes longer.
void TextStream::QueueGap(GstClockTime until) {
  if (until <= covered_) return;
  GstClockTime start = covered_;
  if (!waiting_.empty() && IsGap(waiting_.back())) {
    gst_event_parse_gap(GST_EVENT_CAST(waiting_.back()), &start, nullptr);
    gst_mini_object_unref(waiting_.back());
    waiting_.pop_back();
  }
  Queue(GST_MINI_OBJECT_CAST(gst_event_new_gap(start, until - start)));
  covered_ = earliest_ = until;
}

void TextStream::BeginFlush(GstEvent* event) {
  {
    const qtts::MutexLock lock(mutex_);
    if (!running_) return;
    flushing_ = true;
    // The pad keeps sticky events only once they were pushed.
    std::deque<GstMiniObject*> kept;
    for (GstMiniObject* item : waiting_) {
      const bool keep =
          IsSticky(item) && GST_EVENT_TYPE(item) != GST_EVENT_SEGMENT && GST_EVENT_TYPE(item) != GST_EVENT_EOS;
      if (keep) {
        kept.push_back(item);
      } else {
        gst_mini_object_unref(item);
      }
    }
    waiting_ = std::move(kept);
    ForgetSegment();
    changed_.NotifyAll();
  }
  gst_pad_push_event(pad_, gst_event_ref(event));
  gst_pad_pause_task(pad_);
}

void TextStream::EndFlush(GstEvent* event) {
  gst_pad_push_event(pad_, gst_event_ref(event));
  const qtts::MutexLock lock(mutex_);
  flushing_ = ended_ = false;
  if (active_) gst_pad_start_task(pad_, Run, this, nullptr);
}

// --- the task

void TextStream::Queue(GstMiniObject* item) {
  if (waiting_.size() >= kMaxWaiting && !IsSticky(item)) {
    if (!std::exchange(dropped_, true)) {
      GST_WARNING_OBJECT(pad_, "%" G_GSIZE_FORMAT " buffers of text wait for downstream; more are dropped",
                         waiting_.size());
    }
    gst_mini_object_unref(item);
    return;
  }
  waiting_.push_back(item);
  changed_.NotifyAll();
}

void TextStream::Run(gpointer stream) { static_cast<TextStream*>(stream)->PushNext(); }

void TextStream::PushNext() {
  GstMiniObject* item = nullptr;
  {
    const qtts::MutexLock lock(mutex_);
    // Whoever sets one of these stops or pauses the task.
    while (active_ && !flushing_ && waiting_.empty()) changed_.Wait(mutex_);
    if (!active_ || flushing_) return;
    item = waiting_.front();
    waiting_.pop_front();
    pushing_ = true;
  }
  Push(item);
  const qtts::MutexLock lock(mutex_);
  pushing_ = false;
}

// A stream of text that nobody takes, or that fails, does not end the sound: an element that fails tells it by itself.
void TextStream::Push(GstMiniObject* item) {
  if (GST_IS_EVENT(item)) {
    if (GST_EVENT_TYPE(item) == GST_EVENT_SEGMENT) {
      const qtts::MutexLock lock(mutex_);
      ended_ = false;
    }
    gst_pad_push_event(pad_, GST_EVENT_CAST(item));
    return;
  }
  {
    const qtts::MutexLock lock(mutex_);
    if (ended_) {
      gst_mini_object_unref(item);
      return;
    }
  }
  const GstFlowReturn flow = gst_pad_push(pad_, GST_BUFFER_CAST(item));
  if (flow == GST_FLOW_OK) return;
  GST_LOG_OBJECT(pad_, "text was not taken: %s", gst_flow_get_name(flow));
  if (flow == GST_FLOW_NOT_LINKED || flow == GST_FLOW_FLUSHING) return;  // both may change
  const qtts::MutexLock lock(mutex_);
  ended_ = true;
}

}  // namespace gstqtts

// --- the pad

struct _GstQttsTextPad {
  GstPad parent;

  gstqtts::TextStream* stream;
};

G_DEFINE_FINAL_TYPE(GstQttsTextPad, gst_qtts_text_pad, GST_TYPE_PAD)

enum { PROP_0, PROP_GRANULARITY };

static GType gst_qtts_text_pad_granularity_get_type() {
  static const GEnumValue values[] = {
      {static_cast<int>(gstqtts::Granularity::kWord), "Each word, with its punctuation", "word"},
      {static_cast<int>(gstqtts::Granularity::kSentence), "Each sentence", "sentence"},
      {static_cast<int>(gstqtts::Granularity::kCue), "Subtitles: at most two lines of 42 columns of a sentence", "cue"},
      {0, nullptr, nullptr},
  };
  static const GType type = g_enum_register_static("GstQttsTextPadGranularity", values);
  return type;
}

static void gst_qtts_text_pad_set_property(GObject* object, guint id, const GValue* value, GParamSpec* pspec) {
  if (id != PROP_GRANULARITY) {
    G_OBJECT_WARN_INVALID_PROPERTY_ID(object, id, pspec);
    return;
  }
  GST_QTTS_TEXT_PAD(object)->stream->SetGranularity(static_cast<gstqtts::Granularity>(g_value_get_enum(value)));
}

static void gst_qtts_text_pad_get_property(GObject* object, guint id, GValue* value, GParamSpec* pspec) {
  if (id != PROP_GRANULARITY) {
    G_OBJECT_WARN_INVALID_PROPERTY_ID(object, id, pspec);
    return;
  }
  g_value_set_enum(value, static_cast<int>(GST_QTTS_TEXT_PAD(object)->stream->granularity()));
}

static gboolean gst_qtts_text_pad_activate_mode(GstPad* pad, GstObject* /*parent*/, GstPadMode mode, gboolean active) {
  if (mode != GST_PAD_MODE_PUSH) return FALSE;
  return static_cast<gboolean>(gstqtts::StreamOf(pad).SetActive(active != FALSE));
}

static void gst_qtts_text_pad_finalize(GObject* object) {
  delete GST_QTTS_TEXT_PAD(object)->stream;
  G_OBJECT_CLASS(gst_qtts_text_pad_parent_class)->finalize(object);
}

static void gst_qtts_text_pad_class_init(GstQttsTextPadClass* klass) {
  GObjectClass* object_class = G_OBJECT_CLASS(klass);
  object_class->finalize = gst_qtts_text_pad_finalize;
  object_class->set_property = gst_qtts_text_pad_set_property;
  object_class->get_property = gst_qtts_text_pad_get_property;
  g_object_class_install_property(
      object_class, PROP_GRANULARITY,
      g_param_spec_enum(
          "granularity", "Granularity",
          "Text of a buffer. A sentence or a cue leaves when its end is known, so live captions need words",
          gst_qtts_text_pad_granularity_get_type(), static_cast<int>(gstqtts::Granularity::kWord),
          static_cast<GParamFlags>(G_PARAM_READWRITE | G_PARAM_STATIC_STRINGS | GST_PARAM_MUTABLE_PLAYING)));
  gst_type_mark_as_plugin_api(gst_qtts_text_pad_granularity_get_type(), static_cast<GstPluginAPIFlags>(0));
}

static void gst_qtts_text_pad_init(GstQttsTextPad* self) {
  self->stream = new gstqtts::TextStream(GST_PAD(self));
  gst_pad_set_activatemode_function(GST_PAD(self), GST_DEBUG_FUNCPTR(gst_qtts_text_pad_activate_mode));
}

gstqtts::TextStream& gstqtts::StreamOf(GstPad* pad) { return *GST_QTTS_TEXT_PAD(pad)->stream; }
