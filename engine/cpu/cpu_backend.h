// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CPU_CPU_BACKEND_H_
#define QTTS_CPU_CPU_BACKEND_H_

#include <memory>

#include "backend/backend.h"
#include "checkpoint/checkpoint.h"
#include "cpu/arithmetic.h"
#include "qtts/status.h"

namespace qtts {

// The reference backend: F32 arithmetic on the mapped weights, in the dtype they come in; and, where another arithmetic
// is asked for, the same with less exact products of talker, code predictor and codec. Submit() only queues; Prefill()
// and Collect() compute, in their caller's thread and threads - 1 helpers. What a slot gives depends neither on other
// slots nor on the number of threads, bit for bit.
//
// `threads` 0: as many as are fastest here, by a short measurement. Keeps `checkpoint` alive. Errors:
// kResourceExhausted.
Result<std::unique_ptr<Backend>> CreateCpuBackend(std::shared_ptr<const Checkpoint> checkpoint, int threads,
                                                  cpu::Arithmetic arithmetic = cpu::Arithmetic::kF32,
                                                  int max_slots = kDefaultSlots);

}  // namespace qtts

#endif  // QTTS_CPU_CPU_BACKEND_H_
