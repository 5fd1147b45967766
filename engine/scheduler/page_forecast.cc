// SPDX-License-Identifier: LGPL-2.1-or-later
#include "scheduler/page_forecast.h"

#include <algorithm>
#include <cstddef>

namespace qtts {

template <typename Visit>
void PageForecast::ForEachStep(Context context, const Visit& visit) const {
  size_t n = 0;
  int64_t positions = context.positions;
  do {
    visit(n++, (positions + page_ - 1) / page_);
    positions += std::max<int64_t>(page_ / 2, 1);
  } while (positions < context.last);
}

void PageForecast::Add(Context context) {
  ForEachStep(context, [&](size_t n, int64_t pages) {
    if (n == pages_.size()) pages_.push_back(0);
    pages_[n] += pages;
  });
}

int64_t PageForecast::MostWith(Context context) const {
  int64_t most = pages_.empty() ? 0 : *std::max_element(pages_.begin(), pages_.end());
  ForEachStep(context,
              [&](size_t n, int64_t pages) { most = std::max(most, pages + (n < pages_.size() ? pages_[n] : 0)); });
  return most;
}

}  // namespace qtts
