// SPDX-License-Identifier: LGPL-2.1-or-later
// A file of packed weights: a file that parses must describe only bytes inside itself. Half of the inputs get a correct
// length and checksum of the header first; otherwise hardly any would pass these checks.
#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "check.h"
#include "checkpoint/packed_file.h"

namespace {

using qtts::PackedFile;

constexpr size_t kLengthOffset = 16;
constexpr size_t kHeaderLengthOffset = 24;
constexpr size_t kChecksumOffset = 28;
constexpr size_t kKeyOffset = 32;
constexpr size_t kFixedHeader = 64;

void PutRight(std::vector<std::byte>* file) {
  const uint64_t length = file->size();
  std::memcpy(&(*file)[kLengthOffset], &length, sizeof length);
  uint32_t header = 0;
  std::memcpy(&header, &(*file)[kHeaderLengthOffset], sizeof header);
  const uint64_t filled = (uint64_t{header} + 63) / 64 * 64;
  if (filled > file->size()) return;
  std::memset(&(*file)[kChecksumOffset], 0, sizeof(uint32_t));
  const uint32_t checksum = PackedFile::ChecksumOf(std::span(*file).first(filled));
  std::memcpy(&(*file)[kChecksumOffset], &checksum, sizeof checksum);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  std::vector<std::byte> file(bytes.begin(), bytes.end());
  PackedFile::Key key = {};
  if (size >= kFixedHeader) {
    std::memcpy(key.data(), &file[kKeyOffset], key.size());
    if (data[size - 1] % 2 == 0) PutRight(&file);
  }
  const auto blobs = PackedFile::Parse(file, key, "fuzz");
  if (!blobs.ok()) {
    QTTS_FUZZ_CHECK(!blobs.status().message().empty() && blobs.status().message().size() < 2000);
    return 0;
  }
  const std::byte* end = file.data() + std::min(size, kFixedHeader);
  for (const PackedFile::Blob& blob : *blobs) {
    QTTS_FUZZ_CHECK(!blob.name.empty());
    QTTS_FUZZ_CHECK(blob.bytes.data() >= end);
    QTTS_FUZZ_CHECK((blob.bytes.data() - file.data()) % 64 == 0);
    end = blob.bytes.data() + blob.bytes.size();
    QTTS_FUZZ_CHECK(end <= file.data() + file.size());
    (void)PackedFile::IsIntact(blob);  // reads all of it
  }
  QTTS_FUZZ_CHECK(file.data() + file.size() - end < 64);
  return 0;
}
