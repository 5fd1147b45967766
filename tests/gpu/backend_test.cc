// SPDX-License-Identifier: LGPL-2.1-or-later
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <deque>
#include <map>

#include "cpu/cpu_backend.h"
#include "cuda_backend.h"
#include "device_choice.h"
#include "frame/frame.h"
#include "gpu/device.h"
#include "gpu/gpu_test.h"
#include "qtts/engine.h"
#include "speech_decoder.h"

// The GPU backend against the CPU's, and against itself: its output does not depend on neighbours, repetition or
// history.
namespace qtts {
namespace {

using cuda::CudaBackend;
using cuda::CudaOptions;
using cuda::Precision;
using testing::FullWidth;
using testing::Greedy;
using testing::MidSize;
using testing::Preset;
using testing::RandomModel;
using testing::RandomPrompt;
using testing::WindowOf;

// Result of an utterance.
struct Speech {
  std::vector<std::vector<int32_t>> codes;
  std::vector<float> pcm;
  std::vector<TextScores> scores;
  EndReason end = EndReason::kNone;
  Status status;
};

struct Utterance {
  Prompt prompt;
  GenerationSettings settings;
  uint64_t seed = 0;
  int frames = 10;
  int start = 0;  // step of the run in which it begins
  // Parked before this frame, for so many steps of the run.
  int parked_before = -1;
  int parked_steps = 0;
  bool scored = true;  // asks for scores of the text
};

// Runs utterances together, each up to its frames, `ahead` submissions at once.
std::vector<Speech> Speak(Backend* backend, const std::vector<Utterance>& utterances, size_t ahead = 1) {
  struct Running {
    SlotId slot = 0;
    bool open = false;
    int submitted = 0;
    bool done = false;
    int returns = 0;  // step of the run; 0: it was not parked yet
  };
  std::vector<Running> running(utterances.size());
  std::vector<Speech> speech(utterances.size());
  std::deque<std::vector<size_t>> outstanding;
  std::map<SlotId, size_t> owners;
  const auto collect = [&] {
    const std::vector<size_t> who = outstanding.front();
    outstanding.pop_front();
    auto results = backend->Collect();
    ASSERT_TRUE(results.ok()) << results.status().message();
    ASSERT_EQ(results->size(), who.size());
    for (size_t i = 0; i < who.size(); ++i) {
      FrameResult& result = (*results)[i];
      Speech& s = speech[who[i]];
      if (running[who[i]].done) continue;
      ASSERT_EQ(result.slot, running[who[i]].slot);
      if (result.end != EndReason::kNone) {
        s.end = result.end;
        s.status = result.status;
        running[who[i]].done = true;
        continue;
      }
      s.codes.push_back(result.codes);
      s.scores.push_back(result.text_scores);
      s.pcm.insert(s.pcm.end(), result.pcm.begin(), result.pcm.end());
    }
  };
  for (int step = 0;; ++step) {
    std::vector<FrameStep> steps;
    std::vector<size_t> who;
    bool later = false;
    for (size_t i = 0; i < utterances.size(); ++i) {
      const Utterance& u = utterances[i];
      Running& r = running[i];
      if (step < u.start) {
        later = true;
        continue;
      }
      if (!r.open) {
        auto slot = backend->Open(u.prompt, u.settings, u.seed);
        EXPECT_TRUE(slot.ok()) << slot.status().message();
        if (!slot.ok()) return speech;
        r.slot = *slot;
        r.open = true;
      }
      if (r.done || r.submitted == u.frames) continue;
      if (r.submitted == u.parked_before && r.returns == 0) {
        const Status parked = backend->paged()->Park(r.slot);
        EXPECT_TRUE(parked.ok()) << parked.message();
        if (!parked.ok()) return speech;
        r.returns = step + u.parked_steps;
      }
      if (step < r.returns) {
        later = true;
        continue;
      }
      if (step == r.returns && r.returns > 0) {
        const Status returned = backend->paged()->Unpark(r.slot);
        EXPECT_TRUE(returned.ok()) << returned.message();
        if (!returned.ok()) return speech;
      }
      // Text ids: padding, or derived from the frame's number.
      const int32_t text = r.submitted % 3 == 0 ? u.prompt.pad_text_id : r.submitted % 7;
      const TextWindow window = u.scored ? WindowOf(static_cast<int>(u.prompt.rows.size()), r.submitted) : TextWindow();
      steps.push_back({r.slot, r.submitted == 0 ? kNoText : text, window});
      who.push_back(i);
      ++r.submitted;
    }
    if (steps.empty() && outstanding.empty() && !later) break;
    if (!steps.empty()) {
      const Status status = backend->Submit(steps);
      EXPECT_TRUE(status.ok()) << status.message();
      if (!status.ok()) return speech;
      outstanding.push_back(who);
    }
    if (!outstanding.empty() && (outstanding.size() >= ahead || steps.empty())) collect();
  }
  for (const Running& r : running) {
    if (r.open) backend->Close(r.slot);
  }
  return speech;
}

std::unique_ptr<CudaBackend> Gpu(const RandomModel& model, Precision precision, bool overlap = true) {
  CudaOptions options;
  options.precision = precision;
  options.overlap = overlap;
  auto backend = CudaBackend::Create(model.checkpoint(), options);
  EXPECT_TRUE(backend.ok()) << backend.status().message();
  return backend.ok() ? std::move(*backend) : nullptr;
}

std::unique_ptr<Backend> Cpu(const RandomModel& model) {
  auto backend = CreateCpuBackend(model.checkpoint(), 4);
  EXPECT_TRUE(backend.ok()) << backend.status().message();
  return backend.ok() ? std::move(*backend) : nullptr;
}

double RelativeError(const std::vector<float>& x, const std::vector<float>& reference) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < reference.size(); ++i) {
    difference += std::pow(static_cast<double>(x[i]) - reference[i], 2);
    size += std::pow(reference[i], 2);
  }
  return std::sqrt(difference / std::max(size, 1e-30));
}

// Scores of the alignment head of two backends, and that there are as many as the windows ask for.
void ExpectCloseScores(const Utterance& u, const Speech& got, const Speech& expected, float tolerance) {
  const int rows = static_cast<int>(u.prompt.rows.size());
  ASSERT_EQ(got.scores.size(), expected.scores.size());
  for (size_t frame = 0; frame < got.scores.size(); ++frame) {
    SCOPED_TRACE("frame " + std::to_string(frame));
    const TextScores& a = got.scores[frame];
    const TextScores& b = expected.scores[frame];
    const TextWindow window = WindowOf(rows, static_cast<int>(frame));
    const int seen = std::min(window.text_end, rows + static_cast<int>(frame));
    EXPECT_EQ(static_cast<int>(a.scores.size()), std::clamp(seen - window.begin, 0, kTextScores));
    ASSERT_EQ(a.scores.size(), b.scores.size());
    for (size_t i = 0; i < a.scores.size(); ++i) {
      EXPECT_NEAR(a.scores[i], b.scores[i], tolerance * std::max(1.0F, std::abs(b.scores[i]))) << i;
    }
    EXPECT_NEAR(a.log_sum, b.log_sum, tolerance * std::max(1.0F, std::abs(b.log_sum)));
    EXPECT_NEAR(a.mass, b.mass, tolerance);
    EXPECT_EQ(a.mass > 0, !a.scores.empty());
  }
}

