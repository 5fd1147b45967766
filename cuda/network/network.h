// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_NETWORK_NETWORK_H_
#define QTTS_CUDA_NETWORK_NETWORK_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "gemm/gemm.h"
#include "network/library_products.h"
#include "network/operations.h"
#include "network/stack.h"
#include "network/weight_loader.h"
#include "qtts/status.h"

namespace qtts::cuda {

// Checks that the kernels support the network; kUnsupported names the missing feature.
Status CheckNetwork(const ModelConfig& config);

// Returns the maximum of an utterance's positions.
int64_t MaxPositionsOf(const ModelConfig& config);

// How the products of many rows are done.
struct ManyRowsWeights {
  int64_t library_rows = 0;  // of a product, at most, where NVIDIA's library computes all of them
  int64_t likely_rows = 0;   // of such a product: for them the library's algorithms are chosen
  bool swizzled = false;     // all weights are kept swizzled, too (gemm/tiles.h)
};

// Talker and code predictor on the device: layers, heads, tables. Constant once loaded.
struct Network {
  // Waits for the weights. `form`: of all matrices that frames read; kInt8 is for kBF16 without ManyRowsWeights.
  // `numbers` must outlive the network. `library`: it computes all products; none: they are the project's own.
  // kUnsupported as CheckNetwork(), and where the library lacks a product.
  static Result<std::unique_ptr<const Network>> Load(const Checkpoint& checkpoint, Precision precision, WeightForm form,
                                                     const DeviceNumbers* numbers, cudaStream_t stream,
                                                     const ManyRowsWeights& many_rows = {},
                                                     std::unique_ptr<CublasLt> library = nullptr);

  const Stack& stack(Part part) const { return part == Part::kTalker ? talker : predictor; }
  // Returns the head of a code group; 0 is the talker's.
  const Matrix& head(int group) const { return group == 0 ? talker_head : heads[static_cast<size_t>(group - 1)]; }
  int hidden_size() const { return talker.config.hidden_size; }
  bool has_projection() const { return projection.data != nullptr; }

  ModelConfig config;
  Precision precision = Precision::kBF16;
  WeightForm form = WeightForm::kPlain;  // of the matrices
  int groups = 0;                        // codes of a frame
  int64_t max_positions = 0;             // of an utterance
  std::unique_ptr<WeightLoader> loader;
  std::unique_ptr<LibraryProducts> library;  // null: the products are the project's own

  Stack talker, predictor;
  Matrix talker_head;
  std::vector<Matrix> heads;            // the predictor's, of groups 1 and up
  Matrix projection;                    // talker's width to the predictor's; no data: they are one
  Table text_table;                     // projected to the talker's width
  std::vector<Table> code_tables;       // [groups], the talker's width
  std::vector<Table> predictor_tables;  // [groups - 1], the predictor's width
  size_t frame_bytes = 0;               // of weights that a frame of one row reads
};

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_NETWORK_NETWORK_H_
