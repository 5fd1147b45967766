// SPDX-License-Identifier: LGPL-2.1-or-later
#include "codec/codec.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "codec/gemm_choice.h"
#include "codec/kernels.h"
#include "codec/steps.h"
#include "codec/tile_table.h"
#include "runtime/arena.h"
#include "runtime/device_memory.h"
#include "runtime/device_table.h"
#include "runtime/queue.h"

namespace qtts::cuda {
namespace codec {
namespace {

// Slots whose states come together.
constexpr int kSlotsTogether = 8;

}  // namespace
}  // namespace codec

struct Codec::Impl {
  Arena memory;
  std::vector<codec::Step> steps;
  codec::DeviceTraits device;
  CodecNumbers numbers;
  std::span<const codec::ProductTiles> table;
  int groups = 0;
  int samples = 0;
  int max_slots = 0;
  int max_batch = 0;
  codec::DequantizeArgs arrays;  // whose device arrays are filled here
  size_t state_bytes = 0;
  size_t latent_steps = 0;
  size_t early_steps = 0;
  int sound_history = 0;
  std::vector<DeviceMemory> states;     // of kSlotsTogether slots each
  std::vector<std::byte*> slot_states;  // [slot] as on the device

  // Sees to it that a slot has a state.
  Status Provide(int slot, cudaStream_t stream);
  Status CheckSlot(int slot) const;
  // Enqueues some steps of a frame for n rows, which have what they need of the rest.
  struct Call {
    int n = 0;
    const int32_t* slots = nullptr;
    const int32_t* codes = nullptr;
    float* pcm = nullptr;
    CodecRoom room = {};
  };
  Status Run(std::span<const codec::Step> some, const Call& call, cudaStream_t stream) const;

