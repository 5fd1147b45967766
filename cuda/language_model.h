// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_LANGUAGE_MODEL_H_
#define QTTS_CUDA_LANGUAGE_MODEL_H_

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "codec/codec.h"
#include "frame/frame.h"
#include "frame/frame_state.h"
#include "gemm/gemm.h"
#include "network/network.h"
#include "paths/frame_buffers.h"
#include "paths/frame_path.h"
#include "paths/graph/graph_path.h"
#include "paths/persistent/persistent_frame.h"
#include "prompt/prompt.h"
#include "qtts/request.h"
#include "qtts/status.h"
#include "runtime/device_numbers.h"
#include "sequences/sequences.h"

namespace qtts::cuda {

// How frames of few utterances are computed: by a graph with one kernel per product, or by one persistent kernel. Both
// give the same bits.
enum class FramePath { kBest, kGraph, kPersistent };

// Options of this backend: the engine's options that concern it, and its own.
struct CudaOptions {
  Precision precision = Precision::kBF16;
  CodecPrecision codec_precision = CodecPrecision::kExact;  // with kF32 the codec is F32, too
  int device = -1;  // of the machine's GPUs; -1 = the first that can hold the model
  int max_slots = kMaxRows;
  // Lets kernels start before the previous one has ended (programmatic dependent launch), if the device supports it.
  bool overlap = true;
  // kPersistent: an error if device or model do not support it; kBest: falls back to the graph.
  FramePath path = FramePath::kBest;
  // Rows of prompts that go through the talker together: kMaxRows to LanguageModel::kMostPromptRows.
  int prompt_rows = kMaxRows;
  // Kernels for kManyRows rows and more; kWarpgroup: an error on a device without warpgroups' products. kLibrary: an
  // error without the library; there is no persistent kernel then.
  ManyRowsProducts products = ManyRowsProducts::kBest;
  unsigned patience = PersistentFrame::kPatience;  // for tests
  // Host memory for parked utterances, at most; unless set, a quarter of what the process may use.
  std::optional<size_t> parking_bytes;
};

// Talker, code predictor and sampling on the current device: from prompts and text ids to codes. All
// state of the utterances lies on the device, by slot; the host only enqueues. Puts together the network, the
// utterances and the paths, and chooses the path of a frame.
//
// Everything runs on one stream. The output of a slot depends only on its own prompt, settings and seed, bit for bit.
// Not thread-safe.
class LanguageModel {
 public:
  // Loads the weights; waits for that. kUnsupported for structures that the kernels do not cover.
  static Result<std::unique_ptr<LanguageModel>> Create(const Checkpoint& checkpoint, const CudaOptions& options,
                                                       cudaStream_t stream);
  // Waits for all work on the stream.
  ~LanguageModel();

  // Row buckets of EnqueueFrame(), ascending.
  static constexpr auto kRowBuckets = GraphPath::kRowBuckets;
  static int RowBucket(int rows) { return GraphPath::RowBucket(rows); }
  static bool MayJoin(int rows) { return GraphPath::MayJoin(rows); }
  // Rows of a frame of an engine with so many slots.
  static int RowsFor(int max_slots) { return std::max(kMaxRows, RowBucket(std::min(max_slots, kMostRows))); }
  // Rows of prompts that go through the talker together in such an engine.
  static int PromptRowsFor(int max_slots) { return max_slots > kMaxRows ? kMostPromptRows : kRowsAtOnce; }
  // See GraphPath.
  int SplitBucket(int64_t positions) const { return graph_->SplitBucket(positions); }
  int MaxRows(int splits) const { return graph_->MaxRows(splits); }
  bool Fits(int rows, int splits) const { return graph_->Fits(rows, splits); }
  int RowBucket(int rows, int splits) const { return graph_->RowBucket(rows, splits); }
  int GraphSplits(int rows, int splits) const { return graph_->GraphSplits(rows, splits); }
  // All split buckets up to the model's longest context.
  std::vector<int> SplitBuckets() const { return graph_->SplitBuckets(); }

  // Positions up to which a frame of any number of rows is one launch.
  int64_t PositionsOfAllRows() const { return graph_->PositionsOfAllRows(); }

  int64_t max_positions() const { return network_->max_positions; }

  // Captures the graphs of prompts in advance, so that the first utterances do not wait for it.
  Status WarmUp() { return sequences_->WarmUp(); }

  // Number of prompt rows enqueued at once: all rows of a prompt of ordinary length; kMaxRows at a time for longer
  // ones.
  static constexpr int kRowsAtOnce = Sequences::kRowsAtOnce;
  static constexpr int kMostPromptRows = Sequences::kMostPromptRows;

