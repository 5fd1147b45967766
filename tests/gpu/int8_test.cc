// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gemm/int8.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "cuda_backend.h"
#include "gemm/arguments.h"
#include "gemm/few.h"
#include "gemm/gemm.h"
#include "gemm/unpack_int8.h"
#include "gpu/device.h"
#include "gpu/gpu_test.h"
#include "gpu/int8_checkpoint.h"
#include "gpu/int8_values.h"
#include "runtime/device.h"
#include "runtime/device_memory.h"
#include "runtime/device_table.h"

// precision=int8: the bits of BF16 weights that have the rounded values, from every kernel, alone and in company.
namespace qtts {
namespace {

using cuda::CudaBackend;
using cuda::CudaOptions;
using cuda::DeviceMemory;
using cuda::GemmKind;
using cuda::GemmRows;
using cuda::GemmShape;
using cuda::Matrix;
using cuda::PackPart;
using cuda::Padded;
using cuda::Precision;
using cuda::WeightForm;
using testing::FullWidth;
using testing::MidSize;
using testing::Preset;
using testing::RandomModel;
using testing::RandomPrompt;

template <typename T>
DeviceMemory ToDevice(const std::vector<T>& values) {
  auto memory = DeviceMemory::Allocate(values.size() * sizeof(T));
  EXPECT_TRUE(memory.ok());
  EXPECT_EQ(cudaMemcpy(memory->data(), values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice), cudaSuccess);
  return std::move(*memory);
}

std::vector<char> ToHost(const DeviceMemory& memory) {
  std::vector<char> bytes(memory.bytes());
  EXPECT_EQ(cudaMemcpy(bytes.data(), memory.data(), bytes.size(), cudaMemcpyDeviceToHost), cudaSuccess);
  return bytes;
}

struct Size {
  GemmKind kind;
  int outputs, columns;
};

// A matrix of random weights in 8 bits, and one of BF16 with its values. Some groups are zero, some large.
class Pair {
 public:
  Pair(const Size& size, unsigned seed) : random_(seed) {
    for (Matrix* matrix : {&int8, &plain}) {
      matrix->kind = size.kind;
      matrix->outputs = size.outputs;
      matrix->columns = size.columns;
    }
    int8.form = WeightForm::kInt8;
    int8_memory_ = Zeroed(int8.bytes(Precision::kBF16));
    plain_memory_ = Zeroed(plain.bytes(Precision::kBF16));
    unpacked_ = Zeroed(plain.bytes(Precision::kBF16));
    int8.data = int8_memory_.data();
    plain.data = plain_memory_.data();
    int8.unpacked = unpacked_.data();
    if (size.kind == GemmKind::kNormGated) {
      Fill(PackPart::kGate);
      Fill(PackPart::kUp);
    } else {
      Fill(PackPart::kWhole);
      std::uniform_real_distribution<float> uniform(-1, 1);
      std::vector<float> bias(static_cast<size_t>(size.outputs));
      for (float& b : bias) b = uniform(random_);
      bias_ = ToDevice(bias);
      int8.bias = plain.bias = bias_.as<const float>();
    }
  }

  const DeviceMemory& plain_memory() const { return plain_memory_; }
  const DeviceMemory& unpacked() const { return unpacked_; }

  Matrix int8, plain;

 private:
  static DeviceMemory Zeroed(size_t bytes) {
    auto memory = DeviceMemory::AllocateZeroed(bytes);
    EXPECT_TRUE(memory.ok());
    return std::move(*memory);
  }

