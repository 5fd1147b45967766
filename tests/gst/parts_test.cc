// SPDX-License-Identifier: LGPL-2.1-or-later
// The parts of the element that do not use GStreamer.
#include <glib.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <fstream>
#include <functional>
#include <future>
#include <iterator>
#include <limits>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gstqttsmessages.h"
#include "gstqttsmonitor.h"
#include "gstqttsoverrides.h"
#include "gstqttspcm.h"
#include "gstqttsposition.h"
#include "gstqttsreports.h"
#include "gstqttssettings.h"
#include "gstqttstext.h"
#include "gstqttstimeline.h"
#include "gstqttstrim.h"

namespace gstqtts {
namespace {

uint32_t FreshSeed() {
  const uint32_t seed = std::random_device{}();
  ::testing::Test::RecordProperty("seed", std::to_string(seed));
  return seed;
}

std::string Replacements(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += "\xEF\xBF\xBD";
  return text;
}

// Feeds `bytes` in pieces of random length.
std::string PushInPieces(Utf8Joiner* joiner, const std::string& bytes, std::mt19937* random, int* repaired) {
  std::string text;
  for (size_t begin = 0; begin < bytes.size();) {
    const size_t length = std::uniform_int_distribution<size_t>(1, 5)(*random);
    int here = 0;
    text += joiner->Push(std::string_view(bytes).substr(begin, length), &here);
    *repaired += here;
    begin += length;
  }
  return text;
}

TEST(Utf8Joiner, ValidTextSurvivesAnyCut) {
  const uint32_t seed = FreshSeed();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 500; ++round) {
    std::string text;
    for (int i = 0; i < 40; ++i) {
      static constexpr gunichar kLimits[] = {0x80, 0x800, 0x10000, 0x110000};
      gunichar c = std::uniform_int_distribution<gunichar>(1, kLimits[random() % 4] - 1)(random);
      if (!g_unichar_validate(c) || c == 0xFEFF) c = 'x';
      char utf8[6];
      text.append(utf8, static_cast<size_t>(g_unichar_to_utf8(c, utf8)));
    }
    Utf8Joiner joiner;
    int repaired = 0;
    EXPECT_EQ(PushInPieces(&joiner, text, &random, &repaired), text);
    EXPECT_EQ(repaired, 0);
    EXPECT_FALSE(joiner.in_mid_character());
  }
}

TEST(Utf8Joiner, AnyBytesInAnyCutGiveTheSameValidText) {
  const uint32_t seed = FreshSeed();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 2000; ++round) {
    std::string bytes;
    for (int i = 0; i < 30; ++i) {
      static constexpr unsigned char kEdges[] = {0x00, 0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC1,
                                                 0xC2, 0xDF, 0xE0, 0xED, 0xEF, 0xF0, 0xF4, 0xF5, 0xFF, 0xBB};
      bytes += static_cast<char>(random() % 4 == 0 ? random() % 256 : kEdges[random() % std::size(kEdges)]);
    }
    Utf8Joiner whole;
    Utf8Joiner pieces;
    int repaired = 0;
    int repaired_in_pieces = 0;
    const std::string text = whole.Push(bytes, &repaired);
    EXPECT_EQ(PushInPieces(&pieces, bytes, &random, &repaired_in_pieces), text);
    EXPECT_EQ(repaired_in_pieces, repaired);
    EXPECT_EQ(whole.in_mid_character(), pieces.in_mid_character());
    EXPECT_TRUE(g_utf8_validate(text.data(), static_cast<gssize>(text.size()), nullptr));
  }
}

// The examples of tables 3-8 to 3-11 of the Unicode standard, chapter 3.9.
TEST(Utf8Joiner, ReplacesMaximalSubparts) {
  const struct {
    std::string bytes;
    std::string text;
  } cases[] = {
      {"\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41", Replacements(8) + "A"},
      {"\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41", Replacements(8) + "A"},
      {"\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42", Replacements(5) + "A" + Replacements(2) + "B"},
      {"\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41", Replacements(4) + "A"},
  };
  for (const auto& c : cases) {
    Utf8Joiner joiner;
    int repaired = 0;
    EXPECT_EQ(joiner.Push(c.bytes, &repaired), c.text);
    EXPECT_EQ(Replacements(repaired).size(), c.text.size() - (c.text.find('B') == std::string::npos ? 1U : 2U));
  }
}

