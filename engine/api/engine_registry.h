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

// Engines by key, held weakly: users of one model share one engine and its weights, and the last one
// frees it. Thread-safe.
class EngineRegistry {
 public:
  using Loader = std::function<Result<std::shared_ptr<Engine>>()>;

  // The living engine of `key` whose device is not lost, else what `load` returns. While one caller loads, others of
  // the same key wait for it, unless `cancelled` becomes true. A failed load is not remembered.
  Result<std::shared_ptr<Engine>> Get(const std::string& key, const Loader& load, const std::atomic<bool>* cancelled);

  // Whether `key` has such an engine, or one that is being loaded.
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
