// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_SCHEDULER_PAGE_FORECAST_H_
#define QTTS_SCHEDULER_PAGE_FORECAST_H_

#include <cstdint>
#include <vector>

namespace qtts {

// Forecasts the pages that speaking streams take while their contexts grow, all at the same rate, until they end. Steps
// of half a page. Not thread-safe.
class PageForecast {
 public:
  struct Context {
    int64_t positions = 0;  // now
    int64_t last = 0;       // at the expected end of its stream
  };

  explicit PageForecast(int64_t positions_of_page) : page_(positions_of_page) {}

  void Clear() { pages_.clear(); }
  void Add(Context context);
  // Returns the pages of all contexts, with `context` beside them, at the time when they take most.
  int64_t MostWith(Context context) const;

 private:
  // Calls `visit` with the number of each step at which the context is still there, and its pages then.
  template <typename Visit>
  void ForEachStep(Context context, const Visit& visit) const;

  const int64_t page_;
  std::vector<int64_t> pages_;  // of all contexts, at each step
};

}  // namespace qtts

#endif  // QTTS_SCHEDULER_PAGE_FORECAST_H_
