// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CHECKPOINT_MAPPED_FILE_H_
#define QTTS_CHECKPOINT_MAPPED_FILE_H_

#include <cstddef>
#include <span>
#include <string>

#include "qtts/status.h"

namespace qtts {

// A regular file mapped read-only; unmapped on destruction. Move-only.
class MappedFile {
 public:
  static Result<MappedFile> Open(const std::string& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  explicit MappedFile(std::span<const std::byte> bytes) : bytes_(bytes) {}

  std::span<const std::byte> bytes_;
};

// The whole of a small text file. kNotFound if there is none; refuses files above 64 MiB.
Result<std::string> ReadTextFile(const std::string& path);

}  // namespace qtts

#endif  // QTTS_CHECKPOINT_MAPPED_FILE_H_
