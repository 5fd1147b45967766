// SPDX-License-Identifier: LGPL-2.1-or-later
// A voice file: after reading it, writing gives the same file, and its prompt has valid ids and codes or is an error.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/config.h"
#include "fuzz/check.h"
#include "prompt/prompt.h"
#include "text/tokenizer.h"
#include "voice/takes.h"
#include "voice/voice_file.h"

namespace {

std::string Read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  QTTS_FUZZ_CHECK(file.good());
  return {std::istreambuf_iterator<char>(file), {}};
}

// The bundled model with the type Base: prompts depend on no other difference.
struct Model {
  Model() {
    const std::string folder = QTTS_SOURCE_DIR "/data/voice";
    auto parsed = qtts::ParseModelConfig(folder, Read(folder + "/config.json"), "",
                                         Read(folder + "/speech_tokenizer/config.json"));
    QTTS_FUZZ_CHECK(parsed.ok());
    config = *std::move(parsed);
    config.type = qtts::ModelType::kBase;
    auto tokenizer = qtts::Tokenizer::Load(folder, qtts::TokenizerPattern::kNative);
    QTTS_FUZZ_CHECK(tokenizer.ok());
    auto made = qtts::PromptBuilder::Create(config, *tokenizer);
    QTTS_FUZZ_CHECK(made.ok());
    builder = std::make_unique<qtts::PromptBuilder>(*std::move(made));
    auto ids = (*tokenizer)->EncodePlain("assistant\nHello there.");
    QTTS_FUZZ_CHECK(ids.ok());
    text_ids = *std::move(ids);
  }
  qtts::ModelConfig config;
  std::unique_ptr<qtts::PromptBuilder> builder;
  std::vector<int32_t> text_ids;
};

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

void CheckPrompt(const Model& model, const qtts::Prompt& prompt) {
  QTTS_FUZZ_CHECK(prompt.constant_rows <= prompt.rows.size());
  QTTS_FUZZ_CHECK(
      std::all_of(prompt.x_vector.begin(), prompt.x_vector.end(), [](float v) { return std::isfinite(v); }));
  for (const qtts::PromptRow& row : prompt.rows) {
    QTTS_FUZZ_CHECK(row.text_id >= qtts::kNoText && row.text_id < model.config.talker.text_vocab_size);
    QTTS_FUZZ_CHECK(row.codes.size() <= 1 ||
                    row.codes.size() == static_cast<size_t>(model.config.talker.num_code_groups));
    for (size_t group = 0; group < row.codes.size(); ++group) {
      const int size = group == 0 ? model.config.talker.vocab_size : model.config.predictor.vocab_size;
      QTTS_FUZZ_CHECK(row.codes[group] >= 0 && row.codes[group] < size);
    }
  }
  for (const int32_t code : prompt.reference_codes) {
    QTTS_FUZZ_CHECK(code >= 0 && code < model.config.codec.codebook_size);
  }
}

void CheckSame(const qtts::ClonedVoice& again, const qtts::ClonedVoice& read) {
  QTTS_FUZZ_CHECK(SameBits(again.x_vector, read.x_vector));
  QTTS_FUZZ_CHECK(again.reference_codes == read.reference_codes);
  QTTS_FUZZ_CHECK(again.reference_text == read.reference_text && again.model == read.model);
  QTTS_FUZZ_CHECK(again.instruct == read.instruct && again.style == read.style);
  QTTS_FUZZ_CHECK(again.loudness.has_value() == read.loudness.has_value());
  constexpr double kRounding = 0.0051;
  QTTS_FUZZ_CHECK(!read.loudness || std::fabs(*again.loudness - *read.loudness) < kRounding);
}

// `voice` as it is, in both layouts.
void Speak(const Model& model, const qtts::ClonedVoice& voice) {
  qtts::Request request;
  request.voice = std::make_shared<const qtts::ClonedVoice>(voice);
  for (const qtts::PromptLayout layout : {qtts::PromptLayout::kStreaming, qtts::PromptLayout::kNonStreaming}) {
    request.layout = layout;
    const auto prompt = model.builder->Build(request, model.text_ids, true);
    if (prompt.ok()) {
      CheckPrompt(model, *prompt);
    } else {
      QTTS_FUZZ_CHECK(!prompt.status().message().empty() && prompt.status().message().size() < 2000);
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Model model;
  const auto read = qtts::ParseTakes(std::as_bytes(std::span(data, size)), "fuzz.safetensors");
  if (!read.ok()) {
    QTTS_FUZZ_CHECK(!read.status().message().empty() && read.status().message().size() < 2000);
    return 0;
  }
  const std::string written = qtts::WriteTakes(*read);
  const auto again = qtts::ParseTakes(std::as_bytes(std::span(written)), "again.safetensors");
  QTTS_FUZZ_CHECK(again.ok() && again->size() == read->size());
  for (size_t take = 0; take < read->size(); ++take) CheckSame((*again)[take], (*read)[take]);
  for (const char* instruct : {"", "Calm, please."}) {
    const auto chosen = qtts::ChooseTake(*read, read->back().style, instruct, "fuzz.safetensors");
    QTTS_FUZZ_CHECK(chosen.ok());
  }

  Speak(model, read->back());
  // Then adapted to the model, so that most pass the first checks.
  qtts::ClonedVoice fitting = read->back();
  const auto groups = static_cast<size_t>(model.config.talker.num_code_groups);
  fitting.x_vector.resize(static_cast<size_t>(model.config.talker.transformer.hidden_size));
  fitting.reference_codes.resize((fitting.reference_codes.size() + groups - 1) / groups * groups);
  Speak(model, fitting);
  return 0;
}
