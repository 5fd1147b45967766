// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_GEMM_CLUSTER_H_
#define QTTS_CUDA_GEMM_CLUSTER_H_

#include "gemm/arguments.h"

namespace qtts::cuda::gemm {

// Whether RunCluster() takes `rows` rows of so many chunks, with a launcher of these ProductNumbers: where the device
// has clusters of blocks, and two such blocks fit into a processor's shared memory.
bool CanRunCluster(int outputs, int chunks, int64_t rows, int clusters_at_once);

// A product of kind kAdd in BF16 for many rows, in clusters of eight blocks, each of which has an eighth of the
// columns. A block fetches its part of the rows once for all outputs of the cluster, which are many although there are
// few for each processor. Each row gets the bits that the kernels for few rows would give it.
void RunCluster(const Launcher& launch, const GemmArguments& arguments);

}  // namespace qtts::cuda::gemm

#endif  // QTTS_CUDA_GEMM_CLUSTER_H_
