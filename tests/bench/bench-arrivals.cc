// SPDX-License-Identifier: LGPL-2.1-or-later
// The scheduler under random requests, above a simulated device that takes the times of a table: time to first sound,
// and gaps. For decisions about when steps run; figures of a GPU come from bench-load.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <deque>
#include <iterator>
#include <memory>
#include <optional>
#include <queue>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "arguments.h"
#include "backend/backend.h"
#include "checkpoint/checkpoint.h"
#include "frame_times.h"
#include "prompt/prompt.h"
#include "scheduler/scheduler.h"
#include "scheduler/stream_state.h"
#include "text/tokenizer.h"

namespace {

using Clock = std::chrono::steady_clock;
using qtts::bench::Arguments;
using qtts::bench::Fail;
using qtts::bench::FrameTimes;
using qtts::bench::Take;
using Milliseconds = std::chrono::duration<double, std::milli>;

constexpr std::chrono::milliseconds kFrameTime{80};
// Time in ms of a step with sound, by its number of streams: 0.6B on one H100. A prompt of ordinary length takes
// kPromptMs, each further one of the same pass half of that.
constexpr std::pair<double, double> kStepTimes[] = {{0, 1.5},    {1, 1.59},   {8, 2.46},    {64, 6.74}, {128, 9.3},
                                                    {256, 15.0}, {512, 27.9}, {1024, 56.3}, {4096, 225}};
constexpr double kPromptMs = 0.9;
constexpr double kHiccupMs = 20;
// Positions of a context's page, which both released sizes copy to the host or back in kPageMs. Its host memory, made
// ready by another thread, is page-locked once, in kLockTime on the scheduler's thread.
constexpr int64_t kPagePositions = 128;
constexpr double kPageMs = 0.27;
constexpr std::chrono::microseconds kLockTime{600};
constexpr int64_t kPromptRows = 35;

constexpr std::string_view kUsage =
    "usage: bench-arrivals [OPTION]...\n"
    "  --arrivals X,X... requests a second (default 1,10,20,100)\n"
    "  --streams N       a constant set instead, begun over the first quarter of the time: who has ended is replaced\n"
    "  --seconds N       of each (default 20)\n"
    "  --frames A-B      of an utterance, at random (default 22-180)\n"
    "  --slots N         (default 1024)\n"
    "  --slower X        the device takes X times as long (default 1)\n"
    "  --hiccups N       of a thousand steps N take 20 ms longer (default 0)\n"
    "  --pages N         for contexts, of 128 positions (default 0: no limit). The texts are too short for their\n"
    "                    frames, so what the scheduler expects is wrong.\n"
    "  --seed N          (default 1)\n"
    "The first frame is silence with preset voices: the second is the first sound. Gaps are counted before an\n"
    "utterance's second, third, fourth and all further frames.\n";

struct Options {
  std::vector<double> arrivals;  // requests a second; empty: the default, or a constant set
  int streams = 0;               // 0: random arrivals
  int seconds = 20;
  int least_frames = 22;
  int most_frames = 180;
  int slots = 1024;
  double slower = 1;
  double hiccups = 0;
  int64_t pages = 0;
  unsigned seed = 1;
};

// Rows that a GPU computes for so many streams: it has graphs for some numbers of rows only.
double RowsOf(size_t streams) {
  constexpr size_t kMultiple = 128;
  const size_t multiple = streams > kMultiple ? kMultiple : 8;
  const size_t rows = (streams + multiple - 1) / multiple * multiple;
  return static_cast<double>(rows);
}

double StepMs(double rows) {
  const auto* const above = std::find_if(std::begin(kStepTimes) + 1, std::end(kStepTimes) - 1,
                                         [&](const auto& entry) { return entry.first >= rows; });
  const auto* const below = above - 1;
  return below->second + (above->second - below->second) * (rows - below->first) / (above->first - below->first);
}

// A device that runs prompts, steps and copies one after the other. An utterance's seed is the number of its frames.
class SimulatedDevice : public qtts::Backend, public qtts::PagedContexts, public qtts::SharedPrompts {
 public:
  explicit SimulatedDevice(const Options& options)
      : options_(options), slots_(static_cast<size_t>(options.slots)), free_pages_(options.pages) {
    for (int i = options.slots; i-- > 0;) free_.push_back(i);
  }
  double busy_ms() const { return busy_.count(); }

