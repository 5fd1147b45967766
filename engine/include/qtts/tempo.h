// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TEMPO_H_
#define QTTS_TEMPO_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace qtts {

// Changes the rate of speech and keeps its pitch: waveform-similarity overlap-add (WSOLA; W. Verhelst, M. Roelands,
// 1993).
//
//   Tempo tempo(24000);
//   tempo.SetRate(1.5);
//   for (const auto& frame : frames) {
//     tempo.Put(frame);
//     tempo.Take(&out);   // appends what is ready
//   }
//   tempo.Finish();
//   tempo.Take(&out);     // the rest: out.size() is now the length of all frames / 1.5, rounded
//
// The output consists of blocks of 21 ms; around rate 0.75 they are shorter, down to 17 ms, and above 1.5, down to 16
// ms from rate 2 on. Each one fades from the continuation of the block before it to the place of the source that
// resembles it most, near where the rate has come.
//
// State goes on from call to call: the output doesn't depend on how the source is cut. A block needs two blocks of
// source after the place where it begins by the rate; the first one 1.25 blocks times the rate, so that the first sound
// of a frame of 80 ms leaves with that frame at every rate. The first samples and the last ones are those of the
// source. Silence of zeros stays silence. At rate 1 the source is copied.
//
// Owned by one utterance. Not thread-safe.
class Tempo {
 public:
  static constexpr double kMinRate = 0.25;
  static constexpr double kMaxRate = 4.0;

  explicit Tempo(int sample_rate);

  // Sets the rate of the blocks that are made from now on: above 1 is faster. Clamped to the range.
  void SetRate(double rate);
  double rate() const { return rate_; }

  // Adds samples. Not after Finish().
  void Put(std::span<const float> samples);
  // Ends the source.
  void Finish() { finished_ = true; }

  // Appends all samples that are ready to `out`, and returns their number.
  size_t Take(std::vector<float>* out);

  // Returns the place in the source, in samples since its beginning, for which the samples taken so far stand: by the
  // rate. A sample may come from 20 ms before or after it, on average from 6. After the end: the length of the source.
  double position() const { return position_; }
  // Returns the number of samples that were put.
  uint64_t source_samples() const { return source_begin_ + source_.size(); }

 private:
  bool MakeBlock(std::vector<float>* out);
  uint64_t BestPlace(uint64_t next) const;
  bool MakeLastBlock(std::vector<float>* out);
  void Append(uint64_t place, size_t samples, std::vector<float>* out);
  void Forget();
  const float* At(uint64_t place) const { return source_.data() + (place - source_begin_); }

  const int sample_rate_;
  size_t block_ = 0;  // samples of a block at this rate
  std::vector<float> fade_in_;
  double rate_ = 1;
  bool finished_ = false;
  bool done_ = false;
  std::vector<float> source_;  // samples that are still needed
  uint64_t source_begin_ = 0;  // place of the first one
  double position_ = 0;        // place at which the next block would begin by the rate
  uint64_t continuation_ = 0;  // place after the last sample of the block before
};

}  // namespace qtts

#endif  // QTTS_TEMPO_H_
