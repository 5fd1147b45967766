// SPDX-License-Identifier: LGPL-2.1-or-later
// Time of a frame on the CPU in each precision, beside the least time for this machine: the weights' bytes by the
// memory bandwidth, and the codec's multiply-adds by the peak rate of the instructions, both measured in the same run.
// Each precision, and each of the instruction sets to compare, has a process of its own, whose memory is printed. The
// processes make frames in turn.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include <hwy/targets.h>

#include "arguments.h"
#include "checkpoint/checkpoint.h"
#include "cpu/bf16_kernels.h"
#include "cpu/cpu_backend.h"
#include "cpu/instructions.h"
#include "cpu/processors.h"
#include "cpu/quantized_kernels.h"
#include "prompt/prompt.h"
#include "text/text_feed.h"
#include "text/tokenizer.h"

namespace {

using namespace qtts;  // NOLINT(google-build-using-namespace): a program of one file
using bench::Fail;
using bench::Take;
using cpu::Arithmetic;
using Clock = std::chrono::steady_clock;

constexpr const char* kUsage =
    "usage: bench-cpu [MODEL_DIR] [--precisions f32,bf16,int8,int4] [--instructions NAME,...] [--threads N,...]\n"
    "                 [--rounds N] [--json]\n"
    "  MODEL_DIR       default: the bundled voice\n"
    "  --precisions    default: all that this processor has\n"
    "  --instructions  as the name of the device tells them, such as AVX-512 VNNI,AVX-VNNI,AVX2 (default: the best)\n"
    "  --threads       default: one a core; the speed-up from the first number to each of the others is told too\n"
    "  --rounds N      turns of each precision (default 15)\n"
    "  --json          one line of JSON for each row\n";

double Seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

const char* Name(Arithmetic arithmetic) {
  switch (arithmetic) {
    case Arithmetic::kF32:
      return "f32";
    case Arithmetic::kBF16:
      return "bf16";
    case Arithmetic::kInt8:
      return "int8";
    case Arithmetic::kInt4:
      break;
  }
  return "int4";
}

// --- The machine

// Runs `work(thread)` in `threads` threads at once; returns the time until the last one has ended.
template <typename Work>
double InThreads(int threads, const Work& work) {
  std::atomic<int> ready{0};
  std::atomic<bool> go{false};
  std::vector<std::thread> others;
  for (int i = 1; i < threads; ++i) {
    others.emplace_back([&, i] {
      ++ready;
      while (!go.load()) std::this_thread::yield();
      work(i);
    });
  }
  while (ready.load() < threads - 1) std::this_thread::yield();
  const Clock::time_point begin = Clock::now();
  go.store(true);
  work(0);
  for (std::thread& thread : others) thread.join();
  return Seconds(Clock::now() - begin);
}

// Bytes a second that `threads` threads read together, from memory far larger than the caches: best of many windows.
class Bandwidth {
 public:
  Bandwidth() : data_(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    if (data_ == MAP_FAILED) Fail("not enough memory to measure the bandwidth");
    (void)madvise(data_, kBytes, MADV_HUGEPAGE);
    std::memset(data_, kFill, kBytes);
  }
  ~Bandwidth() { munmap(data_, kBytes); }
  Bandwidth(const Bandwidth&) = delete;
  Bandwidth& operator=(const Bandwidth&) = delete;

  // Windows are short, so that other work does not disturb all of them. memchr() reads with vectors; plain loops reach
  // at most two thirds of a fast core's read bandwidth.
  double Measure(int threads) const {
    constexpr size_t kWindow = size_t{16} << 20U;  // bytes of each thread
    const size_t windows = std::max<size_t>(1, kBytes / kWindow / static_cast<size_t>(threads));
    double best = 0;
    for (size_t window = 0; window < windows; ++window) {
      std::atomic<int> found{0};
      const double seconds = InThreads(threads, [&](int thread) {
        const size_t first = (window * static_cast<size_t>(threads) + static_cast<size_t>(thread)) * kWindow;
        if (std::memchr(static_cast<const char*>(data_) + first % kBytes, kFill + 1, kWindow) != nullptr) ++found;
      });
      if (found.load() != 0) Fail("memory lost what was written");
      best = std::max(best, static_cast<double>(kWindow) * threads / seconds);
    }
    return best;
  }

