// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_BASE_ENSURE_MEMORY_H_
#define QTTS_BASE_ENSURE_MEMORY_H_

#include <cstddef>

namespace qtts {

// Throws std::bad_alloc unless there are `bytes` of memory now. To be called before a library that ends the process
// where memory runs out inside it (nlohmann/json allocates in destructors, protocol buffers are not exception-safe):
// with what the library is going to need, which makes that an error in all but a race.
void EnsureMemory(size_t bytes);

}  // namespace qtts

#endif  // QTTS_BASE_ENSURE_MEMORY_H_
