// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_BASE_ENSURE_MEMORY_H_
#define QTTS_BASE_ENSURE_MEMORY_H_

#include <cstddef>

namespace qtts {

// Memory that suffices for a call of GLib on little data, such as a checksum or a match of a regular expression.
constexpr size_t kSmallCallBytes = size_t{64} << 10U;

// Throws std::bad_alloc unless `bytes` can be allocated now. Call it before a library that aborts when memory runs out
// inside it (GLib does, nlohmann/json allocates in destructors, protocol buffers are not exception-safe), with the
// memory that the library will need. Lack of memory is then an error, except in a race.
void EnsureMemory(size_t bytes);

}  // namespace qtts

#endif  // QTTS_BASE_ENSURE_MEMORY_H_