class AgainstCpu : public ::testing::TestWithParam<std::string> {
 protected:
  static golden::RandomCheckpointSpec Spec(const std::string& name) {
    if (name == "mid-0b6") return MidSize(false);
    if (name == "mid-1b7") return MidSize(true);
    if (name == "biases") {
      golden::RandomCheckpointSpec spec = Preset("tiny-custom-0b6");
      spec.talker.attention_bias = 1;
      spec.predictor.attention_bias = 1;
      return spec;
    }
    if (name == "f16") {
      golden::RandomCheckpointSpec spec = Preset("tiny-custom-1b7");
      spec.dtype = DType::kF16;
      return spec;
    }
    if (name == "odd-sizes") {
      golden::RandomCheckpointSpec spec = Preset("tiny-custom-0b6");
      spec.talker.hidden_size = 50;
      spec.talker.intermediate_size = 77;
      spec.talker.num_attention_heads = 6;
      spec.talker.num_key_value_heads = 2;
      spec.talker.head_dim = 40;
      spec.predictor.hidden_size = 37;
      spec.predictor.num_attention_heads = 4;
      spec.predictor.num_key_value_heads = 1;
      spec.predictor.head_dim = 8;
      spec.dtype = DType::kF32;
      return spec;
    }
    return Preset(name);
  }
};

// In F32, greedy and sampled codes equal the CPU's; samples equal within rounding.
TEST_P(AgainstCpu, SameCodesInF32) {
  QTTS_NEEDS_DEVICE();
  for (const uint64_t seed : {1, 2, 3}) {
    golden::RandomCheckpointSpec spec = Spec(GetParam());
    spec.seed = seed;
    const RandomModel model(spec);
    std::mt19937 random(static_cast<unsigned>(seed));
    std::vector<Utterance> utterances;
    for (const int rows : {1, 2, 9, 40}) {
      Utterance u;
      u.prompt = RandomPrompt(model.checkpoint()->config(), rows, random);
      if (rows % 2 == 1) u.settings = Greedy();
      if (rows == 40) u.settings.predictor.top_p = 0.8F;
      if (rows == 2) u.settings.talker.top_k = 0;
      u.seed = seed * 1000 + static_cast<uint64_t>(rows);
      u.frames = 12;
      utterances.push_back(u);
    }
    utterances[2].prompt.reference_codes.assign(
        static_cast<size_t>(3 * model.checkpoint()->config().talker.num_code_groups), 5);
    const auto gpu = Gpu(model, Precision::kF32);
    const auto cpu = Cpu(model);
    ASSERT_TRUE(gpu != nullptr && cpu != nullptr);
    const std::vector<Speech> got = Speak(gpu.get(), utterances, 2);
    const std::vector<Speech> expected = Speak(cpu.get(), utterances);
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(got[i].codes, expected[i].codes) << "utterance " << i << ", model seed " << seed;
      EXPECT_EQ(got[i].end, expected[i].end);
      if (got[i].codes == expected[i].codes) {
        EXPECT_LT(RelativeError(got[i].pcm, expected[i].pcm), 1e-4);
        ExpectCloseScores(utterances[i], got[i], expected[i], 1e-4F);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Structures, AgainstCpu,
                         ::testing::Values("tiny-base-0b6", "tiny-base-1b7", "tiny-custom-0b6", "tiny-custom-1b7",
                                           "tiny-design-1b7", "biases", "f16", "odd-sizes", "mid-0b6", "mid-1b7"),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// Speech ends at the same frame as on the CPU, and max_new_tokens counts the same.
TEST(CudaBackendTest, EndsLikeTheCpu) {
  QTTS_NEEDS_DEVICE();
  golden::RandomCheckpointSpec spec = Preset("tiny-custom-0b6");
  spec.eos_logit = 8;
  const RandomModel model(spec);
  std::mt19937 random(7);
  std::vector<Utterance> utterances(12);
  for (size_t i = 0; i < utterances.size(); ++i) {
    utterances[i].prompt = RandomPrompt(model.checkpoint()->config(), 10, random);
    utterances[i].seed = i;
    utterances[i].frames = 60;
    if (i % 4 == 0) utterances[i].settings.max_new_tokens = 2 + static_cast<int64_t>(i);
  }
  const auto gpu = Gpu(model, Precision::kF32);
  const auto cpu = Cpu(model);
  ASSERT_TRUE(gpu != nullptr && cpu != nullptr);
  const std::vector<Speech> got = Speak(gpu.get(), utterances, 2);
  const std::vector<Speech> expected = Speak(cpu.get(), utterances);
  int ended = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].codes, expected[i].codes) << i;
    EXPECT_EQ(got[i].end, expected[i].end) << i;
    ended += got[i].end == EndReason::kComplete ? 1 : 0;
  }
  EXPECT_GT(ended, 0);
}

class InPrecision : public ::testing::TestWithParam<Precision> {};
INSTANTIATE_TEST_SUITE_P(Precisions, InPrecision, ::testing::Values(Precision::kBF16, Precision::kF32),
                         [](const auto& test) { return test.param == Precision::kF32 ? "f32" : "bf16"; });

// Any number of utterances, begun at any time, have the same bits as alone. Long enough for several splits.
TEST_P(InPrecision, NeighboursDoNotMatter) {
  QTTS_NEEDS_DEVICE();
  const RandomModel model(MidSize(true));
  std::mt19937 random(11);
  std::vector<Utterance> utterances(20);
  for (size_t i = 0; i < utterances.size(); ++i) {
    utterances[i].prompt = RandomPrompt(model.checkpoint()->config(), 1 + static_cast<int>(i * 17 % 190), random);
    utterances[i].seed = i;
    utterances[i].frames = 8 + static_cast<int>(i % 5) * 3;
    utterances[i].start = static_cast<int>(i * 5 % 13);
  }
  const auto gpu = Gpu(model, GetParam());
  ASSERT_TRUE(gpu != nullptr);
  const std::vector<Speech> together = Speak(gpu.get(), utterances, 2);
  const auto plain = Gpu(model, GetParam(), /*overlap=*/false);
  ASSERT_TRUE(plain != nullptr);
  for (size_t i = 0; i < utterances.size(); ++i) {
    const Speech alone = Speak(i % 2 == 0 ? gpu.get() : plain.get(), {utterances[i]})[0];
    EXPECT_EQ(alone.codes, together[i].codes) << i;
    EXPECT_EQ(alone.pcm, together[i].pcm) << i;
    EXPECT_EQ(alone.scores, together[i].scores) << i;
    EXPECT_EQ(alone.scores, together[i].scores) << i;
    EXPECT_EQ(static_cast<int>(alone.codes.size()), utterances[i].frames);
  }
}

