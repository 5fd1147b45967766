// SPDX-License-Identifier: LGPL-2.1-or-later
#include "fake_engine.h"

#include <glib.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <deque>
#include <numbers>
#include <optional>
#include <thread>
#include <utility>

#include "qtts/engine.h"
#include "qtts/mutex.h"

namespace qtts {
namespace {

// A number of a label is two samples: its lower and its upper 12 bits, each a multiple of the step of a sample of 16
// bits, so that the label survives a conversion to these.
constexpr int kLabelBits = 12;
constexpr int64_t kLabelMask = (int64_t{1} << kLabelBits) - 1;
constexpr float kLabelStep = 1.0F / 32768;

// State that tests control and observe. Its mutex is locked last.
struct World {
  Mutex mutex;
  Condition changed;
  fake::Script script QTTS_GUARDED_BY(mutex);
  fake::Counters counters QTTS_GUARDED_BY(mutex);
  std::vector<Request> requests QTTS_GUARDED_BY(mutex);
  int64_t frames_allowed QTTS_GUARDED_BY(mutex) = -1;
  bool clones_held QTTS_GUARDED_BY(mutex) = false;
  bool loads_held QTTS_GUARDED_BY(mutex) = false;
  int64_t utterances QTTS_GUARDED_BY(mutex) = 0;
  std::vector<std::pair<EngineOptions, std::weak_ptr<Engine>>> engines QTTS_GUARDED_BY(mutex);
  EngineOptions options QTTS_GUARDED_BY(mutex);  // of the last load
  Recording recording QTTS_GUARDED_BY(mutex);    // of the last clone
  CloneOptions clone_options QTTS_GUARDED_BY(mutex);
};

World& GetWorld() {
  static auto* world = new World;
  return *world;
}

fake::Script GetScript() {
  World& world = GetWorld();
  const MutexLock lock(world.mutex);
  return world.script;
}

bool TakeFrameAllowance() {
  World& world = GetWorld();
  const MutexLock lock(world.mutex);
  if (world.frames_allowed == 0) return false;
  if (world.frames_allowed > 0) --world.frames_allowed;
  ++world.counters.frames;
  return true;
}

std::u32string Characters(const std::string& text) {
  std::u32string characters;
  for (const char* p = text.c_str(); *p != '\0'; p += g_utf8_skip[static_cast<guchar>(*p)]) {
    characters.push_back(g_utf8_get_char(p));
  }
  return characters;
}

}  // namespace

class StreamState {
 public:
  // Set by Start(), and never changed.
  int64_t utterance = 0;
  int samples = 0;
  int leading_silence = 0;
  char32_t silent = 0;
  int64_t max_frames = 0;
  int64_t fail_at_frame = -1;
  Status failure;
  int lead = 0;
  std::chrono::nanoseconds max_wait{0};
  std::function<void()> on_change;
  std::function<void()> on_room;  // wakes the scheduler
  std::shared_ptr<std::atomic<bool>> device_lost;
  bool measures = false;
  int word_lag = 0;
  std::optional<EndReason> scripted_reason;
  SpeechReport report;

  // Used by the scheduler's thread alone.
  bool has_slot = false;
  std::optional<std::chrono::steady_clock::time_point> waits_since;

  Mutex mutex;
  Condition readable;
  std::u32string characters QTTS_GUARDED_BY(mutex);
  bool more_text QTTS_GUARDED_BY(mutex) = false;
  size_t words_begin QTTS_GUARDED_BY(mutex) = 0;  // the first character that is in no word yet
  std::deque<Frame> frames QTTS_GUARDED_BY(mutex);
  int64_t made QTTS_GUARDED_BY(mutex) = 0;
  EndReason end_reason QTTS_GUARDED_BY(mutex) = EndReason::kNone;
  Status status QTTS_GUARDED_BY(mutex);

  bool Ended() {
    const MutexLock lock(mutex);
    return end_reason != EndReason::kNone;
  }

