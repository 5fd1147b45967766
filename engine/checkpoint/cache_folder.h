// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CHECKPOINT_CACHE_FOLDER_H_
#define QTTS_CHECKPOINT_CACHE_FOLDER_H_

#include <chrono>
#include <cstdint>
#include <string>

#include "qtts/status.h"

namespace qtts {

// Returns the user's cache folder for packed files (PackedFile): $XDG_CACHE_HOME/qttssrc, or $HOME/.cache/qttssrc if
// that variable is unset or not an absolute path. Created with access for the owner only. An error states the reason:
// QTTS_NO_CACHE is set, there is no home folder, the folder cannot be created, another user owns it, or others may
// write to it.
Result<std::string> CacheFolder();

constexpr const char* kPackedExtension = ".packed";

// Limits of the cache folder.
struct CacheLimits {
  uint64_t max_bytes = uint64_t{4} << 30;   // total of all packed files
  uint64_t leave_free = uint64_t{1} << 30;  // free space to keep on the disk
  std::chrono::hours unused = std::chrono::hours(90 * 24);
  std::chrono::hours abandoned = std::chrono::hours(24);  // age of a temporary file; a write takes far less
};

// Checks that `bytes` more may be written to the folder.
Status CheckRoom(const std::string& folder, uint64_t bytes, const CacheLimits& limits = {});

// Marks a packed file as used now: sets its access time explicitly, since mount options may disable automatic updates.
void NoteUse(const std::string& path);

// Removes packed files except `keep`: those not used for `unused`, then the least recently used until the total is at
// most `max_bytes`. Also removes temporary files of writers that were killed. A process that has a removed file mapped
// keeps its mapping.
void TrimCache(const std::string& folder, const std::string& keep, const CacheLimits& limits = {});

}  // namespace qtts

#endif  // QTTS_CHECKPOINT_CACHE_FOLDER_H_
