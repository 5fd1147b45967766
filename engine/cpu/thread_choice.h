// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CPU_THREAD_CHOICE_H_
#define QTTS_CPU_THREAD_CHOICE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "cpu/processors.h"
#include "cpu/thread_pool.h"

namespace qtts::cpu {

// Returns the initial number of threads of a pool: `threads`; for 0, one per logical CPU that the caller may use, at
// most 64.
int InitialThreads(int threads);
// Returns the same for compute-bound work, which gains nothing from SMT: for 0, one thread per core.
int ThreadsForArithmetic(int threads);

// Returns the thread counts to measure, largest first: all logical CPUs, all cores, and fractions of the cores.
std::vector<int> ThreadCandidates(const Processors& usable);

// Measures a time with `threads` threads, in any unit. None if other processes kept the threads from running.
using Measure = std::function<std::optional<double>(int threads)>;

// Returns the smallest candidate whose time is within 5 % of the best. Calls `measure` once per candidate, largest
// first, and stops after a candidate that takes 1.5 times the best. Returns one thread per core if that candidate's
// time is unknown.
int ChooseThreads(const Processors& usable, const Measure& measure);

// Cost of one frame of one stream.
struct FrameCost {
  int64_t weight_bytes = 0;    // read by one-row products; weights read twice count twice
  int64_t distinct_bytes = 0;  // distinct bytes among them
  int64_t matrix_bytes = 0;    // weights of one parallel loop
  int64_t multiply_adds = 0;   // of the convolutions, F32
};

// Resizes `pool` to the fastest number of threads for `cost`. Measures one-row products with a matrix in memory and a
// convolution in cache. Takes a few milliseconds and, meanwhile, up to 64 MB.
void ResizeToBest(const FrameCost& cost, ThreadPool* pool);

}  // namespace qtts::cpu

#endif  // QTTS_CPU_THREAD_CHOICE_H_
