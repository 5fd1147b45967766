// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef GST_QTTS_REPORTS_H_
#define GST_QTTS_REPORTS_H_

#include <glib.h>

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <thread>

#include "gstqttsmonitor.h"
#include "gstqttsreport.h"
#include "qtts/mutex.h"

namespace gstqtts {

// Passes reports about utterances to a reporter, in order.
//
// A thread that adds a report while no other is reporting delivers all reports so far; reports added meanwhile go to a
// thread of GLib's pool. If another thread is reporting, that thread delivers them. A slow reporter thus delays only
// the thread that calls it, and only for a bounded number of reports. The reporter is called without locks and may call
// back.
//
// Owned by the Speech. Thread-safe. Its own mutex is the last in the order of gstqttsmonitor.h: Add() and
// AllDelivered() are called with the monitor's held, so that reports are in the order of what happened; the rest is
// called without.
class Reports {
 public:
  using Reporter = std::function<void(const Report&)>;
  // Owner that keeps the Reports alive while the pool reports.
  using Keeper = std::function<std::shared_ptr<void>()>;

  // `on_told` is called after a thread has delivered its reports.
  Reports(Reporter reporter, Keeper keeper, std::function<void()> on_told);
  Reports(const Reports&) = delete;
  Reports& operator=(const Reports&) = delete;

  void Add(Report report) QTTS_REQUIRES(monitor_held) QTTS_EXCLUDES(mutex_);
  // Delivers the reports so far. Leaves later ones to the pool.
  void Deliver() QTTS_EXCLUDES(monitor_held, mutex_);
  // Delivers the reports so far. Returns false if another thread is reporting; `on_told` is called when it ends.
  bool DeliverSoFar() QTTS_EXCLUDES(monitor_held, mutex_);
  // Returns true if all reports have been delivered, and no thread is reporting.
  bool AllDelivered() const QTTS_REQUIRES(monitor_held) QTTS_EXCLUDES(mutex_);

 private:
  struct PoolJob;

  bool DeliverReports() QTTS_REQUIRES(mutex_);
  void DeliverRestOnPool();
  static void DeliverRest(gpointer job, gpointer user_data);

  const Reporter reporter_;
  const Keeper keeper_;
  const std::function<void()> on_told_;

  mutable qtts::Mutex mutex_;
  std::deque<Report> reports_ QTTS_GUARDED_BY(mutex_);
  std::thread::id reporting_ QTTS_GUARDED_BY(mutex_);  // the thread that does, if any
  size_t to_report_ QTTS_GUARDED_BY(mutex_) = 0;       // by that thread
};

}  // namespace gstqtts

#endif  // GST_QTTS_REPORTS_H_
