// SPDX-License-Identifier: LGPL-2.1-or-later
// The rate of speech, silences that are shortened, and speech that is fitted into the slots of its cues.
#include <atomic>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "gstqttsshaper.h"
#include "gstqttstimeline.h"
#include "gstqttswordtrack.h"
#include "live_pipeline.h"
#include "support.h"
#include "text_sink.h"

namespace qtts::testing {
namespace {

using gstqtts::ShapedSound;
using gstqtts::SoundPlaces;
using gstqtts::SoundShaper;
using gstqtts::SoundSpan;
using std::chrono::milliseconds;

constexpr GstClockTime kPaceFrame = 80 * GST_MSECOND;
constexpr size_t kFrameSamples = 1920;

// Buffers and messages of a run.
struct Pace {
  std::vector<Recorder::Item> buffers;
  std::vector<Owned<GstMessage>> progress;
  std::vector<Owned<GstMessage>> finished;

  GstClockTime end() const { return buffers.back().pts + buffers.back().duration; }
  guint64 Finished(size_t i, const char* field) const {
    return GetField(gst_message_get_structure(finished.at(i).get()), field);
  }
  // Milliseconds of the words.
  std::vector<guint64> Words(const char* field) const {
    std::vector<guint64> times;
    for (const auto& message : progress) {
      times.push_back((GetField(gst_message_get_structure(message.get()), field) + GST_MSECOND / 2) / GST_MSECOND);
    }
    return times;
  }
};

class PaceTest : public GstTest {
 protected:
  // Plays to the end.
  static Pace Collect(Pipeline* pipeline) {
    pipeline->Play();
    Pace pace;
    for (;;) {
      auto message = pipeline->Wait(GST_MESSAGE_ELEMENT | GST_MESSAGE_ERROR | GST_MESSAGE_EOS);
      EXPECT_NE(message, nullptr);
      if (message == nullptr || GST_MESSAGE_TYPE(message.get()) != GST_MESSAGE_ELEMENT) break;
      const GstStructure* fields = gst_message_get_structure(message.get());
      if (gst_structure_has_name(fields, "qtts-text-progress"))
        pace.progress.push_back(std::move(message));
      else if (gst_structure_has_name(fields, "qtts-utterance-finished"))
        pace.finished.push_back(std::move(message));
    }
    pace.buffers = pipeline->record().buffers();
    for (size_t i = 0; i < pace.buffers.size(); ++i) {
      const auto& buffer = pace.buffers[i];
      EXPECT_TRUE(buffer.silent || buffer.offset_end - buffer.offset <= kFrameSamples) << i;
      if (i == 0) continue;
      EXPECT_EQ(buffer.offset, pace.buffers[i - 1].offset_end) << i;
      EXPECT_EQ(buffer.pts, pace.buffers[i - 1].pts + pace.buffers[i - 1].duration) << i;
    }
    return pace;
  }

  static Pace Play(const std::string& properties, const std::string& text, bool keep_data = false) {
    Speak speak(properties);
    g_object_set(speak.src(), "text", text.c_str(), nullptr);
    speak.Record(keep_data);
    return Collect(&speak);
  }

  static void UseAlignment() {
    fake::Script script;
    fake::AddAlignment(&script);
    fake::SetScript(script);
  }

