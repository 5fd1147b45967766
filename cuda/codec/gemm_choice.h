// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_CODEC_GEMM_CHOICE_H_
#define QTTS_CUDA_CODEC_GEMM_CHOICE_H_

#include <vector>

#include "codec/kernels.h"
#include "runtime/device_numbers.h"

// Which kernel takes a product in a call. All give the same bits, so this goes by time alone.
namespace qtts::cuda::codec {

// `beside`: there is room only beside another kernel that keeps the whole device.
GemmTile ChooseTile(const GemmArgs& args, Planes x_planes, const DeviceTraits& device, const CodecNumbers& numbers,
                    bool beside);

// What ChooseTile() chooses from where the device has nothing else to do, and how: the first of those that take the
// least time.
std::vector<GemmTile> PossibleTiles(const GemmArgs& args, Planes x_planes, const DeviceTraits& device);
// About how many us a product takes: what a block loads and multiplies, in as many turns as it takes, or the latency of
// its chain of chunks where that is more.
double EstimateTime(const GemmArgs& args, Planes x_planes, const GemmTile& tile, const DeviceTraits& device,
                    const CodecNumbers& numbers);

}  // namespace qtts::cuda::codec

#endif  // QTTS_CUDA_CODEC_GEMM_CHOICE_H_
