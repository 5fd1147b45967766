// SPDX-License-Identifier: LGPL-2.1-or-later
#include "cpu/thread_choice.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <ctime>
#include <limits>
#include <new>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "cpu/kernels.h"

namespace qtts::cpu {
namespace {

using Clock = std::chrono::steady_clock;

// A frame's loops are too short for more threads.
constexpr int kMaxThreads = 64;

// Times within this factor of the best count as equal.
constexpr double kSameTime = 1.05;
// The search stops at a time this much longer than the best.
constexpr double kStopSearch = 1.5;

// Size of the measured matrices: more than most last-level caches.
constexpr int64_t kMostBytes = int64_t{64} << 20U;
// Bytes read per measurement.
constexpr int64_t kPassBytes = int64_t{3} << 20U;
constexpr int kPasses = 4;  // the fastest one counts

// CPU time / (wall-clock time * threads). Below this, threads had to wait for a CPU.
constexpr double kMinCpuShare = 0.9;

// Zeroed memory, in large pages if the system has them.
class Zeros {
 public:
  explicit Zeros(size_t bytes)
      : bytes_(bytes), data_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    if (data_ == MAP_FAILED) throw std::bad_alloc();
    (void)madvise(data_, bytes, MADV_HUGEPAGE);
  }
  ~Zeros() { munmap(data_, bytes_); }
  Zeros(const Zeros&) = delete;
  Zeros& operator=(const Zeros&) = delete;

  std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  size_t bytes_;
  void* data_;
};

double ProcessorSeconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// Returns the time of the fastest pass in which all `threads` had a CPU; none if there was no such pass.
template <typename Function>
std::optional<double> BestSeconds(int threads, const Function& function) {
  std::optional<double> best;
  for (int pass = 0; pass < kPasses; ++pass) {
    const double processor_begin = ProcessorSeconds();
    const Clock::time_point begin = Clock::now();
    function();
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    const double processor = ProcessorSeconds() - processor_begin;
    if (processor >= kMinCpuShare * threads * seconds) best = std::min(seconds, best.value_or(seconds));
  }
  return best;
}

// One-row products with BF16 matrices in memory.
class Products {
 public:
  Products(const FrameCost& cost, ThreadPool* pool)
      : pool_(*pool),
        rows_(std::clamp<int64_t>(cost.matrix_bytes / kRowBytes, 8, kPassBytes / kRowBytes)),
        matrices_(std::clamp<int64_t>(std::min(cost.distinct_bytes, kMostBytes) / (rows_ * kRowBytes), 1,
                                      kMostBytes / (rows_ * kRowBytes))),
        zeros_(static_cast<size_t>(matrices_ * rows_ * kRowBytes)),
        x_(kColumns),
        y_(static_cast<size_t>(rows_)) {
    // Write to every page once: unwritten pages all map to the same zero page.
    const int64_t bytes = matrices_ * rows_ * kRowBytes;
    pool_.ParallelFor(bytes, kPageBytes, WorkOfReading(bytes), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; i += kPageBytes) zeros_.data()[i] = std::byte{0};
    });
  }

  // Returns the seconds to read `bytes`.
  std::optional<double> Measure(int64_t bytes) {
    const int64_t loops = std::clamp<int64_t>(kPassBytes / (rows_ * kRowBytes), 1, 16);
    const auto seconds = BestSeconds(pool_.threads(), [&] {
      for (int64_t i = 0; i < loops; ++i) Run();
    });
    if (!seconds.has_value()) return std::nullopt;
    return *seconds * static_cast<double>(bytes) / static_cast<double>(loops * rows_ * kRowBytes);
  }

 private:
  static constexpr int64_t kColumns = 1024;
  static constexpr int64_t kRowBytes = 2 * kColumns;
  static constexpr int64_t kPageBytes = 4096;

  void Run() {
    const MatrixView matrix{DType::kBF16, zeros_.data() + next_ * rows_ * kRowBytes, rows_, kColumns};
    next_ = (next_ + 1) % matrices_;
    pool_.ParallelFor(rows_, 8, WorkOfReading(rows_ * kRowBytes), [&](int64_t begin, int64_t end) {
      MatMul(matrix, nullptr, x_.data(), 1, begin, end, y_.data());
    });
  }

  ThreadPool& pool_;
  int64_t rows_;
  int64_t matrices_;
  Zeros zeros_;
  std::vector<float> x_, y_;
  int64_t next_ = 0;
};

