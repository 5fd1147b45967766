// SPDX-License-Identifier: LGPL-2.1-or-later
#include "scheduler/look_ahead.h"

#include <algorithm>

namespace qtts {

bool LookAhead::MayBegin(const DeviceView& device, size_t held, bool waiting, bool awaited) const {
  if (waiting || awaited || held >= max_parts) return false;
  return device.free_slots > 0 && !device.busy && !device.short_of_pages;
}

std::optional<size_t> LookAhead::NextToBegin(std::span<const LongTextView> texts) const {
  std::optional<size_t> best;
  for (size_t i = 0; i < texts.size(); ++i) {
    if (!texts[i].wants_more) continue;
    if (!best || texts[i].held < texts[*best].held ||
        (texts[i].held == texts[*best].held && texts[i].arrival < texts[*best].arrival)) {
      best = i;
    }
  }
  return best;
}

std::optional<size_t> LookAhead::NextToGiveWay(std::span<const LongTextView> texts) const {
  std::optional<size_t> best;
  for (size_t i = 0; i < texts.size(); ++i) {
    if (texts[i].open == 0) continue;
    if (!best || texts[i].open > texts[*best].open ||
        (texts[i].open == texts[*best].open && texts[i].arrival > texts[*best].arrival)) {
      best = i;
    }
  }
  return best;
}

size_t LookAhead::Rows(const StepCost& cost, std::span<const int64_t> positions, size_t others, bool beside,
                       double prompts) const {
  if (others == 0 || !cost.known) return positions.size();
  int64_t sum = 0;
  for (size_t i = 0; i < others; ++i) sum += positions[i];
  double allowed = (1 + max_share) * cost.Seconds(static_cast<int64_t>(others), sum, prompts);
  if (!beside) allowed = std::max(allowed, max_seconds);
  size_t rows = others;
  for (; rows < positions.size(); ++rows) {
    sum += positions[rows];
    if (cost.Seconds(static_cast<int64_t>(rows + 1), sum, prompts) > allowed) break;
  }
  return rows;
}

}  // namespace qtts
