// SPDX-License-Identifier: LGPL-2.1-or-later
// qtts::Engine for examples/serve/bench: it replaces the real engine and costs next to nothing, so the benchmark
// measures the front. Every frame can be read at once: each character of a text is one frame of 80 ms, whose first
// sample is its index / 2^20. No thread, no model, any number of slots.
//
// In the environment:
//   QTTS_INSTANT_SLOTS   utterances at once (default 4096); more are refused at once
//   QTTS_INSTANT_TIMES   milliseconds from the request to the first frame, from that to the second, and so on, with
//   commas;
//                        the last one is that of all further frames: "40,10,100,72" is a card that is nearly full. A
//                        stream has its own times, whatever the others do
//   QTTS_INSTANT_SOUND   file of samples (S16LE, 24 kHz, mono) that are spoken again and again, since an encoder's time
//                        depends on them; frames have no index then
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <limits>
#include <memory>
#include <mutex>
#include <queue>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "qtts/engine.h"

namespace qtts {
namespace {

constexpr int kSamplesPerFrame = 1920;
constexpr float kIndexScale = 1.0F / (1 << 20);

int Slots() {
  static const int slots = [] {
    const char* value = std::getenv("QTTS_INSTANT_SLOTS");
    return value == nullptr ? 4096 : std::max(1, std::atoi(value));
  }();
  return slots;
}

using Clock = std::chrono::steady_clock;

// Returns the times before each frame; none: all can be read at once.
const std::vector<Clock::duration>& Times() {
  static const std::vector<Clock::duration> times = [] {
    std::vector<Clock::duration> result;
    const char* value = std::getenv("QTTS_INSTANT_TIMES");
    std::istringstream list(value == nullptr ? "" : value);
    for (std::string item; std::getline(list, item, ',');) {
      result.push_back(std::chrono::microseconds(std::lround(1000 * std::strtod(item.c_str(), nullptr))));
    }
    return result;
  }();
  return times;
}

// Returns the frames that are spoken again and again; none: a constant with an index.
const std::vector<std::vector<float>>& Sound() {
  static const std::vector<std::vector<float>> sound = [] {
    std::vector<std::vector<float>> result;
    const char* path = std::getenv("QTTS_INSTANT_SOUND");
    std::ifstream file(path == nullptr ? "" : path, std::ios::binary);
    std::vector<char> bytes(2 * kSamplesPerFrame);
    while (path != nullptr && file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()))) {
      std::vector<float>& frame = result.emplace_back();
      for (size_t i = 0; i < bytes.size(); i += 2) {
        const auto low = static_cast<unsigned char>(bytes[i]);
        const auto high = static_cast<unsigned char>(bytes[i + 1]);
        frame.push_back(static_cast<float>(static_cast<int16_t>(low | high << 8U)) / 32768.0F);
      }
    }
    return result;
  }();
  return sound;
}

int64_t CountCharacters(std::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0U) != 0x80U; });
}

ModelInfo Info() {
  ModelInfo info;
  info.type = ModelType::kCustomVoice;
  info.size = "0b6";
  info.speakers = {"instant"};
  info.languages = {"english"};
  return info;
}

}  // namespace

class StreamState {
 public:
  explicit StreamState(std::atomic<int>* free_slots) : free_slots_(free_slots) {}

  std::mutex mutex;
  std::function<void()> on_change;
  int64_t length = 0;
  int64_t made = 0;
  int64_t ready = Times().empty() ? std::numeric_limits<int64_t>::max() : 0;  // frames whose time has come
  bool more_text = false;
  EndReason end_reason = EndReason::kNone;

  // Under `mutex`.
  void End(EndReason reason) {
    if (end_reason != EndReason::kNone) return;
    end_reason = reason;
    ++*free_slots_;
  }

 private:
  std::atomic<int>* const free_slots_;
};

// Makes frames readable when their times have come.
class Ticker {
 public:
  Ticker() : thread_([this] { Run(); }) {}

  ~Ticker() {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }

  void Add(std::weak_ptr<StreamState> stream) {
    {
      const std::lock_guard lock(mutex_);
      dues_.push({Clock::now() + Times().front(), 0, std::move(stream)});
    }
    changed_.notify_one();
  }

 private:
  struct Due {
    Clock::time_point when;
    size_t frame;
    std::weak_ptr<StreamState> stream;
    bool operator<(const Due& other) const { return when > other.when; }  // the earliest is the top
  };

  void Run() {
    std::unique_lock lock(mutex_);
    while (!ends_) {
      if (dues_.empty()) {
        changed_.wait(lock);
      } else if (Clock::now() < dues_.top().when) {
        changed_.wait_until(lock, dues_.top().when);
      } else {
        Due due = dues_.top();
        dues_.pop();
        lock.unlock();
        const bool goes_on = Tick(due);
        lock.lock();
        due.when += Times()[std::min(++due.frame, Times().size() - 1)];
        if (goes_on) dues_.push(std::move(due));
      }
    }
  }

