// SPDX-License-Identifier: LGPL-2.1-or-later
// A stream through audioresample, as telephones (8 kHz), recognisers (16 kHz), files (44.1 kHz) and Opus (48 kHz) need
// it: the number of samples and the timestamps are those of the element, however often sound and silence alternate.
// With the GAP flag on silence they are not: GStreamer before 1.28.3 adds some 128 samples at each change from sound to
// silence, later versions fall behind with the timestamps by as much, and jump.
#include <cstdint>
#include <string>

#include "live_pipeline.h"
#include "support.h"

namespace qtts::testing {
namespace {

constexpr int kElementRate = 24000;
// The filter of audioresample at its default quality holds back at most this.
constexpr GstClockTime kFilterDelay = 5 * GST_MSECOND;

class ResampleTest : public GstTest, public ::testing::WithParamInterface<int> {
 protected:
  static std::string Between() {
    return " ! audioresample name=resample ! audio/x-raw,rate=" + std::to_string(GetParam());
  }
  static Owned<GstPad> ResampledPad(const Pipeline& pipeline) {
    return Owned<GstPad>(gst_element_get_static_pad(pipeline.Find("resample").get(), "src"));
  }

  static uint64_t CountSamples(const Recorder& record) {
    uint64_t samples = 0;
    for (const auto& buffer : record.buffers()) samples += buffer.size / sizeof(int16_t);
    return samples;
  }
  static uint64_t ExpectedSamples(const Recorder& record) {
    return gst_util_uint64_scale_round(CountSamples(record), static_cast<guint64>(GetParam()), kElementRate);
  }

  // Each buffer begins where the samples before it end, counted from the first one.
  static void ExpectNoBreak(const Recorder& resampled) {
    const auto buffers = resampled.buffers();
    ASSERT_FALSE(buffers.empty());
    uint64_t samples = 0;
    for (size_t i = 0; i < buffers.size(); ++i) {
      const GstClockTime due =
          buffers[0].pts + gst_util_uint64_scale(samples, GST_SECOND, static_cast<guint64>(GetParam()));
      ASSERT_NEAR(static_cast<double>(buffers[i].pts), static_cast<double>(due), 1000) << "ns, buffer " << i;
      ASSERT_EQ(buffers[i].discont, i == 0) << i;
      samples += buffers[i].size / sizeof(int16_t);
    }
  }

  // Expects the length of a stream that goes on: the filter holds samples back.
  static void ExpectUnchangedLength(const Recorder& record, const Recorder& resampled) {
    const uint64_t delay = gst_util_uint64_scale(kFilterDelay, static_cast<guint64>(GetParam()), GST_SECOND);
    ASSERT_TRUE(WaitFor([&] { return CountSamples(resampled) + delay >= ExpectedSamples(record); }));
    EXPECT_LE(CountSamples(resampled), ExpectedSamples(record));
    ExpectNoBreak(resampled);
  }
};

// Advances the clock until so many frames of speech, and then some silence, have come.
void SpeakUpTo(LivePipeline* pipeline, size_t frames) {
  ASSERT_TRUE(WaitFor([&] {
    pipeline->AdvanceWithTheEngine();
    return Speech(pipeline->record().buffers()).size() == frames;
  }));
  ASSERT_TRUE(pipeline->AdvanceUntil(pipeline->record().buffer_count() + 4));
}

// Check: 56
TEST_P(ResampleTest, ManyUtterancesInALiveStream) {
  constexpr size_t kUtterances = 30;
  LivePipeline pipeline("idle-mode=silence", Between());
  const Recorder resampled(ResampledPad(pipeline).get());
  pipeline.Set(GST_STATE_PLAYING);
  for (size_t i = 1; i <= kUtterances; ++i) {
    g_object_set(pipeline.src(), "text", "abc", nullptr);
    SpeakUpTo(&pipeline, 3 * i);
  }
  ExpectUnchangedLength(pipeline.record(), resampled);
}

// Silence fills the time until late text comes, within the utterance.
// Check: 56
TEST_P(ResampleTest, LateTextInALiveStream) {
  constexpr size_t kPieces = 30;
  LivePipeline pipeline("idle-mode=silence segmentation=stream utterance-timeout=18446744073709551615", Between());
  const Recorder resampled(ResampledPad(pipeline).get());
  for (size_t i = 1; i <= kPieces; ++i) {
    pipeline.Push("ab");
    SpeakUpTo(&pipeline, 2 * i);
  }
  ExpectUnchangedLength(pipeline.record(), resampled);
}

// Check: 56
TEST_P(ResampleTest, SilenceBetweenUtterancesAndBeforeCues) {
  for (const char* silence : {"leading-silence=50000000 utterance-gap=70000000", "text-timing=start"}) {
    SCOPED_TRACE(silence);
    Speak speak(std::string(silence) + Between());
    const Recorder resampled(ResampledPad(speak).get());
    speak.Open();
    for (guint64 i = 0; i < 30; ++i) {
      GstBuffer* text = gst_buffer_new_memdup("ab", 2);
      GST_BUFFER_PTS(text) = i * 300 * GST_MSECOND;
      ASSERT_EQ(gst_pad_chain(speak.feeder().sink(), text), GST_FLOW_OK);
    }
    speak.End().ExpectEnd();
    EXPECT_GT(speak.record().buffer_count(), 75U) << "too little silence";
    EXPECT_NEAR(static_cast<double>(CountSamples(resampled)), static_cast<double>(ExpectedSamples(speak.record())), 1);
    ExpectNoBreak(resampled);
  }
}

INSTANTIATE_TEST_SUITE_P(Rates, ResampleTest, ::testing::Values(8000, 16000, 44100, 48000));

}  // namespace
}  // namespace qtts::testing
