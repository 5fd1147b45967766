// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CHECKPOINT_PACKED_FILE_H_
#define QTTS_CHECKPOINT_PACKED_FILE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "qtts/status.h"

namespace qtts {

// A file of named, ordered blobs that can be made again from other data: weights in the layout of an arithmetic. It is
// a cache, never the only copy. A damaged file is therefore not an error for the user; it is made again.
//
// All numbers are little-endian. "Padded" means padded with zeros to a multiple of 64 bytes.
//
//   offset  bytes
//        0      8  "qttspack"
//        8      4  version of this layout: 1
//       12      4  N, number of blobs, at most 65,536
//       16      8  length of the file
//       24      4  H, length of the header up to the end of the names
//       28      4  CRC-32 of the padded header, with zeros in place of this number
//       32     32  key: a hash of everything that the blobs were made from
//       64   16 N  for each blob, in order: its length (8), its CRC-32 (4), the length of its name (4), 1 to 255
//               …  the names, concatenated without separators; all different
//        H         padding of the header
//                  the blobs in order, each padded
//
// Every byte is checked: the header's when the file is opened, a blob's and its padding's by IsIntact(). CRC-32 is
// zlib's. It detects damage by disks and crashes, not a planted file: any content of a blob must be harmless.
class PackedFile {
 public:
  using Key = std::array<std::byte, 32>;

  struct Blob {
    std::string_view name;
    std::span<const std::byte> bytes;  // offset in the file: a multiple of 64
    uint32_t checksum = 0;             // ChecksumOf(bytes) when the file was written
  };

  // Maps the file and checks its header; reads no blob. kNotFound if there is no file; kCorruptModel if it is damaged,
  // has another version or another key.
  static Result<PackedFile> Open(const std::string& path, const Key& key);

  // Parses a file in memory and returns views of its blobs. The part of Open() that needs no file. `name` is for
  // messages. Untrusted input.
  static Result<std::vector<Blob>> Parse(std::span<const std::byte> file, const Key& key, const std::string& name);

  const std::string& path() const { return path_; }
  const std::vector<Blob>& blobs() const { return blobs_; }

  // Returns true if the content and the padding of a blob of Open() or Parse() match the checksum. Reads all of it.
  // Thread-safe.
  static bool IsIntact(const Blob& blob);

  // Checks that the file has not changed since it was opened (MappedFile::Check()).
  Status Check() const { return file_.Check(); }

  // Returns zlib's CRC-32.
  static uint32_t ChecksumOf(std::span<const std::byte> bytes);

 private:
  PackedFile(std::string path, MappedFile file, std::vector<Blob> blobs);

  std::string path_;
  MappedFile file_;
  std::vector<Blob> blobs_;
};

// Writes `blobs` with their checksums to a temporary file in the folder of `path`, then renames it. Readers see the old
// file or the complete new one; concurrent writers are safe. The folder must exist. Only the owner can access the file.
// It is not flushed to disk: a file left incomplete by a crash is detected as damaged. On failure nothing is left
// behind, and the status has the system's error.
Status WritePackedFile(const std::string& path, const PackedFile::Key& key, std::span<const PackedFile::Blob> blobs);

}  // namespace qtts

#endif  // QTTS_CHECKPOINT_PACKED_FILE_H_
