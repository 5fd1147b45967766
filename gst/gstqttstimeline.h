// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef GST_QTTS_TIMELINE_H_
#define GST_QTTS_TIMELINE_H_

#include <cstdint>

namespace gstqtts {

// Start of sample `sample` in nanoseconds, rounded down. Exact for any 64-bit time.
uint64_t SampleTime(uint64_t sample, int rate);

// Whole samples that fit into `duration` nanoseconds.
uint64_t SamplesWithin(uint64_t duration, int rate);

// Where a buffer lies in the stream: times in nanoseconds, offsets in samples.
struct Stamp {
  uint64_t pts = 0;
  uint64_t duration = 0;
  uint64_t offset = 0;
  uint64_t offset_end = 0;
  bool discont = false;
};

// Stamps buffers that follow one another without a gap. Every time is computed from the count of
// samples, so that nothing drifts and each buffer ends exactly where the next begins.
//
// Used by the streaming thread alone, or while that is stopped.
class Timeline {
 public:
  explicit Timeline(int rate) : rate_(rate) {}

  Stamp Next(uint64_t samples);
  // Where the next buffer begins, in samples.
  uint64_t position() const { return position_; }

  // Starts again at 0; the next buffer is a discontinuity.
  void Restart();
  // Goes on at the position reached; the next buffer is a discontinuity.
  void Break() { discont_ = true; }

 private:
  int rate_;
  uint64_t position_ = 0;
  bool discont_ = true;
};

}  // namespace gstqtts

#endif  // GST_QTTS_TIMELINE_H_
