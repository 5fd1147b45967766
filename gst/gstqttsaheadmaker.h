// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef GST_QTTS_AHEAD_MAKER_H_
#define GST_QTTS_AHEAD_MAKER_H_

#include <memory>

#include "gstqttsahead.h"
#include "gstqttsintake.h"
#include "gstqttsmonitor.h"
#include "gstqttsstarter.h"
#include "gstqttstext.h"

namespace qtts {
class Engine;
}

namespace gstqtts {

// Has the engine make speech while its utterances wait in the queue (property "parallel").
//
// Owned by the Player. Used by the streaming thread with the monitor's mutex, which is released while an engine is
// called.
class AheadMaker {
 public:
  AheadMaker(std::shared_ptr<Monitor> monitor, Intake& intake, UtteranceStarter& starter)
      : monitor_(std::move(monitor)), intake_(intake), starter_(starter) {}
  AheadMaker(const AheadMaker&) = delete;
  AheadMaker& operator=(const AheadMaker&) = delete;

  // Has the engine make one more queued utterance if a slot is free. Returns true if the caller should try the next.
  bool StartOne(const std::shared_ptr<qtts::Engine>& engine) QTTS_REQUIRES(monitor_held);
  // Reads what the streams have made, if it is time for that. `slot_wanted`: the current utterance waits for the slot
  // of one that is made ahead, which must come to its end.
  void Read(bool slot_wanted) QTTS_REQUIRES(monitor_held);
  AheadList& speeches() QTTS_REQUIRES(monitor_held) { return speeches_; }
  const AheadList& speeches() const QTTS_REQUIRES(monitor_held) { return speeches_; }

 private:
  const Utterance* NextToMake() const QTTS_REQUIRES(monitor_held);

  const std::shared_ptr<Monitor> monitor_;
  Intake& intake_;
  UtteranceStarter& starter_;
  AheadList speeches_ QTTS_GUARDED_BY(monitor_held);
};

}  // namespace gstqtts

#endif  // GST_QTTS_AHEAD_MAKER_H_
