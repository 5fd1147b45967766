// SPDX-License-Identifier: LGPL-2.1-or-later
#include "golden/generator/tensor_file.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "sampling/philox.h"

namespace qtts::golden {
namespace {

constexpr size_t kChunk = size_t{1} << 18;  // elements filled and written at a time; a multiple of 4

Status WriteFailure(const std::string& path) { return Status::Unreadable(path + ": writing failed"); }

// Little-endian bytes of `values` as `dtype`.
void Encode(std::span<const float> values, DType dtype, std::vector<char>* bytes) {
  bytes->resize(values.size() * DTypeBytes(dtype));
  char* p = bytes->data();
  for (const float value : values) {
    if (dtype == DType::kF32) {
      const auto bits = std::bit_cast<uint32_t>(value);
      for (int i = 0; i < 4; ++i) *p++ = static_cast<char>(bits >> (8 * i) & 0xFF);
    } else {
      const uint16_t bits = dtype == DType::kBF16 ? ToBF16(value) : ToF16(value);
      *p++ = static_cast<char>(bits & 0xFF);
      *p++ = static_cast<char>(bits >> 8);
    }
  }
}

}  // namespace

RandomValues::RandomValues(uint64_t seed, std::string_view tensor_name)
    : key0_(static_cast<uint32_t>(seed)), key1_(static_cast<uint32_t>(seed >> 32)) {
  uint64_t hash = 0xCBF29CE484222325;  // FNV-1a
  for (const char c : tensor_name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  name0_ = static_cast<uint32_t>(hash);
  name1_ = static_cast<uint32_t>(hash >> 32);
}

void RandomValues::Uniform(uint64_t first, double center, double spread, std::span<float> out) const {
  PhiloxWords words{};
  uint64_t block = ~uint64_t{0};
  for (size_t i = 0; i < out.size(); ++i) {
    const uint64_t index = first + i;
    if (index / 4 != block) {
      block = index / 4;
      words = Philox4x32({{static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), name0_, name1_}}, key0_,
                         key1_);
    }
    const int32_t unit = static_cast<int32_t>(words.v[index % 4] >> 8) - (1 << 23);
    out[i] = static_cast<float>(center + spread * (static_cast<double>(unit) * (1.0 / (1 << 23))));
  }
}

double InverseSqrt(uint64_t n) {
  const uint64_t square = (uint64_t{1} << 60) / n;
  uint64_t root = 0;
  for (uint64_t bit = uint64_t{1} << 30; bit != 0; bit >>= 1) {
    if ((root + bit) * (root + bit) <= square) root += bit;
  }
  return static_cast<double>(root) * (1.0 / (1 << 30));
}

uint16_t ToBF16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

uint16_t ToF16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  const int exponent = static_cast<int>(bits >> 23 & 0xFF) - 127 + 15;
  if (exponent >= 31) return sign | 0x7C00;
  if (exponent < -10) return sign;
  const uint32_t mantissa = (bits & 0x7FFFFF) | 0x800000;
  const int shift = exponent > 0 ? 13 : 14 - exponent;  // subnormal results lose more bits
  const uint32_t base = exponent > 0 ? static_cast<uint32_t>(exponent - 1) << 10 : 0;
  const uint32_t half = (uint32_t{1} << (shift - 1)) - 1 + (mantissa >> shift & 1);
  return static_cast<uint16_t>(sign | (base + ((mantissa + half) >> shift)));
}

int64_t Elements(const GeneratedTensor& tensor) {
  int64_t n = 1;
  for (const int64_t d : tensor.shape) n *= d;
  return n;
}

int64_t Bytes(const GeneratedTensor& tensor) {
  return Elements(tensor) * static_cast<int64_t>(DTypeBytes(tensor.dtype));
}

std::string TensorFileHeader(const std::vector<GeneratedTensor>& tensors) {
  nlohmann::ordered_json header;
  header["__metadata__"] = {{"format", "pt"}};
  int64_t offset = 0;
  for (const GeneratedTensor& tensor : tensors) {
    const int64_t end = offset + Bytes(tensor);
    header[tensor.name] = {
        {"dtype", DTypeName(tensor.dtype)}, {"shape", tensor.shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::string length;
  for (int i = 0; i < 8; ++i) length += static_cast<char>(uint64_t{text.size()} >> (8 * i) & 0xFF);
  return length + text;
}

Status WriteTensorFile(const std::string& path, const std::vector<GeneratedTensor>& tensors) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  if (!file) return Status::Unreadable(path + ": cannot be created");
  file << TensorFileHeader(tensors);

  std::vector<float> values(kChunk);
  std::vector<char> bytes;
  for (const GeneratedTensor& tensor : tensors) {
    const auto elements = static_cast<uint64_t>(Elements(tensor));
    for (uint64_t first = 0; first < elements; first += kChunk) {
      const std::span<float> chunk(values.data(), std::min<uint64_t>(kChunk, elements - first));
      tensor.fill(first, chunk);
      Encode(chunk, tensor.dtype, &bytes);
      if (!file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()))) return WriteFailure(path);
    }
  }
  file.close();
  return file ? Status::Ok() : WriteFailure(path);
}

Status WriteTensorFiles(const std::string& folder, const std::string& stem, const std::vector<GeneratedTensor>& tensors,
                        int shards) {
  if (shards <= 1) return WriteTensorFile(folder + "/" + stem + ".safetensors", tensors);

  if (static_cast<size_t>(shards) > tensors.size()) {
    return Status::InvalidArgument(std::to_string(shards) + " shards for " + std::to_string(tensors.size()) +
                                   " tensors");
  }
  int64_t total = 1;  // not 0, for tensors of no elements
  for (const GeneratedTensor& tensor : tensors) total += Bytes(tensor);
  std::vector<std::vector<GeneratedTensor>> parts(static_cast<size_t>(shards));
  int64_t before = 0;
  for (const GeneratedTensor& tensor : tensors) {
    parts[static_cast<size_t>(before * shards / total)].push_back(tensor);
    before += Bytes(tensor);
  }

  nlohmann::ordered_json weight_map;
  for (int i = 0; i < shards; ++i) {
    char number[64];
    std::snprintf(number, sizeof number, "-%05d-of-%05d.safetensors", i + 1, shards);
    const std::string name = stem + number;
    std::string path = folder + "/";
    path += name;
    QTTS_RETURN_IF_ERROR(WriteTensorFile(path, parts[static_cast<size_t>(i)]));
    for (const GeneratedTensor& tensor : parts[static_cast<size_t>(i)]) weight_map[tensor.name] = name;
  }
  const nlohmann::ordered_json index = {{"metadata", {{"total_size", before}}}, {"weight_map", weight_map}};
  const std::string index_path = folder + "/" + stem + ".safetensors.index.json";
  std::ofstream file(index_path, std::ios::binary | std::ios::trunc);
  file << index.dump(2) << '\n';
  file.close();
  return file ? Status::Ok() : WriteFailure(index_path);
}

}  // namespace qtts::golden
