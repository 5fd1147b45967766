// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CPU_CPU_BACKEND_H_
#define QTTS_CPU_CPU_BACKEND_H_

#include <memory>

#include "backend/backend.h"
#include "checkpoint/checkpoint.h"
#include "cpu/arithmetic.h"
#include "qtts/engine_options.h"
#include "qtts/status.h"

namespace qtts {

// Creates the CPU backend, which is the reference. Submit() only queues. Prefill() and Collect() compute, in the
// calling thread and threads - 1 helpers. The output of a slot does not depend on the other slots or on the number of
// threads, bit for bit.
//
// `arithmetic` is that of the products of talker, code predictor and codec; kF32 uses the mapped weights in the dtype
// of the file. `threads` 0 measures at load and takes the fastest number. Keeps `checkpoint` alive. Errors:
// kResourceExhausted.
Result<std::unique_ptr<Backend>> CreateCpuBackend(std::shared_ptr<const Checkpoint> checkpoint, int threads,
                                                  cpu::Arithmetic arithmetic = cpu::Arithmetic::kF32,
                                                  int max_slots = kDefaultVoices);

}  // namespace qtts

#endif  // QTTS_CPU_CPU_BACKEND_H_
