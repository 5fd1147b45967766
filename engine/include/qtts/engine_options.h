// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_ENGINE_OPTIONS_H_
#define QTTS_ENGINE_OPTIONS_H_

#include <string>
#include <string_view>

#include "qtts/tokenizer_pattern.h"

// Options and reported values of an engine. For headers that name Engine without calling it: they declare the class and
// include this header, since few headers should depend on qtts/engine.h.
namespace qtts {

enum class Device { kAuto, kCpu, kCuda };

// A device for users. The options of qtts-tool and the element's enum come from the table below, in its order.
struct DeviceEntry {
  const char* name;  // as users write it; also in the name of its module's file (backend/device_module.h)
  const char* meaning;
};
// Entries by the value of Device.
inline constexpr DeviceEntry kDevices[] = {
    {"auto", "The GPU when it can hold the model, else the CPU"},
    {"cpu", "The CPU"},
    {"cuda", "An NVIDIA GPU"},
};

constexpr std::string_view DeviceName(Device device) { return kDevices[static_cast<size_t>(device)].name; }
// Returns true for a device that is named and has a module of its own.
constexpr bool IsGpu(Device device) { return device != Device::kAuto && device != Device::kCpu; }

enum class Precision {
  kAuto,  // BF16 on the GPU, F32 on the CPU
  kBF16,  // BF16 weights and activations, F32 sums: the GPU, and CPUs with AVX512_BF16
  kF32,   // F32 throughout; slow on the GPU, for comparisons
  kInt8,  // 8-bit weights; on the CPU 16-bit activations, on the GPU BF16
  kInt4,  // 4-bit weights, 16-bit activations: CPU only
};

// Returns the user's spelling.
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

// Precision of the codec's products on a GPU. On the CPU the codec follows `Precision`.
enum class CodecPrecision {
  kExact,  // error of the samples over 100 dB below the signal
  kFast,   // a third of the multiplications; error 59 dB below the signal, as measured with the bundled voice
};

// Returns the user's spelling.
constexpr std::string_view CodecPrecisionName(CodecPrecision precision) {
  return precision == CodecPrecision::kFast ? "fast" : "exact";
}

// Returns the next faster precision on the CPU; `precision` itself if there is none.
constexpr Precision FasterOnCpu(Precision precision) {
  return precision == Precision::kInt8 || precision == Precision::kInt4 ? Precision::kInt4 : Precision::kInt8;
}

// Default and maximum of EngineOptions::voices.
inline constexpr int kDefaultVoices = 64;
inline constexpr int kMostVoices = 4096;

struct EngineOptions {
  std::string model_path;         // folder of a published checkpoint
  Device device = Device::kAuto;  // kAuto: the GPU if it can hold the model and has `precision`, else the CPU
  Precision precision = Precision::kAuto;
  CodecPrecision codec_precision = CodecPrecision::kExact;  // kFast: the GPU only, in BF16
  // Number of the GPU in its driver's order. -1: of the GPUs that can hold the model, Acquire() takes the one with the
  // most free voices, with an engine for each GPU; Load() takes the first.
  int gpu = -1;
  // CPU threads. 0: the fastest number, measured at load, within affinity mask and cgroup quota.
  int threads = 0;
  // Maximum number of frames that a stream is ahead of its reader. 25 frames are two seconds.
  int lead_frames = 25;
  // Maximum number of utterances that speak at once, 1 to kMostVoices; more wait for their turn. Sizes the memory of a
  // GPU: up to kDefaultVoices are as many as it has memory for, more are refused if they do not fit. Changes no bit of
  // any utterance. All users of an engine share its voices: the first one decides (Engine::Acquire()).
  int voices = kDefaultVoices;
  TokenizerPattern tokenizer_pattern = TokenizerPattern::kNative;

  bool operator==(const EngineOptions&) const = default;
};

// Utterances of an engine, over all its users.
struct Occupancy {
  // EngineOptions::voices of the engine's first user, or as many as its GPU has memory for; more utterances wait, first
  // come, first served.
  int slots = 0;
  int free_slots = 0;  // slots not in use, or given back at once when they are needed (Request::parallel_parts)
  int waiting = 0;     // utterances without a slot
  // Pages of a GPU's memory for contexts, and the free ones among them. Estimates: other programs use the GPU too.
  // 0: contexts are not in pages.
  int64_t pages = 0;
  int64_t free_pages = 0;
  // Counts since the engine was loaded: steps, each of which makes one frame of several utterances; these frames; and
  // the time of the steps, idle time not counted.
  uint64_t steps = 0;
  uint64_t step_frames = 0;
  int64_t step_nanoseconds = 0;
  // Utterances whose contexts were moved to the host's memory, and which wait for free pages.
  int parked = 0;
  uint64_t parkings = 0;      // number of such moves since the engine was loaded
  uint64_t device_bytes = 0;  // memory of a GPU that the engine takes; 0: not known
  // Parts of long texts that are made ahead of their turn (Request::parallel_parts). Their slots now, which count as
  // free; and since the engine was loaded, how often one was begun, and how often one was preempted: it gave its slot
  // to another utterance, its frames were lost, and it is begun again. At most as many are preempted as are begun.
  int ahead_slots = 0;
  uint64_t ahead_parts = 0;
  uint64_t preempted_parts = 0;
};

}  // namespace qtts

#endif  // QTTS_ENGINE_OPTIONS_H_
