// SPDX-License-Identifier: LGPL-2.1-or-later
#include "cpu/cpu_backend.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "golden/generator/random_checkpoint.h"
#include "naive.h"
#include "prompt/prompt.h"
#include "sampling/sampler.h"
#include "text/tokenizer.h"

namespace qtts {
namespace {

namespace fs = std::filesystem;

// A random checkpoint in a temporary folder.
class Model {
 public:
  explicit Model(const std::string& preset, double eos_logit = -20) {
    static int count = 0;
    folder_ =
        fs::temp_directory_path() / ("qtts-cpu-backend-" + std::to_string(std::hash<std::string>()(preset) % 10000) +
                                     "-" + std::to_string(::testing::UnitTest::GetInstance()->random_seed()) + "-" +
                                     std::to_string(getpid()) + "-" + std::to_string(++count));
    auto spec = golden::FindPreset(preset);
    EXPECT_TRUE(spec.ok()) << spec.status().message();
    spec->eos_logit = eos_logit;
    const Status status = golden::WriteRandomCheckpoint(folder_.string(), *spec);
    EXPECT_TRUE(status.ok()) << status.message();
  }
  ~Model() {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  std::shared_ptr<const Checkpoint> Open() const {
    auto checkpoint = Checkpoint::Open(folder_.string());
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    return *checkpoint;
  }

  // Changes talker_config.`key` in config.json.
  void SetTalkerKey(const std::string& key, int value) const {
    nlohmann::json config = nlohmann::json::parse(std::ifstream(folder_ / "config.json"));
    config["talker_config"][key] = value;
    std::ofstream(folder_ / "config.json") << config.dump();
  }

  // Overwrites a tensor of `file` with the bits of NaN, whatever its dtype.
  void Damage(const std::string& file, const std::string& tensor) const {
    std::fstream stream(folder_ / file, std::ios::in | std::ios::out | std::ios::binary);
    uint64_t header_size = 0;
    stream.read(reinterpret_cast<char*>(&header_size), sizeof(header_size));
    std::string header(header_size, ' ');
    stream.read(header.data(), static_cast<std::streamsize>(header_size));
    const nlohmann::json offsets = nlohmann::json::parse(header).at(tensor).at("data_offsets");
    const auto begin = offsets[0].get<uint64_t>();
    const std::string bits(offsets[1].get<uint64_t>() - begin, '\xff');
    stream.seekp(static_cast<std::streamoff>(8 + header_size + begin));
    stream.write(bits.data(), static_cast<std::streamsize>(bits.size()));
    ASSERT_TRUE(stream.good());
  }

 private:
  fs::path folder_;
};

std::unique_ptr<Backend> MakeBackend(const std::shared_ptr<const Checkpoint>& checkpoint, int threads = 2) {
  auto backend = CreateCpuBackend(checkpoint, threads);
  EXPECT_TRUE(backend.ok()) << backend.status().message();
  return *std::move(backend);
}

GenerationSettings Greedy() {
  GenerationSettings settings;
  settings.talker.do_sample = false;
  settings.predictor.do_sample = false;
  return settings;
}

// Rows of text and control codes, different for each `variant`.
Prompt MakePrompt(const ModelConfig& config, int variant = 0) {
  Prompt prompt;
  const TalkerConfig& talker = config.talker;
  const int rows = 8 + 3 * variant;
  for (int i = 0; i < rows; ++i) {
    PromptRow row;
    row.text_id = (7 * i + 31 * variant) % talker.text_vocab_size;
    if (i >= 3) row.codes = {i % 2 == 0 ? talker.codec_think_id : talker.codec_pad_id};
    prompt.rows.push_back(row);
  }
  prompt.rows.back().codes = {talker.codec_bos_id};
  prompt.pad_text_id = config.tts_pad_token_id;
  return prompt;
}

FrameResult Step(Backend* backend, SlotId slot, int32_t text_id) {
  const FrameStep step{slot, text_id};
  const Status status = backend->Submit({&step, 1});
  EXPECT_TRUE(status.ok()) << status.message();
  auto results = backend->Collect();
  EXPECT_TRUE(results.ok()) << results.status().message();
  EXPECT_EQ(results->size(), 1U);
  EXPECT_EQ(results->front().slot, slot);
  return results->front();
}

// Result of one utterance: its frames, and how it ended (kNone: not within `frames`).
struct Utterance {
  std::vector<int32_t> codes;
  std::vector<float> pcm;
  EndReason end = EndReason::kNone;
  Status status;

