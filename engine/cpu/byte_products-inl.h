// SPDX-License-Identifier: LGPL-2.1-or-later
// Sums of 8-bit products. Included by kernels once for every target, after <hwy/foreach_target.h>.
#if defined(QTTS_CPU_BYTE_PRODUCTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QTTS_CPU_BYTE_PRODUCTS_INL_H_
#undef QTTS_CPU_BYTE_PRODUCTS_INL_H_
#else
#define QTTS_CPU_BYTE_PRODUCTS_INL_H_
#endif

#include <array>

#include "cpu/instructions.h"
#include "cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qtts::cpu::HWY_NAMESPACE {

using I32 = hn::RebindToSigned<F32>;
using U32 = hn::RebindToUnsigned<F32>;
using VI = hn::Vec<I32>;

// True if the current target includes AVX-512, AVX2 or NEON. Newer Highway versions have several targets of each. Lower
// bits are better targets.
#define QTTS_AVX512 (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3)
#define QTTS_AVX2 (HWY_ARCH_X86 && HWY_TARGET == HWY_AVX2)
#define QTTS_NEON (HWY_ARCH_ARM && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128)

// Each of the following is a way to add, to each 32-bit lane, the products of its four weights and its four inputs. The
// weights are stored as unsigned bytes, plus 128. kSignedWeights tells if OfWeights() subtracts the 128; if not, the
// sums still contain 128 times the sum of the inputs. All give the same integers.

// With the instructions of the target.
struct PortableBytes {
  static constexpr ByteUnit kUnit = ByteUnit::kPortable;
  using Sum = VI;
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
  // Bytes widened to 16 bits, split into even and odd positions. One instruction sums the products of a pair.
  static constexpr bool kSignedWeights = false;
  struct Weights {
    VI even, odd;
  };
  using Inputs = Weights;
  using I16 = hn::Repartition<int16_t, I32>;
  using U16 = hn::Repartition<uint16_t, I32>;
  static HWY_INLINE Weights OfWeights(VI v) {
    const auto w = hn::BitCast(U16(), v);
    return {hn::BitCast(I32(), hn::And(w, hn::Set(U16(), 0xFF))), hn::BitCast(I32(), hn::ShiftRight<8>(w))};
  }
  static HWY_INLINE Inputs OfInputs(VI v) {
    const auto x = hn::BitCast(I16(), v);
    return {hn::BitCast(I32(), hn::ShiftRight<8>(hn::ShiftLeft<8>(x))), hn::BitCast(I32(), hn::ShiftRight<8>(x))};
  }
  static HWY_INLINE VI PairProducts(VI a, VI b) {
#if QTTS_AVX512
    return VI{_mm512_madd_epi16(a.raw, b.raw)};
#elif QTTS_AVX2
    return VI{_mm256_madd_epi16(a.raw, b.raw)};
#else
    return VI{_mm_madd_epi16(a.raw, b.raw)};
#endif
  }
  static HWY_INLINE VI Add(VI sum, const Weights& w, const Inputs& x) {
    return hn::Add(sum, hn::Add(PairProducts(w.even, x.even), PairProducts(w.odd, x.odd)));
  }
#elif QTTS_NEON
  static constexpr bool kSignedWeights = true;
  using Weights = int8x16_t;
  using Inputs = int8x16_t;
  static HWY_INLINE Weights OfWeights(VI v) {
    return vreinterpretq_s8_u8(veorq_u8(vreinterpretq_u8_s32(v.raw), vdupq_n_u8(0x80)));
  }
  static HWY_INLINE Inputs OfInputs(VI v) { return vreinterpretq_s8_s32(v.raw); }
  static HWY_INLINE VI Add(VI sum, Weights w, Inputs x) {
    const int32x4_t low = vpaddlq_s16(vmull_s8(vget_low_s8(w), vget_low_s8(x)));
    const int32x4_t high = vpaddlq_s16(vmull_s8(vget_high_s8(w), vget_high_s8(x)));
#if HWY_ARCH_ARM_A64
    return VI(vaddq_s32(sum.raw, vpaddq_s32(low, high)));
#else
    return VI(vaddq_s32(sum.raw, vcombine_s32(vpadd_s32(vget_low_s32(low), vget_high_s32(low)),
                                              vpadd_s32(vget_low_s32(high), vget_high_s32(high)))));
#endif
  }
#else
  static constexpr bool kSignedWeights = false;
  using Weights = std::array<VI, 4>;
  using Inputs = std::array<VI, 4>;
  static HWY_INLINE Weights OfWeights(VI v) {
    const VI byte = hn::Set(I32(), 0xFF);
    return {hn::And(v, byte), hn::And(hn::ShiftRight<8>(v), byte), hn::And(hn::ShiftRight<16>(v), byte),
            hn::And(hn::ShiftRight<24>(v), byte)};
  }
  static HWY_INLINE Inputs OfInputs(VI v) {
    return {hn::ShiftRight<24>(hn::ShiftLeft<24>(v)), hn::ShiftRight<24>(hn::ShiftLeft<16>(v)),
            hn::ShiftRight<24>(hn::ShiftLeft<8>(v)), hn::ShiftRight<24>(v)};
  }
  static HWY_INLINE VI Add(VI sum, const Weights& w, const Inputs& x) {
    for (size_t i = 0; i < 4; ++i) sum = hn::Add(sum, hn::Mul(w[i], x[i]));
    return sum;
  }
#endif
};

