// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef GST_QTTS_ENGINE_HOLDER_H_
#define GST_QTTS_ENGINE_HOLDER_H_

#include <functional>
#include <memory>

#include "gstqttsloader.h"
#include "gstqttsmonitor.h"
#include "qtts/engine_options.h"
#include "qtts/model_info.h"
#include "qtts/status.h"

namespace qtts {
class Engine;
}

namespace gstqtts {

// The engine of the runs: loads it, keeps it from one run to the next, and releases it.
//
// Owned by the Player. Functions without QTTS_REQUIRES are for the thread that changes states, and take the monitor's
// mutex themselves.
class EngineHolder {
 public:
  explicit EngineHolder(std::shared_ptr<Monitor> monitor);
  ~EngineHolder();
  EngineHolder(const EngineHolder&) = delete;
  EngineHolder& operator=(const EngineHolder&) = delete;

  // Functions of the Player with these names:
  bool NeedsLoad(const qtts::EngineOptions& options) const QTTS_EXCLUDES(monitor_held);
  void Load(const qtts::EngineOptions& options, const std::function<void(EngineLoader::Outcome)>& on_done)
      QTTS_EXCLUDES(monitor_held);
  void CancelLoad() { loader_.Cancel(); }
  void Release() QTTS_EXCLUDES(monitor_held);
  // Joins threads of ended loads. Without the mutex, which a finishing thread may still need.
  void JoinEnded() { loader_.JoinEnded(); }

  void UseLoad(EngineLoader::Outcome outcome) QTTS_REQUIRES(monitor_held);
  // Ends a run. Returns true if a load was still running. `engine`: an engine to release, without the mutex.
  bool EndRun(std::shared_ptr<qtts::Engine>* engine) QTTS_REQUIRES(monitor_held);
  // Notes that a stream has failed: the next run loads the engine anew.
  void NoteFailedStream() QTTS_REQUIRES(monitor_held) { suspect_ = true; }
  bool load_failed() const QTTS_REQUIRES(monitor_held) { return !load_status_.ok(); }
  // Returns the engine; null before it is loaded.
  std::shared_ptr<qtts::Engine> engine() const QTTS_REQUIRES(monitor_held) { return engine_; }
  // Returns zeros without an engine.
  qtts::Occupancy occupancy() const QTTS_REQUIRES(monitor_held);

 private:
  const std::shared_ptr<Monitor> monitor_;
  bool loading_ QTTS_GUARDED_BY(monitor_held) = false;  // the outcome has not come yet
  qtts::EngineOptions options_ QTTS_GUARDED_BY(monitor_held);
  qtts::Status load_status_ QTTS_GUARDED_BY(monitor_held);
  std::shared_ptr<qtts::Engine> engine_ QTTS_GUARDED_BY(monitor_held);
  bool suspect_ QTTS_GUARDED_BY(monitor_held) = false;  // a stream of it failed

  EngineLoader loader_;  // last: its thread uses the rest until it is joined
};

}  // namespace gstqtts

#endif  // GST_QTTS_ENGINE_HOLDER_H_
