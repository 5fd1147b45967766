// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_SCHEDULER_PROMPT_ORDER_H_
#define QTTS_SCHEDULER_PROMPT_ORDER_H_

#include <cstddef>
#include <cstdint>

#include "scheduler/views.h"

namespace qtts {

// A prompt in progress.
struct PromptView {
  int64_t own_rows = 0;  // without the rows common to the voice's prompts
  bool begun = false;    // a piece of it was run
  bool gone = false;     // its stream has ended
  bool ahead = false;    // of a part that is made ahead of its turn
};

// A pass over the weights that is being filled with prompts.
struct PassView {
  size_t prompts = 0;
  int64_t rows = 0;         // own rows of these
  int64_t max_rows = 0;     // SharedPrompts::prompt_rows_together(); 0: a pass has one prompt
  bool hold = false;        // PromptOrder::Holds()
  bool hold_ahead = false;  // others have prompts, or a first frame is in the making
};

// Decides which prompts run between two steps. Prompts take turns, a piece of about a frame's work each.
struct PromptOrder {
  // Consecutive steps for which prompts of several pieces are held back, at most.
  int max_held_steps = 3;
  // Unread frames below which a stream that speaks runs short.
  int64_t few_unread = 3;
  // Work on prompts between two steps, in frames' work: no more begins once it is reached.
  double max_work = 1;

  enum class Choice {
    kTake,   // into the pass
    kLater,  // held back: behind the others
    kDrop,   // out of the queue
    kFull,   // it does not fit into the pass
  };

  // Returns true if a stream that could take part in a step runs short.
  bool RunsShort(const StreamView& stream) const {
    return stream.real_time && stream.delivered > 0 && stream.unread < few_unread;
  }
  // Returns true if prompts that need more than one piece are held back while a stream runs short, `held` steps after
  // they first were.
  bool Holds(int held) const { return held < max_held_steps; }
  // Returns what becomes of the prompt that is next in turn.
  Choice Choose(const PromptView& prompt, const PassView& pass) const {
    if (pass.prompts > 0 && pass.rows + prompt.own_rows > pass.max_rows) return Choice::kFull;
    if (prompt.gone) return Choice::kDrop;
    const bool held = (pass.hold && prompt.begun) || (pass.hold_ahead && prompt.ahead);
    return held ? Choice::kLater : Choice::kTake;
  }
  // Returns true if another pass may run after `work`.
  bool HasTime(double work) const { return work < max_work; }
};

}  // namespace qtts

#endif  // QTTS_SCHEDULER_PROMPT_ORDER_H_
