// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef GST_QTTS_LOADER_H_
#define GST_QTTS_LOADER_H_

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "qtts/engine.h"

namespace gstqtts {

// Acquires an engine on a thread of its own, so that no state change waits for a model. A cancelled
// load is forgotten at once. Its thread shares nothing with the rest but the load itself; it is
// joined by a later Start() when it has ended, at the latest by the destructor.
//
// One caller at a time. Start() and the destructor may wait for `on_done` to return.
class EngineLoader {
 public:
  using Outcome = qtts::Result<std::shared_ptr<qtts::Engine>>;

  EngineLoader();
  ~EngineLoader();
  EngineLoader(const EngineLoader&) = delete;
  EngineLoader& operator=(const EngineLoader&) = delete;

  // Begins a load; one that is still under way is cancelled. `on_done` is called on the worker
  // thread when Take() has something to give, or the load had been cancelled.
  void Start(const qtts::EngineOptions& options, const std::function<void()>& on_done);

  // Forgets the load, if any. Does not wait.
  void Cancel();

  // The outcome, once; nothing while the load goes on or when there is none.
  std::optional<Outcome> Take();

 private:
  struct Job;

  void JoinEnded();

  std::unique_ptr<Job> job_;
  std::vector<std::unique_ptr<Job>> past_;  // taken or cancelled, still to be joined
};

}  // namespace gstqtts

#endif  // GST_QTTS_LOADER_H_