  // No slot was free. True if the stream goes on waiting for one.
  bool Waits() {
    const MutexLock lock(mutex);
    if (end_reason != EndReason::kNone) return false;
    const auto now = std::chrono::steady_clock::now();
    if (!waits_since) waits_since = now;
    if (now - *waits_since < max_wait) return true;
    end_reason = EndReason::kBusy;
    status = Status::Busy(GetScript().busy);
    readable.NotifyAll();
    if (on_change) on_change();
    return false;
  }

  // Makes a frame or ends the utterance, if allowed. True if something changed.
  bool Advance() {
    const MutexLock lock(mutex);
    if (end_reason != EndReason::kNone || static_cast<int>(frames.size()) >= lead) return false;
    if (made == fail_at_frame) {
      status = failure;
      end_reason = EndReason::kError;
      if (failure.code() == StatusCode::kDeviceUnavailable) *device_lost = true;
    } else if (made == static_cast<int64_t>(characters.size())) {
      if (more_text) return false;
      end_reason = scripted_reason.value_or(EndReason::kComplete);
    } else if (made == max_frames) {
      end_reason = EndReason::kMaxDuration;
    } else if (TakeFrameAllowance()) {
      frames.push_back(MakeFrame());
      ++made;
      while (auto word = NextWord(made - word_lag)) frames.back().words.push_back(*word);
    } else {
      return false;
    }
    readable.NotifyAll();
    if (on_change) on_change();
    return true;
  }

  static bool IsLetter(char32_t c) { return g_unichar_isalnum(c) != FALSE; }

  size_t ByteOf(size_t character) const QTTS_REQUIRES(mutex) {
    size_t bytes = 0;
    for (size_t i = 0; i < character; ++i) bytes += static_cast<size_t>(g_unichar_to_utf8(characters[i], nullptr));
    return bytes;
  }

  // The next word if it ends within the first `known` characters.
  std::optional<SpokenWord> NextWord(int64_t known) QTTS_REQUIRES(mutex) {
    if (!measures || known < 0) return std::nullopt;
    size_t begin = words_begin;
    while (begin < characters.size() && !IsLetter(characters[begin])) ++begin;
    size_t end = begin;
    while (end < characters.size() && IsLetter(characters[end])) ++end;
    if (end == begin || end > static_cast<size_t>(known) || (end == characters.size() && more_text))
      return std::nullopt;
    words_begin = end;
    constexpr auto kFrame = std::chrono::milliseconds(80);
    return SpokenWord{
        {ByteOf(begin), ByteOf(end)}, static_cast<int64_t>(begin) * kFrame, static_cast<int64_t>(end - begin) * kFrame};
  }

  Frame MakeFrame() const QTTS_REQUIRES(mutex) {
    Frame frame;
    frame.index = made;
    frame.codes.assign(16, 0);
    frame.pcm.resize(static_cast<size_t>(samples));
    for (int i = 0; i < samples; ++i) {
      frame.pcm[static_cast<size_t>(i)] = 0.5F * std::sin(2 * std::numbers::pi_v<float> * static_cast<float>(i) / 60);
    }
    size_t place = 0;
    for (const int64_t number : {int64_t{characters[static_cast<size_t>(made)]}, utterance, made}) {
      frame.pcm[place++] = static_cast<float>(number & kLabelMask) * kLabelStep;
      frame.pcm[place++] = static_cast<float>(number >> kLabelBits & kLabelMask) * kLabelStep;
    }
    if (made == 0) std::fill_n(frame.pcm.begin(), leading_silence, 0.0F);
    if (silent != 0 && characters[static_cast<size_t>(made)] == silent) std::ranges::fill(frame.pcm, 0.0F);
    return frame;
  }
};

struct Engine::Impl {
  ModelInfo info;
  std::string device_name = "fake";
  std::string passed_over = GetScript().passed_over;
  const std::shared_ptr<std::atomic<bool>> device_lost = std::make_shared<std::atomic<bool>>(false);

