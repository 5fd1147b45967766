// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_SCHEDULER_STEP_POLICY_H_
#define QTTS_SCHEDULER_STEP_POLICY_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>

#include "scheduler/views.h"

namespace qtts {

// Decides which streams make up the next step, and when it runs. "A step of all" is one frame of all streams that have
// deadlines, with its time predicted by StepCost.
struct StepPolicy {
  // Groups into which the streams of a frame's time are divided, at most: each has a step of its own.
  int max_groups = 8;
  // Time that the steps of all groups may take together.
  double max_busy_seconds = kMaxBusySeconds;
  // A device is busy while a step of all, with the prompts that come meanwhile, takes longer: half of a frame's time.
  double busy_seconds = 0.040;
  // Frames that streams of a busy device are ahead of their readers. More would be made instead of newcomers' frames.
  int64_t busy_lead = 4;
  // Frames of an utterance that have steps of their own. The first one is often silent.
  int64_t newcomer_frames = 2;
  // Time of a step of all, and of the prompts that come meanwhile, above which newcomers join it once others run low:
  // their own steps would take the time that others need.
  double join_seconds = 0.060;
  // Others run low once so many of the streams that play, of `settled_frames` frames or more, have sound in store for
  // less than `low_store`. The time of a step of all is predicted from small steps where large ones are rare, and can
  // be 40 % too long; what others have in store is a fact. Streams that have just begun have as little.
  double low_share = 0.1;
  int64_t settled_frames = 6;
  std::chrono::milliseconds low_store{160};
  // Where others make way for newcomers, a step of others has WayRows() rows at most, beside streams that can't wait,
  // and is submitted `queue_reserve` before the device is done with what was submitted. A newcomer waits for all that
  // was submitted before. GPUs have graphs for multiples of 128 rows; 256 take less time a row than 128. The 1.7B
  // with the fast codec takes 53 us a row in steps of 294 on an H200, 42 us in steps of 1,746.
  size_t way_rows = 256;
  size_t way_multiple = 128;
  std::chrono::milliseconds queue_reserve{5};
  // A whole step of others comes along with newcomers once so many of them have less than `low_store`. Small steps of
  // newcomers would fill the device until the others had none.
  std::ptrdiff_t way_low = 16;
  // A device has time while a step of all takes no longer. Steps of those who need their frames first, as newcomers',
  // are small and take more time a row: with them the 1.7B with the fast codec can't make frames of 1,500 in time on an
  // H200.
  double time_seconds = 0.025;
  // Sound that a reader has taken is in store but for so much: a step of all may follow once the device has no time.
  std::chrono::milliseconds taken_reserve{160};
  // Readers take all that a device makes while more than `read_ahead_share` of the streams of a step are read by
  // `read_ahead` faster than they are played: an application's queues take a second in advance, a server's connections
  // more. Newcomers join the steps of such a device if it has no time.
  std::chrono::milliseconds read_ahead{1500};
  double read_ahead_share = 0.25;
  // A frame is due so long before its reader needs it, since prompts may come before its step. On a busy device a step
  // that takes longer than predicted is followed by others.
  std::chrono::milliseconds reserve{10};
  std::chrono::milliseconds busy_reserve{50};

  // Returns true if a step of all, with the prompts that come meanwhile, takes more than half of a frame's time.
  bool IsBusy(const DeviceView& device) const;
  // Returns the number of frames that a stream may be ahead of its reader. While pages are short it is the stream's own
  // one: a stream that is far ahead can be parked for long, and so is copied less often.
  int64_t Lead(const DeviceView& device, int64_t lead) const;
  // Returns true if the next frame of a stream with a complete prompt can be made, given room for it.
  bool CanGoOn(const DeviceView& device, const StreamView& stream) const;

  // Returns true if the device has time for small steps.
  bool HasTime(const DeviceView& device) const;
  // Returns the time at which the reader of a stream that plays needs its next frame: `now` if it waits, as one that
  // has taken all frames does. But while the device has time, what a real-time reader has taken before it is played is
  // in store, and newcomers go first. Else steps are of all such streams, and each gets as much as it can.
  StreamClock::time_point NeedsFrame(const DeviceView& device, const StreamView& stream,
                                     StreamClock::time_point now) const;

  // Returns true if newcomers join a step of all, as predicted, once others run low.
  bool IsCrowded(const DeviceView& device) const;
  // Returns true if the stream's store tells whether the device keeps up: one that has just begun has little in any
  // case, one without text or at its end gets no further frame.
  bool IsSettled(const StreamView& stream) const;
  // Returns true if a settled stream runs low, although it may be further ahead.
  bool RunsLow(const DeviceView& device, const StreamView& stream, StreamClock::time_point now) const;
  // Returns true if `low` of `settled` streams are so many that others run low.
  bool AreLow(size_t low, size_t settled) const;
  // Returns how many of an utterance's first frames its reader gets at once. One: they may be steps of newcomers alone.
  int FirstFramesTogether(const DeviceView& device) const;
  // Returns true if the stream's next frame has a step of its own with those of other newcomers.
  bool HasOwnStep(const DeviceView& device, const StreamView& stream) const;
  // Returns true if the stream must join a step of `rows` newcomers and others: it can't wait for the one after it.
  bool ComesAlong(const DeviceView& device, const StreamView& stream, size_t rows, StreamClock::time_point now) const;

  // Returns true if others make way for newcomers: unless these join them for want of time. All have to be real-time:
  // steps with others are long in any case.
  bool MakesWay(const DeviceView& device) const;
  // Returns the number of rows of a step of others that make way: `way_rows`, or so many more that steps of this size
  // make a frame of all in max_busy_seconds, with the prompts that come meanwhile.
  size_t WayRows(const DeviceView& device) const;
  // Returns the time from which a step of others that make way is submitted.
  StreamClock::time_point SubmitFrom(const DeviceView& device) const { return device.done_at - queue_reserve; }
  // Returns true if the stream has little sound in store: less than low_store.
  bool IsLow(const DeviceView& device, const StreamView& stream, StreamClock::time_point now) const;

  // Returns true if `ready` streams are enough for a step, or a step's time can't be predicted yet.
  bool IsEnough(const DeviceView& device, size_t ready) const;
  // Returns the time until which the ready streams wait for others; one that has passed: they are a step now. `since`:
  // when the first of them began to wait.
  StreamClock::time_point GatherUntil(const DeviceView& device, std::span<const StreamView> ready,
                                      StreamClock::time_point since, StreamClock::time_point now) const;

  // Returns true if the reader has taken its frames much faster than they are played.
  bool IsReadAhead(const StreamView& stream, StreamClock::time_point now) const;
  // Returns true if `streams` that are read ahead are more than `read_ahead_share` of the `rows` of a step.
  bool AreReadAhead(size_t streams, size_t rows) const;

 private:
  int Groups(const DeviceView& device) const;
  // Returns how long before a frame is needed a step of `rows` streams has to be submitted, for the frame to be there
  // `spare` before: the device first does what was submitted earlier.
  static StreamClock::duration TimeAhead(const DeviceView& device, size_t rows, StreamClock::duration spare,
                                         StreamClock::time_point now);
};

}  // namespace qtts

#endif  // QTTS_SCHEDULER_STEP_POLICY_H_
