// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_REQUEST_H_
#define QTTS_REQUEST_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace qtts {

// Sampling rules of one code (spec 6). Greedy (argmax) if do_sample is false.
struct TokenSampling {
  bool do_sample = true;
  float temperature = 0.9F;  // > 0
  int top_k = 50;            // keep the k largest, ties included; 0 = all
  float top_p = 1.0F;        // nucleus in (0, 1]; 1 = off
};

// Settings of the generation of one utterance. The values here are the official effective defaults; a model's own are
// in ModelInfo::defaults.
struct GenerationSettings {
  TokenSampling talker;              // codebook 0
  TokenSampling predictor;           // the other codebooks
  float repetition_penalty = 1.05F;  // > 0; on codebook 0 only, over the whole history; 1 = off
  int64_t max_new_tokens = 8192;     // >= 2; the utterance has at most max_new_tokens - 1 frames
};

// The two official prompt layouts (spec 3.4).
enum class PromptLayout {
  kDefault,       // the official default: streaming for Base, non-streaming for the others
  kStreaming,     // the text is fed one token per frame
  kNonStreaming,  // the whole text is in the prompt
};

// A voice for a Base checkpoint, extracted from a reference recording; or for a VoiceDesign checkpoint, one of its own
// utterances, which keeps a designed voice the same. Plain values.
struct ClonedVoice {
  std::vector<float> x_vector;  // [talker hidden size]; empty for a designed voice
  // Codes of the reference recording, [frames][code_groups]. Empty: x-vector only. Otherwise in-context learning (ICL),
  // which needs reference_text.
  std::vector<int32_t> reference_codes;
  std::string reference_text;
  // Description of a designed voice, which requests without an instruction have.
  std::string instruct;
  // Manner of speaking, by which one of several takes of a voice is chosen; in lower case. May be empty.
  std::string style;
  // ModelInfo::fingerprint of the model that made it; other models refuse it. Empty: not checked.
  std::string model;
  // Integrated loudness of its speech in LUFS, see qtts/voice.h. None: it was not measured.
  std::optional<double> loudness = std::nullopt;
  // Faults of the recording, each with its remedy, from Engine::CloneVoice(). Not part of a voice file.
  std::vector<std::string> warnings;

  bool designed() const { return x_vector.empty() && !reference_codes.empty(); }
};

// Bounds of the parts into which a long text is split, in characters (Unicode code points). A model speaks a text only
// as long as those that it was trained on. A part ends at the first sentence end beyond `sentence`, else at the first
// clause end (comma, semicolon, colon, dash) beyond `clause`, else at the last word end within `max`. `max` = 0: there
// is one part.
struct PartBounds {
  size_t sentence = 0;
  size_t clause = 0;
  size_t max = 0;

  // Returns the bounds for parts of at most `characters`.
  static constexpr PartBounds Of(size_t characters) { return {characters / 2, characters * 3 / 4, characters}; }
};

// One utterance. Plain values; names are case-insensitive.
struct Request {
  static constexpr std::chrono::nanoseconds kNoLimit = std::chrono::nanoseconds::max();

  std::string text;        // UTF-8; invalid bytes become U+FFFD
  bool more_text = false;  // more text follows through Stream::Append(); needs the streaming layout
  std::string speaker;     // custom_voice: a preset speaker; empty = the model's default
  // A name from ModelInfo::languages or its BCP-47 tag ("de", "pt-BR"). Empty, "auto" or "und": the text decides.
  std::string language;
  std::string instruct;                      // style instruction; for voice_design the description of the voice
  std::shared_ptr<const ClonedVoice> voice;  // base; voice_design with a designed one
  PromptLayout layout = PromptLayout::kDefault;
  // Speaks a long text part by part. Each part has a prompt of its own with the same voice, a limit of max_new_tokens
  // of its own, and a seed derived from `seed` and its number; the first part has `seed` itself. Parts share one slot,
  // and Frame::index goes on from part to part. Default: one part, as in the official package.
  PartBounds parts;
  // Number of parts that are made at once, at most: the one that is delivered and those that come next, each as soon as
  // its text is complete. Those take slots that no utterance waits for, give way to all others, and are made again if
  // their slot was needed meanwhile. 1: one after the other. Only without `real_time`. Changes no bit, word or report.
  int parallel_parts = 1;
  int64_t max_frames = 0;  // of all parts together; 0: no limit but max_new_tokens of each
  // Ends the utterance with EndReason::kRunaway if the model misses its end:
  // - after 5 s of silence;
  // - after 10 s plus `runaway_frames_per_token` frames of 80 ms per token of the text;
  // - with an alignment head, if the speech stays at the text's end for 1 s or at another place for 4 s, or goes back
  //   again and again.
  // With parts only the part ends, and the next one is spoken. Off: the model's output alone, as in the official
  // package.
  bool runaway_guard = false;
  int runaway_frames_per_token = 12;  // >= 1; speech takes at most 6
  // Maximum time to wait while all slots are taken (Engine::occupancy()), or the device has no time or memory for
  // another utterance; then the utterance ends with EndReason::kBusy. 0: no waiting.
  std::chrono::nanoseconds max_wait = kNoLimit;
  // Maximum number of frames that are made ahead of the reader; 0: EngineOptions::lead_frames. An engine of many voices
  // that is busy makes fewer. Changes no bit.
  int lead_frames = 0;
  // The utterance is played while it is made. Set it to false for speech that goes to a file or is played later. Such
  // speech is made as fast as possible and gives way to real-time utterances, which have no gaps because of it. Changes
  // no bit.
  bool real_time = true;
  uint64_t seed = 0;  // same model, device, request and seed give the same audio
  GenerationSettings settings;
};

}  // namespace qtts

#endif  // QTTS_REQUEST_H_