// Parked utterances have the same bits as alone. Others take their pages meanwhile, and they return to other pages.
TEST_P(InPrecision, ParkedUtterancesSoundTheSame) {
  QTTS_NEEDS_DEVICE();
  const RandomModel model(MidSize(true));
  std::mt19937 random(std::random_device{}());
  std::vector<Utterance> utterances(12);
  for (size_t i = 0; i < utterances.size(); ++i) {
    Utterance& u = utterances[i];
    u.prompt = RandomPrompt(model.checkpoint()->config(), 1 + static_cast<int>(random() % 300), random);
    u.seed = i;
    u.frames = 20;
    u.start = static_cast<int>(i % 4) * 6;
    if (i % 3 == 2) continue;
    u.parked_before = 1 + static_cast<int>(random() % 18);
    u.parked_steps = 1 + static_cast<int>(random() % 12);
  }
  const auto gpu = Gpu(model, GetParam());
  ASSERT_TRUE(gpu != nullptr);
  const std::vector<Speech> together = Speak(gpu.get(), utterances, 2);
  for (size_t i = 0; i < utterances.size(); ++i) {
    Utterance unparked = utterances[i];
    unparked.parked_before = -1;
    const Speech alone = Speak(gpu.get(), {unparked})[0];
    EXPECT_EQ(alone.codes, together[i].codes) << i;
    EXPECT_EQ(alone.pcm, together[i].pcm) << i;
    EXPECT_EQ(alone.scores, together[i].scores) << i;
    EXPECT_EQ(alone.scores, together[i].scores) << i;
    EXPECT_EQ(static_cast<int>(alone.codes.size()), unparked.frames) << i;
  }
}

// Scores change no bit of codes and samples. A step without a window has none.
TEST_P(InPrecision, ScoresChangeNothing) {
  QTTS_NEEDS_DEVICE();
  const RandomModel model(MidSize(false));
  std::mt19937 random(19);
  std::vector<Utterance> utterances(9);
  for (size_t i = 0; i < utterances.size(); ++i) {
    utterances[i].prompt = RandomPrompt(model.checkpoint()->config(), 1 + static_cast<int>(i * 23), random);
    utterances[i].seed = i;
    utterances[i].frames = 12;
  }
  const auto gpu = Gpu(model, GetParam());
  ASSERT_TRUE(gpu != nullptr);
  const std::vector<Speech> scored = Speak(gpu.get(), utterances, 2);
  for (Utterance& u : utterances) u.scored = false;
  const std::vector<Speech> plain = Speak(gpu.get(), utterances, 2);
  for (size_t i = 0; i < utterances.size(); ++i) {
    EXPECT_EQ(scored[i].codes, plain[i].codes) << i;
    EXPECT_EQ(scored[i].pcm, plain[i].pcm) << i;
    EXPECT_EQ(plain[i].scores, std::vector<TextScores>(plain[i].codes.size())) << i;
    EXPECT_NE(scored[i].scores, plain[i].scores) << i;
  }
}

// First frames that join the many others of a step, behind the talker, have the bits that they have alone.
TEST_P(InPrecision, FirstFramesJoinTheOthers) {
  QTTS_NEEDS_DEVICE();
  const RandomModel model(Preset("tiny-custom-0b6"));
  std::mt19937 random(17);
  std::vector<Utterance> utterances(90);
  for (size_t i = 0; i < utterances.size(); ++i) {
    utterances[i].prompt = RandomPrompt(model.checkpoint()->config(), 1 + static_cast<int>(random() % 30), random);
    utterances[i].seed = i;
    utterances[i].frames = 3 + static_cast<int>(i % 3);
    utterances[i].start = i < 70 ? 0 : 1 + static_cast<int>(i % 3);
  }
  CudaOptions options;
  options.precision = GetParam();
  options.max_slots = 96;
  const auto many = CudaBackend::Create(model.checkpoint(), options);
  ASSERT_TRUE(many.ok()) << many.status().message();
  const std::vector<Speech> together = Speak(many->get(), utterances, 2);
  for (size_t i = 60; i < utterances.size(); ++i) {
    const Speech alone = Speak(many->get(), {utterances[i]})[0];
    EXPECT_EQ(alone.codes, together[i].codes) << i;
    EXPECT_EQ(alone.pcm, together[i].pcm) << i;
    EXPECT_EQ(alone.scores, together[i].scores) << i;
    EXPECT_EQ(alone.scores, together[i].scores) << i;
    EXPECT_EQ(static_cast<int>(alone.codes.size()), utterances[i].frames) << i;
  }
}

// In pieces of up to 256 rows a prompt gets the bits that it has in pieces of 64.
TEST_P(InPrecision, TheSizeOfAPromptsPiecesDoesNotMatter) {
  QTTS_NEEDS_DEVICE();
  const RandomModel model(MidSize(true));
  std::mt19937 random(13);
  CudaOptions options;
  options.precision = GetParam();
  options.prompt_rows = cuda::Sequences::kRowsAtOnce;
  const auto whole = CudaBackend::Create(model.checkpoint(), options);
  ASSERT_TRUE(whole.ok()) << whole.status().message();
  const auto in_pieces = Gpu(model, GetParam());
  ASSERT_TRUE(in_pieces != nullptr);
  for (const int rows : {2, 63, 65, 97, 130, 200, 255, 256, 257, 600}) {
    Utterance utterance;
    utterance.prompt = RandomPrompt(model.checkpoint()->config(), rows, random);
    utterance.seed = static_cast<uint64_t>(rows);
    utterance.frames = 4;
    const Speech expected = Speak(in_pieces.get(), {utterance})[0];
    const Speech speech = Speak(whole->get(), {utterance})[0];
    EXPECT_EQ(speech.codes, expected.codes) << rows;
    EXPECT_EQ(speech.pcm, expected.pcm) << rows;
    EXPECT_EQ(speech.scores, expected.scores) << rows;
  }
}

