// SPDX-License-Identifier: LGPL-2.1-or-later
#include "checkpoint/cache_folder.h"

#include <fcntl.h>
#include <glib.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <vector>

namespace qtts {
namespace {

constexpr mode_t kOwnerAlone = 0700;
constexpr size_t kTemporarySuffix = 7;  // ".XXXXXX" after the extension, see WritePackedFile()

std::string SystemMessage(int error) { return std::generic_category().message(error); }

Status NoCache(const std::string& why) { return Status::NotFound(why); }

struct File {
  std::string path;
  uint64_t bytes = 0;
  time_t used = 0;
  time_t written = 0;
};

std::vector<File> FilesOf(const std::string& folder, size_t suffix) {
  std::vector<File> files;
  std::error_code error;
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string path = it->path().string();
    struct stat info = {};
    if (path.size() < suffix || !std::string_view(path).substr(0, path.size() - suffix).ends_with(kPackedExtension) ||
        lstat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) {
      continue;
    }
    files.push_back({path, static_cast<uint64_t>(info.st_size), info.st_atim.tv_sec, info.st_mtim.tv_sec});
  }
  return files;
}

time_t Seconds(std::chrono::hours hours) {
  return static_cast<time_t>(std::chrono::duration_cast<std::chrono::seconds>(hours).count());
}

}  // namespace

Result<std::string> CacheFolder() {
  const auto variable = [](const char* name) {
    const char* const value = g_getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  if (!variable("QTTS_NO_CACHE").empty()) return NoCache("QTTS_NO_CACHE is set");
  std::string folder = variable("XDG_CACHE_HOME");
  if (!folder.starts_with('/')) {
    folder = variable("HOME");
    if (!folder.starts_with('/')) return NoCache("neither XDG_CACHE_HOME nor HOME is set to an absolute path");
    folder += "/.cache";
  }
  folder += "/qttssrc";
  if (g_mkdir_with_parents(folder.c_str(), kOwnerAlone) != 0) {
    return NoCache(folder + ": cannot be made: " + SystemMessage(errno));
  }
  struct stat info = {};
  if (stat(folder.c_str(), &info) != 0) return NoCache(folder + ": " + SystemMessage(errno));
  if (!S_ISDIR(info.st_mode)) return NoCache(folder + ": is not a folder");
  if (info.st_uid != geteuid()) return NoCache(folder + ": belongs to another user");
  if ((info.st_mode & (S_IWGRP | S_IWOTH)) != 0) return NoCache(folder + ": other users may write to it");
  return folder;
}

Status CheckRoom(const std::string& folder, uint64_t bytes, const CacheLimits& limits) {
  struct statvfs disk = {};
  if (statvfs(folder.c_str(), &disk) != 0) return Status::Unreadable(folder + ": " + SystemMessage(errno));
  const uint64_t free = uint64_t{disk.f_bavail} * disk.f_frsize;
  if (free >= bytes && free - bytes >= limits.leave_free) return Status::Ok();
  constexpr uint64_t kMega = 1000000;
  return Status::ResourceExhausted(folder + ": its disk has " + std::to_string(free / kMega) + " MB left, of which " +
                                   std::to_string(bytes / kMega) + " would be used and " +
                                   std::to_string(limits.leave_free / kMega) + " are to stay free");
}

void NoteUse(const std::string& path) {
  // The modification time stays: a process that has the file mapped detects an overwrite by it.
  const timespec times[] = {{0, UTIME_NOW}, {0, UTIME_OMIT}};
  (void)utimensat(AT_FDCWD, path.c_str(), times, 0);
}

void TrimCache(const std::string& folder, const std::string& keep, const CacheLimits& limits) {
  const time_t now = std::time(nullptr);
  for (const File& file : FilesOf(folder, kTemporarySuffix)) {
    if (now - file.written > Seconds(limits.abandoned)) unlink(file.path.c_str());
  }
  std::vector<File> files = FilesOf(folder, 0);
  std::ranges::sort(files, {}, &File::used);
  uint64_t total = 0;
  for (const File& file : files) total += file.bytes;
  for (const File& file : files) {
    if (file.path == keep || (now - file.used <= Seconds(limits.unused) && total <= limits.max_bytes)) continue;
    if (unlink(file.path.c_str()) == 0) total -= file.bytes;
  }
}

}  // namespace qtts
