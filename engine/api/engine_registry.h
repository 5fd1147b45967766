// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_API_ENGINE_REGISTRY_H_
#define QTTS_API_ENGINE_REGISTRY_H_

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

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

  // Spreads the users of one model over several devices. Returns the engine of that key of `keys`, one a device, with
  // the most free voices: its slots, less its users. A device without an engine counts as `voices` free ones; among
  // equals, devices with an engine come first, then those that come first in `keys`. `load` loads the engine of a key
  // by its index. If that fails, the next device is tried; if all fail, the first error is returned.
  using KeyLoader = std::function<Result<std::shared_ptr<Engine>>(size_t index)>;
  Result<std::shared_ptr<Engine>> GetFreest(const std::vector<std::string>& keys, int voices, const KeyLoader& load,
                                            const std::atomic<bool>* cancelled);

  // Returns the engine of `key` if it exists and its device is not lost, else null. Never waits for a load.
  std::shared_ptr<Engine> Find(const std::string& key) const;

  // Returns true if no engine was ever asked for.
  bool empty() const;

  // Returns true if `key` has such an engine, or one is being loaded.
  bool Has(const std::string& key) const;

 private:
  std::optional<size_t> ChooseFreest(const std::vector<std::string>& keys, int voices, const std::set<size_t>& failed);

  struct Entry {
    std::weak_ptr<Engine> engine;
    bool loading = false;
  };

  mutable Mutex mutex_;
  Condition loaded_;
  std::map<std::string, Entry> entries_ QTTS_GUARDED_BY(mutex_);
  std::map<std::string, int> coming_ QTTS_GUARDED_BY(mutex_);  // users for whom GetFreest() has chosen the key just now
};

}  // namespace qtts

#endif  // QTTS_API_ENGINE_REGISTRY_H_
