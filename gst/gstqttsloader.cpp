// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gstqttsloader.h"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <thread>
#include <utility>

#include "qtts/engine.h"
#include "qtts/resources.h"

namespace gstqtts {

struct EngineLoader::Job {
  std::atomic<bool> cancelled = false;
  std::atomic<bool> ended = false;
  qtts::Mutex calling;  // held while `on_done` is called
  std::atomic<std::thread::id> id;
  std::thread thread;

  bool OnThisThread() const { return id == std::this_thread::get_id(); }

  // `on_done` is called even if memory runs out, since the element waits for the result.
  void Run(const qtts::EngineOptions& options, const std::function<void(Outcome)>& on_done) {
    id = std::this_thread::get_id();
    Outcome outcome = qtts::Engine::Acquire(options, &cancelled);
    const qtts::MutexLock lock(calling);
    if (cancelled) return;
    const auto tell = [&](Outcome what) {
      return qtts::CatchExhaustion("tell that the model is loaded", [&] {
        on_done(std::move(what));
        return qtts::Status::Ok();
      });
    };
    if (qtts::Status status = tell(std::move(outcome)); !status.ok()) (void)tell(std::move(status));
  }

  void Join() {
    if (!thread.joinable()) return;
    if (OnThisThread()) {
      thread.detach();  // `on_done` started another load
    } else {
      thread.join();
    }
  }
};

EngineLoader::EngineLoader(std::function<void()> on_ended) : on_ended_(std::move(on_ended)) {}

EngineLoader::~EngineLoader() {
  Cancel();
  for (const auto& job : past_) job->Join();
}

void EngineLoader::Start(const qtts::EngineOptions& options, const std::function<void(Outcome)>& on_done) {
  Cancel();
  JoinEnded();
  const auto job = std::make_shared<Job>();
  qtts::Status status;
  {
    const qtts::MutexLock lock(mutex_);  // the thread is not joined before it is stored here
    auto thread = qtts::StartThread("load the model", [job, options, on_done, on_ended = on_ended_] {
      job->Run(options, on_done);
      job->ended = true;
      on_ended();
    });
    status = thread.status();
    if (thread.ok()) {
      job->thread = *std::move(thread);
      job_ = job;
    }
  }
  if (!status.ok()) on_done(status);
}

void EngineLoader::Cancel() {
  std::shared_ptr<Job> job;
  {
    const qtts::MutexLock lock(mutex_);
    job = std::exchange(job_, nullptr);
  }
  if (job == nullptr) return;
  job->cancelled = true;
  if (!job->OnThisThread()) {
    const qtts::MutexLock wait(job->calling);
  }
  const qtts::MutexLock lock(mutex_);
  past_.push_back(std::move(job));
}

void EngineLoader::JoinEnded() {
  std::vector<std::shared_ptr<Job>> ended;
  {
    const qtts::MutexLock lock(mutex_);
    if (job_ != nullptr && job_->ended) past_.push_back(std::exchange(job_, nullptr));
    const auto first =
        std::partition(past_.begin(), past_.end(), [](const std::shared_ptr<Job>& job) { return !job->ended; });
    std::move(first, past_.end(), std::back_inserter(ended));
    past_.erase(first, past_.end());
  }
  for (const auto& job : ended) job->Join();
}

}  // namespace gstqtts
