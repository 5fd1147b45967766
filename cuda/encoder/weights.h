// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_ENCODER_WEIGHTS_H_
#define QTTS_CUDA_ENCODER_WEIGHTS_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <vector>

#include "checkpoint/weights.h"
#include "encoder/kernels.h"
#include "qtts/status.h"
#include "runtime/arena.h"
#include "runtime/weight_store.h"

namespace qtts::cuda::encoder {

// The weights of a convolution or a linear layer as Convolution has them.
struct Layer {
  const float* weights = nullptr;
  const float* bias = nullptr;
  int in = 0;
  int out = 0;
  int taps = 1;

  // Returns the layer applied to x [x_rows][in]: `rows` rows of y, step and dilation 1, nothing before the first row.
  Convolution On(const ConstSignal& x, int64_t x_rows, int64_t rows, const Signal& y) const;
};

// Loads an encoder's tensors onto the device. After the first error all further operations do nothing; Finish() returns
// it. The results are in `memory`. Not thread-safe.
class WeightPacker : private WeightStore {
 public:
  WeightPacker(Arena* memory, cudaStream_t stream) : WeightStore(memory, stream, "loading the voice encoder") {}

  Layer LoadConv(const ConvWeights& weights);
  // Loads weights [out, in] or [out, in, taps] without bias; several with the same in and taps are one layer whose
  // outputs lie side by side.
  Layer LoadLinear(const std::vector<const TensorView*>& weights);
  const float* LoadVector(const TensorView& tensor);  // as F32, in its own order
  template <typename T>
  const T* LoadTable(const std::vector<T>& values) {
    return static_cast<const T*>(KeepCopy(values.data(), values.size() * sizeof(T)));
  }

  struct Codebooks {
    const float* codewords = nullptr;  // as Quantization has them
    const float* squares = nullptr;
  };
  Codebooks LoadCodebooks(const std::vector<CodebookWeights>& codebooks);

  // Waits for all of it.
  Status Finish();

 private:
  float* Keep(int64_t floats) { return Allocate<float>(memory(), static_cast<size_t>(floats)); }
  void PackInto(const TensorView& tensor, int out, int in, int taps, float* to, int to_out, int first);
};

}  // namespace qtts::cuda::encoder

#endif  // QTTS_CUDA_ENCODER_WEIGHTS_H_
