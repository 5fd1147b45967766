// SPDX-License-Identifier: LGPL-2.1-or-later
#include <gmock/gmock.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "backend/device_module.h"
#include "checkpoint/checkpoint.h"
#include "cuda_backend.h"
#include "device_choice.h"
#include "fake_cuda/fake_cuda.h"
#include "golden/generator/random_checkpoint.h"
#include "golden/generator/tensor_file.h"
#include "gpu/gpu_test.h"
#include "qtts/engine_options.h"

// Voices that fit into the memory of cards, with checkpoints of the released sizes. Memory is counted, so that their
// weights may be holes of sparse files.
namespace qtts {
namespace {

using cuda::CudaBackend;
using cuda::CudaOptions;
using ::testing::AllOf;
using ::testing::HasSubstr;

class SparseModel {
 public:
  explicit SparseModel(const std::string& preset) {
    folder_ = std::filesystem::path(::testing::TempDir()) / ("qtts-sparse-" + std::to_string(::getpid()) + preset);
    const auto spec = golden::FindPreset(preset);
    EXPECT_TRUE(spec.ok());
    const Status written = golden::WriteConfigFiles(folder_.string(), *spec);
    EXPECT_TRUE(written.ok()) << written.message();
    WriteHoles(folder_ / "model.safetensors", golden::ModelTensors(*spec));
    std::filesystem::create_directories(folder_ / "speech_tokenizer");
    WriteHoles(folder_ / "speech_tokenizer" / "model.safetensors", golden::CodecTensors(*spec));
    auto checkpoint = Checkpoint::Open(folder_.string());
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    if (checkpoint.ok()) checkpoint_ = *checkpoint;
  }
  ~SparseModel() {
    checkpoint_.reset();
    std::error_code error;
    std::filesystem::remove_all(folder_, error);
  }
  SparseModel(const SparseModel&) = delete;
  SparseModel& operator=(const SparseModel&) = delete;

  const Checkpoint& checkpoint() const { return *checkpoint_; }

 private:
  static void WriteHoles(const std::filesystem::path& path, const std::vector<golden::GeneratedTensor>& tensors) {
    const std::string header = golden::TensorFileHeader(tensors);
    std::ofstream(path, std::ios::binary) << header;
    int64_t bytes = 0;
    for (const golden::GeneratedTensor& tensor : tensors) bytes += golden::Bytes(tensor);
    std::filesystem::resize_file(path, header.size() + static_cast<size_t>(bytes));
  }

