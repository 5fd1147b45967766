// SPDX-License-Identifier: LGPL-2.1-or-later
#include "golden/golden_voice.h"

#include <cmath>
#include <memory>
#include <string>

#include "tools/wav.h"

namespace qtts::golden {
namespace {

constexpr double kLeastCosine = 0.99999;
constexpr double kLeastEqualCodes = 0.999;

}  // namespace

Result<Recording> RecordingOf(const GoldenCase& golden) {
  const nlohmann::json& request = golden.request();
  QTTS_ASSIGN_OR_RETURN(Recording recording, ReadWav(SourceRoot() + "/tests/golden/data/references/" +
                                                     request["ref_audio"].get<std::string>()));
  recording.sample_rate = request.value("ref_rate", recording.sample_rate);
  const std::vector<float> once = recording.samples;
  float gain = 1;
  for (int i = 1; i < request.value("ref_repeat", 1); ++i) {
    gain *= 0.5F;
    for (const float sample : once) recording.samples.push_back(sample * gain);
  }
  return recording;
}

Result<ClonedVoice> CloneOf(const GoldenCase& golden, const Engine& engine, const Recording& recording) {
  CloneOptions options;
  options.reference_text = golden.request().value("ref_text", "");
  return engine.CloneVoice(recording, options);
}

void ExpectVoice(const ClonedVoice& voice, const GoldenCase& golden) {
  const std::vector<float>& x_vector = golden.tensors.at("x_vector").values;
  ASSERT_EQ(voice.x_vector.size(), x_vector.size());
  double product = 0, square = 0, expected_square = 0;
  for (size_t i = 0; i < x_vector.size(); ++i) {
    const auto ours = static_cast<double>(voice.x_vector[i]);
    const auto official = static_cast<double>(x_vector[i]);
    product += ours * official;
    square += ours * ours;
    expected_square += official * official;
  }
  EXPECT_GE(product / std::sqrt(square * expected_square), kLeastCosine);

  std::vector<int32_t> reference;
  for (const auto& frame : golden.document.value("reference_codes", nlohmann::json::array())) {
    for (const auto& code : frame) reference.push_back(code);
  }
  ASSERT_EQ(voice.reference_codes.size(), reference.size());
  size_t equal = 0;
  for (size_t i = 0; i < reference.size(); ++i) equal += voice.reference_codes[i] == reference[i] ? 1 : 0;
  EXPECT_GE(static_cast<double>(equal), kLeastEqualCodes * static_cast<double>(reference.size()));
  ::testing::Test::RecordProperty("codes_that_differ", static_cast<int>(reference.size() - equal));
}

std::vector<float> ExpectSpeech(Engine* engine, const ClonedVoice& voice, const GoldenCase& golden) {
  std::vector<float> pcm;
  const auto fixture = MakeFixture(golden.name);
  EXPECT_TRUE(fixture.ok()) << fixture.status().message();
  if (!fixture.ok()) return pcm;
  Request request = fixture->request;
  request.voice = std::make_shared<const ClonedVoice>(voice);
  const auto stream = engine->Start(request);
  EXPECT_TRUE(stream.ok()) << stream.status().message();
  if (!stream.ok()) return pcm;
  std::vector<int32_t> codes;
  Frame frame;
  while ((*stream)->Read(&frame) == ReadState::kFrame) {
    codes.insert(codes.end(), frame.codes.begin(), frame.codes.end());
    pcm.insert(pcm.end(), frame.pcm.begin(), frame.pcm.end());
  }
  EXPECT_TRUE((*stream)->status().ok()) << (*stream)->status().message();
  EXPECT_EQ(codes, golden.codes());
  // The samples of the reference are cut off; those of the new frames remain.
  EXPECT_EQ(pcm.size(), static_cast<size_t>(golden.frames() * engine->info().samples_per_frame));
  return pcm;
}

}  // namespace qtts::golden
