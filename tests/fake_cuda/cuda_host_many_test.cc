// SPDX-License-Identifier: LGPL-2.1-or-later
// Many voices: launches of a frame, and the memory that is counted for them.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "backend/device_module.h"
#include "codec/codec.h"
#include "cuda_host_fixture.h"
#include "device_choice.h"
#include "language_model.h"
#include "runtime/memory_count.h"

namespace qtts::cuda_host {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// The backend knows cuBLASLt where the build has its header.
#if __has_include(<cublasLt.h>)
constexpr bool kHasLibrary = true;
#else
constexpr bool kHasLibrary = false;
#endif

// --- many voices

TEST_F(CudaHostTest, AFrameOfManyIsALaunchOfCodesAndOneOfEachSliceOfSoundAndAllocatesNothing) {
  constexpr int kMany = 300;
  const auto launches_of = [](size_t rows) { return rows > 256 ? 3 : 2; };
  const auto backend = NewBackend(kMany);
  ASSERT_EQ(backend->max_slots(), kMany);
  std::vector<FrameStep> steps;
  for (int i = 0; i < kMany; ++i) {
    steps.push_back({OpenAndPrefill(backend.get(), NewPrompt(config(), 20, &random_)), kNoText});
  }
  EXPECT_EQ(backend->Open(NewPrompt(config(), 20, &random_), GenerationSettings(), 1).status().code(),
            StatusCode::kResourceExhausted);
  const std::vector<std::string> first = CallsOf([&] { ASSERT_TRUE(Step(backend.get(), steps).ok()); });
  EXPECT_EQ(Count(first, "cudaGraphLaunch"), launches_of(kMany));
  for (FrameStep& step : steps) step.text_id = 0;
  for (const size_t rows : {size_t{300}, size_t{65}, size_t{1}, size_t{257}, size_t{256}, size_t{290}}) {
    const std::vector<FrameStep> some(steps.begin(), steps.begin() + static_cast<std::ptrdiff_t>(rows));
    const std::vector<std::string> calls = CallsOf([&] {
      ASSERT_TRUE(backend->Submit(some).ok());
      const auto results = backend->Collect();
      ASSERT_TRUE(results.ok()) << results.status().message();
      ASSERT_EQ(results->size(), rows);
      for (size_t i = 0; i < rows; ++i) {
        EXPECT_EQ((*results)[i].slot, some[i].slot);
        EXPECT_EQ((*results)[i].pcm.size(), static_cast<size_t>(config().codec.samples_per_frame));
      }
    });
    EXPECT_EQ(Count(calls, "cudaGraphLaunch"), launches_of(rows)) << rows;
    EXPECT_EQ(Count(calls, "cudaStreamBeginCapture"), 0) << rows;
    const std::set<std::string> names(calls.begin(), calls.end());
    EXPECT_THAT(names, ::testing::IsSubsetOf({"cudaSetDevice", "cudaGraphLaunch", "cudaEventRecord", "cudaEventQuery",
                                              "cudaStreamWaitEvent"}));
  }
  const size_t alive = fake_cuda::alive();
  for (const FrameStep& step : steps) backend->Close(step.slot);
  ASSERT_TRUE(SpeakTogether(backend.get(), NewPrompt(config(), 20, &random_)).ok());
  EXPECT_EQ(fake_cuda::alive(), alive) << "memory stays flat";
}

TEST_F(CudaHostTest, FirstFramesJoinTheOthersOfAStepOfMany) {
  constexpr int kMany = 200;
  const auto backend = NewBackend(kMany);
  std::vector<FrameStep> steps;
  for (int i = 0; i < kMany; ++i) {
    steps.push_back({OpenAndPrefill(backend.get(), NewPrompt(config(), 20, &random_)), kNoText});
  }
  struct Case {
    size_t others, newcomers;
    int launches;  // of codes and of sound
  };
  size_t next = 100;
  ASSERT_TRUE(Step(backend.get(), {steps.begin(), steps.begin() + 100}).ok());
  for (const Case& c : {Case{100, 3, 2}, Case{65, 20, 2}, Case{64, 3, 4}, Case{65, 66, 4}}) {
    std::vector<FrameStep> some(steps.begin(), steps.begin() + static_cast<std::ptrdiff_t>(c.others));
    for (FrameStep& step : some) step.text_id = 0;
    for (size_t i = 0; i < c.newcomers; ++i) some.push_back(steps[next++]);
    const std::vector<std::string> calls = CallsOf([&] { ASSERT_TRUE(Step(backend.get(), some).ok()); });
    EXPECT_EQ(Count(calls, "cudaGraphLaunch"), c.launches) << c.others << " and " << c.newcomers;
    EXPECT_EQ(Count(calls, "cudaStreamBeginCapture"), 0);
  }
}

// Where contexts are cut into splits, steps of long contexts take many launches: more are under way than the rings have
// entries.
TEST_F(CudaHostTest, AStepOfManyLaunchesGoesAroundTheRings) {
  constexpr int kMany = 80;
  CudaOptions options = Options(-1, kMany);
  options.products = cuda::ManyRowsProducts::kWarp;
  auto created = CudaBackend::Create(model_.checkpoint(), options);
  ASSERT_TRUE(created.ok()) << created.status().message();
  const auto backend = std::move(*created);
  const Prompt long_prompt = NewPrompt(config(), 17000, &random_);
  const Prompt short_prompt = NewPrompt(config(), 20, &random_);
  std::vector<FrameStep> steps;
  for (int i = 0; i < kMany; ++i) {
    steps.push_back({OpenAndPrefill(backend.get(), i % 8 == 0 ? short_prompt : long_prompt), kNoText});
  }
  ASSERT_TRUE(Step(backend.get(), steps).ok());
  for (FrameStep& step : steps) step.text_id = 0;
  for (int round = 0; round < 3; ++round) {
    const std::vector<std::string> calls = CallsOf([&] {
      for (int i = 0; i < 2; ++i) ASSERT_TRUE(backend->Submit(steps).ok());
    });
    EXPECT_GT(Count(calls, "cudaGraphLaunch"), 2 * cuda::kManyRowsRing) << "each frame is one of codes, one of sound";
    backend->Close(steps[1].slot);
    for (int i = 0; i < 2; ++i) {
      const auto results = backend->Collect();
      ASSERT_TRUE(results.ok()) << results.status().message();
      ASSERT_EQ(results->size(), steps.size());
      for (size_t n = 0; n < steps.size(); ++n) {
        EXPECT_EQ((*results)[n].slot, steps[n].slot);
        EXPECT_EQ((*results)[n].end, n == 1 ? EndReason::kError : EndReason::kNone);
        EXPECT_EQ((*results)[n].codes.empty(), n == 1) << n;
      }
    }
    steps.erase(steps.begin() + 1);
  }
}

// Attention over whole contexts needs no memory for splits, so rows of any contexts share a launch. Launches of fewer
// rows than its minimum are padded if they do not fit otherwise.
TEST_F(CudaHostTest, WithoutSplitsAFrameOfLongContextsIsOneLaunch) {
  constexpr int kMany = 80;
  CudaOptions options = Options(-1, kMany);
  options.products = cuda::ManyRowsProducts::kWarpgroup;
  options.prompt_rows = cuda::Sequences::kRowsAtOnce;
  const auto backend = CudaBackend::Create(model_.checkpoint(), options);
  ASSERT_TRUE(backend.ok()) << backend.status().message();
  const Prompt long_prompt = NewPrompt(config(), 17000, &random_);
  const Prompt short_prompt = NewPrompt(config(), 20, &random_);
  std::vector<FrameStep> steps;
  for (int i = 0; i < kMany; ++i) {
    steps.push_back({OpenAndPrefill(backend->get(), i % 2 == 0 ? short_prompt : long_prompt), kNoText});
  }
  ASSERT_TRUE(Step(backend->get(), steps).ok());
  for (FrameStep& step : steps) step.text_id = 0;
  for (const size_t rows : {size_t{80}, size_t{64}, size_t{40}, size_t{3}}) {
    const std::vector<FrameStep> some(steps.begin(), steps.begin() + static_cast<std::ptrdiff_t>(rows));
    const std::vector<std::string> calls = CallsOf([&] { ASSERT_TRUE(Step(backend->get(), some).ok()); });
    EXPECT_EQ(Count(calls, "cudaGraphLaunch"), 2) << rows << ": one of codes, one of sound";
    EXPECT_EQ(Count(calls, "cudaStreamBeginCapture"), 0) << rows;
  }
  EXPECT_THAT(fake_cuda::misuse(), IsEmpty());
}

TEST_F(CudaHostTest, ManyVoicesBeginWithoutAnAllocation) {
  constexpr int kMany = 100;
  const auto backend = NewBackend(kMany);
  ASSERT_TRUE(backend->AllocateFirstPages().ok());
  EXPECT_GE(backend->pages().free, kMany);
  const Prompt prompt = NewPrompt(config(), 20, &random_);
  backend->Close(OpenAndPrefill(backend.get(), prompt));  // allocates room for uploads
  const std::vector<std::string> calls = CallsOf([&] {
    std::vector<FrameStep> steps;
    for (int i = 0; i < kMany; ++i) {
      steps.push_back({OpenAndPrefill(backend.get(), prompt), kNoText});
    }
    ASSERT_TRUE(Step(backend.get(), steps).ok());
  });
  EXPECT_EQ(Count(calls, "cudaMalloc"), 0);
  EXPECT_EQ(Count(calls, "cudaMemGetInfo"), 0);
}

TEST_F(CudaHostTest, FirstPagesOfManyVoicesTakeAQuarterOfTheFreeMemoryAtMost) {
  const auto first_pages = [this](size_t free) {
    const auto backend = NewBackend(2000);
    const size_t before = backend->facts().cache_bytes;
    fake_cuda::LeaveMemory(0, free);
    EXPECT_TRUE(backend->AllocateFirstPages().ok());
    const size_t allocated = backend->facts().cache_bytes - before;
    fake_cuda::LeaveMemory(0, size_t{16} << 30);
    return allocated;
  };
  const size_t all = first_pages(size_t{15} << 30);
  const size_t some = first_pages(2 * all);
  EXPECT_GT(some, 0u);
  EXPECT_LE(some, all / 2 + all / 20) << "whole blocks of pages";
  EXPECT_EQ(first_pages(0), 0u) << "voices allocate when they begin";
}

TEST_F(CudaHostTest, FewVoicesAllocateWhenTheyBegin) {
  const auto backend = NewBackend(kDefaultVoices);
  const size_t before = fake_cuda::used_memory(0);
  ASSERT_TRUE(backend->AllocateFirstPages().ok());
  EXPECT_EQ(fake_cuda::used_memory(0), before);
}

TEST_F(CudaHostTest, MoreVoicesThanFitAreRefusedWithTheNumberThatFits) {
  fake_cuda::Reset({{.name = "Half GPU", .memory = size_t{2} << 30}});
  const auto capacity = cuda::CapacityOf(*model_.checkpoint(), Options(-1, kMostVoices));
  ASSERT_TRUE(capacity.ok()) << capacity.status().message();
  EXPECT_EQ(capacity->device, "Half GPU");
  EXPECT_EQ(capacity->compute_capability, "9.0");
  EXPECT_DOUBLE_EQ(capacity->bandwidth, 256e9);  // 1 GHz, both edges, 1024 bits
  EXPECT_GT(capacity->voices, kDefaultVoices);
  EXPECT_LT(capacity->voices, kMostVoices);
  const auto refused = CudaBackend::Create(model_.checkpoint(), Options(-1, kMostVoices));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(refused.status().message(), AllOf(HasSubstr("voices=4096 need about"), HasSubstr("choose voices=")));
  const auto fits = CudaBackend::Create(model_.checkpoint(), Options(-1, 100));
  EXPECT_TRUE(fits.ok()) << fits.status().message();
}

// Weights of 8 bits take 17 of 32 bytes, without a second copy, and what a frame reads is counted alike.
TEST_F(CudaHostTest, Int8TakesHalfOfTheMemory) {
  const auto memory_of = [&](const RandomModel& model, cuda::WeightForm weights) {
    CudaOptions options = Options(0, 1);
    options.weights = weights;
    options.path = cuda::FramePath::kGraph;
    const auto counted = CudaBackend::CountMemory(*model.checkpoint(), options);
    EXPECT_TRUE(counted.ok()) << counted.status().message();
    return *counted;
  };
  const RandomModel model(FullWidth(true));
  const cuda::LoadMemory bf16 = memory_of(model, cuda::WeightForm::kPlain);
  const cuda::LoadMemory int8 = memory_of(model, cuda::WeightForm::kInt8);
  // FullWidth() has two layers of each part, a frame reads the predictor's 15 times, and the codec's are the same.
  EXPECT_LT(int8.frame_bytes, bf16.frame_bytes);
  EXPECT_LT(int8.held, bf16.held);
  const auto backend = CudaBackend::Create(model.checkpoint(), [&] {
    CudaOptions options = Options(0, 1);
    options.weights = cuda::WeightForm::kInt8;
    return options;
  }());
  ASSERT_TRUE(backend.ok()) << backend.status().message();
  EXPECT_THAT((*backend)->name(), HasSubstr(", int8)"));
  CudaOptions plain = Options(0, 1);
  const auto larger = CudaBackend::Create(model.checkpoint(), plain);
  ASSERT_TRUE(larger.ok()) << larger.status().message();
  EXPECT_EQ((*backend)->facts().frame_bytes * 32, (*larger)->facts().frame_bytes * 17);
}

// Where BF16 does not fit and int8 does, the error says so.
TEST_F(CudaHostTest, AModelThatFitsInInt8AloneIsToldHow) {
  const RandomModel model(FullWidth(true));
  const auto needs = [&](cuda::WeightForm weights) {
    CudaOptions options = Options(0, 1);
    options.weights = weights;
    const auto counted = CudaBackend::CountMemory(*model.checkpoint(), options);
    EXPECT_TRUE(counted.ok()) << counted.status().message();
    return std::max(counted->max_held, counted->held + (size_t{512} << 20));
  };
  const size_t bf16 = needs(cuda::WeightForm::kPlain);
  const size_t int8 = needs(cuda::WeightForm::kInt8);
  ASSERT_LT(int8, bf16);
  CudaOptions options = Options(-1, 1);
  fake_cuda::Reset({{.name = "Small GPU", .memory = (int8 + bf16) / 2}});
  const auto refused = CudaBackend::Create(model.checkpoint(), options);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.status().message(), HasSubstr("choose precision=int8 with device=cuda ("));
  options.weights = cuda::WeightForm::kInt8;
  EXPECT_TRUE(cuda::ChooseDevice(*model.checkpoint(), options).ok());
  fake_cuda::Reset({{.name = "Small GPU", .memory = int8 - (size_t{16} << 20)}});
  for (const cuda::WeightForm weights : {cuda::WeightForm::kPlain, cuda::WeightForm::kInt8}) {
    options.weights = weights;
    const auto none = CudaBackend::Create(model.checkpoint(), options);
    ASSERT_FALSE(none.ok());
    EXPECT_THAT(none.status().message(), AllOf(HasSubstr("choose a smaller model"), Not(HasSubstr("int8"))));
  }
}

