// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_BACKEND_SLOT_TABLE_H_
#define QTTS_BACKEND_SLOT_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "qtts/status.h"

namespace qtts {

// A backend's open slots by id, found without a search. An id is reused after two billion others or, where few slots
// are ever open, half a million of the same place: long after any result for its former owner. Owned by the backend.
// Not thread-safe.
template <typename Slot>
class SlotTable {
 public:
  // `device`: name for errors, "CPU" or "GPU".
  SlotTable(const char* device, int max_slots) : device_(device), places_(static_cast<size_t>(max_slots)) {
    for (int place = max_slots; place-- > 0;) free_.push_back(place);
  }

  // Returns kResourceExhausted if all slots are open.
  Status CheckFree() const {
    if (!free_.empty()) return Status::Ok();
    return Status::ResourceExhausted("the " + std::string(device_) + " backend already has " +
                                     std::to_string(max_slots()) + " utterances; wait for one to end");
  }

  // Makes a new slot from `arguments`. Call CheckFree() first.
  template <typename... Arguments>
  std::pair<const SlotId, Slot&> Add(Arguments&&... arguments) {
    const int number = free_.back();
    Place& place = places_[static_cast<size_t>(number)];
    place.slot.emplace(std::forward<Arguments>(arguments)...);
    free_.pop_back();
    // Ids of a place differ by the number of places, from 1 on.
    const SlotId last = std::numeric_limits<SlotId>::max() - max_slots();
    place.id = place.id == 0 || place.id > last ? number + 1 : place.id + max_slots();
    return {place.id, *place.slot};
  }

  // Returns null if the slot is not open.
  Slot* Find(SlotId id) {
    Place* const place = PlaceOf(id);
    return place == nullptr ? nullptr : &*place->slot;
  }

  // Returns the slot; kInvalidArgument if it is not open.
  Result<Slot*> Get(SlotId id) {
    if (Slot* const slot = Find(id); slot != nullptr) return slot;
    return NotOpen(id);
  }

  // Checks that all slots of a submission are open and distinct.
  Status CheckSteps(std::span<const FrameStep> steps) {
    ++checks_;
    for (const FrameStep& step : steps) {
      Place* const place = PlaceOf(step.slot);
      if (place == nullptr) return NotOpen(step.slot);
      if (std::exchange(place->checked, checks_) == checks_) {
        return Status::InvalidArgument("slot " + std::to_string(step.slot) + " appears twice in one submission");
      }
    }
    return Status::Ok();
  }

  void Remove(SlotId id) {
    Place* const place = PlaceOf(id);
    if (place == nullptr) return;
    place->slot.reset();
    free_.push_back((id - 1) % max_slots());
  }

  int max_slots() const { return static_cast<int>(places_.size()); }

 private:
  struct Place {
    SlotId id = 0;  // of the slot that has it, or had it last
    uint64_t checked = 0;
    std::optional<Slot> slot;
  };

  Place* PlaceOf(SlotId id) {
    if (id <= 0) return nullptr;
    Place& place = places_[static_cast<size_t>(id - 1) % places_.size()];
    return place.id == id && place.slot ? &place : nullptr;
  }
  static Status NotOpen(SlotId id) { return Status::InvalidArgument("slot " + std::to_string(id) + " is not open"); }

  const char* device_;
  std::vector<Place> places_;
  std::vector<int> free_;
  uint64_t checks_ = 0;  // of submissions
};

}  // namespace qtts

#endif  // QTTS_BACKEND_SLOT_TABLE_H_
