// SPDX-License-Identifier: LGPL-2.1-or-later
// Host time per frame of a stream: the scheduler above a backend that makes frames without computing. Measured is the
// time of the scheduler's thread; the backend's part, making and freeing results, is printed separately.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "arguments.h"
#include "backend/backend.h"
#include "checkpoint/checkpoint.h"
#include "prompt/prompt.h"
#include "scheduler/scheduler.h"
#include "scheduler/stream_state.h"
#include "text/tokenizer.h"

namespace {

using Clock = std::chrono::steady_clock;
using qtts::bench::Arguments;
using qtts::bench::Fail;
using qtts::bench::Take;

constexpr std::string_view kUsage =
    "usage: bench-scheduler [OPTION]...\n"
    "  --streams N,N...  streams at once (default 64,256,1024,2048)\n"
    "  --frames N        frames of each (default 200)\n"
    "  --step-us N       time of a step on the device (default 0)\n"
    "  --paced           each reader takes a frame every 80 ms; otherwise as fast as they come\n"
    "One thread reads all streams. The figure to compare: us a stream-frame on the scheduler's thread.\n";

struct Options {
  std::vector<int> streams = {64, 256, 1024, 2048};
  int frames = 200;
  int step_us = 0;
  bool paced = false;
};

double ThreadSeconds() {
  timespec time = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// Written by the scheduler's thread, read after it has ended.
struct Record {
  double thread_seconds = 0;   // from the first step on
  double backend_seconds = 0;  // of these seconds, inside the backend
  double first = -1;
  int64_t steps = 0;
  int64_t rows = 0;
};

class IdleBackend : public qtts::Backend {
 public:
  IdleBackend(int slots, const Options& options, Record* record)
      : slots_(slots), options_(options), record_(record), made_(static_cast<size_t>(slots)) {
    for (int i = slots; i-- > 0;) free_.push_back(i);
  }
  const std::string& name() const override { return name_; }
  bool beside_host() const override { return true; }
  int max_outstanding() const override { return 2; }
  int max_slots() const override { return slots_; }
  qtts::Result<qtts::SlotId> Open(qtts::Prompt, const qtts::GenerationSettings&, uint64_t) override {
    const qtts::SlotId slot = free_.back();
    free_.pop_back();
    made_[static_cast<size_t>(slot)] = 0;
    return slot;
  }
  qtts::Result<qtts::PrefillProgress> Prefill(qtts::SlotId) override { return qtts::PrefillProgress{true, 0.01}; }
  qtts::Status Submit(std::span<const qtts::FrameStep> steps) override {
    const double start = ThreadSeconds();
    if (record_->first < 0) record_->first = start;
    const auto begin = std::max(Clock::now(), ends_.empty() ? Clock::time_point() : ends_.back());
    ends_.push_back(begin + std::chrono::microseconds(options_.step_us));
    queue_.emplace_back(steps.begin(), steps.end());
    ++record_->steps;
    record_->rows += static_cast<int64_t>(steps.size());
    record_->backend_seconds += ThreadSeconds() - start;
    return qtts::Status::Ok();
  }
  qtts::Result<std::vector<qtts::FrameResult>> Collect() override {
    std::this_thread::sleep_until(ends_.front());
    const double start = ThreadSeconds();
    ends_.pop_front();
    std::vector<qtts::FrameResult> results;
    results.reserve(queue_.front().size());
    for (const qtts::FrameStep& step : queue_.front()) {
      qtts::FrameResult result;
      result.slot = step.slot;
      if (++made_[static_cast<size_t>(step.slot)] > options_.frames) {
        result.end = qtts::EndReason::kComplete;
      } else {
        result.codes.assign(16, 1);
        result.pcm.assign(1920, 0.1F);
      }
      results.push_back(std::move(result));
    }
    queue_.pop_front();
    record_->thread_seconds = ThreadSeconds() - record_->first;
    record_->backend_seconds += ThreadSeconds() - start;
    return results;
  }
  void Close(qtts::SlotId slot) override { free_.push_back(slot); }

 private:
  const int slots_;
  const Options options_;
  Record* const record_;
  std::string name_ = "idle";
  std::vector<int> made_;
  std::vector<qtts::SlotId> free_;
  std::deque<std::vector<qtts::FrameStep>> queue_;
  std::deque<Clock::time_point> ends_;
};

Options Parse(int argc, char** argv) {
  Options options;
  Arguments(kUsage)
      .Flag("--paced", &options.paced)
      .Add("--streams", &options.streams, 1)
      .Add("--frames", &options.frames)
      .Add("--step-us", &options.step_us)
      .Parse(argc, argv);
  return options;
}

// Reads all streams in one thread: takes the available frames, then sleeps until something has changed.
void ReadAll(const std::vector<std::shared_ptr<qtts::StreamState>>& streams, const std::atomic<uint64_t>& changes,
             bool paced) {
  size_t left = streams.size();
  std::vector<bool> ended(streams.size());
  qtts::Frame frame;
  auto tick = Clock::now();
  for (uint64_t seen = 0; left > 0;) {
    if (paced) {
      tick += std::chrono::milliseconds(80);
      std::this_thread::sleep_until(tick);
    } else {
      while (changes == seen) changes.wait(seen);
    }
    seen = changes;
    for (size_t i = 0; i < streams.size(); ++i) {
      if (ended[i]) continue;
      qtts::ReadState state = qtts::ReadState::kFrame;
      while ((state = streams[i]->Read(&frame, false)) == qtts::ReadState::kFrame && !paced) continue;
      if (state != qtts::ReadState::kEnd) continue;
      ended[i] = true;
      --left;
    }
  }
}

void Measure(int count, const Options& options, const std::shared_ptr<const qtts::PromptBuilder>& prompts,
             const std::shared_ptr<const qtts::Tokenizer>& tokenizer) {
  Record record;
  std::atomic<uint64_t> changes = 0;
  auto scheduler = Take(qtts::Scheduler::Create(std::make_unique<IdleBackend>(count, options, &record)));
  std::vector<std::shared_ptr<qtts::StreamState>> streams;
  for (int i = 0; i < count; ++i) {
    qtts::Request request;
    request.text = "Nothing is computed here.";
    streams.push_back(std::make_shared<qtts::StreamState>(prompts, tokenizer, request, 25, [&changes] {
      if (changes.fetch_add(1) % 64 == 0) changes.notify_one();
    }));
    if (const qtts::Status status = streams.back()->Begin(); !status.ok()) Fail(status.message());
  }
  const auto start = Clock::now();
  for (const auto& stream : streams) scheduler->Add(stream);
  // Readers are not woken for each frame; the wake-ups would be measured.
  std::atomic<bool> done = false;
  std::thread ticker([&] {
    while (!done) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      ++changes;
      changes.notify_one();
    }
  });
  ReadAll(streams, changes, options.paced);
  const std::chrono::duration<double> wall = Clock::now() - start;
  done = true;
  ticker.join();
  scheduler.reset();
  const double rows = static_cast<double>(record.rows);
  std::printf("%7d %12.0f %10.1f %16.2f %15.2f %12.2f\n", count, rows, rows / static_cast<double>(record.steps),
              (record.thread_seconds - record.backend_seconds) / rows * 1e6, record.backend_seconds / rows * 1e6,
              rows * 0.08 / wall.count() / 1000);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = Parse(argc, argv);
  const auto checkpoint = Take(qtts::Checkpoint::Open(QTTS_BENCH_VOICE));
  const auto tokenizer = Take(qtts::Tokenizer::Load(QTTS_BENCH_VOICE));
  const auto prompts =
      std::make_shared<const qtts::PromptBuilder>(Take(qtts::PromptBuilder::Create(checkpoint->config(), tokenizer)));
  std::printf("readers: one thread, %s; a step takes %d us\n",
              options.paced ? "a frame of each stream every 80 ms" : "as fast as frames come", options.step_us);
  std::printf("%7s %12s %10s %16s %15s %12s\n", "streams", "frames", "a step", "scheduler us", "backend us",
              "1000 x real");
  for (const int count : options.streams) Measure(count, options, prompts, tokenizer);
  return 0;
}
