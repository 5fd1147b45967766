// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_CODEC_GEMM_CHOICE_H_
#define QTTS_CUDA_CODEC_GEMM_CHOICE_H_

#include <span>
#include <vector>

#include "codec/kernels.h"
#include "codec/tile_table.h"

// Choice of the kernel for a product. All kernels give the same bits, so only time matters.
namespace qtts::cuda::codec {

// Returns the kernel that the table names, if it has the product and the device can run that; else RuleTile().
// `beside`: another kernel occupies all SMs; then clusters, as far as they can.
GemmTile ChooseTile(const GemmArgs& args, Planes x_planes, const DeviceTraits& device,
                    std::span<const ProductTiles> table, bool beside);

// Returns true if a residual unit is done by LaunchUnit(), not by one product after the other.
bool ChooseUnit(const GemmArgs& first, const GemmArgs& second, Planes x_planes, const UnitWeights& weights,
                const DeviceTraits& device, std::span<const ProductTiles> table);

// Returns the kernels that the device can run the product with, while nothing else runs.
std::vector<GemmTile> PossibleTiles(const GemmArgs& args, Planes x_planes, const DeviceTraits& device);

// Returns a kernel by a rule, for cards and layers that nobody has measured. The first that fits: warpgroups, if their
// blocks occupy half of the SMs; without warpgroups whole tiles (kStaged), if they occupy nine tenths; wide blocks of
// 64 columns, if they occupy all; clusters, unless wide blocks of 32 columns occupy nine tenths; these, if they occupy
// a third; narrow blocks, of as few columns as make two of them. Sums of less than four chunks go to narrow blocks,
// until wide ones of 64 columns occupy all SMs four times.
GemmTile RuleTile(const GemmArgs& args, Planes x_planes, const DeviceTraits& device);

}  // namespace qtts::cuda::codec

#endif  // QTTS_CUDA_CODEC_GEMM_CHOICE_H_
