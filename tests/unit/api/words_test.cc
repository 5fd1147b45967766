// SPDX-License-Identifier: LGPL-2.1-or-later
// Word times of the bundled voice, through the public interface.
#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <string>
#include <vector>

#include "qtts/engine.h"

namespace qtts {
namespace {

struct Spoken {
  std::vector<float> samples;
  std::vector<SpokenWord> words;
  SpeechReport report;
  double seconds = 0;
  bool operator==(const Spoken&) const = default;
};

Spoken Read(Stream* stream) {
  Spoken spoken;
  Frame frame;
  while (stream->Read(&frame) == ReadState::kFrame) {
    spoken.samples.insert(spoken.samples.end(), frame.pcm.begin(), frame.pcm.end());
    spoken.seconds += static_cast<double>(frame.pcm.size()) / 24000;
    spoken.words.insert(spoken.words.end(), frame.words.begin(), frame.words.end());
  }
  EXPECT_TRUE(stream->status().ok()) << stream->status().message();
  for (const SpokenWord& word : stream->last_words()) spoken.words.push_back(word);
  spoken.report = stream->report();
  return spoken;
}

class SpokenWordsTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    EngineOptions options;
    options.model_path = QTTS_TEST_VOICE;
    options.device = Device::kCpu;
    engine_ = *Engine::Load(options);
  }
  static void TearDownTestSuite() { engine_.reset(); }

  static Request RequestOf(const std::string& text, uint64_t seed = 0) {
    Request request;
    request.text = text;
    request.seed = seed;
    request.settings = engine_->info().defaults;
    request.layout = PromptLayout::kStreaming;
    return request;
  }
  static Spoken Speak(const Request& request) { return Read(engine_->Start(request)->get()); }

  static inline std::shared_ptr<Engine> engine_;
  const std::string text_ = "The captain spoke slowly, and the crew listened to every word.";
};

TEST_F(SpokenWordsTest, TheModelHasAHead) { EXPECT_TRUE(engine_->info().description.alignment.has_value()); }

TEST_F(SpokenWordsTest, EveryWordWithinTheSound) {
  for (const PromptLayout layout : {PromptLayout::kStreaming, PromptLayout::kNonStreaming}) {
    Request request = RequestOf(text_);
    request.layout = layout;
    const Spoken spoken = Speak(request);
    ASSERT_EQ(spoken.words.size(), 11U);
    EXPECT_EQ(text_.substr(spoken.words[2].text.begin, 5), "spoke");
    EXPECT_TRUE(spoken.report.measured);
    EXPECT_TRUE(spoken.report.complete());
    EXPECT_EQ(spoken.report.coverage(), 1.0);
    for (size_t i = 0; i < spoken.words.size(); ++i) {
      const std::chrono::duration<double> end = spoken.words[i].start + spoken.words[i].duration;
      EXPECT_LE(end.count(), spoken.seconds + 1e-6);
      EXPECT_GT(spoken.words[i].duration.count(), 0);
      if (i == 0) continue;
      EXPECT_GE(spoken.words[i].start, spoken.words[i - 1].start + spoken.words[i - 1].duration);
    }
  }
}

TEST_F(SpokenWordsTest, GrowingTextAndOthersChangeNothing) {
  const Spoken expected = Speak(RequestOf(text_, 3));
  std::mt19937 random(5);
  std::vector<std::unique_ptr<Stream>> others;
  for (uint64_t seed = 10; seed < 14; ++seed) others.push_back(*engine_->Start(RequestOf(text_, seed)));
  for (int round = 0; round < 3; ++round) {
    Request request = RequestOf("", 3);
    request.more_text = true;
    const auto stream = *engine_->Start(request);
    for (size_t at = 0; at < text_.size();) {
      const size_t size = 1 + random() % 12;
      ASSERT_TRUE(stream->Append(text_.substr(at, size)).ok());
      at += size;
    }
    ASSERT_TRUE(stream->FinishText().ok());
    EXPECT_EQ(Read(stream.get()), expected);
  }
  for (const auto& other : others) EXPECT_TRUE(Read(other.get()).report.measured);
}

TEST_F(SpokenWordsTest, PartsOfALongText) {
  const std::string text =
      text_ + "   Nobody moved.\n\n" + text_ + " Then the wind came back, and all the sails were set.";
  Request request = RequestOf(text);
  request.parts = PartBounds::Of(80);
  const Spoken spoken = Speak(request);
  ASSERT_GT(spoken.words.size(), 30U);
  for (size_t i = 1; i < spoken.words.size(); ++i) {
    EXPECT_GT(spoken.words[i].start, spoken.words[i - 1].start);
    const char before = text[spoken.words[i].text.begin - 1];
    EXPECT_TRUE(before == ' ' || before == '\n') << i;
  }
  EXPECT_EQ(text.substr(spoken.words.back().text.begin, 3), "set");
}

// Samples, words and report, beside another utterance too.
TEST_F(SpokenWordsTest, PartsThatAreMadeAtOnceAreTheSame) {
  const std::string text = text_ + " Then the wind came back, and all the sails were set. Nobody moved. It was late.";
  Request request = RequestOf(text, 3);
  request.parts = PartBounds::Of(60);
  request.real_time = false;
  const Spoken expected = Speak(request);
  ASSERT_GT(expected.words.size(), 20U);
  const Spoken other = Speak(RequestOf(text_, 4));
  const Occupancy before = engine_->occupancy();
  request.parallel_parts = 4;
  const auto stream = *engine_->Start(request);
  const auto beside = *engine_->Start(RequestOf(text_, 4));
  EXPECT_TRUE(Read(beside.get()) == other);
  EXPECT_TRUE(Read(stream.get()) == expected);
  const Occupancy after = engine_->occupancy();
  EXPECT_GT(after.ahead_parts, before.ahead_parts);
  EXPECT_EQ(after.preempted_parts, before.preempted_parts) << "slots are left";
}

TEST_F(SpokenWordsTest, NoPartsAtOnceAreRefused) {
  Request request = RequestOf(text_);
  request.parallel_parts = 0;
  EXPECT_EQ(engine_->Start(request).status().code(), StatusCode::kInvalidArgument);
}

TEST_F(SpokenWordsTest, ABoundOfNoFramesIsRefused) {
  Request request = RequestOf(text_);
  request.runaway_frames_per_token = 0;
  EXPECT_EQ(engine_->Start(request).status().code(), StatusCode::kInvalidArgument);
}

TEST_F(SpokenWordsTest, ACutUtteranceIsNotComplete) {
  Request request = RequestOf(text_);
  request.max_frames = 20;
  const Spoken spoken = Speak(request);
  EXPECT_TRUE(spoken.report.measured);
  EXPECT_TRUE(spoken.report.stopped_early);
  EXPECT_LT(spoken.report.coverage(), 0.8);
  EXPECT_LT(spoken.words.size(), 11U);
}

}  // namespace
}  // namespace qtts