 private:
  static constexpr int kFill = 1;
  static constexpr size_t kBytes = size_t{512} << 20U;

  void* data_;
};

// Multiply-adds of one thread: each function makes kRounds times as many as one round of its vectors, and returns the
// number. Sums stay in registers.
constexpr int64_t kPeakRounds = 200'000;

int64_t PeakOfCompiler() {
  std::array<float, 64> sums{};
  for (int64_t i = 0; i < kPeakRounds / 4; ++i) {
    for (float& sum : sums) sum = sum * 0.5F + 1.0F;
#if defined(__GNUC__)
    asm volatile("" : : "r"(sums.data()) : "memory");
#endif
  }
  return kPeakRounds / 4 * static_cast<int64_t>(sums.size());
}

#if defined(__x86_64__)
#define QTTS_VECTOR "v"
#define QTTS_COMPILE_FOR(isa) target(isa)
#elif defined(__aarch64__)
#define QTTS_VECTOR "w"
#define QTTS_COMPILE_FOR(isa)
#endif

#ifdef QTTS_VECTOR
// The last argument is the instruction: it changes `a` with the products of `x` and `y`.
#define QTTS_PEAK(name, isa, vector, zero, multiply_adds, ...)                                               \
  __attribute__((QTTS_COMPILE_FOR(isa))) int64_t name() {                                                    \
    vector a0 = zero, a1 = zero, a2 = zero, a3 = zero, a4 = zero, a5 = zero, a6 = zero, a7 = zero;           \
    vector a8 = zero, a9 = zero, a10 = zero, a11 = zero, x = zero, y = zero;                                 \
    /* Not known to be equal, or one sum would be computed for all. */                                       \
    asm volatile("" : "+" QTTS_VECTOR(a0), "+" QTTS_VECTOR(a1), "+" QTTS_VECTOR(a2), "+" QTTS_VECTOR(a3));   \
    asm volatile("" : "+" QTTS_VECTOR(a4), "+" QTTS_VECTOR(a5), "+" QTTS_VECTOR(a6), "+" QTTS_VECTOR(a7));   \
    asm volatile("" : "+" QTTS_VECTOR(a8), "+" QTTS_VECTOR(a9), "+" QTTS_VECTOR(a10), "+" QTTS_VECTOR(a11)); \
    for (int64_t i = 0; i < kPeakRounds; ++i) {                                                              \
      asm volatile("" : "+" QTTS_VECTOR(x), "+" QTTS_VECTOR(y));                                             \
      const auto step = [&](vector a) __attribute__((QTTS_COMPILE_FOR(isa), always_inline)) {                \
        __VA_ARGS__;                                                                                         \
        return a;                                                                                            \
      };                                                                                                     \
      a0 = step(a0), a1 = step(a1), a2 = step(a2), a3 = step(a3), a4 = step(a4), a5 = step(a5);              \
      a6 = step(a6), a7 = step(a7), a8 = step(a8), a9 = step(a9), a10 = step(a10), a11 = step(a11);          \
    }                                                                                                        \
    asm volatile("" : : QTTS_VECTOR(a0), QTTS_VECTOR(a1), QTTS_VECTOR(a2), QTTS_VECTOR(a3));                 \
    asm volatile("" : : QTTS_VECTOR(a4), QTTS_VECTOR(a5), QTTS_VECTOR(a6), QTTS_VECTOR(a7));                 \
    asm volatile("" : : QTTS_VECTOR(a8), QTTS_VECTOR(a9), QTTS_VECTOR(a10), QTTS_VECTOR(a11));               \
    return kPeakRounds * 12 * (multiply_adds);                                                               \
  }
#endif

#if defined(__x86_64__)
// Products of 16-bit pairs, as ByteUnit::kPortable makes them. Assembly, because the compiler would compute them once
// for all sums.
#define QTTS_PAIRS(vector, add)                                      \
  vector even, odd;                                                  \
  asm volatile("vpmaddwd %1, %2, %0" : "=v"(even) : "v"(x), "v"(y)); \
  asm volatile("vpmaddwd %1, %2, %0" : "=v"(odd) : "v"(x), "v"(y));  \
  a = add(a, add(even, odd))

QTTS_PEAK(PeakF32Avx512, "avx512f", __m512, _mm512_setzero_ps(), 16, a = _mm512_fmadd_ps(x, y, a))
QTTS_PEAK(PeakF32Avx2, "avx2,fma", __m256, _mm256_setzero_ps(), 8, a = _mm256_fmadd_ps(x, y, a))
QTTS_PEAK(PeakBF16, "avx512f,avx512bf16", __m512, _mm512_setzero_ps(), 32,
          a = _mm512_dpbf16_ps(a, (__m512bh)x, (__m512bh)y))
QTTS_PEAK(PeakBytesAvx512Vnni, "avx512f,avx512vnni", __m512i, _mm512_setzero_si512(), 64,
          a = _mm512_dpbusd_epi32(a, x, y))
QTTS_PEAK(PeakBytesAvxVnni, "avx2", __m256i, _mm256_setzero_si256(), 32,
          asm("%{vex%} vpdpbusd %1, %2, %0"
              : "+x"(a)
              : "x"(x), "x"(y)))
QTTS_PEAK(PeakBytesAvx512, "avx512f,avx512bw", __m512i, _mm512_setzero_si512(), 64,
          QTTS_PAIRS(__m512i, _mm512_add_epi32))
QTTS_PEAK(PeakBytesAvx2, "avx2", __m256i, _mm256_setzero_si256(), 32, QTTS_PAIRS(__m256i, _mm256_add_epi32))
#undef QTTS_PAIRS
#elif defined(__aarch64__)
QTTS_PEAK(PeakF32Neon, "", float32x4_t, vdupq_n_f32(0), 4, a = vfmaq_f32(a, x, y))
// `smull`, `smull2`, two `saddlp`, `addp` and `add`, as ByteUnit::kPortable makes them.
QTTS_PEAK(PeakBytesNeon, "", int32x4_t, vdupq_n_s32(0), 16, int16x8_t low; int16x8_t high;
          asm volatile("smull %0.8h, %1.8b, %2.8b"
                       : "=w"(low)
                       : "w"(x), "w"(y));
          asm volatile("smull2 %0.8h, %1.16b, %2.16b"
                       : "=w"(high)
                       : "w"(x), "w"(y));
          a = vaddq_s32(a, vpaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high))))
