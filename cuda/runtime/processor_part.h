// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_RUNTIME_PROCESSOR_PART_H_
#define QTTS_CUDA_RUNTIME_PROCESSOR_PART_H_

#include <cuda_runtime_api.h>

#include <memory>

#include "qtts/status.h"

namespace qtts::cuda {

// A part of the current device's SMs, and a stream on it (a green context of the driver). Graphs that are captured on
// the stream run on these SMs alone, also where they are launched on another stream. Two kinds of work that would each
// fill the device then need not wait for the other's thread blocks to end. Other streams have all SMs, these included,
// and parts of different size share SMs.
//
// Must outlive its graphs. Not thread-safe.
class ProcessorPart {
 public:
  static constexpr int kWhole = 8;  // eighths

  ProcessorPart(ProcessorPart&& other) noexcept;
  ProcessorPart& operator=(ProcessorPart&& other) noexcept;
  ~ProcessorPart();

  // Makes a part of `eighths` eighths of the SMs, 1 to kWhole, rounded down to a number that the device can set apart.
  // Where it cannot (driver 550 and older, a build with CUDA 12.4 and older), the part is the whole device. Work on an
  // urgent part has priority over other streams.
  static Result<ProcessorPart> Create(int eighths, bool urgent);

  cudaStream_t stream() const;
  // Returns its SMs, in proportion to those of the device's description; 0: all.
  int processors() const;

 private:
  struct Place;
  explicit ProcessorPart(std::unique_ptr<Place> place);
  std::unique_ptr<Place> place_;
};

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_RUNTIME_PROCESSOR_PART_H_
