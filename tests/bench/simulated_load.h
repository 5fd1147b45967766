// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TESTS_BENCH_SIMULATED_LOAD_H_
#define QTTS_TESTS_BENCH_SIMULATED_LOAD_H_

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <queue>
#include <random>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "prompt/prompt.h"
#include "scheduler/scheduler.h"
#include "scheduler/stream_clock.h"
#include "scheduler/stream_state.h"
#include "text/tokenizer.h"

// A scheduler with its listeners above a device, all simulated on one clock: every run of the same options is the same,
// to the nanosecond, and takes no time of its own.
namespace qtts::bench {

// How long the device takes.
struct DeviceTimes {
  // Time in ms of a step by its number of rows, contexts of kTablePositions.
  std::vector<std::pair<double, double>> steps;
  double prompt_ms = 0.9;           // a prompt
  double further_prompt_ms = 0.45;  // each further one of the same pass
  double position_ns = 0;           // each position that a step's streams attend to, above or below those of the table

  static constexpr double kTablePositions = 130;

  // Returns the time of a step that computes `rows` rows for `streams` streams, which attend to `positions` positions.
  double StepMs(double rows, double streams, double positions) const {
    auto above = steps.begin() + 1;
    while (above + 1 != steps.end() && above->first < rows) ++above;
    const auto below = above - 1;
    return below->second + (above->second - below->second) * (rows - below->first) / (above->first - below->first) +
           (positions - kTablePositions * streams) * position_ns / 1e6;
  }

  // One H100.
  static DeviceTimes Exact06B() {
    return {
        {{0, 1.5}, {1, 1.59}, {8, 2.46}, {64, 6.74}, {128, 9.3}, {256, 15.0}, {512, 27.9}, {1024, 56.3}, {4096, 225}}};
  }
  static DeviceTimes Exact17B() {
    return {{{0, 2.1}, {1, 2.2}, {8, 3.7}, {64, 8.7}, {128, 12.2}, {256, 19.2}, {512, 35.5}, {1024, 67.0}, {4096, 262}},
            1.2,
            0.3};
  }
  // One H200, where small steps take more time a row than large ones, with contexts as they grow: what is predicted for
  // large steps by small ones alone is up to 40 % too long.
  static DeviceTimes H200Exact17B() {
    return {{{0, 1.5},
             {1, 1.6},
             {2, 1.8},
             {8, 3.0},
             {32, 6.4},
             {64, 9.4},
             {96, 12.0},
             {128, 13.5},
             {192, 16.5},
             {256, 18.8},
             {512, 34.0},
             {1024, 62.0},
             {4096, 250}},
            1.3,
            0.3};
  }
  static DeviceTimes Fast17B() {
    return {{{0, 2.0},
             {1, 2.1},
             {8, 3.4},
             {64, 7.2},
             {128, 10.5},
             {256, 15.2},
             {512, 26.5},
             {1024, 47.0},
             {1792, 78.0},
             {4096, 178}},
            1.2,
            0.3};
  }
  // One H200.
  static DeviceTimes H200Fast17B() {
    return {{{0, 1.5},
             {1, 1.6},
             {2, 1.8},
             {8, 2.9},
             {32, 5.4},
             {64, 7.2},
             {96, 8.8},
             {128, 9.8},
             {192, 12.4},
             {256, 14.6},
             {384, 20.2},
             {512, 25.3},
             {1024, 45.0},
             {1792, 73.5},
             {2048, 83.5},
             {4096, 165}},
            1.3,
            0.3,
            30};
  }
  static DeviceTimes H200Fast06B() {
    return {{{0, 1.2},
             {1, 1.3},
             {2, 1.5},
             {8, 2.4},
             {32, 4.6},
             {64, 6.3},
             {96, 7.8},
             {128, 8.8},
             {192, 11.2},
             {256, 13.2},
             {384, 18.0},
             {512, 22.5},
             {1024, 40.0},
             {1792, 66.0},
             {2048, 74.5},
             {4096, 148}},
            0.9,
            0.25,
            30};
  }
};

struct SimulatedOptions {
  DeviceTimes times = DeviceTimes::Exact06B();
  // Requests: `streams` listeners, of whom those who have heard their utterance are replaced, or `arrivals` a second at
  // random.
  int streams = 0;
  double ramp = 0;  // s over which the listeners come
  double arrivals = 0;
  double seconds = 20;
  int least_frames = 22;
  int most_frames = 180;
  int slots = 1024;
  double slower = 1;   // the device takes so many times as long
  double hiccups = 0;  // of a thousand steps so many take kHiccupMs longer
  int64_t pages = 0;   // 0: no limit
  int64_t prompt_rows = 35;
  double read_ahead = 0;  // s before they play them listeners take frames, if there are any
  unsigned seed = 1;
};

struct SimulatedResults {
  std::vector<double> first_frames, first_sounds;  // ms; the sound is frame 1, since frame 0 is often silent
  int64_t frames = 0;
  int64_t refused = 0;
  std::array<int64_t, 4> late_of = {};   // frames late: 1, 2, 3, and all that follow
  double longest_gap = 0, all_gaps = 0;  // ms
  double least_store = 1e9;              // ms before its listener needed it that a frame behind the fourth came
  size_t most_at_once = 0;
  int most_parked = 0;
  uint64_t parkings = 0;
  double busy = 0;  // part of the time