  // Returns whether the stream has further frames.
  static bool Tick(const Due& due) {
    const std::shared_ptr<StreamState> stream = due.stream.lock();
    if (stream == nullptr) return false;
    {
      const std::lock_guard lock(stream->mutex);
      if (stream->end_reason != EndReason::kNone) return false;
      ++stream->ready;
    }
    if (stream->on_change) stream->on_change();
    return true;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::priority_queue<Due> dues_;
  bool ends_ = false;
  std::thread thread_;
};

struct Engine::Impl {
  ModelInfo info = Info();
  std::string device_name = "instant";
  std::atomic<int> free_slots = Slots();
  std::unique_ptr<Ticker> ticker = Times().empty() ? nullptr : std::make_unique<Ticker>();
};

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;

Result<ModelInfo> Engine::Inspect(const EngineOptions& options) {
  ModelInfo info = Info();
  info.path = options.model_path;
  return info;
}

Result<std::shared_ptr<Engine>> Engine::Load(const EngineOptions& options, const std::atomic<bool>* /*cancelled*/) {
  auto impl = std::make_unique<Impl>();
  impl->info.path = options.model_path;
  return std::shared_ptr<Engine>(new Engine(std::move(impl)));
}

Result<std::shared_ptr<Engine>> Engine::Acquire(const EngineOptions& options, const std::atomic<bool>* cancelled) {
  static std::mutex mutex;
  static std::shared_ptr<Engine> engine;
  const std::lock_guard lock(mutex);
  if (engine == nullptr) engine = *Load(options, cancelled);
  return engine;
}

const ModelInfo& Engine::info() const { return impl_->info; }
const std::string& Engine::device_name() const { return impl_->device_name; }
const std::string& Engine::passed_over() const {
  static const std::string none;
  return none;
}
int Engine::gpu() const { return -1; }
bool Engine::beside_host() const { return false; }
bool Engine::device_lost() const { return false; }
Occupancy Engine::occupancy() const { return {Slots(), impl_->free_slots, 0}; }

Result<size_t> Engine::CountTokens(std::string_view text) const { return static_cast<size_t>(CountCharacters(text)); }

Result<ClonedVoice> Engine::CloneVoice(const Recording& /*recording*/, const CloneOptions& /*options*/) const {
  return Status::InvalidArgument("The benchmark's engine clones no voices.");
}

Result<ClonedVoice> LoadVoice(const std::string& path, const std::string& /*style*/, const std::string& /*instruct*/) {
  return Status::InvalidArgument(path + ": the benchmark's engine loads no voices.");
}

Result<std::unique_ptr<Stream>> Engine::Start(const Request& request, std::function<void()> on_change) {
  if (--impl_->free_slots < 0) {
    ++impl_->free_slots;
    return Status::Busy("All slots are taken.");
  }
  auto state = std::make_shared<StreamState>(&impl_->free_slots);
  state->on_change = std::move(on_change);
  state->length = CountCharacters(request.text);
  state->more_text = request.more_text;
  if (impl_->ticker != nullptr) impl_->ticker->Add(state);
  return std::unique_ptr<Stream>(new Stream(shared_from_this(), std::move(state), {}));
}

Stream::Stream(std::shared_ptr<Engine> engine, std::shared_ptr<StreamState> state, std::vector<std::string> warnings)
    : engine_(std::move(engine)), state_(std::move(state)), warnings_(std::move(warnings)) {}

Stream::~Stream() { Cancel(); }

Status Stream::Append(std::string_view text) {
  {
    const std::lock_guard lock(state_->mutex);
    if (state_->end_reason != EndReason::kNone) return Status::Cancelled("The utterance has ended.");
    state_->length += CountCharacters(text);
  }
  if (state_->on_change) state_->on_change();
  return Status::Ok();
}

Status Stream::FinishText() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->more_text = false;
  }
  if (state_->on_change) state_->on_change();
  return Status::Ok();
}

// The element calls TryRead() only.
ReadState Stream::Read(Frame* frame) { return TryRead(frame); }

ReadState Stream::TryRead(Frame* frame) {
  const std::lock_guard lock(state_->mutex);
  if (state_->end_reason != EndReason::kNone) return ReadState::kEnd;
  if (state_->made == state_->length) {
    if (state_->more_text) return ReadState::kPending;
    state_->End(EndReason::kComplete);
    return ReadState::kEnd;
  }
  if (state_->made == state_->ready) return ReadState::kPending;
  frame->index = state_->made;
  frame->codes.assign(16, 0);
  if (Sound().empty()) {
    frame->pcm.assign(kSamplesPerFrame, 0.25F);
    frame->pcm[0] = static_cast<float>(state_->made) * kIndexScale;
  } else {
    const std::vector<float>& sound = Sound()[static_cast<size_t>(state_->made) % Sound().size()];
    frame->pcm.assign(sound.begin(), sound.end());
  }
  ++state_->made;
  return ReadState::kFrame;
}

void Stream::SetPlayTime(std::chrono::nanoseconds) {}

void Stream::Cancel() {
  const std::lock_guard lock(state_->mutex);
  state_->End(EndReason::kCancelled);
}

EndReason Stream::end_reason() const {
  const std::lock_guard lock(state_->mutex);
  return state_->end_reason;
}

Status Stream::status() const { return Status::Ok(); }
std::vector<SpokenWord> Stream::last_words() const { return {}; }

SpeechReport Stream::report() const { return {}; }

const std::vector<std::string>& Stream::warnings() const { return warnings_; }

}  // namespace qtts
