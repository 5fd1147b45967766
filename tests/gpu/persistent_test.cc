// SPDX-License-Identifier: LGPL-2.1-or-later
#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <random>

#include "cuda_backend.h"
#include "gpu/device.h"
#include "gpu/gpu_test.h"
#include "language_model.h"

// The persistent kernel against the graph path, which the other tests compare with the CPU.
namespace qtts {
namespace {

using cuda::CudaOptions;
using cuda::DeviceMemory;
using cuda::FramePath;
using cuda::FrameRow;
using cuda::FrameRowResult;
using cuda::FrameStart;
using cuda::Graph;
using cuda::kMaxRows;
using cuda::kRing;
using cuda::LanguageModel;
using cuda::PersistentFrame;
using cuda::PinnedMemory;
using cuda::RowKind;
using cuda::Stream;
using testing::FullWidth;
using testing::Greedy;
using testing::Preset;
using testing::RandomModel;
using testing::RandomPrompt;
using testing::WindowOf;

// A talker, frame by frame.
class Talker {
 public:
  Talker(const RandomModel& model, FramePath path, unsigned patience = PersistentFrame::kPatience,
         std::optional<int> blocks = std::nullopt) {
    CudaOptions options;
    options.path = path;
    options.patience = patience;
    options.persistent_blocks = blocks;
    auto stream = Stream::Create();
    EXPECT_TRUE(stream.ok());
    stream_ = std::move(*stream);
    auto created = LanguageModel::Create(*model.checkpoint(), options, stream_.get());
    EXPECT_TRUE(created.ok()) << created.status().message();
    if (created.ok()) model_ = std::move(*created);
    auto steps = PinnedMemory::AllocateZeroed(size_t{kRing} * kMaxRows * sizeof(FrameRow));
    auto results = PinnedMemory::AllocateZeroed(size_t{kRing} * kMaxRows * sizeof(FrameRowResult));
    EXPECT_TRUE(steps.ok() && results.ok());
    steps_ = std::move(*steps);
    results_ = std::move(*results);
  }

  LanguageModel* model() const { return model_.get(); }

  void Open(int slot, const Prompt& prompt, const GenerationSettings& settings, uint64_t seed) {
    const auto start = model_->Begin(slot, prompt, settings, seed);
    ASSERT_TRUE(start.ok()) << start.status().message();
    EXPECT_EQ(*start, FrameStart::kPrompt);
  }

  // Runs a frame of the rows' slots, which must fill a row bucket: the first frame of all slots, or of none.
  std::vector<FrameRowResult> Frame(const std::vector<FrameRow>& rows, int64_t positions) {
    const size_t entry = frame_++ % kRing * kMaxRows;
    std::copy(rows.begin(), rows.end(), steps_.as<FrameRow>() + entry);
    const FrameStart start = rows[0].kind == RowKind::kFirst ? FrameStart::kPrompt : FrameStart::kInput;
    const int splits = start == FrameStart::kPrompt ? 1 : model_->graph().SplitBucket(positions);
    for (const FrameRow& row : rows) {
      if (row.slot >= 0) {
        EXPECT_TRUE(model_->sequences().Extend(row.slot, positions).ok());
      }
    }
    const Status status = model_->EnqueueFrame(start, static_cast<int>(rows.size()), splits,
                                               steps_.as<const FrameRow>(), results_.as<FrameRowResult>());
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_TRUE(stream_.Synchronize().ok());
    const FrameRowResult* const first = results_.as<const FrameRowResult>() + entry;
    return {first, first + rows.size()};
  }

  std::vector<float> Logits(int group, int rows) const {
    std::vector<float> logits(static_cast<size_t>(rows) * static_cast<size_t>(model_->network().head(group).outputs));
    EXPECT_EQ(cudaMemcpy(logits.data(), model_->buffers().logits(model_->network(), group, kMaxRows),
                         logits.size() * sizeof(float), cudaMemcpyDeviceToHost),
              cudaSuccess);
    return logits;
  }