  void Fill(PackPart part) {
    std::normal_distribution<float> normal(0, 1 / std::sqrt(static_cast<float>(int8.columns)));
    std::vector<float> weights(static_cast<size_t>(int8.outputs) * static_cast<size_t>(int8.columns));
    for (size_t i = 0; i < weights.size(); ++i) {
      const size_t group = i / 40;
      weights[i] = normal(random_) * (group % 11 == 0 ? 0.0F : group % 13 == 0 ? 100.0F : 1.0F);
    }
    const cuda::Launcher launch(nullptr, &cuda::kH200Numbers);
    const DeviceMemory exact = ToDevice(weights);
    Pack(launch, Precision::kBF16, int8, part, DType::kF32, exact.data(), 0, int8.outputs);
    testing::RoundToInt8(int8.outputs, int8.columns, weights.data());
    const DeviceMemory values = ToDevice(weights);
    Pack(launch, Precision::kBF16, plain, part, DType::kF32, values.data(), 0, int8.outputs);
    EXPECT_EQ(launch.error, cudaSuccess);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }

  std::mt19937 random_;
  DeviceMemory int8_memory_, plain_memory_, unpacked_, bias_;
};

// Activations of products of one width, and room for results.
class Rows {
 public:
  static constexpr int kRows = 300;

  Rows(GemmKind kind, int columns, int outputs, unsigned seed)
      : normed_(kind == GemmKind::kNormStore || kind == GemmKind::kNormGated),
        floats_out_(kind == GemmKind::kNormStore || kind == GemmKind::kAdd),
        width_(Padded(columns)),
        y_stride_(outputs) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    std::vector<float> norm(static_cast<size_t>(width_));
    for (int k = 0; k < columns; ++k) norm[static_cast<size_t>(k)] = 1 + normal(random) / 8;
    norm_ = ToDevice(norm);
    std::vector<float> floats(static_cast<size_t>(kRows) * static_cast<size_t>(width_));
    for (int r = 0; r < kRows; ++r) {
      for (int k = 0; k < columns; ++k) floats[static_cast<size_t>(r * width_ + k)] = normal(random);
    }
    std::vector<uint16_t> halves;
    for (const float value : floats) halves.push_back(cuda::gemm::Bf16OfFloat(value));
    x_ = normed_ ? ToDevice(floats) : ToDevice(halves);
    normed_x_ = ToDevice(std::vector<uint16_t>(floats.size()));
    factors_ = ToDevice(std::vector<float>(kRows));
    y_ = ToDevice(std::vector<float>(static_cast<size_t>(kRows) * static_cast<size_t>(y_stride_)));
  }

  // Bytes of the results of `rows` rows, which begin with the same values each time.
  std::vector<char> Run(const cuda::Launcher& launch, const Matrix& matrix, int rows, GemmShape shape) const {
    EXPECT_EQ(cudaMemset(y_.data(), 0x3C, y_.bytes()), cudaSuccess);
    Enqueue(launch, matrix, rows, shape);
    EXPECT_EQ(launch.error, cudaSuccess) << cudaGetErrorString(launch.error);
    return ToHost(y_);
  }

  GemmRows Arguments(int rows, GemmShape shape) const {
    GemmRows r;
    r.x = x_.data();
    r.x_stride = width_;
    r.y = y_.data();
    r.y_stride = y_stride_;
    r.rows = rows;
    r.norm = normed_ ? norm_.as<const float>() : nullptr;
    r.eps = 1e-6F;
    r.normed = {normed_x_.data(), factors_.as<float>(), width_};
    r.shape = shape;
    return r;
  }

  void Enqueue(const cuda::Launcher& launch, const Matrix& matrix, int rows, GemmShape shape) const {
    Gemm(launch, Precision::kBF16, matrix, Arguments(rows, shape));
  }

  const DeviceMemory& y() const { return y_; }

