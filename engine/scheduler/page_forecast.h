// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_SCHEDULER_PAGE_FORECAST_H_
#define QTTS_SCHEDULER_PAGE_FORECAST_H_

#include <cstdint>
#include <vector>

namespace qtts {

// The pages that speaking streams will take while their contexts grow, all at the same rate, until they end. It looks
// ahead in steps of half a page. Not thread-safe.
class PageForecast {
 public:
  struct Context {
    int64_t positions = 0;  // now
    int64_t last = 0;       // when its stream is expected to end
  };

  void Clear() { pages_.clear(); }
  void Add(Context context, int64_t positions_of_page);
  // Pages of all contexts, with `context` beside them, at the time when they take most.
  int64_t MostWith(Context context, int64_t positions_of_page) const;

 private:
  std::vector<int64_t> pages_;  // entry n: when each context that is still there has n half pages more
};

}  // namespace qtts

#endif  // QTTS_SCHEDULER_PAGE_FORECAST_H_
