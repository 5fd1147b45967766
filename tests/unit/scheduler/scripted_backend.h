// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TESTS_SCRIPTED_BACKEND_H_
#define QTTS_TESTS_SCRIPTED_BACKEND_H_

#include <algorithm>
#include <chrono>
#include <deque>
#include <limits>
#include <map>
#include <new>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "guarded.h"

namespace qtts {

// Script and record of a ScriptedBackend. The test owns it; it outlives the backend.
struct BackendScript {
  // Set before the backend is used.
  int max_outstanding = 1;
  int max_slots = kDefaultVoices;
  bool beside_host = false;
  std::chrono::microseconds time_of_row{0};   // duration of Collect() per row
  std::chrono::microseconds time_of_step{0};  // the same whatever the rows
  std::map<uint64_t, int>
      pieces_by_seed;  // calls of Prefill() that a prompt takes, of a frame's work each; 1 unless named
  std::map<uint64_t, Status> prefill_error_by_seed;  // result of the prompt's last piece
  std::map<uint64_t, int> frames_by_seed;            // frames an utterance has; 5 unless named
  std::map<uint64_t, EndReason> end_by_seed;         // reason of the end; kComplete unless named
  std::map<uint64_t, Status> open_error_by_seed;
  std::set<uint64_t> silent_seeds;  // the sample of each of their frames is 0
  // Frames that speak a token of the text, for the scores of those who ask for them; 0: there are none.
  int frames_per_token = 0;
  std::map<uint64_t, int> stuck_by_seed;  // the token at which an utterance stays; none unless named
  int64_t prompt_rows_together = 0;       // 0: prompts share nothing
  int64_t page_positions = 0;             // 0: no pages
  int64_t pages = 0;
  int64_t host_pages = std::numeric_limits<int64_t>::max();  // limit of Park()

  // Changed while it runs.
  bool gate_open = true;  // while false, Collect() waits
  bool device_lost = false;
  bool close_needs_memory = false;                        // and there is none once the device is lost
  std::map<uint64_t, std::vector<int32_t>> text_by_seed;  // text ids of the steps submitted
  std::map<uint64_t, size_t> made_by_seed;                // frames that Collect() has returned
  std::chrono::nanoseconds longest_pause{0};  // between one end of Submit() or Collect() and the next, of one backend
  std::chrono::nanoseconds longest_delay{0};  // by which a step took longer than scripted
  std::chrono::nanoseconds delays{0};         // of all steps
  int delayed_steps = 0;                      // all steps
  int open_slots = 0;
  int most_open_slots = 0;
  std::vector<uint64_t> pieces;                 // seeds, in the order in which pieces of their prompts were run
  std::vector<std::vector<uint64_t>> together;  // the seeds of each call of PrefillTogether()
  std::string order;                            // 'p' for each piece, 'f' for each frame submitted
  bool pieces_held = false;                     // while true, Prefill() waits
  int in_prefill = 0;
  int collecting = 0;
  int64_t taken_pages = 0;
  int64_t parked_pages = 0;
  int parkings = 0;
  std::map<uint64_t, int> parkings_by_seed;
  size_t most_outstanding = 0;                     // largest number of submissions at once
  std::vector<std::vector<uint64_t>> submissions;  // the seeds of each submission
};

// The script that a test and a backend share.
class SharedScript : public Guarded<BackendScript> {
 public:
  void SetGate(bool open) {
    const auto script = Lock();
    script->gate_open = open;
    script.NotifyAll();
  }
  void HoldPieces(bool hold) {
    const auto script = Lock();
    script->pieces_held = hold;
    script.NotifyAll();
  }
  std::vector<int32_t> Text(uint64_t seed) { return Lock()->text_by_seed[seed]; }
};

// A backend that identifies utterances by their seed. Frame n of seed s has the code n and the one sample s + n / 1000.
// The only setting with an effect is max_new_tokens.
class ScriptedBackend : public Backend, public PagedContexts, public SharedPrompts {
 public:
  explicit ScriptedBackend(SharedScript* script) : script_(*script) {}
  // Slots go with it, as a device's do.
  ~ScriptedBackend() override {
    const auto script = script_.Lock();
    script->open_slots -= static_cast<int>(slots_.size());
  }
  ScriptedBackend(const ScriptedBackend&) = delete;
  ScriptedBackend& operator=(const ScriptedBackend&) = delete;

  const std::string& name() const override { return name_; }
  bool beside_host() const override { return script_->beside_host; }
  int max_outstanding() const override { return script_->max_outstanding; }
  int max_slots() const override { return script_->max_slots; }
  PagedContexts* paged() override { return script_->page_positions > 0 ? this : nullptr; }
  SharedPrompts* shared_prompts() override { return script_->prompt_rows_together > 0 ? this : nullptr; }
  ContextPages pages() const override {
    const auto script = script_.Lock();
    return {script->page_positions, script->pages, script->pages - script->taken_pages};
  }

