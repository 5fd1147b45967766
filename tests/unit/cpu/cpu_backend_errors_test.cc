// SPDX-License-Identifier: LGPL-2.1-or-later
// Requests that the CPU backend refuses, and errors that end one utterance only.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "cpu/cpu_backend.h"
#include "cpu_backend_fixture.h"

namespace qtts::cpu_backend {
namespace {

class CpuBackendErrorTest : public testing::Test {
 protected:
  Status OpenError(const Prompt& prompt) {
    auto slot = backend_->Open(prompt, Greedy(), 0);
    EXPECT_FALSE(slot.ok());
    EXPECT_EQ(slot.status().code(), StatusCode::kInvalidArgument);
    return slot.status();
  }

  const Model model_{"tiny-base-0b6"};
  const std::shared_ptr<const Checkpoint> checkpoint_ = model_.Open();
  const ModelConfig& config_ = checkpoint_->config();
  const std::unique_ptr<Backend> backend_ = MakeBackend(checkpoint_);
};

TEST_F(CpuBackendErrorTest, OpenRefusesBadPrompts) {
  EXPECT_EQ(OpenError(Prompt()).message(), "the prompt has no rows");

  Prompt prompt = MakePrompt(config_);
  prompt.rows[4].text_id = config_.talker.text_vocab_size;
  EXPECT_NE(OpenError(prompt).message().find("text id"), std::string::npos);

  prompt = MakePrompt(config_);
  prompt.rows[4].codes = {1, 2};
  EXPECT_NE(OpenError(prompt).message().find("2 codes"), std::string::npos);

  prompt = MakePrompt(config_);
  prompt.rows[4].x_vector = true;
  EXPECT_NE(OpenError(prompt).message().find("x-vector"), std::string::npos);

  prompt = MakePrompt(config_);
  prompt.reference_codes = {1, 2, 3};
  EXPECT_NE(OpenError(prompt).message().find("3 codes"), std::string::npos);

  for (const int32_t code : {-1, config_.codec.codebook_size}) {
    prompt.reference_codes.assign(static_cast<size_t>(config_.talker.num_code_groups), 0);
    prompt.reference_codes[1] = code;
    EXPECT_NE(OpenError(prompt).message().find("code " + std::to_string(code)), std::string::npos);
  }
}

TEST_F(CpuBackendErrorTest, SubmitRefusesUnknownAndRepeatedSlots) {
  auto slot = backend_->Open(MakePrompt(config_), Greedy(), 0);
  ASSERT_TRUE(slot.ok());
  const FrameStep unknown[] = {{*slot, kNoText}, {*slot + 1, kNoText}};
  EXPECT_EQ(backend_->Submit(unknown).code(), StatusCode::kInvalidArgument);
  const FrameStep twice[] = {{*slot, kNoText}, {*slot, kNoText}};
  EXPECT_EQ(backend_->Submit(twice).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(backend_->Collect().status().code(), StatusCode::kInvalidArgument);  // no step was submitted
  backend_->Close(*slot);
  EXPECT_EQ(backend_->Submit({unknown, 1}).code(), StatusCode::kInvalidArgument);
}

TEST_F(CpuBackendErrorTest, WrongTextEndsOnlyItsSlot) {
  std::vector<SlotId> slots;
  for (int i = 0; i < 4; ++i) {
    auto slot = backend_->Open(MakePrompt(config_, i), Greedy(), 0);
    ASSERT_TRUE(slot.ok());
    slots.push_back(*slot);
  }
  EXPECT_EQ(std::set<SlotId>(slots.begin(), slots.end()).size(), 4U);
  // Text for a first frame.
  const FrameStep first[] = {{slots[0], kNoText}, {slots[1], 1}, {slots[2], kNoText}, {slots[3], kNoText}};
  ASSERT_TRUE(backend_->Submit(first).ok());
  auto results = backend_->Collect();
  ASSERT_TRUE(results.ok());
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ((*results)[i].end, i == 1 ? EndReason::kError : EndReason::kNone);
  EXPECT_EQ((*results)[1].status.code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE((*results)[1].pcm.empty());
  // No text for a later frame, and a slot that does not exist.
  const FrameStep later[] = {
      {slots[0], 3}, {slots[1], 3}, {slots[2], kNoText}, {slots[3], config_.talker.text_vocab_size}};
  ASSERT_TRUE(backend_->Submit(later).ok());
  results = backend_->Collect();
  ASSERT_TRUE(results.ok());
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ((*results)[i].end, i == 0 ? EndReason::kNone : EndReason::kError);
    EXPECT_EQ((*results)[i].status.ok(), i == 0);
  }
  // The other utterance has the same bits as alone.
  auto alone = backend_->Open(MakePrompt(config_, 0), Greedy(), 0);
  ASSERT_TRUE(alone.ok());
  Step(backend_.get(), *alone, kNoText);
  EXPECT_EQ(Step(backend_.get(), *alone, 3).pcm, (*results)[0].pcm);
}

TEST_F(CpuBackendErrorTest, CloseBetweenSubmitAndCollect) {
  auto first = backend_->Open(MakePrompt(config_, 0), Greedy(), 0);
  auto second = backend_->Open(MakePrompt(config_, 1), Greedy(), 0);
  ASSERT_TRUE(first.ok() && second.ok());
  const FrameStep steps[] = {{*first, kNoText}, {*second, kNoText}};
  ASSERT_TRUE(backend_->Submit(steps).ok());
  backend_->Close(*first);
  auto third = backend_->Open(MakePrompt(config_, 2), Greedy(), 0);
  ASSERT_TRUE(third.ok());
  EXPECT_NE(*third, *first);
  auto results = backend_->Collect();
  ASSERT_TRUE(results.ok());
  EXPECT_EQ((*results)[0].end, EndReason::kError);
  EXPECT_EQ((*results)[0].status.code(), StatusCode::kCancelled);
  EXPECT_EQ((*results)[1].end, EndReason::kNone);
  backend_->Close(*first);  // closing twice is harmless
}

TEST(CpuBackendLimitTest, PositionsOfTheModel) {
  const Model model("tiny-custom-0b6");
  model.SetTalkerKey("max_position_embeddings", 12);
  const auto checkpoint = model.Open();
  const ModelConfig& config = checkpoint->config();
  const auto backend = MakeBackend(checkpoint);
  // 8 rows and 4 further inputs: frames 0 to 4.
  const Utterance utterance = Speak(backend.get(), config, 0, Greedy(), 0, 20);
  EXPECT_EQ(utterance.pcm.size(), 5U * 1920);
  EXPECT_EQ(utterance.end, EndReason::kError);
  EXPECT_EQ(utterance.status.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(utterance.status.message().find("12 positions"), std::string::npos) << utterance.status.message();

  auto slot = backend->Open(MakePrompt(config, 2), Greedy(), 0);  // 14 rows
  ASSERT_FALSE(slot.ok());
  EXPECT_EQ(slot.status().code(), StatusCode::kResourceExhausted);
  EXPECT_NE(slot.status().message().find("14 positions, the model has room for 12"), std::string::npos)
      << slot.status().message();
}

struct Damage {
  const char* part;  // name in the message
  const char* file;
  const char* tensor;
};

class CpuBackendDamageTest : public testing::TestWithParam<Damage> {};

TEST_P(CpuBackendDamageTest, DamagedWeightsEndTheSlotWithAnError) {
  const Model model("tiny-custom-0b6");
  model.Damage(GetParam().file, GetParam().tensor);
  const auto checkpoint = model.Open();
  const auto backend = MakeBackend(checkpoint);
  for (const GenerationSettings& settings : {Greedy(), GenerationSettings()}) {
    const Utterance utterance = Speak(backend.get(), checkpoint->config(), 0, settings, 0, 3);
    EXPECT_EQ(utterance.end, EndReason::kError);
    EXPECT_EQ(utterance.status.code(), StatusCode::kCorruptModel);
    EXPECT_NE(utterance.status.message().find(GetParam().part), std::string::npos) << utterance.status.message();
    EXPECT_TRUE(utterance.pcm.empty());
    EXPECT_TRUE(utterance.codes.empty());
  }
}

INSTANTIATE_TEST_SUITE_P(
    Parts, CpuBackendDamageTest,
    testing::Values(Damage{"talker", "model.safetensors", "talker.model.norm.weight"},
                    Damage{"talker", "model.safetensors", "talker.model.layers.1.self_attn.k_norm.weight"},
                    Damage{"talker", "model.safetensors", "talker.model.layers.0.mlp.gate_proj.weight"},
                    Damage{"code predictor", "model.safetensors", "talker.code_predictor.lm_head.3.weight"},
                    Damage{"code predictor", "model.safetensors",
                           "talker.code_predictor.model.layers.0.self_attn.q_proj.weight"},
                    Damage{"speech tokenizer", "speech_tokenizer/model.safetensors", "decoder.decoder.2.block.0.alpha"},
                    Damage{"speech tokenizer", "speech_tokenizer/model.safetensors", "decoder.decoder.6.conv.bias"}));

}  // namespace
}  // namespace qtts::cpu_backend
