// SPDX-License-Identifier: LGPL-2.1-or-later
// Requests and configurations that are refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "prompt/prompt.h"
#include "prompt_fixture.h"
#include "qtts/sampling_numbers.h"

namespace qtts {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(PromptErrors, UnknownNamesListTheKnown) {
  Request request;
  request.speaker = "Nobody\xFF";
  ExpectInvalid(Config(ModelType::kCustomVoice), request,
                AllOf(HasSubstr("\"Nobody\uFFFD\""), HasSubstr("eric, ryan, vivian")));
  request.speaker = "ryan";
  request.language = "Klingon";
  ExpectInvalid(Config(ModelType::kCustomVoice), request,
                AllOf(HasSubstr("\"Klingon\""), HasSubstr("auto, chinese, english, german")));
  request.language = "beijing_dialect";  // only through a speaker
  ExpectInvalid(Config(ModelType::kCustomVoice), request, HasSubstr("unknown language"));
}

TEST(PromptTest, LanguagesByTag) {
  const ModelConfig config = Config(ModelType::kCustomVoice);
  for (const auto& [tag, name] : {std::pair{"de-AT", "german"}, {"EN", "english"}, {"und", "auto"}}) {
    Request request;
    request.speaker = "ryan";
    request.language = tag;
    const Prompt by_tag = Build(config, request, "Hello.");
    request.language = name;
    EXPECT_EQ(by_tag.rows, Build(config, request, "Hello.").rows) << tag;
  }
  Request request;
  request.language = "fr";  // this model has no French
  // The tag is of a language of this model.
  ExpectInvalid(config, request, AllOf(HasSubstr("unknown language \"fr\""), HasSubstr("such as \"zh\"")));
}

TEST(PromptErrors, VoicesOfOtherTypesOfCheckpoint) {
  Request request;
  ExpectInvalid(Config(ModelType::kBase), request,
                AllOf(HasSubstr("cloned voice only"), HasSubstr("Qwen3-TTS-12Hz-0.6B-CustomVoice")));
  request.voice = Voice();
  ExpectInvalid(Config(ModelType::kCustomVoice), request,
                AllOf(HasSubstr("needs a base checkpoint, such as Qwen3-TTS-12Hz-0.6B-Base"),
                      HasSubstr("a custom_voice checkpoint")));
  ExpectInvalid(Config(ModelType::kVoiceDesign), request,
                AllOf(HasSubstr("needs a base checkpoint"), HasSubstr("a voice_design checkpoint")));
  request.speaker = "ryan";
  ExpectInvalid(Config(ModelType::kBase), request,
                AllOf(HasSubstr("\"ryan\""), HasSubstr("a base checkpoint"), HasSubstr("custom_voice")));
}

// Before a voice file is read, it may hold either kind.
TEST(PromptErrors, KindsOfVoicesByCheckpoint) {
  const struct {
    ModelType type;
    VoiceKind kind;
    bool usable;
  } cases[] = {
      {ModelType::kBase, VoiceKind::kNone, false},
      {ModelType::kBase, VoiceKind::kCloned, true},
      {ModelType::kBase, VoiceKind::kDesigned, false},
      {ModelType::kBase, VoiceKind::kFile, true},
      {ModelType::kVoiceDesign, VoiceKind::kNone, true},
      {ModelType::kVoiceDesign, VoiceKind::kCloned, false},
      {ModelType::kVoiceDesign, VoiceKind::kDesigned, true},
      {ModelType::kVoiceDesign, VoiceKind::kFile, true},
      {ModelType::kCustomVoice, VoiceKind::kNone, true},
      {ModelType::kCustomVoice, VoiceKind::kCloned, false},
      {ModelType::kCustomVoice, VoiceKind::kDesigned, false},
      {ModelType::kCustomVoice, VoiceKind::kFile, false},
  };
  for (const auto& choice : cases) {
    EXPECT_EQ(CheckVoiceChoice(choice.type, {}, "", choice.kind).ok(), choice.usable)
        << ModelTypeName(choice.type) << static_cast<int>(choice.kind);
  }
}

TEST(PromptErrors, ClonedVoices) {
  const ModelConfig config = Config(ModelType::kBase);
  const auto expect = [&](const std::shared_ptr<ClonedVoice>& voice, const ::testing::Matcher<std::string>& message) {
    Request request;
    request.voice = voice;
    ExpectInvalid(config, request, message);
  };
  auto voice = Voice();
  voice->x_vector.push_back(0);
  expect(voice, AllOf(HasSubstr("4 values"), HasSubstr("have 3")));
  voice = Voice();
  voice->x_vector[1] = std::nanf("");
  expect(voice, HasSubstr("no finite numbers"));
  voice = IclVoice(2);
  voice->reference_codes.pop_back();
  expect(voice, AllOf(HasSubstr("3 reference codes"), HasSubstr("2 of a frame")));
  voice = IclVoice(2);
  voice->reference_codes[3] = 2048;
  expect(voice, AllOf(HasSubstr("2048"), HasSubstr("frame 1, group 1"), HasSubstr("0 to 2047")));
  voice = IclVoice(2);
  voice->reference_codes[0] = -1;
  expect(voice, AllOf(HasSubstr("-1"), HasSubstr("frame 0, group 0")));
  voice = IclVoice(2);
  voice->reference_text.clear();
  expect(voice, HasSubstr("no reference text"));
  voice = IclVoice(2);
  voice->reference_text.assign(70000, 'a');
  Request request;
  request.voice = voice;
  EXPECT_EQ(Builder(config).Validate(request).status().code(), StatusCode::kResourceExhausted);
}

TEST(PromptErrors, EachGroupHasItsOwnRange) {
  ModelConfig config = Config(ModelType::kBase);
  config.predictor.vocab_size = 1002;
  config.talker.vocab_size = 2200;
  Request request;
  request.voice = IclVoice(1);
  EXPECT_TRUE(Builder(config).Validate(request).ok());
  request.voice = IclVoice(2);
  ExpectInvalid(config, request, AllOf(HasSubstr("1002"), HasSubstr("frame 1, group 1"), HasSubstr("0 to 1001")));
}

TEST(PromptErrors, Settings) {
  const ModelConfig config = Config(ModelType::kCustomVoice);
  const auto expect = [&](auto change, const ::testing::Matcher<std::string>& message) {
    Request request;
    change(&request.settings);
    ExpectInvalid(config, request, message);
  };
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const float value : {0.0F, -1.0F, kNan, kInfinity}) {
    expect([&](GenerationSettings* s) { s->talker.temperature = value; }, StartsWith("temperature is"));
    expect([&](GenerationSettings* s) { s->predictor.temperature = value; }, StartsWith("subtalker-temperature is"));
    expect([&](GenerationSettings* s) { s->repetition_penalty = value; }, HasSubstr("repetition-penalty is"));
  }
  for (const float value : {0.0F, -0.5F, 1.5F, kNan}) {
    expect([&](GenerationSettings* s) { s->talker.top_p = value; }, StartsWith("top-p is"));
    expect([&](GenerationSettings* s) { s->predictor.top_p = value; }, StartsWith("subtalker-top-p is"));
  }
  expect([](GenerationSettings* s) { s->talker.top_k = -1; }, StartsWith("top-k is -1, expected 0 or more"));
  expect([](GenerationSettings* s) { s->predictor.top_k = -1; }, StartsWith("subtalker-top-k is -1"));
  for (const SamplingNumber& number : kSamplingNumbers) {
    const auto message = StartsWith(std::string(number.name) + " is -2, expected " + number.Range());
    expect([&](GenerationSettings* s) { number.Set(-2, s); }, message);
  }
  expect([](GenerationSettings* s) { s->max_new_tokens = 1; }, HasSubstr("max_new_tokens is 1"));
  Request request;
  request.settings.max_new_tokens = 2;
  request.settings.talker.top_k = 0;
  EXPECT_TRUE(Builder(config).Validate(request).ok());
}

