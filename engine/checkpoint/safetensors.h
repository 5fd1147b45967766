// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CHECKPOINT_SAFETENSORS_H_
#define QTTS_CHECKPOINT_SAFETENSORS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/dtype.h"
#include "qtts/status.h"

namespace qtts {

// A tensor in a mapped file: row-major, the last dimension contiguous. Does not own its data, which is valid as long as
// the file is open. `data` is aligned to the element size.
struct TensorView {
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  const void* data = nullptr;

  int64_t elements() const;
  size_t bytes() const { return static_cast<size_t>(elements()) * DTypeBytes(dtype); }
};

// One entry of a safetensors header. `dtype` is the file's spelling, since files may hold types that synthesis does not
// read (I64, BOOL, …).
struct TensorEntry {
  std::string dtype;
  std::vector<int64_t> shape;
  uint64_t begin = 0;  // bytes from the start of the data section
  uint64_t end = 0;
};

// A checked safetensors header. The entries cover the data section without gap or overlap, as the format requires.
// Entries of known types have exactly the bytes of their shapes.
struct SafetensorsHeader {
  std::map<std::string, TensorEntry, std::less<>> entries;
  std::map<std::string, std::string, std::less<>> metadata;  // the free-form "__metadata__", of strings
  uint64_t data_offset = 0;                                  // file offset of the data section

  // Parses a header. `file`: the first bytes of the file, at least the header. `file_size`: length of the file. `name`
  // is for messages. Untrusted input.
  static Result<SafetensorsHeader> Parse(std::span<const std::byte> file, uint64_t file_size, const std::string& name);
};

// The tensors of `<stem>.safetensors`, or of the shards that `<stem>.safetensors.index.json` lists,
// mapped read-only. Immutable and thread-safe.
class TensorStore {
 public:
  // Maps the files and checks their headers. Reads no weights.
  static Result<std::shared_ptr<const TensorStore>> Open(const std::string& folder, const std::string& stem);
  ~TensorStore();

  // Returns the tensor `name`. The error names the file, the tensor, the expected and the found: missing, another
  // shape, or an unreadable dtype.
  Result<TensorView> Get(std::string_view name, std::span<const int64_t> shape) const;
  bool Contains(std::string_view name) const;
  // Releases the memory of `part` of a file (MappedFile::Release()). Does nothing if `part` is in none of the files.
  void Release(std::span<const std::byte> part) const;
  // Returns the name of the tensor that begins at `data`; empty if there is none.
  std::string_view NameOf(const void* data) const;
  // Identifies the files: sizes, headers, inodes and change times, which users cannot set. Differs for other files and
  // after a change. Reads no weights.
  std::string Identity() const;
  // Checks that the files have not changed since they were opened (MappedFile::Check()).
  Status Check() const;
  std::vector<std::string> Names() const;  // sorted

 private:
  struct Impl;
  explicit TensorStore(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace qtts

#endif  // QTTS_CHECKPOINT_SAFETENSORS_H_