TEST(Utf8Joiner, DropsNulsAndALeadingByteOrderMarkOnly) {
  Utf8Joiner joiner;
  EXPECT_EQ(joiner.Push("\xEF\xBB"), "");
  EXPECT_EQ(joiner.Push("\xBF"
                        "a"),
            "a");
  EXPECT_EQ(joiner.Push(std::string_view("b\0c", 3)), "bc");
  EXPECT_EQ(joiner.Push("\xEF\xBB\xBF"), "\xEF\xBB\xBF");
}

TEST(Utf8Joiner, KnowsWhetherItIsInMidCharacter) {
  Utf8Joiner joiner;
  EXPECT_FALSE(joiner.in_mid_character());
  EXPECT_EQ(joiner.Push("a\xE2\x82"), "a");
  EXPECT_TRUE(joiner.in_mid_character());
  EXPECT_EQ(joiner.Push("\xAC"), "\xE2\x82\xAC");
  EXPECT_FALSE(joiner.in_mid_character());
}

TEST(TextQueue, IsFirstInFirstOut) {
  TextQueue queue;
  EXPECT_TRUE(queue.empty());
  queue.Push({"one", {}});
  queue.Push({"two", {}});
  EXPECT_EQ(queue.Pop().text, "one");
  EXPECT_EQ(queue.Pop().text, "two");
  EXPECT_TRUE(queue.empty());
}

TEST(TextQueue, IsBoundedInNumber) {
  TextQueue queue;
  for (size_t i = 0; i < TextQueue::kMaxUtterances; ++i) {
    EXPECT_TRUE(queue.HasRoom("x"));
    queue.Push({"x", {}});
  }
  EXPECT_FALSE(queue.HasRoom("x"));
  queue.Pop();
  EXPECT_TRUE(queue.HasRoom("x"));
}

TEST(TextQueue, IsBoundedInCharactersButTakesOneTextOfAnyLength) {
  const auto text = [](size_t characters) {
    std::string result;
    while (characters-- > 0) result += "\xC3\xBC";
    return result;
  };
  TextQueue queue;
  queue.SetMaxCharacters(1000);
  EXPECT_TRUE(queue.HasRoom(text(10000)));
  queue.Push({text(990), {}});
  EXPECT_EQ(queue.characters(), 990U);
  EXPECT_TRUE(queue.HasRoom(text(10)));
  EXPECT_FALSE(queue.HasRoom(text(11)));
  queue.Push({text(10), {}});
  EXPECT_FALSE(queue.HasRoom(text(1)));
  queue.SetMaxCharacters(500);
  EXPECT_FALSE(queue.HasRoom(text(1)));
  queue.Pop();
  queue.Pop();
  EXPECT_EQ(queue.characters(), 0U);
  queue.Push({text(2000), {}});
  EXPECT_FALSE(queue.HasRoom(text(1)));
  queue.Pop();
  EXPECT_TRUE(queue.HasRoom(text(1)));
}

// --- positions

TEST(TextPosition, AdvancesWordByWordAndNeverBeyondTheText) {
  TextPosition position;
  position.Append("One, two \xC3\xBC\xC3\xBC!");
  EXPECT_EQ(position.size(), 12U);
  std::vector<TextPosition::Word> words;
  size_t before = 0;
  for (int frame = 1; frame < 50; ++frame) {
    for (const auto& word : position.Advance(frame * 0.08)) {
      EXPECT_LT(word.offset, position.spoken());
      words.push_back(word);
    }
    EXPECT_GE(position.spoken(), before);
    EXPECT_LE(position.spoken(), position.size());
    before = position.spoken();
    EXPECT_TRUE(frame > 2 || before < 4) << "no faster than speech";
  }
  EXPECT_EQ(before, 12U);
  EXPECT_EQ(words, (std::vector<TextPosition::Word>{{0, 3}, {5, 3}, {9, 2}}));
}

