// SPDX-License-Identifier: LGPL-2.1-or-later
// Products of quantised matrices and one row, ours and ggml's in turn: all products of a pass of the released code
// predictor, whose weights exceed the caches. Built by tests/bench/beside-ggml, which fetches ggml's sources.
#include <ggml-cpu.h>
#include <ggml.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cpu/linear.h"
#include "cpu/quantized_kernels.h"
#include "cpu/thread_pool.h"
#include "cpu/weight_packer.h"

namespace {

using qtts::cpu::Arithmetic;
using Clock = std::chrono::steady_clock;

constexpr int kLayers = 5;
constexpr int kRounds = 60;

struct Shape {
  int64_t out, in;
};
// q, k, v, o, gate, up, down.
constexpr std::array<Shape, 7> kShapes = {
    {{2048, 1024}, {1024, 1024}, {1024, 1024}, {1024, 2048}, {3072, 1024}, {3072, 1024}, {1024, 3072}}};

std::vector<float> Random(int64_t count) {
  static uint32_t state = 1;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) {
    state = state * 1664525 + 1013904223;
    value = static_cast<float>(state >> 8) / static_cast<float>(1 << 24) - 0.5F;
  }
  return values;
}

// A pass of ours.
class Ours {
 public:
  Ours(const std::vector<std::vector<float>>& weights, Arithmetic arithmetic, qtts::cpu::ThreadPool& pool)
      : pool_(pool), packer_(arithmetic, pool) {
    for (size_t i = 0; i < weights.size(); ++i) {
      const Shape& shape = kShapes[i % kShapes.size()];
      qtts::TensorView view;
      view.dtype = qtts::DType::kF32;
      view.data = weights[i].data();
      view.shape = {shape.out, shape.in};
      products_.emplace_back(view, &packer_);
    }
    x_ = Random(3072);
    y_.resize(2 * 3072 + 2048);
  }

  void Run() {
    for (size_t i = 0; i < products_.size(); i += kShapes.size()) {
      using qtts::cpu::Linear;
      float* const y = y_.data();
      const Linear* const p = &products_[i];
      Linear::RunTogether(pool_, x_.data(), 1, {{p, y}, {p + 1, y + 2048}, {p + 2, y + 3072}});
      Linear::RunTogether(pool_, x_.data(), 1, {{p + 3, y}});
      Linear::RunTogether(pool_, x_.data(), 1, {{p + 4, y}, {p + 5, y + 3072}});
      Linear::RunTogether(pool_, x_.data(), 1, {{p + 6, y}});
    }
  }

  size_t bytes() const { return packer_.bytes(); }

 private:
  qtts::cpu::ThreadPool& pool_;
  qtts::cpu::WeightPacker packer_;
  std::vector<qtts::cpu::Linear> products_;
  std::vector<float> x_, y_;
};

// A pass of ggml's.
class Theirs {
 public:
  Theirs(const std::vector<std::vector<float>>& weights, ggml_type type, int threads) {
    context_ = ggml_init({size_t{256} << 20U, nullptr, false});
    graph_ = ggml_new_graph(context_);
    for (size_t i = 0; i < weights.size(); ++i) {
      const Shape& shape = kShapes[i % kShapes.size()];
      ggml_tensor* const w = ggml_new_tensor_2d(context_, type, shape.in, shape.out);
      ggml_quantize_chunk(type, weights[i].data(), w->data, 0, shape.out, shape.in, nullptr);
      bytes_ += ggml_nbytes(w);
      ggml_tensor* const x = ggml_new_tensor_1d(context_, GGML_TYPE_F32, shape.in);
      const std::vector<float> values = Random(shape.in);
      std::copy(values.begin(), values.end(), static_cast<float*>(x->data));
      ggml_build_forward_expand(graph_, ggml_mul_mat(context_, w, x));
    }
    ggml_threadpool_params params = ggml_threadpool_params_default(threads);
    pool_ = ggml_threadpool_new(&params);
    plan_ = ggml_graph_plan(graph_, threads, pool_);
    work_.resize(plan_.work_size);
    plan_.work_data = work_.data();
  }
  ~Theirs() {
    ggml_threadpool_free(pool_);
    ggml_free(context_);
  }
  Theirs(const Theirs&) = delete;
  Theirs& operator=(const Theirs&) = delete;

  void Run() {
    if (ggml_graph_compute(graph_, &plan_) != GGML_STATUS_SUCCESS) std::abort();
  }

  size_t bytes() const { return bytes_; }

 private:
  ggml_context* context_ = nullptr;
  ggml_cgraph* graph_ = nullptr;
  ggml_threadpool* pool_ = nullptr;
  ggml_cplan plan_{};
  std::vector<uint8_t> work_;
  size_t bytes_ = 0;
};

struct Contender {
  std::string name;
  std::function<void()> run;
  size_t bytes = 0;
  std::vector<double> times;
};

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 2;
  std::vector<std::vector<float>> weights;
  for (int layer = 0; layer < kLayers; ++layer) {
    for (const Shape& shape : kShapes) weights.push_back(Random(shape.out * shape.in));
  }
  qtts::cpu::ThreadPool pool(threads);
  Ours int8(weights, Arithmetic::kInt8, pool);
  Ours int4(weights, Arithmetic::kInt4, pool);
  Theirs q8_0(weights, GGML_TYPE_Q8_0, threads);
  Theirs q4_0(weights, GGML_TYPE_Q4_0, threads);
  Theirs q4_k(weights, GGML_TYPE_Q4_K, threads);
  std::vector<Contender> contenders = {{"int8", [&] { int8.Run(); }, int8.bytes(), {}},
                                       {"ggml Q8_0", [&] { q8_0.Run(); }, q8_0.bytes(), {}},
                                       {"int4", [&] { int4.Run(); }, int4.bytes(), {}},
                                       {"ggml Q4_0", [&] { q4_0.Run(); }, q4_0.bytes(), {}},
                                       {"ggml Q4_K", [&] { q4_k.Run(); }, q4_k.bytes(), {}}};
  for (int round = 0; round < kRounds; ++round) {
    for (Contender& contender : contenders) {
      contender.run();  // the threads wake up
      const Clock::time_point begin = Clock::now();
      contender.run();
      contender.times.push_back(std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
    }
  }
  std::printf("a pass of the code predictor's products, %d threads, %d rounds in turn\n", threads, kRounds);
  std::printf("%-10s %12s %10s %10s %10s\n", "", "median, ms", "best, ms", "MB", "GB/s");
  for (Contender& contender : contenders) {
    std::sort(contender.times.begin(), contender.times.end());
    const double median = contender.times[contender.times.size() / 2];
    std::printf("%-10s %12.3f %10.3f %10.1f %10.1f\n", contender.name.c_str(), median, contender.times.front(),
                static_cast<double>(contender.bytes) * 1e-6, static_cast<double>(contender.bytes) * 1e-6 / median);
  }
  return 0;
}
