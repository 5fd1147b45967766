// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_VOICE_H_
#define QTTS_VOICE_H_

#include <string>
#include <vector>

#include "qtts/request.h"
#include "qtts/status.h"

// Voices cloned from recordings, for Base checkpoints. Engine::CloneVoice() makes them. This header has its input and
// the voice files.
//
//   qtts::Recording recording = …;
//   auto voice = engine->CloneVoice(recording, {.reference_text = "What is said in it."});
//   if (voice.ok()) qtts::SaveVoice(*voice, "me.safetensors");
//   request.voice = std::make_shared<qtts::ClonedVoice>(*voice);
//
// A voice keeps its integrated loudness (ITU-R BS.1770, in LUFS). Engine::CloneVoice() measures the recording, whose
// level an in-context voice takes over. `qtts-tool voice make` replaces it by that of the voice's own speech.
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
};

// Writes `voice` as a safetensors file: tensors x_vector and reference_codes; text and model as metadata. Errors:
// kUnreadable.
Status SaveVoice(const ClonedVoice& voice, const std::string& path);

// Reads a file of SaveVoice(). Untrusted input. Engine::Start() checks that the voice fits the model. Errors:
// kNotFound, kUnreadable; kCorruptModel if it is not a voice file.
Result<ClonedVoice> LoadVoice(const std::string& path);

}  // namespace qtts

#endif  // QTTS_VOICE_H_
