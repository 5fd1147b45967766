// SPDX-License-Identifier: LGPL-2.1-or-later
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "codec/codec.h"
#include "gpu/random_codec.h"

// Times the GPU codec at the released size on random weights: one frame of n streams as a captured graph.
namespace qtts {
namespace {

constexpr int kWarmUp = 30;
constexpr int kReplays = 100;
// Multiply-adds of a frame at the released size (spec 10), and its weights.
constexpr double kMultiplyAdds = 2.48e9;
constexpr double kWeights = 102e6;

void Check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "codec-bench: %s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

// Terabytes a second, bytes read and written.
double CopyBandwidth(cudaStream_t stream) {
  constexpr size_t kBytes = size_t{1} << 30;
  void* from = nullptr;
  void* to = nullptr;
  Check(cudaMalloc(&from, kBytes), "memory");
  Check(cudaMalloc(&to, kBytes), "memory");
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  Check(cudaEventCreate(&begin), "event");
  Check(cudaEventCreate(&end), "event");
  float best = 1e9F;
  for (int i = 0; i < 6; ++i) {
    Check(cudaEventRecord(begin, stream), "event");
    Check(cudaMemcpyAsync(to, from, kBytes, cudaMemcpyDeviceToDevice, stream), "copy");
    Check(cudaEventRecord(end, stream), "event");
    Check(cudaEventSynchronize(end), "copy");
    float ms = 0;
    Check(cudaEventElapsedTime(&ms, begin, end), "event");
    best = std::min(best, ms);
  }
  Check(cudaFree(from), "memory");
  Check(cudaFree(to), "memory");
  return 2.0 * kBytes / best / 1e9;
}

// What a call reads and writes, on the device.
struct Arrays {
  int32_t* slots = nullptr;
  int32_t* codes = nullptr;
  float* pcm = nullptr;

