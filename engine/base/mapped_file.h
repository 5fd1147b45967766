// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_BASE_MAPPED_FILE_H_
#define QTTS_BASE_MAPPED_FILE_H_

#include <sys/stat.h>

#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include "base/bus_errors.h"
#include "qtts/status.h"

namespace qtts {

// A regular file mapped read-only; unmapped on destruction. Move-only.
//
// Weights are mapped rather than read: a model is there at once, takes memory only where it is used, and processes
// share it. The price is that the file can change under the mapping. A file that is replaced by rename is none of it:
// the mapping keeps the old one. A file that is truncated loses pages, which then read as zeros (BusErrors); one that
// is overwritten gives other numbers. So whoever used bytes() asks Check() before the outcome is handed out.
class MappedFile {
 public:
  static Result<MappedFile> Open(const std::string& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return bytes_; }

  // Lets go of the memory that `part` of bytes() takes, but for the pages it shares: they are read again when they are
  // used again. For weights that have been packed into something else. Thread-safe.
  void Release(std::span<const std::byte> part) const;

  // Size, inode and times of the file when it was opened: others for another file, and for this one after a change.
  std::string Identity() const;

  // Whether all that was read so far is what the file held when it was opened; else kUnreadable. Costs one fstat().
  // Thread-safe.
  Status Check() const;

 private:
  MappedFile(std::string path, const struct stat& info) : path_(std::move(path)), info_(info) {}

  std::string path_;
  int file_ = -1;
  struct stat info_ = {};  // when it was opened
  std::span<const std::byte> bytes_;
  BusErrors::Range* range_ = nullptr;
};

// The whole of a small file, by reading: nothing depends on the file afterwards. kNotFound if there is none; refuses
// files above 64 MiB.
Result<std::string> ReadSmallFile(const std::string& path);

}  // namespace qtts

#endif  // QTTS_BASE_MAPPED_FILE_H_
