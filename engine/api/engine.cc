// SPDX-License-Identifier: LGPL-2.1-or-later
#include "qtts/engine.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "api/backend_module.h"
#include "api/engine_registry.h"
#include "checkpoint/checkpoint.h"
#include "cpu/cpu_backend.h"
#include "prompt/prompt.h"
#include "scheduler/scheduler.h"
#include "scheduler/stream_state.h"
#include "text/tokenizer.h"

namespace qtts {
namespace {

Status CheckCancelled(const std::atomic<bool>* cancelled) {
  if (cancelled && *cancelled) return Status::Cancelled("loading was cancelled");
  return Status::Ok();
}

// Whether device=auto may take the CPU instead: the GPU cannot do it, rather than the model being wrong.
bool CpuMayServe(const Status& status) {
  return status.code() == StatusCode::kDeviceUnavailable || status.code() == StatusCode::kResourceExhausted ||
         status.code() == StatusCode::kUnsupported;
}

Result<std::unique_ptr<Backend>> CreateBackend(const EngineOptions& options,
                                               std::shared_ptr<const Checkpoint> checkpoint) {
  if (options.device != Device::kCpu) {
    GpuOptions gpu_options;
    gpu_options.f32 = options.precision == Precision::kF32;
    Result<std::unique_ptr<Backend>> backend = CreateGpuBackend(checkpoint, gpu_options);
    if (backend.ok() || options.device == Device::kCuda || !CpuMayServe(backend.status())) return backend;
  }
  return CreateCpuBackend(std::move(checkpoint), options.threads);
}

}  // namespace

struct Engine::Impl {
  ModelInfo info;
  std::string device_name;
  size_t lead_frames = 0;
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const PromptBuilder> prompts;
  std::unique_ptr<Scheduler> scheduler;
};

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;

Result<ModelInfo> Engine::Inspect(const std::string& model_path) {
  QTTS_ASSIGN_OR_RETURN(const auto checkpoint, Checkpoint::Open(model_path));
  return checkpoint->Info();
}

Result<std::shared_ptr<Engine>> Engine::Load(const EngineOptions& options, const std::atomic<bool>* cancelled) {
  if (options.lead_frames < 1) return Status::InvalidArgument("lead_frames must be at least 1");
  auto impl = std::make_unique<Impl>();
  QTTS_ASSIGN_OR_RETURN(auto checkpoint, Checkpoint::Open(options.model_path));
  impl->info = checkpoint->Info();
  impl->lead_frames = static_cast<size_t>(options.lead_frames);
  QTTS_RETURN_IF_ERROR(CheckCancelled(cancelled));
  QTTS_ASSIGN_OR_RETURN(impl->tokenizer, Tokenizer::Load(options.model_path, options.tokenizer_pattern));
  QTTS_ASSIGN_OR_RETURN(PromptBuilder prompts, PromptBuilder::Create(checkpoint->config(), impl->tokenizer));
  impl->prompts = std::make_shared<const PromptBuilder>(std::move(prompts));
  QTTS_RETURN_IF_ERROR(CheckCancelled(cancelled));
  QTTS_ASSIGN_OR_RETURN(std::unique_ptr<Backend> backend, CreateBackend(options, std::move(checkpoint)));
  QTTS_RETURN_IF_ERROR(CheckCancelled(cancelled));
  impl->device_name = backend->name();
  impl->scheduler = std::make_unique<Scheduler>(std::move(backend));
  return std::shared_ptr<Engine>(new Engine(std::move(impl)));
}

Result<std::shared_ptr<Engine>> Engine::Acquire(const EngineOptions& options, const std::atomic<bool>* cancelled) {
  // Never destroyed: engines may be acquired and dropped while the process exits.
  static auto& registry = *new EngineRegistry;
  std::error_code error;
  std::filesystem::path path = std::filesystem::canonical(options.model_path, error);
  if (error) path = options.model_path;  // Load() says what is wrong with it
  const std::string key = std::to_string(static_cast<int>(options.device)) + ' ' +
                          std::to_string(static_cast<int>(options.precision)) + ' ' + std::to_string(options.threads) +
                          ' ' + std::to_string(options.lead_frames) + ' ' +
                          std::to_string(static_cast<int>(options.tokenizer_pattern)) + ' ' + path.string();
  return registry.Get(
      key, [&] { return Load(options, cancelled); }, cancelled);
}

const ModelInfo& Engine::info() const { return impl_->info; }
const std::string& Engine::device_name() const { return impl_->device_name; }

Result<std::unique_ptr<Stream>> Engine::Start(const Request& request, std::function<void()> on_change) {
  QTTS_RETURN_IF_ERROR(impl_->prompts->Validate(request));
  auto state =
      std::make_shared<StreamState>(impl_->prompts, impl_->tokenizer, request, impl_->lead_frames, std::move(on_change),
                                    [scheduler = impl_->scheduler.get()] { scheduler->Wake(); });
  QTTS_RETURN_IF_ERROR(state->Begin());
  impl_->scheduler->Add(state);
  return std::unique_ptr<Stream>(new Stream(shared_from_this(), std::move(state)));
}

Stream::Stream(std::shared_ptr<Engine> engine, std::shared_ptr<StreamState> state)
    : engine_(std::move(engine)), state_(std::move(state)) {}
Stream::~Stream() { state_->Cancel(); }
Status Stream::Append(std::string_view text) { return state_->Append(text); }
Status Stream::FinishText() { return state_->FinishText(); }
ReadState Stream::Read(Frame* frame) { return state_->Read(frame, true); }
ReadState Stream::TryRead(Frame* frame) { return state_->Read(frame, false); }
void Stream::Cancel() { state_->Cancel(); }
EndReason Stream::end_reason() const { return state_->end_reason(); }
Status Stream::status() const { return state_->status(); }
const std::vector<std::string>& Stream::warnings() const { return state_->warnings(); }

}  // namespace qtts
