// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TESTS_GST_SUPPORT_H_
#define QTTS_TESTS_GST_SUPPORT_H_

#include <gst/gst.h>
#include <gtest/gtest.h>

#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fake_engine/fake_engine.h"
#include "qtts/mutex.h"

// Common code of all tests of the element. Before the first test it starts GStreamer, registers the element and makes
// warnings fatal.

namespace qtts::testing {

// Maximum wait of a test. Only broken code reaches it.
constexpr GstClockTime kPatience = 300 * GST_SECOND;

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

// Resets the fake engine before each test and checks after it that no engine, no stream and no GStreamer object is
// left: a test's fixture may hold pipelines as members.
class GstTest : public ::testing::Test {
 protected:
  GstTest();
  ~GstTest() override;
};

// A list that GStreamer's threads add to while a test reads it.
template <typename Item>
class SharedList {
 public:
  void Add(Item item) {
    const MutexLock lock(mutex_);
    items_.push_back(std::move(item));
  }
  void Clear() {
    const MutexLock lock(mutex_);
    items_.clear();
  }
  std::vector<Item> items() const {
    const MutexLock lock(mutex_);
    return items_;
  }

 private:
  mutable Mutex mutex_;
  std::vector<Item> items_ QTTS_GUARDED_BY(mutex_);
};

// Calls a function for what passes a pad, on any thread, until the probe is removed. A call that has begun by then goes
// on: `function` holds shared what it uses, or the pipeline has stopped before that goes.
class Probe {
 public:
  using Function = std::function<GstPadProbeReturn(GstPadProbeInfo*)>;

  Probe(GstPad* pad, int types, Function function);
  ~Probe();
  Probe(const Probe&) = delete;
  Probe& operator=(const Probe&) = delete;

  void Remove();

 private:
  Owned<GstPad> pad_;
  gulong id_ = 0;
};

class Pipeline;

// Calls a function for each message of a pipeline, on the thread that posts it, until the end of its scope. The same
// holds for a call that has begun by then.
class MessageHandler {
 public:
  using Function = std::function<void(GstMessage*)>;

  MessageHandler(const Pipeline& pipeline, Function function);
  ~MessageHandler();
  MessageHandler(const MessageHandler&) = delete;
  MessageHandler& operator=(const MessageHandler&) = delete;

 private:
  Owned<GstObject> bus_;
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

  std::vector<Item> items() const;
  std::vector<Item> buffers() const;
  std::vector<GstEventType> events() const;
  size_t buffer_count() const;
  // The characters of all frames as UTF-8.
  std::string text() const;
  void Clear();
  // Cleared by each flush. Until the flush ends, a buffer may still come.
  void ClearWhenFlushed();

 private:
  class Notes;

  const std::shared_ptr<Notes> notes_;
  Probe probe_;
};

// Upstream of the sink pad: requests it, links it and pushes text.
class Feeder {
 public:
  explicit Feeder(GstElement* element);
  ~Feeder();  // releases the pad, if that was not done
  Feeder(const Feeder&) = delete;
  Feeder& operator=(const Feeder&) = delete;

  // A stream-start event, caps if there are any, and a segment of this format. In bytes, buffers are pieces of a text.
  void Begin(GstFormat format = GST_FORMAT_TIME, const char* caps = nullptr);
  GstFlowReturn Push(const std::string& text, GstClockTime start = GST_CLOCK_TIME_NONE,
                     GstClockTime duration = GST_CLOCK_TIME_NONE);
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

// Fields of a qtts-utterance-finished message.
struct Finished {
  guint64 id = 0;
  std::string reason;  // "no message" if none came
  guint64 frames = 0;
  guint64 samples = 0;
  guint64 text_chars = 0;
  guint64 text_spoken_chars = 0;
  bool estimated = false;
};

// A pipeline of a launch line with an element named "src"; NULL and gone at the end.
//
// A test speaks in steps: text goes in, sound and messages come out.
//
//   Speak("segmentation=sentence").Push("One. Two").End().Expect("One.Two");
//
// Each step checks that it succeeds. After one that failed, the others do not wait any more.
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
  Recorder& record() const { return *recorder_; }
  std::string text() const { return record().text(); }
  std::vector<Recorder::Item> buffers() const { return record().buffers(); }

