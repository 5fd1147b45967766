// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_POLLING_H_
#define QTTS_POLLING_H_

#include <atomic>

namespace qtts {

// Permission to poll instead of sleeping. A polling thread sees a change about 50 us earlier than one that must be
// woken, but occupies a whole CPU. Only a few threads of the process may poll at once; the others sleep.
class PollPermit {
 public:
  // One engine's scheduler and the reader of its first frame.
  static constexpr int kMaxAtOnce = 2;

  PollPermit() : granted_(pollers_.fetch_add(1) < kMaxAtOnce) {
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