// Prompts that share passes through the talker have the same bits as alone: with and without rows common to the voice's
// prompts, with one row, with many, and one among them that does not end last.
TEST_P(InPrecision, PromptsThatShareAPassDoNotMatter) {
  QTTS_NEEDS_DEVICE();
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const RandomModel model(MidSize(true));
  for (const int prompt_rows : {cuda::Sequences::kRowsAtOnce, cuda::Sequences::kMostPromptRows}) {
    SCOPED_TRACE(prompt_rows);
    CudaOptions options;
    options.precision = GetParam();
    options.prompt_rows = prompt_rows;
    const auto gpu = CudaBackend::Create(model.checkpoint(), options);
    ASSERT_TRUE(gpu.ok()) << gpu.status().message();
    const auto other = Gpu(model, GetParam());
    ASSERT_TRUE(other != nullptr);
    const Prompt voice = RandomPrompt(model.checkpoint()->config(), 200, random);
    std::vector<Utterance> utterances(24);
    std::vector<SlotId> slots;
    for (size_t i = 0; i < utterances.size(); ++i) {
      Utterance& u = utterances[i];
      const int rows = i % 6 == 5 ? 140 : 12 + static_cast<int>(random() % 60);
      u.prompt = i % 2 == 0 ? voice : RandomPrompt(model.checkpoint()->config(), rows, random);
      u.prompt.constant_rows = i % 2 == 0 ? 11 : 0;
      u.prompt.rows.resize(static_cast<size_t>(rows));
      u.seed = i;
      u.frames = 4;
      const auto slot = (*gpu)->Open(u.prompt, u.settings, u.seed);
      ASSERT_TRUE(slot.ok()) << slot.status().message();
      slots.push_back(*slot);
    }
    for (const Result<PrefillProgress>& progress : (*gpu)->PrefillTogether(slots)) {
      ASSERT_TRUE(progress.ok()) << progress.status().message();
      EXPECT_TRUE(progress->done);
    }
    std::vector<Speech> together(utterances.size());
    for (int frame = 0; frame < 4; ++frame) {
      std::vector<FrameStep> steps;
      for (size_t i = 0; i < slots.size(); ++i) {
        const int rows = static_cast<int>(utterances[i].prompt.rows.size());
        steps.push_back({slots[i], frame == 0 ? kNoText : 1, WindowOf(rows, frame)});
      }
      ASSERT_TRUE((*gpu)->Submit(steps).ok());
      const auto results = (*gpu)->Collect();
      ASSERT_TRUE(results.ok()) << results.status().message();
      for (size_t i = 0; i < results->size(); ++i) {
        if ((*results)[i].end != EndReason::kNone) continue;
        together[i].codes.push_back((*results)[i].codes);
        together[i].scores.push_back((*results)[i].text_scores);
        together[i].pcm.insert(together[i].pcm.end(), (*results)[i].pcm.begin(), (*results)[i].pcm.end());
      }
    }
    for (size_t i = 0; i < utterances.size(); ++i) {
      const auto slot = other->Open(utterances[i].prompt, utterances[i].settings, utterances[i].seed);
      ASSERT_TRUE(slot.ok()) << slot.status().message();
      Speech alone;
      for (int frame = 0; frame < 4; ++frame) {
        const int rows = static_cast<int>(utterances[i].prompt.rows.size());
        const FrameStep step = {*slot, frame == 0 ? kNoText : 1, WindowOf(rows, frame)};
        ASSERT_TRUE(other->Submit({&step, 1}).ok());
        const auto results = other->Collect();
        ASSERT_TRUE(results.ok()) << results.status().message();
        if (results->front().end != EndReason::kNone) break;
        alone.codes.push_back(results->front().codes);
        alone.scores.push_back(results->front().text_scores);
        alone.pcm.insert(alone.pcm.end(), results->front().pcm.begin(), results->front().pcm.end());
      }
      other->Close(*slot);
      EXPECT_EQ(alone.codes, together[i].codes) << i;
      EXPECT_EQ(alone.pcm, together[i].pcm) << i;
      EXPECT_EQ(alone.scores, together[i].scores) << i;
      EXPECT_EQ(alone.scores, together[i].scores) << i;
      EXPECT_FALSE(alone.codes.empty()) << i;
    }
    for (const SlotId slot : slots) (*gpu)->Close(slot);
  }
}

// The same with the persistent kernel: prompts that end in a frame's talker or in its head, during frames of other
// utterances.
TEST(CudaBackendTest, NeighboursDoNotMatterToThePersistentKernel) {
  QTTS_NEEDS_DEVICE();
  QTTS_NEEDS_PERSISTENT_KERNEL();
  const RandomModel model(FullWidth(false));
  std::mt19937 random(12);
  std::vector<Utterance> utterances(6);
  for (size_t i = 0; i < utterances.size(); ++i) {
    const int rows = 2 + static_cast<int>(i * 31 % 90);
    utterances[i].prompt = RandomPrompt(model.checkpoint()->config(), rows, random);
    utterances[i].prompt.constant_rows = i % 3 == 1 ? static_cast<size_t>(rows - 1) : 0;
    utterances[i].seed = i;
    utterances[i].frames = 5 + static_cast<int>(i % 3) * 2;
    utterances[i].start = static_cast<int>(i) * 2;
  }
  for (const cuda::FramePath path : {cuda::FramePath::kPersistent, cuda::FramePath::kGraph}) {
    CudaOptions options;
    options.path = path;
    const auto gpu = CudaBackend::Create(model.checkpoint(), options);
    ASSERT_TRUE(gpu.ok()) << gpu.status().message();
    const std::vector<Speech> together = Speak(gpu->get(), utterances, 2);
    for (size_t i = 0; i < utterances.size(); ++i) {
      const Speech alone = Speak(gpu->get(), {utterances[i]})[0];
      EXPECT_EQ(alone.codes, together[i].codes) << i;
      EXPECT_EQ(alone.pcm, together[i].pcm) << i;
      EXPECT_EQ(alone.scores, together[i].scores) << i;
      EXPECT_EQ(alone.scores, together[i].scores) << i;
      EXPECT_EQ(static_cast<int>(alone.codes.size()), utterances[i].frames) << i;
    }
  }
}