  Mutex mutex;
  Condition changed;
  bool stop QTTS_GUARDED_BY(mutex) = false;
  uint64_t changes QTTS_GUARDED_BY(mutex) = 0;
  std::vector<std::weak_ptr<StreamState>> streams QTTS_GUARDED_BY(mutex);  // in order of Start()
  std::atomic<int> free_slots = 0;
  std::atomic<int> waiting = 0;
  std::thread scheduler;

  void Wake() {
    const MutexLock lock(mutex);
    ++changes;
    changed.NotifyAll();
  }

  // Gives slots to the oldest streams, and keeps only streams that have one.
  void GiveSlots(std::vector<std::shared_ptr<StreamState>>* active) {
    std::erase_if(*active, [](const auto& stream) { return stream->Ended(); });
    auto taken = std::count_if(active->begin(), active->end(), [](const auto& stream) { return stream->has_slot; });
    const int slots = GetScript().slots;
    int waits = 0;
    for (const auto& stream : *active) {
      if (stream->has_slot) continue;
      if (taken < slots) {
        stream->has_slot = true;
        ++taken;
      } else if (stream->Waits()) {
        ++waits;
      }
    }
    free_slots = slots - static_cast<int>(taken);
    waiting = waits;
    std::erase_if(*active, [](const auto& stream) { return !stream->has_slot; });
  }