  Result<SlotId> Open(Prompt prompt, const GenerationSettings& settings, uint64_t seed) override {
    if (const auto error = script_->open_error_by_seed.find(seed); error != script_->open_error_by_seed.end()) {
      return error->second;
    }
    const auto script = script_.Lock();
    if (script->open_slots == script->max_slots) return Status::Internal("more slots than there are");
    Slot slot;
    slot.seed = seed;
    slot.max_new_tokens = settings.max_new_tokens;
    slot.rows = static_cast<int64_t>(prompt.rows.size());
    if (!TakePages(&slot)) return Status::ResourceExhausted("no pages for a prompt");
    ++script->open_slots;
    script->most_open_slots = std::max(script->most_open_slots, script->open_slots);
    slots_[next_slot_] = slot;
    return next_slot_++;
  }

  int64_t prompt_rows_together() const override { return script_->prompt_rows_together; }

  std::vector<Result<PrefillProgress>> PrefillTogether(std::span<const SlotId> slots) override {
    std::vector<uint64_t> seeds;
    for (const SlotId slot : slots) seeds.push_back(slots_.at(slot).seed);
    {
      const auto script = script_.Lock();
      script->together.push_back(seeds);
    }
    std::vector<Result<PrefillProgress>> results;
    for (const SlotId slot : slots) results.push_back(Prefill(slot));
    return results;
  }

  Result<PrefillProgress> Prefill(SlotId id) override {
    auto script = script_.Lock();
    if (!slots_.contains(id)) return Status::Internal("a piece for a slot that is not open");
    Slot& slot = slots_[id];
    ++script->in_prefill;
    script->pieces.push_back(slot.seed);
    script->order += 'p';
    script.NotifyAll();
    script.Wait([&] { return !script->pieces_held; });
    --script->in_prefill;
    const auto pieces = script->pieces_by_seed.find(slot.seed);
    slot.prefilled = ++slot.pieces >= (pieces == script->pieces_by_seed.end() ? 1 : pieces->second);
    const auto error = script->prefill_error_by_seed.find(slot.seed);
    if (slot.prefilled && error != script->prefill_error_by_seed.end()) return error->second;
    return PrefillProgress{slot.prefilled, pieces == script->pieces_by_seed.end() ? 0.1 : 1};
  }

  Status Submit(std::span<const FrameStep> steps) override {
    std::set<SlotId> distinct;
    const auto script = script_.Lock();
    script->submissions.emplace_back();
    for (const FrameStep& step : steps) {
      if (!slots_.contains(step.slot)) return Status::Internal("a step for a slot that is not open");
      if (!distinct.insert(step.slot).second) return Status::Internal("two steps for one slot");
      if (!slots_[step.slot].prefilled) return Status::Internal("a step before the prompt");
      if (slots_[step.slot].parked) return Status::Internal("a step for a parked slot");
      Slot& slot = slots_[step.slot];
      if (slot.submitted >= slot.max_new_tokens) return Status::Internal("a step after that of the last token");
      if (!TakePages(&slot)) slot.without_page = true;
      ++slot.submitted;
      script->text_by_seed[slots_[step.slot].seed].push_back(step.text_id);
      script->submissions.back().push_back(slots_[step.slot].seed);
      script->order += 'f';
      script.NotifyAll();
    }
    outstanding_.emplace_back(steps.begin(), steps.end());
    script->most_outstanding = std::max(script->most_outstanding, outstanding_.size());
    if (outstanding_.size() > static_cast<size_t>(max_outstanding())) return Status::Internal("too many outstanding");
    NotePause();
    return Status::Ok();
  }

  Result<std::vector<FrameResult>> Collect() override {
    const auto time = script_->time_of_step + script_->time_of_row * static_cast<int64_t>(outstanding_.front().size());
    const auto begin = std::chrono::steady_clock::now();
    if (time.count() > 0) std::this_thread::sleep_for(time);
    const std::chrono::nanoseconds late = std::chrono::steady_clock::now() - begin - time;
    auto script = script_.Lock();
    script->longest_delay = std::max(script->longest_delay, late);
    script->delays += late;
    ++script->delayed_steps;
    ++script->collecting;
    script.NotifyAll();
    script.Wait([&] { return script->gate_open; });
    --script->collecting;
    if (script->device_lost) return Status::DeviceUnavailable("the device is gone");
    std::vector<FrameResult> results;
    for (const FrameStep& step : outstanding_.front()) results.push_back(Make(step));
    outstanding_.pop_front();
    NotePause();
    return results;
  }

  Result<int64_t> Reserve(SlotId id) override {
    const auto script = script_.Lock();
    if (!slots_.contains(id) || slots_[id].parked) return Status::Internal("pages for a slot that has no place");
    Slot& slot = slots_[id];
    if (!TakePages(&slot)) return Status::ResourceExhausted("no page for a frame");
    return slot.pages * script->page_positions - slot.rows;
  }

