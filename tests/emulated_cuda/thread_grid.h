// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TESTS_EMULATED_CUDA_THREAD_GRID_H_
#define QTTS_TESTS_EMULATED_CUDA_THREAD_GRID_H_

#include <vector_types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <source_location>

// The threads of a kernel on the processor: each is a fiber, all of one thread of the operating system, so every run is
// the same. Threads of a warp meet wherever they exchange something; a warp whose threads meet at different places, or
// of which some have returned, ends the program with a list of where each one is. A grid in which no thread can go on
// ends it likewise. Memory is coherent here, copies are there at once and threads take turns: nothing is said about
// races.
namespace qtts::emulated {

// Runs `kernel` once for each thread of `blocks` blocks that are resident together, and returns when all have returned.
// `threads`: of a block, whole warps. A block has `shared_bytes` of dynamic shared memory, which begins as no zeros.
void RunGrid(int blocks, int threads, size_t shared_bytes, const std::function<void()>& kernel);

// --- For the device's functions, in a thread of RunGrid() ---

using Place = std::source_location;

// Bytes that a thread exchanges with its warp at once, at most.
inline constexpr size_t kExchangedBytes = 32;

// The values that all threads of a warp brought to an exchange, by lanes.
class Exchanged {
 public:
  explicit Exchanged(const char (*values)[kExchangedBytes]) : values_(values) {}
  template <typename T>
  const T& Of(int lane) const {
    return *reinterpret_cast<const T*>(values_[lane]);
  }

 private:
  const char (*values_)[kExchangedBytes];
};

// Brings `bytes` of `value` to the warp, and waits for its other threads. The result is good until the next but one.
Exchanged Exchange(const void* value, size_t bytes, const Place& place);

// Waits at barrier `number` of the block until `threads` threads have come; 0: all that have not returned. Returns
// whether `value` was true in any of them.
bool AwaitBarrier(int number, int threads, bool value, const Place& place);

// Lets others go on. A wait that polls calls it each time that it has seen nothing new.
void Poll(const Place& place);
// Says that the thread reads what others may change. Lets others go on if it has read the same before, with no
// exchange, barrier or Poll() since: then it waits for a change.
void NoteRead(const void* address, const Place& place);
// Says that something has changed for which others may be waiting.
void Changed();

int Lane();
char* SharedMemory();

}  // namespace qtts::emulated

#endif  // QTTS_TESTS_EMULATED_CUDA_THREAD_GRID_H_