  int64_t late() const { return late_of[0] + late_of[1] + late_of[2] + late_of[3]; }
  static double Quantile(std::vector<double> values, double part) {
    if (values.empty()) return 0;
    std::sort(values.begin(), values.end());
    return values[static_cast<size_t>(part * static_cast<double>(values.size() - 1) + 0.5)];
  }
};

// Events in the order of their times. The scheduler's thread runs them while it waits.
class SimulatedWorld : public StreamClock::Simulation {
 public:
  explicit SimulatedWorld(double seconds)
      : end_(start_ + std::chrono::duration_cast<StreamClock::duration>(std::chrono::duration<double>(seconds))) {}
  StreamClock::time_point now() const override { return now_; }
  StreamClock::time_point start() const { return start_; }
  StreamClock::time_point end() const { return end_; }
  bool Sleep(const std::optional<StreamClock::time_point>& until) override {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return begun_; });
    }
    auto next = until.value_or(end_);
    if (!events_.empty()) next = std::min(next, events_.top().time);
    PassUntil(next);
    return now_ < end_;
  }
  void At(StreamClock::time_point time, std::function<void()> run) {
    events_.push({std::max(time, now_), ++count_, std::move(run)});
  }
  // Runs all events until `time`.
  void PassUntil(StreamClock::time_point time) {
    while (!events_.empty() && events_.top().time <= std::max(time, now_)) {
      const Event event = events_.top();
      events_.pop();
      now_ = std::max(now_, event.time);
      if (now_ < end_) event.run();
    }
    now_ = std::max(now_, time);
    if (now_ < end_) return;
    const std::lock_guard lock(mutex_);
    over_ = true;
    changed_.notify_all();
  }
  // Lets time begin, on the scheduler's thread, and waits for its end.
  void Run() {
    std::unique_lock lock(mutex_);
    begun_ = true;
    changed_.notify_all();
    changed_.wait(lock, [this] { return over_; });
  }

 private:
  struct Event {
    StreamClock::time_point time;
    uint64_t number;
    std::function<void()> run;
    bool operator<(const Event& other) const { return std::tie(time, number) > std::tie(other.time, other.number); }
  };
  const StreamClock::time_point start_{std::chrono::hours(1)};
  const StreamClock::time_point end_;
  StreamClock::time_point now_ = start_;
  uint64_t count_ = 0;
  std::priority_queue<Event> events_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool begun_ = false;
  bool over_ = false;
};

