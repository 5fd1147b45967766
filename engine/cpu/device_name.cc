// SPDX-License-Identifier: LGPL-2.1-or-later
#include "cpu/device_name.h"

#include "cpu/instructions.h"

namespace qtts::cpu {

std::string DeviceNameOf(Arithmetic arithmetic, int threads) {
  std::string name = "cpu (";
  switch (arithmetic) {
    case Arithmetic::kF32:
      name += InstructionSetName(BestTarget());
      break;
    case Arithmetic::kBF16:
      name += InstructionSetName(BestTarget()) + ", bf16";
      break;
    case Arithmetic::kInt8:
      name += InstructionSetName(BestTarget(), BestByteUnit()) + ", int8";
      break;
    case Arithmetic::kInt4:
      name += InstructionSetName(BestTarget(), BestByteUnit()) + ", int4";
      break;
  }
  return name + ", " + std::to_string(threads) + (threads == 1 ? " thread)" : " threads)");
}

}  // namespace qtts::cpu
