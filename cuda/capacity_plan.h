// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_CAPACITY_PLAN_H_
#define QTTS_CUDA_CAPACITY_PLAN_H_

#include "checkpoint/config.h"
#include "codec/codec.h"
#include "frame/frame_state.h"
#include "network/network.h"
#include "paths/frame_buffers.h"
#include "runtime/device_numbers.h"

namespace qtts::cuda {

// Everything that an engine's number of voices changes.
struct CapacityPlan {
  // Rows of a frame: a step of more rows takes several launches. Entries: frames in flight, and room to read results
  // while the next ones are computed.
  FrameRing ring;
  // Rows of the largest graph of a frame.
  int captured_rows = 0;
  FrameCapacity frame;
  ManyRowsWeights weights;
  // Streams whose sound is made at once, in slices of a frame, and the weights that are kept once more for so many.
  int codec_rows = 0;
  CodecCopies codec_copies = CodecCopies::kNone;
};

// Returns the plan for `voices` slots of `model` on a card with these numbers, in which the kernels for many rows have
// been chosen (ProductNumbers::many_rows).
CapacityPlan Plan(int voices, const ModelConfig& model, const DeviceNumbers& card);

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_CAPACITY_PLAN_H_
