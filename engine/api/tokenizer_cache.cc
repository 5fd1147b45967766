// SPDX-License-Identifier: LGPL-2.1-or-later
#include "api/tokenizer_cache.h"

#include <sys/stat.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <new>
#include <system_error>
#include <tuple>
#include <vector>

#include "qtts/mutex.h"
#include "text/vocabulary.h"

namespace qtts {
namespace {

// Identifies a version of a file.
using Stamp = std::tuple<dev_t, ino_t, off_t, int64_t, int64_t, int64_t, int64_t>;

// Returns the stamps of a vocabulary's files; all zero for a missing file.
std::vector<Stamp> StampsOf(const std::string& folder) {
  std::vector<Stamp> stamps;
  const VocabularyFiles files;
  for (const std::string* name : {&files.vocab_name, &files.merges_name, &files.config_name}) {
    struct stat s = {};
    if (stat((folder + "/" + *name).c_str(), &s) != 0) s = {};
    stamps.emplace_back(s.st_dev, s.st_ino, s.st_size, s.st_mtim.tv_sec, s.st_mtim.tv_nsec, s.st_ctim.tv_sec,
                        s.st_ctim.tv_nsec);
  }
  return stamps;
}

struct Cache {
  struct Entry {
    std::vector<Stamp> stamps;
    std::weak_ptr<const Tokenizer> tokenizer;
  };
  Mutex mutex;
  std::map<std::pair<std::string, TokenizerPattern>, Entry> entries QTTS_GUARDED_BY(mutex);
};

Cache& TokenizerCache() {
  // Never destroyed: engines may be acquired and dropped while the process exits.
  static auto& cache = *new Cache;
  return cache;
}

}  // namespace

Result<std::shared_ptr<const Tokenizer>> SharedTokenizer(const std::string& folder, TokenizerPattern pattern) {
  Cache& cache = TokenizerCache();
  std::error_code error;
  std::filesystem::path path = std::filesystem::canonical(folder, error);
  if (error) path = folder;  // reading reports the error
  const std::pair key(path.string(), pattern);
  // Stamps are taken before reading: files that change while they are read are read again next time.
  std::vector<Stamp> stamps = StampsOf(folder);
  {
    const MutexLock lock(cache.mutex);
    const auto found = cache.entries.find(key);
    if (found != cache.entries.end() && found->second.stamps == stamps) {
      if (auto tokenizer = found->second.tokenizer.lock(); tokenizer != nullptr) return tokenizer;
    }
  }
  try {
    QTTS_ASSIGN_OR_RETURN(std::shared_ptr<const Tokenizer> tokenizer, Tokenizer::Load(folder, pattern));
    const MutexLock lock(cache.mutex);
    std::erase_if(cache.entries, [](const auto& entry) { return entry.second.tokenizer.expired(); });
    cache.entries[key] = {std::move(stamps), tokenizer};
    return tokenizer;
  } catch (const std::bad_alloc&) {
    return Status::ResourceExhausted(folder + ": not enough memory to read the tokenizer; free some");
  }
}

}  // namespace qtts
