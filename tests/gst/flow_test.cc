// SPDX-License-Identifier: LGPL-2.1-or-later
// Exchange with downstream: flow returns, the order of events, stream ids.
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support.h"

namespace qtts::testing {
namespace {

// More frames than the engine computes ahead.
const std::string& LongText() {
  static const std::string text(500, 'x');
  return text;
}

struct Answer {
  GstFlowReturn flow;
  int message;  // type of the message that it causes; 0: none
};

// A sink that returns an error from the third buffer on.
class FlowTest : public GstTest, public ::testing::WithParamInterface<Answer> {
 protected:
  FlowTest() {
    const Owned<GstPad> pad(gst_element_get_static_pad(speak_.Find("sink").get(), "sink"));
    probe_.emplace(pad.get(), GST_PAD_PROBE_TYPE_BUFFER, [this](GstPadProbeInfo* info) { return OnBuffer(info); });
  }

  GstPadProbeReturn OnBuffer(GstPadProbeInfo* info) {
    if (++buffers_ < 3) return GST_PAD_PROBE_OK;
    gst_buffer_unref(GST_PAD_PROBE_INFO_BUFFER(info));
    info->data = nullptr;
    GST_PAD_PROBE_INFO_FLOW_RETURN(info) = GetParam().flow;
    return GST_PAD_PROBE_HANDLED;
  }

  void ExpectTheMessage() {
    if (GetParam().message == 0) {
      ASSERT_TRUE(WaitFor([this] { return buffers_ == 3; }));
      g_usleep(50000);
      EXPECT_TRUE(speak_.Pending(GST_MESSAGE_ERROR | GST_MESSAGE_EOS).empty());
      return;
    }
    const auto message = speak_.Wait(GST_MESSAGE_ERROR | GST_MESSAGE_EOS);
    ASSERT_NE(message, nullptr);
    EXPECT_EQ(GST_MESSAGE_TYPE(message.get()), GetParam().message);
  }
  // The engine computes no further frames.
  static void ExpectIdleEngine() {
    int64_t frames = -1;
    EXPECT_TRUE(WaitFor([&frames] {
      const int64_t before = std::exchange(frames, fake::GetCounters().frames);
      g_usleep(20000);
      return before == frames;
    }));
    EXPECT_LE(frames, int64_t{3} + EngineOptions().lead_frames);
  }

