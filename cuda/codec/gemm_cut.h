// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_CODEC_GEMM_CUT_H_
#define QTTS_CUDA_CODEC_GEMM_CUT_H_

#include "codec/kernels.h"

// Split of a product's sum into segments. The split decides bits, since segments are rounded before they are added. It
// therefore depends only on the layer and on DeviceTraits::clusters, never on the batch. The constants must
// not change, although some were found on an H200. They are not in DeviceNumbers: a table that makes another card
// faster would change the output.
namespace qtts::cuda::codec {

struct GemmCut {
  int groups = 1;
  int segments = 1;
};

// Splits the product `args` of one frame. `grouped`: segments are groups of channels, whose taps come one after the
// other, so that kernels of many columns copy a channel block once for all taps. A cluster's block takes a group; on
// devices without clusters a warp does, so there are more and smaller ones.
GemmCut ChooseCut(const GemmArgs& args, bool grouped, const DeviceTraits& device);

}  // namespace qtts::cuda::codec

#endif  // QTTS_CUDA_CODEC_GEMM_CUT_H_
