// SPDX-License-Identifier: LGPL-2.1-or-later
#include "support.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <thread>
#include <utility>

#include "gstqttssrc.h"

namespace qtts::testing {
namespace {

// Live objects, by the leaks tracer.
std::vector<GObject*> LiveObjects() {
  std::vector<GObject*> objects;
  GList* tracers = gst_tracing_get_active_tracers();
  for (GList* item = tracers; item != nullptr; item = item->next) {
    if (g_strcmp0(G_OBJECT_TYPE_NAME(item->data), "GstLeaksTracer") != 0) continue;
    GstStructure* info = nullptr;
    g_signal_emit_by_name(item->data, "get-live-objects", &info);
    const GValue* list = gst_structure_get_value(info, "live-objects-list");
    for (guint i = 0; i < gst_value_list_get_size(list); ++i) {
      const GValue* object =
          gst_structure_get_value(gst_value_get_structure(gst_value_list_get_value(list, i)), "object");
      objects.push_back(static_cast<GObject*>(g_value_peek_pointer(object)));
    }
    // The structure holds objects without having taken references, so it must never be freed.
    static auto* structures = new std::vector<GstStructure*>;
    structures->push_back(info);
  }
  g_list_free_full(tracers, gst_object_unref);
  return objects;
}

// Objects that live until the process ends, such as the element's factory.
std::set<GObject*>& Permanent() {
  static auto* objects = new std::set<GObject*>;
  return *objects;
}

bool IsZero(GstBuffer* buffer) {
  GstMapInfo map;
  if (!gst_buffer_map(buffer, &map, GST_MAP_READ)) return false;
  const bool zero = std::all_of(map.data, map.data + map.size, [](guint8 byte) { return byte == 0; });
  gst_buffer_unmap(buffer, &map);
  return zero;
}

class GStreamer : public ::testing::Environment {
 public:
  void SetUp() override {
    g_setenv("GST_TRACERS", "leaks", FALSE);
    gst_init(nullptr, nullptr);
    g_log_set_always_fatal(static_cast<GLogLevelFlags>(G_LOG_LEVEL_ERROR | G_LOG_LEVEL_CRITICAL | G_LOG_LEVEL_WARNING));
    ASSERT_TRUE(GST_ELEMENT_REGISTER(qttssrc, nullptr));
    KeepLiveObjects();
  }
};

[[maybe_unused]] const ::testing::Environment* const kEnvironment = ::testing::AddGlobalTestEnvironment(new GStreamer);

}  // namespace

bool WaitFor(const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::nanoseconds(kPatience);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

void KeepLiveObjects() {
  for (GObject* object : LiveObjects()) Permanent().insert(object);
}

GstTest::GstTest() { fake::Reset(); }

GstTest::~GstTest() {
  EXPECT_EQ(fake::GetCounters().live_engines, 0);
  EXPECT_EQ(fake::GetCounters().live_streams, 0);
  gst_task_cleanup_all();  // threads of stopped tasks may hold their pads a little longer
  // A thread of GLib's pool that delivered the last reports may hold its element.
  const auto is_permanent = [](GObject* object) { return Permanent().count(object) > 0; };
  WaitFor([&] { return std::ranges::all_of(LiveObjects(), is_permanent); });
  for (GObject* object : LiveObjects()) {
    if (!Permanent().insert(object).second) continue;  // each leak is reported once
    gchar* text = gst_info_strdup_printf("%" GST_PTR_FORMAT, static_cast<void*>(object));
    ADD_FAILURE() << "still alive: " << text;
    g_free(text);
  }
}

Probe::Probe(GstPad* pad, int types, Function function) : pad_(GST_PAD(gst_object_ref(pad))) {
  id_ = gst_pad_add_probe(
      pad, static_cast<GstPadProbeType>(types),
      [](GstPad*, GstPadProbeInfo* info, gpointer kept) { return (*static_cast<Function*>(kept))(info); },
      new Function(std::move(function)), [](gpointer kept) { delete static_cast<Function*>(kept); });
}

Probe::~Probe() { Remove(); }

void Probe::Remove() {
  if (id_ != 0) gst_pad_remove_probe(pad_.get(), std::exchange(id_, 0));
}

MessageHandler::MessageHandler(const Pipeline& pipeline, Function function)
    : bus_(GST_OBJECT(gst_element_get_bus(pipeline.get()))) {
  gst_bus_set_sync_handler(
      GST_BUS(bus_.get()),
      [](GstBus*, GstMessage* message, gpointer kept) {
        (*static_cast<Function*>(kept))(message);
        return GST_BUS_PASS;
      },
      new Function(std::move(function)), [](gpointer kept) { delete static_cast<Function*>(kept); });
}

MessageHandler::~MessageHandler() { gst_bus_set_sync_handler(GST_BUS(bus_.get()), nullptr, nullptr, nullptr); }

class Recorder::Notes {
 public:
  explicit Notes(bool keep_data) : keep_data_(keep_data) {}

  void Note(GstPadProbeInfo* info) {
    Item item;
    gst_segment_init(&item.segment, GST_FORMAT_UNDEFINED);
    const MutexLock lock(mutex_);
    if ((GST_PAD_PROBE_INFO_TYPE(info) & GST_PAD_PROBE_TYPE_BUFFER) != 0) {
      ReadBuffer(GST_PAD_PROBE_INFO_BUFFER(info), &item);
    } else {
      ReadEvent(GST_PAD_PROBE_INFO_EVENT(info), &item);
    }
    items_.push_back(std::move(item));
  }
  std::vector<Item> items() const {
    const MutexLock lock(mutex_);
    return items_;
  }
  void Clear() {
    const MutexLock lock(mutex_);
    items_.clear();
  }
  void ClearWhenFlushed() {
    const MutexLock lock(mutex_);
    clear_when_flushed_ = true;
  }

 private:
  void ReadBuffer(GstBuffer* buffer, Item* item) QTTS_REQUIRES(mutex_) {
    item->is_buffer = true;
    item->pts = GST_BUFFER_PTS(buffer);
    item->duration = GST_BUFFER_DURATION(buffer);
    item->offset = GST_BUFFER_OFFSET(buffer);
    item->offset_end = GST_BUFFER_OFFSET_END(buffer);
    item->size = gst_buffer_get_size(buffer);
    item->discont = GST_BUFFER_FLAG_IS_SET(buffer, GST_BUFFER_FLAG_DISCONT);
    item->gap_flag = GST_BUFFER_FLAG_IS_SET(buffer, GST_BUFFER_FLAG_GAP);
    item->silent = IsZero(buffer);
    if (is_float_) {
      float head[fake::kLabelSamples] = {};
      gst_buffer_extract(buffer, 0, head, sizeof head);
      item->label = fake::ReadLabel(head);
    } else {
      int16_t head[fake::kLabelSamples] = {};
      gst_buffer_extract(buffer, 0, head, sizeof head);
      item->label = fake::ReadLabel(head);
    }
    if (keep_data_) {
      item->data.resize(item->size);
      gst_buffer_extract(buffer, 0, item->data.data(), item->size);
    }
  }
  void ReadEvent(GstEvent* event, Item* item) QTTS_REQUIRES(mutex_) {
    item->event = GST_EVENT_TYPE(event);
    if (item->event == GST_EVENT_FLUSH_STOP && clear_when_flushed_) items_.clear();
    if (item->event == GST_EVENT_SEGMENT) gst_event_copy_segment(event, &item->segment);
    if (item->event == GST_EVENT_CAPS) {
      GstCaps* caps = nullptr;
      gst_event_parse_caps(event, &caps);
      item->caps = std::shared_ptr<GstCaps>(gst_caps_ref(caps), gst_caps_unref);
      is_float_ = g_strcmp0(gst_structure_get_string(gst_caps_get_structure(caps, 0), "format"), "F32LE") == 0;
    }
  }

  const bool keep_data_;
  mutable Mutex mutex_;
  bool is_float_ QTTS_GUARDED_BY(mutex_) = true;
  bool clear_when_flushed_ QTTS_GUARDED_BY(mutex_) = false;
  std::vector<Item> items_ QTTS_GUARDED_BY(mutex_);
};

Recorder::Recorder(GstPad* pad, bool keep_data)
    : notes_(std::make_shared<Notes>(keep_data)),
      probe_(pad, GST_PAD_PROBE_TYPE_BUFFER | GST_PAD_PROBE_TYPE_EVENT_DOWNSTREAM | GST_PAD_PROBE_TYPE_EVENT_FLUSH,
             [notes = notes_](GstPadProbeInfo* info) {
               notes->Note(info);
               return GST_PAD_PROBE_OK;
             }) {}

std::vector<Recorder::Item> Recorder::items() const { return notes_->items(); }

void Recorder::Clear() { notes_->Clear(); }

void Recorder::ClearWhenFlushed() { notes_->ClearWhenFlushed(); }

std::vector<Recorder::Item> Recorder::buffers() const {
  std::vector<Item> buffers = items();
  std::erase_if(buffers, [](const Item& item) { return !item.is_buffer; });
  return buffers;
}

std::vector<GstEventType> Recorder::events() const {
  std::vector<GstEventType> events;
  for (const Item& item : items()) {
    if (!item.is_buffer) events.push_back(item.event);
  }
  return events;
}

size_t Recorder::buffer_count() const { return buffers().size(); }

std::string Recorder::text() const {
  std::string text;
  for (const Item& item : buffers()) {
    char utf8[6];
    text.append(utf8, static_cast<size_t>(g_unichar_to_utf8(item.label.character, utf8)));
  }
  return text;
}

Pipeline::Pipeline(const std::string& launch_line) {
  GError* error = nullptr;
  GstElement* element = gst_parse_launch(launch_line.c_str(), &error);
  if (error != nullptr) ADD_FAILURE() << launch_line << ": " << error->message;
  g_clear_error(&error);
  pipeline_.reset(GST_ELEMENT(gst_object_ref_sink(element)));
  // Keep the messages in NULL: the test reads them.
  gst_pipeline_set_auto_flush_bus(GST_PIPELINE(get()), FALSE);
  src_ = Find("src");
}

Pipeline::~Pipeline() {
  feeder_.reset();
  gst_element_set_state(get(), GST_STATE_NULL);
  const Owned<GstObject> bus(GST_OBJECT(gst_element_get_bus(get())));
  gst_bus_set_flushing(GST_BUS(bus.get()), TRUE);
  recorder_.reset();
}

Owned<GstElement> Pipeline::Find(const char* name) const {
  return Owned<GstElement>(gst_bin_get_by_name(GST_BIN(get()), name));
}

Recorder& Pipeline::Record(bool keep_data) {
  const Owned<GstPad> pad(gst_element_get_static_pad(src(), "src"));
  recorder_ = std::make_unique<Recorder>(pad.get(), keep_data);
  return *recorder_;
}

GstStateChangeReturn Pipeline::Set(GstState state) {
  const GstStateChangeReturn result = Begin(state);
  return result == GST_STATE_CHANGE_ASYNC ? gst_element_get_state(get(), nullptr, nullptr, kPatience) : result;
}

void Pipeline::Play() {
  if (GST_STATE_TARGET(get()) < GST_STATE_PAUSED) Begin(GST_STATE_PLAYING);
}

Owned<GstMessage> Pipeline::Wait(int types) {
  const Owned<GstObject> bus(GST_OBJECT(gst_element_get_bus(get())));
  return Owned<GstMessage>(
      gst_bus_timed_pop_filtered(GST_BUS(bus.get()), kPatience, static_cast<GstMessageType>(types)));
}

std::vector<Owned<GstMessage>> Pipeline::Pending(int types) {
  const Owned<GstObject> bus(GST_OBJECT(gst_element_get_bus(get())));
  std::vector<Owned<GstMessage>> messages;
  while (GstMessage* message = gst_bus_pop_filtered(GST_BUS(bus.get()), static_cast<GstMessageType>(types))) {
    messages.emplace_back(message);
  }
  return messages;
}

std::vector<Problem> Pipeline::WarningsUntilEnd() {
  std::vector<Problem> warnings;
  for (;;) {
    const auto message = Wait(GST_MESSAGE_EOS | GST_MESSAGE_WARNING | GST_MESSAGE_ERROR);
    if (message == nullptr || GST_MESSAGE_TYPE(message.get()) != GST_MESSAGE_WARNING) return warnings;
    warnings.push_back(ParseProblem(message.get()));
  }
}

const GstStructure* Pipeline::NextMessage(const std::string& name) {
  for (;;) {
    auto message = Wait(GST_MESSAGE_ELEMENT | GST_MESSAGE_ERROR);
    if (message == nullptr || GST_MESSAGE_TYPE(message.get()) == GST_MESSAGE_ERROR) {
      ADD_FAILURE() << "no " << name << (message != nullptr ? ": " + ParseProblem(message.get()).text : "");
      return nullptr;
    }
    messages_.push_back(std::move(message));
    const GstStructure* fields = gst_message_get_structure(messages_.back().get());
    if (gst_structure_has_name(fields, name.c_str())) return fields;
  }
}

Finished Pipeline::Finish() {
  const GstStructure* fields = NextMessage("qtts-utterance-finished");
  if (fields == nullptr) return {.reason = "no message"};
  return {.id = GetField(fields, "id"),
          .reason = GetText(fields, "reason"),
          .frames = GetField(fields, "frames"),
          .samples = GetField(fields, "samples"),
          .text_chars = GetField(fields, "text-chars"),
          .text_spoken_chars = GetField(fields, "text-spoken-chars"),
          .estimated = GetFlag(fields, "estimated")};
}

bool Pipeline::PlayToEnd() {
  Begin(GST_STATE_PLAYING);
  const auto message = Wait(GST_MESSAGE_EOS | GST_MESSAGE_ERROR);
  if (message == nullptr) {
    ADD_FAILURE() << "neither the end nor an error";
    return false;
  }
  if (GST_MESSAGE_TYPE(message.get()) == GST_MESSAGE_EOS) return true;
  ADD_FAILURE() << ParseProblem(message.get()).text;
  return false;
}

Pipeline& Pipeline::Check(bool holds, int line, const std::string& failure) {
  if (!holds && !failed_) ADD_FAILURE() << "line " << line << " of the test: " << failure;
  failed_ = failed_ || !holds;
  return *this;
}

Pipeline& Pipeline::Await(const std::function<bool()>& condition, int line, const std::string& failure) {
  return Check(!failed_ && WaitFor(condition), line, failure);
}

Feeder& Pipeline::feeder() {
  if (feeder_ == nullptr) feeder_ = std::make_unique<Feeder>(src());
  return *feeder_;
}

Pipeline& Pipeline::Open(GstFormat format, const char* caps) {
  feeder();
  Play();
  feeder().Begin(format, caps);
  return *this;
}

Pipeline& Pipeline::Push(const std::string& text, int line) {
  return PushCue(text, GST_CLOCK_TIME_NONE, GST_CLOCK_TIME_NONE, line);
}

Pipeline& Pipeline::PushCue(const std::string& text, GstClockTime start, GstClockTime duration, int line) {
  if (feeder_ == nullptr) Open();
  const GstFlowReturn flow = feeder().Push(text, start, duration);
  return Check(flow == GST_FLOW_OK, line, std::string("the text was not taken: ") + gst_flow_get_name(flow));
}

Pipeline& Pipeline::Push(std::initializer_list<const char*> texts, int line) {
  for (const char* text : texts) Push(std::string(text), line);
  return *this;
}

Pipeline& Pipeline::Send(GstEvent* event, int line) {
  if (feeder_ == nullptr) Open();
  return Check(feeder().Send(event), line, "the event was not taken");
}

Pipeline& Pipeline::Send(const char* structure, int line) { return Send(NewEvent(structure), line); }

Pipeline& Pipeline::Flush(bool reset_time, int line) {
  Send(gst_event_new_flush_start(), line);
  return Send(gst_event_new_flush_stop(static_cast<gboolean>(reset_time)), line);
}

Pipeline& Pipeline::End(int line) { return Send(gst_event_new_eos(), line); }

guint64 Pipeline::Say(const char* text, const char* params) const {
  GstStructure* structure = params != nullptr ? gst_structure_from_string(params, nullptr) : nullptr;
  EXPECT_EQ(structure != nullptr, params != nullptr) << params;
  guint64 id = G_MAXUINT64;
  g_signal_emit_by_name(src(), "speak", text, structure, &id);
  if (structure != nullptr) gst_structure_free(structure);
  return id;
}

guint64 Pipeline::Interrupt() const {
  guint64 frames = G_MAXUINT64;
  g_signal_emit_by_name(src(), "interrupt", &frames);
  return frames;
}

Pipeline& Pipeline::Await(size_t buffers, int line) {
  return Await([&] { return record().buffer_count() == buffers; }, line,
               std::to_string(buffers) + " buffers did not come");
}

Pipeline& Pipeline::AwaitText(const std::string& text, int line) {
  return Await([&] { return record().text() == text; }, line, "\"" + text + "\" was not spoken");
}

Pipeline& Pipeline::AwaitStat(const char* field, guint64 value, int line) {
  return Await([&] { return GetStat(src(), field) == value; }, line,
               std::string(field) + " did not become " + std::to_string(value));
}

Pipeline& Pipeline::ExpectEnd(int line) {
  if (failed_) return *this;
  Play();
  const auto message = Wait(GST_MESSAGE_EOS | GST_MESSAGE_ERROR);
  if (message == nullptr) return Check(false, line, "neither the end nor an error");
  const bool ended = GST_MESSAGE_TYPE(message.get()) == GST_MESSAGE_EOS;
  return Check(ended, line, ended ? "" : ParseProblem(message.get()).text);
}

Pipeline& Pipeline::Expect(const std::string& text, int line) {
  ExpectEnd(line);
  EXPECT_EQ(record().text(), text) << "line " << line << " of the test";
  return *this;
}

Feeder::Feeder(GstElement* element)
    : element_(element), pad_(GST_PAD(gst_object_ref_sink(gst_pad_new("feeder", GST_PAD_SRC)))) {
  gst_pad_set_active(pad_.get(), TRUE);
  sink_.reset(gst_element_request_pad_simple(element, "sink"));
  EXPECT_NE(sink_, nullptr);
  EXPECT_EQ(gst_pad_link(pad_.get(), sink_.get()), GST_PAD_LINK_OK);
}

Feeder::~Feeder() {
  Release();
  gst_pad_set_active(pad_.get(), FALSE);
}

void Feeder::Begin(GstFormat format, const char* caps) {
  Send(gst_event_new_stream_start("feeder"));
  if (caps != nullptr) {
    const Owned<GstCaps> parsed(gst_caps_from_string(caps));
    Send(gst_event_new_caps(parsed.get()));
  }
  GstSegment segment;
  gst_segment_init(&segment, format);
  Send(gst_event_new_segment(&segment));
}

GstFlowReturn Feeder::Push(const std::string& text, GstClockTime start, GstClockTime duration) {
  GstBuffer* buffer = text.empty() ? gst_buffer_new() : gst_buffer_new_memdup(text.data(), text.size());
  GST_BUFFER_PTS(buffer) = start;
  GST_BUFFER_DURATION(buffer) = duration;
  return gst_pad_push(pad_.get(), buffer);
}

void Feeder::Release() {
  if (sink_ == nullptr) return;
  gst_element_release_request_pad(element_, sink_.get());
  sink_.reset();
}

guint64 GetField(const GstStructure* structure, const char* field) {
  guint64 value = 0;
  EXPECT_TRUE(gst_structure_get_uint64(structure, field, &value)) << field;
  return value;
}

std::string GetText(const GstStructure* structure, const char* field) {
  const char* value = gst_structure_get_string(structure, field);
  EXPECT_NE(value, nullptr) << field;
  return value != nullptr ? value : "";
}

bool GetFlag(const GstStructure* structure, const char* field) {
  gboolean value = FALSE;
  EXPECT_TRUE(gst_structure_get_boolean(structure, field, &value)) << field;
  return value != FALSE;
}

Problem ParseProblem(GstMessage* message) {
  GError* error = nullptr;
  if (GST_MESSAGE_TYPE(message) == GST_MESSAGE_ERROR) {
    gst_message_parse_error(message, &error, nullptr);
  } else {
    gst_message_parse_warning(message, &error, nullptr);
  }
  Problem problem{error->domain, error->code, error->message};
  g_error_free(error);
  return problem;
}

GstEvent* NewEvent(const char* structure, GstEventType type) {
  return gst_event_new_custom(type, gst_structure_from_string(structure, nullptr));
}

std::string GetString(GstElement* element, const char* property) {
  gchar* value = nullptr;
  g_object_get(element, property, &value, nullptr);
  std::string string = value != nullptr ? value : "";
  g_free(value);
  return string;
}

std::vector<std::string> GetStrings(GstElement* element, const char* property) {
  gchar** value = nullptr;
  g_object_get(element, property, &value, nullptr);
  std::vector<std::string> strings(value, value + g_strv_length(value));
  g_strfreev(value);
  return strings;
}

guint64 GetStat(GstElement* element, const char* field) {
  GstStructure* stats = nullptr;
  g_object_get(element, "stats", &stats, nullptr);
  guint64 value = 0;
  gint64 signed_value = 0;
  if (!gst_structure_get_uint64(stats, field, &value)) {
    EXPECT_TRUE(gst_structure_get_int64(stats, field, &signed_value)) << field;
    value = static_cast<guint64>(signed_value);
  }
  gst_structure_free(stats);
  return value;
}

bool UpstreamWaits(GstElement* element) {
  GstStructure* stats = nullptr;
  g_object_get(element, "stats", &stats, nullptr);
  gboolean waits = FALSE;
  EXPECT_TRUE(gst_structure_get_boolean(stats, "upstream-waits", &waits));
  gst_structure_free(stats);
  return waits != FALSE;
}

}  // namespace qtts::testing
