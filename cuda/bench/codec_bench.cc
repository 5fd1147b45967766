// SPDX-License-Identifier: LGPL-2.1-or-later
#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "codec/codec.h"
#include "codec_frames.h"
#include "codec_tables.h"
#include "gpu/random_codec.h"
#include "runtime/cuda_error.h"
#include "runtime/device_memory.h"

// Times the GPU codec at the released size on random weights: one frame of n streams as a captured graph; with --tiles
// each of its products in every kernel that can take it, with --chosen only in the one that the codec takes; or with
// --table the fastest ones, as rows of codec/tile_table.cc; with --table=whole those with which a whole frame is
// fastest. --streams and --rows (columns of a stream) measure a part of them.
namespace qtts {
namespace {

constexpr const char* kUsage =
    "usage: codec-bench [--once | --tiles | --chosen | --table | --table=whole] [--streams=N,...] [--rows=N,...]\n"
    "                   [--planes=22 (exact) | --planes=11 (fast)] [--layers=N] [most streams]\n"
    "  --table        the fastest kernel of each product alone, as rows of codec/tile_table.cc\n"
    "  --table=whole  the kernels with which a whole frame is fastest: changes one kind of product at a time,\n"
    "                 beginning with the card's table\n";

enum class Task { kFrames, kOnce, kTiles, kTable, kWholeTable };

struct Options {
  Task task = Task::kFrames;
  int most = 256;
  Selection selection;
  cuda::CodecPrecision precision = cuda::CodecPrecision::kExact;
  testing::CodecShape shape = testing::CodecShape::Released();
};

// Returns the numbers of a list as in 64,256, ascending; none if one is wrong.
std::vector<int> NumbersOf(const char* list) {
  std::vector<int> numbers;
  for (const char* at = list; *at != '\0';) {
    char* end = nullptr;
    const long number = std::strtol(at, &end, 10);
    if (end == at || number < 1 || number > 4096) return {};
    numbers.push_back(static_cast<int>(number));
    at = *end == ',' ? end + 1 : end;
  }
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

// Returns false if `argument` is none.
bool Take(const char* argument, Options* options) {
  const auto is = [&](const char* name) { return std::strcmp(argument, name) == 0; };
  const auto value = [&](const char* name) {
    return std::strncmp(argument, name, std::strlen(name)) == 0 ? argument + std::strlen(name) : nullptr;
  };
  constexpr std::pair<const char*, Task> kTasks[] = {{"--once", Task::kOnce},
                                                     {"--tiles", Task::kTiles},
                                                     {"--chosen", Task::kTiles},
                                                     {"--table", Task::kTable},
                                                     {"--table=whole", Task::kWholeTable}};
  for (const auto& [name, task] : kTasks) {
    if (!is(name)) continue;
    options->task = task;
    options->selection.chosen = is("--chosen");
    return true;
  }
  if (is("--planes=11") || is("--planes=22")) {
    options->precision = is("--planes=11") ? cuda::CodecPrecision::kFast : cuda::CodecPrecision::kExact;
    return true;
  }
  if (const char* const list = value("--streams="); list != nullptr) {
    options->selection.streams = NumbersOf(list);
    return !options->selection.streams.empty();
  }
  if (const char* const list = value("--rows="); list != nullptr) {
    options->selection.rows = NumbersOf(list);
    return !options->selection.rows.empty();
  }
  const char* const layers = value("--layers=");
  int* const number = layers != nullptr ? &options->shape.layers : &options->most;
  const std::vector<int> numbers = NumbersOf(layers != nullptr ? layers : argument);
  if (numbers.size() != 1) return false;
  *number = numbers[0];
  return true;
}

Result<std::vector<float>> SortedTimes(int launches, cudaStream_t stream, const std::function<Status()>& launch) {
  QTTS_ASSIGN_OR_RETURN(std::vector<float> times, TimesOf(launches, stream, launch));
  std::sort(times.begin(), times.end());
  return times;
}

// Returns the terabytes a second of a copy, bytes read and written.
Result<double> CopyBandwidth(cudaStream_t stream) {
  constexpr size_t kBytes = size_t{1} << 30;
  QTTS_ASSIGN_OR_RETURN(const cuda::DeviceMemory from, cuda::DeviceMemory::Allocate(kBytes));
  QTTS_ASSIGN_OR_RETURN(const cuda::DeviceMemory to, cuda::DeviceMemory::Allocate(kBytes));
  QTTS_ASSIGN_OR_RETURN(const std::vector<float> times, SortedTimes(6, stream, [&] {
                          return cuda::CudaStatus(
                              cudaMemcpyAsync(to.data(), from.data(), kBytes, cudaMemcpyDeviceToDevice, stream),
                              "copying");
                        }));
  return 2.0 * kBytes / times.front() / 1e9;
}

Status MeasureFrame(cuda::Codec* codec, testing::RandomCodec* random, int n, double weights_ms, cudaStream_t stream) {
  constexpr int kWarmUp = 30;
  constexpr int kReplays = 100;
  constexpr double kMultiplyAdds = 2.48e9;  // of a frame at the released size (spec 10)
  QTTS_ASSIGN_OR_RETURN(const Arrays arrays, Arrays::Create(*codec, random, n));
  QTTS_ASSIGN_OR_RETURN(const cuda::Graph graph,
                        cuda::Graph::Capture(stream, [&] { return arrays.Decode(codec, n, stream); }));
  for (int i = 0; i < kWarmUp; ++i) QTTS_RETURN_IF_ERROR(graph.Launch(stream));
  QTTS_ASSIGN_OR_RETURN(const std::vector<float> times,
                        SortedTimes(kReplays, stream, [&] { return graph.Launch(stream); }));
  const double median = times[kReplays / 2];
  std::printf("%7d %10.4f %10.4f %12.2f %12.4f %14.1f\n", n, median, times[kReplays * 95 / 100], median * 1e3 / n,
              weights_ms, 2 * kMultiplyAdds * n / median / 1e9);
  return Status::Ok();
}

// Prints the times of frames of 1, 2, 4 … streams.
Status PrintFrames(const Options& options, testing::RandomCodec* random, cudaStream_t stream) {
  constexpr double kWeights = 102e6;  // at the released size
  std::unique_ptr<cuda::Codec> codec;
  QTTS_ASSIGN_OR_RETURN(const std::vector<float> load, TimesOf(1, stream, [&]() -> Status {
                          QTTS_ASSIGN_OR_RETURN(codec, LoadCodec(*random, options.precision, options.most, stream));
                          return Status::Ok();
                        }));
  QTTS_ASSIGN_OR_RETURN(const double bandwidth, CopyBandwidth(stream));
  const double planes = options.precision == cuda::CodecPrecision::kFast ? 1 : 2;
  std::printf("load %.0f ms, %.0f MB on the device for %d streams, copies %.2f TB/s\n", load[0],
              static_cast<double>(codec->device_bytes()) / 1e6, options.most, bandwidth);
  std::printf("%7s %10s %10s %12s %12s %14s\n", "streams", "ms p50", "ms p95", "us/stream", "weights ms", "TFLOP/s");
  for (int n = 1; n <= options.most; n *= 2) {
    QTTS_RETURN_IF_ERROR(MeasureFrame(codec.get(), random, n, kWeights * 2 * planes / bandwidth / 1e9, stream));
  }
  return Status::Ok();
}

// Runs three frames without a graph, for a profiler.
Status RunFrames(const Options& options, testing::RandomCodec* random, cudaStream_t stream) {
  QTTS_ASSIGN_OR_RETURN(const auto codec, LoadCodec(*random, options.precision, options.most, stream));
  QTTS_ASSIGN_OR_RETURN(const Arrays arrays, Arrays::Create(*codec, random, options.most));
  for (int i = 0; i < 3; ++i) QTTS_RETURN_IF_ERROR(arrays.Decode(codec.get(), options.most, stream));
  return cuda::CudaStatus(cudaStreamSynchronize(stream), "running");
}

Status Run(Options options) {
  QTTS_ASSIGN_OR_RETURN(const cuda::Stream stream, cuda::Stream::Create());
  testing::RandomCodec random(options.shape, 1);
  std::vector<int>& streams = options.selection.streams;
  switch (options.task) {
    case Task::kFrames:
      return PrintFrames(options, &random, stream.get());
    case Task::kOnce:
      return RunFrames(options, &random, stream.get());
    case Task::kTiles:
      if (streams.empty()) {
        for (int n = 1; n <= options.most; n *= 4) streams.push_back(n);
      }
      return PrintTiles(random, options.precision, options.selection, stream.get());
    case Task::kTable:
      if (streams.empty()) streams = {1, 2, 4, 8, 16, 32, 64, 96, 128, 160, 192, 224, 256};
      return PrintTable(random, options.precision, options.selection, stream.get());
    case Task::kWholeTable:
      if (streams.empty()) streams = {options.most};
      return PrintWholeTable(&random, options.precision, std::max(options.most, streams.back()), options.selection,
                             stream.get());
  }
  return Status::Ok();
}

int Main(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    if (Take(argv[i], &options)) continue;
    std::fputs(kUsage, stderr);
    return 2;
  }
  const Status status = Run(std::move(options));
  if (!status.ok()) std::fprintf(stderr, "codec-bench: %s\n", status.message().c_str());
  return status.ok() ? 0 : 1;
}

}  // namespace
}  // namespace qtts

int main(int argc, char** argv) { return qtts::Main(argc, argv); }