// Among six hundred utterances, for which other kernels multiply, attend, sample and decode, an utterance has the codes
// and samples that it has alone, where the persistent kernel makes its codes: on engines of any number of voices. Where
// cuBLASLt computes the products of a large engine, its codes are others than those of a small one.
TEST(CudaBackendTest, HundredsOfNeighboursDoNotMatter) {
  QTTS_NEEDS_DEVICE();
  const bool has_warpgroups = testing::Device().CanRunWarpgroups();
  struct Case {
    bool large;
    cuda::ManyRowsProducts products;
  };
  std::vector<Case> cases = {{false, cuda::ManyRowsProducts::kBest}, {true, cuda::ManyRowsProducts::kBest}};
  if (!has_warpgroups) cases.push_back({false, cuda::ManyRowsProducts::kWarp});
  for (const auto& [large, products] : cases) {
    SCOPED_TRACE(products == cuda::ManyRowsProducts::kWarp ? "own products" : "");
    const bool same_products = has_warpgroups || products == cuda::ManyRowsProducts::kWarp;
    const RandomModel model(FullWidth(large));
    std::mt19937 random(14);
    std::vector<Utterance> utterances(600);
    for (size_t i = 0; i < utterances.size(); ++i) {
      utterances[i].prompt =
          RandomPrompt(model.checkpoint()->config(), 2 + static_cast<int>(random() % (i % 50 == 0 ? 300 : 40)), random);
      utterances[i].seed = i;
      utterances[i].frames = 2 + static_cast<int>(i % 5);
      utterances[i].start = static_cast<int>(random() % 4);
    }
    for (const cuda::CodecPrecision precision : {cuda::CodecPrecision::kExact, cuda::CodecPrecision::kFast}) {
      CudaOptions options;
      options.codec_precision = precision;
      options.products = products;
      const auto few = CudaBackend::Create(model.checkpoint(), options);
      options.max_slots = 1024;
      const auto many = CudaBackend::Create(model.checkpoint(), options);
      ASSERT_TRUE(few.ok()) << few.status().message();
      ASSERT_TRUE(many.ok()) << many.status().message();
      const std::vector<Speech> together = Speak(many->get(), utterances, 2);
      for (size_t i = 0; i < utterances.size(); i += 25) {
        for (CudaBackend* const backend : {many->get(), few->get()}) {
          if (backend == few->get() && !same_products) continue;
          const Speech alone = Speak(backend, {utterances[i]})[0];
          EXPECT_EQ(alone.codes, together[i].codes) << large << ' ' << i;
          EXPECT_EQ(alone.pcm, together[i].pcm) << large << ' ' << i;
          EXPECT_EQ(alone.scores, together[i].scores) << large << ' ' << i;
          EXPECT_EQ(static_cast<int>(alone.codes.size()), utterances[i].frames) << large << ' ' << i;
        }
      }
    }
  }
}

// The decoder alone makes the same samples from an utterance's codes, in any number of calls.
TEST_P(InPrecision, DecodedAloneItSoundsTheSame) {
  QTTS_NEEDS_DEVICE();
  const RandomModel model(MidSize(false));
  std::mt19937 random(5);
  Utterance u;
  u.prompt = RandomPrompt(model.checkpoint()->config(), 9, random);
  u.frames = 150;
  const auto gpu = Gpu(model, GetParam());
  ASSERT_NE(gpu, nullptr);
  const Speech speech = Speak(gpu.get(), {u}, 2)[0];
  ASSERT_GT(speech.codes.size(), 0U);
  std::vector<int32_t> codes;
  for (const std::vector<int32_t>& frame : speech.codes) codes.insert(codes.end(), frame.begin(), frame.end());
  const auto decoder = cuda::CreateSpeechDecoder(
      *model.checkpoint(), GetParam() == Precision::kF32 ? cuda::CodecPrecision::kF32 : cuda::CodecPrecision::kExact,
      -1);
  ASSERT_TRUE(decoder.ok()) << decoder.status().message();
  for (int time = 0; time < 2; ++time) {
    const auto pcm = (*decoder)->Decode(codes);
    ASSERT_TRUE(pcm.ok()) << pcm.status().message();
    EXPECT_EQ(*pcm, speech.pcm);
  }
  EXPECT_EQ((*decoder)->name(), gpu->name());
}

TEST_P(InPrecision, SameSeedSameSpeech) {
  QTTS_NEEDS_DEVICE();
  const RandomModel model(Preset("tiny-custom-1b7"));
  std::mt19937 random(3);
  Utterance u;
  u.prompt = RandomPrompt(model.checkpoint()->config(), 20, random);
  u.seed = 42;
  u.frames = 20;
  const auto gpu = Gpu(model, GetParam());
  ASSERT_TRUE(gpu != nullptr);
  const Speech first = Speak(gpu.get(), {u}, 2)[0];
  for (int i = 0; i < 100; ++i) {
    const Speech again = Speak(gpu.get(), {u}, 2)[0];
    ASSERT_EQ(again.codes, first.codes) << "run " << i;
    ASSERT_EQ(again.pcm, first.pcm) << "run " << i;
    ASSERT_EQ(again.scores, first.scores) << "run " << i;
  }
  u.seed = 43;
  EXPECT_NE(Speak(gpu.get(), {u}, 2)[0].codes, first.codes);
}

// The cached prefix of a prompt and the codec's state after the reference are used for the same cloned voice only, and
// change no bit.
TEST_P(InPrecision, ClonedVoicesKeepTheirPrefix) {
  QTTS_NEEDS_DEVICE();
  const RandomModel model(Preset("tiny-base-1b7"));
  std::mt19937 random(15);
  Utterance u;
  u.prompt = RandomPrompt(model.checkpoint()->config(), 40, random);
  u.prompt.rows[2].x_vector = true;
  u.prompt.rows[u.prompt.rows.size() / 2].x_vector = false;
  u.seed = 7;
  u.frames = 6;
  const ModelConfig& config = model.checkpoint()->config();
  const auto reference = [&](int frames) {
    std::vector<int32_t> codes(static_cast<size_t>(frames * config.talker.num_code_groups));
    for (int32_t& code : codes)
      code = static_cast<int32_t>(random() % static_cast<unsigned>(config.codec.codebook_size));
    return codes;
  };
  u.prompt.reference_codes = reference(25);
  std::vector<Utterance> utterances(5, u);
  for (float& value : utterances[1].prompt.x_vector) value = -value;
  utterances[2].prompt.rows.resize(30);  // another text
  utterances[3].prompt.reference_codes = reference(3);
  utterances[4].prompt.reference_codes.clear();
  std::vector<Speech> expected;
  for (const Utterance& utterance : utterances) {
    const auto gpu = Gpu(model, GetParam());
    ASSERT_TRUE(gpu != nullptr);
    expected.push_back(Speak(gpu.get(), {utterance}, 2)[0]);
  }
  EXPECT_NE(expected[0].codes, expected[1].codes);
  EXPECT_EQ(expected[0].codes, expected[3].codes);
  EXPECT_NE(expected[0].pcm, expected[3].pcm);
  const auto gpu = Gpu(model, GetParam());
  ASSERT_TRUE(gpu != nullptr);
  for (const size_t i : {0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 3}) {
    const Speech speech = Speak(gpu.get(), {utterances[i]}, 2)[0];
    EXPECT_EQ(speech.codes, expected[i].codes) << i;
    EXPECT_EQ(speech.pcm, expected[i].pcm) << i;
    EXPECT_EQ(speech.scores, expected[i].scores) << i;
  }
}