// sdot %0.4s, %1.16b, %2.16b
QTTS_PEAK(PeakBytesNeonDot, "", int32x4_t, vdupq_n_s32(0), 16,
          asm(".irp i, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31\n\t"
              ".set .Lqtts_v\\i, \\i\n\t"
              ".endr\n\t"
              ".inst 0x4e809400 | .Lqtts_%2 << 16 | .Lqtts_%1 << 5 | .Lqtts_%0"
              : "+w"(a)
              : "w"(x), "w"(y)))
#endif
#undef QTTS_PEAK

// The instructions that a process uses: Highway's target, and the unit of 8-bit products.
struct Instructions {
  int64_t target = 0;
  cpu::ByteUnit unit = cpu::ByteUnit::kPortable;

  std::string name() const { return cpu::InstructionSetName(target, unit); }
};

// All instruction sets of this processor, the fastest first.
std::vector<Instructions> InstructionsHere() {
  std::vector<Instructions> all;
  for (const int64_t target : cpu::AvailableTargets()) {
    const std::vector<cpu::ByteUnit> units = cpu::ByteUnitsOf(target);
    for (auto unit = units.rbegin(); unit != units.rend(); ++unit) all.push_back({target, *unit});
  }
  return all;
}

Instructions InstructionsOf(std::string_view name) {
  std::string names;
  for (const Instructions& instructions : InstructionsHere()) {
    if (instructions.name() == name) return instructions;
    names += (names.empty() ? "" : ", ") + instructions.name();
  }
  Fail(std::string(name) + ": not one of this processor's: " + names);
}

using Peak = int64_t (*)();

struct Peaks {
  Peak f32 = PeakOfCompiler;
  Peak bf16 = PeakOfCompiler;
  Peak int8 = PeakOfCompiler;
};

