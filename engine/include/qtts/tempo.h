// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TEMPO_H_
#define QTTS_TEMPO_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace qtts {

// Changes the rate of speech and keeps its pitch: waveform-similarity overlap-add (WSOLA).
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
// The output consists of blocks of 15 ms. Each one fades from the continuation of the block before it to the place of
// the source, within 12.5 ms of where the rate has come, that resembles this continuation most. Where the continuation
// itself is so near, it is copied as it is: samples change only where a piece of a period is left out or repeated.
//
// State goes on from call to call: the output doesn't depend on how the source is cut. A block needs 27.5 ms of source
// after the place where it begins, or 19 ms times the rate if that is more: the first sound of a frame of 80 ms leaves
// with that frame. The first samples and the last ones are those of the source. Silence of zeros stays silence.
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
  // The source has ended.
  void Finish() { finished_ = true; }

  // Appends all samples that are ready to `out`, and returns their number.
  size_t Take(std::vector<float>* out);

  // Place in the source, in samples since its beginning, for which the samples taken so far stand. Exact on average,
  // and within 12.5 ms for each sample. After the end: the length of the source.
  double position() const { return position_; }
  // Number of samples that were put.
  uint64_t source_samples() const { return source_begin_ + source_.size(); }

 private:
  bool MakeBlock(std::vector<float>* out);
  uint64_t BestPlace(uint64_t earliest, uint64_t latest) const;
  bool MakeLastBlock(std::vector<float>* out);
  void Append(uint64_t place, size_t samples, std::vector<float>* out);
  void Forget();
  const float* At(uint64_t place) const { return source_.data() + (place - source_begin_); }

  const size_t block_;   // samples of a block
  const size_t search_;  // samples by which its place may be off
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