// A long prompt and reference have the same bits in pieces between another slot's frames and in one piece.
TEST(CudaBackendTest, APromptInPiecesIsTheWholePrompt) {
  QTTS_NEEDS_DEVICE();
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const RandomModel model(Preset("tiny-base-0b6"));
  const ModelConfig& config = model.checkpoint()->config();
  Prompt prompt = RandomPrompt(config, 600, random);
  prompt.constant_rows = 100;
  for (int i = 0; i < 150 * config.talker.num_code_groups; ++i) {
    prompt.reference_codes.push_back(
        static_cast<int32_t>(random() % static_cast<unsigned>(config.codec.codebook_size)));
  }
  const Prompt other = RandomPrompt(config, 20, random);
  const auto speak = [&](bool in_pieces) {
    Speech speech;
    const auto gpu = Gpu(model, Precision::kBF16);
    if (gpu == nullptr) return speech;
    const auto step = [&](SlotId slot, int32_t text_id, const TextWindow& window = {}) {
      const FrameStep frame = {slot, text_id, window};
      EXPECT_TRUE(gpu->Submit({&frame, 1}).ok());
      const auto results = gpu->Collect();
      EXPECT_TRUE(results.ok());
      return results.ok() ? results->front() : FrameResult();
    };
    const auto beside = gpu->Open(other, GenerationSettings(), 7);
    const auto slot = gpu->Open(prompt, GenerationSettings(), 8);
    EXPECT_TRUE(beside.ok() && slot.ok());
    if (!beside.ok() || !slot.ok()) return speech;
    int pieces = 0;
    for (bool done = !in_pieces; !done; ++pieces) {
      const auto progress = gpu->Prefill(*slot);
      EXPECT_TRUE(progress.ok()) << progress.status().message();
      done = !progress.ok() || progress->done;
      step(*beside, pieces == 0 ? kNoText : 1);
    }
    EXPECT_EQ(pieces > 5, in_pieces);
    for (int frame = 0; frame < 5; ++frame) {
      const FrameResult result = step(*slot, frame == 0 ? kNoText : 1, WindowOf(600, frame));
      speech.codes.push_back(result.codes);
      speech.scores.push_back(result.text_scores);
      speech.pcm.insert(speech.pcm.end(), result.pcm.begin(), result.pcm.end());
    }
    return speech;
  };
  const Speech whole = speak(false);
  const Speech pieces = speak(true);
  EXPECT_FALSE(whole.pcm.empty());
  EXPECT_EQ(whole.codes, pieces.codes);
  EXPECT_EQ(whole.pcm, pieces.pcm);
  EXPECT_EQ(whole.scores, pieces.scores);
}

// Closing a slot in any state does not change other slots and later utterances.
TEST(CudaBackendTest, CloseInAnyState) {
  QTTS_NEEDS_DEVICE();
  const RandomModel model(Preset("tiny-custom-0b6"));
  std::mt19937 random(5);
  const auto gpu = Gpu(model, Precision::kBF16);
  ASSERT_TRUE(gpu != nullptr);
  Utterance u;
  u.prompt = RandomPrompt(model.checkpoint()->config(), 30, random);
  u.frames = 15;
  const Speech expected = Speak(gpu.get(), {u})[0];
  for (int state = 0; state < 5; ++state) {
    const auto victim = gpu->Open(u.prompt, u.settings, 99);
    ASSERT_TRUE(victim.ok());
    FrameStep step = {*victim, kNoText};
    if (state >= 1) {
      ASSERT_TRUE(gpu->Submit({&step, 1}).ok());
    }
    if (state >= 2) {
      ASSERT_TRUE(gpu->Collect().ok());
    }
    step.text_id = 1;
    if (state >= 3) {
      ASSERT_TRUE(gpu->Submit({&step, 1}).ok());
    }
    if (state >= 4) {
      ASSERT_TRUE(gpu->Submit({&step, 1}).ok());
    }
    gpu->Close(*victim);
    const auto next = gpu->Open(u.prompt, u.settings, 98);
    ASSERT_TRUE(next.ok());
    EXPECT_NE(*next, *victim);
    for (int left = state == 1 || state == 3 ? 1 : state == 4 ? 2 : 0; left > 0; --left) {
      const auto results = gpu->Collect();
      ASSERT_TRUE(results.ok());
      EXPECT_EQ((*results)[0].slot, *victim);
      EXPECT_EQ((*results)[0].end, EndReason::kError);
    }
    gpu->Close(*next);
    const Speech speech = Speak(gpu.get(), {u}, 2)[0];
    EXPECT_EQ(speech.codes, expected.codes) << "state " << state;
    EXPECT_EQ(speech.pcm, expected.pcm) << "state " << state;
    EXPECT_EQ(speech.scores, expected.scores) << "state " << state;
  }
}

TEST(CudaBackendTest, RefusesWhatIsWrong) {
  QTTS_NEEDS_DEVICE();
  const RandomModel model(Preset("tiny-custom-0b6"));
  const ModelConfig& config = model.checkpoint()->config();
  std::mt19937 random(6);
  const auto gpu = Gpu(model, Precision::kBF16);
  ASSERT_TRUE(gpu != nullptr);
  const Prompt good = RandomPrompt(config, 5, random);
  Prompt bad = good;
  bad.rows[1].text_id = config.talker.text_vocab_size;
  EXPECT_EQ(gpu->Open(bad, {}, 0).status().code(), StatusCode::kInvalidArgument);
  bad = good;
  bad.rows[1].codes = {0, 1};
  EXPECT_EQ(gpu->Open(bad, {}, 0).status().code(), StatusCode::kInvalidArgument);
  bad = good;
  bad.x_vector.pop_back();
  EXPECT_EQ(gpu->Open(bad, {}, 0).status().code(), StatusCode::kInvalidArgument);
  bad = good;
  bad.reference_codes = {1, 2, 3};
  EXPECT_EQ(gpu->Open(bad, {}, 0).status().code(), StatusCode::kInvalidArgument);
  bad = good;
  bad.rows.clear();
  EXPECT_EQ(gpu->Open(bad, {}, 0).status().code(), StatusCode::kInvalidArgument);
  bad.rows.assign(static_cast<size_t>(config.talker.transformer.max_positions), good.rows[0]);
  EXPECT_EQ(gpu->Open(bad, {}, 0).status().code(), StatusCode::kResourceExhausted);

  EXPECT_FALSE(gpu->Collect().ok());
  FrameStep step = {12345, kNoText};
  EXPECT_EQ(gpu->Submit({&step, 1}).code(), StatusCode::kInvalidArgument);
  const auto slot = gpu->Open(good, {}, 0);
  ASSERT_TRUE(slot.ok());
  const FrameStep twice[] = {{*slot, kNoText}, {*slot, kNoText}};
  EXPECT_EQ(gpu->Submit(twice).code(), StatusCode::kInvalidArgument);
  step = {*slot, 3};
  ASSERT_TRUE(gpu->Submit({&step, 1}).ok());
  const auto results = gpu->Collect();
  ASSERT_TRUE(results.ok());
  EXPECT_EQ((*results)[0].end, EndReason::kError);
  EXPECT_EQ((*results)[0].status.code(), StatusCode::kInvalidArgument);
  gpu->Close(*slot);
}

