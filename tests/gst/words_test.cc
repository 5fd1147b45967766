// SPDX-License-Identifier: LGPL-2.1-or-later
// Words that the engine measures: their messages, the text pads, and what is made again because it is faulty.
#include <glib/gstdio.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gstqttscues.h"
#include "gstqttsposition.h"
#include "gstqttsretry.h"
#include "gstqttswordtrack.h"
#include "live_pipeline.h"
#include "qtts/utf8.h"
#include "support.h"
#include "text_sink.h"

namespace qtts::testing {
namespace {

using gstqtts::CueMaker;
using gstqtts::Granularity;
using gstqtts::Retries;
using gstqtts::SoundPlaces;
using gstqtts::TextPosition;
using gstqtts::TimedText;
using gstqtts::TimedWord;
using gstqtts::Told;
using gstqtts::WordTrack;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

constexpr guint64 kFrame = 80;  // milliseconds

std::vector<std::string> Texts(const GstStructure* structure, const char* field) {
  const GValue* value = gst_structure_get_value(structure, field);
  if (value == nullptr) return {"no field"};
  std::vector<std::string> texts;
  for (auto** text = static_cast<gchar**>(g_value_get_boxed(value)); *text != nullptr; ++text)
    texts.emplace_back(*text);
  return texts;
}

std::vector<guint64> Numbers(const GstStructure* structure, const char* field) {
  const GValue* value = gst_structure_get_value(structure, field);
  if (value == nullptr) return {G_MAXUINT64};
  std::vector<guint64> numbers;
  for (guint i = 0; i < gst_value_array_get_size(value); ++i) {
    numbers.push_back(g_value_get_uint64(gst_value_array_get_value(value, i)));
  }
  return numbers;
}

// A word as it was told: characters and milliseconds.
struct Word {
  guint64 offset = 0;
  guint64 length = 0;
  guint64 time = 0;
  guint64 duration = 0;
  bool estimated = false;

  bool operator==(const Word&) const = default;
  friend std::ostream& operator<<(std::ostream& out, const Word& word) {
    return out << "{" << word.offset << ", " << word.length << ", " << word.time << ", " << word.duration << ", "
               << word.estimated << "}";
  }
};

// An element whose engine measures words.
class WordsTest : public GstTest {
 protected:
  void SetUp() override {
    GstTest::SetUp();
    script_ = fake::DefaultScript();
    fake::AddAlignment(&script_);
    fake::SetScript(script_);
  }
  void TearDown() override {
    finished_.clear();
    started_.clear();
    GstTest::TearDown();
  }

  // Takes all messages up to the end of the stream.
  void ReadMessages(Pipeline* pipeline) {
    for (;;) {
      auto message = pipeline->Wait(GST_MESSAGE_ELEMENT | GST_MESSAGE_ERROR | GST_MESSAGE_EOS);
      ASSERT_NE(message, nullptr);
      if (GST_MESSAGE_TYPE(message.get()) == GST_MESSAGE_EOS) return;
      ASSERT_EQ(GST_MESSAGE_TYPE(message.get()), GST_MESSAGE_ELEMENT) << ParseProblem(message.get()).text;
      Take(std::move(message));
    }
  }
  void Take(Owned<GstMessage> message) {
    const GstStructure* fields = gst_message_get_structure(message.get());
    if (gst_structure_has_name(fields, "qtts-text-progress")) {
      words_.push_back({GetField(fields, "offset-chars"), GetField(fields, "length-chars"),
                        GetField(fields, "running-time") / GST_MSECOND, GetField(fields, "duration") / GST_MSECOND,
                        GetFlag(fields, "estimated")});
    } else if (gst_structure_has_name(fields, "qtts-utterance-finished")) {
      finished_.push_back(std::move(message));
    } else if (gst_structure_has_name(fields, "qtts-utterance-started")) {
      started_.push_back(std::move(message));
    }
  }
  const GstStructure* finished(size_t i) const { return gst_message_get_structure(finished_.at(i).get()); }
  const GstStructure* started(size_t i) const { return gst_message_get_structure(started_.at(i).get()); }

