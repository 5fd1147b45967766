// SPDX-License-Identifier: LGPL-2.1-or-later
// Designed voices, pinned by an utterance of the model itself, through the engine. The other tests compare their
// prompts and codes with those of the official package, in the cases "design-1b7-pinned…".
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "golden/golden_case.h"
#include "qtts/engine.h"
#include "tools/wav.h"

namespace qtts::golden {
namespace {

constexpr int kUtterances = 10;
constexpr int64_t kPinnedFrames = 25;

struct PinnedSpeech {
  std::vector<int32_t> codes;
  std::vector<float> pcm;
  bool operator==(const PinnedSpeech&) const = default;
};

PinnedSpeech ReadAll(Stream* stream) {
  PinnedSpeech speech;
  Frame frame;
  while (stream->Read(&frame) == ReadState::kFrame) {
    speech.codes.insert(speech.codes.end(), frame.codes.begin(), frame.codes.end());
    speech.pcm.insert(speech.pcm.end(), frame.pcm.begin(), frame.pcm.end());
  }
  EXPECT_TRUE(stream->status().ok()) << stream->status().message();
  return speech;
}

class PinnedVoiceTest : public ::testing::Test {
 protected:
  static std::shared_ptr<Engine> Load(const std::string& golden_case) {
    const auto golden = LoadCase(golden_case);
    EXPECT_TRUE(golden.ok()) << golden.status().message();
    EngineOptions options;
    options.model_path = (*golden)->folder;
    options.device = Device::kCpu;
    options.threads = 2;
    auto engine = Engine::Load(options);
    EXPECT_TRUE(engine.ok()) << engine.status().message();
    return *std::move(engine);
  }

  static Request RequestOf(const Engine& engine, std::shared_ptr<const ClonedVoice> voice, int number) {
    Request request;
    request.text = "Utterance number " + std::to_string(number) + ".";
    request.seed = static_cast<uint64_t>(number);
    request.settings = engine.info().defaults;
    request.settings.max_new_tokens = kPinnedFrames + 1;
    request.voice = std::move(voice);
    return request;
  }

  // The model's own first take.
  static std::shared_ptr<const ClonedVoice> Design(Engine* engine) {
    Request request = RequestOf(*engine, nullptr, 0);
    request.instruct = "A calm old man.";
    auto voice = std::make_shared<ClonedVoice>();
    voice->reference_codes = ReadAll(engine->Start(request)->get()).codes;
    voice->reference_text = request.text;
    voice->instruct = request.instruct;
    voice->model = engine->info().fingerprint;
    return voice;
  }

