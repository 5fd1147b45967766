// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_BASE_BUS_ERRORS_H_
#define QTTS_BASE_BUS_ERRORS_H_

#include <atomic>
#include <cstddef>
#include <span>

namespace qtts {

// Keeps the process alive if a mapped file is truncated or its disk fails. The kernel then raises SIGBUS in the thread
// that reads a missing page. For an address in a watched range, the handler maps zero pages from the fault to the end
// of the range, marks the range as lost, and lets the thread continue. Callers must check lost() and discard results
// computed from zeros. libwayland does the same for shared memory, systemd for journals.
//
// The process has one handler. It is installed with the first range and never removed. A SIGBUS at any other address
// goes to the previous handler. An application that installs its own handler later must do the same; otherwise a model
// truncated while in use kills the process. A thread that blocks SIGBUS is not protected; BeginThread() unblocks it for
// the engine's threads.
class BusErrors {
 public:
  class Range {
   public:
    bool lost() const { return lost_; }

   private:
    friend class BusErrors;
    std::atomic<const std::byte*> begin_ = nullptr;
    std::atomic<const std::byte*> end_ = nullptr;  // null: not watching
    std::atomic<bool> lost_ = false;
    std::atomic<bool> taken_ = true;
    Range* next_ = nullptr;
  };

  // Watches a mapping, which begins at a page boundary. Thread-safe.
  static Range* Watch(std::span<const std::byte> mapping);
  // Forgets a range. Must be called before the mapping is unmapped.
  static void Forget(Range* range);

 private:
  struct Handler;
};

}  // namespace qtts

#endif  // QTTS_BASE_BUS_ERRORS_H_
