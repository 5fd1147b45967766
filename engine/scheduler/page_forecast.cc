// SPDX-License-Identifier: LGPL-2.1-or-later
#include "scheduler/page_forecast.h"

#include <algorithm>
#include <cstddef>

namespace qtts {
namespace {

// Calls `visit` with the number of each step in which the context is still there, and its pages then.
template <typename Visit>
void Look(PageForecast::Context context, int64_t page, const Visit& visit) {
  const int64_t step = std::max<int64_t>(page / 2, 1);
  size_t n = 0;
  int64_t positions = context.positions;
  do {
    visit(n++, (positions + page - 1) / page);
    positions += step;
  } while (positions < context.last);
}

}  // namespace

void PageForecast::Add(Context context, int64_t positions_of_page) {
  Look(context, positions_of_page, [&](size_t n, int64_t pages) {
    if (n == pages_.size()) pages_.push_back(0);
    pages_[n] += pages;
  });
}

int64_t PageForecast::MostWith(Context context, int64_t positions_of_page) const {
  int64_t most = pages_.empty() ? 0 : *std::max_element(pages_.begin(), pages_.end());
  Look(context, positions_of_page,
       [&](size_t n, int64_t pages) { most = std::max(most, pages + (n < pages_.size() ? pages_[n] : 0)); });
  return most;
}

}  // namespace qtts
