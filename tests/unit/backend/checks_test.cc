// SPDX-License-Identifier: LGPL-2.1-or-later
#include "backend/checks.h"

#include <gtest/gtest.h>

#include <vector>

namespace qtts {
namespace {

ModelConfig Config() {
  ModelConfig config;
  config.talker.text_vocab_size = 400;
  config.talker.vocab_size = 50;
  config.talker.num_code_groups = 4;
  config.talker.transformer.hidden_size = 21;
  config.predictor.vocab_size = 30;
  config.codec.codebook_size = 25;
  return config;
}

const PromptLimits kLimits = PromptLimitsOf(Config(), 10, 9);

TEST(ChecksTest, GoodRowsAreTaken) {
  const std::vector<float> x_vector(21);
  EXPECT_TRUE(CheckRow({399, {49, 29, 29, 29}, true}, x_vector, kLimits).ok());
  EXPECT_TRUE(CheckRow({kNoText, {}, false}, {}, kLimits).ok());
}

TEST(ChecksTest, BadRowsAreNamed) {
  const std::vector<float> x_vector(20);
  const auto message = [&](const PromptRow& row) {
    const Status status = CheckRow(row, x_vector, kLimits);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    return status.message();
  };
  EXPECT_EQ(message({400, {}, false}), "prompt: text id 400 is not in the model's table of 400");
  EXPECT_EQ(message({-2, {}, false}), "prompt: text id -2 is not in the model's table of 400");
  EXPECT_EQ(message({1, {50}, false}), "prompt: code 50 is not in the model's table of 50");
  EXPECT_EQ(message({1, {-1}, false}), "prompt: code -1 is not in the model's table of 50");
  EXPECT_EQ(message({1, {1, 2, 30, 3}, false}), "prompt: code 30 is not in the model's table of 30");
  EXPECT_EQ(message({1, {1, 2}, false}), "prompt: a row has 2 codes; the model takes none, 1 or 4");
  EXPECT_EQ(message({1, {1, 2, 3, 4, 5}, false}), "prompt: a row has 5 codes; the model takes none, 1 or 4");
  EXPECT_EQ(message({1, {}, true}), "prompt: the x-vector has 20 numbers; the model takes 21");
}

TEST(ChecksTest, PromptsHaveRowsAndWholeFrames) {
  Prompt prompt;
  EXPECT_EQ(CheckPrompt(prompt, kLimits).message(), "the prompt has no rows");
  prompt.rows.assign(9, {1, {}, false});
  prompt.reference_codes = {0, 24, 1, 2};
  EXPECT_TRUE(CheckPrompt(prompt, kLimits).ok());

  prompt.rows.emplace_back();
  EXPECT_EQ(CheckPrompt(prompt, kLimits).code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(CheckPrompt(prompt, kLimits).message(),
            "the text is too long: its prompt takes 10 positions, the model has room for 9; split it into shorter "
            "utterances");
  prompt.rows.pop_back();
  prompt.rows[5].text_id = 400;
  EXPECT_EQ(CheckPrompt(prompt, kLimits).message(), "prompt: text id 400 is not in the model's table of 400");
  prompt.rows[5].text_id = 0;
  prompt.reference_codes = {1, 2, 3};
  EXPECT_EQ(CheckPrompt(prompt, kLimits).message(),
            "the reference has 3 codes, which is not a whole number of frames of 4");
  prompt.reference_codes = {1, 2, 25, 3};
  EXPECT_EQ(CheckPrompt(prompt, kLimits).message(), "the reference holds code 25; codes go from 0 to 24");
  prompt.reference_codes[2] = -1;
  EXPECT_EQ(CheckPrompt(prompt, kLimits).message(), "the reference holds code -1; codes go from 0 to 24");
}

TEST(ChecksTest, OnlyTheFirstFrameTakesNoText) {
  EXPECT_TRUE(CheckStep(true, kNoText, 9, kLimits).ok());
  EXPECT_TRUE(CheckStep(false, 399, 9, kLimits).ok());
  EXPECT_EQ(CheckStep(true, 1, 0, kLimits).message(), "the first frame follows the prompt and takes no text");
  EXPECT_EQ(CheckStep(false, kNoText, 0, kLimits).message(), "a frame after the first needs a text id");
  EXPECT_EQ(CheckStep(false, 400, 0, kLimits).message(), "prompt: text id 400 is not in the model's table of 400");
  const Status full = CheckStep(false, 1, 10, kLimits);
  EXPECT_EQ(full.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(full.message(), "the utterance has filled all 10 positions of the model without an end; split the text");
}

TEST(ChecksTest, DamagedPartsAreNamed) {
  const Status status = DamagedModel(ModelPart::kPredictor);
  EXPECT_EQ(status.code(), StatusCode::kCorruptModel);
  EXPECT_EQ(status.message(),
            "the model's code predictor gave no usable number; its weights are probably damaged: fetch them again");
}

}  // namespace
}  // namespace qtts
