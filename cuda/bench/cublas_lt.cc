// SPDX-License-Identifier: LGPL-2.1-or-later
#include "bench/cublas_lt.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#if __has_include(<cublasLt.h>)
#include <cublasLt.h>
#include <dlfcn.h>
#define QTTS_HAVE_CUBLAS_LT 1
#endif

namespace qtts::cuda {

#ifdef QTTS_HAVE_CUBLAS_LT

namespace {

constexpr size_t kWorkspaceBytes = size_t{32} << 20;

Status LtStatus(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return Status::Ok();
  return Status::Internal(std::string("cuBLASLt: ") + what + ": status " + std::to_string(static_cast<int>(status)));
}

}  // namespace

// The functions in use, under their own names.
#define QTTS_LT_FUNCTIONS(X)              \
  X(cublasLtCreate)                       \
  X(cublasLtDestroy)                      \
  X(cublasLtGetVersion)                   \
  X(cublasLtMatmul)                       \
  X(cublasLtMatmulAlgoConfigGetAttribute) \
  X(cublasLtMatmulAlgoGetHeuristic)       \
  X(cublasLtMatmulDescCreate)             \
  X(cublasLtMatmulDescDestroy)            \
  X(cublasLtMatmulDescSetAttribute)       \
  X(cublasLtMatmulPreferenceCreate)       \
  X(cublasLtMatmulPreferenceDestroy)      \
  X(cublasLtMatmulPreferenceSetAttribute) \
  X(cublasLtMatrixLayoutCreate)           \
  X(cublasLtMatrixLayoutDestroy)

struct CublasLt::Library {
  void* file = nullptr;
  cublasLtHandle_t handle = nullptr;
  DeviceMemory workspace;
#define QTTS_LT_MEMBER(name) decltype(&::name) name = nullptr;
  QTTS_LT_FUNCTIONS(QTTS_LT_MEMBER)
#undef QTTS_LT_MEMBER

  ~Library() {
    if (handle != nullptr) cublasLtDestroy(handle);
    if (file != nullptr) dlclose(file);
  }
};

struct CublasLt::Product::Impl {
  const Library* library = nullptr;
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t weights = nullptr;
  int outputs = 0, columns = 0;
  cublasLtMatmulAlgo_t algorithm = {};
  std::string name;

  // Layouts of x and y, for a number of rows. The library's matrices lie column by column, so ours are transposed.
  struct Rows {
    const Library* library;
    cublasLtMatrixLayout_t x = nullptr, y = nullptr;
    explicit Rows(const Library* of) : library(of) {}
    Rows(const Rows&) = delete;
    Rows& operator=(const Rows&) = delete;
    ~Rows() {
      if (x != nullptr) library->cublasLtMatrixLayoutDestroy(x);
      if (y != nullptr) library->cublasLtMatrixLayoutDestroy(y);
    }
    Status Create(const Impl& of, int64_t rows) {
      const auto count = static_cast<uint64_t>(rows);
      const auto k = static_cast<uint64_t>(of.columns);
      const auto n = static_cast<uint64_t>(of.outputs);
      QTTS_RETURN_IF_ERROR(
          LtStatus(library->cublasLtMatrixLayoutCreate(&x, CUDA_R_16BF, k, count, of.columns), "a layout"));
      return LtStatus(library->cublasLtMatrixLayoutCreate(&y, CUDA_R_16BF, n, count, of.outputs), "a layout");
    }
  };

  ~Impl() {
    if (weights != nullptr) library->cublasLtMatrixLayoutDestroy(weights);
    if (operation != nullptr) library->cublasLtMatmulDescDestroy(operation);
  }

  Status Run(const cublasLtMatmulAlgo_t& with, int64_t rows, const void* w, const void* x, void* y,
             cudaStream_t stream) const {
    Rows layouts(library);
    QTTS_RETURN_IF_ERROR(layouts.Create(*this, rows));
    const float one = 1, zero = 0;
    return LtStatus(
        library->cublasLtMatmul(library->handle, operation, &one, w, weights, x, layouts.x, &zero, y, layouts.y, y,
                                layouts.y, &with, library->workspace.data(), kWorkspaceBytes, stream),
        "a product");
  }