Peaks PeaksOf([[maybe_unused]] const Instructions& instructions) {
  Peaks peaks;
#if defined(__x86_64__)
  if (instructions.target <= HWY_AVX3) {
    peaks.f32 = PeakF32Avx512;
    peaks.bf16 = cpu::HasBF16Products() ? PeakBF16 : PeakF32Avx512;
    peaks.int8 = instructions.unit == cpu::ByteUnit::kPortable ? PeakBytesAvx512 : PeakBytesAvx512Vnni;
  } else if (instructions.target == HWY_AVX2) {
    peaks.f32 = peaks.bf16 = PeakF32Avx2;
    peaks.int8 = instructions.unit == cpu::ByteUnit::kPortable ? PeakBytesAvx2 : PeakBytesAvxVnni;
  }
#elif defined(__aarch64__)
  peaks.f32 = peaks.bf16 = PeakF32Neon;
  peaks.int8 = instructions.unit == cpu::ByteUnit::kPortable ? PeakBytesNeon : PeakBytesNeonDot;
#endif
  return peaks;
}

// Multiply-adds a second of `threads` threads together: best of some short runs.
double PeakOf(Peak peak, int threads) {
  constexpr int kRuns = 8;
  double best = 0;
  for (int run = 0; run < kRuns; ++run) {
    std::atomic<int64_t> made{0};
    const double seconds = InThreads(threads, [&](int) { made += peak(); });
    best = std::max(best, static_cast<double>(made.load()) / seconds);
  }
  return best;
}

// The best measurements.
struct Rates {
  double f32 = 0, bf16 = 0, int8 = 0;  // multiply-adds a second

  void Measure(const Instructions& instructions, int threads) {
    const Peaks peaks = PeaksOf(instructions);
    f32 = std::max(f32, PeakOf(peaks.f32, threads));
    bf16 = std::max(bf16, PeakOf(peaks.bf16, threads));
    int8 = std::max(int8, PeakOf(peaks.int8, threads));
  }
};

// --- Work of a frame

struct FrameWork {
  double bytes = 0;                    // of weights
  double f32 = 0, bf16 = 0, int8 = 0;  // multiply-adds of the codec

  // `bandwidth` in bytes a second.
  double Floor(double bandwidth, const Rates& rates) const {
    return bytes / bandwidth + f32 / rates.f32 + bf16 / rates.bf16 + int8 / rates.int8;
  }
};

double Elements(const TensorView& tensor) { return static_cast<double>(tensor.elements()); }

double Elements(const TransformerWeights& transformer) {
  double elements = 0;
  for (const TransformerLayerWeights& l : transformer.layers) {
    for (const TensorView* t : {&l.q.weight, &l.k.weight, &l.v.weight, &l.o.weight, &l.gate, &l.up, &l.down}) {
      elements += Elements(*t);
    }
  }
  return elements;
}

// Blocks of the codec with fewer channels multiply in BF16 (engine/cpu/codec_decoder.cc).
constexpr int64_t kLeastInt8Channels = 96;

