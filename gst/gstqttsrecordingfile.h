// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef GST_QTTS_RECORDING_FILE_H_
#define GST_QTTS_RECORDING_FILE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "qtts/status.h"

namespace gstqtts {

// A regular local file, opened once, so that the file that is identified is the file that is decoded.
// Const members may be called concurrently.
class RecordingFile {
 public:
  // Opens a file. `location`: a path or a file:// URI. Others are refused: what a network gives can change between two
  // utterances, and a pipe may give nothing for ever.
  //
  // Errors: kInvalidArgument for another URI, kNotFound, kUnreadable.
  static qtts::Result<RecordingFile> Open(const std::string& location);

  RecordingFile(RecordingFile&& other) noexcept;
  RecordingFile& operator=(RecordingFile&& other) noexcept;
  ~RecordingFile();

  // Returns the size in bytes when it was opened.
  uint64_t size() const { return size_; }

  // Returns up to `size` bytes from `offset` on; fewer at the end of the file.
  std::string Read(uint64_t offset, size_t size) const;
  // Reads the same into `data`. Returns the number of bytes.
  size_t Read(uint64_t offset, void* data, size_t size) const;

 private:
  RecordingFile(int descriptor, uint64_t size) : descriptor_(descriptor), size_(size) {}

  int descriptor_;
  uint64_t size_;
};

// Bytes that decoders see instead of the file's own.
struct HiddenBytes {
  uint64_t offset;
  std::string bytes;
};

// Replaces the hidden bytes in `data`, which holds `size` bytes of the file from `offset` on.
void HideBytes(const std::vector<HiddenBytes>& hidden, uint64_t offset, uint8_t* data, size_t size);

// Returns `size` bytes at `offset` as a big-endian number; 0 where there are fewer.
uint64_t BigEndianNumber(std::string_view bytes, size_t offset, size_t size);

// Returns the position behind all ID3v2 tags at the beginning of the file.
uint64_t SkipId3Tags(const RecordingFile& file);

}  // namespace gstqtts

#endif  // GST_QTTS_RECORDING_FILE_H_