  Arrays(const cuda::Codec& codec, testing::RandomCodec* random, int n) {
    std::vector<int32_t> all_slots;
    for (int i = 0; i < n; ++i) all_slots.push_back(i);
    const std::vector<int32_t> all_codes = random->Codes(n);
    Check(cudaMalloc(&slots, all_slots.size() * sizeof(int32_t)), "memory");
    Check(cudaMalloc(&codes, all_codes.size() * sizeof(int32_t)), "memory");
    Check(cudaMalloc(&pcm, static_cast<size_t>(n) * static_cast<size_t>(codec.samples_per_frame()) * sizeof(float)),
          "memory");
    Check(cudaMemcpy(slots, all_slots.data(), all_slots.size() * sizeof(int32_t), cudaMemcpyHostToDevice), "copy");
    Check(cudaMemcpy(codes, all_codes.data(), all_codes.size() * sizeof(int32_t), cudaMemcpyHostToDevice), "copy");
  }
  ~Arrays() {
    (void)cudaFree(slots);
    (void)cudaFree(codes);
    (void)cudaFree(pcm);
  }
  Arrays(const Arrays&) = delete;
  Arrays& operator=(const Arrays&) = delete;
};

struct Timing {
  double median = 0;  // ms
  double p95 = 0;
};

Timing Measure(cuda::Codec* codec, testing::RandomCodec* random, int n, cudaStream_t stream) {
  const Arrays arrays(*codec, random, n);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  Check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
  const Status status = codec->Decode(n, arrays.slots, arrays.codes, arrays.pcm, stream);
  Check(cudaStreamEndCapture(stream, &graph), "capture");
  if (!status.ok()) {
    std::fprintf(stderr, "codec-bench: %s\n", status.message().c_str());
    std::exit(1);
  }
  Check(cudaGraphInstantiate(&exec, graph, 0), "graph");
  std::vector<cudaEvent_t> events(kReplays + 1);
  for (cudaEvent_t& event : events) Check(cudaEventCreate(&event), "event");
  for (int i = 0; i < kWarmUp; ++i) Check(cudaGraphLaunch(exec, stream), "launch");
  Check(cudaEventRecord(events[0], stream), "event");
  for (int i = 0; i < kReplays; ++i) {
    Check(cudaGraphLaunch(exec, stream), "launch");
    Check(cudaEventRecord(events[static_cast<size_t>(i) + 1], stream), "event");
  }
  Check(cudaStreamSynchronize(stream), "running");
  std::vector<float> times(kReplays);
  for (size_t i = 0; i < times.size(); ++i) Check(cudaEventElapsedTime(&times[i], events[i], events[i + 1]), "event");
  std::sort(times.begin(), times.end());
  for (cudaEvent_t event : events) Check(cudaEventDestroy(event), "event");
  Check(cudaGraphExecDestroy(exec), "graph");
  Check(cudaGraphDestroy(graph), "graph");
  return {times[kReplays / 2], times[kReplays * 95 / 100]};
}

int Main(int argc, char** argv) {
  int most = 256;
  bool once = false;  // three frames of `most` streams without a graph, for a profiler
  bool split_inputs = true;
  bool split_weights = true;
  bool given = false;
  testing::CodecShape shape = testing::CodecShape::Released();
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--once") == 0) {
      once = true;
    } else if (std::strncmp(argv[i], "--planes=", 9) == 0 && std::strlen(argv[i]) == 11) {
      given = true;
      split_inputs = argv[i][9] == '2';
      split_weights = argv[i][10] == '2';
    } else if (std::strncmp(argv[i], "--layers=", 9) == 0) {
      shape.layers = std::atoi(argv[i] + 9);
    } else if (std::atoi(argv[i]) > 0) {
      most = std::atoi(argv[i]);
    } else {
      std::fprintf(stderr,
                   "usage: codec-bench [--once] [--planes=11|21|22 (inputs, weights)] [--layers=N] [most streams]\n");
      return 2;
    }
  }
  cudaStream_t stream = nullptr;
  Check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  testing::RandomCodec random(shape, 1);
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  Check(cudaEventCreate(&begin), "event");
  Check(cudaEventCreate(&end), "event");
  Check(cudaEventRecord(begin, stream), "event");
  const cuda::CodecArithmetic arithmetic{split_inputs, split_weights};
  auto codec = given ? cuda::Codec::CreateWith(random.config(), random.weights(), arithmetic, arithmetic, most, most)
                     : cuda::Codec::Create(random.config(), random.weights(), cuda::CodecPrecision::kFast, most, most);
  if (!codec.ok()) {
    std::fprintf(stderr, "codec-bench: %s\n", codec.status().message().c_str());
    return 1;
  }
  for (int i = 0; i < most; ++i) {
    if (const Status status = (*codec)->Reset(i, stream); !status.ok()) {
      std::fprintf(stderr, "codec-bench: %s\n", status.message().c_str());
      return 1;
    }
  }
  Check(cudaEventRecord(end, stream), "event");
  Check(cudaEventSynchronize(end), "loading");
  float load = 0;
  Check(cudaEventElapsedTime(&load, begin, end), "event");
  if (once) {
    const Arrays arrays(**codec, &random, most);
    for (int i = 0; i < 3; ++i) {
      if (const Status status = (*codec)->Decode(most, arrays.slots, arrays.codes, arrays.pcm, stream); !status.ok()) {
        std::fprintf(stderr, "codec-bench: %s\n", status.message().c_str());
        return 1;
      }
    }
    Check(cudaStreamSynchronize(stream), "running");
    return 0;
  }
  const double bandwidth = CopyBandwidth(stream);
  const double planes = given && !split_weights ? 1 : 2;  // both are the default
  std::printf("load %.0f ms, %.0f MB on the device for %d streams, copies %.2f TB/s\n", load,
              static_cast<double>((*codec)->device_bytes()) / 1e6, most, bandwidth);
  std::printf("%7s %10s %10s %12s %12s %14s\n", "streams", "ms p50", "ms p95", "us/stream", "weights ms", "TFLOP/s");
  for (int n = 1; n <= most; n *= 2) {
    const Timing t = Measure(codec->get(), &random, n, stream);
    std::printf("%7d %10.4f %10.4f %12.2f %12.4f %14.1f\n", n, t.median, t.p95, t.median * 1e3 / n,
                kWeights * 2 * planes / bandwidth / 1e9, 2 * kMultiplyAdds * n / t.median / 1e9);
  }
  return 0;
}

}  // namespace
}  // namespace qtts

int main(int argc, char** argv) { return qtts::Main(argc, argv); }
