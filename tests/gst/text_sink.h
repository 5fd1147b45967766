// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TESTS_GST_TEXT_SINK_H_
#define QTTS_TESTS_GST_TEXT_SINK_H_

#include <string>
#include <vector>

#include "qtts/mutex.h"
#include "support.h"

namespace qtts::testing {

// Requests a text pad of the element, and takes what it sends.
class TextSink {
 public:
  struct Item {
    GstEventType event = GST_EVENT_UNKNOWN;  // unknown: a buffer
    std::string text;
    GstClockTime time = 0;  // of buffers and gaps
    GstClockTime duration = 0;
    guint group = 0;  // of stream-start
    GstStreamFlags flags = GST_STREAM_FLAG_NONE;
    std::string id;
    GstSegment segment;  // of segments
  };
  // A text and its times in milliseconds.
  struct Text {
    std::string text;
    guint64 time = 0;
    guint64 duration = 0;

    bool operator==(const Text&) const = default;
    friend std::ostream& operator<<(std::ostream& out, const Text& sent) {
      return out << "{\"" << sent.text << "\", " << sent.time << ", " << sent.duration << "}";
    }
  };

  explicit TextSink(GstElement* element, const char* granularity = nullptr) : element_(element) {
    source_.reset(gst_element_request_pad_simple(element, "text_%u"));
    EXPECT_NE(source_, nullptr);
    if (granularity != nullptr) gst_util_set_object_arg(G_OBJECT(source_.get()), "granularity", granularity);
    sink_.reset(GST_PAD(gst_object_ref_sink(gst_pad_new("sink", GST_PAD_SINK))));
    gst_pad_set_element_private(sink_.get(), this);
    gst_pad_set_chain_function(sink_.get(), OnBuffer);
    gst_pad_set_event_function(sink_.get(), OnEvent);
    gst_pad_set_active(sink_.get(), TRUE);
    EXPECT_EQ(gst_pad_link(source_.get(), sink_.get()), GST_PAD_LINK_OK);
  }
  ~TextSink() {
    Block(false);
    if (source_ != nullptr) Release();
    gst_pad_set_active(sink_.get(), FALSE);
  }
  TextSink(const TextSink&) = delete;
  TextSink& operator=(const TextSink&) = delete;

  GstPad* source() const { return source_.get(); }
  GstPad* sink() const { return sink_.get(); }
  void Release() {
    gst_element_release_request_pad(element_, source_.get());
    source_.reset();
  }

  // While it blocks, it keeps a buffer until a flush.
  void Block(bool block) {
    const MutexLock lock(mutex_);
    blocks_ = block;
    changed_.NotifyAll();
  }
  bool blocked() {
    const MutexLock lock(mutex_);
    return waits_;
  }
  // Answer to buffers.
  void Answer(GstFlowReturn flow) {
    const MutexLock lock(mutex_);
    flow_ = flow;
  }

  std::vector<Item> items() {
    const MutexLock lock(mutex_);
    return items_;
  }
  std::vector<Text> texts() {
    std::vector<Text> texts;
    for (const Item& item : items()) {
      if (item.event == GST_EVENT_UNKNOWN) {
        texts.push_back({item.text, item.time / GST_MSECOND, item.duration / GST_MSECOND});
      }
    }
    return texts;
  }
  bool Ended() {
    return WaitFor([this] {
      const auto all = items();
      return !all.empty() && all.back().event == GST_EVENT_EOS;
    });
  }

 private:
  static TextSink* Of(GstPad* pad) { return static_cast<TextSink*>(gst_pad_get_element_private(pad)); }

  static GstFlowReturn OnBuffer(GstPad* pad, GstObject* /*parent*/, GstBuffer* buffer) {
    TextSink* self = Of(pad);
    Item item;
    item.time = GST_BUFFER_PTS(buffer);
    item.duration = GST_BUFFER_DURATION(buffer);
    item.text.resize(gst_buffer_get_size(buffer));
    gst_buffer_extract(buffer, 0, item.text.data(), item.text.size());
    gst_buffer_unref(buffer);
    const MutexLock lock(self->mutex_);
    self->waits_ = true;
    while (self->blocks_ && !self->flushing_) self->changed_.Wait(self->mutex_);
    self->waits_ = false;
    if (self->flushing_) return GST_FLOW_FLUSHING;
    self->items_.push_back(std::move(item));
    return self->flow_;
  }

  static gboolean OnEvent(GstPad* pad, GstObject* /*parent*/, GstEvent* event) {
    TextSink* self = Of(pad);
    Item item;
    item.event = GST_EVENT_TYPE(event);
    {
      const MutexLock lock(self->mutex_);
      if (item.event == GST_EVENT_FLUSH_START) self->flushing_ = true;
      if (item.event == GST_EVENT_FLUSH_STOP) self->flushing_ = false;
      if (item.event == GST_EVENT_GAP) gst_event_parse_gap(event, &item.time, &item.duration);
      if (item.event == GST_EVENT_SEGMENT) gst_event_copy_segment(event, &item.segment);
      if (item.event == GST_EVENT_STREAM_START) {
        const gchar* id = nullptr;
        gst_event_parse_stream_start(event, &id);
        item.id = id;
        gst_event_parse_group_id(event, &item.group);
        gst_event_parse_stream_flags(event, &item.flags);
      }
      self->items_.push_back(std::move(item));
      self->changed_.NotifyAll();
    }
    gst_event_unref(event);
    return TRUE;
  }

  GstElement* element_;
  Owned<GstPad> source_;
  Owned<GstPad> sink_;
  Mutex mutex_;
  Condition changed_;
  bool blocks_ QTTS_GUARDED_BY(mutex_) = false;
  bool waits_ QTTS_GUARDED_BY(mutex_) = false;
  bool flushing_ QTTS_GUARDED_BY(mutex_) = false;
  GstFlowReturn flow_ QTTS_GUARDED_BY(mutex_) = GST_FLOW_OK;
  std::vector<Item> items_ QTTS_GUARDED_BY(mutex_);
};

}  // namespace qtts::testing

#endif  // QTTS_TESTS_GST_TEXT_SINK_H_
