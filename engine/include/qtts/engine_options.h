// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_ENGINE_OPTIONS_H_
#define QTTS_ENGINE_OPTIONS_H_

#include <string>
#include <string_view>

#include "qtts/tokenizer_pattern.h"

// What an engine is asked for and tells of itself, for headers that name an Engine and do not call one: those declare
// the class and include this instead of qtts/engine.h, on which little is to depend.
namespace qtts {

enum class Device { kAuto, kCpu, kCuda };

enum class Precision {
  kAuto,  // BF16 on the GPU, F32 on the CPU
  kBF16,  // BF16 weights and activations, sums in F32: the GPU, and CPUs that multiply BF16
  kF32,   // F32 throughout; slow on the GPU, for checking
  kInt8,  // weights of 8 bits, activations of 16: the CPU only
  kInt4,  // weights of 4 bits, activations of 16: the CPU only
};

// As the user writes it.
constexpr std::string_view PrecisionName(Precision precision) {
  switch (precision) {
    case Precision::kAuto:
      return "auto";
    case Precision::kBF16:
      return "bf16";
    case Precision::kF32:
      return "f32";
    case Precision::kInt8:
      return "int8";
    case Precision::kInt4:
      return "int4";
  }
  return "unknown";
}

// What to choose on the CPU where `precision` is too slow; the same where nothing is faster.
constexpr Precision FasterOnCpu(Precision precision) {
  return precision == Precision::kInt8 || precision == Precision::kInt4 ? Precision::kInt4 : Precision::kInt8;
}

struct EngineOptions {
  std::string model_path;         // folder of a checkpoint as published
  Device device = Device::kAuto;  // kAuto: the GPU when it can hold the model and has `precision`, else the CPU
  Precision precision = Precision::kAuto;
  int cuda_device = -1;  // number of the GPU, as CUDA counts them; -1 = the first that can hold the model
  // CPU threads. 0: as many as are fastest here, by a measurement at load, of those that affinity and cgroup allow.
  int threads = 0;
  // Frames a stream may be ahead of its reader. 25 frames are two seconds.
  int lead_frames = 25;
  TokenizerPattern tokenizer_pattern = TokenizerPattern::kNative;

  bool operator==(const EngineOptions&) const = default;
};

// Utterances of an engine, of all its users together.
struct Occupancy {
  int slots = 0;       // that are spoken at once at most; more wait for their turn, first come, first served
  int free_slots = 0;  // of them
  int waiting = 0;     // utterances without a slot
};

}  // namespace qtts

#endif  // QTTS_ENGINE_OPTIONS_H_