FrameWork WorkOf(const Checkpoint& checkpoint, Arithmetic arithmetic) {
  const auto stored = [](const TensorView& tensor) { return static_cast<double>(DTypeBytes(tensor.dtype)); };
  const TalkerWeights& talker = checkpoint.talker();
  const PredictorWeights& predictor = checkpoint.predictor();
  const CodecWeights& codec = checkpoint.codec();
  const bool quantised = arithmetic == Arithmetic::kInt8 || arithmetic == Arithmetic::kInt4;
  // Codes, and a two-byte scale for each group.
  const double eight_bits = 1 + 2.0 / cpu::GroupColumns(cpu::CodeBits::k8);
  double packed = stored(talker.codec_head);
  if (arithmetic == Arithmetic::kBF16) packed = 2;
  if (arithmetic == Arithmetic::kInt8) packed = eight_bits;
  if (arithmetic == Arithmetic::kInt4) packed = 0.5 + 2.0 / cpu::GroupColumns(cpu::CodeBits::k4);
  const auto passes = static_cast<double>(predictor.heads.size());
  FrameWork work;
  const auto head = [&](const TensorView& weight) {
    work.bytes += (quantised ? eight_bits : stored(weight)) * Elements(weight);
  };
  work.bytes = packed * (Elements(talker.transformer) + passes * Elements(predictor.transformer));
  head(talker.codec_head);
  if (predictor.input_projection.has_value()) {
    work.bytes += passes * packed * Elements(predictor.input_projection->weight);
  }
  for (const TensorView& weight : predictor.heads) head(weight);

  // The codec: each weight is read once for all of a frame's rows.
  const bool reduced = arithmetic != Arithmetic::kF32;
  const auto outer = [&](const TensorView& weight, double rows) {
    work.bytes += (reduced ? std::min(2.0, stored(weight)) : stored(weight)) * Elements(weight);
    work.f32 += rows * Elements(weight);
  };
  // Matrices that int8 and int4 quantise to 8 bits; 16-bit activations take two multiplications.
  const auto matrix = [&](const TensorView& weight, double rows) {
    if (!quantised) return outer(weight, rows);
    work.bytes += eight_bits * Elements(weight);
    work.int8 += 2 * rows * Elements(weight);
  };
  outer(codec.semantic_projection, 1);
  outer(codec.acoustic_projection, 1);
  outer(codec.pre_conv.weight, 1);
  outer(codec.input_projection.weight, 1);
  outer(codec.output_projection.weight, 1);
  for (const TransformerLayerWeights& l : codec.transformer.layers) {
    for (const TensorView* t : {&l.q.weight, &l.k.weight, &l.v.weight, &l.o.weight, &l.gate, &l.up, &l.down})
      matrix(*t, 1);
  }
  double rows = 1;
  for (const ConvNeXtWeights& stage : codec.upsample) {
    outer(stage.transposed.weight, rows);
    rows *= static_cast<double>(stage.transposed.weight.shape[2]);
    matrix(stage.expand.weight, rows);
    matrix(stage.contract.weight, rows);
  }
  outer(codec.first_conv.weight, rows);
  for (size_t i = 0; i < codec.blocks.size(); ++i) {
    const DecoderBlockWeights& block = codec.blocks[i];
    const int64_t channels = block.transposed.weight.shape[1];
    const bool bytes = quantised && i > 0 && channels >= kLeastInt8Channels;
    const auto inner = [&](const TensorView& weight) {
      if (!reduced) return outer(weight, rows);
      work.bytes += (bytes ? 1 : 2) * Elements(weight);
      (bytes ? work.int8 : work.bf16) += rows * Elements(weight);
    };
    inner(block.transposed.weight);
    rows *= static_cast<double>(block.transposed.weight.shape[2]) / 2;
    for (const ResidualUnitWeights& unit : block.residuals) {
      inner(unit.conv1.weight);
      inner(unit.conv2.weight);
    }
  }
  outer(codec.last_conv.weight, rows);
  return work;
}

// --- A process for one precision. It reads commands, a line each, and answers with a line each.

// Value of a line of a file in /proc, in kB.
long Kilobytes(const char* file, const std::string& key) {
  std::ifstream stream(file);
  for (std::string line; std::getline(stream, line);) {
    if (line.starts_with(key)) return std::strtol(line.c_str() + key.size(), nullptr, 10);
  }
  return 0;
}

class Child {
 public:
  Child(const std::string& folder, Arithmetic arithmetic, int threads) {
    const Clock::time_point begin = Clock::now();
    checkpoint_ = Take(Checkpoint::Open(folder));
    tokenizer_ = Take(Tokenizer::Load(folder, TokenizerPattern::kNative));
    builder_ = std::make_unique<PromptBuilder>(Take(PromptBuilder::Create(checkpoint_->config(), tokenizer_)));
    backend_ = Take(CreateCpuBackend(checkpoint_, threads, arithmetic));
    load_ = Seconds(Clock::now() - begin);
  }

  int Serve() {
    std::array<char, 64> line{};
    while (std::fgets(line.data(), line.size(), stdin) != nullptr) {
      const std::string_view command = line.data();
      if (command.starts_with("load")) std::printf("%.6f\n", load_);
      if (command.starts_with("name")) std::printf("%s\n", backend_->name().c_str());
      if (command.starts_with("frame")) std::printf("%.6f\n", Frame());
      if (command.starts_with("first")) std::printf("%.6f\n", First());
      if (command.starts_with("rss")) std::printf("%ld\n", Kilobytes("/proc/self/status", "VmRSS:"));
      if (command.starts_with("pss")) std::printf("%ld\n", Kilobytes("/proc/self/smaps_rollup", "Pss:"));
      std::fflush(stdout);
    }
    return 0;
  }

 private:
  // From a text of ten words to its first frame.
  double First() {
    Close();
    constexpr std::array<const char*, 4> kFirstWords = {"Perhaps", "Today", "Somewhere", "Again"};
    const std::string text =
        std::string(kFirstWords[count_++ % kFirstWords.size()]) + " the boats went slowly down the river to the";
    const Clock::time_point begin = Clock::now();
    Open(text + " sea.");
    Submit(kNoText);
    return Seconds(Clock::now() - begin);
  }

