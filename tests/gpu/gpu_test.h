// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TESTS_GPU_GPU_TEST_H_
#define QTTS_TESTS_GPU_GPU_TEST_H_

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "backend/text_scores.h"
#include "checkpoint/checkpoint.h"
#include "golden/generator/random_checkpoint.h"
#include "prompt/prompt.h"

// Common code of the tests of the GPU backend.
namespace qtts::testing {

// The reason why tests are skipped; empty if they can run.
inline std::string NoDevice() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) {
    (void)cudaGetLastError();
    return std::string("no GPU: ") + cudaGetErrorString(error);
  }
  return count == 0 ? "no GPU" : "";
}

#define QTTS_NEEDS_DEVICE() \
  if (const std::string reason = ::qtts::testing::NoDevice(); !reason.empty()) GTEST_SKIP() << reason

// A random checkpoint. Its alignment head is the last one of a layer in the middle, which of two is the last layer.
// Making the files takes up to seconds, so those of the last specs are kept for further tests of the process.
class RandomModel {
 public:
  // `change`(folder) may change the files before they are opened; they are of this object alone then.
  explicit RandomModel(const golden::RandomCheckpointSpec& spec,
                       const std::function<void(const std::string&)>& change = nullptr) {
    if (change != nullptr) {
      files_ = std::make_shared<Files>(spec, change);
      return;
    }
    constexpr size_t kKept = 3;
    static std::deque<std::pair<golden::RandomCheckpointSpec, std::shared_ptr<const Files>>> kept;
    const auto found = std::find_if(kept.begin(), kept.end(), [&](const auto& model) { return model.first == spec; });
    files_ = found != kept.end() ? found->second : std::make_shared<const Files>(spec, nullptr);
    if (found != kept.end()) kept.erase(found);
    kept.emplace_front(spec, files_);
    if (kept.size() > kKept) kept.pop_back();
  }
  RandomModel(const RandomModel&) = delete;
  RandomModel& operator=(const RandomModel&) = delete;

  const std::shared_ptr<const Checkpoint>& checkpoint() const { return files_->checkpoint; }

 private:
  // In a folder that is removed at the end.
  struct Files {
    Files(const golden::RandomCheckpointSpec& spec, const std::function<void(const std::string&)>& change) {
      static int number = 0;
      folder = std::filesystem::path(::testing::TempDir()) /
               ("qtts-gpu-" + std::to_string(process) + "-" + std::to_string(number++));
      const Status status = golden::WriteRandomCheckpoint(folder.string(), spec);
      EXPECT_TRUE(status.ok()) << status.message();
      std::ofstream(folder / "qttssrc.json")
          << R"({"alignment": {"layer": )" << spec.talker.num_hidden_layers / 2 << R"(, "head": )"
          << spec.talker.num_attention_heads - 1 << R"(, "offset_ms": 0}})";
      if (change != nullptr) change(folder.string());
      auto opened = Checkpoint::Open(folder.string());
      EXPECT_TRUE(opened.ok()) << opened.status().message();
      if (opened.ok()) checkpoint = *opened;
    }
    ~Files() {
      if (::getpid() != process) return;  // the child of a death test
      checkpoint.reset();
      std::error_code error;
      std::filesystem::remove_all(folder, error);
    }
    Files(const Files&) = delete;
    Files& operator=(const Files&) = delete;

    pid_t process = ::getpid();
    std::filesystem::path folder;
    std::shared_ptr<const Checkpoint> checkpoint;
  };

  std::shared_ptr<const Files> files_;
};

inline golden::RandomCheckpointSpec Preset(const std::string& name) {
  auto spec = golden::FindPreset(name);
  EXPECT_TRUE(spec.ok());
  return *spec;
}

// A talker of real head size with some layers: small enough for the CPU, large enough for every path.
inline golden::RandomCheckpointSpec MidSize(bool large) {
  golden::RandomCheckpointSpec spec = Preset(large ? "tiny-custom-1b7" : "tiny-custom-0b6");
  spec.talker = {.hidden_size = large ? 512 : 256,
                 .intermediate_size = 768,
                 .num_hidden_layers = 4,
                 .num_attention_heads = 4,
                 .num_key_value_heads = 2,
                 .head_dim = 128,
                 .rope_theta = 1000000};
  spec.predictor = spec.talker;
  spec.predictor.hidden_size = 256;
  spec.predictor.num_hidden_layers = 2;
  spec.codebook_size = 512;
  return spec;
}

// As wide as the released models, with few layers.
inline golden::RandomCheckpointSpec FullWidth(bool large) {
  golden::RandomCheckpointSpec spec = MidSize(large);
  spec.talker.num_attention_heads = spec.predictor.num_attention_heads = 16;
  spec.talker.num_key_value_heads = spec.predictor.num_key_value_heads = 8;
  spec.talker.hidden_size = large ? 2048 : 1024;
  spec.predictor.hidden_size = 1024;
  spec.talker.intermediate_size = 3 * spec.talker.hidden_size;
  spec.predictor.intermediate_size = 3 * spec.predictor.hidden_size;
  spec.talker.num_hidden_layers = 2;
  return spec;
}

// A random prompt: text, codes (one or all groups), x-vector.
inline Prompt RandomPrompt(const ModelConfig& config, int rows, std::mt19937& random) {
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  Prompt prompt;
  for (int i = 0; i < rows; ++i) {
    PromptRow row;
    row.text_id = below(8) == 0 ? kNoText : below(config.talker.text_vocab_size);
    const int codes = below(3);
    if (codes == 1 || row.text_id == kNoText) row.codes = {below(config.talker.vocab_size)};
    if (codes == 2) {
      row.codes = {below(config.talker.vocab_size)};
      while (static_cast<int>(row.codes.size()) < config.talker.num_code_groups) {
        row.codes.push_back(below(config.predictor.vocab_size));
      }
    }
    row.x_vector = i == rows / 2;
    prompt.rows.push_back(row);
  }
  prompt.constant_rows = static_cast<size_t>(rows / 2);
  prompt.text_begin = static_cast<size_t>(rows / 4);
  prompt.pad_text_id = below(config.talker.text_vocab_size);
  for (int i = 0; i < config.talker.transformer.hidden_size; ++i) {
    prompt.x_vector.push_back(static_cast<float>(below(2001) - 1000) / 1000.0F);
  }
  return prompt;
}

// Windows of an utterance's frames: text ahead of the row and behind it, scores from anywhere in it, and none.
inline TextWindow WindowOf(int prompt_rows, int frame) {
  if (frame % 7 == 6) return {};
  const int begin = prompt_rows / 4;
  const int end = prompt_rows + (frame % 3 == 0 ? 2 * frame : frame / 2) + (frame % 2 == 0 ? 3 : 0);
  return {begin, end, begin + (end - begin) * (frame % 5) / 4};
}

inline GenerationSettings Greedy() {
  GenerationSettings settings;
  settings.talker.do_sample = false;
  settings.predictor.do_sample = false;
  return settings;
}

}  // namespace qtts::testing

#endif  // QTTS_TESTS_GPU_GPU_TEST_H_
