// SPDX-License-Identifier: LGPL-2.1-or-later
// A library of matrix products beside the stand-in for CUDA, opened by its name like NVIDIA's. A "product" copies the
// first element of each row of x to all sums of that row, and reads the last elements of its operands. The sums of the
// first algorithm that it offers depend on the number of rows. Empty if the build lacks the header of cuBLASLt.
#if __has_include(<cublasLt.h>)
#include <cublasLt.h>

#include <bit>
#include <cstdint>
#include <cstring>

extern "C" {
// For tests: number of products since the library was opened; whether the next opening fails; the version; whether the
// sums of all algorithms depend on the number of rows.
__attribute__((visibility("default"))) int64_t fake_cublas_lt_products = 0;
__attribute__((visibility("default"))) bool fake_cublas_lt_refuses = false;
__attribute__((visibility("default"))) size_t fake_cublas_lt_version = 130000;
__attribute__((visibility("default"))) bool fake_cublas_lt_rows_matter = false;
}

namespace {

struct Layout {
  uint64_t rows, cols;
  int64_t stride;
};

Layout* LayoutOf(const cublasLtMatrixLayoutOpaque_t* layout) { return std::bit_cast<Layout*>(layout); }

constexpr uint64_t kRowsMatter = 1;
constexpr uint64_t kRowsDoNotMatter = 2;

template <typename T>
cublasStatus_t Make(T** made) {
  *made = new T{};
  return CUBLAS_STATUS_SUCCESS;
}
template <typename T>
cublasStatus_t Delete(T* made) {
  delete made;
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  if (fake_cublas_lt_refuses) return CUBLAS_STATUS_NOT_INITIALIZED;
  *handle = std::bit_cast<cublasLtHandle_t>(new int(0));
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) { return Delete(std::bit_cast<int*>(handle)); }

size_t cublasLtGetVersion() { return fake_cublas_lt_version; }

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* description, cublasComputeType_t, cudaDataType_t) {
  return Make(description);
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t description) { return Delete(description); }
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t, const void*,
                                              size_t) {
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType, uint64_t rows, uint64_t cols,
                                          int64_t stride) {
  *layout = std::bit_cast<cublasLtMatrixLayout_t>(new Layout{rows, cols, stride});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(const cublasLtMatrixLayout_t layout) { return Delete(LayoutOf(layout)); }

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) { return Make(preference); }
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) { return Delete(preference); }
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t,
                                                    const void*, size_t) {
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatmulPreference_t, int asked,
                                              cublasLtMatmulHeuristicResult_t results[], int* count) {
  *count = 0;
  for (const uint64_t algorithm : {kRowsMatter, kRowsDoNotMatter}) {
    if (*count == asked || (algorithm == kRowsDoNotMatter && fake_cublas_lt_rows_matter)) break;
    results[*count].state = CUBLAS_STATUS_SUCCESS;
    results[*count].algo.data[0] = algorithm;
    ++*count;
  }
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t* algorithm,
                                                    cublasLtMatmulAlgoConfigAttributes_t, void* value, size_t bytes,
                                                    size_t* written) {
  const int number = static_cast<int>(algorithm->data[0]);
  if (bytes < sizeof(number)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(value, &number, sizeof(number));
  *written = sizeof(number);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t, const void*, const void* weights,
                              cublasLtMatrixLayout_t weights_layout, const void* x, cublasLtMatrixLayout_t x_layout,
                              const void*, const void*, cublasLtMatrixLayout_t, void* sums,
                              cublasLtMatrixLayout_t sums_layout, const cublasLtMatmulAlgo_t* algorithm, void*, size_t,
                              cudaStream_t) {
  const Layout& w = *LayoutOf(weights_layout);
  const Layout& in = *LayoutOf(x_layout);
  const Layout& out = *LayoutOf(sums_layout);
  if (w.rows != in.rows || w.cols != out.rows || in.cols != out.cols || in.stride < static_cast<int64_t>(in.rows)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  ++fake_cublas_lt_products;
  const auto* const elements = static_cast<const volatile uint16_t*>(weights);
  (void)elements[w.cols * static_cast<uint64_t>(w.stride) - 1];
  const uint64_t more = algorithm->data[0] == kRowsMatter ? in.cols : 0;
  for (uint64_t row = 0; row < in.cols; ++row) {
    const auto* const from = static_cast<const volatile uint16_t*>(x) + row * static_cast<uint64_t>(in.stride);
    (void)from[in.rows - 1];
    const float value = static_cast<float>(from[0] + more);
    float* const to = static_cast<float*>(sums) + row * static_cast<uint64_t>(out.stride);
    for (uint64_t i = 0; i < out.rows; ++i) to[i] = value;
  }
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"

#endif  // __has_include(<cublasLt.h>)