TEST(TextPosition, TakesAsLongAsUsualAtItsPace) {
  for (const double pace : {0.5, 1.0, 2.0}) {
    TextPosition position(pace);
    position.Append("Some words that take a while to say.");
    double seconds = 0;
    while (position.spoken() < position.size()) position.Advance(seconds += 0.01);
    EXPECT_NEAR(seconds, position.usual_seconds() * pace, 0.5 * pace);
  }
}

TEST(TextPosition, GrowsWithTheTextAndTellsEachWordOnce) {
  TextPosition position;
  std::vector<TextPosition::Word> words;
  const auto advance = [&](double seconds) {
    for (const auto& word : position.Advance(seconds)) words.push_back(word);
  };
  position.Append("He");
  advance(10);
  EXPECT_EQ(position.spoken(), 2U);
  position.Append("llo wor");
  position.Append("ld");
  advance(10.5);
  position.Append(" again");
  advance(11);
  advance(12);
  EXPECT_EQ(position.spoken(), position.size());
  EXPECT_EQ(words, (std::vector<TextPosition::Word>{{0, 2}, {6, 5}, {12, 5}}));
}

TEST(TextPosition, FindsWordsInScriptsWithoutSpaces) {
  TextPosition position;
  position.Append("\xE4\xBB\x8A\xE5\xA4\xA9\xE5\xA4\xA9\xE6\xB0\x94\xE5\xBE\x88\xE5\xA5\xBD\xE3\x80\x82");
  const auto words = position.Advance(100);
  EXPECT_GE(words.size(), 3U) << "today, weather, fine";
  EXPECT_EQ(words[0], (TextPosition::Word{0, 2}));
  EXPECT_EQ(position.spoken(), 7U);
}

TEST(Pace, LearnsFromWhatWasSpoken) {
  Pace pace;
  EXPECT_EQ(pace.value(), 1.0);
  for (int i = 0; i < 20; ++i) pace.Learn(10, 15);
  EXPECT_NEAR(pace.value(), 1.5, 0.01);
  pace.Learn(0.1, 5);
  pace.Learn(5, 0.1);
  EXPECT_NEAR(pace.value(), 1.5, 0.01) << "too short to tell";
  for (int i = 0; i < 20; ++i) pace.Learn(10, 1e6);
  EXPECT_LE(pace.value(), 3.0);
}

__extension__ using Wide = unsigned __int128;

TEST(Timeline, SampleTimeIsExact) {
  const uint32_t seed = FreshSeed();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 100000; ++round) {
    const int rate = static_cast<int>(random() % 192000) + 1;
    // Every sample whose time fits into 64 bits.
    const auto limit = static_cast<uint64_t>(static_cast<Wide>(std::numeric_limits<uint64_t>::max()) *
                                             static_cast<Wide>(rate) / 1000000000U);
    const uint64_t sample = random() % limit;
    const auto expected = static_cast<uint64_t>(static_cast<Wide>(sample) * 1000000000U / static_cast<Wide>(rate));
    ASSERT_EQ(SampleTime(sample, rate), expected) << sample << " at " << rate;
    const uint64_t time = random();
    ASSERT_EQ(SamplesWithin(time, rate),
              static_cast<uint64_t>(static_cast<Wide>(time) * static_cast<Wide>(rate) / 1000000000U));
  }
}

TEST(Timeline, BuffersFollowOneAnotherWithoutGapOrDrift) {
  const uint32_t seed = FreshSeed();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  Timeline timeline(24000);
  uint64_t samples = 0;
  uint64_t end = 0;
  for (int i = 0; i < 10000; ++i) {
    const uint64_t count = i % 3 == 0 ? 1920 : random() % 5000;
    const Stamp stamp = timeline.Speech(count);
    ASSERT_EQ(stamp.offset, samples);
    ASSERT_EQ(stamp.pts, end);
    samples += count;
    ASSERT_EQ(stamp.offset_end, samples);
    end = static_cast<uint64_t>(static_cast<Wide>(samples) * 1000000000U / 24000U);
    ASSERT_EQ(stamp.pts + stamp.duration, end);
    ASSERT_EQ(stamp.discont, i == 0);
  }
}

