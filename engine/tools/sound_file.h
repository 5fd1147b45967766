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

// Writes mono sound while it is generated. A regular file appears complete: it is written to a temporary file in the
// same folder, which Finish() renames. Standard output, devices and named pipes get the sound as it is generated, with
// a WAV header of unknown length.
//
// Not thread-safe.
class SoundFile {
 public:
  struct Format {
    WavFormat samples = WavFormat::kS16;
    bool raw = false;  // without a WAV header
  };

  // Opens a file. `path`: a file named .wav or .raw, in any case, or "-" for standard output. `format.raw` applies
  // where no extension decides. Errors: kInvalidArgument for another extension or a folder; kUnreadable if the file
  // cannot be written.
  static Result<std::unique_ptr<SoundFile>> Open(const std::string& path, const Format& format);
  // Removes an unfinished file.
  ~SoundFile();
  SoundFile(const SoundFile&) = delete;
  SoundFile& operator=(const SoundFile&) = delete;

  // Writes the header. Must be called before the first Write().
  Status Begin(int sample_rate);
  Status Write(std::span<const float> samples);
  // Completes the file. No samples may follow.
  Status Finish();

  // Returns the name for messages: "out.wav" or "standard output".
  const std::string& name() const { return name_; }
  // Returns the file to remove if the process ends before Finish(); empty if there is none.
  const std::string& temporary() const { return temporary_; }

 private:
  explicit SoundFile(const Format& format) : format_(format) {}
  Status WriteBytes(const std::string& bytes);
  Status Failed() const;

  Format format_;
  int file_ = -1;
  bool own_ = false;       // file_ must be closed
  std::string name_;       // for messages
  std::string path_;       // final path; empty unless a regular file
  std::string temporary_;  // temporary path until Finish()
  int sample_rate_ = 0;
  uint64_t data_bytes_ = 0;
};

}  // namespace qtts

#endif  // QTTS_TOOLS_SOUND_FILE_H_
