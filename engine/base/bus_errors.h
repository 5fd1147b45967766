// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_BASE_BUS_ERRORS_H_
#define QTTS_BASE_BUS_ERRORS_H_

#include <atomic>
#include <cstddef>
#include <span>

namespace qtts {

// Keeps a file that is truncated under its mapping, or whose disk fails, from killing the process: the kernel raises
// SIGBUS in the thread that reads a page that is gone. For an address in a watched range, the handler puts pages of
// zeros where the fault was and behind, notes it, and lets the thread go on. What was computed with them is to be
// thrown away by whoever asks lost(). The same is done for shared memory by libwayland and for journals by systemd.
//
// One handler for the process, installed with the first range and left in place. A SIGBUS of any other address goes to
// the handler that was there before. An application that installs its own later should do the same, or models that are
// truncated while in use end the process as they would without this. A thread that blocks SIGBUS is not helped either;
// BeginThread() sees to it that none of the engine's does.
class BusErrors {
 public:
  class Range {
   public:
    bool lost() const { return lost_; }

   private:
    friend class BusErrors;
    std::atomic<const std::byte*> begin_ = nullptr;
    std::atomic<const std::byte*> end_ = nullptr;  // null: watches nothing
    std::atomic<bool> lost_ = false;
    std::atomic<bool> taken_ = true;
    Range* next_ = nullptr;
  };

  // Watches a mapping, from the start of a page on. Thread-safe.
  static Range* Watch(std::span<const std::byte> mapping);
  // Before it is unmapped.
  static void Forget(Range* range);

 private:
  struct Handler;
};

}  // namespace qtts

#endif  // QTTS_BASE_BUS_ERRORS_H_
