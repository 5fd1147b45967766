// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef GST_QTTS_TIMELINE_H_
#define GST_QTTS_TIMELINE_H_

#include <cstdint>

namespace gstqtts {

// Returns the start of sample `sample` in nanoseconds, rounded down. Exact for any 64-bit time.
uint64_t SampleTime(uint64_t sample, int rate);

// Returns the whole samples that fit into `duration` nanoseconds.
uint64_t SamplesWithin(uint64_t duration, int rate);

// Position of a buffer in the stream: times in nanoseconds, offsets in samples.
struct Stamp {
  uint64_t pts = 0;
  uint64_t duration = 0;
  uint64_t offset = 0;
  uint64_t offset_end = 0;
  bool discont = false;
  bool resync = false;  // a discontinuity caused by a jump in time
  bool silence = false;
};

// Stamps buffers, which follow one another without a gap unless MoveTo() makes one. Every time is computed
// from the count of samples since the last jump in time, so that nothing drifts and each buffer ends exactly
// where the next begins. Offsets count the stamped samples; they do not jump.
//
// Used by the streaming thread alone, or while that is stopped.
class Timeline {
 public:
  explicit Timeline(int rate) : rate_(rate) {}

  Stamp Speech(uint64_t samples);
  Stamp Silence(uint64_t samples);
  // Returns the start of the next buffer, in nanoseconds.
  uint64_t time() const { return anchor_time_ + SampleTime(position_ - anchor_position_, rate_); }
  // Returns true if the next buffer is a discontinuity.
  bool broken() const { return discont_; }

  // Returns the samples of silence that are missing before an utterance which wants `gap` nanoseconds between itself
  // and the speech before it, or `leading` when it is the first since the last discontinuity.
  uint64_t MissingSilence(uint64_t leading, uint64_t gap) const;

  // Starts again at 0; the next buffer is a discontinuity.
  void Restart();
  // Continues at the current position; the next buffer is a discontinuity.
  void Break();
  // Lets the next buffer begin at `time`, but not before time(). A jump makes it a discontinuity.
  void MoveTo(uint64_t time);

 private:
  Stamp Next(uint64_t samples);

  int rate_;
  uint64_t position_ = 0;
  uint64_t anchor_time_ = 0;
  uint64_t anchor_position_ = 0;
  bool discont_ = true;
  bool leapt_ = false;
  bool spoke_ = false;           // since the last discontinuity
  uint64_t silent_samples_ = 0;  // since the last speech or discontinuity
};

}  // namespace gstqtts

#endif  // GST_QTTS_TIMELINE_H_