  std::filesystem::path folder_;
  std::shared_ptr<const Checkpoint> checkpoint_;
};

constexpr size_t kMiB = size_t{1} << 20;

class CardMemoryTest : public ::testing::Test {
 protected:
  ~CardMemoryTest() override {
    unsetenv("QTTS_CUDA_PRETEND");
    fake_cuda::Reset();
  }
  // A card of which CUDA's context and a desktop take `used` bytes.
  static void Pretend(const char* card, size_t used) {
    constexpr size_t kMemory = size_t{80} << 30;
    setenv("QTTS_CUDA_PRETEND", card, 1);
    fake_cuda::Reset({{.name = "NVIDIA H100", .memory = kMemory, .code = 80}});
    fake_cuda::LeaveMemory(0, kMemory - used);
  }
  static CudaOptions Options(int voices) {
    CudaOptions options;
    options.max_slots = voices;
    return options;
  }
  // Voices of an engine that may have the default number.
  static int Voices(const SparseModel& model, int voices = kDefaultVoices) {
    const auto choice = cuda::ChooseDevice(model.checkpoint(), Options(voices));
    return choice.ok() ? choice->voices : 0;
  }
};

TEST_F(CardMemoryTest, VoicesThatFit) {
  struct Case {
    const char* card;
    int small_model, large_model;  // voices of the 0.6B and the 1.7B, at least
  };
  const SparseModel small_model("0.6b-base");
  const SparseModel large_model("1.7b-base");
  for (const Case& c : {Case{"rtx3050", 32, 1}, Case{"rtx4060", 64, 32}, Case{"rtx3060", 64, 64}, Case{"l4", 64, 64},
                        Case{"orin", 64, 64}}) {
    SCOPED_TRACE(c.card);
    Pretend(c.card, 1024 * kMiB);
    EXPECT_GE(Voices(small_model), c.small_model);
    EXPECT_GE(Voices(large_model), c.large_model);
    // The tool's figure is the engine's.
    for (const SparseModel* const model : {&small_model, &large_model}) {
      const auto capacity = cuda::CapacityOf(model->checkpoint(), Options(kDefaultVoices));
      ASSERT_TRUE(capacity.ok()) << capacity.status().message();
      EXPECT_EQ(capacity->voices, Voices(*model));
    }
  }
}

// As many voices as are asked for by default begin where fewer fit; a number above the default is a demand.
TEST_F(CardMemoryTest, ASmallCardHasFewerVoicesByDefaultAndRefusesMany) {
  const SparseModel model("0.6b-base");
  Pretend("rtx3050", 1024 * kMiB);
  EXPECT_EQ(Voices(model, 1), 1);
  EXPECT_EQ(Voices(model, kMostVoices), 0);
  const Status refused = cuda::ChooseDevice(model.checkpoint(), Options(kMostVoices)).status();
  EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted);
  const auto capacity = cuda::CapacityOf(model.checkpoint(), Options(kMostVoices));
  ASSERT_TRUE(capacity.ok()) << capacity.status().message();
  EXPECT_THAT(refused.message(), AllOf(HasSubstr("voices=4096 need about"),
                                       HasSubstr("choose voices=" + std::to_string(capacity->voices) + " or fewer")));
  EXPECT_EQ(Voices(model, capacity->voices), capacity->voices);
  // Memory for just so many voices, and a byte less.
  for (const int voices : {1, 2, 10, 37}) {
    SCOPED_TRACE(voices);
    Pretend("rtx3050", 0);
    const auto exact = cuda::CapacityOf(model.checkpoint(), Options(voices));
    ASSERT_TRUE(exact.ok()) << exact.status().message();
    ASSERT_EQ(exact->voices, voices);
    const size_t needed = exact->model_bytes + exact->voice_bytes * static_cast<size_t>(voices);
    Pretend("rtx3050", exact->device_bytes - needed);
    EXPECT_EQ(Voices(model), voices);
    Pretend("rtx3050", exact->device_bytes - needed + 1);
    EXPECT_EQ(Voices(model), voices - 1);
  }
  Pretend("rtx3050", 4096 * kMiB);
  EXPECT_THAT(cuda::ChooseDevice(model.checkpoint(), Options(1)).status().message(),
              AllOf(HasSubstr("the model needs about"), HasSubstr("choose a smaller model")));
}

// The engine has the slots that were counted, and speaks in all of them.
TEST_F(CardMemoryTest, AnEngineHasTheVoicesThatFit) {
  fake_cuda::Reset();
  const testing::RandomModel model(testing::MidSize(false));
  constexpr int kFit = 10;
  const auto exact = cuda::CapacityOf(*model.checkpoint(), Options(kFit));
  ASSERT_TRUE(exact.ok()) << exact.status().message();
  fake_cuda::LeaveMemory(0, exact->model_bytes + kFit * exact->voice_bytes);
  const auto backend = CudaBackend::Create(model.checkpoint(), Options(kDefaultVoices));
  ASSERT_TRUE(backend.ok()) << backend.status().message();
  EXPECT_EQ((*backend)->max_slots(), kFit);
  std::mt19937 random(1);
  for (int i = 0; i < kFit; ++i) {
    const auto slot =
        (*backend)->Open(testing::RandomPrompt(model.checkpoint()->config(), 20, random), GenerationSettings(), 1);
    EXPECT_TRUE(slot.ok()) << slot.status().message();
  }
}

// Engines of few voices take less where the codec's scratch memory is the plan's.
TEST_F(CardMemoryTest, FewVoicesTakeLess) {
  const SparseModel model("0.6b-base");
  Pretend("rtx3060", 0);
  const auto held = [&](int voices) {
    const auto memory = CudaBackend::CountMemory(model.checkpoint(), Options(voices));
    EXPECT_TRUE(memory.ok()) << memory.status().message();
    return memory.ok() ? memory->held : 0;
  };
  EXPECT_LT(held(1) + 50 * kMiB, held(64));
}

}  // namespace
}  // namespace qtts
