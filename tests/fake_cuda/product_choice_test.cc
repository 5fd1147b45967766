// SPDX-License-Identifier: LGPL-2.1-or-later
#include <dlfcn.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "cuda_backend.h"
#include "fake_cuda/fake_cuda.h"
#include "gpu/gpu_test.h"
#include "language_model.h"

// The products of an engine by its voices and card: the project's own, or cuBLASLt's. The stand-in for that library is
// fake_cublas_lt.cc.
namespace qtts {
namespace {

using cuda::CudaBackend;
using cuda::CudaOptions;
using cuda::ManyRowsProducts;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string>& Warnings() {
  static auto* const lines = new std::vector<std::string>();
  return *lines;
}
constexpr LogSink kWarningSink = {[](LogLevel level) { return level == LogLevel::kWarning; },
                                  [](LogLevel, const char* line) { Warnings().emplace_back(line); }};

// The kernels with which a backend's frames and prompts were captured.
struct Kernels {
  int64_t library = 0, own = 0, tiles = 0;
  int64_t whole_contexts = 0;
};

class ProductChoiceTest : public ::testing::Test {
 protected:
  ProductChoiceTest() {
    Warnings().clear();
    SetLogSink(&kWarningSink);
#if !__has_include(<cublasLt.h>)
    GTEST_SKIP() << "there is no cublasLt.h";
#endif
    library_ = dlopen("libcublasLt.so.13", RTLD_NOW | RTLD_LOCAL);
    EXPECT_NE(library_, nullptr) << dlerror();
  }
  ~ProductChoiceTest() override {
    if (library_ != nullptr) dlclose(library_);
    SetLogSink(nullptr);
    fake_cuda::Reset();
  }

  // A variable of fake_cublas_lt.cc.
  template <typename T>
  T& Variable(const char* name) {
    auto* const variable = static_cast<T*>(dlsym(library_, name));
    EXPECT_NE(variable, nullptr) << name;
    static T none;
    return variable == nullptr ? none : *variable;
  }

  static void UseCard(int major, int code) {
    fake_cuda::Reset({{.name = "A card", .major = major, .memory = size_t{80} << 30, .code = code}});
  }
  static void UseAmpere() { UseCard(8, 80); }

  Kernels KernelsOf(const CudaOptions& options) {
    {
      const auto backend = CudaBackend::Create(model_.checkpoint(), options);
      EXPECT_TRUE(backend.ok()) << backend.status().message();
    }
    EXPECT_THAT(fake_cuda::misuse(), IsEmpty());
    EXPECT_EQ(fake_cuda::alive(), 0U);
    const std::vector<std::string>& calls = fake_cuda::calls();
    const auto captured = std::find_if(calls.begin(), calls.end(), [](const std::string& call) {
      return call.find("cudaStreamBeginCapture") != std::string::npos;
    });
    // By their mangled names, without those of the codec.
    const auto count = [&](const char* folder, const char* name) {
      return std::count_if(captured, calls.end(), [&](const std::string& call) {
        return call.find(folder) != std::string::npos && call.find(name) != std::string::npos;
      });
    };
    return {.library = count("4cuda4gemm", "FinishKernel"),
            .own = count("4cuda4gemm", "WideKernel"),
            .tiles = count("4cuda4gemm", "TileKernel"),
            .whole_contexts = count("4cuda9attention", "PairContextKernel")};
  }

  static CudaOptions Options(int voices) {
    CudaOptions options;
    options.max_slots = voices;
    return options;
  }

  const testing::RandomModel model_{testing::FullWidth(false)};
  void* library_ = nullptr;
};

TEST_F(ProductChoiceTest, MoreThan64VoicesWithoutWarpgroupsTakeTheLibrary) {
  for (const auto& [major, code] : {std::pair(8, 80), std::pair(12, 120), std::pair(9, 80)}) {
    SCOPED_TRACE(code);
    UseCard(major, code);
    const Kernels kernels = KernelsOf(Options(65));
    EXPECT_GT(kernels.library, 0);
    EXPECT_EQ(kernels.own + kernels.tiles, 0) << "rows of all numbers have the same bits";
    EXPECT_GT(kernels.whole_contexts, 0) << "attention as on a Hopper";
  }
  EXPECT_THAT(Warnings(), IsEmpty());
}

TEST_F(ProductChoiceTest, OthersHaveTheProjectsOwn) {
  UseAmpere();
  const Kernels few_voices = KernelsOf(Options(64));
  EXPECT_EQ(few_voices.library, 0);
  EXPECT_GT(few_voices.own, 0);
  EXPECT_GT(few_voices.whole_contexts, 0) << "of 64 rows";
  UseCard(9, 90);
  const Kernels hopper = KernelsOf(Options(65));
  EXPECT_EQ(hopper.library, 0);
  EXPECT_GT(hopper.tiles, 0);
  UseAmpere();
  CudaOptions f32 = Options(65);
  f32.precision = cuda::Precision::kF32;
  EXPECT_EQ(KernelsOf(f32).library, 0);
  UseAmpere();
  CudaOptions own = Options(65);
  own.products = ManyRowsProducts::kWarp;
  const Kernels asked_for = KernelsOf(own);
  EXPECT_EQ(asked_for.library + asked_for.whole_contexts, 0);
  EXPECT_GT(asked_for.own, 0);
  EXPECT_THAT(Warnings(), IsEmpty());
}

// One warning says what to install, and the engine has the project's own products.
TEST_F(ProductChoiceTest, WithoutTheLibraryAWarningSaysWhatToInstall) {
  const auto expect_own = [&](const char* why) {
    UseAmpere();
    Warnings().clear();
    const Kernels kernels = KernelsOf(Options(65));
    EXPECT_EQ(kernels.library, 0);
    EXPECT_GT(kernels.own, 0);
    EXPECT_GT(kernels.whole_contexts, 0);
    EXPECT_THAT(Warnings(),
                ElementsAre(AllOf(HasSubstr("voices=65"), HasSubstr(why), HasSubstr("QTTS_CUDA_PRODUCTS=own"))));
  };
  Variable<bool>("fake_cublas_lt_refuses") = true;
  expect_own("cuBLASLt: opening");
  EXPECT_THAT(Warnings(), ElementsAre(HasSubstr("install cuBLAS of CUDA 12 or 13")));
  Variable<bool>("fake_cublas_lt_refuses") = false;
  Variable<size_t>("fake_cublas_lt_version") = 110300;
  expect_own("version 110300");
  Variable<size_t>("fake_cublas_lt_version") = 130000;
  Variable<bool>("fake_cublas_lt_rows_matter") = true;
  expect_own("has no algorithm");
  Variable<bool>("fake_cublas_lt_rows_matter") = false;
}

// An engine that was asked to use the library has no other products to fall back to.
TEST_F(ProductChoiceTest, AnUnknownVersionIsAnErrorWhereTheLibraryWasAskedFor) {
  UseAmpere();
  CudaOptions options = Options(1);
  options.products = ManyRowsProducts::kLibrary;
  Variable<size_t>("fake_cublas_lt_version") = 110300;
  const auto backend = CudaBackend::Create(model_.checkpoint(), options);
  Variable<size_t>("fake_cublas_lt_version") = 130000;
  ASSERT_FALSE(backend.ok());
  EXPECT_THAT(backend.status().message(), AllOf(HasSubstr("version 110300"), HasSubstr("install cuBLAS")));
}

}  // namespace
}  // namespace qtts
