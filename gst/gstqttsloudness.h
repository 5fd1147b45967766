// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef GST_QTTS_LOUDNESS_H_
#define GST_QTTS_LOUDNESS_H_

#include <string>
#include <vector>

#include "gstqttssettings.h"
#include "qtts/model_info.h"
#include "qtts/request.h"

namespace gstqtts {

// The gain for Settings::target_loudness.
struct VoiceLevel {
  bool on = false;      // there is a target, and the loudness of the voice is known
  double gain = 1;      // of its samples; fixed for the voice, so that it does not pump
  std::string warning;  // there is a target, and the loudness is unknown: names the remedy
};

// Returns the level for an utterance. `voice`: the cloned voice of its request, if any.
VoiceLevel LevelOf(const Settings& settings, const qtts::ModelInfo& model, const qtts::ClonedVoice* voice);

// A peak limiter without latency: no sample leaves it above -1 dBFS. A peak turns the gain down at once; the gain comes
// back with a time constant of 50 ms. Samples below the ceiling pass unchanged while no peak came shortly before.
//
// Keeps its state from buffer to buffer, so that the cut of the sound into buffers does not matter. Not thread-safe.
class Limiter {
 public:
  static constexpr float kCeiling = 0.8912509F;  // -1 dBFS

  explicit Limiter(int sample_rate);

  // Forgets the peaks so far.
  void Restart() { reduction_ = 0; }
  // Multiplies the samples by `gain` and limits them.
  void Apply(double gain, std::vector<float>* pcm);

 private:
  const float keeps_;    // share of the reduction that is left after a sample
  float reduction_ = 0;  // share of the last sample that was taken away
};

}  // namespace gstqtts

#endif  // GST_QTTS_LOUDNESS_H_
