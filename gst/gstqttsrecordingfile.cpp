// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gstqttsrecordingfile.h"

#include <fcntl.h>
#include <gst/gst.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace gstqtts {
namespace {

// Maximum number of tags that are skipped, so that a file of nothing else does not take minutes.
constexpr int kMaxId3Tags = 1000;

qtts::Result<std::string> LocalPath(const std::string& location) {
  if (gst_uri_is_valid(location.c_str()) == FALSE) return location;
  gchar* local = g_filename_from_uri(location.c_str(), nullptr, nullptr);
  if (local == nullptr) {
    return qtts::Status::InvalidArgument(location + ": is not a local file. Download it and give its path.");
  }
  std::string path = local;
  g_free(local);
  return path;
}

}  // namespace

qtts::Result<RecordingFile> RecordingFile::Open(const std::string& location) {
  QTTS_ASSIGN_OR_RETURN(const std::string path, LocalPath(location));
  const auto failed = [&] {
    if (errno == ENOENT || errno == ENOTDIR) return qtts::Status::NotFound(location + ": no such file");
    return qtts::Status::Unreadable(location + ": cannot be opened: " + g_strerror(errno));
  };
  struct stat info = {};
  // Looked at before it is opened: opening a device may already do something. O_NONBLOCK: a pipe that took the file's
  // place meanwhile does not wait for a writer.
  if (stat(path.c_str(), &info) != 0) return failed();
  if (!S_ISREG(info.st_mode)) return qtts::Status::Unreadable(location + ": is not a regular file");
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  if (descriptor < 0) return failed();
  RecordingFile file(descriptor, 0);
  if (fstat(descriptor, &info) != 0) return failed();
  if (!S_ISREG(info.st_mode)) return qtts::Status::Unreadable(location + ": is not a regular file");
  file.size_ = static_cast<uint64_t>(info.st_size);
  return file;
}

RecordingFile::RecordingFile(RecordingFile&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)), size_(other.size_) {}

RecordingFile& RecordingFile::operator=(RecordingFile&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(size_, other.size_);
  return *this;
}

RecordingFile::~RecordingFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

std::string RecordingFile::Read(uint64_t offset, size_t size) const {
  std::string bytes(offset < size_ ? static_cast<size_t>(std::min<uint64_t>(size, size_ - offset)) : 0, '\0');
  bytes.resize(Read(offset, bytes.data(), bytes.size()));
  return bytes;
}

size_t RecordingFile::Read(uint64_t offset, void* data, size_t size) const {
  size_t done = 0;
  while (done < size) {
    const ssize_t count =
        pread(descriptor_, static_cast<char*>(data) + done, size - done, static_cast<off_t>(offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    done += static_cast<size_t>(count);
  }
  return done;
}

void HideBytes(const std::vector<HiddenBytes>& hidden, uint64_t offset, uint8_t* data, size_t size) {
  for (const HiddenBytes& part : hidden) {
    for (size_t i = 0; i < part.bytes.size(); ++i) {
      const uint64_t at = part.offset + i;
      if (at >= offset && at - offset < size) data[at - offset] = static_cast<uint8_t>(part.bytes[i]);
    }
  }
}

uint64_t BigEndianNumber(std::string_view bytes, size_t offset, size_t size) {
  if (offset > bytes.size() || size > bytes.size() - offset) return 0;
  uint64_t value = 0;
  for (const char byte : bytes.substr(offset, size)) value = value << 8U | static_cast<uint8_t>(byte);
  return value;
}

uint64_t SkipId3Tags(const RecordingFile& file) {
  uint64_t offset = 0;
  for (int skipped = 0; skipped < kMaxId3Tags; ++skipped) {
    const std::string head = file.Read(offset, 10);
    if (head.size() < 10 || head.substr(0, 3) != "ID3") break;
    uint64_t size = 0;
    for (size_t i = 6; i < 10; ++i) size = size << 7U | (static_cast<uint8_t>(head[i]) & 0x7FU);
    const bool footer = (static_cast<uint8_t>(head[5]) & 0x10U) != 0;
    offset += 10 + size + (footer ? 10 : 0);
  }
  return offset;
}

}  // namespace gstqtts