  void Run() {
    for (;;) {
      std::vector<std::shared_ptr<StreamState>> active;
      uint64_t seen = 0;
      {
        const MutexLock lock(mutex);
        if (stop) return;
        seen = changes;
        std::erase_if(streams, [](const auto& stream) { return stream.expired(); });
        for (const auto& weak : streams) {
          if (auto stream = weak.lock()) active.push_back(std::move(stream));
        }
      }
      GiveSlots(&active);
      bool advanced = false;
      for (const auto& stream : active) {
        if (!stream->Advance()) continue;
        advanced = true;
        const auto frame_time = GetScript().frame_time;
        if (frame_time.count() > 0) std::this_thread::sleep_for(frame_time);
      }
      active.clear();
      if (advanced) continue;
      const MutexLock lock(mutex);
      if (!stop && changes == seen) changed.WaitFor(mutex, std::chrono::milliseconds(5));
    }
  }
};

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {
  World& world = GetWorld();
  const MutexLock lock(world.mutex);
  ++world.counters.live_engines;
}

Engine::~Engine() {
  {
    const MutexLock lock(impl_->mutex);
    impl_->stop = true;
    impl_->changed.NotifyAll();
  }
  impl_->scheduler.join();
  World& world = GetWorld();
  const MutexLock lock(world.mutex);
  --world.counters.live_engines;
}

Result<ModelInfo> Engine::Inspect(const EngineOptions& options) {
  World& world = GetWorld();
  const MutexLock lock(world.mutex);
  ++world.counters.inspections;
  if (!world.script.inspect.ok()) return world.script.inspect;
  ModelInfo info = world.script.info;
  info.path = options.model_path;
  return info;
}

Result<std::shared_ptr<Engine>> Engine::Load(const EngineOptions& options, const std::atomic<bool>* cancelled) {
  World& world = GetWorld();
  const fake::Script script = GetScript();
  {
    const MutexLock lock(world.mutex);
    ++world.counters.loads;
    world.options = options;
  }
  const auto end = std::chrono::steady_clock::now() + script.load_time;
  const auto held = [&] {
    const MutexLock lock(world.mutex);
    return world.loads_held;
  };
  while (std::chrono::steady_clock::now() < end || held()) {
    if (cancelled != nullptr && *cancelled && !script.load_ignores_cancel) {
      const MutexLock lock(world.mutex);
      ++world.counters.cancelled_loads;
      return Status::Cancelled("Loading was cancelled.");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (!script.load.ok()) return script.load;
  auto impl = std::make_unique<Impl>();
  impl->info = script.info;
  impl->info.path = options.model_path;
  impl->free_slots = script.slots;
  impl->scheduler = std::thread([state = impl.get()] { state->Run(); });
  return std::shared_ptr<Engine>(new Engine(std::move(impl)));
}

Result<std::shared_ptr<Engine>> Engine::Acquire(const EngineOptions& options, const std::atomic<bool>* cancelled) {
  World& world = GetWorld();
  // An engine's destructor takes the world's mutex, so the last reference must not go while it is held.
  std::vector<std::shared_ptr<Engine>> seen;
  const auto existing = [&]() -> std::shared_ptr<Engine> {
    world.mutex.AssertHeld();
    for (const auto& [known, weak] : world.engines) {
      if (!(known == options)) continue;
      seen.push_back(weak.lock());
      if (seen.back() != nullptr && !seen.back()->device_lost()) return seen.back();
    }
    return nullptr;
  };
  {
    const MutexLock lock(world.mutex);
    if (auto engine = existing()) return engine;
  }
  auto engine = Load(options, cancelled);
  if (engine.ok()) {
    const MutexLock lock(world.mutex);
    // Another user may have loaded it meanwhile: all have one.
    if (auto other = existing()) return other;
    world.engines.emplace_back(options, *engine);
  }
  return engine;
}

const ModelInfo& Engine::info() const { return impl_->info; }
const std::string& Engine::device_name() const { return impl_->device_name; }
const std::string& Engine::passed_over() const { return impl_->passed_over; }
bool Engine::beside_host() const { return GetScript().beside_host; }
int Engine::gpu() const { return GetScript().gpu; }
bool Engine::device_lost() const { return *impl_->device_lost; }
Occupancy Engine::occupancy() const {
  const fake::Script script = GetScript();
  Occupancy occupancy = script.occupancy;
  occupancy.slots = script.slots;
  occupancy.free_slots = impl_->free_slots;
  occupancy.waiting = impl_->waiting;
  return occupancy;
}

Result<size_t> Engine::CountTokens(std::string_view text) const {
  if (text.size() > 1000) return Status::ResourceExhausted("the text is too long");
  return text.size() / 4;
}

Result<ClonedVoice> Engine::CloneVoice(const Recording& recording, const CloneOptions& options) const {
  World& world = GetWorld();
  const MutexLock lock(world.mutex);
  ++world.counters.clones;
  while (world.clones_held) world.changed.Wait(world.mutex);
  world.recording = recording;
  world.clone_options = options;
  if (!world.script.clone.ok()) return world.script.clone;
  ClonedVoice voice;
  voice.reference_text = options.reference_text;
  voice.loudness = world.script.voice_loudness;
  voice.warnings = world.script.clone_warnings;
  return voice;
}

Result<ClonedVoice> LoadVoice(const std::string& path, const std::string& style, const std::string& instruct) {
  World& world = GetWorld();
  const MutexLock lock(world.mutex);
  ++world.counters.voice_loads;
  if (g_file_test(path.c_str(), G_FILE_TEST_EXISTS) == FALSE) return Status::NotFound(path + ": no such file");
  ClonedVoice voice;
  voice.reference_text = path;
  voice.loudness = world.script.voice_loudness;
  if (path.find("designed") != std::string::npos) {
    voice.reference_codes = {1};
    voice.instruct = "A calm voice.";
    return voice;
  }
  voice.x_vector = {1};
  voice.style = style.empty() && instruct.rfind("Calm", 0) == 0 ? "calm" : style;
  if (!voice.style.empty() && voice.style != "calm" && voice.style != "excited") {
    return Status::InvalidArgument(path + ": the voice has no style \"" + style + "\"; it has: calm, excited");
  }
  if (voice.style.empty() && !instruct.empty()) voice.warnings = {"The voice has no such style."};
  return voice;
}

Result<std::unique_ptr<Stream>> Engine::Start(const Request& request, std::function<void()> on_change) {
  World& world = GetWorld();
  const fake::Script script = GetScript();
  auto state = std::make_shared<StreamState>();
  {
    const MutexLock lock(world.mutex);
    world.requests.push_back(request);
    if (!request.more_text && request.text.find_first_not_of(" \t\r\n") == std::string::npos) {
      return Status::InvalidArgument("There is no text.");
    }
    if (request.more_text && request.layout != PromptLayout::kStreaming) {
      return Status::InvalidArgument("Text that comes in pieces needs the streaming layout.");
    }
    if (!script.start.ok() && request.text.find(script.start_match) != std::string::npos) return script.start;
    if (!request.speaker.empty() && std::find(script.info.speakers.begin(), script.info.speakers.end(),
                                              request.speaker) == script.info.speakers.end()) {
      return Status::InvalidArgument("The model has no speaker \"" + request.speaker + "\".");
    }
    ++world.counters.live_streams;
    state->utterance = world.utterances++;
  }
  {
    const MutexLock lock(state->mutex);
    state->characters = Characters(request.text);
    state->more_text = request.more_text;
  }
  state->measures = script.info.description.alignment.has_value();
  state->word_lag = script.word_lag;
  if (const auto found = script.reasons.find(state->utterance); found != script.reasons.end()) {
    state->scripted_reason = found->second;
  }
  if (const auto found = script.reports.find(state->utterance); found != script.reports.end()) {
    state->report = found->second;
  } else {
    state->report.measured = state->measures;
  }
  state->samples = impl_->info.samples_per_frame;
  state->leading_silence = script.leading_silence;
  state->silent = script.silent;
  state->max_frames = request.settings.max_new_tokens - 1;
  if (request.text.find(script.failure_match) != std::string::npos) {
    state->fail_at_frame = script.fail_at_frame;
    state->failure = script.failure;
  }
  state->lead = EngineOptions().lead_frames;
  state->max_wait = request.max_wait;
  state->on_change = std::move(on_change);
  state->on_room = [impl = impl_.get()] { impl->Wake(); };
  state->device_lost = impl_->device_lost;
  {
    const MutexLock lock(impl_->mutex);
    impl_->streams.push_back(state);
  }
  impl_->Wake();
  return std::unique_ptr<Stream>(new Stream(shared_from_this(), std::move(state), script.warnings));
}

Stream::Stream(std::shared_ptr<Engine> engine, std::shared_ptr<StreamState> state, std::vector<std::string> warnings)
    : engine_(std::move(engine)), state_(std::move(state)), warnings_(std::move(warnings)) {}

Stream::~Stream() {
  Cancel();
  World& world = GetWorld();
  const MutexLock lock(world.mutex);
  --world.counters.live_streams;
}

Status Stream::Append(std::string_view text) {
  {
    const MutexLock lock(state_->mutex);
    if (state_->end_reason != EndReason::kNone) return Status::Cancelled("The utterance has ended.");
    if (!state_->more_text) return Status::InvalidArgument("Text was added after the end of the text.");
    state_->characters += Characters(std::string(text));
  }
  state_->on_room();
  return Status::Ok();
}

Status Stream::FinishText() {
  {
    const MutexLock lock(state_->mutex);
    state_->more_text = false;
  }
  state_->on_room();
  return Status::Ok();
}

ReadState Stream::Read(Frame* frame) {
  for (;;) {
    const ReadState state = TryRead(frame);
    if (state != ReadState::kPending) return state;
    const MutexLock lock(state_->mutex);
    while (state_->frames.empty() && state_->end_reason == EndReason::kNone) state_->readable.Wait(state_->mutex);
  }
}

ReadState Stream::TryRead(Frame* frame) {
  MutexLock lock(state_->mutex);
  if (!state_->frames.empty()) {
    *frame = std::move(state_->frames.front());
    state_->frames.pop_front();
    lock.Unlock();
    state_->on_room();
    return ReadState::kFrame;
  }
  if (state_->end_reason != EndReason::kNone) return ReadState::kEnd;
  const bool stalled = state_->more_text && state_->made == static_cast<int64_t>(state_->characters.size());
  lock.Unlock();
  if (stalled) {
    World& world = GetWorld();
    const MutexLock world_lock(world.mutex);
    ++world.counters.stalled_reads;
  }
  return ReadState::kPending;
}

void Stream::SetPlayTime(std::chrono::nanoseconds time) {
  World& world = GetWorld();
  const MutexLock lock(world.mutex);
  world.counters.play_time = time;
}

void Stream::Cancel() {
  const MutexLock lock(state_->mutex);
  if (state_->end_reason != EndReason::kNone && state_->frames.empty()) return;
  state_->frames.clear();
  state_->end_reason = EndReason::kCancelled;
  state_->status = Status::Ok();
  state_->readable.NotifyAll();
}

EndReason Stream::end_reason() const {
  const MutexLock lock(state_->mutex);
  return state_->end_reason;
}

Status Stream::status() const {
  const MutexLock lock(state_->mutex);
  return state_->status;
}

std::vector<SpokenWord> Stream::last_words() const {
  const MutexLock lock(state_->mutex);
  std::vector<SpokenWord> words;
  if (state_->end_reason == EndReason::kNone) return words;
  const size_t begin = state_->words_begin;
  while (auto word = state_->NextWord(state_->made)) words.push_back(*word);
  state_->words_begin = begin;
  return words;
}

SpeechReport Stream::report() const { return state_->report; }

const std::vector<std::string>& Stream::warnings() const { return warnings_; }

namespace fake {

ModelInfo DefaultInfo() {
  ModelInfo info;
  info.type = ModelType::kCustomVoice;
  info.size = "0b6";
  info.speakers = {"ann", "bob"};
  info.languages = {"english", "german"};
  return info;
}

void AddAlignment(Script* script) { script->info.description.alignment = AlignmentHead(); }

void Reset(const Script& script) {
  World& world = GetWorld();
  const MutexLock lock(world.mutex);
  world.script = script;
  const int engines = world.counters.live_engines;
  const int streams = world.counters.live_streams;
  world.counters = Counters();
  world.counters.live_engines = engines;
  world.counters.live_streams = streams;
  world.requests.clear();
  world.frames_allowed = -1;
  world.clones_held = world.loads_held = false;
  world.utterances = 0;
}

void SetScript(const Script& script) {
  World& world = GetWorld();
  const MutexLock lock(world.mutex);
  world.script = script;
}

void AllowFrames(int64_t frames) {
  World& world = GetWorld();
  const MutexLock lock(world.mutex);
  world.frames_allowed = frames;
}

void HoldLoads(bool hold) {
  World& world = GetWorld();
  const MutexLock lock(world.mutex);
  world.loads_held = hold;
}

void HoldClones(bool hold) {
  World& world = GetWorld();
  const MutexLock lock(world.mutex);
  world.clones_held = hold;
  world.changed.NotifyAll();
}

Counters GetCounters() {
  World& world = GetWorld();
  const MutexLock lock(world.mutex);
  return world.counters;
}

EngineOptions LastOptions() {
  World& world = GetWorld();
  const MutexLock lock(world.mutex);
  return world.options;
}

Recording LastRecording() {
  World& world = GetWorld();
  const MutexLock lock(world.mutex);
  return world.recording;
}

CloneOptions LastCloneOptions() {
  World& world = GetWorld();
  const MutexLock lock(world.mutex);
  return world.clone_options;
}

std::vector<Request> Requests() {
  World& world = GetWorld();
  const MutexLock lock(world.mutex);
  return world.requests;
}

Label ReadLabel(const int16_t* pcm) {
  const auto number = [pcm](int place) { return int64_t{pcm[place]} + (int64_t{pcm[place + 1]} << kLabelBits); };
  return {static_cast<char32_t>(number(0)), number(2), number(4)};
}

Label ReadLabel(const float* pcm) {
  int16_t samples[kLabelSamples];
  for (int i = 0; i < kLabelSamples; ++i) samples[i] = static_cast<int16_t>(std::lround(pcm[i] / kLabelStep));
  return ReadLabel(samples);
}

}  // namespace fake
}  // namespace qtts
