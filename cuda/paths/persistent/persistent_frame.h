// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_PATHS_PERSISTENT_PERSISTENT_FRAME_H_
#define QTTS_CUDA_PATHS_PERSISTENT_PERSISTENT_FRAME_H_

#include <cuda_runtime_api.h>

#include <array>
#include <memory>
#include <vector>

#include "attention/attention.h"
#include "frame/frame.h"
#include "gemm/gemm.h"
#include "network/stack.h"
#include "network/weight_loader.h"
#include "paths/persistent/frame_kernel.h"
#include "qtts/status.h"
#include "runtime/device_memory.h"
#include "runtime/device_numbers.h"

namespace qtts::cuda {

// The model and the state of its utterances, all on the device and outliving the PersistentFrame.
struct PersistentFrameSources {
  Precision precision = Precision::kBF16;
  PersistentNumbers numbers;
  int groups = 0;
  int eos_id = 0;
  const Stack* talker = nullptr;
  const Stack* predictor = nullptr;
  const Matrix* talker_head = nullptr;
  const Matrix* projection = nullptr;  // no data: none
  const std::vector<Matrix>* heads = nullptr;
  const std::vector<Table>* predictor_tables = nullptr;
  KeyValuePages talker_pages;
  FrameRows frame;
  SlotState* slots = nullptr;
  unsigned* history = nullptr;
  int history_words = 0;
  const float* x = nullptr;  // the talker's rows, [rows][Padded(hidden)]
  float* talker_logits = nullptr;
  float* predictor_logits = nullptr;
};

// What BeginFrame() leaves to do of a frame, but for EndFrame(), as one cooperative kernel: talker (or not), head,
// choice, code predictor with its heads and choices. One block on each of 128 processors, streaming its share of the
// weights without a break while the phases hand each other their results through the L2 cache.
//
// Gives the same codes and logits as the kernels of the graph path, bit for bit. For 1, 2, 4 or 8 utterances, and for
// the widths of the released models.
class PersistentFrame {
 public:
  // Looks of one wait before it is given up: seconds.
  static constexpr unsigned kPatience = 1U << 23;

  // kUnsupported, with the reason, where the device or the model cannot do it.
  static Result<std::unique_ptr<PersistentFrame>> Create(const PersistentFrameSources& sources, unsigned patience);

  // Whether Enqueue() can be asked for so many rows and splits.
  bool Covers(int rows, int splits) const;
  // Between BeginFrame() and EndFrame() of `rows` rows, in a graph or not. `talker`: whether x are the talker's inputs,
  // or what it has made of them.
  Status Enqueue(bool talker, int rows, cudaStream_t stream) const;
  // To be given to EndFrame(), so that epochs can begin anew.
  EpochWords epoch_words() const;

  // Not ok once a wait was given up: what was computed since means nothing.
  Status Health() const;
  size_t bytes() const { return words_.bytes() + tables_.bytes() + cache_.bytes() + candidates_.bytes(); }

 private:
  PersistentFrame() = default;
  Status Prepare(const PersistentFrameSources& sources, unsigned patience);
  Status AllocateWords();

  static constexpr std::array<int, 4> kRowBuckets = {1, 2, 4, 8};

  FrameKernelArguments arguments_;  // but for ring_slots and runs_talker
  std::array<int, kRowBuckets.size()> ring_slots_ = {};
  DeviceMemory tables_, words_, cache_, candidates_;
  PinnedMemory report_;
};

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_PATHS_PERSISTENT_PERSISTENT_FRAME_H_
