// SPDX-License-Identifier: LGPL-2.1-or-later
// The encoders against the naive ones, on random checkpoints of several sizes and weight types.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "cpu/codec_encoder.h"
#include "cpu/cpu_voice_encoder.h"
#include "cpu/mel_spectrogram.h"
#include "cpu/speaker_encoder.h"
#include "golden/generator/random_checkpoint.h"
#include "golden/odd_encoders.h"
#include "naive_voice.h"
#include "random_tensors.h"
#include "unit/checkpoint/support.h"

namespace qtts::cpu {
namespace {

// Similar to a voice: harmonics with varying amplitudes, and noise.
std::vector<float> Voice(int64_t samples, RandomTensors* random) {
  std::vector<float> pcm = random->Floats(samples, 0.01);
  const double pitch = random->Integer(90, 220);
  for (int64_t i = 0; i < samples; ++i) {
    const double time = static_cast<double>(i) / 24000;
    for (int h = 1; h <= 8; ++h) {
      pcm[static_cast<size_t>(i)] +=
          static_cast<float>(0.1 * std::sin(6.283 * pitch * h * time) * (1 + std::sin(7 * time * h + h)) / h);
    }
  }
  return pcm;
}

std::vector<double> Doubles(const std::vector<float>& x) { return {x.begin(), x.end()}; }

struct Case {
  const char* name;
  const char* preset;
  DType dtype;
  DType codec_dtype;
  std::vector<std::pair<const char*, int>> sizes;
};

std::vector<Case> Cases() {
  return {
      {"AsPublished", "tiny-base-0b6", DType::kBF16, DType::kF32, {}},
      {"Half", "tiny-base-1b7", DType::kF16, DType::kF16, {}},
      {"OddSizes", "tiny-base-0b6", DType::kF32, DType::kBF16, golden::OddEncoderSizes()},
  };
}

class VoiceEncoderTest : public ::testing::TestWithParam<Case> {
 protected:
  VoiceEncoderTest() : random_(17), pool_(2) {}

  void SetUp() override {
    auto spec = golden::FindPreset(GetParam().preset);
    ASSERT_TRUE(spec.ok());
    spec->seed = 5;
    spec->dtype = GetParam().dtype;
    spec->codec_dtype = GetParam().codec_dtype;
    for (const auto& [size, value] : GetParam().sizes) ASSERT_TRUE(golden::SetSize(&*spec, size, value).ok());
    ASSERT_TRUE(golden::WriteRandomCheckpoint(folder_.path(), *spec).ok());
    auto checkpoint = Checkpoint::Open(folder_.path());
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    checkpoint_ = *checkpoint;
    auto encoder = checkpoint_->OpenVoiceEncoder();
    ASSERT_TRUE(encoder.ok()) << encoder.status().message();
    encoder_ = *std::move(encoder);
  }

