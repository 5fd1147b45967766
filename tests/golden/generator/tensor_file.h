// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TESTS_GOLDEN_GENERATOR_TENSOR_FILE_H_
#define QTTS_TESTS_GOLDEN_GENERATOR_TENSOR_FILE_H_

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/safetensors.h"
#include "qtts/status.h"

namespace qtts::golden {

// Writes elements first, first+1, … of a tensor to `out`.
using TensorFill = std::function<void(uint64_t first, std::span<float> out)>;

struct GeneratedTensor {
  std::string name;
  std::vector<int64_t> shape;
  DType dtype = DType::kF32;
  TensorFill fill;
};

// Uniformly random values of one tensor: a pure function of seed, tensor name and element index.
class RandomValues {
 public:
  RandomValues(uint64_t seed, std::string_view tensor_name);

  // Elements first, first+1, … uniform in [center - spread, center + spread).
  void Uniform(uint64_t first, double center, double spread, std::span<float> out) const;

 private:
  uint32_t key0_, key1_;
  uint32_t name0_, name1_;
};

// The square root of 1/n, from integer arithmetic; n >= 1. Exact to 30 bits.
double InverseSqrt(uint64_t n);

// To nearest, ties to even; to infinity beyond the range.
uint16_t ToBF16(float value);
uint16_t ToF16(float value);

// The beginning of a safetensors file of `tensors`: header length and header.
std::string TensorFileHeader(const std::vector<GeneratedTensor>& tensors);

int64_t Elements(const GeneratedTensor& tensor);
int64_t Bytes(const GeneratedTensor& tensor);

// One safetensors file, written tensor by tensor.
Status WriteTensorFile(const std::string& path, const std::vector<GeneratedTensor>& tensors);

// `<stem>.safetensors` in `folder`; or, with more than one shard, `<stem>-00001-of-0000N.safetensors`, …
// of about equal size and `<stem>.safetensors.index.json`.
Status WriteTensorFiles(const std::string& folder, const std::string& stem, const std::vector<GeneratedTensor>& tensors,
                        int shards);

}  // namespace qtts::golden

#endif  // QTTS_TESTS_GOLDEN_GENERATOR_TENSOR_FILE_H_