TEST_F(CudaHostTest, Int8IsForTheProjectsOwnProducts) {
  CudaOptions options = Options();
  options.weights = cuda::WeightForm::kInt8;
  options.products = cuda::ManyRowsProducts::kLibrary;
  const auto library = CudaBackend::Create(model_.checkpoint(), options);
  ASSERT_FALSE(library.ok());
  EXPECT_THAT(library.status().message(), HasSubstr("cublaslt needs precision=bf16"));
}

// Expects that `load`, which frees what it has loaded, takes the same memory whether it is counted or allocated, and
// that counting asks nothing of the device.
void ExpectSameMemory(const std::function<void()>& load) {
  fake_cuda::Reset();
  size_t counted = 0;
  const std::vector<std::string> calls = CallsOf([&] {
    cuda::MemoryCount count;
    load();
    counted = count.max_held();
    EXPECT_EQ(count.held(), 0U);
  });
  EXPECT_EQ(fake_cuda::most_memory(0), 0U);
  for (const char* const call : {"cudaMemcpy", "cudaMemset", "cudaLaunch", "cudaStreamCreate", "cudaEventCreate"}) {
    EXPECT_EQ(Count(calls, call), 0) << call;
  }
  load();
  EXPECT_EQ(fake_cuda::most_memory(0), counted);
}