  static void UseSilentDots() {
    fake::Script script;
    fake::AddAlignment(&script);
    script.silent = '_';
    fake::SetScript(script);
  }
};

TEST_F(PaceTest, RateScalesTheLength) {
  for (const double rate : {0.25, 0.5, 0.8, 1.25, 1.5, 2.0, 4.0}) {
    SCOPED_TRACE(rate);
    for (const char* const format : {"S16LE", "F32LE"}) {
      Speak speak(std::string("text=abcdefghij ! audio/x-raw,format=") + format);
      g_object_set(speak.src(), "rate", rate, nullptr);
      const Pace pace = Collect(&speak);
      const auto samples = static_cast<guint64>(std::llround(10 * kFrameSamples / rate));
      EXPECT_EQ(pace.buffers.back().offset_end, samples);
      EXPECT_EQ(pace.end(), gst_util_uint64_scale(samples, GST_SECOND, 24000));
      EXPECT_EQ(pace.Finished(0, "samples"), samples);
      EXPECT_EQ(pace.Finished(0, "duration"), gst_util_uint64_scale(samples, GST_SECOND, 24000));
      EXPECT_EQ(pace.Finished(0, "frames"), pace.buffers.size());
      EXPECT_EQ(pace.Finished(0, "text-spoken-chars"), 10U);
      EXPECT_EQ(fake::GetCounters().play_time, std::chrono::nanoseconds(pace.end())) << "the engine knows";
      // One buffer a frame, and the rest.
      EXPECT_LE(pace.buffers.size(), rate > 1 ? 11U : 50U);
    }
  }
}

TEST_F(PaceTest, RateOneChangesNoSample) {
  const Pace plain = Play("", "abcdefghij", true);
  Speak speak("rate=1 max-silence=0 max-compression=3 text=abcdefghij");
  speak.Record(true);
  const Pace same = Collect(&speak);
  ASSERT_EQ(same.buffers.size(), plain.buffers.size());
  // The label holds the number of the utterance, which has grown.
  for (size_t i = 0; i < same.buffers.size(); ++i) {
    const size_t label = fake::kLabelSamples * sizeof(gint16);
    ASSERT_EQ(same.buffers[i].data.size(), plain.buffers[i].data.size());
    EXPECT_EQ(std::memcmp(same.buffers[i].data.data() + label, plain.buffers[i].data.data() + label,
                          plain.buffers[i].data.size() - label),
              0);
  }
}

TEST_F(PaceTest, WordsAreToldWhenTheyAreHeard) {
  UseAlignment();
  for (const char* const more : {"", "trim-leading-silence=false "}) {
    const Pace pace = Play(std::string(more) + "rate=2", "One, two and three!");
    EXPECT_EQ(pace.Words("running-time"), (std::vector<guint64>{0, 5 * 40, 9 * 40, 13 * 40}));
    EXPECT_EQ(pace.Words("duration"), (std::vector<guint64>{3 * 40, 3 * 40, 3 * 40, 5 * 40}));
  }
  const Pace slow = Play("rate=0.5", "One, two and three!");
  EXPECT_EQ(slow.Words("running-time"), (std::vector<guint64>{0, 5 * 160, 9 * 160, 13 * 160}));
}

TEST_F(PaceTest, TextPadsHaveTheTimesOfTheSound) {
  UseAlignment();
  for (const char* const granularity : {"word", "sentence"}) {
    SCOPED_TRACE(granularity);
    Speak speak("rate=2 text=\"One, two and three!\"");
    TextSink sink(speak.src(), granularity);
    Collect(&speak);
    ASSERT_TRUE(sink.Ended());
    if (granularity[0] == 'w') {
      EXPECT_EQ(
          sink.texts(),
          (std::vector<TextSink::Text>{
              {"One,", 0, 3 * 40}, {"two", 5 * 40, 3 * 40}, {"and", 9 * 40, 3 * 40}, {"three!", 13 * 40, 5 * 40}}));
    } else {
      EXPECT_EQ(sink.texts(), (std::vector<TextSink::Text>{{"One, two and three!", 0, 18 * 40}}));
    }
  }
}

TEST_F(PaceTest, SilencesAreShortened) {
  UseSilentDots();
  // 800 ms of silence in the middle, of which 200 ms stay.
  const Pace pace = Play("max-silence=200000000", "One __________ two.");
  EXPECT_EQ(pace.end(), 19 * kPaceFrame - 600 * GST_MSECOND);
  EXPECT_EQ(pace.Finished(0, "samples"), 19 * kFrameSamples - 14400);
  EXPECT_EQ(pace.Words("running-time"), (std::vector<guint64>{0, 15 * 80 - 600}));
  const Pace fast = Play("max-silence=200000000 rate=2", "One __________ two.");
  EXPECT_EQ(fast.end(), (19 * kPaceFrame - 600 * GST_MSECOND) / 2);
  EXPECT_EQ(fast.Words("running-time"), (std::vector<guint64>{0, (15 * 80 - 600) / 2}));
  const Pace whole = Play("", "One __________ two.");
  EXPECT_EQ(whole.end(), 19 * kPaceFrame);
}

// Someone who writes milliseconds asks for nearly nothing, not for all.
TEST_F(PaceTest, TheShortestMaximumIsALimit) {
  UseSilentDots();
  const Pace pace = Play("max-silence=500", "One __________ two.");
  EXPECT_EQ(pace.end(), 19 * kPaceFrame - 780 * GST_MSECOND);
}

TEST_F(PaceTest, TextPadsKnowOfSilencesThatAreLeftOut) {
  UseSilentDots();
  for (const char* const granularity : {"word", "sentence"}) {
    SCOPED_TRACE(granularity);
    Speak speak("max-silence=200000000 text=\"One __________ two.\"");
    TextSink sink(speak.src(), granularity);
    Collect(&speak);
    ASSERT_TRUE(sink.Ended());
    ASSERT_FALSE(sink.texts().empty());
    const TextSink::Text last = sink.texts().back();
    EXPECT_EQ(last.time + last.duration, 18U * 80 - 600);
  }
}

TEST_F(PaceTest, AnUtteranceMayHaveItsOwnRate) {
  Speak speak("idle-mode=wait");
  speak.Set(GST_STATE_PLAYING);
  EXPECT_NE(speak.Say("abcdefghij", "params, rate=2.0"), 0U);
  EXPECT_EQ(speak.Finish().samples, 5 * kFrameSamples);
  EXPECT_NE(speak.Say("abcdefghij"), 0U);
  EXPECT_EQ(speak.Finish().samples, 10 * kFrameSamples);
  g_object_set(speak.src(), "rate", 1.25, nullptr);
  EXPECT_NE(speak.Say("abcdefghij", "params, rate=2"), 0U);
  EXPECT_EQ(speak.Finish().samples, 5 * kFrameSamples);
  EXPECT_NE(speak.Say("abcdefghij"), 0U);
  EXPECT_EQ(speak.Finish().samples, 8 * kFrameSamples);
  EXPECT_EQ(speak.Say("abcdefghij", "params, rate=5.0"), 0U);
  const auto warning = speak.Wait(GST_MESSAGE_WARNING);
  ASSERT_NE(warning, nullptr);
  EXPECT_NE(ParseProblem(warning.get()).text.find("0.25 to 4"), std::string::npos);
}

TEST_F(PaceTest, OnlyRatesOfTheRangeAreValid) {
  const Pipeline pipeline("qttssrc name=src ! fakesink");
  GParamSpec* spec = g_object_class_find_property(G_OBJECT_GET_CLASS(pipeline.src()), "rate");
  GValue value = G_VALUE_INIT;
  g_value_init(&value, G_TYPE_DOUBLE);
  for (const double valid : {0.25, 1.0, 4.0}) {
    g_value_set_double(&value, valid);
    EXPECT_FALSE(g_param_value_validate(spec, &value)) << valid;
  }
  for (const double wrong : {-1.0, 0.0, 0.24, 4.01, std::nan("")}) {
    g_value_set_double(&value, wrong);
    EXPECT_TRUE(g_param_value_validate(spec, &value)) << wrong;
  }
  g_value_unset(&value);
}

TEST_F(PaceTest, MarkupChangesTheRate) {
  const Pace pace = Play("markup=ssml",
                         "<speak>abcd<break time=\"200ms\"/><prosody rate=\"200%\">abcdefgh</prosody><prosody "
                         "rate=\"0.5\">ab</prosody></speak>");
  // The break keeps its length.
  EXPECT_EQ(pace.end(), 4 * kPaceFrame + 200 * GST_MSECOND + 4 * kPaceFrame + 4 * kPaceFrame);
  const Pace both =
      Play("markup=ssml rate=2", "<speak>abcd<break time=\"200ms\"/><prosody rate=\"200%\">abcdefgh</prosody></speak>");
  EXPECT_EQ(both.end(), 2 * kPaceFrame + 200 * GST_MSECOND + 2 * kPaceFrame);
}

TEST_F(PaceTest, LiveChangesTakeEffectInMidSpeech) {
  LivePipeline pipeline("idle-mode=wait text=abcdefghijklmnopqrst");
  pipeline.Set(GST_STATE_PLAYING);
  ASSERT_TRUE(pipeline.AdvanceUntil(5));
  g_object_set(pipeline.src(), "rate", 2.0, nullptr);
  ASSERT_TRUE(WaitFor([&] {
    if (gst_test_clock_peek_id_count(pipeline.clock()) > 0) pipeline.AdvanceWithTheEngine();
    return !pipeline.Pending(GST_MESSAGE_ELEMENT).empty() && GetStat(pipeline.src(), "utterances") == 1;
  }));
  const auto buffers = pipeline.record().buffers();
  const guint64 samples = buffers.back().offset_end;
  // At least 5 frames left as they were, and one or two more were on their way.
  EXPECT_GE(samples, 5 * kFrameSamples + 15 * kFrameSamples / 2);
  EXPECT_LE(samples, 8 * kFrameSamples + 12 * kFrameSamples / 2);
}

// Words that were told ahead of their sound stay true.
TEST_F(PaceTest, TextPadsKeepTheRateOfTheUtterance) {
  UseAlignment();
  Speak speak("idle-mode=wait");
  TextSink sink(speak.src(), "word");
  // Before the second buffer leaves.
  const Owned<GstPad> pad(gst_element_get_static_pad(speak.src(), "src"));
  const Probe probe(pad.get(), GST_PAD_PROBE_TYPE_BUFFER,
                    [src = speak.src(), changed = std::make_shared<std::atomic<bool>>(false)](GstPadProbeInfo*) {
                      if (!changed->exchange(true)) g_object_set(src, "rate", 2.0, nullptr);
                      return GST_PAD_PROBE_OK;
                    });
  speak.Set(GST_STATE_PLAYING);
  const auto samples = [&] {
    speak.Say("aaa bbb ccc ddd eee");
    return speak.Finish().samples;
  };
  EXPECT_EQ(samples(), 19 * kFrameSamples) << "the rate with which it began";
  EXPECT_EQ(samples(), 19 * kFrameSamples / 2);
  const auto texts = sink.texts();
  ASSERT_GE(texts.size(), 5U);
  EXPECT_EQ(texts[4], (TextSink::Text{"eee", 16 * 80, 3 * 80}));
}

TEST_F(PaceTest, InterruptsTellHowFarTheSpeechCame) {
  UseAlignment();
  LivePipeline pipeline("idle-mode=wait rate=2 text=\"aaa bbb ccc ddd eee fff\"");
  pipeline.Set(GST_STATE_PLAYING);
  ASSERT_TRUE(pipeline.AdvanceUntil(8));
  const guint64 frames = pipeline.Interrupt();
  const Finished finished = pipeline.Finish();
  // 2 frames of text for each frame of sound.
  const double reached = 2.0 * static_cast<double>(finished.samples) / kFrameSamples;
  EXPECT_NEAR(static_cast<double>(finished.text_spoken_chars), reached, 1.5);
  EXPECT_GE(frames, 8U);
}

// The engine has made all of it, and announces nothing more.
TEST_F(PaceTest, FramesOfWhichNothingIsLeftDoNotStopTheSpeech) {
  fake::SetScript({.silent = '_'});
  for (const char* const properties : {"max-silence=80000000", "rate=4", "rate=4 max-silence=40000000"}) {
    SCOPED_TRACE(properties);
    const int64_t made = fake::GetCounters().frames;
    LivePipeline pipeline(std::string("idle-mode=wait text=ab_________cd ") + properties);
    pipeline.Set(GST_STATE_PLAYING);
    ASSERT_TRUE(WaitFor([&] { return fake::GetCounters().frames == made + 13; }));
    ASSERT_TRUE(WaitFor([&] {
      if (gst_test_clock_peek_id_count(pipeline.clock()) > 0) pipeline.Advance(5 * GST_MSECOND);
      return GetStat(pipeline.src(), "utterances") == 1;
    }));
  }
}

TEST_F(PaceTest, AFlushBeginsAnew) {
  Speak speak("rate=1.5");
  fake::AllowFrames(5);
  speak.Push("abcdefghij");
  ASSERT_TRUE(WaitFor([&] { return speak.record().buffer_count() >= 4; }));
  speak.record().ClearWhenFlushed();
  speak.Flush();
  fake::AllowFrames(-1);
  speak.Open().Push("abcdef").End();
  const Pace pace = Collect(&speak);
  ASSERT_FALSE(pace.finished.empty());
  EXPECT_EQ(pace.Finished(pace.finished.size() - 1, "samples"), 4 * kFrameSamples);
  EXPECT_EQ(pace.end(), 4 * kPaceFrame);
}

// Cues of these texts, each with its beginning and its end in milliseconds.
struct TimedCue {
  const char* text;
  guint64 begin;
  guint64 end;
};

class FitTest : public PaceTest {
 protected:
  static Pace PlayCues(const std::string& properties, const std::vector<TimedCue>& cues) {
    Speak speak("text-timing=compress " + properties);
    speak.Open();
    for (const TimedCue& cue : cues) {
      speak.PushCue(cue.text, cue.begin * GST_MSECOND, (cue.end - cue.begin) * GST_MSECOND);
    }
    speak.End();
    return Collect(&speak);
  }
};

TEST_F(FitTest, SpeechThatIsTooLongFitsItsCue) {
  const Pace pace = PlayCues("max-compression=2", {{"abcdefghij", 1000, 1600}, {"kl", 1600, 2000}, {"m", 3000, 4000}});
  ASSERT_EQ(pace.finished.size(), 3U);
  EXPECT_EQ(pace.Finished(0, "duration"), 600 * GST_MSECOND);
  EXPECT_EQ(pace.Finished(0, "cue-duration"), 600 * GST_MSECOND);
  EXPECT_EQ(pace.Finished(1, "duration"), 160 * GST_MSECOND) << "it fits as it is";
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(pace.Finished(i, "late"), 0U) << i;
  EXPECT_EQ(pace.end(), 3080 * GST_MSECOND);
}

TEST_F(FitTest, NoFasterThanAllowed) {
  const Pace pace =
      PlayCues("max-compression=1.25", {{"abcdefghij", 1000, 1500}, {"kl", 1500, 2000}, {"m", 3000, 4000}});
  ASSERT_EQ(pace.finished.size(), 3U);
  EXPECT_EQ(pace.Finished(0, "duration"), 640 * GST_MSECOND);
  EXPECT_EQ(pace.Finished(1, "late"), 140 * GST_MSECOND);
  EXPECT_EQ(pace.Finished(2, "late"), 0U) << "it has caught up";
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(pace.Finished(i, "text-spoken-chars"), pace.Finished(i, "text-chars")) << "nothing is cut";
  }
}

TEST_F(FitTest, SilenceAtTheEndGoesFirst) {
  UseSilentDots();
  const Pace pace = PlayCues("", {{"abcde_____", 1000, 1500}});
  ASSERT_EQ(pace.finished.size(), 1U);
  EXPECT_EQ(pace.Finished(0, "duration"), 500 * GST_MSECOND);
  // The speech itself is at its own rate.
  ASSERT_FALSE(pace.buffers.empty());
  size_t speech = 0;
  for (const auto& buffer : pace.buffers) speech += buffer.silent ? 0 : 1;
  EXPECT_GE(speech, 5U);
}

TEST_F(FitTest, TextThatIsCutSharesItsCue) {
  const Pace pace = PlayCues("max-compression=2 max-text-length=10", {{"aaaaaaaaa. bbbbbbbbb.", 1000, 2000}});
  ASSERT_EQ(pace.finished.size(), 2U);
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(pace.Finished(i, "duration"), 500 * GST_MSECOND) << i;
  EXPECT_EQ(pace.end(), 2000 * GST_MSECOND);
}

// The time of a live stream goes on while the speech is made.
TEST_F(FitTest, LiveSpeechFitsIntoWhatIsLeft) {
  for (const char* const idle : {"silence", "wait"}) {
    SCOPED_TRACE(idle);
    fake::AllowFrames(0);
    LivePipeline pipeline("text-timing=compress max-compression=2.5 idle-mode=" + std::string(idle));
    pipeline.PushCue("abcdefghijklmnopqrstuvwxy", 0, 2 * GST_SECOND);  // 2 s
    ASSERT_TRUE(WaitFor([&] { return fake::GetCounters().live_streams == 1; }));
    if (idle[0] == 's') {
      ASSERT_TRUE(pipeline.AdvanceUntil(50));
    } else {
      pipeline.Advance(GST_SECOND);
    }
    fake::AllowFrames(-1);
    ASSERT_TRUE(WaitFor([&] {
      if (gst_test_clock_peek_id_count(pipeline.clock()) > 0) pipeline.Advance(5 * GST_MSECOND);
      return GetStat(pipeline.src(), "utterances") == 1;
    }));
    const auto speech = Speech(pipeline.record().buffers());
    ASSERT_FALSE(speech.empty());
    guint64 samples = 0;
    for (const auto& sound : speech) samples += sound.offset_end - sound.offset;
    EXPECT_LE(samples, 24240U) << "of 48000";
    if (idle[0] == 's') continue;  // the load of the machine decides how much silence comes before it
    EXPECT_EQ(speech.front().pts, GST_SECOND);
    EXPECT_NEAR(static_cast<double>(speech.back().pts + speech.back().duration), 2e9, 1e6);
  }
}

TEST_F(FitTest, WordsAreThoseOfTheFittedSound) {
  UseAlignment();
  const Pace pace = PlayCues("max-compression=2", {{"aa bb cc d", 1000, 1400}});
  EXPECT_EQ(pace.Words("running-time"), (std::vector<guint64>{1000, 1000 + 3 * 40, 1000 + 6 * 40, 1000 + 9 * 40}));
}

TEST_F(FitTest, ACueWithoutAnEndIsNotFitted) {
  Speak speak("text-timing=compress");
  speak.Open();
  GstBuffer* buffer = gst_buffer_new_memdup("abcd", 4);
  GST_BUFFER_PTS(buffer) = GST_SECOND;
  EXPECT_EQ(gst_pad_chain(speak.feeder().sink(), buffer), GST_FLOW_OK);
  speak.End();
  const Pace pace = Collect(&speak);
  EXPECT_EQ(pace.Finished(0, "duration"), 4 * kPaceFrame);
  EXPECT_EQ(pace.Finished(0, "cue-duration"), GST_CLOCK_TIME_NONE);
}

// --- parts

std::vector<float> PaceTone(size_t samples) {
  std::vector<float> tone(samples);
  for (size_t i = 0; i < samples; ++i) tone[i] = 0.3F * std::sin(0.05F * static_cast<float>(i));
  return tone;
}

// The spans of sound cover the source in order, and their samples are those of the sound.
TEST(SoundShaper, SpansAddUp) {
  for (const double rate : {0.25, 0.7, 1.0, 1.5, 4.0}) {
    for (const uint64_t max_silence : {uint64_t{0}, uint64_t{4800}}) {
      SCOPED_TRACE(rate);
      SoundShaper shaper(24000, {.trim = true, .max_silence = max_silence});
      shaper.SetRate(rate);
      std::vector<ShapedSound> sounds;
      const auto take = [&] {
        while (shaper.ready()) sounds.push_back(shaper.Take());
      };
      for (int i = 0; i < 30; ++i) {
        const bool silent = i == 0 || (i > 10 && i < 18);
        shaper.Put(silent ? std::vector<float>(1920, 0.0F) : PaceTone(1920));
        take();
      }
      shaper.Finish();
      take();
      double place = 0;
      double covered = 0;
      for (const ShapedSound& sound : sounds) {
        EXPECT_LE(sound.pcm.size(), 1920U);
        size_t samples = 0;
        for (const SoundSpan& span : sound.spans) {
          EXPECT_GE(span.begin, place - 1e-6);
          EXPECT_GE(span.end, span.begin);
          place = span.end;
          covered += span.end - span.begin;
          samples += span.samples;
        }
        EXPECT_EQ(samples, sound.pcm.size());
      }
      EXPECT_NEAR(place, 30 * 1920, 1e-6);
      const double left_out = static_cast<double>(shaper.trimmed()) + (max_silence > 0 ? 7 * 1920 - 4800 : 0);
      EXPECT_NEAR(covered, 30 * 1920 - left_out, 1e-6);
      EXPECT_GT(shaper.trimmed(), 0U);
    }
  }
}

// Speech of two minutes at rates whose sums are not exact, in pieces of 10 ms, at whose borders blocks end: each piece
// that leaves has its place.
TEST(SoundPlaces, HaveAllPiecesOfLongSpeech) {
  constexpr int kLowRate = 3000;  // the sums are those of 24 kHz, and the test takes less time
  for (const double rate : {0.9, 0.8, 0.55, 0.7, 1.1, 1.3}) {
    SCOPED_TRACE(rate);
    SoundShaper shaper(kLowRate, {});
    shaper.SetRate(rate);
    SoundPlaces places;
    uint64_t heard = 0;
    const auto take = [&] {
      while (shaper.ready()) {
        const ShapedSound sound = shaper.Take();
        const uint64_t time = gstqtts::SampleTime(heard, kLowRate);
        places.Add(sound.spans, sound.pcm.size(), kLowRate, {time, time});
        heard += sound.pcm.size();
        ASSERT_FALSE(sound.spans.empty());
        EXPECT_NEAR(static_cast<double>(places.end().count()), sound.spans.back().end * 1e9 / kLowRate, 1e9 / kLowRate);
      }
    };
    for (int i = 0; i < 12000; ++i) {
      shaper.Put(std::vector<float>(kLowRate / 100, 0.1F));
      take();
    }
    shaper.Finish();
    take();
    EXPECT_NEAR(static_cast<double>(places.end().count()), 120e9, 1e9 / kLowRate);
  }
}

TEST(SoundPlaces, SpansThatAreTooShortToBeHeardHideNone) {
  SoundPlaces places;
  places.Add({{0, 0.25, 0}, {0.25, 4800, 2400}}, 2400, 24000, {0, 0});
  EXPECT_EQ(places.end(), milliseconds(200));
}

TEST(SoundPlaces, ScalesAndPlans) {
  SoundPlaces places;
  // Twice as fast, then a silence is left out.
  const std::vector<SoundSpan> plan = {{0, 4800, 2400}, {9600, 14400, 2400}};
  places.Plan(plan, 24000);
  places.Add({{0, 2400, 1200}}, 1200, 24000, {1'000'000'000, 500'000'000});
  EXPECT_EQ(places.At(milliseconds(50)).time, 525'000'000U);
  EXPECT_EQ(places.Expected(milliseconds(200)).time, 600'000'000U);
  EXPECT_EQ(places.Expected(milliseconds(300)).time, 600'000'000U) << "within what is left out";
  EXPECT_EQ(places.Expected(milliseconds(500)).running_time, 1'150'000'000U);
  SoundPlaces unplanned;
  unplanned.Add({{0, 2400, 1200}}, 1200, 24000, {1'000'000'000, 500'000'000});
  EXPECT_EQ(unplanned.Expected(milliseconds(200)).time, 600'000'000U);
  unplanned.Add({{2400, 4800, 2400}}, 1200, 24000, {1'050'000'000, 550'000'000});
  EXPECT_EQ(unplanned.end(), milliseconds(150)) << "half of it left";
}

}  // namespace
}  // namespace qtts::testing
