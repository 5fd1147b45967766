// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_CODEC_GEMM_H_
#define QTTS_CUDA_CODEC_GEMM_H_

#include <vector>

#include "codec/kernels.h"

// Implementation of LaunchGemm() and PrepareKernels().
namespace qtts::cuda::codec {

inline int CeilDiv(int a, int b) { return (a + b - 1) / b; }

// Completes the arguments for blocks of `tiles` weight tiles.
inline void SetBlockTiles(GemmArgs* args, int tiles) {
  args->geometry.by_block_tiles = Divisor(tiles);
  args->geometry.by_quads = Divisor(tiles * (args->epilogue.activation == Activation::kSwiGlu ? 2 : 4));
}

// Maximum thread blocks per cluster: the portable limit of all devices with clusters.
inline constexpr int kMaxClusterBlocks = 8;
inline constexpr int kClusterTiles = 4;  // weight tiles per thread block
// Returns true if kCluster has such a thread block.
bool ClusterTakes(const GemmArgs& args, Planes x_planes, const GemmTile& tile, const DeviceTraits& device);
// Sets `*fit` to whether a thread block may have the shared memory that kCluster was made for, on a device that can run
// clusters. Cards of compute capability 12.0 can, but have 99 KiB a block.
cudaError_t ClusterGemmsFit(const DeviceTraits& device, bool* fit);
cudaError_t PrepareClusterGemms();
cudaError_t LaunchClusterGemm(const GemmArgs& args, Planes x_planes, const GemmTile& tile, const DeviceTraits& device,
                              cudaStream_t stream);

// Returns true if only weight scales and a bias come before the residual.
inline bool IsPlain(const GemmEpilogue& epilogue) {
  return epilogue.rms_input == nullptr && epilogue.activation == Activation::kNone && epilogue.scale == nullptr;
}
// Returns the weight rows that kWarpgroup wants together (PackWarpgroup()), 0 if it has no form for such a product.
int WarpgroupOutputs(const GemmGeometry& geometry);
// Thread blocks of kWarpgroup: the largest first.
inline constexpr GemmTile kWarpgroupTiles[] = {{GemmForm::kWarpgroup, 128, 12},
                                               {GemmForm::kWarpgroup, 128, 8},
                                               {GemmForm::kWarpgroup, 256, 6},
                                               {GemmForm::kWarpgroup, 128, 6},
                                               {GemmForm::kWarpgroup, 128, 4}};
// Returns true if kWarpgroup has such a thread block for the product.
bool WarpgroupTakes(const GemmArgs& args, Planes x_planes, const GemmTile& tile, const DeviceTraits& device);
cudaError_t PrepareWarpgroupGemms(const DeviceTraits& device);
cudaError_t LaunchWarpgroupGemm(const GemmArgs& args, const GemmTile& tile, const DeviceTraits& device,
                                cudaStream_t stream);

// Returns true if warpgroups have a kernel for units with such products, whose weights it wants in UnitOrder().
bool WarpgroupUnitHasKernel(const GemmGeometry& first, const GemmGeometry& second);
WarpgroupOrder UnitOrder(bool first);
// Returns true if that kernel can run these two; sets `*tile` to its thread block.
bool WarpgroupUnitTakes(const GemmArgs& first, const GemmArgs& second, const UnitWeights& weights, GemmTile* tile,
                        const DeviceTraits& device);
cudaError_t PrepareWarpgroupUnits(const DeviceTraits& device);
cudaError_t LaunchWarpgroupUnit(const GemmArgs& first, const GemmArgs& second, const UnitWeights& weights,
                                const DeviceTraits& device, cudaStream_t stream);

// Returns the same for devices without warpgroups, where the kernel takes the weights as kStaged does. It needs shared
// memory for two blocks of some 80 KiB on an SM.
bool StagedUnitHasKernel(const GemmGeometry& first, const GemmGeometry& second);
bool StagedUnitTakes(const GemmArgs& first, const GemmArgs& second, const UnitWeights& weights, GemmTile* tile,
                     const DeviceTraits& device);
cudaError_t PrepareStagedUnits(const DeviceTraits& device);
cudaError_t LaunchStagedUnit(const GemmArgs& first, const GemmArgs& second, const UnitWeights& weights,
                             const DeviceTraits& device, cudaStream_t stream);

// Returns true if LaunchUnit() can run these two; sets `*tile` to its thread block.
bool UnitTakes(const GemmArgs& first, const GemmArgs& second, const UnitWeights& weights, GemmTile* tile,
               const DeviceTraits& device);

// Returns true if kStaged has such a thread block for the product: whole tiles by the matrix instruction of a warp, on
// devices without warpgroups'.
bool StagedTakes(const GemmArgs& args, Planes x_planes, const GemmTile& tile, const DeviceTraits& device);
// Returns true if the taps of the product then share the columns in shared memory.
bool StagedShares(const GemmArgs& args, const GemmTile& tile, const DeviceTraits& device);
cudaError_t PrepareStagedGemms(const DeviceTraits& device);
cudaError_t LaunchStagedGemm(const GemmArgs& args, const GemmTile& tile, const DeviceTraits& device,
                             cudaStream_t stream);

// Returns true if there is a kernel of its own for such a linear layer. It gives the bits of all others.
bool LinearTakes(const GemmArgs& args, Planes x_planes);
cudaError_t PrepareLinearGemms();
cudaError_t LaunchLinearGemm(const GemmArgs& args, Planes x_planes, const DeviceTraits& device, cudaStream_t stream);

inline constexpr int kWideTiles = 6;  // weight tiles per thread block: 2 warps of 3
// Returns true if the device has the shared memory for kWide with such thread blocks; for up to 64 columns, every
// device does.
bool WideTakes(const GemmArgs& args, Planes x_planes, const GemmTile& tile, const DeviceTraits& device);
cudaError_t PrepareHalfGemms(const DeviceTraits& device);
cudaError_t LaunchHalfGemm(const GemmArgs& args, Planes x_planes, const GemmTile& tile, const DeviceTraits& device,
                           cudaStream_t stream);
cudaError_t PrepareF32Gemm();
cudaError_t LaunchF32Gemm(GemmArgs args, const DeviceTraits& device, cudaStream_t stream);

cudaError_t PrepareOperators();

}  // namespace qtts::cuda::codec

#endif  // QTTS_CUDA_CODEC_GEMM_H_