  qtts::testing::TempFolder folder_;
  RandomTensors random_;
  ThreadPool pool_;
  std::shared_ptr<const Checkpoint> checkpoint_;
  Checkpoint::VoiceEncoder encoder_;
};

TEST_P(VoiceEncoderTest, SpeakerEqualsTheNaiveOne) {
  const SpeakerEncoder speaker(encoder_.config.speaker, encoder_.weights.speaker, pool_);
  const auto bins = static_cast<size_t>(encoder_.config.speaker.mel_bins);
  // The minimum number of rows for reflection padding, and more than one block of attention.
  for (const size_t rows : {size_t{5}, size_t{40}, size_t{300}}) {
    const std::vector<float> mels = random_.Floats(static_cast<int64_t>(rows * bins), 4, -5);
    naive::Matrix matrix(rows);
    for (size_t t = 0; t < rows; ++t)
      matrix[t] = Doubles(
          {mels.begin() + static_cast<ptrdiff_t>(t * bins), mels.begin() + static_cast<ptrdiff_t>((t + 1) * bins)});
    const naive::Vector expected = naive::Speaker(encoder_.config.speaker, encoder_.weights.speaker, matrix);
    const std::vector<float> got = speaker.EncodeMels(mels);
    ASSERT_EQ(expected.size(), got.size());
    double largest = 0;
    for (const double v : expected) largest = std::max(largest, std::fabs(v));
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_NEAR(expected[i], static_cast<double>(got[i]), 2e-5 * largest) << rows << " rows, value " << i;
    }
  }
}

TEST_P(VoiceEncoderTest, CodesEqualTheNaiveOnes) {
  CodecEncoder codec(encoder_.config.codec, encoder_.weights.codec, pool_);
  // One sample; whole frames; one sample more and less; more than one chunk of the convolutions.
  for (const int64_t samples : {int64_t{1}, int64_t{1920}, int64_t{3841}, int64_t{9599}, int64_t{17000}}) {
    const std::vector<float> pcm = Voice(samples, &random_);
    const auto expected = naive::CodecCodes(encoder_.config.codec, encoder_.weights.codec, Doubles(pcm));
    const std::vector<int32_t> got = codec.Encode(pcm);
    const auto groups = static_cast<size_t>(codec.code_groups());
    ASSERT_EQ(expected.size(), static_cast<size_t>((samples + 1919) / 1920));
    ASSERT_EQ(got.size(), expected.size() * groups) << samples;
    for (size_t t = 0; t < expected.size(); ++t) {
      const std::vector<int32_t> frame(got.begin() + static_cast<ptrdiff_t>(t * groups),
                                       got.begin() + static_cast<ptrdiff_t>((t + 1) * groups));
      EXPECT_EQ(frame, expected[t]) << samples << " samples, frame " << t;
    }
    EXPECT_EQ(codec.Encode(pcm), got) << "again";
  }
}

TEST_P(VoiceEncoderTest, ThreadsChangeNothing) {
  const std::vector<float> pcm = Voice(30000, &random_);
  std::vector<float> x_vector;
  std::vector<int32_t> codes;
  for (const int threads : {1, 2, 5}) {
    const auto encoder = CreateCpuVoiceEncoder(checkpoint_, threads);
    ASSERT_TRUE(encoder.ok());
    const auto got_vector = (*encoder)->SpeakerVector(pcm);
    const auto got_codes = (*encoder)->Codes(pcm);
    ASSERT_TRUE(got_vector.ok() && got_codes.ok());
    if (threads == 1) {
      x_vector = *got_vector;
      codes = *got_codes;
    }
    EXPECT_EQ(*got_vector, x_vector);
    EXPECT_EQ(*got_codes, codes);
  }
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, VoiceEncoderTest, ::testing::ValuesIn(Cases()),
                         [](const auto& tested) { return std::string(tested.param.name); });

TEST(MelSpectrogramTest, EqualsItsDefinition) {
  RandomTensors random(3);
  const MelSpectrogram spectrogram(128);
  for (const int64_t samples : {MelTables::kLeastSamples, int64_t{1500}}) {
    const std::vector<float> pcm = Voice(samples, &random);
    const naive::Matrix expected = naive::Mel(Doubles(pcm), 128);
    const std::vector<float> got = spectrogram.Compute(pcm);
    ASSERT_EQ(static_cast<int64_t>(expected.size()), MelTables::Frames(samples));
    ASSERT_EQ(got.size(), expected.size() * 128);
    for (size_t t = 0; t < expected.size(); ++t) {
      for (size_t b = 0; b < 128; ++b) {
        ASSERT_NEAR(expected[t][b], static_cast<double>(got[t * 128 + b]), 1e-5) << "frame " << t << ", band " << b;
      }
    }
  }
}

// Damaged weights are an error.
TEST(CpuVoiceEncoderTest, ErrorsOfTheModel) {
  const qtts::testing::TempFolder folder;
  const auto custom = golden::FindPreset("tiny-custom-0b6");
  ASSERT_TRUE(custom.ok() && golden::WriteRandomCheckpoint(folder.path(), *custom).ok());
  const auto checkpoint = Checkpoint::Open(folder.path());
  ASSERT_TRUE(checkpoint.ok());
  const Status refused = CreateCpuVoiceEncoder(*checkpoint, 1).status();
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(refused.message().find("Qwen3-TTS-12Hz-0.6B-Base"), std::string::npos) << refused.message();
  EXPECT_NE(refused.message().find("this is a custom_voice checkpoint"), std::string::npos) << refused.message();
}

TEST(CpuVoiceEncoderTest, TooShortForTheNets) {
  const qtts::testing::TempFolder folder;
  const auto base = golden::FindPreset("tiny-base-0b6");
  ASSERT_TRUE(base.ok() && golden::WriteRandomCheckpoint(folder.path(), *base).ok());
  const auto checkpoint = Checkpoint::Open(folder.path());
  ASSERT_TRUE(checkpoint.ok());
  const auto encoder = CreateCpuVoiceEncoder(*checkpoint, 1);
  ASSERT_TRUE(encoder.ok());
  EXPECT_EQ((*encoder)->SpeakerVector(std::vector<float>(500)).status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE((*encoder)->SpeakerVector(std::vector<float>(1280)).ok());
}

}  // namespace
}  // namespace qtts::cpu
