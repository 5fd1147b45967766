// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_GEMM_CLUSTER_H_
#define QTTS_CUDA_GEMM_CLUSTER_H_

#include "gemm/arguments.h"

namespace qtts::cuda::gemm {

// Returns true if RunCluster() supports `rows` rows of so many chunks with a launcher of these ProductNumbers: the
// device has clusters, and shared memory of an SM holds two such thread blocks.
bool CanRunCluster(int outputs, int chunks, int64_t rows, int clusters_at_once);

// Runs a BF16 product of kind kAdd for many rows, in clusters of eight thread blocks. Each block computes one eighth of
// the columns, and loads its part of the rows once for all outputs of the cluster. This helps when there are few
// outputs per SM. Each row gets the same bits as from the kernels for few rows.
void RunCluster(const Launcher& launch, const GemmArguments& arguments);

}  // namespace qtts::cuda::gemm

#endif  // QTTS_CUDA_GEMM_CLUSTER_H_
