// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_PATHS_GRAPH_GRAPH_PATH_H_
#define QTTS_CUDA_PATHS_GRAPH_GRAPH_PATH_H_

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "attention/attention.h"
#include "frame/frame_state.h"
#include "network/frame_operations.h"
#include "network/network.h"
#include "paths/frame_buffers.h"
#include "paths/frame_path.h"
#include "qtts/status.h"
#include "runtime/device_numbers.h"
#include "runtime/launch.h"

namespace qtts::cuda {

// Which rows of a pass of prompts may be kept: one of the last kMinRows, or any, where there are several prompts.
enum class PromptRowsKept { kLast, kAny };

// The graph path: one or two kernels per operation on one stream, captured in graphs. For all models, precisions and
// devices, and for prompts.
class GraphPath : public FrameComputation {
 public:
  // Creates the path. All arguments must outlive it. `overlap`: programmatic dependent launch.
  static Result<std::unique_ptr<GraphPath>> Create(const Network* network, FrameBuffers* buffers,
                                                   const DeviceNumbers* numbers, bool overlap, cudaStream_t stream);

  // Rows of a frame, ascending.
  static constexpr std::array<int, 25> kRowBuckets = {1,    2,    4,    8,    16,   32,   kMaxRows, 96,   128,
                                                      192,  256,  384,  512,  640,  768,  896,      1024, 1152,
                                                      1280, 1408, 1536, 1664, 1792, 1920, kMostRows};
  static int RowBucket(int rows);
  // Returns true if rows may be first frames of RowKind::kJoins among frames that begin with an input.
  static bool MayJoin(int rows) { return rows > kMaxRows; }
  // Splits that cover contexts of `positions`.
  int SplitBucket(int64_t positions) const;
  // Returns true if there is scratch memory for so many rows with so many splits, or attention needs none. The most
  // rows of a frame that fit, and the smallest bucket for `rows` of them.
  bool Fits(int rows, int splits) const;
  int MaxRows(int splits) const;
  int RowBucket(int rows, int splits) const;
  // Returns the splits that a frame of so many rows is captured with: one for any where attention needs none.
  int GraphSplits(int rows, int splits) const;
  // Returns the rows of a prompt's piece: of the smallest graph, of the largest piece that fits, and of the smallest
  // graph that fits `rows` rows.
  static int PromptBucket(int rows);
  int MaxPromptRows(int splits) const;
  int PromptBucket(int rows, int splits) const;
  // Returns the longest contexts with which MaxRows() is all that there is memory for.
  int64_t PositionsOfAllRows() const;
  // Returns all split buckets up to the model's longest context.
  std::vector<int> SplitBuckets() const;

  bool Covers(int rows, int splits) const override { return rows <= buffers_->rows && Fits(rows, splits); }
  Status Enqueue(FrameStart start, int rows, int splits) const override;
  bool overlaps() const override { return overlap_; }

  // Enqueues the talker's layers for so many rows of prompts, a PromptBucket(); those that are to be kept become what
  // the first frames of their slots begin with.
  Status EnqueuePrompt(int rows, int splits, PromptRowsKept kept) const;

 private:
  // Common arguments of the operations of a pass.
  struct Pass {
    SequenceRows sequence;
    KeyValuePages pages;
    int streams = 0;
    int splits = 1;
    const int* live = nullptr;  // the operation is skipped if this word is 0
    int rows_left_out = 0;      // leading rows that do not go on from the last layer's keys and values
    // Slots of the talker's rows that choose a frame, below 0: it does not. None of the rows left out does.
    const int* choosers = nullptr;
  };
  // Rows of a place: where they begin, and elements between them.
  struct Rows {
    void* data = nullptr;
    int stride = 0;
  };

  GraphPath(const Network* network, FrameBuffers* buffers, const DeviceNumbers* numbers, bool overlap,
            cudaStream_t stream)
      : network_(network), buffers_(buffers), numbers_(numbers), overlap_(overlap), stream_(stream) {}
  Pass TalkerPass(FrameStart start, int rows, int splits) const;
  Pass PredictorPass(int group, int rows) const;
  void Enqueue(const Launcher& launch, const std::vector<FrameOperation>& operations, const Pass& pass) const;
  void EnqueueProduct(const Launcher& launch, const FrameOperation& operation, const Pass& pass, const int* live) const;
  void EnqueueAttention(const Launcher& launch, const FrameOperation& operation, const Pass& pass) const;
  // Keeps the alignment head's queries of the rows that choose a frame.
  void EnqueueQueries(const Launcher& launch, const FrameOperation& operation, const Pass& pass) const;
  void EnqueueSample(const Launcher& launch, const FrameOperation& operation, int rows) const;
  // Returns the leading rows of a prompt piece that an operation skips.
  int64_t RowsLeftOut(const FrameOperation& operation, const Pass& pass) const;
  Rows RowsOf(Place place, const FrameOperation& operation, const Pass& pass) const;
  // Returns true if so many rows of what is between an operation and the next product of its layer, attended or inner,
  // are swizzled (gemm/tiles.h).
  bool IsSwizzled(Place place, const FrameOperation& operation, int64_t rows) const;

  const Network* network_;
  FrameBuffers* buffers_;
  const DeviceNumbers* numbers_;
  bool overlap_;
  cudaStream_t stream_;
  void** predictor_page_table_ = nullptr;  // [rows], a page a row
};

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_PATHS_GRAPH_GRAPH_PATH_H_
