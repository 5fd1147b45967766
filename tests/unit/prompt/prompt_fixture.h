// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TESTS_PROMPT_FIXTURE_H_
#define QTTS_TESTS_PROMPT_FIXTURE_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "golden/vocabulary/released_vocabulary.h"
#include "prompt/prompt.h"
#include "text/text_feed.h"

// Prompts of the released vocabulary, as rows that a test writes down.

namespace qtts {

inline void PrintTo(const PromptRow& row, std::ostream* out) {
  *out << "{" << row.text_id << " [";
  for (const int32_t code : row.codes) *out << code << " ";
  *out << "]" << (row.x_vector ? " x}" : "}");
}

using Ids = std::vector<int32_t>;
using Rows = std::vector<PromptRow>;

// The released ids (spec 1.3, 2).
inline constexpr int32_t kStart = 151644;
inline constexpr int32_t kEnd = 151645;
inline constexpr int32_t kAssistant = 77091;
inline constexpr int32_t kUser = 872;
inline constexpr int32_t kNewline = 198;
inline constexpr int32_t kPad = 151671;
inline constexpr int32_t kBos = 151672;
inline constexpr int32_t kEos = 151673;
inline constexpr int32_t kCodecPad = 2148;
inline constexpr int32_t kCodecBos = 2149;
inline constexpr int32_t kThink = 2154;
inline constexpr int32_t kNoThink = 2155;
inline constexpr int32_t kThinkBos = 2156;
inline constexpr int32_t kThinkEos = 2157;
inline constexpr int32_t kEnglish = 2050;

// "Hello, world."
inline constexpr int32_t kHello = 9707;
inline constexpr int32_t kComma = 11;
inline constexpr int32_t kWorld = 1879;
inline constexpr int32_t kDot = 13;
inline constexpr char kText[] = "Hello, world.";

inline std::shared_ptr<const Tokenizer> Released() {
  static const auto tokenizer = *Tokenizer::Create(ReleasedVocabulary());
  return tokenizer;
}

// As in the released configs, with vectors and codes small enough to write down.
inline ModelConfig Config(ModelType type, std::string size = "1b7") {
  ModelConfig config;
  config.type = type;
  config.size = std::move(size);
  config.im_start_token_id = kStart;
  config.im_end_token_id = kEnd;
  config.tts_pad_token_id = kPad;
  config.tts_bos_token_id = kBos;
  config.tts_eos_token_id = kEos;
  TalkerConfig& talker = config.talker;
  talker.transformer.hidden_size = 3;
  talker.transformer.max_positions = 300;
  talker.vocab_size = 3072;
  talker.text_vocab_size = 151936;
  talker.num_code_groups = 2;
  talker.codec_pad_id = kCodecPad;
  talker.codec_bos_id = kCodecBos;
  talker.codec_eos_id = 2150;
  talker.codec_think_id = kThink;
  talker.codec_nothink_id = kNoThink;
  talker.codec_think_bos_id = kThinkBos;
  talker.codec_think_eos_id = kThinkEos;
  talker.languages = {{"chinese", 2055}, {"english", kEnglish}, {"german", 2053}};
  if (type == ModelType::kCustomVoice) {
    talker.languages["beijing_dialect"] = 2074;
    talker.languages["sichuan_dialect"] = 2062;
    talker.speakers = {{"ryan", 3061}, {"eric", 2875}, {"vivian", 3065}};
    talker.dialects = {{"eric", "sichuan_dialect"}};
  }
  config.predictor.vocab_size = 2048;
  config.codec.codebook_size = 2048;
  return config;
}

inline PromptBuilder Builder(const ModelConfig& config) {
  auto builder = PromptBuilder::Create(config, Released());
  EXPECT_TRUE(builder.ok()) << builder.status().message();
  return *std::move(builder);
}

inline Ids TextIds(std::string_view text, bool finish = true) {
  TextFeed feed(Released());
  EXPECT_TRUE(feed.Append(text).ok());
  if (finish) {
    EXPECT_TRUE(feed.Finish().ok());
  }
  return feed.TakeIds();
}

inline Prompt Build(const ModelConfig& config, const Request& request, std::string_view text = kText) {
  auto prompt = Builder(config).Build(request, TextIds(text), true);
  if (prompt.ok()) return *prompt;
  ADD_FAILURE() << prompt.status().message();
  return {};
}

inline PromptRow Text(int32_t id) { return {id, {}, false}; }
inline PromptRow Both(int32_t id, Ids codes) { return {id, std::move(codes), false}; }
inline PromptRow Vector() { return {kPad, {}, true}; }

inline std::shared_ptr<ClonedVoice> Voice() {
  auto voice = std::make_shared<ClonedVoice>();
  voice->x_vector = {0.5F, -1.0F, 2.0F};
  return voice;
}

// With `frames` frames of codes (1, 1001), (2, 1002), … and the reference text "Hello, world.".
inline std::shared_ptr<ClonedVoice> IclVoice(int32_t frames) {
  auto voice = Voice();
  for (int32_t f = 1; f <= frames; ++f) {
    voice->reference_codes.push_back(f);
    voice->reference_codes.push_back(1000 + f);
  }
  voice->reference_text = kText;
  return voice;
}

inline std::vector<std::string> Warnings(const ModelConfig& config, const Request& request) {
  auto warnings = Builder(config).Validate(request);
  EXPECT_TRUE(warnings.ok()) << warnings.status().message();
  return warnings.ok() ? *std::move(warnings) : std::vector<std::string>();
}

inline void ExpectInvalid(const ModelConfig& config, const Request& request,
                          const ::testing::Matcher<std::string>& message) {
  const PromptBuilder builder = Builder(config);
  const Status statuses[] = {builder.Validate(request).status(), builder.TextIdsNeeded(request).status(),
                             builder.Build(request, TextIds(kText), true).status()};
  for (const Status& status : statuses) {
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), message);
  }
}

}  // namespace qtts

#endif  // QTTS_TESTS_PROMPT_FIXTURE_H_
