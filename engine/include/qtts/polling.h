// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_POLLING_H_
#define QTTS_POLLING_H_

#include <atomic>

namespace qtts {

// Permission to wait awake instead of asleep. A thread that polls sees a change some 50 us earlier than one that has to
// wake up, and takes a whole processor for that: so few threads of the process may at once, and the others sleep.
class PollPermit {
 public:
  // One engine's scheduler and the reader of its first frame.
  static constexpr int kMostAtOnce = 2;

  PollPermit() : granted_(pollers_.fetch_add(1) < kMostAtOnce) {
    if (!granted_) --pollers_;
  }
  ~PollPermit() {
    if (granted_) --pollers_;
  }
  PollPermit(const PollPermit&) = delete;
  PollPermit& operator=(const PollPermit&) = delete;

  bool granted() const { return granted_; }

 private:
  static inline std::atomic<int> pollers_ = 0;

  const bool granted_;
};

}  // namespace qtts

#endif  // QTTS_POLLING_H_