  // The next frame of an utterance; a new one begins when that has become long or has ended.
  double Frame() {
    constexpr int kMostFrames = 100;
    while (true) {
      if (slot_ == 0 || frames_ >= kMostFrames) (void)First();
      const auto row = static_cast<size_t>(frames_ - 1);
      const int32_t text = row < trailing_text_.size() ? trailing_text_[row] : pad_;
      const Clock::time_point begin = Clock::now();
      if (Submit(text)) return Seconds(Clock::now() - begin);
      Close();
    }
  }

  void Open(const std::string& text) {
    TextFeed feed(tokenizer_);
    if (!feed.Append(text).ok() || !feed.Finish().ok()) Fail("the text cannot be tokenized");
    Request request;
    request.text = text;
    request.settings = checkpoint_->config().defaults;
    Prompt prompt = Take(builder_->Build(request, feed.TakeIds(), true));
    trailing_text_.assign(prompt.trailing_text.begin(), prompt.trailing_text.end());
    pad_ = prompt.pad_text_id;
    slot_ = Take(backend_->Open(std::move(prompt), request.settings, count_));
    while (!Take(backend_->Prefill(slot_)).done) continue;
    frames_ = 0;
  }

  // True if a frame was made.
  bool Submit(int32_t text) {
    const FrameStep step{slot_, text};
    if (!backend_->Submit({&step, 1}).ok()) Fail("the backend takes no frame");
    const std::vector<FrameResult> results = Take(backend_->Collect());
    ++frames_;
    if (results.front().end == EndReason::kError) Fail(results.front().status.message());
    return results.front().end == EndReason::kNone;
  }

  void Close() {
    if (slot_ != 0) backend_->Close(std::exchange(slot_, 0));
  }

  std::shared_ptr<const Checkpoint> checkpoint_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::unique_ptr<PromptBuilder> builder_;
  std::unique_ptr<Backend> backend_;
  double load_ = 0;
  SlotId slot_ = 0;
  int frames_ = 0;
  size_t count_ = 0;
  std::vector<int32_t> trailing_text_;
  int32_t pad_ = 0;
};

