// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TESTS_GPU_INT8_CHECKPOINT_H_
#define QTTS_TESTS_GPU_INT8_CHECKPOINT_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "gemm/int8.h"
#include "gpu/int8_values.h"

// Checkpoints whose weights are the values that precision=int8 has on a GPU.
namespace qtts::testing {

// True if precision=int8 rounds the tensor of model.safetensors.
inline bool IsRoundedToInt8(std::string_view name) {
  constexpr std::string_view kEndings[] = {"q_proj.weight",    "k_proj.weight",     "v_proj.weight",
                                           "o_proj.weight",    "gate_proj.weight",  "up_proj.weight",
                                           "down_proj.weight", "codec_head.weight", "small_to_mtp_projection.weight"};
  return name.starts_with("talker.") && (name.find(".lm_head.") != std::string_view::npos ||
                                         std::any_of(std::begin(kEndings), std::end(kEndings),
                                                     [&](std::string_view ending) { return name.ends_with(ending); }));
}

// Rounds the weights of a checkpoint of one file, in BF16 or F32, in their places. Returns how many tensors were
// rounded.
inline int RoundCheckpointToInt8(const std::string& folder) {
  std::fstream file(folder + "/model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
  uint64_t length = 0;
  file.read(reinterpret_cast<char*>(&length), sizeof(length));
  std::string text(length, '\0');
  file.read(text.data(), static_cast<std::streamsize>(length));
  EXPECT_TRUE(file.good());
  int rounded = 0;
  const nlohmann::json tensors = nlohmann::json::parse(text);
  for (const auto& [name, tensor] : tensors.items()) {
    if (!IsRoundedToInt8(name)) continue;
    const bool is_bf16 = tensor["dtype"] == "BF16";
    EXPECT_TRUE(is_bf16 || tensor["dtype"] == "F32") << name;
    const auto rows = tensor["shape"][0].get<int64_t>();
    const auto columns = tensor["shape"][1].get<int64_t>();
    std::vector<char> bytes(static_cast<size_t>(rows * columns) * (is_bf16 ? 2 : 4));
    const auto at = static_cast<std::streamoff>(sizeof(length) + length + tensor["data_offsets"][0].get<uint64_t>());
    file.seekg(at);
    file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    std::vector<float> values(static_cast<size_t>(rows * columns));
    for (size_t i = 0; i < values.size(); ++i) {
      uint16_t bits;
      if (is_bf16) {
        std::memcpy(&bits, &bytes[2 * i], 2);
        values[i] = cuda::gemm::FloatOfBf16(bits);
      } else {
        std::memcpy(&values[i], &bytes[4 * i], 4);
      }
    }
    RoundToInt8(rows, columns, values.data());
    for (size_t i = 0; i < values.size(); ++i) {
      const uint16_t bits = cuda::gemm::Bf16OfFloat(values[i]);
      if (is_bf16) {
        std::memcpy(&bytes[2 * i], &bits, 2);
      } else {
        std::memcpy(&bytes[4 * i], &values[i], 4);
      }
    }
    file.seekp(at);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    EXPECT_TRUE(file.good()) << name;
    ++rounded;
  }
  return rounded;
}

}  // namespace qtts::testing

#endif  // QTTS_TESTS_GPU_INT8_CHECKPOINT_H_
