// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CHECKPOINT_CACHE_FOLDER_H_
#define QTTS_CHECKPOINT_CACHE_FOLDER_H_

#include <chrono>
#include <cstdint>
#include <string>

#include "qtts/status.h"

namespace qtts {

// The user's folder for packed files (PackedFile), which can be made again: $XDG_CACHE_HOME/qttssrc, or
// $HOME/.cache/qttssrc where that variable is unset or no absolute path. Made for its owner alone if it is not there.
// Not ok where there is none, and says why: QTTS_NO_CACHE is set, there is no home, it cannot be made, it belongs to
// somebody else or others may write to it.
Result<std::string> CacheFolder();

constexpr const char* kPackedExtension = ".packed";

// What keeps the folder from growing without bound.
struct CacheLimits {
  uint64_t most_bytes = uint64_t{4} << 30;  // of all packed files
  uint64_t leave_free = uint64_t{1} << 30;  // on the disk
  std::chrono::hours unused = std::chrono::hours(90 * 24);
  std::chrono::hours abandoned = std::chrono::hours(24);  // writing takes far less
};

// Whether `bytes` more may be written to the folder; else why not.
Status CheckRoom(const std::string& folder, uint64_t bytes, const CacheLimits& limits = {});

// Notes that a packed file is used now: sets its time of access, whatever the mount's rules are for that.
void NoteUse(const std::string& path);

// Removes packed files other than `keep` that were not used for `unused`, then those used least recently until all take
// `most_bytes`, and what writers left that came to a sudden end. A process that has one mapped keeps it.
void TrimCache(const std::string& folder, const std::string& keep, const CacheLimits& limits = {});

}  // namespace qtts

#endif  // QTTS_CHECKPOINT_CACHE_FOLDER_H_
