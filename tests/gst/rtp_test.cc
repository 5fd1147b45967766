// SPDX-License-Identifier: LGPL-2.1-or-later
// The packets of examples/rtp-send: 20 ms each, and on time. The element sends 80 ms at once, of which an encoder makes
// four packets. A packet whose last samples are still held back by a filter, until the next 80 ms come, is late for a
// sink, unless the delay is a latency that the pipeline knows.
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "live_pipeline.h"
#include "support.h"

namespace qtts::testing {
namespace {

constexpr GstClockTime kPacket = 20 * GST_MSECOND;

// The encoder and payloader of a format, as a launch line: the array `rtp_encoder` of examples/rtp-formats.sh.
std::string Encoder(const std::string& format) {
  const gchar* argv[] = {
      "bash",         "-c",   ". \"$1\" && rtp_format \"$2\" && echo \"${rtp_encoder[*]}\"", "bash", QTTS_RTP_FORMATS,
      format.c_str(), nullptr};
  gchar* output = nullptr;
  gint status = 0;
  GError* error = nullptr;
  const gboolean ran = g_spawn_sync(nullptr, const_cast<gchar**>(argv), nullptr, G_SPAWN_SEARCH_PATH, nullptr, nullptr,
                                    &output, nullptr, &status, &error);
  EXPECT_TRUE(ran && status == 0) << format;
  g_clear_error(&error);
  const std::string line = output != nullptr ? output : "";
  g_free(output);
  return line;
}

// Notes of each packet its time and the clock's, both as running time.
class PacketTimes {
 public:
  struct Packet {
    GstClockTime pts;
    GstClockTime now;
  };

  explicit PacketTimes(const LivePipeline& pipeline) : pipeline_(pipeline) {}

  // Notes the packets of `pad`, whose probe keeps the notes alive: packets come until the pipeline has stopped.
  static std::shared_ptr<const PacketTimes> Of(const LivePipeline& pipeline, GstPad* pad) {
    auto times = std::make_shared<PacketTimes>(pipeline);
    gst_pad_add_probe(pad, static_cast<GstPadProbeType>(GST_PAD_PROBE_TYPE_BUFFER | GST_PAD_PROBE_TYPE_BUFFER_LIST),
                      OnPacket, new std::shared_ptr(times),
                      [](gpointer kept) { delete static_cast<std::shared_ptr<PacketTimes>*>(kept); });
    return times;
  }

  std::vector<Packet> packets() const {
    const std::lock_guard lock(mutex_);
    return packets_;
  }

 private:
  static gboolean Note(GstBuffer** buffer, guint /*index*/, gpointer user_data) {
    auto* self = static_cast<PacketTimes*>(user_data);
    self->packets_.push_back({GST_BUFFER_PTS(*buffer), self->pipeline_.now()});
    return TRUE;
  }
  static GstPadProbeReturn OnPacket(GstPad* /*pad*/, GstPadProbeInfo* info, gpointer user_data) {
    PacketTimes* const self = static_cast<std::shared_ptr<PacketTimes>*>(user_data)->get();
    const std::lock_guard lock(self->mutex_);
    if ((GST_PAD_PROBE_INFO_TYPE(info) & GST_PAD_PROBE_TYPE_BUFFER_LIST) != 0) {
      gst_buffer_list_foreach(GST_PAD_PROBE_INFO_BUFFER_LIST(info), Note, self);
    } else {
      GstBuffer* buffer = GST_PAD_PROBE_INFO_BUFFER(info);
      Note(&buffer, 0, self);
    }
    return GST_PAD_PROBE_OK;
  }

  const LivePipeline& pipeline_;
  mutable std::mutex mutex_;
  std::vector<Packet> packets_;
};

// The latency that a sink with this pad would have, from upstream: that of the pipeline's query counts only sinks that
// wait for the clock.
GstClockTime Latency(GstPad* pad) {
  GstQuery* query = gst_query_new_latency();
  GstClockTime latency = 0;
  EXPECT_TRUE(gst_pad_peer_query(pad, query));
  gst_query_parse_latency(query, nullptr, &latency, nullptr);
  gst_query_unref(query);
  return latency;
}

class RtpTest : public GstTest, public ::testing::WithParamInterface<const char*> {};

// Check: 57
TEST_P(RtpTest, PacketsAreOnTime) {
  LivePipeline pipeline("text=abcdefghijklmnopqrst", " ! audioconvert ! audioresample ! " + Encoder(GetParam()));
  const auto sink = pipeline.Find("sink");
  const Owned<GstPad> pad(gst_element_get_static_pad(sink.get(), "sink"));
  const auto times = PacketTimes::Of(pipeline, pad.get());
  pipeline.Set(GST_STATE_PLAYING);
  constexpr GstClockTime kStep = 5 * GST_MSECOND;  // of AdvanceWithTheEngine()
  ASSERT_TRUE(WaitFor([&] {
    pipeline.AdvanceWithTheEngine();
    return Speech(pipeline.record().buffers()).size() == 20;
  }));
  // Until a frame has passed all elements, the clock may have moved on: the packets are those of frames before.
  ASSERT_TRUE(WaitFor([&] { return times->packets().size() >= 76; }));
  const GstClockTime latency = Latency(pad.get());
  const auto packets = times->packets();
  for (size_t i = 0; i < packets.size(); ++i) {
    // Opus dates packets by its lookahead earlier, and the first one not before 0.
    if (i > 1) {
      EXPECT_NEAR(static_cast<double>(packets[i].pts - packets[i - 1].pts), kPacket, 1000) << i;
    }
    EXPECT_LE(packets[i].now, packets[i].pts + latency + kStep) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, RtpTest, ::testing::Values("opus", "l16", "pcmu", "pcma"));

}  // namespace
}  // namespace qtts::testing