// The load that counts and the load that allocates take the same memory, byte for byte.
TEST_F(CudaHostTest, MemoryThatIsCountedIsMemoryThatIsAllocated) {
  golden::RandomCheckpointSpec released_codec = MidSize(false);
  released_codec.codec = Preset("0.6b-custom").codec;
  released_codec.codec_dtype = DType::kF16;
  using cuda::CodecPrecision;
  using cuda::ManyRowsProducts;
  using cuda::Precision;
  struct Case {
    int voices;
    Precision precision;
    CodecPrecision codec_precision;
    ManyRowsProducts products;
    cuda::WeightForm weights = cuda::WeightForm::kPlain;
  };
  std::vector<Case> cases = {{1, Precision::kBF16, CodecPrecision::kExact, ManyRowsProducts::kBest},
                             {65, Precision::kBF16, CodecPrecision::kFast, ManyRowsProducts::kBest},
                             {256, Precision::kBF16, CodecPrecision::kExact, ManyRowsProducts::kBest},
                             {256, Precision::kBF16, CodecPrecision::kExact, ManyRowsProducts::kWarp},
                             {65, Precision::kF32, CodecPrecision::kExact, ManyRowsProducts::kBest}};
  for (const int voices : {1, 65}) {
    cases.push_back(
        {voices, Precision::kBF16, CodecPrecision::kExact, ManyRowsProducts::kBest, cuda::WeightForm::kInt8});
  }
  if (kHasLibrary) cases.push_back({65, Precision::kBF16, CodecPrecision::kExact, ManyRowsProducts::kLibrary});
  for (const auto& spec : {Preset("tiny-base-0b6"), FullWidth(true), released_codec}) {
    const RandomModel model(spec);
    for (const Case& c : cases) {
      SCOPED_TRACE("talker " + std::to_string(spec.talker.hidden_size) + ", codec " +
                   std::to_string(spec.codec.decoder_dim) + ", voices " + std::to_string(c.voices));
      fake_cuda::Reset();
      CudaOptions options = Options(0, c.voices);
      options.precision = c.precision;
      options.codec_precision = c.codec_precision;
      options.products = c.products;
      options.weights = c.weights;
      const Checkpoint& checkpoint = *model.checkpoint();
      ExpectSameMemory([&] {
        const auto loaded = cuda::LanguageModel::Create(checkpoint, options, nullptr);
        EXPECT_TRUE(loaded.ok()) << loaded.status().message();
      });
      ExpectSameMemory([&] {
        const auto loaded = cuda::Codec::Create(checkpoint.config().codec, checkpoint.codec(), c.codec_precision,
                                                c.voices, std::min(c.voices, 256));
        EXPECT_TRUE(loaded.ok()) << loaded.status().message();
      });
      const auto counted = CudaBackend::CountMemory(checkpoint, options);
      ASSERT_TRUE(counted.ok()) << counted.status().message();
      const auto backend = CudaBackend::Create(model.checkpoint(), options);
      ASSERT_TRUE(backend.ok()) << backend.status().message();
      // An utterance has spoken: there are eight states of the codec, and room for uploads.
      constexpr size_t kUploads = size_t{1} << 20;
      EXPECT_GT(fake_cuda::used_memory(0), counted->held);
      EXPECT_LT(fake_cuda::used_memory(0), counted->held + 8 * counted->voice_bytes + kUploads);
      EXPECT_EQ(fake_cuda::most_memory(0), std::max(counted->max_held, fake_cuda::used_memory(0)));
    }
  }
}

