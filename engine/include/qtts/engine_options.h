// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_ENGINE_OPTIONS_H_
#define QTTS_ENGINE_OPTIONS_H_

#include <string>

#include "qtts/tokenizer_pattern.h"

// What an engine is asked for and tells of itself, for headers that name an Engine and do not call one: those declare
// the class and include this instead of qtts/engine.h, on which little is to depend.
namespace qtts {

enum class Device { kAuto, kCpu, kCuda };

enum class Precision {
  kAuto,  // BF16 on the GPU, F32 on the CPU
  kBF16,  // BF16 weights and activations, sums in F32: the GPU only
  kF32,   // F32 throughout; slow on the GPU, for checking
};

struct EngineOptions {
  std::string model_path;         // folder of a checkpoint as published
  Device device = Device::kAuto;  // kAuto: the GPU when it can hold the model, else the CPU
  Precision precision = Precision::kAuto;
  int cuda_device = -1;  // number of the GPU, as CUDA counts them; -1 = the first that can hold the model
  int threads = 0;       // CPU worker threads; 0 = one per core
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