TEST(Timeline, RestartGoesToZeroAndBreakGoesOn) {
  Timeline timeline(24000);
  timeline.Speech(1920);
  timeline.Break();
  Stamp stamp = timeline.Speech(1920);
  EXPECT_EQ(stamp.pts, 80000000U);
  EXPECT_TRUE(stamp.discont);
  EXPECT_FALSE(timeline.Speech(1).discont);
  timeline.Restart();
  stamp = timeline.Speech(1920);
  EXPECT_EQ(stamp.pts, 0U);
  EXPECT_EQ(stamp.offset, 0U);
  EXPECT_TRUE(stamp.discont);
}

TEST(Pcm, RoundsAndSaturates) {
  const std::vector<float> in = {
      0.0F,         1.0F,          -1.0F,         2.0F,         -2.0F,        1.4F / 32768,
      1.6F / 32768, -1.6F / 32768, 0.5F / 32768,  1.5F / 32768, 2.5F / 32768, 32767.4F / 32768,
      1e30F,        -1e30F,        std::nanf(""), INFINITY,     -INFINITY};
  const std::vector<int16_t> expected = {0, 32767, -32768, 32767, -32768, 1, 2,     -2,    0,
                                         2, 2,     32767,  32767, -32768, 0, 32767, -32768};
  std::vector<int16_t> out(in.size());
  ConvertToS16(in.data(), in.size(), out.data());
  EXPECT_EQ(out, expected);
}

TEST(Pcm, IsWithinHalfAStepOfTheFloat) {
  const uint32_t seed = FreshSeed();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> distribution(-1.0F, 0.9999F);
  std::vector<float> in(10000);
  for (float& x : in) x = distribution(random);
  std::vector<int16_t> out(in.size());
  ConvertToS16(in.data(), in.size(), out.data());
  for (size_t i = 0; i < in.size(); ++i) EXPECT_LE(std::abs(static_cast<double>(in[i]) * 32768 - out[i]), 0.5) << in[i];
}

qtts::ModelInfo Model() {
  qtts::ModelInfo model;
  model.defaults.talker = {true, 0.8F, 40, 0.9F};
  model.defaults.predictor = {false, 0.7F, 30, 0.85F};
  model.defaults.repetition_penalty = 1.2F;
  model.defaults.max_new_tokens = 1000;
  return model;
}

TEST(MakeRequest, LeavesAloneWhatIsNotSet) {
  const qtts::Request request = MakeRequest(Settings(), Model(), "text", 42);
  EXPECT_EQ(request.text, "text");
  EXPECT_FALSE(request.more_text);
  EXPECT_EQ(request.seed, 42U);
  EXPECT_EQ(request.speaker, "");
  EXPECT_EQ(request.settings.talker.do_sample, true);
  EXPECT_EQ(request.settings.talker.temperature, 0.8F);
  EXPECT_EQ(request.settings.talker.top_k, 40);
  EXPECT_EQ(request.settings.talker.top_p, 0.9F);
  EXPECT_EQ(request.settings.predictor.do_sample, false);
  EXPECT_EQ(request.settings.predictor.temperature, 0.7F);
  EXPECT_EQ(request.settings.predictor.top_k, 30);
  EXPECT_EQ(request.settings.predictor.top_p, 0.85F);
  EXPECT_EQ(request.settings.repetition_penalty, 1.2F);
  EXPECT_EQ(request.settings.max_new_tokens, 1000);
}

// --- lists of doc pages equal those of the code

std::string ReadPage() {
  const char* folder = g_getenv("QTTS_DOCUMENTS");
  std::ifstream file(std::string(folder != nullptr ? folder : "") + "/qttssrc.md");
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  EXPECT_FALSE(page.empty()) << "QTTS_DOCUMENTS has to name the folder doc";
  return page;
}

// Words in backticks in `page`, between two strings.
std::multiset<std::string> NamesBetween(const std::string& page, const std::string& begin, const std::string& end) {
  std::multiset<std::string> names;
  const size_t from = page.find(begin);
  const size_t to = from == std::string::npos ? from : page.find(end, from + begin.size());
  EXPECT_NE(to, std::string::npos) << begin << " … " << end;
  if (to == std::string::npos) return names;
  for (size_t at = page.find('`', from + begin.size()); at < to;) {
    const size_t close = page.find('`', at + 1);
    names.insert(page.substr(at + 1, close - at - 1));
    at = page.find('`', close + 1);
  }
  return names;
}

