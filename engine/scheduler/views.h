// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_SCHEDULER_VIEWS_H_
#define QTTS_SCHEDULER_VIEWS_H_

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "scheduler/step_model.h"
#include "scheduler/stream_clock.h"

// The streams and the device as the scheduler's policies see them: plain values. A policy is a struct whose members are
// its constants and whose functions depend on these and their arguments alone, the time included.
namespace qtts {

inline constexpr std::chrono::milliseconds kFrameTime{80};
// The part of a frame's time that steps may take. The rest is a reserve for what StepCost lacks: times of steps scatter
// by 5 to 10 % on an H100.
inline constexpr double kMaxBusySeconds = 0.072;

// A stream that may have a slot. Frames are counted over all parts of its utterance.
struct StreamView {
  bool real_time = true;  // Request::real_time
  bool plays = false;     // its reader has a frame and plays it
  bool has_text = true;   // the text of the next frame is known
  bool at_limit = false;  // the step of the last token was submitted
  int64_t submitted = 0;  // frames
  int64_t delivered = 0;  // of these, with results
  int64_t in_flight = 0;  // of these, without results yet
  int64_t unread = 0;
  int64_t lead = 0;                     // maximum number of frames ahead of the reader
  StreamClock::time_point first_sound;  // when the reader got the first frame
  StreamClock::duration play_time{};    // of the frames that the reader has taken, Stream::SetPlayTime()

  int64_t ahead() const { return unread + in_flight; }
  // Returns the time at which a listener who plays from first_sound on has heard all that was submitted.
  StreamClock::time_point SoundEnd() const { return first_sound + play_time + ahead() * kFrameTime; }
  // Returns for how long the submitted frames last the reader. At least a frame's time for a stream without its next
  // text: it can't use a step that it takes from others.
  StreamClock::duration SoundAhead(StreamClock::time_point now) const {
    const auto in_hand = std::max<int64_t>(ahead(), has_text ? 0 : 1) * kFrameTime;
    return std::max<StreamClock::duration>(in_hand, SoundEnd() - now);
  }
};

// The device, and how it keeps up.
struct DeviceView {
  bool many = false;  // a separate device with more than kDefaultVoices slots
  int slots = 0;
  int free_slots = 0;
  int real_time = 0;            // open slots of real-time utterances
  int ahead = 0;                // open slots of parts that are made ahead of their turn
  bool busy = false;            // StepPolicy::IsBusy()
  bool short_of_pages = false;  // a stream is parked, or ContextPages::IsShort()
  bool low = false;             // StepPolicy::AreLow()
  bool read_ahead = false;      // many streams' readers take frames much faster than they are played
  StepCost cost;
  StreamClock::time_point done_at;  // predicted end of all submitted work
  double prompts_a_second = 0;      // work on prompts in the last second or so, in frames' work

  int speaking() const { return slots - free_slots; }
  // Returns the number of slots that have deadlines: the real-time ones; all that speak in turn while there is none.
  int in_time() const { return real_time > 0 ? real_time : speaking() - ahead; }
  // Returns the predicted time of a step of `streams` streams, beside the prompts that come in a frame's time.
  double SecondsWithPrompts(int streams) const {
    return cost.SecondsOf(streams, prompts_a_second * std::chrono::duration<double>(kFrameTime).count());
  }
};

}  // namespace qtts

#endif  // QTTS_SCHEDULER_VIEWS_H_