// A device that runs prompts, steps and copies one after the other. An utterance's seed is the number of its frames.
class SimulatedDevice : public Backend, public PagedContexts, public SharedPrompts {
 public:
  // Positions of a context's page, which both released sizes copy to the host or back in kPageMs. Its host memory, made
  // ready by another thread, is page-locked once, in kLockTime on the scheduler's thread.
  static constexpr int64_t kPagePositions = 128;
  static constexpr double kPageMs = 0.27;
  static constexpr std::chrono::microseconds kLockTime{600};
  static constexpr double kHiccupMs = 20;

  SimulatedDevice(const SimulatedOptions& options, SimulatedWorld* world)
      : options_(options), world_(world), slots_(static_cast<size_t>(options.slots)), free_pages_(options.pages) {
    for (int i = options.slots; i-- > 0;) free_.push_back(i);
  }
  double busy_ms() const { return busy_.count(); }

  const std::string& name() const override { return name_; }
  bool beside_host() const override { return true; }
  int max_outstanding() const override { return 2; }
  int max_slots() const override { return options_.slots; }
  Result<SlotId> Open(Prompt, const GenerationSettings&, uint64_t seed) override {
    const SlotId id = free_.back();
    Slot opened{static_cast<int64_t>(seed)};
    if (!Take(PagesOf(options_.prompt_rows), &opened)) return Status::ResourceExhausted("no pages");
    free_.pop_back();
    slots_[static_cast<size_t>(id)] = opened;
    return id;
  }
  PagedContexts* paged() override { return options_.pages > 0 ? this : nullptr; }
  SharedPrompts* shared_prompts() override { return this; }
  ContextPages pages() const override { return {kPagePositions, options_.pages, free_pages_}; }
  Result<int64_t> Reserve(SlotId id) override {
    Slot& slot = slots_[static_cast<size_t>(id)];
    const int64_t needed = PagesOf(options_.prompt_rows + slot.submitted);
    if (needed > slot.pages && !Take(needed - slot.pages, &slot)) return Status::ResourceExhausted("no pages");
    return slot.pages * kPagePositions - options_.prompt_rows + 1;
  }
  Status Park(SlotId id) override {
    Slot& slot = slots_[static_cast<size_t>(id)];
    slot.parked_pages = PagesOf(options_.prompt_rows + slot.submitted);
    parked_pages_ += slot.parked_pages;
    if (parked_pages_ > locked_pages_) {
      world_->PassUntil(world_->now() + (parked_pages_ - std::exchange(locked_pages_, parked_pages_)) * kLockTime);
    }
    Work(kPageMs * static_cast<double>(slot.parked_pages));
    free_pages_ += std::exchange(slot.pages, 0);
    return Status::Ok();
  }
  Status Unpark(SlotId id) override {
    Slot& slot = slots_[static_cast<size_t>(id)];
    if (!Take(slot.parked_pages, &slot)) return Status::ResourceExhausted("no pages");
    parked_pages_ -= slot.parked_pages;
    Work(kPageMs * static_cast<double>(std::exchange(slot.parked_pages, 0)));
    return Status::Ok();
  }
  Result<PrefillProgress> Prefill(SlotId) override {
    Work(options_.times.prompt_ms);
    return PrefillProgress{true, 0.1};
  }
  std::vector<Result<PrefillProgress>> PrefillTogether(std::span<const SlotId> slots) override {
    Work(options_.times.prompt_ms + options_.times.further_prompt_ms * static_cast<double>(slots.size() - 1));
    return {slots.size(), PrefillProgress{true, 0.1}};
  }
  int64_t prompt_rows_together() const override { return 512; }
  Status Submit(std::span<const FrameStep> steps) override {
    int64_t positions = 0;
    for (const FrameStep& step : steps) {
      positions += options_.prompt_rows + ++slots_[static_cast<size_t>(step.slot)].submitted;
    }
    const double extra = 1000 * hiccup_(random_) < options_.hiccups ? kHiccupMs / options_.slower : 0;
    Work(
        options_.times.StepMs(RowsOf(steps.size()), static_cast<double>(steps.size()), static_cast<double>(positions)) +
        extra);
    outstanding_.push_back({{steps.begin(), steps.end()}, done_});
    return Status::Ok();
  }
  Result<std::vector<FrameResult>> Collect() override {
    world_->PassUntil(outstanding_.front().done);
    std::vector<FrameResult> results;
    for (const FrameStep& step : outstanding_.front().steps) {
      FrameResult result;
      result.slot = step.slot;
      if (--slots_[static_cast<size_t>(step.slot)].frames_left < 0) {
        result.end = EndReason::kComplete;
      } else {
        result.pcm.assign(1, 0.1F);
      }
      results.push_back(std::move(result));
    }
    outstanding_.pop_front();
    return results;
  }
  void Close(SlotId id) override {
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
    std::vector<FrameStep> steps;
    StreamClock::time_point done;
  };
  using Milliseconds = std::chrono::duration<double, std::milli>;

