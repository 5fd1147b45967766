// SPDX-License-Identifier: LGPL-2.1-or-later
#include "api/engine_registry.h"

#include <chrono>

#include "qtts/engine.h"

namespace qtts {

Result<std::shared_ptr<Engine>> EngineRegistry::Get(const std::string& key, const Loader& load,
                                                    const std::atomic<bool>* cancelled) {
  {
    const MutexLock lock(mutex_);
    for (;;) {
      Entry& entry = entries_[key];
      if (auto engine = entry.engine.lock(); engine != nullptr && !engine->device_lost()) return engine;
      if (!entry.loading) {
        entry.loading = true;
        break;
      }
      // `cancelled` has no notification, so poll it.
      loaded_.WaitFor(mutex_, std::chrono::milliseconds(20));
      if (cancelled && *cancelled) return Status::Cancelled("loading was cancelled");
    }
  }
  Result<std::shared_ptr<Engine>> engine = load();
  {
    const MutexLock lock(mutex_);
    Entry& entry = entries_[key];
    entry.loading = false;
    if (engine.ok()) {
      entry.engine = *engine;
    } else {
      entries_.erase(key);
    }
  }
  loaded_.NotifyAll();
  return engine;
}

bool EngineRegistry::Has(const std::string& key) const {
  const MutexLock lock(mutex_);
  const auto found = entries_.find(key);
  if (found == entries_.end()) return false;
  const auto engine = found->second.engine.lock();
  return found->second.loading || (engine != nullptr && !engine->device_lost());
}

}  // namespace qtts
