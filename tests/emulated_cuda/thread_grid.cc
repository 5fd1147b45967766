// SPDX-License-Identifier: LGPL-2.1-or-later
#include "thread_grid.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <boost/context/fiber.hpp>
#include <boost/context/preallocated.hpp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "cuda_device.h"

uint3 threadIdx, blockIdx;
dim3 gridDim;

namespace qtts::emulated {
namespace {

namespace context = boost::context;

constexpr int kLanes = 32;
constexpr size_t kStackBytes = 128 << 10;  // a page of it is used by most threads
constexpr int kBarriers = 2;
constexpr int kIdleTurns = 50;  // through the whole grid, in none of which anything changed
constexpr int kTurns = 4096;    // of a warp, before others have theirs

struct Block;
struct Warp;

struct Thread {
  context::fiber fiber;
  uint3 index = {};
  Warp* warp = nullptr;
  int lane = 0;
  bool has_returned = false;
  Place place;
  std::vector<const void*> reads;  // since it last waited
};

struct Warp {
  Block* block = nullptr;
  std::array<Thread, kLanes> threads;
  int returned = 0;
  // The exchange that its threads are coming to, and the two last ones' values.
  unsigned exchange = 0;
  int arrived = 0;
  alignas(16) char values[2][kLanes][kExchangedBytes];
  bool polled = false;
};

struct Barrier {
  unsigned phase = 0;
  int arrived = 0;
  bool any = false, last_any = false;
};

struct FreeDeleter {
  void operator()(void* p) const { std::free(p); }
};

struct Block {
  uint3 index = {};
  std::unique_ptr<char, FreeDeleter> shared;
  std::vector<Warp> warps;
  std::array<Barrier, kBarriers> barriers;
  int threads = 0;  // without those that have returned
};

// Memory of all stacks. Only the used part of each takes any.
class Stacks {
 public:
  explicit Stacks(size_t count) : bytes_(count * kStackBytes) {
    memory_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory_ == MAP_FAILED) throw std::bad_alloc();
  }
  ~Stacks() { munmap(memory_, bytes_); }
  Stacks(const Stacks&) = delete;
  Stacks& operator=(const Stacks&) = delete;

  context::preallocated operator[](size_t i) const {
    char* const end = static_cast<char*>(memory_) + (i + 1) * kStackBytes;
    context::stack_context stack;
    stack.size = kStackBytes;
    stack.sp = end;
    return {end, kStackBytes, stack};
  }

 private:
  size_t bytes_;
  void* memory_;
};

// preallocated does not own its stack.
struct KeepsStack {
  void deallocate(context::stack_context&) noexcept {}
};

Thread* current = nullptr;
context::fiber scheduler;  // of the grid, while a thread runs
uint64_t changes = 0;      // which may end a wait somewhere
uint64_t exchanges = 0;    // which may end one in a warp

void Print(const Warp& warp) {
  const Place* last = nullptr;
  for (const Thread& thread : warp.threads) {
    const bool same = last != nullptr && last->line() == thread.place.line() && !thread.has_returned;
    last = &thread.place;
    if (same) continue;
    std::fprintf(stderr, "block %u, warp %u, from lane %d on: %s%s:%u\n", warp.block->index.x,
                 warp.threads[0].index.x / kLanes, thread.lane, thread.has_returned ? "returned, last at " : "",
                 thread.place.file_name(), thread.place.line());
  }
}

[[noreturn]] void Fail(const char* what, const Warp& warp) {
  std::fprintf(stderr, "%s\n", what);
  Print(warp);
  std::abort();
}

[[noreturn]] void FailStuck(const std::vector<Block>& blocks) {
  std::fprintf(stderr, "no thread can go on\n");
  for (const Block& block : blocks) {
    for (const Warp& warp : block.warps) {
      if (warp.returned < kLanes) Print(warp);
    }
  }
  std::abort();
}

void Run(Thread* thread) {
  current = thread;
  threadIdx = thread->index;
  blockIdx = thread->warp->block->index;
  thread->fiber = std::move(thread->fiber).resume();
}

// Returns from the running thread to the grid's turns.
void Yield() { scheduler = std::move(scheduler).resume(); }

// Gives each thread of a warp turns until they can only wait for others.
void RunWarp(Warp* warp) {
  for (int turn = 0; turn < kTurns && warp->returned < kLanes; ++turn) {
    const uint64_t before = changes + exchanges;
    warp->polled = false;
    for (Thread& thread : warp->threads) {
      if (!thread.has_returned) Run(&thread);
    }
    if (warp->polled || changes + exchanges == before) return;
  }
}

}  // namespace

