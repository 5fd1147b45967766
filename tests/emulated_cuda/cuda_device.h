// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TESTS_EMULATED_CUDA_CUDA_DEVICE_H_
#define QTTS_TESTS_EMULATED_CUDA_CUDA_DEVICE_H_

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "thread_grid.h"

// CUDA C++'s own names for code of kernels that the processor's compiler compiles: to be included before it. Threads
// are those of thread_grid.h. Masks are those of whole warps. device/ has the headers of cuda/ that consist of
// instructions, in the same places.
#define QTTS_EMULATED_CUDA
#undef __forceinline__
#undef __grid_constant__
#undef __maxnreg__
#define __forceinline__ inline
#define __grid_constant__
#define __maxnreg__(count)

extern uint3 threadIdx, blockIdx;
extern dim3 gridDim;

template <typename T>
T __shfl_sync(unsigned /*mask*/, T value, int from,
              const qtts::emulated::Place& place = qtts::emulated::Place::current()) {
  return qtts::emulated::Exchange(&value, sizeof(T), place).template Of<T>(from & 31);
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int distance,
                  const qtts::emulated::Place& place = qtts::emulated::Place::current()) {
  return __shfl_sync(mask, value, qtts::emulated::Lane() ^ distance, place);
}
template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned distance,
                   const qtts::emulated::Place& place = qtts::emulated::Place::current()) {
  const int from = qtts::emulated::Lane() + static_cast<int>(distance);
  return __shfl_sync(mask, value, from > 31 ? qtts::emulated::Lane() : from, place);
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned distance,
                 const qtts::emulated::Place& place = qtts::emulated::Place::current()) {
  const int from = qtts::emulated::Lane() - static_cast<int>(distance);
  return __shfl_sync(mask, value, from < 0 ? qtts::emulated::Lane() : from, place);
}
inline unsigned __ballot_sync(unsigned /*mask*/, bool value,
                              const qtts::emulated::Place& place = qtts::emulated::Place::current()) {
  const qtts::emulated::Exchanged all = qtts::emulated::Exchange(&value, sizeof(value), place);
  unsigned ballot = 0;
  for (int lane = 0; lane < 32; ++lane) ballot |= static_cast<unsigned>(all.Of<bool>(lane)) << lane;
  return ballot;
}
inline int __all_sync(unsigned mask, bool value,
                      const qtts::emulated::Place& place = qtts::emulated::Place::current()) {
  if (__ballot_sync(mask, value, place) == ~0U) return 1;
  qtts::emulated::Poll(place);  // most votes that fail are a wait's, for other warps
  return 0;
}
inline int __any_sync(unsigned mask, bool value,
                      const qtts::emulated::Place& place = qtts::emulated::Place::current()) {
  return __ballot_sync(mask, value, place) != 0 ? 1 : 0;
}
template <typename T>
T __reduce_max_sync(unsigned /*mask*/, T value, const qtts::emulated::Place& place = qtts::emulated::Place::current()) {
  const qtts::emulated::Exchanged all = qtts::emulated::Exchange(&value, sizeof(value), place);
  for (int lane = 0; lane < 32; ++lane) value = std::max(value, all.Of<T>(lane));
  return value;
}
template <typename T>
T __reduce_min_sync(unsigned /*mask*/, T value, const qtts::emulated::Place& place = qtts::emulated::Place::current()) {
  const qtts::emulated::Exchanged all = qtts::emulated::Exchange(&value, sizeof(value), place);
  for (int lane = 0; lane < 32; ++lane) value = std::min(value, all.Of<T>(lane));
  return value;
}
inline void __syncwarp(const qtts::emulated::Place& place = qtts::emulated::Place::current()) {
  qtts::emulated::Exchange(nullptr, 0, place);
}
inline void __syncthreads(const qtts::emulated::Place& place = qtts::emulated::Place::current()) {
  qtts::emulated::AwaitBarrier(0, 0, false, place);
}
inline int __syncthreads_or(bool value, const qtts::emulated::Place& place = qtts::emulated::Place::current()) {
  return qtts::emulated::AwaitBarrier(0, 0, value, place) ? 1 : 0;
}
inline void __nanosleep(unsigned /*nanoseconds*/,
                        const qtts::emulated::Place& place = qtts::emulated::Place::current()) {
  qtts::emulated::Poll(place);
}

template <typename T>
T atomicAdd(T* p, T value) {
  const T before = *p;
  *p += value;
  if (value != 0) qtts::emulated::Changed();
  return before;
}
template <typename T>
T atomicOr(T* p, std::type_identity_t<T> value) {
  const T before = *p;
  *p |= value;
  return before;
}
template <typename T>
T __ldg(const T* p) {
  return *p;
}
template <typename T>
T __ldcg(const T* p) {
  return *p;
}

using std::isfinite;
using std::isinf;
using std::isnan;
template <typename A, typename B>
std::common_type_t<A, B> min(A a, B b) {
  return std::min<std::common_type_t<A, B>>(a, b);
}
template <typename A, typename B>
std::common_type_t<A, B> max(A a, B b) {
  return std::max<std::common_type_t<A, B>>(a, b);
}
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline float __fdividef(float a, float b) { return a / b; }
inline float rsqrtf(float a) { return 1 / std::sqrt(a); }
// The C library has functions of these names.
#define __expf(x) std::exp(static_cast<float>(x))
#define __logf(x) std::log(static_cast<float>(x))
inline uint32_t __float_as_uint(float x) { return std::bit_cast<uint32_t>(x); }
inline float __uint_as_float(uint32_t x) { return std::bit_cast<float>(x); }
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline long long __double_as_longlong(double x) { return std::bit_cast<long long>(x); }
inline int __popc(unsigned x) { return std::popcount(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline uint32_t __byte_perm(uint32_t a, uint32_t b, uint32_t selector) {
  const uint64_t bytes = static_cast<uint64_t>(b) << 32 | a;
  uint32_t result = 0;
  for (int i = 0; i < 4; ++i) {
    const uint32_t from = (selector >> (4 * i) & 7) * 8;
    result |= static_cast<uint32_t>(bytes >> from & 0xFF) << (8 * i);
  }
  return result;
}

#endif  // QTTS_TESTS_EMULATED_CUDA_CUDA_DEVICE_H_
