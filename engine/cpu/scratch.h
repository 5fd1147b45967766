// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CPU_SCRATCH_H_
#define QTTS_CPU_SCRATCH_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace qtts::cpu {

// Grows `buffer` to at least `size` elements and returns its data. The buffer is reused from call to call and never
// shrinks; elements beyond its old size are undefined. May throw std::bad_alloc.
template <typename T>
T* GrowScratch(std::vector<T>* buffer, int64_t size) {
  if (buffer->size() < static_cast<size_t>(size)) buffer->resize(static_cast<size_t>(size));
  return buffer->data();
}

}  // namespace qtts::cpu

#endif  // QTTS_CPU_SCRATCH_H_
