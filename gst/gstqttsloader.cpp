// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gstqttsloader.h"

#include <atomic>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

namespace gstqtts {

struct EngineLoader::Job {
  // Hands the outcome over, or drops it when nobody waits for it any more.
  void End(Outcome outcome) {
    const std::lock_guard lock(mutex);
    if (!cancelled) result = std::move(outcome);
    ended = true;
  }

  ~Job() {
    if (thread.joinable()) thread.join();
  }

  std::atomic<bool> cancelled = false;
  std::mutex mutex;  // guards the rest but the thread
  bool ended = false;
  std::optional<Outcome> result;
  std::thread thread;
};

EngineLoader::EngineLoader() = default;

EngineLoader::~EngineLoader() { Cancel(); }

void EngineLoader::Start(const qtts::EngineOptions& options, const std::function<void()>& on_done) {
  Cancel();
  JoinEnded();
  job_ = std::make_unique<Job>();
  Job* job = job_.get();
  try {
    job->thread = std::thread([job, options, on_done] {
      job->End(qtts::Engine::Acquire(options, &job->cancelled));
      on_done();
    });
  } catch (const std::system_error& error) {
    job->End(qtts::Status::ResourceExhausted(std::string("Cannot start a thread to load the model (") + error.what() +
                                             "). Free some memory or raise the limit of processes."));
    on_done();
  }
}

void EngineLoader::Cancel() {
  if (job_ == nullptr) return;
  std::optional<Outcome> unwanted;
  {
    const std::lock_guard lock(job_->mutex);
    job_->cancelled = true;
    unwanted = std::exchange(job_->result, std::nullopt);
  }
  past_.push_back(std::move(job_));
}

std::optional<EngineLoader::Outcome> EngineLoader::Take() {
  if (job_ == nullptr) return std::nullopt;
  std::optional<Outcome> result;
  {
    const std::lock_guard lock(job_->mutex);
    if (!job_->ended) return std::nullopt;
    result = std::exchange(job_->result, std::nullopt);
  }
  past_.push_back(std::move(job_));
  return result;
}

void EngineLoader::JoinEnded() {
  std::erase_if(past_, [](const std::unique_ptr<Job>& job) {
    const std::lock_guard lock(job->mutex);
    return job->ended;
  });
}

}  // namespace gstqtts
