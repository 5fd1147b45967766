// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TESTS_GST_SUPPORT_H_
#define QTTS_TESTS_GST_SUPPORT_H_

#include <gst/gst.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "fake_engine/fake_engine.h"

// Common code of all tests of the element. Before the first test it starts GStreamer, registers the element and makes
// warnings fatal.

namespace qtts::testing {

// Maximum wait of a test. Only broken code reaches it.
constexpr GstClockTime kPatience = 60 * GST_SECOND;

struct Unref {
  void operator()(GstMessage* message) const { gst_message_unref(message); }
  void operator()(GstEvent* event) const { gst_event_unref(event); }
  void operator()(GstCaps* caps) const { gst_caps_unref(caps); }
  void operator()(GstElement* element) const { gst_object_unref(element); }
  void operator()(GstPad* pad) const { gst_object_unref(pad); }
  void operator()(GstObject* object) const { gst_object_unref(object); }
};
template <typename T>
using Owned = std::unique_ptr<T, Unref>;

// Polls until `condition` holds; false after kPatience.
bool WaitFor(const std::function<bool()>& condition);

// Marks all current objects as permanent, not leaked. Call it after other libraries have set themselves up.
void KeepLiveObjects();

// Resets the fake engine before each test and checks after it that no engine, no stream and no
// GStreamer object is left.
class GstTest : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;
};

// Everything that passed a pad, in order.
class Recorder {
 public:
  struct Item {
    bool is_buffer = false;
    GstEventType event = GST_EVENT_UNKNOWN;
    GstClockTime pts = 0;
    GstClockTime duration = 0;
    guint64 offset = 0;
    guint64 offset_end = 0;
    gsize size = 0;
    bool discont = false;
    bool gap_flag = false;
    bool silent = false;  // all samples are 0, as no frame of the fake engine has them
    fake::Label label;
    std::vector<guint8> data;       // if kept
    GstSegment segment;             // of segment events
    std::shared_ptr<GstCaps> caps;  // of caps events
  };

  explicit Recorder(GstPad* pad, bool keep_data = false);
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  std::vector<Item> items() const;
  std::vector<Item> buffers() const;
  std::vector<GstEventType> events() const;
  size_t buffer_count() const;
  // The characters of all frames as UTF-8.
  std::string text() const;
  void Clear();
  // Cleared by each flush. Until the flush ends, a buffer may still come.
  void ClearWhenFlushed() { clear_when_flushed_ = true; }

 private:
  static GstPadProbeReturn OnProbe(GstPad* pad, GstPadProbeInfo* info, gpointer user_data);

  Owned<GstPad> pad_;
  gulong probe_ = 0;
  bool keep_data_;
  bool is_float_ = true;
  std::atomic<bool> clear_when_flushed_ = false;
  mutable std::mutex mutex_;
  std::vector<Item> items_;
};

// A pipeline of a launch line with an element named "src"; NULL and gone at the end.
class Pipeline {
 public:
  explicit Pipeline(const std::string& launch_line);
  ~Pipeline();
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  GstElement* get() const { return pipeline_.get(); }
  GstElement* src() const { return src_.get(); }
  Owned<GstElement> Find(const char* name) const;
  Recorder& Record(bool keep_data = false);
  Recorder& record() { return *recorder_; }

  // Begins the change and, unless it fails, waits for its end.
  GstStateChangeReturn Set(GstState state);
  // Does not wait.
  GstStateChangeReturn Begin(GstState state) { return gst_element_set_state(get(), state); }

  // The next message of these types; null after kPatience.
  Owned<GstMessage> Wait(int types);
  // All messages of these types that are there; others are dropped.
  std::vector<Owned<GstMessage>> Pending(int types);
  // Plays to the end. True if that was an end-of-stream, not an error.
  bool PlayToEnd();

 private:
  Owned<GstElement> pipeline_;
  Owned<GstElement> src_;
  std::unique_ptr<Recorder> recorder_;
};

// Upstream of the sink pad: requests it, links it and pushes text.
class Feeder {
 public:
  explicit Feeder(GstElement* element);
  ~Feeder();  // releases the pad, if that was not done
  Feeder(const Feeder&) = delete;
  Feeder& operator=(const Feeder&) = delete;

  // A stream-start event and a segment of this format. In bytes, buffers are pieces of a text.
  void Begin(GstFormat format = GST_FORMAT_TIME);
  GstFlowReturn Push(const std::string& text);
  bool Send(GstEvent* event) { return gst_pad_push_event(pad_.get(), event) != FALSE; }
  bool End() { return Send(gst_event_new_eos()); }
  void Release();
  GstPad* sink() const { return sink_.get(); }

 private:
  GstElement* element_;
  Owned<GstPad> pad_;
  Owned<GstPad> sink_;
};

// The error of an ERROR or WARNING message.
struct Problem {
  GQuark domain = 0;
  int code = 0;
  std::string text;
};
Problem ParseProblem(GstMessage* message);

// Returns a field of an element message, which must have it.
guint64 GetField(const GstStructure* structure, const char* field);
bool GetFlag(const GstStructure* structure, const char* field);

std::string GetString(GstElement* element, const char* property);
std::vector<std::string> GetStrings(GstElement* element, const char* property);
guint64 GetStat(GstElement* element, const char* field);
// True if a push into the sink pad waits for space in the queue.
bool UpstreamWaits(GstElement* element);

}  // namespace qtts::testing

#endif  // QTTS_TESTS_GST_SUPPORT_H_
