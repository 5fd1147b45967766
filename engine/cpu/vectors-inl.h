// SPDX-License-Identifier: LGPL-2.1-or-later
// Vectors of F32 for kernels. Included by each of them once for every target, after <hwy/foreach_target.h>.
#if defined(QTTS_CPU_VECTORS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QTTS_CPU_VECTORS_INL_H_
#undef QTTS_CPU_VECTORS_INL_H_
#else
#define QTTS_CPU_VECTORS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>
#include <cstring>

#include "cpu/kernels.h"

HWY_BEFORE_NAMESPACE();
namespace qtts::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
using V = hn::Vec<F32>;

// Number of lanes as a constant: the tile shapes depend on it.
constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(F32()));
static_assert(kPanel % kLanes == 0, "a panel holds whole vectors");

// Loads stored weights as an F32 vector.
HWY_INLINE V LoadWeights(const float* p) { return hn::LoadU(F32(), p); }
HWY_INLINE V LoadWeights(const hwy::float16_t* p) {
  return hn::PromoteTo(F32(), hn::LoadU(hn::Rebind<hwy::float16_t, F32>(), p));
}
HWY_INLINE V LoadWeights(const hwy::bfloat16_t* p) {
  return hn::PromoteTo(F32(), hn::LoadU(hn::Rebind<hwy::bfloat16_t, F32>(), p));
}

// Loads the first n (less than a vector) elements of p, then zeros. Reads nothing beyond them.
template <typename T>
HWY_INLINE V LoadPart(const T* p, int64_t n) {
  alignas(64) T buffer[kLanes] = {};
  memcpy(buffer, p, static_cast<size_t>(n) * sizeof(T));
  return LoadWeights(buffer);
}

HWY_INLINE void StorePart(V v, float* p, int64_t n) {
  alignas(64) float buffer[kLanes];
  hn::StoreU(v, F32(), buffer);
  memcpy(p, buffer, static_cast<size_t>(n) * sizeof(float));
}

}  // namespace qtts::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // QTTS_CPU_VECTORS_INL_H_
