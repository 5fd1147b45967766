// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_CODEC_GEMM_H_
#define QTTS_CUDA_CODEC_GEMM_H_

#include "codec/kernels.h"

// What lies behind LaunchGemm() and PrepareKernels().
namespace qtts::cuda::codec {

inline int CeilDiv(int a, int b) { return (a + b - 1) / b; }

// Completes the arguments for blocks of `tiles` weight tiles.
inline void SetBlockTiles(GemmArgs* args, int tiles) {
  args->geometry.by_block_tiles = Divisor(tiles);
  args->geometry.by_quads = Divisor(tiles * (args->epilogue.activation == Activation::kSwiGlu ? 2 : 4));
}

// Blocks of a cluster, at most: what every device with clusters takes.
inline constexpr int kMostClusterBlocks = 8;
inline constexpr int kClusterTiles = 4;  // weight tiles of a block
// Whether there is such a block of kCluster.
bool ClusterTakes(const GemmArgs& args, Planes x_planes, const GemmTile& tile, const DeviceTraits& device);
// Whether the build has them: code for earlier devices that the driver adapts does not.
bool HasClusterGemms();
cudaError_t PrepareClusterGemms();
cudaError_t LaunchClusterGemm(const GemmArgs& args, Planes x_planes, const GemmTile& tile, const DeviceTraits& device,
                              cudaStream_t stream);

cudaError_t PrepareHalfGemms();
cudaError_t LaunchHalfGemm(const GemmArgs& args, Planes x_planes, const GemmTile& tile, const DeviceTraits& device,
                           cudaStream_t stream);
cudaError_t PrepareF32Gemm();
cudaError_t LaunchF32Gemm(GemmArgs args, const DeviceTraits& device, cudaStream_t stream);

cudaError_t PrepareOperators();

}  // namespace qtts::cuda::codec

#endif  // QTTS_CUDA_CODEC_GEMM_H_
