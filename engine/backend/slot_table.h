// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_BACKEND_SLOT_TABLE_H_
#define QTTS_BACKEND_SLOT_TABLE_H_

#include <cstddef>
#include <limits>
#include <map>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <utility>

#include "backend/backend.h"
#include "qtts/status.h"

namespace qtts {

// A backend's open slots by id. An id is reused after two billion others, long after any result for its former owner.
// Owned by the backend. Not thread-safe.
template <typename Slot>
class SlotTable {
 public:
  // `device`: name for errors, "CPU" or "GPU".
  SlotTable(const char* device, int max_slots) : device_(device), max_slots_(max_slots) {}

  // kResourceExhausted if all slots are open.
  Status CheckFree() const {
    if (slots_.size() < static_cast<size_t>(max_slots_)) return Status::Ok();
    return Status::ResourceExhausted("the " + std::string(device_) + " backend already has " +
                                     std::to_string(max_slots_) + " utterances; wait for one to end");
  }

  // Makes a new slot from `arguments`. Call CheckFree() first.
  template <typename... Arguments>
  std::pair<const SlotId, Slot>& Add(Arguments&&... arguments) {
    do {
      last_id_ = last_id_ == std::numeric_limits<SlotId>::max() ? 1 : last_id_ + 1;
    } while (slots_.contains(last_id_));
    return *slots_
                .emplace(std::piecewise_construct, std::forward_as_tuple(last_id_),
                         std::forward_as_tuple(std::forward<Arguments>(arguments)...))
                .first;
  }

  // Returns null if the slot is not open.
  Slot* Find(SlotId id) {
    const auto found = slots_.find(id);
    return found == slots_.end() ? nullptr : &found->second;
  }

  // kInvalidArgument if the slot is not open.
  Result<Slot*> Get(SlotId id) {
    if (Slot* const slot = Find(id); slot != nullptr) return slot;
    return NotOpen(id);
  }

  // Checks that all slots of a submission are open and distinct.
  Status CheckSteps(std::span<const FrameStep> steps) const {
    std::set<SlotId> seen;
    for (const FrameStep& step : steps) {
      if (!slots_.contains(step.slot)) return NotOpen(step.slot);
      if (!seen.insert(step.slot).second) {
        return Status::InvalidArgument("slot " + std::to_string(step.slot) + " appears twice in one submission");
      }
    }
    return Status::Ok();
  }

  void Remove(SlotId id) { slots_.erase(id); }

  int max_slots() const { return max_slots_; }

 private:
  static Status NotOpen(SlotId id) { return Status::InvalidArgument("slot " + std::to_string(id) + " is not open"); }

  const char* device_;
  int max_slots_;
  std::map<SlotId, Slot> slots_;
  SlotId last_id_ = 0;
};

}  // namespace qtts

#endif  // QTTS_BACKEND_SLOT_TABLE_H_