// Memory that is free after the load holds as many voices as the count says.
TEST_F(CudaHostTest, AVoiceTakesWhatItWasCountedWith) {
  const auto used_by = [&](int voices) {
    const auto backend = NewBackend(voices);
    const Prompt prompt = NewPrompt(config(), 2 * cuda::kPagePositions - 40, &random_);
    for (int i = 0; i < voices; ++i) {
      const auto slot = backend->Open(prompt, GenerationSettings(), 1);
      EXPECT_TRUE(slot.ok() && PrefillAll(backend.get(), *slot).ok());
    }
    return static_cast<double>(fake_cuda::used_memory(0));
  };
  const auto held_by = [&](int voices) {
    const auto counted = CudaBackend::CountMemory(*model_.checkpoint(), Options(0, voices));
    EXPECT_TRUE(counted.ok()) << counted.status().message();
    return static_cast<double>(counted->held + static_cast<size_t>(voices) * counted->voice_bytes);
  };
  const double added = used_by(512) - used_by(257);
  EXPECT_NEAR(held_by(512) - held_by(257), added, added / 10);
}

// A variable of fake_cublas_lt.cc, while that is open.
template <typename T>
T* VariableOfLibrary(const char* name) {
  void* const library = dlopen("libcublasLt.so.13", RTLD_NOW | RTLD_LOCAL);
  EXPECT_NE(library, nullptr) << dlerror();
  return library == nullptr ? nullptr : static_cast<T*>(dlsym(library, name));
}

