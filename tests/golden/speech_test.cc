// SPDX-License-Identifier: LGPL-2.1-or-later
// The CPU backend as a whole against the official package: codes and samples of utterances, and the
// codec decoder alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cpu/codec_decoder.h"
#include "cpu/cpu_backend.h"
#include "cpu/thread_pool.h"
#include "golden/golden_case.h"

namespace qtts::golden {
namespace {

constexpr double kPcmTolerance = 1e-5;

Result<Utterance> SpeakOnCpu(const Fixture& fixture, int threads) {
  QTTS_ASSIGN_OR_RETURN(const auto backend, CreateCpuBackend(fixture.checkpoint, threads));
  return Speak(backend.get(), fixture);
}

// Decodes frames, `cut` of them at a time (0: all at once), after `reference` frames whose sound is
// dropped.
std::vector<float> Decode(cpu::CodecDecoder* decoder, std::span<const int32_t> reference,
                          std::span<const int32_t> codes, int64_t cut) {
  auto state = decoder->NewState();
  const auto run = [&](std::span<const int32_t> frames, std::vector<float>* pcm) {
    const auto groups = static_cast<size_t>(decoder->code_groups());
    const size_t step = cut == 0 ? frames.size() : static_cast<size_t>(cut) * groups;
    for (size_t begin = 0; begin < frames.size(); begin += step) {
      const auto part = frames.subspan(begin, std::min(step, frames.size() - begin));
      const size_t old = pcm->size();
      pcm->resize(old + part.size() / groups * static_cast<size_t>(decoder->samples_per_frame()));
      decoder->Decode(&state, part, std::span(*pcm).subspan(old));
    }
  };
  std::vector<float> dropped, pcm;
  run(reference, &dropped);
  run(codes, &pcm);
  return pcm;
}

class GoldenSpeech : public ::testing::TestWithParam<std::string> {};
class GoldenSound : public ::testing::TestWithParam<std::string> {};
class GoldenCodec : public ::testing::TestWithParam<std::string> {};

TEST_P(GoldenSpeech, GreedyCodes) {
  const auto fixture = MakeFixture(GetParam());
  ASSERT_TRUE(fixture.ok()) << fixture.status().message();
  const auto utterance = SpeakOnCpu(*fixture, 2);
  ASSERT_TRUE(utterance.ok()) << utterance.status().message();
  EXPECT_TRUE(utterance->status.ok()) << utterance->status.message();

  const std::vector<int32_t> expected = fixture->golden->codes();
  const auto groups = static_cast<size_t>(fixture->checkpoint->config().talker.num_code_groups);
  for (size_t i = 0; i < std::min(expected.size(), utterance->codes.size()); ++i) {
    ASSERT_EQ(utterance->codes[i], expected[i]) << "frame " << i / groups << ", group " << i % groups;
  }
  EXPECT_EQ(utterance->codes.size(), expected.size());
  EXPECT_EQ(utterance->end, fixture->golden->document["end"] == "eos" ? EndReason::kComplete : EndReason::kMaxDuration);
}

TEST_P(GoldenSound, SamplesOfTheUtterance) {
  const auto fixture = MakeFixture(GetParam());
  ASSERT_TRUE(fixture.ok()) << fixture.status().message();
  const auto utterance = SpeakOnCpu(*fixture, 1);
  ASSERT_TRUE(utterance.ok()) << utterance.status().message();
  ExpectError(AbsoluteError(utterance->pcm, fixture->golden->tensors.at("pcm").values), kPcmTolerance);
}

// Frame by frame, in uneven parts and at once give the same bits.
void ExpectSameHoweverCut(cpu::CodecDecoder* decoder, const Fixture& fixture, const std::vector<float>& whole) {
  for (const int64_t cut : {1, 7}) {
    EXPECT_EQ(Decode(decoder, fixture.prompt.reference_codes, fixture.golden->codes(), cut), whole)
        << cut << " frames at a time";
  }
}

TEST_P(GoldenSound, StreamEqualsWhole) {
  const auto fixture = MakeFixture(GetParam());
  ASSERT_TRUE(fixture.ok()) << fixture.status().message();
  cpu::ThreadPool pool(2);
  cpu::CodecDecoder decoder(fixture->checkpoint->config().codec, fixture->checkpoint->codec(), pool);
  const std::vector<float> whole = Decode(&decoder, fixture->prompt.reference_codes, fixture->golden->codes(), 0);
  ExpectSameHoweverCut(&decoder, *fixture, whole);
  const auto utterance = SpeakOnCpu(*fixture, 2);
  ASSERT_TRUE(utterance.ok()) << utterance.status().message();
  EXPECT_EQ(utterance->pcm, whole) << "the backend's stream";
}

TEST_P(GoldenCodec, Samples) {
  const auto fixture = MakeFixture(GetParam());
  ASSERT_TRUE(fixture.ok()) << fixture.status().message();
  const GoldenCase& golden = *fixture->golden;
  cpu::ThreadPool pool(2);
  cpu::CodecDecoder decoder(fixture->checkpoint->config().codec, fixture->checkpoint->codec(), pool);
  const std::vector<int32_t> codes = golden.codes();
  const auto rate = static_cast<size_t>(decoder.samples_per_frame());
  const size_t first = golden.document["kept_frames"][0];
  const size_t last = golden.document["kept_frames"][1];
  const std::vector<float> whole = Decode(&decoder, {}, codes, 0);
  ExpectSameHoweverCut(&decoder, *fixture, whole);
  const auto kept = std::span(whole).subspan(first * rate, (last - first) * rate);
  const bool chunked = golden.tensors.contains("pcm_unchunked");
  ExpectError(AbsoluteError(kept, golden.tensors.at(chunked ? "pcm_unchunked" : "pcm").values), kPcmTolerance);
  if (!chunked) return;

  // The package decodes 300 frames at a time, each chunk anew after 25 frames of context (spec 7.5).
  // The engine keeps its state. Its decoder, used in the same way, gives the package's samples.
  constexpr size_t kChunk = 300;
  constexpr size_t kContext = 25;
  const auto groups = static_cast<size_t>(decoder.code_groups());
  const auto later = std::span(codes).subspan((kChunk - kContext) * groups);
  const std::vector<float> restarted =
      Decode(&decoder, later.subspan(0, kContext * groups), later.subspan(kContext * groups), 0);
  const auto& official = golden.tensors.at("pcm").values;
  const size_t before = (kChunk - first) * rate;
  EXPECT_LE(AbsoluteError(kept.subspan(0, before), std::span(official).subspan(0, before)), kPcmTolerance);
  EXPECT_LE(AbsoluteError(restarted, std::span(official).subspan(before)), kPcmTolerance);
  EXPECT_GT(AbsoluteError(kept.subspan(before), std::span(official).subspan(before)), 100 * kPcmTolerance);
}

INSTANTIATE_TEST_SUITE_P(Golden, GoldenSpeech, ::testing::ValuesIn(Cases({CaseKind::kGreedy})), CaseTestName);
INSTANTIATE_TEST_SUITE_P(Golden, GoldenSound, ::testing::ValuesIn(Cases({CaseKind::kGreedy}, true)), CaseTestName);
INSTANTIATE_TEST_SUITE_P(Golden, GoldenCodec, ::testing::ValuesIn(Cases({CaseKind::kCodec})), CaseTestName);

}  // namespace
}  // namespace qtts::golden