  const std::string& name() const override { return name_; }
  bool beside_host() const override { return true; }
  int max_outstanding() const override { return 2; }
  int max_slots() const override { return options_.slots; }
  qtts::Result<qtts::SlotId> Open(qtts::Prompt, const qtts::GenerationSettings&, uint64_t seed) override {
    const qtts::SlotId id = free_.back();
    Slot opened{static_cast<int64_t>(seed)};
    if (!Take(PagesOf(kPromptRows), &opened)) return qtts::Status::ResourceExhausted("no pages");
    free_.pop_back();
    slots_[static_cast<size_t>(id)] = opened;
    return id;
  }
  qtts::PagedContexts* paged() override { return options_.pages > 0 ? this : nullptr; }
  qtts::SharedPrompts* shared_prompts() override { return this; }
  qtts::ContextPages pages() const override { return {kPagePositions, options_.pages, free_pages_}; }
  qtts::Result<int64_t> Reserve(qtts::SlotId id) override {
    Slot& slot = slots_[static_cast<size_t>(id)];
    const int64_t needed = PagesOf(kPromptRows + slot.submitted);
    if (needed > slot.pages && !Take(needed - slot.pages, &slot)) return qtts::Status::ResourceExhausted("no pages");
    return slot.pages * kPagePositions - kPromptRows + 1;
  }
  qtts::Status Park(qtts::SlotId id) override {
    Slot& slot = slots_[static_cast<size_t>(id)];
    slot.parked_pages = PagesOf(kPromptRows + slot.submitted);
    parked_pages_ += slot.parked_pages;
    if (parked_pages_ > locked_pages_) {
      std::this_thread::sleep_for((parked_pages_ - std::exchange(locked_pages_, parked_pages_)) * kLockTime);
    }
    Work(kPageMs * static_cast<double>(slot.parked_pages));
    free_pages_ += std::exchange(slot.pages, 0);
    return qtts::Status::Ok();
  }
  qtts::Status Unpark(qtts::SlotId id) override {
    Slot& slot = slots_[static_cast<size_t>(id)];
    if (!Take(slot.parked_pages, &slot)) return qtts::Status::ResourceExhausted("no pages");
    parked_pages_ -= slot.parked_pages;
    Work(kPageMs * static_cast<double>(std::exchange(slot.parked_pages, 0)));
    return qtts::Status::Ok();
  }
  qtts::Result<qtts::PrefillProgress> Prefill(qtts::SlotId) override {
    Work(kPromptMs);
    return qtts::PrefillProgress{true, 0.1};
  }
  std::vector<qtts::Result<qtts::PrefillProgress>> PrefillTogether(std::span<const qtts::SlotId> slots) override {
    Work(kPromptMs * (1 + static_cast<double>(slots.size())) / 2);
    return {slots.size(), qtts::PrefillProgress{true, 0.1}};
  }
  int64_t prompt_rows_together() const override { return 512; }
  qtts::Status Submit(std::span<const qtts::FrameStep> steps) override {
    for (const qtts::FrameStep& step : steps) ++slots_[static_cast<size_t>(step.slot)].submitted;
    const double extra = 1000 * hiccup_(random_) < options_.hiccups ? kHiccupMs / options_.slower : 0;
    Work(StepMs(RowsOf(steps.size())) + extra);
    outstanding_.push_back({{steps.begin(), steps.end()}, done_});
    return qtts::Status::Ok();
  }
  qtts::Result<std::vector<qtts::FrameResult>> Collect() override {
    std::this_thread::sleep_until(outstanding_.front().done);
    std::vector<qtts::FrameResult> results;
    for (const qtts::FrameStep& step : outstanding_.front().steps) {
      qtts::FrameResult result;
      result.slot = step.slot;
      if (--slots_[static_cast<size_t>(step.slot)].frames_left < 0) {
        result.end = qtts::EndReason::kComplete;
      } else {
        result.pcm.assign(1, 0.1F);
      }
      results.push_back(std::move(result));
    }
    outstanding_.pop_front();
    return results;
  }
  void Close(qtts::SlotId id) override {
    Slot& slot = slots_[static_cast<size_t>(id)];
    free_pages_ += std::exchange(slot.pages, 0);
    parked_pages_ -= std::exchange(slot.parked_pages, 0);
    free_.push_back(id);
  }

 private:
  struct Slot {
    int64_t frames_left = 0;
    int64_t submitted = 0;
    int64_t pages = 0;
    int64_t parked_pages = 0;
  };
  struct Step {
    std::vector<qtts::FrameStep> steps;
    Clock::time_point done;
  };