// After the weights are plain rows, the library computes all products of frames and prompts, each followed by one
// kernel. The remaining products are those that selected the algorithms.
TEST_F(CudaHostTest, ProductsByTheLibrary) {
  if (!kHasLibrary) GTEST_SKIP() << "there is no cublasLt.h";
  auto* const products = VariableOfLibrary<int64_t>("fake_cublas_lt_products");
  ASSERT_NE(products, nullptr);
  CudaOptions options = Options(0, kDefaultVoices + 1);
  options.products = cuda::ManyRowsProducts::kLibrary;
  options.prompt_rows = cuda::Sequences::kRowsAtOnce;
  const int64_t before = *products;
  const auto calls = CallsOf([&] {
    auto backend = CudaBackend::Create(model_.checkpoint(), options);
    ASSERT_TRUE(backend.ok()) << backend.status().message();
    const Status status = UseEverything(model_.checkpoint()->config(), backend->get(), nullptr);
    EXPECT_TRUE(status.ok()) << status.message();
  });
  const auto is = [](const char* name) {
    return [name](const std::string& call) { return call.find(name) != std::string::npos; };
  };
  const auto last = std::find_if(calls.rbegin(), calls.rend(), is("UnpackKernel"));
  ASSERT_NE(last, calls.rend());
  const std::vector<std::string> later(last.base(), calls.end());
  EXPECT_GT(Count(later, "FinishKernel"), 0);
  EXPECT_LT(Count(later, "FinishKernel"), *products - before);
  EXPECT_EQ(Count(later, "Bf16Kernel") + Count(later, "WideKernel") + Count(later, "ClusterKernel"), 0);
  EXPECT_EQ(fake_cuda::alive(), 0U);
  EXPECT_THAT(fake_cuda::misuse(), IsEmpty());
}

