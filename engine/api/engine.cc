// SPDX-License-Identifier: LGPL-2.1-or-later
#include "qtts/engine.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "api/backend_module.h"
#include "api/device_choice.h"
#include "api/engine_registry.h"
#include "api/tokenizer_cache.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "cpu/cpu_backend.h"
#include "cpu/cpu_voice_encoder.h"
#include "prompt/prompt.h"
#include "qtts/mutex.h"
#include "qtts/resources.h"
#include "qtts/text_preparer.h"
#include "scheduler/scheduler.h"
#include "scheduler/stream_state.h"
#include "text/tokenizer.h"
#include "voice/clone.h"

namespace qtts {
namespace {

Status CheckCancelled(const std::atomic<bool>* cancelled) {
  if (cancelled && *cancelled) return Status::Cancelled("loading was cancelled");
  return Status::Ok();
}

Result<std::unique_ptr<Backend>> CreateBackend(const EngineOptions& options,
                                               const std::shared_ptr<const Checkpoint>& checkpoint,
                                               std::string* passed_over) {
  return OnChosenDevice<std::unique_ptr<Backend>>(
      options, [&](const EngineOptions& gpu) { return CreateDeviceBackend(checkpoint, gpu); },
      [&] { return CreateCpuBackend(checkpoint, options.threads, ArithmeticOf(options.precision), options.voices); },
      passed_over);
}

// Converts text to prompts: the tokenizer, and the builder with the config's ids.
struct TextParts {
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const PromptBuilder> prompts;
};

Result<TextParts> ReadTextParts(const EngineOptions& options, const Checkpoint& checkpoint) {
  TextParts parts;
  QTTS_ASSIGN_OR_RETURN(parts.tokenizer, SharedTokenizer(options.model_path, options.tokenizer_pattern));
  QTTS_ASSIGN_OR_RETURN(PromptBuilder prompts, PromptBuilder::Create(checkpoint.config(), parts.tokenizer));
  parts.prompts = std::make_shared<const PromptBuilder>(std::move(prompts));
  return parts;
}

EngineRegistry& Registry() {
  // Never destroyed: engines may be acquired and dropped while the process exits.
  static auto& registry = *new EngineRegistry;
  return registry;
}

// Returns the key, without `voices`, which all users of an engine share.
std::string RegistryKey(const EngineOptions& options) {
  std::error_code error;
  std::filesystem::path path = std::filesystem::canonical(options.model_path, error);
  if (error) path = options.model_path;  // Load() reports the error
  std::string key;
  for (const int part : {static_cast<int>(options.device), static_cast<int>(options.precision),
                         static_cast<int>(options.codec_precision), options.gpu, options.threads, options.lead_frames,
                         static_cast<int>(options.tokenizer_pattern)}) {
    key += std::to_string(part) + ' ';
  }
  return key + path.string();
}

// Returns the options for each GPU of the host, if they leave the choice among several; else empty.
std::vector<EngineOptions> OnEachGpu(const EngineOptions& options) {
  std::vector<EngineOptions> each;
  if (options.gpu != -1 || options.device == Device::kCpu || NeedsCpu(options)) return each;
  EngineOptions on_gpu = OnGpu(options);
  const int devices = CountDevices(on_gpu.device);
  for (on_gpu.gpu = 0; devices > 1 && on_gpu.gpu < devices; ++on_gpu.gpu) each.push_back(on_gpu);
  return each;
}

bool HasEngine(const EngineOptions& options) {
  if (Registry().Has(RegistryKey(options))) return true;
  const std::vector<EngineOptions> each = OnEachGpu(options);
  return std::any_of(each.begin(), each.end(),
                     [](const EngineOptions& on_gpu) { return Registry().Has(RegistryKey(on_gpu)); });
}

// Returns an engine that runs with these options, on whichever GPU if they leave the choice; else null.
std::shared_ptr<Engine> RunningEngine(const EngineOptions& options) {
  if (Registry().empty()) return nullptr;  // spares the driver, which OnEachGpu() asks
  if (auto engine = Registry().Find(RegistryKey(options)); engine != nullptr) return engine;
  for (const EngineOptions& on_gpu : OnEachGpu(options)) {
    if (auto engine = Registry().Find(RegistryKey(on_gpu)); engine != nullptr) return engine;
  }
  return nullptr;
}

// Returns the engine for these options: on one GPU of several by their free voices, or wherever the options say.
Result<std::shared_ptr<Engine>> FindEngine(const EngineOptions& options, const std::atomic<bool>* cancelled) {
  const std::vector<EngineOptions> each = OnEachGpu(options);
  if (!each.empty()) {
    std::vector<std::string> keys;
    keys.reserve(each.size());
    for (const EngineOptions& on_gpu : each) keys.push_back(RegistryKey(on_gpu));
    auto engine = Registry().GetFreest(
        keys, options.voices, [&](size_t i) { return Engine::Load(each[i], cancelled); }, cancelled);
    if (engine.ok()) return engine;
    if (NeedsGpu(options) || !CpuMayServe(engine.status())) return ExplainGpuError(options, engine.status());
  }
  return Registry().Get(
      RegistryKey(options), [&] { return Engine::Load(options, cancelled); }, cancelled);
}

}  // namespace

struct Engine::Impl {
  std::string path;
  std::shared_ptr<const Checkpoint> checkpoint;
  ModelInfo info;
  std::string device_name;
  std::string passed_over;
  bool beside_host = false;
  int gpu = -1;
  int threads = 0;
  size_t lead_frames = 0;
  TextParts text;
  std::unique_ptr<Scheduler> scheduler;
  // Voice encoder of the device; null if the CPU makes voices. Makes one voice at a time.
  std::unique_ptr<VoiceEncoder> voice_encoder QTTS_PT_GUARDED_BY(voice_encoder_mutex);
  Mutex voice_encoder_mutex;
};

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() {
  if (LogEnabled(LogLevel::kInfo)) Log(LogLevel::kInfo, "releasing " + impl_->path);
}

Result<ModelInfo> Engine::Inspect(const EngineOptions& options) {
  return CatchExhaustion("inspect the model", [&] { return DoInspect(options); });
}

Result<ModelInfo> Engine::DoInspect(const EngineOptions& options) {
  QTTS_RETURN_IF_ERROR(CheckOptions(options));
  // A server makes an element for each of its voices: none of them reads again what the engine has read.
  if (const std::shared_ptr<Engine> engine = RunningEngine(options); engine != nullptr) {
    ModelInfo info = engine->info();
    info.read = engine->impl_->text.tokenizer;
    return info;
  }
  QTTS_ASSIGN_OR_RETURN(const auto checkpoint, Checkpoint::Open(options.model_path));
  QTTS_ASSIGN_OR_RETURN(const TextParts text, ReadTextParts(options, *checkpoint));
  if (NeedsGpu(options) && !HasEngine(options)) {
    if (const Status status = CheckDevice(*checkpoint, OnGpu(options)); !status.ok()) {
      return ExplainGpuError(options, status);
    }
  }
  ModelInfo info = checkpoint->Info();
  info.read = text.tokenizer;
  QTTS_RETURN_IF_ERROR(checkpoint->CheckFiles());
  return info;
}

Result<std::shared_ptr<Engine>> Engine::Load(const EngineOptions& options, const std::atomic<bool>* cancelled) {
  return CatchExhaustion("load the model", [&] { return DoLoad(options, cancelled); });
}

Result<std::shared_ptr<Engine>> Engine::DoLoad(const EngineOptions& options, const std::atomic<bool>* cancelled) {
  QTTS_RETURN_IF_ERROR(CheckOptions(options));
  const auto start = LogClock::now();
  auto impl = std::make_unique<Impl>();
  impl->path = options.model_path;
  QTTS_ASSIGN_OR_RETURN(impl->checkpoint, Checkpoint::Open(options.model_path));
  impl->info = impl->checkpoint->Info();
  impl->threads = options.threads;
  impl->lead_frames = static_cast<size_t>(options.lead_frames);
  QTTS_RETURN_IF_ERROR(CheckCancelled(cancelled));
  QTTS_ASSIGN_OR_RETURN(impl->text, ReadTextParts(options, *impl->checkpoint));
  QTTS_RETURN_IF_ERROR(CheckCancelled(cancelled));
  QTTS_ASSIGN_OR_RETURN(std::unique_ptr<Backend> backend, CreateBackend(options, impl->checkpoint, &impl->passed_over));
  QTTS_RETURN_IF_ERROR(impl->checkpoint->CheckFiles());
  QTTS_RETURN_IF_ERROR(CheckCancelled(cancelled));
  impl->device_name = backend->name();
  impl->beside_host = backend->beside_host();
  impl->gpu = backend->gpu();
  impl->voice_encoder = backend->CreateVoiceEncoder();
  QTTS_ASSIGN_OR_RETURN(impl->scheduler, Scheduler::Create(std::move(backend)));
  // The first text that is prepared would wait for these tables.
  TextPreparer::Preload({.language = PreparationLanguage("", impl->info.languages),
                         .steps = ChooseSteps(impl->info.description.text, Normalize::kModel),
                         .lexicon = nullptr});
  if (LogEnabled(LogLevel::kInfo)) {
    Log(LogLevel::kInfo, "loaded " + impl->path + " in " + ElapsedText(start) + ", on " + impl->device_name);
  }
  return std::shared_ptr<Engine>(new Engine(std::move(impl)));
}

Result<std::shared_ptr<Engine>> Engine::Acquire(const EngineOptions& options, const std::atomic<bool>* cancelled) {
  return CatchExhaustion("load the model", [&]() -> Result<std::shared_ptr<Engine>> {
    QTTS_RETURN_IF_ERROR(CheckOptions(options));
    QTTS_ASSIGN_OR_RETURN(auto engine, FindEngine(options, cancelled));
    if (const int voices = engine->occupancy().slots; voices < options.voices) {
      Log(LogLevel::kWarning, "voices=" + std::to_string(options.voices) +
                                  ": the engine of this model already runs with " + std::to_string(voices) +
                                  ", and more utterances wait; ask for as many where the model is used first");
    }
    return engine;
  });
}

const ModelInfo& Engine::info() const { return impl_->info; }
const std::string& Engine::device_name() const { return impl_->device_name; }
const std::string& Engine::passed_over() const { return impl_->passed_over; }
bool Engine::beside_host() const { return impl_->beside_host; }
int Engine::gpu() const { return impl_->gpu; }
bool Engine::device_lost() const { return impl_->scheduler->device_lost(); }
Occupancy Engine::occupancy() const { return impl_->scheduler->occupancy(); }

Result<ClonedVoice> Engine::CloneVoice(const Recording& recording, const CloneOptions& options) const {
  return CatchExhaustion("clone the voice", [&] { return DoCloneVoice(recording, options); });
}

Result<ClonedVoice> Engine::DoCloneVoice(const Recording& recording, const CloneOptions& options) const {
  const auto start = LogClock::now();
  auto voice = [&]() -> Result<ClonedVoice> {
    if (impl_->voice_encoder != nullptr) {
      const MutexLock lock(impl_->voice_encoder_mutex);
      return qtts::CloneVoice(impl_->voice_encoder.get(), impl_->info.fingerprint, recording, options);
    }
    QTTS_ASSIGN_OR_RETURN(const auto encoder, CreateCpuVoiceEncoder(impl_->checkpoint, impl_->threads));
    return qtts::CloneVoice(encoder.get(), impl_->info.fingerprint, recording, options);
  }();
  QTTS_RETURN_IF_ERROR(impl_->checkpoint->CheckFiles());
  if (LogEnabled(LogLevel::kDebug)) {
    Log(LogLevel::kDebug, (voice.ok() ? "cloned a voice in " : "cloning a voice failed after ") + ElapsedText(start));
  }
  return voice;
}

Result<size_t> Engine::CountTokens(std::string_view text) const {
  return CatchExhaustion("count tokens", [&]() -> Result<size_t> {
    QTTS_ASSIGN_OR_RETURN(const std::vector<int32_t> ids, impl_->text.tokenizer->EncodePlain(text));
    return ids.size();
  });
}

Result<std::unique_ptr<Stream>> Engine::Start(const Request& request, std::function<void()> on_change) {
  return CatchExhaustion("speak", [&] { return DoStart(request, std::move(on_change)); });
}

Result<std::unique_ptr<Stream>> Engine::DoStart(const Request& request, std::function<void()> on_change) {
  const auto start = LogClock::now();
  if (LogEnabled(LogLevel::kTrace)) {
    Log(LogLevel::kTrace, "asked for an utterance of " + std::to_string(request.text.size()) + " bytes");
  }
  impl_->scheduler->Expect();
  QTTS_ASSIGN_OR_RETURN(std::vector<std::string> warnings, impl_->text.prompts->Validate(request));
  if (request.voice != nullptr) QTTS_RETURN_IF_ERROR(CheckVoiceModel(*request.voice, impl_->info));
  if (request.lead_frames < 0) {
    return Status::InvalidArgument("lead_frames is " + std::to_string(request.lead_frames) +
                                   ", expected 1 or more, or 0 for the engine's");
  }
  if (request.runaway_frames_per_token < 1) {
    return Status::InvalidArgument("runaway_frames_per_token is " + std::to_string(request.runaway_frames_per_token) +
                                   ", expected 1 or more; runaway_guard = false ends no utterance");
  }
  if (request.parallel_parts < 1) {
    return Status::InvalidArgument("parallel_parts is " + std::to_string(request.parallel_parts) +
                                   ", expected 1 or more; 1 speaks one part after the other");
  }
  const size_t lead = request.lead_frames > 0 ? static_cast<size_t>(request.lead_frames) : impl_->lead_frames;
  auto state =
      std::make_shared<StreamState>(impl_->text.prompts, impl_->text.tokenizer, request, lead, std::move(on_change));
  QTTS_RETURN_IF_ERROR(state->Begin());
  if (LogEnabled(LogLevel::kTrace)) Log(LogLevel::kTrace, "its text was taken in " + ElapsedText(start));
  impl_->scheduler->Add(state);
  return std::unique_ptr<Stream>(new Stream(shared_from_this(), std::move(state), std::move(warnings)));
}

Stream::Stream(std::shared_ptr<Engine> engine, std::shared_ptr<StreamState> state, std::vector<std::string> warnings)
    : engine_(std::move(engine)), state_(std::move(state)), warnings_(std::move(warnings)) {}
Stream::~Stream() { state_->Cancel(); }
Status Stream::Append(std::string_view text) { return state_->Append(text); }
Status Stream::FinishText() { return state_->FinishText(); }
ReadState Stream::Read(Frame* frame) { return state_->Read(frame, true); }
ReadState Stream::TryRead(Frame* frame) { return state_->Read(frame, false); }
void Stream::Cancel() { state_->Cancel(); }
EndReason Stream::end_reason() const { return state_->end_reason(); }
Status Stream::status() const { return state_->status(); }
std::vector<SpokenWord> Stream::last_words() const { return state_->last_words(); }
SpeechReport Stream::report() const { return state_->report(); }
void Stream::SetPlayTime(std::chrono::nanoseconds time) { state_->SetPlayTime(time); }
const std::vector<std::string>& Stream::warnings() const { return warnings_; }

}  // namespace qtts
