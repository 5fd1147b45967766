// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TESTS_SIMULATED_CARD_H_
#define QTTS_TESTS_SIMULATED_CARD_H_

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <queue>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "prompt/prompt.h"
#include "scheduler/clock.h"
#include "scheduler/scheduler.h"
#include "scheduler/stream_state.h"
#include "text/tokenizer.h"

namespace qtts {

// Virtual time with events. Starts at Begin(); from then on only the scheduler's thread uses it.
class World : public VirtualTime {
 public:
  time_point now() const override { return now_; }
  bool PassUntil(std::optional<time_point> until, const std::atomic<bool>& called) override {
    begun_.wait();
    while (!called) {
      if (events_.empty()) {
        if (!over_) end_.set_value();
        over_ = true;
        return false;
      }
      if (until && events_.top().time > *until) {
        now_ = std::max(now_, *until);
        return true;
      }
      RunNext();
    }
    return true;
  }
  // Lets time pass until `time`, whatever happens meanwhile.
  void PassTo(time_point time) {
    while (!events_.empty() && events_.top().time <= time) RunNext();
    now_ = std::max(now_, time);
  }
  void At(time_point time, std::function<void()> run) { events_.push({time, ++events_added_, std::move(run)}); }
  void Begin() { begin_.set_value(); }
  // Waits until nothing can happen any more.
  void AwaitEnd() { end_.get_future().wait(); }

 private:
  struct Event {
    time_point time;
    uint64_t number;  // events at the same time happen in the order in which they were added
    std::function<void()> run;
    bool operator<(const Event& other) const { return time != other.time ? time > other.time : number > other.number; }
  };

  void RunNext() {
    const Event event = events_.top();
    events_.pop();
    now_ = std::max(now_, event.time);
    event.run();
  }

  time_point now_{std::chrono::hours(1)};
  std::priority_queue<Event> events_;
  uint64_t events_added_ = 0;
  bool over_ = false;
  std::promise<void> begin_, end_;
  std::shared_future<void> begun_{begin_.get_future()};
};

// Times of a card for one model, in ms.
struct CardTimes {
  std::string name;
  std::vector<std::pair<double, double>> steps;  // of a step, by its rows, with empty contexts; concave
  double position = 0.047e-3;                    // for each position that a step attends to
  double prompt_pass = 1.2;                      // of a pass over prompts
  double prompt_row = 0.018;                     // for each row of it
};

// H100, with more than 64 voices (tests/bench/journal/gpu-many-voices.md).
inline CardTimes H100Exact17() {
  return {"1.7B exact",
          {{0, 2.1},
           {1, 2.25},
           {8, 3.6},
           {32, 7.0},
           {64, 8.6},
           {128, 12},
           {256, 18.2},
           {512, 34.4},
           {1024, 64.1},
           {2048, 128}}};
}
inline CardTimes H100Exact06() {
  return {"0.6B exact",
          {{0, 1.5},
           {1, 1.67},
           {8, 2.9},
           {32, 6.2},
           {64, 7.4},
           {128, 10},
           {256, 17.1},
           {512, 30.8},
           {1024, 58.5},
           {2048, 116}},
          0.047e-3,
          0.8,
          0.009};
}
inline CardTimes H100Fast17() {
  return {
      "1.7B fast",
      {{0, 2.1}, {1, 2.2}, {8, 3.4}, {32, 6.3}, {64, 7.4}, {128, 9.8}, {256, 14.5}, {512, 24}, {1024, 43}, {2048, 80}}};
}

// A device that runs prompts and steps one after the other, in virtual time. An utterance has as many frames as its
// seed says.
class SimulatedCard : public Backend {
 public:
  SimulatedCard(World* world, CardTimes times, int slots) : world_(world), times_(std::move(times)), slots_(slots) {
    for (int i = slots; i-- > 0;) free_.push_back(i);
  }

