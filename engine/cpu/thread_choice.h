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

// The threads that a pool begins with: `threads`; for 0 one for each processor that the caller may use, 64 at most.
int MostThreads(int threads);
// The same for work bound by arithmetic, which gains nothing from a core's second thread: for 0, one a core.
int ThreadsForArithmetic(int threads);

// The numbers of threads to be measured, largest first: all of the processors, all of the cores, and parts of these.
std::vector<int> ThreadCandidates(const Processors& usable);

// The time of something with so many threads, in any unit; none where other work kept threads from running.
using Measure = std::function<std::optional<double>(int threads)>;

// The smallest candidate whose time is within 5 % of the best. `measure` is called once for each, largest first, but
// for those after one that takes 1.5 times the best. Where the time of one thread a core is not known, that is the
// choice.
int ChooseThreads(const Processors& usable, const Measure& measure);

// What a frame of one stream asks of the memory and of the arithmetic.
struct FrameCost {
  int64_t weight_bytes = 0;    // read for products with one row; twice what is read twice
  int64_t distinct_bytes = 0;  // of different addresses
  int64_t matrix_bytes = 0;    // of one parallel loop
  int64_t multiply_adds = 0;   // of convolutions, F32
};

// Sets `pool` to the number of threads with which a frame takes least, as a short measurement tells: products of a
// matrix in memory and one row, and a convolution in the cache, weighed by `cost`. Takes some milliseconds, and up to
// 64 MB meanwhile.
void ResizeToBest(const FrameCost& cost, ThreadPool* pool);

}  // namespace qtts::cpu

#endif  // QTTS_CPU_THREAD_CHOICE_H_
