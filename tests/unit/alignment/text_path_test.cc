// SPDX-License-Identifier: LGPL-2.1-or-later
#include "alignment/text_path.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace qtts {
namespace {

using Matrix = std::vector<std::vector<float>>;  // [frames][tokens], all tokens that exist for the frame

TextScores ScoresOf(const std::vector<float>& row, size_t begin) {
  TextScores scores;
  double sum = 0;
  for (const float score : row) sum += std::exp(score);
  scores.log_sum = static_cast<float>(std::log(sum));
  scores.mass = 1;
  const size_t end = std::min(row.size(), begin + kTextScores);
  scores.scores.assign(row.begin() + static_cast<ptrdiff_t>(begin), row.begin() + static_cast<ptrdiff_t>(end));
  return scores;
}

std::vector<PlacedFrame> Follow(const Matrix& rows, TextPath* path) {
  std::vector<PlacedFrame> placed;
  const auto take = [&] {
    for (PlacedFrame& frame : path->Take()) placed.push_back(std::move(frame));
  };
  for (size_t f = 0; f < rows.size(); ++f) {
    const auto begin = std::min(static_cast<size_t>(path->WindowBegin(static_cast<int64_t>(f))), rows[f].size() - 1);
    path->Add(static_cast<int32_t>(begin), ScoresOf(rows[f], begin));
    take();
  }
  path->Finish();
  take();
  return placed;
}

// The best path that moves by 0 to 2 tokens a frame, with all scores; each frame's token as seen `lag` frames later.
std::vector<int32_t> FollowSlowly(const Matrix& rows, size_t lag) {
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  const size_t tokens = rows.back().size();
  std::vector<int32_t> positions;
  std::vector<std::vector<double>> sums;
  std::vector<std::vector<size_t>> from;
  int32_t reached = -1;
  const auto trace = [&](size_t last, size_t target) {
    const auto best = std::max_element(sums[last].begin(), sums[last].end());
    auto token = static_cast<size_t>(best - sums[last].begin());
    for (size_t f = last; f > target; --f) token = from[f][token];
    reached = std::max(reached, static_cast<int32_t>(token));
    positions.push_back(reached);
  };
  for (size_t f = 0; f < rows.size(); ++f) {
    sums.emplace_back(tokens, kNone);
    from.emplace_back(tokens, 0);
    for (size_t j = 0; j < rows[f].size(); ++j) {
      double best = f == 0 && j <= 2 ? 0 : kNone;
      for (size_t move = 0; move <= std::min<size_t>(2, j) && f > 0; ++move) {
        if (sums[f - 1][j - move] > best) {
          best = sums[f - 1][j - move];
          from[f][j] = j - move;
        }
      }
      sums[f][j] = best + rows[f][j];
    }
    if (f >= lag) trace(f, f - lag);
  }
  for (size_t f = rows.size() - std::min(lag, rows.size()); f < rows.size(); ++f) trace(rows.size() - 1, f);
  return positions;
}

// Scores of a head that follows a text, with pauses and noise. With `growing`, token j exists from frame j on.
Matrix ScoresOfSpeech(size_t tokens, uint32_t seed, bool growing) {
  std::mt19937 random(seed);
  std::normal_distribution<float> noise(0, 1.5F);
  Matrix rows;
  double place = 0;
  while (place < static_cast<double>(tokens) + 1) {
    const size_t exist = growing ? std::min(rows.size() + 1, tokens + 1) : tokens + 1;
    std::vector<float> row(exist);
    for (size_t j = 0; j < exist; ++j) {
      const double distance = static_cast<double>(j) - place;
      row[j] = static_cast<float>(8 - 4 * std::fabs(distance)) + noise(random);
    }
    rows.push_back(row);
    if (random() % 4 != 0) place += 0.1 + 0.5 * (random() % 100) / 100.0;
    if (growing) place = std::min(place, static_cast<double>(rows.size()));
  }
  return rows;
}

TEST(TextPathTest, EqualsTheSlowPathWithAllScores) {
  for (uint32_t seed = 0; seed < 40; ++seed) {
    const Matrix rows = ScoresOfSpeech(5 + 3 * seed, seed, seed % 2 == 1);
    TextPath path;
    const auto placed = Follow(rows, &path);
    const std::vector<int32_t> expected = FollowSlowly(rows, TextPath::kLag);
    ASSERT_EQ(placed.size(), rows.size());
    for (size_t f = 0; f < rows.size(); ++f) ASSERT_EQ(placed[f].position, expected[f]) << "seed " << seed << ", " << f;
    EXPECT_GE(path.position(), static_cast<int32_t>(rows.back().size()) - 2) << "speech reaches the text's end";
  }
}

TEST(TextPathTest, ATokenBeginsWhereItsProbabilityRises) {
  // Frame 0 is on token 0; in frame 1 a quarter of the attention has moved on, in frame 2 all of it.
  const float most = std::log(0.75F);
  const float rest = std::log(0.25F);
  TextPath path;
  Follow({{0, -60}, {most, rest}, {-60, 0}, {-60, 0}, {-60, 0}}, &path);
  ASSERT_EQ(path.position(), 1);
  EXPECT_NEAR(path.StartOf(0), 0, 1e-5);
  EXPECT_EQ(path.FirstFrameOf(1), 2);
  EXPECT_NEAR(path.StartOf(1), 1.75, 1e-5);
}

TEST(TextPathTest, WindowsDependOnFramesLongBeforeAlone) {
  const Matrix rows = ScoresOfSpeech(120, 5, false);
  TextPath path;
  std::vector<int32_t> positions;
  for (size_t f = 0; f < rows.size(); ++f) {
    const int32_t begin = path.WindowBegin(static_cast<int64_t>(f));
    if (f >= TextPath::kWindowLag) {
      EXPECT_EQ(begin, std::max(0, positions[f - TextPath::kWindowLag] - TextPath::kBehind));
    }
    path.Add(begin, ScoresOf(rows[f], static_cast<size_t>(begin)));
    positions.push_back(path.position());
    for (size_t ahead = 1; ahead < TextPath::kWindowLag; ++ahead) {
      const int32_t later = path.WindowBegin(static_cast<int64_t>(f + ahead));
      EXPECT_GE(later, begin);
    }
  }
}

TEST(TextPathTest, TextThatBeginsLater) {
  TextPath path;
  std::vector<PlacedFrame> placed;
  for (int i = 0; i < 3; ++i) path.Add(0, {});
  for (int i = 0; i < 4; ++i) path.Add(0, ScoresOf({1, 0}, 0));
  path.Finish();
  placed = path.Take();
  ASSERT_EQ(placed.size(), 7U);
  EXPECT_EQ(placed[2].position, -1);
  EXPECT_EQ(placed[3].position, 0);
  EXPECT_EQ(path.FirstFrameOf(0), 3);
}

// Whatever the scores, the path moves forward, by known tokens, and places each frame once.
TEST(TextPathTest, AnyScores) {
  std::mt19937 random(7);
  const float odd[] = {std::numeric_limits<float>::quiet_NaN(),
                       std::numeric_limits<float>::infinity(),
                       -std::numeric_limits<float>::infinity(),
                       3e38F,
                       -3e38F,
                       0};
  for (int round = 0; round < 300; ++round) {
    TextPath path;
    int32_t tokens = 0;
    int64_t count = 0;
    int32_t position = -1;
    const size_t frames = random() % 60;
    for (size_t f = 0; f < frames; ++f) {
      tokens += static_cast<int32_t>(random() % 4);
      TextScores scores;
      int32_t begin = path.WindowBegin(static_cast<int64_t>(f));
      if (random() % 20 == 0) begin = static_cast<int32_t>(random() % 200);  // not the window that was asked for
      for (int32_t j = begin; j < std::min(tokens, begin + kTextScores); ++j) {
        scores.scores.push_back(random() % 8 == 0 ? odd[random() % 6] : static_cast<float>(random() % 1000) / 50);
      }
      scores.log_sum = random() % 8 == 0 ? odd[random() % 6] : 20;
      scores.mass = odd[random() % 6];
      path.Add(begin, scores);
      if (f + 1 == frames) path.Finish();
      for (const PlacedFrame& frame : path.Take()) {
        EXPECT_EQ(frame.frame, count++);
        EXPECT_GE(frame.position, position);
        position = frame.position;
        EXPECT_TRUE(frame.mass >= 0 && frame.mass <= 1);
        for (const float p : frame.probabilities()) ASSERT_TRUE(p >= 0 && p <= 1) << p;
      }
    }
    EXPECT_EQ(count, static_cast<int64_t>(frames));
    for (int32_t j = 0; j <= path.position(); ++j) EXPECT_GE(path.StartOf(j), 0);
  }
}

}  // namespace
}  // namespace qtts