  // Begins the change and, unless it fails, waits for its end.
  GstStateChangeReturn Set(GstState state);
  // Sets PLAYING without waiting, unless the pipeline is PAUSED or PLAYING.
  void Play();
  // Does not wait.
  GstStateChangeReturn Begin(GstState state) { return gst_element_set_state(get(), state); }

  // The next message of these types; null after kPatience.
  Owned<GstMessage> Wait(int types);
  // All messages of these types that are there; others are dropped.
  std::vector<Owned<GstMessage>> Pending(int types);
  // The errors of all warnings up to the end of the stream, or to an error.
  std::vector<Problem> WarningsUntilEnd();
  // Plays to the end. True if that was an end-of-stream, not an error.
  bool PlayToEnd();
  // Waits for the next element message of this name. Null after kPatience, or after an error, which fails the test.
  const GstStructure* NextMessage(const std::string& name);
  // The next qtts-utterance-finished.
  Finished Finish();
  // All element messages up to the last one that these two returned.
  const std::vector<Owned<GstMessage>>& messages() const { return messages_; }

  // --- upstream

  // Requests the sink pad, if that was not done.
  Feeder& feeder();
  void DropFeeder() { feeder_.reset(); }
  // Begins a stream of text: requests the sink pad, if that was not done, and plays.
  Pipeline& Open(GstFormat format = GST_FORMAT_TIME, const char* caps = nullptr);
  // Pushes text, each in a buffer of its own. Without Open(), begins a stream.
  Pipeline& Push(const std::string& text, int line = __builtin_LINE());
  Pipeline& Push(std::initializer_list<const char*> texts, int line = __builtin_LINE());
  Pipeline& PushCue(const std::string& text, GstClockTime start, GstClockTime duration = GST_CLOCK_TIME_NONE,
                    int line = __builtin_LINE());
  Pipeline& Send(GstEvent* event, int line = __builtin_LINE());
  // Sends a custom downstream event.
  Pipeline& Send(const char* structure, int line = __builtin_LINE());
  Pipeline& Flush(bool reset_time = true, int line = __builtin_LINE());
  Pipeline& End(int line = __builtin_LINE());

  // --- application

  // Emits "speak" with parameters such as "params, seed=3". Returns the number of the utterance; 0: it was refused.
  guint64 Say(const char* text, const char* params = nullptr) const;
  // Emits "interrupt". Returns the number of frames that had been spoken.
  guint64 Interrupt() const;

  // --- downstream

  // Waits until exactly so many buffers have left, until they say `text`, or until a statistic has a value.
  Pipeline& Await(size_t buffers, int line = __builtin_LINE());
  Pipeline& AwaitText(const std::string& text, int line = __builtin_LINE());
  Pipeline& AwaitStat(const char* field, guint64 value, int line = __builtin_LINE());
  // Plays, and waits for the end of the stream; an error fails the test.
  Pipeline& ExpectEnd(int line = __builtin_LINE());
  // The same, and exactly this was spoken.
  Pipeline& Expect(const std::string& text, int line = __builtin_LINE());

 private:
  Pipeline& Check(bool holds, int line, const std::string& failure);
  Pipeline& Await(const std::function<bool()>& condition, int line, const std::string& failure);

  Owned<GstElement> pipeline_;
  Owned<GstElement> src_;
  std::unique_ptr<Recorder> recorder_;
  std::unique_ptr<Feeder> feeder_;
  std::vector<Owned<GstMessage>> messages_;
  bool failed_ = false;
};

// The element alone with these properties, recorded.
class Speak : public Pipeline {
 public:
  explicit Speak(const std::string& properties = "")
      : Pipeline("qttssrc name=src " + properties + " ! fakesink name=sink async=false") {
    Record();
  }
};

// Returns a field of an element message, which must have it.
guint64 GetField(const GstStructure* structure, const char* field);
std::string GetText(const GstStructure* structure, const char* field);
bool GetFlag(const GstStructure* structure, const char* field);

// A custom event of a structure's text.
GstEvent* NewEvent(const char* structure, GstEventType type = GST_EVENT_CUSTOM_DOWNSTREAM);

std::string GetString(GstElement* element, const char* property);
std::vector<std::string> GetStrings(GstElement* element, const char* property);
guint64 GetStat(GstElement* element, const char* field);
// True if a push into the sink pad waits for space in the queue.
bool UpstreamWaits(GstElement* element);

}  // namespace qtts::testing

#endif  // QTTS_TESTS_GST_SUPPORT_H_