  static int64_t PagesOf(int64_t positions) { return (positions + kPagePositions - 1) / kPagePositions; }

  // Without a limit no slot has pages.
  bool Take(int64_t pages, Slot* slot) {
    if (options_.pages == 0) return true;
    if (pages > free_pages_) return false;
    free_pages_ -= pages;
    slot->pages += pages;
    return true;
  }

  void Work(double ms) {
    const Milliseconds time(ms * options_.slower);
    busy_ += time;
    done_ = std::max(done_, Clock::now()) + std::chrono::duration_cast<Clock::duration>(time);
  }

  const Options options_;
  std::string name_ = "simulated";
  std::vector<Slot> slots_;
  std::vector<qtts::SlotId> free_;
  int64_t free_pages_;
  int64_t parked_pages_ = 0;
  int64_t locked_pages_ = 0;  // of the host
  std::deque<Step> outstanding_;
  Clock::time_point done_;
  Milliseconds busy_{0};
  std::mt19937 random_{1};
  std::uniform_real_distribution<> hiccup_;
};

Options Parse(int argc, char** argv) {
  Options options;
  Arguments(kUsage)
      .Add("--arrivals", &options.arrivals, 1e-9)
      .Add("--streams", &options.streams, 1)
      .Add("--seconds", &options.seconds)
      .AddRange("--frames", &options.least_frames, &options.most_frames, 2)
      .Add("--slots", &options.slots)
      .Add("--slower", &options.slower)
      .Add("--hiccups", &options.hiccups)
      .Add("--pages", &options.pages)
      .Add("--seed", &options.seed)
      .Parse(argc, argv);
  if (options.streams > 0 && !options.arrivals.empty()) Fail("--arrivals or --streams, not both");
  if (options.streams == 0 && options.arrivals.empty()) options.arrivals = {1, 10, 20, 100};
  return options;
}

// A listener without pre-roll: plays a frame every 80 ms from the moment at which the first one came.
struct Listener {
  std::shared_ptr<qtts::StreamState> stream;
  std::shared_ptr<FrameTimes> times;
  Clock::time_point asked, due;
  int64_t heard = 0;  // frames played
  bool waits = false;
};

double Percentile(std::vector<double>* values, double part) {
  if (values->empty()) return 0;
  const auto at = static_cast<size_t>(part * static_cast<double>(values->size() - 1) + 0.5);
  std::nth_element(values->begin(), values->begin() + static_cast<std::ptrdiff_t>(at), values->end());
  return (*values)[at];
}

// Times at which requests come: at random, or those of a constant set.
class Requests {
 public:
  Requests(const Options& options, double arrivals, Clock::time_point start)
      : options_(options), arrivals_(arrivals), start_(start), next_(start), random_(options.seed) {}
  // True if one comes now. `speaking`: those that have come and have not ended.
  bool Next(Clock::time_point now, size_t speaking) {
    if (options_.streams > 0) {
      const double begun = 4 * std::chrono::duration<double>(now - start_).count() / options_.seconds;
      return static_cast<double>(speaking) < std::min(1.0, begun) * options_.streams;
    }
    if (next_ > now) return false;
    next_ += std::chrono::duration_cast<Clock::duration>(
        std::chrono::duration<double>(std::exponential_distribution<>(arrivals_)(random_)));
    return true;
  }
  uint64_t Frames() {
    return std::uniform_int_distribution<uint64_t>(static_cast<uint64_t>(options_.least_frames),
                                                   static_cast<uint64_t>(options_.most_frames))(random_);
  }

