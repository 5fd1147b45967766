// SPDX-License-Identifier: LGPL-2.1-or-later
#include "cpu/packed_cache.h"

#include <glib.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "base/ensure_memory.h"
#include "base/log.h"
#include "checkpoint/cache_folder.h"

namespace qtts::cpu {
namespace {

// Cost of the checksum per byte, in multiply-adds of a matrix product.
constexpr int64_t kChecksumWork = 4;

std::atomic<int64_t> min_parameters = PackedCache::kLeastParameters;

PackedFile::Key Sha256(const std::string& text) {
  EnsureMemory(kSmallCallBytes);
  const std::unique_ptr<GChecksum, decltype(&g_checksum_free)> sum(g_checksum_new(G_CHECKSUM_SHA256), g_checksum_free);
  g_checksum_update(sum.get(), reinterpret_cast<const guchar*>(text.data()), static_cast<gssize>(text.size()));
  PackedFile::Key key;
  gsize size = key.size();
  g_checksum_get_digest(sum.get(), reinterpret_cast<guint8*>(key.data()), &size);
  return key;
}

std::string Hexadecimal(std::span<const std::byte> bytes) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string text;
  for (const std::byte byte : bytes) {
    text += kDigits[std::to_integer<unsigned>(byte) >> 4U];
    text += kDigits[std::to_integer<unsigned>(byte) & 15U];
  }
  return text;
}

const char* FileNameOf(Arithmetic arithmetic) {
  switch (arithmetic) {
    case Arithmetic::kInt8:
      return "int8";
    case Arithmetic::kInt4:
      return "int4";
    case Arithmetic::kF32:
    case Arithmetic::kBF16:
      break;
  }
  return nullptr;
}

// Returns the name of a folder's file. It depends on the model's folder only: when the weights change, the new file
// replaces the old one.
std::string NameOfFolder(const std::string& folder) {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::canonical(folder, error);
  constexpr size_t kBytes = 8;
  const PackedFile::Key hash = Sha256(error ? folder : path.string());
  return Hexadecimal(std::span(hash).first(kBytes));
}

void LogInfo(const std::string& line) {
  if (LogEnabled(LogLevel::kInfo)) Log(LogLevel::kInfo, line);
}

std::string Megabytes(uint64_t bytes) { return std::to_string(bytes / 1000000) + " MB"; }

}  // namespace

void PackedCache::SetLeastParameters(int64_t parameters) { min_parameters = parameters; }

PackedCache::PackedCache(const Checkpoint& checkpoint, Arithmetic arithmetic, ThreadPool& pool)
    : checkpoint_(checkpoint), pool_(pool) {
  const char* const name = FileNameOf(arithmetic);
  if (name == nullptr) return;
  if (checkpoint.talker().totals.parameters + checkpoint.predictor().totals.parameters < min_parameters) return;
  Result<std::string> folder = CacheFolder();
  if (!folder.ok()) {
    LogInfo("packed weights are not cached: " + folder.status().message());
    return;
  }
  folder_ = *std::move(folder);
  path_ = folder_ + "/" + NameOfFolder(checkpoint.folder()) + "-" + name + kPackedExtension;
  key_ = Sha256(std::to_string(kVersion) + '\n' + name + '\n' + checkpoint.Identity());
  Open();
}

void PackedCache::Open() {
  const auto start = LogClock::now();
  Result<PackedFile> file = PackedFile::Open(path_, key_);
  if (!file.ok()) {
    if (file.status().code() != StatusCode::kNotFound) LogInfo("packing the weights again: " + file.status().message());
    return;
  }
  const std::vector<PackedFile::Blob>& blobs = file->blobs();
  const auto count = static_cast<int64_t>(blobs.size());
  uint64_t bytes = 0;
  for (const PackedFile::Blob& blob : blobs) bytes += blob.bytes.size();
  std::atomic<bool> intact = true;
  pool_.ParallelFor(count, 1, kChecksumWork * static_cast<int64_t>(bytes), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end && intact; ++i) {
      if (!PackedFile::IsIntact(blobs[static_cast<size_t>(i)])) intact = false;
    }
  });
  if (!intact || !file->Check().ok()) return LogInfo("packing the weights again: " + path_ + ": is damaged");
  NoteUse(path_);
  file_ = *std::move(file);
  for (const PackedFile::Blob& blob : file_->blobs()) found_.emplace(blob.name, blob.bytes);
  LogInfo("packed weights were read from " + path_ + ", " + Megabytes(bytes) + " in " + ElapsedText(start));
}

std::span<const std::byte> PackedCache::Find(const void* weight, size_t bytes) {
  if (!file_.has_value()) return {};
  std::string name = checkpoint_.NameOf(weight);
  const auto found = found_.find(name);
  if (found == found_.end() || found->second.size() != bytes) return {};
  entries_.push_back({std::move(name), found->second});
  return found->second;
}

void PackedCache::Add(const void* weight, std::span<const std::byte> packed) {
  if (path_.empty()) return;
  std::string name = checkpoint_.NameOf(weight);
  if (name.empty()) return;
  entries_.push_back({std::move(name), packed});
  added_ = true;
}

Status PackedCache::Save() {
  if (std::exchange(added_, false)) Write();
  entries_.clear();
  found_.clear();
  Status status = Check();
  file_.reset();
  return status;
}

void PackedCache::Write() {
  const auto start = LogClock::now();
  std::vector<PackedFile::Blob> blobs;
  uint64_t bytes = 0;
  for (const Entry& entry : entries_) {
    // A tensor used by two parts of the model is written once.
    if (std::ranges::find(blobs, entry.name, &PackedFile::Blob::name) != blobs.end()) continue;
    blobs.push_back({entry.name, entry.bytes, 0});
    bytes += entry.bytes.size();
  }
  pool_.ParallelFor(static_cast<int64_t>(blobs.size()), 1, kChecksumWork * static_cast<int64_t>(bytes),
                    [&](int64_t begin, int64_t end) {
                      for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
                        blobs[i].checksum = PackedFile::ChecksumOf(blobs[i].bytes);
                      }
                    });
  const auto write = [&] {
    // If the weights have changed meanwhile, the packed data does not match the key.
    QTTS_RETURN_IF_ERROR(checkpoint_.CheckFiles());
    QTTS_RETURN_IF_ERROR(Check());
    QTTS_RETURN_IF_ERROR(CheckRoom(folder_, bytes));
    return WritePackedFile(path_, key_, blobs);
  };
  if (const Status status = write(); !status.ok()) {
    return LogInfo("packed weights are not cached: " + status.message());
  }
  TrimCache(folder_, path_);
  LogInfo("packed weights were written to " + path_ + ", " + Megabytes(bytes) + " in " + ElapsedText(start));
}

Status PackedCache::Check() const {
  if (!file_.has_value() || file_->Check().ok()) return Status::Ok();
  return Status::Unreadable(path_ + ": was changed while it was read. Start again: the weights will be packed again.");
}

}  // namespace qtts::cpu
