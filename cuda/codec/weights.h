// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_CODEC_WEIGHTS_H_
#define QTTS_CUDA_CODEC_WEIGHTS_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "checkpoint/weights.h"
#include "codec/kernels.h"
#include "qtts/status.h"
#include "runtime/arena.h"
#include "runtime/tensor.h"
#include "runtime/weight_store.h"

namespace qtts::cuda::codec {

// Returns the number of channels, padded to whole blocks.
inline int PadChannels(int64_t n) { return static_cast<int>((n + kChannelBlock - 1) / kChannelBlock * kChannelBlock); }

// A weight matrix on the device, [rows][taps][channels], rows and channels padded with zeros.
struct Dense {
  float* data = nullptr;
  int rows = 0;
  int taps = 0;
  int channels = 0;

  int64_t width() const { return static_cast<int64_t>(taps) * channels; }
};

// A SnakeBeta's parameters on the device.
struct Snake {
  const float* a = nullptr;
  const float* inverse_b = nullptr;
};

// Loads the weights of a codec onto the current device, in the layouts of its kernels. Permanent data is allocated in
// `memory`, which the caller owns; staged data is freed by Release(). Works on the default stream. After the first
// error all further operations do nothing; see status(). Not thread-safe.
class WeightPacker : public WeightStore {
 public:
  explicit WeightPacker(Arena* memory) : WeightStore(memory, nullptr, "loading the codec's weights") {}

  // Allocates permanent device memory, zeroed. Null after an error.
  template <typename T>
  T* Keep(size_t count) {
    return AllocateZeroed<T>(memory(), count);
  }

  // Loads the tensor as F32, staged.
  const float* LoadFloats(const TensorView& tensor);
  // Keeps `values`, repeated `times`, each time filled up with zeros to whole channel blocks.
  const float* Vector(const std::vector<float>& values, int times = 1);
  const float* OptionalVector(const std::optional<TensorView>& tensor, int times = 1) {
    return tensor.has_value() ? Vector(FloatsOf(*tensor), times) : nullptr;
  }
  Snake LoadSnake(const SnakeWeights& weights);

  // Allocates matrices, staged.
  Dense NewDense(int64_t rows, int64_t taps, int64_t channels);
  // Fills dense rows from `first` on with a linear layer's, its inputs scaled by `column_scale` (staged).
  void FillLinear(const Dense& dense, const TensorView& weight, const float* column_scale, int first = 0, int run = 0,
                  int run_stride = 0);
  Dense Linear(const TensorView& weight, const float* column_scale = nullptr);
  Dense Convolution(const TensorView& weight);
  Dense Transposed(const TensorView& weight, int stride);

  // Computes c (+)= a b, see Product(). None of its arrays need be there after an error.
  void Multiply(const ProductArgs& product) {
    if (!failed()) Check(Product(product, nullptr));
  }
  // Adds the first one's bias where two linear layers become one, the second being `product`'s a: sum += a * bias.
  void AddBias(ProductArgs product, const float* bias, float* sum);

  // Keeps `dense` in the order of a product whose operands are stored as `stored_as`, and releases the staged memory.
  // `warpgroups`: order of a kernel of warpgroups, for which the weights are kept once more.
  GemmWeights Pack(const Dense& dense, Planes stored_as, const GemmGeometry& geometry,
                   const WarpgroupOrder& warpgroups);

 private:
  float* Stage(size_t count) { return AllocateZeroed<float>(staging(), count); }
};

}  // namespace qtts::cuda::codec

#endif  // QTTS_CUDA_CODEC_WEIGHTS_H_
