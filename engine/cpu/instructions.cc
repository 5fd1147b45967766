// SPDX-License-Identifier: LGPL-2.1-or-later
#include "cpu/instructions.h"

#include <atomic>

#include "cpu/vector_targets.h"
// Must follow vector_targets.h.
#include <hwy/targets.h>

#if HWY_ARCH_X86
#include <cpuid.h>
#elif HWY_ARCH_ARM_A64 && defined(__linux__)
#include <sys/auxv.h>
#endif

namespace qtts::cpu {
namespace {

// The units that this CPU has, whatever the Highway target.
struct Units {
  bool avx_vnni = false;
  bool avx512_vnni = false;
  bool neon_dot = false;
};

Units ReadUnits() {
  Units units;
#if HWY_ARCH_X86
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) != 0) {
    const unsigned subleaves = a;
    units.avx512_vnni = (c >> 11 & 1) != 0;
    if (subleaves >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0) units.avx_vnni = (a >> 4 & 1) != 0;
  }
#elif HWY_ARCH_ARM_A64 && defined(__linux__)
  constexpr unsigned long kAsimdDotProducts = 1UL << 20U;  // HWCAP_ASIMDDP, which older headers lack
  units.neon_dot = (getauxval(AT_HWCAP) & kAsimdDotProducts) != 0;
#elif defined(__ARM_FEATURE_DOTPROD)
  units.neon_dot = true;
#endif
  return units;
}

// Returns the units, read once: CPUID is slow on a virtual machine.
const Units& UnitsHere() {
  static const Units units = ReadUnits();
  return units;
}

std::atomic<bool> units_disabled{false};

}  // namespace

std::vector<int64_t> AvailableTargets() {
  // Only targets whose registers the operating system saves.
  std::vector<int64_t> targets = hwy::SupportedAndGeneratedTargets();
  // On ARM, Highway lists NEON only for CPUs with AES, and uses it on all.
  if (targets.empty()) targets.push_back(HWY_STATIC_TARGET);
  return targets;
}

int64_t BestTarget() { return AvailableTargets().front(); }

std::vector<ByteUnit> ByteUnitsOf([[maybe_unused]] int64_t target) {
  std::vector<ByteUnit> units = {ByteUnit::kPortable};
#if HWY_ARCH_X86
  if (target <= HWY_AVX3) {
    if (UnitsHere().avx512_vnni) units.push_back(ByteUnit::kAvx512Vnni);
  } else if (target == HWY_AVX2 && UnitsHere().avx_vnni) {
    units.push_back(ByteUnit::kAvxVnni);
  }
#elif HWY_ARCH_ARM_A64
  if (UnitsHere().neon_dot) units.push_back(ByteUnit::kNeonDot);
#endif
  return units;
}

ByteUnit BestByteUnit(int64_t target) {
  return units_disabled.load(std::memory_order_relaxed) ? ByteUnit::kPortable : ByteUnitsOf(target).back();
}

void DisableByteUnits(bool disabled) { units_disabled.store(disabled, std::memory_order_relaxed); }

std::string InstructionSetName(int64_t target, ByteUnit unit) {
  switch (unit) {
    case ByteUnit::kPortable:
      break;
    case ByteUnit::kAvxVnni:
      return "AVX-VNNI";
    case ByteUnit::kAvx512Vnni:
      return "AVX-512 VNNI";
    case ByteUnit::kNeonDot:
      return "NEON dot product";
  }
  return hwy::TargetName(target);
}

}  // namespace qtts::cpu
