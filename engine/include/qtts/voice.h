// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_VOICE_H_
#define QTTS_VOICE_H_

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "qtts/request.h"
#include "qtts/status.h"

// Voices cloned from recordings, for Base checkpoints: Engine::CloneVoice() makes them, MixVoices() mixes them. And
// designed voices, for VoiceDesign checkpoints: an utterance of the checkpoint itself, which gives others the same
// voice. This header has their inputs and the voice files.
//
//   qtts::Recording recording = …;
//   auto voice = engine->CloneVoice(recording, {.reference_text = "What is said in it."});
//   if (voice.ok()) qtts::SaveVoice(*voice, "me.safetensors");
//   request.voice = std::make_shared<qtts::ClonedVoice>(*voice);
//
// An in-context voice takes over the level of its recording, so Engine::CloneVoice() gives it the recording's
// integrated loudness (ITU-R BS.1770, in LUFS), and none to an x-vector. `qtts-tool voice make` measures the voice's
// own speech.
//
// The first utterance with a voice starts later than the others: the engine caches the part that they share, for some
// dozens of voices.
namespace qtts {

// A recording of one speaker: 1 to 60 s, best 3 to 15 s of clear speech. Plain values.
struct Recording {
  std::vector<float> samples;  // interleaved, in [-1, 1]; channels are averaged
  int channels = 1;
  int sample_rate = 24000;  // Hz, 4000 to 384000; anything but 24000 is resampled
};

struct CloneOptions {
  // Exact transcript of the recording. Text and sound together are given to the model as an example of the voice (ICL).
  // Empty: only the x-vector is extracted, which keeps the timbre and loses the manner of speaking.
  std::string reference_text;
  // Appends half a second of silence to the recording before it is encoded. Otherwise the model may begin by repeating
  // the recording's last sounds, as if they were unfinished. The official package does not do this, so results differ.
  // ICL only; the x-vector is not affected.
  bool pad_reference = false;
  // Repairs the recording first: silence at its beginning and end is trimmed, the end is faded, the level is
  // normalised, and without reference_text more than 15 s is cut at a pause. The log tells what was done, at info
  // level. The official package does not do this.
  bool prepare = false;
};

// Temperature of the code predictor for designed voices, unless the user sets another one. Below the 0.9 of the
// released models, so that the fine codes, which carry the timbre, stray less from those of the take.
inline constexpr float kDesignedPredictorTemperature = 0.5F;

// Writes `voice` as a safetensors file: tensors x_vector and reference_codes; text and model as metadata. Errors:
// kUnreadable.
Status SaveVoice(const ClonedVoice& voice, const std::string& path);

// Largest number of takes in a voice file.
inline constexpr size_t kMaxTakes = 64;

// Writes the takes of one voice, 1 to kMaxTakes with different styles. Errors: also kInvalidArgument.
Status SaveTakes(std::span<const ClonedVoice> takes, const std::string& path);

// Reads a file of SaveVoice() or SaveTakes(). Untrusted input. Engine::Start() checks that the voice fits the model.
// Errors: kNotFound, kUnreadable; kCorruptModel if it is not a voice file.
Result<std::vector<ClonedVoice>> LoadTakes(const std::string& path);

// Returns the take of LoadTakes() with this style, in upper or lower case; kInvalidArgument names the styles that there
// are. Without a style it is the take whose style is the first word of `instruct`, unless the voice is a designed one,
// whose model heeds instructions itself; else the first take, with a warning in it if takes have styles and none is
// that word.
Result<ClonedVoice> LoadVoice(const std::string& path, const std::string& style = {}, const std::string& instruct = {});

// A voice and its share of a mix.
struct VoiceShare {
  ClonedVoice voice;
  double weight = 1;  // above 0
};

// Mixes the x-vectors of voices of one model: their mean by weight, with the mean of their lengths, since a mean of
// directions is shorter. The weights need not have the sum 1. Codes are left out: the mix has a timbre and no manner.
// kInvalidArgument for fewer than two voices, a weight that is not above 0, designed voices, and voices of different
// models or sizes.
Result<ClonedVoice> MixVoices(std::span<const VoiceShare> shares);

}  // namespace qtts

#endif  // QTTS_VOICE_H_