  std::atomic<int> buffers_ = 0;  // outlives the pipeline, whose probe counts them
  Speak speak_{"max-queued-text=10"};
  std::optional<Probe> probe_;
};

INSTANTIATE_TEST_SUITE_P(Answers, FlowTest,
                         ::testing::Values(Answer{GST_FLOW_EOS, GST_MESSAGE_EOS},
                                           Answer{GST_FLOW_ERROR, GST_MESSAGE_ERROR},
                                           Answer{GST_FLOW_NOT_LINKED, GST_MESSAGE_ERROR},
                                           Answer{GST_FLOW_NOT_NEGOTIATED, GST_MESSAGE_ERROR},
                                           Answer{GST_FLOW_FLUSHING, 0}),
                         [](const auto& answer) {
                           std::string name = gst_flow_get_name(answer.param.flow);
                           std::erase(name, '-');
                           return name;
                         });

TEST_P(FlowTest, C28StopsTheEngineAndIsTold) {
  g_object_set(speak_.src(), "text", LongText().c_str(), nullptr);
  speak_.Begin(GST_STATE_PLAYING);
  ExpectTheMessage();
  ExpectIdleEngine();
  EXPECT_EQ(buffers_, 3);
  if (GetParam().message != 0) {
    EXPECT_TRUE(WaitFor([] { return fake::GetCounters().live_streams == 0; }));
  }

  // The cause is gone: the element can be used again.
  probe_.reset();
  speak_.Set(GST_STATE_READY);
  speak_.Pending(GST_MESSAGE_ANY);
  EXPECT_TRUE(speak_.PlayToEnd());
}

TEST_P(FlowTest, C28ReleasesUpstream) {
  Feeder& feeder = speak_.Open().feeder();
  std::atomic<GstFlowReturn> flow = GST_FLOW_OK;
  std::thread upstream([&] {
    while (flow == GST_FLOW_OK) flow = feeder.Push(LongText());
  });
  ExpectTheMessage();
  ExpectIdleEngine();
  if (GetParam().message == 0) {
    // After a flush, flush-stop says when the stream goes on.
    EXPECT_EQ(flow, GST_FLOW_OK);
    probe_.reset();
    speak_.Send(gst_event_new_flush_start());
    upstream.join();
    EXPECT_EQ(flow, GST_FLOW_FLUSHING);
    speak_.Send(gst_event_new_flush_stop(TRUE)).Open().Push("new").End().ExpectEnd();
    return;
  }
  upstream.join();
  EXPECT_EQ(flow, GST_FLOW_EOS);
}

using StreamTest = GstTest;

TEST_F(StreamTest, C28WithoutAPeerThereIsOneError) {
  const Owned<GstElement> pipeline(GST_ELEMENT(gst_object_ref_sink(gst_pipeline_new(nullptr))));
  GstElement* src = gst_element_factory_make("qttssrc", nullptr);
  g_object_set(src, "text", LongText().c_str(), nullptr);
  gst_bin_add(GST_BIN(pipeline.get()), src);
  gst_element_set_state(pipeline.get(), GST_STATE_PLAYING);
  GstBus* bus = gst_element_get_bus(pipeline.get());
  const Owned<GstMessage> message(
      gst_bus_timed_pop_filtered(bus, kPatience, static_cast<GstMessageType>(GST_MESSAGE_ERROR | GST_MESSAGE_EOS)));
  ASSERT_NE(message, nullptr);
  EXPECT_EQ(GST_MESSAGE_TYPE(message.get()), GST_MESSAGE_ERROR);
  EXPECT_EQ(ParseProblem(message.get()).domain, GST_STREAM_ERROR);
  gst_element_set_state(pipeline.get(), GST_STATE_NULL);
  gst_object_unref(bus);
}

// The rules of GstStreamConsistency, which works in libcheck programs only.
void ExpectInOrder(const std::vector<Recorder::Item>& items) {
  bool started = false;
  bool caps = false;
  bool segment = false;
  bool flushing = false;
  bool ended = false;
  for (const auto& item : items) {
    if (item.is_buffer) {
      EXPECT_TRUE(started && caps && segment) << "a buffer before what describes it";
      EXPECT_FALSE(flushing || ended);
      continue;
    }
    switch (item.event) {
      case GST_EVENT_STREAM_START:
        EXPECT_FALSE(started);
        started = true;
        break;
      case GST_EVENT_CAPS:
        EXPECT_TRUE(started);
        EXPECT_FALSE(segment || ended);
        caps = true;
        break;
      case GST_EVENT_SEGMENT:
        EXPECT_TRUE(caps);
        EXPECT_FALSE(flushing || ended);
        segment = true;
        break;
      case GST_EVENT_FLUSH_START:
        flushing = true;
        break;
      case GST_EVENT_FLUSH_STOP:
        EXPECT_TRUE(flushing);
        flushing = segment = ended = false;
        break;
      case GST_EVENT_EOS:
        EXPECT_TRUE(started);
        EXPECT_FALSE(flushing || ended);
        ended = true;
        break;
      default:
        EXPECT_TRUE(started) << gst_event_type_get_name(item.event);
        EXPECT_FALSE(ended) << gst_event_type_get_name(item.event);
        break;
    }
  }
  EXPECT_TRUE(ended);
}

TEST_F(StreamTest, C6EverythingComesInOrder) {
  for (const char* properties : {"", "is-live=true", "is-live=true idle-mode=wait", "leading-silence=50000000"}) {
    SCOPED_TRACE(properties);
    Speak speak(std::string("text=abc ") + properties);
    speak.Push("def");
    ASSERT_TRUE(WaitFor([&] { return speak.record().buffer_count() > 3; }));
    speak.Flush().Open().Push("ghi").End().ExpectEnd();
    ExpectInOrder(speak.record().items());
  }
}

TEST_F(StreamTest, C29EveryStreamHasAnIdentity) {
  Pipeline pipeline("qttssrc name=src text=abc ! fakesink name=sink");
  const Owned<GstPad> pad(gst_element_get_static_pad(pipeline.src(), "src"));
  std::string ids[2];
  guint groups[2] = {};
  for (int run = 0; run < 2; ++run) {
    ASSERT_TRUE(pipeline.PlayToEnd());
    GstEvent* event = gst_pad_get_sticky_event(pad.get(), GST_EVENT_STREAM_START, 0);
    ASSERT_NE(event, nullptr);
    const gchar* id = nullptr;
    gst_event_parse_stream_start(event, &id);
    ids[run] = id;
    EXPECT_TRUE(gst_event_parse_group_id(event, &groups[run]));
    gst_event_unref(event);
    pipeline.Set(GST_STATE_READY);
  }
  EXPECT_FALSE(ids[0].empty());
  EXPECT_NE(groups[0], GST_GROUP_ID_INVALID);
  EXPECT_NE(groups[0], groups[1]) << "another run is another group";
}

TEST_F(StreamTest, C29BothBranchesOfATeeHearTheSame) {
  Pipeline pipeline(
      "qttssrc name=src text=abcdefgh ! tee name=tee ! queue ! fakesink name=one tee. ! queue ! fakesink name=two");
  const auto one = pipeline.Find("one");
  const auto two = pipeline.Find("two");
  const Owned<GstPad> one_pad(gst_element_get_static_pad(one.get(), "sink"));
  const Owned<GstPad> two_pad(gst_element_get_static_pad(two.get(), "sink"));
  const Recorder at_one(one_pad.get());
  const Recorder at_two(two_pad.get());
  ASSERT_TRUE(pipeline.PlayToEnd());
  EXPECT_EQ(at_one.text(), "abcdefgh");
  EXPECT_EQ(at_two.text(), "abcdefgh");
}

}  // namespace
}  // namespace qtts::testing