 private:
  Stream stream_;
  std::unique_ptr<LanguageModel> model_;
  PinnedMemory steps_, results_;
  size_t frame_ = 0;
};

// Returns the row of `slot` in its frame number `frame`; below 0: an idle one.
FrameRow RowOf(int slot, int frame, int text_id, const TextWindow& window = {}) {
  if (slot < 0) return {};
  return {frame == 0 ? RowKind::kFirst : RowKind::kNext, slot, text_id, window};
}

// Makes rows that are not idle those of a later frame.
void GoOn(std::vector<FrameRow>* rows, int text_id) {
  for (FrameRow& row : *rows) {
    if (row.kind == RowKind::kIdle) continue;
    row.kind = RowKind::kNext;
    row.text_id = text_id;
  }
}

// Scores of two rows, bit for bit.
void ExpectSameScores(const TextWindow& window, const FrameRowResult& got, const FrameRowResult& expected) {
  if (!window.wanted()) return;
  const cuda::RowTextScores& a = got.text;
  const cuda::RowTextScores& b = expected.text;
  ASSERT_EQ(a.count, b.count);
  if (a.count == 0) return;
  EXPECT_EQ(std::memcmp(a.scores, b.scores, static_cast<size_t>(a.count) * sizeof(float)), 0);
  EXPECT_EQ(a.log_sum, b.log_sum);
  EXPECT_EQ(a.mass, b.mass);
  EXPECT_GT(a.mass, 0);
  EXPECT_LE(a.mass, 1);
}

std::vector<int> Codes(const FrameRowResult& result, int groups) { return {result.codes, result.codes + groups}; }

// Whether the kernel has a form for so many rows on this card.
bool HasForm(bool large, int rows) {
  return PersistentFrame::FormOf(large ? 2048 : 1024, rows, testing::Device()).blocks > 0;
}

#define QTTS_NEEDS_FORM(large, rows)                                                                    \
  if (!HasForm(large, rows))                                                                            \
  GTEST_SKIP() << ::testing::PrintToString(::qtts::testing::Device().shared_per_block)                  \
               << " bytes of shared memory are too few for " << (rows) << " rows of a talker of width " \
               << ((large) ? 2048 : 1024)

struct Case {
  const char* name;
  bool large;
  int rows;
  int live;  // other rows take part in no frame
};

class PersistentFrames : public ::testing::TestWithParam<Case> {};

// One frame on both paths: codes and all logits, bit for bit. A row that ends has only the talker's.
void ExpectSameFrame(Talker* graph, Talker* persistent, const ModelConfig& config, const std::vector<FrameRow>& steps,
                     int64_t positions, std::vector<FrameRowResult>* results = nullptr) {
  const auto rows = static_cast<int>(steps.size());
  ASSERT_TRUE(persistent->model()->IsPersistent(rows, persistent->model()->graph().SplitBucket(positions)));
  const std::vector<FrameRowResult> expected = graph->Frame(steps, positions);
  const std::vector<FrameRowResult> got = persistent->Frame(steps, positions);
  ASSERT_TRUE(persistent->model()->Health().ok());
  for (int group = 0; group < config.talker.num_code_groups; ++group) {
    const std::vector<float> a = graph->Logits(group, rows);
    const std::vector<float> b = persistent->Logits(group, rows);
    const size_t vocab = a.size() / static_cast<size_t>(rows);
    for (int row = 0; row < rows; ++row) {
      if (steps[static_cast<size_t>(row)].slot < 0) continue;
      if (group > 0 && expected[static_cast<size_t>(row)].end != EndReason::kNone) continue;
      const size_t at = static_cast<size_t>(row) * vocab;
      if (std::memcmp(&a[at], &b[at], vocab * sizeof(float)) == 0) continue;
      double difference = 0, size = 0;
      size_t unequal = 0;
      for (size_t i = at; i < at + vocab; ++i) {
        difference += std::pow(static_cast<double>(a[i]) - b[i], 2);
        size += std::pow(static_cast<double>(a[i]), 2);
        unequal += a[i] != b[i] ? 1 : 0;
      }
      ADD_FAILURE() << "row " << row << ", group " << group << ": " << unequal << " of " << vocab
                    << " logits differ, relative error " << std::sqrt(difference / size) << "; first " << a[at]
                    << " and " << b[at];
    }
  }
  for (size_t row = 0; row < got.size(); ++row) {
    if (steps[row].slot < 0) continue;
    ASSERT_EQ(got[row].end, expected[row].end) << "row " << row;
    if (got[row].end != EndReason::kNone) continue;
    ASSERT_EQ(Codes(got[row], config.talker.num_code_groups), Codes(expected[row], config.talker.num_code_groups))
        << "row " << row;
    ExpectSameScores(steps[row].window, got[row], expected[row]);
  }
  if (results != nullptr) *results = got;
}

// Frames across pages and splits, with rows that skip steps.
TEST_P(PersistentFrames, AreTheGraphs) {
  QTTS_NEEDS_DEVICE();
  QTTS_NEEDS_PERSISTENT_KERNEL();
  QTTS_NEEDS_FORM(GetParam().large, GetParam().rows);
  const RandomModel model(FullWidth(GetParam().large));
  const ModelConfig& config = model.checkpoint()->config();
  Talker graph(model, FramePath::kGraph);
  Talker persistent(model, FramePath::kPersistent);
  ASSERT_TRUE(graph.model() != nullptr && persistent.model() != nullptr);
  const int rows = GetParam().rows;
  const int live = GetParam().live;
  std::mt19937 random(static_cast<unsigned>(rows));
  for (int slot = 0; slot < live; ++slot) {
    const Prompt prompt = RandomPrompt(config, 3 + slot * 29 % 150, random);
    GenerationSettings settings = slot == 1 ? Greedy() : GenerationSettings();
    if (slot == 2) settings.predictor.top_p = 0.8F;
    if (slot == 3) settings.talker.top_k = 0;
    for (Talker* const talker : {&graph, &persistent}) talker->Open(slot, prompt, settings, 100U + slot);
  }
  constexpr int kFrames = 220;
  for (int frame = 0; frame < kFrames; ++frame) {
    std::vector<FrameRow> steps;
    for (int slot = 0; slot < rows; ++slot) {
      const bool left_out = slot >= live || (rows > 1 && frame > 0 && (frame + slot) % 11 == 0);
      steps.push_back(RowOf(left_out ? -1 : slot, frame, (frame * 7 + slot) % config.talker.text_vocab_size,
                            WindowOf(3 + slot * 29 % 150, frame)));
    }
    SCOPED_TRACE("frame " + std::to_string(frame));
    ExpectSameFrame(&graph, &persistent, config, steps, frame + 160);
    if (HasFailure()) return;
  }
}

// As on cards with fewer SMs: blocks with more tiles, and some with one more than others, with one split and with many,
// in every number of rows.
TEST(PersistentFrame, AnyNumberOfBlocksIsTheGraphs) {
  QTTS_NEEDS_DEVICE();
  QTTS_NEEDS_PERSISTENT_KERNEL();
  for (const bool large : {false, true}) {
    const RandomModel model(FullWidth(large));
    const ModelConfig& config = model.checkpoint()->config();
    Talker graph(model, FramePath::kGraph);
    for (const int blocks : {16, 28, 46, 77, 103, 128}) {
      if (blocks > testing::Device().processors) continue;
      Talker persistent(model, FramePath::kPersistent, PersistentFrame::kPatience, blocks);
      ASSERT_TRUE(graph.model() != nullptr && persistent.model() != nullptr);
      for (const int rows : {1, 2, 4, 8}) {
        if (!persistent.model()->IsPersistent(rows, 1)) continue;
        std::mt19937 random(static_cast<unsigned>(blocks + rows));
        std::vector<FrameRow> steps;
        int most = 0;
        for (int slot = 0; slot < rows; ++slot) {
          const int length = slot % 2 == 0 ? 20 + 17 * slot : 400;
          most = std::max(most, length);
          const Prompt prompt = RandomPrompt(config, length, random);
          for (Talker* const talker : {&graph, &persistent}) {
            talker->Open(slot, prompt, GenerationSettings(), 70U + slot);
          }
          steps.push_back(RowOf(slot, 0, 0, WindowOf(length, 3)));
        }
        for (int frame = 0; frame < 60; ++frame) {
          SCOPED_TRACE(std::to_string(blocks) + " blocks, " + std::to_string(rows) + " rows, large " +
                       std::to_string(large) + ", frame " + std::to_string(frame));
          ExpectSameFrame(&graph, &persistent, config, steps, most + frame + 2);
          if (HasFailure()) return;
          GoOn(&steps, frame);
        }
        for (const FrameRow& step : steps) {
          for (Talker* const talker : {&graph, &persistent}) talker->model()->sequences().Close(step.slot);
        }
      }
    }
  }
}

// Random prompts, settings and texts, new in each run: the paths share cuda/rules.
TEST(PersistentFrame, FreshInputsAreTheGraphs) {
  QTTS_NEEDS_DEVICE();
  QTTS_NEEDS_PERSISTENT_KERNEL();
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const bool large = random() % 2 == 0;
  const RandomModel model(FullWidth(large));
  const ModelConfig& config = model.checkpoint()->config();
  Talker graph(model, FramePath::kGraph);
  Talker persistent(model, FramePath::kPersistent);
  ASSERT_TRUE(graph.model() != nullptr && persistent.model() != nullptr);
  int rows = 1 << random() % 4;
  while (!HasForm(large, rows)) rows /= 2;
  int64_t longest = 0;
  std::vector<int> lengths;
  const auto settings_of = [&](TokenSampling* sampling) {
    sampling->do_sample = random() % 4 != 0;
    sampling->temperature = 0.3F + static_cast<float>(random() % 100) / 50;
    sampling->top_k = random() % 3 == 0 ? 0 : static_cast<int>(random() % 300);
    sampling->top_p = random() % 2 == 0 ? 1.0F : 0.3F + static_cast<float>(random() % 70) / 100;
  };
  for (int slot = 0; slot < rows; ++slot) {
    const int length = 3 + static_cast<int>(random() % 400);
    longest = std::max<int64_t>(longest, length);
    lengths.push_back(length);
    const Prompt prompt = RandomPrompt(config, length, random);
    GenerationSettings settings;
    settings_of(&settings.talker);
    settings_of(&settings.predictor);
    settings.repetition_penalty = 0.8F + static_cast<float>(random() % 60) / 100;
    for (Talker* const talker : {&graph, &persistent}) talker->Open(slot, prompt, settings, seed + slot);
  }
  std::vector<bool> ended(static_cast<size_t>(rows));
  for (int frame = 0; frame < 60; ++frame) {
    std::vector<FrameRow> steps;
    for (int slot = 0; slot < rows; ++slot) {
      const bool left_out = ended[static_cast<size_t>(slot)] || (rows > 1 && frame > 0 && random() % 9 == 0);
      const auto text = static_cast<int>(random() % static_cast<unsigned>(config.talker.text_vocab_size));
      steps.push_back(RowOf(left_out ? -1 : slot, frame, text, WindowOf(lengths[static_cast<size_t>(slot)], frame)));
    }
    SCOPED_TRACE("frame " + std::to_string(frame));
    std::vector<FrameRowResult> results;
    ExpectSameFrame(&graph, &persistent, config, steps, longest + frame + 1, &results);
    if (HasFailure()) return;
    for (size_t row = 0; row < steps.size(); ++row) {
      if (steps[row].slot >= 0 && results[row].end != EndReason::kNone) ended[row] = true;
    }
  }
}

// Every part of the kernel, and cluster kernels of prompts, with minimal work for compute-sanitizer. Two layers,
// because the last layer of a prompt has few rows. Under the tool some waits become slower than the work that they wait
// for.
TEST_P(PersistentFrames, SmallForTheSanitizer) {
  QTTS_NEEDS_DEVICE();
  QTTS_NEEDS_PERSISTENT_KERNEL();
  QTTS_NEEDS_FORM(GetParam().large, GetParam().rows);
  golden::RandomCheckpointSpec spec = FullWidth(GetParam().large);
  spec.predictor.num_hidden_layers = 1;
  spec.num_code_groups = 3;
  spec.codebook_size = 64;
  const RandomModel model(spec);
  const ModelConfig& config = model.checkpoint()->config();
  Talker graph(model, FramePath::kGraph);
  Talker persistent(model, FramePath::kPersistent, 16 * PersistentFrame::kPatience);
  ASSERT_TRUE(graph.model() != nullptr && persistent.model() != nullptr);
  std::mt19937 random(8);
  std::vector<FrameRow> steps;
  for (int slot = 0; slot < GetParam().rows; ++slot) {
    if (slot >= GetParam().live) {
      steps.emplace_back();
      continue;
    }
    // The second prompt has pieces of 40 rows, which use other products than 8 rows, and reach a second split.
    const int length = slot == 1 ? 80 : 10;
    const Prompt prompt = RandomPrompt(config, length, random);
    for (Talker* const talker : {&graph, &persistent}) talker->Open(slot, prompt, GenerationSettings(), 20U + slot);
    steps.push_back(RowOf(slot, 0, 0, WindowOf(length, slot)));
  }
  for (int frame = 0; frame < 2; ++frame) {
    SCOPED_TRACE("frame " + std::to_string(frame));
    ExpectSameFrame(&graph, &persistent, config, steps, 82 + frame);
    if (HasFailure()) return;
    GoOn(&steps, frame);
  }
}

INSTANTIATE_TEST_SUITE_P(Rows, PersistentFrames,
                         ::testing::Values(Case{"one", false, 1, 1}, Case{"one_projected", true, 1, 1},
                                           Case{"two", true, 2, 2}, Case{"four", false, 4, 4},
                                           Case{"four_projected", true, 4, 4}, Case{"five_of_eight", false, 8, 5},
                                           Case{"six_of_eight_projected", true, 8, 6},
                                           Case{"seven_of_eight", false, 8, 7}, Case{"eight", false, 8, 8},
                                           Case{"eight_projected", true, 8, 8}),
                         [](const auto& test) { return test.param.name; });

// More splits than thread blocks, than a block combines in one step, and than a warp combines in one step; short rows
// beside long ones. Frames cross into a new split.
TEST(PersistentFrame, LongContextsAreTheGraphs) {
  QTTS_NEEDS_DEVICE();
  QTTS_NEEDS_PERSISTENT_KERNEL();
  const RandomModel model(FullWidth(false));
  const ModelConfig& config = model.checkpoint()->config();
  Talker graph(model, FramePath::kGraph);
  Talker persistent(model, FramePath::kPersistent);
  ASSERT_TRUE(graph.model() != nullptr && persistent.model() != nullptr);
  std::mt19937 random(6);
  const std::vector<std::vector<int>> cases = {
      {509}, {573}, {1021}, {2301}, {5000}, {1500, 3}, {130, 1149, 20, 700}, {130, 1149, 20, 700, 62, 2301, 3, 509}};
  for (const std::vector<int>& lengths : cases) {
    std::vector<FrameRow> steps;
    for (size_t slot = 0; slot < lengths.size(); ++slot) {
      const Prompt prompt = RandomPrompt(config, lengths[slot], random);
      for (Talker* const talker : {&graph, &persistent}) {
        talker->Open(static_cast<int>(slot), prompt, GenerationSettings(), slot);
      }
      steps.push_back(RowOf(static_cast<int>(slot), 0, 0, WindowOf(lengths[slot], 5)));
    }
    const int most = *std::max_element(lengths.begin(), lengths.end());
    for (int frame = 0; frame < 8; ++frame) {
      SCOPED_TRACE("of " + std::to_string(most) + " positions, frame " + std::to_string(frame));
      ExpectSameFrame(&graph, &persistent, config, steps, most + frame + 2);
      if (HasFailure()) return;
      GoOn(&steps, frame);
    }
    for (const FrameRow& step : steps) {
      for (Talker* const talker : {&graph, &persistent}) talker->model()->sequences().Close(step.slot);
    }
  }
}

// Sampling among more candidates than fit into shared memory.
TEST(PersistentFrame, ManyCandidatesAreTheGraphs) {
  QTTS_NEEDS_DEVICE();
  QTTS_NEEDS_PERSISTENT_KERNEL();
  golden::RandomCheckpointSpec spec = FullWidth(false);
  spec.codebook_size = 2048;
  const RandomModel model(spec);
  const ModelConfig& config = model.checkpoint()->config();
  Talker graph(model, FramePath::kGraph);
  Talker persistent(model, FramePath::kPersistent);
  ASSERT_TRUE(graph.model() != nullptr && persistent.model() != nullptr);
  std::mt19937 random(7);
  for (const int rows : {4, 8}) {
    std::vector<FrameRow> steps;
    for (int slot = 0; slot < rows; ++slot) {
      const Prompt prompt = RandomPrompt(config, 10, random);
      GenerationSettings settings;
      settings.talker.top_k = settings.predictor.top_k = slot % 2 == 0 ? 0 : slot == 1 ? 1500 : 300;
      if (slot >= 2) settings.talker.top_p = settings.predictor.top_p = 0.9F;
      for (Talker* const talker : {&graph, &persistent}) talker->Open(slot, prompt, settings, 50U + slot);
      steps.push_back(RowOf(slot, 0, 0));
    }
    for (int frame = 0; frame < 20; ++frame) {
      SCOPED_TRACE("of " + std::to_string(rows) + " rows, frame " + std::to_string(frame));
      ExpectSameFrame(&graph, &persistent, config, steps, frame + 12);
      if (HasFailure()) return;
      GoOn(&steps, frame);
    }
    for (const FrameRow& step : steps) {
      for (Talker* const talker : {&graph, &persistent}) talker->model()->sequences().Close(step.slot);
    }
  }
}

// Ends of speech, of all rows at once and one after another.
TEST(PersistentFrame, EndsLikeTheGraph) {
  QTTS_NEEDS_DEVICE();
  QTTS_NEEDS_PERSISTENT_KERNEL();
  golden::RandomCheckpointSpec spec = FullWidth(false);
  spec.eos_logit = 8;
  const RandomModel model(spec);
  const int groups = model.checkpoint()->config().talker.num_code_groups;
  Talker graph(model, FramePath::kGraph);
  Talker persistent(model, FramePath::kPersistent);
  ASSERT_TRUE(graph.model() != nullptr && persistent.model() != nullptr);
  std::mt19937 random(3);
  int ended = 0;
  for (int round = 0; round < 6; ++round) {
    const int rows = round % 3 == 0 ? 1 : round % 3 == 1 ? 4 : 8;
    for (int slot = 0; slot < rows; ++slot) {
      const Prompt prompt = RandomPrompt(model.checkpoint()->config(), 10, random);
      GenerationSettings settings;
      if (slot == 3) settings.max_new_tokens = 5;
      for (Talker* const talker : {&graph, &persistent}) talker->Open(slot, prompt, settings, 10U * round + slot);
    }
    for (int frame = 0; frame < 40; ++frame) {
      std::vector<FrameRow> steps;
      for (int slot = 0; slot < rows; ++slot) steps.push_back(RowOf(slot, frame, slot));
      const std::vector<FrameRowResult> expected = graph.Frame(steps, frame + 10);
      const std::vector<FrameRowResult> got = persistent.Frame(steps, frame + 10);
      for (size_t row = 0; row < got.size(); ++row) {
        ASSERT_EQ(got[row].end, expected[row].end) << "round " << round << ", frame " << frame << ", row " << row;
        if (got[row].end == EndReason::kNone) {
          ASSERT_EQ(Codes(got[row], groups), Codes(expected[row], groups));
        } else {
          ++ended;
        }
      }
    }
    for (int slot = 0; slot < rows; ++slot) {
      for (Talker* const talker : {&graph, &persistent}) talker->model()->sequences().Close(slot);
    }
  }
  EXPECT_GT(ended, 0);
}

// The same rows alone and together.
TEST(PersistentFrame, NeighboursDoNotMatter) {
  QTTS_NEEDS_DEVICE();
  QTTS_NEEDS_PERSISTENT_KERNEL();
  const RandomModel model(FullWidth(true));
  const ModelConfig& config = model.checkpoint()->config();
  Talker talker(model, FramePath::kPersistent);
  ASSERT_TRUE(talker.model() != nullptr);
  std::vector<Prompt> prompts;
  std::mt19937 random(4);
  for (int i = 0; i < 8; ++i) prompts.push_back(RandomPrompt(config, 3 + 21 * i, random));
  std::vector<std::vector<FrameRowResult>> alone;
  for (const int rows : {1, 2, 4, 8}) {
    for (int first = 0; first < 8; first += rows) {
      for (int i = 0; i < rows; ++i) {
        const auto index = static_cast<size_t>(first + i);
        talker.Open(i, prompts[index], GenerationSettings(), index);
        if (rows == 1) alone.emplace_back();
      }
      for (int frame = 0; frame < 12; ++frame) {
        std::vector<FrameRow> steps;
        for (int i = 0; i < rows; ++i) {
          steps.push_back(RowOf(i, frame, first + i, WindowOf(3 + 21 * (first + i), frame)));
        }
        const std::vector<FrameRowResult> got = talker.Frame(steps, 170 + frame);
        for (int i = 0; i < rows; ++i) {
          const auto index = static_cast<size_t>(first + i);
          const FrameRowResult& result = got[static_cast<size_t>(i)];
          if (rows == 1) {
            alone[index].push_back(result);
            continue;
          }
          SCOPED_TRACE("of " + std::to_string(rows) + ", utterance " + std::to_string(index));
          const FrameRowResult& expected = alone[index][static_cast<size_t>(frame)];
          ASSERT_EQ(Codes(result, config.talker.num_code_groups), Codes(expected, config.talker.num_code_groups));
          ExpectSameScores(steps[static_cast<size_t>(i)].window, result, expected);
        }
      }
      for (int i = 0; i < rows; ++i) talker.model()->sequences().Close(i);
    }
  }
}

TEST(PersistentFrame, SameSeedSameCodes) {
  QTTS_NEEDS_DEVICE();
  QTTS_NEEDS_PERSISTENT_KERNEL();
  const RandomModel model(FullWidth(false));
  const ModelConfig& config = model.checkpoint()->config();
  Talker talker(model, FramePath::kPersistent);
  ASSERT_TRUE(talker.model() != nullptr);
  std::mt19937 random(5);
  const Prompt prompt = RandomPrompt(config, 60, random);
  std::vector<std::vector<int>> first;
  for (int run = 0; run <= 100; ++run) {
    talker.Open(0, prompt, GenerationSettings(), 42);
    std::vector<std::vector<int>> codes;
    for (int frame = 0; frame < 15; ++frame) {
      codes.push_back(Codes(talker.Frame({RowOf(0, frame, frame)}, 60 + frame)[0], config.talker.num_code_groups));
    }
    talker.model()->sequences().Close(0);
    if (run == 0) first = codes;
    ASSERT_EQ(codes, first) << "run " << run;
  }
}

// A wait beyond its limit is an error, and the next start works.
TEST(PersistentFrame, GivesUpInsteadOfHanging) {
  QTTS_NEEDS_DEVICE();
  QTTS_NEEDS_PERSISTENT_KERNEL();
  const RandomModel model(FullWidth(false));
  cuda::CudaOptions options;
  options.path = FramePath::kPersistent;
  options.patience = 1;
  const auto impatient = cuda::CudaBackend::Create(model.checkpoint(), options);
  ASSERT_FALSE(impatient.ok());
  EXPECT_EQ(impatient.status().code(), StatusCode::kDeviceUnavailable) << impatient.status().message();
  options.patience = cuda::PersistentFrame::kPatience;
  EXPECT_TRUE(cuda::CudaBackend::Create(model.checkpoint(), options).ok());
}

// Rows that an SM's shared memory is too small for take the graph path, and only they.
TEST(PersistentFrame, LeavesRowsThatDoNotFitToTheGraph) {
  QTTS_NEEDS_DEVICE();
  QTTS_NEEDS_PERSISTENT_KERNEL();
  for (const bool large : {false, true}) {
    const RandomModel model(FullWidth(large));
    Talker talker(model, FramePath::kPersistent);
    ASSERT_TRUE(talker.model() != nullptr);
    EXPECT_TRUE(talker.model()->IsPersistent(1, 1));
    for (const int rows : {1, 2, 4, 8}) EXPECT_EQ(talker.model()->IsPersistent(rows, 1), HasForm(large, rows));
    for (const int rows : {3, 16, 64}) EXPECT_FALSE(talker.model()->IsPersistent(rows, 1));
  }
}

// Frames that the kernel does not cover take the graph path, or are an error if the kernel was demanded.
TEST(PersistentFrame, LeavesOtherModelsToTheGraph) {
  QTTS_NEEDS_DEVICE();
  const RandomModel model(Preset("tiny-custom-0b6"));
  cuda::CudaOptions options;
  options.path = FramePath::kPersistent;
  const auto forced = cuda::CudaBackend::Create(model.checkpoint(), options);
  ASSERT_FALSE(forced.ok());
  EXPECT_EQ(forced.status().code(), StatusCode::kUnsupported) << forced.status().message();
  Talker talker(model, FramePath::kGraph);
  ASSERT_TRUE(talker.model() != nullptr);
  EXPECT_FALSE(talker.model()->IsPersistent(1, 1));
}

}  // namespace
}  // namespace qtts
