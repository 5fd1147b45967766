// SPDX-License-Identifier: LGPL-2.1-or-later
// The GPU backend in F32 against the official package: greedy codes and how utterances end, and voices made of
// recordings, in every recorded case.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "cuda_backend.h"
#include "golden/golden_case.h"
#include "golden/golden_voice.h"
#include "gpu/gpu_test.h"

namespace qtts::golden {
namespace {

class GpuGolden : public ::testing::TestWithParam<std::string> {};

TEST_P(GpuGolden, GreedyCodesInF32) {
  QTTS_NEEDS_DEVICE();
  const auto fixture = MakeFixture(GetParam());
  ASSERT_TRUE(fixture.ok()) << fixture.status().message();
  cuda::CudaOptions options;
  options.precision = cuda::Precision::kF32;
  options.max_slots = 1;
  const auto backend = cuda::CudaBackend::Create(fixture->checkpoint, options);
  ASSERT_TRUE(backend.ok()) << backend.status().message();
  const auto utterance = Speak(backend->get(), *fixture);
  ASSERT_TRUE(utterance.ok()) << utterance.status().message();
  EXPECT_TRUE(utterance->status.ok()) << utterance->status.message();

  const std::vector<int32_t> expected = fixture->golden->codes();
  const auto groups = static_cast<size_t>(fixture->checkpoint->config().talker.num_code_groups);
  for (size_t i = 0; i < std::min(expected.size(), utterance->codes.size()); ++i) {
    ASSERT_EQ(utterance->codes[i], expected[i]) << "frame " << i / groups << ", group " << i % groups;
  }
  EXPECT_EQ(utterance->codes.size(), expected.size());
  EXPECT_EQ(utterance->end, fixture->golden->document["end"] == "eos" ? EndReason::kComplete : EndReason::kMaxDuration);
  const auto& tensors = fixture->golden->tensors;
  if (tensors.contains("pcm")) ExpectError(AbsoluteError(utterance->pcm, tensors.at("pcm").values), 1e-4);
}

INSTANTIATE_TEST_SUITE_P(Golden, GpuGolden, ::testing::ValuesIn(Cases({CaseKind::kGreedy})), CaseTestName);

class GpuGoldenVoice : public ::testing::TestWithParam<std::string> {};

// Through the engine, as a user would: recording to voice, voice to speech.
TEST_P(GpuGoldenVoice, CloneAndSpeakInF32) {
  QTTS_NEEDS_DEVICE();
  const auto golden = LoadCase(GetParam());
  ASSERT_TRUE(golden.ok()) << golden.status().message();
  const auto recording = RecordingOf(**golden);
  ASSERT_TRUE(recording.ok()) << recording.status().message();
  EngineOptions options;
  options.model_path = (*golden)->folder;
  options.device = Device::kCuda;
  options.precision = Precision::kF32;
  const auto engine = Engine::Load(options);
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  const auto voice = CloneOf(**golden, **engine, *recording);
  ASSERT_TRUE(voice.ok()) << voice.status().message();
  ExpectVoice(*voice, **golden);
  const std::vector<float> pcm = ExpectSpeech(engine->get(), *voice, **golden);
  const auto& tensors = (*golden)->tensors;
  if (tensors.contains("pcm")) ExpectError(AbsoluteError(pcm, tensors.at("pcm").values), 1e-4);
}

INSTANTIATE_TEST_SUITE_P(Golden, GpuGoldenVoice, ::testing::ValuesIn(Cases({CaseKind::kCloned})), CaseTestName);

}  // namespace
}  // namespace qtts::golden
