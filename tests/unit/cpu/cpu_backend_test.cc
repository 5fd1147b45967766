// SPDX-License-Identifier: LGPL-2.1-or-later
#include "cpu/cpu_backend.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cpu_backend_fixture.h"
#include "naive.h"
#include "sampling/sampler.h"

namespace qtts::cpu_backend {
namespace {

namespace fs = std::filesystem;

TEST(CpuBackendTest, SaysWhatItIs) {
  const Model model("tiny-custom-0b6");
  const auto checkpoint = model.Open();
  const auto one = MakeBackend(checkpoint, 1);
  const auto two = MakeBackend(checkpoint, 2);
  const auto all = MakeBackend(checkpoint, 0);
  EXPECT_TRUE(one->name().starts_with("cpu (")) << one->name();
  EXPECT_TRUE(one->name().ends_with(", 1 thread)")) << one->name();
  EXPECT_TRUE(two->name().ends_with(", 2 threads)")) << two->name();
  EXPECT_GE(all->max_outstanding(), 1);
}

// The whole chain, greedy, against the naive model in double precision, which computes the whole sequence again for
// every frame.
class CpuBackendStructureTest : public testing::TestWithParam<const char*> {};

TEST_P(CpuBackendStructureTest, GreedySpeechEqualsTheNaiveModel) {
  constexpr int kFrames = 6;
  const Model model(GetParam());
  const auto checkpoint = model.Open();
  const ModelConfig& config = checkpoint->config();
  const TalkerWeights& talker = checkpoint->talker();
  const PredictorWeights& predictor = checkpoint->predictor();

  const auto add = [](const naive::Vector& v, naive::Vector* to) {
    to->resize(v.size());
    for (size_t i = 0; i < v.size(); ++i) (*to)[i] += v[i];
  };
  const auto input_of = [&](int32_t text_id, const std::vector<int32_t>& codes) {
    naive::Vector input;
    if (text_id != kNoText) add(naive::Text(talker, text_id), &input);
    for (size_t g = 0; g < codes.size(); ++g) {
      add(naive::Row(g == 0 ? talker.codec_embedding : predictor.embeddings[g - 1], codes[g]), &input);
    }
    return input;
  };
  naive::Matrix inputs;
  for (const PromptRow& row : MakePrompt(config).rows) inputs.push_back(input_of(row.text_id, row.codes));
  TalkerSampler sampler(config.talker.vocab_size, config.talker.codec_eos_id, Greedy(), 0);
  std::vector<int32_t> codes;
  for (int frame = 0; frame < kFrames; ++frame) {
    if (frame > 0) {
      const auto groups = static_cast<ptrdiff_t>(config.talker.num_code_groups);
      inputs.push_back(input_of(TextOf(config, 0, frame), std::vector<int32_t>(codes.end() - groups, codes.end())));
    }
    const naive::Vector hidden = naive::Transformer(config.talker.transformer, talker.transformer, inputs).back();
    const naive::Vector logits = naive::Linear({talker.codec_head, {}}, {hidden})[0];
    std::vector<float> rounded(logits.begin(), logits.end());
    codes.push_back(sampler.Sample(rounded));
    naive::Matrix rows = {hidden, naive::Row(talker.codec_embedding, codes.back())};
    for (size_t g = 1; g < static_cast<size_t>(config.talker.num_code_groups); ++g) {
      const naive::Matrix projected =
          predictor.input_projection.has_value() ? naive::Linear(*predictor.input_projection, rows) : rows;
      const naive::Vector state =
          naive::Transformer(config.predictor.transformer, predictor.transformer, projected).back();
      const naive::Vector scores = naive::Linear({predictor.heads[g - 1], {}}, {state})[0];
      codes.push_back(static_cast<int32_t>(std::max_element(scores.begin(), scores.end()) - scores.begin()));
      rows.push_back(naive::Row(predictor.embeddings[g - 1], codes.back()));
    }
  }
  const naive::Vector pcm = naive::Codec(config.codec, checkpoint->codec(), codes);

  const auto backend = MakeBackend(checkpoint);
  const Utterance got = Speak(backend.get(), config, 0, Greedy(), 0, kFrames);
  EXPECT_EQ(got.codes, codes);
  ASSERT_EQ(got.pcm.size(), pcm.size());
  for (size_t i = 0; i < pcm.size(); ++i) ASSERT_NEAR(pcm[i], static_cast<double>(got.pcm[i]), 1e-5) << i;
}

INSTANTIATE_TEST_SUITE_P(Presets, CpuBackendStructureTest, testing::Values("tiny-custom-0b6", "tiny-base-1b7"),
                         [](const auto& preset) {
                           std::string name = preset.param;
                           std::erase(name, '-');
                           return name;
                         });

// Sets an alignment head in the model's description.
void SetHead(const std::string& folder, int layer, int head) {
  std::ofstream(fs::path(folder) / "qttssrc.json")
      << nlohmann::json{{"alignment", {{"layer", layer}, {"head", head}, {"offset_ms", 0}}}}.dump();
}

// Text scores of the prompt's last row and of later rows equal the naive model's, and change nothing else.
TEST(CpuBackendTextScoresTest, EqualTheNaiveModel) {
  constexpr int kFrames = 4;
  constexpr int32_t kBegin = 3;
  for (const char* preset : {"tiny-custom-0b6", "tiny-base-1b7"}) {
    SCOPED_TRACE(preset);
    const Model model(preset);
    const std::string folder = model.Open()->folder();
    const TransformerConfig transformer = model.Open()->config().talker.transformer;
    const int layer = transformer.num_layers - 1;
    const int head = transformer.num_heads - 1;
    const Utterance without = Speak(MakeBackend(model.Open()).get(), model.Open()->config(), 0, Greedy(), 0, kFrames);
    SetHead(folder, layer, head);
    const auto checkpoint = model.Open();
    const ModelConfig& config = checkpoint->config();
    const auto backend = MakeBackend(checkpoint);
    const Prompt prompt = MakePrompt(config);
    const auto input_of = [&](int32_t text_id, const std::vector<int32_t>& codes) {
      naive::Vector input;
      const auto add = [&](const naive::Vector& v) {
        input.resize(v.size());
        for (size_t i = 0; i < v.size(); ++i) input[i] += v[i];
      };
      if (text_id != kNoText) add(naive::Text(checkpoint->talker(), text_id));
      for (size_t g = 0; g < codes.size(); ++g) {
        add(naive::Row(g == 0 ? checkpoint->talker().codec_embedding : checkpoint->predictor().embeddings[g - 1],
                       codes[g]));
      }
      return input;
    };
    naive::Matrix inputs;
    for (const PromptRow& row : prompt.rows) inputs.push_back(input_of(row.text_id, row.codes));
    const auto slot = backend->Open(prompt, Greedy(), 0);
    ASSERT_TRUE(slot.ok());
    Utterance with;
    for (int frame = 0; frame < kFrames; ++frame) {
      if (frame > 0) {
        const auto groups = static_cast<ptrdiff_t>(config.talker.num_code_groups);
        inputs.push_back(
            input_of(TextOf(config, 0, frame), std::vector<int32_t>(with.codes.end() - groups, with.codes.end())));
      }
      const auto rows = static_cast<int32_t>(inputs.size());
      // The end is cut to the row's own position.
      const FrameStep step{*slot, TextOf(config, 0, frame), {kBegin, rows + 5, kBegin + frame}};
      ASSERT_TRUE(backend->Submit({&step, 1}).ok());
      const auto results = backend->Collect();
      ASSERT_TRUE(results.ok());
      with.Append(results->front());
      const TextScores& scores = results->front().text_scores;
      const naive::Vector expected =
          naive::Scores(config.talker.transformer, checkpoint->talker().transformer, inputs, layer, head);
      ASSERT_EQ(scores.scores.size(), static_cast<size_t>(std::min(rows - kBegin - frame, kTextScores)));
      double text = 0;
      double all = 0;
      for (size_t i = 0; i < expected.size(); ++i) {
        all += std::exp(expected[i]);
        if (i >= kBegin) text += std::exp(expected[i]);
      }
      for (size_t i = 0; i < scores.scores.size(); ++i) {
        EXPECT_NEAR(scores.scores[i], expected[static_cast<size_t>(kBegin + frame) + i], 1e-4);
      }
      EXPECT_NEAR(scores.log_sum, std::log(text), 1e-4);
      EXPECT_NEAR(scores.mass, text / all, 1e-4);
    }
    backend->Close(*slot);
    ExpectSame(with, without);
  }
}

// The scores of a stream are the same alone and among others, and whether its voice is known or not.
TEST(CpuBackendTextScoresTest, DoNotDependOnOthers) {
  constexpr int kFrames = 5;
  const Model model("tiny-custom-0b6");
  SetHead(model.Open()->folder(), 1, 0);
  const auto checkpoint = model.Open();
  const ModelConfig& config = checkpoint->config();
  const auto run = [&](Backend* backend, const std::vector<int>& variants) {
    std::vector<SlotId> slots;
    for (const int variant : variants) slots.push_back(*backend->Open(MakePrompt(config, variant), Greedy(), 0));
    std::vector<std::vector<TextScores>> scores(variants.size());
    for (int frame = 0; frame < kFrames; ++frame) {
      std::vector<FrameStep> steps;
      for (size_t i = 0; i < variants.size(); ++i) {
        steps.push_back({slots[i], TextOf(config, variants[i], frame), {2, 8 + 3 * variants[i] + frame, 4}});
      }
      EXPECT_TRUE(backend->Submit(steps).ok());
      const auto results = backend->Collect();
      EXPECT_TRUE(results.ok());
      for (size_t i = 0; i < variants.size(); ++i) scores[i].push_back((*results)[i].text_scores);
    }
    for (const SlotId slot : slots) backend->Close(slot);
    return scores;
  };
  const auto backend = MakeBackend(checkpoint);
  const auto together = run(backend.get(), {0, 1, 2, 3});
  for (int variant = 0; variant < 4; ++variant) {
    const auto alone = run(MakeBackend(checkpoint, 1).get(), {variant});
    EXPECT_FALSE(alone[0][0].scores.empty());
    EXPECT_EQ(alone[0], together[static_cast<size_t>(variant)]);
    EXPECT_EQ(run(backend.get(), {variant})[0], alone[0]) << "the voice is known";
  }
}

TEST(CpuBackendTextScoresTest, NoneWithoutAHeadOrAWindow) {
  const Model model("tiny-custom-0b6");
  const auto first_scores = [&](const TextWindow& window) {
    const auto checkpoint = model.Open();
    const auto backend = MakeBackend(checkpoint);
    const FrameStep step{*backend->Open(MakePrompt(checkpoint->config()), Greedy(), 0), kNoText, window};
    EXPECT_TRUE(backend->Submit({&step, 1}).ok());
    const auto results = backend->Collect();
    EXPECT_TRUE(results.ok());
    return results->front().text_scores;
  };
  EXPECT_EQ(first_scores({2, 8, 2}), TextScores());
  SetHead(model.Open()->folder(), 0, 0);
  EXPECT_EQ(first_scores({}), TextScores());
  EXPECT_EQ(first_scores({2, 8, 8}), TextScores());
  EXPECT_EQ(first_scores({4, 8, 2}), TextScores()) << "begins before the text";
  EXPECT_EQ(first_scores({2, 8, 5}).scores.size(), 3U);
}

// Sampled slots that open and end at different times: each has the same bits as alone.
TEST(CpuBackendTest, SlotsDoNotDisturbEachOther) {
  constexpr int kFrames = 12;
  constexpr int kSlots = 5;
  const Model model("tiny-custom-1b7", 6);
  const auto checkpoint = model.Open();
  const ModelConfig& config = checkpoint->config();
  const auto backend = MakeBackend(checkpoint);

  std::vector<Utterance> alone, together(kSlots);
  std::vector<SlotId> slots(kSlots);
  std::vector<int> frames(kSlots);
  const auto settings_of = [](int i) {
    GenerationSettings settings = i == 1 ? Greedy() : GenerationSettings();
    if (i == 2) settings.max_new_tokens = 4;
    return settings;
  };
  for (int i = 0; i < kSlots; ++i) {
    alone.push_back(Speak(backend.get(), config, i, settings_of(i), static_cast<uint64_t>(i), kFrames));
  }
  for (int round = 0; round < kFrames + kSlots; ++round) {
    std::vector<FrameStep> steps;
    for (int i = 0; i < kSlots; ++i) {
      const auto at = static_cast<size_t>(i);
      if (round == i) {
        auto slot = backend->Open(MakePrompt(config, i), settings_of(i), static_cast<uint64_t>(i));
        ASSERT_TRUE(slot.ok());
        slots[at] = *slot;
      }
      if (round >= i && frames[at] < kFrames && together[at].end == EndReason::kNone) {
        steps.insert(round % 2 == 0 ? steps.begin() : steps.end(), {slots[at], TextOf(config, i, frames[at])});
        ++frames[at];
      }
    }
    if (steps.empty()) continue;
    ASSERT_TRUE(backend->Submit(steps).ok());
    auto results = backend->Collect();
    ASSERT_TRUE(results.ok());
    ASSERT_EQ(results->size(), steps.size());
    for (size_t s = 0; s < steps.size(); ++s) {
      ASSERT_EQ((*results)[s].slot, steps[s].slot);
      const auto at = std::find(slots.begin(), slots.end(), steps[s].slot) - slots.begin();
      together[static_cast<size_t>(at)].Append((*results)[s]);
    }
  }
  for (size_t i = 0; i < kSlots; ++i) {
    SCOPED_TRACE(i);
    EXPECT_FALSE(alone[i].codes.empty());
    ExpectSame(alone[i], together[i]);
  }
  EXPECT_EQ(alone[2].end, EndReason::kMaxDuration);
}

TEST(CpuBackendTest, SeedsAndThreads) {
  const Model model("tiny-custom-0b6");
  const auto checkpoint = model.Open();
  const ModelConfig& config = checkpoint->config();
  const auto two = MakeBackend(checkpoint, 2);
  const auto one = MakeBackend(checkpoint, 1);
  const Utterance first = Speak(two.get(), config, 0, GenerationSettings(), 1, 5);
  ExpectSame(first, Speak(two.get(), config, 0, GenerationSettings(), 1, 5));
  ExpectSame(first, Speak(one.get(), config, 0, GenerationSettings(), 1, 5));
  EXPECT_NE(first.codes, Speak(two.get(), config, 0, GenerationSettings(), 2, 5).codes);
}

// M sampled ids make M - 1 frames. The end of speech and the limit are different end reasons.
TEST(CpuBackendTest, MaxNewTokens) {
  const Model model("tiny-custom-0b6");
  const auto checkpoint = model.Open();
  const ModelConfig& config = checkpoint->config();
  const auto backend = MakeBackend(checkpoint);
  const auto groups = static_cast<size_t>(config.talker.num_code_groups);
  for (const int64_t limit : {2, 3, 7}) {
    GenerationSettings settings = Greedy();
    settings.max_new_tokens = limit;
    const Utterance utterance = Speak(backend.get(), config, 0, settings, 0, 20);
    EXPECT_EQ(utterance.end, EndReason::kMaxDuration);
    EXPECT_TRUE(utterance.status.ok());
    EXPECT_EQ(utterance.codes.size(), static_cast<size_t>(limit - 1) * groups);
    EXPECT_EQ(utterance.pcm.size(), static_cast<size_t>(limit - 1) * 1920);
  }
}

TEST(CpuBackendTest, EndOfSpeech) {
  const Model model("tiny-custom-0b6", 40);  // ends as early as allowed
  const auto checkpoint = model.Open();
  const ModelConfig& config = checkpoint->config();
  const auto backend = MakeBackend(checkpoint);
  for (const int64_t limit : {3, 100}) {
    // With limit 3 the third id is the last one allowed; it still counts as the end of speech.
    GenerationSettings settings = Greedy();
    settings.max_new_tokens = limit;
    const Utterance utterance = Speak(backend.get(), config, 0, settings, 0, 20);
    EXPECT_EQ(utterance.end, EndReason::kComplete);
    EXPECT_EQ(utterance.pcm.size(), 2U * 1920);
  }
}

TEST(CpuBackendTest, EndedSlotReportsItsEndAgain) {
  const Model model("tiny-custom-0b6");
  const auto checkpoint = model.Open();
  const auto backend = MakeBackend(checkpoint);
  GenerationSettings settings = Greedy();
  settings.max_new_tokens = 2;
  auto slot = backend->Open(MakePrompt(checkpoint->config()), settings, 0);
  ASSERT_TRUE(slot.ok());
  EXPECT_EQ(Step(backend.get(), *slot, kNoText).end, EndReason::kNone);
  for (int i = 0; i < 3; ++i) {
    const FrameResult result = Step(backend.get(), *slot, 1);
    EXPECT_EQ(result.end, EndReason::kMaxDuration);
    EXPECT_TRUE(result.codes.empty());
    EXPECT_TRUE(result.pcm.empty());
  }
}

// Frame 0 after reference codes has the same samples as after speaking these codes.
TEST(CpuBackendTest, ReferenceCodesPrimeTheCodec) {
  const Model model("tiny-base-0b6");
  const auto checkpoint = model.Open();
  const ModelConfig& config = checkpoint->config();
  const auto backend = MakeBackend(checkpoint);
  const auto groups = static_cast<size_t>(config.talker.num_code_groups);
  Prompt prompt = MakePrompt(config);
  for (size_t i = 0; i < 11 * groups; ++i) {
    prompt.reference_codes.push_back(static_cast<int32_t>(i * 5 % static_cast<size_t>(config.codec.codebook_size)));
  }
  auto slot = backend->Open(prompt, Greedy(), 0);
  ASSERT_TRUE(slot.ok()) << slot.status().message();
  Utterance utterance;
  for (int frame = 0; frame < 3; ++frame) utterance.Append(Step(backend.get(), *slot, TextOf(config, 0, frame)));

  std::vector<int32_t> all = prompt.reference_codes;
  all.insert(all.end(), utterance.codes.begin(), utterance.codes.end());
  const naive::Vector pcm = naive::Codec(config.codec, checkpoint->codec(), all);
  ASSERT_EQ(pcm.size(), 14U * 1920);
  for (size_t i = 0; i < utterance.pcm.size(); ++i) {
    ASSERT_NEAR(pcm[11 * 1920 + i], static_cast<double>(utterance.pcm[i]), 1e-5) << i;
  }
}

// Requests of every mode of a checkpoint of this type, each with two texts: the second one uses the cache entries of

// Check: 36
TEST(CpuBackendTest, SlotsAreBounded) {
  const Model model("tiny-custom-0b6");
  const auto checkpoint = model.Open();
  const auto backend = MakeBackend(checkpoint);
  ASSERT_EQ(backend->max_slots(), kDefaultVoices);
  std::vector<SlotId> slots;
  for (int i = 0; i < kDefaultVoices; ++i) {
    const auto slot = backend->Open(MakePrompt(checkpoint->config()), Greedy(), 0);
    ASSERT_TRUE(slot.ok());
    slots.push_back(*slot);
  }
  EXPECT_EQ(backend->Open(MakePrompt(checkpoint->config()), Greedy(), 0).status().code(),
            StatusCode::kResourceExhausted);
  backend->Close(slots.front());
  EXPECT_TRUE(backend->Open(MakePrompt(checkpoint->config()), Greedy(), 0).ok());
}

}  // namespace
}  // namespace qtts::cpu_backend
