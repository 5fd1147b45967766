// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_SEQUENCES_SEQUENCES_H_
#define QTTS_CUDA_SEQUENCES_SEQUENCES_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <tuple>
#include <vector>

#include "network/network.h"
#include "paths/frame_buffers.h"
#include "paths/frame_path.h"
#include "paths/graph/graph_path.h"
#include "prompt/prompt.h"
#include "qtts/request.h"
#include "qtts/status.h"
#include "runtime/device_memory.h"
#include "runtime/device_numbers.h"
#include "sequences/kv_pages.h"
#include "sequences/parked_pages.h"
#include "sequences/prefix_cache.h"

namespace qtts::cuda {

// A prompt on its way through the talker.
struct PromptProgress {
  int slot = 0;
  const Prompt* prompt = nullptr;
  int done = 0;  // rows that have been enqueued
  Status status;
};

// The utterances: slots, pages, prompts and the prefix cache. Not thread-safe.
class Sequences {
 public:
  // Returns pages for the talker's keys and values; at least one can be taken.
  static Result<KvPages> NewPages(const Network& network, cudaStream_t stream);
  // Network, buffers, path and numbers must outlive it.
  Sequences(const Network* network, FrameBuffers* buffers, const GraphPath* graph, const DeviceNumbers* numbers,
            KvPages pages, UploadRing uploads, int max_slots, size_t parking_bytes, cudaStream_t stream);
  Sequences(const Sequences&) = delete;
  Sequences& operator=(const Sequences&) = delete;

  // Rows of a prompt that are enqueued in one go, in pieces of FrameBuffers::prompt_rows: all of one of ordinary
  // length. Longer ones go on by kMaxRows.
  static constexpr int kRowsAtOnce = 256;
  // FrameBuffers::prompt_rows, at most: of many voices, whose prompts share a pass.
  static constexpr int kMostPromptRows = 512;

  // Captures the graphs of prompts in advance, so that the first utterances do not wait for it.
  Status WarmUp();

  // Makes `slot` an utterance with room for `prompt`, which has been checked. When it fails the slot is closed.
  Status Open(int slot, const Prompt& prompt, const GenerationSettings& settings, uint64_t seed);
  // Enqueues the next rows of open slots' prompts and says in each `done` how many have been now. Rests of prompts that
  // fit into a pass through the talker share one. At most three pieces of a long prompt are under way, since each needs
  // a place of the upload ring: this waits for one.
  void Prefill(std::span<PromptProgress> prompts);
  // Returns the input with which the first frame begins: the prompt's last row, if no other row has to go through the
  // talker.
  static FrameStart StartOf(const Prompt& prompt);
  void Close(int slot);
  // Allocates KV cache for the input at `position` of an open slot.
  Status Extend(int slot, int64_t position);
  // Positions that the pages of a slot hold.
  int64_t PositionsOf(int slot) const {
    return static_cast<int64_t>(slot_pages_[static_cast<size_t>(slot)].size()) * kPagePositions;
  }
  // Moves the pages of `slot` with its first `positions` positions to the host's memory, and back to the device's.
  // kResourceExhausted if there is too little of it: nothing has changed.
  Status Park(int slot, int64_t positions);
  Status Unpark(int slot);
  // Numbers of all pages, and of those that are free or would be if they were needed:
  int64_t total_pages() const { return static_cast<int64_t>(pages_.total_pages()); }
  int64_t free_pages() { return static_cast<int64_t>(pages_.available_pages() + prefixes_.held_pages()); }

  size_t cache_bytes() const { return pages_.device_bytes(); }
  // Returns the pages of all slots. Their numbers are those of the device's free memory once it was measured.
  KvPages& pages() { return pages_; }

 private:
  // Takes a page, if need be one of the prefix cache.
  Result<void*> TakePage();
  Status AddPage(int slot, void* page);
  void GiveBackPages(int slot);
  // Returns the rows of a prompt that the prefix cache keeps.
  static int PrefixRows(const Prompt& prompt);
  // Rows of a slot's prompt, from `begin` to `end`.
  struct Piece {
    int slot = 0;
    const Prompt* prompt = nullptr;
    int begin = 0;
    int end = 0;
  };
  // Returns the largest number of positions that any of the pieces ends with.
  static int LongestOf(std::span<const Piece> pieces);
  // Returns the rows of one prompt that Prefill() enqueues now, after those that were copied from the prefix cache.
  Piece NextPiece(const PromptProgress& progress);
  // Returns true for the whole rest of a prompt that goes through the talker in one pass.
  bool IsWhole(const Piece& piece) const;
  // On the device: the pieces' rows one after the other, and the x-vectors they name.
  struct Uploaded {
    const PromptRowIds* rows = nullptr;
    const float* x_vectors = nullptr;
  };
  Result<Uploaded> Upload(std::span<const Piece> pieces);
  Status PrefillAlone(const Piece& piece);
  // Enqueues whole pieces of several prompts in one pass, of at most FrameBuffers::prompt_rows rows in all.
  Status PrefillTogether(std::span<const Piece> pieces);
  Status PrefillRows(const Uploaded& uploaded, int begin, int end);
  Status PrefillPass(const Uploaded& uploaded, int rows, int padded, int splits, PromptRowsKept kept);
  Result<const Graph*> PrefillGraph(int rows, int splits, PromptRowsKept kept);

  const Network* network_;
  FrameBuffers* buffers_;
  const GraphPath* graph_;
  const DeviceNumbers* numbers_;
  cudaStream_t stream_;
  KvPages pages_;
  std::vector<std::vector<void*>> slot_pages_;  // of the slots' tables
  UploadRing uploads_;
  ParkedPages parked_;
  std::map<std::tuple<int, int, PromptRowsKept>, Graph> prefill_graphs_;  // by rows, splits and rows kept
  PrefixCache prefixes_;
};

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_SEQUENCES_SEQUENCES_H_
