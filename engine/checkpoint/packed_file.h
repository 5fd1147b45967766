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

// A file of named blobs in order, made from something else that it can be made from again: weights as a processor wants
// them. It is never the only copy, so what is wrong with one is no error of the user's: it is made anew.
//
// All numbers are little-endian. "Filled up" means with zeros to a multiple of 64 bytes.
//
//   offset  bytes
//        0      8  "qttspack"
//        8      4  version of this layout: 1
//       12      4  N, number of blobs, at most 65,536
//       16      8  length of the file
//       24      4  H, length of the header up to the end of the names
//       28      4  CRC-32 of the header, filled up, with zeros in place of this number
//       32     32  key: a hash of all that the blobs were made from
//       64   16 N  of each blob, in order: its length (8), its CRC-32 (4), the length of its name (4), 1 to 255
//               …  the names, one after the other without separators; no two are equal
//        H         header, filled up
//                  blobs in order, each filled up
//
// Every byte is checked: those of the header when the file is opened, those of a blob and of what fills it up by
// IsIntact(). CRC-32 is zlib's, which finds the damage that disks and crashes do. It keeps nobody from planting a file;
// blobs must be harmless whatever is in them.
class PackedFile {
 public:
  using Key = std::array<std::byte, 32>;

  struct Blob {
    std::string_view name;
    std::span<const std::byte> bytes;  // starts at a multiple of 64 of the file
    uint32_t checksum = 0;             // what ChecksumOf(bytes) was when it was written
  };

  // Maps the file and checks its header, in no more time than that takes; reads no blob. kNotFound if there is none,
  // kCorruptModel if it is damaged, of another version or made from something else than `key` says.
  static Result<PackedFile> Open(const std::string& path, const Key& key);

  // The blobs of a file's bytes, views of these; the part of Open() that needs no file. `name` stands in messages.
  // Untrusted input.
  static Result<std::vector<Blob>> Parse(std::span<const std::byte> file, const Key& key, const std::string& name);

  const std::string& path() const { return path_; }
  const std::vector<Blob>& blobs() const { return blobs_; }

  // Whether the contents of a blob that Open() or Parse() gave, and what fills it up, are what was written: reads them.
  // Thread-safe.
  static bool IsIntact(const Blob& blob);

  // Whether the file is what it was when it was opened (MappedFile::Check()).
  Status Check() const { return file_.Check(); }

  // zlib's CRC-32.
  static uint32_t ChecksumOf(std::span<const std::byte> bytes);

 private:
  PackedFile(std::string path, MappedFile file, std::vector<Blob> blobs);

  std::string path_;
  MappedFile file_;
  std::vector<Blob> blobs_;
};

// Writes `blobs`, whose checksums are set, to `path`: to a file of another name beside it, which is then renamed. So
// readers see the old file or the whole new one, and two writers at once do no harm. The folder must exist. The file is
// for its owner alone. Its bytes are not flushed to the disk: a file that a crash leaves half-written is found damaged.
// On failure nothing is left, and the status says what the system said.
Status WritePackedFile(const std::string& path, const PackedFile::Key& key, std::span<const PackedFile::Blob> blobs);

}  // namespace qtts

#endif  // QTTS_CHECKPOINT_PACKED_FILE_H_
