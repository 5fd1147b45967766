// SPDX-License-Identifier: LGPL-2.1-or-later
#include "scheduler/announcer.h"

#include <utility>

#include "qtts/resources.h"
#include "scheduler/stream_state.h"

namespace qtts {

Result<std::unique_ptr<Announcer>> Announcer::Create() {
  std::unique_ptr<Announcer> announcer(new Announcer);
  QTTS_ASSIGN_OR_RETURN(announcer->thread_, StartThread("announce", [self = announcer.get()] { self->Run(); }));
  return announcer;
}

Announcer::~Announcer() {
  if (!thread_.joinable()) return;
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  coming_.NotifyOne();
  thread_.join();
}

void Announcer::Announce(const std::shared_ptr<StreamState>& stream, bool first) {
  if (first || (!large_ && left_ == 0)) return stream->CallReader();
  {
    const MutexLock lock(mutex_);
    queue_.push_back(stream);
    ++left_;
  }
  coming_.NotifyOne();
}

void Announcer::Run() {
  std::vector<std::shared_ptr<StreamState>> taken;
  MutexLock lock(mutex_);
  while (true) {
    while (queue_.empty() && !stopping_) coming_.Wait(mutex_);
    if (queue_.empty()) return;
    taken.swap(queue_);
    lock.Unlock();
    for (std::shared_ptr<StreamState>& stream : taken) {
      stream->CallReader();
      stream.reset();
      --left_;
    }
    taken.clear();
    lock.Lock();
  }
}

}  // namespace qtts
