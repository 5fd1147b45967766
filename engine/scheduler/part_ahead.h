// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_SCHEDULER_PART_AHEAD_H_
#define QTTS_SCHEDULER_PART_AHEAD_H_

#include <cstdint>
#include <deque>
#include <memory>

#include "backend/backend.h"
#include "qtts/end_reason.h"
#include "qtts/status.h"
#include "scheduler/runaway_guard.h"

namespace qtts {

struct Running;

// The results of a part of an utterance that is made ahead of its turn (Request::parallel_parts). They wait here. In
// its turn the utterance takes them as if they came from the device then, so that frames, words and reports are those
// of part after part.
struct PartAhead {
  // A frame, and the window of the scores that it has.
  struct Result {
    FrameResult frame;
    TextWindow window;
  };

  std::weak_ptr<Running> owner;  // the utterance
  bool in_turn = false;          // the utterance takes the results as they come
  int64_t max_frames = 0;        // results that may wait
  std::deque<Result> results;
  bool ended = false;  // behind `results` comes the end
  EndReason end = EndReason::kNone;
  Status status;       // of the end
  RunawayGuard guard;  // ends the part where the utterance's own guard will
};

}  // namespace qtts

#endif  // QTTS_SCHEDULER_PART_AHEAD_H_
