// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gemm/cublas_lt.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "runtime/cuda_error.h"
#include "runtime/device_memory.h"
#include "runtime/device_wait.h"

#if __has_include(<cublasLt.h>)
#include <cublasLt.h>
#include <dlfcn.h>
#define QTTS_HAVE_CUBLAS_LT 1
#endif

namespace qtts::cuda {

#ifdef QTTS_HAVE_CUBLAS_LT

namespace {

Status LtStatus(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return Status::Ok();
  return Status::Internal(std::string("cuBLASLt: ") + what + ": status " + std::to_string(static_cast<int>(status)));
}

std::string Installing() {
  return "install cuBLAS of CUDA 12 or 13 (Debian, Ubuntu: libcublas-13-0, PyPI: nvidia-cublas) where the loader finds "
         "it, or choose QTTS_CUDA_PRODUCTS=own";
}

// Versions are 10000 times CUDA's major number and more.
bool IsKnown(size_t version) { return version / 10000 == 12 || version / 10000 == 13; }

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

  Library() = default;
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  ~Library() {
    if (handle != nullptr) (void)cublasLtDestroy(handle);
    if (file != nullptr) dlclose(file);
  }
};

struct LibraryProduct::Impl {
  const CublasLt::Library* library = nullptr;
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t weights = nullptr;
  int outputs = 0, columns = 0;
  cublasLtMatmulAlgo_t algorithm = {};
  std::string name;

  // Layouts of x and y, for a number of rows. The library's matrices lie column by column, so ours are transposed.
  struct Rows {
    const CublasLt::Library* library;
    cublasLtMatrixLayout_t x = nullptr, y = nullptr;
    explicit Rows(const CublasLt::Library* of) : library(of) {}
    Rows(const Rows&) = delete;
    Rows& operator=(const Rows&) = delete;
    ~Rows() {
      if (x != nullptr) (void)library->cublasLtMatrixLayoutDestroy(x);
      if (y != nullptr) (void)library->cublasLtMatrixLayoutDestroy(y);
    }
    Status Create(const Impl& of, int64_t rows, int64_t x_stride, int64_t y_stride) {
      const auto count = static_cast<uint64_t>(rows);
      const auto k = static_cast<uint64_t>(of.columns);
      const auto n = static_cast<uint64_t>(of.outputs);
      QTTS_RETURN_IF_ERROR(
          LtStatus(library->cublasLtMatrixLayoutCreate(&x, CUDA_R_16BF, k, count, x_stride), "a layout"));
      return LtStatus(library->cublasLtMatrixLayoutCreate(&y, CUDA_R_32F, n, count, y_stride), "a layout");
    }
  };

  Impl() = default;
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() {
    if (weights != nullptr) (void)library->cublasLtMatrixLayoutDestroy(weights);
    if (operation != nullptr) (void)library->cublasLtMatmulDescDestroy(operation);
  }

