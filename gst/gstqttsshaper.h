// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef GST_QTTS_SHAPER_H_
#define GST_QTTS_SHAPER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "gstqttstrim.h"
#include "qtts/silence_limiter.h"
#include "qtts/tempo.h"

namespace gstqtts {

// Span of sound: samples [begin, end) of an utterance, as the engine made it, are heard in `samples` samples.
struct SoundSpan {
  double begin = 0;
  double end = 0;
  size_t samples = 0;
};

// Sound of an utterance that leaves the element. The spans follow one another; what lies between them was left out.
struct ShapedSound {
  std::vector<float> pcm;
  std::vector<SoundSpan> spans;
};

// Shapes the sound of an utterance before it leaves: cuts the silence in front, shortens silences, changes the rate, or
// fits it into a slot. Keeps which sound of the engine is heard where.
//
// One frame in gives at most one out, unless the rate is below 1: sound whose rate is changed is no longer than a frame
// of 80 ms. Without anything to change, frames pass as they are.
//
// Owned by one utterance; used by the streaming thread without the monitor's mutex. Not thread-safe.
class SoundShaper {
 public:
  struct Options {
    bool trim = false;         // cuts the silence in front
    uint64_t max_silence = 0;  // samples; 0: unlimited
    bool fit = false;          // Fit() will be called: nothing is ready before
  };

  SoundShaper(int sample_rate, const Options& options);

  // Returns true if Put() and Finish() take more time than a copy.
  bool changes_sound() const { return limiter_.has_value() || tempo_.has_value() || fitting_; }
  // Returns the number of samples of silence that were cut in front.
  uint64_t trimmed() const { return trimmed_; }

  // Sets the rate of sound that is put from now on.
  void SetRate(double rate);
  // Adds the next samples that the engine has made.
  void Put(std::vector<float> pcm);
  // Ends the sound: all of it was put.
  void Finish();
  bool finished() const { return finished_; }
  // Makes the speech, all of which was put, last at most `slot` samples: leaves out silence at its end, and speaks
  // up to `max_compression` times as fast.
  void Fit(uint64_t slot, double max_compression);

  // Returns true if Take() has sound.
  bool ready() const { return !ready_.empty(); }
  // Takes the next sound; ready() must be true.
  ShapedSound Take();
  // Returns the spans of all sound that is ready.
  std::vector<SoundSpan> ReadySpans() const;

 private:
  void Add(std::vector<float> kept, const std::vector<qtts::KeptRun>& runs);
  void TakeFromTempo();
  void Push(std::vector<float> pcm, std::vector<SoundSpan> spans);
  std::vector<SoundSpan> TakeSpans(double until, size_t samples);

  const int sample_rate_;
  const size_t max_samples_;  // limit of one piece of sound
  LeadingSilenceTrimmer trimmer_;
  std::optional<qtts::SilenceLimiter> limiter_;
  std::optional<qtts::Tempo> tempo_;  // from the first rate other than 1 on
  double rate_ = 1;
  bool fitting_;
  std::vector<float> held_;  // until Fit()
  std::vector<qtts::KeptRun> held_runs_;
  bool finished_ = false;
  uint64_t trimmed_ = 0;
  uint64_t place_ = 0;                  // samples that were put
  std::deque<qtts::KeptRun> in_tempo_;  // places of the samples that went into `tempo_`
  uint64_t in_tempo_begin_ = 0;         // number of the first sample of those in `tempo_`
  double spanned_ = 0;                  // number of the sample of `tempo_` up to which spans were taken
  std::deque<ShapedSound> ready_;
};

}  // namespace gstqtts

#endif  // GST_QTTS_SHAPER_H_
