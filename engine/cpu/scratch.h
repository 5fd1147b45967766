// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CPU_SCRATCH_H_
#define QTTS_CPU_SCRATCH_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace qtts::cpu {

// Room for `size` elements in a buffer that is kept from call to call: it never shrinks, and contents beyond what was
// there are undefined. May throw std::bad_alloc.
template <typename T>
T* Room(std::vector<T>* buffer, int64_t size) {
  if (buffer->size() < static_cast<size_t>(size)) buffer->resize(static_cast<size_t>(size));
  return buffer->data();
}

}  // namespace qtts::cpu

#endif  // QTTS_CPU_SCRATCH_H_
