// SPDX-License-Identifier: LGPL-2.1-or-later
#include "api/engine_registry.h"

#include <chrono>
#include <cstdint>
#include <limits>
#include <utility>

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

Result<std::shared_ptr<Engine>> EngineRegistry::GetFreest(const std::vector<std::string>& keys, int voices,
                                                          const KeyLoader& load, const std::atomic<bool>* cancelled) {
  Status first_error = Status::InvalidArgument("there is no device");
  std::set<size_t> failed;
  while (const std::optional<size_t> index = ChooseFreest(keys, voices, failed)) {
    const std::string& key = keys[*index];
    Result<std::shared_ptr<Engine>> engine = Get(
        key, [&] { return load(*index); }, cancelled);
    {
      const MutexLock lock(mutex_);
      --coming_[key];
    }
    if (engine.ok() || engine.status().code() == StatusCode::kCancelled) return engine;
    if (failed.empty()) first_error = engine.status();
    failed.insert(*index);
  }
  return first_error;
}

// Returns nothing if all have failed. The caller must end its count in coming_.
std::optional<size_t> EngineRegistry::ChooseFreest(const std::vector<std::string>& keys, int voices,
                                                   const std::set<size_t>& failed) {
  const MutexLock lock(mutex_);
  std::optional<size_t> best;
  std::pair<int64_t, bool> best_rank;  // free voices, and whether there is an engine
  for (size_t i = 0; i < keys.size(); ++i) {
    if (failed.contains(i)) continue;
    std::pair<int64_t, bool> rank(voices, false);
    if (const auto found = entries_.find(keys[i]); found != entries_.end()) {
      // An element is one user, and so is each utterance that it speaks.
      const int64_t users = found->second.engine.use_count();
      const auto engine = found->second.engine.lock();
      if (engine != nullptr && engine->device_lost()) {
        rank.first = std::numeric_limits<int32_t>::min();  // tried once no other is left
      } else if (engine != nullptr) {
        rank = {engine->occupancy().slots - users, true};
      }
    }
    if (const auto coming = coming_.find(keys[i]); coming != coming_.end()) rank.first -= coming->second;
    if (best && rank <= best_rank) continue;
    best = i;
    best_rank = rank;
  }
  if (best) ++coming_[keys[*best]];
  return best;
}

std::shared_ptr<Engine> EngineRegistry::Find(const std::string& key) const {
  const MutexLock lock(mutex_);
  const auto found = entries_.find(key);
  auto engine = found == entries_.end() ? nullptr : found->second.engine.lock();
  return engine != nullptr && !engine->device_lost() ? engine : nullptr;
}

bool EngineRegistry::empty() const {
  const MutexLock lock(mutex_);
  return entries_.empty();
}

bool EngineRegistry::Has(const std::string& key) const {
  const MutexLock lock(mutex_);
  const auto found = entries_.find(key);
  if (found == entries_.end()) return false;
  const auto engine = found->second.engine.lock();
  return found->second.loading || (engine != nullptr && !engine->device_lost());
}

}  // namespace qtts
