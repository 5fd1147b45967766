// SPDX-License-Identifier: LGPL-2.1-or-later
// Documents with markup.
#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "qtts/utf8.h"
#include "support.h"

namespace qtts::testing {
namespace {

constexpr GstClockTime kFrame = 80 * GST_MSECOND;
constexpr guint64 kRate = 24000;
constexpr char kLine[] = "qttssrc name=src ! fakesink sync=false";

// An element message that came.
struct Told {
  std::string name;
  guint64 id = 0;
  guint64 running_time = 0;
  std::string text;    // of "started", name of a mark, reason of an end
  guint64 offset = 0;  // of a word, a mark, or of the text
  guint64 length = 0;
};

struct Heard {
  std::vector<Recorder::Item> buffers;
  std::vector<Told> told;
  std::vector<std::string> warnings;

  std::vector<Told> All(const std::string& name) const {
    std::vector<Told> found;
    for (const Told& one : told) {
      if (one.name == name) found.push_back(one);
    }
    return found;
  }
  // The characters of speech, "_" for each run of silence.
  std::string text() const {
    std::string all;
    for (const auto& buffer : buffers) {
      if (!buffer.silent) {
        AppendUtf8(buffer.label.character, &all);
      } else if (!all.ends_with('_')) {
        all += '_';
      }
    }
    return all;
  }
  // Samples of the `number`th run of silence.
  guint64 Silence(size_t number) const {
    guint64 samples = 0;
    size_t run = 0;
    bool silent = false;
    for (const auto& buffer : buffers) {
      if (buffer.silent && !std::exchange(silent, true)) ++run;
      silent = buffer.silent;
      if (silent && run == number + 1) samples += buffer.offset_end - buffer.offset;
    }
    return samples;
  }
};

// Plays to the end.
void Collect(Pipeline* pipeline, Heard* heard) {
  pipeline->Play();
  for (;;) {
    const auto message =
        pipeline->Wait(GST_MESSAGE_ELEMENT | GST_MESSAGE_WARNING | GST_MESSAGE_ERROR | GST_MESSAGE_EOS);
    ASSERT_NE(message, nullptr);
    if (GST_MESSAGE_TYPE(message.get()) == GST_MESSAGE_EOS) break;
    if (GST_MESSAGE_TYPE(message.get()) != GST_MESSAGE_ELEMENT) {
      heard->warnings.push_back(ParseProblem(message.get()).text);
      ASSERT_NE(GST_MESSAGE_TYPE(message.get()), GST_MESSAGE_ERROR) << heard->warnings.back();
      continue;
    }
    const GstStructure* structure = gst_message_get_structure(message.get());
    Told told;
    told.name = gst_structure_get_name(structure) + std::strlen("qtts-");
    told.id = GetField(structure, "id");
    if (told.name == "utterance-started") {
      told.text = gst_structure_get_string(structure, "text");
      told.offset = GetField(structure, "text-offset");
    } else if (told.name == "text-progress") {
      told.offset = GetField(structure, "offset-chars");
      told.length = GetField(structure, "length-chars");
    } else if (told.name == "mark") {
      told.text = gst_structure_get_string(structure, "name");
      told.offset = GetField(structure, "position");
    } else {
      told.text = gst_structure_get_string(structure, "reason");
    }
    if (told.name != "utterance-finished") told.running_time = GetField(structure, "running-time");
    heard->told.push_back(std::move(told));
  }
  heard->buffers = pipeline->record().buffers();
  for (size_t i = 1; i < heard->buffers.size(); ++i) {
    const auto& before = heard->buffers[i - 1];
    EXPECT_EQ(heard->buffers[i].pts, before.pts + before.duration);
    EXPECT_EQ(heard->buffers[i].offset, before.offset_end);
  }
}

// Speaks the property `text`.
Heard SpeakText(const std::string& text, const std::string& properties = "", bool keep_data = false) {
  Speak speak(properties);
  g_object_set(speak.src(), "text", text.c_str(), nullptr);
  speak.Record(keep_data);
  Heard heard;
  Collect(&speak, &heard);
  return heard;
}

struct Feed {
  std::string properties;
  GstFormat format = GST_FORMAT_BYTES;
  const char* caps = nullptr;
};

// Speaks text of the sink pad, in these pieces.
Heard SpeakPieces(const Feed& feed, const std::vector<std::string>& pieces) {
  Speak speak(feed.properties);
  speak.Open(feed.format, feed.caps);
  for (const std::string& piece : pieces) speak.Push(piece);
  speak.End();
  Heard heard;
  Collect(&speak, &heard);
  return heard;
}

std::vector<std::string> RandomPieces(std::mt19937* rng, const std::string& text) {
  std::vector<std::string> pieces;
  std::uniform_int_distribution<size_t> length(1, 11);
  for (size_t at = 0; at < text.size();) {
    pieces.push_back(text.substr(at, length(*rng)));
    at += pieces.back().size();
  }
  return pieces;
}

std::string Characters(const std::string& text, size_t offset, size_t length) {
  return std::string(Utf8Head(std::string_view(text).substr(Utf8Head(text, offset).size()), length));
}

class MarkupTest : public GstTest {};

// --- whole documents

TEST_F(MarkupTest, ADocumentIsOneTextForAllMessages) {
  const std::string text =
      "<speak><p>Oné <emphasis>two</emphasis>.</p><p>See <sub alias=\"a b\">Wx</sub> now.</p></speak>";
  const Heard heard = SpeakText(text, "paragraph-gap=0");
  EXPECT_EQ(heard.text(), "Oné two.See a b now.");
  const auto started = heard.All("utterance-started");
  ASSERT_EQ(started.size(), 1U);
  EXPECT_EQ(started[0].id, 1U);
  EXPECT_EQ(started[0].text, text);
  std::vector<std::string> words;
  for (const Told& word : heard.All("text-progress")) {
    EXPECT_EQ(word.id, 1U);
    words.push_back(Characters(text, word.offset, word.length));
  }
  EXPECT_EQ(words, (std::vector<std::string>{"Oné", "two", "See", "Wx", "now"}));
  const auto finished = heard.All("utterance-finished");
  ASSERT_EQ(finished.size(), 1U);
  EXPECT_EQ(finished[0].text, "complete");
  ASSERT_EQ(heard.warnings.size(), 1U);
  EXPECT_NE(heard.warnings[0].find("<emphasis> has no effect"), std::string::npos);
}

TEST_F(MarkupTest, ABreakIsExactlyAsLongAndMarksTellTheirTime) {
  const Heard heard =
      SpeakText("<speak>ab <mark name='in'/>cd<break time='333ms'/><mark name='between'/>ef<mark name='end'/></speak>",
                "utterance-gap=5000000000 leading-silence=1000000000");
  EXPECT_EQ(heard.text(), "_ab cd_ef");
  EXPECT_EQ(heard.Silence(0), kRate);
  EXPECT_EQ(heard.Silence(1), kRate * 333 / 1000);
  const auto marks = heard.All("mark");
  ASSERT_EQ(marks.size(), 3U);
  const GstClockTime begin = GST_SECOND;
  EXPECT_EQ(marks[0].text, "in");
  EXPECT_EQ(marks[0].offset, 10U);
  const auto words = heard.All("text-progress");
  ASSERT_EQ(words.size(), 3U);
  EXPECT_EQ(marks[0].running_time, words[1].running_time);
  EXPECT_EQ(marks[1].text, "between");
  EXPECT_EQ(marks[1].running_time, begin + 5 * kFrame + 333 * GST_MSECOND);
  EXPECT_EQ(marks[2].text, "end");
  EXPECT_EQ(marks[2].running_time, begin + 7 * kFrame + 333 * GST_MSECOND);
  EXPECT_EQ(heard.told.back().name, "utterance-finished");
}

TEST_F(MarkupTest, VoiceAndLanguageSwitchWhereTheyStand) {
  const Heard heard = SpeakText(
      "<speak>one <voice name='nobody bob'>two <lang xml:lang='de'>drei</lang></voice> four"
      "<voice name='carl'>five</voice> - <voice name='carl'>six</voice><lang xml:lang='fr'>sept</lang></speak>",
      "speaker=ann language=english seed=7");
  EXPECT_EQ(heard.text(), "onetwodreifourfivesixsept");
  const std::vector<Request> requests = fake::Requests();
  ASSERT_EQ(requests.size(), 7U);
  const std::vector<std::pair<std::string, std::string>> expected = {
      {"ann", "english"}, {"bob", "english"}, {"bob", "de"},     {"ann", "english"},
      {"ann", "english"}, {"ann", "english"}, {"ann", "english"}};
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(requests[i].speaker, expected[i].first) << i;
    EXPECT_EQ(requests[i].language, expected[i].second) << i;
    EXPECT_EQ(requests[i].seed, 7U);
  }
  ASSERT_EQ(heard.warnings.size(), 2U);
  EXPECT_NE(heard.warnings[0].find("the voice \"carl\""), std::string::npos);
  EXPECT_NE(heard.warnings[1].find("the language \"fr\""), std::string::npos);
}

TEST_F(MarkupTest, PartsOfADocumentHaveOneSeed) {
  SpeakText("<speak><p>one</p><p>two</p></speak>");
  const std::vector<Request> requests = fake::Requests();
  ASSERT_EQ(requests.size(), 2U);
  EXPECT_EQ(requests[0].seed, requests[1].seed);
}

TEST_F(MarkupTest, VolumeIsAFactorOfTheSamples) {
  const auto loudest = [](const std::string& text) {
    const Heard heard = SpeakText(text, "", true);
    float most = 0;
    for (const auto& buffer : heard.buffers) {
      for (size_t i = 0; i + sizeof(gint16) <= buffer.data.size(); i += sizeof(gint16)) {
        gint16 sample = 0;
        std::memcpy(&sample, &buffer.data[i], sizeof sample);
        most = std::max(most, std::abs(static_cast<float>(sample)));
      }
    }
    return most;
  };
  const float plain = loudest("<speak>a</speak>");
  ASSERT_GT(plain, 0);
  fake::Reset();
  EXPECT_NEAR(loudest("<speak><prosody volume='soft'>a</prosody></speak>"), plain / 2, 1);
  fake::Reset();
  EXPECT_EQ(loudest("<speak><prosody volume='silent'>a</prosody></speak>"), 0);
}

TEST_F(MarkupTest, ABrokenDocumentIsSpokenWithOneWarning) {
  const Heard heard = SpeakText("<speak>one <voice name='bob'>two</speak> three &");
  EXPECT_EQ(heard.text(), "onetwo three &");
  ASSERT_EQ(heard.warnings.size(), 1U);
  EXPECT_NE(heard.warnings[0].find("SSML, line 1, character "), std::string::npos);
  EXPECT_NE(heard.warnings[0].find("tags are left out and all text is spoken"), std::string::npos);
}

TEST_F(MarkupTest, AutoNeverGuessesOnPlainText) {
  for (const char* const plain : {"# one **two** <b>x</b>", "{\\an8}JOHN: hi [x]", "a <speak>b</speak>"}) {
    EXPECT_EQ(SpeakText(plain).text(), plain);
    fake::Reset();
  }
  EXPECT_EQ(SpeakText("<speak>a<s>b</s></speak>", "markup=none").text(), "<speak>a<s>b</s></speak>");
}

TEST_F(MarkupTest, MarkdownAndSubtitlesByTheProperty) {
  EXPECT_EQ(SpeakText("# One\n\n**Two** `x`\n\n```\ncode\n```\n", "markup=markdown").text(), "One_Two x");
  fake::Reset();
  EXPECT_EQ(SpeakText("Two\n\n```\ncode\n```\n", "markup=markdown markup-rules=code=read paragraph-gap=0").text(),
            "Twocode");
  fake::Reset();
  EXPECT_EQ(SpeakText("{\\an8}JOHN: <i>Hello</i> [MUSIC]", "markup=subtitle").text(), "Hello");
  fake::Reset();
  Speak speak("text=\"a **b**\" markup=markdown markup-rules=codes=read");
  speak.Begin(GST_STATE_PLAYING);
  const auto error = speak.Wait(GST_MESSAGE_ERROR);
  ASSERT_NE(error, nullptr);
  EXPECT_NE(ParseProblem(error.get()).text.find("the rule \"codes=read\" is unknown"), std::string::npos);
}

TEST_F(MarkupTest, ADocumentWithoutTextEndsOnce) {
  const Heard heard = SpeakText("<speak><break time='40ms'/><mark name='x'/></speak>");
  EXPECT_EQ(heard.text(), "_");
  EXPECT_EQ(heard.Silence(0), kRate * 40 / 1000);
  EXPECT_EQ(heard.All("mark").size(), 1U);
  const auto finished = heard.All("utterance-finished");
  ASSERT_EQ(finished.size(), 1U);
  EXPECT_EQ(finished[0].text, "nothing-to-say");
}

TEST_F(MarkupTest, ManyAtOnceAreTheSame) {
  const std::string text = "<speak>one<break time='40ms'/><voice name='bob'>two</voice><mark name='m'/>three</speak>";
  const Heard alone = SpeakText(text, "seed=1");
  fake::Reset();
  const Heard many = SpeakText(text, "seed=1 parallel=4");
  EXPECT_EQ(many.text(), alone.text());
  EXPECT_EQ(fake::Requests()[1].speaker, "bob");
  ASSERT_EQ(many.told.size(), alone.told.size());
  for (size_t i = 0; i < many.told.size(); ++i) {
    EXPECT_EQ(many.told[i].name, alone.told[i].name);
    EXPECT_EQ(many.told[i].running_time, alone.told[i].running_time);
  }
}

// --- speak, interrupt

TEST_F(MarkupTest, SpeakTakesMarkupOfItsOwn) {
  Speak speak;
  speak.Open();
  EXPECT_EQ(speak.Say("**a**", "p, markup=markdown"), 1U);
  EXPECT_GT(speak.Say("<v B>b</v>", "p, markup=subtitle"), 1U);
  EXPECT_EQ(speak.Say("c", "p, markup-rules=\"code=loud\""), 0U);
  const auto warning = speak.Wait(GST_MESSAGE_WARNING);
  ASSERT_NE(warning, nullptr);
  EXPECT_NE(ParseProblem(warning.get()).text.find("\"code=loud\" is unknown"), std::string::npos);
  speak.End().Expect("ab");
}

// A break of ten minutes would not end in time for the test.
TEST_F(MarkupTest, AnInterruptEndsABreak) {
  Speak speak("is-live=true idle-mode=wait");
  speak.Open();
  speak.Say("<speak>a<break time='600s'/>b</speak>");
  ASSERT_TRUE(WaitFor([&] {
    const auto buffers = speak.buffers();
    return !buffers.empty() && buffers.back().silent;
  }));
  speak.Interrupt();
  speak.Push("c").End().ExpectEnd();
  std::string text = speak.text();
  std::erase(text, '\0');  // silence
  EXPECT_EQ(text, "ac");
}

// --- the sink pad

TEST_F(MarkupTest, TheCapsSayWhatTheTextIs) {
  const std::string text = "One <b>two</b>. <break time='40ms'/>Three.";
  EXPECT_EQ(SpeakPieces({"", GST_FORMAT_BYTES, "application/ssml+xml"}, {text}).text(), "One two._Three.");
  fake::Reset();
  EXPECT_EQ(SpeakPieces({"", GST_FORMAT_BYTES, "text/x-raw, format=utf8"}, {"One <b>two</b>."}).text(),
            "One <b>two</b>.");
}

TEST_F(MarkupTest, GrowingTextIsTheSameHoweverItIsCut) {
  const std::string ssml =
      "<?xml version='1.0'?><speak><p>One <mark name='m'/>twö &amp; three. Four.</p><break time='80ms'/><voice "
      "name='bob'>Five</voice> six.</speak>";
  const std::string markdown = "# Títle\n\nOne **two** [three](http://x). Four.\n\n- five\n- `six`\n";
  const std::string subtitle = "1\n00:00:01,000 --> 00:00:02,000\n{\\an8}<i>Öne two.</i>\nJOHN: Three.\n\n";
  const std::pair<std::string, std::string> documents[] = {
      {ssml, "markup=auto"}, {markdown, "markup=markdown"}, {subtitle, "markup=subtitle"}};
  std::mt19937 rng(5);
  for (const auto& [text, markup] : documents) {
    for (const char* const segmentation : {"sentence", "stream"}) {
      const Feed feed = {markup + " segmentation=" + segmentation + " seed=3", GST_FORMAT_BYTES, nullptr};
      fake::Reset();
      const Heard whole = SpeakPieces(feed, {text});
      EXPECT_EQ(whole.text().find_first_of("<>*#{&"), whole.text().find('&')) << whole.text();
      for (int i = 0; i < 6; ++i) {
        fake::Reset();
        const Heard cut = SpeakPieces(feed, RandomPieces(&rng, text));
        ASSERT_EQ(cut.text(), whole.text());
        ASSERT_EQ(cut.warnings, whole.warnings);
        ASSERT_EQ(cut.All("mark").size(), whole.All("mark").size());
        // A word that begins before all of it has come is told as far as it is there.
        if (segmentation == std::string("stream")) continue;
        const auto words = cut.All("text-progress");
        const auto expected = whole.All("text-progress");
        ASSERT_EQ(words.size(), expected.size());
        for (size_t k = 0; k < words.size(); ++k) {
          ASSERT_EQ(words[k].offset, expected[k].offset);
          ASSERT_EQ(words[k].length, expected[k].length);
        }
      }
    }
  }
}

TEST_F(MarkupTest, PositionsLeadBackToTheDocument) {
  const std::string text = "# Títle\n\nOne **two**. See [the docs](http://x) now.\n\n- five\n";
  for (const char* const segmentation : {"sentence", "stream"}) {
    fake::Reset();
    const Heard heard =
        SpeakPieces({std::string("markup=markdown segmentation=") + segmentation, GST_FORMAT_BYTES, nullptr}, {text});
    std::map<guint64, Told> started;
    for (const Told& told : heard.All("utterance-started")) started[told.id] = told;
    std::vector<std::string> words;
    for (const Told& word : heard.All("text-progress")) {
      const Told& utterance = started[word.id];
      words.push_back(Characters(text, utterance.offset + word.offset, word.length));
    }
    EXPECT_EQ(words, (std::vector<std::string>{"Títle", "One", "two", "See", "the", "docs", "now", "five"}))
        << segmentation;
  }
}

TEST_F(MarkupTest, EachBufferIsADocument) {
  const Heard heard = SpeakPieces({"markup=auto utterance-gap=0 paragraph-gap=0", GST_FORMAT_TIME, nullptr},
                                  {"<speak>one<voice name='bob'>two", "three <b>", "<speak>four</speak>"});
  EXPECT_EQ(heard.text(), "onetwothree <b>four");
  ASSERT_EQ(heard.warnings.size(), 1U);
  EXPECT_NE(heard.warnings[0].find("the document ends within <voice>"), std::string::npos);
}

TEST_F(MarkupTest, AnInterruptedDocumentEndsOnce) {
  Speak speak;
  speak.Open();
  fake::AllowFrames(5);
  EXPECT_EQ(speak.Say("<speak><p>one</p><p>two</p><break time='80ms'/><mark name='m'/><p>three</p></speak>"), 1U);
  ASSERT_TRUE(WaitFor([&] { return speak.record().buffer_count() >= 5; }));
  speak.Interrupt();
  fake::AllowFrames(-1);
  speak.Push("four").End();
  Heard heard;
  Collect(&speak, &heard);
  const auto finished = heard.All("utterance-finished");
  ASSERT_EQ(finished.size(), 2U);
  EXPECT_EQ(finished[0].id, 1U);
  EXPECT_EQ(finished[0].text, "interrupted");
  EXPECT_EQ(finished[1].text, "complete");
  EXPECT_TRUE(heard.All("mark").empty());
}

// A document goes on after an interrupt: its rest is not taken for plain text.
TEST_F(MarkupTest, AnInterruptLeavesTheDocumentOpen) {
  Speak speak("segmentation=sentence paragraph-gap=0 utterance-timeout=18446744073709551615");
  speak.Open(GST_FORMAT_BYTES).Push("<speak><p>One. Tw").AwaitText("One.");
  speak.Interrupt();
  speak.Push("o</p><p>three</p></speak>").End().Expect("One.othree");
}

// A sentence of a document that stalls is spoken after a while, and its element stays open.
TEST_F(MarkupTest, AStalledDocumentGoesOn) {
  Speak speak("segmentation=sentence utterance-timeout=1000000");
  speak.Open(GST_FORMAT_BYTES).Push("<speak><voice name='bob'>one").AwaitText("one").Push(" two</voice></speak>");
  speak.End().Expect("onetwo");
  ASSERT_EQ(fake::Requests().size(), 2U);
  EXPECT_EQ(fake::Requests()[1].speaker, "bob");
  EXPECT_TRUE(speak.Pending(GST_MESSAGE_WARNING).empty());
}

}  // namespace
}  // namespace qtts::testing
