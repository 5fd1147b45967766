// SPDX-License-Identifier: LGPL-2.1-or-later
// qtts-bench: how fast the GPU speaks, by parts and whole.
#include <cuda_runtime_api.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "codec/codec.h"
#include "cuda_backend.h"
#include "device_choice.h"
#include "golden/generator/random_checkpoint.h"
#include "language_model.h"
#include "runtime/device_memory.h"

namespace {

using namespace qtts;        // NOLINT: a program of one file
using namespace qtts::cuda;  // NOLINT

constexpr std::string_view kUsage =
    "usage: qtts-bench (--model FOLDER | --random 0.6b|1.7b) [OPTION]...\n"
    "  --model FOLDER   a checkpoint\n"
    "  --random SIZE    random weights of a released size (or of any preset of qtts-random-checkpoint), written to a\n"
    "                   temporary folder\n"
    "  --f32            F32 arithmetic, for checking; slow\n"
    "  --int8           weights of 8 bits\n"
    "  --path PATH      graph, persistent or both (default: the one that is used)\n"
    "  --pace N,AHEAD   of the persistent kernel's weights, in units of 16 KiB: copies in flight on an SM, and how "
    "far\n"
    "                   ahead of them they are prefetched into L2, 0: not at all (default: the card's)\n"
    "  --blocks N       thread blocks of the persistent kernel at most, in its form for any number of SMs\n"
    "  --products KIND  own, warpgroup or cublaslt: of 64 rows and more (default: those that are used)\n"
    "  --prompt-rows N  rows of a prompt that go through the talker together, 64 to 512, a multiple of 32 (default "
    "64)\n"
    "  --codec-precision exact|fast  (default exact)\n"
    "  --no-overlap     kernels do not start before their predecessor's end\n"
    "  --no-part        the codec of many streams is not confined to a part of the SMs\n"
    "  --only PART      language-model, codec, whole or parking: measures that alone\n"
    "  --voices N       streams of the last measurement of whole frames, up to 4096 (default 64)\n"
    "  --context N      positions of each of these streams at the beginning (default 20)\n"
    "  --scores         measures frames with scores of the text beside those without, in turns\n"
    "  --frames N       frames of each measurement (default 50)\n"
    "  --utterances N   utterances for the time to the first PCM (default 200)\n"
    "  --soak N         N short utterances in a row instead of all else: does memory grow, does latency drift\n"
    "  --json FILE      all figures, for programs\n";

using Clock = std::chrono::steady_clock;

double Milliseconds(Clock::duration d) { return std::chrono::duration<double, std::milli>(d).count(); }

double Percentile(std::vector<double> values, double p) {
  std::sort(values.begin(), values.end());
  const double at = p * static_cast<double>(values.size() - 1);
  return values[static_cast<size_t>(at + 0.5)];
}

struct Options {
  std::string model, random, json, only;
  bool f32 = false;
  bool int8 = false;
  bool overlap = true;
  bool codec_in_part = true;
  bool scores = false;
  std::vector<FramePath> paths = {FramePath::kBest};
  ManyRowsProducts products = CudaOptions().products;
  std::optional<PaceNumbers> pace;
  std::optional<int> blocks;
  CodecPrecision codec_precision = CodecPrecision::kExact;
  int voices = kMaxRows;
  int context = 20;
  int prompt_rows = kMaxRows;
  int frames = 50;
  int utterances = 200;
  int soak = 0;
};

// Figures in order, printed as a table and written as JSON.
class Report {
 public:
  void Add(const std::string& name, double value, const char* unit) {
    std::printf("%-58s %12.3f %s\n", name.c_str(), value, unit);
    std::fflush(stdout);
    json_ += (json_.empty() ? "" : ",\n") + ("  \"" + name + " [" + unit + "]\": ") + std::to_string(value);
  }
  void Write(const std::string& file) const {
    if (!file.empty()) std::ofstream(file) << "{\n" << json_ << "\n}\n";
  }