  int Attribute(const cublasLtMatmulAlgo_t& of, cublasLtMatmulAlgoConfigAttributes_t attribute) const {
    int value = 0;
    size_t written = 0;
    (void)library->cublasLtMatmulAlgoConfigGetAttribute(&of, attribute, &value, sizeof(value), &written);
    return value;
  }
};

Result<std::unique_ptr<CublasLt>> CublasLt::Open() {
  auto library = std::make_unique<Library>();
  for (const char* name : {"libcublasLt.so.13", "libcublasLt.so.12"}) {
    if (library->file == nullptr) library->file = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  }
  if (library->file == nullptr) return Status::Unsupported("neither libcublasLt.so.13 nor libcublasLt.so.12 is there");
#define QTTS_LT_LOAD(name)                                                                \
  library->name = reinterpret_cast<decltype(library->name)>(dlsym(library->file, #name)); \
  if (library->name == nullptr) return Status::Unsupported("cuBLASLt has no function " #name);
  QTTS_LT_FUNCTIONS(QTTS_LT_LOAD)
#undef QTTS_LT_LOAD
  QTTS_RETURN_IF_ERROR(LtStatus(library->cublasLtCreate(&library->handle), "opening"));
  QTTS_ASSIGN_OR_RETURN(library->workspace, DeviceMemory::Allocate(kWorkspaceBytes));
  return std::unique_ptr<CublasLt>(new CublasLt(std::move(library)));
}

Result<std::unique_ptr<CublasLt::Product>> CublasLt::Pin(int64_t most_rows, int outputs, int columns,
                                                         const void* weights, const void* x, void* y) {
  auto impl = std::make_unique<Product::Impl>();
  const Library& l = *library_;
  impl->library = &l;
  impl->outputs = outputs;
  impl->columns = columns;
  QTTS_RETURN_IF_ERROR(
      LtStatus(l.cublasLtMatmulDescCreate(&impl->operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), "a description"));
  const cublasOperation_t transposed = CUBLAS_OP_T;
  QTTS_RETURN_IF_ERROR(LtStatus(
      l.cublasLtMatmulDescSetAttribute(impl->operation, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof(transposed)),
      "a description"));
  QTTS_RETURN_IF_ERROR(
      LtStatus(l.cublasLtMatrixLayoutCreate(&impl->weights, CUDA_R_16BF, static_cast<uint64_t>(columns),
                                            static_cast<uint64_t>(outputs), columns),
               "a layout"));
  cublasLtMatmulPreference_t preference = nullptr;
  QTTS_RETURN_IF_ERROR(LtStatus(l.cublasLtMatmulPreferenceCreate(&preference), "a preference"));
  const uint64_t workspace = kWorkspaceBytes;
  const uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_NONE;  // no splits of the columns
  (void)l.cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                               sizeof(workspace));
  (void)l.cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions,
                                               sizeof(reductions));
  constexpr int kAsked = 12;
  cublasLtMatmulHeuristicResult_t offered[kAsked];
  int count = 0;
  Product::Impl::Rows layouts(&l);
  Status status = layouts.Create(*impl, most_rows);
  if (status.ok()) {
    status = LtStatus(l.cublasLtMatmulAlgoGetHeuristic(l.handle, impl->operation, impl->weights, layouts.x, layouts.y,
                                                       layouts.y, preference, kAsked, offered, &count),
                      "asking for algorithms");
  }
  l.cublasLtMatmulPreferenceDestroy(preference);
  QTTS_RETURN_IF_ERROR(status);
  const auto row_bytes = static_cast<size_t>(outputs) * 2;
  for (int i = 0; i < count; ++i) {
    if (offered[i].state != CUBLAS_STATUS_SUCCESS) continue;
    const cublasLtMatmulAlgo_t& algorithm = offered[i].algo;
    std::vector<char> all(static_cast<size_t>(most_rows) * row_bytes);
    const auto rows_of = [&](int64_t rows, std::vector<char>* to) {
      QTTS_RETURN_IF_ERROR(impl->Run(algorithm, rows, weights, x, y, nullptr));
      return CudaStatus(cudaMemcpy(to->data(), y, static_cast<size_t>(rows) * row_bytes, cudaMemcpyDeviceToHost),
                        "comparing a product's bits");
    };
    bool same = rows_of(most_rows, &all).ok();
    for (const int64_t rows : {int64_t{1}, int64_t{16}, int64_t{256}}) {
      std::vector<char> some(static_cast<size_t>(rows) * row_bytes);
      same = same && rows <= most_rows && rows_of(rows, &some).ok() &&
             std::memcmp(some.data(), all.data(), some.size()) == 0;
    }
    if (!same) {
      (void)cudaGetLastError();
      continue;
    }
    impl->algorithm = algorithm;
    impl->name = "algorithm " + std::to_string(impl->Attribute(algorithm, CUBLASLT_ALGO_CONFIG_ID)) + ", tile " +
                 std::to_string(impl->Attribute(algorithm, CUBLASLT_ALGO_CONFIG_TILE_ID));
    return std::unique_ptr<Product>(new Product(std::move(impl)));
  }
  return Status::Unsupported("cuBLASLt offers no algorithm whose rows do not depend on their number");
}

Status CublasLt::Product::Run(int64_t rows, const void* weights, const void* x, void* y, cudaStream_t stream) const {
  return impl_->Run(impl_->algorithm, rows, weights, x, y, stream);
}
const std::string& CublasLt::Product::algorithm() const { return impl_->name; }

#else

struct CublasLt::Library {};
struct CublasLt::Product::Impl {
  std::string name;
};
Result<std::unique_ptr<CublasLt>> CublasLt::Open() { return Status::Unsupported("the build had no header cublasLt.h"); }
Result<std::unique_ptr<CublasLt::Product>> CublasLt::Pin(int64_t /*most_rows*/, int /*outputs*/, int /*columns*/,
                                                         const void* /*weights*/, const void* /*x*/, void* /*y*/) {
  return Status::Unsupported("the build had no header cublasLt.h");
}
Status CublasLt::Product::Run(int64_t /*rows*/, const void* /*weights*/, const void* /*x*/, void* /*y*/,
                              cudaStream_t /*stream*/) const {
  return Status::Unsupported("the build had no header cublasLt.h");
}
const std::string& CublasLt::Product::algorithm() const { return impl_->name; }

#endif

CublasLt::CublasLt(std::unique_ptr<Library> library) : library_(std::move(library)) {}
CublasLt::~CublasLt() = default;
CublasLt::Product::Product(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
CublasLt::Product::~Product() = default;

}  // namespace qtts::cuda