TEST(PromptErrors, OpenTextInTheNonStreamingLayout) {
  Request request;
  request.more_text = true;
  ExpectInvalid(Config(ModelType::kCustomVoice), request, HasSubstr("streaming prompt layout"));
  request.layout = PromptLayout::kStreaming;
  EXPECT_TRUE(Builder(Config(ModelType::kCustomVoice)).Validate(request).ok());
  request.more_text = false;
  request.layout = PromptLayout::kNonStreaming;
  const auto prompt = Builder(Config(ModelType::kCustomVoice)).Build(request, TextIds(kText), false);
  EXPECT_EQ(prompt.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(prompt.status().message(), HasSubstr("whole text"));
}

TEST(PromptErrors, NoText) {
  Request request;
  for (const PromptLayout layout : {PromptLayout::kStreaming, PromptLayout::kNonStreaming}) {
    request.layout = layout;
    for (const char* text : {"", "\n", "\n\n"}) {
      const auto prompt = Builder(Config(ModelType::kCustomVoice)).Build(request, TextIds(text), true);
      EXPECT_EQ(prompt.status().code(), StatusCode::kInvalidArgument);
      EXPECT_THAT(prompt.status().message(), HasSubstr("no text"));
    }
    EXPECT_FALSE(Builder(Config(ModelType::kCustomVoice)).Build(request, {}, true).ok());
  }
}

TEST(PromptErrors, APromptLongerThanTheModel) {
  Request request;
  std::string text;
  for (int i = 0; i < 400; ++i) text += " word";
  const auto prompt = Builder(Config(ModelType::kCustomVoice)).Build(request, TextIds(text), true);
  EXPECT_EQ(prompt.status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(prompt.status().message(), HasSubstr("of the model's 300"));
}

TEST(PromptErrors, TokenizersThatDoNotBelongToTheConfig) {
  const auto expect = [](const ModelConfig& config, const std::shared_ptr<const Tokenizer>& tokenizer, StatusCode code,
                         const ::testing::Matcher<std::string>& message) {
    const auto builder = PromptBuilder::Create(config, tokenizer);
    ASSERT_FALSE(builder.ok());
    EXPECT_EQ(builder.status().code(), code);
    EXPECT_THAT(builder.status().message(), message);
  };
  ModelConfig config = Config(ModelType::kBase);
  config.talker.text_vocab_size = 151675;
  expect(config, Released(), StatusCode::kCorruptModel, AllOf(HasSubstr("151675"), HasSubstr("text_vocab_size")));
  config = Config(ModelType::kBase);
  config.im_start_token_id = kEnd;
  expect(config, Released(), StatusCode::kCorruptModel, AllOf(HasSubstr("im_start_token_id"), HasSubstr("151645")));
  config = Config(ModelType::kBase);
  config.im_end_token_id = kStart;
  expect(config, Released(), StatusCode::kCorruptModel, HasSubstr("im_end_token_id"));
  config = Config(ModelType::kBase);
  config.tts_pad_token_id = 5;  // an ordinary piece, which text could spell
  expect(config, Released(), StatusCode::kCorruptModel, HasSubstr("tts_pad_token_id"));
  config = Config(ModelType::kBase);
  config.tts_bos_token_id = 151700;
  expect(config, Released(), StatusCode::kCorruptModel, HasSubstr("tts_bos_token_id"));
  config = Config(ModelType::kBase);
  config.tts_eos_token_id = -1;
  expect(config, Released(), StatusCode::kCorruptModel, HasSubstr("tts_eos_token_id"));

  const auto letters = Tokenizer::Create(MakeVocabulary("", {"<|im_start|>", "<|im_end|>", "<p>", "<b>", "<e>"}));
  ASSERT_TRUE(letters.ok());
  config = Config(ModelType::kBase);
  config.im_start_token_id = 256;
  config.im_end_token_id = 257;
  config.tts_pad_token_id = 258;
  config.tts_bos_token_id = 259;
  config.tts_eos_token_id = 260;
  expect(config, *letters, StatusCode::kUnsupported, HasSubstr("\"assistant\""));
}

TEST(PromptErrors, ADialectWithoutAnId) {
  ModelConfig config = Config(ModelType::kCustomVoice);
  config.talker.languages.erase("sichuan_dialect");
  Request request;
  request.speaker = "eric";
  const Status status = Builder(config).Validate(request).status();
  EXPECT_EQ(status.code(), StatusCode::kCorruptModel);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("\"eric\""), HasSubstr("\"sichuan_dialect\"")));
}

}  // namespace
}  // namespace qtts
