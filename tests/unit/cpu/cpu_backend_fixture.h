// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TESTS_CPU_BACKEND_FIXTURE_H_
#define QTTS_TESTS_CPU_BACKEND_FIXTURE_H_

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "cpu/cpu_backend.h"
#include "golden/generator/random_checkpoint.h"

// Utterances of random checkpoints on the CPU backend.

namespace qtts::cpu_backend {

// A random checkpoint in a temporary folder.
class Model {
 public:
  explicit Model(const std::string& preset, double eos_logit = -20) {
    static int count = 0;
    folder_ = std::filesystem::temp_directory_path() /
              ("qtts-cpu-backend-" + std::to_string(std::hash<std::string>()(preset) % 10000) + "-" +
               std::to_string(::testing::UnitTest::GetInstance()->random_seed()) + "-" + std::to_string(getpid()) +
               "-" + std::to_string(++count));
    auto spec = golden::FindPreset(preset);
    EXPECT_TRUE(spec.ok()) << spec.status().message();
    spec->eos_logit = eos_logit;
    const Status status = golden::WriteRandomCheckpoint(folder_.string(), *spec);
    EXPECT_TRUE(status.ok()) << status.message();
  }
  ~Model() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
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
  std::filesystem::path folder_;
};

inline std::unique_ptr<Backend> MakeBackend(const std::shared_ptr<const Checkpoint>& checkpoint, int threads = 2) {
  auto backend = CreateCpuBackend(checkpoint, threads);
  EXPECT_TRUE(backend.ok()) << backend.status().message();
  return *std::move(backend);
}

inline GenerationSettings Greedy() {
  GenerationSettings settings;
  settings.talker.do_sample = false;
  settings.predictor.do_sample = false;
  return settings;
}

// Rows of text and control codes, different for each `variant`.
inline Prompt MakePrompt(const ModelConfig& config, int variant = 0) {
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

inline FrameResult Step(Backend* backend, SlotId slot, int32_t text_id) {
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

inline int32_t TextOf(const ModelConfig& config, int variant, int frame) {
  if (frame == 0) return kNoText;
  return frame < 6 ? (frame * 13 + variant) % config.talker.text_vocab_size : config.tts_pad_token_id;
}

inline Utterance Speak(Backend* backend, const ModelConfig& config, int variant, const GenerationSettings& settings,
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

inline void ExpectSame(const Utterance& a, const Utterance& b) {
  EXPECT_EQ(a.codes, b.codes);
  EXPECT_EQ(a.end, b.end);
  ASSERT_EQ(a.pcm.size(), b.pcm.size());
  EXPECT_EQ(0, memcmp(a.pcm.data(), b.pcm.data(), a.pcm.size() * sizeof(float)));
}

}  // namespace qtts::cpu_backend

#endif  // QTTS_TESTS_CPU_BACKEND_FIXTURE_H_