TEST_F(CudaHostTest, WithoutTheLibraryItsProductsAreRefused) {
  if (!kHasLibrary) GTEST_SKIP() << "there is no cublasLt.h";
  auto* const refuses = VariableOfLibrary<bool>("fake_cublas_lt_refuses");
  ASSERT_NE(refuses, nullptr);
  CudaOptions options = Options();
  options.products = cuda::ManyRowsProducts::kLibrary;
  *refuses = true;
  const auto backend = CudaBackend::Create(model_.checkpoint(), options);
  *refuses = false;
  ASSERT_FALSE(backend.ok());
  EXPECT_THAT(backend.status().message(), HasSubstr("cuBLASLt: opening"));
  options.precision = cuda::Precision::kF32;
  EXPECT_EQ(CudaBackend::Create(model_.checkpoint(), options).status().code(), StatusCode::kUnsupported);
}

// A fast codec has half the weights, and less state for each voice.
TEST_F(CudaHostTest, AFastCodecNeedsLessMemory) {
  golden::RandomCheckpointSpec released_codec = MidSize(false);
  released_codec.codec = Preset("0.6b-custom").codec;
  released_codec.codec_dtype = DType::kF16;
  const RandomModel model(released_codec);
  CudaOptions options = Options(0, 1000);
  const auto exact = cuda::CapacityOf(*model.checkpoint(), options);
  options.codec_precision = cuda::CodecPrecision::kFast;
  const auto fast = cuda::CapacityOf(*model.checkpoint(), options);
  ASSERT_TRUE(exact.ok() && fast.ok());
  EXPECT_LT(fast->model_bytes, exact->model_bytes);
  EXPECT_LT(fast->voice_bytes, exact->voice_bytes);
  // With F32 the codec computes in F32.
  options.precision = cuda::Precision::kF32;
  const auto f32 = cuda::CapacityOf(*model.checkpoint(), options);
  options.codec_precision = cuda::CodecPrecision::kExact;
  const auto same = cuda::CapacityOf(*model.checkpoint(), options);
  ASSERT_TRUE(f32.ok() && same.ok());
  EXPECT_EQ(f32->model_bytes, same->model_bytes);
}

