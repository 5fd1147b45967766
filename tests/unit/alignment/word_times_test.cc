// SPDX-License-Identifier: LGPL-2.1-or-later
#include "alignment/word_times.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "constant_levels.h"

namespace qtts {
namespace {

using testing::kRate;
using testing::Sound;
constexpr double kForever = std::numeric_limits<double>::infinity();

double Start(const SpokenWord& word) { return std::chrono::duration<double>(word.start).count(); }
double End(const SpokenWord& word) { return std::chrono::duration<double>(word.start + word.duration).count(); }

// The words of a whole utterance: where the head moved to each.
std::vector<SpokenWord> Times(const std::vector<float>& pcm, const std::vector<double>& moves) {
  Pauses pauses(kRate);
  pauses.Add(pcm);
  pauses.Finish();
  WordTimes times;
  for (size_t i = 0; i < moves.size(); ++i) times.Add({i, i + 1}, moves[i], i == 0);
  return times.Take(pauses, kForever);
}

TEST(WordTimesTest, WordsInSound) {
  const auto words = Times(Sound({{10, -90}, {100, -20}}), {0.2, 0.5, 0.8});
  ASSERT_EQ(words.size(), 3U);
  EXPECT_DOUBLE_EQ(Start(words[0]), 0.10) << "the first word begins with the sound";
  EXPECT_DOUBLE_EQ(End(words[0]), 0.5);
  EXPECT_DOUBLE_EQ(Start(words[1]), 0.5);
  EXPECT_DOUBLE_EQ(End(words[2]), 1.1) << "the last word ends with the sound";
}

TEST(WordTimesTest, AWordNearAPauseBeginsBehindIt) {
  // Silence from 0.5 to 0.8.
  const std::vector<float> pcm = Sound({{50, -20}, {30, -80}, {60, -20}});
  for (const double moved : {0.35, 0.45, 0.6, 0.79}) {
    const auto words = Times(pcm, {0, moved});
    EXPECT_DOUBLE_EQ(Start(words[1]), 0.8) << moved;
    EXPECT_DOUBLE_EQ(End(words[0]), 0.5) << "a word ends where silence begins";
  }
  EXPECT_DOUBLE_EQ(Start(Times(pcm, {0, 0.32})[1]), 0.32) << "too far before the pause";
  EXPECT_DOUBLE_EQ(Start(Times(pcm, {0, 0.81})[1]), 0.81);
}

TEST(WordTimesTest, ALongPauseMovesNothing) {
  const auto words = Times(Sound({{50, -20}, {60, -80}, {50, -20}}), {0, 0.45});
  EXPECT_DOUBLE_EQ(Start(words[1]), 0.45) << "the pause's end is 650 ms away";
}

TEST(WordTimesTest, NeverBack) {
  const auto words = Times(Sound({{50, -20}, {20, -80}, {50, -20}}), {0, 0.4, 0.5, 0.55, 0.71});
  ASSERT_EQ(words.size(), 5U);
  for (size_t i = 1; i < words.size(); ++i)
    EXPECT_GE(Start(words[i]), Start(words[i - 1]) + WordTimes::kSpacing - 1e-9);
}

TEST(WordTimesTest, AFirstSoundLongBeforeTheWordIsNotTheWord) {
  const auto words = Times(Sound({{20, -20}, {100, -80}, {50, -20}}), {1.1});
  EXPECT_DOUBLE_EQ(Start(words[0]), 1.2);
}

// Words come as soon as they are decided, and are the same then as at the end.
TEST(WordTimesTest, DoNotDependOnWhenTheSoundComes) {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::pair<int, float>> levels;
    for (int i = 0; i < 8; ++i) levels.emplace_back(1 + random() % 60, random() % 2 == 0 ? -20.0F : -80.0F);
    const std::vector<float> pcm = Sound(levels);
    const double length = static_cast<double>(pcm.size()) / kRate;
    std::vector<double> moves;
    for (double at = 0.05; at < length; at += 0.02 + 0.3 * (random() % 100) / 100.0) moves.push_back(at);
    const auto expected = Times(pcm, moves);
    Pauses pauses(kRate);
    WordTimes times;
    std::vector<SpokenWord> words;
    size_t added = 0;
    const size_t step = 1920;
    for (size_t at = 0; at < pcm.size(); at += step) {
      pauses.Add(std::span(pcm).subspan(at, std::min(step, pcm.size() - at)));
      // The head's moves are known a while after.
      const double next = pauses.known() - 0.16;
      for (; added < moves.size() && moves[added] < next; ++added)
        times.Add({added, added + 1}, moves[added], added == 0);
      for (const SpokenWord& word : times.Take(pauses, next)) words.push_back(word);
      pauses.Forget(std::min(times.earliest().value_or(next), next) - 2 * WordTimes::kPauseReach);
    }
    for (; added < moves.size(); ++added) times.Add({added, added + 1}, moves[added], added == 0);
    pauses.Finish();
    for (const SpokenWord& word : times.Take(pauses, kForever)) words.push_back(word);
    ASSERT_EQ(words, expected) << round;
    ASSERT_EQ(words.size(), moves.size());
  }
}

}  // namespace
}  // namespace qtts