  static std::vector<PinnedSpeech> SpeakTen(Engine* engine, const std::shared_ptr<const ClonedVoice>& voice) {
    std::vector<std::unique_ptr<Stream>> streams;  // at once
    for (int i = 1; i <= kUtterances; ++i) {
      Request request = RequestOf(*engine, voice, i);
      if (voice->designed()) request.settings.predictor.temperature = kDesignedPredictorTemperature;
      auto stream = engine->Start(request);
      EXPECT_TRUE(stream.ok()) << stream.status().message();
      if (stream.ok()) streams.push_back(*std::move(stream));
    }
    std::vector<PinnedSpeech> spoken;
    for (const auto& stream : streams) spoken.push_back(ReadAll(stream.get()));
    return spoken;
  }
};

double CosineOf(const std::vector<float>& a, const std::vector<float>& b) {
  double product = 0, square_a = 0, square_b = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    product += static_cast<double>(a[i]) * static_cast<double>(b[i]);
    square_a += static_cast<double>(a[i]) * static_cast<double>(a[i]);
    square_b += static_cast<double>(b[i]) * static_cast<double>(b[i]);
  }
  return product / std::sqrt(square_a * square_b);
}

// The least cosine of the speaker embeddings of two of the utterances.
double LeastLikeness(const Engine& base, const std::vector<PinnedSpeech>& spoken) {
  std::vector<std::vector<float>> embeddings;
  for (const PinnedSpeech& speech : spoken) {
    const auto voice = base.CloneVoice({speech.pcm, 1, base.info().sample_rate});
    EXPECT_TRUE(voice.ok()) << voice.status().message();
    if (voice.ok()) embeddings.push_back(voice->x_vector);
  }
  double least = 1;
  for (const auto& a : embeddings) {
    for (const auto& b : embeddings) least = std::min(least, CosineOf(a, b));
  }
  return embeddings.empty() ? -1 : least;
}

// With random weights this shows that codes and sound get where they should, not how alike released voices are.
// Check: 59
TEST_F(PinnedVoiceTest, TenUtterancesAreAsAlikeAsThoseOfAClonedVoice) {
  const auto design = Load("design-1b7-pinned");
  const auto base = Load("base-0b6-x-vector");
  const auto recording = ReadWav(SourceRoot() + "/tests/golden/data/references/speech-24000.wav");
  ASSERT_TRUE(recording.ok());
  const auto cloned = base->CloneVoice(*recording, {.reference_text = "So it goes."});
  ASSERT_TRUE(cloned.ok()) << cloned.status().message();
  const auto of_cloned = SpeakTen(base.get(), std::make_shared<const ClonedVoice>(*cloned));
  const auto of_designed = SpeakTen(design.get(), Design(design.get()));
  const double cloned_likeness = LeastLikeness(*base, of_cloned);
  const double designed_likeness = LeastLikeness(*base, of_designed);
  RecordProperty("cloned", std::to_string(cloned_likeness));
  RecordProperty("designed", std::to_string(designed_likeness));
  EXPECT_GE(designed_likeness, cloned_likeness - 0.02);
}

// Bit for bit: alone and beside others, with and without the cached beginning, whole and in pieces.
// Check: 59
TEST_F(PinnedVoiceTest, BitsDoNotDependOnHowItIsMade) {
  const auto design = Load("design-1b7-pinned");
  const auto voice = Design(design.get());
  const std::vector<PinnedSpeech> together = SpeakTen(design.get(), voice);
  ASSERT_EQ(together.size(), static_cast<size_t>(kUtterances));
  EXPECT_NE(together[0].codes, together[1].codes);
  Request request = RequestOf(*design, voice, 1);
  request.settings.predictor.temperature = kDesignedPredictorTemperature;
  EXPECT_EQ(ReadAll(design->Start(request)->get()), together[0]);
  EXPECT_EQ(ReadAll(Load("design-1b7-pinned")->Start(request)->get()), together[0]);
  // The description of the voice stands in front.
  Request described = request;
  described.instruct = voice->instruct;
  EXPECT_EQ(ReadAll(design->Start(described)->get()), together[0]);
  described.instruct = "A shrill voice.";
  EXPECT_NE(ReadAll(design->Start(described)->get()), together[0]);

  request.layout = PromptLayout::kStreaming;
  request.text = "Text that comes in pieces is spoken as if it had come as a whole, if the layout is the same.";
  const PinnedSpeech whole = ReadAll(design->Start(request)->get());
  const std::string text = request.text;
  request.text = text.substr(0, 4);
  request.more_text = true;
  const auto stream = design->Start(request);
  ASSERT_TRUE(stream.ok()) << stream.status().message();
  for (size_t at = 4; at < text.size(); at += 7) ASSERT_TRUE((*stream)->Append(text.substr(at, 7)).ok());
  ASSERT_TRUE((*stream)->FinishText().ok());
  EXPECT_EQ(ReadAll(stream->get()), whole);
}

// Check: 59
TEST_F(PinnedVoiceTest, OtherCheckpointsRefuseIt) {
  const auto design = Load("design-1b7-pinned");
  ClonedVoice voice = *Design(design.get());
  const auto refusal = [&](Engine* engine) {
    return engine->Start(RequestOf(*engine, std::make_shared<const ClonedVoice>(voice), 1)).status();
  };
  EXPECT_TRUE(refusal(design.get()).ok());
  voice.model += "0";
  EXPECT_EQ(refusal(design.get()).code(), StatusCode::kInvalidArgument);
  EXPECT_NE(refusal(design.get()).message().find("design it again"), std::string::npos);
  const Status base = refusal(Load("base-0b6-x-vector").get());
  EXPECT_NE(base.message().find("needs a voice_design checkpoint"), std::string::npos) << base.message();
}

}  // namespace
}  // namespace qtts::golden