 private:
  bool normed_, floats_out_;
  int width_, y_stride_;
  DeviceMemory norm_, x_, normed_x_, factors_, y_;
};

class Int8Products : public ::testing::TestWithParam<Size> {};

// Sizes that fill tiles, chunks and shares, and sizes that do not.
std::vector<Size> Sizes() {
  std::vector<Size> sizes;
  for (const GemmKind kind :
       {GemmKind::kNormStore, GemmKind::kNormGated, GemmKind::kAdd, GemmKind::kStore, GemmKind::kStoreSilu}) {
    for (const auto& [outputs, columns] :
         {std::pair(37, 50), std::pair(16, 32), std::pair(96, 416), std::pair(1024, 1024), std::pair(256, 3072),
          std::pair(512, 2048), std::pair(64, 6144)}) {
      sizes.push_back({kind, outputs, columns});
    }
  }
  return sizes;
}

INSTANTIATE_TEST_SUITE_P(Sizes, Int8Products, ::testing::ValuesIn(Sizes()), [](const auto& test) {
  return "kind" + std::to_string(static_cast<int>(test.param.kind)) + "_" + std::to_string(test.param.outputs) + "x" +
         std::to_string(test.param.columns);
});

// The device rounds as the plain arithmetic of int8_values.h, and unpacks to the BF16 matrix, byte for byte.
TEST_P(Int8Products, UnpackedWeightsAreTheValues) {
  QTTS_NEEDS_DEVICE();
  const Pair pair(GetParam(), 1);
  const cuda::Launcher launch(nullptr, &cuda::kH200Numbers);
  cuda::gemm::UnpackInt8(launch, pair.int8, nullptr);
  EXPECT_EQ(launch.error, cudaSuccess);
  EXPECT_EQ(ToHost(pair.unpacked()), ToHost(pair.plain_memory()));
}

TEST_P(Int8Products, EveryShapeGivesTheBitsOfBf16) {
  QTTS_NEEDS_DEVICE();
  const Size size = GetParam();
  const Pair pair(size, 2);
  const Rows rows(size.kind, size.columns, size.outputs, 3);
  auto numbers = cuda::NumbersOfDevice();
  ASSERT_TRUE(numbers.ok());
  if (cuda::HasWarpgroupProducts()) numbers->products.many_rows = cuda::ManyRowsProducts::kWarpgroup;
  const cuda::DeviceDescription* device = nullptr;
  ASSERT_EQ(cuda::DescribeDevice(&device), cudaSuccess);
  const cuda::Launcher launch(nullptr, &*numbers);
  Matrix never_unpacked = pair.int8;
  never_unpacked.unpacked = nullptr;
  for (const int count : {1, 2, 7, 8, 9, 16, 17, 31, 32, 33, 64, 65, 128, Rows::kRows}) {
    const std::vector<char> expected = rows.Run(launch, pair.plain, count, GemmShape::kBest);
    // The kernel for few rows stages them whole, beside some memory of its own.
    constexpr size_t kBeside = size_t{8} << 10;
    const size_t stage = cuda::gemm::FewStageBytes(pair.int8.chunks(), std::min(count, cuda::gemm::kTileRows));
    if (stage + kBeside <= device->shared_per_block) {
      EXPECT_EQ(rows.Run(launch, never_unpacked, count, GemmShape::kBest), expected) << count << " rows from the codes";
    }
    int shapes = 0;
    for (int shape = static_cast<int>(GemmShape::kBest); shape < static_cast<int>(GemmShape::kTiles128); ++shape) {
      const auto named = static_cast<GemmShape>(shape);
      if (!CanRun(named, pair.plain, rows.Arguments(count, named), numbers->products)) continue;
      ++shapes;
      EXPECT_EQ(rows.Run(launch, pair.int8, count, named), expected) << count << " rows, shape " << shape;
    }
    EXPECT_GE(shapes, 4);
  }
}

// Products that share the memory of their values follow one another, each as soon as the device allows.
TEST(Int8SharedMemory, AProductReadsItsOwnValues) {
  QTTS_NEEDS_DEVICE();
  constexpr int kMatrices = 3, kRounds = 20, kCount = 64;
  const Size size = {GemmKind::kNormStore, 1024, 1024};
  auto numbers = cuda::NumbersOfDevice();
  ASSERT_TRUE(numbers.ok());
  std::vector<std::unique_ptr<Pair>> pairs;
  std::vector<std::unique_ptr<Rows>> rows;
  std::vector<std::vector<char>> expected;
  const cuda::Launcher plain(nullptr, &*numbers);
  for (unsigned i = 0; i < kMatrices; ++i) {
    pairs.push_back(std::make_unique<Pair>(size, 10 + i));
    rows.push_back(std::make_unique<Rows>(size.kind, size.columns, size.outputs, 20 + i));
    pairs[i]->int8.unpacked = pairs[0]->int8.unpacked;
    expected.push_back(rows[i]->Run(plain, pairs[i]->plain, kCount, GemmShape::kBest));
    EXPECT_EQ(cudaMemset(rows[i]->y().data(), 0x3C, rows[i]->y().bytes()), cudaSuccess);
  }
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  const cuda::Launcher launch(stream, &*numbers, testing::Device().CanOverlap());
  for (int round = 0; round < kRounds; ++round) {
    for (size_t i = 0; i < kMatrices; ++i) rows[i]->Enqueue(launch, pairs[i]->int8, kCount, GemmShape::kBest);
  }
  EXPECT_EQ(launch.error, cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  for (size_t i = 0; i < kMatrices; ++i) EXPECT_EQ(ToHost(rows[i]->y()), expected[i]) << i;
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

struct Speech {
  std::vector<std::vector<int32_t>> codes;
  std::vector<float> pcm;
  EndReason end = EndReason::kNone;

  bool operator==(const Speech&) const = default;
};

// Speaks with these seeds together, up to so many frames each, after prompts that depend on the seed alone.
std::vector<Speech> Speak(CudaBackend* backend, const ModelConfig& config, const std::vector<unsigned>& seeds) {
  constexpr int kFrames = 12;
  std::vector<Speech> speech(seeds.size());
  std::vector<SlotId> slots;
  for (const unsigned seed : seeds) {
    std::mt19937 random(seed);
    const auto rows = static_cast<int>(5 + random() % 40);
    const auto slot = backend->Open(RandomPrompt(config, rows, random), GenerationSettings(), seed);
    EXPECT_TRUE(slot.ok()) << slot.status().message();
    if (!slot.ok()) return speech;
    for (bool done = false; !done;) {
      const auto progress = backend->Prefill(*slot);
      EXPECT_TRUE(progress.ok()) << progress.status().message();
      done = !progress.ok() || progress->done;
    }
    slots.push_back(*slot);
  }
  for (int frame = 0; frame < kFrames; ++frame) {
    std::vector<FrameStep> steps;
    std::vector<size_t> speakers;
    for (size_t i = 0; i < seeds.size(); ++i) {
      if (speech[i].end != EndReason::kNone) continue;
      steps.push_back(
          {slots[i], frame == 0 ? kNoText : static_cast<int32_t>((seeds[i] + static_cast<unsigned>(frame)) % 7)});
      speakers.push_back(i);
    }
    if (steps.empty()) break;
    const Status status = backend->Submit(steps);
    EXPECT_TRUE(status.ok()) << status.message();
    const auto results = backend->Collect();
    EXPECT_TRUE(results.ok()) << results.status().message();
    if (!results.ok()) return speech;
    for (size_t k = 0; k < results->size(); ++k) {
      Speech& s = speech[speakers[k]];
      const FrameResult& result = (*results)[k];
      s.end = result.end;
      if (result.end != EndReason::kNone) continue;
      s.codes.push_back(result.codes);
      s.pcm.insert(s.pcm.end(), result.pcm.begin(), result.pcm.end());
    }
  }
  for (const SlotId slot : slots) backend->Close(slot);
  return speech;
}

std::unique_ptr<CudaBackend> Load(const RandomModel& model, WeightForm weights, int voices, cuda::FramePath path) {
  CudaOptions options;
  options.weights = weights;
  options.max_slots = voices;
  options.path = path;
  auto backend = CudaBackend::Create(model.checkpoint(), options);
  EXPECT_TRUE(backend.ok()) << backend.status().message();
  return backend.ok() ? std::move(*backend) : nullptr;
}

golden::RandomCheckpointSpec Spec(const std::string& name) {
  if (name == "mid-0b6") return MidSize(false);
  if (name == "mid-1b7") return MidSize(true);
  if (name == "full-0b6") return FullWidth(false);
  if (name == "full-1b7") return FullWidth(true);
  if (name == "odd-sizes") {
    golden::RandomCheckpointSpec spec = Preset("tiny-custom-0b6");
    spec.talker.hidden_size = 50;
    spec.talker.intermediate_size = 77;
    spec.talker.num_attention_heads = 6;
    spec.talker.num_key_value_heads = 2;
    spec.talker.head_dim = 40;
    spec.talker.attention_bias = spec.predictor.attention_bias = 1;
    spec.predictor.hidden_size = 37;
    spec.predictor.num_attention_heads = 4;
    spec.predictor.num_key_value_heads = 1;
    spec.predictor.head_dim = 8;
    spec.dtype = DType::kF32;
    return spec;
  }
  return Preset(name);
}

class Int8Model : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Structures, Int8Model,
                         ::testing::Values("tiny-base-0b6", "tiny-base-1b7", "tiny-custom-0b6", "tiny-custom-1b7",
                                           "tiny-design-1b7", "odd-sizes", "mid-0b6", "mid-1b7", "full-0b6",
                                           "full-1b7"),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// Codes and samples, on the best path and on the graph's, alone and in company of 3, 12 and 40: few rows, rows of which
// the predictor's first pass alone is unpacked, and many.
TEST_P(Int8Model, SpeaksAsAModelOfTheValues) {
  QTTS_NEEDS_DEVICE();
  for (const uint64_t seed : {1, 2}) {
    golden::RandomCheckpointSpec spec = Spec(GetParam());
    spec.seed = seed;
    const RandomModel model(spec);
    const RandomModel values(spec,
                             [](const std::string& folder) { EXPECT_GT(testing::RoundCheckpointToInt8(folder), 20); });
    const ModelConfig& config = model.checkpoint()->config();
    constexpr int kVoices = 40;
    std::vector<unsigned> all(kVoices);
    for (unsigned i = 0; i < kVoices; ++i) all[i] = i;
    // One after the other: together they would need more than 12 GB.
    std::vector<Speech> expected, of_unrounded;
    int64_t frame_bytes = 0;
    {
      const auto bf16 = Load(values, WeightForm::kPlain, kVoices, cuda::FramePath::kGraph);
      ASSERT_NE(bf16, nullptr);
      expected = Speak(bf16.get(), config, all);
      frame_bytes = bf16->facts().frame_bytes;
    }
    {
      const auto unrounded = Load(model, WeightForm::kPlain, kVoices, cuda::FramePath::kGraph);
      ASSERT_NE(unrounded, nullptr);
      of_unrounded = Speak(unrounded.get(), config, all);
    }
    EXPECT_FALSE(of_unrounded == expected) << "the test could not fail";
    for (const auto path : {cuda::FramePath::kBest, cuda::FramePath::kGraph}) {
      const auto int8 = Load(model, WeightForm::kInt8, kVoices, path);
      ASSERT_NE(int8, nullptr);
      EXPECT_LT(int8->facts().frame_bytes, frame_bytes * 6 / 10);
      for (const int company : {1, 3, 12, kVoices}) {
        const std::vector<unsigned> seeds(all.end() - company, all.end());
        EXPECT_TRUE(std::equal(expected.end() - company, expected.end(), Speak(int8.get(), config, seeds).begin()))
            << company << " voices, path " << static_cast<int>(path) << ", seed " << seed;
      }
    }
  }
}

}  // namespace
}  // namespace qtts