// Check: 48
TEST(Page, ListsEveryFieldOfParams) {
  std::multiset<std::string> expected;
  for (const std::string_view name : SettingNames()) expected.emplace(name);
  EXPECT_EQ(NamesBetween(ReadPage(), "Fields of `params` are named like the properties", "and have"), expected);
}

// Check: 48
TEST(Page, ListsEveryReasonOfAnEnd) {
  std::multiset<std::string> expected;
  for (int i = 1; *qtts::EndReasonName(static_cast<qtts::EndReason>(i)) != '\0'; ++i) {
    expected.insert(qtts::EndReasonName(static_cast<qtts::EndReason>(i)));
  }
  EXPECT_GE(expected.size(), 8U);
  const std::string page = ReadPage();
  EXPECT_EQ(NamesBetween(page, "`reason` (", ")"), expected);
  for (const std::string& reason : expected) {
    EXPECT_NE(page.find("\n| `" + reason + "` | "), std::string::npos) << reason;
  }
}

double& Number(Settings* settings, std::string_view name) {
  for (size_t i = 0; i < qtts::kSamplingNumberCount; ++i) {
    if (qtts::kSamplingNumbers[i].name == name) return settings->sampling[i];
  }
  ADD_FAILURE() << "there is no " << name;
  return settings->sampling[0];
}

TEST(MakeRequest, PassesEverySettingOn) {
  Settings settings;
  settings.speaker = "ann";
  settings.language = "german";
  settings.instruct = "slowly";
  settings.layout = qtts::PromptLayout::kStreaming;
  settings.seed = 0;
  Number(&settings, "temperature") = 0;
  Number(&settings, "top-k") = 0;
  Number(&settings, "top-p") = 0.5;
  Number(&settings, "repetition-penalty") = 1.5;
  Number(&settings, "subtalker-temperature") = 0.25;
  Number(&settings, "subtalker-top-k") = 7;
  Number(&settings, "subtalker-top-p") = 0.75;
  const qtts::Request request = MakeRequest(settings, Model(), "text", 42);
  EXPECT_EQ(request.speaker, "ann");
  EXPECT_EQ(request.language, "german");
  EXPECT_EQ(request.instruct, "slowly");
  EXPECT_EQ(request.layout, qtts::PromptLayout::kStreaming);
  EXPECT_EQ(request.seed, 0U);
  EXPECT_FALSE(request.settings.talker.do_sample) << "temperature 0 is greedy";
  EXPECT_EQ(request.settings.talker.top_k, 0);
  EXPECT_EQ(request.settings.talker.top_p, 0.5F);
  EXPECT_EQ(request.settings.repetition_penalty, 1.5F);
  EXPECT_TRUE(request.settings.predictor.do_sample) << "a temperature samples though the model does not";
  EXPECT_EQ(request.settings.predictor.temperature, 0.25F);
  EXPECT_EQ(request.settings.predictor.top_k, 7);
  EXPECT_EQ(request.settings.predictor.top_p, 0.75F);
}

TEST(MakeRequest, PassesEverySamplingNumberOn) {
  for (const qtts::SamplingNumber& number : qtts::kSamplingNumbers) {
    Settings settings;
    Number(&settings, number.name) = number.maximum;
    const qtts::Request request = MakeRequest(settings, Model(), "text", 42);
    for (const qtts::SamplingNumber& other : qtts::kSamplingNumbers) {
      const double expected = &other == &number ? number.maximum : other.Get(Model().defaults);
      EXPECT_EQ(other.Get(request.settings), expected) << number.name << " " << other.name;
    }
  }
}

TEST(MakeRequest, PassesValuesOutOfRangeOnToBeRefused) {
  Settings settings;
  Number(&settings, "top-p") = 0;
  Number(&settings, "temperature") = -0.5;
  const qtts::Request request = MakeRequest(settings, Model(), "text", 42);
  EXPECT_EQ(request.settings.talker.top_p, 0.0F);
  EXPECT_EQ(request.settings.talker.temperature, -0.5F);
}

