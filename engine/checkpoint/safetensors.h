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

// A tensor inside a mapped file: row-major, the last dimension contiguous. Does not own its data;
// valid as long as the file it came from. `data` is aligned to its element size.
struct TensorView {
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  const void* data = nullptr;

  int64_t elements() const;
  size_t bytes() const { return static_cast<size_t>(elements()) * DTypeBytes(dtype); }
};

// One entry of a safetensors header. `dtype` is the file's spelling, since files may hold tensors
// of types that synthesis does not read (I64, BOOL, …).
struct TensorEntry {
  std::string dtype;
  std::vector<int64_t> shape;
  uint64_t begin = 0;  // bytes from the start of the data section
  uint64_t end = 0;
};

// The header of a safetensors file, checked: entries cover the data section without gap or overlap, as
// the format demands, and those of known types have exactly the bytes of their shapes.
struct SafetensorsHeader {
  std::map<std::string, TensorEntry, std::less<>> entries;
  std::map<std::string, std::string, std::less<>> metadata;  // the free-form "__metadata__", of strings
  uint64_t data_offset = 0;                                  // of the data section, in the file

  // `file` is the file's leading bytes (at least the header), `file_size` the whole length;
  // `name` stands in messages. Untrusted input.
  static Result<SafetensorsHeader> Parse(std::span<const std::byte> file, uint64_t file_size, const std::string& name);
};

// The tensors of `<stem>.safetensors`, or of the shards that `<stem>.safetensors.index.json` lists,
// mapped read-only. Immutable and thread-safe.
class TensorStore {
 public:
  // Opens and checks headers; maps, but reads no weights.
  static Result<std::shared_ptr<const TensorStore>> Open(const std::string& folder, const std::string& stem);
  ~TensorStore();

  // The tensor `name`, if it has exactly `shape` and a readable dtype. Otherwise one error that
  // names file, tensor, expected and found.
  Result<TensorView> Get(std::string_view name, std::span<const int64_t> shape) const;
  bool Contains(std::string_view name) const;
  // Lets go of the memory that `part` of a file takes (MappedFile::Release()); does nothing where it lies in none.
  void Release(std::span<const std::byte> part) const;
  // The tensor that begins at `data`, which Get() gave; empty if there is none.
  std::string_view NameOf(const void* data) const;
  // Tells the files apart from any others, and from themselves after a change, without reading weights: their sizes,
  // headers, inodes and times of change, which nobody sets at will.
  std::string Identity() const;
  // Whether the files are what they were when they were opened (MappedFile::Check()).
  Status Check() const;
  std::vector<std::string> Names() const;  // sorted

 private:
  struct Impl;
  explicit TensorStore(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace qtts

#endif  // QTTS_CHECKPOINT_SAFETENSORS_H_