// The kernels' names contain the number of planes: <column tiles, planes, ...>.
TEST_F(CudaHostTest, AFastCodecHasOnePlane) {
  const auto products_of = [&](cuda::CodecPrecision precision) {
    fake_cuda::Reset();
    CudaOptions options = Options();
    options.codec_precision = precision;
    const auto backend = CudaBackend::Create(model_.checkpoint(), options);
    EXPECT_TRUE(backend.ok()) << backend.status().message();
    EXPECT_EQ((*backend)->name().find("fast codec") != std::string::npos, precision == cuda::CodecPrecision::kFast);
    std::set<std::string> planes;
    for (const std::string& call : fake_cuda::calls()) {
      for (const std::string kind : {"NarrowGemmI", "WideGemmI", "ClusterGemmI"}) {
        const size_t at = call.find(kind);
        if (at == std::string::npos) continue;
        // Mangled: Li8ELi2E.
        planes.insert(call.substr(call.find("ELi", at) + 3, 1));
      }
    }
    return planes;
  };
  EXPECT_EQ(products_of(cuda::CodecPrecision::kExact), (std::set<std::string>{"2"}));
  EXPECT_EQ(products_of(cuda::CodecPrecision::kFast), (std::set<std::string>{"1"}));
}

}  // namespace
}  // namespace qtts::cuda_host