  Status Create(const CublasLt::Library* of, int num_outputs, int num_columns) {
    library = of;
    outputs = num_outputs;
    columns = num_columns;
    QTTS_RETURN_IF_ERROR(
        LtStatus(library->cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), "a description"));
    const cublasOperation_t transposed = CUBLAS_OP_T;
    QTTS_RETURN_IF_ERROR(LtStatus(library->cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_TRANSA,
                                                                          &transposed, sizeof(transposed)),
                                  "a description"));
    return LtStatus(library->cublasLtMatrixLayoutCreate(&weights, CUDA_R_16BF, static_cast<uint64_t>(columns),
                                                        static_cast<uint64_t>(outputs), columns),
                    "a layout");
  }

  Status Run(const cublasLtMatmulAlgo_t& with, int64_t rows, const void* w, const void* x, int64_t x_stride, float* y,
             int64_t y_stride, bool adds, cudaStream_t stream) const {
    Rows layouts(library);
    QTTS_RETURN_IF_ERROR(layouts.Create(*this, rows, x_stride, y_stride));
    const float one = 1;
    const float before = adds ? 1 : 0;
    return LtStatus(
        library->cublasLtMatmul(library->handle, operation, &one, w, weights, x, layouts.x, &before, y, layouts.y, y,
                                layouts.y, &with, library->workspace.data(), CublasLt::kWorkspaceBytes, stream),
        "a product");
  }

  // The algorithms that the library recommends, the best first.
  Result<std::vector<cublasLtMatmulAlgo_t>> Recommended(int64_t rows) const {
    constexpr int kAsked = 12;
    constexpr uint64_t kWorkspace = CublasLt::kWorkspaceBytes;
    constexpr uint32_t kReductions = CUBLASLT_REDUCTION_SCHEME_NONE;  // no splits of the columns
    Rows layouts(library);
    QTTS_RETURN_IF_ERROR(layouts.Create(*this, rows, columns, outputs));
    cublasLtMatmulPreference_t preference = nullptr;
    QTTS_RETURN_IF_ERROR(LtStatus(library->cublasLtMatmulPreferenceCreate(&preference), "a preference"));
    const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
      return LtStatus(library->cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof(value)),
                      "a preference");
    };
    cublasLtMatmulHeuristicResult_t offered[kAsked] = {};
    int count = 0;
    Status status = set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspace);
    if (status.ok()) status = set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, kReductions);
    if (status.ok()) {
      status =
          LtStatus(library->cublasLtMatmulAlgoGetHeuristic(library->handle, operation, weights, layouts.x, layouts.y,
                                                           layouts.y, preference, kAsked, offered, &count),
                   "asking for algorithms");
    }
    (void)library->cublasLtMatmulPreferenceDestroy(preference);
    QTTS_RETURN_IF_ERROR(status);
    std::vector<cublasLtMatmulAlgo_t> algorithms;
    for (int i = 0; i < count; ++i) {
      if (offered[i].state == CUBLAS_STATUS_SUCCESS) algorithms.push_back(offered[i].algo);
    }
    return algorithms;
  }

  // True if each row's sums are the same bits whatever rows are computed with it, where a sample shows that. False if
  // the algorithm does not take such numbers of rows.
  Result<bool> RowsAreIndependent(const cublasLtMatmulAlgo_t& with, int64_t max_rows, const void* w, const void* x,
                                  float* sums) const {
    const auto row_bytes = static_cast<size_t>(outputs) * sizeof(float);
    const auto run = [&](int64_t first, int64_t rows) {
      const char* const from = static_cast<const char*>(x) + first * columns * 2;
      return Run(with, rows, w, from, columns, sums, outputs, false, nullptr).ok();
    };
    const auto copy = [&](int64_t first, int64_t rows, std::vector<char>* to) {
      to->resize(static_cast<size_t>(rows) * row_bytes);
      return CudaStatus(CopyAndWait(to->data(), sums + first * outputs, to->size(), cudaMemcpyDeviceToHost),
                        "choosing products");
    };
    for (const int64_t place : {int64_t{0}, max_rows / 2, max_rows - 1}) {
      for (const int64_t count : {1, 16, 256}) {
        const int64_t rows = std::min(count, max_rows - place);
        std::vector<char> among_all;
        std::vector<char> alone;
        if (!run(0, max_rows)) return false;
        QTTS_RETURN_IF_ERROR(copy(place, rows, &among_all));
        if (!run(place, rows)) return false;
        QTTS_RETURN_IF_ERROR(copy(0, rows, &alone));
        if (among_all != alone) return false;
      }
    }
    return true;
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
    // It stays in the process, since each count of an engine's memory opens it.
    if (library->file == nullptr) library->file = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  }
  if (library->file == nullptr)
    return Status::Unsupported("neither libcublasLt.so.13 nor libcublasLt.so.12 can be opened: " + Installing());
