// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CPU_INSTRUCTIONS_H_
#define QTTS_CPU_INSTRUCTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

// The instructions that kernels use on this CPU: a target of Highway, and a unit of 8-bit products, which Highway's
// targets do not cover. Thread-safe.
namespace qtts::cpu {

// Returns the Highway targets that are compiled and that this CPU has, the best first.
std::vector<int64_t> AvailableTargets();

// Returns the target in use: the first of AvailableTargets(), which tests restrict through Highway.
int64_t BestTarget();

// Instructions for sums of 8-bit products. All give the same integers.
enum class ByteUnit {
  kPortable,    // 16-bit products of the Highway target
  kAvxVnni,     // vpdpbusd of 256 bits, without AVX-512
  kAvx512Vnni,  // vpdpbusd of 512 bits
  kNeonDot,     // sdot
};

// Returns the units of this CPU for kernels that run as `target`, kPortable first.
std::vector<ByteUnit> ByteUnitsOf(int64_t target);

// Returns the last of ByteUnitsOf(target).
ByteUnit BestByteUnit(int64_t target = BestTarget());

// Makes BestByteUnit() return kPortable until it is called with false. For tests and benchmarks.
void DisableByteUnits(bool disabled);

// Returns the name for messages: that of the target, or that of the unit: "AVX2", "AVX-VNNI".
std::string InstructionSetName(int64_t target, ByteUnit unit = ByteUnit::kPortable);

}  // namespace qtts::cpu

#endif  // QTTS_CPU_INSTRUCTIONS_H_
