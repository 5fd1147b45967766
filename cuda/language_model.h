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

#include "capacity_plan.h"
#include "checkpoint/checkpoint.h"
#include "codec/codec.h"
#include "frame/frame.h"
#include "frame/frame_state.h"
#include "gemm/cublas_lt.h"
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
  WeightForm weights = WeightForm::kPlain;                  // of talker and code predictor; kInt8 needs kBF16
  CodecPrecision codec_precision = CodecPrecision::kExact;  // with kF32 the codec is F32, too
  int device = -1;  // of the machine's GPUs; -1 = the first that can hold the model
  int max_slots = kMaxRows;
  // Lets kernels start before the previous one has ended (programmatic dependent launch), if the device supports it.
  bool overlap = true;
  // kPersistent: an error if device or model do not support it; kBest: falls back to the graph.
  FramePath path = FramePath::kBest;
  // Rows of prompts that go through the talker in one pass, kMaxRows to Sequences::kMostPromptRows, instead of the
  // plan's; for tests.
  std::optional<int> prompt_rows;
  // Kernels for kManyRows rows and more; kWarpgroup: an error on a device without warpgroups' products. kLibrary: an
  // error without the library; there is no persistent kernel then. kBest takes the library for more than kMaxRows
  // voices on a device without warpgroups' products, if it is there.
  ManyRowsProducts products = ManyRowsProducts::kBest;
  unsigned patience = PersistentFrame::kPatience;  // for tests
  // Pace of the persistent kernel's weights instead of the card's; for benchmarks.
  std::optional<PaceNumbers> pace;
  // Thread blocks of the persistent kernel at most, in the form for any number of them; for tests and benchmarks.
  std::optional<int> persistent_blocks;
  // Confines the codec to a part of the SMs where that is faster (CodecNumbers::shares); for benchmarks.
  bool codec_in_part = true;
  // Host memory for parked utterances, at most; unless set, a quarter of what the process may use, and none where the
  // device has the host's memory.
  std::optional<size_t> parking_bytes;
};

// Returns true if these options take cuBLASLt's products on the current device, where the library is there.
bool PrefersLibrary(const CudaOptions& options);

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

  // Opens `slot` and enqueues its whole prompt, if nobody else waits.
  Result<FrameStart> Begin(int slot, const Prompt& prompt, const GenerationSettings& settings, uint64_t seed);

  // Enqueues one frame of up to `rows` rows (a row bucket) that begin alike, taken from the next entry of the ring
  // `steps` and reported in that of `results`: for capture in a graph. Both are host memory, of the size of
  // CapacityPlan::ring. The rows that go on have their codes in FrameBuffers::hand_over. Rows that begin with kPrompt
  // look at no context: one split. Where GraphPath::MayJoin(rows), rows of kInput may begin with their prompts, too
  // (RowKind::kJoins).
  Status EnqueueFrame(FrameStart start, int rows, int splits, const FrameRow* steps, FrameRowResult* results);

  // Returns an error after the device has given up a frame. All later results are then invalid.
  Status Health() const { return persistent_ == nullptr ? Status::Ok() : persistent_->Health(); }
  // Returns true if the persistent kernel runs frames of so many rows and splits.
  bool IsPersistent(int rows, int splits) const { return persistent_ != nullptr && persistent_->Covers(rows, splits); }
  // Returns true if frames give the scores of FrameRow::window.
  bool ScoresText() const { return buffers_->aligned.layer >= 0; }
  size_t scratch_bytes() const { return buffers_->bytes + (persistent_ == nullptr ? 0 : persistent_->bytes()); }

  // Exposes the parts. Frames of more rows than the persistent kernel covers are the graph path's, which also knows the
  // sizes that frames are captured with.
  const CapacityPlan& plan() const { return plan_; }
  const DeviceNumbers& numbers() const { return numbers_; }
  const Network& network() const { return *network_; }
  const FrameBuffers& buffers() const { return *buffers_; }
  const GraphPath& graph() const { return *graph_; }
  Sequences& sequences() { return *sequences_; }

 private:
  explicit LanguageModel(cudaStream_t stream) : stream_(stream) {}
  Status Load(const Checkpoint& checkpoint, const CudaOptions& options);
  // Sets the kernels for many rows. Returns the library if it is to compute the products.
  Result<std::unique_ptr<CublasLt>> ChooseManyRows(const CudaOptions& options);
  Status LoadNetwork(const Checkpoint& checkpoint, const CudaOptions& options, std::unique_ptr<CublasLt> library);
  // Returns the persistent kernel if it covers the frame, otherwise the graph path, which covers all.
  const FrameComputation& PathFor(int rows, int splits) const;

  cudaStream_t stream_;
  DeviceNumbers numbers_;
  CapacityPlan plan_;
  std::unique_ptr<const Network> network_;
  std::unique_ptr<FrameBuffers> buffers_;
  std::unique_ptr<GraphPath> graph_;
  std::unique_ptr<PersistentFrame> persistent_;  // null if not available
  std::unique_ptr<Sequences> sequences_;
};

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_LANGUAGE_MODEL_H_