TEST(MakeRequest, PartsAreTheModelsTheUsersOrNone) {
  qtts::ModelInfo model = Model();
  model.part_characters = 300;
  Settings settings;
  EXPECT_EQ(MakeRequest(settings, model, "text", 0).parts.max, 300U);
  settings.part_length = 100;
  EXPECT_EQ(MakeRequest(settings, model, "text", 0).parts.max, 100U);
  settings.part_length = 0;
  EXPECT_EQ(MakeRequest(settings, model, "text", 0).parts.max, 0U);
}

TEST(MakeRequest, MaxDurationIsOfAllParts) {
  Settings settings;
  EXPECT_EQ(MakeRequest(settings, Model(), "text", 0).max_frames, 0);
  settings.max_duration = 160000000;
  EXPECT_EQ(MakeRequest(settings, Model(), "text", 0).max_frames, 2);
}

TEST(MakeRequest, MaxDurationIsInWholeFrames) {
  const auto frames = [](uint64_t duration) {
    Settings settings;
    settings.max_duration = duration;
    return MakeRequest(settings, Model(), "text", 0).settings.max_new_tokens - 1;
  };
  EXPECT_EQ(frames(0), 999) << "the model's own";
  EXPECT_EQ(frames(1), 1);
  EXPECT_EQ(frames(80000000), 1);
  EXPECT_EQ(frames(159999999), 1);
  EXPECT_EQ(frames(160000000), 2);
  EXPECT_EQ(frames(1000000000), 12);
  EXPECT_EQ(frames(std::numeric_limits<uint64_t>::max()), 230584300921) << "no overflow";
}