TEST(CudaBackendTest, ManySlotsThenNoMore) {
  QTTS_NEEDS_DEVICE();
  const RandomModel model(Preset("tiny-custom-0b6"));
  std::mt19937 random(8);
  CudaOptions options;
  options.max_slots = 5;
  auto gpu = CudaBackend::Create(model.checkpoint(), options);
  ASSERT_TRUE(gpu.ok()) << gpu.status().message();
  const Prompt prompt = RandomPrompt(model.checkpoint()->config(), 5, random);
  std::vector<SlotId> slots;
  for (int i = 0; i < 5; ++i) {
    const auto slot = (*gpu)->Open(prompt, {}, 0);
    ASSERT_TRUE(slot.ok());
    slots.push_back(*slot);
  }
  EXPECT_EQ((*gpu)->Open(prompt, {}, 0).status().code(), StatusCode::kResourceExhausted);
  (*gpu)->Close(slots[2]);
  EXPECT_TRUE((*gpu)->Open(prompt, {}, 0).ok());
}

TEST(CudaBackendTest, TwoModelsInOneProcess) {
  QTTS_NEEDS_DEVICE();
  const RandomModel small(Preset("tiny-custom-0b6"));
  const RandomModel large(Preset("tiny-custom-1b7"));
  std::mt19937 random(9);
  Utterance a, b;
  a.prompt = RandomPrompt(small.checkpoint()->config(), 12, random);
  b.prompt = RandomPrompt(large.checkpoint()->config(), 12, random);
  auto first = Gpu(small, Precision::kBF16);
  ASSERT_TRUE(first != nullptr);
  const Speech expected = Speak(first.get(), {a})[0];
  const auto second = Gpu(large, Precision::kBF16);
  ASSERT_TRUE(second != nullptr);
  const Speech other = Speak(second.get(), {b})[0];
  EXPECT_EQ(Speak(first.get(), {a})[0].codes, expected.codes);
  first.reset();
  EXPECT_EQ(Speak(second.get(), {b})[0].codes, other.codes);
}

// Occupies all free memory of the device while it lives.
class AllMemory {
 public:
  AllMemory() {
    for (size_t piece = size_t{1} << 33; piece >= size_t{1} << 12; piece /= 2) {
      void* data = nullptr;
      while (cudaMalloc(&data, piece) == cudaSuccess) taken_.push_back(data);
      (void)cudaGetLastError();
    }
  }
  ~AllMemory() {
    for (void* const data : taken_) EXPECT_EQ(cudaFree(data), cudaSuccess);
  }
  AllMemory(const AllMemory&) = delete;
  AllMemory& operator=(const AllMemory&) = delete;

 private:
  std::vector<void*> taken_;
};

// Without free memory, a start is one error; after memory is freed, starts work.
TEST(CudaBackendTest, OutOfMemory) {
  QTTS_NEEDS_DEVICE();
  const RandomModel model(Preset("tiny-custom-0b6"));
  {
    const AllMemory all;
    const auto full = CudaBackend::Create(model.checkpoint(), {});
    ASSERT_FALSE(full.ok());
    EXPECT_EQ(full.status().code(), StatusCode::kResourceExhausted) << full.status().message();
  }
  EXPECT_TRUE(CudaBackend::Create(model.checkpoint(), {}).ok());
}

// If an utterance cannot get a page, it ends with one error, the others go on, and the next one works after memory is
// freed.
TEST(CudaBackendTest, OutOfMemoryInMidSpeech) {
  QTTS_NEEDS_DEVICE();
  const RandomModel model(Preset("tiny-custom-0b6"));
  std::mt19937 random(12);
  const auto gpu = Gpu(model, Precision::kBF16);
  ASSERT_TRUE(gpu != nullptr);
  const auto prompt = [&](int rows) {
    Prompt p = RandomPrompt(model.checkpoint()->config(), rows, random);
    p.constant_rows = 0;
    return p;
  };
  const Prompt short_prompt = prompt(20);
  const auto victim = gpu->Open(short_prompt, {}, 1);
  ASSERT_TRUE(victim.ok());
  // Seven others of nine pages each use up the 64 pages.
  const size_t cache = gpu->facts().cache_bytes;
  std::vector<SlotId> others;
  for (int i = 0; i < 7; ++i) {
    const auto slot = gpu->Open(prompt(1050), {}, 2);
    ASSERT_TRUE(slot.ok()) << slot.status().message();
    for (bool done = false; !done;) {
      const auto progress = gpu->Prefill(*slot);
      ASSERT_TRUE(progress.ok()) << progress.status().message();
      done = progress->done;
    }
    others.push_back(*slot);
  }
  ASSERT_EQ(gpu->facts().cache_bytes, cache);
  Status failure;
  int frames = 0;
  {
    const AllMemory all;
    // The eight slots so far share their codec's memory; the ninth needs more.
    EXPECT_EQ(gpu->Open(short_prompt, {}, 3).status().code(), StatusCode::kResourceExhausted);
    FrameStep step = {*victim, kNoText};
    for (; frames < 200 && failure.ok(); ++frames) {
      ASSERT_TRUE(gpu->Submit({&step, 1}).ok());
      step.text_id = short_prompt.pad_text_id;
      const auto results = gpu->Collect();
      ASSERT_TRUE(results.ok()) << results.status().message();
      failure = (*results)[0].status;
    }
    EXPECT_EQ(failure.code(), StatusCode::kResourceExhausted) << failure.message();
    // The others are not affected.
    const FrameStep other = {others.front(), kNoText};
    const Status submitted = gpu->Submit({&other, 1});
    ASSERT_TRUE(submitted.ok()) << submitted.message();
    const auto results = gpu->Collect();
    ASSERT_TRUE(results.ok());
    EXPECT_EQ((*results)[0].end, EndReason::kNone);
  }
  gpu->Close(*victim);
  Utterance u;
  u.prompt = short_prompt;
  u.frames = frames + 20;
  const Speech speech = Speak(gpu.get(), {u}, 2)[0];
  EXPECT_EQ(static_cast<int>(speech.codes.size()), u.frames) << speech.status.message();
}

// Launches a kernel that writes to an invalid address. Only a new process can use the device after that, so this runs
// in a process of its own.
void MakeFault() {
  cuda::SetPage(cuda::Launcher(nullptr, &cuda::kH200Numbers), reinterpret_cast<void**>(uintptr_t{0x1000}), 0, nullptr);
  EXPECT_NE(cudaDeviceSynchronize(), cudaSuccess);
}

void ExpectLost(const Status& status) {
  EXPECT_EQ(status.code(), StatusCode::kDeviceUnavailable) << status.message();
  EXPECT_NE(status.message().find("restart the program"), std::string::npos) << status.message();
}