  static int64_t PagesOf(int64_t positions) { return (positions + kPagePositions - 1) / kPagePositions; }

  // Returns the rows that a GPU computes for so many streams: it has graphs for some numbers of rows only.
  static double RowsOf(size_t streams) {
    for (const size_t rows : {1, 2, 4, 8, 16, 32, 64, 96, 128, 192, 256}) {
      if (rows >= streams) return static_cast<double>(rows);
    }
    constexpr size_t kMultiple = 128;
    return static_cast<double>((streams + kMultiple - 1) / kMultiple * kMultiple);
  }

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
    done_ = std::max(done_, world_->now()) + std::chrono::duration_cast<StreamClock::duration>(time);
  }

  const SimulatedOptions options_;
  SimulatedWorld* const world_;
  std::string name_ = "simulated";
  std::vector<Slot> slots_;
  std::vector<SlotId> free_;
  int64_t free_pages_;
  int64_t parked_pages_ = 0;
  int64_t locked_pages_ = 0;  // of the host
  std::deque<Step> outstanding_;
  StreamClock::time_point done_;
  Milliseconds busy_{0};
  std::mt19937 random_{1};
  std::uniform_real_distribution<> hiccup_;
};

// Listeners without pre-roll: each plays a frame every 80 ms from the moment at which the first one came.
class SimulatedLoad {
 public:
  SimulatedLoad(const SimulatedOptions& options, std::shared_ptr<const PromptBuilder> prompts,
                std::shared_ptr<const Tokenizer> tokenizer)
      : options_(options),
        prompts_(std::move(prompts)),
        tokenizer_(std::move(tokenizer)),
        world_(options.seconds),
        random_(options.seed) {}

  Result<SimulatedResults> Run() {
    StreamClock::Simulate(&world_);
    auto device = std::make_unique<SimulatedDevice>(options_, &world_);
    const SimulatedDevice* const simulated = device.get();
    auto scheduler = Scheduler::Create(std::move(device));
    if (!scheduler.ok()) return scheduler.status();
    scheduler_ = scheduler->get();
    world_.At(world_.end() - std::chrono::nanoseconds(1), [this, simulated] {
      results_.parkings = scheduler_->occupancy().parkings;
      results_.busy = simulated->busy_ms() / 1e3 / options_.seconds;
    });
    if (options_.arrivals > 0) world_.At(world_.start(), [this] { Arrive(); });
    for (int i = 0; i < options_.streams; ++i) {
      world_.At(world_.start() + Seconds(options_.ramp * i / options_.streams), [this] { Start(); });
    }
    world_.Run();
    scheduler->reset();
    StreamClock::Simulate(nullptr);
    return results_;
  }

 private:
  static constexpr std::chrono::milliseconds kFrame{80};
  using Milliseconds = std::chrono::duration<double, std::milli>;

  struct Listener {
    std::shared_ptr<StreamState> stream;
    StreamClock::time_point asked, due;
    int64_t came = 0;   // frames, and the end
    int64_t heard = 0;  // frames played
    bool waits = true;  // for a frame
    bool listed = false;
  };

