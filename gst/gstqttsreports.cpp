// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gstqttsreports.h"

#include <tuple>
#include <utility>

#include "qtts/resources.h"

namespace gstqtts {

Reports::Reports(Reporter reporter, Keeper keeper, std::function<void()> on_told)
    : reporter_(std::move(reporter)), keeper_(std::move(keeper)), on_told_(std::move(on_told)) {}

void Reports::Add(Report report) {
  const qtts::MutexLock lock(mutex_);
  reports_.push_back(std::move(report));
}

bool Reports::AllDelivered() const {
  const qtts::MutexLock lock(mutex_);
  return reports_.empty() && reporting_ == std::thread::id();
}

bool Reports::DeliverSoFar() {
  const qtts::MutexLock lock(mutex_);
  return DeliverReports();
}

void Reports::Deliver() {
  {
    const qtts::MutexLock lock(mutex_);
    if (reports_.empty() || !DeliverReports() || reports_.empty()) return;
  }
  DeliverRestOnPool();
}

// Delivers the reports so far. Returns false if another thread is reporting.
bool Reports::DeliverReports() {
  if (reporting_ != std::thread::id()) {
    // By the handler of one of its reports the thread made more happen, which is its own as well.
    if (reporting_ == std::this_thread::get_id()) to_report_ = reports_.size();
    return false;
  }
  reporting_ = std::this_thread::get_id();
  to_report_ = reports_.size();
  while (to_report_ > 0) {
    --to_report_;
    const Report report = std::move(reports_.front());
    reports_.pop_front();
    const qtts::MutexUnlock unlock(mutex_);
    // A report may be lost if memory runs out, but the end of reporting must be recorded.
    std::ignore = qtts::CatchExhaustion("tell of an utterance", [&] {
      if (reporter_) reporter_(report);
      return qtts::Status::Ok();
    });
  }
  reporting_ = {};
  const qtts::MutexUnlock unlock(mutex_);
  on_told_();  // kEndOfText waits for it
  return true;
}

struct Reports::PoolJob {
  Reports* reports;
  std::shared_ptr<void> keeper;
};

void Reports::DeliverRestOnPool() {
  static GThreadPool* const pool = g_thread_pool_new(DeliverRest, nullptr, -1, FALSE, nullptr);
  auto* job = new PoolJob{this, keeper_ ? keeper_() : nullptr};
  // Without a thread the job stays in the pool until there is one. Until then the reports are not lost, but late.
  g_thread_pool_push(pool, job, nullptr);
}

void Reports::DeliverRest(gpointer data, gpointer /*user_data*/) {
  const std::unique_ptr<PoolJob> job(static_cast<PoolJob*>(data));
  Reports* reports = job->reports;
  const qtts::MutexLock lock(reports->mutex_);
  while (!reports->reports_.empty() && reports->DeliverReports()) continue;
}

}  // namespace gstqtts
