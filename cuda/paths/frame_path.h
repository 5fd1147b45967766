// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_PATHS_FRAME_PATH_H_
#define QTTS_CUDA_PATHS_FRAME_PATH_H_

#include "qtts/status.h"

namespace qtts::cuda {

// What a frame's rows begin with.
enum class FrameStart {
  kInput,   // the talker's input: of the last codes and a text id, or of a prompt's last row
  kPrompt,  // what the talker has made of a prompt to its last row: with the talker's head
};

// A way to compute what lies between BeginFrame() and EndFrame(): the operations of a frame (network/operations.h).
// All ways give the same bits.
class FrameComputation {
 public:
  virtual ~FrameComputation() = default;
  // Whether Enqueue() can be asked for so many rows (a row bucket) and splits.
  virtual bool Covers(int rows, int splits) const = 0;
  virtual Status Enqueue(FrameStart start, int rows, int splits) const = 0;
  // Whether the kernel that follows may overlap the last one.
  virtual bool overlaps() const = 0;
};

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_PATHS_FRAME_PATH_H_
