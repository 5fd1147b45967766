// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_API_ENGINE_REGISTRY_H_
#define QTTS_API_ENGINE_REGISTRY_H_

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "qtts/mutex.h"
#include "qtts/status.h"

namespace qtts {

class Engine;

// Engines by key, held weakly. Users of one model share one engine and its weights; the last reference frees them.
// Thread-safe.
class EngineRegistry {
 public:
  using Loader = std::function<Result<std::shared_ptr<Engine>>()>;

  // Returns the engine of `key` if it exists and its device is not lost, else the result of `load`. Concurrent callers
  // with the same key wait for the load, unless `cancelled` becomes true. A failed load is not remembered.
  Result<std::shared_ptr<Engine>> Get(const std::string& key, const Loader& load, const std::atomic<bool>* cancelled);

  // True if `key` has such an engine, or one is being loaded.
  bool Has(const std::string& key) const;

 private:
  struct Entry {
    std::weak_ptr<Engine> engine;
    bool loading = false;
  };

  mutable Mutex mutex_;
  Condition loaded_;
  std::map<std::string, Entry> entries_ QTTS_GUARDED_BY(mutex_);
};

}  // namespace qtts

#endif  // QTTS_API_ENGINE_REGISTRY_H_