  void Append(const FrameResult& result) {
    codes.insert(codes.end(), result.codes.begin(), result.codes.end());
    pcm.insert(pcm.end(), result.pcm.begin(), result.pcm.end());
    end = result.end;
    status = result.status;
  }
};

int32_t TextOf(const ModelConfig& config, int variant, int frame) {
  if (frame == 0) return kNoText;
  return frame < 6 ? (frame * 13 + variant) % config.talker.text_vocab_size : config.tts_pad_token_id;
}

Utterance Speak(Backend* backend, const ModelConfig& config, int variant, const GenerationSettings& settings,
                uint64_t seed, int frames) {
  Utterance utterance;
  auto slot = backend->Open(MakePrompt(config, variant), settings, seed);
  EXPECT_TRUE(slot.ok()) << slot.status().message();
  for (int frame = 0; frame < frames && utterance.end == EndReason::kNone; ++frame) {
    utterance.Append(Step(backend, *slot, TextOf(config, variant, frame)));
  }
  backend->Close(*slot);
  return utterance;
}

void ExpectSame(const Utterance& a, const Utterance& b) {
  EXPECT_EQ(a.codes, b.codes);
  EXPECT_EQ(a.end, b.end);
  ASSERT_EQ(a.pcm.size(), b.pcm.size());
  EXPECT_EQ(0, memcmp(a.pcm.data(), b.pcm.data(), a.pcm.size() * sizeof(float)));
}

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
// the first.
std::vector<Request> RequestsOfEveryMode(const ModelConfig& config, std::mt19937* random) {
  const auto integer = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(*random); };
  std::vector<Request> requests;
  const auto both_layouts = [&](Request request) {
    for (const PromptLayout layout : {PromptLayout::kStreaming, PromptLayout::kNonStreaming}) {
      request.layout = layout;
      requests.push_back(request);
    }
  };
  Request request;
  if (config.type == ModelType::kBase) {
    for (const int frames : {0, 3, 70}) {
      ClonedVoice voice;
      for (int i = 0; i < config.talker.transformer.hidden_size; ++i) {
        voice.x_vector.push_back(static_cast<float>(integer(-1000, 1000)) / 500);
      }
      for (int i = 0; i < frames * config.talker.num_code_groups; ++i) voice.reference_codes.push_back(integer(0, 63));
      if (frames > 0) voice.reference_text = "reference " + std::to_string(integer(0, 1000000));
      request.voice = std::make_shared<const ClonedVoice>(voice);
      both_layouts(request);
      request.language = "german";
      both_layouts(request);
      request.language.clear();
    }
  } else {
    for (const auto& [name, id] : config.talker.speakers) {
      request.speaker = name;
      both_layouts(request);
    }
    request.instruct = "speak like " + std::to_string(integer(0, 1000000));
    both_layouts(request);
  }
  const size_t count = requests.size();
  for (Request& r : requests) r.text = "some text " + std::to_string(integer(0, 1000000));
  for (size_t i = 0; i < count; ++i) {
    requests.push_back(requests[i]);
    requests.back().text = "a longer text with the same voice " + std::to_string(integer(0, 1000000));
  }
  return requests;
}

// Cache entries of earlier utterances change no bit, in every mode, alone or side by side.
class CpuBackendCacheTest : public testing::TestWithParam<const char*> {};

TEST_P(CpuBackendCacheTest, EqualsABackendThatIsNew) {
  constexpr int kFrames = 2;
  const auto seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const Model model(GetParam());
  const auto checkpoint = model.Open();
  const ModelConfig& config = checkpoint->config();
  auto tokenizer = Tokenizer::Load(checkpoint->folder(), TokenizerPattern::kNative);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  const auto builder = PromptBuilder::Create(config, *tokenizer);
  ASSERT_TRUE(builder.ok()) << builder.status().message();

  const std::vector<Request> requests = RequestsOfEveryMode(config, &random);
  std::vector<Prompt> prompts;
  std::vector<Utterance> expected;
  const auto run = [&](Backend* backend, const std::vector<size_t>& which) {
    std::vector<SlotId> slots;
    for (const size_t i : which) {
      auto slot = backend->Open(prompts[i], GenerationSettings(), i);
      EXPECT_TRUE(slot.ok()) << slot.status().message();
      slots.push_back(*slot);
    }
    std::vector<Utterance> utterances(which.size());
    for (int frame = 0; frame < kFrames; ++frame) {
      std::vector<FrameStep> steps;
      for (const SlotId slot : slots) steps.push_back({slot, frame == 0 ? kNoText : config.tts_pad_token_id});
      EXPECT_TRUE(backend->Submit(steps).ok());
      const auto results = backend->Collect();
      EXPECT_TRUE(results.ok());
      for (size_t i = 0; i < which.size(); ++i) utterances[i].Append((*results)[i]);
    }
    for (const SlotId slot : slots) backend->Close(slot);
    return utterances;
  };
  for (size_t i = 0; i < requests.size(); ++i) {
    const auto ids = (*tokenizer)->EncodePlain("assistant\n" + requests[i].text);
    ASSERT_TRUE(ids.ok());
    auto prompt = builder->Build(requests[i], *ids, true);
    ASSERT_TRUE(prompt.ok()) << prompt.status().message();
    ASSERT_GT(prompt->constant_rows, 3U);
    prompts.push_back(*std::move(prompt));
    expected.push_back(run(MakeBackend(checkpoint).get(), {i})[0]);
    ASSERT_FALSE(expected.back().codes.empty());
  }
  const auto backend = MakeBackend(checkpoint);
  std::vector<size_t> order(requests.size());
  std::iota(order.begin(), order.end(), 0);
  for (size_t together = 1; together <= 3; ++together) {
    std::shuffle(order.begin(), order.end(), random);
    for (size_t begin = 0; begin < order.size(); begin += together) {
      const std::vector<size_t> which(order.begin() + static_cast<ptrdiff_t>(begin),
                                      order.begin() + static_cast<ptrdiff_t>(std::min(begin + together, order.size())));
      const std::vector<Utterance> utterances = run(backend.get(), which);
      for (size_t i = 0; i < which.size(); ++i) {
        SCOPED_TRACE(which[i]);
        ExpectSame(utterances[i], expected[which[i]]);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Presets, CpuBackendCacheTest,
                         testing::Values("tiny-base-1b7", "tiny-custom-1b7", "tiny-design-1b7"),
                         [](const auto& preset) {
                           std::string name = preset.param;
                           std::erase(name, '-');
                           return name;
                         });

// Random rows of every kind and, for a Base model, a reference.
Prompt RandomPrompt(const ModelConfig& config, int rows, int frames, std::mt19937* random) {
  const auto below = [&](int limit) { return std::uniform_int_distribution<int>(0, limit - 1)(*random); };
  Prompt prompt;
  for (int i = 0; i < rows; ++i) {
    PromptRow row;
    row.text_id = below(config.talker.text_vocab_size);
    if (below(3) == 0) row.codes = {below(config.talker.vocab_size)};
    prompt.rows.push_back(row);
  }
  prompt.constant_rows = static_cast<size_t>(below(rows));
  prompt.pad_text_id = config.tts_pad_token_id;
  for (int i = 0; i < frames * config.talker.num_code_groups; ++i) {
    prompt.reference_codes.push_back(below(config.codec.codebook_size));
  }
  return prompt;
}

// In any interleaving of the pieces of several prompts with frames of others, each utterance has the same bits as in a
// backend of its own that runs the prompt in one piece.
TEST(CpuBackendPiecesTest, EqualTheWholePromptInAnyOrder) {
  constexpr int kFrames = 4;
  const auto seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const Model model("tiny-base-0b6");
  const auto checkpoint = model.Open();
  const ModelConfig& config = checkpoint->config();
  struct Speaker {
    Prompt prompt;
    Utterance expected, got;
    SlotId slot = 0;
    int pieces = 0;
    bool prefilled = false;
    int frames = 0;
  };
  std::vector<Speaker> speakers(6);
  for (size_t i = 0; i < speakers.size(); ++i) {
    Speaker& speaker = speakers[i];
    speaker.prompt = RandomPrompt(config, static_cast<int>(20 + random() % 400),
                                  i % 2 == 0 ? 0 : static_cast<int>(10 + random() % 120), &random);
    // Two that share the cached prefix of a voice, side by side.
    if (i == 5) speaker.prompt = speakers[3].prompt;
    const auto alone = MakeBackend(checkpoint);
    const auto slot = alone->Open(speaker.prompt, GenerationSettings(), i);
    ASSERT_TRUE(slot.ok()) << slot.status().message();
    for (int f = 0; f < kFrames; ++f) speaker.expected.Append(Step(alone.get(), *slot, TextOf(config, 0, f)));
  }
  const auto backend = MakeBackend(checkpoint);
  for (size_t i = 0; i < speakers.size(); ++i) {
    const auto slot = backend->Open(speakers[i].prompt, GenerationSettings(), i);
    ASSERT_TRUE(slot.ok()) << slot.status().message();
    speakers[i].slot = *slot;
  }
  size_t done = 0;
  while (done < speakers.size()) {
    Speaker& speaker = speakers[random() % speakers.size()];
    if (!speaker.prefilled) {
      const auto progress = backend->Prefill(speaker.slot);
      ASSERT_TRUE(progress.ok()) << progress.status().message();
      EXPECT_GT(progress->work, 0);
      speaker.prefilled = progress->done;
      ++speaker.pieces;
    } else if (speaker.frames < kFrames) {
      speaker.got.Append(Step(backend.get(), speaker.slot, TextOf(config, 0, speaker.frames)));
      if (++speaker.frames == kFrames) ++done;
    }
  }
  for (const Speaker& speaker : speakers) {
    SCOPED_TRACE(std::to_string(speaker.prompt.rows.size()) + " rows, " + std::to_string(speaker.pieces) + " pieces");
    ExpectSame(speaker.expected, speaker.got);
  }
}

TEST(CpuBackendPiecesTest, AreAboutAFramesWork) {
  std::mt19937 random(1);
  const Model model("tiny-base-0b6");
  const auto checkpoint = model.Open();
  const auto backend = MakeBackend(checkpoint);
  const auto slot = backend->Open(RandomPrompt(checkpoint->config(), 3000, 300, &random), Greedy(), 0);
  ASSERT_TRUE(slot.ok()) << slot.status().message();
  double work = 0;
  int pieces = 0;
  for (bool done = false; !done; ++pieces) {
    const auto progress = backend->Prefill(*slot);
    ASSERT_TRUE(progress.ok()) << progress.status().message();
    EXPECT_LE(progress->work, 1.5);
    work += progress->work;
    done = progress->done;
  }
  EXPECT_GT(pieces, 50);
  EXPECT_GT(work, pieces / 2.0);
  const auto again = backend->Prefill(*slot);
  EXPECT_TRUE(again.ok() && again->done && again->work == 0);
  EXPECT_EQ(Step(backend.get(), *slot, kNoText).end, EndReason::kNone);
  backend->Close(*slot);
  EXPECT_EQ(backend->Prefill(*slot).status().code(), StatusCode::kInvalidArgument);
}

// A slot that is closed within its prompt leaves no partial cache entry: the next utterance of the voice is right.
TEST(CpuBackendPiecesTest, ClosedInMidPrompt) {
  std::mt19937 random(std::random_device{}());
  const Model model("tiny-base-0b6");
  const auto checkpoint = model.Open();
  const Prompt prompt = RandomPrompt(checkpoint->config(), 200, 60, &random);
  const auto speak = [&](Backend* backend) {
    const auto slot = backend->Open(prompt, GenerationSettings(), 3);
    EXPECT_TRUE(slot.ok()) << slot.status().message();
    Utterance utterance;
    for (int frame = 0; frame < 3; ++frame) {
      utterance.Append(Step(backend, *slot, TextOf(checkpoint->config(), 0, frame)));
    }
    return utterance;
  };
  const Utterance expected = speak(MakeBackend(checkpoint).get());
  const auto backend = MakeBackend(checkpoint);
  for (int pieces = 1;; ++pieces) {
    const auto slot = backend->Open(prompt, GenerationSettings(), 3);
    ASSERT_TRUE(slot.ok());
    bool done = false;
    for (int i = 0; i < pieces && !done; ++i) {
      const auto progress = backend->Prefill(*slot);
      ASSERT_TRUE(progress.ok());
      done = progress->done;
    }
    backend->Close(*slot);
    if (done) break;
  }
  ExpectSame(expected, speak(backend.get()));
}

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
}  // namespace qtts
