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
// Weights are mapped, not read: loading is immediate, only the pages in use take memory, and processes share them. But
// the file can change under the mapping. A file replaced by rename is safe: the mapping keeps the old one. A truncated
// file loses pages, which then read as zeros (BusErrors). An overwritten file gives other values. Call Check() after
// using bytes() and before using the result.
class MappedFile {
 public:
  static Result<MappedFile> Open(const std::string& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return bytes_; }

  // Releases the physical memory of `part` of bytes(), except pages shared with other parts. The pages are read again
  // on the next access. For weights that have been packed elsewhere. Thread-safe.
  void Release(std::span<const std::byte> part) const;

  // Returns the size, inode and times of the file when it was opened. Differs for another file and after a change.
  std::string Identity() const;

  // Checks that all data read so far is the content at the time of opening; otherwise kUnreadable. Costs one fstat().
  // Thread-safe.
  Status Check() const;

 private:
  MappedFile(std::string path, const struct stat& info) : path_(std::move(path)), info_(info) {}

  std::string path_;
  int file_ = -1;
  struct stat info_ = {};  // at the time of opening
  std::span<const std::byte> bytes_;
  BusErrors::Range* range_ = nullptr;
};

// Reads a whole small file; later changes of the file have no effect. kNotFound if there is none. Refuses files above
// 64 MiB.
Result<std::string> ReadSmallFile(const std::string& path);

}  // namespace qtts

#endif  // QTTS_BASE_MAPPED_FILE_H_
