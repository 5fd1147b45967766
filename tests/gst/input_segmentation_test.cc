// SPDX-License-Identifier: LGPL-2.1-or-later
// Where utterances of the sink pad begin and end, and events in their midst.
#include <atomic>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gstqttstext.h"
#include "input_fixture.h"

namespace qtts::testing {
namespace {

// The reasons for which the next `count` utterances end, in order.
std::vector<std::string> Reasons(Pipeline* pipeline, int count) {
  std::vector<std::string> reasons;
  for (int i = 0; i < count; ++i) reasons.push_back(pipeline->Finish().reason);
  return reasons;
}

// Check: 45
TEST_F(InputTest, WhereThereIsNothingToSayNothingIsSpoken) {
  for (const char* segmentation : {"none", "sentence", "stream"}) {
    SCOPED_TRACE(segmentation);
    fake::Reset();
    Speak speak(std::string("newline-ends=true segmentation=") + segmentation);
    for (const char* line : {"???\n", "Ab.\n", "+++---\n", "\xE2\x80\x8B\n", "cd\n"}) {
      speak.Push(line);
    }
    speak.End().Expect("Ab.cd");
    EXPECT_EQ(GetStat(speak.src(), "utterances"), 5U);
    EXPECT_EQ(fake::Requests().size(), 2U);
  }
}

// Check: 45
TEST_F(InputTest, AGrowingUtteranceWaitsForItsFirstWord) {
  Speak speak("segmentation=stream utterance-timeout=18446744073709551615");
  for (const char* part : {"?", "!", " - "}) speak.Push(part);
  EXPECT_EQ(GetStat(speak.src(), "queued-utterances"), 1U);
  EXPECT_TRUE(fake::Requests().empty());
  // The first word starts the speech, which includes all the text before it.
  speak.Push("a!").AwaitText("?! - a!").Send("qtts/end-utterance");
  // Without a word, it ends with its text.
  speak.Push("...").Send("qtts/end-utterance").Push("b").Push("!").Send("qtts/end-utterance").Push("---").End();
  EXPECT_EQ(Reasons(&speak, 4), (std::vector<std::string>{"complete", "nothing-to-say", "complete", "nothing-to-say"}));
  EXPECT_EQ(speak.text(), "?! - a!b!");
}

// Text without a word delays nothing: its time-out, a drain, a live stream's silence, and pushes into a full queue.
// Check: 45
TEST_F(InputTest, AGrowingUtteranceWithoutAWordHoldsNothingUp) {
  {
    Speak speak("segmentation=stream utterance-timeout=20000000");
    speak.Push("...").AwaitStat("utterances", 1);  // the time-out
    speak.Push("...");
    GstQuery* const drain = gst_query_new_drain();
    EXPECT_TRUE(gst_pad_query(speak.feeder().sink(), drain));
    gst_query_unref(drain);
    EXPECT_EQ(GetStat(speak.src(), "utterances"), 2U);
  }
  {
    Speak speak("segmentation=stream idle-mode=silence utterance-timeout=18446744073709551615");
    speak.Push("...");
    const size_t count = speak.record().buffer_count();
    ASSERT_TRUE(WaitFor([&] { return speak.record().buffer_count() > count + 10; })) << "silence goes on";
    EXPECT_EQ(GetStat(speak.src(), "utterances"), 0U);
    speak.Push("a").AwaitStat("frames", 4);
  }
  fake::Reset();
  {
    Speak speak("segmentation=stream max-queued-text=10 utterance-timeout=18446744073709551615");
    for (int i = 0; i < 20; ++i) speak.Push(".....");  // room is made
    speak.End().ExpectEnd();
    EXPECT_TRUE(fake::Requests().empty());
  }
}

// In German, a full stop after a number ends no sentence, whichever property or event selects German.
// Check: 42
TEST_F(InputTest, SentencesAreThoseOfTheLanguage) {
  for (const auto& [language, sentences] : {std::pair<const char*, size_t>{"german", 1},
                                            {"German", 1},
                                            {"de", 1},
                                            {"DE-at", 1},
                                            {"english", 2},
                                            {"en", 2},
                                            {"auto", 2}}) {
    SCOPED_TRACE(language);
    fake::Reset();
    Speak(std::string("segmentation=sentence language=") + language).Push("Am 3. Mai.").End().ExpectEnd();
    EXPECT_EQ(fake::Requests().size(), sentences);
  }
}

TEST_F(InputTest, FootnoteMarksAreSkippedIfAskedFor) {
  for (const auto& [properties, text] :
       {std::pair<const char*, const char*>{"", "So.[1]"}, {"skip-footnote-marks=true", "So."}}) {
    fake::Reset();
    Speak(std::string("segmentation=sentence ") + properties).Push("So.[1] It is.").End().ExpectEnd();
    ASSERT_EQ(fake::Requests().size(), 2U);
    EXPECT_EQ(fake::Requests()[0].text, text);
  }
}

TEST_F(InputTest, SentencesAreUtterancesHoweverBuffersCutThem) {
  Speak speak("segmentation=sentence");
  const std::string text = "Dr. M\xC3\xBCller is here. \xE4\xBD\xA0\xE5\xA5\xBD\xE3\x80\x82Is he?  Yes! The rest";
  for (const char byte : text) speak.Push(std::string(1, byte));
  speak.End().ExpectEnd();
  EXPECT_EQ(Texts(), (std::vector<std::string>{"Dr. M\xC3\xBCller is here.", "\xE4\xBD\xA0\xE5\xA5\xBD\xE3\x80\x82",
                                               "Is he?", "Yes!", "The rest"}));
}

// Blocks read from a file or a pipe end anywhere.
// Check: 46
TEST_F(InputTest, PiecesOfAFileAreTakenBySentenceUnlessToldOtherwise) {
  const std::string text = "It was late. Nobody came, not even Dr. Fox. The end";
  const struct {
    const char* properties;
    GstFormat format;
    std::vector<std::string> utterances;
  } cases[] = {
      {"", GST_FORMAT_BYTES, {"It was late.", "Nobody came, not even Dr. Fox.", "The end"}},
      {"", GST_FORMAT_TIME, {"It was late. No", "body came, not", "even Dr. Fox. T", "he end"}},
      {"segmentation=none", GST_FORMAT_BYTES, {"It was late. No", "body came, not", "even Dr. Fox. T", "he end"}},
      {"segmentation=sentence", GST_FORMAT_TIME, {"It was late.", "Nobody came, not even Dr. Fox.", "The end"}},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.properties);
    fake::Reset();
    Speak speak(c.properties);
    speak.Open(c.format);
    for (size_t i = 0; i < text.size(); i += 15) speak.Push(text.substr(i, 15));
    speak.End().ExpectEnd();
    EXPECT_EQ(Texts(), c.utterances);
  }
}

// Streams in bytes and streams in time may follow one another.
// Check: 46
TEST_F(InputTest, ASegmentOfAnotherFormatEndsTheSentence) {
  Speak().Open(GST_FORMAT_BYTES).Push("One. Tw").Push("o").Open(GST_FORMAT_TIME).Push("Three. Four").End().ExpectEnd();
  EXPECT_EQ(Texts(), (std::vector<std::string>{"One.", "Two", "Three. Four"}));
}

// --- events of others

// Characters and names of custom events, in the order of the src pad.
std::string Order(const Recorder& record) {
  std::string order;
  for (const auto& item : record.items()) {
    if (item.is_buffer) {
      order += static_cast<char>(item.label.character);
    } else if (item.event == GST_EVENT_CUSTOM_DOWNSTREAM || item.event == GST_EVENT_CUSTOM_BOTH ||
               item.event == GST_EVENT_CUSTOM_DOWNSTREAM_STICKY) {
      order += '|';
    }
  }
  return order;
}

// Check: 44
TEST_F(InputTest, EventsOfOthersGoOnInOrderWithTheSound) {
  for (const GstEventType type :
       {GST_EVENT_CUSTOM_DOWNSTREAM, GST_EVENT_CUSTOM_BOTH, GST_EVENT_CUSTOM_DOWNSTREAM_STICKY}) {
    fake::AllowFrames(1);
    Speak speak;
    speak.Open();
    const auto send = [&] {
      return speak.feeder().Send(gst_event_new_custom(type, gst_structure_new_empty("app/marker")));
    };
    speak.Push("ab");
    EXPECT_TRUE(send());
    speak.Push("cd").Push("ef");
    EXPECT_TRUE(send());
    fake::AllowFrames(-1);
    speak.End().ExpectEnd();
    EXPECT_EQ(Order(speak.record()), "ab|cdef|");
  }
}

// Check: 44
TEST_F(InputTest, EventsOfOthersDoNotCutASentenceNorWaitForTextThatMayCome) {
  Speak speak("segmentation=sentence utterance-timeout=-1");
  speak.Open().Send("app/marker");
  EXPECT_TRUE(WaitFor([&] { return Order(speak.record()) == "|"; })) << "there is nothing before it";
  speak.Push("A b").Send("app/marker").Push("c. De.").End().ExpectEnd();
  EXPECT_EQ(Order(speak.record()), "|A bc.|De.");
}

// Check: 44
TEST_F(InputTest, EventsOfOthersStayBehindAGrowingUtterance) {
  Speak speak("segmentation=stream utterance-timeout=-1");
  speak.Push("ab").Send("app/marker").Push("cd").Send("qtts/end-utterance").Push("ef").End().ExpectEnd();
  EXPECT_EQ(Order(speak.record()), "abcd|ef");
}

// Check: 44
TEST_F(InputTest, EventsOfOthersOutliveAnInterruptAndNotAFlush) {
  for (const bool flush : {false, true}) {
    fake::AllowFrames(1);
    Speak speak;
    speak.Push("ab").Await(1).Push("cd").Send("app/marker");
    if (flush) {
      speak.Flush();
    } else {
      speak.Interrupt();
    }
    fake::AllowFrames(-1);
    speak.Open().Push("ef").End().ExpectEnd();
    EXPECT_EQ(Order(speak.record()), flush ? "aef" : "a|ef");
  }
}

// It takes effect in its order among upstream's buffers, and is forwarded.
// Check: 44
TEST_F(InputTest, ASerializedInterruptIsObeyed) {
  fake::AllowFrames(1);
  Speak speak;
  speak.Push("abcdef").Push("never").Await(1).Send("qtts/interrupt");
  fake::AllowFrames(-1);
  speak.Push("gh").End().ExpectEnd();
  EXPECT_EQ(Order(speak.record()), "a|gh");
}

TEST_F(InputTest, GapsEventsAndVoicesEndASentence) {
  Speak speak("segmentation=sentence utterance-timeout=18446744073709551615");
  speak.Push("one");
  speak.feeder().Send(gst_event_new_gap(0, GST_SECOND));
  speak.Await(3).Push("two").Send("qtts/end-utterance").Await(6).Push("three").Send("qtts/set-voice, speaker=bob");
  speak.Await(11).Push("four");
  speak.feeder().Release();
  speak.ExpectEnd();
  EXPECT_EQ(Texts(), (std::vector<std::string>{"one", "two", "three", "four"}));
  EXPECT_EQ(fake::Requests()[2].speaker, "");
  EXPECT_EQ(fake::Requests()[3].speaker, "bob");
}

TEST_F(InputTest, ASentenceEndsWhenNoTextComes) {
  Speak speak("segmentation=sentence utterance-timeout=20000000");
  speak.Push("One. Two").AwaitText("One.Two").Push(" ").Push("three").AwaitText("One.Twothree");
  EXPECT_TRUE(speak.Pending(GST_MESSAGE_EOS).empty());
}

TEST_F(InputTest, AStreamIsOneUtteranceThatGrowsWhileItIsSpoken) {
  Speak speak("segmentation=stream utterance-timeout=18446744073709551615");
  std::string text;
  for (const char* token : {" \n", "He", "llo", ",", " wor", "ld \xE4\xBD", "\xA0", ".\nMore"}) {
    speak.Push(token);
    text += token;
    const std::string expected(gstqtts::TrimLeft(text));
    if (expected.ends_with("\xBD")) continue;  // half a character
    ASSERT_TRUE(WaitFor([&] { return speak.text() == expected; })) << "spoken as it comes";
  }
  ASSERT_EQ(fake::Requests().size(), 1U);
  EXPECT_TRUE(fake::Requests()[0].more_text);
  EXPECT_EQ(fake::Requests()[0].text, "He");
  EXPECT_EQ(fake::Requests()[0].layout, PromptLayout::kStreaming);
  EXPECT_EQ(GetString(speak.src(), "current-text"), gstqtts::TrimLeft(text));
  EXPECT_EQ(GetStat(speak.src(), "utterances"), 0U);
  speak.Send("qtts/end-utterance").AwaitStat("utterances", 1).Push("Next").End().ExpectEnd();
  EXPECT_EQ(fake::Requests().size(), 2U);
  EXPECT_EQ(speak.text(), std::string(gstqtts::TrimLeft(text)) + "Next");
}

TEST_F(InputTest, AStreamGrowsWhileItWaitsForItsTurn) {
  fake::AllowFrames(1);
  Speak speak("text=first segmentation=stream");
  speak.feeder();
  speak.Set(GST_STATE_PLAYING);
  speak.Await(1).Open().Push("se").Push("co");
  EXPECT_EQ(GetStat(speak.src(), "queued-utterances"), 1U);
  EXPECT_EQ(GetStat(speak.src(), "queued-chars"), 4U);
  fake::AllowFrames(-1);
  speak.AwaitText("firstseco").Push("nd").End().Expect("firstsecond");
  EXPECT_EQ(fake::Requests().size(), 2U);
}

TEST_F(InputTest, AStreamEndsByNewlineOrWhenNoTextComes) {
  Speak speak("segmentation=stream newline-ends=true utterance-timeout=30000000");
  speak.Push("one\ntwo\r\n\n").AwaitStat("utterances", 2).Push("three").AwaitStat("utterances", 3).Push("four").End();
  speak.Expect("onetwothreefour");
  EXPECT_EQ(Texts(), (std::vector<std::string>{"one", "two", "three", "four"}));
}

TEST_F(InputTest, AStreamIsPreparedAsItGrows) {
  Speak speak("segmentation=stream normalize=spoken");
  for (const char* token : {"It", " costs $", "1", "5", ", no", "w. And 2"}) speak.Push(token);
  ASSERT_TRUE(WaitFor([&] { return speak.text().starts_with("It costs fifteen dollars"); }));
  speak.End().Expect("It costs fifteen dollars, now. And two");
  EXPECT_EQ(fake::Requests().size(), 1U);
}

TEST_F(InputTest, AStreamBeyondTheLengthAllowedBecomesSeveral) {
  Speak speak("segmentation=stream max-text-length=10");
  for (const char* token : {"one", " two", " three", " four five six seven"}) speak.Push(token);
  speak.End().Expect("one twothreefour five six seven");
  for (const Request& request : fake::Requests()) EXPECT_EQ(request.layout, PromptLayout::kStreaming);
  for (const std::string& text : Texts()) EXPECT_LE(text.size(), 10U);
}

TEST_F(InputTest, AStreamThatIsInterruptedStartsAnewWithTheTextAfterIt) {
  Speak speak("segmentation=stream");
  speak.Push("abc").Await(3);
  EXPECT_EQ(speak.Interrupt(), 3U);
  speak.Push("def").End().Expect("abcdef");
  EXPECT_EQ(fake::Requests().size(), 2U);
}

TEST_F(InputTest, ADrainQueryWaitsUntilEverythingIsSpoken) {
  for (const char* mode : {"none", "sentence", "stream"}) {
    SCOPED_TRACE(mode);
    fake::AllowFrames(2);
    Speak speak(std::string("segmentation=") + mode);
    speak.Push("abc");
    std::atomic<int> answer = -1;
    std::thread upstream([&] {
      GstQuery* query = gst_query_new_drain();
      answer = gst_pad_query(speak.feeder().sink(), query);
      gst_query_unref(query);
    });
    speak.Await(2);
    EXPECT_EQ(answer, -1);
    fake::AllowFrames(-1);
    upstream.join();
    EXPECT_EQ(answer, TRUE);
    EXPECT_EQ(speak.text(), "abc");
    // A flush of the pad or a stop of the element ends the drain.
    fake::AllowFrames(0);
    speak.Push("def");
    std::thread flushed([&] {
      GstQuery* query = gst_query_new_drain();
      answer = gst_pad_query(speak.feeder().sink(), query);
      gst_query_unref(query);
    });
    speak.feeder().Send(gst_event_new_flush_start());
    flushed.join();
    EXPECT_EQ(answer, FALSE);
  }
}

}  // namespace
}  // namespace qtts::testing
