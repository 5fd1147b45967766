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

// What has happened to utterances, told to a reporter in the order in which it happened.
//
// A thread that made something happen and finds nobody reporting tells what has happened so far; what happens meanwhile
// goes to a thread of GLib's pool. A thread that finds somebody reporting leaves its own to them. So a slow reporter
// holds up nobody but the thread it is called on, and that for a bounded number of reports. The reporter is called
// without any lock and may call back.
//
// Owned by the Speech. Thread-safe. Its own mutex is the last in the order of gstqttsmonitor.h: Add() and AllTold() are
// called with the monitor's held, so that reports are in the order of what happened; the rest is called without.
class Reports {
 public:
  using Reporter = std::function<void(const Report&)>;
  // Something that keeps the Reports alive while the pool reports.
  using Keeper = std::function<std::shared_ptr<void>()>;

  // `on_told` is called when a thread has told what it had to.
  Reports(Reporter reporter, Keeper keeper, std::function<void()> on_told);
  Reports(const Reports&) = delete;
  Reports& operator=(const Reports&) = delete;

  void Add(Report report) QTTS_REQUIRES(monitor_held) QTTS_EXCLUDES(mutex_);
  // Tells what has happened so far, and leaves to the pool what happens meanwhile.
  void Deliver() QTTS_EXCLUDES(monitor_held, mutex_);
  // Tells what has happened so far. False if somebody else is reporting, upon whose end `on_told` is called.
  bool TellSoFar() QTTS_EXCLUDES(monitor_held, mutex_);
  // Whether there is nothing to tell, and nobody who tells.
  bool AllTold() const QTTS_REQUIRES(monitor_held) QTTS_EXCLUDES(mutex_);

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
