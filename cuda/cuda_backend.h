// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_CUDA_BACKEND_H_
#define QTTS_CUDA_CUDA_BACKEND_H_

#include <cstddef>
#include <memory>
#include <string>

#include "backend/backend.h"
#include "checkpoint/checkpoint.h"
#include "language_model.h"
#include "qtts/status.h"

namespace qtts::cuda {

// Device memory in use, and times of one frame.
struct CudaBackendFacts {
  size_t weight_bytes = 0;  // of talker and predictor
  size_t codec_bytes = 0;   // weights and state, including cached references
  size_t cache_bytes = 0;   // KV cache
  size_t scratch_bytes = 0;
  size_t frame_bytes = 0;  // weight bytes read by one frame of one utterance, without the codec
};

// Device memory of an engine.
struct LoadMemory {
  size_t held = 0;         // after the load, without voices
  size_t max_held = 0;     // at any time of the load
  size_t voice_bytes = 0;  // of a voice that speaks for ten seconds
  size_t frame_bytes = 0;  // of weights that a frame of one voice reads, with the codec's
};

// The backend on one GPU (backend/backend.h). A frame of all slots is one graph. Up to two submissions may be
// outstanding.
class CudaBackend : public Backend, public PagedContexts, public SharedPrompts {
 public:
  // Checks driver, device and memory, loads the model and warms up.
  static Result<std::unique_ptr<CudaBackend>> Create(std::shared_ptr<const Checkpoint> checkpoint,
                                                     const CudaOptions& options);
  // Finds the memory of Create() on options.device, which is current: the same load, counted (runtime/memory_count.h).
  // Graphs, and what CUDA itself takes, are not counted. Errors: those of the load.
  static Result<LoadMemory> CountMemory(const Checkpoint& checkpoint, const CudaOptions& options);
  // Allocates the memory in which all voices can begin, with more than kDefaultVoices: the codec's states, and a page
  // for each as far as a quarter of the free memory holds them. Otherwise hundreds of allocations come while others
  // speak, and launches wait while the driver allocates. Without memory it does nothing. Errors: kDeviceUnavailable.
  Status AllocateFirstPages();
  ~CudaBackend() override;
  CudaBackend(const CudaBackend&) = delete;
  CudaBackend& operator=(const CudaBackend&) = delete;

  const std::string& name() const override;
  bool beside_host() const override { return true; }
  int gpu() const override;
  int max_outstanding() const override;
  int max_slots() const override;
  PagedContexts* paged() override { return this; }
  SharedPrompts* shared_prompts() override { return this; }
  ContextPages pages() const override;
  Result<int64_t> Reserve(SlotId slot) override;
  Status Park(SlotId slot) override;
  Status Unpark(SlotId slot) override;
  size_t device_bytes() const override;
  Result<SlotId> Open(Prompt prompt, const GenerationSettings& settings, uint64_t seed) override;
  Result<PrefillProgress> Prefill(SlotId slot) override;
  std::vector<Result<PrefillProgress>> PrefillTogether(std::span<const SlotId> slots) override;
  int64_t prompt_rows_together() const override;
  Status Submit(std::span<const FrameStep> steps) override;
  Result<std::vector<FrameResult>> Collect() override;
  void Close(SlotId slot) override;
  std::unique_ptr<VoiceEncoder> CreateVoiceEncoder() const override;

  CudaBackendFacts facts() const;

 private:
  struct Impl;
  explicit CudaBackend(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_CUDA_BACKEND_H_