 private:
  std::string json_;
};

// Bytes read and written per second by a large copy on the device, in TB/s.
Result<double> CopyBandwidth(cudaStream_t stream) {
  constexpr size_t kBytes = size_t{2} << 30;
  QTTS_ASSIGN_OR_RETURN(const DeviceMemory from, DeviceMemory::AllocateZeroed(kBytes));
  QTTS_ASSIGN_OR_RETURN(const DeviceMemory to, DeviceMemory::AllocateZeroed(kBytes));
  QTTS_ASSIGN_OR_RETURN(const Event begin, Event::Create(true));
  QTTS_ASSIGN_OR_RETURN(const Event end, Event::Create(true));
  float best = 1e9F;
  for (int i = 0; i < 8; ++i) {
    QTTS_RETURN_IF_CUDA_ERROR(cudaEventRecord(begin.get(), stream), "timing");
    QTTS_RETURN_IF_CUDA_ERROR(cudaMemcpyAsync(to.data(), from.data(), kBytes, cudaMemcpyDeviceToDevice, stream),
                              "copy");
    QTTS_RETURN_IF_CUDA_ERROR(cudaEventRecord(end.get(), stream), "timing");
    QTTS_RETURN_IF_CUDA_ERROR(cudaEventSynchronize(end.get()), "copy");
    float ms = 0;
    QTTS_RETURN_IF_CUDA_ERROR(cudaEventElapsedTime(&ms, begin.get(), end.get()), "timing");
    best = std::min(best, ms);
  }
  return 2.0 * static_cast<double>(kBytes) / best / 1e9;
}

// A prompt as long as `rows`, of which the first 9 are those of a voice.
Prompt BenchPrompt(const ModelConfig& config, int rows, std::mt19937& random) {
  Prompt prompt;
  prompt.pad_text_id = config.tts_pad_token_id;
  for (int i = 0; i < rows; ++i) {
    const auto text = static_cast<int32_t>(i < 9 ? static_cast<unsigned>(i)
                                                 : random() % static_cast<unsigned>(config.talker.text_vocab_size));
    prompt.rows.push_back({text, {config.talker.codec_pad_id}});
  }
  prompt.constant_rows = static_cast<size_t>(std::min(9, rows - 1));
  return prompt;
}

// Scores of the row at `position` against a text from the voice's rows on, as they are asked for while it is spoken.
TextWindow BenchWindow(int position) {
  constexpr int kTextBegin = 9;
  return {kTextBegin, position + 1, std::max(kTextBegin, position + 1 - kTextScores)};
}

// Times of `launches` of a graph on the device; prepare(i) comes before the i-th.
Result<std::vector<double>> GraphTimes(const Graph& graph, cudaStream_t stream, int launches,
                                       const std::function<void(int)>& prepare) {
  QTTS_ASSIGN_OR_RETURN(const Event begin, Event::Create(true));
  QTTS_ASSIGN_OR_RETURN(const Event end, Event::Create(true));
  std::vector<double> times;
  for (int i = 0; i < launches; ++i) {
    prepare(i);
    QTTS_RETURN_IF_CUDA_ERROR(cudaEventRecord(begin.get(), stream), "timing");
    QTTS_RETURN_IF_ERROR(graph.Launch(stream));
    QTTS_RETURN_IF_CUDA_ERROR(cudaEventRecord(end.get(), stream), "timing");
    QTTS_RETURN_IF_CUDA_ERROR(cudaEventSynchronize(end.get()), "a frame");
    float ms = 0;
    QTTS_RETURN_IF_CUDA_ERROR(cudaEventElapsedTime(&ms, begin.get(), end.get()), "timing");
    times.push_back(ms);
  }
  return times;
}

// Their median.
Result<double> MedianGraph(const Graph& graph, cudaStream_t stream, int launches) {
  QTTS_ASSIGN_OR_RETURN(const std::vector<double> times, GraphTimes(graph, stream, launches, [](int) {}));
  return Percentile(times, 0.5);
}

// With options.scores half of the frames ask for scores of the text: by turns without, with, with, without, so that
// growing contexts make neither slower.
constexpr int kTurn = 5;
bool IsScored(const Options& options, int frame) { return options.scores && (frame / kTurn + 1) / 2 % 2 == 1; }

// Talker, predictor and sampling alone, for several contexts, on one path.
Status LanguageModelFigures(const Checkpoint& checkpoint, const Options& options, FramePath path, double bandwidth,
                            Report* report) {
  QTTS_ASSIGN_OR_RETURN(const Stream stream, Stream::Create());
  CudaOptions model_options;
  model_options.precision = options.f32 ? Precision::kF32 : Precision::kBF16;
  if (options.int8) model_options.weights = WeightForm::kInt8;
  model_options.overlap = options.overlap;
  model_options.pace = options.pace;
  model_options.persistent_blocks = options.blocks;
  model_options.path = path;
  model_options.prompt_rows = options.prompt_rows;
  QTTS_ASSIGN_OR_RETURN(const auto model, LanguageModel::Create(checkpoint, model_options, stream.get()));
  const bool persistent = model->IsPersistent(1, 1);

  const std::string prefix = persistent ? "persistent: " : "graph: ";
  constexpr size_t kEntries = size_t{kRing} * kMaxRows;
  QTTS_ASSIGN_OR_RETURN(const PinnedMemory steps, PinnedMemory::AllocateZeroed(kEntries * sizeof(FrameRow)));
  QTTS_ASSIGN_OR_RETURN(const PinnedMemory results, PinnedMemory::AllocateZeroed(kEntries * sizeof(FrameRowResult)));
  std::mt19937 random(1);
  for (const int context : {16, 64, 128, 256, 512, 1024, 2048, 4096}) {
    constexpr int kWarmUp = 20;
    const int frames = (options.scores ? 2 : 1) * options.frames + kWarmUp;
    if (context + frames > model->network().max_positions) break;
    QTTS_ASSIGN_OR_RETURN(const FrameStart start,
                          model->Begin(0, BenchPrompt(checkpoint.config(), context, random), GenerationSettings(), 1));
    for (size_t i = 0; i < kEntries; ++i)
      steps.as<FrameRow>()[i] = i % kMaxRows == 0 ? FrameRow{RowKind::kNext, 0, 1} : FrameRow();
    const int splits = model->graph().SplitBucket(context + frames);
    QTTS_RETURN_IF_ERROR(model->sequences().Extend(0, context));
    for (int i = 0; i < frames; i += 16) QTTS_RETURN_IF_ERROR(model->sequences().Extend(0, context + i));
    QTTS_RETURN_IF_ERROR(
        model->EnqueueFrame(start, 1, splits, steps.as<const FrameRow>(), results.as<FrameRowResult>()));
    QTTS_ASSIGN_OR_RETURN(const Graph graph, Graph::Capture(stream.get(), [&] {
                            return model->EnqueueFrame(FrameStart::kInput, 1, splits, steps.as<const FrameRow>(),
                                                       results.as<FrameRowResult>());
                          }));
    QTTS_RETURN_IF_ERROR(MedianGraph(graph, stream.get(), 10).status());
    const auto window = [&](int frame) {
      for (size_t i = 0; i < kEntries; i += kMaxRows) {
        steps.as<FrameRow>()[i].window = IsScored(options, frame) ? BenchWindow(context) : TextWindow();
      }
    };
    QTTS_ASSIGN_OR_RETURN(const std::vector<double> all, GraphTimes(graph, stream.get(), frames - kWarmUp, window));
    std::vector<double> times[2];
    for (size_t i = 0; i < all.size(); ++i) times[IsScored(options, static_cast<int>(i)) ? 1 : 0].push_back(all[i]);
    const double ms = Percentile(times[0], 0.5);
    report->Add(prefix + "talker + predictor + sampling, context " + std::to_string(context), ms, "ms/frame");
    if (options.scores) report->Add("  with scores of the text", Percentile(times[1], 0.5), "ms/frame");
    const TransformerConfig& c = checkpoint.config().talker.transformer;
    const double bytes =
        static_cast<double>(model->network().frame_bytes) +
        2.0 * context * c.num_layers * c.kv_width() * static_cast<double>(ElementBytes(model_options.precision));
    if (context == 16 || context == 2048) {
      report->Add("  of the copy bandwidth", bytes / ms / 1e9 / bandwidth * 100, "%");
    }
    const auto& last = results.as<FrameRowResult>()[0];
    if (last.end != EndReason::kNone) return Status::Internal("the utterance ended during the measurement");
    QTTS_RETURN_IF_ERROR(model->Health());
    model->sequences().Close(0);
  }
  if (path != options.paths.front()) return Status::Ok();
  for (const int rows : {8, 16, 32, 64, 128, 192, 256}) {
    std::vector<double> times;
    for (int i = 0; i < 20; ++i) {
      Prompt prompt = BenchPrompt(checkpoint.config(), rows, random);
      prompt.constant_rows = 0;
      QTTS_RETURN_IF_ERROR(stream.Synchronize());
      const auto begin = Clock::now();
      QTTS_RETURN_IF_ERROR(model->Begin(0, prompt, GenerationSettings(), 1).status());
      QTTS_RETURN_IF_ERROR(stream.Synchronize());
      times.push_back(Milliseconds(Clock::now() - begin));
      model->sequences().Close(0);
    }
    report->Add("prefill of " + std::to_string(rows) + " rows, on the host's clock, p50", Percentile(times, 0.5), "ms");
  }
  return Status::Ok();
}

Status CodecFigures(const Checkpoint& checkpoint, const Options& options, Report* report) {
  QTTS_ASSIGN_OR_RETURN(const Stream stream, Stream::Create());
  const ModelConfig& config = checkpoint.config();
  QTTS_ASSIGN_OR_RETURN(const auto codec, Codec::Create(config.codec, checkpoint.codec(),
                                                        options.f32 ? CodecPrecision::kF32 : options.codec_precision,
                                                        kMaxRows, kMaxRows));
  const auto groups = static_cast<size_t>(config.talker.num_code_groups);
  QTTS_ASSIGN_OR_RETURN(const DeviceMemory slots, DeviceMemory::AllocateZeroed(kMaxRows * sizeof(int32_t)));
  QTTS_ASSIGN_OR_RETURN(const DeviceMemory codes, DeviceMemory::AllocateZeroed(kMaxRows * groups * sizeof(int32_t)));
  QTTS_ASSIGN_OR_RETURN(
      const DeviceMemory pcm,
      DeviceMemory::AllocateZeroed(kMaxRows * static_cast<size_t>(codec->samples_per_frame()) * sizeof(float)));
  std::vector<int32_t> ids;
  for (int i = 0; i < kMaxRows; ++i) {
    ids.push_back(i);
    QTTS_RETURN_IF_ERROR(codec->Reset(i, stream.get()));
  }
  QTTS_RETURN_IF_CUDA_ERROR(cudaMemcpy(slots.data(), ids.data(), ids.size() * 4, cudaMemcpyHostToDevice), "codec");
  for (const int rows : {1, 8, 64}) {
    QTTS_ASSIGN_OR_RETURN(const Graph graph, Graph::Capture(stream.get(), [&] {
                            return codec->Decode(rows, slots.as<int32_t>(), codes.as<int32_t>(), pcm.as<float>(),
                                                 stream.get());
                          }));
    QTTS_RETURN_IF_ERROR(MedianGraph(graph, stream.get(), 10).status());
    QTTS_ASSIGN_OR_RETURN(const double ms, MedianGraph(graph, stream.get(), options.frames));
    report->Add("codec, " + std::to_string(rows) + " streams", ms, "ms/frame");
  }
  return Status::Ok();
}

// Mean wall time of a frame, in ms: of all, and of those without and with scores of the text.
struct FrameTimes {
  double all = 0, plain = 0, scored = 0;
};

// Streams of `count` utterances, with prompts of `context` rows, run together for `frames` frames.
Result<FrameTimes> SteadyFrame(CudaBackend* backend, const ModelConfig& config, int count, int frames,
                               const Options& options) {
  std::mt19937 random(2);
  std::vector<FrameStep> steps;
  for (int i = 0; i < count; ++i) {
    QTTS_ASSIGN_OR_RETURN(const SlotId slot, backend->Open(BenchPrompt(config, options.context, random),
                                                           GenerationSettings(), static_cast<uint64_t>(i)));
    steps.push_back({slot, kNoText});
  }
  Clock::time_point begin, last;
  constexpr int kWarmUp = 10;
  double times[2] = {};
  int counts[2] = {};
  int collected = 0;
  int outstanding = 0;
  for (int submitted = 0; collected < frames + kWarmUp;) {
    if (submitted < frames + kWarmUp && outstanding < backend->max_outstanding()) {
      for (FrameStep& step : steps) {
        if (submitted > 0) step.text_id = config.tts_pad_token_id;
        step.window = IsScored(options, submitted) ? BenchWindow(options.context - 1 + submitted) : TextWindow();
      }
      QTTS_RETURN_IF_ERROR(backend->Submit(steps));
      ++submitted;
      ++outstanding;
      continue;
    }
    QTTS_ASSIGN_OR_RETURN(const auto results, backend->Collect());
    if (results[0].end == EndReason::kError) return results[0].status;
    const bool scored = IsScored(options, collected);
    if (scored && results[0].end == EndReason::kNone && results[0].text_scores.scores.empty()) {
      return Status::Internal("--scores: the model has no alignment head");
    }
    const auto now = Clock::now();
    if (collected >= kWarmUp) {
      times[scored ? 1 : 0] += Milliseconds(now - last);
      ++counts[scored ? 1 : 0];
    }
    last = now;
    --outstanding;
    if (++collected == kWarmUp) begin = now;
  }
  const FrameTimes result = {Milliseconds(last - begin) / frames, times[0] / std::max(counts[0], 1),
                             times[1] / std::max(counts[1], 1)};
  for (const FrameStep& step : steps) backend->Close(step.slot);
  return result;
}

Status WholeFigures(const std::shared_ptr<const Checkpoint>& checkpoint, const Options& options, Report* report) {
  CudaOptions backend_options;
  backend_options.precision = options.f32 ? Precision::kF32 : Precision::kBF16;
  if (options.int8) backend_options.weights = WeightForm::kInt8;
  backend_options.overlap = options.overlap;
  backend_options.codec_in_part = options.codec_in_part;
  backend_options.pace = options.pace;
  backend_options.persistent_blocks = options.blocks;
  backend_options.path = options.paths.back();
  backend_options.max_slots = options.voices;
  backend_options.products = options.products;
  backend_options.codec_precision = options.codec_precision;
  backend_options.prompt_rows = options.prompt_rows;
  size_t free_before = 0, free_after = 0, total = 0;
  QTTS_RETURN_IF_CUDA_ERROR(cudaMemGetInfo(&free_before, &total), "memory");
  const auto begin = Clock::now();
  QTTS_ASSIGN_OR_RETURN(const auto backend, CudaBackend::Create(checkpoint, backend_options));
  report->Add("load, warm-up included", Milliseconds(Clock::now() - begin) / 1e3, "s");
  std::printf("%s\n", backend->name().c_str());

  const ModelConfig& config = checkpoint->config();
  for (int doubled = 1; doubled / 2 < options.voices; doubled *= 2) {
    const int streams = std::min(doubled, options.voices);
    QTTS_ASSIGN_OR_RETURN(const FrameTimes times,
                          SteadyFrame(backend.get(), config, streams, options.frames * 2, options));
    report->Add("whole frame, steady, " + std::to_string(streams) + " streams", times.all, "ms");
    if (options.scores) {
      report->Add("  without scores of the text", times.plain, "ms");
      report->Add("  with scores of the text", times.scored, "ms");
    }
    if (streams == 1) report->Add("  real-time factor", times.all / 80, "");
    if (streams == 1) {
      QTTS_RETURN_IF_CUDA_ERROR(cudaMemGetInfo(&free_after, &total), "memory");
      const CudaBackendFacts facts = backend->facts();
      report->Add("device memory, all", static_cast<double>(free_before - free_after) / 1e6, "MB");
      report->Add("  talker and predictor weights", static_cast<double>(facts.weight_bytes) / 1e6, "MB");
      report->Add("  codec, weights and state", static_cast<double>(facts.codec_bytes) / 1e6, "MB");
      report->Add("  keys and values", static_cast<double>(facts.cache_bytes) / 1e6, "MB");
      report->Add("  scratch", static_cast<double>(facts.scratch_bytes) / 1e6, "MB");
      report->Add("device memory beyond talker and predictor weights",
                  static_cast<double>(free_before - free_after - facts.weight_bytes) / 1e6, "MB");
    }
  }

  std::mt19937 random(3);
  // Speech mostly comes after a rest, during which host and device have forgotten much.
  constexpr std::chrono::milliseconds kRest{20};
  const struct {
    const char* name;
    bool streaming;
    std::chrono::milliseconds rest;
  } kinds[] = {
      {"whole text", false, {}}, {"streaming text", true, {}}, {"whole text after 20 ms of rest", false, kRest}};
  for (const auto& [kind, streaming, rest] : kinds) {
    std::vector<double> times;
    for (int i = 0; i < options.utterances; ++i) {
      // 5 to 40 words, some 1.4 tokens each; in the streaming layout the text comes with the frames.
      const int rows = streaming ? 10 : 11 + static_cast<int>(1.4 * (5 + static_cast<int>(random() % 36)));
      const Prompt prompt = BenchPrompt(config, rows, random);
      std::this_thread::sleep_for(rest);
      const auto start = Clock::now();
      QTTS_ASSIGN_OR_RETURN(const SlotId slot, backend->Open(prompt, GenerationSettings(), random()));
      const FrameStep step = {slot, kNoText};
      QTTS_RETURN_IF_ERROR(backend->Submit({&step, 1}));
      QTTS_ASSIGN_OR_RETURN(const auto results, backend->Collect());
      times.push_back(Milliseconds(Clock::now() - start));
      if (results[0].end != EndReason::kNone) return Status::Internal("the first frame was not made");
      backend->Close(slot);
    }
    const std::string name = std::string("prompt to first PCM, ") + kind;
    for (const auto& [label, p] : {std::pair("p50", 0.5), std::pair("p95", 0.95), std::pair("p99", 0.99)}) {
      report->Add(name + ", " + label, Percentile(times, p), "ms");
    }
  }
  return Status::Ok();
}

// Bytes a second of a large copy from or to page-locked memory, in GB/s.
Result<double> HostBandwidth(cudaMemcpyKind kind) {
  constexpr size_t kBytes = size_t{256} << 20;
  QTTS_ASSIGN_OR_RETURN(const DeviceMemory device, DeviceMemory::AllocateZeroed(kBytes));
  QTTS_ASSIGN_OR_RETURN(const PinnedMemory host, PinnedMemory::AllocateZeroed(kBytes));
  const bool to_host = kind == cudaMemcpyDeviceToHost;
  double best = 1e9;
  for (int i = 0; i < 4; ++i) {
    const auto begin = Clock::now();
    QTTS_RETURN_IF_CUDA_ERROR(
        cudaMemcpy(to_host ? host.data() : device.data(), to_host ? device.data() : host.data(), kBytes, kind), "copy");
    best = std::min(best, Milliseconds(Clock::now() - begin));
  }
  return static_cast<double>(kBytes) / best / 1e6;
}

// An utterance is parked and comes back, with contexts of several lengths: the time until its pages are copied.
Status ParkingFigures(const std::shared_ptr<const Checkpoint>& checkpoint, const Options& options, Report* report) {
  QTTS_ASSIGN_OR_RETURN(const double to_host, HostBandwidth(cudaMemcpyDeviceToHost));
  QTTS_ASSIGN_OR_RETURN(const double to_device, HostBandwidth(cudaMemcpyHostToDevice));
  report->Add("copies to page-locked memory", to_host, "GB/s");
  report->Add("copies from page-locked memory", to_device, "GB/s");
  CudaOptions backend_options;
  backend_options.precision = options.f32 ? Precision::kF32 : Precision::kBF16;
  if (options.int8) backend_options.weights = WeightForm::kInt8;
  QTTS_ASSIGN_OR_RETURN(const auto backend, CudaBackend::Create(checkpoint, backend_options));
  const ModelConfig& config = checkpoint->config();
  const TransformerConfig& c = config.talker.transformer;
  std::mt19937 random(5);
  const auto time = [&](Status (CudaBackend::*move)(SlotId), SlotId slot) -> Result<double> {
    QTTS_RETURN_IF_CUDA_ERROR(cudaDeviceSynchronize(), "timing");
    const auto begin = Clock::now();
    QTTS_RETURN_IF_ERROR((backend.get()->*move)(slot));
    QTTS_RETURN_IF_CUDA_ERROR(cudaDeviceSynchronize(), "timing");
    return Milliseconds(Clock::now() - begin);
  };
  for (const int context : {128, 512, 1536}) {
    if (context >= c.max_positions) break;
    QTTS_ASSIGN_OR_RETURN(const SlotId slot,
                          backend->Open(BenchPrompt(config, context - 1, random), GenerationSettings(), 1));
    const FrameStep step = {slot, kNoText};
    QTTS_RETURN_IF_ERROR(backend->Submit({&step, 1}));
    QTTS_ASSIGN_OR_RETURN(const auto results, backend->Collect());
    if (results[0].end == EndReason::kError) return results[0].status;
    std::vector<double> parked, returned;
    for (int i = 0; i < 21; ++i) {
      QTTS_ASSIGN_OR_RETURN(const double away, time(&CudaBackend::Park, slot));
      parked.push_back(away);
      QTTS_ASSIGN_OR_RETURN(const double back, time(&CudaBackend::Unpark, slot));
      returned.push_back(back);
    }
    backend->Close(slot);
    const double megabytes =
        2e-6 * context * c.num_layers * c.kv_width() * static_cast<double>(ElementBytes(backend_options.precision));
    const std::string name = "context " + std::to_string(context);
    report->Add(name, megabytes, "MB");
    report->Add("  parked, host memory page-locked for it", parked[0], "ms");
    parked.erase(parked.begin());
    const double park_ms = Percentile(parked, 0.5);
    const double return_ms = Percentile(returned, 0.5);
    report->Add("  parked, p50", park_ms, "ms");
    report->Add("    of the copies' rate", megabytes / park_ms / to_host * 100, "%");
    report->Add("  brought back, p50", return_ms, "ms");
    report->Add("    of the copies' rate", megabytes / return_ms / to_device * 100, "%");
  }
  return Status::Ok();
}

// One utterance after the other, of two frames each; every tenth is given up in mid-frame.
Status Soak(const std::shared_ptr<const Checkpoint>& checkpoint, const Options& options, Report* report) {
  CudaOptions backend_options;
  backend_options.precision = options.f32 ? Precision::kF32 : Precision::kBF16;
  if (options.int8) backend_options.weights = WeightForm::kInt8;
  QTTS_ASSIGN_OR_RETURN(const auto backend, CudaBackend::Create(checkpoint, backend_options));
  const ModelConfig& config = checkpoint->config();
  std::mt19937 random(4);
  std::vector<double> times;
  size_t free_early = 0, free_late = 0, total = 0;
  long resident_early = 0;
  const auto resident = [] {
    rusage usage = {};
    (void)getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
  };
  for (int i = 0; i < options.soak; ++i) {
    if (i == options.soak / 10) {
      QTTS_RETURN_IF_CUDA_ERROR(cudaMemGetInfo(&free_early, &total), "memory");
      resident_early = resident();
    }
    const Prompt prompt = BenchPrompt(config, 10 + static_cast<int>(random() % 50), random);
    const auto start = Clock::now();
    QTTS_ASSIGN_OR_RETURN(const SlotId slot, backend->Open(prompt, GenerationSettings(), random()));
    FrameStep step = {slot, kNoText};
    for (int frame = 0; frame < 2; ++frame) {
      QTTS_RETURN_IF_ERROR(backend->Submit({&step, 1}));
      if (i % 10 == 9 && frame == 1) backend->Close(slot);
      QTTS_ASSIGN_OR_RETURN(const auto results, backend->Collect());
      if (frame == 0) times.push_back(Milliseconds(Clock::now() - start));
      if (i % 10 != 9 && results[0].end == EndReason::kError) return results[0].status;
      step.text_id = config.tts_pad_token_id;
    }
    backend->Close(slot);
  }
  QTTS_RETURN_IF_CUDA_ERROR(cudaMemGetInfo(&free_late, &total), "memory");
  const double growth = (static_cast<double>(free_early) - static_cast<double>(free_late)) / 1e6;
  const auto tenth = static_cast<std::ptrdiff_t>(times.size() / 10);
  const std::vector<double> early(times.begin() + tenth, times.begin() + 2 * tenth);
  const std::vector<double> late(times.end() - tenth, times.end());
  report->Add("utterances", options.soak, "");
  report->Add("device memory, growth after the first tenth", growth, "MB");
  report->Add("peak host memory, growth after the first tenth", static_cast<double>(resident() - resident_early) / 1024,
              "MiB");
  for (const auto& [label, p] : {std::pair("p50", 0.5), std::pair("p99", 0.99)}) {
    report->Add(std::string("prompt to first PCM, second tenth, ") + label, Percentile(early, p), "ms");
    report->Add(std::string("prompt to first PCM, last tenth, ") + label, Percentile(late, p), "ms");
  }
  if (growth > 0) return Status::Internal("device memory grew");
  return Status::Ok();
}

Status Run(const Options& options) {
  std::string folder = options.model;
  std::filesystem::path temporary;
  if (!options.random.empty()) {
    temporary = std::filesystem::temp_directory_path() / ("qtts-bench-" + std::to_string(::getpid()));
    folder = temporary.string();
    Result<golden::RandomCheckpointSpec> spec = golden::FindPreset(options.random);
    if (!spec.ok()) spec = golden::FindPreset(options.random + "-custom");
    QTTS_RETURN_IF_ERROR(spec.status());
    QTTS_RETURN_IF_ERROR(golden::WriteRandomCheckpoint(folder, *spec));
  }
  const auto measure = [&]() -> Status {
    Report report;
    const auto begin = Clock::now();
    QTTS_ASSIGN_OR_RETURN(const auto checkpoint, Checkpoint::Open(folder));
    report.Add("opening the checkpoint", Milliseconds(Clock::now() - begin), "ms");
    CudaOptions backend_options;
    backend_options.precision = options.f32 ? Precision::kF32 : Precision::kBF16;
    if (options.int8) backend_options.weights = WeightForm::kInt8;
    QTTS_RETURN_IF_ERROR(ChooseDevice(*checkpoint, backend_options).status());
    if (options.soak > 0) {
      const Status status = Soak(checkpoint, options, &report);
      report.Write(options.json);
      return status;
    }
    QTTS_ASSIGN_OR_RETURN(const double bandwidth, CopyBandwidth(nullptr));
    report.Add("copy bandwidth, read and written", bandwidth, "TB/s");
    const auto wanted = [&](std::string_view part) { return options.only.empty() || options.only == part; };
    for (const FramePath path : options.paths) {
      if (!wanted("language-model")) break;
      QTTS_RETURN_IF_ERROR(LanguageModelFigures(*checkpoint, options, path, bandwidth, &report));
    }
    if (wanted("codec")) QTTS_RETURN_IF_ERROR(CodecFigures(*checkpoint, options, &report));
    if (wanted("whole")) QTTS_RETURN_IF_ERROR(WholeFigures(checkpoint, options, &report));
    if (wanted("parking")) QTTS_RETURN_IF_ERROR(ParkingFigures(checkpoint, options, &report));
    report.Write(options.json);
    return Status::Ok();
  };
  const Status status = measure();
  if (!temporary.empty()) {
    std::error_code error;
    std::filesystem::remove_all(temporary, error);
  }
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  bool good = argc > 1;
  for (int i = 1; i < argc && good; ++i) {
    const std::string_view option = argv[i];
    const auto number = [&](int* value) {
      const std::string_view text = argv[++i];
      good = std::from_chars(text.data(), text.data() + text.size(), *value).ec == std::errc() && *value > 0;
    };
    if (option == "--f32") {
      options.f32 = true;
    } else if (option == "--int8") {
      options.int8 = true;
    } else if (option == "--no-overlap") {
      options.overlap = false;
    } else if (option == "--no-part") {
      options.codec_in_part = false;
    } else if (option == "--scores") {
      options.scores = true;
    } else if (i + 1 == argc) {
      good = false;
    } else if (option == "--model") {
      options.model = argv[++i];
    } else if (option == "--path") {
      const std::string_view path = argv[++i];
      good = path == "graph" || path == "persistent" || path == "both";
      if (path == "graph") options.paths = {FramePath::kGraph};
      if (path == "persistent") options.paths = {FramePath::kPersistent};
      if (path == "both") options.paths = {FramePath::kGraph, FramePath::kPersistent};
    } else if (option == "--blocks") {
      int blocks = 0;
      number(&blocks);
      options.blocks = blocks;
    } else if (option == "--pace") {
      const std::string_view text = argv[++i];
      const char* const end = text.data() + text.size();
      PaceNumbers pace;
      const auto first = std::from_chars(text.data(), end, pace.in_flight);
      good = first.ec == std::errc() && first.ptr != end && *first.ptr == ',' && pace.in_flight > 0;
      if (good) {
        const auto second = std::from_chars(first.ptr + 1, end, pace.ahead);
        good = second.ec == std::errc() && second.ptr == end && pace.ahead >= 0;
      }
      options.pace = pace;
    } else if (option == "--products") {
      const std::string_view products = argv[++i];
      good = products == "own" || products == "warpgroup" || products == "cublaslt";
      if (products == "own") options.products = ManyRowsProducts::kWarp;
      if (products == "warpgroup") options.products = ManyRowsProducts::kWarpgroup;
      if (products == "cublaslt") options.products = ManyRowsProducts::kLibrary;
    } else if (option == "--codec-precision") {
      const std::string_view precision = argv[++i];
      good = precision == "exact" || precision == "fast";
      options.codec_precision = precision == "fast" ? CodecPrecision::kFast : CodecPrecision::kExact;
    } else if (option == "--only") {
      options.only = argv[++i];
      good = options.only == "language-model" || options.only == "codec" || options.only == "whole" ||
             options.only == "parking";
    } else if (option == "--random") {
      options.random = argv[++i];
    } else if (option == "--json") {
      options.json = argv[++i];
    } else if (option == "--voices") {
      number(&options.voices);
    } else if (option == "--context") {
      number(&options.context);
    } else if (option == "--prompt-rows") {
      number(&options.prompt_rows);
      good = good && options.prompt_rows >= kMaxRows && options.prompt_rows <= Sequences::kMostPromptRows &&
             options.prompt_rows % 32 == 0;
    } else if (option == "--frames") {
      number(&options.frames);
    } else if (option == "--soak") {
      number(&options.soak);
    } else if (option == "--utterances") {
      number(&options.utterances);
    } else {
      good = false;
    }
  }
  if (!good || options.model.empty() == options.random.empty()) {
    std::cerr << kUsage;
    return 2;
  }
  if (const Status status = Run(options); !status.ok()) {
    std::cerr << "qtts-bench: " << status.message() << '\n';
    return 1;
  }
  return 0;
}