  Status Park(SlotId id) override {
    const auto script = script_.Lock();
    if (!slots_.contains(id) || slots_[id].parked || !slots_[id].prefilled) return Status::Internal("can't be parked");
    Slot& slot = slots_[id];
    if (slot.pages > script->host_pages - script->parked_pages) return Status::ResourceExhausted("the host is full");
    slot.parked = true;
    script->taken_pages -= slot.pages;
    script->parked_pages += slot.pages;
    ++script->parkings;
    ++script->parkings_by_seed[slot.seed];
    script.NotifyAll();
    return Status::Ok();
  }

  Status Unpark(SlotId id) override {
    const auto script = script_.Lock();
    if (!slots_.contains(id) || !slots_[id].parked) return Status::Internal("not parked");
    Slot& slot = slots_[id];
    if (slot.pages > script->pages - script->taken_pages) return Status::ResourceExhausted("no pages");
    slot.parked = false;
    script->taken_pages += slot.pages;
    script->parked_pages -= slot.pages;
    script.NotifyAll();
    return Status::Ok();
  }

  void Close(SlotId slot) override {
    const auto script = script_.Lock();
    if (script->device_lost && script->close_needs_memory) throw std::bad_alloc();
    if (const auto found = slots_.find(slot); found != slots_.end()) {
      (found->second.parked ? script->parked_pages : script->taken_pages) -= found->second.pages;
    }
    script->open_slots -= static_cast<int>(slots_.erase(slot));
    script.NotifyAll();
  }

 private:
  struct Slot {
    uint64_t seed = 0;
    int64_t max_new_tokens = 0;
    int pieces = 0;
    bool prefilled = false;
    int made = 0;
    int64_t rows = 0;
    int64_t submitted = 0;
    int64_t pages = 0;
    bool without_page = false;
    bool parked = false;
  };

  void NotePause() {
    const auto now = std::chrono::steady_clock::now();
    if (last_) script_->longest_pause = std::max<std::chrono::nanoseconds>(script_->longest_pause, now - *last_);
    last_ = now;
  }

  // Takes the pages up to the next frame's position. If there are too few: takes none and returns false.
  bool TakePages(Slot* slot) {
    if (script_->page_positions == 0) return true;
    const int64_t needed = (slot->rows + slot->submitted) / script_->page_positions + 1 - slot->pages;
    if (needed <= 0) return true;
    if (needed > script_->pages - script_->taken_pages) return false;
    script_->taken_pages += needed;
    slot->pages += needed;
    return true;
  }

  // Almost all attention is on the token that the frame speaks.
  TextScores ScoresOf(const Slot& slot, const TextWindow& window) const {
    TextScores scores;
    if (script_->frames_per_token == 0 || !window.wanted()) return scores;
    int spoken = slot.made / script_->frames_per_token;
    if (const auto stuck = script_->stuck_by_seed.find(slot.seed); stuck != script_->stuck_by_seed.end()) {
      spoken = std::min(spoken, stuck->second);
    }
    spoken = std::min(spoken, window.text_end - window.text_begin - 1);
    for (int position = window.begin; position < std::min(window.text_end, window.begin + kTextScores); ++position) {
      scores.scores.push_back(position - window.text_begin == spoken ? 10.0F : 0.0F);
    }
    scores.log_sum = 10;
    scores.mass = 1;
    return scores;
  }

  FrameResult Make(const FrameStep& step) {
    const SlotId id = step.slot;
    FrameResult result;
    result.slot = id;
    const auto found = slots_.find(id);
    if (found == slots_.end()) return result;  // closed in the meantime
    Slot& slot = found->second;
    if (slot.without_page) {
      result.end = EndReason::kError;
      result.status = Status::ResourceExhausted("no page for a frame");
      return result;
    }
    if (slot.made + 1 >= slot.max_new_tokens) {
      result.end = EndReason::kMaxDuration;
      return result;
    }
    const auto frames = script_->frames_by_seed.find(slot.seed);
    if (slot.made >= (frames == script_->frames_by_seed.end() ? 5 : frames->second)) {
      const auto end = script_->end_by_seed.find(slot.seed);
      result.end = end == script_->end_by_seed.end() ? EndReason::kComplete : end->second;
      if (result.end == EndReason::kError) result.status = Status::Internal("scripted failure");
      return result;
    }
    result.codes = {slot.made};
    result.pcm = {static_cast<float>(slot.seed) + static_cast<float>(slot.made) / 1000.0F};
    if (script_->silent_seeds.contains(slot.seed)) result.pcm = {0};
    result.text_scores = ScoresOf(slot, step.window);
    ++slot.made;
    ++script_->made_by_seed[slot.seed];
    return result;
  }

  SharedScript& script_;
  std::string name_ = "scripted";
  std::map<SlotId, Slot> slots_;
  SlotId next_slot_ = 0;
  std::deque<std::vector<FrameStep>> outstanding_;
  std::optional<std::chrono::steady_clock::time_point> last_;
};

}  // namespace qtts

#endif  // QTTS_TESTS_SCRIPTED_BACKEND_H_
