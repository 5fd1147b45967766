// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CPU_PACKED_CACHE_H_
#define QTTS_CPU_PACKED_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/packed_file.h"
#include "cpu/arithmetic.h"
#include "cpu/thread_pool.h"

namespace qtts::cpu {

// Cache of packed weights on disk: one file in the user's cache folder for each pair of model folder and arithmetic. It
// holds all packed weights except those that the codec's convolutions pack themselves. The weights are copied into
// large pages instead of used through the mapping: large pages are read 1.4 times as fast. Any failure is logged, and
// the weights are packed again.
//
// Used while a model is built, by one thread, in this order: for each weight Find(), and Add() if it found nothing;
// then Save(). Results of Find() are valid until Save().
class PackedCache {
 public:
  // Increment it with every change of the packed format.
  static constexpr int kVersion = 2;

  // Opens and checks the file if there is one. Stays empty if `arithmetic` does not pack, or if talker and code
  // predictor have fewer than kLeastParameters parameters: those pack in no time.
  PackedCache(const Checkpoint& checkpoint, Arithmetic arithmetic, ThreadPool& pool);

  // Replaces kLeastParameters, for tests of small models.
  static void SetLeastParameters(int64_t parameters);
  static constexpr int64_t kLeastParameters = 50'000'000;

  // Returns the packed bytes of the tensor whose data is at `weight`, as given to Add(). Empty if the cache has none of
  // size `bytes`.
  std::span<const std::byte> Find(const void* weight, size_t bytes);

  // Adds the packed bytes of a tensor. `packed` must be aligned to 64 bytes and stay valid until Save().
  void Add(const void* weight, std::span<const std::byte> packed);

  // Writes a new file if Add() was called, and unmaps the old one. kUnreadable if the old file changed while it was
  // read; the results of Find() must then not be used.
  Status Save();

 private:
  struct Entry {
    std::string name;
    std::span<const std::byte> bytes;
  };

  void Open();
  void Write();
  Status Check() const;

  const Checkpoint& checkpoint_;
  ThreadPool& pool_;
  std::string folder_;
  std::string path_;  // empty: the cache is off
  PackedFile::Key key_ = {};
  std::optional<PackedFile> file_;
  std::map<std::string_view, std::span<const std::byte>> found_;  // entries of file_
  std::vector<Entry> entries_;                                    // of the next file, in order
  bool added_ = false;
};

}  // namespace qtts::cpu

#endif  // QTTS_CPU_PACKED_CACHE_H_