 private:
  const Options& options_;
  const double arrivals_;
  const Clock::time_point start_;
  Clock::time_point next_;
  std::mt19937 random_;
};

void Measure(double arrivals, const Options& options, const std::shared_ptr<const qtts::PromptBuilder>& prompts,
             const std::shared_ptr<const qtts::Tokenizer>& tokenizer) {
  auto device = std::make_unique<SimulatedDevice>(options);
  const SimulatedDevice* const simulated = device.get();
  auto scheduler = Take(qtts::Scheduler::Create(std::move(device)));
  std::vector<double> first_frames, first_sounds;
  int64_t frames = 0;
  std::array<int64_t, 4> gaps_of = {};   // before frame 1, 2, 3, and all that follow
  double longest_gap = 0, all_gaps = 0;  // ms
  size_t most = 0;
  int most_parked = 0;
  std::vector<std::unique_ptr<Listener>> listeners;
  const auto start = Clock::now();
  const auto end = start + std::chrono::seconds(options.seconds);
  Requests requests(options, arrivals, start);
  for (auto now = start; now < end; now = Clock::now()) {
    while (requests.Next(now, listeners.size())) {
      qtts::Request request;
      request.text = "Nothing is computed here.";
      request.seed = requests.Frames();
      auto listener = std::make_unique<Listener>();
      listener->asked = Clock::now();
      listener->times = std::make_shared<FrameTimes>();
      listener->stream = std::make_shared<qtts::StreamState>(prompts, tokenizer, request, 25,
                                                             [times = listener->times] { times->Add(); });
      if (const qtts::Status status = listener->stream->Begin(); !status.ok()) Fail(status.message());
      scheduler->Add(listener->stream);
      listeners.push_back(std::move(listener));
    }
    most = std::max(most, listeners.size());
    most_parked = std::max(most_parked, scheduler->occupancy().parked);
    for (size_t i = 0; i < listeners.size();) {
      Listener& l = *listeners[i];
      qtts::Frame frame;
      std::optional<qtts::ReadState> state;  // empty if it is not time to read
      while ((l.heard == 0 || Clock::now() >= l.due) &&
             (state = l.stream->Read(&frame, false)) == qtts::ReadState::kFrame) {
        if (l.heard < 2) {
          const auto at = l.times->Of(static_cast<size_t>(l.heard));
          (l.heard == 0 ? first_frames : first_sounds).push_back(Milliseconds(at - l.asked).count());
          if (l.heard == 0) l.due = at;
        }
        if (l.waits) {
          const auto now_heard = std::max(Clock::now(), l.due);
          const double gap = Milliseconds(now_heard - std::exchange(l.due, now_heard)).count();
          longest_gap = std::max(longest_gap, gap);
          all_gaps += gap;
          ++gaps_of[static_cast<size_t>(std::min<int64_t>(l.heard, 4)) - 1];
        }
        l.waits = false;
        l.due += kFrameTime;
        ++l.heard;
        ++frames;
      }
      if (state == qtts::ReadState::kEnd) {
        std::swap(listeners[i], listeners.back());
        listeners.pop_back();
        continue;
      }
      if (l.heard >= 1 && state == qtts::ReadState::kPending) l.waits = true;
      ++i;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(500));
  }
  const double busy = simulated->busy_ms() / options.seconds / 10;
  const uint64_t parkings = scheduler->occupancy().parkings;
  for (const auto& listener : listeners) listener->stream->Cancel();
  scheduler.reset();
  std::printf("%8.0f %9zu %8.1f/%-8.1f %8.1f/%-8.1f %9lld  %lld, %lld, %lld, %-8lld %8.0f/%-8.0f %4.0f\n", arrivals,
              most, Percentile(&first_frames, 0.5), Percentile(&first_frames, 0.95), Percentile(&first_sounds, 0.5),
              Percentile(&first_sounds, 0.95), static_cast<long long>(frames), static_cast<long long>(gaps_of[0]),
              static_cast<long long>(gaps_of[1]), static_cast<long long>(gaps_of[2]),
              static_cast<long long>(gaps_of[3]), all_gaps / 1e3, longest_gap, busy);
  if (options.pages > 0) {
    std::printf("%llu times was a stream parked, %d at once at most\n", static_cast<unsigned long long>(parkings),
                most_parked);
  }
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = Parse(argc, argv);
  const auto checkpoint = Take(qtts::Checkpoint::Open(QTTS_BENCH_VOICE));
  const auto tokenizer = Take(qtts::Tokenizer::Load(QTTS_BENCH_VOICE));
  const auto prompts =
      std::make_shared<const qtts::PromptBuilder>(Take(qtts::PromptBuilder::Create(checkpoint->config(), tokenizer)));
  std::printf("a simulated device, %g times as slow as its table; %d slots\n", options.slower, options.slots);
  std::printf("%8s %9s %17s %17s %9s  %-17s %17s %4s\n", "a second", "at once", "frame 0, p50/p95", "sound, p50/p95",
              "frames", "gaps: 1, 2, 3, on", "all s/longest ms", "busy %");
  if (options.streams > 0) {
    Measure(0, options, prompts, tokenizer);
    return 0;
  }
  for (const double arrivals : options.arrivals) Measure(arrivals, options, prompts, tokenizer);
  return 0;
}
