// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_PATHS_FRAME_PATH_H_
#define QTTS_CUDA_PATHS_FRAME_PATH_H_

#include "qtts/status.h"

namespace qtts::cuda {

// Start of a frame's rows.
enum class FrameStart {
  kInput,   // the talker's input: from the last codes and a text id, or a prompt's last row
  kPrompt,  // the talker's output for a prompt up to its last row: starts with the talker's head
};

// A path for the part of a frame between BeginFrame() and EndFrame(): the operations of network/operations.h. All paths
// give the same bits.
class FrameComputation {
 public:
  virtual ~FrameComputation() = default;
  // Returns true if Enqueue() supports so many rows (a row bucket) and splits.
  virtual bool Covers(int rows, int splits) const = 0;
  virtual Status Enqueue(FrameStart start, int rows, int splits) const = 0;
  // Returns true if the next kernel may overlap the last one.
  virtual bool overlaps() const = 0;
};

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_PATHS_FRAME_PATH_H_
