// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_PATHS_PERSISTENT_PERSISTENT_FRAME_H_
#define QTTS_CUDA_PATHS_PERSISTENT_PERSISTENT_FRAME_H_

#include <cuda_runtime_api.h>

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "frame/frame.h"
#include "network/network.h"
#include "paths/frame_buffers.h"
#include "paths/frame_path.h"
#include "paths/persistent/frame_kernel.h"
#include "qtts/status.h"
#include "runtime/device.h"
#include "runtime/device_memory.h"
#include "runtime/device_numbers.h"

namespace qtts::cuda {

// One cooperative kernel for the part of a frame between BeginFrame() and EndFrame(): talker (optional), head,
// sampling, code predictor with its heads and sampling. 128 thread blocks, one per SM, or 64, 32 or 16 on cards with
// fewer SMs. They stream their shares of the weights continuously, while the phases exchange results through L2.
//
// Gives the same codes and logits as the kernels of the graph path, bit for bit. For 1, 2, 4 or 8 utterances, as far as
// an SM's shared memory is large enough for them, with weights of 8 bits for one, and for the widths of the released
// models.
class PersistentFrame : public FrameComputation {
 public:
  // Polls before a wait is given up: seconds.
  static constexpr unsigned kPatience = 1U << 23;

  // Prepares the kernel. kUnsupported, with the reason, if device or model do not support it. `max_blocks`, if any: the
  // folded form for a device of so many SMs, if it has them.
  static Result<std::unique_ptr<PersistentFrame>> Create(const Network& network, const FrameBuffers& buffers,
                                                         const PersistentNumbers& numbers, unsigned patience,
                                                         std::optional<int> max_blocks, cudaStream_t stream);

  // Returns kUnsupported, with the reason, if the kernel cannot be used for the model on the device; without loading
  // it.
  static Status CheckSupport(const ModelConfig& config, Precision precision, WeightForm weights,
                             const DeviceDescription& device);
  // Returns the same of the device alone.
  static Status CheckDevice(const DeviceDescription& device);
  // Returns the kernel's form for so many rows on the device; blocks: 0 if an SM has too little shared memory for them.
  static FrameKernelForm FormOf(int talker_hidden, int rows, const DeviceDescription& device,
                                std::optional<int> max_blocks = std::nullopt, WeightForm weights = WeightForm::kPlain);

  bool Covers(int rows, int splits) const override;
  Status Enqueue(FrameStart start, int rows, int splits) const override;
  bool overlaps() const override { return false; }
  // Returns the words to pass to EndFrame(), so that epochs can restart.
  EpochWords epoch_words() const;

  // Returns a status that is not ok after a wait was given up. All results since then are invalid.
  Status Health() const;
  size_t bytes() const { return words_.bytes() + tables_.bytes() + cache_.bytes() + candidates_.bytes(); }

 private:
  explicit PersistentFrame(cudaStream_t stream) : stream_(stream) {}
  Status Prepare(const Network& network, const FrameBuffers& buffers, const PersistentNumbers& numbers,
                 unsigned patience, std::optional<int> max_blocks);
  void Describe(const Network& network, const FrameBuffers& buffers);
  Status AllocateTables(const Network& network);
  Status PrepareKernels(const DeviceDescription& device, std::optional<int> max_blocks, WeightForm weights);
  // Returns null if the kernel has no form for so many rows.
  const FrameKernelForm* FindForm(int rows) const;
  Status AllocateWords();

  static constexpr std::array<int, 4> kRowBuckets = {1, 2, 4, 8};

  cudaStream_t stream_;
  FrameKernelArguments arguments_;  // except ring_slots and runs_talker
  std::array<FrameKernelForm, kRowBuckets.size()> forms_ = {};
  DeviceMemory tables_, words_, cache_, candidates_;
  PinnedMemory report_;
};

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_PATHS_PERSISTENT_PERSISTENT_FRAME_H_
