// SPDX-License-Identifier: LGPL-2.1-or-later
#include "sound_file.h"

#include <fcntl.h>
#include <glib.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

namespace qtts {
namespace {

constexpr int kMode = 0666;  // minus the umask

std::string LowerExtension(const std::filesystem::path& path) {
  std::string extension = path.extension().string();
  std::transform(extension.begin(), extension.end(), extension.begin(), g_ascii_tolower);
  return extension;
}

}  // namespace

Result<std::unique_ptr<SoundFile>> SoundFile::Open(const std::string& path, const Format& format) {
  std::unique_ptr<SoundFile> sound(new SoundFile(format));
  sound->name_ = path;
  if (path == "-") {
    if (isatty(STDOUT_FILENO) != 0) {
      return Status::InvalidArgument("standard output is a terminal; name a file, or a program behind a pipe");
    }
    sound->name_ = "standard output";
    sound->file_ = STDOUT_FILENO;
    return sound;
  }
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (fs::is_directory(status)) return Status::InvalidArgument(path + ": is a folder; name a file in it");
  const bool stream = fs::exists(status) && !fs::is_regular_file(status);
  const std::string extension = LowerExtension(path);
  if (extension == ".raw") {
    sound->format_.raw = true;
  } else if (extension != ".wav" && !stream) {
    return Status::InvalidArgument(path + ": the extension must be .wav or .raw; for other formats, put the element " +
                                   "qttssrc into a pipeline with an encoder");
  } else if (format.raw && !stream) {
    return Status::InvalidArgument(path + ": --raw contradicts the extension .wav");
  }
  sound->own_ = true;
  if (stream) {
    sound->file_ = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  } else {
    // A symbolic link is kept; its target is replaced.
    const fs::path place =
        fs::is_symlink(fs::symlink_status(path, error)) ? fs::canonical(path, error) : fs::path(path);
    sound->path_ = place.empty() ? path : place.string();
    std::string beside = (fs::path(sound->path_).parent_path() / ".qtts-tool-XXXXXX").string();
    sound->file_ = g_mkstemp_full(beside.data(), O_WRONLY | O_CLOEXEC, kMode);
    if (sound->file_ >= 0) sound->temporary_ = beside;
  }
  if (sound->file_ < 0) return sound->Failed();
  return sound;
}

SoundFile::~SoundFile() {
  if (own_ && file_ >= 0) close(file_);
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

Status SoundFile::Begin(int sample_rate) {
  sample_rate_ = sample_rate;
  return format_.raw ? Status::Ok() : WriteBytes(WavHeader(kUnknownLength, sample_rate, format_.samples));
}

Status SoundFile::Write(std::span<const float> samples) {
  const std::string bytes = SampleBytes(samples, format_.samples);
  data_bytes_ += bytes.size();
  return WriteBytes(bytes);
}

Status SoundFile::Finish() {
  if (!path_.empty() && !format_.raw) {
    const std::string header = WavHeader(data_bytes_, sample_rate_, format_.samples);
    if (lseek(file_, 0, SEEK_SET) < 0) return Failed();
    QTTS_RETURN_IF_ERROR(WriteBytes(header));
  }
  if (!own_) return Status::Ok();
  if (close(std::exchange(file_, -1)) != 0) return Failed();
  if (path_.empty()) return Status::Ok();
  if (rename(temporary_.c_str(), path_.c_str()) != 0) return Failed();
  temporary_.clear();
  return Status::Ok();
}

Status SoundFile::WriteBytes(const std::string& bytes) {
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t written = write(file_, bytes.data() + done, bytes.size() - done);
    if (written < 0 && errno != EINTR) return Failed();
    if (written > 0) done += static_cast<size_t>(written);
  }
  return Status::Ok();
}

Status SoundFile::Failed() const {
  return Status::Unreadable(name_ + ": cannot be written: " + std::generic_category().message(errno));
}

}  // namespace qtts
