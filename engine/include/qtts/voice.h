// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_VOICE_H_
#define QTTS_VOICE_H_

#include <string>
#include <vector>

#include "qtts/request.h"
#include "qtts/status.h"

// Voices cloned from recordings, for Base checkpoints. Engine::CloneVoice() makes them; here is what
// goes in, and the files that keep them.
//
//   qtts::Recording recording = …;
//   auto voice = engine->CloneVoice(recording, {.reference_text = "What is said in it."});
//   if (voice.ok()) qtts::SaveVoice(*voice, "me.safetensors");
//   request.voice = std::make_shared<qtts::ClonedVoice>(*voice);
//
// The first utterance with a voice takes longer to begin than those after it: what all of them have in common is kept
// by the engine, for some dozens of voices.
namespace qtts {

// Somebody speaking: 1 to 60 s of it, best 3 to 15 s of clear speech. Plain values.
struct Recording {
  std::vector<float> samples;  // interleaved, in [-1, 1]; channels are averaged
  int channels = 1;
  int sample_rate = 24000;  // Hz, 4000 to 384000; anything but 24000 is resampled
};

struct CloneOptions {
  // What the recording says, all of it and nothing else: text and sound are given to the model
  // together as an example of the voice (ICL). Empty: only the x-vector is taken, which keeps the
  // timbre and loses the manner of speaking.
  std::string reference_text;
  // Adds half a second of silence behind the recording before it is encoded. Without it the model
  // may begin by repeating the recording's last sounds, which it takes for unfinished. The official
  // package does not do it, so results differ from its. ICL only; the x-vector stays as it is.
  bool pad_reference = false;
};

// Writes `voice` as a safetensors file: tensors x_vector and reference_codes, text and model as
// metadata. Errors: kUnreadable.
Status SaveVoice(const ClonedVoice& voice, const std::string& path);

// Reads what SaveVoice() wrote. Untrusted input. Whether it fits a model is seen when it is used.
// Errors: kNotFound, kUnreadable; kCorruptModel for what is no voice file.
Result<ClonedVoice> LoadVoice(const std::string& path);

}  // namespace qtts

#endif  // QTTS_VOICE_H_
