// SPDX-License-Identifier: LGPL-2.1-or-later
#include "base/ensure_memory.h"

#include <new>

namespace qtts {

void EnsureMemory(size_t bytes) {
  void* volatile memory = ::operator new(bytes);  // volatile: compilers remove unused allocations
  ::operator delete(memory);
}

}  // namespace qtts
