// SPDX-License-Identifier: LGPL-2.1-or-later
// Prompts of every mode from the caches, and prompts in pieces.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cpu/cpu_backend.h"
#include "cpu_backend_fixture.h"
#include "prompt/prompt.h"
#include "text/tokenizer.h"

namespace qtts::cpu_backend {
namespace {

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
// Check: 32
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

// Check: 32
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
// Check: 32
TEST(CpuBackendPiecesTest, ClosedInMidPrompt) {
  const auto seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
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

}  // namespace
}  // namespace qtts::cpu_backend
