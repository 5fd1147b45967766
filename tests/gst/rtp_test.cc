// SPDX-License-Identifier: LGPL-2.1-or-later
// The packets of examples/rtp-send: 20 ms each, and on time. The element sends 80 ms at once, of which an encoder makes
// four packets. A packet whose last samples are still held back by a filter, until the next 80 ms come, is late for a
// sink, unless the delay is a latency that the pipeline knows.
#include <cmath>
#include <memory>
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

// Times of the packets of a pad, and of the clock when each passes, both as running time.
class PacketTimes {
 public:
  struct Packet {
    GstClockTime pts;
    GstClockTime now;
  };

  PacketTimes(const LivePipeline& pipeline, GstPad* pad)
      : probe_(pad, GST_PAD_PROBE_TYPE_BUFFER | GST_PAD_PROBE_TYPE_BUFFER_LIST,
               [packets = packets_, &pipeline](GstPadProbeInfo* info) {
                 const auto note = [&](GstBuffer* buffer) { packets->Add({GST_BUFFER_PTS(buffer), pipeline.now()}); };
                 if ((GST_PAD_PROBE_INFO_TYPE(info) & GST_PAD_PROBE_TYPE_BUFFER_LIST) == 0) {
                   note(GST_PAD_PROBE_INFO_BUFFER(info));
                   return GST_PAD_PROBE_OK;
                 }
                 GstBufferList* list = GST_PAD_PROBE_INFO_BUFFER_LIST(info);
                 for (guint i = 0; i < gst_buffer_list_length(list); ++i) note(gst_buffer_list_get(list, i));
                 return GST_PAD_PROBE_OK;
               }) {}

  std::vector<Packet> packets() const { return packets_->items(); }

 private:
  const std::shared_ptr<SharedList<Packet>> packets_ = std::make_shared<SharedList<Packet>>();
  Probe probe_;
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
  const PacketTimes times(pipeline, pad.get());
  pipeline.Set(GST_STATE_PLAYING);
  constexpr GstClockTime kStep = 5 * GST_MSECOND;  // of AdvanceWithTheEngine()
  ASSERT_TRUE(WaitFor([&] {
    pipeline.AdvanceWithTheEngine();
    return Speech(pipeline.record().buffers()).size() == 20;
  }));
  // Until a frame has passed all elements, the clock may have moved on: the packets are those of frames before.
  ASSERT_TRUE(WaitFor([&] { return times.packets().size() >= 76; }));
  const GstClockTime latency = Latency(pad.get());
  const auto packets = times.packets();
  const auto buffers = pipeline.record().buffers();
  // On a busy machine the source may be late, and go on later.
  size_t gaps = 0;
  for (size_t i = 1; i < buffers.size(); ++i)
    gaps += buffers[i].pts == buffers[i - 1].pts + buffers[i - 1].duration ? 0 : 1;
  size_t jumps = 0;
  for (size_t i = 0; i < packets.size(); ++i) {
    // Opus dates packets by its lookahead earlier, and the first one not before 0.
    if (i > 1 && std::abs(static_cast<double>(packets[i].pts - packets[i - 1].pts) - kPacket) > 1000) ++jumps;
    EXPECT_LE(packets[i].now, packets[i].pts + latency + kStep) << i;
  }
  EXPECT_LE(jumps, gaps);
}

INSTANTIATE_TEST_SUITE_P(Formats, RtpTest, ::testing::Values("opus", "l16", "pcmu", "pcma"));

}  // namespace
}  // namespace qtts::testing