  const std::string& name() const override { return times_.name; }
  bool beside_host() const override { return true; }
  int max_outstanding() const override { return 2; }
  int max_slots() const override { return slots_; }
  Result<SlotId> Open(Prompt prompt, const GenerationSettings&, uint64_t seed) override {
    const SlotId id = free_.back();
    free_.pop_back();
    if (open_.size() <= static_cast<size_t>(id)) open_.resize(static_cast<size_t>(id) + 1);
    const auto rows = static_cast<int64_t>(prompt.rows.size());
    open_[static_cast<size_t>(id)] = {static_cast<int64_t>(seed), rows,
                                      rows - static_cast<int64_t>(prompt.constant_rows)};
    return id;
  }
  Result<PrefillProgress> Prefill(SlotId slot) override { return PrefillTogether({&slot, 1}).front(); }
  std::vector<Result<PrefillProgress>> PrefillTogether(std::span<const SlotId> slots) override {
    std::vector<Result<PrefillProgress>> results;
    double ms = times_.prompt_pass;
    for (const SlotId id : slots) {
      const Slot& slot = open_[static_cast<size_t>(id)];
      ms += times_.prompt_row * static_cast<double>(slot.own_rows);
      results.emplace_back(PrefillProgress{true, std::min(1.0, static_cast<double>(slot.positions) / 256)});
    }
    Work(ms);
    return results;
  }
  int64_t prompt_rows_together() const override { return 512; }
  Status Submit(std::span<const FrameStep> steps) override {
    double ms = StepTime(steps.size());
    for (const FrameStep& step : steps) {
      ms += times_.position * static_cast<double>(++open_[static_cast<size_t>(step.slot)].positions);
    }
    Work(ms * slower_);
    outstanding_.push_back({{steps.begin(), steps.end()}, done_});
    return Status::Ok();
  }
  Result<std::vector<FrameResult>> Collect() override {
    world_->PassTo(outstanding_.front().done);
    std::vector<FrameResult> results;
    for (const FrameStep& step : outstanding_.front().steps) {
      FrameResult result;
      result.slot = step.slot;
      if (--open_[static_cast<size_t>(step.slot)].frames_left < 0) {
        result.end = EndReason::kComplete;
      } else {
        result.pcm.assign(1, 0.1F);
      }
      results.push_back(std::move(result));
    }
    outstanding_.pop_front();
    // Delivery takes the host's time.
    world_->PassTo(world_->now() + std::chrono::microseconds(3) * results.size());
    return results;
  }
  void Close(SlotId id) override { free_.push_back(id); }

  // Time of a step without contexts, ms.
  double StepTime(size_t streams) const {
    const size_t multiple = streams > 128 ? 32 : 8;
    const auto rows = static_cast<double>(streams <= 2 ? streams : (streams + multiple - 1) / multiple * multiple);
    const auto& steps = times_.steps;
    const auto above =
        std::find_if(steps.begin() + 1, steps.end() - 1, [rows](const auto& entry) { return entry.first >= rows; });
    const auto below = above - 1;
    return below->second + (above->second - below->second) * (rows - below->first) / (above->first - below->first);
  }
  void SetSlower(double times) { slower_ = times; }

 private:
  struct Slot {
    int64_t frames_left = 0;
    int64_t positions = 0;
    int64_t own_rows = 0;
  };
  struct Step {
    std::vector<FrameStep> steps;
    World::time_point done;
  };

  void Work(double ms) {
    done_ = std::max(done_, world_->now()) + std::chrono::nanoseconds(static_cast<int64_t>(ms * 1e6));
  }

  World* const world_;
  const CardTimes times_;
  const int slots_;
  double slower_ = 1;
  std::vector<SlotId> free_;
  std::vector<Slot> open_;
  std::deque<Step> outstanding_;
  World::time_point done_;
};

// Listeners without pre-roll: each plays a frame every 80 ms from the moment at which the first one came.
struct Crowd {
  int listeners = 0;
  double seconds = 4;     // over which they come, evenly
  int alone = 0;          // frames of an utterance that is spoken alone before they come
  double pace = 1;        // frames that are read in the time in which one is played
  bool replaced = false;  // one that ends is followed by another at once, until `until`
  double until = 20;      // seconds, at which the listeners that still speak hang up
  int least_frames = 100;
  int most_frames = 280;
  int least_words = 5;
  int most_words = 40;
  std::chrono::nanoseconds max_wait = Request::kNoLimit;
  bool retry = false;  // one that is refused comes again once, after the time that it is told
};

struct CrowdResult {
  int asked = 0;
  int refused = 0;  // of those that came for the first time
  int refused_again = 0;
  int most_at_once = 0;  // that speak
  int64_t frames = 0;
  int64_t late = 0;
  std::vector<int64_t> late_at;     // by the second in which they should have been there
  std::vector<double> first_sound;  // ms, sorted
  std::vector<double> retry_after;  // s, of those that were refused

  double FirstSound(double part) const {
    if (first_sound.empty()) return 0;
    return first_sound[static_cast<size_t>(part * static_cast<double>(first_sound.size() - 1))];
  }
};

class CrowdSimulation {
 public:
  CrowdSimulation(CardTimes times, int slots, Crowd crowd, std::shared_ptr<const PromptBuilder> prompts,
                  std::shared_ptr<const Tokenizer> tokenizer)
      : crowd_(crowd), prompts_(std::move(prompts)), tokenizer_(std::move(tokenizer)) {
    auto card = std::make_unique<SimulatedCard>(&world_, std::move(times), slots);
    card_ = card.get();
    scheduler_ = *Scheduler::Create(std::move(card), &world_);
  }
  SimulatedCard& card() { return *card_; }
  // Lets `run` happen `seconds` after the begin.
  void At(double seconds, std::function<void()> run) { world_.At(TimeOf(seconds), std::move(run)); }