  static Result<std::unique_ptr<Impl>> Create(const CodecConfig& config, const CodecWeights& weights,
                                              CodecPrecision precision, int max_slots, int max_batch);
};

Result<std::unique_ptr<Codec::Impl>> Codec::Impl::Create(const CodecConfig& config, const CodecWeights& weights,
                                                         CodecPrecision precision, int max_slots, int max_batch) {
  if (max_slots < 1 || max_batch < 1) {
    return Status::InvalidArgument("A codec needs at least one slot and one batch row.");
  }
  auto impl = std::make_unique<Impl>();
  QTTS_RETURN_IF_CUDA_ERROR(codec::PrepareKernels(&impl->device), "preparing the codec");
  QTTS_ASSIGN_OR_RETURN(const DeviceNumbers numbers, NumbersOfDevice());
  impl->numbers = numbers.codec;
  impl->table = codec::TableFor(impl->device, numbers.codec);
  impl->groups = static_cast<int>(weights.codebooks.size());
  impl->samples = config.samples_per_frame;
  impl->max_slots = max_slots;
  impl->max_batch = max_batch;
  codec::Builder builder(config, weights, impl->device, precision, max_slots, max_batch, &impl->memory, &impl->steps);
  QTTS_RETURN_IF_ERROR(builder.Build());
  impl->arrays = std::get<codec::DequantizeArgs>(impl->steps.front());
  impl->state_bytes = builder.state_bytes();
  impl->latent_steps = builder.latent_steps();
  impl->early_steps = builder.early_steps();
  impl->sound_history = builder.SoundHistory();
  impl->slot_states.resize(static_cast<size_t>(max_slots));
  return impl;
}

Status Codec::Impl::Provide(int slot, cudaStream_t stream) {
  if (slot_states[static_cast<size_t>(slot)] != nullptr) return Status::Ok();
  const int first = slot / codec::kSlotsTogether * codec::kSlotsTogether;
  const int count = std::min(codec::kSlotsTogether, max_slots - first);
  const size_t bytes = state_bytes * static_cast<size_t>(count);
  QTTS_ASSIGN_OR_RETURN(DeviceMemory block, DeviceMemory::Allocate(bytes));
  Queue queue(stream);
  queue.Clear(block.data(), bytes);
  std::byte** const entries = slot_states.data() + first;
  for (int i = 0; i < count; ++i) entries[i] = block.as<std::byte>() + static_cast<size_t>(i) * state_bytes;
  queue.Copy(const_cast<std::byte**>(arrays.slot_states) + first, entries,
             static_cast<size_t>(count) * sizeof(std::byte*), cudaMemcpyHostToDevice);
  if (Status status = queue.status("making room for a stream of the codec"); !status.ok()) {
    std::fill_n(entries, count, nullptr);
    return status;
  }
  states.push_back(std::move(block));
  return Status::Ok();
}

CodecCopies CodecCopiesFor(int max_batch) {
  // A row has eight columns at most before the decoder blocks.
  constexpr int kRowsForBlocks = 16;
  constexpr int kRowsForAll = 128;
  if (max_batch >= kRowsForAll) return CodecCopies::kAll;
  return max_batch >= kRowsForBlocks ? CodecCopies::kDecoderBlocks : CodecCopies::kNone;
}

Codec::Codec(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Codec::~Codec() = default;

Result<std::unique_ptr<Codec>> Codec::Create(const CodecConfig& config, const CodecWeights& weights,
                                             CodecPrecision precision, int max_slots, int max_batch) {
  QTTS_ASSIGN_OR_RETURN(auto impl, Impl::Create(config, weights, precision, max_slots, max_batch));
  return std::unique_ptr<Codec>(new Codec(std::move(impl)));
}

int Codec::code_groups() const { return impl_->groups; }
int Codec::samples_per_frame() const { return impl_->samples; }
size_t Codec::device_bytes() const {
  size_t bytes = impl_->memory.total();
  for (const DeviceMemory& block : impl_->states) bytes += block.bytes();
  return bytes;
}

size_t Codec::frame_bytes() const {
  size_t bytes = 0;
  for (const codec::Step& step : impl_->steps) {
    const auto* const product = std::get_if<codec::GemmStep>(&step);
    if (product == nullptr) continue;
    const codec::GemmGeometry& geometry = product->args.geometry;
    const size_t weights = static_cast<size_t>(geometry.tiles) * codec::kTileRows *
                           static_cast<size_t>(geometry.chunks) * codec::kChannelBlock;
    const bool f32 = product->x_planes == codec::Planes::kF32;
    bytes += weights * (f32 ? sizeof(float) : sizeof(uint16_t) * static_cast<size_t>(product->args.weights.planes));
  }
  return bytes;
}

Status Codec::Impl::CheckSlot(int slot) const {
  if (slot >= 0 && slot < max_slots) return Status::Ok();
  return Status::InvalidArgument("The codec has no slot " + std::to_string(slot) + ".");
}

Status Codec::Reset(int slot, cudaStream_t stream) {
  QTTS_RETURN_IF_ERROR(impl_->CheckSlot(slot));
  QTTS_RETURN_IF_ERROR(impl_->Provide(slot, stream));
  return CudaStatus(cudaMemsetAsync(impl_->arrays.next_frame + slot, 0, sizeof(int32_t), stream),
                    "forgetting a stream of the codec");
}

int Codec::sound_history() const { return impl_->sound_history; }

void Codec::UseTiles(std::span<const codec::ProductTiles> table) { impl_->table = table; }

// A past is the state, and behind it the number of frames.
size_t Codec::past_bytes() const { return impl_->state_bytes + sizeof(int32_t); }

Status Codec::Save(int slot, void* past, cudaStream_t stream) const {
  QTTS_RETURN_IF_ERROR(impl_->CheckSlot(slot));
  const std::byte* const state = impl_->slot_states[static_cast<size_t>(slot)];
  if (state == nullptr) {
    return Status::InvalidArgument("The codec's slot " + std::to_string(slot) + " has no stream to save.");
  }
  auto* const to = static_cast<std::byte*>(past);
  Queue queue(stream);
  queue.Copy(to, state, impl_->state_bytes, cudaMemcpyDeviceToDevice);
  queue.Copy(to + impl_->state_bytes, impl_->arrays.next_frame + slot, sizeof(int32_t), cudaMemcpyDeviceToDevice);
  return queue.status("saving a stream of the codec");
}

Status Codec::Restore(int slot, const void* past, cudaStream_t stream) {
  QTTS_RETURN_IF_ERROR(impl_->CheckSlot(slot));
  QTTS_RETURN_IF_ERROR(impl_->Provide(slot, stream));
  const auto* const from = static_cast<const std::byte*>(past);
  Queue queue(stream);
  queue.Copy(impl_->slot_states[static_cast<size_t>(slot)], from, impl_->state_bytes, cudaMemcpyDeviceToDevice);
  queue.Copy(impl_->arrays.next_frame + slot, from + impl_->state_bytes, sizeof(int32_t), cudaMemcpyDeviceToDevice);
  return queue.status("taking up a stream of the codec");
}

Status Codec::Decode(int n, const int32_t* slots, const int32_t* codes, float* pcm, cudaStream_t stream) {
  QTTS_RETURN_IF_ERROR(Begin(n, slots, codes, {}, stream));
  return Finish(n, pcm, {}, stream);
}

Status Codec::DecodeWithoutSamples(int n, const int32_t* slots, const int32_t* codes, cudaStream_t stream) {
  return impl_->Run({impl_->steps.data(), impl_->latent_steps}, {.n = n, .slots = slots, .codes = codes}, stream);
}

Status Codec::Begin(int n, const int32_t* slots, const int32_t* codes, CodecRoom room, cudaStream_t stream) {
  return impl_->Run({impl_->steps.data(), impl_->early_steps}, {.n = n, .slots = slots, .codes = codes, .room = room},
                    stream);
}

Status Codec::Finish(int n, float* pcm, CodecRoom room, cudaStream_t stream) {
  const std::span<const codec::Step> all = impl_->steps;
  return impl_->Run(all.subspan(impl_->early_steps), {.n = n, .pcm = pcm, .room = room}, stream);
}

Status Codec::Impl::Run(std::span<const codec::Step> some, const Call& call, cudaStream_t stream) const {
  const int n = call.n;
  if (n < 0 || n > max_batch) {
    return Status::InvalidArgument("The codec was made for batches of " + std::to_string(max_batch) +
                                   " rows at most; this one has " + std::to_string(n) + ".");
  }
  if (n == 0) return Status::Ok();
  codec::DeviceTraits traits = device;
  if (call.room.processors > 0) {
    traits.processors = call.room.processors;
  } else if (numbers.processors_of_some > 0 && n > numbers.few_streams && n <= numbers.some_streams) {
    traits.processors = std::min(traits.processors, numbers.processors_of_some);
  }
  const codec::Batch batch{arrays.states, arrays.frames};
  const auto product = [&](const codec::GemmStep& step) {
    codec::GemmArgs args = step.args;
    args.batch = batch;
    args.geometry.columns = n * args.x.rows;
    return args;
  };
  const auto launch = [&](const codec::Step& step) -> cudaError_t {
    if (const auto* s = std::get_if<codec::DequantizeArgs>(&step)) {
      codec::DequantizeArgs args = *s;
      args.slots = call.slots;
      args.codes = call.codes;
      return codec::LaunchDequantize(args, n, traits, stream);
    }
    if (const auto* s = std::get_if<codec::GemmStep>(&step)) {
      const codec::GemmArgs args = product(*s);
      const codec::GemmTile tile = codec::ChooseTile(args, s->x_planes, traits, table, call.room.beside);
      return codec::LaunchGemm(args, s->x_planes, tile, traits, stream);
    }
    if (const auto* s = std::get_if<codec::AttentionArgs>(&step)) {
      codec::AttentionArgs args = *s;
      args.batch = batch;
      return codec::LaunchAttention(args, n, traits, stream);
    }
    if (const auto* s = std::get_if<codec::DepthwiseArgs>(&step)) {
      codec::DepthwiseArgs args = *s;
      args.batch = batch;
      return codec::LaunchDepthwise(args, n, traits, stream);
    }
    codec::LastConvArgs args = std::get<codec::LastConvArgs>(step);
    args.batch = batch;
    args.pcm = call.pcm;
    return codec::LaunchLastConv(args, n, traits, stream);
  };
  constexpr const char* kWhat = "enqueuing a frame of the codec";
  for (size_t i = 0; i < some.size(); ++i) {
    const auto* const first = std::get_if<codec::GemmStep>(&some[i]);
    if (first != nullptr && first->unit.first != nullptr && !call.room.beside) {
      const codec::GemmArgs args = product(*first);
      const codec::GemmArgs next = product(std::get<codec::GemmStep>(some[i + 1]));
      if (codec::ChooseUnit(args, next, first->x_planes, first->unit, traits, table)) {
        QTTS_RETURN_IF_CUDA_ERROR(codec::LaunchUnit(args, next, first->unit, traits, stream), kWhat);
        ++i;
        continue;
      }
    }
    QTTS_RETURN_IF_CUDA_ERROR(launch(some[i]), kWhat);
  }
  return Status::Ok();
}

}  // namespace qtts::cuda
