// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_SCHEDULER_LOOK_AHEAD_H_
#define QTTS_SCHEDULER_LOOK_AHEAD_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "scheduler/views.h"

namespace qtts {

// An utterance of several parts (Request::parallel_parts), and those of its parts that are made ahead of their turn.
struct LongTextView {
  uint64_t arrival = 0;
  bool wants_more = false;  // the next part is complete, and fewer than parallel_parts - 1 are held
  size_t held = 0;          // parts that are made ahead, or were and wait for their turn
  size_t open = 0;          // those of them that have slots
};

// Decides which parts of long texts are made ahead of their turn (Request::parallel_parts), in slots that nobody waits
// for. They give way to everything else.
struct LookAhead {
  // Parts of all utterances that may be held at once: 180 MB of samples at most, with `max_frames`.
  size_t max_parts = 64;
  // Frames of a part that may be held, 30 s of speech. A part with more waits for its turn.
  int64_t max_frames = 375;
  // Frames that an utterance has delivered before its parts are made ahead: those with steps of their own
  // (StepPolicy::newcomer_frames).
  int64_t first_frames = 2;
  // Part of a step's time by which parts that are made ahead may lengthen it while other utterances speak.
  double max_share = 0.25;
  // Time of a step up to which they may lengthen it while none but their own utterances speak, in any case: half of a
  // frame's time, so that a client that plays such an utterance as it comes has no gaps because of them.
  double max_seconds = 0.040;

  // Returns true if one more part may begin. `held`: parts of all utterances; `waiting`: an utterance waits for a slot;
  // `awaited`: a first frame is.
  bool MayBegin(const DeviceView& device, size_t held, bool waiting, bool awaited) const;
  // Returns the utterance whose next part begins: the one with the fewest parts, of equal ones the first to come. Slots
  // are thus shared evenly.
  std::optional<size_t> NextToBegin(std::span<const LongTextView> texts) const;
  // Returns the utterance that gives a slot back: the one with the most slots for parts, of equal ones the last to
  // come.
  std::optional<size_t> NextToGiveWay(std::span<const LongTextView> texts) const;

  // Returns how many of a step's candidates take part. `positions`: those that each attends to; the last ones, from
  // `others` on, are of parts that are made ahead. `beside`: utterances speak that make none. `prompts`: work on
  // prompts before the step, in frames' work.
  size_t Rows(const StepCost& cost, std::span<const int64_t> positions, size_t others, bool beside,
              double prompts) const;
};

}  // namespace qtts

#endif  // QTTS_SCHEDULER_LOOK_AHEAD_H_
