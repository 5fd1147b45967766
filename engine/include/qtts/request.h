// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_REQUEST_H_
#define QTTS_REQUEST_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace qtts {

// How one code is chosen from its logits (spec 6). Greedy (argmax) when do_sample is false.
struct TokenSampling {
  bool do_sample = true;
  float temperature = 0.9F;  // > 0
  int top_k = 50;            // keep the k most likely, ties included; 0 = all
  float top_p = 1.0F;        // nucleus in (0, 1]; 1 = off
};

// Everything that steers the generation of one utterance. The official effective defaults; a
// model's own come from ModelInfo::defaults.
struct GenerationSettings {
  TokenSampling talker;              // codebook 0
  TokenSampling predictor;           // the other codebooks
  float repetition_penalty = 1.05F;  // > 0, on codebook 0 only, over the whole history; 1 = off
  int64_t max_new_tokens = 8192;     // >= 2; the utterance has at most max_new_tokens - 1 frames
};

// Which of the two official prompt layouts to use (spec 3.4).
enum class PromptLayout {
  kDefault,       // the official default: streaming for Base, non-streaming for the others
  kStreaming,     // text is fed one token per frame
  kNonStreaming,  // the whole text lies in the prompt
};

// A voice for a Base checkpoint, as extracted from a reference recording. Plain values.
struct ClonedVoice {
  std::vector<float> x_vector;  // [talker hidden size]
  // Codes of the reference recording, [frames][code_groups] row by row. Empty: x-vector only;
  // otherwise in-context learning (ICL), which needs reference_text, what the recording says.
  std::vector<int32_t> reference_codes;
  std::string reference_text;
  // ModelInfo::fingerprint of the model it was made with: others refuse it. Empty: not checked.
  std::string model;
};

// One utterance to speak. Plain values; names are case-insensitive.
struct Request {
  static constexpr std::chrono::nanoseconds kNoLimit = std::chrono::nanoseconds::max();

  std::string text;        // UTF-8; invalid bytes become U+FFFD
  bool more_text = false;  // text goes on through Stream::Append(); needs the streaming layout
  std::string speaker;     // custom_voice: a preset; empty = the model's first
  // A name of ModelInfo::languages or a BCP-47 tag of one ("de", "pt-BR"); empty, "auto" or "und" = by the text.
  std::string language;
  std::string instruct;                      // how to speak; the voice's description for voice_design
  std::shared_ptr<const ClonedVoice> voice;  // base
  PromptLayout layout = PromptLayout::kDefault;
  // Ends the utterance with EndReason::kRunaway when the model has missed its end: after 5 s of silence,
  // or when it lasts far longer than its text can (10 s and 2 s a token). Off: exactly what the model
  // gives, as in the official package.
  bool runaway_guard = false;
  // How long it may wait for its turn where the engine speaks as many utterances as it can (Engine::occupancy()): then
  // it ends with EndReason::kBusy. 0: it does not wait.
  std::chrono::nanoseconds max_wait = kNoLimit;
  uint64_t seed = 0;  // same model, device, request and seed: same audio
  GenerationSettings settings;
};

}  // namespace qtts

#endif  // QTTS_REQUEST_H_
