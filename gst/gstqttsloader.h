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

// Loads an engine on its own thread, so that no state change waits for a model. A cancelled load is abandoned at once.
// Its thread shares only the load itself with the rest; it is joined after its end by JoinEnded() or a later Start(),
// at the latest by the destructor.
//
// One caller at a time, but for JoinEnded(), which any thread may call.
class EngineLoader {
 public:
  using Outcome = qtts::Result<std::shared_ptr<qtts::Engine>>;

  // `on_ended` is called last on the worker thread: JoinEnded() would now join it without waiting. For a cancelled load
  // it may be called after the loader is destroyed.
  explicit EngineLoader(std::function<void()> on_ended = [] {});
  ~EngineLoader();
  EngineLoader(const EngineLoader&) = delete;
  EngineLoader& operator=(const EngineLoader&) = delete;

  // Starts a load and cancels a running one. `on_done` is called on the worker thread unless the load was cancelled
  // before.
  void Start(const qtts::EngineOptions& options, const std::function<void(Outcome)>& on_done);

  // Cancels the load, if any, without waiting for it. Waits only for `on_done` if another thread is calling it.
  void Cancel();

  // Joins the threads of finished loads, whose stacks take address space until then. Does not block.
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