int LoseTheDevice() {
  const RandomModel model(Preset("tiny-custom-0b6"));
  std::mt19937 random(13);
  const Prompt prompt = RandomPrompt(model.checkpoint()->config(), 20, random);
  auto gpu = Gpu(model, Precision::kBF16);
  auto second = Gpu(model, Precision::kF32);
  const auto slot = gpu->Open(prompt, {}, 1);
  EXPECT_TRUE(slot.ok());
  FrameStep step = {*slot, kNoText};
  EXPECT_TRUE(gpu->Submit({&step, 1}).ok());
  EXPECT_TRUE(gpu->Collect().ok());

  MakeFault();
  step.text_id = prompt.pad_text_id;
  Status status = gpu->Submit({&step, 1});
  if (status.ok()) status = gpu->Collect().status();
  ExpectLost(status);
  ExpectLost(gpu->Open(prompt, {}, 1).status());
  ExpectLost(gpu->Submit({&step, 1}));
  gpu.reset();
  ExpectLost(second->Open(prompt, {}, 1).status());
  ExpectLost(second->Submit({&step, 1}));
  second.reset();
  ExpectLost(cuda::ChooseDevice(*model.checkpoint(), CudaOptions()).status());
  return ::testing::Test::HasFailure() ? 1 : 0;
}

// The same with whole engines: one that speaks, and an idle one that detects it at its next utterance. Later engines
// with device=auto use the CPU.
int LoseTheDeviceOfEngines() {
  const RandomModel models[] = {RandomModel(Preset("tiny-custom-0b6")), RandomModel(Preset("tiny-custom-1b7"))};
  const auto acquire = [](const RandomModel& model, Device device) {
    EngineOptions options;
    options.model_path = model.checkpoint()->folder();
    options.device = device;
    return Engine::Acquire(options);
  };
  Request request;
  request.text = "Good evening.";
  request.speaker = "ryan";
  std::vector<std::shared_ptr<Engine>> engines;
  for (const RandomModel& model : models) {
    auto engine = acquire(model, Device::kAuto);
    EXPECT_TRUE(engine.ok()) << engine.status().message();
    if (!engine.ok()) return 1;
    EXPECT_TRUE((*engine)->device_name().starts_with("cuda")) << (*engine)->device_name();
    engines.push_back(*engine);
  }
  Frame frame;
  const auto speaking = engines[0]->Start(request);
  EXPECT_TRUE(speaking.ok()) << speaking.status().message();
  for (int i = 0; i < 3; ++i) EXPECT_EQ((*speaking)->Read(&frame), ReadState::kFrame);
  MakeFault();
  while ((*speaking)->Read(&frame) == ReadState::kFrame) {
  }
  EXPECT_EQ((*speaking)->end_reason(), EndReason::kError);
  ExpectLost((*speaking)->status());
  const auto late = engines[1]->Start(request);
  EXPECT_TRUE(late.ok()) << late.status().message();
  EXPECT_EQ((*late)->Read(&frame), ReadState::kEnd);
  EXPECT_EQ((*late)->end_reason(), EndReason::kError);
  ExpectLost((*late)->status());

  request.settings.max_new_tokens = 5;
  for (size_t i = 0; i < engines.size(); ++i) {
    EXPECT_TRUE(engines[i]->device_lost());
    ExpectLost(acquire(models[i], Device::kCuda).status());
    const auto next = acquire(models[i], Device::kAuto);
    EXPECT_TRUE(next.ok()) << next.status().message();
    if (!next.ok()) return 1;
    EXPECT_NE(*next, engines[i]);
    EXPECT_TRUE((*next)->device_name().starts_with("cpu")) << (*next)->device_name();
    const auto stream = (*next)->Start(request);
    EXPECT_TRUE(stream.ok()) << stream.status().message();
    int frames = 0;
    while ((*stream)->Read(&frame) == ReadState::kFrame) ++frames;
    EXPECT_EQ(frames, request.settings.max_new_tokens - 1);
    EXPECT_EQ((*stream)->end_reason(), EndReason::kMaxDuration) << (*stream)->status().message();
  }
  return ::testing::Test::HasFailure() ? 1 : 0;
}

TEST(CudaBackendDeathTest, ALostDeviceIsOneErrorEverywhere) {
  QTTS_NEEDS_DEVICE();
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(std::exit(LoseTheDevice()), ::testing::ExitedWithCode(0), "");
}

TEST(CudaBackendDeathTest, EnginesThatLostTheDeviceAreReplaced) {
  QTTS_NEEDS_DEVICE();
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(std::exit(LoseTheDeviceOfEngines()), ::testing::ExitedWithCode(0), "");
}

// Runs every kernel with minimal work, for compute-sanitizer.
TEST(CudaBackendTest, SmallForTheSanitizer) {
  QTTS_NEEDS_DEVICE();
  const RandomModel model(Preset("tiny-custom-1b7"));
  std::mt19937 random(14);
  std::vector<Utterance> utterances(2);
  utterances[0].prompt = RandomPrompt(model.checkpoint()->config(), 40, random);
  utterances[0].prompt.constant_rows = 5;
  utterances[1].prompt = RandomPrompt(model.checkpoint()->config(), 70, random);
  utterances[1].settings.talker.top_p = 0.8F;
  for (Utterance& u : utterances) u.frames = 2;
  CudaOptions options;
  options.max_slots = 2;
  const auto gpu = CudaBackend::Create(model.checkpoint(), options);
  ASSERT_TRUE(gpu.ok()) << gpu.status().message();
  for (const Speech& speech : Speak(gpu->get(), utterances, 2)) EXPECT_EQ(speech.codes.size(), 2U);
}

// Over many pages and splits.
TEST(CudaBackendTest, LongSpeechKeepsGoing) {
  QTTS_NEEDS_DEVICE();
  golden::RandomCheckpointSpec spec = Preset("tiny-custom-0b6");
  const RandomModel model(spec);
  std::mt19937 random(10);
  Utterance u;
  u.prompt = RandomPrompt(model.checkpoint()->config(), 100, random);
  u.settings = Greedy();
  u.frames = 700;
  const auto gpu = Gpu(model, Precision::kF32);
  const auto cpu = Cpu(model);
  ASSERT_TRUE(gpu != nullptr && cpu != nullptr);
  const Speech got = Speak(gpu.get(), {u}, 2)[0];
  const Speech expected = Speak(cpu.get(), {u})[0];
  EXPECT_EQ(got.codes.size(), 700U);
  size_t equal = 0;
  while (equal < got.codes.size() && got.codes[equal] == expected.codes[equal]) ++equal;
  EXPECT_EQ(equal, got.codes.size()) << "codes differ from frame " << equal << " on";
}

}  // namespace
}  // namespace qtts
