// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_CODEC_GEMM_CUT_H_
#define QTTS_CUDA_CODEC_GEMM_CUT_H_

#include "codec/kernels.h"

// Where the sum of a product is cut. This decides bits: the parts are rounded before they are added. So it depends on
// the layer alone and on whether the device has clusters, never on the batch; and its constants stay as they are,
// although some came from an H200. They are no DeviceNumbers: a table that makes another card quicker would change what
// it says.
namespace qtts::cuda::codec {

struct GemmCut {
  int groups = 1;
  int segments = 1;
};

// `args` without its cut, for one frame. `grouped`: for clusters where the device has them.
GemmCut ChooseCut(const GemmArgs& args, bool grouped, const DeviceTraits& device);

}  // namespace qtts::cuda::codec

#endif  // QTTS_CUDA_CODEC_GEMM_CUT_H_
