// SPDX-License-Identifier: LGPL-2.1-or-later
// The whole aligner on recorded utterances of the bundled voice (tests/data/alignment/record.py), and on random ones.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <deque>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "alignment/speech_aligner.h"

namespace qtts {
namespace {

constexpr int kVoiceRate = 24000;
constexpr size_t kFrame = 1920;

double Seconds(std::chrono::nanoseconds time) { return std::chrono::duration<double>(time).count(); }

// An utterance: its text, and what each frame has.
struct Recording {
  std::string text;
  std::vector<size_t> token_ends;
  std::vector<TextRange> words;
  std::vector<double> truth;
  int64_t prompt_rows = 0;
  size_t text_begin = 0;
  std::vector<int32_t> begins;
  std::vector<TextScores> scores;
  std::vector<float> pcm;
};

Recording Load(const std::string& name) {
  std::ifstream file(std::string(QTTS_ALIGNMENT_DATA) + "/" + name + ".json");
  const nlohmann::json json = nlohmann::json::parse(file);
  Recording recording;
  recording.text = json["text"];
  recording.token_ends = json["token_ends"].get<std::vector<size_t>>();
  recording.truth = json["truth"].get<std::vector<double>>();
  recording.prompt_rows = json["prompt"]["rows"];
  recording.text_begin = json["prompt"]["text_begin"];
  for (const auto& word : json["words"]) recording.words.push_back({word["bytes"][0], word["bytes"][1]});
  for (const auto& frame : json["frames"]) {
    recording.begins.push_back(frame["begin"]);
    recording.scores.push_back({frame["scores"].get<std::vector<float>>(), frame["log_sum"], frame["mass"]});
  }
  for (const float level : json["levels"]) {
    recording.pcm.insert(recording.pcm.end(), kVoiceRate / 100, std::pow(10.0F, level / 20));
  }
  recording.pcm.resize(recording.scores.size() * kFrame);
  return recording;
}

// The aligner's result for an utterance.
struct Outcome {
  std::vector<SpokenWord> words;
  SpeechReport report;
  bool operator==(const Outcome&) const = default;
};

std::span<const float> SoundOf(const Recording& recording, size_t frame) {
  return std::span(recording.pcm).subspan(frame * kFrame, kFrame);
}

// Adds the words and tokens that end within the first `bytes` of the text, from the given counts on.
void AddText(const Recording& recording, size_t bytes, size_t* tokens, size_t* words, SpeechAligner* aligner) {
  const size_t first_token = *tokens;
  const size_t first_word = *words;
  while (*tokens < recording.token_ends.size() && recording.token_ends[*tokens] <= bytes) ++*tokens;
  while (*words < recording.words.size() && recording.words[*words].end <= bytes) ++*words;
  aligner->AddText(std::span(recording.token_ends).subspan(first_token, *tokens - first_token),
                   std::span(recording.words).subspan(first_word, *words - first_word));
}

Outcome Align(const Recording& recording, const std::vector<size_t>& cuts = {}, int ahead = 0) {
  SpeechAligner aligner({.sample_rate = kVoiceRate, .samples_per_frame = kFrame, .offset_ms = 80});
  aligner.SetPrompt(recording.prompt_rows, recording.text_begin);
  size_t tokens = 0;
  size_t words = 0;
  size_t cut = 0;
  const auto grow = [&](size_t frame) {
    // Text of the row that chooses the frame is there at least: the talker waits for it.
    while (cut < cuts.size() && tokens < frame + 1) AddText(recording, cuts[cut++], &tokens, &words, &aligner);
    if (cut < cuts.size()) return;
    AddText(recording, recording.text.size(), &tokens, &words, &aligner);
    aligner.FinishText();
  };
  Outcome outcome;
  std::deque<TextWindow> windows;
  size_t asked = 0;
  for (size_t f = 0; f < recording.scores.size(); ++f) {
    for (; asked < std::min(recording.scores.size(), f + 1 + static_cast<size_t>(ahead)); ++asked) {
      grow(asked);
      windows.push_back(aligner.WindowOf(static_cast<int64_t>(asked)));
    }
    const TextWindow window = windows.front();
    windows.pop_front();
    EXPECT_EQ(window.begin - window.text_begin, recording.begins[f]) << "frame " << f;
    for (const SpokenWord& word : aligner.AddFrame(window, recording.scores[f], SoundOf(recording, f))) {
      outcome.words.push_back(word);
    }
  }
  aligner.FinishPart();
  for (const SpokenWord& word : aligner.Finish()) outcome.words.push_back(word);
  outcome.report = aligner.report();
  return outcome;
}

class RecordedTest : public ::testing::TestWithParam<const char*> {};

TEST_P(RecordedTest, WordsBeginWhereTheirPhonesDo) {
  const Recording recording = Load(GetParam());
  const Outcome outcome = Align(recording);
  ASSERT_EQ(outcome.words.size(), recording.truth.size());
  std::vector<double> errors;
  for (size_t i = 0; i < outcome.words.size(); ++i) {
    EXPECT_EQ(outcome.words[i].text, recording.words[i]);
    errors.push_back(std::fabs(Seconds(outcome.words[i].start) - recording.truth[i]));
    EXPECT_LT(errors.back(), 0.1) << "word " << i;
    const double end = Seconds(outcome.words[i].start + outcome.words[i].duration);
    EXPECT_GT(outcome.words[i].duration.count(), 0);
    EXPECT_LE(end, i + 1 < outcome.words.size() ? Seconds(outcome.words[i + 1].start)
                                                : static_cast<double>(recording.pcm.size()) / kVoiceRate);
  }
  std::sort(errors.begin(), errors.end());
  EXPECT_LT(errors[errors.size() / 2], 0.06);
  EXPECT_TRUE(outcome.report.measured);
  EXPECT_TRUE(outcome.report.complete());
  EXPECT_EQ(outcome.report.coverage(), 1.0);
}

// The text may come in any pieces, and the device may run ahead of the host.
TEST_P(RecordedTest, CutsAndHostChangeNothing) {
  const Recording recording = Load(GetParam());
  const Outcome expected = Align(recording);
  const bool growing = std::string(GetParam()) == "streaming";
  std::mt19937 random(1);
  for (int round = 0; round < 50; ++round) {
    std::vector<size_t> cuts;
    for (size_t at = random() % 5; growing && at < recording.text.size(); at += 1 + random() % 9) cuts.push_back(at);
    EXPECT_EQ(Align(recording, cuts, static_cast<int>(random() % TextPath::kWindowLag)), expected) << round;
  }
}

TEST_P(RecordedTest, ATextThatIsCutOff) {
  Recording recording = Load(GetParam());
  recording.scores.resize(recording.scores.size() * 6 / 10);
  recording.pcm.resize(recording.scores.size() * kFrame);
  const Outcome outcome = Align(recording);
  EXPECT_TRUE(outcome.report.stopped_early);
  EXPECT_LT(outcome.report.coverage(), 0.8);
  EXPECT_FALSE(outcome.report.skipped.empty());
  EXPECT_LT(outcome.words.size(), recording.words.size());
}

TEST_P(RecordedTest, AMissedEnd) {
  Recording recording = Load(GetParam());
  const size_t frames = recording.scores.size();
  SpeechAligner aligner({.sample_rate = kVoiceRate, .samples_per_frame = kFrame, .offset_ms = 80});
  aligner.SetPrompt(recording.prompt_rows, recording.text_begin);
  size_t tokens = 0;
  size_t words = 0;
  AddText(recording, recording.text.size(), &tokens, &words, &aligner);
  aligner.FinishText();
  size_t f = 0;
  // The last frame again and again.
  for (; f < frames + 40 && !aligner.runaway(); ++f) {
    const size_t at = std::min(f, frames - 1);
    const TextWindow window = aligner.WindowOf(static_cast<int64_t>(f));
    TextScores scores = recording.scores[at];
    const int32_t skipped = window.begin - window.text_begin - recording.begins[at];
    scores.scores.erase(scores.scores.begin(), scores.scores.begin() + skipped);
    aligner.AddFrame(window, scores, SoundOf(recording, at));
  }
  EXPECT_GE(f, frames);
  EXPECT_LE(f, frames + 19) << "1.5 s behind the text";
  EXPECT_TRUE(aligner.report().end_missed);
}

INSTANTIATE_TEST_SUITE_P(Layouts, RecordedTest, ::testing::Values("streaming", "non-streaming"),
                         [](const auto& layout) {
                           return layout.param == std::string("streaming") ? "Streaming" : "Whole";
                         });

TEST(SpeechAlignerTest, PartsFollowEachOther) {
  const Recording recording = Load("non-streaming");
  const size_t frames = recording.scores.size();
  const size_t offset = recording.text.size() + 3;
  SpeechAligner aligner({.sample_rate = kVoiceRate, .samples_per_frame = kFrame, .offset_ms = 80});
  std::vector<SpokenWord> words;
  for (int part = 0; part < 2; ++part) {
    aligner.SetPrompt(recording.prompt_rows, recording.text_begin);
    std::vector<size_t> ends = recording.token_ends;
    std::vector<TextRange> ranges = recording.words;
    for (size_t& end : ends) end += part * offset;
    for (TextRange& range : ranges) range = {range.begin + part * offset, range.end + part * offset};
    aligner.AddText(ends, ranges);
    aligner.FinishText();
    for (size_t f = 0; f < frames; ++f) {
      const TextWindow window = aligner.WindowOf(static_cast<int64_t>(f));
      for (const SpokenWord& word : aligner.AddFrame(window, recording.scores[f], SoundOf(recording, f))) {
        words.push_back(word);
      }
    }
    aligner.FinishPart();
  }
  for (const SpokenWord& word : aligner.Finish()) words.push_back(word);
  const Outcome once = Align(recording);
  ASSERT_EQ(words.size(), 2 * once.words.size());
  const double length = static_cast<double>(frames * kFrame) / kVoiceRate;
  for (size_t i = 0; i < once.words.size(); ++i) {
    const SpokenWord& second = words[once.words.size() + i];
    EXPECT_EQ(words[i].start, once.words[i].start);
    EXPECT_NEAR(Seconds(second.start), length + Seconds(once.words[i].start), 0.02);
    EXPECT_EQ(second.text.begin, once.words[i].text.begin + offset);
  }
  EXPECT_TRUE(aligner.report().complete());
  EXPECT_EQ(aligner.report().tokens, 2 * recording.token_ends.size());
  EXPECT_EQ(aligner.report().coverage(), 1.0);
}

TEST(SpeechAlignerTest, ABackendWithoutScoresMeasuresNothing) {
  SpeechAligner aligner({});
  aligner.SetPrompt(10, 9);
  const std::vector<size_t> ends = {5};
  const std::vector<TextRange> words = {{0, 5}};
  aligner.AddText(ends, words);
  aligner.FinishText();
  const TextWindow window = aligner.WindowOf(0);
  EXPECT_TRUE(window.wanted());
  EXPECT_TRUE(aligner.AddFrame(window, {}, std::vector<float>(kFrame)).empty());
  EXPECT_FALSE(aligner.report().measured);
  EXPECT_FALSE(aligner.WindowOf(1).wanted()) << "nothing is asked for any more";
  aligner.FinishPart();
  EXPECT_TRUE(aligner.Finish().empty());
}

// Whatever scores, sounds and texts: each word at most once, in order, within the sound, and the report adds up.
TEST(SpeechAlignerTest, AnyUtterance) {
  std::mt19937 random(11);
  for (int round = 0; round < 200; ++round) {
    SpeechAligner aligner(
        {.sample_rate = kVoiceRate, .samples_per_frame = kFrame, .offset_ms = static_cast<int>(random() % 400) - 200});
    std::vector<SpokenWord> spoken;
    size_t bytes = 0;
    const size_t parts = 1 + random() % 3;
    for (size_t part = 0; part < parts; ++part) {
      if (part > 0) aligner.BeginPart();
      aligner.SetPrompt(12 + random() % 40, 5 + random() % 10);
      int64_t frames = 0;
      for (size_t f = random() % 80; f > 0; --f) {
        if (random() % 3 == 0) {
          std::vector<size_t> ends;
          std::vector<TextRange> words;
          for (size_t n = random() % 4; n > 0; --n) {
            const size_t begin = bytes;
            bytes += 1 + random() % 6;
            ends.push_back(bytes);
            if (random() % 3 != 0) words.push_back({begin, bytes});
          }
          aligner.AddText(ends, words);
        }
        if (random() % 40 == 0) aligner.FinishText();
        const TextWindow asked = aligner.WindowOf(frames++);
        TextScores scores;
        for (int i = 0; asked.wanted() && i < std::min(asked.text_end - asked.begin, kTextScores); ++i) {
          scores.scores.push_back(static_cast<float>(random() % 100) / 10);
        }
        scores.log_sum = 12;
        scores.mass = static_cast<float>(random() % 100) / 80;
        const std::vector<float> pcm(kFrame, random() % 2 == 0 ? 0.0F : 0.1F);
        for (const SpokenWord& word : aligner.AddFrame(asked, scores, pcm)) spoken.push_back(word);
      }
      aligner.FinishText();
      aligner.FinishPart();
    }
    for (const SpokenWord& word : aligner.Finish()) spoken.push_back(word);
    const SpeechReport& report = aligner.report();
    EXPECT_LE(report.spoken_tokens, report.tokens);
    for (size_t i = 0; i < spoken.size(); ++i) {
      EXPECT_GE(spoken[i].start.count(), 0);
      EXPECT_GE(spoken[i].duration.count(), 0);
      if (i == 0) continue;
      EXPECT_GT(spoken[i].start, spoken[i - 1].start);
      EXPECT_GE(spoken[i].text.begin, spoken[i - 1].text.end);
    }
  }
}

}  // namespace
}  // namespace qtts
