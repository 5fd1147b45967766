// SPDX-License-Identifier: LGPL-2.1-or-later
// The backend's part for the device, slots and prompts.
#include "cuda_backend.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "backend/checks.h"
#include "base/log.h"
#include "checkpoint/model_kind.h"
#include "cuda_backend_impl.h"
#include "device_choice.h"
#include "encoder/voice_encoder.h"
#include "frame/frame.h"
#include "qtts/engine_options.h"
#include "runtime/code_load.h"
#include "runtime/device.h"
#include "runtime/launch.h"
#include "runtime/memory_count.h"

namespace qtts::cuda {
namespace {

// Reference frames enqueued at once: all frames of a reference of 10 s. Longer references continue in pieces of about
// one frame's time.
constexpr size_t kReferenceAtOnce = 128;
constexpr size_t kReferencePiece = 16;

}  // namespace

Status CudaBackend::Impl::Load() {
  QTTS_ASSIGN_OR_RETURN(stream, Stream::Create(/*urgent=*/true));
  QTTS_ASSIGN_OR_RETURN(codec_stream, Stream::Create());
  QTTS_ASSIGN_OR_RETURN(model, LanguageModel::Create(*checkpoint, options, stream.get()));
  ring = model->plan().ring;
  const CodecConfig& config = checkpoint->config().codec;
  QTTS_ASSIGN_OR_RETURN(
      codec, Codec::Create(config, checkpoint->codec(),
                           options.precision == Precision::kF32 ? CodecPrecision::kF32 : options.codec_precision,
                           options.max_slots, CodecRows()));
  references.emplace(codec->past_bytes());
  samples = codec->samples_per_frame();
  const auto ring_rows = static_cast<size_t>(ring.rows);
  const size_t entries = static_cast<size_t>(ring.entries) * ring_rows;
  QTTS_ASSIGN_OR_RETURN(steps, PinnedMemory::AllocateZeroed(entries * sizeof(FrameRow)));
  QTTS_ASSIGN_OR_RETURN(results, PinnedMemory::AllocateZeroed(entries * sizeof(FrameRowResult)));
  const size_t sample_bytes = static_cast<size_t>(samples) * sizeof(float);
  QTTS_ASSIGN_OR_RETURN(out, PinnedMemory::AllocateZeroed(entries * sample_bytes));
  QTTS_ASSIGN_OR_RETURN(pcm, DeviceMemory::AllocateZeroed(static_cast<size_t>(CodecRows()) * sample_bytes));
  QTTS_ASSIGN_OR_RETURN(reference_pcm, DeviceMemory::AllocateZeroed(sample_bytes));
  QTTS_ASSIGN_OR_RETURN(reference_uploads, UploadRing::Create());
  QTTS_ASSIGN_OR_RETURN(codec_idle, Event::Create());
  QTTS_ASSIGN_OR_RETURN(begun, Event::Create());
  unread.resize(static_cast<size_t>(ring.entries));
  for (int i = 0; i < ring.entries; ++i) {
    for (std::vector<Event>* const events : {&chosen, &done}) {
      QTTS_ASSIGN_OR_RETURN(Event event, Event::Create());
      events->push_back(std::move(event));
    }
  }
  for (int i = 0; i < options.max_slots; ++i) free_indices.insert(i);
  slots = SlotTable<Slot>("GPU", options.max_slots);
  limits = PromptLimitsOf(checkpoint->config(), model->network().max_positions, model->network().max_positions - 1);

  const DeviceDescription* device = nullptr;
  QTTS_RETURN_IF_CUDA_ERROR(DescribeDevice(&device), "asking for the device");
  const char* const bf16 = options.weights == WeightForm::kInt8 ? "int8" : "bf16";
  name = "cuda (" + device->FullName() + ", " + (options.precision == Precision::kF32 ? "f32" : bf16) +
         (options.codec_precision == CodecPrecision::kFast ? ", fast codec" : "") + ")";
  return Status::Ok();
}

Status CudaBackend::Impl::LoadCode() const {
  if (KindOf(checkpoint->config().type).clones) QTTS_RETURN_IF_ERROR(LoadVoiceEncoderCode());
  const CodeLoad loading;
  const Launcher launch(stream.get(), &model->numbers());
  CopyPage(launch, nullptr, nullptr, 1, 1, 1, 1);
  return CudaStatus(launch.error, kSpeaking);
}

// Makes the slot's stream one that has had the reference, or some more of it: the first time by running the codec over
// it, of which samples only the last frames count, later from what was kept.
Status CudaBackend::Impl::Prime(Slot* slot) {
  const cudaStream_t at = codec_stream.get();
  const std::vector<int32_t>& codes = slot->prompt.reference_codes;
  if (slot->frames_primed == 0) {
    const void* const past = codes.empty() ? nullptr : references->Find(codes);
    slot->primed = codes.empty() || past != nullptr;
    if (past != nullptr) return codec->Restore(slot->index, past, at);
    QTTS_RETURN_IF_ERROR(codec->Reset(slot->index, at));
    if (slot->primed) return Status::Ok();
  }
  const auto groups = static_cast<size_t>(codec->code_groups());
  const size_t frames = codes.size() / groups;
  const size_t begin = slot->frames_primed;
  const size_t end = frames <= kReferenceAtOnce ? frames : std::min(begin + kReferencePiece, frames);
  const size_t bytes = (end - begin) * groups * sizeof(int32_t);
  QTTS_ASSIGN_OR_RETURN(char* const host, reference_uploads.Prepare(sizeof(int32_t) + bytes));
  const int32_t index = slot->index;
  std::memcpy(host, &index, sizeof(index));
  std::memcpy(host + sizeof(index), codes.data() + begin * groups, bytes);
  QTTS_ASSIGN_OR_RETURN(const char* const device, reference_uploads.Send(at));
  const auto* const words = reinterpret_cast<const int32_t*>(device);
  const auto heard = static_cast<size_t>(codec->sound_history());
  for (size_t frame = begin; frame < end; ++frame) {
    const int32_t* const frame_codes = words + 1 + (frame - begin) * groups;
    if (frame + heard < frames) {
      QTTS_RETURN_IF_ERROR(codec->DecodeWithoutSamples(1, words, frame_codes, at));
    } else {
      QTTS_RETURN_IF_ERROR(codec->Decode(1, words, frame_codes, reference_pcm.as<float>(), at));
    }
  }
  slot->frames_primed = end;
  slot->primed = end == frames;
  if (!slot->primed || references->Find(codes) != nullptr) return Status::Ok();
  // Not cached for lack of memory: the next utterance computes it again.
  if (void* const past = references->Add(codes); past != nullptr) return codec->Save(slot->index, past, at);
  return Status::Ok();
}

// The next pieces of prompts: the codec's beside the talker's. One status per slot.
void CudaBackend::Impl::RunPieces(std::span<Piece> pieces) {
  std::vector<PromptProgress> talker;
  std::vector<Piece*> owners;
  for (Piece& piece : pieces) {
    const Slot& slot = *piece.slot;
    if (slot.prefilled || slot.rows_done == slot.prompt_rows) continue;
    talker.push_back({slot.index, &slot.prompt, static_cast<int>(slot.rows_done)});
    owners.push_back(&piece);
  }
  model->sequences().Prefill(talker);
  for (size_t i = 0; i < talker.size(); ++i) {
    Slot& slot = *owners[i]->slot;
    owners[i]->status = talker[i].status;
    const int rows = talker[i].done;
    const bool at_once = slot.rows_done == 0 && rows == slot.prompt_rows;
    owners[i]->progress.work = at_once ? std::min(1.0, static_cast<double>(rows) / Sequences::kRowsAtOnce) : 1;
    slot.rows_done = rows;
  }
  for (Piece& piece : pieces) {
    Slot& slot = *piece.slot;
    if (slot.prefilled) {
      piece.progress.done = true;
      continue;
    }
    if (piece.status.ok() && !slot.primed) {
      piece.status = Prime(&slot);
      if (slot.frames_primed > 0) piece.progress.work = 1;
    }
    if (!piece.status.ok()) continue;
    piece.progress.done = slot.prefilled = slot.primed && slot.rows_done == slot.prompt_rows;
    if (piece.progress.done) {
      slot.start = Sequences::StartOf(slot.prompt);
      slot.prompt = Prompt();
    }
  }
}

CudaBackend::CudaBackend(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
CudaBackend::~CudaBackend() = default;
const std::string& CudaBackend::name() const { return impl_->name; }
int CudaBackend::gpu() const { return impl_->options.device; }
int CudaBackend::max_outstanding() const { return kOutstanding; }

Result<std::unique_ptr<CudaBackend>> CudaBackend::Create(std::shared_ptr<const Checkpoint> checkpoint,
                                                         const CudaOptions& options) {
  QTTS_ASSIGN_OR_RETURN(const DeviceChoice choice, ChooseDevice(*checkpoint, options));
  auto impl = std::make_unique<Impl>();
  impl->options = options;
  impl->options.device = choice.device;
  impl->options.max_slots = choice.voices;
  impl->checkpoint = std::move(checkpoint);
  QTTS_RETURN_IF_ERROR(impl->Load());
  QTTS_RETURN_IF_ERROR(impl->WarmUp());
  QTTS_RETURN_IF_ERROR(impl->LoadCode());
  std::unique_ptr<CudaBackend> backend(new CudaBackend(std::move(impl)));
  // A frame of an utterance with the shortest prompt.
  Prompt prompt;
  prompt.rows.assign(2, PromptRow{0, {}});
  QTTS_ASSIGN_OR_RETURN(const SlotId slot, backend->Open(prompt, GenerationSettings(), 0));
  // A first frame and a later one, whose sound is made in another way.
  for (const int32_t text_id : {kNoText, int32_t{0}}) {
    const FrameStep step = {slot, text_id};
    QTTS_RETURN_IF_ERROR(backend->Submit({&step, 1}));
    QTTS_RETURN_IF_ERROR(backend->Collect().status());
  }
  backend->Close(slot);
  CudaBackend::Impl& loaded = *backend->impl_;
  if (choice.voices < options.max_slots && LogEnabled(LogLevel::kInfo)) {
    Log(LogLevel::kInfo, loaded.name + " has memory for " + std::to_string(choice.voices) +
                             " voices of voices=" + std::to_string(options.max_slots) + "; further utterances wait");
  }
  QTTS_RETURN_IF_ERROR(loaded.model->sequences().pages().Measure(loaded.UnusedStateBytes()));
  return backend;
}

Status CudaBackend::AllocateFirstPages() {
  // Other programs of the card may want some memory, too.
  constexpr size_t kPartOfFree = 4;
  Impl& impl = *impl_;
  const int voices = impl.options.max_slots;
  if (voices <= kDefaultVoices) return Status::Ok();
  const auto allocate = [&]() -> Status {
    for (; impl.used_indices < voices; ++impl.used_indices) {
      QTTS_RETURN_IF_ERROR(impl.codec->Reset(impl.used_indices, impl.codec_stream.get()));
    }
    size_t free = 0;
    size_t total = 0;
    QTTS_RETURN_IF_CUDA_ERROR(MeasureMemory(&free, &total), "asking for free memory");
    KvPages& pages = impl.model->sequences().pages();
    QTTS_RETURN_IF_ERROR(pages.Reserve(std::min(static_cast<size_t>(voices), free / kPartOfFree / pages.page_bytes())));
    return pages.Measure(impl.UnusedStateBytes());
  };
  // A voice that needs what there is no memory for fails, or waits.
  Status status = allocate();
  return status.code() == StatusCode::kResourceExhausted ? Status::Ok() : impl.NoteIfDeviceLost(std::move(status));
}

Result<LoadMemory> CudaBackend::CountMemory(const Checkpoint& checkpoint, const CudaOptions& options) {
  // Ten seconds and a prompt begin their second page.
  constexpr size_t kPagesOfVoice = 2;
  MemoryCount count;
  Impl impl;
  impl.options = options;
  impl.checkpoint = {std::shared_ptr<const Checkpoint>(), &checkpoint};  // does not own it
  QTTS_RETURN_IF_ERROR(impl.Load());
  return LoadMemory{
      .held = count.held(),
      .max_held = count.max_held(),
      .voice_bytes = kPagesOfVoice * impl.model->sequences().pages().page_bytes() + impl.codec->past_bytes(),
      .frame_bytes = impl.model->network().frame_bytes + impl.codec->frame_bytes()};
}

int CudaBackend::max_slots() const { return impl_->options.max_slots; }

ContextPages CudaBackend::pages() const {
  return {kPagePositions, impl_->model->sequences().total_pages(), impl_->model->sequences().free_pages()};
}

size_t CudaBackend::device_bytes() const {
  const CudaBackendFacts f = facts();
  return f.weight_bytes + f.codec_bytes + f.cache_bytes + f.scratch_bytes;
}

Result<int64_t> CudaBackend::Reserve(SlotId id) {
  Impl& impl = *impl_;
  QTTS_ASSIGN_OR_RETURN(Impl::Slot* const slot, impl.FindToMove(id));
  if (slot->parked) return Status::InvalidArgument("slot " + std::to_string(id) + " is parked");
  QTTS_RETURN_IF_ERROR(
      impl.NoteIfDeviceLost(impl.model->sequences().Extend(slot->index, slot->prompt_rows - 1 + slot->submitted)));
  // Beyond the model's last position it is Submit() that says so.
  return std::max(impl.model->sequences().PositionsOf(slot->index) - (slot->prompt_rows - 1), slot->submitted + 1);
}

Status CudaBackend::Park(SlotId id) {
  Impl& impl = *impl_;
  QTTS_ASSIGN_OR_RETURN(Impl::Slot* const slot, impl.FindToMove(id));
  if (slot->parked || !slot->prefilled) {
    return Status::InvalidArgument("slot " + std::to_string(id) + " is parked or its prompt is not complete");
  }
  QTTS_RETURN_IF_ERROR(
      impl.NoteIfDeviceLost(impl.model->sequences().Park(slot->index, slot->prompt_rows + slot->submitted)));
  slot->parked = true;
  return Status::Ok();
}

Status CudaBackend::Unpark(SlotId id) {
  Impl& impl = *impl_;
  QTTS_ASSIGN_OR_RETURN(Impl::Slot* const slot, impl.FindToMove(id));
  if (!slot->parked) return Status::InvalidArgument("slot " + std::to_string(id) + " is not parked");
  QTTS_RETURN_IF_ERROR(impl.NoteIfDeviceLost(impl.model->sequences().Unpark(slot->index)));
  slot->parked = false;
  return Status::Ok();
}

Result<SlotId> CudaBackend::Open(Prompt prompt, const GenerationSettings& settings, uint64_t seed) {
  Impl& impl = *impl_;
  QTTS_RETURN_IF_ERROR(impl.lost);
  QTTS_RETURN_IF_ERROR(impl.MakeCurrent());
  QTTS_RETURN_IF_ERROR(CheckPrompt(prompt, impl.limits));
  QTTS_RETURN_IF_ERROR(impl.slots.CheckFree());
  const int index = *impl.free_indices.begin();
  if (Status status = impl.model->sequences().Open(index, prompt, settings, seed); !status.ok()) {
    if (status.code() == StatusCode::kDeviceUnavailable) impl.lost = status;
    return status;
  }
  impl.free_indices.erase(index);
  impl.used_indices = std::max(impl.used_indices, index + 1);
  impl.model->sequences().pages().KeepFree(impl.UnusedStateBytes());
  auto [id, slot] = impl.slots.Add();
  slot.index = index;
  slot.prompt_rows = static_cast<int64_t>(prompt.rows.size());
  slot.prompt = std::move(prompt);
  return id;
}

Result<PrefillProgress> CudaBackend::Prefill(SlotId id) { return PrefillTogether(std::span(&id, 1)).front(); }

std::vector<Result<PrefillProgress>> CudaBackend::PrefillTogether(std::span<const SlotId> ids) {
  Impl& impl = *impl_;
  std::vector<Result<PrefillProgress>> results(ids.size(), PrefillProgress());
  std::vector<Impl::Piece> pieces;
  std::vector<size_t> places;
  const Status usable = impl.lost.ok() ? impl.MakeCurrent() : impl.lost;
  for (size_t i = 0; i < ids.size(); ++i) {
    const Result<Impl::Slot*> slot = usable.ok() ? impl.slots.Get(ids[i]) : usable;
    if (!slot.ok()) {
      results[i] = slot.status();
    } else if ((*slot)->end == EndReason::kError) {
      results[i] = (*slot)->status;
    } else {
      pieces.push_back({*slot});
      places.push_back(i);
    }
  }
  impl.RunPieces(pieces);
  for (size_t k = 0; k < pieces.size(); ++k) {
    const Impl::Piece& piece = pieces[k];
    if (piece.status.ok()) {
      results[places[k]] = piece.progress;
      continue;
    }
    results[places[k]] = piece.status;
    if (piece.status.code() == StatusCode::kDeviceUnavailable) {
      impl.lost = piece.status;
    } else {
      piece.slot->end = EndReason::kError;
      piece.slot->status = piece.status;
    }
  }
  return results;
}

int64_t CudaBackend::prompt_rows_together() const {
  return std::max(impl_->model->plan().frame.prompt_rows, Sequences::kRowsAtOnce);
}

void CudaBackend::Close(SlotId id) {
  Impl& impl = *impl_;
  const Impl::Slot* const slot = impl.slots.Find(id);
  if (slot == nullptr) return;
  // Frames in flight still write to the slot and its pages. Their next owner's work comes later on the same stream.
  impl.model->sequences().Close(slot->index);
  impl.free_indices.insert(slot->index);
  impl.slots.Remove(id);
}

std::unique_ptr<VoiceEncoder> CudaBackend::CreateVoiceEncoder() const {
  return cuda::CreateVoiceEncoder(impl_->checkpoint, impl_->options.device);
}

CudaBackendFacts CudaBackend::facts() const {
  const Impl& impl = *impl_;
  return {impl.model->network().loader->bytes(), impl.codec->device_bytes() + impl.references->bytes(),
          impl.model->sequences().cache_bytes(), impl.model->scratch_bytes(), impl.model->network().frame_bytes};
}

}  // namespace qtts::cuda
