// SPDX-License-Identifier: LGPL-2.1-or-later
#include "runtime/host_memory.h"

#include <cuda_runtime_api.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include "runtime/cuda_error.h"
#include "runtime/device_wait.h"

namespace qtts::cuda {
namespace {

// Size of a huge page on x86-64, and on ARM with pages of 4 KiB; elsewhere a multiple of a page.
constexpr size_t kHugePage = size_t{2} << 20;

Status NoMemory(size_t bytes) {
  return Status::ResourceExhausted("the host has no " + std::to_string(bytes) + " bytes of memory left");
}

size_t PageBytes() { return static_cast<size_t>(std::max(sysconf(_SC_PAGE_SIZE), 1L)); }

// Makes all pages present. False if there is no memory for them.
bool MakePresent(char* data, size_t bytes) {
  // An error means that pages are small, which is slower only.
  (void)madvise(data, bytes, MADV_HUGEPAGE);
#ifdef MADV_POPULATE_WRITE
  if (madvise(data, bytes, MADV_POPULATE_WRITE) == 0) return true;
  if (errno != EINVAL) return false;  // a kernel before 5.14
#endif
  for (size_t i = 0; i < bytes; i += PageBytes()) static_cast<volatile char*>(data)[i] = 0;
  return true;
}

}  // namespace

Result<PresentMemory> PresentMemory::Allocate(size_t bytes) {
  if (bytes > std::numeric_limits<size_t>::max() - 2 * kHugePage) return NoMemory(bytes);
  const size_t page = PageBytes();
  const size_t whole = (std::max<size_t>(bytes, 1) + page - 1) / page * page;
  // More, so that a part of it is aligned.
  void* const all = mmap(nullptr, whole + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (all == MAP_FAILED) return NoMemory(bytes);
  const size_t before = (kHugePage - reinterpret_cast<uintptr_t>(all) % kHugePage) % kHugePage;
  char* const data = static_cast<char*>(all) + before;
  if (before > 0) (void)munmap(all, before);
  (void)munmap(data + whole, kHugePage - before);
  PresentMemory memory;
  memory.memory_ = {data, UnmapMemory{whole}};
  if (!MakePresent(data, whole)) return NoMemory(bytes);
  return memory;
}

void PresentMemory::Leave() { (void)memory_.release(); }

void UnmapMemory::operator()(void* data) const { (void)munmap(data, bytes); }

Result<LockedMemory> LockedMemory::Lock(PresentMemory memory) {
  LockedMemory locked;
  void* const data = memory.data();
  const size_t bytes = memory.bytes();
  const cudaError_t error = cudaHostRegister(data, bytes, cudaHostRegisterDefault);
  if (Succeeds(error)) {
    locked.locked_ = {data, UnlockMemory{std::move(memory)}};
    return locked;
  }
  if (IsFault(error)) return CudaStatus(error, "page-locking memory");
  // Makes room for the driver's.
  memory = PresentMemory();
  QTTS_ASSIGN_OR_RETURN(locked.pinned_, PinnedMemory::Allocate(bytes));
  return locked;
}

// Nothing can be done about an error; a lost device has unlocked everything anyway.
void UnlockMemory::operator()(void* data) {
  if (HangsHere()) {
    memory.Leave();  // the device may still write to it
  } else {
    (void)cudaHostUnregister(data);
  }
}

}  // namespace qtts::cuda