  static StreamClock::duration Seconds(double seconds) {
    return std::chrono::duration_cast<StreamClock::duration>(std::chrono::duration<double>(seconds));
  }

  void Arrive() {
    world_.At(world_.now() + Seconds(std::exponential_distribution<>(options_.arrivals)(random_)),
              [this] { Arrive(); });
    Start();
  }

  void Start() {
    Request request;
    request.text = "Nothing is computed here.";
    request.seed = std::uniform_int_distribution<uint64_t>(static_cast<uint64_t>(options_.least_frames),
                                                           static_cast<uint64_t>(options_.most_frames))(random_);
    auto listener = std::make_shared<Listener>();
    listener->asked = world_.now();
    // A frame is heard by the events that follow: the scheduler must not be called back.
    listener->stream = std::make_shared<StreamState>(prompts_, tokenizer_, request, 25,
                                                     [this, weak = std::weak_ptr<Listener>(listener)] {
                                                       if (const auto changed = weak.lock()) Note(changed);
                                                     });
    if (const Status status = listener->stream->Begin(); !status.ok()) return;
    ++speaking_;
    listeners_.push_back(listener);
    results_.most_at_once = std::max(results_.most_at_once, speaking_);
    results_.most_parked = std::max(results_.most_parked, scheduler_->occupancy().parked);
    scheduler_->Add(listener->stream);
  }

  void Note(const std::shared_ptr<Listener>& listener) {
    const double after = Milliseconds(world_.now() - listener->asked).count();
    const int64_t frame = listener->came++;
    if (frame == 0) results_.first_frames.push_back(after);
    if (frame == 1) results_.first_sounds.push_back(after);
    if (listener->heard > 3 && !listener->stream->ended() && world_.now() < world_.end()) {
      const auto in_hand = std::max<int64_t>(static_cast<int64_t>(listener->stream->unread()) - 1, 0) * kFrame;
      const double store = Milliseconds(listener->due + in_hand - world_.now()).count();
      results_.least_store = std::min(results_.least_store, store);
    }
    if (!listener->waits || std::exchange(listener->listed, true)) return;
    world_.At(world_.now(), [this, listener] { Hear(listener); });
  }

  void Hear(const std::shared_ptr<Listener>& listener) {
    Listener& l = *listener;
    l.listed = false;
    Frame frame;
    const ReadState state = l.stream->Read(&frame, false);
    if (state == ReadState::kEnd) return End(listener);
    if (state == ReadState::kPending) {
      l.waits = true;
      return;
    }
    const auto now = world_.now();
    l.waits = false;
    if (l.heard == 0) l.due = now;
    if (now > l.due) {
      const double gap = Milliseconds(now - l.due).count();
      results_.longest_gap = std::max(results_.longest_gap, gap);
      results_.least_store = 0;
      results_.all_gaps += gap;
      ++results_.late_of[static_cast<size_t>(std::min<int64_t>(l.heard, 4)) - 1];
      l.due = now;
    }
    l.due += kFrame;
    ++l.heard;
    ++results_.frames;
    world_.At(std::max(now, l.due - Seconds(options_.read_ahead)), [this, listener] { Hear(listener); });
  }

  void End(const std::shared_ptr<Listener>& listener) {
    if (listener->stream->end_reason() == EndReason::kBusy) ++results_.refused;
    --speaking_;
    if (options_.streams > 0) world_.At(std::max(world_.now(), listener->due), [this] { Start(); });
  }

  const SimulatedOptions options_;
  const std::shared_ptr<const PromptBuilder> prompts_;
  const std::shared_ptr<const Tokenizer> tokenizer_;
  SimulatedWorld world_;
  std::mt19937 random_;
  Scheduler* scheduler_ = nullptr;
  std::vector<std::shared_ptr<Listener>> listeners_;
  size_t speaking_ = 0;
  SimulatedResults results_;
};

}  // namespace qtts::bench

#endif  // QTTS_TESTS_BENCH_SIMULATED_LOAD_H_
