// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_CODEC_GEMM_CHOICE_H_
#define QTTS_CUDA_CODEC_GEMM_CHOICE_H_

#include <vector>

#include "codec/kernels.h"
#include "runtime/device_numbers.h"

// Choice of the kernel for a product. All kernels give the same bits, so only time matters.
namespace qtts::cuda::codec {

// `beside`: another kernel occupies all SMs.
GemmTile ChooseTile(const GemmArgs& args, Planes x_planes, const DeviceTraits& device, const CodecNumbers& numbers,
                    bool beside);

// True if a residual unit is done by LaunchUnit(), not by one product after the other.
bool ChooseUnit(const GemmArgs& first, const GemmArgs& second, Planes x_planes, const UnitWeights& weights,
                const DeviceTraits& device, const CodecNumbers& numbers);

// The candidates of ChooseTile() on an otherwise idle device. The first of the fastest is chosen.
std::vector<GemmTile> PossibleTiles(const GemmArgs& args, Planes x_planes, const DeviceTraits& device);
// Estimated time of a product in us: loads and multiplications of a thread block times the number of waves, or the
// latency of its chain of chunks if that is longer.
double EstimateTime(const GemmArgs& args, Planes x_planes, const GemmTile& tile, const DeviceTraits& device,
                    const CodecNumbers& numbers);
double EstimateUnitTime(const GemmArgs& first, const GemmArgs& second, const GemmTile& tile, const DeviceTraits& device,
                        const CodecNumbers& numbers);

}  // namespace qtts::cuda::codec

#endif  // QTTS_CUDA_CODEC_GEMM_CHOICE_H_