  fake::Script script_;
  std::vector<Word> words_;
  std::vector<Owned<GstMessage>> finished_;
  std::vector<Owned<GstMessage>> started_;
};

// --- messages

TEST_F(WordsTest, AreToldWithTimeAndDuration) {
  Pipeline pipeline("qttssrc name=src text=\"One, two \xC3\xBC\xC3\xBC!\" ! fakesink");
  pipeline.Set(GST_STATE_PLAYING);
  ReadMessages(&pipeline);
  EXPECT_EQ(words_, (std::vector<Word>{{0, 3, 0, 3 * kFrame, false},
                                       {5, 3, 5 * kFrame, 3 * kFrame, false},
                                       {9, 2, 9 * kFrame, 2 * kFrame, false}}));
  ASSERT_EQ(finished_.size(), 1U);
  EXPECT_TRUE(GetFlag(finished(0), "measured"));
  EXPECT_EQ(GetField(finished(0), "text-spoken-chars"), 12U);
}

// However late they are known, and in whatever order frames and words come.
TEST_F(WordsTest, TimesDoNotDependOnWhenTheyAreKnown) {
  for (const int lag : {0, 1, 5, 20, 1000}) {
    SCOPED_TRACE(lag);
    script_.word_lag = lag;
    fake::SetScript(script_);
    words_.clear();
    Pipeline pipeline("qttssrc name=src text=\"A word, and one more.\" ! fakesink");
    pipeline.Set(GST_STATE_PLAYING);
    ReadMessages(&pipeline);
    EXPECT_EQ(words_, (std::vector<Word>{{0, 1, 0, kFrame, false},
                                         {2, 4, 2 * kFrame, 4 * kFrame, false},
                                         {8, 3, 8 * kFrame, 3 * kFrame, false},
                                         {12, 3, 12 * kFrame, 3 * kFrame, false},
                                         {16, 4, 16 * kFrame, 4 * kFrame, false}}));
  }
}

// The words of a number are told as the number that is written.
TEST_F(WordsTest, SeveralSpokenWordsAreTheWrittenOne) {
  Pipeline pipeline("qttssrc name=src text=\"It costs $5, now.\" normalize=spoken ! fakesink");
  pipeline.Set(GST_STATE_PLAYING);
  ReadMessages(&pipeline);  // "It costs five dollars, now."
  EXPECT_EQ(words_, (std::vector<Word>{{0, 2, 0, 2 * kFrame, false},
                                       {3, 5, 3 * kFrame, 5 * kFrame, false},
                                       {9, 2, 9 * kFrame, 12 * kFrame, false},
                                       {13, 3, 23 * kFrame, 3 * kFrame, false}}));
}

TEST_F(WordsTest, TimesAreThoseOfTheSoundThatLeaves) {
  script_.leading_silence = 1920;
  fake::SetScript(script_);
  Pipeline pipeline("qttssrc name=src text=\"ab cd\" trim-leading-silence=true leading-silence=1000000000 ! fakesink");
  pipeline.Set(GST_STATE_PLAYING);
  ReadMessages(&pipeline);
  // The first frame, 80 ms of silence, is cut.
  EXPECT_EQ(words_, (std::vector<Word>{{0, 2, 1000, kFrame, false}, {3, 2, 1000 + 2 * kFrame, 2 * kFrame, false}}));
}

// A head that fell silent: estimates after a while, and each word once.
TEST_F(WordsTest, AreEstimatedIfTheEngineDoesNotTellThem) {
  script_.word_lag = 100000;
  script_.reports[0] = SpeechReport();  // not measured
  fake::SetScript(script_);
  // last_words() has all of them at the end, so those that were estimated must not come again.
  const std::string text = "one two three four five six seven eight nine ten eleven twelve";
  Pipeline pipeline("qttssrc name=src text=\"" + text + "\" ! fakesink");
  pipeline.Set(GST_STATE_PLAYING);
  ReadMessages(&pipeline);
  ASSERT_EQ(words_.size(), 12U);
  EXPECT_TRUE(words_[0].estimated);
  EXPECT_FALSE(words_[11].estimated);
  for (size_t i = 1; i < words_.size(); ++i) {
    EXPECT_GT(words_[i].offset, words_[i - 1].offset);
    EXPECT_GE(words_[i].time, words_[i - 1].time);
  }
}

// Positions count the text as it was written, not its joined lines.
TEST_F(WordsTest, PositionsInJoinedLinesAreOfTheSource) {
  Pipeline pipeline("qttssrc name=src ! fakesink async=false");
  Feeder feeder(pipeline.src());
  pipeline.Set(GST_STATE_PLAYING);
  feeder.Begin(GST_FORMAT_BYTES);
  feeder.Push("Some psycho-\nlogical\r\n   tests. ");
  feeder.End();
  ReadMessages(&pipeline);
  ASSERT_EQ(started_.size(), 1U);
  const std::string source = gst_structure_get_string(started(0), "text");
  EXPECT_EQ(source, "Some psycho-\nlogical\r\n   tests.");
  std::vector<std::string> words;
  for (const Word& word : words_) words.push_back(source.substr(word.offset, word.length));
  EXPECT_EQ(words, (std::vector<std::string>{"Some", "psycho-\nlogical", "tests"}));
  EXPECT_EQ(GetField(finished(0), "text-chars"), source.size());
  EXPECT_EQ(GetField(finished(0), "text-spoken-chars"), source.size());
}

TEST_F(WordsTest, TheFinishedMessageTellsWhatIsMissing) {
  SpeechReport report;
  report.measured = true;
  report.tokens = 8;
  report.spoken_tokens = 6;
  report.skipped = {{4, 7}};
  report.repeated = {{8, 14}};
  report.end_missed = true;
  script_.reports[0] = report;
  script_.reasons[0] = EndReason::kRunaway;
  fake::SetScript(script_);
  Pipeline pipeline(
      "qttssrc name=src text=\"\xC3\xBC"
      "b two \xC3\xBC"
      "bers.\" ! fakesink");
  pipeline.Set(GST_STATE_PLAYING);
  ReadMessages(&pipeline);
  ASSERT_EQ(finished_.size(), 1U);
  EXPECT_STREQ(gst_structure_get_string(finished(0), "reason"), "runaway");
  EXPECT_TRUE(GetFlag(finished(0), "end-missed"));
  EXPECT_FALSE(GetFlag(finished(0), "stopped-early"));
  gdouble coverage = 0;
  EXPECT_TRUE(gst_structure_get_double(finished(0), "coverage", &coverage));
  EXPECT_DOUBLE_EQ(coverage, 0.75);
  EXPECT_EQ(Texts(finished(0), "skipped"), std::vector<std::string>{"two"});
  EXPECT_EQ(Numbers(finished(0), "skipped-chars"), (std::vector<guint64>{3, 3}));
  EXPECT_EQ(Texts(finished(0), "repeated"), std::vector<std::string>{"\xC3\xBC"
                                                                     "bers"});
  EXPECT_EQ(Numbers(finished(0), "repeated-chars"), (std::vector<guint64>{7, 5}));
  EXPECT_EQ(GetStat(pipeline.src(), "runaways"), 1U);
  EXPECT_EQ(GetStat(pipeline.src(), "measured"), 1U);
  EXPECT_EQ(GetStat(pipeline.src(), "incomplete"), 1U);
  EXPECT_EQ(GetStat(pipeline.src(), "words-skipped"), 1U);
  EXPECT_EQ(GetStat(pipeline.src(), "words-repeated"), 1U);
}

TEST_F(WordsTest, ATextThatEndsEarlyWasNotSpokenToItsEnd) {
  SpeechReport report;
  report.measured = report.stopped_early = true;
  report.tokens = 2;
  report.spoken_tokens = 1;
  script_.reports[0] = report;
  fake::SetScript(script_);
  Pipeline pipeline("qttssrc name=src text=\"two words?!\" ! fakesink");
  pipeline.Set(GST_STATE_PLAYING);
  ReadMessages(&pipeline);
  EXPECT_STREQ(gst_structure_get_string(finished(0), "reason"), "complete");
  EXPECT_EQ(GetField(finished(0), "text-spoken-chars"), 9U) << "the end of the last word that was measured";
}

// At every frame but the first, which leaves before any word is known.
TEST_F(WordsTest, AnInterruptTellsTheCharacterThatWasHeard) {
  const std::string text = "abcd efghij kl mnopqrstu, vw";
  for (guint64 frames = 2; frames + 1 < text.size(); ++frames) {
    SCOPED_TRACE(frames);
    fake::Reset(script_);
    finished_.clear();
    LivePipeline pipeline("idle-mode=wait");
    Feeder feeder(pipeline.src());
    pipeline.Set(GST_STATE_PLAYING);
    feeder.Begin();
    ASSERT_EQ(feeder.Push(text), GST_FLOW_OK);
    ASSERT_TRUE(WaitFor([] { return fake::GetCounters().frames >= 25; }));
    ASSERT_TRUE(pipeline.AdvanceUntil(frames, kFrame * GST_MSECOND));
    ASSERT_TRUE(pipeline.WaitUntilSomebodyWaits());
    guint64 interrupted = 0;
    g_signal_emit_by_name(pipeline.src(), "interrupt", &interrupted);
    ASSERT_EQ(interrupted, frames);
    while (finished_.empty()) {
      auto message = pipeline.Wait(GST_MESSAGE_ELEMENT);
      ASSERT_NE(message, nullptr);
      Take(std::move(message));
    }
    // A frame is a character; between two words the position is the end of the first.
    guint64 expected = frames;
    while (expected > 0 && !g_ascii_isalnum(text[expected - 1])) --expected;
    EXPECT_EQ(GetField(finished(0), "text-spoken-chars"), expected);
    EXPECT_FALSE(GetFlag(finished(0), "estimated"));
    EXPECT_EQ(gst_structure_has_field(finished(0), "coverage"), FALSE) << "the rest of it was not heard";
  }
}

// --- text pads

TEST_F(WordsTest, APadSendsEachWord) {
  Pipeline pipeline("qttssrc name=src text=\"Hello, \xE2\x80\x9Cmy world\xE2\x80\x9D! Well-known.\" ! fakesink");
  TextSink sink(pipeline.src());
  Recorder& record = pipeline.Record();
  ASSERT_TRUE(pipeline.PlayToEnd());
  ASSERT_TRUE(sink.Ended());
  EXPECT_EQ(sink.texts(), (std::vector<TextSink::Text>{{"Hello,", 0, 5 * kFrame},
                                                       {"\xE2\x80\x9Cmy", 8 * kFrame, 2 * kFrame},
                                                       {"world\xE2\x80\x9D!", 11 * kFrame, 5 * kFrame},
                                                       {"Well-", 19 * kFrame, 4 * kFrame},
                                                       {"known.", 24 * kFrame, 5 * kFrame}}));
  const auto items = sink.items();
  ASSERT_GT(items.size(), 4U);
  EXPECT_EQ(items[0].event, GST_EVENT_STREAM_START);
  EXPECT_EQ(items[0].flags, GST_STREAM_FLAG_SPARSE);
  EXPECT_TRUE(g_str_has_suffix(items[0].id.c_str(), "/text_0"));
  GstPad* sound = gst_element_get_static_pad(pipeline.src(), "src");
  GstEvent* start = gst_pad_get_sticky_event(sound, GST_EVENT_STREAM_START, 0);
  guint group = 0;
  EXPECT_TRUE(gst_event_parse_group_id(start, &group));
  gst_event_unref(start);
  gst_object_unref(sound);
  EXPECT_EQ(items[0].group, group);
  EXPECT_EQ(items[1].event, GST_EVENT_CAPS);
  EXPECT_EQ(items[2].event, GST_EVENT_SEGMENT);
  const auto audio = record.items();
  const auto segment =
      std::find_if(audio.begin(), audio.end(), [](const auto& item) { return item.event == GST_EVENT_SEGMENT; });
  ASSERT_NE(segment, audio.end());
  EXPECT_TRUE(gst_segment_is_equal(&items[2].segment, &segment->segment));
  // Buffers and gaps follow one another until the end of the sound.
  GstClockTime end = 0;
  for (const auto& item : items) {
    if (item.event != GST_EVENT_UNKNOWN && item.event != GST_EVENT_GAP) continue;
    EXPECT_EQ(item.time, end);
    end = item.time + item.duration;
  }
  EXPECT_EQ(end, 30 * kFrame * GST_MSECOND);
}

TEST_F(WordsTest, APadSendsEachSentence) {
  Pipeline pipeline("qttssrc name=src text=\"Hello, Mr. Smith. How are you?  Fine\" ! fakesink");
  TextSink sink(pipeline.src(), "sentence");
  ASSERT_TRUE(pipeline.PlayToEnd());
  ASSERT_TRUE(sink.Ended());
  EXPECT_EQ(sink.texts(), (std::vector<TextSink::Text>{{"Hello, Mr. Smith.", 0, 16 * kFrame},
                                                       {"How are you?", 18 * kFrame, 11 * kFrame},
                                                       {"Fine", 32 * kFrame, 4 * kFrame}}));
}

TEST_F(WordsTest, PadsOfAllKindsAtOnce) {
  Pipeline pipeline("qttssrc name=src text=\"One two. Three.\" ! fakesink");
  TextSink words(pipeline.src());
  TextSink sentences(pipeline.src(), "sentence");
  TextSink cues(pipeline.src(), "cue");
  ASSERT_TRUE(pipeline.PlayToEnd());
  ASSERT_TRUE(words.Ended());
  ASSERT_TRUE(sentences.Ended());
  ASSERT_TRUE(cues.Ended());
  EXPECT_EQ(words.texts().size(), 3U);
  EXPECT_EQ(sentences.texts().size(), 2U);
  EXPECT_EQ(cues.texts(), sentences.texts());
  EXPECT_STREQ(GST_PAD_NAME(cues.source()), "text_2");
}

// Without measured words the pads have estimates.
TEST_F(WordsTest, EstimatesComeByThePadToo) {
  fake::SetScript(fake::DefaultScript());
  Pipeline pipeline("qttssrc name=src text=\"One, two.\" ! fakesink");
  TextSink sink(pipeline.src());
  ASSERT_TRUE(pipeline.PlayToEnd());
  ASSERT_TRUE(sink.Ended());
  const auto texts = sink.texts();
  ASSERT_EQ(texts.size(), 2U);
  EXPECT_EQ(texts[0].text, "One,");
  EXPECT_EQ(texts[1].text, "two.");
}

// A pad that is not linked, is refused or blocks does not stop the sound.
TEST_F(WordsTest, TroubleOfThePadIsNotThatOfTheSound) {
  for (const GstFlowReturn flow : {GST_FLOW_ERROR, GST_FLOW_EOS, GST_FLOW_FLUSHING, GST_FLOW_NOT_NEGOTIATED}) {
    SCOPED_TRACE(gst_flow_get_name(flow));
    Pipeline pipeline("qttssrc name=src text=\"One two three\" ! fakesink");
    TextSink sink(pipeline.src());
    sink.Answer(flow);
    TextSink good(pipeline.src());
    pipeline.Record();
    ASSERT_TRUE(pipeline.PlayToEnd());
    ASSERT_TRUE(good.Ended());
    EXPECT_EQ(good.texts().size(), 3U);
    EXPECT_EQ(pipeline.record().text(), "One two three");
  }
  Pipeline pipeline("qttssrc name=src text=\"One two three\" ! fakesink");
  GstPad* unlinked = gst_element_request_pad_simple(pipeline.src(), "text_%u");
  TextSink blocked(pipeline.src());
  blocked.Block(true);
  pipeline.Record();
  ASSERT_TRUE(pipeline.PlayToEnd());
  EXPECT_EQ(pipeline.record().text(), "One two three");
  ASSERT_TRUE(WaitFor([&] { return blocked.blocked(); }));
  blocked.Release();  // while it holds a buffer
  gst_element_release_request_pad(pipeline.src(), unlinked);
  gst_object_unref(unlinked);
}

TEST_F(WordsTest, APadMayComeAndGoWhileItSpeaks) {
  Pipeline pipeline("qttssrc name=src ! fakesink async=false");
  Feeder feeder(pipeline.src());
  pipeline.Record();
  fake::AllowFrames(6);
  pipeline.Set(GST_STATE_PLAYING);
  feeder.Begin();
  feeder.Push("One two three four");
  ASSERT_TRUE(WaitFor([&] { return pipeline.record().buffer_count() == 6; }));
  TextSink sink(pipeline.src());
  fake::AllowFrames(-1);
  ASSERT_TRUE(WaitFor([&] { return sink.texts().size() == 3; }));
  EXPECT_EQ(sink.texts()[0], (TextSink::Text{"two", 4 * kFrame, 3 * kFrame}));
  const auto items = sink.items();
  EXPECT_EQ(items[0].event, GST_EVENT_STREAM_START);
  EXPECT_EQ(items[1].event, GST_EVENT_CAPS);
  EXPECT_EQ(items[2].event, GST_EVENT_SEGMENT);
  sink.Release();
  feeder.Push("more");
  feeder.End();
  ASSERT_NE(pipeline.Wait(GST_MESSAGE_EOS), nullptr);
  EXPECT_EQ(pipeline.record().text(), "One two three fourmore");
  EXPECT_EQ(sink.texts().size(), 3U);
}

// While frames leave, from another thread.
TEST_F(WordsTest, PadsComeAndGoAtAnyTime) {
  script_.frame_time = milliseconds(1);
  fake::SetScript(script_);
  Pipeline pipeline("qttssrc name=src ! fakesink async=false");
  Feeder feeder(pipeline.src());
  pipeline.Set(GST_STATE_PLAYING);
  feeder.Begin();
  for (int round = 0; round < 30; ++round) {
    feeder.Push("a b c d e f g h");
    TextSink one(pipeline.src());
    TextSink two(pipeline.src(), "cue");
    if (round % 3 == 0) two.Block(true);
    std::this_thread::sleep_for(milliseconds(round % 7));
    if (round % 5 == 0) {
      feeder.Send(gst_event_new_flush_start());
      feeder.Send(gst_event_new_flush_stop(TRUE));
      feeder.Begin();
    }
  }
  feeder.End();
  ASSERT_NE(pipeline.Wait(GST_MESSAGE_EOS), nullptr);
}

TEST_F(WordsTest, AFlushUnblocksAndBeginsAnew) {
  Pipeline pipeline("qttssrc name=src ! fakesink async=false");
  Feeder feeder(pipeline.src());
  TextSink sink(pipeline.src());
  sink.Block(true);
  pipeline.Record();
  pipeline.Set(GST_STATE_PLAYING);
  feeder.Begin();
  feeder.Push("one two");
  ASSERT_TRUE(WaitFor([&] { return sink.blocked() && pipeline.record().buffer_count() == 7; }));
  feeder.Send(gst_event_new_flush_start());
  ASSERT_TRUE(WaitFor([&] { return !sink.blocked(); }));
  sink.Block(false);
  feeder.Send(gst_event_new_flush_stop(TRUE));
  feeder.Begin();
  feeder.Push("three");
  feeder.End();
  ASSERT_NE(pipeline.Wait(GST_MESSAGE_EOS), nullptr);
  ASSERT_TRUE(sink.Ended());
  EXPECT_EQ(sink.texts(), (std::vector<TextSink::Text>{{"three", 0, 5 * kFrame}}));
  std::vector<GstEventType> events;
  for (const auto& item : sink.items()) {
    if (item.event != GST_EVENT_UNKNOWN && item.event != GST_EVENT_GAP) events.push_back(item.event);
  }
  EXPECT_EQ(std::count(events.begin(), events.end(), GST_EVENT_SEGMENT), 2);
  EXPECT_EQ(std::count(events.begin(), events.end(), GST_EVENT_FLUSH_START), 1);
  EXPECT_EQ(std::count(events.begin(), events.end(), GST_EVENT_FLUSH_STOP), 1);
}

// A seek reaches the element by each of its pads, and is one seek.
TEST_F(WordsTest, ASeekSpeaksTheTextAgain) {
  Pipeline pipeline("qttssrc name=src text=\"one two\" ! fakesink");
  TextSink sink(pipeline.src());
  pipeline.Record().ClearWhenFlushed();
  ASSERT_TRUE(pipeline.PlayToEnd());
  ASSERT_TRUE(sink.Ended());
  GstEvent* seek = gst_event_new_seek(1.0, GST_FORMAT_TIME, GST_SEEK_FLAG_FLUSH, GST_SEEK_TYPE_SET, 0,
                                      GST_SEEK_TYPE_NONE, GST_CLOCK_TIME_NONE);
  GstPad* sound = gst_element_get_static_pad(pipeline.src(), "src");
  EXPECT_TRUE(gst_pad_send_event(sink.source(), gst_event_ref(seek)));
  EXPECT_TRUE(gst_pad_send_event(sound, gst_event_ref(seek)));
  EXPECT_TRUE(gst_pad_send_event(sink.source(), seek));
  gst_object_unref(sound);
  ASSERT_NE(pipeline.Wait(GST_MESSAGE_EOS), nullptr);
  ASSERT_TRUE(WaitFor([&] { return sink.texts().size() == 4; }));
  ASSERT_TRUE(sink.Ended());
  EXPECT_EQ(sink.texts()[2], sink.texts()[0]);
  EXPECT_EQ(pipeline.record().text(), "one two");
  const auto items = sink.items();
  EXPECT_EQ(
      std::count_if(items.begin(), items.end(), [](const auto& item) { return item.event == GST_EVENT_FLUSH_STOP; }),
      1);
}

TEST_F(WordsTest, EachRunIsANewStream) {
  Pipeline pipeline("qttssrc name=src text=\"one two\" ! fakesink");
  TextSink sink(pipeline.src());
  for (size_t run = 1; run <= 3; ++run) {
    ASSERT_TRUE(pipeline.PlayToEnd());
    ASSERT_TRUE(WaitFor([&] { return sink.texts().size() == 2 * run; }));
    ASSERT_TRUE(sink.Ended());
    pipeline.Set(run == 2 ? GST_STATE_NULL : GST_STATE_READY);
  }
  const auto items = sink.items();
  const auto starts =
      std::count_if(items.begin(), items.end(), [](const auto& item) { return item.event == GST_EVENT_STREAM_START; });
  EXPECT_EQ(starts, 3);
}

// A sentence that is cut off is sent as far as it was heard.
TEST_F(WordsTest, AnInterruptSendsWhatHasBegun) {
  LivePipeline pipeline("idle-mode=wait");
  Feeder feeder(pipeline.src());
  TextSink sink(pipeline.src(), "sentence");
  pipeline.Set(GST_STATE_PLAYING);
  feeder.Begin();
  feeder.Push("One two three four.");
  ASSERT_TRUE(pipeline.AdvanceUntil(10, kFrame * GST_MSECOND));
  ASSERT_TRUE(pipeline.WaitUntilSomebodyWaits());
  guint64 frames = 0;
  g_signal_emit_by_name(pipeline.src(), "interrupt", &frames);
  EXPECT_EQ(frames, 10U);
  feeder.Push("Five.");
  feeder.End();
  ASSERT_TRUE(WaitFor([&] {
    if (gst_test_clock_peek_id_count(pipeline.clock()) > 0) pipeline.Advance(kFrame * GST_MSECOND);
    return sink.texts().size() == 2;
  }));
  EXPECT_EQ(sink.texts()[0], (TextSink::Text{"One two three", 0, 13 * kFrame}));
  EXPECT_EQ(sink.texts()[1].text, "Five.");
}

// The sound is kept by a muxer until the video comes, the video by the overlay until the text does: each sentence is
// sent before its sound.
TEST_F(WordsTest, TextComesBeforeItsSoundUnlessLive) {
  for (const char* granularity : {"word", "sentence", "cue"}) {
    SCOPED_TRACE(granularity);
    Pipeline pipeline("qttssrc name=src text=\"One two. Three.\" ! fakesink");
    TextSink sink(pipeline.src(), granularity);
    pipeline.Set(GST_STATE_PAUSED);  // one buffer of sound has left
    const size_t texts = g_str_equal(granularity, "word") ? 3 : 2;
    EXPECT_TRUE(WaitFor([&] { return sink.texts().size() == texts; }));
  }
}

// An estimate too: spread over the length of the speech, which is known then.
TEST_F(WordsTest, EstimatedSentencesComeBeforeTheirSound) {
  fake::SetScript(fake::DefaultScript());
  Pipeline pipeline("qttssrc name=src text=\"One two. Three.\" ! fakesink");
  TextSink sink(pipeline.src(), "sentence");
  pipeline.Set(GST_STATE_PAUSED);
  ASSERT_TRUE(WaitFor([&] { return sink.texts().size() == 2; }));
  pipeline.Begin(GST_STATE_PLAYING);
  ReadMessages(&pipeline);
  ASSERT_TRUE(sink.Ended());
  const auto texts = sink.texts();
  ASSERT_EQ(texts.size(), 2U);
  EXPECT_EQ(texts[0].text, "One two.");
  EXPECT_EQ(texts[1].text, "Three.");
  EXPECT_GT(texts[1].time, texts[0].time + texts[0].duration);
  EXPECT_LE(texts[1].time + texts[1].duration, 16 * kFrame);
  EXPECT_EQ(words_.size(), 3U);
}

// Silence of a live element is a gap for the text.
TEST_F(WordsTest, LiveTextGoesOnInSilence) {
  LivePipeline pipeline("idle-mode=silence");
  Feeder feeder(pipeline.src());
  TextSink sink(pipeline.src());
  pipeline.Set(GST_STATE_PLAYING);
  feeder.Begin();
  ASSERT_TRUE(pipeline.AdvanceUntil(20));
  const auto gap_until = [&] {
    GstClockTime end = 0;
    for (const auto& item : sink.items()) {
      if (item.event == GST_EVENT_GAP) end = std::max(end, item.time + item.duration);
    }
    return end;
  };
  ASSERT_TRUE(WaitFor([&] { return gap_until() >= 300 * GST_MSECOND; }));
  GstQuery* query = gst_query_new_latency();
  EXPECT_TRUE(gst_pad_query(sink.source(), query));
  gboolean live = FALSE;
  gst_query_parse_latency(query, &live, nullptr, nullptr);
  EXPECT_TRUE(live);
  gst_query_unref(query);
}

// --- with the elements that take text

TEST_F(WordsTest, WebVttOfWords) {
  gchar* folder = g_dir_make_tmp("qttssrc-test-XXXXXX", nullptr);
  const std::string file = std::string(folder) + "/words.vtt";
  {
    Pipeline pipeline(
        "qttssrc name=src text=\"Hello, world.\" ! fakesink  src.text_0 ! webvttenc ! filesink async=false location=" +
        file);
    ASSERT_TRUE(pipeline.PlayToEnd());
  }
  gchar* content = nullptr;
  ASSERT_TRUE(g_file_get_contents(file.c_str(), &content, nullptr, nullptr));
  EXPECT_STREQ(content, "WEBVTT\n\n00:00:00.000 --> 00:00:00.400\nHello,\n\n00:00:00.560 --> 00:00:00.960\nworld.\n\n");
  g_free(content);
  g_remove(file.c_str());
  g_rmdir(folder);
  g_free(folder);
}

// The video waits for the text, the text for the video, and the sound for neither.
TEST_F(WordsTest, TextOverlayShowsWords) {
  Pipeline pipeline(
      "videotestsrc num-buffers=40 pattern=black ! video/x-raw,format=AYUV,width=64,height=48,framerate=25/1 ! "
      "textoverlay name=overlay font-desc=\"Sans 20\" ! fakesink name=video sync=false  "
      "qttssrc name=src text=\"Hello, my world.\" ! fakesink sync=false  src.text_0 ! overlay.text_sink");
  const auto video = pipeline.Find("video");
  GstPad* pad = gst_element_get_static_pad(video.get(), "sink");
  struct Shown {
    std::mutex mutex;
    std::vector<bool> frames;
  } shown;
  gst_pad_add_probe(
      pad, GST_PAD_PROBE_TYPE_BUFFER,
      [](GstPad* /*pad*/, GstPadProbeInfo* info, gpointer data) {
        auto* frames = static_cast<Shown*>(data);
        GstMapInfo map;
        gst_buffer_map(GST_PAD_PROBE_INFO_BUFFER(info), &map, GST_MAP_READ);
        bool bright = false;
        for (gsize i = 1; i < map.size; i += 4) bright = bright || map.data[i] > 100;
        gst_buffer_unmap(GST_PAD_PROBE_INFO_BUFFER(info), &map);
        const std::lock_guard lock(frames->mutex);
        frames->frames.push_back(bright);
        return GST_PAD_PROBE_OK;
      },
      &shown, nullptr);
  gst_object_unref(pad);
  ASSERT_TRUE(pipeline.PlayToEnd());
  const std::lock_guard lock(shown.mutex);
  ASSERT_EQ(shown.frames.size(), 40U);
  for (const size_t frame : {0U, 9U, 15U, 17U, 22U, 29U}) {
    EXPECT_TRUE(shown.frames[frame]) << frame;  // Hello: 0 to 400 ms; my: 560 to 720; world: 800 to 1200
  }
  for (const size_t frame : {11U, 13U, 19U, 30U, 39U}) EXPECT_FALSE(shown.frames[frame]) << frame;
}

// --- utterances that are made again

class RetryTest : public WordsTest {
 protected:
  // A report with so many skipped words.
  static SpeechReport Skipping(size_t words) {
    SpeechReport report;
    report.measured = true;
    report.tokens = 10;
    report.spoken_tokens = 10 - words;
    for (size_t i = 0; i < words; ++i) report.skipped.push_back({2 * i, 2 * i + 1});
    return report;
  }
  // The fake engine's number of the utterances that were heard, in order.
  static std::vector<int64_t> Heard(Pipeline* pipeline) {
    std::vector<int64_t> heard;
    for (const auto& buffer : pipeline->record().buffers()) {
      if (heard.empty() || heard.back() != buffer.label.utterance) heard.push_back(buffer.label.utterance);
    }
    return heard;
  }
};

TEST_F(RetryTest, AFaultyUtteranceIsMadeAgainWithAnotherSeed) {
  script_.reasons[0] = EndReason::kRunaway;
  script_.reports[1] = Skipping(1);
  fake::SetScript(script_);
  Pipeline pipeline("qttssrc name=src text=\"a b c\" real-time=false retry=2 ! fakesink");
  pipeline.Record();
  pipeline.Set(GST_STATE_PLAYING);
  ReadMessages(&pipeline);
  EXPECT_EQ(Heard(&pipeline), std::vector<int64_t>{2});
  EXPECT_EQ(pipeline.record().text(), "a b c");
  const auto requests = fake::Requests();
  ASSERT_EQ(requests.size(), 3U);
  EXPECT_NE(requests[1].seed, requests[0].seed);
  EXPECT_NE(requests[2].seed, requests[1].seed);
  EXPECT_EQ(requests[1].seed, gstqtts::SeedOfAttempt(requests[0].seed, 1));
  gint64 seed = 0;
  EXPECT_TRUE(gst_structure_get_int64(started(0), "seed", &seed));
  EXPECT_EQ(static_cast<uint64_t>(seed), requests[2].seed);
  guint retries = 0;
  EXPECT_TRUE(gst_structure_get_uint(finished(0), "retries", &retries));
  EXPECT_EQ(retries, 2U);
  EXPECT_EQ(GetStat(pipeline.src(), "retries"), 2U);
  EXPECT_EQ(GetStat(pipeline.src(), "runaways"), 0U);
  EXPECT_EQ(words_.size(), 3U) << "each once";
}

TEST_F(RetryTest, TheBestAttemptIsHeard) {
  script_.reports[0] = Skipping(2);
  script_.reports[1] = Skipping(1);
  script_.reports[2] = Skipping(3);
  fake::SetScript(script_);
  Pipeline pipeline("qttssrc name=src text=\"a b c d\" real-time=false retry=2 ! fakesink");
  pipeline.Record();
  pipeline.Set(GST_STATE_PLAYING);
  ReadMessages(&pipeline);
  EXPECT_EQ(Heard(&pipeline), std::vector<int64_t>{1});
  EXPECT_EQ(Texts(finished(0), "skipped"), std::vector<std::string>{"a"});
  gint64 seed = 0;
  EXPECT_TRUE(gst_structure_get_int64(started(0), "seed", &seed));
  EXPECT_EQ(static_cast<uint64_t>(seed), fake::Requests()[1].seed);
}

TEST_F(RetryTest, AnAttemptThatFailsIsNoFailure) {
  script_.reports[0] = Skipping(1);
  script_.reasons[1] = EndReason::kError;
  fake::SetScript(script_);
  Pipeline pipeline("qttssrc name=src text=\"a b c d\" real-time=false retry=2 ! fakesink");
  pipeline.Record();
  pipeline.Set(GST_STATE_PLAYING);
  ReadMessages(&pipeline);
  EXPECT_EQ(Heard(&pipeline), std::vector<int64_t>{0});
  EXPECT_EQ(fake::Requests().size(), 2U);
}

// With a seed, for speech in real time, by default, and for text that grows.
TEST_F(RetryTest, OthersAreSpokenAsTheyAre) {
  for (const char* properties : {"real-time=false retry=2 seed=5", "retry=2", "real-time=false",
                                 "real-time=false retry=2 segmentation=stream", "parallel=2 retry=0"}) {
    SCOPED_TRACE(properties);
    script_.reports[0] = Skipping(1);
    fake::Reset(script_);
    Pipeline pipeline(std::string("qttssrc name=src ") + properties + " ! fakesink async=false");
    Feeder feeder(pipeline.src());
    pipeline.Record();
    pipeline.Set(GST_STATE_PLAYING);
    feeder.Begin();
    feeder.Push("a b c d");
    feeder.End();
    ASSERT_NE(pipeline.Wait(GST_MESSAGE_EOS), nullptr);
    EXPECT_EQ(Heard(&pipeline), std::vector<int64_t>{0});
    EXPECT_EQ(fake::Requests().size(), 1U);
  }
}

// Whatever is made ahead has two retries by itself.
TEST_F(RetryTest, SpeechMadeAheadIsMadeAgain) {
  for (const char* properties : {"parallel=2", "parallel=4", "parallel=4 retry=5"}) {
    for (const int slots : {1, 2, 64}) {
      SCOPED_TRACE(properties + std::string(" ") + std::to_string(slots));
      script_.slots = slots;
      script_.reports[0] = Skipping(1);
      script_.reasons[2] = EndReason::kRunaway;
      fake::Reset(script_);
      Pipeline pipeline(std::string("qttssrc name=src ") + properties + " ! fakesink async=false");
      Feeder feeder(pipeline.src());
      pipeline.Record();
      pipeline.Set(GST_STATE_PLAYING);
      feeder.Begin();
      std::string text;
      for (int i = 0; i < 10; ++i) {
        const std::string line = "a b c d " + std::to_string(i);
        feeder.Push(line);
        text += line;
      }
      feeder.End();
      ASSERT_NE(pipeline.Wait(GST_MESSAGE_EOS), nullptr);
      EXPECT_EQ(pipeline.record().text(), text);
      EXPECT_EQ(GetStat(pipeline.src(), "incomplete"), 0U);
      EXPECT_EQ(GetStat(pipeline.src(), "runaways"), 0U);
      EXPECT_EQ(GetStat(pipeline.src(), "retries"), 2U);
      EXPECT_EQ(fake::Requests().size(), 12U);
    }
  }
}

// While an utterance is made again nothing leaves, and an interrupt drops it.
TEST_F(RetryTest, AnInterruptEndsIt) {
  for (int64_t i = 0; i < 3; ++i) script_.reports[i] = Skipping(1);
  fake::SetScript(script_);
  Pipeline pipeline("qttssrc name=src real-time=false retry=2 ! fakesink async=false");
  Feeder feeder(pipeline.src());
  pipeline.Record();
  fake::AllowFrames(10);  // one attempt, and a part of the next one
  pipeline.Set(GST_STATE_PLAYING);
  feeder.Begin();
  feeder.Push("a b c d");
  ASSERT_TRUE(WaitFor([] { return fake::Requests().size() == 2 && fake::GetCounters().frames == 10; }));
  EXPECT_EQ(pipeline.record().buffer_count(), 0U);
  guint64 frames = 1;
  g_signal_emit_by_name(pipeline.src(), "interrupt", &frames);
  EXPECT_EQ(frames, 0U);
  fake::AllowFrames(-1);
  feeder.Push("next one");
  feeder.End();
  ReadMessages(&pipeline);
  EXPECT_EQ(pipeline.record().text(), "next one");
}

// A text that is longer than what may wait leaves as it comes.
TEST_F(RetryTest, WhatWaitsIsBounded) {
  Pipeline pipeline("qttssrc name=src real-time=false retry=2 ! fakesink async=false");
  Feeder feeder(pipeline.src());
  pipeline.Record();
  fake::AllowFrames(1499);
  pipeline.Set(GST_STATE_PLAYING);
  feeder.Begin();
  feeder.Push(std::string(1600, 'a'));
  ASSERT_TRUE(WaitFor([] { return fake::GetCounters().frames == 1499; }));
  EXPECT_EQ(pipeline.record().buffer_count(), 0U);
  fake::AllowFrames(1);
  ASSERT_TRUE(WaitFor([&] { return pipeline.record().buffer_count() == 1500; }));
  fake::AllowFrames(-1);
  feeder.End();
  ASSERT_NE(pipeline.Wait(GST_MESSAGE_EOS), nullptr);
  EXPECT_EQ(pipeline.record().buffer_count(), 1600U);
}

TEST_F(RetryTest, TheGuardsBoundIsPassedOn) {
  Pipeline pipeline("qttssrc name=src text=\"a b\" runaway-frames=9 ! fakesink");
  ASSERT_TRUE(pipeline.PlayToEnd());
  EXPECT_EQ(fake::Requests().at(0).runaway_frames_per_token, 9);
}

// --- parts

TEST(SoundPlaces, MapsAcrossGapsAndCuts) {
  SoundPlaces places;
  EXPECT_TRUE(places.empty());
  // 40 ms were cut off, and a frame is late by 20 ms.
  places.Add({{960, 1920, 960}}, 960, 24000, {1'000'000'000, 500'000'000});
  places.Add({{1920, 3840, 1920}}, 1920, 24000, {1'040'000'000, 540'000'000});
  places.Add({{3840, 5760, 1920}}, 1920, 24000, {1'140'000'000, 640'000'000});
  EXPECT_EQ(places.begin(), milliseconds(40));
  EXPECT_EQ(places.end(), milliseconds(240));
  const auto time = [&](int ms) { return places.At(milliseconds(ms)).time / 1'000'000; };
  EXPECT_EQ(time(0), 500U);
  EXPECT_EQ(time(40), 500U);
  EXPECT_EQ(time(100), 560U);
  EXPECT_EQ(time(159), 619U);
  EXPECT_EQ(time(160), 640U);
  EXPECT_EQ(time(1000), 720U);
  EXPECT_EQ(places.At(milliseconds(100)).running_time, 1'060'000'000U);
}

TEST(WordTrack, TakesWordsInOrderAndJoinsThoseOfOneWrittenWord) {
  WordTrack track;
  track.Add({0, 2, milliseconds(0), milliseconds(100)}, false);
  track.Add({3, 5, milliseconds(150), milliseconds(100)}, true);
  EXPECT_EQ(track.Take(milliseconds(200)), (std::vector<TimedWord>{{0, 2, milliseconds(0), milliseconds(100)}}));
  EXPECT_EQ(track.known_until(milliseconds(200)), milliseconds(150));
  EXPECT_EQ(track.SpokenAt(milliseconds(200)), 4U);
  track.Add({3, 5, milliseconds(250), milliseconds(100)}, false);
  EXPECT_EQ(track.Take(milliseconds(200)), (std::vector<TimedWord>{{3, 5, milliseconds(150), milliseconds(200)}}));
  track.SkipTo(10);
  track.Add({6, 9, milliseconds(400), milliseconds(100)}, false);
  track.Add({8, 12, milliseconds(300), milliseconds(300)}, false);
  EXPECT_EQ(track.Take(milliseconds(1000)), (std::vector<TimedWord>{{10, 12, milliseconds(300), milliseconds(300)}}));
}

TEST(WordTrack, StartsNeverGoBack) {
  WordTrack track;
  track.Add({0, 2, milliseconds(500), milliseconds(100)}, false);
  track.Add({3, 5, milliseconds(400), milliseconds(300)}, false);
  const auto words = track.Take(nanoseconds::max());
  ASSERT_EQ(words.size(), 2U);
  EXPECT_EQ(words[1], (TimedWord{3, 5, milliseconds(500), milliseconds(200)}));
}

TEST(TextPosition, GoesOnFromWhatWasMeasured) {
  TextPosition position;
  position.Append("aaaa bbbb cccc dddd eeee");
  // By the estimate a word takes 0.28 s.
  position.Anchor(9, 5.0);
  EXPECT_EQ(position.spoken(), 9U);
  EXPECT_EQ(position.Advance(5.1), (std::vector<TextPosition::Word>{{10, 4}}));
  EXPECT_EQ(position.Advance(5.5), (std::vector<TextPosition::Word>{{15, 4}}));
  position.Anchor(14, 6.0);  // it was ahead
  EXPECT_TRUE(position.Advance(6.2).empty()) << "each word once";
  EXPECT_EQ(position.Advance(100), (std::vector<TextPosition::Word>{{20, 4}}));
}

TEST(TextPosition, FindsTheWrittenTextOfSpokenBytes) {
  TextPosition position;
  // "$5" is spoken as two words.
  position.Append("\xC3\xBC five dollars now", {{0, 2, 0, 2, true}, {2, 14, 2, 4, false}, {14, 18, 4, 8, true}});
  EXPECT_EQ(position.Written({0, 2}), (TextPosition::Run{0, 1, false}));
  EXPECT_EQ(position.Written({3, 7}), (TextPosition::Run{2, 4, true}));
  EXPECT_EQ(position.Written({8, 15}), (TextPosition::Run{2, 4, false}));
  EXPECT_EQ(position.Written({16, 19}), (TextPosition::Run{5, 8, false}));
  EXPECT_EQ(position.Written({0, 2}), (TextPosition::Run{0, 1, false})) << "in any order";
  const TextPosition::Run beyond = position.Written({500, 600});
  EXPECT_EQ(beyond.begin, beyond.end);
}

gstqtts::Attempt NewAttempt(EndReason reason, size_t skipped, uint64_t seed) {
  gstqtts::Attempt attempt;
  attempt.end.reason = reason;
  attempt.end.report.measured = true;
  attempt.end.report.skipped.resize(skipped);
  attempt.seed = seed;
  return attempt;
}

TEST(Retries, StopAtTheFirstGoodOneAndKeepTheBest) {
  Retries none;
  auto attempt = NewAttempt(EndReason::kRunaway, 3, 1);
  EXPECT_FALSE(none.Judge(&attempt));
  EXPECT_EQ(attempt.seed, 1U);

  Retries two(2);
  attempt = NewAttempt(EndReason::kComplete, 1, 1);
  EXPECT_TRUE(two.Judge(&attempt));
  attempt = NewAttempt(EndReason::kComplete, 0, 2);
  EXPECT_FALSE(two.Judge(&attempt));
  EXPECT_EQ(attempt.seed, 2U);
  EXPECT_EQ(two.made(), 1);

  Retries three(3);
  attempt = NewAttempt(EndReason::kRunaway, 0, 1);
  EXPECT_TRUE(three.Judge(&attempt));
  attempt = NewAttempt(EndReason::kComplete, 1, 2);
  EXPECT_TRUE(three.Judge(&attempt));
  attempt = NewAttempt(EndReason::kComplete, 1, 3);
  EXPECT_TRUE(three.Judge(&attempt));
  attempt = NewAttempt(EndReason::kBusy, 0, 4);
  EXPECT_FALSE(three.Judge(&attempt));
  EXPECT_EQ(attempt.seed, 2U);
}

TEST(Retries, SeedsDiffer) {
  EXPECT_EQ(gstqtts::SeedOfAttempt(7, 0), 7U);
  EXPECT_NE(gstqtts::SeedOfAttempt(7, 1), gstqtts::SeedOfAttempt(7, 2));
  EXPECT_LT(gstqtts::SeedOfAttempt(7, 1), uint64_t{1} << 53U);
}

// Words of 100 ms each, one every 200 ms; every run of letters is one.
std::vector<TimedText> MakeCues(Granularity granularity, const std::string& text, uint64_t gap_after = SIZE_MAX) {
  Told told;
  told.id = 1;
  told.text = text;
  uint64_t time = 0;
  size_t begin = 0;
  std::u32string characters;
  for (std::string_view rest = text; !rest.empty();) {
    const Utf8Char character = DecodeUtf8(rest);
    rest.remove_prefix(character.size);
    characters.push_back(character.code);
  }
  while (begin < characters.size()) {
    size_t end = begin;
    while (end < characters.size() && g_unichar_isalnum(characters[end]) && (end == begin || characters[end] < 0x3000))
      ++end;
    if (end > begin) {
      told.words.push_back({begin, end, time * GST_MSECOND, 100 * GST_MSECOND});
      time += told.words.size() == gap_after ? 2000 : 200;
    }
    begin = std::max(end, begin + 1);
  }
  told.over = true;
  return CueMaker(granularity).Add(told);
}

std::vector<std::string> TextsOf(const std::vector<TimedText>& cues) {
  std::vector<std::string> texts;
  for (const TimedText& cue : cues) texts.push_back(cue.text);
  return texts;
}

TEST(CueMaker, SentencesAreWholeAndHaveSingleSpaces) {
  const auto cues = MakeCues(Granularity::kSentence, " \"A  b\nc,\" she  said. (And\tnow?) Yes ");
  EXPECT_EQ(TextsOf(cues), (std::vector<std::string>{"\"A b c,\" she said.", "(And now?)", "Yes"}));
  EXPECT_EQ(cues[1].time, 1000 * GST_MSECOND);
  EXPECT_EQ(cues[1].duration, 300 * GST_MSECOND);
}

TEST(CueMaker, CuesFitTwoLines) {
  const auto cues =
      MakeCues(Granularity::kCue,
               "It was the best of times, it was the worst of times, it was the age of wisdom, it was the "
               "age of foolishness, it was the epoch of belief.");
  EXPECT_EQ(TextsOf(cues), (std::vector<std::string>{"It was the best of times,\nit was the worst of times,",
                                                     "it was the age of wisdom,\nit was the age of foolishness,",
                                                     "it was the epoch of belief."}));
  const std::string word(30, 'x');
  for (const auto& cue : MakeCues(Granularity::kCue, word + " " + word + " " + word + " " + word)) {
    EXPECT_EQ(cue.text, word + "\n" + word);
  }
}

TEST(CueMaker, WideCharactersHaveTwoColumns) {
  std::string text;
  for (int i = 0; i < 60; ++i) text += "\xE5\xA4\xA9";
  const auto cues = MakeCues(Granularity::kCue, text);
  ASSERT_EQ(cues.size(), 2U);
  EXPECT_EQ(cues[0].text.size(), 42U * 3 + 1) << "two lines of 21, and a line feed";
  EXPECT_EQ(cues[0].text[21 * 3], '\n');
}

TEST(CueMaker, ACueEndsAtALongPause) {
  EXPECT_EQ(TextsOf(MakeCues(Granularity::kCue, "one two three", 2)), (std::vector<std::string>{"one two", "three"}));
  EXPECT_EQ(TextsOf(MakeCues(Granularity::kSentence, "one two three", 2)), std::vector<std::string>{"one two three"});
}

// Nothing is shown twice or lost, whatever the words are.
TEST(CueMaker, TakesAnyWords) {
  uint32_t random = 1;
  const auto next = [&random](uint32_t below) {
    random = random * 1664525U + 1013904223U;
    return (random >> 8U) % below;
  };
  for (int round = 0; round < 300; ++round) {
    for (const Granularity granularity : {Granularity::kWord, Granularity::kSentence, Granularity::kCue}) {
      CueMaker maker(granularity);
      std::string text;
      for (uint32_t i = 0; i < 5 + next(60); ++i) text += " .,ab\"(\n-"[next(9)];
      Told told;
      told.id = 1 + next(2);
      told.text = text.substr(0, next(static_cast<uint32_t>(text.size())));
      size_t shown = 0;
      for (int part = 0; part < 4; ++part) {
        told.words.clear();
        for (uint32_t i = 0; i < next(4); ++i) {
          const size_t begin = next(70);
          told.words.push_back({begin, begin + next(10), next(1000), next(1000)});
        }
        for (const TimedText& cue : maker.Add(told)) shown += cue.text.size();
        told.text = text;
      }
      for (const TimedText& cue : maker.End()) shown += cue.text.size();
      EXPECT_LE(shown, 2 * text.size());
      EXPECT_FALSE(maker.begun());
    }
  }
}

}  // namespace
}  // namespace qtts::testing
