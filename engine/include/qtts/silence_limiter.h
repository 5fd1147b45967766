// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_SILENCE_LIMITER_H_
#define QTTS_SILENCE_LIMITER_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace qtts {

// Peak below which samples are silence: -50 dB of full scale.
inline constexpr float kSilencePeak = 0.003F;

// A stretch of samples that stays: its place in the source and its length.
struct KeptRun {
  uint64_t begin = 0;
  size_t samples = 0;

  bool operator==(const KeptRun&) const = default;
};

// Shortens silences in speech to a maximum, sample by sample as the sound comes.
//
// A block of 10 ms whose samples are all below kSilencePeak is silence. The beginning of a longer silence stays, up to
// 10 ms less than the maximum, and so do the last 10 ms before the next sound, into which the beginning fades: no onset
// is cut, and no step is heard. At the end of the sound the beginning fades to zero instead.
//
// The output does not depend on how the source is cut. At most the rest of a block waits for the next call.
//
// Owned by one utterance. Not thread-safe.
class SilenceLimiter {
 public:
  static constexpr double kBlockSeconds = 0.01;

  // `maximum`: samples; less than two blocks is two blocks.
  SilenceLimiter(int sample_rate, uint64_t maximum);

  // Takes the next samples of the source. Appends what stays to `kept`, and its places to `runs`.
  void Put(std::span<const float> samples, std::vector<float>* kept, std::vector<KeptRun>* runs);
  // Ends the source: appends the rest.
  void Finish(std::vector<float>* kept, std::vector<KeptRun>* runs);

 private:
  void AddBlock(std::span<const float> block, std::vector<float>* kept, std::vector<KeptRun>* runs);
  void Keep(std::span<const float> samples, uint64_t begin, std::vector<float>* kept, std::vector<KeptRun>* runs);

  const size_t block_size_;
  const uint64_t maximum_;
  std::vector<float> rest_;     // samples of the source that make no block yet
  uint64_t place_ = 0;          // place of the next block in the source
  uint64_t silent_ = 0;         // samples of the current silence that stayed
  std::vector<float> fading_;   // first dropped block of the current silence; empty: none was dropped
  uint64_t fading_begin_ = 0;   // place of `fading_` in the source
  std::vector<float> dropped_;  // last dropped block
  uint64_t dropped_begin_ = 0;  // place of `dropped_` in the source
};

}  // namespace qtts

#endif  // QTTS_SILENCE_LIMITER_H_