// A convolution as in the codec's last blocks.
class Convolution {
 public:
  explicit Convolution(ThreadPool* pool)
      : pool_(*pool),
        weights_(kTaps * kChannels * kChannels),
        bias_(kChannels),
        x_((kRows + kTaps - 1) * kChannels),
        y_(kRows * kChannels) {}

  // Returns the seconds for `multiply_adds`.
  std::optional<double> Measure(int64_t multiply_adds) {
    const ConvView conv{DType::kF32, weights_.data(), bias_.data(), kChannels, kChannels, kTaps};
    constexpr int64_t kWork = kRows * kTaps * kChannels * kChannels;
    const auto seconds = BestSeconds(pool_.threads(), [&] {
      pool_.ParallelFor(kRows, 16, kWork, [&](int64_t begin, int64_t end) {
        Conv(conv, x_.data() + begin * kChannels, end - begin, 0, conv.panels(), false, y_.data() + begin * kChannels);
      });
    });
    if (!seconds.has_value()) return std::nullopt;
    return *seconds * static_cast<double>(multiply_adds) / static_cast<double>(kWork);
  }

 private:
  static constexpr int64_t kRows = 256;
  static constexpr int64_t kTaps = 7;
  static constexpr int64_t kChannels = 48;

  ThreadPool& pool_;
  std::vector<float> weights_, bias_, x_, y_;
};

}  // namespace

int InitialThreads(int threads) { return threads > 0 ? threads : std::min(UsableProcessors().threads, kMaxThreads); }

int ThreadsForArithmetic(int threads) {
  return threads > 0 ? threads : std::min(UsableProcessors().cores, kMaxThreads);
}

std::vector<int> ThreadCandidates(const Processors& usable) {
  std::vector<int> candidates = {std::min(usable.threads, kMaxThreads)};
  const auto add = [&](int threads) {
    if (threads >= 1 && threads < candidates.back()) candidates.push_back(threads);
  };
  for (int part = usable.cores; part >= 1; part /= 2) {
    add(part);
    add(part * 3 / 4);
  }
  return candidates;
}

int ChooseThreads(const Processors& usable, const Measure& measure) {
  double best = std::numeric_limits<double>::infinity();
  std::vector<std::pair<int, double>> times;
  for (const int threads : ThreadCandidates(usable)) {
    const std::optional<double> time = measure(threads);
    if (!time.has_value() && threads == usable.cores) return threads;
    if (!time.has_value()) continue;
    times.emplace_back(threads, *time);
    best = std::min(best, *time);
    if (*time > kStopSearch * best) break;
  }
  int chosen = usable.cores;
  for (const auto& [threads, time] : times) {
    if (time <= kSameTime * best) chosen = threads;
  }
  return chosen;
}

void ResizeToBest(const FrameCost& cost, ThreadPool* pool) {
  Processors usable = UsableProcessors();
  usable.threads = std::min(usable.threads, pool->threads());
  usable.cores = std::min(usable.cores, usable.threads);
  if (usable.threads == 1) return pool->Resize(1);
  Products products(cost, pool);
  Convolution convolution(pool);
  pool->Resize(ChooseThreads(usable, [&](int threads) -> std::optional<double> {
    pool->Resize(threads);
    const std::optional<double> reading = products.Measure(cost.weight_bytes);
    const std::optional<double> convolving = convolution.Measure(cost.multiply_adds);
    if (!reading.has_value() || !convolving.has_value()) return std::nullopt;
    return *reading + *convolving;
  }));
}

}  // namespace qtts::cpu
