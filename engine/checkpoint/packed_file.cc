// SPDX-License-Identifier: LGPL-2.1-or-later
#include "checkpoint/packed_file.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <system_error>
#include <utility>

namespace qtts {
namespace {

static_assert(std::endian::native == std::endian::little, "packed files hold little-endian numbers");

constexpr std::string_view kMagic = "qttspack";
constexpr uint32_t kVersion = 1;
constexpr uint64_t kAlignment = 64;
constexpr uint32_t kMaxBlobs = 1U << 16U;
constexpr uint32_t kLongestName = 255;

struct FileHeader {
  char magic[8];
  uint32_t version;
  uint32_t blobs;
  uint64_t file_bytes;
  uint32_t header_bytes;
  uint32_t checksum;
  PackedFile::Key key;
};
static_assert(sizeof(FileHeader) == 64);

struct Entry {
  uint64_t bytes;
  uint32_t checksum;
  uint32_t name_bytes;
};
static_assert(sizeof(Entry) == 16);

// Overflows near the largest number; lengths of files are far below.
constexpr uint64_t AlignUp(uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

template <typename T>
T Read(std::span<const std::byte> file, uint64_t offset) {
  T value;
  std::memcpy(&value, file.data() + offset, sizeof value);
  return value;
}

bool IsZero(std::span<const std::byte> bytes) {
  return std::ranges::all_of(bytes, [](std::byte byte) { return byte == std::byte{0}; });
}

Status Damaged(const std::string& name, const std::string& what) {
  return Status::CorruptModel(name + ": " + what + ": it is damaged");
}

// Returns the padded header, without its checksum.
std::string HeaderOf(const PackedFile::Key& key, std::span<const PackedFile::Blob> blobs) {
  FileHeader header = {};
  std::ranges::copy(kMagic, header.magic);
  header.version = kVersion;
  header.blobs = static_cast<uint32_t>(blobs.size());
  header.key = key;
  std::string entries;
  std::string names;
  uint64_t content = 0;
  for (const PackedFile::Blob& blob : blobs) {
    const Entry entry = {blob.bytes.size(), blob.checksum, static_cast<uint32_t>(blob.name.size())};
    entries.append(reinterpret_cast<const char*>(&entry), sizeof entry);
    names += blob.name;
    content += AlignUp(blob.bytes.size());
  }
  header.header_bytes = static_cast<uint32_t>(sizeof header + entries.size() + names.size());
  header.file_bytes = AlignUp(header.header_bytes) + content;
  std::string text(reinterpret_cast<const char*>(&header), sizeof header);
  text += entries + names;
  text.resize(AlignUp(text.size()), '\0');
  return text;
}

// A temporary file, removed unless it is renamed.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& path) : path_(path + ".XXXXXX"), file_(mkostemp(path_.data(), O_CLOEXEC)) {}
  ~TemporaryFile() {
    if (file_ < 0) return;
    close(file_);
    if (!renamed_) unlink(path_.c_str());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  bool ok() const { return file_ >= 0; }

  // Reserves space. Returns false if the file system lacks it, or if the size exceeds RLIMIT_FSIZE, where writing would
  // kill the process (SIGXFSZ). If the file system cannot reserve, the error shows in Write().
  bool Reserve(uint64_t bytes) const {
    rlimit limit = {};
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && bytes > limit.rlim_cur) {
      errno = EFBIG;
      return false;
    }
    return fallocate(file_, 0, 0, static_cast<off_t>(bytes)) == 0 || (errno != ENOSPC && errno != EDQUOT);
  }

  bool Write(std::span<const std::byte> bytes) const {
    while (!bytes.empty()) {
      const ssize_t count = write(file_, bytes.data(), bytes.size());
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return false;
      bytes = bytes.subspan(static_cast<size_t>(count));
    }
    return true;
  }

  bool RenameTo(const std::string& path) { return renamed_ = rename(path_.c_str(), path.c_str()) == 0; }

 private:
  std::string path_;
  int file_;
  bool renamed_ = false;
};

}  // namespace

PackedFile::PackedFile(std::string path, MappedFile file, std::vector<Blob> blobs)
    : path_(std::move(path)), file_(std::move(file)), blobs_(std::move(blobs)) {}

Result<PackedFile> PackedFile::Open(const std::string& path, const Key& key) {
  QTTS_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
  QTTS_ASSIGN_OR_RETURN(std::vector<Blob> blobs, Parse(file.bytes(), key, path));
  // Pages lost by truncation were read as zeros.
  QTTS_RETURN_IF_ERROR(file.Check());
  return PackedFile(path, std::move(file), std::move(blobs));
}

Result<std::vector<PackedFile::Blob>> PackedFile::Parse(std::span<const std::byte> file, const Key& key,
                                                        const std::string& name) {
  if (file.size() < sizeof(FileHeader)) return Damaged(name, "is " + std::to_string(file.size()) + " bytes long");
  const auto header = Read<FileHeader>(file, 0);
  if (std::string_view(header.magic, sizeof header.magic) != kMagic) {
    return Status::CorruptModel(name + ": is not a file of packed weights");
  }
  if (header.version != kVersion) {
    return Status::CorruptModel(name + ": is of version " + std::to_string(header.version) + ", expected " +
                                std::to_string(kVersion));
  }
  if (header.file_bytes != file.size()) {
    return Damaged(name,
                   "is " + std::to_string(file.size()) + " bytes long, expected " + std::to_string(header.file_bytes));
  }
  const uint64_t filled_header = AlignUp(header.header_bytes);
  if (header.header_bytes < sizeof header || filled_header > file.size() || header.blobs > kMaxBlobs ||
      uint64_t{header.blobs} * sizeof(Entry) > header.header_bytes - sizeof header) {
    return Damaged(name, "its header does not fit");
  }
  std::vector<std::byte> unsigned_header(file.begin(), file.begin() + static_cast<ptrdiff_t>(filled_header));
  std::memset(&unsigned_header[offsetof(FileHeader, checksum)], 0, sizeof header.checksum);
  if (ChecksumOf(unsigned_header) != header.checksum) return Damaged(name, "its header has another checksum");
  if (header.key != key) return Status::CorruptModel(name + ": was made from other weights or for another purpose");

  std::vector<Blob> blobs(header.blobs);
  std::set<std::string_view> names;
  uint64_t entry_offset = sizeof header;
  uint64_t name_offset = sizeof header + header.blobs * sizeof(Entry);
  uint64_t blob_offset = filled_header;
  for (Blob& blob : blobs) {
    const auto entry = Read<Entry>(file, entry_offset);
    entry_offset += sizeof entry;
    if (entry.name_bytes == 0 || entry.name_bytes > kLongestName ||
        entry.name_bytes > header.header_bytes - name_offset) {
      return Damaged(name, "a name does not fit");
    }
    blob.name = {reinterpret_cast<const char*>(file.data()) + name_offset, entry.name_bytes};
    name_offset += entry.name_bytes;
    if (!names.insert(blob.name).second) return Damaged(name, "two blobs have one name");
    // Compare without padding first: padding could overflow.
    if (entry.bytes > file.size() - blob_offset || AlignUp(entry.bytes) > file.size() - blob_offset) {
      return Damaged(name, "a blob does not fit");
    }
    blob.bytes = file.subspan(blob_offset, entry.bytes);
    blob.checksum = entry.checksum;
    blob_offset += AlignUp(entry.bytes);
  }
  if (name_offset != header.header_bytes) return Damaged(name, "its names do not fill the header");
  if (!IsZero(file.subspan(name_offset, filled_header - name_offset)))
    return Damaged(name, "its header is not filled up");
  if (blob_offset != file.size()) return Damaged(name, "its blobs do not fill the file");
  return blobs;
}

bool PackedFile::IsIntact(const Blob& blob) {
  const size_t filling = AlignUp(blob.bytes.size()) - blob.bytes.size();
  return ChecksumOf(blob.bytes) == blob.checksum && IsZero({blob.bytes.data() + blob.bytes.size(), filling});
}

uint32_t PackedFile::ChecksumOf(std::span<const std::byte> bytes) {
  return static_cast<uint32_t>(crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

Status WritePackedFile(const std::string& path, const PackedFile::Key& key, std::span<const PackedFile::Blob> blobs) {
  std::string header = HeaderOf(key, blobs);
  const uint32_t checksum = PackedFile::ChecksumOf(std::as_bytes(std::span(header)));
  std::memcpy(header.data() + offsetof(FileHeader, checksum), &checksum, sizeof checksum);
  FileHeader fields;
  std::memcpy(&fields, header.data(), sizeof fields);

  constexpr std::byte kZeros[kAlignment] = {};
  TemporaryFile file(path);
  const auto write_all = [&] {
    if (!file.ok() || !file.Reserve(fields.file_bytes) || !file.Write(std::as_bytes(std::span(header)))) return false;
    for (const PackedFile::Blob& blob : blobs) {
      const size_t filling = AlignUp(blob.bytes.size()) - blob.bytes.size();
      if (!file.Write(blob.bytes) || !file.Write(std::span(kZeros).first(filling))) return false;
    }
    return file.RenameTo(path);
  };
  if (write_all()) return Status::Ok();
  return Status::Unreadable(path + ": cannot be written: " + std::generic_category().message(errno));
}

}  // namespace qtts