#define QTTS_LT_LOAD(name)                                                                \
  library->name = reinterpret_cast<decltype(library->name)>(dlsym(library->file, #name)); \
  if (library->name == nullptr) return Status::Unsupported("cuBLASLt has no function " #name ": " + Installing());
  QTTS_LT_FUNCTIONS(QTTS_LT_LOAD)
#undef QTTS_LT_LOAD
  if (const size_t version = library->cublasLtGetVersion(); !IsKnown(version))
    return Status::Unsupported("cuBLASLt is of version " + std::to_string(version) + ": " + Installing());
  if (const Status opened = LtStatus(library->cublasLtCreate(&library->handle), "opening"); !opened.ok())
    return Status::Unsupported(opened.message() + "; " + Installing());
  QTTS_ASSIGN_OR_RETURN(library->workspace, DeviceMemory::Allocate(kWorkspaceBytes));
  return std::unique_ptr<CublasLt>(new CublasLt(std::move(library)));
}

Result<std::unique_ptr<LibraryProduct>> CublasLt::Pin(int64_t rows, int64_t max_rows, int outputs, int columns,
                                                      const void* weights, const void* x, float* sums) {
  auto impl = std::make_unique<LibraryProduct::Impl>();
  QTTS_RETURN_IF_ERROR(impl->Create(library_.get(), outputs, columns));
  QTTS_ASSIGN_OR_RETURN(const std::vector<cublasLtMatmulAlgo_t> algorithms, impl->Recommended(rows));
  for (const cublasLtMatmulAlgo_t& algorithm : algorithms) {
    QTTS_ASSIGN_OR_RETURN(const bool independent, impl->RowsAreIndependent(algorithm, max_rows, weights, x, sums));
    if (!independent) continue;
    impl->algorithm = algorithm;
    impl->name = "algorithm " + std::to_string(impl->Attribute(algorithm, CUBLASLT_ALGO_CONFIG_ID)) + ", tile " +
                 std::to_string(impl->Attribute(algorithm, CUBLASLT_ALGO_CONFIG_TILE_ID));
    return std::unique_ptr<LibraryProduct>(new LibraryProduct(std::move(impl)));
  }
  return Status::Unsupported("cuBLASLt has no algorithm for " + std::to_string(outputs) + " x " +
                             std::to_string(columns) +
                             " whose rows do not depend on their number: choose QTTS_CUDA_PRODUCTS=own");
}

Status LibraryProduct::Run(int64_t rows, const void* weights, const void* x, int64_t x_stride, float* y,
                           int64_t y_stride, bool adds, cudaStream_t stream) const {
  return impl_->Run(impl_->algorithm, rows, weights, x, x_stride, y, y_stride, adds, stream);
}

#else

struct CublasLt::Library {};
struct LibraryProduct::Impl {
  int outputs = 0, columns = 0;
  std::string name;
};
Result<std::unique_ptr<CublasLt>> CublasLt::Open() {
  return Status::Unsupported("the GPU backend was built without cublasLt.h: build it where cuBLAS is installed");
}
Result<std::unique_ptr<LibraryProduct>> CublasLt::Pin(int64_t /*rows*/, int64_t /*max_rows*/, int /*outputs*/,
                                                      int /*columns*/, const void* /*weights*/, const void* /*x*/,
                                                      float* /*sums*/) {
  return Status::Unsupported("the build had no header cublasLt.h");
}
Status LibraryProduct::Run(int64_t /*rows*/, const void* /*weights*/, const void* /*x*/, int64_t /*x_stride*/,
                           float* /*y*/, int64_t /*y_stride*/, bool /*adds*/, cudaStream_t /*stream*/) const {
  return Status::Unsupported("the build had no header cublasLt.h");
}

#endif

CublasLt::CublasLt(std::unique_ptr<Library> library) : library_(std::move(library)) {}
CublasLt::~CublasLt() = default;
LibraryProduct::LibraryProduct(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
LibraryProduct::~LibraryProduct() = default;
int LibraryProduct::outputs() const { return impl_->outputs; }
int LibraryProduct::columns() const { return impl_->columns; }
const std::string& LibraryProduct::algorithm() const { return impl_->name; }

}  // namespace qtts::cuda
