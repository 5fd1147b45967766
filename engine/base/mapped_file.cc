// SPDX-License-Identifier: LGPL-2.1-or-later
#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

namespace qtts {
namespace {

constexpr size_t kMaxSmallBytes = size_t{64} << 20;

std::string ErrorText(int error) { return std::generic_category().message(error); }

Status Changed(const std::string& path, const char* what) {
  return Status::Unreadable(path + ": was " + what +
                            " while it was in use. Put the whole file back and start again; to replace a model that is "
                            "in use, write the new file beside the old one and rename it over that.");
}

bool SameTime(const timespec& a, const timespec& b) { return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec; }

// A file descriptor, closed on destruction.
class Descriptor {
 public:
  explicit Descriptor(int file) : file_(file) {}
  ~Descriptor() {
    if (file_ >= 0) close(file_);
  }
  Descriptor(Descriptor&& other) noexcept : file_(std::exchange(other.file_, -1)) {}
  Descriptor& operator=(Descriptor&&) = delete;

  int get() const { return file_; }
  int Release() { return std::exchange(file_, -1); }

 private:
  int file_;
};

Result<Descriptor> OpenRegular(const std::string& path, struct stat* info) {
  // O_NONBLOCK: opening a FIFO must not hang the load. Regular files ignore the flag.
  Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) {
    const int error = errno;
    if (error == ENOENT || error == ENOTDIR) return Status::NotFound(path + ": no such file");
    if (error == EMFILE || error == ENFILE) {
      return Status::ResourceExhausted(path + ": cannot be opened: " + ErrorText(error) +
                                       "; close some, or raise their limit (ulimit -n)");
    }
    return Status::Unreadable(path + ": cannot be opened: " + ErrorText(error));
  }
  if (fstat(file.get(), info) != 0 || !S_ISREG(info->st_mode)) {
    return Status::Unreadable(path + ": is not a regular file");
  }
  return file;
}

}  // namespace

Result<MappedFile> MappedFile::Open(const std::string& path) {
  struct stat info = {};
  QTTS_ASSIGN_OR_RETURN(Descriptor descriptor, OpenRegular(path, &info));
  MappedFile file(path, info);
  file.file_ = descriptor.Release();
  const auto size = static_cast<size_t>(info.st_size);
  if (size == 0) return file;
  void* const data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.file_, 0);
  if (data == MAP_FAILED) {
    const int error = errno;
    const std::string message = path + ": " + std::to_string(size) + " bytes cannot be mapped: " + ErrorText(error);
    if (error == ENOMEM) return Status::ResourceExhausted(message + "; raise the limit of address space (ulimit -v)");
    return Status::Unreadable(message);
  }
  file.bytes_ = {static_cast<const std::byte*>(data), size};
  file.range_ = BusErrors::Watch(file.bytes_);
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      file_(std::exchange(other.file_, -1)),
      info_(other.info_),
      bytes_(std::exchange(other.bytes_, {})),
      range_(std::exchange(other.range_, nullptr)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(file_, other.file_);
  std::swap(info_, other.info_);
  std::swap(bytes_, other.bytes_);
  std::swap(range_, other.range_);
  return *this;
}

MappedFile::~MappedFile() {
  if (range_ != nullptr) BusErrors::Forget(range_);
  if (!bytes_.empty()) munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
  if (file_ >= 0) close(file_);
}

void MappedFile::Release(std::span<const std::byte> part) const {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = (reinterpret_cast<uintptr_t>(part.data()) + page - 1) / page * page;
  const auto end = reinterpret_cast<uintptr_t>(part.data() + part.size()) / page * page;
  if (begin >= end) return;
  // Advice only: it does no harm if the memory stays.
  madvise(const_cast<std::byte*>(part.data()) + (begin - reinterpret_cast<uintptr_t>(part.data())), end - begin,
          MADV_DONTNEED);
}

std::string MappedFile::Identity() const {
  std::string identity = std::to_string(info_.st_size) + ' ' + std::to_string(info_.st_ino);
  for (const timespec& time : {info_.st_mtim, info_.st_ctim}) {
    identity += ' ' + std::to_string(time.tv_sec) + '.' + std::to_string(time.tv_nsec);
  }
  return identity;
}

Status MappedFile::Check() const {
  struct stat now = {};
  // If fstat() fails (a lost network file system, say), the range still reports lost pages.
  const bool known = fstat(file_, &now) == 0;
  if (known && now.st_size < info_.st_size) return Changed(path_, "truncated");
  if (range_ != nullptr && range_->lost()) return Changed(path_, "truncated, or lost by its disk,");
  if (known && (now.st_size != info_.st_size || !SameTime(now.st_mtim, info_.st_mtim))) {
    return Changed(path_, "overwritten");
  }
  return Status::Ok();
}

Result<std::string> ReadSmallFile(const std::string& path) {
  struct stat info = {};
  QTTS_ASSIGN_OR_RETURN(const Descriptor file, OpenRegular(path, &info));
  if (static_cast<uint64_t>(info.st_size) > kMaxSmallBytes) {
    return Status::CorruptModel(path + ": is " + std::to_string(info.st_size) + " bytes long, expected at most " +
                                std::to_string(kMaxSmallBytes));
  }
  std::string text(static_cast<size_t>(info.st_size), '\0');
  for (size_t done = 0; done < text.size();) {
    const ssize_t count = read(file.get(), text.data() + done, text.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return Status::Unreadable(path + ": cannot be read: " + ErrorText(errno));
    if (count == 0) return Changed(path, "truncated");
    done += static_cast<size_t>(count);
  }
  return text;
}

}  // namespace qtts