  CrowdResult Run() {
    const double begin = crowd_.alone * 0.08 + (crowd_.alone > 0 ? 1 : 0);
    if (crowd_.alone > 0) world_.At(TimeOf(0), [this] { Start(crowd_.alone); });
    for (int i = 0; i < crowd_.listeners; ++i) {
      world_.At(TimeOf(begin + crowd_.seconds * i / crowd_.listeners),
                [this] { Start(Between(crowd_.least_frames, crowd_.most_frames)); });
    }
    world_.At(TimeOf(begin + crowd_.until), [this] {
      over_ = true;
      for (const auto& listener : listeners_) listener->stream->Cancel();
    });
    world_.Begin();
    world_.AwaitEnd();
    scheduler_.reset();
    std::sort(result_.first_sound.begin(), result_.first_sound.end());
    return std::move(result_);
  }

 private:
  struct Listener {
    std::shared_ptr<StreamState> stream;
    World::time_point asked, due;
    bool plays = false;
    bool waits = false;
    bool woken = false;  // a read is to come
    bool ended = false;
    bool again = false;  // was refused before
  };

  World::time_point TimeOf(double seconds) const {
    return start_ + std::chrono::nanoseconds(static_cast<int64_t>(seconds * 1e9));
  }

  int Between(int least, int most) {
    return least + static_cast<int>(random_() % static_cast<uint32_t>(most - least + 1));
  }

  void Start(int frames, bool again = false) {
    if (over_) return;
    if (!again) ++result_.asked;
    Request request;
    const int words = Between(crowd_.least_words, crowd_.most_words);
    for (int i = 0; i < words; ++i) request.text += i % 3 == 0 ? "nothing " : "is said ";
    request.seed = static_cast<uint64_t>(frames);
    request.settings.max_new_tokens = static_cast<int64_t>(request.seed) + 1;
    request.max_wait = crowd_.max_wait;
    listeners_.push_back(std::make_unique<Listener>());
    Listener* const listener = listeners_.back().get();
    if (crowd_.alone > 0 && alone_ == nullptr) alone_ = listener;
    listener->asked = world_.now();
    listener->again = again;
    listener->stream =
        std::make_shared<StreamState>(prompts_, tokenizer_, request, 25, [this, listener] { Changed(listener); });
    if (const Status status = listener->stream->Begin(); !status.ok()) std::abort();
    scheduler_->Add(listener->stream);
  }

  // Something has come for a listener, who takes it at once where it waits.
  void Changed(Listener* listener) {
    if (listener->woken || listener->ended || (listener->plays && !listener->waits)) return;
    listener->woken = true;
    world_.At(world_.now(), [this, listener] {
      listener->woken = false;
      Read(listener);
    });
  }

  void Read(Listener* listener) {
    if (listener->ended) return;
    Frame frame;
    const ReadState state = listener->stream->Read(&frame, false);
    if (state == ReadState::kEnd) return End(listener);
    if (state == ReadState::kPending) {
      // Not late if the end follows: it is told one step after the last frame.
      if (listener->plays) listener->waits = true;
      return;
    }
    ++result_.frames;
    if (!std::exchange(listener->plays, true)) {
      result_.first_sound.push_back(std::chrono::duration<double, std::milli>(world_.now() - listener->asked).count());
      result_.most_at_once = std::max(result_.most_at_once, ++speaking_);
    }
    const auto frame_time = std::chrono::milliseconds(80);
    listener->waits = false;
    if (frame.index == 0) listener->due = world_.now();
    if (world_.now() > listener->due) {
      listener->due = world_.now();
      ++result_.late;
      const auto second = static_cast<size_t>((world_.now() - start_) / std::chrono::seconds(1));
      if (result_.late_at.size() <= second) result_.late_at.resize(second + 1);
      ++result_.late_at[second];
    }
    listener->due += frame_time;
    const auto next = crowd_.pace == 1
                          ? listener->due
                          : world_.now() + std::chrono::nanoseconds(static_cast<int64_t>(80e6 / crowd_.pace));
    world_.At(next, [this, listener] { Read(listener); });
  }

  void End(Listener* listener) {
    listener->ended = true;
    if (listener->plays) --speaking_;
    if (listener->stream->end_reason() == EndReason::kBusy) {
      ++(listener->again ? result_.refused_again : result_.refused);
      if (crowd_.retry && !listener->again) {
        const int frames = static_cast<int>(listener->stream->request().seed);
        world_.At(world_.now() + std::chrono::ceil<std::chrono::seconds>(listener->stream->retry_after()),
                  [this, frames] { Start(frames, true); });
      }
      result_.retry_after.push_back(std::chrono::duration<double>(listener->stream->retry_after()).count());
    }
    if (crowd_.replaced && listener != alone_) Start(Between(crowd_.least_frames, crowd_.most_frames));
  }

  const Crowd crowd_;
  const std::shared_ptr<const PromptBuilder> prompts_;
  const std::shared_ptr<const Tokenizer> tokenizer_;
  World world_;
  const World::time_point start_ = world_.now();
  SimulatedCard* card_ = nullptr;
  std::unique_ptr<Scheduler> scheduler_;
  std::vector<std::unique_ptr<Listener>> listeners_;
  std::mt19937 random_{1};
  const Listener* alone_ = nullptr;
  int speaking_ = 0;
  bool over_ = false;
  CrowdResult result_;
};

}  // namespace qtts

#endif  // QTTS_TESTS_SIMULATED_CARD_H_
