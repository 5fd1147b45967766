// SPDX-License-Identifier: LGPL-2.1-or-later
#include "checkpoint/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

namespace qtts {
namespace {

constexpr size_t kMaxTextBytes = size_t{64} << 20;

std::string ErrorText(int error) { return std::generic_category().message(error); }

}  // namespace

Result<MappedFile> MappedFile::Open(const std::string& path) {
  // O_NONBLOCK: a FIFO in place of the file must not hang the load; regular files ignore it.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    const int error = errno;
    if (error == ENOENT || error == ENOTDIR) return Status::NotFound(path + ": no such file");
    return Status::Unreadable(path + ": cannot be opened: " + ErrorText(error));
  }
  struct stat info = {};
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    close(fd);
    return Status::Unreadable(path + ": is not a regular file");
  }
  const auto size = static_cast<size_t>(info.st_size);
  void* data = nullptr;
  if (size > 0) {
    data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED) {
      const int error = errno;
      close(fd);
      return Status::Unreadable(path + ": " + std::to_string(size) + " bytes cannot be mapped: " + ErrorText(error));
    }
  }
  close(fd);
  return MappedFile({static_cast<const std::byte*>(data), size});
}

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

Result<std::string> ReadTextFile(const std::string& path) {
  QTTS_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  if (file.bytes().size() > kMaxTextBytes) {
    return Status::CorruptModel(path + ": is " + std::to_string(file.bytes().size()) +
                                " bytes long, expected at most " + std::to_string(kMaxTextBytes));
  }
  return std::string(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
}

}  // namespace qtts
