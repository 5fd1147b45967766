// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CPU_VECTOR_TARGETS_H_
#define QTTS_CPU_VECTOR_TARGETS_H_

// The instruction sets that Highway compiles kernels for. Include this before <hwy/foreach_target.h>.
//
// Tiles are arrays of vectors, so the vector size must be a compile-time constant. SSSE3 is left out: it gains nothing
// over the plain fallback on machines in use today.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)

#endif  // QTTS_CPU_VECTOR_TARGETS_H_
