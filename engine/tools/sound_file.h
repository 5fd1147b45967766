// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TOOLS_SOUND_FILE_H_
#define QTTS_TOOLS_SOUND_FILE_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "qtts/status.h"
#include "wav.h"

namespace qtts {

// Mono sound that is written while it is made. A file appears whole: it is written beside its place and renamed by
// Finish(). Standard output, devices and named pipes get the sound as it comes, with a WAV header of unknown length.
//
// Not thread-safe.
class SoundFile {
 public:
  struct Format {
    WavFormat samples = WavFormat::kS16;
    bool raw = false;  // samples alone, without a header
  };

  // `path`: a file named .wav or .raw, in any case, or "-" for standard output. `format.raw` counts where no extension
  // decides. Errors: kInvalidArgument for another extension or a folder, kUnreadable where nothing can be written.
  static Result<std::unique_ptr<SoundFile>> Open(const std::string& path, const Format& format);
  // Removes what was not finished.
  ~SoundFile();
  SoundFile(const SoundFile&) = delete;
  SoundFile& operator=(const SoundFile&) = delete;

  // Before the first samples.
  Status Begin(int sample_rate);
  Status Write(std::span<const float> samples);
  // No more samples.
  Status Finish();

  // "out.wav" or "standard output".
  const std::string& name() const { return name_; }
  // The file that is to be removed if the process ends before Finish(); empty for none.
  const std::string& temporary() const { return temporary_; }

 private:
  explicit SoundFile(const Format& format) : format_(format) {}
  Status WriteBytes(const std::string& bytes);
  Status Failed() const;

  Format format_;
  int file_ = -1;
  bool own_ = false;       // to be closed
  std::string name_;       // for people
  std::string path_;       // its place; empty for what is no regular file
  std::string temporary_;  // where it is until it is whole
  int sample_rate_ = 0;
  uint64_t data_bytes_ = 0;
};

}  // namespace qtts

#endif  // QTTS_TOOLS_SOUND_FILE_H_