// The parent's side of such a process.
class Process {
 public:
  Process(const std::string& folder, Arithmetic arithmetic, const Instructions& instructions, int threads) {
    std::array<int, 2> to{};
    std::array<int, 2> from{};
    if (pipe2(to.data(), O_CLOEXEC) != 0 || pipe2(from.data(), O_CLOEXEC) != 0) Fail("no pipe");
    process_ = fork();
    if (process_ < 0) Fail("no process");
    if (process_ == 0) {
      dup2(to[0], STDIN_FILENO);
      dup2(from[1], STDOUT_FILENO);
      execl("/proc/self/exe", "bench-cpu", "--child", folder.c_str(), Name(arithmetic), std::to_string(threads).c_str(),
            instructions.name().c_str(), nullptr);
      _exit(127);
    }
    close(to[0]);
    close(from[1]);
    to_ = fdopen(to[1], "w");
    from_ = fdopen(from[0], "r");
  }
  ~Process() {
    std::fclose(to_);
    std::fclose(from_);
    waitpid(process_, nullptr, 0);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  std::string Ask(const char* command) {
    std::fprintf(to_, "%s\n", command);
    std::fflush(to_);
    std::array<char, 256> line{};
    if (std::fgets(line.data(), line.size(), from_) == nullptr) Fail("a process has ended");
    std::string answer = line.data();
    answer.pop_back();
    return answer;
  }
  double Number(const char* command) { return std::strtod(Ask(command).c_str(), nullptr); }

 private:
  pid_t process_ = 0;
  FILE* to_ = nullptr;
  FILE* from_ = nullptr;
};

// --- The table

struct Row {
  Arithmetic arithmetic = Arithmetic::kF32;
  size_t instructions = 0;  // index
  int threads = 0;
  std::string label, backend;
  FrameWork work;
  double load_first = 0, load = 0;
  std::vector<double> frames, firsts;
  double frame = 0, best = 0, first = 0, floor = 0;
  double rss = 0, pss = 0;  // MB
};

struct Table {
  std::vector<Row> rows;
  double bandwidth = 0;      // bytes a second
  std::vector<Rates> rates;  // of each of the instructions
};

constexpr int kFramesBeforeMemory = 25;
constexpr double kTurnSeconds = 0.1;

// Instructions without products of BF16 make no row of that precision.
Table Measure(const std::string& folder, const std::vector<Arithmetic>& precisions,
              const std::vector<Instructions>& instructions, int threads, int rounds, const Bandwidth& memory) {
  const auto checkpoint = Take(Checkpoint::Open(folder));
  Table table;
  table.rates.resize(instructions.size());
  std::vector<Row>& rows = table.rows;
  std::vector<std::unique_ptr<Process>> processes;
  for (const Arithmetic arithmetic : precisions) {
    for (size_t i = 0; i < instructions.size(); ++i) {
      if (arithmetic == Arithmetic::kBF16 && instructions[i].target != cpu::BestTarget()) continue;
      Row row;
      row.arithmetic = arithmetic;
      row.instructions = i;
      row.threads = threads;
      row.label = Name(arithmetic);
      if (instructions.size() > 1) row.label += ", " + instructions[i].name();
      row.work = WorkOf(*checkpoint, arithmetic);
      row.load_first = Process(folder, arithmetic, instructions[i], threads).Number("load");
      auto process = std::make_unique<Process>(folder, arithmetic, instructions[i], threads);
      row.load = process->Number("load");
      row.backend = process->Ask("name");
      for (int frame = 0; frame < kFramesBeforeMemory; ++frame) row.frame = process->Number("frame");
      row.rss = process->Number("rss") * 1024e-6;
      row.pss = process->Number("pss") * 1024e-6;
      rows.push_back(std::move(row));
      processes.push_back(std::move(process));
    }
  }
  for (int round = 0; round < rounds; ++round) {
    table.bandwidth = std::max(table.bandwidth, memory.Measure(threads));
    for (size_t i = 0; i < instructions.size(); ++i) table.rates[i].Measure(instructions[i], threads);
    for (size_t i = 0; i < rows.size(); ++i) {
      Row& row = rows[i];
      const int turn = std::clamp(static_cast<int>(kTurnSeconds / row.frame), 1, 50);
      row.firsts.push_back(processes[i]->Number("first"));
      (void)processes[i]->Number("frame");  // warm-up: the caches hold data of the other processes
      for (int frame = 0; frame < turn; ++frame) row.frames.push_back(processes[i]->Number("frame"));
    }
  }
  for (Row& row : rows) {
    row.frame = Median(row.frames);
    row.best = *std::min_element(row.frames.begin(), row.frames.end());
    row.first = Median(row.firsts);
    row.floor = row.work.Floor(table.bandwidth, table.rates[row.instructions]);
  }
  return table;
}

void Print(const Table& table, const std::vector<Instructions>& instructions, bool json) {
  const auto giga = [](double number) { return number * 1e-9; };
  const std::vector<Row>& rows = table.rows;
  int width = 10;
  for (const Row& row : rows) width = std::max(width, static_cast<int>(row.label.size()));
  if (!json) {
    std::printf("%d threads: reads %.1f GB/s\n", rows.front().threads, giga(table.bandwidth));
    for (size_t i = 0; i < instructions.size(); ++i) {
      const Rates& rates = table.rates[i];
      std::printf("%s: multiply-adds a ns: %.0f of F32, %.0f of BF16, %.0f of bytes\n", instructions[i].name().c_str(),
                  giga(rates.f32), giga(rates.bf16), giga(rates.int8));
    }
    std::printf("%-*s %9s %9s %8s %9s %9s %8s %9s %14s %9s %9s\n", width, "precision", "frame, ms", "(best)", "faster",
                "bytes, GB", "floor, ms", "reached", "first, ms", "load, again, s", "RSS, MB", "PSS, MB");
  }
  for (const Row& row : rows) {
    const Rates& rates = table.rates[row.instructions];
    if (json) {
      std::printf(
          "{\"precision\": \"%s\", \"backend\": \"%s\", \"threads\": %d, \"frame_ms\": %.3f, "
          "\"frame_best_ms\": %.3f, \"bytes\": %.0f, \"floor_ms\": %.3f, \"first_ms\": %.2f, "
          "\"load_first_s\": %.3f, \"load_s\": %.3f, \"rss_mb\": %.0f, \"pss_mb\": %.0f, "
          "\"bandwidth_gb_s\": %.2f, \"peak_f32\": %.1f, \"peak_bf16\": %.1f, \"peak_int8\": %.1f}\n",
          Name(row.arithmetic), row.backend.c_str(), row.threads, 1e3 * row.frame, 1e3 * row.best, row.work.bytes,
          1e3 * row.floor, 1e3 * row.first, row.load_first, row.load, row.rss, row.pss, giga(table.bandwidth),
          giga(rates.f32), giga(rates.bf16), giga(rates.int8));
      continue;
    }
    std::printf("%-*s %9.2f %9.2f %7.2fx %9.3f %9.2f %7.0f%% %9.1f %6.2f %7.2f %9.0f %9.0f\n", width, row.label.c_str(),
                1e3 * row.frame, 1e3 * row.best, rows.front().frame / row.frame, giga(row.work.bytes), 1e3 * row.floor,
                100 * row.floor / row.frame, 1e3 * row.first, row.load_first, row.load, row.rss, row.pss);
  }
  std::fflush(stdout);
}

// Speed-up against the first number of threads, beside that of the least time.
void PrintScaling(const std::vector<Table>& tables) {
  const std::vector<Row>& first = tables.front().rows;
  std::printf("speed-up from %d threads, and what of the floor's that is\n", first.front().threads);
  for (size_t p = 0; p < first.size(); ++p) {
    std::printf("%-10s", first[p].label.c_str());
    for (const Table& table : tables) {
      const Row& row = table.rows[p];
      const double reached = first[p].frame / row.frame;
      const double possible = first[p].floor / row.floor;
      std::printf("  %d: %.2fx (%.0f%%)", row.threads, reached, 100 * reached / possible);
    }
    std::printf("\n");
  }
}

Arithmetic ArithmeticOf(std::string_view name) {
  for (const Arithmetic arithmetic : {Arithmetic::kF32, Arithmetic::kBF16, Arithmetic::kInt8, Arithmetic::kInt4}) {
    if (name == Name(arithmetic)) return arithmetic;
  }
  Fail(std::string(name) + ": not one of f32, bf16, int8, int4");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 6 && std::string_view(argv[1]) == "--child") {
    const Instructions instructions = InstructionsOf(argv[5]);
    hwy::SetSupportedTargetsForTest(instructions.target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    cpu::DisableByteUnits(instructions.unit == cpu::ByteUnit::kPortable);
    return Child(argv[2], ArithmeticOf(argv[3]), bench::Number<int>("--child", argv[4], 1)).Serve();
  }
  std::string folder = QTTS_BENCH_VOICE;
  std::vector<Arithmetic> precisions = {Arithmetic::kF32, Arithmetic::kBF16, Arithmetic::kInt8, Arithmetic::kInt4};
  if (!cpu::HasBF16Products()) precisions.erase(precisions.begin() + 1);
  std::vector<Instructions> instructions = {{cpu::BestTarget(), cpu::BestByteUnit()}};
  std::vector<int> threads = {cpu::UsableProcessors().cores};
  int rounds = 15;
  bool json = false;
  bench::Arguments(kUsage)
      .Positional(&folder)
      .Flag("--json", &json)
      .Add("--precisions",
           [&](std::string_view list) {
             precisions.clear();
             for (const std::string& word : bench::Parts(list)) precisions.push_back(ArithmeticOf(word));
           })
      .Add("--instructions",
           [&](std::string_view list) {
             instructions.clear();
             for (const std::string& word : bench::Parts(list)) instructions.push_back(InstructionsOf(word));
           })
      .Add("--threads", &threads, 1)
      .Add("--rounds", &rounds, 1)
      .Parse(argc, argv);
  if (precisions.empty() || instructions.empty() || threads.empty()) Fail("nothing to measure");
  const Bandwidth memory;
  std::vector<Table> tables;
  for (const int count : threads) {
    tables.push_back(Measure(folder, precisions, instructions, count, rounds, memory));
    if (tables.back().rows.empty()) Fail("nothing to measure");
    Print(tables.back(), instructions, json);
  }
  if (tables.size() > 1 && !json) PrintScaling(tables);
  return 0;
}