Exchanged Exchange(const void* value, size_t bytes, const Place& place) {
  Warp& warp = *current->warp;
  const unsigned exchange = warp.exchange;
  current->place = place;
  current->reads.clear();
  auto& values = warp.values[exchange % 2];
  if (bytes > 0) std::memcpy(values[current->lane], value, bytes);
  if (warp.returned > 0) Fail("threads of this warp have returned", warp);
  if (++warp.arrived < kLanes) {
    while (warp.exchange == exchange) {
      Yield();
      if (warp.exchange == exchange && warp.returned > 0) Fail("threads of this warp have returned", warp);
    }
  } else {
    for (const Thread& thread : warp.threads) {
      if (thread.place.line() != place.line()) Fail("the threads of this warp meet at different places", warp);
    }
    warp.arrived = 0;
    ++warp.exchange;
    ++exchanges;
  }
  return Exchanged(values);
}

bool AwaitBarrier(int number, int threads, bool value, const Place& place) {
  Block& block = *current->warp->block;
  Barrier& barrier = block.barriers.at(static_cast<size_t>(number));
  const unsigned phase = barrier.phase;
  current->place = place;
  current->reads.clear();
  barrier.any |= value;
  if (++barrier.arrived < (threads > 0 ? threads : block.threads)) {
    while (barrier.phase == phase) Yield();
  } else {
    barrier.arrived = 0;
    barrier.last_any = std::exchange(barrier.any, false);
    ++barrier.phase;
    Changed();
  }
  return barrier.last_any;
}

void Poll(const Place& place) {
  current->place = place;
  current->reads.clear();
  current->warp->polled = true;
  Yield();
}

void NoteRead(const void* address, const Place& place) {
  if (std::find(current->reads.begin(), current->reads.end(), address) != current->reads.end()) Poll(place);
  current->reads.push_back(address);
}

void Changed() { ++changes; }

int Lane() { return current->lane; }

char* SharedMemory() { return current->warp->block->shared.get(); }

void RunGrid(int blocks, int threads, size_t shared_bytes, const std::function<void()>& kernel) {
  const size_t shared_size = (shared_bytes + 127) / 128 * 128;
  const Stacks stacks(static_cast<size_t>(blocks) * static_cast<size_t>(threads));
  gridDim = dim3(static_cast<unsigned>(blocks));
  std::vector<Block> grid(static_cast<size_t>(blocks));
  size_t stack = 0;
  for (size_t b = 0; b < grid.size(); ++b) {
    Block& block = grid[b];
    block.index = {static_cast<unsigned>(b), 0, 0};
    block.shared.reset(static_cast<char*>(std::aligned_alloc(128, shared_size)));
    if (block.shared == nullptr) throw std::bad_alloc();
    std::memset(block.shared.get(), 0xCD, shared_size);
    block.threads = threads;
    block.warps = std::vector<Warp>(static_cast<size_t>(threads / kLanes));
    for (size_t w = 0; w < block.warps.size(); ++w) {
      Warp& warp = block.warps[w];
      warp.block = &block;
      for (int lane = 0; lane < kLanes; ++lane) {
        Thread& thread = warp.threads[static_cast<size_t>(lane)];
        thread.index = {static_cast<unsigned>(w) * kLanes + static_cast<unsigned>(lane), 0, 0};
        thread.warp = &warp;
        thread.lane = lane;
        thread.fiber = context::fiber(std::allocator_arg, stacks[stack++], KeepsStack(),
                                      [&kernel, &thread](context::fiber&& from) {
                                        scheduler = std::move(from);
                                        kernel();
                                        thread.has_returned = true;
                                        ++thread.warp->returned;
                                        --thread.warp->block->threads;
                                        Changed();
                                        return std::move(scheduler);
                                      });
      }
    }
  }
  int idle = 0;
  for (bool any = true; any;) {
    const uint64_t before = changes;
    any = false;
    for (Block& block : grid) {
      for (Warp& warp : block.warps) {
        if (warp.returned == kLanes) continue;
        any = true;
        RunWarp(&warp);
      }
    }
    idle = changes == before ? idle + 1 : 0;
    if (any && idle > kIdleTurns) FailStuck(grid);
  }
}

}  // namespace qtts::emulated
