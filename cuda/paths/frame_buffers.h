// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_PATHS_FRAME_BUFFERS_H_
#define QTTS_CUDA_PATHS_FRAME_BUFFERS_H_

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

#include "attention/attention.h"
#include "attention/text_scores.h"
#include "frame/frame.h"
#include "frame/frame_state.h"
#include "gemm/gemm.h"
#include "network/network.h"
#include "network/operations.h"
#include "qtts/status.h"
#include "runtime/device_memory.h"

namespace qtts::cuda {

// Numbers that size the buffers.
struct FrameCapacity {
  int slots = 0;
  int rows = kMaxRows;         // of a frame: from kMaxRows to kMostRows
  int prompt_rows = kMaxRows;  // of prompts that go through the talker in one pass: a multiple of kMinRows
  int predictor_logits = 0;    // rows of the predictor's logits, of all groups
  int row_splits = 0;          // rows times splits of one call of attention
};

// Device buffers: the state of all utterances, by slot, and the data passed between a frame's kernels.
struct FrameBuffers {
  static Result<std::unique_ptr<FrameBuffers>> Allocate(const Network& network, const FrameCapacity& capacity);

  KeyValuePages talker_pages() const { return {page_table, pages_per_slot, kPagePositions}; }
  // Returns the logits [rows][vocab] of a code group; 0 is the talker's. Up to kMaxRows rows have memory for each
  // group; more rows have one for all groups of the predictor, which a group's sampling has read before the next
  // group's head writes it.
  float* logits(const Network& network, int group, int rows_of_frame) const;

  // Arrays of utterances.
  EmbeddingTables tables;
  SlotState* slots = nullptr;
  unsigned* history = nullptr;  // [slots][history_words] bits of the ids that were sampled
  int history_words = 0;
  float* first_x = nullptr;  // [slots][talker's width], what first frames begin with
  AlignedQueries aligned;
  void** page_table = nullptr;  // [slots][pages_per_slot], the talker's
  int pages_per_slot = 0;

  // Arrays of the frame. The talker's have room for as many rows as a prompt's piece has, if these are more.
  int rows = 0;
  FrameRows frame;
  CodecHandOver hand_over;
  float* x = nullptr;            // [rows][talker's width]
  float* predictor_x = nullptr;  // [2 * rows][predictor's width]
  float* qkv = nullptr;
  NormedRows normed;  // of either part
  // By part: the zeros beyond the columns must stay.
  std::array<void*, 2> attended = {};
  std::array<void*, 2> inner = {};
  float* talker_logits = nullptr;
  float* predictor_logits = nullptr;
  AttentionScratch attention_scratch;
  int row_splits = 0;  // capacity of attention_scratch: rows times splits

  // Arrays of the prompts that go through the talker at once.
  int prompt_rows = 0;
  PromptRows prompts;

  // Allocates an array, zeroed.
  template <typename T>
  Result<T*> NewArray(size_t count) {
    QTTS_ASSIGN_OR_RETURN(DeviceMemory memory, DeviceMemory::AllocateZeroed(count * sizeof(T)));
    T* const data = memory.as<T>();
    bytes += memory.bytes();
    owned.push_back(std::move(memory));
    return data;
  }
  std::vector<DeviceMemory> owned;
  size_t bytes = 0;

 private:
  Status AllocateUtterances(const Network& network, size_t num_slots);
  Status AllocateRows(const Network& network, const FrameCapacity& capacity);
  Status AllocatePrompts(const Network& network, size_t slots);
};

// Rows that are available with any number of splits; graphs of prompts are captured in steps of this.
inline constexpr int kMinRows = 8;

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_PATHS_FRAME_BUFFERS_H_
