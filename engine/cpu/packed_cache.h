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

// What a packer made of a checkpoint's weights, but for those of the codec that only its convolutions know, kept from
// one process to the next: one file of the user's cache folder for each folder of a model and arithmetic. It is copied,
// not used where it is mapped: in large pages weights are read 1.4 times as fast. Whatever goes wrong is a line of the
// log, and weights are packed as without it.
//
// Used while a model is built, by one thread, in this order: Find(), and Add() where it found nothing, of each weight;
// then Keep(), until which what Find() gave lives.
class PackedCache {
 public:
  // Raise it with every change of what the packer makes of a weight.
  static constexpr int kVersion = 1;

  // Opens the file if there is one, and checks all of it. Finds and keeps nothing where `arithmetic` is not packed, or
  // talker and code predictor have fewer than 50 million parameters: they are packed in an instant.
  PackedCache(const Checkpoint& checkpoint, Arithmetic arithmetic, ThreadPool& pool);

  // For tests of small models.
  static void SetLeastParameters(int64_t parameters);
  static constexpr int64_t kLeastParameters = 50'000'000;

  // What Add() was given for the tensor whose data is at `weight`; empty if there is nothing of `bytes`.
  std::span<const std::byte> Find(const void* weight, size_t bytes);

  // `packed` starts at a multiple of 64 and must stay until Keep().
  void Add(const void* weight, std::span<const std::byte> packed);

  // Writes a new file if anything was added, and lets go of the old one. kUnreadable if that was not what it had been
  // while it was read: then what Find() gave is not to be used.
  Status Keep();

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
  std::string path_;  // empty: nothing is kept
  PackedFile::Key key_ = {};
  std::optional<PackedFile> file_;
  std::map<std::string_view, std::span<const std::byte>> found_;  // of file_
  std::vector<Entry> entries_;                                    // of the file to write, in order
  bool added_ = false;
};

}  // namespace qtts::cpu

#endif  // QTTS_CPU_PACKED_CACHE_H_