  // Makes `slot` an utterance with room for `prompt`, which has been checked. When it fails the slot is closed.
  Status Open(int slot, const Prompt& prompt, const GenerationSettings& settings, uint64_t seed) {
    return sequences_->Open(slot, prompt, settings, seed);
  }
  // Enqueues the next rows of open slots' prompts and says in each `done` how many have been now. Rests of prompts that
  // fit into a pass through the talker share one. At most three pieces of a long prompt are under way, since each needs
  // a place of the upload ring: this waits for one.
  void Prefill(std::span<PromptProgress> prompts) { sequences_->Prefill(prompts); }
  // Returns the input with which the first frame begins: the prompt's last row, if no other row has to go through the
  // talker.
  static FrameStart StartOf(const Prompt& prompt) { return Sequences::StartOf(prompt); }
  // Open() and the whole Prefill(), if nobody else waits.
  Result<FrameStart> Begin(int slot, const Prompt& prompt, const GenerationSettings& settings, uint64_t seed);
  void Close(int slot) { sequences_->Close(slot); }
  // Allocates KV cache for the input at `position` of an open slot.
  Status Extend(int slot, int64_t position) { return sequences_->Extend(slot, position); }

  // Positions that the pages of a slot hold.
  int64_t PositionsOf(int slot) const { return sequences_->PositionsOf(slot); }
  // Moves the pages of `slot` with its first `positions` positions to the host's memory, and back to the device's.
  // kResourceExhausted if there is too little of it: nothing has changed.
  Status Park(int slot, int64_t positions) { return sequences_->Park(slot, positions); }
  Status Unpark(int slot) { return sequences_->Unpark(slot); }
  // All pages, and those that are free or would be if they were needed.
  int64_t total_pages() const { return sequences_->total_pages(); }
  int64_t free_pages() { return sequences_->free_pages(); }
  // See KvPages.
  KvPages& pages() { return sequences_->pages(); }

  // Size of the rings of EnqueueFrame().
  const FrameRing& ring() const { return ring_; }
  // One frame of up to `rows` rows (a row bucket) that begin alike, taken from the next entry of the ring `steps` and
  // reported in that of `results`: for capture in a graph. Both are host memory. The rows that go on have their codes
  // in hand_over(). Rows that begin with kPrompt look at no context: one split. Where MayJoin(rows), rows of kInput may
  // begin with their prompts, too (RowKind::kJoins).
  Status EnqueueFrame(FrameStart start, int rows, int splits, const FrameRow* steps, FrameRowResult* results);

  // Not ok after the device has given up a frame. All later results are then invalid.
  Status Health() const { return persistent_ == nullptr ? Status::Ok() : persistent_->Health(); }
  // True if the persistent kernel runs frames of so many rows and splits.
  bool IsPersistent(int rows, int splits) const { return persistent_ != nullptr && persistent_->Covers(rows, splits); }

  // True if frames give the scores of FrameRow::window.
  bool ScoresText() const { return buffers_->aligned.layer >= 0; }

  const CodecHandOver& hand_over() const { return buffers_->hand_over; }
  int groups() const { return network_->groups; }
  int hidden_size() const { return network_->hidden_size(); }
  size_t weight_bytes() const { return network_->loader->bytes(); }
  size_t cache_bytes() const { return sequences_->cache_bytes(); }
  size_t scratch_bytes() const { return buffers_->bytes + (persistent_ == nullptr ? 0 : persistent_->bytes()); }
  // Weight bytes read by a frame of one row.
  size_t frame_bytes() const { return network_->frame_bytes; }

  // Logits of the last frame, for tests: F32 [rows][vocab] of up to kMaxRows rows, of the talker (group 0) or the
  // predictor.
  const float* logits(int group) const { return buffers_->logits(*network_, group, kMaxRows); }
  int vocab(int group) const { return network_->head(group).outputs; }

  const Network& network() const { return *network_; }
  const DeviceNumbers& numbers() const { return numbers_; }

 private:
  explicit LanguageModel(cudaStream_t stream) : stream_(stream) {}
  Status Load(const Checkpoint& checkpoint, const CudaOptions& options);
  Status ChooseManyRows(const CudaOptions& options);
  // Rows of the library's products; 0: the products are the project's own.
  static int64_t LibraryRows(const CudaOptions& options);
  // The persistent kernel if it covers the frame, otherwise the graph path, which covers all.
  const FrameComputation& PathFor(int rows, int splits) const;

  cudaStream_t stream_;
  DeviceNumbers numbers_;
  FrameRing ring_;
  std::unique_ptr<const Network> network_;
  std::unique_ptr<FrameBuffers> buffers_;
  std::unique_ptr<GraphPath> graph_;
  std::unique_ptr<PersistentFrame> persistent_;  // null if not available
  std::unique_ptr<Sequences> sequences_;
};

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_LANGUAGE_MODEL_H_
