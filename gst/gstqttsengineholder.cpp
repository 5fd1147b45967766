// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gstqttsengineholder.h"

#include <utility>

#include "qtts/engine.h"

namespace gstqtts {

EngineHolder::EngineHolder(std::shared_ptr<Monitor> monitor)
    : monitor_(std::move(monitor)), loader_([held = monitor_] { held->LockAndAnnounce(); }) {}

EngineHolder::~EngineHolder() = default;

bool EngineHolder::NeedsLoad(const qtts::EngineOptions& options) const {
  const MonitorLock lock(*monitor_);
  return engine_ == nullptr || options != options_ || engine_->device_lost();
}

void EngineHolder::Load(const qtts::EngineOptions& options, const std::function<void(EngineLoader::Outcome)>& on_done) {
  // The old model goes before the new one comes: both at once may not fit into memory.
  std::shared_ptr<qtts::Engine> old;
  {
    const MonitorLock lock(*monitor_);
    old = std::exchange(engine_, nullptr);
    loading_ = true;
    load_status_ = qtts::Status::Ok();
    options_ = options;
  }
  old.reset();
  loader_.Start(options, on_done);
}

void EngineHolder::UseLoad(EngineLoader::Outcome outcome) {
  loading_ = false;
  load_status_ = outcome.status();
  if (outcome.ok()) engine_ = *std::move(outcome);
}

bool EngineHolder::EndRun(std::shared_ptr<qtts::Engine>* engine) {
  if (std::exchange(suspect_, false)) *engine = std::exchange(engine_, nullptr);
  return std::exchange(loading_, false);
}

void EngineHolder::Release() {
  std::shared_ptr<qtts::Engine> engine;
  const MonitorLock lock(*monitor_);
  engine = std::exchange(engine_, nullptr);
  load_status_ = qtts::Status::Ok();
}

qtts::Occupancy EngineHolder::occupancy() const {
  return engine_ != nullptr ? engine_->occupancy() : qtts::Occupancy();  // takes no lock
}

}  // namespace gstqtts
