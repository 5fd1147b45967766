// SPDX-License-Identifier: LGPL-2.1-or-later
// qtts::Engine for examples/serve/bench: it replaces the real engine and costs next to nothing, so the benchmark
// measures the front. Every frame can be read at once: each character of a text is one frame of 80 ms, whose first
// sample is its index / 2^20. No thread, no model, any number of slots.
//
// In the environment: QTTS_INSTANT_SLOTS, utterances at once (default 4096); more are refused at once.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <utility>

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

struct Engine::Impl {
  ModelInfo info = Info();
  std::string device_name = "instant";
  std::atomic<int> free_slots = Slots();
};

class StreamState {
 public:
  explicit StreamState(std::atomic<int>* free_slots) : free_slots_(free_slots) {}

  std::mutex mutex;
  std::function<void()> on_change;
  int64_t length = 0;
  int64_t made = 0;
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
  frame->index = state_->made;
  frame->codes.assign(16, 0);
  frame->pcm.assign(kSamplesPerFrame, 0.25F);
  frame->pcm[0] = static_cast<float>(state_->made++) * kIndexScale;
  return ReadState::kFrame;
}

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