TEST(Timeline, LeapsAreDiscontinuities) {
  Timeline timeline(24000);
  timeline.Speech(1920);
  timeline.MoveTo(70'000'000);  // in the past
  EXPECT_FALSE(timeline.Speech(1920).discont);
  timeline.MoveTo(1'000'000'001);
  const Stamp stamp = timeline.Speech(1920);
  EXPECT_EQ(stamp.pts, 1'000'000'001U);
  EXPECT_EQ(stamp.offset, 3840U);
  EXPECT_EQ(stamp.duration, 80'000'000U);
  EXPECT_TRUE(stamp.discont);
  EXPECT_TRUE(stamp.resync);
  EXPECT_EQ(timeline.time(), 1'080'000'001U);
}

TEST(Timeline, MissingSilence) {
  Timeline timeline(24000);
  EXPECT_EQ(timeline.MissingSilence(40'000'000, 20'000'000), 960U);
  timeline.Silence(480);
  EXPECT_EQ(timeline.MissingSilence(40'000'000, 20'000'000), 480U);
  timeline.Speech(1920);
  EXPECT_EQ(timeline.MissingSilence(40'000'000, 20'000'000), 480U);
  EXPECT_TRUE(timeline.Silence(4800).silence);
  EXPECT_EQ(timeline.MissingSilence(40'000'000, 20'000'000), 0U);
  timeline.Break();
  EXPECT_EQ(timeline.MissingSilence(40'000'000, 20'000'000), 960U);
}

// --- trimming

// Check: 58
TEST(LeadingSilenceTrimmer, CutsUpToTheFirstSound) {
  LeadingSilenceTrimmer trimmer(24000);
  trimmer.Restart(true);
  std::vector<float> silence(1920, 0.001F);
  EXPECT_EQ(trimmer.Trim(&silence), 1920U);
  EXPECT_TRUE(silence.empty());
  std::vector<float> onset(1920, 0.0F);
  onset[1000] = -0.5F;
  EXPECT_EQ(trimmer.Trim(&onset), 480U);  // 10 ms stay, and what is no whole packet of 20 ms
  ASSERT_EQ(onset.size(), 1440U);
  EXPECT_EQ(onset[520], -0.5F);
  std::vector<float> pause(1920, 0.0F);
  EXPECT_EQ(trimmer.Trim(&pause), 0U);
  EXPECT_EQ(pause.size(), 1920U);
}

TEST(LeadingSilenceTrimmer, GivesUpAfterASecond) {
  LeadingSilenceTrimmer trimmer(24000);
  trimmer.Restart(true);
  size_t cut = 0;
  size_t left = 0;
  for (int i = 0; i < 20; ++i) {
    std::vector<float> silence(1920, 0.0F);
    cut += trimmer.Trim(&silence);
    left += silence.size();
  }
  EXPECT_EQ(cut, 24000U);
  EXPECT_EQ(left, 20U * 1920 - 24000);
}

// An utterance that was silent to its end must not leave its successor trimmed.
// Check: 58
TEST(LeadingSilenceTrimmer, LeavesUtterancesAloneThatAreNotToBeTrimmed) {
  LeadingSilenceTrimmer trimmer(24000);
  trimmer.Restart(true);
  std::vector<float> silence(1920, 0.0F);
  EXPECT_EQ(trimmer.Trim(&silence), 1920U);
  trimmer.Restart(false);
  silence.assign(1920, 0.0F);
  EXPECT_EQ(trimmer.Trim(&silence), 0U);
}

TEST(LeadingSilenceTrimmer, DoesNothingBeforeAnUtteranceBegins) {
  LeadingSilenceTrimmer trimmer(24000);
  std::vector<float> silence(1920, 0.0F);
  EXPECT_EQ(trimmer.Trim(&silence), 0U);
}

// --- reports

Report ReportOf(uint64_t id) {
  Report report;
  report.id = id;
  return report;
}

class ReportsTest : public ::testing::Test {
 protected:
  void Add(uint64_t id) {
    const MonitorLock lock(monitor_);
    reports_->Add(ReportOf(id));
  }
  bool AllDelivered() {
    const MonitorLock lock(monitor_);
    return reports_->AllDelivered();
  }
  void Make(const std::function<void(uint64_t)>& reporter) {
    reports_ = std::make_shared<Reports>([reporter](const Report& report) { reporter(report.id); },
                                         [this] { return reports_; }, [this] { ++told_; });
  }

  Monitor monitor_;
  std::atomic<int> told_ = 0;
  std::shared_ptr<Reports> reports_;
};

TEST_F(ReportsTest, AreToldInTheOrderInWhichTheyCame) {
  std::vector<uint64_t> told;
  Make([&](uint64_t id) { told.push_back(id); });
  EXPECT_TRUE(AllDelivered());
  for (uint64_t id = 1; id <= 3; ++id) Add(id);
  EXPECT_FALSE(AllDelivered());
  reports_->Deliver();
  EXPECT_EQ(told, (std::vector<uint64_t>{1, 2, 3}));
  EXPECT_TRUE(AllDelivered());
  EXPECT_EQ(told_, 1);
}

// Reports that the handler of a report causes are delivered by the same thread, after the handler.
TEST_F(ReportsTest, AHandlerMayMakeMoreHappen) {
  std::vector<uint64_t> told;
  bool inside = false;
  Make([&](uint64_t id) {
    EXPECT_FALSE(std::exchange(inside, true));
    told.push_back(id);
    if (id < 3) {
      Add(id + 1);
      reports_->Deliver();
      EXPECT_FALSE(reports_->DeliverSoFar());
    }
    inside = false;
  });
  Add(1);
  reports_->Deliver();
  EXPECT_EQ(told, (std::vector<uint64_t>{1, 2, 3}));
}

// If another thread is in a handler, a report is delivered by GLib's thread pool, and its thread does not wait.
TEST_F(ReportsTest, NobodyWaitsForAnothersHandler) {
  std::promise<void> first_begins;
  std::promise<void> second_is_left;
  std::promise<void> second_is_told;
  Make([&](uint64_t id) {
    if (id == 2) return second_is_told.set_value();
    first_begins.set_value();
    second_is_left.get_future().wait();
  });
  Add(1);
  std::thread slow([&] { reports_->Deliver(); });
  first_begins.get_future().wait();
  Add(2);
  reports_->Deliver();
  second_is_left.set_value();
  second_is_told.get_future().wait();
  slow.join();
  while (!AllDelivered()) std::this_thread::yield();
  while (told_ < 2) std::this_thread::yield();
}

}  // namespace
}  // namespace gstqtts