// With the unit of 8-bit products that a CPU of this target may have; PortableBytes if there is none. Inline assembly:
// Highway has no target with just these instructions, and compilers move the sums between registers.
#if QTTS_AVX512 || QTTS_AVX2
struct UnitBytes {
  static constexpr ByteUnit kUnit = QTTS_AVX512 ? ByteUnit::kAvx512Vnni : ByteUnit::kAvxVnni;
  static constexpr bool kSignedWeights = false;
  using Sum = VI;
  using Weights = VI;
  using Inputs = VI;
  static HWY_INLINE VI OfWeights(VI v) { return v; }
  static HWY_INLINE VI OfInputs(VI v) { return v; }
  static HWY_INLINE VI Add(VI sum, VI w, VI x) {
#if QTTS_AVX512
    asm("vpdpbusd %2, %1, %0" : "+v"(sum.raw) : "v"(w.raw), "v"(x.raw));
#else
    asm("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum.raw) : "x"(w.raw), "x"(x.raw));
#endif
    return sum;
  }
};
#elif QTTS_NEON && HWY_ARCH_ARM_A64
struct UnitBytes {
  static constexpr ByteUnit kUnit = ByteUnit::kNeonDot;
  static constexpr bool kSignedWeights = true;
  using Sum = VI;
  using Weights = int8x16_t;
  using Inputs = int8x16_t;
  static HWY_INLINE Weights OfWeights(VI v) { return PortableBytes::OfWeights(v); }
  static HWY_INLINE Inputs OfInputs(VI v) { return PortableBytes::OfInputs(v); }
  static HWY_INLINE VI Add(VI sum, Weights w, Inputs x) {
    // sdot %0.4s, %1.16b, %2.16b. In numbers: assemblers refuse the mnemonic in code for CPUs that may lack it.
    asm(".irp i, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31\n\t"
        ".set .Lqtts_v\\i, \\i\n\t"
        ".endr\n\t"
        ".inst 0x4e809400 | .Lqtts_%2 << 16 | .Lqtts_%1 << 5 | .Lqtts_%0"
        : "+w"(sum.raw)
        : "w"(w), "w"(x));
    return sum;
  }
};
#else
using UnitBytes = PortableBytes;
#endif

}  // namespace qtts::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // QTTS_CPU_BYTE_PRODUCTS_INL_H_
