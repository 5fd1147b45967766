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
  std::atomic<bool> cancelled = false;
  std::atomic<bool> ended = false;
  std::mutex calling;  // held while `on_done` is called
  std::atomic<std::thread::id> id;
  std::thread thread;

  bool OnThisThread() const { return id == std::this_thread::get_id(); }

  void Join() {
    if (!thread.joinable()) return;
    if (OnThisThread()) {
      thread.detach();  // `on_done` started another load
    } else {
      thread.join();
    }
  }
};

EngineLoader::EngineLoader() = default;

EngineLoader::~EngineLoader() {
  Cancel();
  for (const auto& job : past_) job->Join();
}

void EngineLoader::Start(const qtts::EngineOptions& options, const std::function<void(Outcome)>& on_done) {
  Cancel();
  std::erase_if(past_, [](const std::shared_ptr<Job>& job) {
    if (!job->ended) return false;
    job->Join();
    return true;
  });
  const auto job = std::make_shared<Job>();
  job_ = job;
  try {
    job->thread = std::thread([job, options, on_done] {
      job->id = std::this_thread::get_id();
      Outcome outcome = qtts::Engine::Acquire(options, &job->cancelled);
      {
        const std::lock_guard lock(job->calling);
        if (!job->cancelled) on_done(std::move(outcome));
      }
      job->ended = true;
    });
  } catch (const std::system_error& error) {
    job->ended = true;
    on_done(qtts::Status::ResourceExhausted(std::string("Cannot start a thread to load the model (") + error.what() +
                                            "). Free some memory or raise the limit of processes."));
  }
}

void EngineLoader::Cancel() {
  if (job_ == nullptr) return;
  job_->cancelled = true;
  if (!job_->OnThisThread()) {
    const std::lock_guard wait(job_->calling);
  }
  past_.push_back(std::exchange(job_, nullptr));
}

}  // namespace gstqtts
