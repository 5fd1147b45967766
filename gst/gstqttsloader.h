// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef GST_QTTS_LOADER_H_
#define GST_QTTS_LOADER_H_

#include <functional>
#include <memory>
#include <vector>

#include "qtts/engine_options.h"
#include "qtts/mutex.h"
#include "qtts/status.h"

namespace qtts {
class Engine;
}

namespace gstqtts {

// Acquires an engine on a thread of its own, so that no state change waits for a model. A cancelled
// load is forgotten at once. Its thread shares nothing with the rest but the load itself; it is
// joined by JoinEnded() or a later Start() when it has ended, at the latest by the destructor.
//
// One caller at a time, but for JoinEnded(), which any thread may call.
class EngineLoader {
 public:
  using Outcome = qtts::Result<std::shared_ptr<qtts::Engine>>;

  // `on_ended` is called on the worker thread as the last thing: JoinEnded() would join it now without waiting. It may
  // come after the loader is gone, for a load that was cancelled.
  explicit EngineLoader(std::function<void()> on_ended = [] {});
  ~EngineLoader();
  EngineLoader(const EngineLoader&) = delete;
  EngineLoader& operator=(const EngineLoader&) = delete;

  // Begins a load; one that is still under way is cancelled. `on_done` is called on the worker thread
  // unless the load was cancelled before.
  void Start(const qtts::EngineOptions& options, const std::function<void(Outcome)>& on_done);

  // Forgets the load, if any. Does not wait for it, only for `on_done` to return if it is being called, and
  // by another thread.
  void Cancel();

  // Joins the threads of loads that have ended, whose stacks take address space until then. Waits for nothing.
  void JoinEnded();

 private:
  struct Job;

  const std::function<void()> on_ended_;
  qtts::Mutex mutex_;
  std::shared_ptr<Job> job_ QTTS_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<Job>> past_ QTTS_GUARDED_BY(mutex_);  // ended or cancelled, still to be joined
};

}  // namespace gstqtts

#endif  // GST_QTTS_LOADER_H_
